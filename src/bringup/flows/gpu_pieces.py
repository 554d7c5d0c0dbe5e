"""Readings of the GPUs through their maker's tool, in pieces of a few seconds, one after the other.

A piece is one question to the host, so that a slow link never holds more than a few seconds back and nothing
is left running there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bringup.transport import Runner
from bringup.values.load import GpuMoment, GpuTrace

if TYPE_CHECKING:  # a machine without GPUs loads none of this
    from bringup.values.host import CommandResult
    from bringup.vendors import Vendor

PIECE_S = 3  # seconds of readings in one answer of the host


async def watch_pieces(
    runner: Runner | None,
    vendors: Mapping[str, Vendor],
    take: Callable[[Mapping[str, CommandResult], float | None], bool],
    *,
    most: int,
) -> None:
    """Gives the answers of one piece after the other to `take`, the vendors side by side.

    With each comes how many seconds the way to the host took at most: the times are good to that. Ends when
    `take` says that it has enough, or when nothing is told any more.

    Raises:
        HostError: the host could not be asked at all.
    """
    traced = [vendor.trace for vendor in vendors.values() if vendor.trace is not None]
    if runner is None or not traced:
        return
    from bringup.transport.script import CLOCK_KEY  # noqa: PLC0415 - only where there are GPUs

    for piece in range(most):
        questions = [replace(trace, key=f"{trace.key}.{piece}") for trace in traced]
        answered = await runner.ask(questions)
        told = {key: one for key, one in answered.items() if key.endswith(f".{piece}") and one.stdout}
        clock = answered.get(CLOCK_KEY)
        if not told or not take(told, clock.elapsed_s if clock is not None else None):
            return


def gpu_traces(
    vendors: Mapping[str, Vendor],
    results: Mapping[str, CommandResult],
    begun_at: Callable[[CommandResult], float],
) -> tuple[GpuTrace, ...]:
    """The readings of all pieces by GPU; `begun_at` says when an answer began, in seconds of the trace."""
    moments: dict[int, list[GpuMoment]] = {}
    for vendor in vendors.values():
        if vendor.trace is None or vendor.read_trace is None:
            continue
        pieces = [result for key, result in results.items() if key.startswith(f"{vendor.trace.key}.")]
        for result in sorted(pieces, key=lambda one: int(one.key.rpartition(".")[2])):
            for index, readings in vendor.read_trace(result, begun_at(result)).items():
                moments.setdefault(index, []).extend(readings)
    return tuple(
        GpuTrace(index=index, moments=tuple(readings)) for index, readings in sorted(moments.items())
    )
