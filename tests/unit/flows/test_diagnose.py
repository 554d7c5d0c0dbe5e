from pathlib import Path

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.rules import Rule
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Severity

RULES = load_rules()
ENGINES = Path(__file__).parents[4] / "shared" / "data" / "engines"
TAKEN = (
    "OSError: [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
)


def banner(second: int, port: int = 8000) -> str:
    clock = f"INFO 03-04 05:06:{second:02d}"
    return f"(APIServer pid={second}) {clock} [utils.py:1] non-default args: {{'port': {port}}}"


def start(second: int, end: str, port: int = 8000) -> list[str]:
    return [
        banner(second, port),
        f"(EngineCore pid=9) INFO 03-04 05:06:{second:02d} [core.py:1] Initializing a V1 LLM engine (v0.11)",
        end,
    ]


SERVES = "INFO:     Application startup complete."


def read(*lines: str) -> Diagnosis:
    return diagnose(sift(["\n".join(lines).encode()], RULES), RULES, source="x.log")


def ids(found: Diagnosis) -> list[str]:
    return [one.id for one in found.findings]


def test_a_cause_is_quoted_with_its_line_and_its_cure_is_this_case_s():
    found = read(*start(1, TAKEN))
    first = found.findings[0]
    assert (first.id, first.severity, found.exit_code) == ("host.port", Severity.FAILURE, 1)
    assert first.evidence[0].line == 3
    assert first.fixes[0].name == "--port"
    assert first.fixes[0].old == "8000"
    assert found.case is not None
    assert (found.case.engine, found.case.version) == ("vllm", "0.11")


def test_of_a_crash_loop_the_first_run_is_diagnosed_and_that_is_said():
    found = read(*start(1, TAKEN), *start(11, "KeyError: 'x'"), *start(21, "KeyError: 'x'"))
    assert ids(found)[0] == "host.port"
    assert (found.run, found.runs) == (1, 3)
    assert "first of 3" in found.words


def test_the_last_run_counts_where_the_attempts_differ():
    found = read(*start(1, "KeyError: 'x'", port=8000), *start(11, TAKEN, port=8001))
    assert (ids(found)[0], found.run) == ("host.port", 2)


def test_a_run_that_failed_before_one_that_serves_is_told_with_its_place():
    found = read(*start(1, TAKEN), *start(11, SERVES))
    assert (ids(found)[0], found.run) == ("host.port", 1)
    assert "the last one came up" in found.words


def test_a_start_that_serves_is_healthy():
    found = read(*start(1, SERVES))
    assert (ids(found), found.exit_code) == (["healthy"], 0)


def test_what_no_rule_explains_is_unknown_with_the_next_measurement():
    found = read(*start(1, "ZeroDivisionError: nobody knows this one"))
    first = found.findings[0]
    assert (first.id, found.exit_code) == ("unknown", 7)
    assert first.evidence[0].line == 3
    assert "VLLM_LOGGING_LEVEL=DEBUG" in first.next_measurement


def test_a_server_that_was_told_to_end_is_not_broken():
    ended = "(EngineCore pid=9) INFO 03-04 05:07:01 [core.py:1] [shutdown] trigger received signal=SIGTERM"
    dead = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue."
    assert ids(read(*start(1, SERVES), ended, dead)) == ["healthy"]
    assert ids(read(*start(1, SERVES), dead))[0] == "unknown"


def test_secrets_are_in_no_answer():
    found = read(*start(1, f"{TAKEN} HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz0123456789"))
    assert "hf_abcdef" not in str(found.findings)


def test_a_log_with_the_newest_line_first_is_quoted_by_its_own_numbers():
    lines = [
        f"2026-03-04T05:06:{number:02d}Z {text}" for number, text in enumerate([*start(1, TAKEN), "x", "y"])
    ]
    found = read(*reversed(lines))
    assert found.findings[0].evidence[0].line == 3
    assert TAKEN in list(reversed(lines))[2]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n\n",
        bytes(range(256)) * 500,
        b"Mar 04 05:06:07 box kernel: usb 1-1: new high-speed USB device\n" * 50,
        b"Mar 04 05:06:07 box sshd[7]: error: maximum authentication attempts exceeded for root\n" * 50,
        b"# Notes\n\n## Ports\n\n- **Address already in use**: end the old server.\n1. Look.\n```sh\n" * 3
        + TAKEN.encode(),
        "日本語のテキスト。\n".encode() * 100,
    ],
)
def test_what_is_no_failed_start_gives_notes_at_most(data):
    found = diagnose(sift([data], RULES), RULES, source="x")
    assert {one.severity for one in found.findings} <= {Severity.OK, Severity.NOTE}
    assert found.exit_code == 0


@pytest.mark.skipif(not ENGINES.is_dir(), reason=f"no logs of engines at {ENGINES}")
def test_logs_of_healthy_starts_are_calm():
    logs = [
        *ENGINES.glob("vllm/startup_*.log"),
        *ENGINES.glob("sglang/startup*.log"),
        *ENGINES.glob("llamacpp/*startup*.log"),
    ]
    assert len(logs) >= 8
    grave = {}
    for path in logs:
        found = diagnose(sift([path.read_bytes()], RULES), RULES, source=path.name)
        grave |= {path.name: ids(found)} if found.exit_code else {}
    assert not grave


def test_every_rule_says_what_it_is():
    for name, rule in RULES.items():
        assert isinstance(rule, Rule)
        texts = (rule.title, rule.meaning, rule.told_apart, rule.cure, rule.source, *rule.kinds)
        assert all(text.strip() for text in texts), name
        assert rule.kinds, name
        assert all(len(text) >= 3 for text in rule.literals), name


def test_settings_that_speak_of_a_watchdog_are_no_watchdog():
    arguments = (
        "[2026-03-04 05:06:07] server_args={'model_path': '/m/x', 'watchdog_timeout': 300, 'port': 8000}"
    )
    killed = 'start.sh: line 1: 22147 Killed                  "$@"'
    assert ids(read(arguments, killed))[0] == "host.ram_oom"
