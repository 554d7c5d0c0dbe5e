"""The power that the cards draw fits what they do, their kind and their peers.

A card that carries a model and waits draws more than an empty one, because its contexts keep the clocks up;
neither is a fault. A card out of line with its peers is, and a cap below the card's own limit is worth
knowing: it slows the prefill, decoding hardly.

Source: nvidia-smi's power fields; RTX PRO 6000: 33 to 40 W empty, 82 to 84 W with a model, limit 600 W
(Workstation, Server) or 300 W (Max-Q); H200 78 W empty; B200 192 to 196 W with a model. The spread among
like cards of eight was under 3 W.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from bringup.checks import Check, Replies
from bringup.units import mib_text
from bringup.values.account import Role
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Measurement, Severity
from bringup.values.gpu_group import BUSY, role_of, span_text, tool_of, withholds
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu

_EXPECTED = "like cards in like use draw alike, below the limit of their kind"
_NEAR_W = 15.0  # guess: like cards differ by less
_NEAR = 0.25  # guess: the same as a share
_NEAR_BUSY = 0.5  # guess: at work a rank may wait for another
_HOURS = 24
_WITH_MODEL = "with the model"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A card that tells its power, and what it does."""

    gpu: Gpu
    power: float
    role: str  # "busy", "with the model", "idle"
    usual_limit: float | None  # watts of its kind


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Watts by role, the total, and what is out of line."""
    _ = replies
    cards = _cards(deployment)
    host = deployment.host
    if host is None or not cards:
        asked = [gpu for gpu in (host.main_gpus if host else ()) if withholds(gpu, "power")]
        return Judgement(findings=(_unknown(asked),) if asked else ())
    total = sum(card.power for card in cards)
    figures = [Measurement(name="power of the GPUs", value=round(total, 1), unit="W")]
    if deployment.price_per_kwh is not None:
        figures.append(
            Measurement(
                name="electricity of the GPUs per day at this draw",
                value=round(_cost(total, deployment.price_per_kwh), 2),
                unit="in the currency of --price-per-kwh",
            )
        )
    problems = (*_outliers(cards), *_caps(cards), *_unread(host.main_gpus), *_persistence(host.main_gpus))
    return Judgement(findings=(_totals(cards, total, deployment), *problems), measurements=tuple(figures))


def _cards(deployment: Deployment) -> list[_Card]:
    host = deployment.host
    return [
        _Card(
            gpu=gpu,
            power=gpu.power,
            role=_role(gpu, deployment),
            usual_limit=gpu.power_limit_default or deployment.card_power.get(gpu.name or ""),
        )
        for gpu in (host.main_gpus if host is not None else ())
        if gpu.power is not None
    ]


def _role(gpu: Gpu, deployment: Deployment) -> str:
    role = role_of(gpu, deployment)
    if role is not Role.MODEL:
        return "in other use" if role is Role.OTHER else "idle"
    return "busy" if (gpu.utilization or 0) >= BUSY else _WITH_MODEL


def _cost(watts: float, price: float) -> float:
    return watts * _HOURS / 1000 * price


def _totals(cards: Sequence[_Card], total: float, deployment: Deployment) -> Finding:
    parts: list[str] = []
    for role in ("busy", _WITH_MODEL, "in other use", "idle"):
        alike = [card for card in cards if card.role == role]
        if alike:
            count = f"{len(alike)} x " if len(cards) > 1 else ""
            rests = role == _WITH_MODEL and all(card.gpu.utilization is not None for card in alike)
            mean = sum(card.power for card in alike) / len(alike)
            parts.append(f"{count}{mean:.1f} W {role}{' at rest' if rests else ''}")
    limits = [card.gpu.power_limit for card in cards if card.gpu.power_limit is not None]
    of = f" (limit {span_text(limits, 'W')})" if limits else ""
    cost = ""
    if deployment.price_per_kwh is not None:
        cost = f", {_cost(total, deployment.price_per_kwh):.2f} a day"
    sum_of = f" = {total:.0f} W" if len(cards) > 1 else ""
    return Finding(
        id="power_state",
        severity=Severity.OK,
        summary=f"{' + '.join(parts)}{sum_of}{of}{cost}",
        expected=_EXPECTED,
        evidence=tuple(Evidence(source=tool_of(card.gpu), text=_row(card)) for card in cards),
    )


def _row(card: _Card) -> str:
    gpu = card.gpu
    limit = f" of {gpu.power_limit:.0f} W" if gpu.power_limit is not None else ""
    state = f", {gpu.performance_state}" if gpu.performance_state else ""
    used = f", {mib_text(gpu.memory_used)} used" if gpu.memory_used is not None else ""
    return f"{gpu.label}: {card.power:.1f} W{limit}{state}{used}, {card.role}"


def _outliers(cards: Sequence[_Card]) -> Iterator[Finding]:
    """Cards that differ from the median of the others of their kind and role."""
    groups: dict[tuple[str | None, str], list[_Card]] = defaultdict(list)
    for card in cards:
        groups[card.gpu.name, card.role].append(card)
    for (_, role), peers in groups.items():
        off = [card for card in peers if _is_off(card, [one for one in peers if one is not card])]
        if len(peers) == 2 and len(off) == 2:
            off = [min(off, key=lambda card: card.power)]  # of two the one that does less is suspect
        if not off or len(off) > len(peers) // 2:
            continue
        rest = [card for card in peers if card not in off]
        draw = f"{'draws' if len(off) == 1 else 'draw'} {span_text([card.power for card in off], 'W')}"
        others = span_text([card.power for card in rest], "W")
        named = role if role == _WITH_MODEL else f"that are {role}"
        yield Finding(
            id="power_state.outlier",
            severity=Severity.WARNING if role in ("busy", _WITH_MODEL) else Severity.NOTE,
            summary=f"{gpus_text(card.gpu for card in off)} {draw}, the others {named} {others}",
            expected=_EXPECTED,
            explanation="a rank that draws less does not take part as the others do; one that draws more "
            "works for somebody else",
            action=f"look at the processes, clocks and state of {gpus_text(card.gpu for card in off)} "
            f"(`{tool_of(off[0].gpu)}`)",
            evidence=tuple(Evidence(source=tool_of(card.gpu), text=_row(card)) for card in peers),
        )


def _is_off(card: _Card, others: Sequence[_Card]) -> bool:
    if not others:
        return False
    usual = median(other.power for other in others)
    share = _NEAR_BUSY if card.role == "busy" else _NEAR
    return abs(card.power - usual) > max(_NEAR_W, share * usual)


def _caps(cards: Sequence[_Card]) -> Iterator[Finding]:
    """Limits below the kind's own, and limits that differ among cards that share the model."""
    capped = [
        card
        for card in cards
        if card.gpu.power_limit is not None
        and card.usual_limit is not None
        and card.gpu.power_limit < 0.99 * card.usual_limit
    ]
    working = [
        card for card in cards if card.role in ("busy", _WITH_MODEL) and card.gpu.power_limit is not None
    ]
    limits = {card.gpu.power_limit for card in working}
    rows = tuple(
        Evidence(source=tool_of(card.gpu), text=f"{_row(card)}, by default {card.usual_limit or 0:.0f} W")
        for card in capped
    )
    if len(limits) > 1:
        least = min(working, key=lambda card: card.gpu.power_limit or 0)
        slow = [card.gpu for card in working if card.gpu.power_limit == least.gpu.power_limit]
        yield Finding(
            id="power_state.cap",
            severity=Severity.WARNING,
            summary=f"{gpus_text(slow)} may draw {least.gpu.power_limit:.0f} W, "
            f"others with the model up to {max(limit for limit in limits if limit):.0f} W",
            expected="one power limit for all cards that share a model",
            explanation="with tensor parallelism every step waits for the slowest card",
            action=f"give them one limit{_command('WATTS', least.gpu)}, or use cards of one kind",
            evidence=rows or tuple(Evidence(source=tool_of(card.gpu), text=_row(card)) for card in working),
        )
    elif capped:
        usual = span_text([card.usual_limit or 0 for card in capped], "W")
        now = span_text([card.gpu.power_limit or 0 for card in capped], "W")
        yield Finding(
            id="power_state.cap",
            severity=Severity.NOTE,
            summary=f"{gpus_text(card.gpu for card in capped)} capped to {now}, of {usual} by default",
            expected="the card's default power limit",
            explanation="the prefill of long prompts is slower by about as much; decoding is bound by memory "
            "and hardly is",
            action="none if it is meant; else raise the limit"
            + _command(f"{capped[0].usual_limit or 0:.0f}", capped[0].gpu),
            evidence=rows,
            fixes=(Fix(type="hardware", name="power limit", old=now, new=usual, cost="more power and heat"),),
        )


