"""Requests failed: which way, how many, and what to do about that way of failing.

A failed request is in no latency, so that a server that refuses half of its work looks fast.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from bringup.stats.findings import Judge
from bringup.stats.load_words import load_words
from bringup.values.bench import BenchRun, Failed, RungResult
from bringup.values.finding import Evidence, Finding, Fix, Severity

_LOAD_ONLY = "the server keeps up with less than this; lower the load or raise its limits"
_SERVER_LOG = "look into the server's log of that time (`bringup diagnose`)"
_ACTIONS: Mapping[str, str] = {
    Failed.REFUSED: "nothing listens: see whether the engine still runs (`bringup diagnose`)",
    Failed.UNREACHABLE: "check name, route and firewall from this machine to the server",
    Failed.TLS: "check the certificate and the scheme of the address",
    Failed.TIME_LIMIT: "raise the limit of one request, or lower the load until requests end within it",
    Failed.RESET: "look for the time-out or limit of a proxy; " + _SERVER_LOG,
    Failed.CLOSED_EARLY: "look for the time-out or limit of a proxy; " + _SERVER_LOG,
    Failed.MALFORMED: "see whether this address is the engine's own; a proxy may answer in its place",
    Failed.TOO_LARGE: "ask for shorter answers; the server sent more than one event may hold",
    Failed.ERROR_EVENT: _SERVER_LOG,
    Failed.EMPTY: "ask the model with `bringup verify`; a chat template may end every answer at once",
    Failed.DESCRIPTORS: "raise the limit of open files before the run: `ulimit -n 65536`",
    Failed.PORTS: "every connection takes a local port: keep connections open instead of fresh ones, widen"
    " `sysctl net.ipv4.ip_local_port_range`, or send from more machines",
    "http 400": "the server refuses the request itself: see the detail for what it does not take",
    "http 401": "give the key that the server wants",
    "http 403": "give the key that the server wants",
    "http 404": "check the path and the name of the model",
    "http 413": "the prompts are longer than the server or its proxy takes",
    "http 422": "the server refuses the request itself: see the detail for what it does not take",
    "http 429": "the server or its proxy limits requests; lift the limit for this client or lower the load",
    "http 502": "the proxy lost the engine: " + _SERVER_LOG,
    "http 503": _LOAD_ONLY,
    "http 504": "the proxy gave up waiting: raise its time-out or lower the load",
}
_FIXES: Mapping[str, Fix] = {
    Failed.DESCRIPTORS: Fix(type="service", name="LimitNOFILE (or `ulimit -n`)", new="65536"),
    Failed.PORTS: Fix(type="kernel-param", name="net.ipv4.ip_local_port_range", new="1024 65535"),
}
_OURS = frozenset({Failed.DESCRIPTORS, Failed.PORTS})  # this machine's limits, not the server's
_SHOWN = 3  # details of one kind


def judge(run: BenchRun, results: Sequence[RungResult]) -> Iterator[Finding]:
    """One finding per kind of error, the most frequent first."""
    total: Counter[str] = Counter()
    for rung in run.rungs:
        total.update(rung.errors)
    requests = sum(rung.requests for rung in run.rungs)
    has_good = any(rung.good for rung in run.rungs)
    for kind, count in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        if not count:
            continue
        fix = _FIXES.get(kind)
        yield Finding(
            id=f"bench.errors.{kind.replace(' ', '_')}",
            severity=Severity.WARNING if has_good else Severity.FAILURE,
            summary=f"{count:,} of {requests:,} requests failed: {_words(kind)}",
            expected="every request answered",
            explanation=_explanation(kind),
            action=_ACTIONS.get(kind, _SERVER_LOG),
            evidence=(*_by_load(run, kind), *_details(results, kind)),
            fixes=() if fix is None else (fix,),
        )


def _words(kind: str) -> str:
    return f"HTTP {kind.removeprefix('http ')}" if kind.startswith("http ") else kind


def _explanation(kind: str) -> str:
    if kind in _OURS:
        return "this machine ran out, not the server: the asked load was not given"
    return "failed requests are in no latency: the others had the server to themselves"


def _by_load(run: BenchRun, kind: str) -> Iterator[Evidence]:
    for rung in run.rungs:
        if count := rung.errors.get(kind, 0):
            yield Evidence(source="records", text=f"{load_words(rung)}: {count:,} of {rung.requests:,}")


def _details(results: Sequence[RungResult], kind: str) -> Iterator[Evidence]:
    """What the server said, each wording once, the most frequent first."""
    said = Counter(
        record.detail
        for result in results
        for run in result.runs
        for record in run.records
        if record.error == kind and record.detail
    )
    for detail, count in sorted(said.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]:
        yield Evidence(source=f"answers, {count:,} times", text=detail)


JUDGE = Judge(judge=judge)
