"""trtllm-serve: its command line and file, and the cache that a share of the free memory gives."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.engines.tensorrt_llm.findings import flag_findings
from bringup.engines.tensorrt_llm.flag_names import ALIASES, KNOWN, SETTINGS, SWITCHES
from bringup.engines.tensorrt_llm.flags import read_command, render_command, with_settings
from bringup.engines.tensorrt_llm.ledgers import plan_layout, token_bytes
from bringup.engines.tensorrt_llm.memory import plan_task
from bringup.engines.tensorrt_llm.settings import settings_of
from bringup.parse.flag_file import read_flag_file
from bringup.units import MIB
from bringup.values.engine import EngineSpec
from bringup.values.finding import Severity
from bringup.values.model import Attention, Layer, LinearState, Mixer, Mlp, ModelSpec, Quantization
from bringup.values.plan import Card, Gpus, LayoutPlan, PlanTask

HEADS = Attention(query_heads=32, kv_heads=8, head_dim=128, v_head_dim=128)
MODEL = ModelSpec(
    name="org/m",
    architecture="LlamaForCausalLM",
    model_type="llama",
    layers=tuple(
        Layer(index=index, mixer=Mixer.FULL, attention=HEADS, mlp=Mlp(intermediate_size=14336))
        for index in range(32)
    ),
    hidden_size=4096,
    vocabulary=128256,
    max_position=131072,
)
LATENT = Attention(
    query_heads=128, kv_heads=128, head_dim=192, v_head_dim=128, kv_lora_rank=512, qk_rope_head_dim=64
)
CARD = Card(
    name="a card",
    memory_total=81559 * MIB,
    cuda_total=81079 * MIB,
    reserved=480 * MIB,
    compute_capability="9.0",
    formats=(("nvfp4", "weight-only (Marlin)"), ("fp8", "native")),
)


def read(line: str, file: str = "") -> EngineSpec:
    spec = read_command(line.split())
    assert spec is not None
    return with_settings(spec, read_flag_file(file, source="x.yaml")) if file else spec


def task(line: str, *, model: ModelSpec = MODEL, count: int = 1, file: str = "", **asked: int) -> PlanTask:
    gpus = Gpus(card=CARD, count=count)
    return PlanTask(spec=read(line, file), version="1.2.0", model=model, gpus=gpus, **asked)


def planned(line: str, **given: object) -> LayoutPlan:
    return plan_layout(task(line, **given))  # type: ignore[arg-type]


def test_every_spelling_of_the_same_command() -> None:
    short = "--tp_size 4 --pp_size=2 --ep_size 4 --max_seq_len 8192 --extra_llm_api_options f"
    long = "--tensor_parallel_size 4 --pipeline-parallel-size 2 --moe_expert_parallel_size 4"
    lines = (f"trtllm-serve org/m {short}", f"trtllm-serve serve org/m {long} --max-seq-len=8192 --config f")
    first, second = (read(line) for line in lines)
    assert first.flags == second.flags
    assert (first.model, first.tensor_parallel_size, first.context_tokens) == ("org/m", 4, 8192)
    assert set(ALIASES.values()) | set(SETTINGS.values()) <= KNOWN


def test_the_file_wins_over_the_command_line() -> None:
    file = (
        "tensor_parallel_size: 2\nenable_attention_dp: true\ncuda_graph_config: null\n"
        "kv_cache_config:\n  free_gpu_memory_fraction: 0.5\n  dtype: fp8\n  max_tokens: 4096\n"
        "  enable_block_reuse: false\n"
    )
    spec = read("trtllm-serve org/m --tp_size 1 --kv_cache_free_gpu_memory_fraction 0.8", file)
    settings = settings_of(spec, MODEL, CARD)
    assert (settings.layout.tensor_parallel, settings.attention_data_parallel) == (2, 2)
    assert (settings.fraction, settings.cache_dtype, settings.max_tokens) == (0.5, "fp8", 4096)
    assert (settings.has_block_reuse, settings.has_graphs) == (False, False)
    ids = {one.id for one in plan_layout(replace(task("trtllm-serve m"), spec=spec)).findings}
    assert "settings.contradiction" in ids


def test_defaults() -> None:
    settings = settings_of(read("trtllm-serve org/m"), MODEL, CARD)
    assert (settings.fraction, settings.batch, settings.step_tokens) == (0.9, 2048, 8192)
    assert (settings.block_tokens, settings.cache_dtype, settings.context) == (32, "bfloat16", 131072)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        ("trtllm-serve m", 32 * 2 * 8 * 128 * 2),
        ("trtllm-serve m --tp_size 4", 32 * 2 * 2 * 128 * 2),
        ("trtllm-serve m --tp_size 16", 32 * 2 * 1 * 128 * 2),  # one head is the least
        ("trtllm-serve m --pp_size 2", 16 * 2 * 8 * 128 * 2),
        ("trtllm-serve m --kv_cache_dtype fp8", 32 * 2 * 8 * 128),
    ],
)
def test_bytes_of_a_token(line: str, size: int) -> None:
    assert token_bytes(MODEL, settings_of(read(line), MODEL, CARD)) == size


def test_a_latent_is_on_every_rank_and_its_blocks_are_larger() -> None:
    model = replace(
        MODEL, layers=tuple(replace(one, mixer=Mixer.MLA, attention=LATENT) for one in MODEL.layers)
    )
    settings = settings_of(read("trtllm-serve m --tp_size 8"), model, CARD)
    assert token_bytes(model, settings) == 32 * (512 + 64) * 2
    assert settings.block_tokens == 64
    settings = settings_of(read("trtllm-serve m --tp_size 8 --kv_cache_dtype fp8"), model, CARD)
    assert token_bytes(model, settings) == 32 * (512 + 64)


@pytest.mark.parametrize(
    ("layers", "kv_heads", "head_dim", "size"),
    [(36, 8, 64, 73728), (30, 3, 64, 23040)],  # gpt-oss-120b, whose windows are kept in full; SmolLM2-135M
)
def test_bytes_of_a_token_that_servers_logged(layers: int, kv_heads: int, head_dim: int, size: int) -> None:
    heads = Attention(query_heads=64, kv_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim)
    mixers = (Mixer.SLIDING, Mixer.FULL)
    model = replace(
        MODEL,
        layers=tuple(replace(MODEL.layers[0], mixer=mixers[n % 2], attention=heads) for n in range(layers)),
    )
    assert token_bytes(model, settings_of(read("trtllm-serve m"), model, CARD)) == size


def test_bytes_of_a_latent_of_eight_bits_that_a_server_logged() -> None:
    layer = replace(MODEL.layers[0], mixer=Mixer.MLA, attention=LATENT)
    model = replace(MODEL, layers=(layer,) * 61)
    settings = settings_of(read("trtllm-serve m --tp_size 8 --kv_cache_dtype fp8"), model, CARD)
    assert token_bytes(model, settings) == 35136


def test_whole_blocks_that_a_server_logged() -> None:
    plan = planned("trtllm-serve m", file="kv_cache_config:\n  max_tokens: 86711\n")
    assert (plan.kv.tokens, plan.kv.blocks) == (86720, 2710)


def test_the_cache_is_a_share_of_what_is_free_in_whole_blocks() -> None:
    plan = planned("trtllm-serve m")
    held = sum(one.bytes for one in plan.ledger if one.name not in ("reserved", "kv_pool", "free"))
    free = CARD.cuda_total - held
    assert plan.kv.available_bytes == round(0.9 * free)
    assert plan.kv.tokens == -(-(int(0.9 * free) // 131072) // 32) * 32
    assert plan.kv.low_tokens < plan.kv.tokens < plan.kv.high_tokens


def test_the_largest_step_comes_again_after_the_cache_is_made() -> None:
    plan = planned("trtllm-serve m --max_num_tokens 16384")
    (step,) = plan.upcoming
    lines = {one.name: one.bytes for one in plan.ledger}
    assert (step.flag, step.value, step.bytes) == ("--max_num_tokens", 16384, lines["activations"])
    assert plan.share is not None
    assert plan.kv.available_bytes == round(plan.share.value * plan.share.base)


def test_a_limit_in_tokens() -> None:
    plan = planned("trtllm-serve m", file="kv_cache_config:\n  max_tokens: 10000\n")
    assert plan.kv.tokens == 10016  # whole blocks of 32
    assert plan.fits


def test_states_are_made_for_every_request_of_the_largest_batch() -> None:
    state = LinearState(key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4)
    layers = (replace(MODEL.layers[0], mixer=Mixer.GDN, attention=None, state=state), *MODEL.layers[1:])
    model = replace(MODEL, layers=layers)
    small, large = (
        next(
            one
            for one in planned(f"trtllm-serve m --max_batch_size {size}", model=model).ledger
            if one.name == "state_pool"
        )
        for size in (8, 64)
    )
    assert large.bytes == 8 * small.bytes > 0


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("--tp_size 2", "layout.gpus"),
        ("--kv_cache_free_gpu_memory_fraction 1.5", "settings.free_gpu_memory_fraction"),
        ("--tp_size 4 --ep_size 3", "layout.experts"),
        ("--max_num_tokens 8000000", "memory.no_cache"),
    ],
)
def test_refusals(line: str, finding: str) -> None:
    plan = planned(f"trtllm-serve m {line}")
    assert finding in {one.id for one in plan.findings if one.severity is Severity.FAILURE}
    assert not plan.fits


def test_what_is_worth_saying() -> None:
    ids = {one.id: one.severity for one in planned("trtllm-serve m", context=50000, concurrency=900).findings}
    assert ids["settings.max_num_tokens"] is Severity.WARNING
    assert ids["request.concurrency"] is Severity.WARNING
    assert "settings.max_num_tokens" not in {
        one.id for one in planned("trtllm-serve m --enable_chunked_prefill", context=50000).findings
    }
    form = Quantization(scheme="nvfp4", method="modelopt", group_size=16)
    ids = {
        one.id: one.severity
        for one in planned("trtllm-serve m", model=replace(MODEL, quantization=form)).findings
    }
    assert ids["format.nvfp4"] is Severity.WARNING
    assert any(one.id == "plan.backend" for one in planned("trtllm-serve m --backend trt").findings)


def test_unknown_flags_are_told_with_the_nearest() -> None:
    (finding,) = flag_findings(read("trtllm-serve m --max_sequence_len 5"))
    assert finding.fixes[0].new == "--max_seq_len"


def test_without_a_command_every_layout_is_looked_at() -> None:
    free = replace(
        task("trtllm-serve m", count=4, context=32768), spec=EngineSpec(engine="tensorrt_llm", model="m")
    )
    plan = plan_task(free)
    best = plan.layouts[0]
    assert best.command == (
        "trtllm-serve",
        "m",
        "--max_seq_len",
        "32768",
        "--enable_chunked_prefill",
    )
    for one in plan.layouts:
        again = plan_layout(replace(free, spec=read(" ".join(one.command))))
        assert again.layout == one.layout
        assert again.kv == one.kv


@given(
    st.integers(8_000, 200_000),
    st.floats(0.05, 0.95),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 40_000),
)
def test_every_account_adds_up_and_more_memory_is_never_fewer_tokens(
    mib: int, fraction: float, ranks: int, more: int
) -> None:
    found: list[LayoutPlan] = []
    for size in (mib, mib + more):
        card = replace(CARD, memory_total=(size + 480) * MIB, cuda_total=size * MIB)
        line = f"trtllm-serve m --tp_size {ranks} --kv_cache_free_gpu_memory_fraction {fraction}"
        one = replace(task(line), gpus=Gpus(card=card, count=8))
        found.append(plan_layout(one))
        assert sum(part.bytes for part in found[-1].ledger) == card.memory_total
    less, rich = found
    assert less.kv.tokens <= rich.kv.tokens
    assert (
        less.kv.tokens * less.kv.bytes_per_token <= max(0, less.kv.available_bytes) + less.kv.bytes_per_block
    )
    assert less.kv.low_tokens <= less.kv.tokens <= less.kv.high_tokens


words = st.text("abcXYZ019._/", min_size=1, max_size=8)


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    argv = ["trtllm-serve", draw(words)]
    for name in draw(st.lists(st.sampled_from(sorted(KNOWN)), unique=True, max_size=8)):
        argv += [name] if name in SWITCHES else [name, draw(words)]
    return argv


@given(commands())
def test_reading_and_rendering_again_keeps_the_meaning(argv: list[str]) -> None:
    once = read_command(argv)
    assert once is not None
    again = read_command(render_command(once))
    assert again is not None
    assert (again.model, again.flags, again.context_tokens) == (once.model, once.flags, once.context_tokens)
