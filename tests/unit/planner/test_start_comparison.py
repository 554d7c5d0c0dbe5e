"""A plan beside a start's log: bounds, rounding, and the reasons that the log itself gives."""

from dataclasses import replace

import pytest
from small_model import CONFIG, MODEL

from bringup.engines.vllm.flags import read_command
from bringup.engines.vllm.memory import plan_task
from bringup.parse.hf_config import read_config
from bringup.planner.start_assumptions import assumptions, with_reason
from bringup.planner.start_comparison import compare
from bringup.units import GIB, MIB
from bringup.values.against_log import AgainstLog, Agreement, ComparedLine
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Card, Gpus, Plan, PlanTask
from bringup.values.start_log import Cite, RankStart, StartLog

CARD = Card(
    name="Test 24 GB", memory_total=24_564 * MIB, cuda_total=24_080 * MIB, reserved=484 * MIB,
    compute_capability="8.9",
)  # fmt: skip
WITHIN = round(0.005 * GIB)


def task(*flags: str, version: str | None = "0.16.0") -> PlanTask:
    spec = read_command(("vllm", "serve", "org/small", *flags))
    assert spec is not None
    return PlanTask(spec=spec, version=version, model=MODEL, gpus=Gpus(card=CARD, count=1))


def log(plan: Plan, **told: int) -> StartLog:
    """A log that tells the plan's own figures, but for those given."""
    layout = plan.layouts[0]
    ledger = {line.name: line.bytes for line in layout.ledger}
    own = {
        "weights": ledger["weights"],
        "activations": ledger["activations"],
        "outside": ledger["kernels"],
        "kv_pool": layout.kv.available_bytes,
    } | told
    tokens = own.pop("kv_tokens", layout.kv.tokens)
    rank = RankStart(**own)
    cites = {name: Cite(line=1, text=name, within=WITHIN) for name in own}
    return StartLog(engine="vllm", version="0.16.0", ranks=(rank,), kv_tokens=tokens, cites=cites)


def lines(plan: Plan, start: StartLog) -> dict[str, ComparedLine]:
    return {line.name: line for line in compare(plan.layouts[0], plan.gpus, start, MODEL)}


def test_a_log_of_what_was_planned_agrees_on_every_line() -> None:
    plan = plan_task(task())
    assert {line.agreement for line in lines(plan, log(plan)).values()} == {Agreement.EQUAL}


def test_inside_the_bounds_is_no_difference() -> None:
    plan = plan_task(task())
    low = next(line.low for line in plan.layouts[0].ledger if line.name == "activations")
    found = lines(plan, log(plan, activations=low + MIB))
    assert found["activations"].agreement is Agreement.INSIDE


def test_rounding_of_the_log_counts() -> None:
    plan = plan_task(task())
    high = next(line.high for line in plan.layouts[0].ledger if line.name == "activations")
    assert lines(plan, log(plan, activations=high + WITHIN - 1))["activations"].agreement is Agreement.INSIDE
    beyond = lines(plan, log(plan, activations=high + WITHIN + MIB))["activations"]
    assert beyond.agreement is Agreement.UNEXPLAINED


def test_beyond_the_bounds_is_unexplained_and_the_exit_code_1() -> None:
    plan = plan_task(task())
    weights = next(line.high for line in plan.layouts[0].ledger if line.name == "weights")
    start = log(plan, weights=weights + 2 * GIB)
    found = lines(plan, start)
    assert found["weights"].agreement is Agreement.UNEXPLAINED
    against = AgainstLog(source="f", start=start, words="", lines=tuple(found.values()))
    assert [line.name for line in against.unexplained] == ["weights"]
    assert (against.exit_code(0), against.exit_code(6)) == (1, 1)
    none = replace(against, lines=())
    assert (none.exit_code(0), none.exit_code(6)) == (0, 6)


