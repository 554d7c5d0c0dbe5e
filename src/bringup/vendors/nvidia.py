"""NVIDIA GPUs, asked through nvidia-smi and /proc/driver/nvidia.

One question asks for everything the cards say of themselves: it takes the field list for the driver's
version, drops what this nvidia-smi does not know, and asks card by card when one lost GPU's line has replaced
the whole answer. Nothing is written on the host.

Source: nvidia-smi of the drivers 390 to 610 (field names of `--help-query-gpu`, strings of the binaries).
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping

from bringup.errors import UnreadableAnswer
from bringup.parse.nvidia_frame import Framed, read_cards, read_frame
from bringup.parse.nvidia_join import join
from bringup.parse.nvidia_samples import SAMPLED
from bringup.parse.nvidia_smi import Rows, read_gpu, read_processes, read_rows
from bringup.parse.nvidia_software import read_driver
from bringup.parse.nvidia_state import trouble
from bringup.parse.nvidia_trace import INTERVAL_S, TRACED, read_trace
from bringup.parse.topo import read_topology
from bringup.parse.xid_log import read_kernel_log
from bringup.units import MIB
from bringup.values.host import (
    CommandResult,
    Gpu,
    GpuLink,
    GpuProcess,
    KernelLog,
    Question,
)
from bringup.values.load import GpuMoment
from bringup.vendors import GpuReading, Vendor

# Every field with the first major version of the driver that is asked for it: the one after the last that is
# known not to have it. A field that this driver refuses nevertheless is dropped by the script and the rest
# asked again. Before R535 `clocks_event_reasons.active` was `clocks_throttle_reasons.active`: it is renamed.
_FIELDS: tuple[tuple[str, int], ...] = (
    ("index", 0),
    ("uuid", 0),
    ("pci.bus_id", 0),
    ("name", 0),
    ("driver_version", 0),
    ("vbios_version", 0),
    ("compute_cap", 471),
    ("memory.total", 0),
    ("memory.reserved", 471),
    ("memory.used", 0),
    ("memory.free", 0),
    ("utilization.gpu", 0),
    ("utilization.memory", 0),
    ("power.draw", 0),
    ("power.draw.instant", 471),
    ("enforced.power.limit", 0),
    ("power.default_limit", 0),
    ("power.min_limit", 0),
    ("power.max_limit", 0),
    ("temperature.gpu", 0),
    ("temperature.memory", 391),
    ("temperature.gpu.tlimit", 471),
    ("pstate", 0),
    ("clocks.sm", 0),
    ("clocks.mem", 0),
    ("clocks.max.sm", 0),
    ("clocks.max.mem", 0),
    ("clocks_event_reasons.active", 526),
    ("clocks_event_reasons_counters.sw_power_cap", 551),
    ("clocks_event_reasons_counters.sw_thermal_slowdown", 551),
    ("clocks_event_reasons_counters.hw_thermal_slowdown", 551),
    ("clocks_event_reasons_counters.hw_power_brake_slowdown", 551),
    ("pcie.link.gen.current", 0),
    ("pcie.link.gen.max", 0),
    ("pcie.link.gen.gpumax", 471),
    ("pcie.link.gen.hostmax", 471),
    ("pcie.link.width.current", 0),
    ("pcie.link.width.max", 0),
    ("ecc.mode.current", 0),
    ("ecc.mode.pending", 0),
    ("ecc.errors.uncorrected.volatile.total", 0),
    ("ecc.errors.uncorrected.aggregate.total", 0),
    ("ecc.errors.corrected.volatile.total", 0),
    ("remapped_rows.pending", 419),
    ("remapped_rows.failure", 419),
    ("remapped_rows.uncorrectable", 419),
    ("retired_pages.pending", 0),
    ("mig.mode.current", 419),
    ("mig.mode.pending", 419),
    ("persistence_mode", 0),
    ("compute_mode", 0),
    ("fabric.state", 471),
    ("fabric.status", 471),
    ("gpu_recovery_action", 551),
    ("reset_status.reset_required", 526),
    ("reset_status.drain_and_reset_recommended", 526),
    ("serial", 0),
)

_ROUNDS = 5  # readings of each card, 0.2 s apart: one second
_UNEXPLAINED = 256 * MIB  # guess: above what a driver and a display take by themselves
_ANSWER_LIMIT_S = 25  # a first call without persistence mode initialises every card, seconds each
_CARD_LIMIT_S = 8

_FIND_TOOL = """\
tool=
for place in nvidia-smi /usr/lib/wsl/lib/nvidia-smi /usr/local/nvidia/bin/nvidia-smi; do
  if command -v "$place" >/dev/null 2>&1; then tool=$place; break; fi
