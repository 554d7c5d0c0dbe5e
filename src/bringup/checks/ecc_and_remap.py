"""The memory of the cards is sound: no uncorrected errors, no row that waits to be replaced or cannot be.

Source: nvidia-smi's ECC and remapping fields; NVIDIA's "GPU memory error management": a row is replaced at
the next reset, a failed replacement is a reason to return the card. Cards without ECC tell nothing of it.
"""

from collections.abc import Iterator, Sequence

from bringup.checks import Check, Replies
from bringup.values.deployment import Deployment, Depth
from bringup.values.finding import Evidence, Finding, Judgement, Severity
from bringup.values.gpu_group import is_sick, is_virtual, looks_at, meant_gpus, tool_of
from bringup.values.gpu_words import gpus_text
from bringup.values.host import Gpu

_EXPECTED = "ECC on, no uncorrected error, no row that waits to be replaced"
_MANY_CORRECTED = 1000  # guess: so many since the driver was loaded announce worse


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Errors of the memory, by what has to be done about them."""
    _ = replies
    host = deployment.host
    gpus = tuple(looks_at(gpu, deployment)[-1] for gpu in host.main_gpus) if host is not None else ()
    told = [gpu for gpu in gpus if _tells(gpu)]
    meant = [looks_at(gpu, deployment)[-1] for gpu in meant_gpus(deployment)]
    problems = (
        *_failed(told, meant),
        *_uncorrected(told, meant),
        *_pending(told, meant),
        *_history(told),
        *_modes(told),
    )
    if problems or not told:
        return Judgement(findings=problems)
    return Judgement(findings=(_fine(told),))


def _tells(gpu: Gpu) -> bool:
    if is_sick(gpu.said.get("ecc_uncorrected", "")) or is_virtual(gpu):
        return False  # spoken of elsewhere
    return any(
        value is not None
        for value in (gpu.ecc_mode, gpu.ecc_uncorrected, gpu.remapped_rows_pending, gpu.retired_pages_pending)
    )


def _is_yes(value: str | None) -> bool:
    return (value or "").lower() == "yes"


def _worse(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Severity:
    return Severity.FAILURE if any(gpu in meant for gpu in gpus) else Severity.WARNING


def _rows(gpus: Sequence[Gpu]) -> tuple[Evidence, ...]:
    return tuple(Evidence(source=tool_of(gpu), text=_row(gpu)) for gpu in gpus)


def _row(gpu: Gpu) -> str:
    figures = (
        ("ECC", gpu.ecc_mode),
        ("uncorrected", gpu.ecc_uncorrected),
        ("ever", gpu.ecc_uncorrected_ever),
        ("corrected", gpu.ecc_corrected),
        ("rows replaced", gpu.remapped_rows),
        ("replacement pending", gpu.remapped_rows_pending or gpu.retired_pages_pending),
        ("replacement failed", gpu.remapped_rows_failure),
    )
    return f"{gpu.label}: " + ", ".join(f"{name} {value}" for name, value in figures if value is not None)


def _failed(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    failed = [gpu for gpu in gpus if _is_yes(gpu.remapped_rows_failure)]
    if failed:
        yield Finding(
            id="ecc_and_remap.failed",
            severity=_worse(failed, meant),
            summary=f"a bad memory row on {gpus_text(failed)} could not be replaced",
            expected=_EXPECTED,
            explanation="the card has no spare row left there: errors will come again",
            action="take the card out of service and have it replaced",
            evidence=_rows(failed),
        )


def _uncorrected(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    bad = [gpu for gpu in gpus if gpu.ecc_uncorrected]
    if bad:
        count = sum(gpu.ecc_uncorrected or 0 for gpu in bad)
        yield Finding(
            id="ecc_and_remap.uncorrected",
            severity=_worse(bad, meant),
            summary=f"{count} uncorrected memory errors on {gpus_text(bad)} since the driver was loaded",
            expected=_EXPECTED,
            explanation="what was read there was wrong: a request or the engine ended, or gave nonsense",
            action="stop what runs on it and reset the card; return it when it happens again",
            evidence=_rows(bad),
        )


def _pending(gpus: Sequence[Gpu], meant: Sequence[Gpu]) -> Iterator[Finding]:
    waiting = [
        gpu for gpu in gpus if _is_yes(gpu.remapped_rows_pending) or _is_yes(gpu.retired_pages_pending)
    ]
    if waiting:
        yield Finding(
            id="ecc_and_remap.pending",
            severity=Severity.WARNING if any(gpu in meant for gpu in waiting) else Severity.NOTE,
            summary=f"a bad memory row on {gpus_text(waiting)} is replaced at the next reset",
            expected=_EXPECTED,
            explanation="until then the bad row is only kept out of use as far as the driver manages",
            action="stop the engine and reset the card, or restart the machine, when it suits",
            evidence=_rows(waiting),
        )


def _history(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """What is over or was put right, and is still worth knowing."""
    old = [
        gpu
        for gpu in gpus
        if not gpu.ecc_uncorrected
        and not _is_yes(gpu.remapped_rows_pending)
        and (gpu.ecc_uncorrected_ever or gpu.remapped_rows or (gpu.ecc_corrected or 0) >= _MANY_CORRECTED)
    ]
    if old:
        yield Finding(
            id="ecc_and_remap.history",
            severity=Severity.NOTE,
            summary=f"{gpus_text(old)} had memory errors that were put right",
            expected="no errors in the card's life",
            explanation="a row replaced once is normal wear; more of them on one card are not",
            action="compare the figures at the next verification",
            evidence=_rows(old),
        )


def _modes(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """ECC switched off, or about to change."""
    off = [gpu for gpu in gpus if gpu.ecc_mode == "Disabled"]
    changing = [
        gpu for gpu in gpus if gpu.ecc_mode and gpu.ecc_mode_pending and gpu.ecc_mode != gpu.ecc_mode_pending
    ]
    if changing:
        yield Finding(
            id="ecc_and_remap.mode",
            severity=Severity.NOTE,
            summary=f"ECC of {gpus_text(changing)} becomes {changing[0].ecc_mode_pending} at the next reset",
            expected=_EXPECTED,
            explanation="on cards with GDDR6 that changes the memory size by about 6 %",
            action="reset the card when it suits, then plan the memory anew",
            evidence=_rows(changing),
        )
    elif off:
        is_mixed = any(gpu.ecc_mode == "Enabled" and gpu.name == off[0].name for gpu in gpus)
        others = ", on for others of its kind" if is_mixed else ""
        yield Finding(
            id="ecc_and_remap.mode",
            severity=Severity.WARNING if is_mixed else Severity.NOTE,
            summary=f"ECC is off on {gpus_text(off)}{others}",
            expected=_EXPECTED,
            explanation="a flipped bit stays unnoticed; cards with and without it have memories of two sizes",
            action="`nvidia-smi -e 1` and a reset, unless the memory is wanted more",
            evidence=_rows(off),
        )


def _fine(gpus: Sequence[Gpu]) -> Finding:
    counted = [gpu for gpu in gpus if gpu.ecc_uncorrected is not None]
    errors = f"no uncorrected error on {gpus_text(counted)}" if counted else "errors are not counted"
    replaced = [gpu for gpu in gpus if gpu.remapped_rows_pending or gpu.retired_pages_pending]
    return Finding(
        id="ecc_and_remap",
        severity=Severity.OK if counted else Severity.NOTE,
        summary=f"{errors}{'; no row waits to be replaced' if replaced else ''}",
        expected=_EXPECTED,
        explanation="" if counted else "the driver tells no count of errors, so that is not judged",
        action="" if counted else "see what `nvidia-smi -q -d ECC` says on that host",
        evidence=_rows(gpus),
    )


CHECK = Check(
    title="has sound GPU memory",
    section="resources",
    phase="judge",
    depth=Depth.QUICK,
    judge=judge,
    shows_model=False,
)
