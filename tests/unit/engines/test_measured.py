"""What an earlier start measured replaces estimates where the same settings govern it, and only there."""

from dataclasses import replace

import pytest
from small_model import MODEL

from bringup.engines.sglang.flags import read_command as read_sglang
from bringup.engines.sglang.memory import plan_task as plan_sglang
from bringup.engines.vllm.flags import read_command
from bringup.engines.vllm.memory import plan_task
from bringup.engines.vllm.start_log import START_LOG
from bringup.parse.log_line import read_lines
from bringup.units import GIB, MIB
from bringup.values.plan import Card, Gpus, LayoutPlan, LedgerLine, Origin, PlanTask
from bringup.values.start_log import Cite, RankStart, StartLog

CARD = Card(
    name="Test 24 GB", memory_total=24_564 * MIB, cuda_total=24_080 * MIB, reserved=484 * MIB,
    compute_capability="8.9",
)  # fmt: skip
LOG = """\
INFO 02-01 10:00:00 [utils.py:253] non-default args: {{'model_tag': 'org/small', {args}}}
INFO 02-01 10:00:20 [core.py:93] Initializing a V1 LLM engine (v0.16.0) with config: model='org/small'
INFO 02-01 10:02:20 [gpu_model_runner.py:3610] Model loading took 2.80 GiB memory and 1.28 seconds
{body}
"""
SUMMARY = (
    "INFO 02-01 10:03:40 [gpu_worker.py:450] Free memory on device (23.10/23.52 GiB) on startup. Desired GPU "
    "memory utilization is (0.9, 21.16 GiB). Actual usage is 2.80 GiB for weight, "
    "1.25 GiB for peak activation, 0.11 GiB for non-torch memory, and 0.40 GiB for CUDAGraph memory.\n"
    "INFO 02-01 10:03:40 [gpu_model_runner.py:4600] Graph capturing finished in 8 secs, took 0.40 GiB"
)


def earlier(args: str = "'max_num_seqs': 256", body: str = SUMMARY) -> StartLog:
    return START_LOG.read(tuple(read_lines(LOG.format(args=args, body=body))))


def plan(*flags: str, measured: StartLog | None, version: str = "0.16.0") -> LayoutPlan:
    spec = read_command(("vllm", "serve", "org/small", *flags))
    assert spec is not None
    gpus = Gpus(card=CARD, count=1)
    task = PlanTask(spec=spec, version=version, model=MODEL, gpus=gpus, measured=measured)
    return plan_task(task).layouts[0]


def line(layout: LayoutPlan, name: str) -> LedgerLine:
    return next(one for one in layout.ledger if one.name == name)


def note(layout: LayoutPlan) -> str:
    found = next(one for one in layout.findings if one.id == "plan.measured")
    return f"{found.summary} {found.explanation}"


def test_the_same_settings_take_every_measured_figure() -> None:
    layout = plan("--max-num-seqs", "256", measured=earlier())
    for name, size in (("activations", 1.25), ("kernels", 0.11), ("graphs", 0.40), ("weights", 2.80)):
        found = line(layout, name)
        assert (found.origin, found.bytes) == (Origin.MEASURED, round(size * GIB)), name
        assert found.high - found.low == 2 * round(0.005 * GIB), name
    context = line(layout, "context")
    assert abs(context.bytes - round(0.42 * GIB)) <= 1
    assert line(layout, "communication").bytes == 0


def test_measured_figures_narrow_the_tokens() -> None:
    flags = ("--max-num-seqs", "256")
    wide, narrow = plan(*flags, measured=None).kv, plan(*flags, measured=earlier()).kv
    assert narrow.high_tokens - narrow.low_tokens < (wide.high_tokens - wide.low_tokens) / 2


def test_the_account_still_adds_up() -> None:
    layout = plan("--max-num-seqs", "64", measured=earlier())
    assert sum(one.bytes for one in layout.ledger) == CARD.memory_total


