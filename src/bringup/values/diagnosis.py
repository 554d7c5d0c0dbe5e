"""What came out of reading a log and asking a machine."""

from dataclasses import dataclass

from bringup.values.case import Case
from bringup.values.finding import Finding
from bringup.values.report import Table


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
    tables: tuple[Table, ...] = ()
    exit_code: int = 0
