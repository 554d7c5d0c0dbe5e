"""A share of the requests is hung up on, as users do."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from bringup.errors import UsageError
from bringup.values.bench import LoadRequest
from bringup.workload import Workload

_FORM = re.compile(r"(?P<share>\d*\.?\d+)(?P<percent>%?)(?:,(?P<low>\d*\.?\d+)(?::(?P<high>\d*\.?\d+))?s?)?")
_USUAL = (0.1, 2.0)  # seconds: some before the first token, most in the answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """How many requests are hung up on, and how long after they were sent: evenly between two times."""

    share: float
    low_s: float = _USUAL[0]
    high_s: float = _USUAL[1]
    seed: int = 0

    def after(self, index: int) -> float | None:
        """When request `index` is hung up on; None: never."""
        source = Random((self.seed * (1 << 64) + index) * 2 + 1)  # noqa: S311 - reproducible on purpose
        if source.random() >= self.share:
            return None
        return source.uniform(self.low_s, self.high_s)


def read_cancellation(text: str, *, option: str, seed: int = 0) -> Cancellation:
    """The cancellation that the text of an option asks for: `10%`, `0.1`, `10%,0.5` or `10%,0.5:3`.

    Raises:
        UsageError: none of these, or no share.

    >>> read_cancellation("10%,0.5:3", option="--cancel")
    Cancellation(share=0.1, low_s=0.5, high_s=3.0, seed=0)
    """
    match = _FORM.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UsageError(
            f"no cancellation: `{option} {text}`", hint="write a share and seconds, such as `10%,0.5:3`"
        )
    share = float(match["share"]) / (100 if match["percent"] else 1)
    low = float(match["low"]) if match["low"] else _USUAL[0]
    high = float(match["high"]) if match["high"] else (low if match["low"] else _USUAL[1])
    if share > 1:
        raise UsageError(f"more than every request: `{option} {text}`", hint=f"`{match['share']}%`?")
    if low > high:
        raise UsageError(f"the times {low:g}:{high:g} end before they begin: `{option} {text}`")
    return Cancellation(share=share, low_s=low, high_s=high, seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """A workload of which a share is hung up on; known questions are not."""

    workload: Workload
    cancellation: Cancellation

    @property
    def words(self) -> str:
        """The workload and its cancellations in words."""
        cut = self.cancellation
        times = f"{cut.low_s:g} to {cut.high_s:g} s"
        return f"{self.workload.words}, {100 * cut.share:.3g} % hung up on after {times}"

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The requests of one generator, some of them to be hung up on."""
        for request in self.workload.requests(generator, generators):
            after = None if request.question is not None else self.cancellation.after(request.index)
            yield request if after is None else replace(request, cancel_after_s=after)

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        """The turn after `request`: none when it was hung up on."""
        return None if request.cancel_after_s is not None else self.workload.next_turn(request, answer)
