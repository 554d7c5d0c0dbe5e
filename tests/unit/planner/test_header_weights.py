"""Weights from the headers of files: the same as from the config where both are right, better where not."""

from dataclasses import replace

import pytest

from bringup.planner.formats import Matrix, matrix_bytes
from bringup.planner.held import Vector
from bringup.planner.ignored import format_of
from bringup.planner.spread import WHOLE
from bringup.planner.tensors import edge_tensors, layer_tensors
from bringup.planner.weight_rules import WeightRules, vllm_rules
from bringup.planner.weights import weights_per_rank
from bringup.values.model import Attention, Layer, Mixer, Mlp, ModelSpec, Quantization, Tensor
from bringup.values.plan import Layout

FP8 = Quantization(scheme="fp8_block", method="fp8", block=(128, 128))
NVFP4 = Quantization(scheme="nvfp4", method="modelopt", group_size=16, ignored=("re:.*self_attn.*",))
KINDS = ("weight", "weight_scale_inv", "weight_scale_2", "input_scale", "k_extra")


def model(mlp, quantization=None, **more):
    attention = Attention(query_heads=32, kv_heads=4, head_dim=128, v_head_dim=128, qk_norm="head")
    layers = tuple(Layer(index=index, mixer=Mixer.FULL, attention=attention, mlp=mlp) for index in range(6))
    return ModelSpec(
        name="m", architecture="", model_type="", hidden_size=2048, vocabulary=151936, layers=layers,
        max_position=40960, rotary_dims=(128,), quantization=quantization, **more,
    )  # fmt: skip


DENSE = model(Mlp(intermediate_size=6144))
MOE = model(Mlp(intermediate_size=768, experts=16, experts_per_token=8))


