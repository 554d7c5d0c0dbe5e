"""A log file to the start in it that is meant."""

import gzip
import importlib.util
import pkgutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import bringup.engines
from bringup.engines import StartLogReader
from bringup.errors import UsageError
from bringup.parse.log_line import LogLine, read_lines
from bringup.parse.log_starts import chosen_start, split_starts
from bringup.units import MIB, bytes_text
from bringup.values.start_log import StartLog

_GZIP = b"\x1f\x8b"
_SNIFFED = 65_536  # bytes that decide whether a file is text
_MOST = 512 * MIB  # unpacked; guess: a start at the most talkative level writes some 10 MiB
# Engines whose lines are known by sight and whose starts are not read.
_UNREAD = {
    "TensorRT-LLM": ("[TRT-LLM]", "[TensorRT-LLM]"),
    "text-generation-inference": ("text_generation_launcher", "text_generation_router"),
    "LMDeploy": ("lmdeploy -", "[TM]["),
    "Ollama": ("source=server.go", "source=routes.go"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """One start of those in a file."""

    start: StartLog
    source: str  # the file
    count: int  # starts in the file
    place: int  # which of them, from 1

    @property
    def words(self) -> str:
        """Which start it is, where there are several or it did not come up."""
        where = f"lines {self.start.first_line} to {self.start.last_line}"
        if self.count > 1:
            kind = (
                "the last that serves" if self.start.is_ready else "none of them serves, this one tells most"
            )
            return f"start {self.place} of {self.count} in {self.source}, {where}: {kind}"
        return "" if self.start.is_ready else f"the start in {self.source} never says that it serves"


def find_start(path: Path) -> FoundStart:
    """The last start in the file that serves; without one, the start that tells most.

    Raises:
        UsageError: no such file, nothing in it, no text, or no start of an engine that is read.
    """
    return start_in(read_log(path), source=str(path))


def start_in(text: str, *, source: str) -> FoundStart:
    """The same of a log's text; `source` says where it is from.

    Raises:
        UsageError: no start of an engine that is read.
    """
    path = Path(source)
    lines = tuple(read_lines(text))
    readers = start_log_readers()
    counts = {name: sum(map(reader.recognise, lines)) for name, reader in readers.items()}
    name = max(counts, key=lambda one: counts[one])
    if not counts[name]:
        raise _unknown(path, lines)
    starts = tuple(readers[name].read(part) for part in split_starts(lines, readers[name].begins))
    place = chosen_start(starts)
    if not starts[place].cites:
        raise _nothing_told(path)
    return FoundStart(start=starts[place], source=source, count=len(starts), place=place + 1)


def start_log_readers() -> dict[str, StartLogReader]:
    """Every engine's reader of start-up logs, by the engine's name."""
    found: dict[str, StartLogReader] = {}
    for info in pkgutil.iter_modules(bringup.engines.__path__):
        name = f"bringup.engines.{info.name}.start_log"
        if importlib.util.find_spec(name) is not None:
            found[info.name] = cast("StartLogReader", importlib.import_module(name).START_LOG)
    return found


def read_log(path: Path) -> str:
    """The text of a log file, unpacked where it is gzip's.

    Raises:
        UsageError: it cannot be read, holds nothing, is no text or is larger than any start's log.
    """
    try:
        raw = _bytes_of(path)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read {path}: {error}") from None
    if b"\0" not in raw[:_SNIFFED] and len(raw) > _MOST:
        raise UsageError(
            f"{path} has more than {bytes_text(_MOST)}",
            hint="give the part from the first line of one start to its last",
        )
    if not raw.strip():
        raise UsageError(f"{path} is empty", hint="give the engine's own output, from its first line on")
    if b"\0" in raw[:_SNIFFED]:
        raise UsageError(
            f"{path} is no text: it holds zero bytes", hint="give the engine's log, as it wrote it"
        )
    return raw.decode("utf-8", "replace")


def _bytes_of(path: Path) -> bytes:
    """What the file holds, unpacked, up to a little more than is taken."""
    with path.open("rb") as file:
        begin = file.read(_SNIFFED)
        if begin.startswith(_GZIP):
            with gzip.open(path) as unpacked:
                return unpacked.read(_MOST + 1)
        return begin if b"\0" in begin else begin + file.read(_MOST + 1)


def _unknown(path: Path, lines: tuple[LogLine, ...]) -> UsageError:
    for engine, signs in _UNREAD.items():
        if any(sign in line.text for line in lines for sign in signs):
            return UsageError(
                f"{path} is a log of {engine}: its start-up log is not read",
                hint="logs of vLLM, SGLang and llama.cpp are",
            )
    return _nothing_told(path)


def _nothing_told(path: Path) -> UsageError:
    return UsageError(
        f"no start of an engine in {path}",
        hint="give the log of vLLM, SGLang or llama.cpp from its first line on (llama.cpp: at `-lv 4`)",
    )
