"""Nothing slows the clocks: neither heat nor the power supply, and the cards are not too hot.

The driver tells why clocks are below their highest as a bit mask. At rest "idle" is normal, and so is the
software power cap under load; heat, the hardware's own protection and the power brake are not. Readings taken
beside a burst count like looks, and counters tell what happened between two looks.

Source: NVML `nvmlClocksEventReasons`; `temperature.gpu.tlimit` counts the degrees left until the driver slows
the clocks; memory of data-centre cards is specified to 95 degrees, GDDR6X to 110.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.units import seconds_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.gpu_group import BUSY, looks_at, meant_gpus, moments_of, span_text, tool_of, withholds
from bringup.values.gpu_words import CLOCK_REASONS, gpus_text
from bringup.values.host import Gpu
from bringup.values.load import GpuMoment

_EXPECTED = "nothing but idleness or the power limit holds the clocks, and degrees are left"
_HARMFUL = 0x8 | 0x20 | 0x40 | 0x80
_HEAT = 0x20 | 0x40
_COUNTERS = {
    "slowed_by_heat": "heat (driver)",
    "slowed_by_hardware_heat": "heat (hardware)",
    "slowed_by_power_brake": "power brake",
}
_NOTABLE_S = 0.1  # guess: shorter than it costs no token
_HOT = 87.0  # guess: where no margin is told; cards slow down between 83 and 95
_MEMORY_HOT = 95.0
_LOW_CLOCK = 0.5  # guess: a working card runs above half of its highest clock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A card at every look, and beside a burst."""

    gpu: Gpu  # the first look
    looks: tuple[Gpu, ...]
    moments: tuple[GpuMoment, ...]

    @property
    def reasons(self) -> int | None:
        """All reasons seen; None when none was told."""
        told = [_mask(self.looks), _mask(self.moments)]
        return None if told == [None, None] else (told[0] or 0) | (told[1] or 0)

    @property
    def is_slowed_by_load(self) -> bool:
        """Whether only a burst showed what holds the clocks."""
        return bool((_mask(self.moments) or 0) & _HARMFUL) and not (_mask(self.looks) or 0) & _HARMFUL

    def highest(self, field: str) -> float | None:
        """The greatest value of a field that looks and burst showed."""
        values = [getattr(one, field, None) for one in (*self.looks, *self.moments)]
        return max((value for value in values if value is not None), default=None)

    @property
    def margin(self) -> float | None:
        """The fewest degrees left at any look."""
        told = [look.temperature_margin for look in self.looks if look.temperature_margin is not None]
        return min(told, default=None)

    def growth(self, counter: str) -> float | None:
        """Seconds by which a counter grew between the looks."""
        first, last = getattr(self.looks[0], counter), getattr(self.looks[-1], counter)
        return None if first is None or last is None or len(self.looks) < 2 else last - first


