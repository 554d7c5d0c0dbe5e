"""The engine's own counters at one moment, read out of the page where it shows them."""

import re
from collections.abc import Mapping

from bringup.engines import Engine
from bringup.values.exchange import Answer
from bringup.values.load import EngineMoment

_OF_A_HISTOGRAM = re.compile(r"_(?:bucket|sum|count|created)[{ ]")


def counter_paths(engine: Engine | None) -> tuple[str, ...]:
    """Where the engine's counters are looked for, in turn."""
    if engine is None:
        return ()
    return engine.counter_paths or ((engine.metrics_path,) if engine.metrics_path else ())


def engine_moment(engine: Engine, answers: Mapping[str, Answer], *, at: float) -> EngineMoment | None:
    """What the answers, by path, tell of the engine's work; None when they are not this engine's."""
    read = engine.identify(answers)
    if read is None:
        return None
    status = read[1]
    metrics = status.metrics
    taken = metrics.get("input_tokens_total")
    return EngineMoment(
        at=at,
        running=metrics.get("requests_running", status.running),
        waiting=metrics.get("requests_waiting", status.waiting),
        kv_used_share=status.kv.used_share,
        preemptions=metrics.get("preemptions_total"),
        output_tokens=metrics.get("output_tokens_total"),
        input_tokens=taken,
        requests=metrics.get("requests_finished_total"),
        cache_queries=metrics.get("prefix_cache_queries_total", taken),
        cache_hits=metrics.get("prefix_cache_hits_total", metrics.get("cached_prompt_tokens_total")),
        took=max((answer.total_s or 0.0 for answer in answers.values()), default=0.0),
    )


def without_buckets(page: str) -> str:
    r"""A metrics page without comments and histogram buckets: a tenth of it, and all that is read.

    >>> without_buckets('# HELP a\na_bucket{le="1"} 2\na_total 3\n')
    'a_total 3\n'
    """
    kept = [line for line in page.splitlines() if line[:1] != "#" and "_bucket{" not in line]
    return "".join(f"{line}\n" for line in kept)


def counters_only(page: str) -> str:
    r"""A metrics page without comments and without everything that belongs to a histogram.

    What remains is read several times a second: reading costs by the line.

    >>> counters_only('# HELP a\na_bucket{le="1"} 2\na_sum 7\na_created{b="c"} 1e9\na_total{b="c"} 3\n')
    'a_total{b="c"} 3\n'
    """
    lines = page.splitlines()
    kept = [line for line in lines if line[:1] != "#" and not _OF_A_HISTOGRAM.search(line)]
    return "".join(f"{line}\n" for line in kept)
