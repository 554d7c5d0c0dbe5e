"""`bringup bench` as a user runs it: against a sound server, sick ones, and one whose times are known."""

import asyncio
import contextlib
import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bringup.errors import (
    EXIT_FINDINGS,
    EXIT_HOST,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_UNKNOWN,
    EXIT_UNREADABLE,
    EXIT_USAGE,
)
from server import HostileServer

_ROOT = Path(__file__).parents[2]
_MOCK = _ROOT.parent / "shared/tools/mockllm.c"  # beside the repository, where it is at hand
_LITTLE = ("--known-questions", "0", "--warmup", "0", "--input-tokens", "40", "--output-tokens", "8")


@dataclass(frozen=True, slots=True)
class Ran:
    code: int | None
    out: str
    err: str

    @property
    def body(self) -> dict:
        return json.loads(self.out)

    @property
    def rung(self) -> dict:
        return self.body["rungs"][0]


def environment(**more: str) -> dict[str, str]:
    return {
        "PYTHONPATH": str(_ROOT / "src"),
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C.UTF-8",
        **more,
    }


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "bringup", "bench", *arguments]


async def bench(*arguments: str, **more: str) -> Ran:
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**more),
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert b"Traceback" not in err, err.decode()
    return Ran(process.returncode, out.decode(), err.decode())


def against(fault: str, *arguments: str) -> Ran:
    async def run() -> Ran:
        async with HostileServer.with_fault(fault) as server:
            return await bench(server.url, *arguments)

    return asyncio.run(run())


