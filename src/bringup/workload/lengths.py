"""Lengths in tokens: fixed or drawn from a distribution, and how an option writes them.

    512                     always 512
    128:1024                every whole number of the range equally often
    512+-20%                the same as 410:614
    normal:512,128          mean and standard deviation
    lognormal:512,300       mean and standard deviation of the lengths themselves
    512=70,2048=20,100:900=10   a histogram: lengths or ranges with their weights

A range after a distribution bounds it: `normal:512,128,16:2048`.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from bringup.errors import UsageError

_MOST = 100_000_000  # tokens: more is a slip of the finger
_HINT = (
    "write `512`, `128:1024`, `512+-20%`, `normal:512,128`, `lognormal:512,300` "
    "or a histogram such as `512=70,2048=30`"
)
_FIXED = re.compile(r"\d+")
_RANGE = re.compile(r"(?P<low>\d+):(?P<high>\d+)")
_AROUND = re.compile(r"(?P<middle>\d+)(?:\+-|±)(?P<share>\d+(?:\.\d+)?)%")
_SHAPE = re.compile(
    r"(?P<kind>normal|lognormal):(?P<mean>\d+(?:\.\d+)?),(?P<deviation>\d+(?:\.\d+)?)"
    r"(?:,(?P<low>\d+):(?P<high>\d+))?"
)
_BIN = re.compile(r"(?P<low>\d+)(?::(?P<high>\d+))?=(?P<weight>\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """A distribution of lengths.

    `bins` are ranges, both ends included, and `upto` their weights added up; a fixed length is one bin of one
    value. With a `mean` it is a bell curve instead, and the only bin holds its bounds.
    """

    words: str  # as a person wrote it
    bins: tuple[tuple[int, int], ...]
    upto: tuple[float, ...] = (1.0,)
    mean: float | None = None
    deviation: float = 0.0
    is_log: bool = False

    @property
    def fixed(self) -> int | None:
        """The only length there is; None when it varies."""
        low, high = self.bins[0]
        return low if len(self.bins) == 1 and low == high else None

    @property
    def least(self) -> int:
        """The shortest length that can come."""
        return min(low for low, _ in self.bins)

    @property
    def most(self) -> int:
        """The longest length that can come."""
        return max(high for _, high in self.bins)

    @property
    def average(self) -> float:
        """The mean of the distribution, before a curve is cut at its bounds."""
        if self.mean is not None:
            return self.mean
        weights = [self.upto[0], *(b - a for a, b in zip(self.upto, self.upto[1:], strict=False))]
        middles = [(low + high) / 2 for low, high in self.bins]
        return sum(w * m for w, m in zip(weights, middles, strict=True)) / self.upto[-1]

    def draw(self, source: Random) -> int:
        """One length; the same state of `source` gives the same one."""
        if self.mean is not None:
            return self._from_curve(source, self.mean)
        if len(self.bins) == 1:
            low, high = self.bins[0]
            return low + int(source.random() * (high - low + 1))
        low, high = source.choices(self.bins, cum_weights=self.upto)[0]
        return low + int(source.random() * (high - low + 1))

    def _from_curve(self, source: Random, mean: float) -> int:
        if self.is_log:
            spread = math.log(1 + (self.deviation / mean) ** 2)
            drawn = source.lognormvariate(math.log(mean) - spread / 2, math.sqrt(spread))
        else:
            drawn = source.gauss(mean, self.deviation)
        low, high = self.bins[0]
        return min(max(round(drawn), low), high)


def fixed_length(tokens: int) -> Lengths:
    """Always the same length.

    >>> fixed_length(512).fixed
    512
    """
    return Lengths(words=str(tokens), bins=((tokens, tokens),))


def read_lengths(text: str, *, option: str) -> Lengths:
    """The lengths that the text of an option asks for.

    Raises:
        UsageError: it is none of the forms above.

    >>> read_lengths("128:1024", option="--input-tokens").average
    576.0
    >>> read_lengths("512=3,2048=1", option="--input-tokens").average
    896.0
    >>> read_lengths("512+-20%", option="--input-tokens").bins
    ((410, 614),)
    """
    plain = re.sub(r"\s+|_(?=\d)", "", text).lower()
    if _FIXED.fullmatch(plain):
        lengths = fixed_length(int(plain))
    elif match := _RANGE.fullmatch(plain):
        lengths = Lengths(words=plain, bins=((int(match["low"]), int(match["high"])),))
    elif match := _AROUND.fullmatch(plain):
        middle, share = int(match["middle"]), float(match["share"]) / 100
        bins = ((max(1, round(middle * (1 - share))), round(middle * (1 + share))),)
        lengths = Lengths(words=plain, bins=bins)
    elif match := _SHAPE.fullmatch(plain):
        lengths = _curve(match, plain)
    elif "=" in plain:
        lengths = _histogram(plain, option)
    else:
        raise UsageError(f"no lengths: `{option} {text}`", hint=_HINT)
    _require_sane(lengths, f"`{option} {text}`")
    return lengths


def _curve(match: re.Match[str], plain: str) -> Lengths:
    mean, deviation = float(match["mean"]), float(match["deviation"])
    low = int(match["low"] or 1)
    high = int(
        match["high"] or max(1, math.ceil(mean + 20 * deviation))
    )  # a bound of any kind: nothing endless
    return Lengths(
        words=plain,
        bins=((low, high),),
        mean=mean,
        deviation=deviation,
        is_log=match["kind"] == "lognormal",
    )


def _histogram(plain: str, option: str) -> Lengths:
    bins: list[tuple[int, int]] = []
    weights: list[float] = []
    for part in plain.split(","):
        if (match := _BIN.fullmatch(part)) is None:
            raise UsageError(
                f"wanted LENGTH=WEIGHT or LOW:HIGH=WEIGHT, found `{part}` in `{option} {plain}`", hint=_HINT
            )
        bins.append((int(match["low"]), int(match["high"] or match["low"])))
        weights.append(float(match["weight"]))
    if not sum(weights):
        raise UsageError(f"all weights are 0: `{option} {plain}`", hint=_HINT)
    return Lengths(words=plain, bins=tuple(bins), upto=tuple(accumulate(weights)))


def _require_sane(lengths: Lengths, where: str) -> None:
    for low, high in lengths.bins:
        if low > high:
            raise UsageError(f"the range {low}:{high} ends before it begins: {where}", hint=f"{high}:{low}")
    if lengths.least < 1:
        raise UsageError(f"a length of 0 tokens: {where}", hint="the shortest request has 1 token")
    if lengths.most > _MOST or (lengths.mean is not None and lengths.mean <= 0):
        raise UsageError(f"no length that a request can have: {where}", hint=_HINT)


def lengths_from_lines(lines: Iterable[str], *, name: str) -> Lengths:
    """A histogram from a file of `LENGTH,COUNT` lines; one line of headings and `#` comments may stand there.

    Raises:
        UsageError: a line is neither.
    """
    rows = tuple(_rows(lines, name))
    if not rows:
        raise UsageError(f"no line `LENGTH,COUNT` in `{name}`")
    lengths = Lengths(
        words=f"histogram {name}",
        bins=tuple((length, length) for length, _ in rows),
        upto=tuple(accumulate(weight for _, weight in rows)),
    )
    _require_sane(lengths, f"`{name}`")
    return lengths


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, float]]:
    is_first = True
    for number, line in enumerate(lines, 1):
        plain = line.split("#")[0].strip()
        if not plain:
            continue
        match = re.fullmatch(r"(\d+)\s*[,;\t ]\s*(\d+(?:\.\d+)?)", plain)
        if match is not None:
            yield int(match[1]), float(match[2])
        elif not is_first:
            raise UsageError(f"wanted `LENGTH,COUNT`, found `{plain[:80]}` in `{name}`, line {number}")
        is_first = False
