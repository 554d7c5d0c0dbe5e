"""The same failure as another machine would print it: prefixes, paths, numbers, noise, order."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_BEGUN = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
_NOISE = (
    "INFO 03-04 05:06:07 [loggers.py:123] Engine 000: Avg prompt throughput: 12.1 tokens/s, Running: 2 reqs",
    'INFO:     192.0.2.7:41532 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
    "WARNING: The pynvml package is deprecated. Please install nvidia-ml-py instead.",
)


def _stamps(lines: list[str]) -> list[str]:
    return [
        (_BEGUN + timedelta(seconds=place)).strftime("%Y-%m-%dT%H:%M:%S.%fZ") for place in range(len(lines))
    ]


def journal(lines: list[str]) -> list[str]:
    return [f"Mar 04 05:{6 + place // 60 % 50:02d}:{place % 60:02d} box7 vllm[4242]: {line}"
            for place, line in enumerate(lines)]  # fmt: skip


def compose(lines: list[str]) -> list[str]:
    return [f"llm-server-1  | {line}" for line in lines]


def kubernetes(lines: list[str]) -> list[str]:
    return [f"{stamp} stderr F {line}" for stamp, line in zip(_stamps(lines), lines, strict=True)]


def json_lines(lines: list[str]) -> list[str]:
    return [
        json.dumps({"log": f"{line}\n", "stream": "stderr", "time": stamp})
        for stamp, line in zip(_stamps(lines), lines, strict=True)
    ]


def newest_first(lines: list[str]) -> list[str]:
    return kubernetes(lines)[::-1]


def coloured(lines: list[str]) -> list[str]:
    return [f"\x1b[31m{line}\x1b[0m" for line in lines]


def windows_ends(lines: list[str]) -> list[str]:
    return [f"{line}\r" for line in lines]


def noisy(lines: list[str]) -> list[str]:
    return [*_NOISE * 40, *lines, _NOISE[-1]]  # a server that goes on would be another case


def other_paths(lines: list[str]) -> list[str]:
    place = re.compile(r"/venv/lib/python3(?:\.\d+)?/(?:site|dist)-packages/")
    return [place.sub("/opt/llm/.venv/lib/python3.12/site-packages/", line) for line in lines]


def other_numbers(lines: list[str]) -> list[str]:
    """Other process ids, addresses and line numbers of sources: none of them means anything."""
    found = [re.sub(r"\bpid=\d+", "pid=31337", line) for line in lines]
    found = [re.sub(r"\[(\w+\.py):\d+\]", r"[\1:77]", line) for line in found]
    return [re.sub(r"0x[0-9a-f]{8,}", "0x7fdeadbeef00", line) for line in found]


def progress_bars(lines: list[str]) -> list[str]:
    bar = "\rreading: 50%|#####     | 2/4 [00:02<00:02, 1.02s/it]"
    return [bar * 3, f"{bar}\r{lines[0]}", *lines[1:]]  # the bar has no line end of its own


def cut_at(width: int, lines: list[str]) -> list[str]:
    """As a terminal of so many columns breaks them, within words."""
    return [line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width)]


def cut_at_80(lines: list[str]) -> list[str]:
    return cut_at(80, lines)


def cut_at_100(lines: list[str]) -> list[str]:
    return cut_at(100, lines)


def cut_at_132(lines: list[str]) -> list[str]:
    return cut_at(132, lines)


def cut_at_160(lines: list[str]) -> list[str]:
    return cut_at(160, lines)


VARIANTS: dict[str, Callable[[list[str]], list[str]]] = {
    one.__name__: one
    for one in (
        journal, compose, kubernetes, json_lines, newest_first, coloured,
        windows_ends, noisy, other_paths, other_numbers, progress_bars,
        cut_at_80, cut_at_100, cut_at_132, cut_at_160,
    )
}  # fmt: skip
