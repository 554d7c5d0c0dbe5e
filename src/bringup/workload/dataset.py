"""Requests from a data file: its prompts and chats as they are, or filler of its lengths and shared blocks.

The number of a request is the number of its record, so that a record which is left out leaves a gap and every
generator counts alike.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from random import Random

from bringup.errors import UsageError
from bringup.parse.json_value import Json, json_or_none, list_at, text_at
from bringup.values.bench import LaterTurn, LoadRequest
from bringup.workload.detect import FORMATS, detect
from bringup.workload.lengths import Lengths
from bringup.workload.request_body import BodyShape, body_pieces, chat_request_body, prompt_body, whole_body
from bringup.workload.sample import Format, Sample
from bringup.workload.source import Raw, Source, unreadable
from bringup.workload.synthetic import Synthetic, TextSource

_CHARACTERS_PER_TOKEN = 4.2  # guess: English prose in a vocabulary of 100,000 and more
_BLOCKS = (512, 16, 32, 64, 128, 256, 1024, 2048, 4096)  # tokens, the usual one first
_LOOKED_AT = 200  # records that tell the size of blocks
_UNSORTED_S = 1e-6  # times that go back by less are rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """The requests of a data file.

    Texts are taken as they are: what a prefix cache has seen, it knows. Filler of a trace's lengths differs
    with the salt, and what the trace shares is shared.
    """

    source: Source
    format: str  # a key of FORMATS
    padding: Synthetic  # body, calibration, seed and salt of the filler
    output_lengths: Lengths | None = None  # in place of the file's own
    keeps_times: bool = False  # requests are due when the file says, else when a stream is free
    speed: float = 1.0  # 2: twice as fast as the file
    plays_turns: bool = False  # a conversation turn by turn; else one request with its history
    takes_own_answers: bool = False  # of the file for the history, in place of the server's
    pause_low_s: float = 0.0  # of the user before a later turn
    pause_high_s: float = 0.0
    repeats: bool = False  # begins again at the end
    longest_input: int | None = None  # tokens: records with more are left out, where the file tells
    block_tokens: int = 512  # of the trace's hashes

    @property
    def words(self) -> str:
        """The workload in words."""
        said = [f"{self._format.words} `{self.source.name}`"]
        if self._format.has_times and not self._format.takes_first_turn:
            said.append(f"filler ({self.padding.calibration.words})")
        if self.keeps_times:
            said.append("at its times" + (f", {self.speed:g} times as fast" if self.speed != 1 else ""))
        if self.plays_turns:
            said.append(f"turn by turn with {'its own' if self.takes_own_answers else 'real'} answers")
        if self.output_lengths is not None:
            said.append(f"{self.output_lengths.words} out")
        if self.longest_input is not None:
            said.append(f"prompts of up to {self.longest_input} tokens")
        return ", ".join(said)

    @property
    def _format(self) -> Format:
        return FORMATS[self.format]

    def requests(self, generator: int, generators: int) -> Iterator[LoadRequest]:
        """The requests of one generator, to the end of the file or, repeated, without end."""
        maker, index, passed_s = _Maker(self), 0, 0.0
        idle = 0  # passes over the file without a record of this generator's that is of use
        while idle < generators:
            clock, begun, last = _Clock(self), index, None
            idle += 1
            for raw in self._format.cut(self.source):
                if index == begun:
                    clock.start(raw)
                if index % generators == generator and (sample := maker.sample(raw)) is not None:
                    at_s, idle = clock.at(sample, raw), 0
                    yield maker.request(sample, index, None if at_s is None else passed_s + at_s)
                index, last = index + 1, raw
            if not self.repeats or last is None:
                return
            passed_s += clock.length(last, index - begun)

    def next_turn(self, request: LoadRequest, answer: str) -> LoadRequest | None:
        """The next turn of a conversation that is played turn by turn."""
        if not request.later:
            return None
        turn, *rest = request.later
        body = json_or_none(request.body.decode())
        if not isinstance(body, dict):
            return None
        said = answer if turn.answer is None else turn.answer
        messages: list[Json] = [
            *list_at(body, "messages"),
            {"role": "assistant", "content": said},
            {"role": "user", "content": turn.text},
        ]
        shape = self.padding.shape
        fields = {**body, "messages": messages}
        if turn.output_tokens is not None:
            fields[shape.output_field] = turn.output_tokens
        return replace(
            request,
            body=json.dumps(fields, separators=(",", ":")).encode(),
            output_tokens=turn.output_tokens,
            input_tokens=None,
            at_s=None,
            turn=request.turn + 1,
            pause_s=turn.pause_s,
            later=tuple(rest),
        )


def open_dataset(source: Source, padding: Synthetic, *, format_name: str | None = None) -> Dataset:
    """A data set with its format and the block size of its hashes found out.

    Raises:
        UsageError: no format that is known, or its first record cannot be read.
    """
    found = FORMATS[format_name] if format_name else detect(source)
    first = [found.read(raw, source.name) for raw in islice(found.cut(source), _LOOKED_AT)]
    if not first:
        raise UsageError(f"no record in `{source.name}`", hint=f"wanted {found.wanted}")
    return Dataset(
        source=source, format=found.name, padding=padding, block_tokens=_block_tokens(first, source.name)
    )


def _block_tokens(samples: list[Sample], name: str) -> int:
    """The block size with which every record has as many hashes as blocks."""
    hashed = [(one.input_tokens, len(one.hash_ids)) for one in samples if one.input_tokens and one.hash_ids]
    for size in _BLOCKS:
        if all(-(-tokens // size) == blocks for tokens, blocks in hashed):
            return size
    raise UsageError(
        f"the `hash_ids` of `{name}` are of no block size that fits its `input_length`",
        hint=f"tried blocks of {', '.join(map(str, sorted(_BLOCKS)))} tokens",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What a whole data file holds."""

    records: int
    used: int  # without those left out
    length_s: float | None  # from the first request to the last, at the file's own speed
    mean_input_tokens: float | None
    mean_output_tokens: float | None
    most_input_tokens: int | None


