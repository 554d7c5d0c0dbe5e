"""llama.cpp's devices: what lies where, what is made to fit, and sizes that servers logged."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bringup.engines.llama_cpp.devices import compute_buffer, spread, tensor_sizes
from bringup.engines.llama_cpp.findings import flag_findings
from bringup.engines.llama_cpp.flag_names import ALIASES, KNOWN, SWITCHES
from bringup.engines.llama_cpp.flags import read_command, render_command
from bringup.engines.llama_cpp.ledgers import holds, plan_layout
from bringup.engines.llama_cpp.memory import plan_task
from bringup.engines.llama_cpp.settings import settings_of
from bringup.errors import UsageError
from bringup.units import MIB
from bringup.values.engine import EngineSpec
from bringup.values.finding import Severity
from bringup.values.model import Attention, Layer, Mixer, Mlp, ModelSpec, Tensor
from bringup.values.plan import Card, Gpus, LayoutPlan, Plan, PlanTask

LAYERS = 8


def tensors(*, has_head: bool = True, experts: bool = False) -> tuple[Tensor, ...]:
    """100 MiB of embedding and head, 40 MiB for each layer, with 400 MiB of experts beside."""
    sizes = {"token_embd.weight": 100, "output_norm.weight": 1}
    if has_head:
        sizes["output.weight"] = 100
    for layer in range(LAYERS):
        sizes[f"blk.{layer}.attn_q.weight"] = 40
        if experts:
            sizes[f"blk.{layer}.ffn_up_exps.weight"] = 400
    return tuple(
        Tensor(name=name, shape=(1,), dtype="Q4_K", bytes=size * MIB, file="m.gguf")
        for name, size in sizes.items()
    )


def model(*, kv_heads: int = 8, head_dim: int = 128, has_headers: bool = True, **more: bool) -> ModelSpec:
    attention = Attention(query_heads=32, kv_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim)
    mlp = Mlp(intermediate_size=1024, experts=64 if more.get("experts") else None, experts_per_token=4)
    layers = tuple(
        Layer(index=index, mixer=Mixer.FULL, attention=attention, mlp=mlp) for index in range(LAYERS)
    )
    return ModelSpec(
        name="m",
        architecture="LlamaForCausalLM",
        model_type="llama",
        layers=layers,
        hidden_size=4096,
        vocabulary=32000,
        max_position=131072,
        is_tied=not more.get("has_head", True),
        tensors=tensors(**more) if has_headers else (),
    )


def gpus(count: int = 1, mib: int = 24_000) -> Gpus:
    card = Card(name="a card", memory_total=(mib + 300) * MIB, cuda_total=mib * MIB, reserved=300 * MIB)
    return Gpus(card=card, count=count)


def task(line: str, spec: ModelSpec, on: Gpus, **asked: int) -> PlanTask:
    command = read_command(f"llama-server -m m.gguf {line}".split())
    assert command is not None
    return PlanTask(spec=command, version=None, model=spec, gpus=on, **asked)


def planned(
    line: str = "-c 8192", spec: ModelSpec | None = None, on: Gpus | None = None, **asked: int
) -> LayoutPlan:
    return plan_layout(task(line, spec or model(), on or gpus(), **asked))


def parts(
    line: str, spec: ModelSpec | None = None, on: Gpus | None = None
) -> tuple[list[int], list[int], int]:
    """MiB of weights and of cache on every device, and of weights on the host."""
    asked = task(line, spec or model(), on or gpus())
    held = spread(asked.model, settings_of(asked.spec, asked.model, asked.gpus))
    weights = [one.weights // MIB for one in held.devices]
    return weights, [one.cache // MIB for one in held.devices], held.host_weights // MIB


def ids(plan: LayoutPlan, severity: Severity) -> set[str]:
    return {finding.id for finding in plan.findings if finding.severity is severity}


# 8192 cells x 8 heads x (128 + 128) x 2 B = 32 MiB for each layer.
@pytest.mark.parametrize(
    ("line", "count", "found"),
    [
        ("-c 8192", 1, ([421], [256], 100)),  # 8 x 40 + head + norm; the input stays on the host
        ("-c 8192", 2, ([200, 221], [160, 96], 100)),  # nine places: five layers, three and the head
        ("-c 8192 -ts 3,1", 2, ([280, 141], [224, 32], 100)),
        ("-c 8192 -sm none", 2, ([421], [256], 100)),
        ("-c 8192 -sm row", 2, ([210, 210], [256, 0], 100)),
        ("-c 8192 -sm row -mg 1", 2, ([210, 210], [0, 256], 100)),
        ("-c 8192 -sm tensor", 2, ([210, 210], [128, 128], 100)),
        ("-c 8192 -ngl 3", 1, ([181], [64], 340)),  # two layers and the head
        ("-c 8192 -ngl 0", 1, ([0], [0], 521)),
        ("-c 8192 -nkvo", 1, ([421], [0], 100)),
        ("-c 8192 -dev CUDA0", 2, ([421], [256], 100)),
        ("-c 8192 -ot blk\\.[0-3]\\.=CPU", 1, ([261], [256], 260)),
        ("-c 8192 -ctk q8_0 -ctv q8_0", 1, ([421], [136], 100)),
    ],
)
def test_where_weights_and_cache_lie(line: str, count: int, found: tuple[list[int], list[int], int]) -> None:
    assert parts(line, on=gpus(count)) == found


def test_a_tied_head_is_held_twice() -> None:
    assert parts("-c 8192", model(has_head=False)) == ([421], [256], 100)


def test_experts_on_the_host() -> None:
    spec = model(experts=True)
    assert parts("-c 8192", spec)[0] == [421 + 8 * 400]
    assert parts("-c 8192 -ncmoe 3", spec) == ([421 + 5 * 400], [256], 100 + 3 * 400)
    assert parts("-c 8192 --cpu-moe", spec) == ([421], [256], 100 + 8 * 400)


def test_slots_share_the_context_unless_told_how_many() -> None:
    assert (planned("-c 8192").kv.longest_context, planned("-c 8192").requests) == (8192, 1)
    four = planned("-c 8192 -np 4")
    assert (four.kv.longest_context, four.kv.tokens, four.requests) == (2048, 8192, 4)
    assert planned("-c 8192 -np 4 -kvu").kv.longest_context == 8192


def test_compute_buffers_that_servers_logged() -> None:
    # 512 x (32,000 + 4096) x 4 B + 512 x 8192 x 2 B; logged: 304.75 MiB for 151,936 + 4096 without a mask.
    asked = task("-c 8192", model(), gpus())
    settings = settings_of(asked.spec, asked.model, asked.gpus)
    assert compute_buffer(asked.model, settings, 8192).bytes == 512 * (36_096 * 4 + 8192 * 2)
    off = task("-c 8192 -fa off -ub 256", model(), gpus())
    found = compute_buffer(off.model, settings_of(off.spec, off.model, off.gpus), 8192)
    assert found.bytes == 256 * (36_096 * 4 + 8192 * 2 + 8192 * 32 * 4)
    assert 512 * (151_936 + 4096) * 4 / MIB == 304.75


def test_a_context_that_is_not_given_is_shortened() -> None:
    # 131,072 cells take 4096 MiB beside 421 of weights and 201 of scratch: too much for 4000 MiB.
    plan = planned("", on=gpus(mib=4000))
    assert plan.fits
    assert "memory.fit_context" in ids(plan, Severity.WARNING)
    assert 4096 < plan.kv.tokens < 131_072
    assert plan.kv.tokens % 256 == 0
    assert planned("", on=gpus(mib=12_000)).kv.tokens == 131_072


def test_a_context_that_is_given_is_kept_and_layers_go_to_the_host() -> None:
    plan = planned("-c 131072", on=gpus(mib=4000))
    assert plan.fits
    assert plan.kv.tokens == 131_072
    assert "memory.fit_layers" in ids(plan, Severity.WARNING)
    assert plan.weights_bytes < 421 * MIB


def test_experts_go_to_the_host_first() -> None:
    plan = planned("-c 8192", model(experts=True), gpus(mib=4000))
    assert plan.fits
    note = next(finding for finding in plan.findings if finding.id == "memory.fit_layers")
    assert "experts of" in note.summary
    assert plan.kv.needed_bytes == 256 * MIB  # all layers of attention are still there


@pytest.mark.parametrize(
    "line", ["-c 131072 -ngl 99", "-c 131072 -fit off", "-c 131072 -ts 1", "-ngl 99 -c 0"]
)
def test_what_is_placed_by_hand_is_not_made_to_fit(line: str) -> None:
    plan = planned(line, on=gpus(mib=4000))
    assert not plan.fits
    assert "memory.too_much" in ids(plan, Severity.FAILURE)


def test_requests_that_are_asked_for() -> None:
    assert "request.context" in ids(planned("-c 8192 -np 4", context=4096), Severity.FAILURE)
    assert "request.concurrency" in ids(planned("-c 8192", concurrency=9), Severity.WARNING)


def test_without_the_file_the_weights_are_unknown() -> None:
    plan = plan_task(task("-c 8192", model(has_headers=False), gpus()))
    assert "weights.no_file" in ids(plan.layouts[0], Severity.UNKNOWN)
    line = next(line for line in plan.layouts[0].ledger if line.name == "weights")
    assert line.low < line.bytes
    assert len(tensor_sizes(plan_spec := model(has_headers=False))) == len(plan_spec.layers) + 2


def test_cache_types_that_are_refused() -> None:
    with pytest.raises(UsageError, match="no cache type"):
        planned("-c 8192 -ctk q9_9")
    with pytest.raises(UsageError, match="blocks of 32"):
        planned("-c 8192 -ctk q8_0 -ctv q8_0", model(kv_heads=1, head_dim=80))


@pytest.mark.parametrize("line", ["-c 8192", "", "-c 4096 -np 3", "-ngl 2", "-sm row", "-ts 1,3"])
def test_every_account_adds_up(line: str) -> None:
    plan = planned(line, on=gpus(2))
    assert sum(line.bytes for line in plan.ledger) == 24_300 * MIB
    assert plan.smi_used_low <= plan.smi_used_high
    held = sum(
        line.bytes for line in plan.ledger if line.name in ("context", "weights", "kv_pool", "compute")
    )
    assert plan.smi_used_low <= held <= plan.smi_used_high


def test_unknown_flags_are_told_with_the_nearest() -> None:
    spec = task("--ctx-sice 4096", model(), gpus()).spec
    (finding,) = flag_findings(spec)
    assert finding.fixes[0].new == "--ctx-size"
    known = "-c 1 -np 2 -ngl 3 -ctk f16 -ctv f16 -fa on -ub 512 -kvu -no-kvu -nkvo -cmoe -ncmoe 2 -sm row"
    assert not list(flag_findings(task(known, model(), gpus()).spec))
    assert set(ALIASES.values()) <= KNOWN


def test_variables_stand_for_flags_and_the_command_line_wins() -> None:
    line = (
        "env LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_FIT=off llama-server -m x.gguf -c 8192"
    )
    spec = read_command(line.split())
    assert spec is not None
    assert spec.flags == {"--ctx-size": "8192", "--parallel": "2", "--fit": "off", "--model": "x.gguf"}
    assert spec.environment["LLAMA_ARG_CTX_SIZE"] == "4096"
    assert not settings_of(spec, model(), gpus()).may_fit


def test_settings_that_exclude_each_other() -> None:
    failed = [
        one for one in planned("-c 8192 -ctv q8_0 -fa off").findings if one.severity is Severity.FAILURE
    ]
    assert [one.id for one in failed] == ["settings.flash_attention"]
    assert not any(one.id == "settings.flash_attention" for one in planned("-c 8192 -ctv q8_0").findings)
    ids = {one.id for one in planned("-c 8192 -sm none -ts 1,1", on=gpus(2)).findings}
    assert "settings.tensor_split" in ids


def chosen(spec: ModelSpec, on: Gpus, **asked: int) -> Plan:
    source = replace(spec, source="m.gguf")
    return plan_task(
        PlanTask(
            spec=EngineSpec(engine="llama_cpp", model="m.gguf"), version=None, model=source, gpus=on, **asked
        )
    )


def test_all_layers_on_the_fewest_gpus_with_as_many_slots_as_fit() -> None:
    plan = chosen(model(), gpus(2), context=32768)
    best = plan.layouts[0]
    assert best.layout.gpus == 1
    assert "--device" in best.command
    # 8 layers x 2 x 8 heads x 128 x 2 B are 32 KiB a token, 1 GiB a slot
    assert best.kv.tokens == best.requests * 32768
    more = read_command(best.command)
    assert more is not None
    slots = int(more.flags["--parallel"])
    assert more.flags["--ctx-size"] == str(slots * 32768)
    words = f"-c {(slots + 1) * 32768} -np {slots + 1} -ngl 9 -sm none"
    settings = settings_of(task(words, model(), gpus()).spec, model(), gpus())
    assert not holds(model(), settings, gpus())
    assert {other.side for other in plan.neighbours} == {"larger"}


def test_a_coarser_cache_only_where_the_finer_does_not_do() -> None:
    one = chosen(model(), gpus(1, mib=3300), context=32768, concurrency=1)
    assert "--cache-type-k" not in one.layouts[0].command
    two = chosen(model(), gpus(1, mib=3300), context=32768, concurrency=2)
    assert "q8_0" in two.layouts[0].command
    assert two.layouts[0].requests == 2


def test_layers_stay_on_the_host_only_where_nothing_else_does() -> None:
    best = chosen(model(), gpus(1, mib=2000), context=4096).layouts[0]
    assert "on the host" in best.layout.detail
    assert [one.severity for one in best.findings if one.id == "memory.on_host"] == [Severity.WARNING]
    spec = read_command(best.command)
    assert spec is not None
    assert 0 < int(spec.flags["--n-gpu-layers"]) < LAYERS + 1
    assert "on the host" not in chosen(model(), gpus(2, mib=2000), context=4096).layouts[0].layout.detail


def test_experts_stay_on_the_host_before_layers() -> None:
    best = chosen(model(experts=True), gpus(1, mib=4400), context=4096).layouts[0]
    assert best.layout.detail.startswith("cache f16, experts of")
    assert "--n-cpu-moe" in best.command


words = st.text("abcXYZ019._/", min_size=1, max_size=8)


@st.composite
def commands(draw: st.DrawFn) -> list[str]:
    argv = ["llama-server"]
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
