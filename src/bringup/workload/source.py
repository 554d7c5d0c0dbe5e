"""A data file as pieces of text, so that a file of any size passes through bounded memory.

What opens files lives in `transport`; what cuts their text into records lives here.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from bringup.errors import UsageError
from bringup.parse.json_value import Json, json_or_none

_MOST_RECORD = 64 * 1_000_000  # characters: one record beyond that is another kind of file
_HEAD = 65_536  # characters that tell a format
_BETWEEN = re.compile(r"[\s,\ufeff]*")


class Source(Protocol):
    """A text that can be read again and again; a frozen record, so that it can be sent to another machine."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    def __iter__(self) -> Iterator[str]:
        """Its text in pieces of any size."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InMemory:
    """A text that is already here."""

    name: str
    text: str

    def __iter__(self) -> Iterator[str]:
        """The text in one piece."""
        yield self.text


@dataclass(frozen=True, slots=True)
class Raw:
    """One record of a file, not yet read: a line, or an object of an array."""

    line: int  # where it begins, from 1
    text: str = ""
    value: Json = None


def head(source: Source) -> str:
    """The beginning of a text, enough to tell its format."""
    found: list[str] = []
    length = 0
    for piece in source:
        found.append(piece)
        length += len(piece)
        if length >= _HEAD:
            break
    return "".join(found).removeprefix("\ufeff")[:_HEAD]


def lines(source: Source) -> Iterator[Raw]:
    """The lines that are not blank, with their numbers."""
    number, rest, is_first = 0, "", True
    for piece in source:
        text = rest + (piece.removeprefix("\ufeff") if is_first else piece)
        is_first = False
        *whole, rest = text.split("\n")
        for line in whole:
            number += 1
            if line and not line.isspace():
                yield Raw(number, line)
        if len(rest) > _MOST_RECORD:
            raise unreadable(source.name, number + 1, "a line", rest[:60])
    if rest and not rest.isspace():
        yield Raw(number + 1, rest)


def elements(source: Source) -> Iterator[Raw]:
    """The objects of a JSON array, one after the other, in bounded memory.

    Raises:
        UsageError: no JSON array of objects.
    """
    window = _Window(source.name)
    for piece in chain(source, (None,)):
        yield from window.take(piece)
        if window.is_closed:
            return


class _Window:
    """The part of a JSON array that has been received and not yet read."""

    def __init__(self, name: str) -> None:
        self.is_closed = False
        self._name = name
        self._text = ""
        self._at = 0
        self._line = 1
        self._is_open = False
        self._tried = 0  # characters of an object that was not whole: tried again at half as many more
        self._decoder = json.JSONDecoder()

    def take(self, piece: str | None) -> Iterator[Raw]:
        """The elements that are whole with this piece; `None` is the end of the file."""
        self._text = self._text[self._at :] + (piece or "")
        self._at = 0
        if piece is not None and 2 * len(self._text) < 3 * self._tried:
            return
        self._tried = 0
        while self._next_sign():
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError):
                self._tried = len(self._text) - self._at
                if piece is None or self._tried > _MOST_RECORD:
                    raise self._wrong("a whole JSON object") from None
                return
            yield Raw(self._line, value=value)
            self._move(end)
        if piece is None and not self.is_closed:
            raise self._wrong("`]` at the end of the array")

    def _next_sign(self) -> bool:
        """Go to the next element; False when none begins in what is here."""
        self._move(_end_of(_BETWEEN, self._text, self._at))
        if not self._is_open and self._at < len(self._text):
            if self._text[self._at] != "[":
                raise self._wrong("a JSON array")
            self._is_open = True
            self._move(_end_of(_BETWEEN, self._text, self._at + 1))
        if self._at == len(self._text):
            return False
        self.is_closed = self._text[self._at] == "]"
        if not self.is_closed and self._text[self._at] != "{":
            raise self._wrong("an object of the array")
        return not self.is_closed

    def _move(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end

    def _wrong(self, wanted: str) -> UsageError:
        found = self._text[self._at : self._at + 60]
        return unreadable(self._name, self._line, wanted, found or "the end of the file")


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def unreadable(name: str, line: int, wanted: str, found: str) -> UsageError:
    """The error for a record that is not what its format asks for."""
    shown = found if len(found) <= 80 else f"{found[:80]}..."
    return UsageError(f"wanted {wanted}, found `{shown}` in `{name}`, line {line}")


def json_object(raw: Raw, name: str) -> dict[str, Json]:
    """The JSON object of one record.

    Raises:
        UsageError: it is none.
    """
    value = raw.value if raw.value is not None else json_or_none(raw.text)
    if not isinstance(value, dict):
        raise unreadable(name, raw.line, "a JSON object", raw.text.strip())
    return value
