"""One line of an engine's log without what others wrote before it: collectors, containers, colours, Ray.

An engine's own prefix may stand anywhere in a line (a progress bar without a line end is often before it), so
it is searched for; what stands before it goes away. Only lines without one lose known outer prefixes step by
step. Nothing here knows what a message means.

Source: vLLM 0.8 to 0.33 `logging_utils/formatter.py`, SGLang 0.5.5 to 0.5.23 `srt/utils/common.py`
(`configure_logger`), llama.cpp b11434 `common/log.cpp`; journald short, short-iso; docker, compose,
kubelet; rsyslog 8.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from bringup.parse.json_value import Json, at, json_or_none

_COLOUR = re.compile(r"(?:\x1b|\^\[|#033)\[[0-9;?]*[A-Za-z]|\[(?:\d{1,2}(?:;\d{1,2})*)m")
_LEVEL = (
    r"(?:INFO|WARNING|ERROR|DEBUG|CRITICAL)\s+"
    r"(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?\s+(?:\[[^\]\s]*\]|[\w./]+\.py:\d+\])(?: |$)"
)
_VLLM = re.compile(_LEVEL)
_PROCESS = re.compile(
    r"\((?P<name>[A-Za-z_][\w.-]*)(?: rank=(?P<rank>\d+))? pid=(?P<pid>\d+)(?:, ip=[^)\s]*)?\) ?"
)
_SGLANG = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?P<tags>(?: [A-Z_]+\d+)*)\](?: |$)")
_LLAMA = re.compile(r"(?:^|(?<=\s))(?P<minutes>\d{1,6})\.(?P<seconds>\d\d)\.(?P<micro>\d{3}\.\d{3}) [IWEDT] ")
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
_LEVEL_WORDS = r"(?:TRACE|DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b"
_OUTER = re.compile(
    "|".join(
        (
            # rsyslog's own form, of a program without a process id; a level there is no host.
            rf"(?P<far_iso>\d{{4}}-\d\d-\d\dT[\d:.]+[+-]\d\d:\d\d) (?!{_LEVEL_WORDS})[\w.-]+ [\w@.\-]+: ?",
            rf"<\d+>1 (?P<sys_iso>{_ISO}) \S+ \S+ \S+ \S+ (?:-|\[[^\]]*\]) {{1,2}}",  # RFC 5424
            rf"\s*\[?(?P<iso>{_ISO})\]?(?=\s|$)\s?",
            r"(?:stdout|stderr) [FP] ",
            r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w@.\-/]+(?:\[\d+\])?: ?",
            r"[\w.-]+ [\w@.\-]+\[\d+\]: ?",
            r"\[pod/[^\]\s]+\] ",
            r"\s*\| ",
            r">\s",
            r"[A-Za-z][\w.-]{0,60} {1,40}\| ",
        )
    )
)
_REPEATED = re.compile(r"\s*\[repeated (\d+)x across (?:all nodes in the )?cluster\].*$")
_MESSAGE_KEYS = ("log", "message", "msg", "MESSAGE")
_ERROR_KEYS = ("error", "err", "exception", "exc_info", "stack", "stacktrace")
_RANK = re.compile(r"(?:ATTN_CP|MOE_DP|DCP|PCP|DP|PP|TP|EP)\d+")
_NUMBERED_WORKER = re.compile(r"(?:VllmWorker|Worker)-(\d+)")
# What every line that a pattern may match has in it: looked for first, as most lines match none.
_COLOUR_SIGNS = ("\x1b[", "^[[", "#033[", "[0m")
_LEVELS = ("INFO ", "WARNING ", "ERROR ", "DEBUG ", "CRITICAL ")
_LETTERS = (" I ", " W ", " E ", " D ", " T ")
_FRACTION = re.compile(r"[.,](\d+)")
_EPOCH = date(1970, 1, 1).toordinal()
_LEAP_YEAR = "2000"  # of times that name none; only differences are used
_MOST_OUTER = 6  # prefixes around each other


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """What an engine wrote, and who of it wrote it when."""

    number: int  # 1-based, of the original input
    text: str
    rank: str | None = None  # "TP0", "DP1 TP0"; None: the line does not say
    process: str | None = None  # "APIServer", "EngineCore", "Worker"
    pid: int | None = None
    time: float | None = None  # seconds; only differences within one log mean something
    repeated: int = 1  # times, where a collector folded equal lines


def read_lines(text: str) -> Iterator[LogLine]:
    """Every line, numbered as editors number them."""
    for number, raw in enumerate(text.split("\n"), start=1):
        yield read_line(number, raw)


def read_line(number: int, raw: str) -> LogLine:
    """One line without its prefixes.

    >>> line = read_line(7, "vllm-1  | (Worker_TP1 pid=31) INFO 11-30 07:35:06 [cpu.py:68] Starting")
    >>> line.text, line.rank, line.process, line.pid
    ('Starting', 'TP1', 'Worker_TP1', 31)
    >>> read_line(1, "[2026-11-30 07:51:18 DP0 TP1] Load weight begin.").rank
    'DP0 TP1'
    >>> read_line(1, "0.02.032.597 I srv  llama_server: model loaded").time
    2.032597
    """
    raw = raw.rstrip("\r\n")
    if any(sign in raw for sign in _COLOUR_SIGNS):
        raw = _COLOUR.sub("", raw)
    if raw[:1] == "{":
        raw = _unwrapped(raw)
    if "\r" in raw:
        raw = _last_written(raw)
    repeated = 1
    if "[repeated " in raw and (folded := _REPEATED.search(raw)):
        raw, repeated = raw[: folded.start()], int(folded[1])
    return _inner(number, raw, repeated) or _outer(number, raw, repeated)


@lru_cache(maxsize=4096)
def rank_of(name: str) -> str | None:
    """The ranks in a process's name or tags, in their order.

    >>> rank_of("Worker_PP0_TP1"), rank_of(" DP0 TP3"), rank_of("EngineCore"), rank_of("VllmWorker-2")
    ('PP0 TP1', 'DP0 TP3', None, 'rank 2')
    """
    ranks = _RANK.findall(name)
    if ranks:
        return " ".join(ranks)
    numbered = _NUMBERED_WORKER.fullmatch(name)
    return f"rank {numbered[1]}" if numbered else None


def _inner(number: int, raw: str, repeated: int) -> LogLine | None:
    """The line by the engine's own prefix; None when it has none."""
    if any(level in raw for level in _LEVELS) and (match := _VLLM.search(raw)):
        return _vllm(number, raw[: match.start()], raw[match.end() :], match["time"], repeated)
    if "[20" in raw and (match := _SGLANG.search(raw)):
        return LogLine(
            number=number,
            text=raw[match.end() :],
            rank=rank_of(match["tags"]),
            time=_seconds(match["time"]),
            repeated=repeated,
        )
    if any(letter in raw for letter in _LETTERS) and (match := _LLAMA.search(raw)):
        seconds = int(match["minutes"]) * 60 + float(f"{match['seconds']}.{match['micro'].replace('.', '')}")
        return LogLine(number=number, text=raw[match.end() :], time=seconds, repeated=repeated)
    if " pid=" in raw and (match := _PROCESS.search(raw)):
        end = match.end()
        while further := _PROCESS.match(raw, end):
            end = further.end()
        return _vllm(number, raw[:end], raw[end:], None, repeated)
    return None


