"""What is really left on a GPU, against the largest allocation that can still come.

Left is total - reserved - used: what the driver keeps is no room. The engine's allocator never gives back
what a try-out once took, so a server that has been through its largest step needs no more; how far it has
been is seen from what it holds beside weights and pools.

Source: nvidia-smi of an RTX PRO 6000 (R595: total 97887, reserved 636, free 97252 MiB); vLLM
`v1/worker/gpu_worker.py` (`compile_or_warm_up_model`: graphs and the sampler come after the cache).
"""

from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.units import GIB, bytes_text, in_mib, mib, mib_text
from bringup.values.account import Account, GpuAccount, HostAccount
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Measurement, Severity
from bringup.values.gpu_words import gpus_text
from bringup.values.plan import HostPlan, LayoutPlan, Share, Upcoming

_TIGHT = GIB  # guess: buffers of communication and work spaces that come late take some hundreds of MiB
_TOO_TIGHT = mib(200)  # fewer than one more set of buffers: 0.1 to 0.2 GiB were short at a share of 0.97
_LATE = mib(300)  # lazily made work spaces, beside a server's own buffers
_WORKING = ("context", "communication", "kernels", "graphs", "workspace", "request_table")
_EXPECTED = "room for the largest allocation that can still come"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """The GPU with least room."""

    one: GpuAccount
    left: int
    kept: int | None  # bytes of try-outs that its engine still holds; None: not known
    coming: Upcoming | None  # the largest that has not been yet
    lacks: int  # bytes of it that are not held already


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Whether what can still come finds room, in words and MiB."""
    _ = replies
    account = deployment.account
    if account is not None and account.host is not None:
        return _on_host(account.host)
    rooms = [
        (room, one)
        for one in (_telling(account) if account else ())
        if (room := one.gpu.memory_headroom) is not None
    ]
    if account is None or not rooms:
        return Judgement(findings=())
    left, one = min(rooms, key=lambda pair: pair[0])
    room = _room(account, one, left)
    measured = (Measurement(name="memory really left, tightest GPU", value=left, unit="bytes"),)
    return Judgement(findings=(_finding(account, room),), measurements=measured)


def _telling(account: Account) -> list[GpuAccount]:
    """GPUs whose figures are the model's own: of a card that MIG cuts they may be of all instances."""
    return [
        one
        for one in account.carriers
        if one.gpu.memory_headroom is not None and (one.gpu.mig_mode != "Enabled" or one.gpu.part)
    ]


def _on_host(host: HostAccount) -> Judgement:
    """The same of the host's memory, where the processor carries the model.

    That the host itself is short of memory is not said here: only what this engine may still take of it.
    """
    plan = host.plan
    if plan is None:
        return Judgement(findings=())
    coming = max(0, plan.high - host.resident) + plan.growth_bytes
    whose = (
        f"of its memory limit of {bytes_text(host.memory_total)}"
        if host.is_limited
        else "of the host's memory"
    )
    said = f"{bytes_text(host.left)} {whose} are left"
    lacks = coming - host.left
    words = f"up to {bytes_text(coming)} more may come by design"
    if plan.growth_bytes:
        words += f", {bytes_text(plan.growth_bytes)} of it {plan.growth_words}"
    held = f"{host.memory_total:,} B, {host.resident:,} B of it the engine's"
    evidence = (Evidence(source="kernel", text=held),)
    measured = (Measurement(name="host memory really left", value=host.left, unit="bytes"),)
    if lacks <= 0:
        finding = Finding(
            id="headroom",
            severity=Severity.OK,
            summary=f"{said}, enough for what can still come",
            expected=_EXPECTED,
            explanation=words,
            action="none",
            evidence=evidence,
        )
        return Judgement(findings=(finding,), measurements=measured)
    finding = Finding(
        # What grows with use has a limit that can be set: only a lack without it makes the verdict tight.
        id="headroom.tight" if lacks > plan.growth_bytes else "headroom",
        severity=Severity.NOTE,
        summary=f"{said}, and {words}",
        expected=_EXPECTED,
        explanation="when it runs out the kernel ends the largest process, and that is the engine",
        action=f"lower {plan.growth_flag or plan.flag}, or give it {bytes_text(lacks)} more",
        evidence=evidence,
        fixes=_host_fixes(plan, lacks),
    )
    return Judgement(findings=(finding,), measurements=measured)


