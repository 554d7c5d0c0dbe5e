"""What is to be said about a llama.cpp plan: what does not fit, what is silently made smaller, odd flags."""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.engines.llama_cpp.devices import Spread
from bringup.engines.llama_cpp.flag_names import KNOWN
from bringup.engines.llama_cpp.flag_values import WANTS
from bringup.engines.llama_cpp.settings import Settings
from bringup.parse.flag_values import value_findings
from bringup.units import bytes_text
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Fix, Severity
from bringup.values.plan import KvPlan, LedgerLine, PlanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the findings are judged from."""

    task: PlanTask
    wanted: Settings  # as the command line has it
    settings: Settings  # as the server makes it fit
    held: Spread
    kv: KvPlan
    ledger: tuple[LedgerLine, ...]


def findings_of(account: Account) -> tuple[Finding, ...]:
    """Everything to be said, refusals first."""
    return (
        *_too_much(account),
        *_contradictions(account),
        *_asked(account),
        *_shortened(account),
        *_on_host(account),
        *_no_file(account),
        *flag_findings(account.task.spec),
        *value_findings("llama-server", account.task.spec.flags, WANTS),
    )


def flag_findings(spec: EngineSpec) -> Iterator[Finding]:
    """A note for every unknown flag, with the nearest that is known."""
    for name in spec.flags:
        if name in KNOWN:
            continue
        from difflib import get_close_matches  # noqa: PLC0415 - start-up time: hardly a plan needs it

        near = get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.6)
        yield Finding(
            id="flags.unknown",
            severity=Severity.NOTE,
            summary=f"`{name}` is no flag of llama-server"
            + (f"; the nearest is `{near[0]}`" if near else ""),
            explanation="it is left out of the plan; llama-server ends where it does not know a flag",
            fixes=tuple(Fix(type="flag", name=name, old=name, new=nearest) for nearest in near),
        )


def _too_much(account: Account) -> Iterator[Finding]:
    free = next(one for one in account.ledger if one.name == "free")
    if free.bytes >= 0:
        return
    yield Finding(
        id="memory.too_much",
        severity=Severity.FAILURE,
        summary=f"the fullest device lacks {bytes_text(-free.bytes)}",
        explanation="the server ends with `cudaMalloc failed`"
        + (
            ""
            if account.wanted.may_fit
            else "; layers or tensors are placed by hand, so nothing is made to fit"
        ),
        action="a shorter -c, a smaller -ctk and -ctv, fewer -ngl, or experts on the host with -ncmoe",
    )


def _contradictions(account: Account) -> Iterator[Finding]:
    """Settings that exclude each other. Source: llama.cpp b11434, `src/llama-context.cpp`."""
    settings = account.wanted
    if settings.value_type not in ("f16", "bf16", "f32") and not settings.has_flash_attention:
        yield Finding(
            id="settings.flash_attention",
            severity=Severity.FAILURE,
            summary=f"values in {settings.value_type} need flash attention, and it is off",
            explanation="the server ends with `V cache quantization requires flash_attn`",
            fixes=(Fix(type="flag", name="--flash-attn", old="off", new="on"),),
        )
    flags = account.task.spec.flags
    if settings.split_mode == "none" and "--tensor-split" in flags:
        yield Finding(
            id="settings.tensor_split",
            severity=Severity.WARNING,
            summary="--tensor-split has no effect with --split-mode none",
            fixes=(Fix(type="flag", name="--split-mode", old="none", new="layer"),),
        )


def _asked(account: Account) -> Iterator[Finding]:
    task, each = account.task, account.kv.longest_context or 0
    if task.context is not None and task.context > each:
        yield Finding(
            id="request.context",
            severity=Severity.FAILURE,
            summary=f"a request of {task.context:,} tokens does not fit: a slot has {each:,}",
            fixes=(Fix(type="flag", name="--ctx-size", old=str(account.settings.context)),),
        )
    elif task.concurrency is not None and account.kv.max_concurrency < task.concurrency:
        yield Finding(
            id="request.concurrency",
            severity=Severity.WARNING,
            summary=f"{account.kv.max_concurrency:.1f} requests run at once, not {task.concurrency} as asked",
            fixes=(Fix(type="flag", name="--parallel", new=str(task.concurrency)),),
        )


def _shortened(account: Account) -> Iterator[Finding]:
    before, after = account.wanted.context, account.settings.context
    if before != after:
        yield Finding(
            id="memory.fit_context",
            severity=Severity.WARNING,
            summary=f"the server shortens the context to {after:,} tokens so that it fits, from {before:,}",
            explanation="without -c it does so by itself, and says so only in its log",
            fixes=(Fix(type="flag", name="--ctx-size", new=str(after)),),
        )


def _on_host(account: Account) -> Iterator[Finding]:
    """Weights that the server moves to the host although nobody asked."""
    before, after = account.wanted, account.settings
    if (before.gpu_layers, before.host_experts) == (after.gpu_layers, after.host_experts):
        return
    what = (
        f"{after.gpu_layers} layers on the GPUs"
        if after.gpu_layers != before.gpu_layers
        else f"the experts of {after.host_experts} layers on the host"
    )
    yield Finding(
        id="memory.fit_layers",
        severity=Severity.WARNING,
        summary=f"the server makes it fit with {what}, {bytes_text(account.held.host_weights)} on the host",
        explanation="they are read from host memory for every token, which is many times slower",
        action="more or larger GPUs, or a smaller file",
    )


def _no_file(account: Account) -> Iterator[Finding]:
    if account.task.model.tensors:
        return
    yield Finding(
        id="weights.no_file",
        severity=Severity.UNKNOWN,
        summary="the GGUF file is not here: its number format, and so the weights, are not known",
        action="give `-m FILE.gguf`",
    )
