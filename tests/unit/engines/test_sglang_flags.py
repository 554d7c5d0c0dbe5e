"""SGLang's flags in every spelling, under older names, and those that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.engines.sglang.findings import flag_findings
from bringup.engines.sglang.flag_names import ALIASES, KNOWN, LISTS, RENAMED, SWITCHES, VALUES
from bringup.engines.sglang.flags import read_command, render_command, with_settings
from bringup.engines.sglang.fraction import NEWEST
from bringup.values.engine import EngineSpec
from bringup.values.finding import Severity


def read(line: str) -> EngineSpec:
    spec = read_command(line.split())
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    "line",
    [
        "python3 -m sglang.launch_server --model-path m --mem-fraction-static 0.8 --tp 4",
        "python3 -m sglang.launch_server --model m --mem_fraction_static=0.8 --tensor-parallel-size 4",
        "sglang serve m --mem-fraction 0.8 --tp-size=4",
        "env A=1 sglang serve --model-path=m --mem-fraction-static=0.8 --tp=4",
    ],
)
def test_spellings_of_the_same_command(line: str) -> None:
    spec = read(line)
    assert (spec.model, spec.tensor_parallel_size) == ("m", 4)
    assert spec.flags["--mem-fraction-static"] == "0.8"


def test_older_names_mean_the_newer_flags() -> None:
    flags = read("sglang serve m --cuda-graph-max-bs 64 --cuda-graph-bs 1 2 4 --disable-radix-cache").flags
    assert flags == {
        "--cuda-graph-max-bs-decode": "64",
        "--cuda-graph-bs-decode": "1 2 4",
        "--disable-radix-cache": "",
    }


def test_switches_take_no_value() -> None:
    assert read("sglang serve --enable-dp-attention m").model == "m"
    assert read("sglang serve --disable-piecewise-cuda-graph m").flags == {"--disable-prefill-cuda-graph": ""}


def test_unknown_flags_are_kept_and_told_with_the_nearest() -> None:
    spec = read("sglang serve m --mem-fraction-statik 0.8")
    assert spec.flags == {"--mem-fraction-statik": "0.8"}
    (finding,) = flag_findings(spec, NEWEST)
    assert finding.fixes[0].new == "--mem-fraction-static"
    assert not list(
        flag_findings(read("sglang serve m --mem-fraction-static 0.8 --tp 2 --max-mamba-cache 5"), NEWEST)
    )


def test_environment_before_the_program() -> None:
    spec = read("env SGLANG_FLASHINFER_WORKSPACE_SIZE=1 python3 -m sglang.launch_server --model-path m")
    assert spec.environment == {"SGLANG_FLASHINFER_WORKSPACE_SIZE": "1"}


def test_the_command_line_wins_over_its_file() -> None:
    found = with_settings(read("sglang serve --tp 2"), {"tp-size": "4", "model-path": "m", "page_size": "16"})
    assert (found.model, found.tensor_parallel_size) == ("m", 2)
    assert found.flags == {"--tensor-parallel-size": "2", "--model-path": "m", "--page-size": "16"}


def test_switches_in_the_file_are_on_or_off() -> None:
    given = {"disable-radix-cache": "true", "enable-dp-attention": "false", "mem_fraction_static": "0.7"}
    found = with_settings(read("sglang serve m"), given)
    assert found.flags == {"--disable-radix-cache": "", "--mem-fraction-static": "0.7"}


def test_the_names_are_told_apart() -> None:
    assert len(KNOWN) == len(SWITCHES) + len(LISTS) + len(VALUES)
    assert set(ALIASES.values()) <= KNOWN
    assert set(RENAMED.values()) | set(RENAMED) <= KNOWN


def test_flags_that_the_version_does_not_have_yet_or_no_longer() -> None:
    newer = read("sglang serve m --admin-api-key k")
    (finding,) = flag_findings(newer, (0, 5, 5))
    assert (finding.id, finding.severity) == ("flags.version", Severity.FAILURE)
    assert not list(flag_findings(newer, (0, 5, 7)))  # between two that were read: it may have it
    older = read("sglang serve m --enable-double-sparsity")
    assert not list(flag_findings(older, (0, 5, 5)))
    assert [one.id for one in flag_findings(older, NEWEST)] == ["flags.unknown"]
    renamed = read("sglang serve m --cuda-graph-max-bs 8")
    assert not list(flag_findings(renamed, (0, 5, 5)))


words = st.text("abcXYZ019._/", min_size=1, max_size=8)


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", draw(words)]
    for name in draw(st.lists(st.sampled_from(sorted(KNOWN - {"--model-path"})), unique=True, max_size=8)):
        argv.append(name)
        if name in LISTS:
            argv += draw(st.lists(words, min_size=1, max_size=3))
        elif name not in SWITCHES:
            argv.append(draw(words))
    return argv


@given(commands())
def test_reading_and_rendering_again_keeps_the_meaning(argv: list[str]) -> None:
    once = read_command(argv)
    assert once is not None
    again = read_command(render_command(once))
    assert again is not None
    assert (again.model, again.flags, again.context_tokens) == (once.model, once.flags, once.context_tokens)
