"""Kept lines of a log to cases: one per run of an engine in it, with the facts around it."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from bringup import registry
from bringup.engines import Engine, StartLogReader, spec_of
from bringup.flows.known_flags import known_flags
from bringup.flows.start_log import start_log_readers
from bringup.parse.case_lines import ReadLine, case_lines
from bringup.parse.log_line import LogLine
from bringup.parse.log_starts import split_starts
from bringup.parse.log_surroundings import engine_named, read_surroundings
from bringup.parse.traceback import read_tracebacks
from bringup.values.case import Case
from bringup.values.engine import EngineSpec

_COMMAND = re.compile(
    r"(?:vllm serve\b|\S*python\S* -m (?:vllm|sglang|tensorrt_llm)[\w.]*|\bsglang\.launch_server\b|"
    r"sglang serve\b|"
    r"\S*llama-server\b|\S*llama-cli\b|trtllm-serve\b|(?:\w+ )*docker run\b|podman run\b|\S*api_server\b)"
)
_CONTINUED = re.compile(r"\\\s*$")
_MOST_CONTINUED = 60  # lines of one command
_RESTARTED = re.compile(r"Scheduled restart job, restart counter is at \d+")
_SHELL = re.compile(r"(?:\d?>|&|\||;|<|\.\.\.$)")  # what a shell does with the command's output
_MOST_RUNS = 64
_PROSE = {"with", "without", "to", "the", "and", "or", "for", "instead", "is", "was"}  # no word of a command
_ONLY_NAMES = 2  # a run that sets less than this names its program and no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of an engine in a log."""

    case: Case
    place: int  # from 1
    first_line: int
    last_line: int


def cases_of(lines: Sequence[ReadLine], *, total_lines: int) -> tuple[Run, ...]:
    """Every run in the log as a case, in the order in which they ran."""
    readers = start_log_readers()
    name = _engine_of(lines, readers)
    reader = readers.get(name or "")
    parts = _parts(lines, reader)
    runs = [_run(part, name, reader, total_lines) for part in parts]
    return tuple(
        Run(
            case=case,
            place=place,
            first_line=min(one.line.number for one in part),
            last_line=max(one.line.number for one in part),
        )
        for place, (part, case) in enumerate(zip(parts, runs, strict=True), start=1)
    )


def _engine_of(lines: Sequence[ReadLine], readers: Mapping[str, StartLogReader]) -> str | None:
    """The engine whose lines these are: by what only it writes, else by frames and names."""
    counts = {name: sum(reader.recognise(one.line) for one in lines) for name, reader in readers.items()}
    name = max(counts, key=lambda one: counts[one])
    return name if counts[name] else engine_named(one.line.text for one in lines)


def _parts(lines: Sequence[ReadLine], reader: StartLogReader | None) -> tuple[tuple[ReadLine, ...], ...]:
    """The lines of each run; together with what a service manager says of its restarts."""

    def begins(line: LogLine) -> str | None:
        if _RESTARTED.search(line.text):
            return "restart"
        return reader.begins(line) if reader else None

    by_line = {id(one.line): one for one in lines}
    parts = split_starts([one.line for one in lines], begins)
    if len(parts) > _MOST_RUNS:
        parts = (*parts[: _MOST_RUNS // 2], *parts[-_MOST_RUNS // 2 :])
    return tuple(tuple(by_line[id(line)] for line in part) for part in parts)


def _run(
    lines: Sequence[ReadLine], engine: str | None, reader: StartLogReader | None, total_lines: int
) -> Case:
    start = reader.read([one.line for one in lines]) if reader else None
    if start is not None and not start.cites and not start.phases:
        start = None
    texts = case_lines(lines, start)
    around = read_surroundings(texts)
    told = start.spec if start else None
    spec = _fuller(told, _command_in(lines, told))
    tracebacks = read_tracebacks((one.source, line) for one, line in zip(lines, texts, strict=True))
    return Case(
        lines=texts,
        tracebacks=tracebacks,
        facts=start,
        engine=engine or (spec.engine if spec else None),
        version=(start.version if start else None) or around.version_of(engine),
        flags=dict(spec.flags) if spec else {},
        phase=start.phases[-1].name if start and start.phases else None,
        is_ready=start is not None and start.is_ready,
        total_lines=total_lines,
        argv=spec.argv if spec else (),
        environment={**around.environment, **(spec.environment if spec else {})},
        model=(start.model if start else None) or (spec.model if spec else None),
        versions=around.versions,
        gpus=around.gpus,
        known_flags=known_flags(),
    )


def _fuller(told: EngineSpec | None, typed: EngineSpec | None) -> EngineSpec | None:
    """The flags that the engine says it has, and those of the command that only the command shows."""
    if told is None or typed is None or told.engine != typed.engine:
        return told or typed
    return replace(
        typed,
        flags={**typed.flags, **told.flags},
        model=told.model or typed.model,
        environment={**told.environment, **typed.environment},
    )


def _command_in(lines: Sequence[ReadLine], told: EngineSpec | None) -> EngineSpec | None:
    """What the last engine's command line in the log wants: typed before it, or printed by a wrapper.

    Of several the one that says least against what the engine says it has, then the fullest.
    """
    engines = cast("Mapping[str, Engine]", registry.load("bringup.engines", "ENGINE"))
    flags = told.flags if told else {}
    found: EngineSpec | None = None
    best = (0, 0)
    for words in _commands(lines):
        spec = spec_of(engines, words)
        if spec is None or not (spec.model or "--config" in spec.flags):
            continue  # a hint how to start it
        against = sum(flags.get(name, value) != value for name, value in spec.flags.items())
        rank = (-against, len(spec.flags))
        if found is None or rank >= best:
            found, best = spec, rank
    return found


def _commands(lines: Sequence[ReadLine]) -> Iterator[tuple[str, ...]]:
    for place, one in enumerate(lines):
        match = _COMMAND.search(one.line.text) if len(one.line.text) < 8192 else None
        if match is None:
            continue
        text = one.line.text[match.start() :]
        for after in lines[place + 1 : place + _MOST_CONTINUED]:
            if not _CONTINUED.search(text):
                break
            text = f"{_CONTINUED.sub('', text)} {after.line.text}"
        try:
            words = shlex.split(text, comments=True)
        except ValueError:
            words = text.split()
        words = words[: next((at for at, word in enumerate(words) if _SHELL.match(word)), len(words))]
        if len(words) > _ONLY_NAMES and not _PROSE & set(words):
            yield tuple(words)
