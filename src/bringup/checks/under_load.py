"""Under a short burst, sized to the deployment, answers stay right, and GPUs and engine stay within bounds.

The questions have known answers and are asked alone first, so that a weak model is held to what it can do.
They come in steps up to what cache and scheduler hold at once, a quarter of them with long prompts. GPUs and
engine are sampled several times a second beside them.
What the samples say of heat, power and links is judged where the rest of it is: by `clocks_and_heat` and
`pcie_link`.

Source: the engines' own figures of requests at once, cache and preemptions; nvidia-smi `memory.used`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bringup.checks import Batch, Check, Replies
from bringup.parse import engine_end
from bringup.parse.answer_fault import Fault, FaultKind, reply_or_fault
from bringup.parse.chat import ChatReply
from bringup.parse.chat_request import chat_body
from bringup.parse.text_quality import is_salad
from bringup.units import mib, mib_text
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Answer, Ask
from bringup.values.finding import Evidence, Finding, Judgement, Measurement, Severity
from bringup.values.load import EngineMoment, GpuTrace

_MOST_AT_ONCE = 64  # a burst, no benchmark
_USUAL_AT_ONCE = 16  # where the engine tells no limit
_STEPS = (4, 2, 1)  # the most at once is divided by these
_COUNT_TO = 40
_ADDENDS = (12, 30)
_CODE = 2037
_FEW = 3  # wrong answers that a sound model may give among many
_LONG_SHARE = 3  # of the context one long prompt takes at most a third
_MOST_LONG = 2_000  # words
_TIME_LIMIT_S = 180.0
_EXPECTED = "every answer as right as alone, room left at the peak, nothing slowed down, all freed afterwards"
_TOO_TIGHT = mib(200)
_GROWN = mib(64)
_KINDS = ("sum", "count", "sum", "long")  # in turn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """The replies of one step."""

    size: int
    replies: dict[str, ChatReply | Fault]
    answers: dict[str, Answer]


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """Each kind of question alone, then all kinds at once in growing steps."""
    if not deployment.wanted.load:
        return ()
    for kind in dict.fromkeys(_KINDS):
        if f"alone {kind}" not in replies.answers:
            return (_ask(deployment, f"alone {kind}", kind, 0),)
    for size in sizes(deployment):
        if _key(size, 0) not in replies.answers:
            return tuple(
                _ask(deployment, _key(size, number), _KINDS[number % len(_KINDS)], size + number)
                for number in range(size)
            )
    return ()


def sizes(deployment: Deployment) -> tuple[int, ...]:
    """Requests at once, step by step: as many in the end as run and as the cache holds.

    >>> from bringup.values.engine import EngineStatus, ServedModel
    >>> engine = EngineStatus(engine="vllm", max_running=8)
    >>> sizes(Deployment(url="u", engine=engine, model=ServedModel(id="m")))
    (2, 4, 8)
    """
    engine = deployment.engine
    most = engine.max_running or engine.kv.slots or _USUAL_AT_ONCE
    if engine.kv.tokens:
        most = min(most, engine.kv.tokens // (2 * _long_words(deployment) + 200))
    most = max(1, min(most, _MOST_AT_ONCE))
    return tuple(dict.fromkeys(max(1, most // part) for part in _STEPS))


def _key(size: int, number: int) -> str:
    return f"{size} at once, {number + 1} {_KINDS[number % len(_KINDS)]}"


def _long_words(deployment: Deployment) -> int:
    context = deployment.model.context_tokens or 2 * _MOST_LONG
    return max(20, min(_MOST_LONG, context // (2 * _LONG_SHARE)))


def _ask(deployment: Deployment, key: str, kind: str, number: int) -> Ask:
    """One question; `number` stands before it, so that no cache of prefixes answers it."""
    tokens = 24
    if kind == "sum":
        prompt = f"Request {number}. What is {_ADDENDS[0]} + {_ADDENDS[1]}? Answer with the number only."
    elif kind == "count":
        prompt = f"Request {number}. Count from 1 to {_COUNT_TO}. Write only numbers, separated by commas."
        tokens = 4 * _COUNT_TO
    else:
        lines = range(1, _long_words(deployment) // 7)
        filler = " ".join(f"Line {line}: the clerk wrote it down." for line in lines)
        prompt = (
            f"Request {number}. The code is {_CODE}. {filler} What is the code? Answer with the number only."
        )
    body = chat_body(deployment.model.id, prompt, max_tokens=tokens)
    return Ask(key=key, body=body, time_limit_s=_TIME_LIMIT_S)


def _is_right(kind: str, text: str) -> bool:
    said = re.findall(r"\d+", text.replace(",", " ") if kind == "count" else text)
    if kind == "sum":
        return str(sum(_ADDENDS)) in said
    if kind == "long":
        return str(_CODE) in said
    return said[:_COUNT_TO] == [str(value) for value in range(1, _COUNT_TO + 1)]


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """Errors, wrong answers, then what the samples show; else what the burst took."""
    steps = _steps(deployment, replies)
    if not steps:
        return Judgement(findings=())
    alone = {kind: reply_or_fault(replies.answers.get(f"alone {kind}")) for kind in _KINDS}
    able = {
        kind
        for kind, reply in alone.items()
        if isinstance(reply, ChatReply) and _is_right(kind, reply.everything)
    }
    errors = tuple(_errors(steps))
    sampled = _samples(deployment)
    has_ended = bool(errors) and engine_end.has_ended(deployment, replies.everyone)
    if errors:  # then not all answers have come, and what is still held says nothing
        sampled = (one for one in sampled if one.id != "under_load.held")
    found = [*(() if has_ended else errors), *_wrong(steps, able), *sampled]
    loud = [one for one in found if one.severity is not Severity.NOTE]
    if not loud and not has_ended:  # which is told by the check whether the engine is still there
        found.insert(0, _fine(deployment, steps, able))
    return Judgement(findings=tuple(found), measurements=tuple(_measured(deployment, steps)))


def _steps(deployment: Deployment, replies: Replies) -> list[_Step]:
    steps: list[_Step] = []
    for size in sizes(deployment):
        answers = {
            key: answer
            for number in range(size)
            if (answer := replies.answers.get(key := _key(size, number))) is not None
        }
        if answers:
            read = {key: reply_or_fault(answer) for key, answer in answers.items()}
            steps.append(_Step(size=size, replies=read, answers=answers))
    return steps


def _errors(steps: Sequence[_Step]) -> Iterator[Finding]:
    for step in steps:
        faults = [(key, one) for key, one in step.replies.items() if isinstance(one, Fault)]
        if not faults:
            continue
        key, fault = faults[0]
        is_slow = fault.kind is FaultKind.SLOW  # it still came when its time was over: slow, and no error
        yield Finding(
            id="under_load.errors",
            severity=Severity.UNKNOWN if is_slow else fault.severity,
            summary=f"{len(faults)} of {step.size} requests at once failed: {fault.what}",
            expected=_EXPECTED,
            explanation=fault.why,
            action="give it more time: --budget S"
            if is_slow
            else "read the engine's log of this moment: `bringup diagnose` does",
            evidence=(Evidence(source=f"answer under_load/{key}", text=fault.quote or fault.what),),
        )
        return


def _wrong(steps: Sequence[_Step], able: set[str]) -> Iterator[Finding]:
    """Answers that were right alone and are not in company."""
    bad: list[tuple[str, str]] = []
    count = 0
    for step in steps:
        for key, reply in step.replies.items():
            kind = key.rpartition(" ")[2]
            if isinstance(reply, Fault) or kind not in able:
                continue
            count += 1
            if not _is_right(kind, reply.everything):
                bad.append((key, reply.everything))
    if not bad or not count:
        return
    salad = [(key, text) for key, text in bad if is_salad(text) or not text.strip()]
    share = len(bad) / count
    usual = Severity.WARNING if share > 0.1 and len(bad) >= _FEW else Severity.NOTE
    severity = Severity.FAILURE if salad or (share > 0.5 and len(bad) >= _FEW) else usual
    key, text = (salad or bad)[0]
    yield Finding(
        id="under_load.wrong",
        severity=severity,
        summary=f"{len(bad)} of {count} answers are wrong in company, "
        f"{'garbage' if salad else 'right alone'}",
        expected=_EXPECTED,
        explanation="requests disturb one another: wrong cache blocks, a faulty batched kernel or all-reduce",
        action="try without CUDA graphs, prefix caching and custom all-reduce, one after the other",
        evidence=(Evidence(source=f"answer under_load/{key}", text=text[:200] or "(empty)"),),
    )


def _samples(deployment: Deployment) -> Iterator[Finding]:
    trace, host = deployment.load, deployment.host
    if trace is None or host is None:
        return
    meant = (
        {one.gpu.index for one in deployment.account.carriers} if deployment.account else set[int | None]()
    )
    traces = [one for one in trace.gpus if one.index in meant] or list(trace.gpus)
    yield from _memory(deployment, traces)
    yield from _engine(trace.engine)


def _memory(deployment: Deployment, traces: Sequence[GpuTrace]) -> Iterator[Finding]:
    """The room that was left at the peak, where more was taken than is held at rest.

    What stays taken afterwards is told by the checks that look at the card at rest.
    """
    after = deployment.host_after
    host = after if after is not None and after.gpus else deployment.host
    gpus = {gpu.index: gpu for gpu in (host.gpus if host else ())}
    rows: list[tuple[int, int, int]] = []  # room at the peak, growth, index
    for one in traces:
        used = [moment.memory_used for moment in one.moments if moment.memory_used is not None]
        gpu = gpus.get(one.index)
        if used and gpu is not None and gpu.memory_total is not None and gpu.memory_used is not None:
            room = gpu.memory_total - (gpu.memory_reserved or 0) - max(used)
            rows.append((room, max(used) - gpu.memory_used, one.index))
    grown = [row for row in rows if row[1] >= _GROWN]
    if not grown:
        return
    room, growth, index = min(grown)
    yield Finding(
        id="under_load.memory",
        severity=Severity.WARNING if room < _TOO_TIGHT else Severity.NOTE,
        summary=f"GPU {index} took {mib_text(growth)} more under load than at rest, "
        f"{mib_text(room)} were left at the peak",
        expected=_EXPECTED,
        explanation="the engine gives it back, and takes it again: a larger step may not find room",
        action="give it room: a lower memory fraction, fewer requests at once, or shorter steps of prefill",
        evidence=(Evidence(source="driver", text=f"GPU {index}: {mib_text(room)} left at the peak"),),
    )


def _engine(moments: Sequence[EngineMoment]) -> Iterator[Finding]:
    """Requests put aside, and places that were not freed."""
    if len(moments) < 2:
        return
    first, last = moments[0], moments[-1]
    if (
        last.preemptions is not None
        and first.preemptions is not None
        and last.preemptions > first.preemptions
    ):
        yield Finding(
            id="under_load.preemptions",
            severity=Severity.NOTE,
            summary=f"{last.preemptions - first.preemptions:,.0f} requests were put aside for want of cache",
            expected="0 at this load",
            explanation="each is computed again from its beginning",
            action="let fewer requests run at once, or give the cache more",
            evidence=(
                Evidence(source="metrics", text=f"{first.preemptions:,.0f} to {last.preemptions:,.0f}"),
            ),
        )
    held, before = ((one.running or 0) + (one.waiting or 0) for one in (last, first))
    if held and not before:  # others that were there before the burst may be there after it
        yield Finding(
            id="under_load.held",
            severity=Severity.WARNING,
            summary=f"{held:,.0f} request{'s are' if held > 1 else ' is'} still held after the burst",
            expected=_EXPECTED,
            explanation="all answers have come: their places were not given back, or others use the server",
            action="ask its metrics again in a minute; if they stay, restart the engine",
            evidence=(Evidence(source="metrics", text=f"{last.running} running, {last.waiting} waiting"),),
        )


def _fine(deployment: Deployment, steps: Sequence[_Step], able: set[str]) -> Finding:
    most = steps[-1].size
    parts = [f"up to {most} requests at once answered" + (" as right as alone" if able else "")]
    trace = deployment.load
    peaks = [
        max((m.power or 0.0) for m in one.moments) for one in (trace.gpus if trace else ()) if one.moments
    ]
    if any(peaks):
        parts.append(f"{sum(peaks):,.0f} W at the peak")
    if trace is not None and trace.engine:
        share = max((moment.kv_used_share or 0.0) for moment in trace.engine)
        parts.append(f"{share:.0%} of the cache in use at most")
    if not able:
        parts.append("the model answers none of the questions rightly alone either")
    return Finding(
        id="under_load",
        severity=Severity.OK if able else Severity.NOTE,
        summary=", ".join(parts),
        expected=_EXPECTED,
        action="none",
        evidence=(Evidence(source="answers", text=f"{sum(step.size for step in steps)} requests"),),
    )


def _measured(deployment: Deployment, steps: Sequence[_Step]) -> Iterator[Measurement]:
    """Tokens per second of every step, and what the samples reached."""
    for step in steps:
        speed = _speed(step.answers, step.replies)
        yield Measurement(name=f"output at {step.size} at once", value=speed, unit="tokens/s")
    trace = deployment.load
    for one in trace.gpus if trace else ():
        used = [moment.memory_used for moment in one.moments if moment.memory_used is not None]
        yield Measurement(
            name=f"memory used at the peak, GPU {one.index}", value=max(used, default=None), unit="bytes"
        )


def _speed(answers: Mapping[str, Answer], replies: Mapping[str, ChatReply | Fault]) -> float | None:
    """Tokens of a step over the time from its first request to its last answer."""
    tokens = [one.completion_tokens for one in replies.values() if isinstance(one, ChatReply)]
    ends = [answer.sent_at + answer.total_s for answer in answers.values() if answer.total_s is not None]
    begun = min(answer.sent_at for answer in answers.values())
    if not ends or any(count is None for count in tokens) or max(ends) <= begun:
        return None
    return round(sum(count or 0 for count in tokens) / (max(ends) - begun), 1)


CHECK = Check(
    title="stands a burst of requests",
    section="capacity",
    phase="load",
    depth=Depth.QUICK,
    asks=asks,
    judge=judge,
    reads_all=True,
)
