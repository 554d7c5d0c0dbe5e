"""What the instrument measures of itself before it measures anything else."""

import asyncio
import socket
import time

from bringup.load.alarms import Heartbeat
from bringup.values.bench import SelfTest

_ROUNDS = 200
_BEAT_NS = 1_000_000
_IDLE_S = 0.03
_LIMIT_S = 2.0  # of each part, on a machine that is hardly there


class _Bell(asyncio.Protocol):
    """Takes the time of a byte as the load's connections do."""

    def __init__(self) -> None:
        self.at = 0
        self.rang: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        """Keep the time."""
        self.at = time.monotonic_ns()
        del data
        if self.rang is not None and not self.rang.done():
            self.rang.set_result(None)


async def self_test() -> SelfTest:
    """Delivery of a byte over a local connection, lateness of alarms in a loop that does nothing else."""
    begun = time.monotonic_ns()
    delays = sorted(await _delays())
    lags = sorted(await _lags())
    return SelfTest(
        deliver_p50_s=_quantile(delays, 0.5),
        deliver_p99_s=_quantile(delays, 0.99),
        lag_p50_s=_quantile(lags, 0.5),
        lag_p99_s=_quantile(lags, 0.99),
        clock_step_s=_clock_step() / 1e9,
        seconds=(time.monotonic_ns() - begun) / 1e9,
    )


async def _delays() -> list[int]:
    loop = asyncio.get_running_loop()
    near, far = socket.socketpair()
    with near:
        near.settimeout(0.0)
        transport, bell = await loop.create_connection(_Bell, sock=far)
        delays: list[int] = []
        until = time.monotonic_ns() + round(_LIMIT_S * 1e9)
        try:
            for _ in range(_ROUNDS):
                bell.rang = loop.create_future()
                sent = time.monotonic_ns()
                near.send(b".")
                await bell.rang
                delays.append(bell.at - sent)
                if bell.at > until:
                    break
        finally:
            transport.abort()
    return delays


async def _lags() -> list[int]:
    heart = Heartbeat(asyncio.get_running_loop(), _BEAT_NS)
    await asyncio.sleep(_IDLE_S)
    heart.close()
    return [micros * 1000 for micros, count in heart.lags.items() for _ in range(count)]


def _clock_step() -> int:
    """The smallest step that the clock was seen to take, nanoseconds."""
    steps: list[int] = []
    before = time.monotonic_ns()
    for _ in range(200):
        now = time.monotonic_ns()
        if now > before:
            steps.append(now - before)
        before = now
    return min(steps, default=0)


def _quantile(ascending: list[int], share: float) -> float:
    """Nearest rank, seconds; of nothing 0: the part took longer than its limit before the first value."""
    if not ascending:
        return 0.0
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] / 1e9
