"""The command line from outside: what it refuses, and that it never repeats a secret."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bringup.cli.main import COMMANDS, main
from bringup.cli.terminal import write_json
from bringup.cli.verify import gpu_names
from bringup.errors import EXIT_OK, EXIT_USAGE, UsageError

RECORDING = Path(__file__).parents[2] / "golden/recordings/demo.json.gz"
SECRET = "hunter2hunter2"  # made up, and of no known form: only its place says what it is


@pytest.fixture
def run(monkeypatch, capsys):
    """The exit code and both outputs of one command line."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bringup", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code, said.out, said.err

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", ":1", "--", "mystery", "serve", "--api-key", SECRET),
        ("verify", ":1", "--", "env", f"HF_TOKEN={SECRET}", "mystery"),
        ("verify", f"ftp://user:{SECRET}@gpubox:8000"),
        ("verify", f"http://user:{SECRET}@gpubox:port"),
        ("verify", ":1", f"http://user:{SECRET}@gpubox:8000"),
        ("verify", ":1", "--only", f"--api-key={SECRET}"),
    ],
)
def test_no_error_repeats_a_secret(run, arguments):
    code, out, err = run(*arguments)
    assert code == EXIT_USAGE
    assert "[redacted]" in err
    assert SECRET not in out + err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("http://gpubox:8000",), "URL"),
        (("--host", "gpubox"), "--host"),
        (("--", "vllm", "serve", "m"), "ENGINE COMMAND"),
    ],
)
def test_a_replay_takes_no_other_endpoint(run, tmp_path, arguments, named):
    file = tmp_path / "recording.json.gz"
    file.write_bytes(b"")
    code, _, err = run("verify", "--from", str(file), *arguments)
    assert code == EXIT_USAGE
    assert "`--from` replays what was recorded" in err
    assert named in err


@pytest.mark.parametrize("option", ["--gpus 0", "--full", "--only fact", "--insecure", "--budget 3"])
def test_a_replay_leaves_nothing_out_in_silence(run, option):
    name = option.split()[0]
    code, plain, err = run("verify", "--from", str(RECORDING), "--json")
    assert err == ""
    assert run("verify", "--from", str(RECORDING), "--json", *option.split()) == (
        code,
        plain,
        f"note: a replay asks what was asked then; without effect: {name}\n",
    )
    assert run("verify", "--from", str(RECORDING), "--json", "--quiet", *option.split()) == (code, plain, "")


@pytest.mark.parametrize("text", ["3-0", "", ",", " , ", "garbage", "-1", "0-", "0-99999999999", "1,,x"])
def test_gpus_that_name_none_are_refused_rather_than_taken_for_all(text):
    with pytest.raises(UsageError, match="GPU"):
        gpu_names(text)


@pytest.mark.parametrize("text", ["0", "GPU-5f1c,MIG-2", "0000:06:00.0"])
def test_gpus_by_index_uuid_and_bus_id(text):
    assert gpu_names(text) == tuple(text.split(","))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--budget", "0"),
        ("--budget", "-1"),
        ("--budget", "nan"),
        ("--budget", "0.001"),
        ("--price-per-kwh", "-1"),
        ("--price-per-kwh", "nan"),
        ("--price-per-kwh", "inf"),
        ("--context", "0"),
        ("--long-context", "-5"),
        ("--model", "a\udcff"),
    ],
)
def test_values_that_mean_nothing_are_usage_errors(run, arguments):
    code, _, err = run("verify", ":1", *arguments)
    assert code == EXIT_USAGE
    assert "Traceback" not in err


def test_the_checks_are_listed_as_text_and_as_json(run):
    code, text, _ = run("checks")
    listed = json.loads(run("checks", "--json")[1])
    assert code == EXIT_OK
    assert listed["schema"] == "bringup/checks/1"
    names = [one["name"] for one in listed["checks"]]
    assert names == [line.split()[0] for line in text.splitlines()]
    assert {"name": "fact", "title": "answers a fact", "section": "function", "depth": "quick"} in listed[
        "checks"
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_in_its_help(run, name):
    code, text, _ = run(name, "--help")
    assert code == EXIT_OK
    assert "Examples:" in text
    assert f"bringup {name}" in text.partition("Examples:")[2]


def test_json_is_utf_8_whatever_the_terminal_speaks(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    write_json('{"text": "\u00e9"}')
    out.flush()
    assert out.buffer.getvalue() == '{"text": "\u00e9"}'.encode()


def test_a_terminal_of_few_letters_gets_question_marks_and_every_number(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["bringup", "checks"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == EXIT_OK
    out.write("\u2500 96,721 MiB \u00e9")
    out.flush()
    assert out.buffer.getvalue().endswith(b"? 96,721 MiB ?")


def test_what_the_report_cannot_be_written_to_is_said_before_the_work(run, tmp_path):
    for option in ("--junit", "--svg", "--record"):
        code, out, err = run("verify", ":1", option, str(tmp_path))
        assert (code, out) == (EXIT_USAGE, "")
        assert f"cannot write `{tmp_path}`" in err


@pytest.mark.parametrize("arguments", [("--help",), ("verify", "--help"), ("demo", "--help"), ("checks",)])
def test_help_fits_eighty_columns(run, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(*arguments)
    assert [line for line in out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full"])
@pytest.mark.parametrize("arguments", ["--help", "checks"])
def test_an_output_that_takes_nothing_is_no_traceback(redirection, arguments):
    done = subprocess.run(
        ("sh", "-c", f"{sys.executable} -m bringup {arguments} {redirection}"),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == (EXIT_OK if redirection == ">&-" else EXIT_USAGE)


@pytest.mark.parametrize("command", ["checks", "demo"])
def test_a_command_that_takes_no_engine_command_says_so(run, command):
    code, out, err = run(command, "--", "vllm", "serve", "m")
    assert (code, out) == (EXIT_USAGE, "")
    assert "bringup verify" in err


@pytest.mark.parametrize("port", ["abc", "-1", "0"])
def test_a_command_with_an_impossible_port_is_refused_and_no_other_engine_taken(run, port):
    code, out, err = run("verify", "--quiet", "--", "vllm", "serve", "m", "--port", port)
    assert (code, out) == (EXIT_USAGE, "")
    assert "port" in err