def test_a_pool_that_differs_by_what_the_weights_took_is_explained_and_its_tokens_too() -> None:
    plan = plan_task(task())
    kv = plan.layouts[0].kv
    weights = next(line.bytes for line in plan.layouts[0].ledger if line.name == "weights") + 4 * GIB
    pool = kv.available_bytes - 4 * GIB
    found = lines(plan, log(plan, weights=weights, kv_pool=pool, kv_tokens=int(pool / kv.bytes_per_token)))
    assert found["weights"].agreement is Agreement.UNEXPLAINED
    assert found["kv_pool"].agreement is Agreement.EXPLAINED
    assert "weights took 4.0 GiB more" in found["kv_pool"].explanation
    assert found["kv_tokens"].agreement is Agreement.EXPLAINED
    assert "follows from the pool" in found["kv_tokens"].explanation


def test_tokens_that_do_not_follow_from_the_pool_stay_unexplained() -> None:
    plan = plan_task(task())
    found = lines(plan, log(plan, kv_tokens=plan.layouts[0].kv.tokens // 3))
    assert found["kv_tokens"].agreement is Agreement.UNEXPLAINED


def test_memory_in_use_before_the_start_is_another_process() -> None:
    plan = plan_task(task())
    found = lines(plan, log(plan, free_at_start=CARD.cuda_total - 6 * GIB))
    assert found["free_at_start"].agreement is Agreement.EXPLAINED
    assert "another process" in found["free_at_start"].explanation


def test_weights_of_a_quarter_are_a_quantised_checkpoint() -> None:
    plan = plan_task(task())
    weights = next(line.bytes for line in plan.layouts[0].ledger if line.name == "weights")
    found = lines(plan, log(plan, weights=weights // 3))
    assert "about 5 bits" in found["weights"].explanation
    quantised = compare(
        plan.layouts[0],
        plan.gpus,
        log(plan, weights=weights // 3),
        replace(MODEL, quantization=read_quantised().quantization),
    )
    assert {line.name: line for line in quantised}["weights"].agreement is Agreement.UNEXPLAINED


def read_quantised() -> ModelSpec:
    config = {**CONFIG, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    return read_config(config, name="org/small", source="test")


@pytest.mark.parametrize("told", ["fp8", "bf16"])
def test_a_cache_of_half_the_bytes_is_one_in_fp8(told: str) -> None:
    plain, other = plan_task(task()), plan_task(task("--kv-cache-dtype", "fp8"))
    tokens = other.layouts[0].kv.tokens if told == "fp8" else plain.layouts[0].kv.tokens
    start = log(plain, kv_tokens=tokens)
    found = compare(plain.layouts[0], plain.gpus, start, MODEL)
    for one in assumptions(task(), start):
        other = plan_task(one.task)
        found = with_reason(found, compare(other.layouts[0], other.gpus, start, MODEL), one)
    line = next(line for line in found if line.name == "kv_tokens")
    assert ("FP8" in line.explanation) == (told == "fp8")


def test_where_the_log_names_no_version_one_that_fits_is_named() -> None:
    real = plan_task(task("--max-num-seqs", "1024", version="0.16.0"))
    wanted = task("--max-num-seqs", "1024", version=None)
    plan = plan_task(wanted)
    start = log(real)
    start = replace(start, ranks=(replace(start.ranks[0], activations=None, outside=None),))
    found = compare(plan.layouts[0], plan.gpus, start, MODEL)
    assert next(one for one in found if one.name == "kv_pool").agreement is Agreement.UNEXPLAINED
    for one in assumptions(wanted, start):
        other = plan_task(one.task)
        found = with_reason(found, compare(other.layouts[0], other.gpus, start, MODEL), one)
    assert "vLLM 0." in next(line for line in found if line.name == "kv_pool").explanation


def test_ranks_that_tell_the_same_share_a_line() -> None:
    plan = plan_task(task())
    start = log(plan)
    ranks = tuple(replace(start.ranks[0], label=f"TP{rank}") for rank in range(3))
    odd = replace(ranks[0], label="TP3", weights=(ranks[0].weights or 0) + MIB)
    found = compare(plan.layouts[0], plan.gpus, replace(start, ranks=(*ranks, odd)), MODEL)
    assert [line.ranks for line in found if line.name == "weights"] == [("TP0", "TP1", "TP2"), ("TP3",)]


def test_an_engine_that_is_not_vllm_has_no_assumptions() -> None:
    spec = EngineSpec(engine="sglang")
    assert assumptions(replace(task(), spec=spec), StartLog(engine="sglang")) == ()
