"""Keeps the asked load on an endpoint over one rung, in one event loop.

What happens at an arrival is in `wire`. Sending and parsing wait until what has arrived is read, and are done
a little at a time, so that no answer's time suffers from another's work.
"""

import asyncio
import gc
import heapq
import resource
import sys
import time
from collections import Counter, deque
from pathlib import Path

from bringup.load.alarms import Alarm, Heartbeat
from bringup.load.answers import Answers
from bringup.load.connections import Opener, failure_of
from bringup.load.page import Counts, Page, Wish
from bringup.load.task import Task
from bringup.load.wire import Flight, Stream
from bringup.values.bench import Failed, GeneratorRun, LoadRequest, RequestRecord, Tally

_BEAT_NS = 10_000_000
_STALE_NS = 250_000_000  # a kept connection that breaks within this was closed before our request arrived
_PREPARED = 32  # requests whose bytes are ready
_SENT_AT_ONCE = 4  # between two looks at what has arrived: some 80 us
_PREPARED_BYTES = 16_000_000
_OPENED_AT_ONCE = 64
_PAUSE_S = (0.05, 1.0)  # after a connection that failed; doubled up to the second
_DESCRIPTORS_KEPT = 8  # for a name that is looked up, a file, a connection that is being closed
_HOPELESS = 20  # connections in a row that nobody took: it does not come back
_clock = time.monotonic_ns


