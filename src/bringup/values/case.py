"""A sick start as the rules see it: lines that may matter, facts around them, what probes measured."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bringup.values.host import HostSnapshot
from bringup.values.model_shape import ModelShape
from bringup.values.start_log import Phase, StartLog

# What a page about failures has around a message, and a log has not: rows of tables, lists with code in them.
_PAGE = re.compile(r"^\s*\|.*\|.*\|\s*$|^\s*(?:[-*]|\d+\.)\s.*(?:`|\*\*)|^#{1,4} ")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLine:
    """A line of the log without the prefixes of collectors and ranks."""

    number: int  # 1-based, of the original input
    text: str
    raw: str = ""  # as it stood there, secrets taken out
    rank: str | None = None  # "TP0", "EngineCore", ...
    time: float | None = None  # seconds; only differences mean something
    phase: Phase | None = None  # of the start, as far as the lines before say


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A frame of a traceback."""

    file: str  # "vllm/v1/worker/gpu_worker.py": without what stands before the package
    line: int
    function: str
    number: int  # of the log's line

    @property
    def is_engine(self) -> bool:
        """Whether it is the engine's own code, not that of a library under it."""
        return self.file.startswith(("vllm/", "sglang/", "tensorrt_llm/", "llama_cpp/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceback:
    """One traceback: its frames, outermost first, and the exception below them."""

    frames: tuple[Frame, ...]
    error: CaseLine | None  # "torch.OutOfMemoryError: CUDA out of memory. Tried to ..."
    rank: str | None = None

    @property
    def innermost(self) -> Frame | None:
        """The innermost frame of the engine's own code; the innermost of all where there is none."""
        own = [frame for frame in self.frames if frame.is_engine]
        return (own or list(self.frames) or [None])[-1]

    def passes(self, pattern: str) -> bool:
        """Whether any frame's `file:function` matches."""
        return any(re.search(pattern, f"{frame.file}:{frame.function}") for frame in self.frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run of one engine: of its log every line that any rule's literal is in, and its neighbours.

    `facts` is what the engine's start-up log says (engine, version, flags, model, sizes); with no recognised
    start it holds only what single lines tell.
    """

    lines: tuple[CaseLine, ...]
    tracebacks: tuple[Traceback, ...] = ()
    facts: StartLog | None = None
    engine: str | None = None  # "vllm", "sglang", "llama_cpp", ...; None: not told
    version: str | None = None
    flags: dict[str, str] = field(default_factory=dict[str, str])  # canonical names, as `EngineSpec.flags`
    phase: Phase | None = None  # how far it came
    is_ready: bool = False  # it served
    total_lines: int = 0
    known_flags: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])  # by engine
    host: HostSnapshot | None = None  # what probes measured, with --host
    texts: dict[str, str] = field(default_factory=dict[str, str])  # raw answers of further probes, by key
    argv: tuple[str, ...] = ()  # the command, as far as the log shows it
    environment: dict[str, str] = field(default_factory=dict[str, str])  # variables that the log shows
    model: str | None = None
    shape: ModelShape = field(default_factory=ModelShape)  # of the model, as far as it is known here
    versions: dict[str, str] = field(
        default_factory=dict[str, str]
    )  # "torch" -> "2.8.0+cu128", "driver", ...
    gpus: tuple[str, ...] = ()  # names of the cards, one per card

    def matches(self, pattern: re.Pattern[str]) -> Iterator[tuple[CaseLine, re.Match[str]]]:
        """Every line that the pattern is found in, in order; none of a page about failures or a binary."""
        for line in self.lines:
            found = pattern.search(line.text)
            if found is not None and not _PAGE.search(line.raw) and "\0" not in line.raw:
                yield line, found

    def first(self, pattern: re.Pattern[str]) -> tuple[CaseLine, re.Match[str]] | None:
        """The first line that the pattern is found in."""
        return next(self.matches(pattern), None)

    def says(self, *patterns: str) -> bool:
        """Whether any of these is found anywhere."""
        return any(re.search(pattern, line.text) for pattern in patterns for line in self.lines)

    def traceback_of(self, line: CaseLine) -> Traceback | None:
        """The traceback that this line ends, or stands in."""
        for one in self.tracebacks:
            if one.error is not None and one.error.number == line.number:
                return one
        return None
