"""A log that the first reading does not explain is read as it was before its lines were broken."""

from pathlib import Path

import pytest
from log_variants import cut_at

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Severity

RULES = load_rules()
GOLDEN = Path(__file__).parents[2] / "golden" / "diagnose"
_UNDEFINED = "ImportError('/x/vllm/_C.abi3.so: undefined symbol: _ZN5torch7LibraryC1E')"
_LOOPBACK = (
    "[rank0]:[W302 08:15:21.03 ProcessGroupGloo.cpp:727] Warning: Unable to resolve hostname to a (local) "
    "address. Using the loopback address as fallback. Manually set the network interface to bind to."
)


def _read(text: str) -> Diagnosis:
    return diagnose(sift([text.encode()], RULES), RULES, source="x.log")


def test_evidence_keeps_the_lines_of_the_input() -> None:
    found = _read(
        "about this\nllama runner process has terminated: error loading\n"
        "model: done_getting_tensors: wrong number of tensors;\nexpected 1054, got 516\n"
    )
    first = found.findings[0]
    assert first.id == "gguf.tensors"
    assert [(one.line, one.text.split()[0]) for one in first.evidence] == [
        (2, "llama"),
        (3, "model:"),
        (4, "expected"),
    ]
    assert found.total_lines == 4


def test_a_line_that_only_follows_a_whole_message_is_not_quoted() -> None:
    found = _read("RMSNorm failed with error code no kernel image is available for execution\nmake_graphs\n")
    assert found.findings[0].id == "arch.no_kernel_image"
    assert [one.line for one in found.findings[0].evidence] == [1]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('ModuleNotFoundError: No module named "vllm._C"', "pkg.shadowed"),
        ("No module named `timm`", "pkg.missing"),
        (
            f"WARNING 03-02 08:14:09 _custom_ops.py:11] Failed to import from vllm._C with {_UNDEFINED}",
            "pkg.abi",
        ),
    ],
)
def test_other_quotes_and_no_class_say_the_same(text: str, kind: str) -> None:
    assert _read(f"{text}\n").findings[0].id == kind


@pytest.mark.parametrize(
    "text",
    [
        _LOOPBACK,
        "INFO 03-02 08:15:34 [cuda.py:200] Cannot use FlashAttention-2 backend for head size 88.",
        "WARNING: flash-attn is not installed, falling back to eager attention.",
    ],
)
def test_what_names_a_fallback_breaks_nothing(text: str) -> None:
    first = _read(
        f"INFO 03-02 08:15:34 [model_runner.py:1110] Starting to load model /m/x...\n{text}\n"
    ).findings[0]
    assert first.severity in (Severity.NOTE, Severity.OK, Severity.UNKNOWN)


def test_a_fallback_that_the_error_is_about_counts() -> None:
    found = _read(
        "INFO 03-02 08:15:34 [cuda.py:200] Cannot use FlashAttention-2 backend for head size 88.\n"
        "ERROR 03-02 08:15:35 [core.py:1] ValueError: no attention backend for head size 88\n"
    )
    assert found.findings[0].severity is Severity.FAILURE


@pytest.mark.parametrize("width", [80, 100, 132, 160])
@pytest.mark.parametrize("name", sorted(path.stem for path in GOLDEN.glob("*.log")))
def test_a_terminal_of_any_width_changes_no_answer(name: str, width: int) -> None:
    lines = (GOLDEN / f"{name}.log").read_text(encoding="utf-8").rstrip("\n").split("\n")
    whole, cut = _read("\n".join(lines) + "\n"), _read("\n".join(cut_at(width, lines)) + "\n")
    assert cut.findings[0].id == whole.findings[0].id


def test_an_answer_to_half_a_message_is_not_kept() -> None:
    text = "llama_model_load: error loading model: error loading model architecture: unknown model arch"
    text += "itecture: 'clip'"
    assert _read("\n".join(cut_at(105, [text])) + "\n").findings[0].id == "gguf.wrong_file"


def test_a_drawn_table_holds_its_message() -> None:
    found = _read(
        "+--------------+---------+----------------------------------------------+\n"
        "| Model        | Version | Status                                       |\n"
        "+--------------+---------+----------------------------------------------+\n"
        "| tensorrt_llm | 1       | UNAVAILABLE: Internal: Assertion failed:     |\n"
        "|              |         | mpiSize == tp * pp (worldConfig.cpp:80)      |\n"
        "+--------------+---------+----------------------------------------------+\n"
    )
    assert found.findings[0].id == "engine.mpi_ranks"


def test_json_lines_tell_the_error_beside_the_message() -> None:
    found = _read('{"level":"error","msg":"download failed","error":"write /m/x: no space left on device"}\n')
    assert found.findings[0].id == "host.disk_full"
