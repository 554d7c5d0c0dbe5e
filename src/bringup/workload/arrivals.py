"""When requests are due in an open loop: the same times, however many generators share them.

Each generator draws all times and keeps its own: a draw costs under a microsecond, and nothing must be sent
between them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from random import Random

from bringup.errors import UsageError
from bringup.values.bench import LoadRequest
from bringup.workload import Workload

_HINT = "write `poisson`, `constant`, `bursty:0.25` (1 is Poisson, less comes in bursts) or `ramp:60`"
_GAMMA = re.compile(r"(?:bursty|gamma):(?P<burstiness>\d*\.?\d+)")
_RAMP = re.compile(r"ramp:(?P<seconds>\d+(?:\.\d+)?)s?")


class Arrival(StrEnum):
    """How the gaps between requests are drawn."""

    POISSON = "poisson"  # independent users
    CONSTANT = "constant"
    GAMMA = "gamma"  # bursts: the gaps vary more than a Poisson process's


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """A stream of due times.

    With `ramp_s` the rate goes from `rate` to `end_rate` in that time, in a straight line, and then stays.
    """

    rate: float  # requests per second
    kind: Arrival = Arrival.POISSON
    burstiness: float = (
        1.0  # shape of the gamma distribution: 1 is Poisson, 0.25 is bursty, 100 almost constant
    )
    end_rate: float | None = None
    ramp_s: float = 0.0
    seed: int = 0

    @property
    def words(self) -> str:
        """The arrivals in words."""
        rate = f"{self.rate:g}"
        if self.end_rate is not None and self.ramp_s:
            rate = f"{self.rate:g} to {self.end_rate:g} in {self.ramp_s:g} s"
        how = f"bursty ({self.burstiness:g})" if self.kind is Arrival.GAMMA else self.kind.value
        return f"{how} arrivals, {rate} a second"

    def times(self) -> Iterator[float]:
        """The due times of requests 0, 1, 2, ... in seconds after the start; they never end."""
        if self.rate <= 0 and not self.end_rate:
            return
        reached = (
            0.0  # expected number of requests so far: gaps are drawn with mean 1 and stretched by the rate
        )
        for gap in self._gaps():
            reached += gap
            yield self._time_of(reached)

    def _gaps(self) -> Iterator[float]:
        """Gaps with a mean of 1; a constant stream begins at once."""
        source = Random(f"arrivals {self.seed}")  # noqa: S311 - reproducible on purpose
        if self.kind is Arrival.CONSTANT:
            yield 0.0
            while True:
                yield 1.0
        elif self.kind is Arrival.GAMMA:
            scale = 1 / self.burstiness
            while True:
                yield source.gammavariate(self.burstiness, scale)
        while True:
            yield source.expovariate(1.0)

    def _time_of(self, reached: float) -> float:
        """When the expected number of requests is `reached`: the integral of the rate, solved."""
        end = self.end_rate
        if end is None or not self.ramp_s:
            return reached / self.rate
        slope = (end - self.rate) / self.ramp_s
        in_ramp = (self.rate + end) / 2 * self.ramp_s
        if reached >= in_ramp and end > 0:
            return self.ramp_s + (reached - in_ramp) / end
        if not slope:
            return reached / self.rate
        under_root = max(0.0, self.rate * self.rate + 2 * slope * reached)
        # the form that does not subtract two numbers of almost the same size
        return 2 * reached / (self.rate + under_root**0.5) if reached else 0.0


def read_arrivals(text: str, *, rate: float, option: str, seed: int = 0) -> Arrivals:
    """The arrivals that the text of an option asks for, at `rate` requests per second.

    `ramp:60` goes from a tenth of the rate to the rate in 60 seconds.

    Raises:
        UsageError: none of the forms.

    >>> read_arrivals("bursty:0.25", rate=8, option="--arrivals").words
    'bursty (0.25) arrivals, 8 a second'
    """
    plain = text.strip().lower()
    if rate <= 0:
        raise UsageError(f"wanted more than 0 requests per second, found `{rate:g}`")
    if plain in (Arrival.POISSON, Arrival.CONSTANT):
        return Arrivals(rate=rate, kind=Arrival(plain), seed=seed)
    if match := _GAMMA.fullmatch(plain):
        burstiness = float(match["burstiness"])
        if burstiness > 0:
            return Arrivals(rate=rate, kind=Arrival.GAMMA, burstiness=burstiness, seed=seed)
    if (match := _RAMP.fullmatch(plain)) and float(match["seconds"]) > 0:
        return Arrivals(rate=rate / 10, end_rate=rate, ramp_s=float(match["seconds"]), seed=seed)
    raise UsageError(f"no arrivals: `{option} {text}`", hint=_HINT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A workload whose requests are due at drawn times, in place of any times of its own."""

    workload: Workload
    arrivals: Arrivals

    @property
    def words(self) -> str:
        """The workload and its arrivals in words."""
        return f"{self.workload.words}, {self.arrivals.words}"

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The requests of one generator with their due times."""
        mine = islice(self.arrivals.times(), generator, None, generators)
        for request, at_s in zip(self.workload.requests(generator, generators), mine, strict=False):
            yield replace(request, at_s=at_s)

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        """The turn after `request`; it is due when the pause is over, not at a time of its own."""
        return self.workload.next_turn(request, answer)
