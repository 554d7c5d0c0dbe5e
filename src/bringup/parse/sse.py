"""Server-sent events out of a whole body, with the byte where each one ended.

Source: WHATWG HTML, section 9.2.6: lines end in CR, LF or CRLF; a blank line dispatches; a leading space of
the value is dropped; lines starting with a colon are comments.
"""

import re
from dataclasses import dataclass

_MOST_STRANGERS = 20  # kept; a page of another format has as many as it has lines
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LINE = re.compile(rb"([^\r\n]*)(\r\n|\n|\r|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One dispatched event."""

    data: str
    name: str = ""
    end: int  # bytes of the body up to and including the blank line that dispatched it


@dataclass(frozen=True, slots=True, kw_only=True)
class EventStream:
    """All events of a body and what was left undispatched at its end."""

    events: tuple[Event, ...]
    rest: str = ""  # bytes after the last dispatch: a cut frame
    strangers: tuple[str, ...] = ()  # the first lines that are no field of the format


def read_events(body: str) -> EventStream:
    r"""The events of a body. Ends count bytes of its UTF-8 form, in which U+FFFD for a bad byte is three.

    >>> [event.data for event in read_events("data: a\n\ndata:b\r\n\r\n: comment\n\ndata: [DONE]\n\n").events]
    ['a', 'b', '[DONE]']
    >>> read_events("data: a\n\ndata: {cut").rest
    'data: {cut'
    """
    raw = body.encode("utf-8")
    events: list[Event] = []
    strangers: list[str] = []
    data: list[str] = []
    name = ""
    dispatched = 0
    start = len(_BYTE_ORDER_MARK) if raw.startswith(_BYTE_ORDER_MARK) else 0
    for match in _LINE.finditer(raw, start):
        if match.start() == len(raw):
            break
        line = match[1].decode("utf-8", "replace")
        if not match[2]:  # the last line without its end: cut
            break
        if line == "":
            if data:
                events.append(Event(data="\n".join(data), name=name, end=match.end()))
            data, name, dispatched = [], "", match.end()
            continue
        if line.startswith(":"):
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field not in ("id", "retry") and len(strangers) < _MOST_STRANGERS:
            strangers.append(line)
    rest = raw[dispatched:].decode("utf-8", "replace")
    return EventStream(events=tuple(events), rest=rest, strangers=tuple(strangers))