done
limited() {
  seconds=$1; shift
  if timeout --foreground 5 true >/dev/null 2>&1; then timeout --foreground "$seconds" "$@"
  elif timeout 5 true >/dev/null 2>&1; then timeout "$seconds" "$@"
  else "$@"; fi
}
"""

_GPUS = (
    _FIND_TOOL
    + """\
major=
if [ -r /proc/driver/nvidia/version ]; then
  read -r line < /proc/driver/nvidia/version
  for part in $line; do
    case $part in
      [0-9][0-9][0-9].[0-9]*) major=${part%%.*}; echo "@driver $part"; break ;;
    esac
  done
fi
cards=
kernel=
if [ -r /proc/version ]; then read -r kernel < /proc/version; fi
case $kernel in *icrosoft*) places= ;; *) places=/sys/bus/pci/devices ;; esac
if [ -e /etc/nv_tegra_release ]; then places=; fi
for device in ${places:+"$places"/*}; do
  [ -r "$device/vendor" ] && [ -r "$device/class" ] || continue
  case $cards in '') cards=' '; echo "@pci" ;; esac
  read -r vendor < "$device/vendor"
  read -r class < "$device/class"
  case $vendor$class in 0x10de0x03*) ;; *) continue ;; esac
  owner=$(readlink "$device/driver" 2>/dev/null)
  owner=${owner##*/}
  echo "@pci ${device##*/} ${owner:--}"
  case $owner in nvidia|'') cards="$cards ${device##*/}" ;; esac
done
if [ -z "$tool" ]; then
  echo "@absent"
  exit 127
fi
set -f
fields=
for pair in @PAIRS@; do
  name=${pair%%:*}
  first=${pair##*:}
  if [ -n "$major" ] && [ "$major" -lt "$first" ]; then
    case $name in clocks_event_reasons.active) name=clocks_throttle_reasons.active ;; *) continue ;; esac
  fi
  fields=$fields${fields:+,}$name
done
drop() {
  kept=
  rest=$fields,
  while [ -n "$rest" ]; do
    name=${rest%%,*}
    rest=${rest#*,}
    if [ "$name" = "$1" ]; then
      case $name in clocks_event_reasons.active) name=clocks_throttle_reasons.active ;; *) continue ;; esac
    fi
    kept=$kept${kept:+,}$name
  done
  [ "$kept" != "$fields" ] && [ -n "$kept" ] || return 1
  fields=$kept
}
ask() {
  seconds=$1; shift
  round=0
  while :; do
    answer=$(limited "$seconds" "$tool" "$@" "--query-gpu=$fields" \\
      --format=csv,noheader,nounits 2>&1 </dev/null)
    status=$?
    case $status in 137|143) status=124 ;; esac
    case $answer in *'Field "'*'" is not a valid field to query'*) ;; *) return ;; esac
    bad=${answer#*Field \\"}
    drop "${bad%%\\"*}" || return
    round=$((round + 1))
    [ "$round" -lt 48 ] || return
  done
}
show() {
  printf '@fields %s\\n@answer %s %s\\n%s\\n' "$fields" "$1" "$status" "$answer"
}
ask @ANSWER@
show all
worst=$status
case $answer in
  *'Unable to determine the device handle'*|*'GPU is lost'*)
    hung=0
    for card in $cards; do
      if [ "$hung" -ge 2 ]; then echo "@skipped $card"; continue; fi
      ask @CARD@ -i "$card"
      [ "$status" -ne 124 ] || hung=$((hung + 1))
      show "$card"
    done ;;
esac
echo "@end"
exit "$worst"
"""
)

_PROCESS_COLUMNS = ("gpu_uuid", "pid", "process_name", "used_memory")

_PROCESSES = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" --query-compute-apps=@COLUMNS@ --format=csv,noheader,nounits </dev/null
""".replace("@COLUMNS@", ",".join(_PROCESS_COLUMNS))
)

