"""Cures are computed from the figures of the case, in the spelling of its engine."""

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.rules import Rule
from bringup.values.finding import Finding, Fix


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return load_rules()


def _first(text: str, rules: dict[str, Rule]) -> Finding:
    return diagnose(sift([text.encode()], rules), rules, source="test").findings[0]


def _fix(finding: Finding, name: str) -> Fix:
    return next(fix for fix in finding.fixes if fix.name == name)


@pytest.mark.parametrize(
    ("heads", "cuts", "fewer", "stages"),
    [(28, 8, "7", "2"), (52, 3, "2", "3"), (40, 3, "2", "3"), (14, 4, "2", "2")],
)
def test_heads_give_the_largest_divisor(
    heads: int, cuts: int, fewer: str, stages: str, rules: dict[str, Rule]
) -> None:
    said = (
        f"ValueError: Total number of attention heads ({heads}) must be divisible by tensor parallel "
        f"size ({cuts})."
    )
    finding = _first(said, rules)
    assert (_fix(finding, "--tensor-parallel-size").old, _fix(finding, "--tensor-parallel-size").new) == (
        str(cuts),
        fewer,
    )
    assert _fix(finding, "--pipeline-parallel-size").new == stages


def test_what_the_log_does_not_tell_is_said_not_guessed(rules: dict[str, Rule]) -> None:
    text = "ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight "
    text += "quantization block_n = 128."
    size = _fix(_first(text, rules), "--tensor-parallel-size")
    assert size.new == "1/2 of the present number, which the log does not tell"
    told = _first(f'  "moe_intermediate_size": 1536,\n{text}', rules)  # 1536 / 192: it was cut over 8
    assert (_fix(told, "--tensor-parallel-size").old, _fix(told, "--tensor-parallel-size").new) == ("8", "4")


def test_blocks_give_the_cut_that_leaves_whole_ones(rules: dict[str, Rule]) -> None:
    said = "AssertionError: (moe_intermediate_size=1536 / moe_tp_size=8) % weight_block_size_n=128 == 0"
    finding = _first(said, rules)
    assert _fix(finding, "--tp-size").new == "4"  # 1536 / 4 = 384 = 3 x 128
    assert _fix(finding, "--ep-size").new == "8"


@pytest.mark.parametrize(
    ("length", "need", "available", "low", "high"),
    [(100_000, 4.26, 4.25, 99_000, 99_999), (262_144, 24.0, 9.97, 108_000, 109_000)],
)
def test_the_length_that_fits_is_computed(
    length: int, need: float, available: float, low: int, high: int, rules: dict[str, Rule]
) -> None:
    said = (
        f"ValueError: To serve at least one request with the model's max seq len ({length}), ({need} GiB "
        f"KV cache is "
        f"needed, which is larger than the available KV cache memory ({available} GiB)."
    )
    new = int(_fix(_first(said, rules), "--max-model-len").new or 0)
    assert low <= new <= high
    assert new % 16 == 0


def test_a_printed_length_is_taken(rules: dict[str, Rule]) -> None:
    said = (
        "ValueError: To serve at least one request with the model's max seq len (40960), (5.62 GiB KV "
        "cache is needed, "
        "which is larger than the available KV cache memory (3.11 GiB). Based on the available memory, "
        "the estimated "
        "maximum model length is 22640."
    )
    assert _fix(_first(said, rules), "--max-model-len").new == "22640"


def test_a_share_follows_from_what_is_free(rules: dict[str, Rule]) -> None:
    said = (
        "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory "
        "utilization "
        "(0.95, 45.01 GiB)."
    )
    finding = _first(said, rules)
    share = _fix(finding, "--gpu-memory-utilization")
    assert (share.old, share.new) == ("0.95", "0.65")  # (31.44 - 0.5) / 47.38
    assert any(fix.type == "hardware" for fix in finding.fixes)


def test_a_tiny_shortage_is_no_other_process(rules: dict[str, Rule]) -> None:
    said = (
        "ValueError: Free memory on device cuda:1 (19.77/22.05 GiB) on startup is less than desired GPU "
        "memory "
        "utilization (0.9, 19.84 GiB)."
    )
    finding = _first(said, rules)
    assert not any(fix.type == "hardware" for fix in finding.fixes)
    assert "no other process" in finding.explanation


def test_sequences_fit_into_what_is_free(rules: dict[str, Rule]) -> None:
    said = (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 782.00 MiB. GPU 0 has a total "
        "capacity of 94.97 "
        "GiB of which 700.00 MiB is free."
    )
    # 782 MiB / 1024 / 4 B = 200,192 logits of one request; 700 MiB / (200,192 x 38.5 B) = 95 requests
    assert _fix(_first(said, rules), "--max-num-seqs").new == "64"


def test_raise_or_lower_is_told_apart(rules: dict[str, Rule]) -> None:
    none_left = _first(
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n", rules
    )
    served = _first(
        "[2026-03-01 10:00:00] server_args=ServerArgs(model_path='/m', mem_fraction_static=0.88, tp_size=2)\n"
        "[2026-03-01 10:03:00 TP0] The server is fired up and ready to roll!\n"
        "[2026-03-01 10:09:00 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/v/site-packages/sglang/srt/managers/scheduler.py", line 2, in event_loop_overlap\n    a()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 79.00 GiB "
        "of which 1.00 GiB is free.\n",
        rules,
    )
    assert (none_left.id, served.id) == ("mem.kv_none", "mem.runtime_oom")
    assert float(_fix(none_left, "--mem-fraction-static").new or 0) > 0.9
    assert float(_fix(served, "--mem-fraction-static").new or 1) < 0.88


def test_a_misspelt_flag_gets_the_nearest_one(rules: dict[str, Rule]) -> None:
    finding = _first("vllm: error: unrecognized arguments: --max-num-seq 128", rules)
    assert _fix(finding, "--max-num-seq").new == "--max-num-seqs"


def test_a_flag_of_another_engine_gets_this_one_s_name(rules: dict[str, Rule]) -> None:
    finding = _first("vllm: error: unrecognized arguments: --mem-fraction-static 0.8", rules)
    assert _fix(finding, "--mem-fraction-static").new == "--gpu-memory-utilization"


@pytest.mark.parametrize(("expected", "got", "first"), [(292, 291, "package"), (578, 470, "file")])
def test_few_tensors_are_a_newer_file(expected: int, got: int, first: str, rules: dict[str, Rule]) -> None:
    said = (
        "llama_model_load: error loading model: done_getting_tensors: wrong number of tensors; "
        f"expected {expected}, got {got}"
    )
    assert _first(said, rules).fixes[0].type == first


@pytest.mark.parametrize(
    ("name", "flag", "new"),
    [
        ("model.layers.3.mlp.gate_up_proj.input_scale", "--quantization", "modelopt"),
        ("model.layers.0.mlp.down_proj.weight.absmax", "--load-format", "bitsandbytes"),
        ("layers.61.mlp.experts.w2_weight", "--pipeline-parallel-size", "1"),
    ],
)
def test_a_name_tells_what_was_not_applied(name: str, flag: str, new: str, rules: dict[str, Rule]) -> None:
    finding = _first(f"vllm: x\nKeyError: '{name}'", rules)
    assert finding.id == "file.param_mismatch"
    assert _fix(finding, flag).new == new