def survey(dataset: Dataset) -> Survey:
    """Reads the whole file once, so that an error comes before the load and not in the midst of it.

    Raises:
        UsageError: a record cannot be read, or the times go back.
    """
    clock, maker = _Clock(dataset), _Maker(dataset)
    records = used = 0
    length_s: float | None = None
    inputs, outputs = _Mean(), _Mean()
    for raw in FORMATS[dataset.format].cut(dataset.source):
        if not records:
            clock.start(raw)
        records += 1
        if (sample := maker.sample(raw)) is None:
            continue
        used += 1
        length_s = clock.at(sample, raw)
        inputs.add(sample.input_tokens)
        outputs.add(sample.output_tokens)
    return Survey(
        records=records,
        used=used,
        length_s=length_s,
        mean_input_tokens=inputs.mean,
        mean_output_tokens=outputs.mean,
        most_input_tokens=inputs.most,
    )


class _Mean:
    """The mean and the largest of the numbers that were told."""

    def __init__(self) -> None:
        self.most: int | None = None
        self._total = self._count = 0

    def add(self, number: int | None) -> None:
        if number is not None:
            self._total += number
            self._count += 1
            self.most = number if self.most is None else max(self.most, number)

    @property
    def mean(self) -> float | None:
        return self._total / self._count if self._count else None


class _Clock:
    """The file's own times as seconds after its first record, if they are kept."""

    def __init__(self, dataset: Dataset) -> None:
        self._of = dataset
        self._start: float | None = None
        self._before = 0.0

    def start(self, first: Raw) -> None:
        """The first record is at 0."""
        if self._of.keeps_times:
            self._start = self._time(FORMATS[self._of.format].read(first, self._of.source.name), first)

    def at(self, sample: Sample, raw: Raw) -> float | None:
        """When a record is due; None when no times are kept."""
        if self._start is None:
            return None
        at_s = (self._time(sample, raw) - self._start) / self._of.speed
        if at_s < self._before - _UNSORTED_S:
            raise unreadable(
                self._of.source.name, raw.line, "a time not before the one above", f"{sample.at_s}"
            )
        self._before = max(at_s, self._before)
        return self._before

    def length(self, last: Raw, records: int) -> float:
        """How long all records take, with a mean gap after the last."""
        sample = FORMATS[self._of.format].read(last, self._of.source.name)
        return (self.at(sample, last) or 0.0) * (records / (records - 1) if records > 1 else 1.0)

    def _time(self, sample: Sample, raw: Raw) -> float:
        if sample.at_s is None:
            wanted = "a time in every record"
            raise unreadable(self._of.source.name, raw.line, wanted, raw.text.strip() or "none")
        return sample.at_s