_TOPOLOGY = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" topo -m </dev/null
"""
)

# nvidia-smi's own loop: it starts once, and its readings lie 0.2 s apart. Whoever reads stops after five.
# Not yet tried on a machine with these cards: a tool that holds its lines back gives fewer samples, or none.
_SAMPLES = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
rounds() {
  count=0
  first=
  while IFS= read -r line; do
    case $line in *'Field "'*) return 1 ;; esac
    [ -n "$first" ] || first=${line%%,*}
    if [ "${line%%,*}" = "$first" ]; then
      count=$((count + 1))
      [ "$count" -le @ROUNDS@ ] || return 0
    fi
    printf '%s\\n' "$line"
  done
}
for fields in @SAMPLED@,power.draw.instant @SAMPLED@; do
  echo "@fields $fields"
  limited 3 "$tool" --query-gpu=$fields --format=csv,noheader,nounits -lms 200 2>&1 </dev/null |
    rounds && break
done
exit 0
""".replace("@SAMPLED@", ",".join(SAMPLED)).replace("@ROUNDS@", str(_ROUNDS))
)

_NVLINK = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
limited 20 "$tool" nvlink -s </dev/null
"""
)

# Which driver is loaded, which one is on disk, and which libraries the running programs have in memory: a
# container brings its own. A process whose maps may not be read is left out.
_SOFTWARE = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@@ absent"; exit 0; }
PATH=$PATH:/usr/sbin:/sbin
if [ -r /proc/driver/nvidia/version ]; then echo "@@ module"; cat /proc/driver/nvidia/version; fi
echo "@@ installed"
modinfo -F version nvidia 2>/dev/null
echo "@@ tool"
limited 10 "$tool" --version </dev/null 2>&1
echo "@@ list"
limited 10 "$tool" -L </dev/null 2>/dev/null
echo "@@ mapped"
limited 5 grep -Eo '/[^ ]*/lib(cuda|cudart[^/ ]*)[.]so[.][0-9.]+' /proc/[0-9]*/maps 2>/dev/null |
  sort -u | head -n 400
exit 0
"""
)

# The journal is asked where the kernel's own buffer may not be read or has lost its beginning.
_KERNEL_LOG = """\
[ -e /proc/driver/nvidia ] || [ -e /sys/module/nvidia ] || { echo "@@ none"; exit 0; }
PATH=$PATH:/usr/sbin:/sbin
pick() {
  awk 'NR == 1 { print "first " $0 } /NVRM: .*Xid/ && count < 300 { count++; print }'
}
echo "@@ uptime"
cat /proc/uptime 2>/dev/null
echo "@@ dmesg"
dmesg 2>/dev/null | pick
echo "@@ refused"
dmesg 2>&1 >/dev/null | head -n 1
case $(dmesg 2>/dev/null | head -n 1) in
  '['*' 0.'*']'*) ;;
  *)
    echo "@@ journal"
    journalctl -k -b -q --no-pager -o short-monotonic </dev/null 2>/dev/null | pick ;;
esac
exit 0
"""

_CARDS = """\
if [ -r /proc/driver/nvidia/version ]; then echo "@version"; cat /proc/driver/nvidia/version; fi
for card in /proc/driver/nvidia/gpus/*; do
  [ -r "$card/information" ] || continue
  echo "@card ${card##*/}"
  cat "$card/information"
done
"""

_GPUS_SCRIPT = (
    _GPUS.replace("@PAIRS@", " ".join(f"{name}:{first}" for name, first in _FIELDS))
    .replace("@ANSWER@", str(_ANSWER_LIMIT_S))
    .replace("@CARD@", str(_CARD_LIMIT_S))
)

_QUESTIONS = (
    Question(key="nvidia.gpus", script=_GPUS_SCRIPT, time_limit_s=60.0, group="nvidia"),
    Question(key="nvidia.processes", script=_PROCESSES, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.topology", script=_TOPOLOGY, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.cards", script=_CARDS, time_limit_s=10.0, group="nvidia"),
    Question(key="nvidia.nvlink", script=_NVLINK, time_limit_s=25.0, group="nvidia"),
    Question(key="nvidia.samples", script=_SAMPLES, time_limit_s=10.0, group="nvidia"),
    Question(key="nvidia.software", script=_SOFTWARE, time_limit_s=20.0, group="nvidia"),
    Question(key="nvidia.kernel_log", script=_KERNEL_LOG, time_limit_s=15.0),
)


