"""The known questions among the load: judged, and where they went wrong asked once more, alone."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bringup.transport import Endpoint
from bringup.values.bench import GeneratorRun, Rung
from bringup.values.exchange import Ask
from bringup.values.finding import WORST_FIRST, Finding
from bringup.workload import Workload

if TYPE_CHECKING:  # loaded where there are questions
    from bringup.workload.answers import Answered
    from bringup.workload.known_questions import Judged

_OURS = ("bench.answers.wrong", "bench.answers.garbled")  # told better by who asked again
_LIMIT_S = 60.0  # of one answer
_MOST_S = 90.0  # of all: the figures are there and wait to be shown
_MOST_RUNGS = 3  # whose questions are asked again


@dataclass(slots=True)
class KnownAnswers:
    """All answers to known questions of a run."""

    _rungs: list[tuple[Workload, tuple[GeneratorRun, ...]]] = field(
        default_factory=list[tuple[Workload, tuple[GeneratorRun, ...]]]
    )
    _finding: Finding | None = None

    def judged(self, rung: Rung, runs: tuple[GeneratorRun, ...], workload: Workload) -> Rung:
        """The rung with the questions that were asked in it, and how many were answered well."""
        if not any(record.question is not None for run in runs for record in run.records):
            return rung
        from bringup.workload.answers import answered  # noqa: PLC0415 - only where there are questions
        from bringup.workload.known_questions import Verdict  # noqa: PLC0415 - the same

        self._rungs.append((workload, runs))
        verdicts = [one.judged.verdict for run in runs for one in answered(run.records)]
        return replace(
            rung,
            questions=sum(one is not Verdict.CUT for one in verdicts),
            questions_right=sum(one is Verdict.RIGHT for one in verdicts),
            garbled=sum(one is Verdict.GARBLED for one in verdicts),
        )

    async def ask_again(self, endpoint: Endpoint, path: str, *, limit_s: float) -> None:
        """What went wrong under load, once more without it; of all loads the worst is told.

        `limit_s` bounds one answer, as it bounded those under load.
        """
        if not self._rungs:
            return
        from bringup.workload.answers import answered, answers_finding  # noqa: PLC0415 - as above

        until = time.monotonic() + _MOST_S
        for workload, runs in self._rungs[-_MOST_RUNGS:]:
            answers = answered([record for run in runs for record in run.records])
            again = await _asked_again(workload, answers, endpoint, path, limit_s=limit_s, until=until)
            found = answers_finding(answers, again)
            if found is not None and (self._finding is None or _is_worse(found, self._finding)):
                self._finding = found

    def instead_of(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings with what asking again told."""
        if self._finding is None:
            return tuple(findings)
        return (*(one for one in findings if one.id not in _OURS), self._finding)


async def _asked_again(
    workload: Workload,
    answers: "Sequence[Answered]",
    endpoint: Endpoint,
    path: str,
    *,
    limit_s: float,
    until: float,
) -> "dict[int, Judged]":
    """The verdicts on those that went wrong, asked alone, by the number of the request."""
    from bringup.parse.chat import read_reply  # noqa: PLC0415 - only where there are questions
    from bringup.workload.answers import request_of, to_ask_again  # noqa: PLC0415 - only where there are questions
    from bringup.workload.known_questions import judge_text  # noqa: PLC0415 - the same

    again: dict[int, Judged] = {}
    for index in to_ask_again(answers):
        request = request_of(workload, index)
        if request is None or request.question is None:
            continue
        limit = min(_LIMIT_S, limit_s, until - time.monotonic())
        if limit <= 0:
            break
        ask = Ask(key=f"again {index}", path=path, body=request.body.decode(), time_limit_s=limit)
        answer = await endpoint.send(ask)
        if answer.status is None:
            break  # it does not answer: nor will it the next one
        reply = read_reply(answer)
        again[index] = judge_text(reply.everything, request.question)
    return again


def _is_worse(one: Finding, other: Finding) -> bool:
    return WORST_FIRST.index(one.severity) < WORST_FIRST.index(other.severity)
