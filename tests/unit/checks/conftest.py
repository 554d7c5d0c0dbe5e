"""Builders of synthetic answers: records, never mocks."""

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import pytest

from bringup.checks import MAX_ROUNDS, Check, Replies
from bringup.units import mib
from bringup.values.deployment import Ability, Deployment, Depth, Wanted
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer, Ask, Problem
from bringup.values.finding import Finding, Judgement
from bringup.values.host import Gpu, HostSnapshot

JSON_HEADERS = (("content-type", "application/json"),)
STREAM_HEADERS = (("content-type", "text/event-stream"),)


def deployment(
    *,
    ability: Ability = Ability.CAPABLE,
    depth: Depth = Depth.DEFAULT,
    engine: str = "vllm",
    context_tokens: int | None = 2048,
    wanted: Wanted | None = None,
    **more: object,
) -> Deployment:
    """A deployment that is sound in every respect not named."""
    return Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine=engine, metrics_open=more.pop("metrics_open", True)),
        model=ServedModel(id="m", context_tokens=context_tokens),
        ability=ability,
        depth=depth,
        wanted=wanted or Wanted(),
        **more,
    )


def whole(
    key: str,
    text: str,
    *,
    tokens: int | None = None,
    prompt_tokens: int | None = 10,
    finish: str | None = "stop",
    logprobs: Sequence[Mapping[str, object]] | None = None,
    **message: object,
) -> Answer:
    """A good answer in one body."""
    count = len(text.split()) if tokens is None else tokens
    choice: dict[str, object] = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": finish,
    }
    if logprobs is not None:
        choice["logprobs"] = {"content": list(logprobs)}
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": count}
    body = json.dumps({"model": "m", "choices": [choice], "usage": usage})
    return Answer(
        key=key,
        status=200,
        headers=JSON_HEADERS,
        body=body,
        total_s=1.0,
        arrivals=((1.0, len(body.encode())),),
    )


def stream(
    key: str,
    pieces: Sequence[str],
    *,
    tokens: int | None = -1,
    finish: str | None = "stop",
    done: bool = True,
    times: Sequence[float] | None = None,
    extra_frames: Sequence[str] = (),
    tail: str = "",
    problem: Problem | None = None,
    detail: str = "",
) -> Answer:
    """A streamed answer, one frame per piece; `tokens` -1 counts the pieces, None leaves usage out."""
    frames = [
        json.dumps({"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        for piece in pieces
    ]
    frames += extra_frames
    if finish is not None:
        frames.append(json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
    if tokens is not None:
        count = len(pieces) if tokens == -1 else tokens
        frames.append(json.dumps({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": count}}))
    if done:
        frames.append("[DONE]")
    body, arrivals = "", []
    moments = list(times) if times is not None else [0.1 + 0.02 * place for place in range(len(pieces))]
    for place, frame in enumerate(frames):
        body += f"data: {frame}\n\n"
        moment = moments[place] if place < len(moments) else moments[-1] if moments else 0.1
        arrivals.append((moment, len(body.encode())))
    body += tail
    arrivals.append((arrivals[-1][0] if arrivals else 0.1, len(body.encode())))
    return Answer(
        key=key,
        status=200,
        headers=STREAM_HEADERS,
        body=body,
        problem=problem,
        detail=detail,
        total_s=arrivals[-1][0],
        arrivals=tuple(arrivals),
    )


def error(key: str, status: int, message: str = "no") -> Answer:
    """An error status with OpenAI's error body."""
    body = json.dumps({"error": {"message": message, "code": status}})
    return Answer(key=key, status=status, headers=JSON_HEADERS, body=body, total_s=0.01)


def broken(key: str, problem: Problem, detail: str = "") -> Answer:
    """No answer at all."""
    return Answer(key=key, problem=problem, detail=detail)


def page(key: str) -> Answer:
    """A web page with status 200."""
    body = "<!DOCTYPE html><html><body>Welcome to nginx</body></html>"
    return Answer(key=key, status=200, headers=(("content-type", "text/html"),), body=body)


def judge(check: Check, under_test: Deployment, *answers: Answer, **everyone: Sequence[Answer]) -> Judgement:
    """What a check says about these answers."""
    replies = Replies(
        answers={answer.key: answer for answer in answers},
        programs={},
        everyone={name: {answer.key: answer for answer in those} for name, those in everyone.items()},
    )
    return check.judge(under_test, replies)


def run(check: Check, under_test: Deployment, respond: Callable[[Ask], Answer]) -> SimpleNamespace:
    """Ask until the check has had enough, as the flow does; `judgement`, `asked` and `rounds` come back."""
    answers: dict[str, Answer] = {}
    asked: list[Ask] = []
    rounds = 0
    assert check.asks is not None
    while batch := check.asks(under_test, Replies(answers=dict(answers), programs={}, everyone={})):
        rounds += 1
        assert rounds <= MAX_ROUNDS, "asks without end"
        for ask in batch:
            assert isinstance(ask, Ask)
            assert ask.key not in answers, f"{ask.key} asked twice"
            asked.append(ask)
            answers[ask.key] = respond(ask)
    judgement = check.judge(under_test, Replies(answers=answers, programs={}, everyone={}))
    return SimpleNamespace(judgement=judgement, asked=asked, rounds=rounds)


def card(index: int = 0, **more: object) -> Gpu:
    """A sound RTX PRO 6000 at rest with a model in it, in every respect not named."""
    figures: dict[str, object] = {
        "uuid": f"GPU-{index}",
        "bus_id": f"0000:{index + 6:02x}:00.0",
        "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "driver_version": "595.58.03",
        "compute_capability": "12.0",
        "memory_total": mib(97887),
        "memory_reserved": mib(636),
        "memory_used": mib(96721),
        "utilization": 0.0,
        "power": 83.0 + index / 10,
        "power_limit": 600.0,
        "power_limit_default": 600.0,
        "temperature": 41.0,
        "performance_state": "P1",
        "clock_sm": 180.0,
        "clock_sm_max": 2430.0,
        "clocks_event_reasons": 1,
        "pcie_generation": 1,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "ecc_mode": "Enabled",
        "ecc_uncorrected": 0,
        "remapped_rows_pending": "No",
        "remapped_rows_failure": "No",
        "mig_mode": "Disabled",
        "persistence_mode": "Enabled",
        "recovery_action": "None",
    }
    return Gpu(index=index, **{**figures, **more})


def idle_card(index: int, **more: object) -> Gpu:
    """The same card without a model."""
    return card(index, **{"memory_used": mib(3), "power": 33.5, "performance_state": "P8", **more})


def box(*gpus: Gpu, **more: object) -> HostSnapshot:
    """A host with these cards."""
    return HostSnapshot(taken_at=1_000_000.0, host="gpubox", gpus=gpus, **more)


def found(judgement: Judgement) -> dict[str, str]:
    """Severity by finding id."""
    assert all(is_complete(finding) for finding in judgement.findings)
    return {finding.id: finding.severity.value for finding in judgement.findings}


def is_complete(finding: Finding) -> bool:
    """Says what, against what and, unless all is well, why it matters and what to do."""
    has_base = bool(finding.summary and finding.expected)
    return has_base and (finding.severity == "ok" or bool(finding.explanation and finding.action))


@pytest.fixture
def make() -> SimpleNamespace:
    """All builders."""
    return SimpleNamespace(
        deployment=deployment,
        whole=whole,
        stream=stream,
        error=error,
        broken=broken,
        page=page,
        judge=judge,
        run=run,
        found=found,
        card=card,
        idle_card=idle_card,
        box=box,
    )
