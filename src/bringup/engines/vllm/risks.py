"""What can go wrong with a vLLM layout: too little memory, and the allocation that may not find room."""

from dataclasses import dataclass

from bringup.engines.vllm.flag_check import flag_findings
from bringup.engines.vllm.flag_values import WANTS
from bringup.engines.vllm.refusals import layout_findings, partition_findings, settings_findings
from bringup.engines.vllm.settings import Settings, default_batch
from bringup.engines.vllm.steps import StageNeed, padded_vocabulary
from bringup.parse.flag_values import value_findings
from bringup.planner.kv_versions import Version
from bringup.planner.weights import Weights
from bringup.units import GIB, bytes_text, mib_text
from bringup.values.finding import Finding, Fix, Severity
from bringup.values.plan import KvPlan, Layout, LedgerLine, PlanTask, Upcoming

# Bytes per logit of the sampler's largest single request. Source: vLLM #15105, "Tried to allocate 1.74 GiB"
# = 1024 x 152,064 x 12; from 0.17 the sort is gone and a float32 copy is the largest.
_LARGEST_PER_LOGIT: tuple[tuple[Version, int], ...] = (((0, 17, 0), 4), ((0, 0, 0), 12))
_BYTES_FLAG = "--kv-cache-memory-bytes"
_BLOCKS_FLAG = "--num-gpu-blocks-override"
_WORTH_SAYING = GIB  # bytes of cache that a smaller batch must win to be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the risks are judged from."""

    task: PlanTask
    layout: Layout
    settings: Settings
    kv: KvPlan
    ledger: tuple[LedgerLine, ...]
    need: StageNeed
    weights: Weights
    requested: int  # bytes of the card that the engine asks for
    requests: float  # of the wanted length, over the whole deployment


def findings_of(account: Account) -> tuple[Finding, ...]:
    """Everything to be said about this layout, refusals first."""
    found = [
        *layout_findings(account.weights, account.layout, account.task.gpus),
        *partition_findings(account.task.spec, account.task.model, account.layout),
        *settings_findings(account.settings, account.task.model, account.task.gpus),
        *flag_findings(account.task.spec, account.settings.version),
        *value_findings("vLLM", account.task.spec.flags, WANTS),
        *_too_little_free(account),
        *_no_cache(account),
        *_too_long(account),
        *_too_much(account),
        *_asked(account),
        *_tightest(account),
        *_large_batch(account),
        *(one for one in account.weights.findings if one.severity is not Severity.FAILURE),
    ]
    return tuple(found)


def _too_little_free(account: Account) -> list[Finding]:
    """VLLM asks for its share of the whole card and refuses when less is free at its start."""
    card, used = account.task.gpus.card, account.task.gpus.used_by_others
    taken = used + account.need.context.bytes + account.need.communication.bytes
    free = card.cuda_total - taken
    if free >= account.requested:
        return []
    share = int(100 * free / card.cuda_total) / 100
    return [
        Finding(
            id="memory.free_at_start",
            severity=Severity.FAILURE if used else Severity.WARNING,
            summary=f"{bytes_text(free)} free at the start, {bytes_text(account.requested)} asked for",
            expected=f"at least {account.settings.utilization:g} of {bytes_text(card.cuda_total)} free",
            explanation="the share is of the whole card, not of what is free: vLLM refuses to start",
            fixes=(
                Fix(
                    type="flag",
                    name="--gpu-memory-utilization",
                    old=f"{account.settings.utilization:g}",
                    new=f"{share:g}",
                    cost="a smaller KV cache",
                ),
            ),
        )
    ]


