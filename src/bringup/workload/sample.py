"""One record of a data set, whatever its format: what is to be said, how long, and when."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from bringup.parse.json_value import Json
from bringup.workload.source import Raw, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one record asks for: a conversation that was had, or a length of filler."""

    messages: tuple[Mapping[str, Json], ...] = ()  # as the chat endpoint takes them, answers included
    input_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: tuple[int, ...] = ()  # blocks of a prompt: the same number, the same text
    at_s: float | None = None  # by the file's own clock
    own: Mapping[str, Json] = field(default_factory=dict[str, Json])  # further fields of this request's body


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of data files: how its text is cut into records, and how one of them is read.

    Cutting is cheap and done by every generator for the whole file; only its own records are read.
    """

    name: str
    words: str  # as a person says it
    wanted: str  # what a record looks like
    looks_like: Callable[[str], bool]  # by the beginning of the text
    cut: Callable[[Source], Iterator[Raw]]
    read: Callable[[Raw, str], Sample]  # of a record and the name of its file
    has_times: bool = False
    takes_first_turn: bool = (
        False  # of a conversation played as one request: its beginning, not all before the end
    )