def test_the_samplers_peak_is_scaled_with_the_sequences() -> None:
    layout = plan("--max-num-seqs", "512", measured=earlier())
    found = line(layout, "activations")
    assert found.bytes == pytest.approx(2 * 1.25 * GIB, rel=1e-6)
    assert found.low < found.bytes < found.high
    assert "--max-num-seqs 256, scaled to --max-num-seqs 512" in found.formula
    assert line(layout, "graphs").origin is Origin.ESTIMATE
    assert "--max-num-seqs decides which sizes are recorded" in note(layout)


def test_a_peak_of_another_kind_is_not_scaled() -> None:
    layout = plan("--max-num-seqs", "8", "--max-num-batched-tokens", "8192", measured=earlier())
    assert line(layout, "activations").origin is Origin.ESTIMATE
    assert "the sampler had the peak then, the forward pass has it now" in note(layout)


@pytest.mark.parametrize(
    ("flags", "version", "reason"),
    [
        (("--tensor-parallel-size", "2"), "0.16.0", "another layout"),
        ((), "0.28.0", "another version's rules"),
    ],
)
def test_other_layouts_and_versions_take_nothing(flags: tuple[str, ...], version: str, reason: str) -> None:
    layout = plan("--max-num-seqs", "256", *flags, measured=earlier(), version=version)
    origins = {one.name: one.origin for one in layout.ledger}
    assert origins["activations"] is Origin.ESTIMATE
    assert origins["graphs"] is Origin.ESTIMATE
    assert reason in note(layout)


def test_another_model_takes_nothing() -> None:
    other = replace(earlier(), model="org/large")
    assert "another model, `org/large`" in note(plan(measured=other))


def test_a_log_without_parts_gives_what_the_pool_was_not_left() -> None:
    pool = "INFO 02-01 10:03:20 [gpu_worker.py:350] Available KV cache memory: 16.50 GiB"
    flags = ("--max-num-seqs", "256")
    layout = plan(*flags, measured=earlier(body=pool))
    assert abs(layout.kv.available_bytes - round(16.5 * GIB)) <= round(0.001 * GIB)
    assert line(layout, "activations").origin is Origin.MEASURED
    assert line(layout, "kernels").origin is Origin.ESTIMATE


def test_what_was_used_is_quoted_with_its_line() -> None:
    layout = plan("--max-num-seqs", "256", measured=earlier())
    found = next(one for one in layout.findings if one.id == "plan.measured")
    assert {one.line for one in found.evidence} <= {3, 4, 5}
    assert any("Actual usage" in one.text for one in found.evidence)


def sglang(measured: StartLog | None, *flags: str) -> LayoutPlan:
    spec = read_sglang(("python", "-m", "sglang.launch_server", "--model-path", "org/small", *flags))
    assert spec is not None
    gpus = Gpus(card=CARD, count=1)
    task = PlanTask(spec=spec, version="0.5.23", model=MODEL, gpus=gpus, measured=measured)
    return plan_sglang(task).layouts[0]


def test_sglang_shares_out_what_was_measured_to_be_free() -> None:
    spec = read_sglang(("python", "-m", "sglang.launch_server", "--model-path", "org/small"))
    rank = RankStart(free_at_start=round(22.5 * GIB), graphs=round(0.5 * GIB))
    cites = {name: Cite(line=2, text=name, within=round(0.005 * GIB)) for name in ("free_at_start", "graphs")}
    start = StartLog(engine="sglang", spec=spec, model="org/small", ranks=(rank,), cites=cites)
    layout = sglang(start)
    assert line(layout, "context").bytes == CARD.cuda_total - round(22.5 * GIB)
    assert line(layout, "context").origin is Origin.MEASURED
    assert line(layout, "graphs").origin is Origin.MEASURED
    assert sum(one.bytes for one in layout.ledger) == CARD.memory_total
    wide, narrow = sglang(None).kv, layout.kv
    assert narrow.high_tokens - narrow.low_tokens < wide.high_tokens - wide.low_tokens
    assert line(sglang(start, "--cuda-graph-max-bs", "4"), "graphs").origin is Origin.ESTIMATE
    assert line(sglang(start, "--tp", "2"), "context").origin is Origin.ESTIMATE


def test_a_log_of_another_engine_gives_nothing() -> None:
    assert "the log is one of sglang" in note(plan(measured=StartLog(engine="sglang")))