def _host_fixes(plan: HostPlan, lacks: int) -> tuple[Fix, ...]:
    """A smaller limit for what grows, where that alone is enough."""
    if not plan.growth_flag or plan.growth_bytes <= lacks:
        return ()
    size = round(in_mib(plan.growth_bytes - lacks))
    return (
        Fix(
            type="flag", name=plan.growth_flag, new=str(size), cost="fewer prompts are kept beside the cache"
        ),
    )


def _room(account: Account, one: GpuAccount, left: int) -> _Room:
    plan, working = account.plan, one.line("working")
    if plan is None or working is None:
        return _Room(one=one, left=left, kept=None, coming=None, lacks=0)
    beside = sum(line.bytes for line in plan.ledger if line.name in _WORKING)
    kept = max(0, working.bytes - beside)
    lacking = [(max(0, part.bytes - kept), part) for part in plan.upcoming]
    lacks, coming = max(lacking, key=lambda pair: pair[0], default=(0, None))
    return _Room(one=one, left=left, kept=kept, coming=coming if lacks else None, lacks=lacks)


def _finding(account: Account, room: _Room) -> Finding:
    plan = account.plan
    severity, words = _risk(room, plan)
    largest = plan.upcoming[0] if plan and plan.upcoming else None
    said = f"{mib_text(room.left)} are really left on {_who(account, room)}, {words}"
    return Finding(
        id="headroom.tight" if room.left < _TIGHT else "headroom",
        severity=severity,
        summary=said,
        expected=_EXPECTED,
        explanation=_why(room, largest),
        action=_action(account, room, severity),
        evidence=(
            Evidence(source="kernel" if room.one.gpu.shares_host_memory else "driver", text=_sum(room.one)),
            *((Evidence(source="rule", text=_upcoming_text(largest)),) if largest else ()),
        ),
        fixes=_fixes(account, room, severity),
    )


