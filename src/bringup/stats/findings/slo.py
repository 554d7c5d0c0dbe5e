"""Whether the limits that were set are kept, and up to which load."""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.units import seconds_text
from bringup.values.bench import BenchRun, Rung, RungResult, Slo
from bringup.values.finding import Finding, Severity


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """A note with the largest load that a search found; else a warning over the rungs that missed."""
    _ = results
    if run.slo is None:
        return
    limits = _limits(run.slo)
    missed = [rung for rung in run.rungs if rung.within_slo is False]
    if run.slo_best is not None:
        unit = "requests/s" if any(rung.rate is not None for rung in run.rungs) else "streams"
        yield Finding(
            id="bench.slo.best",
            severity=Severity.NOTE,
            summary=f"up to {run.slo_best:g} {unit} the limits are kept: {limits}",
            expected=limits,
            evidence=tuple(told(rung, _kept(rung)) for rung in run.rungs if rung.in_slo is not None),
        )
    elif missed:
        yield Finding(
            id="bench.slo.missed",
            severity=Severity.WARNING,
            summary=f"the limits are not kept at {loads_words(missed)}",
            expected=limits,
            explanation="a failed request counts as one that missed them",
            action="less load, more replicas, or other limits",
            evidence=tuple(told(rung, _kept(rung)) for rung in missed),
        )


def _limits(slo: Slo) -> str:
    pairs = (
        ("time to first token", slo.ttft_s),
        ("inter-token latency", slo.itl_s),
        ("time per output token", slo.tpot_s),
        ("end to end", slo.e2e_s),
    )
    words = [f"{name} {seconds_text(limit)}" for name, limit in pairs if limit is not None]
    return f"{', '.join(words)} for {slo.share:.4g} of the requests"


def _kept(rung: Rung) -> str:
    return f"{rung.in_slo} of {rung.good + sum(rung.errors.values())} requests within the limits"


JUDGE = Judge(judge=judge)
