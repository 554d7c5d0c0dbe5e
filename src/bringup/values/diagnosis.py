"""What came out of reading a log and asking a machine."""

from dataclasses import dataclass

from bringup.values.case import Case
from bringup.values.finding import Finding, Fix


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One part of one GPU's memory, in bytes; None: there is no such part."""

    name: str
    before: int | None
    after: int | None
    is_later: bool = False  # not a part: an allocation that must find room when all parts are taken


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeAfter:
    """The planned account of one GPU as it was and with a change, or why there is none."""

    change: Fix
    rows: tuple[LedgerRow, ...] = ()
    tokens: tuple[int, int] = (0, 0)  # of KV cache
    fits: tuple[bool, bool] = (False, False)  # weights, peak and the cache of one longest request
    reason: str = ""  # why it could not be planned; empty where it could

    def gained(self, name: str = "kv_pool") -> int:
        """Bytes that a part grows by."""
        return sum((row.after or 0) - (row.before or 0) for row in self.rows if row.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Findings, most likely cause first, and what they were read from."""

    source: str  # "vllm.log", "unit vllm.service on gpubox"
    findings: tuple[Finding, ...]
    case: Case | None  # the run that was diagnosed
    run: int = 1  # which of `runs`, from 1
    runs: int = 1
    words: str = ""  # why this run, where there are several
    total_lines: int = 0
    ledger: BeforeAfter | None = None  # of the first finding, where it is about memory
    exit_code: int = 0
