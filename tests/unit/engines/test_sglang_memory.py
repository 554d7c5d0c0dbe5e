"""SGLang's budget: the published case with its arithmetic, the automatic share, and what must always hold."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.engines.sglang.flags import read_command
from bringup.engines.sglang.fraction import NEWEST, decode_sizes, prefill_sizes
from bringup.engines.sglang.ledgers import after_pools, plan_layout, request_table
from bringup.engines.sglang.memory import plan_task
from bringup.engines.sglang.settings import default_length, settings_of
from bringup.parse.hf_config import read_config
from bringup.units import GIB, MIB
from bringup.values.finding import Severity
from bringup.values.model import ModelSpec
from bringup.values.plan import Card, Gpus, LayoutPlan, PlanTask

# The published geometry of Qwen3.5-397B-A17B. In NVFP4, with what ModelOpt leaves in 16 bits.
QWEN: dict[str, object] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "model_type": "qwen3_5_moe_text",
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 4096,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 64,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "moe_intermediate_size": 1024,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": 32,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": 60,
        "num_key_value_heads": 2,
        "shared_expert_intermediate_size": 1024,
        "tie_word_embeddings": False,
        "vocab_size": 248320,
    },
    "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16},
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "*.shared_expert.*", "*.linear_attn*", "*.self_attn*", "*visual*"],
    },
}
LARGE = read_config(QWEN, name="Qwen/Qwen3.5-397B-A17B", source="test")
SMALL_CONFIG: dict[str, object] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "head_dim": 128,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "num_hidden_layers": 40,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}
SMALL = read_config(SMALL_CONFIG, name="Qwen/Qwen3-14B", source="test")
CARD = Card(
    name="NVIDIA RTX PRO 6000 Blackwell",
    memory_total=97887 * MIB,
    cuda_total=97251 * MIB,
    reserved=636 * MIB,
    compute_capability="12.0",
    is_cuda_total_measured=True,
)


def card_of(mib: int) -> Card:
    return replace(CARD, name="unknown", memory_total=mib * MIB, cuda_total=(mib - 600) * MIB)


def task(
    line: str = "",
    *,
    model: ModelSpec = SMALL,
    version: str | None = "0.5.23",
    card: Card = CARD,
    count: int = 8,
    context: int | None = None,
    concurrency: int | None = None,
) -> PlanTask:
    spec = read_command(f"python3 -m sglang.launch_server --model-path m {line}".split())
    assert spec is not None
    return PlanTask(
        spec=spec,
        version=version,
        model=model,
        gpus=Gpus(card=card, count=count),
        context=context,
        concurrency=concurrency,
    )


def planned(line: str = "", **given: object) -> LayoutPlan:
    return plan_layout(task(line, **given))  # type: ignore[arg-type]


def share(line: str, **given: object) -> float:
    asked = task(line, **given)  # type: ignore[arg-type]
    version = tuple(int(part) for part in (asked.version or "").split("."))
    return settings_of(asked.spec, version, asked.model, asked.gpus.card).fraction  # type: ignore[arg-type]


def line_of(plan: LayoutPlan, name: str) -> int:
    return next(line.bytes for line in plan.ledger if line.name == name)


def ids(plan: LayoutPlan, severity: Severity) -> set[str]:
    return {finding.id for finding in plan.findings if finding.severity is severity}


def case_b(version: str = "0.5.9", line: str = "") -> LayoutPlan:
    return planned(f"--tp 4 {line}", model=LARGE, version=version, count=4)


def test_case_b_share_of_its_own() -> None:
    # Tier of 97,887 MiB: chunk 8192, graphs to 512. 512 + 1.5 x 8192 + 1024 x 4 / 8 + 2 x 512 = 14,336 MiB.
    # (97,887 - 14,336) / 97,887 = 0.854; encoder 24 x 1152^2 / (24 x 1024^2) = 1.2656 ->
    # 0.95 x (1 - 0.1 x 0.2656) = 0.92477; 0.854 x 0.92477 = 0.7897.
    assert 512 + 1.5 * 8192 + 512 + 2 * 512 == 14_336
    assert share("--tp 4", model=LARGE, version="0.5.9") == pytest.approx(0.7897, abs=1e-4)
    # 0.5.23 records prefill too: 58 sizes x 8 MiB = 464 MiB more are kept, (97,887 - 14,800) / 97,887.
    assert share("--tp 4", model=LARGE, version="0.5.23") == pytest.approx(0.7851, abs=1e-4)


def test_case_b_after_the_pools() -> None:
    # 94.97 GiB seen by CUDA, 94.0 free at the start: 94.97 - 94.0 x (1 - 0.7897) = 75.2 GiB = 77,011 MiB.
    used = after_pools(round(94.97 * GIB), 94 * GIB, 0.7897)
    assert used / MIB == pytest.approx(77_011, abs=8)
    # The plan's own: weights and pools together, whatever the weights are.
    plan = case_b()
    before = ("context", "communication", "weights", "state_pool", "kv_pool")
    assert sum(line_of(plan, name) for name in before) / MIB == pytest.approx(77_011, abs=60)


def test_case_b_smi_interval_holds_what_was_seen() -> None:
    # 79,043, 78,369, 78,369 and 78,193 MiB: 1.2 to 2.0 GiB above the pools: workspace, graphs, prefill.
    for version in ("0.5.9", "0.5.23"):
        plan = case_b(version)
        assert plan.smi_used_low / MIB < 78_193
        assert 79_043 < plan.smi_used_high / MIB < 81_500


def test_case_b_requests_are_limited_by_states() -> None:
    # 45 layers x (18,432 + 1,048,576) B = 45.79 MiB for a state; 0.9 / 1.9 of what the weights leave.
    for version, each in (("0.5.9", 3), ("0.5.23", 5)):
        plan = case_b(version)
        slot = 45 * (18_432 + 1_048_576)
        states = line_of(plan, "state_pool") // slot - 1
        assert line_of(plan, "state_pool") == (states + 1) * slot
        rest = plan.kv.available_bytes + line_of(plan, "state_pool")
        assert line_of(plan, "state_pool") == pytest.approx(rest * 0.9 / 1.9, rel=0.01)
        note = next(finding for finding in plan.findings if finding.id == "memory.states")
        assert note.summary.startswith(f"{states // each} requests run at once: {states} states")
        assert plan.kv.fixed_bytes_per_request == each * slot
    assert plan.requests <= states // each


def test_case_b_weights_and_rate() -> None:
    plan = case_b()
    assert 50.6 * GIB < plan.weights_bytes < 62 * GIB
    assert plan.kv.bytes_per_token == 1 * 512 * 15 * 2  # one head on each rank: 2 heads on 4 ranks


def test_case_b_text_only_gets_more() -> None:
    # The same share without images: 0.854 instead of 0.7897, 94 x 0.064 = 6.0 GiB more for the pools.
    assert share("--tp 4 --language-only", model=LARGE, version="0.5.9") == 0.854
    text, both = (
        plan.kv.available_bytes + line_of(plan, "state_pool")
        for plan in (case_b("0.5.9", "--language-only"), case_b())
    )
    more = text - both
    assert more / GIB == pytest.approx(94.06 * (0.854 - 0.78975), abs=0.01)


def test_case_b_more_requests_than_states_is_a_warning() -> None:
    assert "memory.states" in ids(case_b("0.5.23", "--max-running-requests 200"), Severity.WARNING)
    assert "memory.states" in ids(case_b("0.5.23", "--max-running-requests 8"), Severity.NOTE)


# Computed from the source by hand. Without and with prefill graphs.
@pytest.mark.parametrize(
    ("mib", "ranks", "plain", "recorded"),
    [
        (24564, 1, 0.720, 0.704),
        (32607, 1, 0.789, 0.777),
        (81559, 1, 0.835, 0.830),
        (81559, 8, 0.818, 0.812),
        (97887, 1, 0.863, 0.858),
        (97887, 2, 0.861, 0.857),
        (97887, 4, 0.854, 0.849),
        (97887, 8, 0.848, 0.844),
        (143771, 1, 0.907, 0.903),
        (143771, 8, 0.897, 0.893),
        (183359, 8, 0.852, 0.849),
    ],
)
def test_automatic_shares(mib: int, ranks: int, plain: float, recorded: float) -> None:
    card = card_of(mib)
    assert share(f"--tp {ranks} --disable-prefill-cuda-graph", card=card) == pytest.approx(plain, abs=0.0011)
    assert share(f"--tp {ranks}", card=card) == pytest.approx(recorded, abs=0.0011)


def test_share_follows_what_is_kept() -> None:
    assert share("--chunked-prefill-size 2048") > share("") > share("--chunked-prefill-size 16384")
    assert share("--chunked-prefill-size -1") < share("")  # 16,384 tokens of --max-prefill-tokens instead
    assert share("--cuda-graph-max-bs 512") < share("--cuda-graph-bs 1 2 256")
    assert share("--max-running-requests 16") > share("")
    assert share("--tp 8 --dp 8 --enable-dp-attention") < share("--tp 8")
    assert share("--mem-fraction-static 0.5") == 0.5
    assert share("--disable-decode-cuda-graph") > share("")
    assert share("--disable-decode-cuda-graph", version="0.5.9") == share("", version="0.5.9")
    assert share("--speculative-algorithm EAGLE", version="0.5.12") < share("", version="0.5.12")


def test_sizes_of_graphs() -> None:
    assert [prefill_sizes(size) for size in (32, 256, 8192)] == [8, 22, 58]
    assert [decode_sizes(size) for size in (8, 48, 256, 512)] == [4, 10, 36, 52]


def test_pool_that_a_server_printed() -> None:
    # Qwen3-14B in FP8 on one RTX PRO 6000 as a virtual GPU, 0.9: 441,817 tokens, at most 4096 requests.
    plan = planned("--mem-fraction-static 0.9 --quantization fp8", card=replace(CARD, name="RTX PRO 6000"))
    assert plan.kv.bytes_per_token == 2 * 40 * 8 * 128 * 2
    assert plan.kv.low_tokens <= 441_817 <= plan.kv.high_tokens
    assert plan.weights_bytes / GIB == pytest.approx(15.5, rel=0.01)


def test_running_requests_of_long_and_short_contexts() -> None:
    # int(441,817 / 40,960 x 512) = 5522, at most 4096; the table is (4096 + 1) x (40,960 + 4) x 4 B.
    plan = planned("--mem-fraction-static 0.9")
    assert line_of(plan, "request_table") == 4097 * (40_960 + 4) * 4
    few = planned("--mem-fraction-static 0.9 --max-running-requests 16")
    assert line_of(few, "request_table") == 17 * (40_960 + 4) * 4


def test_table_of_requests() -> None:
    asked = task("--context-length 131072")
    settings = settings_of(asked.spec, NEWEST, asked.model, CARD)
    assert request_table(settings, 2048).bytes / GIB == pytest.approx(1.0, abs=0.01)


def test_pages_that_a_back_end_forces() -> None:
    def page(line: str, **given: object) -> int | None:
        return planned(line, **given).kv.block_tokens

    assert page("") == 1
    assert page("--page-size 16") == 16
    assert page("--attention-backend fa4 --page-size 16") == 128
    assert page("", card=replace(CARD, compute_capability="10.0")) == 64
    plan = planned("--page-size 64")
    assert plan.kv.tokens % 64 == 0
    assert plan.kv.blocks == plan.kv.tokens // 64


def test_replicas_of_attention_keep_more() -> None:
    inside = planned("--tp 8 --dp 8 --enable-dp-attention")
    assert inside.kv.bytes_per_token == 8 * planned("--tp 8").kv.bytes_per_token
    assert inside.layout.gpus == 8
    assert line_of(inside, "activations") < line_of(planned("--tp 1"), "activations") / 2
    assert planned("--tp 2 --dp 4").layout.gpus == 8
    assert "layout.attention_replicas" in ids(planned("--tp 4 --attn-dp-size 3"), Severity.FAILURE)


def test_a_model_that_does_not_fit() -> None:
    plan = planned("", card=card_of(24564))
    assert not plan.fits
    assert "memory.no_cache" in ids(plan, Severity.FAILURE)
    assert plan_task(task("", card=card_of(24564))).exit_code == 6


def test_a_pool_smaller_than_one_request_is_a_warning() -> None:
    plan = planned("--max-total-tokens 20000")
    assert plan.fits
    assert "kv.context" in ids(plan, Severity.WARNING)
    assert plan.kv.longest_context == 19_999
    assert not planned("--max-total-tokens 20000", context=30_000).fits


def test_more_requests_than_there_is_room_for() -> None:
    assert "request.concurrency" in ids(planned("", context=40_960, concurrency=500), Severity.WARNING)


def test_a_share_that_leaves_no_reserve() -> None:
    assert "memory.reserve" in ids(planned("--mem-fraction-static 0.99"), Severity.WARNING)
    assert "settings.mem_fraction_static" in ids(planned("--mem-fraction-static 1.5"), Severity.FAILURE)


def test_too_many_gpus() -> None:
    assert "layout.gpus" in ids(planned("--tp 4", count=2), Severity.FAILURE)


def test_versions_that_are_not_known() -> None:
    assert not plan_task(task("", version="0.5.12")).findings
    said = [plan_task(task("", version=text)).findings[0] for text in (None, "nightly", "0.4.9", "0.6.0")]
    assert {finding.id for finding in said} == {"plan.version"}


def test_without_a_version_the_bounds_hold_for_the_pools_of_all() -> None:
    sparse: dict[str, object] = {
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "hidden_size": 512,
        "num_hidden_layers": 10,
        "num_attention_heads": 8,
        "vocab_size": 1024,
        "intermediate_size": 1024,
        "n_routed_experts": None,
    }
    model = read_config(sparse, name="m", source="test")
    line = "--mem-fraction-static 0.8 --kv-cache-dtype fp8_e4m3"
    newest, oldest, unknown = (
        planned(line, model=model, version=version).kv for version in ("0.5.23", "0.5.3", None)
    )
    # 656 bytes of a token and layer, and 132 of its index, which is not counted before 0.5.4.
    assert newest.bytes_per_token / oldest.bytes_per_token == 788 / 656
    assert unknown.tokens == newest.tokens
    assert (unknown.low_tokens, unknown.high_tokens) == (newest.low_tokens, oldest.high_tokens)


def test_lengths_of_scaled_ropes() -> None:
    def length(**rope: object) -> int:
        config = SMALL_CONFIG | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, **rope}}
        return default_length(read_config(config, name="m", source="test"))

    assert length() == 4 * 40_960
    assert length(original_max_position_embeddings=32_768) == 40_960
    assert length(rope_type="llama3") == 40_960


@given(
    mib=st.integers(30_000, 200_000),
    fraction=st.floats(0.3, 0.97),
    ranks=st.sampled_from([1, 2, 4, 8]),
    version=st.sampled_from(["0.5.5", "0.5.9", "0.5.12", "0.5.23"]),
)
def test_every_account_adds_up(mib: int, fraction: float, ranks: int, version: str) -> None:
    plan = planned(f"--tp {ranks} --mem-fraction-static {fraction}", card=card_of(mib), version=version)
    assert sum(line.bytes for line in plan.ledger) == mib * MIB
    assert plan.kv.low_tokens <= plan.kv.tokens <= plan.kv.high_tokens
    assert plan.smi_used_low <= plan.smi_used_high
    assert plan.fits == (plan.kv.tokens > 0)


@given(low=st.floats(0.3, 0.9), step=st.floats(0.001, 0.09))
def test_a_higher_share_never_gives_less(low: float, step: float) -> None:
    first, second = (planned(f"--mem-fraction-static {value}") for value in (low, low + step))
    assert first.kv.tokens <= second.kv.tokens
    assert line_of(first, "free") >= line_of(second, "free")


def test_without_a_version_the_bounds_hold_every_versions_share() -> None:
    old = planned("--tp 4", model=LARGE, version="0.5.9")
    unknown, given = (
        planned(f"--tp 4{more}", model=LARGE, version=None) for more in ("", " --mem-fraction-static 0.78")
    )
    assert unknown.kv.low_tokens <= old.kv.tokens <= unknown.kv.high_tokens
    assert unknown.kv.high_tokens - unknown.kv.low_tokens > given.kv.high_tokens - given.kv.low_tokens


def test_drafts_of_the_models_own_layer() -> None:
    plain, drafts = case_b("0.5.23"), case_b("0.5.23", "--speculative-algorithm NEXTN")
    assert drafts.weights_bytes > plain.weights_bytes
    assert drafts.kv.bytes_per_token == pytest.approx(plain.kv.bytes_per_token * 16 / 15)
    assert drafts.requests < plain.requests
    foreign = case_b("0.5.23", "--speculative-algorithm EAGLE --speculative-draft-model-path org/draft")
    assert "weights.draft_model" in ids(foreign, Severity.UNKNOWN)


def test_states_without_the_prefix_cache() -> None:
    # One state for each request, and as many as requests are asked for.
    plan = case_b("0.5.23", "--disable-radix-cache --max-running-requests 20")
    assert line_of(plan, "state_pool") == 21 * 45 * (18_432 + 1_048_576)
    assert plan.kv.fixed_bytes_per_request == 45 * (18_432 + 1_048_576)


def test_drafts_that_leave_no_state() -> None:
    plan = case_b("0.5.23", "--speculative-algorithm NEXTN --speculative-num-draft-tokens 5000")
    assert "memory.no_states" in ids(plan, Severity.FAILURE)
    assert not plan.fits


EAGLE3: dict[str, object] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "draft_vocab_size": 32000,
    "max_position_embeddings": 8192,
}


def drafted(version: str, draft: ModelSpec | None) -> LayoutPlan:
    line = "sglang serve --model-path org/m --mem-fraction-static 0.8 --speculative-algorithm EAGLE3"
    spec = read_command(f"{line} --speculative-draft-model-path org/draft".split())
    assert spec is not None
    target = {**EAGLE3, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32}
    model = read_config(target, name="org/m", source="test")
    gpus = Gpus(card=CARD, count=1)
    return plan_layout(PlanTask(spec=spec, version=version, model=model, gpus=gpus, draft=draft))


def test_a_draft_model_is_there_before_the_pools_or_after_them_by_version() -> None:
    draft = read_config(EAGLE3, name="org/draft", source="test")
    # qkv, o, gate and up, down, joint, head: 424,673,280 numbers; each token a 33rd layer.
    new, new_without = drafted("0.5.23", draft), drafted("0.5.23", None)
    assert new.weights_bytes - new_without.weights_bytes == pytest.approx(2 * 424_673_280, rel=0.06)
    assert line_of(new, "drafter") == 0
    assert new.kv.bytes_per_token == pytest.approx(33 * 4096, rel=0.001)
    old, old_without = drafted("0.5.12", draft), drafted("0.5.12", None)
    assert old.weights_bytes == old_without.weights_bytes
    assert old.kv.tokens == old_without.kv.tokens
    pool = line_of(old, "kv_pool")
    assert line_of(old, "drafter") == pytest.approx(2 * 424_673_280 + pool / 32, rel=0.06)
    assert "weights.draft_model" in ids(new_without, Severity.UNKNOWN)
    assert "weights.draft_model" not in ids(new, Severity.UNKNOWN)
