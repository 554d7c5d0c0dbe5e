"""GPU memory stays where it was while the functions were exercised, and the GPUs meant are there.

Source: vLLM, SGLang and TensorRT-LLM reserve their memory at the start. What comes with the first requests
is kernels that are loaded late, library work spaces and communication buffers: tens to some hundreds of MiB,
once. What grows further is taken from the little that is left.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bringup.checks import Check, Replies
from bringup.planner.own_memory import process_bytes, with_own_memory
from bringup.units import GIB, mib, mib_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.gpu_group import same_gpu
from bringup.values.host import Gpu, HostSnapshot

_NOTABLE = mib(64)  # guess: below it a driver's own bookkeeping moves
_MUCH = GIB  # guess: above it, no late kernel explains the growth
_TIGHT = mib(512)  # headroom under which growth ends in an out-of-memory error soon
_EXPECTED = "the same memory used after the exercises as before"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One GPU before and after."""

    name: str
    before: Gpu
    after: Gpu | None

    @property
    def growth(self) -> int | None:
        """Bytes of memory used more than before; None when a reading is missing."""
        if self.after is None or self.after.memory_used is None or self.before.memory_used is None:
            return None
        return self.after.memory_used - self.before.memory_used


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Growth per GPU, as raw material, and GPUs that are not there."""
    _ = replies
    host, after = deployment.host, deployment.host_after
    if host is None:
        why = "no host was read, only the endpoint"
        return Judgement(findings=(_unknown(why, "give --host, or run it on the machine itself"),))
    absent = tuple(_absent(deployment.wanted.gpus, host))
    if not host.gpus:
        return Judgement(findings=absent or (_no_rows(host),))
    meant = host.gpus_named(deployment.wanted.gpus)
    if after is None or not after.gpus:
        return Judgement(findings=(*absent, *_second_reading(after)))
    named = [gpu for gpu in meant if gpu.uuid or gpu.bus_id or gpu.index is not None]
    if not named:
        why = f"{len(meant)} GPUs have neither index nor UUID, so two readings cannot be held together"
        return Judgement(findings=(*absent, _unknown(why, "see what `nvidia-smi -L` says on that host")))
    changes = tuple(_change(deployment, gpu, after) for gpu in named)
    findings = (*absent, *_lost(changes), *_growth(changes), *_unread(changes))
    figures = tuple(
        Measurement(name=f"growth of memory used, {change.name}", value=change.growth, unit="bytes")
        for change in changes
    )
    return Judgement(findings=findings, measurements=figures)


def _change(deployment: Deployment, gpu: Gpu, after: HostSnapshot) -> _Change:
    """The card in both looks, with the figures of the engine's own part of it where both tell them."""
    first, last = (_own(deployment, gpu, host) for host in (deployment.host, after))
    if first is None or last is None or first.part != last.part:
        first, last = gpu, same_gpu(gpu, after)
    return _Change(name=first.label, before=first, after=last)


def _own(deployment: Deployment, gpu: Gpu, host: HostSnapshot | None) -> Gpu | None:
    """The card in a look, as far as it is the engine's; what its processes hold where it has no memory."""
    if host is None:
        return None
    found = same_gpu(gpu, with_own_memory(host, deployment.process, deployment.spec))
    if found is not None and found.shares_host_memory:
        return replace(found, memory_used=process_bytes(host, gpu))
    return found


def _absent(wanted: tuple[str, ...], host: HostSnapshot) -> Iterator[Finding]:
    missing = tuple(name for name in wanted if not any(gpu.is_named(name) for gpu in host.gpus))
    if not missing:
        return
    there = ", ".join(gpu.label for gpu in host.gpus) or host.gpu_state or "none"
    is_known = bool(host.gpus) or host.is_without_gpu
    said = "not there" if is_known else "could not be looked for"
    yield Finding(
        id="gpu_memory.gpus",
        severity=Severity.FAILURE if is_known else Severity.UNKNOWN,
        summary=f"GPU {', '.join(missing)}: {said} ({there})",
        expected=f"GPUs {', '.join(wanted)}",
        explanation="the deployment is meant to run on GPUs that this host does not show",
        action="check `nvidia-smi -L`: a GPU may have fallen off the bus or belong to a VM",
    )


def _no_rows(host: HostSnapshot) -> Finding:
    if host.is_without_gpu:
        return Finding(
            id="gpu_memory",
            severity=Severity.NOTE,
            summary=f"{host.gpu_state}: nothing to compare",
            expected=_EXPECTED,
            explanation="the engine runs without a GPU",
            action="none, if it is meant to",
        )
    why = host.gpu_state or "no GPU was read"
    return _unknown(why, "see why the driver does not answer: `nvidia-smi` on that host")


def _second_reading(after: HostSnapshot | None) -> tuple[Finding, ...]:
    why = (
        "the GPUs were not read a second time"
        if after is None
        else after.gpu_state or "no GPU after the exercises"
    )
    return (_unknown(why, "run `nvidia-smi` on that host: a GPU may have failed meanwhile"),)


def _unknown(why: str, action: str) -> Finding:
    return Finding(
        id="gpu_memory",
        severity=Severity.UNKNOWN,
        summary=f"not measured: {why}",
        expected=_EXPECTED,
        explanation="whether memory grows with use is not known",
        action=action,
    )


def _lost(changes: tuple[_Change, ...]) -> Iterator[Finding]:
    lost = [change.name for change in changes if change.after is None]
    if lost:
        yield Finding(
            id="gpu_memory.lost",
            severity=Severity.FAILURE,
            summary=f"{', '.join(lost)} vanished during the exercises",
            expected="every GPU still there afterwards",
            explanation="the driver no longer shows it: it fell off the bus or was taken away",
            action="look for Xid errors in the kernel log",
        )


def _growth(changes: tuple[_Change, ...]) -> Iterator[Finding]:
    read = [(change, growth) for change in changes if (growth := change.growth) is not None]
    if not read:
        return
    largest, growth = max(read, key=lambda pair: pair[1])
    rows = tuple(
        Evidence(
            source="nvidia-smi",
            text=f"{change.name}: {_used(change.before)} before, {_used(change.after)} after",
        )
        for change, _ in read
    )
    if growth < _NOTABLE:
        summary = f"memory used stayed within {mib_text(_NOTABLE)} on {len(read)} GPUs"
        yield Finding(
            id="gpu_memory", severity=Severity.OK, summary=summary, expected=_EXPECTED, evidence=rows
        )
        return
    room = largest.after.memory_headroom if largest.after is not None else None
    is_tight = room is not None and room < _TIGHT
    left = f", {mib_text(room)} are left" if room is not None else ""
    yield Finding(
        id="gpu_memory",
        severity=Severity.WARNING if growth >= _MUCH or is_tight else Severity.NOTE,
        summary=f"memory used grew by up to {mib_text(growth)} ({largest.name}) during the exercises{left}",
        expected=_EXPECTED,
        explanation="late loading of kernels and work spaces grows once; growth that goes on ends in an "
        "out-of-memory error",
        action="verify again: growth at every run is a leak; if it is tight, lower the memory fraction",
        evidence=rows,
    )


def _used(gpu: Gpu | None) -> str:
    return "unknown" if gpu is None or gpu.memory_used is None else mib_text(gpu.memory_used)


def _unread(changes: tuple[_Change, ...]) -> Iterator[Finding]:
    names = [change.name for change in changes if change.growth is None and change.after is not None]
    if names:
        yield _unknown(
            f"{', '.join(names)} gave no figure for memory used", "see what the driver says for it"
        )


CHECK = Check(
    title="GPU memory stays where it was",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
