"""Requests were still under way when a rung ended, or the rung itself was cut.

The cut ones are in no latency; they are the long ones, so what is left reads short.
"""

from collections.abc import Iterator, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import loads_words, told
from bringup.values.bench import BenchRun, Failed, RungResult
from bringup.values.finding import Evidence, Finding, Severity

_SHARE = 0.1  # of all requests of a rung
_OURS = (Failed.DESCRIPTORS, Failed.PORTS)  # the server has no part in them


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """Notes on cut requests and on a cut run, a warning where nothing answered any more."""
    cut = [rung for rung in run.rungs if rung.stopped > _SHARE * (rung.requests + rung.stopped)]
    if cut:
        yield Finding(
            id="bench.cut_short",
            severity=Severity.NOTE,
            summary=f"many requests were still under way when the rung ended at {loads_words(cut)}",
            expected="fewer than 10 % of the requests cut by the end",
            explanation="the long ones are cut more often, so that end-to-end times read low; rates over the"
            " steady time are not touched",
            action="a longer rung, or a number of requests instead of a duration",
            evidence=tuple(told(rung, f"{rung.stopped} cut, {rung.requests} ended") for rung in cut),
        )
    if not run.is_complete:
        yield Finding(
            id="bench.cut_short.run",
            severity=Severity.NOTE,
            summary="the run was interrupted: what it measured until then is shown",
            expected="every rung measured",
            action="resume it",
        )
    dead = sorted({one.cut for result in results for one in result.runs if one.cut not in {"", "stopped"}})
    if dead:
        yield Finding(
            id="bench.cut_short.dead",
            severity=Severity.WARNING,
            summary=f"a rung was given up: {'; '.join(dead)}",
            expected="the server answers until the end",
            action="this machine opens no more connections: more machines, or fewer fresh connections"
            if all(any(kind in why for kind in _OURS) for why in dead)
            else "look into the server's log of that time (`bringup diagnose`)",
            evidence=tuple(
                Evidence(source=one.generator, text=one.cut)
                for result in results
                for one in result.runs
                if one.cut in dead
            ),
        )


JUDGE = Judge(judge=judge)
