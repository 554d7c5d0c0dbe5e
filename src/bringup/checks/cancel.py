"""A client that hangs up frees its place in the engine.

Source: vLLM and SGLang abort a request when its connection closes, llama.cpp at the next token; a proxy that
keeps the upstream connection open hides the hang-up. Seen from outside in `vllm:num_requests_running`,
`sglang:num_running_reqs`, `llamacpp:requests_processing` and llama.cpp's `/slots`. SGLang writes its gauge
every 40 decode steps only (0.5.23, seen: 0 for four seconds of a running request), but counts aborted
requests at once in `sglang:num_aborted_requests_total`.
"""

from collections.abc import Iterator, Mapping

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import at, bool_at, json_or_none
from bringup.parse.prometheus import read_samples, total
from bringup.units import seconds_text
from bringup.values.deployment import Deployment
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_PROMPT = "Write a very long story about a ship, a storm and the sea, with every detail."
_TOKENS = 1500  # long enough to be still running when it is looked for
_EVENTS = 4  # frames after which we hang up
_LOOKS = 5
_PACES = (4, 8, 16, 32)  # tokens of a small answer between two looks: the engine's own clock
_RUNNING = (
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "lmdeploy:num_requests_running",
    "tgi_batch_current_size",
    "trtllm_num_requests_running",
)
_ABORTED = "sglang:num_aborted_requests_total"
_LATE = frozenset(
    {"sglang"}
)  # a gauge that says 0 proves nothing until as many tokens as all paces have passed
_EXPECTED = "no request of ours is running soon after the client hung up"
_PROMPT_S = 10.0  # an answer of four tokens within this is prompt even on a CPU


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """A look, a dropped stream, then looks with ever longer pauses until the place is free."""
    answers = replies.answers
    if not answers:
        return _look(deployment.engine.engine, "before")
    if "dropped" not in answers:
        return (_drop(deployment),)
    if answers["dropped"].problem is not Problem.ABORTED:
        return ()
    return _next_look(deployment, answers)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Freed, kept, or not to be seen."""
    answers = replies.answers
    dropped = answers.get("dropped")
    if dropped is None or dropped.problem is not Problem.ABORTED:
        return Judgement(findings=(_not_dropped(dropped),))
    broken = next(
        ((key, fault) for key in answers if "pace" in key and (fault := fault_of(answers[key])) is not None),
        None,
    )
    if broken is not None:
        key, fault = broken
        finding = fault_finding(
            "cancel.after", fault, source=f"answer cancel/{key}", expected="an answer after a dropped one"
        )
        return Judgement(findings=(finding,))
    return Judgement(findings=(_freed_or_kept(deployment, answers),))


def _freed_or_kept(deployment: Deployment, answers: Mapping[str, Answer]) -> Finding:
    baseline, looks = _running(answers, "before"), tuple(_looks(answers))
    if baseline is None:
        return _blind(answers.get("pace 1"))
    if looks and _is_counted(answers, len(looks)):
        return _counted()
    is_late = deployment.engine.engine in _LATE
    if not looks or (is_late and len(looks) < _LOOKS):
        return _unseen()
    # a late gauge's earlier values are from before it was written anew
    return _seen(baseline, looks[-1:] if is_late else looks, number=len(looks))


def _is_counted(answers: Mapping[str, Answer], look: int) -> bool:
    """Whether the engine has counted one more aborted request since before."""
    after = _aborted(answers, f"look {look}")
    return after is not None and after > (_aborted(answers, "before") or 0)  # not listed until it is 1


def _aborted(answers: Mapping[str, Answer], key: str) -> float | None:
    """Requests the engine says it has aborted; None when it does not count them."""
    metrics = answers.get(f"{key} metrics")
    return None if metrics is None or metrics.status != 200 else total(read_samples(metrics.body), _ABORTED)


def _next_look(deployment: Deployment, answers: Mapping[str, Answer]) -> Batch:
    """The next look or the pause before it; nothing once the place is free or enough was looked."""
    baseline = _running(answers, "before")
    paces = sum(1 for key in answers if key.startswith("pace"))
    if baseline is None:  # the engine does not say: only a request afterwards can tell something
        return () if paces else (_pace(deployment, 1),)
    looks = sum(1 for key in answers if key.startswith("look") and key.endswith("metrics"))
    if looks:
        running = _running(answers, f"look {looks}")
        if running is None or looks == _LOOKS or _is_counted(answers, looks):
            return ()
        if running <= baseline and deployment.engine.engine not in _LATE:
            return ()
    return (
        (_pace(deployment, looks),) if looks > paces else _look(deployment.engine.engine, f"look {looks + 1}")
    )


def _look(engine: str, key: str) -> tuple[Ask, ...]:
    """What the engine is asked about its running requests."""
    metrics = Ask(key=f"{key} metrics", path="/metrics", method="GET", time_limit_s=10.0)
    if engine != "llama_cpp":
        return (metrics,)
    return (Ask(key=f"{key} slots", path="/slots", method="GET", time_limit_s=10.0), metrics)


def _drop(deployment: Deployment) -> Ask:
    context = deployment.model.context_tokens
    tokens = _TOKENS if context is None else max(64, min(_TOKENS, context // 2))
    body = chat_body(deployment.model.id, _PROMPT, max_tokens=tokens, stream=True)
    return Ask(key="dropped", body=body, abort_after_events=_EVENTS)


def _pace(deployment: Deployment, number: int) -> Ask:
    body = chat_body(deployment.model.id, "Count from 1 to 20.", max_tokens=_PACES[number - 1])
    return Ask(key=f"pace {number}", body=body, time_limit_s=60.0)


def _running(answers: Mapping[str, Answer], key: str) -> int | None:
    """Requests the engine says are running; None when it does not say."""
    slots = answers.get(f"{key} slots")
    if slots is not None and slots.status == 200 and slots.problem is None:
        rows = json_or_none(slots.body)
        if isinstance(rows, list) and rows and bool_at(rows[0], "is_processing") is not None:
            return sum(1 for row in rows if at(row, "is_processing") is True)
    metrics = answers.get(f"{key} metrics")
    if metrics is None or metrics.status != 200 or metrics.problem is not None:
        return None
    samples = read_samples(metrics.body)
    values = (total(samples, name) for name in _RUNNING)
    return next((int(value) for value in values if value is not None), None)


def _looks(answers: Mapping[str, Answer]) -> Iterator[int]:
    for number in range(1, _LOOKS + 1):
        running = _running(answers, f"look {number}")
        if running is not None:
            yield running


def _not_dropped(dropped: Answer | None) -> Finding:
    reply = reply_or_fault(dropped)
    if isinstance(reply, Fault):
        return fault_finding("cancel", reply, source="answer cancel/dropped", expected=_EXPECTED)
    return Finding(
        id="cancel",
        severity=Severity.NOTE,
        summary=f"not put to the test: the answer ended after {reply.content_events} events by itself",
        expected=_EXPECTED,
        explanation="only a request that is still running can be dropped",
        action="none",
        evidence=(Evidence(source="answer cancel/dropped", text=reply.everything[:120]),),
    )


def _blind(after: Answer | None) -> Finding:
    """The engine shows nothing of its requests; how it went on is a hint."""
    took = None if after is None else after.total_s
    is_prompt = took is not None and took <= _PROMPT_S
    said = (
        f"a request afterwards was answered in {seconds_text(took)}" if took is not None else "nothing to see"
    )
    return Finding(
        id="cancel",
        severity=Severity.NOTE if is_prompt else Severity.UNKNOWN,
        summary=f"the engine does not show its running requests; {said}",
        expected=_EXPECTED,
        explanation="a place that stays taken would only show under load",
        action="open the engine's metrics (--metrics, --enable-metrics, or through the proxy) to see more",
    )


def _counted() -> Finding:
    """The engine has noticed the hang-up itself."""
    row = Evidence(source=_ABORTED, text="one more than before")
    summary = "the engine has counted the request of a client that hung up as aborted"
    return Finding(id="cancel", severity=Severity.OK, summary=summary, expected=_EXPECTED, evidence=(row,))


def _unseen() -> Finding:
    return Finding(
        id="cancel",
        severity=Severity.UNKNOWN,
        summary="not measured: the engine's metrics could not be read after the client hung up",
        expected=_EXPECTED,
        explanation="whether the place was freed is not known",
        action="look at the engine's metrics by hand",
    )


def _seen(baseline: int, looks: tuple[int, ...], *, number: int) -> Finding:
    row = Evidence(source="running requests", text=f"before {baseline}, after {', '.join(map(str, looks))}")
    if min(looks) <= baseline:
        which = "at once" if number == 1 else f"at look {number}"
        summary = f"the place of a client that hung up was free {which}"
        return Finding(
            id="cancel", severity=Severity.OK, summary=summary, expected=_EXPECTED, evidence=(row,)
        )
    if baseline > 0:
        return Finding(
            id="cancel",
            severity=Severity.UNKNOWN,
            summary=f"not measured: {baseline} other requests ran before, so ours cannot be told apart",
            expected=_EXPECTED,
            explanation="traffic of others hides what happens to one request",
            action="run the check when the engine is quiet",
            evidence=(row,),
        )
    return Finding(
        id="cancel",
        severity=Severity.WARNING,
        summary=f"{looks[-1]} still running after a client hung up, at look {number}",
        expected=_EXPECTED,
        explanation="the engine goes on for nobody: under load, dead requests of impatient clients fill it",
        action="check that the proxy closes its connection to the engine when the client goes (nginx: "
        "`proxy_ignore_client_abort off`), and the engine's version",
        evidence=(row,),
    )


CHECK = Check(title="frees the place of a client that hangs up", phase="exclusive", asks=asks, judge=judge)
