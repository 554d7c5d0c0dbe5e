"""What makes room on a GPU, computed: which setting, from what to what, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass

from bringup.planner.fitting import (
    MARGIN,
    length_that_fits,
    room_of_sampler,
    sequences_that_fit,
    share_that_fits,
    share_with_room,
    vocabulary_of,
    weights_share,
    wider_cut,
)
from bringup.planner.kv_versions import read_version
from bringup.planner.workspace import graph_bytes
from bringup.units import GIB, bytes_text
from bringup.values.case import Case
from bringup.values.finding import Fix
from bringup.values.setting_names import engine_of, flag_of, tensor_parallel_of, value_of

_MOST_WEIGHTS = 0.9  # of a share: the rest is for a step and some cache
_MOST_SHARE = 0.97  # that an engine can have without failing later
_LEAST_CACHE = 0.03  # of the memory, for a cache of any use
_RECORDED = (256, 128, 64, 32, 16, 8, 4, 2, 1)  # largest sizes of batches that graphs are recorded for
_MOST_RECORDED = 512
_RUNTIME_LIMITS = {"sglang": 8192, "vllm": 8192, "llama_cpp": 512}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What is missing where, as far as it is known. Sizes are bytes."""

    kind: str  # id of the taxonomy
    requested: int | None = None
    free: int | None = None
    total: int | None = None
    rows: int | None = None  # requests of the sampler's warm-up
    share: float | None = None  # of the memory, as the command line, the text or the version's default says
    bytes_per_logit: float = 38.5
    vocabulary: int | None = None
    has_images: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A shortage with what its cures are written with."""

    case: Case
    engine: str | None
    shortage: Shortage

    def flag(self, setting: str, new: str | None, *, old: str | None = None, **words: str) -> tuple[Fix, ...]:
        """One flag of this engine; none where it has no such setting."""
        name = flag_of(self.engine, setting)
        if name is None or new is None:
            return ()
        return (Fix(type="flag", name=name, old=value_of(self.case, name) or old, new=new, **words),)

    def share_down(self, room: int) -> tuple[Fix, ...]:
        """A smaller share of the memory, by what `room` bytes are of it."""
        share = self.shortage.share
        if share is None:  # chosen by the engine for the device, and not told
            less = round(1 - share_with_room(1.0, room, self.shortage.total), 2)
            told = f"{less:g} " if self.shortage.total and self.shortage.requested else ""
            new = f"{told}less than the engine took, which the log does not tell"
            return self.flag("memory_share", new, cost="a smaller KV cache")
        new = share_with_room(share, room, self.shortage.total)
        is_computed = self.shortage.total is not None and self.shortage.requested is not None
        cost = (
            "a smaller KV cache" if is_computed else "a smaller KV cache; a first try, as no sizes are told"
        )
        return self.flag("memory_share", f"{new:g}", old=f"{share:g}", cost=cost)

    def share_up(self) -> tuple[Fix, ...]:
        """A larger share, up to what an engine can have without failing later."""
        share = self.shortage.share
        if share is None:
            return self.flag("memory_share", "0.92", cost="less room for graphs and peaks")
        if share >= _MOST_SHARE:
            return ()
        new = round(share + max(0.05, (0.95 - share) / 2), 2)
        if self.engine == "sglang" and (least := weights_share(self.case.facts)) is not None:
            new = max(new, round(least + _LEAST_CACHE, 2))
        if new > _MOST_SHARE and share < _MOST_SHARE:
            new = _MOST_SHARE
        return self.flag("memory_share", f"{new:g}", old=f"{share:g}", cost="less room for graphs and peaks")

    def more_gpus(self) -> tuple[Fix, ...]:
        """Twice as many GPUs per layer."""
        if self.engine == "llama_cpp":
            return ()
        now = tensor_parallel_of(self.case, self.engine) or 1
        total, share = self.shortage.total, self.shortage.share or 0.9
        new = wider_cut(self.case.shape, now, round(total * share) if total else None)
        cost = "twice as many GPUs" if new == 2 * now else f"{new} GPUs"
        return self.flag("tensor_parallel", str(new), old=str(now), cost=cost)

    def step_down(self, default: int) -> tuple[Fix, ...]:
        """Fewer tokens in one step: halved until what failed, which grows with them, takes what was free."""
        now = _whole(value_of(self.case, flag_of(self.engine, "step_tokens"))) or default
        least = 256 if self.engine != "llama_cpp" else 64
        new = max(least, now // 2)
        requested, free = self.shortage.requested, self.shortage.free
        cost = "slower prompts"
        if requested and free:
            while new > least and requested * new > free * now:
                new = max(least, new // 2)
            cost += f"; what failed takes {bytes_text(round(requested * new / now))} then"
        return self.flag("step_tokens", str(new), old=str(now), cost=cost)

    def no_graphs(self) -> tuple[Fix, ...]:
        """No recorded graphs: the last resort."""
        return self.flag(
            "no_graphs", "true", kind="workaround", cost="slower decoding; only when nothing else helps"
        )


def cures_of(case: Case, shortage: Shortage) -> tuple[Fix, ...]:
    """What makes room for what is short, the cheapest first."""
    wanted = _Wanted(case=case, engine=engine_of(case), shortage=shortage)
    cure = _CURES.get(shortage.kind)
    return cure(wanted) if cure else ()


def _weights(wanted: _Wanted) -> tuple[Fix, ...]:
    shortage = wanted.shortage
    if wanted.engine == "llama_cpp":
        return _llama_weights(wanted)
    first: tuple[Fix, ...] = ()
    if shortage.requested and shortage.free and shortage.free > shortage.requested:
        first = (_one_gpu_per_rank(),)
    elif (tensor_parallel_of(wanted.case, wanted.engine) or 1) > 1:
        first = (_one_gpu_per_rank(kind="workaround"),)
    checkpoint = Fix(
        type="file", name="checkpoint", new="a smaller number format (FP8, INT4)", cost="some accuracy"
    )
    offload: tuple[Fix, ...] = ()
    if wanted.engine in {"vllm", "sglang", None}:
        size = max(1, -(-(shortage.requested or 0) // GIB) + 1)
        offload = (
            Fix(
                type="flag",
                name="--cpu-offload-gb",
                old="0",
                new=str(size),
                kind="workaround",
                cost="much slower",
            ),
        )
    smaller_pool = wanted.share_down(shortage.requested or 0) if wanted.engine == "tensorrt_llm" else ()
    return (*wanted.more_gpus(), *smaller_pool, checkpoint, *first, *offload)


def _one_gpu_per_rank(kind: str = "cure") -> Fix:
    return Fix(type="env", name="CUDA_VISIBLE_DEVICES", new="as many GPUs as ranks, each free", kind=kind)


def _llama_weights(wanted: _Wanted) -> tuple[Fix, ...]:
    """Fewer layers on the GPU, the split by what is free, a shorter context."""
    layers = _whole(value_of(wanted.case, "--n-gpu-layers"))
    fewer = f"{max(1, layers * 9 // 10)}" if layers and layers < 1000 else "fewer layers"
    return (
        Fix(
            type="flag", name="--n-gpu-layers", old=str(layers) if layers else None, new=fewer, cost="slower"
        ),
        *(() if _has_one_gpu(wanted.case) else _even_split(wanted)),
        *_shorter(wanted),
    )


def _has_one_gpu(case: Case) -> bool:
    seen = [rank for rank in case.facts.ranks if rank.free_at_start] if case.facts else []
    return 1 in (len(seen), len(case.gpus))


def _even_split(wanted: _Wanted) -> tuple[Fix, ...]:
    return wanted.flag("tensor_parallel", "in proportion to what is free on each GPU")


def _shorter(wanted: _Wanted, cost: str = "shorter requests") -> tuple[Fix, ...]:
    name = flag_of(wanted.engine, "context")
    now = _whole(value_of(wanted.case, name)) if name else None
    return wanted.flag("context", str(now // 2) if now else "8192", cost=cost)


def _profile(wanted: _Wanted) -> tuple[Fix, ...]:
    if wanted.engine == "llama_cpp":
        return _runtime(wanted)
    shortage = wanted.shortage
    rows = _whole(value_of(wanted.case, flag_of(wanted.engine, "running"))) or shortage.rows or 256
    fewer, why = _fewer_in_profile(wanted, rows)
    pictures: tuple[Fix, ...] = ()
    if wanted.engine in {"vllm", None}:
        pictures = (
            Fix(
                type="flag",
                name="--limit-mm-per-prompt",
                new='{"image": 1}',
                cost="fewer pictures per request",
            ),
        )
    return (
        *wanted.flag("running", str(fewer), old=str(rows), cost=f"fewer requests run at once{why}"),
        *wanted.step_down(8192),
        *(pictures if shortage.has_images else ()),
        *_shorter(wanted),
        *wanted.share_down(shortage.requested or 0),
        *wanted.no_graphs(),
    )


def _fewer_in_profile(wanted: _Wanted, rows: int) -> tuple[int, str]:
    """How many requests the trial run may have, and how that comes about."""
    shortage, vocabulary = wanted.shortage, wanted.case.shape.vocabulary
    # With pictures every request brings its own: the peak is a multiple of the requests.
    usual = 16 if rows > 16 else max(1, rows // 2)
    if not vocabulary or shortage.free is None or shortage.has_images:
        return usual, ""
    room, held = room_of_sampler(shortage.free, shortage.requested, vocabulary, rows)
    if not held:  # what failed is no copy of the logits
        return usual, ""
    size = shortage.bytes_per_logit
    fewer = sequences_that_fit(room, vocabulary, size, rows)
    return fewer, f" ({fewer} x {vocabulary:,} logits x {size:g} B fit into {bytes_text(room)})"


def _sampler(wanted: _Wanted) -> tuple[Fix, ...]:
    shortage = wanted.shortage
    rows = shortage.rows or _whole(value_of(wanted.case, flag_of("vllm", "running"))) or 1024
    known = shortage.vocabulary or wanted.case.shape.vocabulary
    vocabulary = known or _vocabulary(shortage, rows)
    size = shortage.bytes_per_logit
    if known and shortage.free is not None:
        room, held = room_of_sampler(shortage.free, shortage.requested, known, rows)
        fewer = sequences_that_fit(room, known, size, rows)
        need = bytes_text(round(fewer * known * size))
        why = f"{fewer} x {known:,} logits x {size:g} B = {need} of {bytes_text(room)}"
        why += f": {bytes_text(shortage.free)} free, {bytes_text(held)} of logits held" if held else " free"
    elif vocabulary is None:
        fewer = min(256, max(1, rows // 4))
        why = "a quarter: the lines tell neither the vocabulary nor what was free"
    else:
        fewer = sequences_that_fit(shortage.free or MARGIN, vocabulary, size, rows)
        why = f"{fewer} x {vocabulary:,} logits x {size:g} B = {bytes_text(round(fewer * vocabulary * size))}"
    need = round(min(rows, 256) * vocabulary * size) if vocabulary else MARGIN
    return (
        *wanted.flag("running", str(fewer), old=str(rows), cost=f"fewer requests run at once ({why})"),
        *wanted.share_down(need),
        *_sampler_without_sort(wanted),
    )


def _sampler_without_sort(wanted: _Wanted) -> tuple[Fix, ...]:
    """The sampler of another library: there since 0.7, the default since 0.20 or soon after."""
    version = read_version(wanted.case.version)
    if version is not None and not (0, 7, 0) <= version < (0, 20, 0):
        return ()
    cost = "no sort of the logits; from 0.17 on the engine needs none"
    return (Fix(type="env", name="VLLM_USE_FLASHINFER_SAMPLER", old="0", new="1", kind="workaround",
                cost=cost),)  # fmt: skip


def _vocabulary(shortage: Shortage, rows: int) -> int | None:
    return vocabulary_of(shortage.requested, rows) if shortage.requested else None


def _graphs(wanted: _Wanted) -> tuple[Fix, ...]:
    """A smaller pool by what graphs may still take; smaller batches in them."""
    layers = wanted.case.shape.layers
    now = _whole(value_of(wanted.case, flag_of(wanted.engine, "graphs")))
    requested, free = wanted.shortage.requested or 0, wanted.shortage.free or 0
    missing = max(0, requested - free) + MARGIN
    rest = round(graph_bytes(layers, min(now or _MOST_RECORDED, _MOST_RECORDED))) if layers else 0
    return (
        *wanted.share_down(max(missing + rest, requested)),
        *_smaller_graphs(wanted, now, missing),
        *wanted.no_graphs(),
    )


def _smaller_graphs(wanted: _Wanted, now: int | None, missing: int) -> tuple[Fix, ...]:
    """The largest batch that what failed has room with, or whose graphs take as much less as is missing."""
    requested, free, layers = wanted.shortage.requested, wanted.shortage.free, wanted.case.shape.layers
    cost = "slower decoding above that many requests"
    new: int | None = None
    if now and requested and free:  # the largest is recorded first, and its tensors grow with it
        new = next((size for size in _RECORDED if size < now and requested * size <= free * now), None)
        cost += f"; what failed takes {bytes_text(round(requested * new / now))} then" if new else ""
    elif layers:
        most = graph_bytes(layers, now or _MOST_RECORDED)
        fitting = (size for size in _RECORDED if most - graph_bytes(layers, size) >= missing)
        new = next(fitting, None)
        cost += f"; {bytes_text(missing)} less for graphs"
    return wanted.flag("graphs", str(new) if new else None, cost=cost)


def _runtime(wanted: _Wanted) -> tuple[Fix, ...]:
    """A smaller pool by what was missing and once more as much: the step had not come to its end."""
    missing = max(0, (wanted.shortage.requested or 0) - (wanted.shortage.free or 0))
    room = missing + max(MARGIN, wanted.shortage.requested or 0)
    default = _RUNTIME_LIMITS.get(wanted.engine or "vllm", 8192)
    if wanted.engine == "llama_cpp":
        return (
            *wanted.step_down(default),
            *_shorter(wanted),
            Fix(type="flag", name="--flash-attn", new="on", cost="none where the GPU has it"),
        )
    # vLLM measures its step before it sizes the pool: a smaller step makes the pool larger, not room.
    step = wanted.step_down(default) if wanted.engine not in {"vllm", None} else ()
    return (*wanted.share_down(room), *step)


def _pool(wanted: _Wanted) -> tuple[Fix, ...]:
    """The pool itself did not fit: smaller, unlike the pool that came out empty."""
    if wanted.engine == "llama_cpp":
        return (
            *_shorter(wanted),
            *wanted.flag("kv_dtype", "q8_0", old="f16", cost="some accuracy"),
            *_llama_weights(wanted),
        )
    return (*wanted.share_down(wanted.shortage.requested or 0), *wanted.more_gpus())


def _communicators(wanted: _Wanted) -> tuple[Fix, ...]:
    channels = Fix(
        type="env", name="NCCL_MAX_NCHANNELS", new="8", kind="workaround", cost="slower all-reduce"
    )
    return (*wanted.share_down(0), channels)


def _taken(wanted: _Wanted) -> tuple[Fix, ...]:
    """Someone else has it: stop that, or take only what is left."""
    shortage = wanted.shortage
    stop = Fix(type="hardware", name="stop the other process on the GPU", cost="it serves no more")
    if shortage.free is None or shortage.total is None:
        return (stop, *wanted.share_down(0))
    fits = share_that_fits(shortage.free, shortage.total)
    weights = (wanted.case.shape.weight_bytes or 0) / (tensor_parallel_of(wanted.case, wanted.engine) or 1)
    if fits is None or weights > _MOST_WEIGHTS * fits * shortage.total:
        return (stop,)  # no share of what is left holds the model
    old = f"{shortage.share:g}" if shortage.share is not None else None
    return (stop, *wanted.flag("memory_share", f"{fits:g}", old=old, cost="a smaller KV cache"))


def nothing_left(case: Case, shortage: Shortage) -> tuple[Fix, ...]:
    """The share left nothing for the cache: a larger share, a smaller peak, then more GPUs."""
    wanted = _Wanted(case=case, engine=engine_of(case), shortage=shortage)
    fixes = [*wanted.share_up(), *wanted.more_gpus(), *wanted.step_down(8192), *_shorter(wanted)]
    if value_of(case, "--speculative-algorithm"):
        fixes.append(Fix(type="flag", name="--speculative-algorithm",
                         old=value_of(case, "--speculative-algorithm"), cost="no speculative "
                         "decoding"))  # fmt: skip
    return (*fixes, *wanted.no_graphs())


def too_short(
    case: Case,
    shortage: Shortage,
    *,
    length: int,
    need: float | None,
    available: float | None,
    printed: int | None,
) -> tuple[Fix, ...]:
    """A shorter longest request, as printed or computed; a larger share; a cache of half the size."""
    wanted = _Wanted(case=case, engine=engine_of(case), shortage=shortage)
    fits = printed or (length_that_fits(length, need, available) if need and available else None)
    missing = round((need - available) * GIB) if need and available else None
    halved = need is not None and available is not None and need <= 2 * available
    kv = wanted.flag("kv_dtype", "fp8", old="auto", kind="workaround", cost="some accuracy") if halved else ()
    return (
        *wanted.flag("context", str(fits) if fits else None, old=str(length), cost="shorter requests"),
        *_larger(wanted, missing),
        *kv,
        *wanted.more_gpus(),
    )


def _larger(wanted: _Wanted, missing: int | None) -> tuple[Fix, ...]:
    """A share larger by what is missing, where that is possible."""
    share, total = wanted.shortage.share, wanted.shortage.total
    if share is None:
        return ()
    more = (missing / total if missing and total else 0.02) + 0.005
    if share + more > _MOST_SHARE:
        return ()
    return wanted.flag(
        "memory_share", f"{round(share + more, 3):g}", old=f"{share:g}", cost="less room for peaks"
    )


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.strip().isdigit() else None


_CURES: dict[str, Callable[[_Wanted], tuple[Fix, ...]]] = {
    "mem.weights_oom": _weights,
    "mem.profile_oom": _profile,
    "mem.sampler_warmup_oom": _sampler,
    "mem.graph_capture_oom": _graphs,
    "mem.runtime_oom": _runtime,
    "mem.kv_none": _pool,
    "mem.comm_buffer_oom": _communicators,
    "mem.startup_free_low": _taken,
}
