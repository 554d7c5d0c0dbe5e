"""What is to be said about a TensorRT-LLM layout: what it refuses, what no one was asked, odd flags."""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.engines.tensorrt_llm.flag_names import KNOWN
from bringup.engines.tensorrt_llm.flag_values import WANTS
from bringup.engines.tensorrt_llm.settings import Settings
from bringup.parse.flag_values import value_findings
from bringup.planner.weights import Weights
from bringup.planner.wishes import unmet
from bringup.units import bytes_text
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Fix, Severity
from bringup.values.model import Mixer
from bringup.values.plan import KvPlan, LedgerLine, PlanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the findings are judged from."""

    task: PlanTask
    settings: Settings
    kv: KvPlan
    ledger: tuple[LedgerLine, ...]
    weights: Weights
    requests: float  # of the wanted length, over the whole deployment
    state_bytes: int


def findings_of(account: Account) -> tuple[Finding, ...]:
    """Everything to be said about this layout, refusals first."""
    refused = [one for one in account.weights.findings if one.severity is Severity.FAILURE]
    others = [one for one in account.weights.findings if one.severity is not Severity.FAILURE]
    return (
        *refused,
        *_layout(account),
        *_settings(account),
        *_no_pool(account),
        *_asked(account),
        *_short_pool(account),
        *_long_prompts(account),
        *_windows(account),
        *_formats(account),
        *_engine(account),
        *flag_findings(account.task.spec),
        *value_findings("TensorRT-LLM", account.task.spec.flags, WANTS),
        *others,
        _not_measured(),
    )


def flag_findings(spec: EngineSpec) -> Iterator[Finding]:
    """A note for every unknown flag, with the nearest that is known."""
    for name in spec.flags:
        if name in KNOWN or not name.startswith("-"):
            continue
        from difflib import get_close_matches  # noqa: PLC0415 - start-up time: hardly a plan needs it

        near = get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.6)
        yield Finding(
            id="flags.unknown",
            severity=Severity.NOTE,
            summary=f"`{name}` is no flag of trtllm-serve"
            + (f"; the nearest is `{near[0]}`" if near else ""),
            explanation="it is left out of the plan; trtllm-serve ends with a usage message",
            fixes=tuple(Fix(type="flag", name=name, old=name, new=nearest) for nearest in near),
        )


def _layout(account: Account) -> Iterator[Finding]:
    settings, gpus = account.settings, account.task.gpus
    layout = settings.layout
    if layout.gpus > gpus.count:
        yield Finding(
            id="layout.gpus",
            severity=Severity.FAILURE,
            summary=f"the layout takes {layout.gpus} GPUs, {gpus.count} are there",
            fixes=(Fix(type="flag", name="--tp_size", old=str(layout.tensor_parallel)),),
        )
    if layout.tensor_parallel % settings.expert_groups:
        yield Finding(
            id="layout.experts",
            severity=Severity.FAILURE,
            summary=f"--ep_size {settings.expert_groups} does not divide the {layout.tensor_parallel} tensor "
            "parallel ranks",
            explanation="expert and expert-tensor parallelism share the tensor parallel ranks",
        )


def _settings(account: Account) -> Iterator[Finding]:
    settings, flags = account.settings, account.task.spec.flags
    if not 0 < settings.fraction < 1:
        yield Finding(
            id="settings.free_gpu_memory_fraction",
            severity=Severity.FAILURE,
            summary=f"free_gpu_memory_fraction {settings.fraction:g} is no share of the free memory",
            expected="above 0, below 1",
        )
    given = flags.get("--kv_cache_free_gpu_memory_fraction")
    if given is not None and "free_gpu_memory_fraction" in flags.get("kv_cache_config", ""):
        yield Finding(
            id="settings.contradiction",
            severity=Severity.WARNING,
            summary=f"--kv_cache_free_gpu_memory_fraction {given} and the file's {settings.fraction:g}: the "
            "file wins",
            explanation="what the file behind --config says replaces the command line",
        )


def _no_pool(account: Account) -> Iterator[Finding]:
    if account.kv.tokens > 0:
        return
    layout, lacking = account.settings.layout, max(0, -account.kv.available_bytes)
    words = f"{bytes_text(lacking)} per GPU too little" if lacking else "not one block fits"
    if account.state_bytes:
        words += f", {bytes_text(account.state_bytes)} go to recurrent states"
    yield Finding(
        id="memory.no_cache",
        severity=Severity.FAILURE,
        summary=f"nothing is left for the KV cache: {words}",
        action="spread the model over more GPUs, take smaller weights, or a smaller --max_num_tokens and "
        "--max_batch_size",
        fixes=(
            Fix(
                type="flag",
                name="--tp_size",
                old=str(layout.tensor_parallel),
                new=str(2 * layout.tensor_parallel),
            ),
        ),
    )


def _short_pool(account: Account) -> Iterator[Finding]:
    tokens, context = account.kv.tokens, account.settings.context
    if 0 < tokens < context:
        yield Finding(
            id="kv.context",
            severity=Severity.WARNING,
            summary=f"the cache holds {tokens:,} tokens, fewer than the {context:,} of the longest request",
            explanation="the engine lowers its limit by itself and says so in its log",
            fixes=(Fix(type="flag", name="--max_seq_len", old=str(context), new=str(tokens)),),
        )


def _asked(account: Account) -> Iterator[Finding]:
    return unmet(
        account.task,
        tokens=account.kv.tokens,
        longest=account.settings.context,
        requests=account.requests,
    )


def _long_prompts(account: Account) -> Iterator[Finding]:
    """Without chunks a prompt has to pass in one step."""
    settings = account.settings
    context = account.task.context or settings.context
    if settings.has_chunked_prefill or context <= settings.step_tokens:
        return
    yield Finding(
        id="settings.max_num_tokens",
        severity=Severity.WARNING if account.task.context is not None else Severity.NOTE,
        summary=f"prompts above {settings.step_tokens:,} tokens are refused",
        explanation="without --enable_chunked_prefill a prompt has to pass in one step of --max_num_tokens",
        fixes=(Fix(type="flag", name="--enable_chunked_prefill"),),
    )


def _windows(account: Account) -> Iterator[Finding]:
    has_windows = any(layer.mixer is Mixer.SLIDING for layer in account.task.model.layers)
    if has_windows and "max_attention_window" not in account.task.spec.flags.get("kv_cache_config", ""):
        yield Finding(
            id="kv.windows",
            severity=Severity.NOTE,
            summary="the windows of this model are planned as full attention",
            explanation="pools by window are made where `kv_cache_config.max_attention_window` lists them",
        )


def _formats(account: Account) -> Iterator[Finding]:
    """Number formats that the card cannot run: there is no fall-back in this engine."""
    card, form = account.task.gpus.card, account.task.model.quantization
    name = form.scheme.split("_")[0] if form is not None else ""
    how = dict(card.formats).get(name, "native")
    if not how.startswith("native"):
        yield Finding(
            id=f"format.{name}",
            severity=Severity.WARNING,
            summary=f"{card.name} has no {name.upper()} arithmetic ({how})",
            explanation="TensorRT-LLM has kernels for few formats that the card does not have itself",
        )


def _engine(account: Account) -> Iterator[Finding]:
    if account.settings.backend in ("tensorrt", "trt"):
        yield Finding(
            id="plan.backend",
            severity=Severity.UNKNOWN,
            summary="the memory of a built TensorRT engine is not known: planned as the PyTorch back end",
            explanation="its activations are fixed when it is built",
        )


def _not_measured() -> Finding:
    return Finding(
        id="plan.estimate",
        severity=Severity.NOTE,
        summary="weights, activations and what lies outside the allocator are estimates for TensorRT-LLM",
        explanation="the bytes of a token, the rule for the cache and its blocks agree with public logs",
    )
