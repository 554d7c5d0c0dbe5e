"""What differs between two runs, with an interval: "no difference shown" is an answer.

Rungs are paired by what was asked of them. For each figure both sides are drawn again many times from their
own records (bootstrap) and the difference of each pair of draws is taken; its middle share is the interval.

- Means and rates: whole batches of neighbours in time are drawn, because requests that ran together
  resemble each other. With k batches the spread of the draws is too small by (k - 1) / k, and Student's t
  would be wider than the normal distribution: the draws are spread out by both.
- Quantiles: of n draws with replacement the r-th smallest is the value at a place that follows the beta
  distribution (r, n + 1 - r); it is drawn directly. How much requests resemble each other lessens n: by the
  ratio of the variance between batches to that which independent requests would have.

The interval knows what varied within the two runs. What changes from run to run (heat, other tenants, a
restart) only repeated runs show.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from bringup.stats import latency
from bringup.stats.interval import Batch, batches_of, student_t
from bringup.stats.load_words import load_words
from bringup.stats.series import RungSeries, series_of
from bringup.stats.tally import place
from bringup.values.bench import Distribution, RequestRecord, Rung, RungResult

_DRAWS = 1000
_FEWEST_BATCHES = 5
_FEWEST_BEYOND = 5  # requests beyond a quantile, without which nothing is known of what lies there
_NONE = "no difference shown"
_UNKNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One figure before and after, and whether the difference is more than chance."""

    figure: str  # "ttft p50"
    unit: str  # "s", "tokens/s", "requests/s"
    before: float | None
    after: float | None
    low: float | None = None  # of after - before; None: the records do not settle it
    high: float | None = None
    verdict: str = _UNKNOWN  # "higher", "lower", "no difference shown", "not known"
    is_better: bool | None = None  # None: no difference shown

    @property
    def change(self) -> float | None:
        """After minus before, as a share of before."""
        return self._share(None if self.after is None or self.before is None else self.after - self.before)

    @property
    def change_low(self) -> float | None:
        """Lower bound of the change, as a share of before."""
        return self._share(self.low)

    @property
    def change_high(self) -> float | None:
        """Upper bound of the change, as a share of before."""
        return self._share(self.high)

    def _share(self, difference: float | None) -> float | None:
        return difference / self.before if difference is not None and self.before else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RungComparison:
    """All differences at one load."""

    concurrency: int | None
    rate: float | None
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs beside each other."""

    rungs: tuple[RungComparison, ...]
    only_before: tuple[str, ...] = ()  # "8 streams", "2.5 requests/s"
    only_after: tuple[str, ...] = ()
    judged: int = 0  # differences with an interval
    by_chance: float = 0.0  # how many of these would be shown if nothing differed
    confidence: float = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latency:
    """A latency and where both its values and its figures are found."""

    name: str
    of: Callable[[RequestRecord], float | None]
    figures: Callable[[Rung], Distribution | None]


_LATENCIES = (
    _Latency(name="ttft", of=latency.ttft_ns, figures=lambda rung: rung.ttft),
    _Latency(name="tpot", of=latency.tpot_ns, figures=lambda rung: rung.tpot),
    _Latency(name="e2e", of=latency.e2e_ns, figures=lambda rung: rung.e2e),
)
_QUANTILES: Mapping[str, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def compare(
    before: Sequence[RungResult], after: Sequence[RungResult], *, seed: int = 0, confidence: float = 0.95
) -> Comparison:
    """Differences of all rungs that both runs have; the same seed draws the same."""
    first = {load_words(result.rung): result for result in before}
    second = {load_words(result.rung): result for result in after}
    rungs = tuple(
        RungComparison(
            concurrency=result.rung.concurrency,
            rate=result.rung.rate,
            differences=compare_rungs(result, second[asked], seed=seed, confidence=confidence),
        )
        for asked, result in first.items()
        if asked in second
    )
    judged = sum(one.low is not None for rung in rungs for one in rung.differences)
    return Comparison(
        rungs=rungs,
        only_before=tuple(asked for asked in first if asked not in second),
        only_after=tuple(asked for asked in second if asked not in first),
        judged=judged,
        by_chance=judged * (1 - confidence),
        confidence=confidence,
    )


def compare_rungs(
    before: RungResult, after: RungResult, *, seed: int = 0, confidence: float = 0.95
) -> tuple[Difference, ...]:
    """Differences of one load. Without records on both sides the figures stand there without an interval."""
    one, other = series_of(before), series_of(after)
    judge = _Judge(seed=seed, confidence=confidence)
    found: list[Difference] = []
    for kind in _LATENCIES:
        pair = (kind.figures(before.rung), kind.figures(after.rung))
        if pair == (None, None):
            continue
        values = (one.values(kind.of), other.values(kind.of))
        found.append(judge.mean(kind.name, pair, values, (one.together, other.together)))
        found += [
            judge.quantile(f"{kind.name} {name}", pair, values, (one.together, other.together))
            for name in _QUANTILES
        ]
    found += _itl_tail(before.rung, after.rung)
    found += judge.rates(one, other)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judge:
    """Draws with one seed and one confidence."""

    seed: int
    confidence: float

    def mean(
        self,
        name: str,
        figures: tuple[Distribution | None, Distribution | None],
        values: tuple[Sequence[float], Sequence[float]],
        together: tuple[int, int],
    ) -> Difference:
        """Difference of the means of a latency."""
        before, after = (None if one is None else one.mean for one in figures)
        random = self._random(f"{name} mean")
        batches = [batches_of(side, together=near) for side, near in zip(values, together, strict=True)]
        draws = [self._ratio_draws(side, random) for side in batches]
        return self._difference(f"{name} mean", "s", (before, after), draws)

    def quantile(
        self,
        name: str,
        figures: tuple[Distribution | None, Distribution | None],
        values: tuple[Sequence[float], Sequence[float]],
        together: tuple[int, int],
    ) -> Difference:
        """Difference of one quantile of a latency; `name` ends in p50, p90 or p99."""
        which = name.rsplit(" ", 1)[1]
        share = _QUANTILES[which]
        before, after = (None if one is None else _at(one, which) for one in figures)
        random = self._random(name)
        draws = [
            _quantile_draws(side, share, near, random) for side, near in zip(values, together, strict=True)
        ]
        return self._difference(name, "s", (before, after), draws)

    def rates(self, one: RungSeries, other: RungSeries) -> list[Difference]:
        """Differences of tokens and of requests per second in the steady time."""
        random = self._random("rates")
        tokens = [self._ratio_draws(side.token_batches(), random) for side in (one, other)]
        requests = [self._ratio_draws(side.request_batches(), random) for side in (one, other)]
        # Over the steady time, as the batches are; over the whole wall time only where one side had none.
        rates = [
            (side.rung.steady_output_tokens_per_s, side.rung.output_tokens_per_s) for side in (one, other)
        ]
        ended = [(side.rung.steady_requests_per_s, side.rung.requests_per_s) for side in (one, other)]
        return [
            self._difference("output tokens per second", "tokens/s", _like(rates), tokens),
            self._difference("requests per second", "requests/s", _like(ended), requests),
        ]

    def _random(self, name: str) -> Random:
        return Random(f"{self.seed} {name}")  # noqa: S311 - draws that can be repeated, not secrets

    def _ratio_draws(self, batches: Sequence[Batch], random: Random) -> list[float]:
        """Means of batches drawn again, spread out for their number; none of too few batches."""
        count = len(batches)
        if count < _FEWEST_BATCHES:
            return []
        # Batches are equal to within one value, so that their means may be drawn as they are.
        means = [batch.total / batch.size for batch in batches]
        center = sum(means) / count
        whole = sum(batch.total for batch in batches) / sum(batch.size for batch in batches)
        normal = NormalDist().inv_cdf((1 + self.confidence) / 2)
        wider = student_t(self.confidence, count - 1) / normal * (count / (count - 1)) ** 0.5
        drawn = (sum(random.choices(means, k=count)) / count for _ in range(_DRAWS))
        return [whole + (value - center) * wider for value in drawn]

    def _difference(
        self, name: str, unit: str, figures: tuple[float | None, float | None], draws: Sequence[list[float]]
    ) -> Difference:
        before, after = figures
        one, other = draws
        if before is None or after is None or not one or not other:
            return Difference(figure=name, unit=unit, before=before, after=after)
        ordered = sorted(right - left for left, right in zip(one, other, strict=True))
        tail = (1 - self.confidence) / 2
        low, high = ordered[place(tail, _DRAWS) - 1], ordered[place(1 - tail, _DRAWS) - 1]
        verdict = "higher" if low > 0 else "lower" if high < 0 else _NONE
        good_way = "lower" if unit == "s" else "higher"
        return Difference(
            figure=name,
            unit=unit,
            before=before,
            after=after,
            low=low,
            high=high,
            verdict=verdict,
            is_better=None if verdict == _NONE else verdict == good_way,
        )


def _quantile_draws(values: Sequence[float], share: float, together: int, random: Random) -> list[float]:
    """The quantile of values drawn again; none where too few lie beyond it."""
    batches = len(batches_of(values, together=together))
    if batches < _FEWEST_BATCHES:
        return []
    ordered = sorted(values)
    at = ordered[place(share, len(ordered)) - 1]
    effective = len(values) / _alike([value > at for value in values], together)
    if effective * min(share, 1 - share) < _FEWEST_BEYOND:
        return []
    below, above = share * effective, (1 - share) * effective + 1
    last = len(ordered) - 1
    return [ordered[min(last, int(random.betavariate(below, above) * len(ordered)))] for _ in range(_DRAWS)]


def _alike(are_beyond: Sequence[bool], together: int) -> float:
    """How many times the variance between batches is that of independent requests; at least 1."""
    share = sum(are_beyond) / len(are_beyond)
    alone = share * (1 - share)
    if not alone:
        return 1.0
    batches = batches_of(are_beyond, together=together)
    between = sum((batch.total - share * batch.size) ** 2 / batch.size for batch in batches)
    return max(1.0, between / (len(batches) - 1) / alone)


def _itl_tail(before: Rung, after: Rung) -> Iterable[Difference]:
    """The slowest gaps, without an interval: one pause of the server is in the gaps of all its streams."""
    one, other = before.itl, after.itl
    if one is not None and other is not None and before.itl_is_estimated == after.itl_is_estimated:
        yield Difference(figure="itl p99", unit="s", before=one.p99, after=other.p99)


def _at(figures: Distribution, which: str) -> float:
    return {"p50": figures.p50, "p90": figures.p90, "p99": figures.p99}[which]


def _like(rates: Sequence[tuple[float | None, float | None]]) -> tuple[float | None, float | None]:
    """The steady rates of both sides, or else the whole ones of both: never one of each."""
    (one, whole_one), (other, whole_other) = rates
    return (whole_one, whole_other) if one is None or other is None else (one, other)