class TestSoundServer:
    def test_loads_in_turn_with_every_request_answered(self, tmp_path):
        kept, table, lines = (tmp_path / name for name in ("r.json", "r.csv", "r.jsonl"))
        ran = against(
            "healthy",
            *("--concurrency", "1,3", "--requests", "12", "--json", "--known-questions", "50%"),
            *("--input-tokens", "60", "--output-tokens", "32"),
            *("-o", str(kept), "--csv", str(table), "--records", str(lines)),
        )
        body = ran.body
        assert [one["concurrency"] for one in body["rungs"]] == [1, 3]
        assert [one["good"] for one in body["rungs"]] == [12, 12]
        assert all(one["questions"] == 6 for one in body["rungs"])
        assert all(one["questions_right"] == one["questions"] for one in body["rungs"]), body["findings"]
        assert body["instrument"]["warm_up_requests"] == 4
        whole = json.loads(kept.read_text())
        assert sum(len(run["records"]["index"]) for run in whole["rungs"][1]["runs"]) == 12
        assert [row["concurrency"] for row in csv.DictReader(table.read_text().splitlines())] == ["1", "3"]
        assert len(lines.read_text().splitlines()) == 24

    def test_text_has_the_verdict_the_table_and_the_instrument(self):
        ran = against("healthy", "--concurrency", "1,2", "--requests", "6", *_LITTLE)
        assert "answered" in ran.out
        assert "load  requests  errors" in ran.out
        assert "Instrument: 1 generator" in ran.out
        assert "1 stream: 6 good" in ran.err

    def test_an_open_loop_sends_when_requests_are_due(self):
        ran = against(
            "healthy", "--rate", "20", "--arrivals", "constant", "--requests", "10", "--json", *_LITTLE
        )
        assert ran.rung["rate"] == 20
        assert ran.rung["concurrency"] is None
        assert ran.rung["good"] == 10
        assert ran.rung["wall_s"] >= 9 / 20

    def test_a_search_ends_at_the_largest_load_that_is_allowed(self):
        ran = against("healthy", "--concurrency", "auto:2", "--requests", "20", "--json", *_LITTLE)
        assert {one["concurrency"] for one in ran.body["rungs"]} == {1, 2}
        assert ran.body["saturation_why"]

    def test_limits_that_nothing_keeps_are_missed(self):
        ran = against(
            "healthy", "--concurrency", "1", "--requests", "5", "--slo", "ttft=1us", "--json", *_LITTLE
        )
        assert ran.code == EXIT_FINDINGS
        assert ran.rung["within_slo"] is False

    def test_limits_that_everything_keeps_are_kept(self):
        ran = against(
            "healthy", "--concurrency", "1", "--requests", "5", "--slo", "e2e=1h", "--json", *_LITTLE
        )
        assert ran.rung["within_slo"] is True
        assert ran.body["slo_best"] == 1

    def test_completions_fresh_connections_and_hanging_up(self):
        ran = against(
            "healthy",
            *("--endpoint", "completions", "--fresh-connections", "--cancel-share", "100%,0.001"),
            *("--concurrency", "2", "--requests", "8", "--json", *_LITTLE),
        )
        assert ran.rung["cancelled"] + ran.rung["good"] == 8
        assert ran.rung["errors"] == {}

    def test_prompts_of_a_file(self, tmp_path):
        prompts = tmp_path / "p.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"Say {word}."}) + "\n" for word in ("a", "b", "c")))
        ran = against(
            "healthy",
            *("--dataset", str(prompts), "--concurrency", "1", "--requests", "5", "--json"),
            *("--known-questions", "0", "--warmup", "0", "--output-tokens", "8"),
        )
        assert ran.rung["good"] == 5
        assert "p.jsonl" in ran.body["workload"]

    def test_a_trace_is_sent_at_its_own_times_and_to_its_end(self, tmp_path):
        trace = tmp_path / "trace.jsonl"
        record = {"input_length": 40, "output_length": 8, "hash_ids": [1]}
        trace.write_text("".join(json.dumps({"timestamp": at, **record}) + "\n" for at in (0, 400, 800)))
        ran = against(
            "healthy",
            *("--dataset", str(trace), "--arrivals", "trace:2", "--json"),
            *("--known-questions", "0", "--warmup", "0"),
        )
        assert ran.rung["good"] == 3
        assert (ran.rung["concurrency"], ran.rung["rate"]) == (None, None)
        assert ran.rung["wall_s"] >= 0.4

    def test_the_answers_of_two_runs_compare(self, tmp_path):
        names = [str(tmp_path / name) for name in ("a.json", "b.json")]

        async def run() -> Ran:
            async with HostileServer.with_fault("healthy") as server:
                for name in names:
                    await bench(server.url, "--concurrency", "1", "--requests", "40", "-o", name, *_LITTLE)
            return await bench("compare", *names, "--json")

        ran = asyncio.run(run())
        assert ran.body["schema"] == "bringup/bench-comparison/1"
        assert {one["figure"] for one in ran.body["rungs"][0]["differences"]} >= {"ttft mean", "e2e p50"}

    def test_the_key_is_sent_and_never_written(self, tmp_path):
        kept = tmp_path / "r.json"
        ran = against(
            "key_unchecked",
            *("--concurrency", "1", "--requests", "2", "--json", "-o", str(kept), *_LITTLE),
            *("--api-key", "sk-abcdefghijklmnopqrstuvwxyz0123456789"),
        )
        for text in (ran.out, ran.err, kept.read_text()):
            assert "abcdefghijklmnopqrstuvwxyz" not in text


