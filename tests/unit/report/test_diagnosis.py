from bringup.report.changed_line import changed_command, spelled, spelling
from bringup.report.diagnosis import build_diagnosis_report
from bringup.values.case import Case
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Evidence, Finding, Fix, Severity

ARGV = ("python3", "-m", "sglang.launch_server", "--model-path", "m", "--tp", "8", "--enable-metrics")


def test_a_flag_is_spelled_as_the_user_does():
    assert spelling("--tensor-parallel-size", ARGV) == "--tp"
    assert spelling("--mem-fraction-static", ARGV) == "--mem-fraction-static"
    assert spelling("--max-num-seqs", ("--max_num_seqs=4",)) == "--max_num_seqs"


def test_the_command_is_changed_in_its_place_or_at_its_end():
    case = Case(lines=(), argv=ARGV)
    assert changed_command(case, Fix(type="flag", name="--tensor-parallel-size", new="4"))[5:7] == (
        "--tp",
        "4",
    )
    assert changed_command(case, Fix(type="flag", name="--skip", new="true"))[-1] == "--skip"
    assert changed_command(case, Fix(type="env", name="A", new="1"))[:3] == ("env", "A=1", "python3")


def test_what_is_removed_is_said():
    assert (
        spelled(Fix(type="flag", name="--quantization", old="awq"), None)
        == "without --quantization (now awq)"
    )
    assert spelled(Fix(type="env", name="LD_PRELOAD"), None) == "LD_PRELOAD unset"
    assert spelled(Fix(type="package", name="vllm", old="0.8", new="0.9"), None) == "vllm: 0.9 (now 0.8)"


def test_the_report_leads_with_the_cause_and_its_cure():
    finding = Finding(
        id="shard.heads",
        severity=Severity.FAILURE,
        summary="vLLM cannot cut 12 heads over 8 GPUs",
        evidence=(Evidence(source="log", line=7, text="12 heads"),),
        fixes=(
            Fix(type="flag", name="--other", new="1", kind="workaround"),
            Fix(type="flag", name="--tensor-parallel-size", old="8", new="4"),
        ),
    )
    case = Case(lines=(), argv=ARGV, engine="sglang", version="0.5.5")
    report = build_diagnosis_report(
        Diagnosis(source="x.log", findings=(finding,), case=case, exit_code=1), tool_version="1"
    )
    assert report.verdict == "broken"
    assert report.paragraph == "vLLM cannot cut 12 heads over 8 GPUs. Change: --tp 4 (now 8)."
    assert report.findings[0].evidence[0].source == "log:7"
    assert report.tables[0].note.startswith("run: python3 -m sglang.launch_server --model-path m --tp 4")
    assert report.exit_code == 1


def test_only_what_a_shell_takes_is_written_into_a_command():
    docker = ("docker", "run", "--gpus", "all", "--shm-size", "1g", "vllm/vllm-openai", "--model", "m")
    inside = Case(lines=(), argv=docker, model="m")
    plain = Case(lines=(), argv=("vllm", "serve", "m"), model="m")

    def note(fix: Fix, case: Case, **more: object) -> str:
        words = {"id": "x", "severity": Severity.FAILURE, "summary": "x", "fixes": (fix,), **more}
        found = Diagnosis(source="x.log", findings=(Finding(**words),), case=case, exit_code=1)
        tables = build_diagnosis_report(found, tool_version="1").tables
        return tables[0].note if tables else "no table"

    memory = Fix(type="flag", name="docker --shm-size", new="16g")
    assert note(memory, inside) == ("run: docker run --shm-size=16g --gpus all vllm/vllm-openai --model m")
    assert note(memory, plain) == ""
    variable = Fix(type="env", name="NCCL_P2P_DISABLE", new="1")
    assert note(variable, inside).startswith("run: docker run -e NCCL_P2P_DISABLE=1 --gpus all")
    assert note(variable, plain) == "run: env NCCL_P2P_DISABLE=1 vllm serve m"
    for words in ("a folder of the unit's user", "1/2 of the present number"):
        assert note(Fix(type="env", name="HF_HOME", new=words), plain) == ""
        assert note(Fix(type="flag", name="--tp", new=words), plain) == ""
    json_value = Fix(type="flag", name="--limit-mm-per-prompt", new='{"image": 1}')
    assert note(json_value, plain) == """run: vllm serve m --limit-mm-per-prompt '{"image": 1}'"""
    nameless = Case(lines=(), argv=("vllm", "serve", "--port", "8000"))
    assert note(Fix(type="flag", name="--port", new="8001"), nameless) == ""
    assert note(variable, plain, id="benign.x", severity=Severity.NOTE) == "no table"
