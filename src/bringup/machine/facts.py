"""The machine around the GPUs: kernel, system, processor, memory, limits, virtualisation, clock.

Source: proc(5), os-release(5), systemd-detect-virt(1), container_interface of systemd, cgroups(7).
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from bringup.machine import Subject, Target
from bringup.parse.df import read_disk
from bringup.parse.proc import read_limits, read_meminfo, whole_number
from bringup.parse.sections import first_line, read_sections, why_unanswered
from bringup.values.host import CommandResult, HostFacts, HostSnapshot, Question

_KEY = "machine.facts"
_CLOCK = "transport.clock"  # asked by the runner in the same round trip: seconds since 1970

_SCRIPT = r"""
PATH="$PATH:/usr/sbin:/sbin"
say() { echo "@@ $1"; shift; "$@" 2>/dev/null; }
say name uname -n
say kernel uname -srm
say cmdline cat /proc/cmdline
say version cat /proc/version
say release cat /etc/os-release || cat /usr/lib/os-release 2>/dev/null
# One processor's block: 256 of them are 400 KB.
say processor sed '/^[[:space:]]*$/q' /proc/cpuinfo
say processors grep -c '^processor' /proc/cpuinfo
say online getconf _NPROCESSORS_ONLN
grep -q '^model name' /proc/cpuinfo 2>/dev/null || say lscpu lscpu
say meminfo cat /proc/meminfo
say load cat /proc/loadavg
say limits cat /proc/self/limits
say shm df -P -k /dev/shm
say memory_limit cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null
say cpu_limit cat /sys/fs/cgroup/cpu.max
say virtual_machine systemd-detect-virt --vm
say container systemd-detect-virt --container
say manager cat /run/systemd/container
say markers ls -d /.dockerenv /run/.containerenv /var/run/secrets/kubernetes.io /dev/.lxc /dev/lxd \
  /proc/vz /proc/bc
say init cat /proc/1/cgroup
say hypervisor cat /sys/hypervisor/type
say board cat /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name
say kubernetes printenv KUBERNETES_SERVICE_HOST
if ! [ -r /proc/meminfo ]; then
  say darwin sysctl hw.memsize hw.logicalcpu machdep.cpu.brand_string vm.loadavg
  say product sw_vers
