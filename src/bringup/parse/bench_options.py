"""What the options of `bench` say: loads, limits, durations."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bringup.errors import UsageError
from bringup.values.bench import Slo

MOST_STREAMS = 65_536  # more than one machine's ports
_MOST_RATE = 1_000_000.0
_SPAN = re.compile(r"(?P<low>\d+(?:\.\d+)?)(?:-|\.\.)(?P<high>\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>us|ms|s|m|min|h)?")
_UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_LIMITS = ("ttft", "itl", "tpot", "e2e")
_SLO_HINT = "such as `ttft=500ms,itl=50ms`; known are ttft, itl, tpot, e2e and share (`share=95%`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """The loads to measure, in turn: streams at once, or requests per second."""

    values: tuple[float, ...]  # empty: found by search
    is_rate: bool = False
    is_auto: bool = False
    is_trace: bool = False  # the times of a data file; `low` is how many times as fast
    low: float = 1  # of the search
    high: float | None = None

    @property
    def words(self) -> str:
        """The loads in words."""
        if self.is_trace:
            return "open loop at the file's own times" + (
                f", {self.low:g} times as fast" if self.low != 1 else ""
            )
        kind, unit = ("open loop", "requests/s") if self.is_rate else ("closed loop", "streams")
        if self.is_auto:
            most = f" to at most {self.high:g}" if self.high is not None else ""
            return f"{kind}, searched from {self.low:g}{most} {unit}"
        listed = ", ".join(f"{value:g}" for value in self.values)
        return f"{kind}, {listed} {unit if self.values != (1,) or self.is_rate else 'stream'}"


def read_concurrency(text: str) -> Loads:
    """The streams that `--concurrency` asks for: `8`, `1,2,4`, `1-64` (doubling), `auto` or `auto:512`.

    Raises:
        UsageError: none of these.

    >>> read_concurrency("1-12").values, read_concurrency("auto:512").high
    ((1.0, 2.0, 4.0, 8.0, 12.0), 512.0)
    """
    loads = _loads(text, "--concurrency", "write `8`, `1,2,4`, `1-64` (doubling) or `auto`")
    for value in (*loads.values, 1 if loads.high is None else loads.high):
        if value != int(value) or not 1 <= value <= MOST_STREAMS:
            raise UsageError(f"wanted whole streams from 1 to {MOST_STREAMS:,}, found `{value:g}`")
    return loads


def read_rate(text: str) -> Loads:
    """The requests per second that `--rate` asks for: `2.5`, `1,2,4`, `1-16` (doubling), `auto`.

    Raises:
        UsageError: none of these.

    >>> read_rate("0.5-3").values
    (0.5, 1.0, 2.0, 3.0)
    """
    loads = _loads(text, "--rate", "write `2.5`, `1,2,4`, `1-16` (doubling) or `auto` together with `--slo`")
    for value in (*loads.values, 1.0 if loads.high is None else loads.high):
        if not 0 < value <= _MOST_RATE:
            raise UsageError(f"wanted more than 0 requests per second, found `{value:g}`")
    return Loads(values=loads.values, is_rate=True, is_auto=loads.is_auto, low=loads.low, high=loads.high)


def read_trace(text: str) -> Loads:
    """The loads of `--arrivals trace` or `trace:2`, twice as fast.

    Raises:
        UsageError: no speed.

    >>> read_trace("trace:2").low
    2.0
    """
    _, _, speed = text.strip().lower().partition(":")
    if speed and (not _NUMBER.fullmatch(speed) or not float(speed)):
        raise UsageError(f"no speed: `--arrivals {text}`", hint="write `trace` or `trace:2`, twice as fast")
    low = float(speed or 1)
    return Loads(values=(low,), is_rate=True, is_trace=True, low=low)


def _loads(text: str, option: str, hint: str) -> Loads:
    plain = re.sub(r"\s+|_(?=\d)", "", text).lower()
    kind, _, limit = plain.partition(":")
    if kind == "auto" and (not limit or _NUMBER.fullmatch(limit)):
        return Loads(values=(), is_auto=True, high=float(limit) if limit else None)
    values: list[float] = []
    for part in plain.split(","):
        if match := _SPAN.fullmatch(part):
            low, high = float(match["low"]), float(match["high"])
            if not 0 < low <= high:
                raise UsageError(f"the span `{part}` of `{option}` does not ascend", hint=hint)
            values += _doubling(low, high)
        elif _NUMBER.fullmatch(part):
            values.append(float(part))
        else:
            raise UsageError(f"no loads: `{option} {text}`", hint=hint)
    return Loads(values=tuple(dict.fromkeys(values)))


def _doubling(low: float, high: float) -> Iterator[float]:
    value = low
    while value < high:
        yield value
        value *= 2
    yield high


def read_duration(text: str, *, option: str) -> float:
    """Seconds in `500ms`, `30`, `30s`, `5m`, `1h`.

    Raises:
        UsageError: no duration, or none above 0.

    >>> read_duration("500ms", option="--slo"), read_duration("2m", option="--duration")
    (0.5, 120.0)
    """
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match["number"]) * _UNITS[match["unit"] or "s"] if match else 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(f"no duration: `{option} {text}`", hint="write `500ms`, `30s`, `5m`")
    return seconds


def read_slo(text: str) -> Slo:
    """The limits that `--slo` sets.

    Raises:
        UsageError: a name or a limit that is none.

    >>> read_slo("ttft=500ms,itl=50ms,share=95%")
    Slo(ttft_s=0.5, itl_s=0.05, tpot_s=None, e2e_s=None, share=0.95)
    """
    limits: dict[str, float] = {}
    share = 0.99
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, sign, value = part.partition("=")
        name = name.strip().lower()
        if sign and name == "share":
            share = _share(value, text)
        elif sign and name in _LIMITS and name not in limits:
            limits[name] = read_duration(value, option=f"--slo {name}=")
        else:
            raise UsageError(f"no limit: `{part}` in `--slo {text}`", hint=_SLO_HINT)
    if not limits:
        raise UsageError(f"`--slo {text}` sets no limit", hint=_SLO_HINT)
    ttft, itl, tpot, e2e = (limits.get(name) for name in _LIMITS)
    return Slo(
        ttft_s=ttft,
        itl_s=itl,
        tpot_s=tpot,
        e2e_s=e2e,
        share=share,
    )


def _share(text: str, whole: str) -> float:
    plain = text.strip()
    try:
        share = float(plain.removesuffix("%")) / (100 if plain.endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"no share: `{text}` in `--slo {whole}`", hint="write `share=99%` or `share=0.99`")
    return share
