"""Framed output of a script of questions to results, as it arrives."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from bringup.parse.redact import redact
from bringup.transport.script import ANSWER_LIMIT, CLOCK_KEY, ERROR_LIMIT
from bringup.values.host import CommandResult, Question

_UPTIME_STEP = 0.01  # seconds, the resolution of /proc/uptime
_NOISE_LIMIT = 4_000  # bytes of what is no frame that are kept for error messages


class FrameSplitter:
    """Cuts one stream into data and frames, however the stream was cut into reads."""

    def __init__(self, nonce: str) -> None:
        self._marker = b"\n" + nonce.encode("ascii") + b" "
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes | str]:
        """Pieces in their order: bytes are data, a str is the text of a frame."""
        self._rest += data
        pieces: list[bytes | str] = []
        while True:
            start = self._rest.find(self._marker)
            if start < 0:
                self._emit(pieces, max(0, len(self._rest) - len(self._marker) + 1))
                return pieces
            self._emit(pieces, start)
            end = self._rest.find(b"\n", len(self._marker))
            if end < 0:
                return pieces
            pieces.append(self._rest[len(self._marker) : end].decode("ascii", "replace"))
            self._rest = self._rest[end + 1 :]

    def finish(self) -> bytes:
        """What was held back because it could have become a frame."""
        rest, self._rest = self._rest, b""
        return rest

    def _emit(self, pieces: list[bytes | str], count: int) -> None:
        if count:
            pieces.append(self._rest[:count])
            self._rest = self._rest[count:]


@dataclass(slots=True)
class _Bounded:
    """Bytes up to a limit, and whether there were more."""

    limit: int
    data: bytearray = field(default_factory=bytearray)
    is_cut: bool = False

    def add(self, data: bytes) -> None:
        room = self.limit - len(self.data)
        self.data += data[:room]
        self.is_cut = self.is_cut or len(data) > room

    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(slots=True)
class _Progress:
    """What is known of one question so far."""

    question: Question
    out: _Bounded = field(default_factory=lambda: _Bounded(ANSWER_LIMIT))
    err: _Bounded = field(default_factory=lambda: _Bounded(ERROR_LIMIT))
    begun: float | None = None  # our clock
    begun_there: float | None = None  # the host's uptime
    ended: float | None = None
    status: int | None = None
    timed_out: bool = False
    skipped: bool = False
    elapsed: float | None = None
    received_at: float | None = None
    stuck: str = ""
    open_ends: int = 2  # frames still to come: one per stream


class Collector:
    """Results of one round, filled from both output streams. Clocks come in as arguments."""

    def __init__(self, questions: Sequence[Question], nonce: str, secrets: Collection[str] = ()) -> None:
        self._progress = [_Progress(question) for question in questions]
        self._secrets = tuple(secrets)
        self._splitters = {"out": FrameSplitter(nonce), "err": FrameSplitter(nonce)}
        self._current: dict[str, _Progress | None] = {"out": None, "err": None}
        self._noise = {"out": bytearray(), "err": bytearray()}
        self._open_streams = {"out", "err"}
        self._asked_at: float | None = None
        self._clock: CommandResult | None = None
        self.last_activity: float | None = None
        self.is_begun = False  # a frame arrived: the host's shell runs our script

    @property
    def is_done(self) -> bool:
        """Whether every answer is here."""
        return not self._open_streams

    @property
    def running(self) -> Question | None:
        """The question that the host is at."""
        current = self._current["out"]
        return None if current is None else current.question

    def begin(self, now: float) -> None:
        """Note when the script was sent."""
        self._asked_at = self.last_activity = now

    def feed(self, stream: str, data: bytes, now: float, wall: float) -> None:
        """Take in what arrived on "out" or "err"; `now` is monotonic, `wall` Unix time."""
        self.last_activity = now
        for piece in self._splitters[stream].feed(data):
            if isinstance(piece, bytes):
                self._data(stream, piece)
            else:
                self._frame(stream, piece.split(" "), now, wall)

    def noise(self) -> str:
        """What the host said outside of all frames: banners, shell start-up, errors of ssh."""
        parts = [bytes(self._noise["err"]), bytes(self._noise["out"])]
        if not self.is_begun:
            parts = [self._noise[name] + self._splitters[name].finish() for name in ("err", "out")]
        text = b"\n".join(part.strip() for part in parts if part.strip()).decode("utf-8", "replace")
        return redact(text, self._secrets)

    def results(self, broken: str) -> dict[str, CommandResult]:
        """One result per question; `broken` says why there is no more, for those that have none."""
        results = {item.question.key: self._result(item, broken) for item in self._progress}
        results[CLOCK_KEY] = self._clock or CommandResult(key=CLOCK_KEY, status=None, skipped=broken)
        return results

    def _data(self, stream: str, data: bytes) -> None:
        current = self._current[stream]
        if current is None:
            noise = self._noise[stream]
            noise += data
            del noise[:-_NOISE_LIMIT]
        elif stream == "out":
            current.out.add(data)
        else:
            current.err.add(data)

    def _frame(self, stream: str, words: list[str], now: float, wall: float) -> None:
        self.is_begun = True
        kind = words[0]
        if kind == "D":
            self._open_streams.discard(stream)
        elif kind == "C":
            elapsed = None if self._asked_at is None else now - self._asked_at
            self._clock = CommandResult(
                key=CLOCK_KEY, status=0, stdout=words[1] + "\n", elapsed_s=elapsed, received_at=wall
            )
        elif kind == "S":
            self._progress[int(words[1])].skipped = True
        elif kind == "B":
            self._begin_question(stream, self._progress[int(words[1])], words, now)
        elif kind == "E":
            self._end_question(stream, self._progress[int(words[1])], words, now, wall)

    def _begin_question(self, stream: str, item: _Progress, words: list[str], now: float) -> None:
        self._current[stream] = item
        if stream == "out":
            item.begun, item.begun_there = now, _number(words[2])

    def _end_question(self, stream: str, item: _Progress, words: list[str], now: float, wall: float) -> None:
        self._current[stream] = None
        item.open_ends -= 1
        if stream == "err":
            return
        item.ended, item.received_at = now, wall
        item.status, item.timed_out = int(words[2]), words[3] == "1"
        there, item.stuck = _number(words[4]), words[5]
        item.elapsed = None if item.begun is None else now - item.begun
        if there is not None and item.begun_there is not None:
            # The host counts in hundredths; ours is finer but has the link in it: kept where they agree.
            on_host = max(0.0, there - item.begun_there)
            if item.elapsed is None or abs(item.elapsed - on_host) > _UPTIME_STEP:
                item.elapsed = on_host

    def _result(self, item: _Progress, broken: str) -> CommandResult:
        question = item.question
        if item.skipped:
            reason = f"an earlier question of the group `{question.group}` ran into its time limit"
            return CommandResult(key=question.key, status=None, skipped=reason)
        if item.begun is None:
            return CommandResult(key=question.key, status=None, skipped=broken)
        is_whole = item.open_ends == 0
        return CommandResult(
            key=question.key,
            status=None if item.timed_out or not is_whole else item.status,
            stdout=redact(item.out.text(), self._secrets),
            stderr=redact(item.err.text(), self._secrets),
            timed_out=item.timed_out,
            skipped="" if is_whole else f"{broken} (while it was being asked)",
            elapsed_s=item.elapsed,
            received_at=item.received_at,
            remark=_remark(item),
        )


def _remark(item: _Progress) -> str:
    remarks = [
        f"{name} cut off after {part.limit} bytes"
        for name, part in (("standard output", item.out), ("standard error", item.err))
        if part.is_cut
    ]
    stuck = [part.split(":") for part in item.stuck.split(",") if part]
    if stuck:
        listed = ", ".join(f"{pid} (state {state})" for pid, state in stuck)
        remarks.append(f"still there after SIGKILL: process {listed}")
    return "; ".join(remarks)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