def _mask(readings: Sequence[Gpu] | Sequence[GpuMoment]) -> int | None:
    """All reasons that any reading told; None when none did."""
    told = [one.clocks_event_reasons for one in readings if one.clocks_event_reasons is not None]
    seen = 0
    for mask in told:
        seen |= mask
    return seen if told else None


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What holds the clocks and how warm it is."""
    _ = replies
    host = deployment.host
    gpus = host.main_gpus if host is not None else ()
    cards = [
        _Card(gpu=gpu, looks=looks_at(gpu, deployment), moments=moments_of(gpu, deployment)) for gpu in gpus
    ]
    told = [card for card in cards if card.reasons is not None or card.highest("temperature") is not None]
    silent = [card.gpu for card in cards if card not in told and withholds(card.gpu, "temperature")]
    meant = meant_gpus(deployment)
    problems = (
        *_slowed(told, meant),
        *_counted(told, meant),
        *_hot(told, meant),
        *_low_clocks(told),
        *_unknown(silent),
    )
    hottest = max(
        (degrees for card in told if (degrees := card.highest("temperature")) is not None), default=None
    )
    figures = (Measurement(name="hottest GPU", value=hottest, unit="C"),) if hottest is not None else ()
    fine = () if problems or not told else (_fine(told),)
    return Judgement(findings=(*fine, *problems), measurements=figures)


def _names(mask: int) -> str:
    return ", ".join(name for bit, name in CLOCK_REASONS.items() if mask & bit) or "none"


def _rows(cards: Sequence[_Card]) -> tuple[Evidence, ...]:
    return tuple(Evidence(source=tool_of(card.gpu), text=_row(card)) for card in cards)


def _row(card: _Card) -> str:
    parts: list[str] = []
    for field, words in (("temperature", "{:.0f} C"), ("memory_temperature", "memory {:.0f} C")):
        value = card.highest(field)
        if value is not None:
            parts.append(words.format(value))
    if card.margin is not None:
        parts.append(f"{card.margin:.0f} degrees left")
    if card.reasons is not None:
        parts.append(f"clocks held by: {_names(card.reasons)} ({card.reasons:#x})")
    return f"{card.gpu.label}: {', '.join(parts)}"


def _severity(cards: Sequence[_Card], meant: Sequence[Gpu]) -> Severity:
    return Severity.WARNING if any(card.gpu in meant for card in cards) else Severity.NOTE


def _slowed(cards: Sequence[_Card], meant: Sequence[Gpu]) -> Iterator[Finding]:
    slowed = [card for card in cards if (card.reasons or 0) & _HARMFUL]
    if not slowed:
        return
    seen = 0
    for card in slowed:
        seen |= (card.reasons or 0) & _HARMFUL
    degrees = [value for card in slowed if (value := card.highest("temperature")) is not None]
    at = f", up to {max(degrees):.0f} C" if degrees else ""
    when = " under load" if all(card.is_slowed_by_load for card in slowed) else ""
    cool = "check fans, air flow and dust, or lower the power limit"
    feed = "check the power cables and the server's power supplies"
    yield Finding(
        id="clocks_and_heat.slowed",
        severity=_severity(slowed, meant),
        summary=f"{gpus_text(card.gpu for card in slowed)} slowed by {_names(seen)}{when}{at}",
        expected=_EXPECTED,
        explanation="a slowed card slows every card that shares the model with it",
        action=cool if seen & _HEAT else feed,
        evidence=_rows(slowed),
    )


def _counted(cards: Sequence[_Card], meant: Sequence[Gpu]) -> Iterator[Finding]:
    """What the counters say happened between the looks, where the looks themselves did not see it."""
    grown = [
        (card, name, seconds)
        for card in cards
        for counter, name in _COUNTERS.items()
        if (seconds := card.growth(counter)) is not None
        and seconds >= _NOTABLE_S
        and not (card.reasons or 0) & _HARMFUL
    ]
    if not grown:
        return
    most = max(seconds for _, _, seconds in grown)
    names = ", ".join(sorted({name for _, name, _ in grown}))
    slowed = [card for card in cards if card in [one for one, _, _ in grown]]
    yield Finding(
        id="clocks_and_heat.counted",
        severity=_severity(slowed, meant),
        summary=f"{gpus_text(card.gpu for card in slowed)} slowed for up to {seconds_text(most)} by {names}",
        expected=_EXPECTED,
        explanation="it happened during the exercises, which are a light load",
        action="check cooling and power supply before it is under load",
        evidence=tuple(
            Evidence(source=tool_of(card.gpu), text=f"{card.gpu.label}: {seconds:.3f} s more by {name}")
            for card, name, seconds in grown
        ),
    )


def _hot(cards: Sequence[_Card], meant: Sequence[Gpu]) -> Iterator[Finding]:
    """Cards without degrees left, as far as nothing slows them already."""
    hot = [card for card in cards if _is_hot(card) and not (card.reasons or 0) & _HEAT]
    if hot:
        degrees = [value for card in hot if (value := card.highest("temperature")) is not None]
        memory = [value for card in hot if (value := card.highest("memory_temperature") or 0) >= _MEMORY_HOT]
        at = f"at {span_text(degrees, 'C')}" if degrees else "hot"
        with_memory = f", memory {span_text(memory, 'C')}" if memory else ""
        yield Finding(
            id="clocks_and_heat.hot",
            severity=_severity(hot, meant),
            summary=f"{gpus_text(card.gpu for card in hot)} {at}{with_memory}: no degrees left",
            expected=_EXPECTED,
            explanation="a little more load and the clocks are slowed",
            action="check fans, air flow and dust, or lower the power limit",
            evidence=_rows(hot),
        )


def _is_hot(card: _Card) -> bool:
    memory = card.highest("memory_temperature")
    if memory is not None and memory >= _MEMORY_HOT:
        return True
    if card.margin is not None:
        return card.margin <= 0
    degrees = card.highest("temperature")
    return degrees is not None and degrees >= _HOT


def _low_clocks(cards: Sequence[_Card]) -> Iterator[Finding]:
    """Cards that work at a low clock although nothing is said to hold it: seen after a fault."""
    low = [card for card in cards if card.reasons in (None, 0) and _is_slow_at_work(card)]
    if low:
        clocks = [look.clock_sm for card in low for look in card.looks if look.clock_sm is not None]
        yield Finding(
            id="clocks_and_heat.low",
            severity=Severity.WARNING,
            summary=f"{gpus_text(card.gpu for card in low)} at {span_text(clocks, 'MHz')} while working",
            expected="a working card near its highest clock, or a reason told",
            explanation="after some faults the clocks stay low until the driver is loaded again",
            action="look for Xid errors in the kernel log; reload the driver or restart the machine",
            evidence=tuple(
                Evidence(
                    source=tool_of(card.gpu),
                    text=f"{card.gpu.label}: {look.clock_sm:.0f} MHz of {look.clock_sm_max:.0f} at "
                    f"{look.utilization:.0%}",
                )
                for card in low
                for look in card.looks
                if look.clock_sm is not None
                and look.clock_sm_max is not None
                and look.utilization is not None
            ),
        )


def _is_slow_at_work(card: _Card) -> bool:
    at_work = [look for look in card.looks if (look.utilization or 0) >= BUSY]
    is_low = [
        look.clock_sm is not None
        and look.clock_sm_max is not None
        and look.clock_sm < _LOW_CLOCK * look.clock_sm_max
        for look in at_work
    ]
    return len(at_work) >= 2 and all(is_low)


def _fine(cards: Sequence[_Card]) -> Finding:
    degrees = [value for card in cards if (value := card.highest("temperature")) is not None]
    margins = [card.margin for card in cards if card.margin is not None]
    seen = 0
    for card in cards:
        seen |= card.reasons or 0
    parts = [span_text(degrees, "C")] if degrees else []
    parts += [f"{min(margins):.0f} degrees left or more"] if margins else []
    untold = [card.gpu for card in cards if card.reasons is None]
    parts.append(f"reasons not told on {gpus_text(untold)}" if untold else f"clocks held by: {_names(seen)}")
    return Finding(
        id="clocks_and_heat",
        severity=Severity.NOTE if untold else Severity.OK,
        summary="; ".join(parts),
        expected=_EXPECTED,
        explanation="this driver does not say what holds the clocks, so that is not judged" if untold else "",
        action=f"see what `{tool_of(untold[0])}` says of its clocks" if untold else "",
        evidence=_rows(cards),
    )


def _unknown(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    if gpus:
        said = gpus[0].said.get("temperature", "nothing")
        yield Finding(
            id="clocks_and_heat.unread",
            severity=Severity.UNKNOWN,
            summary=f"not measured: no temperature is told for {gpus_text(gpus)} ({said})",
            expected=_EXPECTED,
            explanation="whether heat slows them is not known",
            action="read it where the card is not virtual, or see why the driver does not tell it",
            evidence=(Evidence(source=tool_of(gpus[0]), text=f"temperature: {said}"),),
        )


CHECK = Check(
    title="is not slowed by heat or power",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
