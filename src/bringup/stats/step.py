"""What a search wants next: one more load, or nothing because it has its answer."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """A load to measure: streams, or requests per second."""

    load: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of a search."""

    load: float | None  # None: there is none
    why: str
    is_settled: bool = True  # False: something else ended it before the question was answered