def with_headers(spec, skip=()):
    """The spec with tensors as its checkpoint stores them: pieces apart, experts apart."""
    held = list(edge_tensors(spec, WHOLE, WeightRules(), is_first=True, is_last=True))
    for layer in spec.layers:
        held.extend(layer_tensors(spec, layer, WHOLE, WeightRules()))
    tensors, vectors = [], 0
    for one in held:
        if isinstance(one, Matrix):
            form = (
                format_of(one.names, spec.quantization, is_expert=one.is_expert)
                if one.may_be_quantised
                else None
            )
            for name, rows in zip(one.names, one.outputs, strict=True):
                for expert in range(one.copies):
                    piece = replace(one, outputs=(rows,), copies=1)
                    named = name.replace(".experts.0.", f".experts.{expert}.")
                    sizes = matrix_bytes(piece, form, WeightRules(has_native_fp4=False))
                    for kind, size in zip(KINDS, sizes, strict=False):
                        dtype = "BF16" if form is None else "F8_E4M3"
                        shape = (rows, piece.inputs) if kind == "weight" else (size,)
                        tensors.append(Tensor(name=f"{named}.{kind}", shape=shape, dtype=dtype, bytes=size))
        elif isinstance(one, Vector) and one.part != "rope":
            for _ in range(one.count):
                vectors += 1
                layer = min(len(tensors) // 8, 5)
                name = f"model.layers.{layer}.norm_{vectors}.weight"
                tensors.append(Tensor(name=name, shape=(one.bytes // 2,), dtype="BF16", bytes=one.bytes))
    kept = tuple(tensor for tensor in tensors if not tensor.name.startswith(skip or ("\0",)))
    return replace(spec, tensors=kept, origin="headers")


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("form", [None, FP8, NVFP4], ids=["bf16", "fp8", "nvfp4"])
@pytest.mark.parametrize("spec", [DENSE, MOE], ids=["dense", "experts"])
def test_headers_and_config_agree(spec, form, tp):
    spec = replace(spec, quantization=form)
    layout = Layout(tensor_parallel=tp)
    from_config = weights_per_rank(spec, layout, WeightRules())
    from_headers = weights_per_rank(with_headers(spec), layout, WeightRules())
    # Merged or stored apart, rests of the allocator's segments of up to 1 MiB go to other tensors.
    assert from_headers.total == pytest.approx(from_config.total, rel=0.002, abs=3 << 20)


@pytest.mark.parametrize("stages", [2, 3])
def test_stages_share_what_the_files_hold(stages):
    layout = Layout(pipeline_parallel=stages)
    from_config = weights_per_rank(DENSE, layout, WeightRules())
    from_headers = weights_per_rank(with_headers(DENSE), layout, WeightRules())
    pairs = zip(from_headers.stages, from_config.stages, strict=True)
    assert all(mine.total == pytest.approx(theirs.total, rel=0.002) for mine, theirs in pairs)


def test_what_the_file_says_overrules_what_the_config_promises():
    stored = with_headers(DENSE)  # bf16 in the file
    claimed = replace(stored, quantization=FP8)
    assert [finding.id for finding in weights_per_rank(claimed, Layout(), WeightRules()).findings] == [
        "weights.config_mismatch"
    ]
    assert weights_per_rank(stored, Layout(), WeightRules()).findings == ()
    assert weights_per_rank(claimed, Layout(), WeightRules()).total == pytest.approx(
        weights_per_rank(DENSE, Layout(), WeightRules()).total, rel=0.002
    )


def test_a_head_that_is_not_in_the_files_is_the_embedding():
    spec = with_headers(DENSE, skip=("lm_head",))
    difference = (
        weights_per_rank(DENSE, Layout(), WeightRules()).total
        - weights_per_rank(spec, Layout(), WeightRules()).total
    )
    assert difference == pytest.approx(151936 * 2048 * 2, abs=1 << 20)


def test_a_stored_copy_of_a_tied_head_is_not_loaded():
    tied = replace(DENSE, is_tied=True)
    stored = replace(tied, tensors=with_headers(DENSE).tensors)
    assert weights_per_rank(stored, Layout(), WeightRules()).total == pytest.approx(
        weights_per_rank(tied, Layout(), WeightRules()).total, rel=0.002
    )


def test_draft_layers_and_towers_in_the_files_count_only_where_loaded():
    mib = 1 << 20
    extra = (
        Tensor(name="model.layers.6.self_attn.q_proj.weight", shape=(512, 1024), dtype="BF16", bytes=mib),
        Tensor(name="mtp.fc.weight", shape=(512, 1024), dtype="BF16", bytes=mib),
        Tensor(name="visual.blocks.0.attn.qkv.weight", shape=(1024, 1024), dtype="BF16", bytes=2 * mib),
        Tensor(name="model.layers.0.self_attn.rotary_emb.inv_freq", shape=(64,), dtype="F32", bytes=256),
    )
    plain = with_headers(DENSE)
    spec = replace(plain, tensors=plain.tensors + extra)

    def more(**rules):
        return (
            weights_per_rank(spec, Layout(), WeightRules(**rules)).total
            - weights_per_rank(plain, Layout(), WeightRules(**rules)).total
        )

    assert more(loads_encoder=False) == 0
    assert more() == 2 * mib
    assert more(loads_encoder=False, loads_mtp=True) == 2 * mib


def test_merged_names_and_float32_files_are_understood():
    pieces = {"q_proj": 4096, "k_proj": 512, "v_proj": 512}
    plain = with_headers(DENSE)
    kept = [tensor for tensor in plain.tensors if not any(piece in tensor.name for piece in pieces)]
    rows = sum(pieces.values())
    merged = [
        Tensor(
            name=f"model.layers.{index}.self_attn.qkv_proj.weight", shape=(rows, 2048), dtype="F32",
            bytes=rows * 2048 * 4,
        )
        for index in range(6)
    ]  # fmt: skip
    spec = replace(plain, tensors=(*kept, *merged))
    for tp in (1, 4):
        layout = Layout(tensor_parallel=tp)
        assert weights_per_rank(spec, layout, WeightRules()).total == pytest.approx(
            weights_per_rank(DENSE, layout, WeightRules()).total, rel=0.002
        )


def test_a_matrix_of_no_known_name_is_in_doubt_until_the_layout_does_not_matter():
    mib = 1 << 20
    odd = Tensor(name="model.layers.0.novelty.proj.weight", shape=(2048, 4096), dtype="BF16", bytes=16 * mib)
    plain = with_headers(DENSE)
    spec = replace(plain, tensors=(*plain.tensors, odd))
    alone = weights_per_rank(spec, Layout(), WeightRules())
    assert alone.total == weights_per_rank(plain, Layout(), WeightRules()).total + 16 * mib
    split = weights_per_rank(spec, Layout(tensor_parallel=4), WeightRules())
    before = weights_per_rank(plain, Layout(tensor_parallel=4), WeightRules())
    assert split.low < before.low + 5 * mib
    assert split.total == before.total + 16 * mib


def test_stacked_experts_of_gpt_oss_are_padded_from_the_files():
    form = Quantization(scheme="mxfp4", method="mxfp4", group_size=32)
    mlp = Mlp(intermediate_size=2880, experts=4, experts_per_token=4, has_bias=True)
    spec = replace(model(mlp, form), hidden_size=2880, vocabulary=201088)
    tensors = []
    for index in range(6):
        base = f"model.layers.{index}.mlp.experts"
        for name, rows in (("gate_up_proj", 5760), ("down_proj", 2880)):
            blocks, scales = (4, rows, 90, 16), (4, rows, 90)
            tensors += [
                Tensor(name=f"{base}.{name}_blocks", shape=blocks, dtype="U8", bytes=4 * rows * 90 * 16),
                Tensor(name=f"{base}.{name}_scales", shape=scales, dtype="U8", bytes=4 * rows * 90),
                Tensor(name=f"{base}.{name}_bias", shape=(4, rows), dtype="BF16", bytes=4 * rows * 2),
            ]
    rules = vllm_rules("0.12.0", compute_capability="8.6")
    mine = dict(weights_per_rank(replace(spec, tensors=tuple(tensors)), Layout(), rules).parts)
    theirs = dict(weights_per_rank(spec, Layout(), rules).parts)
    assert mine["experts"] == pytest.approx(theirs["experts"], rel=0.01)
    assert mine["experts"] > 1.05 * 6 * 4 * 3 * 2880 * 2880 * 0.53125