def _who(account: Account, room: _Room) -> str:
    """The tightest GPU; all of them where they are alike."""
    telling = _telling(account)
    same = [one.gpu for one in telling if abs((one.gpu.memory_headroom or 0) - room.left) <= _LATE // 2]
    return gpus_text(same) if len(same) == len(telling) and len(same) > 1 else room.one.gpu.label


def _risk(room: _Room, plan: LayoutPlan | None) -> tuple[Severity, str]:
    if room.left < _TOO_TIGHT:
        return Severity.WARNING, "too little for buffers that come late"
    if room.coming is not None and room.lacks > room.left:
        return (
            Severity.WARNING,
            f"{room.coming.name} may still ask for {mib_text(room.lacks)}",
        )
    if plan is None:
        tight = room.left < _TIGHT
        words = "tight" if tight else "and what can still come is not known"
        return (Severity.NOTE if tight else Severity.OK), words
    if room.left < _TIGHT:
        return Severity.NOTE, "tight, and enough for what can still come"
    if _surplus(plan, room):
        return Severity.NOTE, "reserve and no cache, more than the engine's own guide asks for"
    return Severity.OK, "enough for what can still come"


def _surplus(plan: LayoutPlan, room: _Room) -> int:
    """Bytes left beyond what the engine's guide calls right; 0 where it names no such range."""
    reserve = plan.share.reserve if plan.share else None
    return max(0, room.left - reserve[1]) if reserve is not None else 0


def _why(room: _Room, largest: Upcoming | None) -> str:
    gpu, reserved = room.one.gpu, room.one.gpu.memory_reserved
    driver = f"the driver keeps {mib_text(reserved)}" if reserved else "what the driver keeps is not told"
    if gpu.shares_host_memory:
        driver = "the card shares the host's memory, of which the kernel can still give so much"
    if gpu.part:
        driver = f"the figures are those of its instance, {gpu.part}"
    words = f"{driver}, and none of it is room for the KV cache, which is taken whole at the start"
    if largest is None or room.kept is None:
        return words
    before = room.left + min(room.kept, largest.bytes)
    words += (
        f"; {largest.name} at {largest.flag} {largest.value:,} takes {mib_text(largest.bytes)} of the "
        f"{mib_text(before)} that were left for it"
    )
    value = _too_large(largest, before)
    if value:
        taken, piece = (size * value // largest.value for size in (largest.bytes, largest.piece))
        default = ", the default," if value == largest.default else ""
        words += f", at {value:,}{default} {mib_text(taken)}, {mib_text(piece)} in one piece: out of memory"
    return words


def _too_large(largest: Upcoming, before: int) -> int:
    """A value of its flag at which there was no room: the default, or the next usual one; else 0."""
    doubled = (largest.value * factor for factor in (2, 4, 8))
    for value in (largest.default or 0, *doubled):
        if largest.bytes * value > before * largest.value and value > largest.value:
            return value
    return 0


def _upcoming_text(one: Upcoming) -> str:
    return f"{one.name}: {mib_text(one.low)} to {mib_text(one.high)} at {one.flag} {one.value:,}"


def _sum(one: GpuAccount) -> str:
    gpu = one.gpu
    parts = (gpu.memory_total, gpu.memory_reserved, gpu.memory_used)
    if gpu.shares_host_memory:
        return (
            f"{gpu.label}: MemAvailable {mib_text(gpu.memory_free or 0)} of {mib_text(gpu.memory_total or 0)}"
        )
    if any(part is None for part in parts):
        of = f" of {mib_text(gpu.memory_total)}" if gpu.part and gpu.memory_total else ""
        return f"{gpu.label}: {mib_text(gpu.memory_headroom or 0)} free{of}"
    total, reserved, used = (round(in_mib(part or 0)) for part in parts)
    return f"{gpu.label}: {total:,} - {reserved:,} - {used:,} = {total - reserved - used:,} MiB"


def _action(account: Account, room: _Room, severity: Severity) -> str:
    plan = account.plan
    share = plan.share if plan else None
    if plan is None or share is None:
        return "watch it under load" if severity is not Severity.OK else "none"
    surplus = _surplus(plan, room)
    if severity is Severity.NOTE and surplus:
        low, high = share.reserve or (0, 0)
        middle = (low + high) // 2
        more = room.left - middle
        value = share.value + more / share.base
        tokens = _tokens(plan, more)
        return (
            f"the guide wants {bytes_text(low)} to {bytes_text(high)} left: {share.flag} {value:.2f} leaves "
            f"{bytes_text(middle)} and adds about {tokens:,} tokens of cache"
        )
    if severity in (Severity.NOTE, Severity.WARNING):
        value, freed = _lower(share, room)
        lower = f"{share.flag} {value:.2f}"
        if not _is_in_force(account, room):
            lower = f"a {share.flag} lower by {share.value - value:.2f} than the one really in force"
        return (
            f"{lower} leaves {mib_text(room.left + freed)} and costs about "
            f"{_tokens(plan, freed):,} tokens of cache; raise concurrency only together with that"
        )
    return "none"


def _is_in_force(account: Account, room: _Room) -> bool:
    """Whether the share that the flags name can be the one that the engine runs with."""
    bounds, held = room.one.bounds or account.bounds, room.one.engine_bytes
    return bounds is None or held is None or held <= bounds[1] + _LATE


def _lower(share: Share, room: _Room) -> tuple[float, int]:
    """A share with room for what may come and for late buffers, in whole percents, and what it frees."""
    wanted = max(room.lacks, 0) + _TIGHT + _LATE - room.left
    steps = max(1, -(-wanted * 100 // share.base))
    value = round(share.value - steps / 100, 2)
    return value, round((share.value - value) * share.base)


def _tokens(plan: LayoutPlan, size: int) -> int:
    """Cache tokens of so many bytes, the states' part of a pool taken off, in hundreds."""
    pools = {line.name: line.bytes for line in plan.ledger if line.name in ("kv_pool", "state_pool")}
    part = pools.get("kv_pool", 0) / max(1, sum(pools.values()))
    tokens = size * part / plan.kv.bytes_per_token if plan.kv.bytes_per_token else 0
    return round(tokens / 100) * 100 * plan.layout.caches


def _fixes(account: Account, room: _Room, severity: Severity) -> tuple[Fix, ...]:
    plan = account.plan
    share = plan.share if plan else None
    if plan is None or share is None or severity not in (Severity.NOTE, Severity.WARNING):
        return ()
    if not _is_in_force(account, room):
        return ()
    if _surplus(plan, room) and severity is Severity.NOTE:
        low, high = share.reserve or (0, 0)
        value = share.value + (room.left - (low + high) // 2) / share.base
        return (Fix(type="flag", name=share.flag, old=f"{share.value:.4g}", new=f"{value:.2f}"),)
    value, freed = _lower(share, room)
    cost = f"{_tokens(plan, freed):,} tokens of cache"
    return (Fix(type="flag", name=share.flag, old=f"{share.value:.4g}", new=f"{value:.2f}", cost=cost),)


CHECK = Check(
    title="room is left for what can still come",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
