"""A metrics page in the Prometheus text format to its samples; lines of no such form are left out.

Source: the text exposition format 0.0.4, read by prometheus-client.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

# What the library's reader raises for lines of other forms; OverflowError: a whole number beyond any float.
_UNREADABLE = (ValueError, KeyError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One line of a metrics page."""

    name: str
    value: float  # may be NaN or infinite
    labels: dict[str, str] = field(default_factory=dict[str, str])


def read_samples(text: str) -> tuple[Sample, ...]:
    r"""The samples of a page; what cannot be read is skipped, so a page of something else gives none.

    >>> read_samples('# a comment\nkv_usage{engine="0"} 0.25\n<html>\n')
    (Sample(name='kv_usage', value=0.25, labels={'engine': '0'}),)
    """
    if text.lstrip()[:1] in ("<", "{", "["):  # an HTML page or JSON: not worth a look at every line
        return ()
    try:
        return tuple(_samples(text))
    except _UNREADABLE:
        return tuple(sample for line in text.split("\n") for sample in _samples_or_none(line))


def total(samples: Iterable[Sample], name: str) -> float | None:
    """Sum over all labels (ranks, engines) of one metric; None when it is not there or not a number."""
    return _sum(_finite(samples, name))


def largest(samples: Iterable[Sample], name: str) -> float | None:
    """Greatest value over all labels of one metric; None when it is not there or not a number."""
    return max(_finite(samples, name), default=None)


def sum_of_largest(samples: Iterable[Sample], name: str, *, by: str) -> float | None:
    """Sum over the values of label `by` of the greatest value in each: ranks that repeat the same count once.

    A sample without the label is a group of its own.
    """
    groups: dict[str, float] = {}
    for sample in samples:
        if sample.name == name and math.isfinite(sample.value):
            group = sample.labels.get(by, "")
            groups[group] = max(groups.get(group, sample.value), sample.value)
    return _sum(groups.values())


def totals(samples: Iterable[Sample], names: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """Our name -> total of the first of the engine's names that is there; absent ones are left out."""
    rows = tuple(samples)
    found: dict[str, float] = {}
    for ours, theirs in names.items():
        value = next((value for name in theirs if (value := total(rows, name)) is not None), None)
        if value is not None:
            found[ours] = value
    return found


def labels_of(samples: Iterable[Sample], name: str) -> tuple[dict[str, str], ...]:
    """The labels of every sample of one metric: how `..._info` metrics carry settings."""
    return tuple(sample.labels for sample in samples if sample.name == name)


def _sum(values: Collection[float]) -> float | None:
    """The sum; None when there is nothing to add, or more than a float holds."""
    try:
        return math.fsum(values) if values else None
    except OverflowError:
        return None


def _finite(samples: Iterable[Sample], name: str) -> list[float]:
    return [sample.value for sample in samples if sample.name == name and math.isfinite(sample.value)]


def _samples(text: str) -> Iterable[Sample]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - costs start-up time

    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield Sample(name=sample.name, value=float(sample.value), labels=dict(sample.labels))


def _samples_or_none(line: str) -> tuple[Sample, ...]:
    if not line or line.startswith("#"):
        return ()
    try:
        return tuple(_samples(line))
    except _UNREADABLE:
        return ()
