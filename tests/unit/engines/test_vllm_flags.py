"""vLLM's flags in every spelling, from files, and back to a command line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.engines.vllm.flag_check import flag_findings
from bringup.engines.vllm.flag_names import FLAGS, SHORT, Kind
from bringup.engines.vllm.flags import count, read_command, render_command, settings_at, switch, with_settings
from bringup.values.engine import EngineSpec
from bringup.values.finding import Severity


def read(line: str) -> EngineSpec:
    spec = read_command(line.split())
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m --kv-cache-memory-bytes 8G",
        "vllm serve m --kv_cache_memory_bytes=8G",
        "vllm serve m --kv-cache-memory-b 8G",  # cut short, still the only one
    ],
)
def test_a_flag_cut_short_is_the_flag(line: str) -> None:
    assert read(line).flags == {"--kv-cache-memory-bytes": "8G"}


def test_the_newer_name_of_the_share_is_the_older_flag() -> None:
    assert read("vllm serve m --device-memory-utilization 0.9").flags == {"--gpu-memory-utilization": "0.9"}


def test_every_short_flag_is_a_long_one() -> None:
    assert all(long in FLAGS for long in SHORT.values())
    assert read("vllm serve m -dcp 4").flags == {"--decode-context-parallel-size": "4"}


@pytest.mark.parametrize("spelled", ["-O3", "-O 3", "-O=3", "--optimization-level 3"])
def test_the_optimisation_level_in_every_spelling(spelled: str) -> None:
    assert read(f"vllm serve m {spelled}").flags == {"--optimization-level": "3"}


def test_the_last_of_a_switch_and_its_opposite_counts() -> None:
    flags = read("vllm serve m --enable-prefix-caching --no-enable-prefix-caching").flags
    assert switch(flags, "--enable-prefix-caching") is False
    flags = read("vllm serve m --no-enable-prefix-caching --enable-prefix-caching").flags
    assert switch(flags, "--enable-prefix-caching") is True
    assert switch({}, "--enable-prefix-caching") is None


def test_a_switch_takes_no_value() -> None:
    spec = read("vllm serve --no-async-scheduling org/m --language-model-only --max-num-seqs 8")
    assert (spec.model, spec.flags["--max-num-seqs"]) == ("org/m", "8")


def test_a_json_flag_whole_and_by_key() -> None:
    spec = read_command(
        ["vllm", "serve", "m", "--speculative-config", '{"method": "mtp"}', "--speculative-config.model", "d"]
    )
    assert spec is not None
    assert settings_at(spec.flags, "--speculative-config") == {"method": "mtp", "model": "d"}
    nested = read("vllm serve m -cc.pass_config.fuse=true -cc.cudagraph-mode NONE").flags
    assert settings_at(nested, "--compilation-config") == {
        "pass_config": {"fuse": True},
        "cudagraph_mode": "NONE",
    }


def test_the_environment_before_the_program() -> None:
    spec = read("env VLLM_USE_V2_MODEL_RUNNER=0 CUDA_VISIBLE_DEVICES=0,1 vllm serve m --seed 1")
    assert spec.environment == {"VLLM_USE_V2_MODEL_RUNNER": "0", "CUDA_VISIBLE_DEVICES": "0,1"}


def test_a_config_file_gives_what_the_command_line_leaves_out() -> None:
    spec = with_settings(
        read("vllm serve --max-num-seqs 8 --no-enable-prefix-caching"),
        {"model": "org/m", "max_num_seqs": "64", "enforce-eager": "", "enable-prefix-caching": ""},
    )
    assert spec.model == "org/m"
    assert spec.flags["--max-num-seqs"] == "8"
    assert switch(spec.flags, "--enforce-eager") is True
    assert switch(spec.flags, "--enable-prefix-caching") is False


@pytest.mark.parametrize(
    ("text", "size"),
    [("8192", 8192), ("25.6k", 25600), ("2K", 2048), ("1G", 2**30), ("auto", None), ("", None)],
)
def test_counts_with_units(text: str, size: int | None) -> None:
    assert count(text) == size


names = sorted(FLAGS)
words = st.text("abcXYZ019._/", min_size=1, max_size=8)


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    argv = ["vllm", "serve", draw(words)]
    for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=8)):
        kind = FLAGS[name].kind
        if name in ("--model", "--device-memory-utilization"):
            continue
        if kind is Kind.SWITCH:
            argv.append(f"--no-{name[2:]}" if draw(st.booleans()) else name)
        elif kind is Kind.LIST:
            argv += [name, *draw(st.lists(words, min_size=1, max_size=3))]
        else:
            argv += [name, draw(words)]
    return argv


@given(commands())
def test_reading_and_rendering_again_keeps_the_meaning(argv: list[str]) -> None:
    once = read_command(argv)
    assert once is not None
    again = read_command(render_command(once))
    assert again is not None
    assert (again.model, again.flags, again.context_tokens) == (once.model, once.flags, once.context_tokens)


def found(line: str, version: tuple[int, int, int]) -> list[tuple[str, Severity, str]]:
    return [(one.id, one.severity, one.summary) for one in flag_findings(read(line), version)]


def test_an_unknown_flag_names_the_nearest() -> None:
    [(name, severity, summary)] = found("vllm serve m --max-num-sequences 8", (0, 32, 0))
    assert (name, severity) == ("flags.unknown", Severity.NOTE)
    assert "`--max-num-seqs`" in summary


def test_a_flag_that_the_version_does_not_have() -> None:
    [(name, severity, _)] = found("vllm serve m --kv-cache-memory-bytes 1G", (0, 9, 2))
    assert (name, severity) == ("flags.version", Severity.FAILURE)
    assert found("vllm serve m --kv-cache-memory-bytes 1G", (0, 11, 0)) == []
    [(name, _, _)] = found("vllm serve m --swap-space 4", (0, 32, 0))
    assert name == "flags.version"
    assert found("vllm serve m --no-enable-prefix-caching", (0, 32, 0)) == []