def _no_cache(account: Account) -> list[Finding]:
    if account.kv.available_bytes > 0:
        return []
    lacking = -account.kv.available_bytes
    return [
        Finding(
            id="memory.no_cache",
            severity=Severity.FAILURE,
            summary=f"nothing is left for the KV cache: {bytes_text(lacking)} per GPU too little",
            explanation=f"weights {bytes_text(account.need.weights.bytes)} and the activation peak "
            f"{bytes_text(account.need.activations.bytes)} do not fit into {bytes_text(account.requested)}",
            action="spread the model over more GPUs, or take smaller weights",
            fixes=(
                Fix(
                    type="flag",
                    name="--tensor-parallel-size",
                    old=str(account.layout.tensor_parallel),
                    new=str(2 * account.layout.tensor_parallel),
                ),
            ),
        )
    ]


def _too_long(account: Account) -> list[Finding]:
    kv = account.kv
    if kv.refusal is not None:
        return [Finding(id="kv.refused", severity=Severity.FAILURE, summary=kv.refusal)]
    if kv.fits or kv.available_bytes <= 0:
        return []
    length = account.settings.max_model_len
    there = kv.available_bytes
    if account.settings.blocks_given is not None and kv.blocks is not None:
        there = kv.blocks * (kv.bytes_per_block or 0)
    return [
        Finding(
            id="kv.max_model_len",
            severity=Severity.FAILURE,
            summary=f"one request of {length:,} tokens needs {bytes_text(kv.needed_bytes)} of KV cache per "
            f"GPU, {bytes_text(there)} is there",
            explanation="vLLM refuses a length that not even one request could have",
            fixes=(
                Fix(
                    type="flag",
                    name="--max-model-len",
                    old=str(length),
                    new=str(kv.longest_context or 0),
                    cost="shorter requests",
                ),
            ),
        )
    ]


def _free(account: Account) -> LedgerLine:
    return next(part for part in account.ledger if part.name == "free")


def _too_much(account: Account) -> list[Finding]:
    """A cache that was given in bytes or blocks, and is larger than what the card can have left."""
    free, settings = _free(account), account.settings
    given = settings.kv_cache_memory_bytes if settings.blocks_given is None else settings.blocks_given
    if given is None or free.high >= 0 or account.kv.available_bytes <= 0:
        return []
    pool = next(part for part in account.ledger if part.name == "kv_pool").bytes
    are_blocks = settings.blocks_given is not None
    room = (pool + free.low) // ((account.kv.bytes_per_block or 1) if are_blocks else 1)
    flag = _BLOCKS_FLAG if are_blocks else _BYTES_FLAG
    return [
        Finding(
            id="memory.too_much",
            severity=Severity.FAILURE,
            summary=f"a KV cache of {bytes_text(pool)} is {bytes_text(-free.bytes)} too large for the card",
            explanation="the size is taken as given and not measured: vLLM ends with an out-of-memory error",
            fixes=(Fix(type="flag", name=flag, old=str(given), new=str(room)),) if room > 0 else (),
        )
    ]


def _asked(account: Account) -> list[Finding]:
    """The length and the number of requests that the user asked for, against what there is."""
    context, wanted = account.task.context, account.task.concurrency
    length = account.settings.max_model_len
    found: list[Finding] = []
    if context is not None and context > length:
        found.append(
            Finding(
                id="wanted.context",
                severity=Severity.WARNING,
                summary=f"requests of {context:,} tokens are wanted, the server takes {length:,}",
                fixes=(Fix(type="flag", name="--max-model-len", old=str(length), new=str(context)),),
            )
        )
    if wanted is not None and account.requests < wanted:
        found.append(
            Finding(
                id="wanted.concurrency",
                severity=Severity.WARNING,
                summary=f"{wanted} requests of {context or length:,} tokens at once are wanted, "
                f"{account.requests:.1f} are held",
                explanation="the others wait, or are put aside and computed again",
            )
        )
    return found