class Generator:
    """One rung of load from this process: `prepare`, then `run`, once each."""

    def __init__(self, task: Task, page: Page, row: int = 0) -> None:
        self._task = task
        self._page = page
        self._row = row
        self._loop = asyncio.get_running_loop()
        self._opener = Opener(task.target)
        self._head = _request_head(task)
        self._source = task.workload.requests(task.generator, task.generators)
        self._prepared: deque[Flight] = deque()
        self._to_prepare = max(_PREPARED, task.streams or 0)
        self._free: deque[tuple[Stream | None, int]] = deque()
        self._prepared_bytes = 0
        self._left = task.requests
        self._most_connections = min(task.most_open, _descriptors_left())
        self._backlog: deque[Flight] = deque()
        self._has_chores = False
        self._turn_began = 0
        self._turns: Counter[int] = Counter()
        self._deadlines: deque[tuple[int, Stream, Flight]] = deque()
        self._cancels: list[tuple[int, int, Stream, Flight]] = []
        self._idle: list[Stream] = []
        self._streams: set[Stream] = set()
        self._waiting: deque[Flight] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = self._running = self._most_open = 0
        self._failed_opens = 0
        self._is_launching = True
        self._is_source_over = False
        self._cut = ""
        self._over = self._loop.create_future()
        self._wish = Wish.GO
        self._beats = 0
        self._answers = Answers(start_ns=0, keep_gaps=task.keep_gaps)
        self._start = self._until = 0

    # the rung
    async def prepare(self) -> None:
        """The first requests and the connections: no part of any latency."""
        self._refill(self._to_prepare)
        await self._open_ahead()

    async def run(self, start_ns: int = 0) -> GeneratorRun:
        """Everything from the first request to the last record; begins at `start_ns`, or at once."""
        task = self._task
        if start_ns:
            await asyncio.sleep(max(0, start_ns - _clock()) / 1e9)
        gc.collect()
        gc.freeze()
        gc.disable()
        busy = _processor_time()
        heart = Heartbeat(self._loop, _BEAT_NS, self._beat)
        self._heart = heart
        self._start = start = start_ns or _clock()
        self._until = start + round(task.duration_s * 1e9) if task.duration_s is not None else 0
        self._answers = Answers(start_ns=start, keep_gaps=task.keep_gaps)
        self._due = Alarm(self._loop, self._send_due) if task.streams is None else None
        try:
            if task.streams is None:
                self._send_due()
            else:
                await self._begin_streams()
            await self._over
            ended = _clock()
            busy = _processor_time() - busy
        finally:
            heart.close()
            if self._due is not None:
                self._due.close()
            for stream in self._streams:
                stream.abort()
            for one in self._tasks:
                one.cancel()
            gc.enable()
            gc.unfreeze()
        while self._backlog:
            self._read_one()
        answers = self._answers
        self._page.write(self._row, self._counts())
        return GeneratorRun(
            generator=task.name,
            records=tuple(answers.records),
            gaps=answers.gaps.tally(),
            event_gaps=answers.event_gaps.tally(),
            event_gap_tokens=answers.event_gap_tokens,
            lag=Tally(
                counts=heart.lags, total_ns=heart.total_ns, least_ns=heart.least_ns, most_ns=heart.most_ns
            ),
            turns=Tally(
                counts=dict(self._turns),
                total_ns=1000 * sum(micros * count for micros, count in self._turns.items()),
            ),
            send_late=answers.send_late.tally(),
            busy_s=busy,
            started=0,
            ended=ended - start,
            reads=answers.reads,
            bytes_read=answers.bytes_read,
            most_open=self._most_open,
            token_bins=dict(answers.bins),
            alarm_step_ns=heart.step_ns,
            cut=self._cut,
        )

    async def _open_ahead(self) -> None:
        """Connections before the clock starts: opening them is no part of any latency."""
        if self._task.fresh_connections:
            return
        wanted = self._task.streams if self._task.streams is not None else min(16, self._most_connections)
        if self._left is not None:
            wanted = min(wanted, self._left)
        gate = asyncio.Semaphore(_OPENED_AT_ONCE)

        async def one() -> None:
            async with gate:
                stream, _ = await self._opener.open(self)
                self._streams.add(stream)
                self._idle.append(stream)

        await asyncio.gather(*(one() for _ in range(wanted)), return_exceptions=True)

    async def _begin_streams(self) -> None:
        streams = self._task.streams or 0
        for number in range(streams):
            if self._task.ramp_s and number:
                due = self._start + round(self._task.ramp_s * 1e9 * number / streams)
                await asyncio.sleep(max(0, due - _clock()) / 1e9)
            if not self._is_launching:
                break
            self._free.append((self._idle.pop() if self._idle else None, _clock()))
            self._chores_soon()
        self._check_over()

    # what is sent
    def _turn(self, stream: Stream | None, ready: int) -> None:
        """Closed loop: the next request of a stream, on this connection or on a new one."""
        taken = self._take()
        if taken is None:
            if stream is not None:
                self._idle.append(stream)
            self._check_over()
            return
        flight = taken
        flight.ready = ready
        if stream is None or stream.is_lost or self._task.fresh_connections:
            if stream is not None:
                self._drop(stream)
            self._spawn(flight)
        else:
            self._send(stream, flight)

    def _take(self) -> Flight | None:
        """The next request, unless there is none or none may be sent any more."""
        if not self._is_launching or self._left == 0:
            return None
        if not self._prepared:
            self._refill(1)
            if not self._prepared:
                return None
        if self._left is not None:
            self._left -= 1
        self._started += 1
        flight = self._prepared.popleft()
        self._prepared_bytes -= len(flight.wire)
        self._chores_soon()
        return flight

    def _refill(self, count: int) -> None:
        for _ in range(count):
            request = next(self._source, None)
            if request is None:
                self._is_source_over = True
                return
            flight = self._flight(request)
            self._prepared.append(flight)
            self._prepared_bytes += len(flight.wire)
            if self._prepared_bytes > _PREPARED_BYTES:
                return

    def _flight(self, request: LoadRequest) -> Flight:
        wire = b"%b%d\r\n\r\n%b" % (self._head, len(request.body), request.body)
        keep = request.question is not None or request.conversation is not None
        return Flight(request, wire, keep_text=keep)

    def _send(self, stream: Stream, flight: Flight) -> None:
        self._running += 1
        self._most_open = max(self._most_open, self._running)
        stream.begin(flight)
        limit = flight.sent + round(self._task.request_limit_s * 1e9)
        self._deadlines.append((limit, stream, flight))
        if flight.request.cancel_after_s is not None:
            at = flight.sent + round(flight.request.cancel_after_s * 1e9)
            heapq.heappush(self._cancels, (at, flight.request.index, stream, flight))

    def _send_due(self) -> None:
        """Open loop: everything whose time has come, then the alarm for the next."""
        now = _clock()
        while self._is_launching and self._left != 0:
            if not self._prepared:
                self._refill(1)
            if not self._prepared:
                break
            due = self._start + round((self._prepared[0].request.at_s or 0.0) * 1e9)
            if self._until and due > self._until:
                self._is_launching = False
                break
            if due > now:
                if self._due is not None:
                    self._due.set(due)
                return
            taken = self._take()
            if taken is not None:
                taken.scheduled = due
                self._dispatch(taken)
        self._check_over()

    def _dispatch(self, flight: Flight) -> None:
        while self._idle:
            stream = self._idle.pop()
            if not stream.is_lost and not self._task.fresh_connections:
                self._send(stream, flight)
                return
            self._drop(stream)
        if self._has_room():
            self._spawn(flight)
        else:
            self._waiting.append(flight)

    def _has_room(self) -> bool:
        return len(self._streams) + len(self._tasks) < self._most_connections

    def _send_waiting(self) -> None:
        """Open loop: what waits for a connection, as far as there are some."""
        while self._waiting and (self._idle or self._has_room()):
            self._dispatch(self._waiting.popleft())

    def _spawn(self, flight: Flight) -> None:
        """Send on a connection that must be opened first."""
        task = self._loop.create_task(self._open_and_send(flight))
        self._tasks.add(task)
        task.add_done_callback(self._opened)

    def _opened(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._send_waiting()
        self._check_over()

    async def _open_and_send(self, flight: Flight) -> None:
        try:
            stream, took = await self._opener.open(self)
        except (OSError, TimeoutError) as error:
            self._failed_opens += 1
            flight.error, flight.detail = failure_of(error)
            flight.sent = flight.ended = _clock()
            await asyncio.sleep(min(_PAUSE_S[1], _PAUSE_S[0] * 2 ** min(10, self._failed_opens // 4)))
            self._settle(flight)
            if self._failed_opens >= _HOPELESS and self._running == 0:
                self._stop(f"{self._failed_opens} connections in a row failed ({flight.error})")
            elif self._task.streams is not None:
                self._turn(None, _clock())
            return
        self._failed_opens = 0
        self._streams.add(stream)
        flight.connect = took
        self._send(stream, flight)

    # what comes back: called by the connections
    def ended(self, stream: Stream, flight: Flight) -> None:
        """The answer is whole; read it later, send the next request now."""
        self._running -= 1
        flight.is_over = True
        self._backlog.append(flight)
        if flight.request.conversation is not None:
            self._settle_now(flight)
            self._next_turn(stream, flight)
        else:
            self._go_on(stream, flight.ended)
        self._chores_soon()

    def filled(self, flight: Flight) -> None:
        """A slice waits."""
        self._backlog.append(flight)
        self._chores_soon()

    def received(self, stream: Stream, flight: Flight) -> None:
        """An answer of an unusual frame: read it at once to see whether it is whole."""
        last = flight.slices[-1][0][-1]
        self._answers.read(flight, len(flight.slices))
        if flight.error is not None:
            stream.abort()
        elif flight.answer.is_complete:
            flight.ended = last
            is_kept = flight.answer.is_kept
            stream.release()
            if not is_kept:
                self._drop(stream)
            self.ended(stream, flight)

    def lost(self, stream: Stream, flight: Flight | None, error: BaseException | None) -> None:
        """A connection is gone, with or without a request under way."""
        self._streams.discard(stream)
        if flight is None:
            return
        self._running -= 1
        self._answers.read(flight, len(flight.slices))
        flight.answer.close()
        flight.ended = _clock()
        if self._is_stale(stream, flight):
            flight.is_retried = True
            flight.error = None
            self._spawn(flight)
            return
        if flight.error is None and not flight.answer.is_complete:
            flight.error = Failed.RESET if error is not None else Failed.CLOSED_EARLY
            flight.detail = str(error) if error is not None else "the server closed the connection"
        self._settle(flight)
        if flight.request.conversation is not None and flight.error is None:
            self._next_turn(None, flight)
        else:
            self._go_on(None, flight.ended)

    def _is_stale(self, stream: Stream, flight: Flight) -> bool:
        return (
            stream.is_used
            and flight.error is None
            and not flight.is_cancelled
            and not flight.is_retried
            and flight.answer.headers_at is None
            and flight.ended - flight.sent < _STALE_NS
        )

    def _go_on(self, stream: Stream | None, now: int) -> None:
        """A place is free."""
        if self._task.streams is not None:
            self._free.append((stream, now))
            self._chores_soon()
            return
        if stream is not None and not stream.is_lost:
            self._idle.append(stream)
        self._send_waiting()
        self._check_over()

    def _next_turn(self, stream: Stream | None, flight: Flight) -> None:
        """A conversation goes on with the answer that came, in the same place."""
        record = self._answers.records[-1]
        request = None
        if record.error is None and self._is_launching and self._left != 0:
            request = self._task.workload.next_turn(flight.request, record.text or "")
        if request is None:
            self._go_on(stream, flight.ended)
            return
        if self._left is not None:
            self._left -= 1
        self._started += 1
        follower = self._flight(request)
        follower.ready = flight.ended + round(request.pause_s * 1e9)
        if flight.scheduled is not None:
            follower.scheduled = follower.ready
        wait = max(0.0, (follower.ready - _clock()) / 1e9)
        task = self._loop.create_task(self._send_later(stream, follower, wait))
        self._tasks.add(task)
        task.add_done_callback(self._opened)

    async def _send_later(self, stream: Stream | None, flight: Flight, wait: float) -> None:
        if wait:
            await asyncio.sleep(wait)
        if stream is None or stream.is_lost or self._task.fresh_connections:
            await self._open_and_send(flight)
        else:
            self._send(stream, flight)

    def _drop(self, stream: Stream) -> None:
        self._streams.discard(stream)
        stream.abort()

    # what is done between the arrivals
    def _chores_soon(self) -> None:
        if not self._has_chores:
            self._has_chores = True
            self._loop.call_soon(self._chores)

    def _chores(self) -> None:
        """A little work of our own, between two looks at what has arrived.

        From the end of one to the end of the next, while there is more to do, is one turn of the loop without
        any waiting: so long can bytes have lain that the turn brought. A wave of answers that end together
        makes long turns, which alarms at even times do not see.
        """
        self._has_chores = False
        self._do_chores()
        now = _clock()
        if self._turn_began:
            self._turns[(now - self._turn_began) // 1000] += 1
        self._turn_began = now if self._has_chores else 0

    def _do_chores(self) -> None:
        """Requests to send, then a slice to read, a request to prepare."""
        for _ in range(min(_SENT_AT_ONCE, len(self._free))):
            self._turn(*self._free.popleft())
        if self._free:
            self._chores_soon()
            return
        for _ in range(1 + len(self._backlog) // 64):
            if not self._backlog:
                break
            self._read_one()
        is_wanting = (
            len(self._prepared) < self._to_prepare
            and not self._is_source_over
            and self._prepared_bytes < _PREPARED_BYTES
            and self._left != 0
        )
        if is_wanting:
            self._refill(1)
        if self._backlog or is_wanting:
            self._chores_soon()

    def _read_one(self) -> None:
        flight = self._backlog.popleft()
        if flight.slices:
            self._answers.read(flight)
            stream = flight.stream
            if stream is not None and stream.flight is flight:
                if flight.error is not None:
                    stream.abort()
                elif not flight.slices:
                    stream.go_on()
        if flight.is_over and not flight.slices:
            self._settle(flight)

    def _settle_now(self, flight: Flight) -> None:
        self._answers.read(flight, len(flight.slices))
        self._settle(flight)

    def _settle(self, flight: Flight) -> RequestRecord | None:
        """The record, once."""
        if flight.is_settled:
            return None
        flight.is_settled = flight.is_over = True
        return self._answers.finish(flight)

    def _beat(self, now: int) -> None:
        """Limits, cancellations, the shared page."""
        while self._deadlines and (self._deadlines[0][2].is_over or self._deadlines[0][0] <= now):
            _, stream, flight = self._deadlines.popleft()
            if not flight.is_over and stream.flight is flight:
                flight.error = Failed.TIME_LIMIT
                flight.detail = f"not finished within {self._task.request_limit_s:g} s"
                stream.abort()
        while self._cancels and self._cancels[0][0] <= now:
            _, _, stream, flight = heapq.heappop(self._cancels)
            if not flight.is_over and stream.flight is flight:
                flight.is_cancelled = True
                stream.abort()
        if self._until and now >= self._until and self._is_launching:
            self._is_launching = False
            self._check_over()
        self._beats += 1
        if self._beats % 5:
            return
        self._page.write(self._row, self._counts())
        wish = self._page.wish(self._row)
        if wish != self._wish:
            self._wish = Wish(wish)
            self._stop("stopped", cut=wish == Wish.CUT)

    def _counts(self) -> Counts:
        answers = self._answers
        return Counts(
            started=self._started,
            finished=len(answers.records),
            failed=answers.failed,
            running=self._running,
            events=answers.events,
            lag_us=self._heart.most_ns // 1000,
            first_tokens=answers.first_tokens,
        )

    def _stop(self, why: str, *, cut: bool = True) -> None:
        """Send nothing more; what runs is hung up or comes to its end."""
        self._is_launching = False
        self._cut = self._cut or why
        self._waiting.clear()
        self._free.clear()
        if cut:
            for stream in list(self._streams):
                flight = stream.flight
                if flight is not None and not flight.is_over:
                    flight.error = flight.error or Failed.STOPPED
                    stream.abort()
            for task in self._tasks:
                task.cancel()
        self._check_over()

    def _check_over(self) -> None:
        """Nothing runs and nothing will."""
        if self._over.done() or self._running or self._waiting or self._free:
            return
        if any(not task.done() for task in self._tasks):
            return
        if not self._is_launching or self._left == 0 or (self._is_source_over and not self._prepared):
            self._over.set_result(None)


def _descriptors_left() -> int:
    """Connections that this process may still open; at least one, so that its failure is told."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(1, soft - len(list(Path("/dev/fd").iterdir())) - _DESCRIPTORS_KEPT)


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _request_head(task: Task) -> bytes:
    """Everything before the number of the body's bytes."""
    target = task.target
    is_usual = target.port == {"http": 80, "https": 443}[target.scheme]
    host = target.authority.rpartition(":")[0] if is_usual else target.authority
    given = {name.lower() for name, _ in task.headers}
    lines = [f"POST {target.base}{task.path} HTTP/1.1", f"Host: {host}"]
    if "content-type" not in given:
        lines.append("Content-Type: application/json")
    if "accept" not in given:
        lines.append("Accept: text/event-stream, application/json")
    if "user-agent" not in given:
        lines.append("User-Agent: bringup")
    if target.api_key and "authorization" not in given:
        lines.append(f"Authorization: Bearer {target.api_key}")
    if task.fresh_connections:
        lines.append("Connection: close")
    lines += [f"{name}: {value}" for name, value in task.headers]
    return ("\r\n".join(lines) + "\r\nContent-Length: ").encode("utf-8")
