"""Our KV rules beside vLLM's own functions, on thousands of random models.

Needs an environment with vLLM (the CPU build is enough): the one whose Python `BRINGUP_ORACLE_PYTHON`
names, else the one that the tests of real engines make with `BRINGUP_ENGINES=vllm`.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from bringup.planner.kv_cache import kv_plan, layer_stages
from bringup.planner.kv_formats import head_bytes, latent_bytes
from bringup.planner.kv_groups import group_layers
from bringup.planner.kv_records import CacheKind, KvLayout, KvRules, LayerCache, UngroupableError
from bringup.planner.kv_states import state_bytes
from bringup.values.model import LinearState, Mixer
from engine_environment import WANTED, EngineUnavailableError, python_of
from kv_cases import draw_case

CASES = int(os.environ.get("BRINGUP_ORACLE_CASES", "2400"))
VERSION = (0, 32, 0)

pytestmark = pytest.mark.oracle


@pytest.fixture(scope="module")
def python_with_vllm():
    """The Python that is named, else that of the engine's own environment, made where it is asked for."""
    named = os.environ.get("BRINGUP_ORACLE_PYTHON")
    if named:
        assert Path(named).exists(), f"BRINGUP_ORACLE_PYTHON names {named}, which is not there"
        return named
    if "vllm" not in WANTED:
        pytest.skip("vLLM's own functions cannot be asked: set BRINGUP_ORACLE_PYTHON or BRINGUP_ENGINES=vllm")
    try:
        return str(python_of("vllm"))
    except EngineUnavailableError as error:
        pytest.skip(f"vLLM's own functions cannot be asked: {error}")