def read(results: Mapping[str, CommandResult]) -> GpuReading:
    """Everything the answers tell, and in words what they do not. Never raises for what a driver says."""
    cards = read_cards(_output(results.get("nvidia.cards")))
    gpus, state, missing = _read_gpus(results.get("nvidia.gpus"))
    gpus = tuple(_with_card(gpu, cards.gpus, cards.driver) for gpu in gpus)
    processes: tuple[GpuProcess, ...] = ()
    links: tuple[GpuLink, ...] = ()
    if gpus:
        processes, lacking = _read_processes(results.get("nvidia.processes"), gpus)
        missing.extend(lacking)
        links, lacking = _read_links(results.get("nvidia.topology"))
        missing.extend(lacking)
    return GpuReading(
        gpus=join(
            gpus,
            links=_output(results.get("nvidia.nvlink")),
            samples=_output(results.get("nvidia.samples")),
            software=_output(results.get("nvidia.software")),
        ),
        processes=processes,
        links=links,
        driver=read_driver(_output(results.get("nvidia.software"))),
        gpu_log=_kernel_log(results.get("nvidia.kernel_log")),
        state=state,
        missing=tuple(missing),
        is_absent=_is_absent(results.get("nvidia.gpus")),
    )


def _is_absent(result: CommandResult | None) -> bool:
    """Whether nothing of NVIDIA is here: no card on the bus, or neither a tool nor a loaded driver."""
    frame = read_frame(_output(result))
    if frame.pci or frame.driver:
        return False
    return frame.has_pci or frame.is_absent


def _kernel_log(result: CommandResult | None) -> KernelLog | None:
    """What the kernel log says of GPUs; None where it was not asked."""
    if result is None or result.skipped:
        return None
    found = read_kernel_log(result.stdout)
    return KernelLog(refused="reading it took too long") if found is None and result.timed_out else found


def _output(result: CommandResult | None) -> str:
    return "" if result is None else result.stdout


def _not_asked(result: CommandResult | None, what: str) -> str | None:
    """Why there is no answer at all; None when there is one."""
    if result is None:
        return f"{what}: not asked"
    if result.skipped:
        return f"{what}: not asked, {result.skipped}"
    if result.timed_out:
        return f"{what}: nvidia-smi did not answer within its time limit (a sick GPU makes it hang)"
    return None


def _read_gpus(result: CommandResult | None) -> tuple[tuple[Gpu, ...], str | None, list[str]]:
    """GPUs, why there is none, and what else could not be seen."""
    frame = read_frame(_output(result))
    gpus: dict[str, Gpu] = {}
    lost: dict[str, str] = {}  # PCI address -> why this card does not answer
    missing: list[str] = []
    for answer in frame.answers:
        told = read_rows(answer.text, answer.fields) if answer.fields else Rows()
        found = {gpu.bus_id or gpu.uuid or "": gpu for gpu in map(read_gpu, told.rows)}
        words = _words(told, answer.status)
        if "" in found and not words:
            words = "nvidia-smi printed a row without bus id and UUID"
        found.pop("", None)
        gpus.update(found)
        if words and words not in missing:
            missing.append(words)
        if words and not found and answer.target != "all":
            lost[answer.target] = words
    if not gpus:
        return (), _state(result, frame, missing), []
    missing.extend(f"GPU {address} was not asked: others hung before it" for address in frame.skipped)
    if not frame.is_whole:
        missing.append("the answer of nvidia-smi was cut off: there may be more GPUs")
    silent = tuple(_silent(address, words) for address, words in lost.items() if address not in gpus)
    return (*gpus.values(), *silent), None, missing


def _words(told: Rows, status: int | None) -> str | None:
    """What lines that are no rows say, and the exit status; None when both are in order."""
    messages = [line for line in told.messages if not line.startswith("No running")]
    known = trouble("\n".join(messages), status)
    if known or not messages:
        return known
    return f"nvidia-smi printed a line that is not understood: {messages[0].strip()[:200]!r}"


def _silent(address: str, words: str) -> Gpu:
    """A card that is there and does not answer: every figure is unknown, and why."""
    return Gpu(
        index=None, bus_id=address, said=dict.fromkeys(("index", "memory_total", "memory_used"), words)
    )


def _state(result: CommandResult | None, frame: Framed, troubles: list[str]) -> str:
    """Why there is no GPU row, in words."""
    if frame.has_pci and not frame.pci and (frame.answers or frame.is_absent):
        return "no NVIDIA GPU on this host" + (f" ({'; '.join(troubles)})" if troubles else "")
    reason = _reason(result, frame, troubles)
    if not frame.pci:
        return reason
    owners = Counter("no driver" if owner == "-" else f"driver {owner}" for owner in frame.pci.values())
    told = ", ".join(f"{count} with {owner}" for owner, count in sorted(owners.items()))
    return f"{reason}; NVIDIA GPUs on the PCI bus: {told}"