def _vllm(number: int, head: str, text: str, time: str | None, repeated: int) -> LogLine:
    """A line with the names of the processes before it; the innermost that knows its rank says it."""
    process, pid, rank = _who(head) if "pid=" in head else (None, None, None)
    return LogLine(
        number=number,
        text=text,
        rank=rank,
        process=process,
        pid=pid,
        time=_seconds(f"{_LEAP_YEAR}-{time}") if time else None,
        repeated=repeated,
    )


@lru_cache(maxsize=4096)
def _who(head: str) -> tuple[str | None, int | None, str | None]:
    """Process, pid and rank of the innermost of the names that stand before a line."""
    rank = process = pid = None
    for match in _PROCESS.finditer(head):
        process, pid = match["name"], int(match["pid"])
        told = f"rank {match['rank']}" if match["rank"] else rank_of(process)
        rank = told or rank
        if process in ("RayWorkerWrapper", "VllmWorkerProcess"):
            rank = rank or f"pid {pid}"
    return process, pid, rank


def _outer(number: int, raw: str, repeated: int) -> LogLine:
    time: float | None = None
    for _ in range(_MOST_OUTER):
        match = _OUTER.match(raw)
        if match is None:
            break
        stamp = match["iso"] or match["far_iso"] or match["sys_iso"]
        if stamp:
            time = _seconds(stamp)
        raw = raw[match.end() :]
    return LogLine(number=number, text=raw, time=time, repeated=repeated)


def _last_written(raw: str) -> str:
    """Of what a carriage return wrote over: the part with an engine's prefix, else the last."""
    parts = [part for part in raw.split("\r") if part]
    for part in reversed(parts):
        if _VLLM.search(part) or _SGLANG.search(part):
            return part
    return parts[-1] if parts else ""


def _unwrapped(raw: str) -> str:
    """The message of a line that a collector wrote as JSON."""
    value = json_or_none(raw)
    for place in (value, at(value, "fields")):
        for key in _MESSAGE_KEYS:
            message = at(place, key)
            if isinstance(message, str):
                return _COLOUR.sub("", _with_error(message, place)).rstrip("\r\n")
    return raw


def _with_error(message: str, place: Json) -> str:
    """The message and the error that its program wrote beside it."""
    told = (at(place, key) for key in _ERROR_KEYS)
    return ": ".join((message, *(one for one in told if isinstance(one, str) and one and one not in message)))


def _seconds(stamp: str) -> float | None:
    """Seconds since 1970 as if the clock were UTC.

    >>> _seconds("2026-11-30 07:51:18") - _seconds("2026-11-30T07:51:00.500Z")
    17.5
    """
    try:
        day = date(int(stamp[:4]), int(stamp[5:7]), int(stamp[8:10])).toordinal() - _EPOCH
        clock = int(stamp[11:13]) * 3600 + int(stamp[14:16]) * 60 + int(stamp[17:19])
    except ValueError:
        return None
    fraction = _FRACTION.match(stamp, 19)
    return day * 86_400 + clock + (float(f"0.{fraction[1]}") if fraction else 0.0)