def upcoming(task: PlanTask, settings: Settings, need: StageNeed) -> tuple[Upcoming, ...]:
    """What the engine allocates after it took the cache: the sampler's try-out, and the first full step."""
    batch = settings.batch
    rows = min(batch.sequences, batch.tokens)
    sampler = Upcoming(
        name="the sampler's warm-up",
        bytes=need.sampler.bytes,
        low=need.sampler.low,
        high=need.sampler.high,
        piece=rows * padded_vocabulary(task.model) * _largest_per_logit(settings.version),
        flag="--max-num-seqs",
        value=batch.sequences,
        default=default_batch(settings.version, task.gpus.card).sequences,
    )
    forward = Upcoming(
        name="the first long prompt",
        bytes=need.forward.bytes,
        low=need.forward.low,
        high=need.forward.high,
        piece=need.forward.bytes // 2,  # guess: it is at least two buffers
        flag="--max-num-batched-tokens",
        value=batch.tokens,
    )
    return tuple(sorted((sampler, forward), key=lambda one: -one.bytes))


def _largest_per_logit(version: Version) -> int:
    return next(size for since, size in _LARGEST_PER_LOGIT if version >= since)


def _tightest(account: Account) -> list[Finding]:
    """The largest allocation still to come after the cache is taken, against what is left then."""
    free, need = _free(account), account.need
    if account.kv.available_bytes <= 0 or free.high < 0:
        return []
    left = free.bytes + need.activations.bytes
    batch = account.settings.batch
    rows = min(batch.sequences, batch.tokens)
    piece = rows * padded_vocabulary(account.task.model) * _largest_per_logit(account.settings.version)
    is_sampler = need.sampler.bytes >= need.forward.bytes
    words = "the sampler's warm-up" if is_sampler else "the first long prompt"
    piece_words = f", {mib_text(piece)} of it in one piece" if is_sampler else ""
    if free.bytes < 0:
        severity = Severity.WARNING
    elif free.low < 0:
        severity = Severity.NOTE
    else:
        severity = Severity.OK
    return [
        Finding(
            id="memory.tightest",
            severity=severity,
            summary=f"{words} takes {mib_text(need.activations.bytes)}{piece_words}; {mib_text(left)} are "
            f"left for it once the cache is taken, {mib_text(max(0, free.bytes))} after it",
            expected="room for the largest allocation that can still come",
            explanation="the cache takes what the budget leaves; what comes later must find room beside it",
            fixes=(_relief(account, is_sampler=is_sampler),),
        )
    ]


def _relief(account: Account, *, is_sampler: bool) -> Fix:
    """The flag that lowers the largest allocation."""
    batch = account.settings.batch
    if is_sampler:
        return Fix(
            type="flag",
            name="--max-num-seqs",
            old=str(batch.sequences),
            new=str(max(1, batch.sequences // 4)),
            cost="fewer requests run at once",
        )
    return Fix(
        type="flag",
        name="--max-num-batched-tokens",
        old=str(batch.tokens),
        new=str(max(512, batch.tokens // 2)),
        cost="long prompts take more steps",
    )


def _large_batch(account: Account) -> list[Finding]:
    """Cache that a smaller number of sequences would win, where the sampler decides the peak."""
    need, batch = account.need, account.settings.batch
    fewer = batch.sequences // 4
    if fewer < 1 or need.sampler.bytes < need.forward.bytes:
        return []
    lower = max(need.forward.bytes, need.sampler.bytes * fewer // batch.sequences)
    won = need.activations.bytes - lower
    if won < _WORTH_SAYING or account.settings.kv_cache_memory_bytes is not None:
        return []
    return [
        Finding(
            id="memory.max_num_seqs",
            severity=Severity.NOTE,
            summary=f"--max-num-seqs {fewer} instead of {batch.sequences} makes the KV cache about "
            f"{bytes_text(won)} per GPU larger",
            explanation=f"the sampler is tried out with {batch.sequences} requests: {need.sampler.formula} = "
            f"{bytes_text(need.sampler.bytes)}, with {fewer} {bytes_text(lower)}",
            fixes=(
                Fix(
                    type="flag",
                    name="--max-num-seqs",
                    old=str(batch.sequences),
                    new=str(fewer),
                    cost="fewer requests run at once",
                ),
            ),
        )
    ]
