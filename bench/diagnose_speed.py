"""Speed and memory of `bringup diagnose` over long logs.

A journal of ordinary lines (1 GB by default, made while it is read: nothing is written) goes through the
command's standard input; then a log of 20,000 lines is diagnosed as a whole process.

    python bench/diagnose_speed.py [--megabytes 1000]
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_LINES = (
    "Nov 30 07:{m:02d}:{s:02d} gpubox systemd[1]: session-{n}.scope: Deactivated successfully.\n",
    "Nov 30 07:{m:02d}:{s:02d} gpubox sshd[{n}]: Accepted publickey for ci from 192.0.2.7 port {n} ssh2\n",
    "Nov 30 07:{m:02d}:{s:02d} gpubox CRON[{n}]: (root) CMD (cd / && run-parts --report /etc/cron.hourly)\n",
    (
        "Nov 30 07:{m:02d}:{s:02d} gpubox vllm[811]: (APIServer pid=811) INFO:     192.0.2.9:{n} - "
        '"POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    ),
    (
        "Nov 30 07:{m:02d}:{s:02d} gpubox vllm[811]: (APIServer pid=811) INFO 11-30 07:{m:02d}:{s:02d} "
        "[loggers.py:259] Engine 000: Avg prompt throughput: {n}.4 tokens/s, Running: 3 reqs\n"
    ),
    "Nov 30 07:{m:02d}:{s:02d} gpubox systemd[1]: Started Daily apt download activities.\n",
)


def block(megabytes: int = 8) -> bytes:
    """Some megabytes of an ordinary journal."""
    lines: list[str] = []
    size = number = 0
    while size < megabytes * 1_000_000:
        line = _LINES[number % len(_LINES)].format(
            m=number // 60 % 60, s=number % 60, n=10_000 + number % 50_000
        )
        lines.append(line)
        size += len(line)
        number += 1
    return "".join(lines).encode()


def stream(megabytes: int) -> tuple[float, float, float]:
    """MB/s by wall and by processor time, and peak memory in MB, of one run over a synthetic journal."""
    piece = block()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "bringup", "diagnose", "--json", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    ) as process:
        if process.stdin is None:
            raise SystemExit("no pipe")
        for _ in range(max(1, round(megabytes * 1_000_000 / len(piece)))):
            process.stdin.write(piece)
        process.stdin.close()
        process.wait()
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return megabytes / wall, megabytes / spent, after.ru_maxrss / 1000


def long_log(lines: int = 20_000) -> str:
    """A start, many lines of serving, and a death at the end."""
    head = ["INFO 11-30 07:00:00 [core.py:105] Initializing a V1 LLM engine (v0.11.0) with config: model='m'"]
    body = [
        f"INFO 11-30 07:{place // 60 % 60:02d}:{place % 60:02d} [loggers.py:123] Engine 000: Avg prompt "
        f"throughput: {place}.0 tokens/s, Running: {place % 7} reqs"
        for place in range(lines - 40)
    ]
    trace = ["Traceback (most recent call last):"]
    trace += [
        f'  File "/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line {place}, in step\n    go()'
        for place in range(18)
    ]
    return "\n".join(
        [*head, *body, *trace, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"]
    )


def whole_process(runs: int = 5) -> list[float]:
    """Wall seconds of `bringup diagnose` over 20,000 lines, each run a process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "long.log"
        path.write_text(long_log())
        taken: list[float] = []
        for _ in range(runs):
            begun = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "bringup", "diagnose", str(path)],
                stdout=subprocess.DEVNULL,
                check=False,
            )
            taken.append(time.perf_counter() - begun)
    return sorted(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    chosen = parser.parse_args()
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1] / "src"))
    wall, spent, peak = stream(chosen.megabytes)
    print(f"{chosen.megabytes} MB: {wall:.0f} MB/s wall, {spent:.0f} MB per CPU second, {peak:.0f} MB peak")
    taken = whole_process()
    print(f"20,000 lines: {taken[len(taken) // 2]:.2f} s median, {taken[-1]:.2f} s slowest of {len(taken)}")


if __name__ == "__main__":
    main()
