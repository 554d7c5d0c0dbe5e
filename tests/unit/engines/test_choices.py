"""Layouts that are chosen without a command: they divide, their command means them, neighbours are told."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bringup.engines import EngineMemory
from bringup.engines.sglang import flags as sglang_flags
from bringup.engines.sglang.memory import MEMORY as SGLANG
from bringup.engines.vllm import flags as vllm_flags
from bringup.engines.vllm.memory import MEMORY as VLLM
from bringup.planner.layouts import layout_text
from bringup.units import MIB
from bringup.values.engine import EngineSpec
from bringup.values.finding import Severity
from bringup.values.model import Attention, Layer, Mixer, Mlp, ModelSpec
from bringup.values.plan import Card, Gpus, Plan, PlanTask

ATTENTION = Attention(query_heads=48, kv_heads=8, head_dim=128, v_head_dim=128)
EXPERTS = Mlp(intermediate_size=1536, experts=64, experts_per_token=4)


def model(*, layers: int = 32, attention: Attention = ATTENTION, mlp: Mlp = EXPERTS) -> ModelSpec:
    mixer = Mixer.MLA if attention.kv_lora_rank else Mixer.FULL
    return ModelSpec(
        name="org/m",
        architecture="MixtralForCausalLM",
        model_type="mixtral",
        layers=tuple(Layer(index=n, mixer=mixer, attention=attention, mlp=mlp) for n in range(layers)),
        hidden_size=3072,
        vocabulary=32000,
        max_position=32768,
    )


def chosen(memory: EngineMemory, engine: str, count: int, mib: int = 40_000, **asked: object) -> Plan:
    card = Card(name="a card", memory_total=(mib + 500) * MIB, cuda_total=mib * MIB, reserved=500 * MIB)
    task = PlanTask(
        spec=EngineSpec(engine=engine, model="org/m"),
        version=None,
        model=model(),
        gpus=Gpus(card=card, count=count),
    )
    return memory.plan(replace(task, **asked))  # type: ignore[arg-type]


ENGINES = [(VLLM, "vllm", vllm_flags), (SGLANG, "sglang", sglang_flags)]


@pytest.mark.parametrize(("memory", "engine", "flags"), ENGINES)
def test_the_command_of_every_layout_means_that_layout(memory, engine, flags) -> None:
    plan = chosen(memory, engine, 8, context=8192)
    assert len(plan.layouts) > 5
    for one in plan.layouts:
        spec = flags.read_command(one.command)
        task = PlanTask(spec=spec, version=None, model=model(), gpus=plan.gpus, context=8192)
        (again,) = memory.plan(task).layouts
        assert again.layout == one.layout
        assert (again.kv, again.requests) == (one.kv, one.requests)
    assert len({one.layout for one in plan.layouts}) == len(plan.layouts)


@pytest.mark.parametrize(("memory", "engine", "flags"), ENGINES)
@settings(max_examples=15, deadline=None)
@given(count=st.integers(1, 12), mib=st.integers(8_000, 150_000))
def test_nothing_is_chosen_that_does_not_divide(memory, engine, flags, count, mib) -> None:
    del flags
    plan = chosen(memory, engine, count, mib)
    for layout in (*(one.layout for one in plan.layouts), *(layout for layout, _ in plan.rejected)):
        assert count % layout.gpus == 0
    for one in plan.layouts:
        tp = one.layout.tensor_parallel
        assert tp % one.layout.attention_data_parallel == 0
        ranks = tp // one.layout.attention_data_parallel
        assert 48 % ranks == 0
        assert 8 % ranks == 0 or ranks % 8 == 0
        if one.fits:
            assert not any(finding.severity is Severity.FAILURE for finding in one.findings)
    assert all(reason for _, reason in plan.rejected)


@pytest.mark.parametrize(("memory", "engine", "flags"), ENGINES)
def test_fewer_and_more_gpus_are_told_in_words_and_numbers(memory, engine, flags) -> None:
    del flags
    plan = chosen(memory, engine, 8)
    best = plan.layouts[0]
    smaller, larger = plan.neighbours
    assert (smaller.side, smaller.fits, larger.side, larger.fits) == ("smaller", False, "larger", True)
    assert smaller.layout.gpus < best.layout.gpus < larger.layout.gpus
    assert "nothing is left" in smaller.reason
    assert larger.requests > best.requests
    words = {one.id: one.summary for one in plan.findings}
    assert layout_text(larger.layout) in words["layout.next_larger"]
    assert smaller.reason in words["layout.next_smaller"]


def test_fewer_gpus_that_serve_less_than_asked_are_told_with_what_they_serve() -> None:
    few = chosen(VLLM, "vllm", 8, 80_000).layouts[0]
    plan = chosen(VLLM, "vllm", 8, 80_000, concurrency=int(few.requests) + 1)
    smaller = plan.neighbours[0]
    assert plan.layouts[0].layout.gpus > smaller.layout.gpus == few.layout.gpus
    assert smaller.fits
    assert smaller.requests >= few.requests


def test_more_gpus_than_there_are_are_told_when_nothing_fits() -> None:
    plan = chosen(VLLM, "vllm", 1, 14_000)
    assert not plan.fits
    (larger,) = plan.neighbours
    assert larger.layout.gpus > 1
    assert larger.fits


def test_a_choice_of_stages_names_the_layout_without() -> None:
    latent = replace(ATTENTION, kv_heads=48, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128)
    plan = chosen(SGLANG, "sglang", 8, 22_000, model=model(attention=latent))
    best = plan.layouts[0].layout
    assert best.pipeline_parallel > 1
    (told,) = [one.summary for one in plan.findings if one.id == "layout.without_stages"]
    named = [one for one in plan.layouts if told.startswith(f"{layout_text(one.layout)} would")]
    assert [(one.layout.pipeline_parallel, one.layout.gpus) for one in named] == [(1, best.gpus)]
    flat = chosen(VLLM, "vllm", 4, 80_000)
    assert flat.layouts[0].layout.pipeline_parallel == 1
    assert not any(one.id == "layout.without_stages" for one in flat.findings)


def test_attention_replicas_hold_more_requests_of_one_latent() -> None:
    latent = replace(ATTENTION, kv_heads=48, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128)
    plan = chosen(SGLANG, "sglang", 8, 80_000, model=model(attention=latent))
    by_layout = {layout_text(one.layout): one for one in plan.layouts}
    assert by_layout["TP8 DPA8"].requests > by_layout["TP8"].requests
    assert "--enable-dp-attention" in by_layout["TP8 DPA8"].command


def test_the_context_is_spread_where_ranks_hold_copies() -> None:
    few_heads = replace(ATTENTION, kv_heads=2)
    plan = chosen(VLLM, "vllm", 8, 80_000, model=model(attention=few_heads))
    by_layout = {layout_text(one.layout): one for one in plan.layouts}
    assert by_layout["TP8 DCP4"].kv.tokens > 3 * by_layout["TP8"].kv.tokens


def test_sglang_refuses_settings_that_contradict_each_other() -> None:
    def ids(line: str) -> set[str]:
        spec = sglang_flags.read_command(f"sglang serve org/m {line}".split())
        plan = chosen(SGLANG, "sglang", 8, spec=spec)
        return {one.id for one in plan.layouts[0].findings}

    assert "settings.expert_parallel" in ids("--tp 4 --ep 3")
    assert "settings.attention_replicas" in ids("--tp 4 --enable-dp-attention")
    assert "settings.attention_replicas" not in ids("--tp 4 --dp 4 --enable-dp-attention")
    assert "settings.context_length" in ids("--tp 4 --context-length 40000")
    assert "settings.context_length" not in ids("--tp 4 --context-length 32768")