def _reason(result: CommandResult | None, frame: Framed, troubles: list[str]) -> str:
    """Why nvidia-smi shows no GPU."""
    if frame.is_absent and frame.driver:
        return f"NVIDIA driver {frame.driver} is loaded, but nvidia-smi is not installed"
    if frame.is_absent:
        return "no NVIDIA driver on this host (nvidia-smi is not installed)"
    if troubles:
        module = f"; loaded kernel module: {frame.driver}" if frame.driver else ""
        return "; ".join(troubles) + (module if "driver/library mismatch" in troubles[0] else "")
    lacking = _not_asked(result, "NVIDIA GPUs")
    if lacking or result is None:
        return lacking or "NVIDIA GPUs: not asked"
    if frame.answers:
        return "nvidia-smi answered without a row: no NVIDIA GPU is visible here"
    said = (result.stderr.strip() or result.stdout.strip()).split("\n")[0][:200]
    return f"NVIDIA GPUs: the question failed with status {result.status}: {said or 'nothing was printed'}"


def _with_card(gpu: Gpu, cards: tuple[Gpu, ...], driver: str | None) -> Gpu:
    """The GPU with the minor number that /proc gives its bus address."""
    card = next((card for card in cards if card.bus_id is not None and card.bus_id == gpu.bus_id), None)
    known = gpu.driver_version or driver
    return dataclasses.replace(
        gpu,
        minor=gpu.minor if card is None else card.minor,
        driver_version=known,
        said={field: words for field, words in gpu.said.items() if field != "driver_version" or not known},
    )


def _read_processes(
    result: CommandResult | None, gpus: tuple[Gpu, ...]
) -> tuple[tuple[GpuProcess, ...], list[str]]:
    lacking = _not_asked(result, "GPU processes")
    if lacking or result is None:
        return (), [lacking or "GPU processes: not asked"]
    whole = result.stdout[: result.stdout.rfind("\n") + 1]  # a cut last line may hold half a number
    told = read_rows(whole, _PROCESS_COLUMNS)
    words = _words(told, result.status)
    index = {gpu.uuid: gpu.index for gpu in gpus if gpu.uuid}
    processes = read_processes(whole, _PROCESS_COLUMNS) if told.rows else ()
    named = tuple(
        dataclasses.replace(process, gpu_index=index.get(process.gpu_uuid or "")) for process in processes
    )
    hidden = None if words else _hidden_users(gpus, named)
    return named, [f"GPU processes: {lack}" for lack in (words, hidden) if lack]


def _hidden_users(gpus: tuple[Gpu, ...], processes: tuple[GpuProcess, ...]) -> str | None:
    """GPUs whose memory is used by nobody that is shown: an empty list is never proof of an idle card."""
    shown = {process.gpu_uuid for process in processes}
    used = [gpu for gpu in gpus if gpu.memory_used is not None and gpu.memory_used > _UNEXPLAINED]
    names = [str(gpu.bus_id if gpu.index is None else gpu.index) for gpu in used if gpu.uuid not in shown]
    if not names:
        return None
    return f"none shown on GPU {', '.join(names)} although its memory is used (container, VM or graphics)"


def _read_links(result: CommandResult | None) -> tuple[tuple[GpuLink, ...], list[str]]:
    lacking = _not_asked(result, "GPU topology")
    if lacking or result is None:
        return (), [lacking or "GPU topology: not asked"]
    try:
        return read_topology(result.stdout).links, []
    except UnreadableAnswer as error:
        return (), [f"GPU topology: {trouble(result.stdout, result.status) or error.message}"]


_TRACE_S = 3

# Readings 0.2 s apart for a few seconds; `timeout` ends the loop, and its status means nothing.
_TRACE = (
    _FIND_TOOL
    + """\
[ -n "$tool" ] || { echo "@absent"; exit 127; }
echo "@fields @TRACED@"
limited @SECONDS@ "$tool" --query-gpu=@TRACED@ --format=csv,noheader,nounits -lms @MS@ 2>/dev/null </dev/null
exit 0
""".replace("@TRACED@", ",".join(TRACED))
    .replace("@SECONDS@", str(_TRACE_S))
    .replace("@MS@", str(round(INTERVAL_S * 1000)))
)


def _read_trace(result: CommandResult, begun_at: float) -> dict[int, tuple[GpuMoment, ...]]:
    return read_trace(result.stdout, begun_at=begun_at)


VENDOR = Vendor(
    name="nvidia",
    questions=_QUESTIONS,
    read=read,
    trace=Question(key="nvidia.trace", script=_TRACE, time_limit_s=_TRACE_S + 10.0),
    read_trace=_read_trace,
)
