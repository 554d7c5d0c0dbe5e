"""Lines as Ray 2.60, rsyslog 8.2302 and docker-compose 1.29 wrote them, and what the engine wrote of them."""

import pytest

from bringup.parse.case_lines import read_kept
from bringup.parse.log_stream import KeptLine, KeptLines

KEY_ERROR = ("Engine failed", "Traceback (most recent call last):", '  File "a.py", line 3', "KeyError: 'x'")
ESCAPED = "Engine failed#012Traceback (most recent call last):#012  File \"a.py\", line 3#012KeyError: 'x'"


def texts(raw: str) -> tuple[str, ...]:
    kept = KeptLines(lines=(KeptLine(number=1, raw=raw),), total_lines=1, total_bytes=0)
    return tuple(one.line.text for one in read_kept(kept).lines)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (f"2026-11-30T16:04:21.324933+00:00 box vllm: {ESCAPED}", KEY_ERROR),
        (f"Nov 30 16:04:21 box vllm: {ESCAPED}", KEY_ERROR),
        (f"<11>1 2026-11-30T16:04:21.324933+00:00 box vllm - - -  {ESCAPED}", KEY_ERROR),
        ("2026-11-30T16:04:21.220763+00:00 box vllm[27902]:   0%| a#015 50%| b#015100%| end", ("100%| end",)),
        (
            '<13>1 2026-11-30T16:04:21.220772+00:00 box vllm 27902 - -    File "/x/vllm/a.py", line 1, in f',
            ('  File "/x/vllm/a.py", line 1, in f',),
        ),
        (
            "2026-11-30T16:04:21+00:00 b v[7]: #033[31m(E pid=9) ERROR 11-30 05:06:01 [c.py:1] tab#011here",
            ("tab\there",),
        ),
        ("\x1b[33mvllm_1   |\x1b[0m 2026-11-30T16:04:18.5Z a\rb\r100% x\x1b[31mred\x1b[0m", ("100% xred",)),
        (
            "\x1b[95m(W pid=3)\x1b[0m ERROR 11-30 05:06:09 [w:6] Doing\x1b[32m [repeated 3x across cluster]",
            ("Doing",),
        ),
        # A level is no host, and a colour no line end.
        ("2026-11-30T16:04:21.3+00:00 ERROR launcher: it failed", ("ERROR launcher: it failed",)),
        ("2026-11-30T16:04:21.3+00:00  INFO launcher: it runs", (" INFO launcher: it runs",)),
        ("the background is #012345", ("the background is #012345",)),
    ],
)  # fmt: skip
def test_what_a_collector_adds_goes_away(raw, expected):
    assert texts(raw) == expected
