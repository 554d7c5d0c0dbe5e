"""The kernel log since the boot holds no error of a GPU (Xid), or which came first and what followed.

Of several errors in a row the earliest is the cause; 43, 45 and 154 are always followers. Only the log since
the boot is read: what an earlier boot had is over.

Source: NVIDIA's list of Xid errors; cascades in public reports, where 45 says "caused by previous Xid 149".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import meant_gpus
from bringup.values.host import Gpu, GpuError, KernelLog

_EXPECTED = "no Xid in the kernel log since the boot"
_FOLLOWERS = frozenset((43, 45, 154))
_EPISODE_S = 600.0  # guess: what comes later is another story
_RESET = "stop the engine and reset the card, or restart the machine; replace the card if it comes again"
_REBOOT = "restart the machine"
_PROGRAM = "another attention or all-reduce backend of the engine; report it if it comes again"
_LINK = "restart the machine and check the NVLink bridges or the fabric manager"

# Code -> what it means, whether the card itself is at fault, what to do.
_MEANINGS: dict[int, tuple[str, bool, str]] = {
    8: ("a kernel ran too long", False, _PROGRAM),
    13: ("a kernel of the program failed", False, _PROGRAM),
    31: ("a program used a bad address", False, _PROGRAM),
    32: ("a corrupted command stream", False, _PROGRAM),
    38: ("a fault of the driver's firmware", True, _RESET),
    43: ("the program was stopped", False, _PROGRAM),
    45: ("the program's work was cleaned up", False, _PROGRAM),
    48: ("an uncorrectable memory error", True, _RESET),
    61: ("the card's controller stopped", True, _RESET),
    62: ("the card's controller halted", True, _RESET),
    63: ("a bad memory row was marked", True, "reset the card when it suits: the row is replaced then"),
    64: ("a bad memory row could not be replaced", True, "have the card replaced"),
    69: ("a kernel of the program failed", False, _PROGRAM),
    74: ("a fault of an NVLink", True, _LINK),
    79: ("the card fell off the bus", True, "restart the machine; check its power cables, slot and cooling"),
    92: ("many corrected memory errors", True, "watch the card's ECC counters"),
    94: ("a memory error that hit one program", True, "start the engine again, and drain the card"),
    95: ("a memory error that may have hit all", True, _RESET),
    109: ("a program did not yield in time", False, _PROGRAM),
    119: ("the card's system processor timed out", True, f"{_RESET}; update the driver"),
    120: ("the card's system processor failed", True, f"{_RESET}; update the driver"),
    140: ("an uncorrected memory error", True, _RESET),
    143: ("the card could not be initialised", True, _REBOOT),
    154: ("the driver wants the card recovered", True, _RESET),
    **dict.fromkeys(range(144, 151), ("a fault of an NVLink", True, _LINK)),
}
_OTHER = ("not in the list of known codes", True, "look it up in NVIDIA's list of Xid errors")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Episode:
    """Errors that follow each other closely: the earliest that is no mere follower, and the rest."""

    errors: tuple[GpuError, ...]

    @property
    def cause(self) -> GpuError:
        """The earliest error that is no follower; the earliest of all where there are only followers."""
        return next((error for error in self.errors if error.code not in _FOLLOWERS), self.errors[0])

    @property
    def meaning(self) -> tuple[str, bool, str]:
        """What the cause means, whether the card is at fault, what to do."""
        cause = self.cause
        if cause.code == 31 and "UNRECOGNIZED_CLIENT" in cause.text:
            return ("a bad address of a client that the card does not know", True, _REBOOT)
        return _MEANINGS.get(cause.code, _OTHER)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """The errors since the boot, the gravest episode first."""
    _ = replies
    before = deployment.host.gpu_log if deployment.host is not None else None
    after = deployment.host_after.gpu_log if deployment.host_after is not None else None
    log = after if after is not None and after.refused is None else before
    if log is None or deployment.host is None:
        return Judgement(findings=())
    if log.refused is not None:
        return Judgement(findings=(_unknown(log.refused),))
    if not log.errors:
        return Judgement(findings=(_clean(log),))
    is_second = after is log and before is not None and before.refused is None
    new = tuple(error for error in log.errors if before and error not in before.errors) if is_second else ()
    return Judgement(findings=(_worst(_episodes(log.errors), new, deployment, log),))


def _episodes(errors: Sequence[GpuError]) -> list[_Episode]:
    found: list[list[GpuError]] = []
    for error in errors:
        last = found[-1][-1] if found else None
        is_next = last is not None and (
            last.at is None or error.at is None or error.at - last.at <= _EPISODE_S
        )
        if is_next:
            found[-1].append(error)
        else:
            found.append([error])
    return [_Episode(errors=tuple(part)) for part in found]


def _worst(
    episodes: Sequence[_Episode], new: Sequence[GpuError], deployment: Deployment, log: KernelLog
) -> Finding:
    """One finding: the gravest episode, the latest among equals; the others stand in the evidence."""
    graded = [(_severity(one, new, deployment, log), place, one) for place, one in enumerate(episodes)]
    order = (Severity.NOTE, Severity.WARNING, Severity.FAILURE)
    severity, _, episode = max(graded, key=lambda row: (order.index(row[0]), row[1]))
    cause = episode.cause
    what, _, action = episode.meaning
    followers = len(episode.errors) - 1
    more = f", {followers} more behind it" if followers else ""
    others = f"; {len(episodes) - 1} earlier or later" if len(episodes) > 1 else ""
    return Finding(
        id="xid",
        severity=severity,
        summary=f"Xid {cause.code} on {_place(cause, deployment)}{_when(cause, log)}: {what}{more}{others}",
        expected=_EXPECTED,
        explanation=_why(cause, new, deployment, log),
        action=action,
        evidence=tuple(
            Evidence(source="kernel log", text=_line(error))
            for one in (episode, *(other for other in episodes if other is not episode))
            for error in one.errors[:6]
        )[:12],
    )


def _severity(episode: _Episode, new: Sequence[GpuError], deployment: Deployment, log: KernelLog) -> Severity:
    cause = episode.cause
    _, is_of_card, _ = episode.meaning
    if any(error in new for error in episode.errors):
        return Severity.FAILURE
    concerns = _gpu(cause, deployment) in (*meant_gpus(deployment), None)
    if cause.code == 79 and concerns:
        return Severity.FAILURE
    if is_of_card:
        return Severity.WARNING
    return Severity.WARNING if concerns and _is_since_start(cause, deployment, log) else Severity.NOTE


def _is_since_start(error: GpuError, deployment: Deployment, log: KernelLog) -> bool:
    """Whether it came after the engine's start, as far as both times are known."""
    process, host = deployment.process, deployment.host
    if process is None or host is None:
        return False
    if error.pid is not None and error.pid in (process.pid, *process.children):
        return True
    if process.started_at is None or error.at is None or log.uptime is None:
        return False
    return host.taken_at - log.uptime + error.at >= process.started_at