def _command(watts: str, gpu: Gpu) -> str:
    """How a limit is set, where that is known."""
    return f" (`nvidia-smi -i INDEX -pl {watts}`)" if gpu.vendor == "nvidia" else ""


def _unread(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards whose power is not told beside others whose is."""
    silent = [gpu for gpu in gpus if withholds(gpu, "power")]
    if silent:
        yield _unknown(silent)


def _unknown(gpus: Sequence[Gpu]) -> Finding:
    said = gpus[0].said.get("power", "nothing")
    return Finding(
        id="power_state.unread",
        severity=Severity.UNKNOWN,
        summary=f"not measured: no power is told for {gpus_text(gpus)} ({said})",
        expected=_EXPECTED,
        explanation="without it there is no second witness for what a card does",
        action="read it where the card is not virtual: on the host of the VM, or at the server's management",
        evidence=(Evidence(source=tool_of(gpus[0]), text=f"power: {said}"),),
    )


def _persistence(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    off = [gpu for gpu in gpus if gpu.persistence_mode == "Disabled"]
    if off:
        yield Finding(
            id="power_state.persistence",
            severity=Severity.NOTE,
            summary=f"persistence mode is off on {gpus_text(off)}",
            expected="persistence mode on, on a server",
            explanation="without a client the driver shuts the card down: the next start takes seconds "
            "longer and forgets limits that were set",
            action="`systemctl enable --now nvidia-persistenced`, or `nvidia-smi -pm 1`",
            evidence=(Evidence(source="nvidia-smi", text="persistence_mode: Disabled"),),
        )


CHECK = Check(
    title="draws the power that fits",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
