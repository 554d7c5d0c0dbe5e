"""A recording without secrets: the one gate that everything recorded passes.

What hosts and information endpoints said loses every secret that the rules know. What the model wrote loses
only unmistakable ones: a check that runs the model's code must find the same code in a replay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from bringup.parse.redact import (
    REDACTED,
    Span,
    answer_spans,
    redact,
    redact_answer,
    redact_argv,
    redact_headers,
    redact_value,
    replace_spans,
    secret_spans,
)

if TYPE_CHECKING:  # the answers of an endpoint are scrubbed without a recording
    from bringup.values.exchange import Answer, ProgramResult
    from bringup.values.host import CommandResult
    from bringup.values.recording import Recording

_Spans = Callable[[str, Collection[str]], list[Span]]


def scrub(recording: Recording, secrets: Collection[str] = ()) -> Recording:
    """The same recording without secrets; `secrets` are the user's own, gone wherever they appear."""
    return dataclasses.replace(
        recording,
        host=redact(recording.host, secrets),
        url=redact(recording.url, secrets),
        options={key: _clean_option(key, value, secrets) for key, value in recording.options.items()},
        snapshots={
            name: {key: scrub_result(result, secrets) for key, result in results.items()}
            for name, results in recording.snapshots.items()
        },
        probes={
            redact(path, secrets): scrub_answer(answer, secrets, secret_spans)
            for path, answer in recording.probes.items()
        },
        answers={
            check: {key: scrub_answer(answer, secrets, answer_spans) for key, answer in answers.items()}
            for check, answers in recording.answers.items()
        },
        programs={
            check: {key: _clean_program(result, secrets) for key, result in results.items()}
            for check, results in recording.programs.items()
        },
    )


def scrub_result(result: CommandResult, secrets: Collection[str]) -> CommandResult:
    """What a command printed, without secrets."""
    return dataclasses.replace(
        result,
        stdout=redact(result.stdout, secrets),
        stderr=redact(result.stderr, secrets),
        skipped=redact(result.skipped, secrets),
        remark=redact(result.remark, secrets),
    )


def scrub_answer(answer: Answer, secrets: Collection[str], spans_of: _Spans) -> Answer:
    """An answer without secrets; its arrival times still point at the same text."""
    spans = spans_of(answer.body, secrets)
    return dataclasses.replace(
        answer,
        headers=redact_headers(answer.headers, secrets),
        body=replace_spans(answer.body, spans),
        detail=redact(answer.detail, secrets),
        arrivals=_moved(answer.arrivals, answer.body, spans) if spans else answer.arrivals,
    )


def _moved(
    arrivals: Sequence[tuple[float, int]], body: str, spans: Sequence[Span]
) -> tuple[tuple[float, int], ...]:
    """Arrivals whose byte counts follow the body's new length; a count inside a secret goes to its end."""
    edges: list[tuple[int, int, int]] = []  # first byte, last byte, how much shorter all is after it
    done = shift = position = 0
    for start, end in spans:
        position += len(body[done:start].encode("utf-8", "surrogatepass"))
        size = len(body[start:end].encode("utf-8", "surrogatepass"))
        shift += size - len(REDACTED)
        edges.append((position, position + size, shift))
        position, done = position + size, end
    return tuple((when, _new_count(count, edges)) for when, count in arrivals)


def _new_count(count: int, edges: Sequence[tuple[int, int, int]]) -> int:
    shift = 0
    for first, last, shorter in edges:
        if count <= first:
            break
        count, shift = max(count, last), shorter
    return count - shift


def _clean_program(result: ProgramResult, secrets: Collection[str]) -> ProgramResult:
    return dataclasses.replace(
        result,
        results=tuple(redact_answer(text, secrets) for text in result.results),
        problem=redact_answer(result.problem, secrets),
    )


def _clean_option(name: str, value: object, secrets: Collection[str]) -> object:
    if isinstance(value, str):
        return redact_value(name, value, secrets)
    if isinstance(value, dict):
        return {str(key): _clean_option(str(key), item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [item for item in value if isinstance(item, str)]
        if len(items) == len(value):
            cleaned = redact_argv(items, secrets)
            return [redact_value(name, item, secrets) for item in cleaned]
        return [_clean_option(name, item, secrets) for item in value]
    return value