class _Maker:
    """Makes requests of records."""

    def __init__(self, dataset: Dataset) -> None:
        self._of = dataset
        self._format = FORMATS[dataset.format]
        self._shape: BodyShape = dataset.padding.shape
        self._pieces = body_pieces(self._shape)
        self._text = TextSource(dataset.padding)
        self._draw = Random()  # noqa: S311 - reproducible on purpose

    def sample(self, raw: Raw) -> Sample | None:
        """What a record says; None when it is left out: it asks nothing, or too much."""
        sample = self._format.read(raw, self._of.source.name)
        longest = self._of.longest_input
        if longest is not None and (sample.input_tokens or 0) > longest:
            return None
        if sample.messages or sample.input_tokens:
            return sample if not sample.messages or _users(sample.messages) else None
        return None

    def request(self, sample: Sample, index: int, at_s: float | None) -> LoadRequest:
        """The request of a record."""
        self._draw.seed(self._of.padding.seed * (1 << 64) + index)
        made = self._said(sample, index) if sample.messages else self._filled(sample, index)
        return made if at_s is None else replace(made, at_s=at_s)

    def _filled(self, sample: Sample, index: int) -> LoadRequest:
        """Filler of the record's length; blocks with the same hash are the same text."""
        calibration = self._of.padding.calibration
        tokens = sample.input_tokens or 1
        output_tokens = self._output_tokens(sample, None) or 1
        if sample.hash_ids:
            block_words = max(1, round(self._of.block_tokens / calibration.tokens_per_word))
            text = self._text.blocks(sample.hash_ids, block_words, calibration.words_for(tokens))
        else:
            text = self._text.prompt(index, tokens)
        return LoadRequest(
            index=index,
            body=whole_body(self._pieces, text, output_tokens),
            output_tokens=output_tokens,
            input_tokens=calibration.meant(tokens),
        )

    def _said(self, sample: Sample, index: int) -> LoadRequest:
        """The record's own messages, whole or to the first of the user."""
        of, users = self._of, _users(sample.messages)
        has_one_turn = of.plays_turns or self._format.takes_first_turn
        end = users[0] if has_one_turn else users[-1]
        output_tokens = self._output_tokens(sample, _answer_after(sample.messages, end))
        later = tuple(self._later(sample, users)) if of.plays_turns else ()
        opening = sample.messages[: end + 1]
        return LoadRequest(
            index=index,
            body=self._body(opening, output_tokens, sample.own),
            output_tokens=output_tokens,
            conversation=index if of.plays_turns else None,
            later=later,
        )

    def _later(self, sample: Sample, users: list[int]) -> Iterator[LaterTurn]:
        for before, at in pairwise(users):
            answer = _answer_after(sample.messages, before)
            yield LaterTurn(
                text=text_at(sample.messages[at].get("content")) or "",
                output_tokens=self._output_tokens(sample, _answer_after(sample.messages, at)),
                answer=answer if self._of.takes_own_answers else None,
                pause_s=self._draw.uniform(self._of.pause_low_s, self._of.pause_high_s),
            )

    def _body(
        self, messages: tuple[Mapping[str, Json], ...], output_tokens: int | None, own: Mapping[str, Json]
    ) -> bytes:
        if self._shape.is_chat:
            return chat_request_body(self._shape, messages, output_tokens, own)
        texts = [text_at(one.get("content")) or "" for one in messages]
        return prompt_body(self._shape, "\n\n".join(texts), output_tokens, own)

    def _output_tokens(self, sample: Sample, answer: str | None) -> int | None:
        """The asked length: the user's, the record's, else about that of the file's own answer."""
        if self._of.output_lengths is not None:
            return self._of.output_lengths.draw(self._draw)
        if sample.output_tokens is not None or answer is None:
            return sample.output_tokens
        return max(1, round(len(answer) / _CHARACTERS_PER_TOKEN))


def _users(messages: tuple[Mapping[str, Json], ...]) -> list[int]:
    """Where the user speaks."""
    return [at for at, one in enumerate(messages) if one.get("role") == "user"]


def _answer_after(messages: tuple[Mapping[str, Json], ...], at: int) -> str | None:
    """The file's own answer to the message at a place."""
    if at + 1 == len(messages) or messages[at + 1].get("role") != "assistant":
        return None
    return text_at(messages[at + 1].get("content"))