fi
exit 0
"""


def _questions(target: Target) -> tuple[Question, ...]:
    del target
    return (Question(key=_KEY, script=_SCRIPT, time_limit_s=10.0),)


def _read(snapshot: HostSnapshot, results: Mapping[str, CommandResult]) -> HostSnapshot:
    result = results.get(_KEY)
    sections = read_sections(result.stdout) if result else {}
    facts = replace(snapshot.facts, clock_skew_s=_clock_skew(snapshot.taken_at, results.get(_CLOCK)))
    if not sections:
        missing = f"facts of the machine: {why_unanswered(result)}"
        return replace(snapshot, facts=facts, missing=(*snapshot.missing, missing))
    facts = _with_system(facts, sections)
    facts = _with_processor(facts, sections)
    facts = _with_memory(facts, sections)
    facts = _with_darwin(facts, sections)
    facts = replace(
        facts,
        limits=read_limits(sections.get("limits", "")),
        virtualization=_virtualization(sections),
        container=_container(sections),
    )
    missing = snapshot.missing
    if facts.memory_total is None:
        missing = (*missing, "memory of the machine: /proc/meminfo does not say")
    return replace(snapshot, facts=facts, missing=missing)


def _with_system(facts: HostFacts, sections: Mapping[str, str]) -> HostFacts:
    release = sections.get("release", "")
    pretty = re.search(r"^PRETTY_NAME=(.*)$", release, re.MULTILINE)
    kernel = re.fullmatch(r"(\S+) (\S+) (\S+)", first_line(sections.get("kernel")) or "")
    load = re.match(r"\{? ?([0-9]+\.[0-9]+)", sections.get("load", ""))
    return replace(
        facts,
        name=first_line(sections.get("name")),
        kernel=kernel[0] if kernel else first_line(sections.get("kernel")),
        kernel_command_line=first_line(sections.get("cmdline")),
        operating_system=pretty[1].strip().strip("\"'") or None if pretty else None,
        load_1min=float(load[1]) if load else None,
    )


def _with_processor(facts: HostFacts, sections: Mapping[str, str]) -> HostFacts:
    rows = (line.partition(":") for line in sections.get("processor", "").split("\n"))
    fields = {name.strip(): value.strip() for name, _, value in rows}
    known = re.search(r"^Model name:[ \t]*(.+)$", sections.get("lscpu", ""), re.MULTILINE)
    model = fields.get("model name") or (known[1].strip() if known else None)
    if model is None and "CPU implementer" in fields and "CPU part" in fields:
        # Arm kernels print numbers only; without lscpu the numbers are what can be said.
        model = f"Arm implementer {fields['CPU implementer']}, part {fields['CPU part']}"
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    # The kernel's list counts all, lxcfs trims it to the container's share; `getconf` is the fall-back.
    count = whole_number(sections.get("processors")) or whole_number(sections.get("online"))
    return replace(facts, cpu_model=model, cpu_flags=tuple(flags), cpu_count=count)


_SHM = "/dev/shm"  # noqa: S108 - a mount point, nothing is written


def _with_memory(facts: HostFacts, sections: Mapping[str, str]) -> HostFacts:
    memory = read_meminfo(sections.get("meminfo", ""))
    shm = read_disk(purpose="shared memory", path=_SHM, blocks=sections.get("shm", ""))
    return replace(
        facts,
        memory_total=memory.get("MemTotal"),
        memory_available=memory.get("MemAvailable"),
        swap_total=memory.get("SwapTotal"),
        swap_free=memory.get("SwapFree"),
        shm_total=shm.size if shm else None,
        shm_available=shm.available if shm else None,
        memory_limit=_memory_limit(sections.get("memory_limit"), memory.get("MemTotal")),
        cpu_limit=_cpu_limit(sections.get("cpu_limit")),
    )


def _memory_limit(text: str | None, total: int | None) -> int | None:
    """Bytes of the control group's limit; "max" and version 1's 2^63 mean that there is none."""
    limit = whole_number(first_line(text))
    if limit is None or limit <= 0 or limit >= 2**62:
        return None
    return limit if total is None or limit < total else None


def _cpu_limit(text: str | None) -> float | None:
    match = re.fullmatch(r"([0-9]{1,18}) ([1-9][0-9]{0,17})", first_line(text) or "")
    return int(match[1]) / int(match[2]) if match else None


def _with_darwin(facts: HostFacts, sections: Mapping[str, str]) -> HostFacts:
    if "darwin" not in sections:
        return facts
    rows = dict(re.findall(r"^([a-z_.]+): (.*)$", sections["darwin"], re.MULTILINE))
    product = dict(re.findall(r"^(\w+):[ \t]*(.*)$", sections.get("product", ""), re.MULTILINE))
    load = re.match(r"\{ ([0-9]+\.[0-9]+)", rows.get("vm.loadavg", ""))
    name = " ".join(filter(None, (product.get("ProductName"), product.get("ProductVersion"))))
    return replace(
        facts,
        memory_total=whole_number(rows.get("hw.memsize")),
        cpu_count=whole_number(rows.get("hw.logicalcpu")),
        cpu_model=rows.get("machdep.cpu.brand_string"),
        operating_system=name or facts.operating_system,
        load_1min=float(load[1]) if load else facts.load_1min,
    )


# Words of the firmware tables, in lower case, and the name that systemd-detect-virt gives the same machine.
_BOARDS = (
    ("qemu", "qemu"),
    ("kvm", "kvm"),
    ("vmware", "vmware"),
    ("innotek", "oracle"),
    ("virtualbox", "oracle"),
    ("xen", "xen"),
    ("virtual machine", "microsoft"),
    ("amazon ec2", "amazon"),
    ("google compute engine", "google"),
    ("openstack", "kvm"),
    ("bochs", "bochs"),
    ("parallels", "parallels"),
)


def _virtualization(sections: Mapping[str, str]) -> str | None:
    """What systemd would say, asked of systemd or read from firmware and processor."""
    said = first_line(sections.get("virtual_machine"))
    if said and re.fullmatch(r"[a-z0-9-]+", said) and said != "none":
        return said
    if "microsoft" in sections.get("version", "").lower():
        return "microsoft"  # WSL runs under Hyper-V; systemd counts it as a container
    hypervisor = first_line(sections.get("hypervisor"))
    if said is None and hypervisor:
        return hypervisor
    board = sections.get("board", "").lower()
    has_hypervisor = bool(re.search(r"^flags\b.*\bhypervisor\b", sections.get("processor", ""), re.MULTILINE))
    # Amazon's metal machines carry the same vendor name; the processor's own flag tells them apart.
    named = next((kind for words, kind in _BOARDS if words in board), None)
    if has_hypervisor:
        return named or "vm"
    if said == "none" or "flags" in sections.get("processor", ""):
        return "none"
    return named


def _container(sections: Mapping[str, str]) -> str | None:
    """Kind of container the shell runs in; None: in none that can be told."""
    if "microsoft" in sections.get("version", "").lower() and not _in_kubernetes(sections):
        markers = sections.get("markers", "")
        return "docker" if "/.dockerenv" in markers else "wsl"
    if _in_kubernetes(sections):
        return "kubernetes"
    for name in ("container", "manager"):
        said = first_line(sections.get(name))
        if said and said != "none" and re.fullmatch(r"[a-z0-9-]+", said):
            return said.removesuffix("-libvirt") if said.startswith("lxc") else said
    return _container_by_marks(sections)


def _container_by_marks(sections: Mapping[str, str]) -> str | None:
    markers = sections.get("markers", "")
    init = sections.get("init", "")
    marks = (
        ("podman", "/run/.containerenv" in markers or "libpod" in init),
        ("docker", "/.dockerenv" in markers or "/docker" in init),
        ("lxc", "/dev/.lxc" in markers or "/dev/lxd" in markers or "/lxc/" in init or ".payload." in init),
        # OpenVZ has /proc/vz everywhere and /proc/bc only on the node itself.
        ("openvz", "/proc/vz" in markers and "/proc/bc" not in markers),
    )
    return next((kind for kind, is_marked in marks if is_marked), None)


def _in_kubernetes(sections: Mapping[str, str]) -> bool:
    return bool(
        first_line(sections.get("kubernetes"))
        or "kubernetes.io" in sections.get("markers", "")
        or "kubepods" in sections.get("init", "")
    )


def _clock_skew(taken_at: float, result: CommandResult | None) -> float | None:
    """Seconds that the host's clock is ahead of ours, good to half the round trip.

    The question left a round trip before its answer came, or, where the runner did not note that moment, at
    `taken_at`. Without the length of the round trip the error has no bound, so there is no value either.
    """
    if result is None or result.elapsed_s is None:
        return None
    match = re.match(r"\s*([0-9]{1,12})(\.[0-9]+)?", result.stdout)
    if match is None:
        return None
    # A clock of whole seconds (busybox) stands half a second back on average.
    host = float(match[0]) if match[2] else float(match[0]) + 0.5
    asked_at = taken_at if result.received_at is None else result.received_at - result.elapsed_s
    return host - asked_at - result.elapsed_s / 2


SUBJECT = Subject(questions=_questions, read=_read)
