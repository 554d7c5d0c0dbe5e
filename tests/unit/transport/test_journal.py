"""`bringup diagnose --unit` of a real journal, here and over a real sshd."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from journal import MISSING, RECEIVER, Message, crash_loop, journalctl_of, write_journal

ROOT = Path(__file__).parents[3]
LOG = (ROOT / "tests" / "golden" / "diagnose" / "vllm-0.16-sampler-warm-up.log").read_text()
TAKEN = (
    "(APIServer pid=9) ERROR 03-04 05:06:07 [api_server.py:1] OSError: [Errno 98] error while attempting to "
    "bind on address ('0.0.0.0', 8000): address already in use"
)

pytestmark = pytest.mark.skipif(not RECEIVER.exists() or shutil.which("journalctl") is None, reason=MISSING)


@pytest.fixture
def journal(tmp_path):
    """The folder of tools that `diagnose` is to find first, once a journal is written."""

    def written(messages: list[Message]) -> Path:
        write_journal(tmp_path / "journal", messages)
        journalctl_of(tmp_path / "journal", tmp_path / "tools")
        return tmp_path / "tools"

    return written


def diagnose(
    *arguments: str, tools: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    path = f"{tools}:{os.environ['PATH']}" if tools else os.environ["PATH"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": path, **variables}
    argv = [sys.executable, "-m", "bringup", "diagnose", "--quiet", *arguments]
    return subprocess.run(argv, capture_output=True, env=environment, text=True, check=False)


def test_of_a_crash_loop_over_two_boots_the_first_run_is_diagnosed(journal):
    tools = journal([*crash_loop("listening", unit="nginx", times=1), *crash_loop(LOG)])
    done = diagnose("--unit", "vllm", "--json", tools=tools)
    said = json.loads(done.stdout)
    assert (done.returncode, said["findings"][0]["id"]) == (1, "mem.sampler_warmup_oom")
    assert (said["log"]["run"], said["log"]["runs"]) == (1, 6)
    assert not any("nginx" in one["text"] for one in said["findings"][0]["evidence"])


def test_a_line_with_carriage_returns_is_no_blob(journal):
    bar = f"Loading shards:   0%|   | 0/4\rLoading shards:  50%|#  | 2/4\r{TAKEN}".encode()
    tools = journal([Message(text="vllm serve m --port 8000"), Message(text=bar), Message(text=b"bad \xff")])
    assert (
        json.loads(diagnose("--unit", "vllm", "--json", tools=tools).stdout)["findings"][0]["id"]
        == "host.port"
    )


@pytest.mark.parametrize(
    ("unit", "words"), [("vll", "it has: vllm.service"), ("nothing-like-it", "nothing of")]
)
def test_a_unit_without_messages_is_no_calm(journal, unit, words):
    done = diagnose("--unit", unit, tools=journal(crash_loop(LOG)))
    assert (done.returncode, done.stdout) == (3, "")
    assert words in done.stderr


def test_only_this_boot_is_there(journal):
    tools = journal(crash_loop(TAKEN, boots=("b" * 32,), times=1))
    assert (
        json.loads(diagnose("--unit", "vllm", "--json", tools=tools).stdout)["findings"][0]["id"]
        == "host.port"
    )


def test_over_ssh_the_journal_and_the_kernel_s_log_make_one_list(journal, start_sshd):
    fallen = "NVRM: Xid (PCI:0000:41:00): 79, pid=31, name=python3, GPU has fallen off the bus."
    tools = journal([*crash_loop(TAKEN, boots=("b" * 32,)), Message(text=fallen, is_kernel=True)])
    server = start_sshd(forced_command=f'PATH={tools}:$PATH; export PATH; exec sh -c "$SSH_ORIGINAL_COMMAND"')
    done = diagnose("--unit", "vllm", "--host", "box", "--json", BRINGUP_SSH_CONFIG=server.config)
    found = {one["id"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.stderr == ""
    assert {"host.port", "xid.79"} <= set(found)
    assert any("fallen off the bus" in one["text"] for one in found["xid.79"]["evidence"])
    assert any("8000" in one["text"] for one in found["host.port"]["evidence"])


def test_a_reader_without_rights_is_told_so(journal, tmp_path):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("NOT TESTED: only root can give up its rights to read the journal (needs setpriv)")
    tools = journal(crash_loop(LOG))
    (tmp_path / "journal").chmod(0o700)
    program = tools / "journalctl"
    words = program.read_text().replace("exec ", "exec setpriv --reuid=65534 --regid=65534 --clear-groups ")
    program.write_text(words)
    done = diagnose("--unit", "vllm", tools=tools)
    assert done.returncode == 3
    assert "Permission denied" in done.stderr