class TestSickServers:
    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("error_500", "http 500"),
            ("reset_midstream", "closed early"),
            ("truncated_sse", "closed early"),
            ("malformed_http", "malformed"),
        ],
    )
    def test_errors_are_counted_by_kind_and_the_run_ends(self, fault, error):
        ran = against(fault, "--concurrency", "2", "--requests", "6", "--json", *_LITTLE)
        assert ran.code == EXIT_FINDINGS
        assert set(ran.rung["errors"]) == {error}, ran.rung["errors"]
        assert ran.rung["good"] == 0
        assert ran.rung["ttft_s"] is None

    def test_a_server_that_never_answers_costs_no_more_than_its_limit(self):
        ran = against(
            "never_answers",
            *("--concurrency", "2", "--requests", "2", "--request-timeout", "500ms", "--json", *_LITTLE),
        )
        assert ran.rung["errors"] == {"time limit": 2}
        assert ran.code == EXIT_FINDINGS

    def test_a_server_that_counts_no_tokens_is_counted_by_events(self):
        ran = against("no_usage", "--concurrency", "1", "--requests", "5", "--json", *_LITTLE)
        assert ran.rung["good"] == 5
        assert ran.rung["tokens_counted"] == "events"

    def test_garbage_is_no_result(self):
        ran = against(
            "garbage",
            *("--concurrency", "1", "--requests", "12", "--json", "--known-questions", "50%"),
            *("--warmup", "0", "--output-tokens", "64"),
        )
        assert ran.code == EXIT_FINDINGS
        assert any(one["id"].startswith("bench.answers") for one in ran.body["findings"])
        assert ran.rung["questions_right"] == 0

    def test_nothing_listens(self):
        ran = asyncio.run(bench("http://127.0.0.1:1"))
        assert ran.code == EXIT_HOST
        assert "no endpoint answered at http://127.0.0.1:1" in ran.err

    def test_a_key_is_wanted(self):
        ran = against("unauthorized", "--requests", "1")
        assert ran.code == EXIT_HOST
        assert "--api-key" in ran.err

    def test_another_kind_of_server(self):
        ran = against("html_everywhere", "--requests", "1")
        assert ran.code == EXIT_UNREADABLE
        assert "no model is told" in ran.err