def _gpu(error: GpuError, deployment: Deployment) -> Gpu | None:
    gpus = deployment.host.gpus if deployment.host is not None else ()
    return next((gpu for gpu in gpus if gpu.bus_id is not None and gpu.bus_id == error.bus_id), None)


def _place(error: GpuError, deployment: Deployment) -> str:
    gpu = _gpu(error, deployment)
    return gpu.label if gpu is not None else error.bus_id or "a GPU"


def _when(error: GpuError, log: KernelLog) -> str:
    if error.at is None or log.uptime is None:
        return ""
    minutes = max(0.0, log.uptime - error.at) / 60
    if minutes < 120:
        return f" {minutes:.0f} min ago"
    return f" {minutes / 60:.0f} h ago" if minutes < 48 * 60 else f" {minutes / 60 / 24:.0f} days ago"


def _why(cause: GpuError, new: Sequence[GpuError], deployment: Deployment, log: KernelLog) -> str:
    if new:
        return "it came while the model was exercised: the engine or the card fails under light load"
    if _is_since_start(cause, deployment, log):
        return "it came after the engine was started: requests may have failed or gone wrong"
    return "the earliest of a row is the cause; the engine that runs now was not seen to be hit by it"


def _line(error: GpuError) -> str:
    at = f"[{error.at:.1f}] " if error.at is not None else ""
    return f"{at}Xid ({error.bus_id}): {error.code}, {error.text}"[:200]


def _clean(log: KernelLog) -> Finding:
    days = f"the {log.uptime / 86400:.1f} days since the boot" if log.uptime is not None else "this boot"
    is_cut = log.begins_at is not None and log.begins_at > 60
    text = f"none in {days}"
    if is_cut and log.begins_at is not None:
        text = f"none in the kernel log, which begins {log.begins_at / 3600:.1f} h after the boot"
    return Finding(
        id="xid",
        severity=Severity.OK,
        summary=text,
        expected=_EXPECTED,
        evidence=(Evidence(source="kernel log", text="no line with `NVRM: Xid`"),),
    )


def _unknown(refused: str) -> Finding:
    return Finding(
        id="xid",
        severity=Severity.UNKNOWN,
        summary=f"not measured: the kernel log may not be read ({refused[:60]})",
        expected=_EXPECTED,
        explanation="an error that a GPU had before would not be seen",
        action="put the user into the group `systemd-journal` or `adm`, or look yourself: "
        "`sudo dmesg | grep Xid`",
        evidence=(Evidence(source="kernel log", text=refused),),
        next_measurement="sudo dmesg | grep Xid",
    )


CHECK = Check(
    title="has no GPU error in the kernel log",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
