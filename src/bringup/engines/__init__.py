"""One folder per engine. Its `ENGINE` record says how its endpoint is recognised and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bringup.parse.json_value import Json
from bringup.parse.proxy import proxies_in_front
from bringup.values.engine import EngineSpec, EngineStatus
from bringup.values.exchange import Answer, Ask, Problem

if TYPE_CHECKING:  # asking a running server loads no planner
    from bringup.parse.log_line import LogLine
    from bringup.values.plan import HostPlan, HostTask, Plan, PlanTask
    from bringup.values.start_log import StartLog

KEYLESS = " without a key"  # ending of the key of a probe that is asked a second time without the API key
HEALTH_LIMIT_S = 25.0  # SGLang's health endpoint generates a token and may take 20 s to give up
PROBE_LIMIT_S = 10.0
_NOBODY_BEHIND = (502, 503, 504)
PROBE_BYTES = 4_000_000  # a metrics page has some 100 kB, a models list of a big router 1 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one engine is asked about itself and how its answers are read.

    `identify` gets the answers of all engines' probes by path and returns how sure it is, 0..1, with the
    status read; None when the server is not this engine. The surest wins.
    """

    display_name: str  # "vLLM"
    probes: tuple[str, ...]  # GET paths, without body
    identify: Callable[[Mapping[str, Answer]], tuple[float, EngineStatus] | None]
    health_path: str  # the endpoint that says most about being able to generate
    health_meaning: str  # what its 200 proves and what not
    metrics_path: str | None = None  # where it serves its metrics, when it does
    counter_paths: tuple[str, ...] = ()  # where its counters are looked for, in turn; (): the metrics only
    counters_need: str = ""  # what makes it serve them: "--metrics"
    gauges_lag: bool = False  # "running" is renewed only now and then, and stays when the last request ends
    read_command: Callable[[Sequence[str]], EngineSpec | None] | None = None  # None: not its command


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMemory:
    """How one engine's memory is planned. Stands in the engine's `memory` module as `MEMORY`.

    It is no field of `Engine`, so that asking a running server about itself loads no planner.
    """

    plan: Callable[[PlanTask], Plan]
    draft: Callable[[EngineSpec], str | None] | None = None  # the draft model of its own that a command loads
    on_host: Callable[[HostTask], HostPlan | None] | None = None  # on a processor
    # Fields of the model's config that the command sets.
    config_changes: Callable[[EngineSpec], Mapping[str, Json]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLogReader:
    """How one engine's start is read from its log. Stands in its `start_log` module as `START_LOG`.

    Like `EngineMemory` it is no field of `Engine`: asking a running server loads no reader of logs.
    """

    recognise: Callable[[LogLine], bool]  # only this engine writes such a line
    begins: Callable[[LogLine], str | None]  # a mark that a process writes once in a start; None: no mark
    read: Callable[[Sequence[LogLine]], StartLog]  # the lines of one start
    literals: tuple[str, ...] = ()  # one of them stands in every line that `read` takes something from


@dataclass(frozen=True, slots=True, kw_only=True)
class Clue:
    """One sign that the server is this engine."""

    holds: bool
    weight: float  # 0..1: how sure this sign alone makes us
    words: str  # "the models are owned by `vllm`"


def weigh(clues: Iterable[Clue]) -> tuple[float, tuple[str, ...]]:
    """How sure the clues that hold make us, together, and their words.

    >>> weigh([Clue(holds=True, weight=0.5, words="a"), Clue(holds=True, weight=0.5, words="b")])
    (0.75, ('a', 'b'))
    """
    doubt = 1.0
    words: list[str] = []
    for clue in clues:
        if clue.holds:
            doubt *= 1.0 - clue.weight
            words.append(clue.words)
    return 1.0 - doubt, tuple(words)


def probe_paths(engines: Mapping[str, Engine]) -> tuple[str, ...]:
    """Every path that some engine wants asked, once each, in a steady order."""
    return tuple(sorted({path for engine in engines.values() for path in engine.probes}))


def probe_asks(engines: Mapping[str, Engine], *, has_api_key: bool = False) -> tuple[Ask, ...]:
    """The requests that `surest` judges; each one's key is its path. They only read.

    With an API key the metrics are asked once more without it, to see whether they lie open.
    """
    health = {engine.health_path for engine in engines.values()} | {"/health"}
    asks = [
        Ask(
            key=path,
            path=path,
            method="GET",
            time_limit_s=HEALTH_LIMIT_S if path in health else PROBE_LIMIT_S,
            max_bytes=PROBE_BYTES,
        )
        for path in probe_paths(engines)
    ]
    if has_api_key:
        metrics = {engine.metrics_path for engine in engines.values() if engine.metrics_path}
        asks += [
            replace(ask, key=f"{ask.key}{KEYLESS}", authorize=False) for ask in asks if ask.path in metrics
        ]
    return tuple(asks)


def surest(engines: Mapping[str, Engine], answers: Mapping[str, Answer]) -> EngineStatus:
    """The status read by the engine that is surest of itself; `unknown` when none is.

    Ties go to the first name in alphabetical order, so that the same answers always give the same status.
    """
    best: tuple[float, EngineStatus] = (0.0, _nobody(answers))
    metrics_path: str | None = "/metrics"
    for _, engine in sorted(engines.items()):
        read = engine.identify(answers)
        if read is not None and read[0] > best[0]:
            best, metrics_path = read, engine.metrics_path
    status = best[1]
    needs_key = status.needs_key or _is_closed(answers)
    closed = ("every path answers 401 or 403: it needs a key, or another one",)
    return replace(
        status,
        proxy=status.proxy or ", ".join(proxies_in_front(answers)) or None,
        metrics_open=_is_open(answers, metrics_path) if status.metrics_open is None else status.metrics_open,
        needs_key=needs_key,
        evidence=status.evidence + (closed if _all_closed(answers) else ()),
    )


def spec_of(engines: Mapping[str, Engine], argv: Sequence[str]) -> EngineSpec | None:
    """The engine as its command line wants it; None when it is no known engine's command."""
    for _, engine in sorted(engines.items()):
        spec = engine.read_command(argv) if engine.read_command is not None else None
        if spec is not None:
            return spec
    return None


def _is_open(answers: Mapping[str, Answer], path: str | None) -> bool | None:
    """Whether the metrics were given without a key; None when that was not asked."""
    if path is None:
        return None
    answer = answers.get(f"{path}{KEYLESS}") or answers.get(path)
    if answer is None or answer.status is None:
        return None
    return answer.status == 200


def _is_closed(answers: Mapping[str, Answer]) -> bool:
    """The models are not shown, for want of a key."""
    models = answers.get("/v1/models")
    return (models is not None and models.status in (401, 403)) or _all_closed(answers)


def _all_closed(answers: Mapping[str, Answer]) -> bool:
    statuses = [answer.status for answer in answers.values() if answer.status is not None]
    return bool(statuses) and all(status in (401, 403) for status in statuses)


def _nobody(answers: Mapping[str, Answer]) -> EngineStatus:
    """The status when no engine recognises itself."""
    problems = {answer.problem for answer in answers.values()}
    if answers and problems == {Problem.REFUSED}:
        words = "nothing listens on this port"
    elif answers and all(answer.status is None for answer in answers.values()):
        words = f"no answer: {next(iter(answers.values())).detail}"
    elif answers and all(answer.status in _NOBODY_BEHIND for answer in answers.values()):
        words = "a proxy answers 502 to 504 on every path: nothing behind it is up"
    elif any(answer.body[:200].lstrip()[:1] == "<" for answer in answers.values() if answer.status == 200):
        words = "it serves web pages, not an inference interface"
    else:
        words = "no path answers like an inference server"
    return EngineStatus(engine="unknown", display_name="unknown server", evidence=(words,))
