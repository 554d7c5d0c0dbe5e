"""The load benches: costs of all processes count, ratios are taken within a round, nothing lost is hidden."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))

from load_clients import Bringup, Job, Words
from load_mock import read_truth
from load_table import marginal, placed, ratios, render

_BENCH = Path(__file__).resolve().parents[3] / "bench"


def run(client, number, *, streams=64, measure="pace", cpu=1.0, reported=None, peak_memory=None):
    case = {"measure": measure, "streams": streams, "requests": 2 * streams, "tokens": 100}
    truth = {"ttft_s": 0.050, "itl_s": 0.020, "busy_s": 0.25, "most_streams": streams}
    said = {"ttft_s": 0.052, "ttft_p99_s": None, "itl_s": 0.021, "itl_p99_s": None, "wall_s": 2.0}
    said |= {"requests": case["requests"], "output_tokens": 100 * case["requests"], "said": {}}
    said |= reported or {}
    cost = {"cpu_s": cpu, "wall_s": 0.5, "peak_memory_bytes": peak_memory}
    return {
        "client": client,
        "round": number,
        "case": case,
        "truth": truth,
        "reported": said,
        "cost": cost,
        "problem": "",
        "load_average": 1.0,
    }


def whole(*runs):
    machine = {"cores": 2, "cpu": "a processor", "kernel": "6.1"}
    return {"taken": "2026-11-30", "machine": machine, "versions": {}, "runs": list(runs)}


def test_the_price_is_what_more_chunks_cost():
    runs = [run("x", 0, streams=64, cpu=1.0), run("x", 0, streams=1024, cpu=2.92)]
    assert marginal(runs, "x", 64, 1024) == {0: pytest.approx(10.0)}  # 1.92 s for 192,000 chunks


def test_a_ratio_is_taken_within_its_round():
    assert ratios({1: 3.0, 2: 5.0}, {1: 2.0, 3: 1.0}) == [1.5]


def test_rounds_of_two_files_are_not_mixed():
    slow = whole(*(run(name, 0, streams=k, cpu=c) for name, k, c in
                   (("raw C", 64, 0.0), ("raw C", 1024, 2.0), ("x", 64, 0.0), ("x", 1024, 4.0))))  # fmt: skip
    fast = whole(*(run(name, 0, streams=k, cpu=c) for name, k, c in
                   (("raw C", 64, 0.0), ("raw C", 1024, 1.0), ("x", 64, 0.0), ("x", 1024, 2.0))))  # fmt: skip
    row = next(line for line in render([slow, fast]).splitlines() if line.startswith("| x "))
    assert row.split("|")[3].strip() == "2.00"


def test_lost_tokens_are_said_instead_of_a_speed():
    text = render([whole(run("x", 0, measure="peak", reported={"output_tokens": 12_799}))])
    assert "lost some: 12,799 of 12,800 tokens" in text


def test_errors_are_against_what_the_server_did():
    text = render([whole(run("x", 0))])
    assert "| x | +2.0 | +5.00 % |" in text


def test_a_run_without_a_result_is_listed():
    broken = run("x", 0) | {"reported": None, "problem": "not finished within the time limit"}
    assert "- x, pace, 64 streams: not finished within the time limit" in render([whole(broken)])


@pytest.mark.parametrize(("itl_bound", "kept"), [(0.0011, 1), (0.0009, 0)])
def test_a_bound_that_does_not_hold_is_told(itl_bound, kept):
    said = {"said": {"ttft_error_s": 0.003, "itl_mean_error_s": itl_bound}}
    text = render([whole(run("x", 0, reported=said))])
    assert f"| 64 | x | +2.000 / 3.000 | +1.0000 / {1000 * itl_bound:.4f} | {kept} of 1 |" in text


def test_a_warm_up_is_not_in_the_truth():
    head, warm_up = "arrival_ns,first_ns,last_ns,tokens\n", "0,9000000,9000000,1\n"
    log = head + warm_up + "10,2000010,6000010,3\n20,4000020,8000020,3\n"
    truth = read_truth(log, 2, 2, 0.0)
    assert (truth.requests, truth.tokens) == (2, 6)
    assert truth.ttft_s == pytest.approx(0.003)
    assert truth.itl_s == pytest.approx(0.002)
    assert truth.busy_s == pytest.approx(0.00800001)


def test_a_page_without_marks_is_not_touched():
    with pytest.raises(ValueError, match="figures: begin"):
        placed("no marks here", "new")


def test_bringup_is_read_by_its_own_format(tmp_path):
    words = Words(folder=tmp_path, cache=tmp_path, name="n")
    job = Job(port=1, streams=2, requests=4, tokens=3, folder=tmp_path, words=words)
    rung = {
        "concurrency": 2,
        "requests": 4,
        "errors": {},
        "wall_s": 1.5,
        "ttft_s": {"mean": 0.05, "p99": 0.06},
        "itl_s": {"mean": 0.02, "p99": 0.03},
    }
    answer = {
        "schema": "bringup/bench/1",
        "instrument": {"lag_p99_s": 0.001},
        "rungs": [rung],
        "findings": [],
    }
    found = Bringup().read(job, json.dumps(answer))
    assert (found.ttft_s, found.itl_p99_s, found.requests, found.wall_s) == (0.05, 0.03, 4, 1.5)
    assert found.said == {"lag_p99_s": 0.001}


def test_processes_left_behind_count(tmp_path):
    # The client ends at once; what it left behind, in a session of its own, uses a fifth of a second.
    orphan = (
        "import os, time\n"
        "ready, tell = os.pipe()\n"
        "if os.fork():\n"
        "    os.read(ready, 1)\n"
        "    os._exit(0)\n"
        "os.setsid()\n"
        "os.write(tell, b'.')\n"
        "while time.process_time() < 0.2: pass\n"
    )
    program = (
        f"import sys; sys.path[:0] = [{str(_BENCH)!r}, {str(_BENCH.parent / 'src')!r}]\n"
        "import load_process\n"
        "from pathlib import Path\n"
        "load_process.adopt_orphans()\n"
        f"cost = load_process.run([sys.executable, '-c', {orphan!r}], environment={{}},"
        f" folder=Path({str(tmp_path)!r}), limit_s=30, sample=False)\n"
        "print(cost.status, cost.cpu_s)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    status, seconds = done.stdout.split()
    assert status == "0"
    assert float(seconds) >= 0.2