@pytest.fixture(scope="module")
def ask(python_with_vllm):
    """Asks vLLM; one process for all, since importing it takes most of a minute."""
    script = Path(__file__).with_name("ask_vllm.py")
    with subprocess.Popen(
        [python_with_vllm, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as engine:
        yield lambda case: _answer(engine, case)
        engine.stdin.close()


def _answer(engine, case):
    engine.stdin.write(json.dumps(case) + "\n")
    engine.stdin.flush()
    for line in engine.stdout:
        if line.startswith("answer "):
            told = json.loads(line.removeprefix("answer "))
            assert "crash" not in told, f"{told['crash']} on {json.dumps(case)[:1500]}"
            return told
    raise AssertionError(f"no answer to {json.dumps(case)[:2000]}")


def cache_of(layer):
    """The same layer in our words."""
    kinds = {"indexer": CacheKind.MLA, "keys": CacheKind.MLA, "ring": CacheKind.STATE}
    kind = kinds.get(layer["kind"]) or CacheKind(layer["kind"])
    more = {}
    if layer["kind"] == "ring":
        kind, page, shape = CacheKind.STATE, layer["block"] * layer["head_dim"] * 2, ("ring",)
        more = {"pages_per_request": 1}
    elif layer["kind"] == "state":
        page = max(layer["bytes"], layer["padded"] or 0)
        pages = (2 if layer["mode"] == "align" else 1) + layer["drafts"]
        more = {"pages_per_request": pages, "is_copied": layer.get("is_copied", False)}
        shape = (str(layer["shapes"]), str(layer["dtypes"]))
    elif layer["kind"] == "mla":
        token = layer["packed"] or latent_bytes(layer["dtype"], layer["head_dim"], 0)
        page, shape = layer["block"] * token, (layer["head_dim"], layer["dtype"], layer["packed"])
    elif layer["kind"] == "sliding_mla":
        page = layer["block"] * latent_bytes(layer["dtype"], layer["head_dim"], 0)
        shape = (layer["head_dim"], layer["dtype"])
    elif layer["kind"] == "keys":
        page, shape = layer["block"] // layer["ratio"] * layer["head_dim"] * 2, ("keys", layer["ratio"])
    elif layer["kind"] == "indexer":
        page, shape = layer["block"] * layer["head_dim"], (layer["head_dim"], "indexer")
    else:
        token = layer["heads"] * head_bytes(layer["dtype"], layer["head_dim"], layer["v_head_dim"])
        page = layer["block"] * token
        shape = (layer["heads"], layer["head_dim"], layer["v_head_dim"], layer["dtype"])
    return LayerCache(
        name=layer["name"],
        layer=layer["stage"],
        kind=kind,
        block_tokens=layer["block"],
        page=page,
        window=layer.get("window", 0),
        shape=shape,
        is_context_sharded=layer.get("is_sharded", False),
        **more,
    )


def predict(case):
    """Our answer, in the words of the oracle's."""
    caches = tuple(cache_of(layer) for layer in case["layers"])
    try:
        groups = group_layers(
            caches,
            version=VERSION,
            has_hybrid_manager=case["has_hybrid_manager"],
            packs_layers=case["layout"] == "BLHNC",
        )
    except UngroupableError as error:
        return {"error": f"{error}"}
    cost = tuple(
        max(sum(cache.page for cache in group if cache.layer == stage) for group in groups)
        for stage in range(case["stages"])
    )
    layout = KvLayout(
        groups=groups,
        stage_bytes=cost,
        context_parallel=case["dcp"],
        cache_dtype="auto",
        in_flight_tokens=case["in_flight"],
        encoder_tokens=case["encoder_tokens"],
    )
    plan = kv_plan(layout, case["available"], case["length"], KvRules(version=VERSION))
    return {
        "groups": [[cache.name for cache in group] for group in groups],
        "stage_bytes": list(cost),
        "blocks": plan.blocks,
        "tokens": plan.tokens,
        "concurrency": plan.max_concurrency,
        "starts": plan.fits,
        "longest": plan.longest_context,
    }


def test_groups_blocks_and_tokens_are_those_of_the_engine(ask):
    draw = random.Random(20)
    cases = [draw_case(draw) for _ in range(CASES)]
    answers = [ask(case) for case in cases]
    wrong = []
    for case, answer in zip(cases, answers, strict=True):
        ours = predict(case)
        if "error" in answer or "error" in ours:
            agree = ("error" in answer) == ("error" in ours)
        else:
            agree = ours == answer
        if not agree:
            wrong.append((case["family"], ours, answer))
    refused = sum("error" in answer for answer in answers)
    print(f"{len(cases) - len(wrong)} of {len(cases)} cases agree, {refused} of them refused by both")
    assert not wrong, f"{len(wrong)} differ, the first: {wrong[0]}"
    assert refused < len(cases) / 4  # otherwise the cases would prove little


STATES = {
    Mixer.GDN: "gated_delta_net_state_shape",
    Mixer.MAMBA2: "mamba2_state_shape",
    Mixer.KDA: "kda_state_shape",
    Mixer.MAMBA1: "mamba1_state_shape",
    Mixer.SHORT_CONV: "short_conv_state_shape",
    Mixer.LIGHTNING: "linear_attention_state_shape",
}


def draw_state(draw):
    mixer = draw.choice(list(STATES))
    tp = draw.choice((1, 2, 4, 8))
    drafts = draw.choice((0, 0, 1, 3))
    keys = draw.choice((1, 2, 8)) if mixer is Mixer.MAMBA2 else draw.choice((8, 16))
    values = draw.choice((16, 32, 64))
    if mixer is Mixer.KDA:
        keys = values
    size = draw.choice((64, 128))
    state = LinearState(
        key_heads=keys,
        key_head_dim=size,
        value_heads=values,
        value_head_dim=size if mixer is Mixer.KDA else draw.choice((64, 128)),
        conv_kernel=draw.choice((3, 4)),
        inner_size=draw.choice((2048, 8192)) if mixer in (Mixer.MAMBA1, Mixer.SHORT_CONV) else 0,
    )
    return mixer, state, tp, drafts


def arguments_of(mixer, state, tp, drafts):
    inner = state.value_heads * state.value_head_dim
    return {
        Mixer.GDN: {
            "tp_world_size": tp,
            "num_k_heads": state.key_heads,
            "num_v_heads": state.value_heads,
            "head_k_dim": state.key_head_dim,
            "head_v_dim": state.value_head_dim,
            "conv_kernel_size": state.conv_kernel,
            "num_spec": drafts,
        },
        Mixer.MAMBA2: {
            "tp_world_size": tp,
            "intermediate_size": inner,
            "n_groups": state.key_heads,
            "num_heads": state.value_heads,
            "head_dim": state.value_head_dim,
            "state_size": state.key_head_dim,
            "conv_kernel": state.conv_kernel,
            "num_spec": drafts,
        },
        Mixer.KDA: {
            "tp_world_size": tp,
            "num_heads": state.value_heads,
            "head_dim": state.value_head_dim,
            "num_k_heads": state.key_heads,
            "head_k_dim": state.key_head_dim,
            "conv_kernel_size": state.conv_kernel,
            "num_spec": drafts,
        },
        Mixer.MAMBA1: {
            "tp_world_size": tp,
            "intermediate_size": state.inner_size,
            "state_size": state.key_head_dim,
            "conv_kernel": state.conv_kernel,
        },
        Mixer.SHORT_CONV: {
            "tp_world_size": tp,
            "intermediate_size": state.inner_size,
            "conv_kernel": state.conv_kernel,
            "num_spec": drafts,
        },
        Mixer.LIGHTNING: {"tp_size": tp, "num_heads": state.value_heads, "head_dim": state.value_head_dim},
    }[mixer]


def elements(shape):
    total = 1
    for size in shape:
        total *= size
    return total


def test_states_have_the_engine_s_shapes(ask):
    draw = random.Random(21)
    drawn = [draw_state(draw) for _ in range(400)]
    answers = [ask({"shape": STATES[case[0]], "arguments": arguments_of(*case)}) for case in drawn]
    for (mixer, state, tp, drafts), answer in zip(drawn, answers, strict=True):
        found = state_bytes(
            mixer, state, tp=tp, convolution_dtype="bfloat16", state_dtype="float32", drafts=drafts
        )
        shapes = answer["shapes"]
        if mixer is Mixer.LIGHTNING:
            expected = 4 * elements(shapes[0])
        else:
            expected = 2 * elements(shapes[0]) + 4 * sum(elements(shape) for shape in shapes[1:])
        assert found.total == expected, (mixer, state, tp, drafts)


def test_pipeline_stages_are_the_engine_s(ask):
    cases = [(layers, stages) for layers in range(1, 100, 7) for stages in range(1, min(layers, 9) + 1)]
    answers = [ask({"indices": [layers, stages]}) for layers, stages in cases]
    for (layers, stages), answer in zip(cases, answers, strict=True):
        assert [list(pair) for pair in layer_stages(layers, stages)] == answer["stages"], (layers, stages)
