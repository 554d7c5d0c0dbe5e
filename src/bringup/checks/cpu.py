"""Whether processors hold the engine back: clocks, other guests, quotas, too few of them, one that is full.

Time is compared between the looks before and after the exercises where there are two, else since the boot.
One full processor counts only for the front of an engine on GPUs: a rank that waits for its GPU spins by
design, and an engine without GPU is meant to fill its processors.

Source: `Documentation/admin-guide/pm/cpufreq.rst`, `pm/intel_pstate.rst` and `sched-bwc.rst` of the kernel;
vLLM, "CPU resources for GPU deployments" (2 processors and one per GPU).
"""

from collections.abc import Iterator

from bringup.checks import Check, Replies
from bringup.parse.number_list import read_number_list
from bringup.units import seconds_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity
from bringup.values.host import EngineProcess, HostFacts

_STOLEN = 0.05  # guess: above it the slowest tokens show it
_STOLEN_EVER = 0.1  # the same over the time since the boot, most of which was quiet
_THROTTLED = 0.1  # share of the quota's periods
_FULL = 0.9  # share of one processor
_ENOUGH_S = 5.0  # seconds between two looks from which a share means something
_FIXED_DRIVERS = frozenset(("acpi-cpufreq", "intel_cpufreq", "amd-pstate", "cppc_cpufreq", "pcc-cpufreq"))
_PYTHON_FRONTS = frozenset(("vllm", "sglang"))  # one event loop in the listening process
_EXPECTED = "processors at full clock that nothing else takes from the engine"


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What holds the engine back; nothing where it is not known what the processors do."""
    _ = replies
    host = deployment.host_after or deployment.host
    if host is None:
        return Judgement(findings=())
    process = deployment.process_after or deployment.process
    found = (
        *_governor(host.facts),
        *_stolen(deployment, host.facts),
        *(_throttled(deployment, process) if process is not None else ()),
        *(_few(deployment, host.facts, process) if process is not None else ()),
        *_full_front(deployment),
    )
    return Judgement(findings=found or tuple(_sound(deployment, host.facts)))


def _sound(deployment: Deployment, facts: HostFacts) -> Iterator[Finding]:
    stolen = _stolen_share(deployment, facts)
    if stolen is not None:
        when = "during the exercises" if deployment.host_after is not None else "since the boot"
        count = f"{facts.cpu_count} processors" if facts.cpu_count else "processors"
        summary = f"{count}, of whose time other guests took {stolen:.1%} {when}"
        yield Finding(id="cpu", severity=Severity.OK, summary=summary, expected=_EXPECTED)


def _governor(facts: HostFacts) -> Iterator[Finding]:
    is_lowest = "powersave" in facts.governors and facts.clock_driver in _FIXED_DRIVERS
    is_saving = facts.energy_preference == "power"
    if not is_lowest and not is_saving:
        return
    said = "governor `powersave`" if is_lowest else "energy preference `power`"
    yield Finding(
        id="cpu.governor",
        severity=Severity.WARNING,
        summary=f"the processors are kept at low clocks: {said} of {facts.clock_driver}",
        expected=_EXPECTED,
        explanation="one thread starts every step of the model: at half the clock small batches slow down",
        action="`cpupower frequency-set -g performance`, and make it permanent",
        evidence=(Evidence(source="cpufreq in /sys", text=said),),
    )


def _stolen(deployment: Deployment, facts: HostFacts) -> Iterator[Finding]:
    share = _stolen_share(deployment, facts)
    has_both = deployment.host_after is not None
    if share is None or share < (_STOLEN if has_both else _STOLEN_EVER):
        return
    when = "during the exercises" if has_both else "since the boot"
    spent = _spent(deployment, facts)
    yield Finding(
        id="cpu.steal",
        severity=Severity.WARNING,
        summary=f"the hypervisor took {share:.0%} of the processor time {when}",
        expected=_EXPECTED,
        explanation="the engine stands still meanwhile, and with it every GPU that waits for it",
        action="give this guest processors of its own on its host (pinned, not overcommitted)",
        evidence=(
            Evidence(
                source="/proc/stat",
                text=f"steal {seconds_text(spent['steal'])} of {seconds_text(sum(spent.values()))}",
            ),
        ),
    )


def _stolen_share(deployment: Deployment, facts: HostFacts) -> float | None:
    spent = _spent(deployment, facts)
    whole = sum(spent.values())
    return spent["steal"] / whole if "steal" in spent and whole >= _ENOUGH_S else None


def _spent(deployment: Deployment, facts: HostFacts) -> dict[str, float]:
    """Seconds of all processors between the two looks, since the boot where there was one look only."""
    if deployment.host is None or deployment.host_after is None:
        return facts.processor_s
    before = deployment.host.facts.processor_s
    return {name: seconds - before[name] for name, seconds in facts.processor_s.items() if name in before}


def _throttled(deployment: Deployment, process: EngineProcess) -> Iterator[Finding]:
    group = process.group
    if group is None or group.processor_limit is None or not group.periods:
        return
    earlier = deployment.process.group if deployment.process_after and deployment.process else None
    periods = group.periods - ((earlier.periods or 0) if earlier is not None else 0)
    throttled = (group.throttled_periods or 0) - (
        (earlier.throttled_periods or 0) if earlier is not None else 0
    )
    if periods <= 0 or throttled / periods < _THROTTLED:
        return
    yield Finding(
        id="cpu.quota",
        severity=Severity.WARNING,
        summary=f"the quota of {group.processor_limit:g} processors stopped the engine in "
        f"{throttled / periods:.0%} of the time slices",
        expected=_EXPECTED,
        explanation="at the quota all threads stop until the next slice: tokens come in bursts",
        action="raise or remove it: `CPUQuota=` of the unit, `--cpus` of the container, the pod's cpu limit",
        evidence=(
            Evidence(
                source=f"control group of process {process.pid}",
                text=f"nr_throttled {throttled} of nr_periods {periods}",
            ),
        ),
    )


def _few(deployment: Deployment, facts: HostFacts, process: EngineProcess) -> Iterator[Finding]:
    ranks = len(deployment.carriers)
    allowed = read_number_list(process.cpus_allowed)
    quota = process.group.processor_limit if process.group is not None else None
    counts = [len(allowed) if allowed else None, facts.cpu_count, quota]
    known = [count for count in counts if count]
    if not ranks or not known or min(known) >= ranks + 1:
        return
    yield Finding(
        id="cpu.few",
        severity=Severity.WARNING,
        summary=f"the engine may use {min(known):g} processors for {ranks} GPUs",
        expected=_EXPECTED,
        explanation="every GPU has a process that keeps one processor busy, and requests need one more",
        action=f"give it {ranks + 2} or more: the affinity, the quota or the size of the guest",
        evidence=(
            Evidence(
                source=f"process {process.pid}",
                text=f"processors allowed: {process.cpus_allowed or 'all'}, quota: {quota or 'none'}, "
                f"on the host: {facts.cpu_count or 'unknown'}",
            ),
        ),
    )


def _full_front(deployment: Deployment) -> Iterator[Finding]:
    before, after = deployment.process, deployment.process_after
    if before is None or after is None or before.pid != after.pid or not deployment.gpus:
        return
    if None in (before.main_thread_s, after.main_thread_s) or deployment.engine.engine not in _PYTHON_FRONTS:
        return
    elapsed = _elapsed(deployment)
    busy = (after.main_thread_s or 0.0) - (before.main_thread_s or 0.0)
    if elapsed < _ENOUGH_S or busy / elapsed < _FULL:
        return
    flag = "--api-server-count" if deployment.engine.engine == "vllm" else "--tokenizer-worker-num"
    yield Finding(
        id="cpu.full_front",
        severity=Severity.WARNING,
        summary=f"the thread that takes the requests kept one processor {busy / elapsed:.0%} busy",
        expected=_EXPECTED,
        explanation="it cannot use a second one: more requests wait here, whatever the GPUs have left",
        action=f"more processes at the front (`{flag} 4`), or faster single processors",
        evidence=(
            Evidence(
                source=f"process {after.pid}",
                text=f"first thread: {seconds_text(busy)} of {seconds_text(elapsed)}",
            ),
        ),
        fixes=(Fix(type="flag", name=flag, new="4"),),
    )


def _elapsed(deployment: Deployment) -> float:
    if deployment.host is None or deployment.host_after is None:
        return 0.0
    return deployment.host_after.taken_at - deployment.host.taken_at


CHECK = Check(
    title="gets the processors it needs",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
