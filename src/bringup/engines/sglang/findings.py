"""What is to be said about an SGLang layout: too little memory, limits that nobody asked for, odd flags."""

from collections.abc import Iterator
from dataclasses import dataclass

from bringup.engines.sglang.flag_names import KNOWN
from bringup.engines.sglang.flag_values import WANTS
from bringup.engines.sglang.flag_versions import had, lacks
from bringup.engines.sglang.settings import Settings
from bringup.parse.flag_values import value_findings
from bringup.planner.kv_sglang import SglangPools
from bringup.planner.kv_versions import Version
from bringup.planner.weights import Weights
from bringup.planner.wishes import unmet
from bringup.units import bytes_text
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Fix, Severity
from bringup.values.plan import KvPlan, LedgerLine, PlanTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the findings are judged from."""

    task: PlanTask
    settings: Settings
    kv: KvPlan
    pools: SglangPools
    ledger: tuple[LedgerLine, ...]
    weights: Weights
    running: int
    requests: float  # of the wanted length, over the whole deployment


def findings_of(account: Account) -> tuple[Finding, ...]:
    """Everything to be said about this layout, refusals first."""
    refused = [one for one in account.weights.findings if one.severity is Severity.FAILURE]
    others = [one for one in account.weights.findings if one.severity is not Severity.FAILURE]
    return (
        *refused,
        *_layout(account),
        *_share(account),
        *_no_pool(account),
        *_short_pool(account),
        *_asked(account),
        *_tight_reserve(account),
        *_no_states(account),
        *_few_states(account),
        *_unknown_cache(account),
        *_free_reserve(account),
        *_contradictions(account),
        *_formats(account),
        *flag_findings(account.task.spec, account.settings.version),
        *value_findings("SGLang", account.task.spec.flags, WANTS),
        *others,
    )


def flag_findings(spec: EngineSpec, version: Version) -> Iterator[Finding]:
    """A note for every unknown flag with the nearest that is known, a failure for those yet to come."""
    for name in spec.flags:
        last = lacks(name, version)
        if last is not None:
            yield Finding(
                id="flags.version",
                severity=Severity.FAILURE,
                summary=f"SGLang {'.'.join(map(str, version))} has no `{name}`",
                expected=f"a version after {'.'.join(map(str, last))}",
                explanation="SGLang ends with a usage message where it does not know a flag",
            )
        if name in KNOWN or had(name, version):
            continue
        from difflib import get_close_matches  # noqa: PLC0415 - start-up time: hardly a plan needs it

        near = get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.6)
        yield Finding(
            id="flags.unknown",
            severity=Severity.NOTE,
            summary=f"`{name}` is no flag of SGLang 0.5.23"
            + (f"; the nearest is `{near[0]}`" if near else ""),
            explanation="it is left out of the plan; SGLang ends with a usage message where it does not know "
            "a flag",
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
            fixes=(Fix(type="flag", name="--tp-size", old=str(layout.tensor_parallel)),),
        )
    copies = settings.attention_data_parallel
    if layout.tensor_parallel % copies:
        yield Finding(
            id="layout.attention_replicas",
            severity=Severity.FAILURE,
            summary=f"{copies} replicas of attention do not divide {layout.tensor_parallel} ranks",
            explanation="SGLang refuses to start with it",
        )


def _contradictions(account: Account) -> Iterator[Finding]:
    """Settings that SGLang refuses beside each other, or that do not mean what they seem to.

    Source: SGLang 0.5.23 `arg_groups/parallel_hook.py`, `configs/model_config.py`.
    """
    settings, flags = account.settings, account.settings.flags
    tp, groups = settings.layout.tensor_parallel, settings.expert_groups
    if tp % groups:
        yield Finding(
            id="settings.expert_parallel",
            severity=Severity.FAILURE,
            summary=f"--ep-size {groups} does not divide --tp-size {tp}",
            explanation="experts are spread over the tensor parallel ranks",
            fixes=(Fix(type="flag", name="--ep-size", old=str(groups), new=str(tp)),),
        )
    if "--enable-dp-attention" in flags and settings.attention_data_parallel == 1:
        yield Finding(
            id="settings.attention_replicas",
            severity=Severity.WARNING,
            summary="--enable-dp-attention does nothing without --dp-size above 1",
            fixes=(Fix(type="flag", name="--dp-size", old="1", new=str(tp)),),
        )
    if settings.context > settings.model_length and not _allows_longer(account.task.spec):
        yield Finding(
            id="settings.context_length",
            severity=Severity.FAILURE,
            summary=f"--context-length {settings.context:,} is above the model's {settings.model_length:,}",
            explanation="SGLang refuses it unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 is set",
            fixes=(
                Fix(
                    type="flag",
                    name="--context-length",
                    old=str(settings.context),
                    new=str(settings.model_length),
                ),
            ),
        )


def _allows_longer(spec: EngineSpec) -> bool:
    value = spec.environment.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "")
    return value.lower() in ("1", "true", "yes")


def _formats(account: Account) -> Iterator[Finding]:
    """Number formats of weights and cache that the card has no way to run."""
    card, form = account.task.gpus.card, account.task.model.quantization
    wanted = {form.scheme.split("_")[0]: "weights"} if form is not None else {}
    if account.pools.cache_dtype.startswith("fp8"):
        wanted["fp8"] = "weights and KV cache" if "fp8" in wanted else "KV cache"
    for name, what in wanted.items():
        how = dict(card.formats).get(name, "")
        if how.startswith("no"):
            is_refused = how == "no" and what.startswith("weights")
            yield Finding(
                id=f"format.{name}",
                severity=Severity.FAILURE if is_refused else Severity.WARNING,
                summary=f"{card.name} has no {name.upper()} arithmetic ({what})"
                + ("" if how == "no" else f": {how}"),
                explanation="SGLang unpacks them to 16 bits where it has a kernel for that, else it refuses",
            )


def _share(account: Account) -> Iterator[Finding]:
    settings = account.settings
    if not 0 < settings.fraction < 1:
        yield Finding(
            id="settings.mem_fraction_static",
            severity=Severity.FAILURE,
            summary=f"--mem-fraction-static {settings.fraction:g} is no share of the free memory",
            expected="above 0, below 1",
        )


def _no_pool(account: Account) -> Iterator[Finding]:
    if account.pools.tokens > 0:
        return
    layout, lacking = account.settings.layout, max(0, -account.kv.available_bytes)
    words = f"{bytes_text(lacking)} per GPU too little" if lacking else "not one page fits"
    yield Finding(
        id="memory.no_cache",
        severity=Severity.FAILURE,
        summary=f"nothing is left for the token pool: {words}",
        explanation=f"weights {bytes_text(account.weights.total)}; {account.settings.fraction:.3f} of "
        f"what is free pays weights and pools ({account.settings.fraction_words})",
        action="spread the model over more GPUs, take smaller weights, or raise --mem-fraction-static",
        fixes=(
            Fix(
                type="flag",
                name="--tp-size",
                old=str(layout.tensor_parallel),
                new=str(2 * layout.tensor_parallel),
            ),
        ),
    )


def _short_pool(account: Account) -> Iterator[Finding]:
    tokens, context = account.pools.tokens, account.settings.context
    if not 0 < tokens < context:
        return
    yield Finding(
        id="kv.context",
        severity=Severity.WARNING,
        summary=f"the pool holds {tokens:,} tokens, fewer than the {context:,} of the longest request",
        explanation="SGLang starts all the same and refuses requests that are longer than the pool",
        fixes=(
            Fix(
                type="flag",
                name="--context-length",
                old=str(context),
                new=str(account.kv.longest_context or 0),
                cost="shorter requests, as it is in truth",
            ),
        ),
    )


def _asked(account: Account) -> Iterator[Finding]:
    return unmet(
        account.task,
        tokens=account.pools.tokens,
        longest=account.settings.context,
        requests=account.requests,
    )


def _tight_reserve(account: Account) -> Iterator[Finding]:
    free = next(one for one in account.ledger if one.name == "free")
    if free.bytes >= 0 or account.pools.tokens <= 0:
        return
    yield Finding(
        id="memory.reserve",
        severity=Severity.WARNING,
        summary=f"the reserve is {bytes_text(-free.bytes)} too small for graphs, workspace and the largest "
        "prefill",
        explanation="weights and pools take their share first; what comes later runs out of memory",
        fixes=(
            Fix(
                type="flag",
                name="--chunked-prefill-size",
                old=str(account.settings.chunk or -1),
                new=str((account.settings.chunk or account.settings.max_prefill_tokens) // 2),
                cost="slower prefill of long prompts",
            ),
        ),
    )


def _no_states(account: Account) -> Iterator[Finding]:
    pools = account.pools
    if pools.slot_bytes and not pools.state_slots and pools.tokens > 0:
        yield Finding(
            id="memory.no_states",
            severity=Severity.FAILURE,
            summary=f"not one state of {bytes_text(pools.slot_bytes)} finds room beside the drafts' own",
            explanation="SGLang refuses to start without",
            action="fewer --max-running-requests or draft tokens, or a higher --mem-fraction-static",
        )


def _unknown_cache(account: Account) -> Iterator[Finding]:
    """Caches whose form is not known here: what is planned for them is a guess."""
    layers = account.task.model.layers
    if any(layer.attention is not None and layer.attention.compress_ratio for layer in layers):
        yield Finding(
            id="kv.unknown_form",
            severity=Severity.UNKNOWN,
            summary="how SGLang keeps compressed latents is not known here: the tokens are a guess",
        )


def _few_states(account: Account) -> Iterator[Finding]:
    """Requests that run at once are as many as have a state, whatever --max-running-requests says."""
    pools, settings = account.pools, account.settings
    if not pools.slot_bytes or not pools.state_slots:
        return
    each = settings.states_per_request
    is_less = settings.wanted_running is not None and account.running < settings.wanted_running
    yield Finding(
        id="memory.states",
        severity=Severity.WARNING if is_less else Severity.NOTE,
        summary=f"{account.running} requests run at once: {pools.state_slots} states of "
        f"{bytes_text(pools.slot_bytes)}, {each} for each request",
        explanation="states get 0.9 of every 1.9 bytes that weights leave, unless --mamba-full-memory-ratio "
        "says otherwise",
        action="--mamba-ssm-dtype bfloat16 halves a state, --max-mamba-cache-size says how many there are",
    )


def _free_reserve(account: Account) -> Iterator[Finding]:
    """The automatic share of a model with images leaves much that text does not need."""
    settings = account.settings
    if settings.is_fraction_given or account.pools.tokens <= 0:
        return
    free = next(one for one in account.ledger if one.name == "free")
    yield Finding(
        id="memory.mem_fraction_static",
        severity=Severity.NOTE,
        summary=f"--mem-fraction-static is {settings.fraction:.3f} by itself, "
        f"{bytes_text(max(0, free.bytes))} stay free on purpose",
        explanation=settings.fraction_words
        + "; it is the reserve for prefill, graphs and images, no room for the cache",
        action="a higher share gives the pools more, at the risk of running out under load",
    )