class TestBadCommandLines:
    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "no server is named"),
            ((":8000", "--concurrency", "x"), "no loads"),
            ((":8000", "--concurrency", "4", "--rate", "2"), "exclude each other"),
            ((":8000", "--rate", "auto"), "--slo"),
            ((":8000", "--slo", "ttft=fast"), "no duration"),
            ((":8000", "--slo", "speed=1s"), "no limit"),
            ((":8000", "--input-tokens", "0"), "length of 0"),
            ((":8000", "--arrivals", "poisson"), "goes with `--rate`"),
            ((":8000", "--rate", "4", "--arrivals", "tidal"), "no arrivals"),
            ((":8000", "--dataset", "/nonexistent"), "does not exist"),
            ((":8000", "-o", "/dev/null/r.json"), "cannot write"),
            ((":8000", "--records", "r.xlsx"), "names no format"),
            ((":8000", "--workers", "many"), "wanted `auto`"),
            ((":8000", "--gpus", "a-b"), "names no GPUs"),
            ((":8000", "--prefix-share", "3"), "wanted a share"),
            ((":8000", "--extra-body", "[1]"), "JSON object"),
            ((":8000", "--duration", "never"), "no duration"),
            ((":8000", "-o", "r.csv", "--csv", "r.csv"), "the same file"),
            (("ftp://x",), "not an HTTP endpoint"),
            (("--resume", __file__), "no result of `bringup bench`"),
        ],
    )
    def test_is_said_and_nothing_is_sent(self, arguments, said):
        ran = asyncio.run(bench(*arguments))
        assert ran.code == EXIT_USAGE
        assert said in ran.err
        assert ran.out == ""

    def test_too_few_open_files_are_foreseen_with_the_cure(self):
        limited = subprocess.run(
            ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *command(":1", "--concurrency", "1000")],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=60,
            check=False,
        )
        assert limited.returncode == EXIT_USAGE
        assert "open files" in limited.stderr
        assert "ulimit -Hn" in limited.stderr

    def test_too_few_ports_are_foreseen_with_the_cure(self):
        ran = asyncio.run(bench(":1", "--concurrency", "65000"))
        assert ran.code == EXIT_USAGE
        assert "ip_local_port_range" in ran.err


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def mock(tmp_path_factory) -> Iterator[str]:
    """The URL of a server that answers after 30 ms and sends a token every 5 ms."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or not _MOCK.is_file():
        pytest.skip(f"needs a C compiler and {_MOCK}")
    program, port = tmp_path_factory.mktemp("mock") / "mockllm", _free_port()
    subprocess.run([compiler, "-O2", "-o", str(program), str(_MOCK)], check=True, timeout=120)
    process = subprocess.Popen(
        [str(program), "--port", str(port), "--ttft-us", "30000", "--itl-us", "5000", "--tokens", "20"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
                break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class TestKnownTimes:
    def test_tokens_and_times_are_those_of_the_server(self, mock):
        ran = asyncio.run(
            bench(mock, "--concurrency", "2", "--requests", "20", "--json", *_LITTLE, "--output-tokens", "20")
        )
        rung = ran.rung
        assert rung["output_tokens"] == 20 * 20
        assert rung["itl_s"]["count"] == 20 * 19
        # The server is never early; what a busy machine makes of that is bounded by the error that is told.
        assert rung["ttft_s"]["min"] >= 0.0299
        assert rung["itl_s"]["mean"] == pytest.approx(0.005, abs=rung["self_error"]["itl_mean_s"] + 0.0005)

    def test_a_disk_that_fills_up_takes_nothing_from_what_is_printed(self, mock, tmp_path):
        asked = command(mock, "--concurrency", "1,2", "--requests", "4", "-o", str(tmp_path / "r"), *_LITTLE)
        done = subprocess.run(
            ["/bin/bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *asked],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        assert done.returncode == EXIT_USAGE
        assert "All 8 requests were answered" in " ".join(done.stdout.split())
        assert "error: cannot write" in done.stderr
        assert "Traceback" not in done.stderr

    def test_without_one_arrival_nothing_is_said_of_the_server(self, mock):
        ran = asyncio.run(bench(mock, "--rate", "0.001", "--duration", "1", *_LITTLE))
        assert ran.code == EXIT_UNKNOWN
        assert ran.out.startswith("nothing measured")

    def test_one_request_has_no_warm_up_and_no_question(self, mock):
        ran = asyncio.run(bench(mock, "--concurrency", "1", "--requests", "1", "--json"))
        assert ran.body["instrument"]["warm_up_requests"] == 0
        assert ran.rung["questions"] == 0
        assert ran.rung["good"] == 1


def _interrupted(
    arguments: tuple[str, ...],
    *,
    after: str,
    sent: int = signal.SIGINT,
    to_group: bool = False,
    when: threading.Event | None = None,
) -> Ran:
    """The command, sent a signal once `after` stands on its standard error."""
    process = subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    said: list[str] = []
    assert process.stderr is not None
    try:
        for line in process.stderr:
            said.append(line)
            if after in line:
                if when is not None:
                    assert when.wait(30)
                (os.killpg if to_group else os.kill)(process.pid, sent)
                break
        out, rest = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Ran(process.returncode, out, "".join(said) + rest)


@contextlib.contextmanager
def _hangs_after(answers: int) -> Iterator[tuple[str, threading.Event]]:
    """The URL of a server that gives so many answers, all wrong, and then none; and when it hangs."""
    left, hangs, gone = iter(range(answers)), threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.say({"object": "list", "data": [{"id": "m", "object": "model"}]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if next(left, None) is None:
                hangs.set()
                gone.wait(300)
                return
            message = {"role": "assistant", "content": "a b c"}
            self.say({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

        def say(self, body: dict) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", hangs
    finally:
        gone.set()
        server.shutdown()
        thread.join()
        server.server_close()


_WRONG = ("--concurrency", "1", "--requests", "9", "--known-questions", "100%")


class TestInterruption:
    def test_a_server_that_hangs_when_it_is_asked_again_costs_no_more_than_its_limit(self):
        with _hangs_after(9) as (url, _):
            ran = asyncio.run(bench(url, *_WRONG, "--request-timeout", "1s", "--json"))
        assert (ran.rung["good"], ran.rung["questions_right"]) == (9, 0)

    def test_a_server_that_hangs_while_prompts_are_counted_costs_no_more_than_its_limit(self):
        with _hangs_after(0) as (url, _):
            ran = asyncio.run(
                bench(url, "--concurrency", "20", "--requests", "20", "--request-timeout", "1s", "--json")
            )
        assert ran.rung["errors"] == {"time limit": 20}

    def test_ctrl_c_ends_the_asking_again_and_shows_the_run(self):
        with _hangs_after(9) as (url, hangs):
            ran = _interrupted((url, *_WRONG, "--json"), after="1 stream: 9 good", when=hangs)
        assert ran.rung["good"] == 9

    def test_ctrl_c_prints_what_was_measured_and_the_run_goes_on_later(self, mock, tmp_path):
        kept = str(tmp_path / "r.json")
        ran = _interrupted(
            (mock, "--concurrency", "1,2", "--duration", "6", "--json", "-o", kept, *_LITTLE),
            after="1 stream: ",
        )
        assert ran.code == EXIT_INTERRUPTED
        assert ran.body["is_complete"] is False
        assert ran.body["rungs"][0]["good"] > 0
        assert ran.body["rungs"][-1]["stopped_because"] == "interrupted"
        assert json.loads(Path(kept).read_text())["is_complete"] is False
        resumed = asyncio.run(bench("--resume", kept, "--json"))
        assert resumed.code in (
            EXIT_OK,
            EXIT_FINDINGS,
            EXIT_UNKNOWN,
        )  # unknown: this machine was too busy to know
        assert [one["concurrency"] for one in resumed.body["rungs"]] == [1, 2]
        assert resumed.body["is_complete"] is True
        whole = [one for one in ran.body["rungs"] if one["stopped_because"] != "interrupted"]
        assert resumed.body["rungs"][: len(whole)] == whole

    @pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
    def test_a_signal_to_the_whole_group_leaves_the_generators_to_the_program(self, mock, sent):
        ran = _interrupted(
            (mock, "--concurrency", "1,2", "--duration", "6", "--json", *_LITTLE),
            after="1 stream: ",
            sent=sent,
            to_group=True,
        )
        assert ran.code == EXIT_INTERRUPTED
        assert ran.body["rungs"][0]["good"] > 0
        assert ran.body["is_complete"] is False

    def test_ctrl_c_while_the_program_is_loaded_ends_it_without_words(self):
        code = (
            "import os, signal, sys\n"
            "class Interrupt:\n"
            "    def find_spec(self, name, path, target=None):\n"
            "        if name == 'bringup.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
            "sys.meta_path.insert(0, Interrupt())\n"
            "from bringup.__main__ import start\n"
            "start()\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env=environment(), check=False
        )
        assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")

    def test_a_killed_run_keeps_its_whole_loads(self, mock, tmp_path):
        kept = tmp_path / "r.json"
        _interrupted(
            (mock, "--concurrency", "1,2", "--requests", "400", "-o", str(kept), *_LITTLE),
            after="2 streams: ",
            sent=signal.SIGKILL,
        )
        assert [one["concurrency"] for one in json.loads(kept.read_text())["rungs"]] == [1]

    def test_what_is_resumed_must_be_the_same_run(self, mock, tmp_path):
        kept = str(tmp_path / "r.json")
        _interrupted(
            (mock, "--concurrency", "1,2", "--duration", "4", "-o", kept, *_LITTLE), after="1 stream: "
        )
        ran = asyncio.run(bench("--resume", kept, "--seed", "9"))
        assert ran.code == EXIT_USAGE
        assert "--seed" in ran.err

    def test_a_complete_run_has_nothing_to_resume(self, mock, tmp_path):
        kept = str(tmp_path / "r.json")
        asyncio.run(bench(mock, "--concurrency", "1", "--requests", "2", "-o", kept, *_LITTLE))
        ran = asyncio.run(bench("--resume", kept))
        assert ran.code == EXIT_USAGE
        assert "complete" in ran.err
