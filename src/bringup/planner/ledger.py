"""The account of one GPU: lines that add up to the card, and what is left."""

from collections.abc import Sequence

from bringup.planner.workspace import Estimate
from bringup.values.plan import LedgerLine, Origin


def line(name: str, part: Estimate, origin: Origin = Origin.ESTIMATE) -> LedgerLine:
    """One line of the account."""
    return LedgerLine(
        name=name, bytes=part.bytes, low=part.low, high=part.high, origin=origin, formula=part.formula
    )


def settle(lines: Sequence[LedgerLine], total: int) -> tuple[LedgerLine, ...]:
    """The account closed with what is free, so that it sums exactly to `total`; less than 0 where it lacks.

    >>> [(line.name, line.bytes) for line in settle([line("weights", Estimate(
    ...     bytes=70, low=60, high=80, formula="7 x 10"))], 100)]
    [('weights', 70), ('free', 30)]
    """
    taken = sum(part.bytes for part in lines)
    free = LedgerLine(
        name="free",
        bytes=total - taken,
        low=total - sum(part.high for part in lines),
        high=total - sum(part.low for part in lines),
        origin=Origin.RULE,
        formula=f"{total:,} - {taken:,} B",
    )
    return (*lines, free)
