"""What is to be said of a whole run: one file per statement, none knows another.

Each module has a record `JUDGE`; the folder is the registry. What only informs is a note; what makes a figure
doubtful, or breaks what was asked, is a warning; a failure is a run whose figures mean nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from bringup.values.bench import BenchRun, RungResult
from bringup.values.finding import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """One statement about a run.

    `judge` gets the run and, where they were kept, the results its rungs came from, in the same order;
    without them it says only what the figures show.
    """

    judge: Callable[[BenchRun, Sequence[RungResult]], Iterable[Finding]]
