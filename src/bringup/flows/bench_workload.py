"""The workload of each load: what the user chose, made for the server that answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bringup.errors import UsageError
from bringup.flows.bench_request import BenchRequest
from bringup.flows.bench_server import Server
from bringup.transport import Endpoint
from bringup.workload import Workload
from bringup.workload.arrivals import Scheduled, read_arrivals
from bringup.workload.calibration import (
    UNASKED,
    Calibration,
    calibration,
    calibration_asks,
    read_count,
)
from bringup.workload.request_body import BodyShape
from bringup.workload.synthetic import Synthetic, require_room

if TYPE_CHECKING:  # only where there is a file
    from bringup.workload.dataset import Dataset

_RUNGS = 1024  # salts that one run may use: more than it ever has loads
_SALTS = 1 << 62
_COUNT_LIMIT_S = 20.0  # of one count; a server that takes longer to answer one token has other troubles
_STEPS = 3  # of a calibration: it needs two at most
_WITH_TOKENIZER = frozenset({"vllm", "sglang"})  # count without running the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What is sent, made for one server."""

    request: BenchRequest
    server: Server
    calibration: Calibration = UNASKED

    @property
    def shape(self) -> BodyShape:
        """Everything in a body but prompt and length."""
        return BodyShape(
            model=self.server.model,
            is_chat=self.request.is_chat,
            ignores_end=self.server.ignores_end,
            extra=self.request.extra_body,
        )

    @property
    def path(self) -> str:
        """Where requests go."""
        return "/v1/chat/completions" if self.request.is_chat else "/v1/completions"

    def workload(self, number: int, *, rate: float | None = None) -> Workload:
        """The workload of load `number` of this run: prompts that no other load and no other run has."""
        request = self.request
        padding = self._padding(number)
        plain: Workload = padding
        if request.dataset is not None:
            plain = self._dataset(padding)
        elif request.turns is not None:
            plain = self._conversations(padding)
        if request.question_share:
            from bringup.workload.known_questions import WithQuestions  # noqa: PLC0415 - as below

            plain = WithQuestions(
                workload=plain, padding=padding, share=request.question_share, seed=request.seed
            )
        if request.cancellation is not None:
            from bringup.workload.cancellation import Cancelled  # noqa: PLC0415 - only what is asked for

            plain = Cancelled(workload=plain, cancellation=request.cancellation)
        if rate is None:
            return plain
        arrivals = read_arrivals(request.arrivals, rate=rate, option="--arrivals", seed=request.seed)
        return Scheduled(workload=plain, arrivals=arrivals)

    def _padding(self, number: int) -> Synthetic:
        request = self.request
        return Synthetic(
            shape=self.shape,
            input_lengths=request.input_lengths,
            output_lengths=request.output_lengths,
            seed=request.seed,
            salt=(round(request.started_at * 1000) * _RUNGS + number) % _SALTS,
            prefix_share=request.prefix_share,
            prefix_groups=request.prefix_groups,
            calibration=self.calibration,
        )

    def survey(self) -> None:
        """Reads the whole data file once, so that what is wrong in it shows before the load.

        Raises:
            UsageError: a record cannot be read, or there is none.
        """
        from bringup.workload.dataset import survey  # noqa: PLC0415 - only where there is a file

        found = survey(self._dataset(self._padding(0)))
        if not found.used:
            raise UsageError(f"no request in `{self.request.dataset}`")

    def _dataset(self, padding: Synthetic) -> Dataset:
        from bringup.transport.data_file import DataFile  # noqa: PLC0415 - only where there is a file
        from bringup.workload.dataset import open_dataset  # noqa: PLC0415 - the same

        request = self.request
        found = open_dataset(DataFile(str(request.dataset)), padding, format_name=request.dataset_format)
        return replace(
            found,
            output_lengths=request.output_lengths if request.has_output_lengths else None,
            keeps_times=request.loads.is_trace,
            speed=request.loads.low if request.loads.is_trace else 1.0,
            repeats=not request.loads.is_trace,
        )

    def _conversations(self, padding: Synthetic) -> Workload:
        from bringup.workload.conversations import Conversations, require_chat  # noqa: PLC0415 - the same

        request = self.request
        require_chat(self.shape)
        if request.turns is None:
            return padding
        return Conversations(first=padding, turns=request.turns, turn_lengths=request.turn_lengths)


async def prompts_for(request: BenchRequest, server: Server, endpoint: Endpoint) -> Prompts:
    """The prompts with lengths that the server's own count confirms.

    Raises:
        UsageError: the chat template alone is longer than the shortest prompt, or a data file is none.
    """
    prompts = Prompts(request=request, server=server)
    if request.dataset is not None:
        prompts.survey()
    if not request.calibrates:
        return prompts
    counts: dict[str, int | None] = {}
    engine = server.status.engine if server.status.engine in _WITH_TOKENIZER else None
    for _ in range(_STEPS):
        asks = calibration_asks(prompts.shape, counts, _tails(request), engine=engine)
        if not asks:
            break
        limited = (replace(ask, time_limit_s=min(_COUNT_LIMIT_S, request.request_limit_s)) for ask in asks)
        answers = await asyncio.gather(*map(endpoint.send, limited))
        counts |= {ask.key: read_count(answer) for ask, answer in zip(asks, answers, strict=True)}
    found = calibration(counts)
    if request.dataset is None:
        require_room(found, request.input_lengths, option="--input-tokens")
    return replace(prompts, calibration=found)


def _tails(request: BenchRequest) -> dict[str, str]:
    if not request.question_share:
        return {}
    from bringup.workload.known_questions import question_tails  # noqa: PLC0415 - only where they are asked

    return question_tails(is_chat=request.is_chat)
