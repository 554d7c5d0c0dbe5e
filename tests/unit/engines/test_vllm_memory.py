"""vLLM's budget: the published cases with their arithmetic, and what must hold for every card."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_model import TIED

from bringup.engines.vllm.flags import read_command
from bringup.engines.vllm.ledgers import budget_rule, plan_layout
from bringup.engines.vllm.memory import plan_task
from bringup.engines.vllm.settings import (
    Batch,
    default_batch,
    default_length,
    default_utilization,
    draft_name,
    settings_of,
)
from bringup.parse.hf_config import read_config
from bringup.units import GIB, MIB
from bringup.values.engine import EngineSpec
from bringup.values.finding import Severity
from bringup.values.model import ModelSpec
from bringup.values.plan import Card, Gpus, Layout, LayoutPlan, PlanTask

CONFIG: dict[str, object] = {  # the published config of MiniMaxAI/MiniMax-M2.5, as far as memory goes
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "head_dim": 128,
    "hidden_size": 3072,
    "intermediate_size": 1536,
    "max_position_embeddings": 196608,
    "num_attention_heads": 48,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 62,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
    "qk_norm_type": "per_layer",
    "use_qk_norm": True,
    "use_routing_bias": True,
    "rotary_dim": 64,
    "shared_intermediate_size": 0,
    "tie_word_embeddings": False,
    "vocab_size": 200064,
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "fmt": "float8_e4m3fn",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
    },
}
MINIMAX = read_config(CONFIG, name="MiniMaxAI/MiniMax-M2.5", source="test")
SMALL = read_config(
    TIED,
    name="small",
    source="test",
)
CARD = Card(
    name="NVIDIA RTX PRO 6000 Blackwell",
    memory_total=97887 * MIB,
    cuda_total=97251 * MIB,
    reserved=636 * MIB,
    compute_capability="12.0",
)


def card_of(mib: int) -> Card:
    return replace(CARD, name="unknown", memory_total=(mib + 400) * MIB, cuda_total=mib * MIB)


def task(
    line: str,
    *,
    model: ModelSpec = MINIMAX,
    version: str | None = "0.16.0",
    card: Card = CARD,
    count: int = 4,
    used: int = 0,
    context: int | None = None,
    concurrency: int | None = None,
) -> PlanTask:
    spec = read_command(f"vllm serve m {line}".split())
    assert spec is not None
    return PlanTask(
        spec=spec,
        version=version,
        model=model,
        gpus=Gpus(card=card, count=count, used_by_others=used),
        context=context,
        concurrency=concurrency,
    )


def planned(line: str, **given: object) -> LayoutPlan:
    return plan_layout(task(line, **given))  # type: ignore[arg-type]


def line_of(plan: LayoutPlan, name: str) -> int:
    return next(line.bytes for line in plan.ledger if line.name == name)


def ids(plan: LayoutPlan, severity: Severity) -> set[str]:
    return {finding.id for finding in plan.findings if finding.severity is severity}


def test_case_a_weights() -> None:
    # Logged by vLLM 0.16 on four RTX PRO 6000: "Model loading took 53.75 GiB".
    weights = planned("-tp 4").weights_bytes
    assert 53.74 * GIB <= weights <= 53.76 * GIB


def test_case_a_sampler_at_1024_and_256_sequences() -> None:
    # 38.5 B for each of S x 200,064 logits: 1024 -> 7.35 GiB, 256 -> 1.84 GiB.
    many, few = planned("-tp 4 --max-num-seqs 1024"), planned("-tp 4 --max-num-seqs 256")
    assert line_of(many, "activations") == round(1024 * 200_064 * 38.5)
    assert round(line_of(many, "activations") / GIB, 2) == pytest.approx(7.35, abs=0.01)
    assert round(line_of(few, "activations") / GIB, 2) == pytest.approx(1.84, abs=0.01)


def test_case_a_cache_grows_by_five_and_a_half_gib() -> None:
    # 7.35 - 1.84 = 5.51 GiB per GPU go from the sampler to the cache: 5.51 GiB / 63,488 B = 93,200 tokens.
    many, few = planned("-tp 4 --max-num-seqs 1024"), planned("-tp 4 --max-num-seqs 256")
    grown = few.kv.available_bytes - many.kv.available_bytes
    assert grown == round(1024 * 200_064 * 38.5) - round(256 * 200_064 * 38.5)
    assert grown / GIB == pytest.approx(5.5, abs=0.05)
    assert few.kv.tokens - many.kv.tokens == pytest.approx(93_000, abs=500)


def test_case_a_log_of_399424_tokens() -> None:
    # 0.9 x 94.97 GiB - 53.75 - 7.35 - what appears outside the allocator; logged 23.62 GiB, 399,424 tokens.
    plan = planned("-tp 4 --max-num-seqs 1024")
    assert plan.kv.tokens == pytest.approx(399_424, rel=0.02)
    assert plan.kv.low_tokens <= 399_424 <= plan.kv.high_tokens
    assert plan.kv.bytes_per_token == 2 * 62 * (8 // 4) * 128 * 2


def test_case_a_says_what_fewer_sequences_win() -> None:
    plan = planned("-tp 4")
    note = next(finding for finding in plan.findings if finding.id == "memory.max_num_seqs")
    assert (note.fixes[0].old, note.fixes[0].new) == ("1024", "256")
    assert "5.5 GiB" in note.summary


def test_case_a_smi_interval_holds_what_was_seen() -> None:
    # 96,721 of 97,887 MiB were seen at a utilisation of about 0.95.
    plan = planned("-tp 4 --gpu-memory-utilization 0.95 --max-num-seqs 1024")
    assert plan.smi_used_low / MIB < 96_721
    assert plan.smi_used_high / MIB == pytest.approx(96_721, abs=700)


@pytest.mark.parametrize(
    ("version", "share"), [("0.8.5", 0.9), ("0.19.1", 0.9), ("0.20.2", 0.92), ("0.33.0", 0.92)]
)
def test_default_share_by_version(version: str, share: float) -> None:
    major, minor, patch = map(int, version.split("."))
    assert default_utilization((major, minor, patch)) == share


@pytest.mark.parametrize(
    ("version", "name", "gib", "batch"),
    [
        ((0, 33, 0), "H100", 80, Batch(tokens=8192, sequences=1024)),
        ((0, 33, 0), "NVIDIA A100-SXM4-80GB", 80, Batch(tokens=2048, sequences=256)),
        ((0, 8, 5), "NVIDIA A100-SXM4-80GB", 80, Batch(tokens=8192, sequences=1024)),
        ((0, 33, 0), "NVIDIA GB10", 120, Batch(tokens=2048, sequences=256)),
        ((0, 13, 0), "NVIDIA GB10", 120, Batch(tokens=2048, sequences=256)),
        ((0, 27, 1), "B200", 179, Batch(tokens=8192, sequences=1024)),
        ((0, 28, 0), "B200", 179, Batch(tokens=16384, sequences=1024)),
        ((0, 33, 0), "RTX 4090", 24, Batch(tokens=2048, sequences=256)),
    ],
)
def test_default_batch(version: tuple[int, int, int], name: str, gib: int, batch: Batch) -> None:
    card = replace(CARD, name=name, memory_total=gib * GIB, cuda_total=gib * GIB)
    assert default_batch(version, card) == batch


def test_the_length_of_a_stretched_rope() -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert default_length(replace(SMALL, max_position=40960, config={"rope_scaling": yarn})) == 131072
    llama = {"rope_type": "llama3", "factor": 8.0}
    assert default_length(replace(SMALL, config={"rope_scaling": llama})) == 131072


def test_budget_rules_by_version() -> None:
    def paid(version: tuple[int, int, int]) -> tuple[bool, bool, bool]:
        rule = budget_rule(version)
        return rule.pays_context, rule.pays_communication, rule.pays_others

    assert paid((0, 8, 5)) == (True, True, True)
    assert paid((0, 9, 2)) == (False, True, False)
    assert paid((0, 16, 0)) == paid((0, 33, 0)) == (False, False, False)


def test_graphs_are_charged_since_0_20_unless_switched_off() -> None:
    before, after = planned("", model=SMALL, version="0.19.1"), planned("", model=SMALL, version="0.20.2")
    graphs = line_of(after, "graphs")
    share = ceil(CARD.cuda_total * 0.92) - ceil(CARD.cuda_total * 0.9)
    assert before.kv.available_bytes + share - after.kv.available_bytes == graphs
    off = plan_layout(
        replace(
            task("", model=SMALL, version="0.20.2"),
            spec=EngineSpec(engine="vllm", environment={"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}),
        )
    )
    assert off.kv.available_bytes == after.kv.available_bytes + graphs
    assert line_of(planned("--enforce-eager", model=SMALL), "graphs") == 0


def test_other_processes_are_charged_to_0_8_only() -> None:
    def lost(version: str) -> int:
        alone = planned("--gpu-memory-utilization 0.5", model=SMALL, version=version)
        beside = planned("--gpu-memory-utilization 0.5", model=SMALL, version=version, used=8 * GIB)
        return alone.kv.available_bytes - beside.kv.available_bytes

    assert lost("0.8.5") == 8 * GIB
    assert lost("0.16.0") == 0


def test_the_cache_is_what_was_asked_for_in_bytes() -> None:
    plan = planned("--kv-cache-memory-bytes 8G --gpu-memory-utilization 0.5", model=SMALL, version="0.30.0")
    assert plan.kv.available_bytes == 8 * GIB
    assert (plan.kv.low_tokens, plan.kv.high_tokens) == (plan.kv.tokens, plan.kv.tokens)
    assert "settings.kv_cache_memory" in ids(plan, Severity.NOTE)


@pytest.mark.parametrize(
    "line",
    ["--kv-cache-memory-bytes 500G", "--kv-cache-memory-bytes 1T", "--num-gpu-blocks-override 3000000"],
)
def test_refuses_a_cache_given_larger_than_the_card(line: str) -> None:
    plan = planned(line, model=SMALL)
    assert not plan.fits
    [finding] = [one for one in plan.findings if one.severity is Severity.FAILURE]
    assert finding.id == "memory.too_much"
    smaller = line.rsplit(" ", 1)[0] + f" {finding.fixes[0].new}"
    assert planned(smaller, model=SMALL).fits


def test_says_what_the_given_blocks_hold_where_one_request_needs_more() -> None:
    plan = planned("--num-gpu-blocks-override 100 --max-model-len 131072", model=SMALL)
    [finding] = [one for one in plan.findings if one.severity is Severity.FAILURE]
    # 100 blocks of 16 tokens x 2 x 16 layers x 8 heads x 64 x 2 B
    assert finding.id == "kv.max_model_len"
    assert "50.0 MiB is there" in finding.summary


def test_a_share_of_nothing_is_refused_not_replaced() -> None:
    plan = planned("--gpu-memory-utilization 0", model=SMALL)
    assert "settings.gpu_memory_utilization" in ids(plan, Severity.FAILURE)


@pytest.mark.parametrize("version", ["0.13.0", "0.14.0"])
def test_merged_rows_may_end_within_a_scale_block_since_0_14(version: str) -> None:
    # 8 heads of keys on 8 ranks: 96 rows each, of blocks of 128
    layers = tuple(
        replace(layer, attention=replace(layer.attention, head_dim=96, v_head_dim=128))
        for layer in MINIMAX.layers
        if layer.attention is not None
    )
    model = replace(MINIMAX, layers=layers, name="other")
    plan = planned("-tp 8 --enable-expert-parallel", model=model, count=8, version=version)
    assert plan.fits is (version == "0.14.0")


def test_refuses_when_others_leave_less_than_the_share() -> None:
    plan = planned("", model=SMALL, used=20 * GIB)
    assert not plan.fits
    assert "memory.free_at_start" in ids(plan, Severity.FAILURE)
    assert planned("--gpu-memory-utilization 0.7", model=SMALL, used=20 * GIB).fits


def test_refuses_what_does_not_fit_and_says_what_would() -> None:
    plan = planned("-tp 1")
    assert not plan.fits
    assert ids(plan, Severity.FAILURE) == {"memory.no_cache"}
    assert plan.kv.tokens == 0
    long = planned("--max-model-len 131072 --kv-cache-memory-bytes 1G", model=SMALL, version="0.16.0")
    [finding] = [one for one in long.findings if one.severity is Severity.FAILURE]
    # 1 GiB / (2 x 16 layers x 8 heads x 64 x 2 B) = 32,768 tokens
    assert (finding.id, finding.fixes[0].new) == ("kv.max_model_len", "32768")


def test_refuses_a_layout_that_cuts_through_blocks_until_the_version_that_pads() -> None:
    assert not planned("-tp 8", count=8, version="0.31.0").fits
    assert planned("-tp 8", count=8, version="0.32.0").fits
    assert planned("-tp 8 --enable-expert-parallel", count=8, version="0.31.0").fits
    assert "layout.gpus" in ids(planned("-tp 4", count=2), Severity.FAILURE)


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("--max-num-batched-tokens 128 --max-num-seqs 256", "settings.batch"),
        ("--max-model-len 400000", "settings.max_model_len"),
        ("--gpu-memory-utilization 1.5", "settings.gpu_memory_utilization"),
    ],
)
def test_refuses_settings_that_contradict_each_other(line: str, finding: str) -> None:
    plan = planned(line, model=SMALL)
    assert finding in ids(plan, Severity.FAILURE)
    assert not plan.fits


def test_a_flag_of_another_version_is_no_matter_of_fitting() -> None:
    plan = planned("--kv-cache-memory-bytes 8G", model=SMALL, version="0.9.2")
    assert plan.fits
    assert "flags.version" in ids(plan, Severity.FAILURE)


def test_says_when_more_is_wanted_than_there_is() -> None:
    plan = planned("--max-model-len 32768", model=SMALL, context=65536, concurrency=10_000)
    assert ids(plan, Severity.WARNING) == {"wanted.context", "wanted.concurrency"}


def test_requests_are_limited_by_max_num_seqs() -> None:
    plan = planned("--max-num-seqs 3", model=SMALL, context=1024)
    assert (plan.context, plan.requests) == (1024, 3)


def test_without_a_command_every_layout_is_looked_at() -> None:
    wanted = replace(task("", version="0.33.0", count=8), spec=EngineSpec(engine="vllm", model="org/m"))
    plan = plan_task(wanted)
    best = plan.layouts[0]
    assert best.layout == Layout(tensor_parallel=4)
    assert best.command == ("vllm", "serve", "org/m", "--tensor-parallel-size", "4")
    assert all(one.fits for one in plan.layouts)
    seen = [one.layout for one in plan.layouts] + [layout for layout, _ in plan.rejected]
    assert len(seen) == len(set(seen))
    assert {finding.id for finding in plan.findings} == {"layout.next_larger", "layout.next_smaller"}


def test_without_a_command_and_without_room_the_nearest_is_told() -> None:
    wanted = replace(task("", count=2), spec=EngineSpec(engine="vllm", model="org/m"))
    plan = plan_task(wanted)
    assert (plan.fits, plan.exit_code, len(plan.layouts)) == (False, 6, 1)
    assert plan.layouts[0].layout.gpus == 2
    assert all(reason for _, reason in plan.rejected)


@pytest.mark.parametrize(
    ("version", "words"),
    [(None, "no version given"), ("nightly", "`nightly` is no version"), ("0.6.3", "outside")],
)
def test_says_which_rules_apply(version: str | None, words: str) -> None:
    plan = plan_task(task("", model=SMALL, version=version))
    assert [finding.id for finding in plan.findings] == ["plan.version"]
    assert words in plan.findings[0].summary
    assert plan_task(task("", model=SMALL, version="0.32.1")).findings == ()


versions = st.sampled_from(["0.6.6", "0.8.5", "0.9.2", "0.16.0", "0.19.1", "0.24.0", "0.33.0"])


@given(
    version=versions,
    mib=st.integers(8_000, 300_000),
    share=st.floats(0.05, 1.0),
    tp=st.sampled_from([1, 2, 4]),
    used=st.integers(0, 20_000),
    seqs=st.integers(1, 2048),
)
def test_the_ledger_sums_exactly_to_the_card(
    version: str, mib: int, share: float, tp: int, used: int, seqs: int
) -> None:
    line = f"-tp {tp} --gpu-memory-utilization {share} --max-num-seqs {seqs}"
    plan = planned(line, model=SMALL, version=version, card=card_of(mib), used=used * MIB)
    assert sum(part.bytes for part in plan.ledger) == (mib + 400) * MIB
    assert all(part.low <= part.bytes <= part.high for part in plan.ledger)
    assert plan.kv.low_tokens <= plan.kv.tokens <= plan.kv.high_tokens
    assert plan.smi_used_low <= plan.smi_used_high <= mib * MIB


@given(version=versions, mib=st.integers(8_000, 300_000), more=st.integers(0, 50_000))
def test_more_memory_never_gives_fewer_tokens(version: str, mib: int, more: int) -> None:
    # The batch is given: by default a card of 70 GiB takes a larger one, and holds less cache for it.
    line = "--max-num-seqs 256 --max-num-batched-tokens 4096 --max-model-len 8192"
    small = planned(line, model=SMALL, version=version, card=card_of(mib))
    large = planned(line, model=SMALL, version=version, card=card_of(mib + more))
    assert large.kv.tokens >= small.kv.tokens
    assert large.requests >= small.requests


@given(st.integers(1 << 20, 1 << 36))
def test_bytes_and_tokens_invert(size: int) -> None:
    plan = planned(f"--kv-cache-memory-bytes {size} --max-model-len 2048", model=SMALL)
    if plan.kv.tokens:
        block = (plan.kv.block_tokens or 0) * plan.kv.bytes_per_token
        assert size - block < plan.kv.tokens * plan.kv.bytes_per_token <= size


def test_settings_of_a_model_with_its_own_drafting_layers() -> None:
    spec = read_command(
        ["vllm", "serve", "m", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 3}']
    )
    assert spec is not None
    settings = settings_of(spec, (0, 30, 0), SMALL, CARD)
    assert settings.loads_mtp
    assert settings.speculation is not None
    assert settings.speculation.tokens == 3


def test_a_tower_is_counted_where_the_config_leaves_it_out() -> None:
    # Logged by vLLM 0.11.1 for dots.ocr: "Model loading took 5.7174 GiB", 2.37 of them its vision tower.
    config = {
        "model_type": "dots_ocr",
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "vocab_size": 151936,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "attention_bias": True,
    }
    model = read_config(config, name="ocr", source="test")
    assert not model.multimodal
    whole = planned("", model=model, count=1, version="0.11.1").weights_bytes
    assert whole == pytest.approx(5.7174 * GIB, rel=0.003)
    text = planned("--limit-mm-per-prompt.image 0", model=model, count=1, version="0.11.1").weights_bytes
    assert whole - text == pytest.approx(2.3713 * GIB, rel=0.001)


LLAMA: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


def drafted(draft: ModelSpec | None, fault: str | None = None) -> LayoutPlan:
    flag = '--speculative-config {"method":"eagle3","model":"org/draft","num_speculative_tokens":3}'
    asked = task(flag, model=read_config(LLAMA, name="m", source="test"), count=1)
    return plan_layout(replace(asked, draft=draft, draft_fault=fault))


def test_a_draft_model_adds_its_weights_and_a_layer_of_cache() -> None:
    config = {**LLAMA, "num_hidden_layers": 1, "draft_vocab_size": 32000}
    draft = read_config(config, name="org/draft", source="test")
    with_it, without = drafted(draft), drafted(None, "no such file")
    # One layer, a joint of 12,288 x 4,096 and a head of 32,000 rows: 425 million numbers.
    assert with_it.weights_bytes - without.weights_bytes == pytest.approx(2 * 424_673_280, rel=0.02)
    # 33 layers x 2 x 8 heads x 128 x 2 B against 32.
    assert with_it.kv.bytes_per_token == pytest.approx(33 * 4096, rel=0.001)
    assert without.kv.bytes_per_token == pytest.approx(32 * 4096, rel=0.001)
    assert "weights.draft_model" not in ids(with_it, Severity.UNKNOWN)


def test_a_draft_model_that_cannot_be_had_is_said_and_never_taken_for_nothing() -> None:
    plan = drafted(None, "`org/draft` is no file or folder here")
    found = next(one for one in plan.findings if one.id == "weights.draft_model")
    assert found.severity is Severity.UNKNOWN
    assert "org/draft" in found.summary
    assert "is no file or folder here" in found.summary


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ('--speculative-config {"method":"mtp","num_speculative_tokens":2}', None),
        ('--speculative-config {"method":"mtp","model":"m","num_speculative_tokens":2}', None),
        ('--speculative-config {"method":"ngram","model":"x","num_speculative_tokens":2}', None),
        ('--speculative-config {"model":"org/draft","num_speculative_tokens":2}', "org/draft"),
        ("--speculative-model org/draft --num-speculative-tokens 3", "org/draft"),
    ],
)
def test_which_command_loads_a_draft_model_of_its_own(flag: str, name: str | None) -> None:
    assert draft_name(task(flag).spec) == name


def test_the_environment_splits_the_layers_of_a_pipeline() -> None:
    asked = task("-pp 2", model=read_config(LLAMA, name="m", source="test"), count=2)

    def split(value: str) -> LayoutPlan:
        spec = replace(asked.spec, environment={"VLLM_PP_LAYER_PARTITION": value})
        return plan_layout(replace(asked, spec=spec))

    layer = 2 * (6144 * 4096 + 4096 * 4096 + 3 * 14336 * 4096)
    # 16 and 16 layers; 24 and 8: the first stage is the heavier by eight.
    assert split("24,8").weights_bytes - split("16,16").weights_bytes == pytest.approx(8 * layer, rel=0.01)
    for value in ("24,9", "32", "24,x"):
        assert "layout.partition" in ids(split(value), Severity.FAILURE)
    assert "layout.partition" not in ids(split("24,8"), Severity.FAILURE)


def test_layers_that_are_fetched_when_they_are_due_leave_the_gpu() -> None:
    model = read_config(LLAMA, name="m", source="test")
    layer = 2 * (6144 * 4096 + 4096 * 4096 + 3 * 14336 * 4096)
    whole = planned("", model=model, count=1, version="0.32.0").weights_bytes
    # Two of every eight of 32 layers are away, one of these is on its way.
    some = planned("--offload-group-size 8 --offload-num-in-group 2", model=model, count=1, version="0.32.0")
    assert whole - some.weights_bytes == pytest.approx(7 * layer, rel=0.01)
    # --cpu-offload-gb takes bytes, whatever they are of.
    bytes_away = planned("--cpu-offload-gb 4", model=model, count=1, version="0.32.0").weights_bytes
    assert whole - bytes_away == 4 * GIB
