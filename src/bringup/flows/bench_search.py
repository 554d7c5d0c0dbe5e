"""Which load comes next: the listed ones in turn, or what a search wants."""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.flows.bench_request import BenchRequest
from bringup.parse.bench_options import Loads
from bringup.stats.step import Answer, Next
from bringup.values.bench import Rung, RungResult

FIRST_RATE = 1.0  # requests per second, of a search for the largest rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the measured loads amount to."""

    slo_best: float | None = None
    slo_why: str = ""
    saturation: float | None = None
    saturation_why: str = ""


def next_load(request: BenchRequest, results: Sequence[RungResult]) -> Next | Answer:
    """The next load to measure, or the end."""
    if not request.loads.is_auto:
        return _next_listed(request.loads, results)
    if results and not results[-1].rung.good:
        return Answer(load=None, why="no request was answered well", is_settled=False)
    return _next_searched(request, results)


def _next_listed(loads: Loads, results: Sequence[RungResult]) -> Next | Answer:
    if loads.is_trace:
        return Answer(load=None, why="the file was sent") if results else Next(load=loads.low, why="the file")
    done = {load_of(result.rung) for result in results}
    left = [value for value in loads.values if value not in done]
    if left:
        return Next(load=left[0], why="as listed")
    return Answer(load=None, why="all listed loads were measured")


def _next_searched(request: BenchRequest, results: Sequence[RungResult]) -> Next | Answer:
    # Searches are loaded where something is searched: a listed load must begin at once.
    if request.slo is not None:
        from bringup.stats import slo_search  # noqa: PLC0415 - see above

        trials = [one for result in results if (one := slo_search.trial(result.rung)) is not None]
        if len(trials) < len(results):
            return Answer(load=None, why="a load had no request that counts", is_settled=False)
        start = FIRST_RATE if request.loads.is_rate else request.loads.low
        return slo_search.next_load(
            trials,
            slo_search.Search(
                slo=request.slo, start=start, largest=request.largest, is_whole=not request.loads.is_rate
            ),
        )
    from bringup.stats import saturation  # noqa: PLC0415 - see above

    points = [one for result in results if (one := saturation.measured(result)) is not None]
    if len(points) < len(results):
        return Answer(load=None, why="a load had no figures", is_settled=False)
    return saturation.next_concurrency(points, start=int(request.loads.low), largest=int(request.largest))


def found_of(request: BenchRequest, results: Sequence[RungResult], end: Answer) -> Found:
    """What is known at the end, or after an interruption."""
    if not request.loads.is_auto:
        return Found(slo_best=_best_listed(request, results) if request.slo is not None else None)
    if request.slo is not None:
        return Found(slo_best=end.load, slo_why=end.why)
    return Found(saturation=end.load, saturation_why=end.why)


def load_of(rung: Rung) -> float | None:
    """Streams, or requests per second."""
    return rung.concurrency if rung.concurrency is not None else rung.rate


def _best_listed(request: BenchRequest, results: Sequence[RungResult]) -> float | None:
    """The largest listed load within the limits below the first that broke them."""
    best: float | None = None
    for load in sorted(request.loads.values):
        judged = [result.rung.within_slo for result in results if load_of(result.rung) == load]
        if not judged or not judged[-1]:
            break
        best = load
    return best
