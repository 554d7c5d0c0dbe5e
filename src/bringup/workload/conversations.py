"""Conversations of several turns, in which each request carries all that was said before.

A turn is spliced into the bytes of the request before it: nothing of the history is encoded again.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from bringup.errors import UsageError
from bringup.values.bench import LoadRequest
from bringup.workload.calibration import Calibration
from bringup.workload.filler import filler, filler_text
from bringup.workload.lengths import Lengths
from bringup.workload.request_body import BodyPieces, BodyShape, body_pieces
from bringup.workload.synthetic import Synthetic, TextSource

_SYSTEM_NUMBER = 1 << 44  # where the openings of system prompts begin
_TURN_STEP = 1 << 36  # between the text numbers of the turns of one conversation


def say_next(
    pieces: BodyPieces, request: LoadRequest, answer: bytes, text: bytes, output_tokens: int
) -> bytes:
    """The body after `request`: its messages, the answer, and the user's next text.

    `answer` is a JSON string with its quotes; `text` stands for itself inside one.

    >>> from bringup.workload.request_body import whole_body
    >>> pieces = body_pieces(BodyShape(model="m"))
    >>> first = LoadRequest(index=0, body=whole_body(pieces, b"one", 8))
    >>> [said["content"] for said in json.loads(say_next(pieces, first, b'"two"', b"three", 9))["messages"]]
    ['one', 'two', 'three']
    """
    end = request.body.rindex(pieces.middle)
    return b'%b"},{"role":"assistant","content":%b},{"role":"user","content":"%b%b%d%b' % (
        request.body[:end],
        answer,
        text,
        pieces.middle,
        output_tokens,
        pieces.tail,
    )


def system_prompt(tokens: int, calibration: Calibration, *, seed: int) -> str:
    """A system prompt of filler for all conversations."""
    words = max(1, round(tokens / calibration.tokens_per_word))
    key = b"system %d" % seed
    return filler_text(filler(calibration.vocabulary), words, number=_SYSTEM_NUMBER + seed, key=key).decode()


def require_chat(shape: BodyShape) -> None:
    """Raises unless requests are chats.

    Raises:
        UsageError: they are completions, which have no turns.
    """
    if not shape.is_chat:
        raise UsageError("conversations need the chat endpoint", hint="leave out `--endpoint completions`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversations:
    """Synthetic conversations without end; the server's real answers are their history.

    The first message has exactly the asked length; a later one adds `turn_lengths`, and the whole prompt is
    as long as what was said before makes it.
    """

    first: Synthetic  # the first turn of every conversation
    turns: Lengths
    turn_lengths: Lengths  # tokens of every later message of the user
    pause_low_s: float = 0.0  # of the user between an answer and the next message
    pause_high_s: float = 0.0

    @property
    def words(self) -> str:
        """The workload in words."""
        pause = f", pauses of {self.pause_low_s:g} to {self.pause_high_s:g} s" if self.pause_high_s else ""
        return (
            f"{self.first.words}, conversations of {self.turns.words} turns, "
            f"{self.turn_lengths.words} in each later one{pause}"
        )

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The first turns of one generator's conversations."""
        for request in self.first.requests(generator, generators):
            yield replace(request, conversation=request.index)

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        """The turn after `request`, with the answer that came; None after the last one."""
        number, turn = request.conversation, request.turn + 1
        if number is None or turn >= self._turns(number):
            return None
        first = self.first
        draw = Random(f"{first.seed}/{number}/{turn}")  # noqa: S311 - reproducible on purpose
        words = first.calibration.words_for(self.turn_lengths.draw(draw) + first.calibration.overhead)
        output_tokens = first.output_lengths.draw(draw)
        text = TextSource(first).own(number + turn * _TURN_STEP, words)
        said = json.dumps(answer).encode()
        return replace(
            request,
            body=say_next(body_pieces(first.shape), request, said, text, output_tokens),
            output_tokens=output_tokens,
            input_tokens=None,
            at_s=None,
            turn=turn,
            pause_s=draw.uniform(self.pause_low_s, self.pause_high_s),
        )

    def _turns(self, conversation: int) -> int:
        return self.turns.draw(Random(f"{self.first.seed}/{conversation}"))  # noqa: S311 - reproducible
