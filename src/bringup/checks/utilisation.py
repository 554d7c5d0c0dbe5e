"""How busy the cards are, with their power as a second witness.

The figure is the share of the last moments in which any kernel ran, so a collective that waits for ever reads
100 %: it is told from work by the power. 0 % without requests is normal.

Source: nvidia-smi `utilization.gpu`; a hung NCCL collective read 100 % at about 140 W on cards of 600 W. The
first question to a card without persistence mode reads 100 % as well: one reading proves nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.checks import Check, Replies
from bringup.values.account import Role
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import looks_at, role_of, span_text, tool_of, withholds
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu, GpuSample

_EXPECTED = "0 % without requests, or many watts with many per cent"
_FULL = 0.95
_LITTLE_POWER = 0.35  # guess: of the card's limit; decoding for one stream draws more where it was seen
_WATCH = "nvidia-smi --query-gpu=index,utilization.gpu,power.draw --format=csv -l 1"
_ENOUGH = 3  # samples that must agree


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A card with all its readings of utilisation."""

    gpu: Gpu
    samples: tuple[GpuSample, ...]

    @property
    def shares(self) -> list[float]:
        """Utilisation of each sample."""
        return [sample.utilization for sample in self.samples if sample.utilization is not None]

    @property
    def powers(self) -> list[float]:
        """Watts of each sample."""
        return [sample.power for sample in self.samples if sample.power is not None]

    @property
    def spins(self) -> bool:
        """Always busy, with little power: kernels run that do no work."""
        limit = self.gpu.power_limit_default or self.gpu.power_limit
        if limit is None or not self.powers:
            return False
        return min(self.shares) >= _FULL and max(self.powers) <= _LITTLE_POWER * limit


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Whether the cards with the model rest, work or spin."""
    _ = replies
    host = deployment.host
    if host is None:
        return Judgement(findings=())
    carriers = [gpu for gpu in host.main_gpus if role_of(gpu, deployment) is Role.MODEL]
    cards = [_Card(gpu=gpu, samples=_samples(gpu, deployment)) for gpu in carriers]
    told = [card for card in cards if card.shares]
    if not told:
        silent = [gpu for gpu in carriers if withholds(gpu, "utilization") and gpu.mig_mode != "Enabled"]
        return Judgement(findings=(_unknown(silent),) if silent else ())
    spinning = [card for card in told if card.spins]
    return Judgement(findings=(_spin(spinning) if spinning else _state(told),))


def _samples(gpu: Gpu, deployment: Deployment) -> tuple[GpuSample, ...]:
    found: list[GpuSample] = []
    for look in looks_at(gpu, deployment):
        found.append(GpuSample(utilization=look.utilization, power=look.power))
        found += look.samples
    return tuple(found)


def _rows(cards: Sequence[_Card]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            source=tool_of(card.gpu),
            text=f"{card.gpu.label}: {', '.join(f'{share:.0%}' for share in card.shares)}"
            + (f" at {span_text(card.powers, 'W')}" if card.powers else ""),
        )
        for card in cards
    )


def _spin(cards: Sequence[_Card]) -> Finding:
    powers = [power for card in cards for power in card.powers]
    limits = [limit for card in cards if (limit := card.gpu.power_limit_default or card.gpu.power_limit)]
    count = min(len(card.shares) for card in cards)
    is_proof = count >= _ENOUGH
    return Finding(
        id="utilisation",
        severity=Severity.WARNING if is_proof else Severity.NOTE,
        summary=f"{gpus_text(card.gpu for card in cards)} 100 % busy at {span_text(powers, 'W')} of "
        f"{span_text(limits, 'W')} in {count} of {count} samples",
        expected=_EXPECTED,
        explanation="kernels run that do no work, as in a collective where one rank waits for ever"
        + ("" if is_proof else "; a single reading can also be the driver's own start"),
        action="if no requests of others run, take the stacks of the ranks (`py-spy dump --pid PID`) and "
        "restart the engine; `NCCL_DEBUG=INFO` shows the collective"
        if is_proof
        else "verify again: several samples that agree are needed",
        evidence=_rows(cards),
        next_measurement="" if cards[0].gpu.vendor != "nvidia" else _WATCH,
    )


def _state(cards: Sequence[_Card]) -> Finding:
    shares = [share for card in cards for share in card.shares]
    powers = [power for card in cards for power in card.powers]
    count = max(len(card.shares) for card in cards)
    at = f" at {span_text(powers, 'W')}" if powers else ""
    low, high = round(100 * min(shares)), round(100 * max(shares))
    span = f"{low} %" if low == high else f"{low}-{high} %"
    samples = f"in {count} samples" if count > 1 else "in one sample"
    return Finding(
        id="utilisation",
        severity=Severity.OK,
        summary=f"{gpus_text(card.gpu for card in cards)}: {span}{at} {samples}",
        expected=_EXPECTED,
        evidence=_rows(cards),
    )


def _unknown(gpus: Sequence[Gpu]) -> Finding:
    said = gpus[0].said.get("utilization", "nothing")
    return Finding(
        id="utilisation",
        severity=Severity.UNKNOWN,
        summary=f"not measured: no utilisation is told for {gpus_text(gpus)} ({said})",
        expected=_EXPECTED,
        explanation="a hang of the cards would not be seen",
        action="read it where the card is not virtual",
        evidence=(Evidence(source=tool_of(gpus[0]), text=f"utilisation: {said}"),),
    )


CHECK = Check(
    title="works or rests, and does not spin",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
