"""GPU memory ran out: in which step of the start, and whose memory it was.

Source: the frames of vLLM 0.5 to 0.33 (`v1/worker/gpu_worker.py`, `worker/worker.py`), SGLang 0.3 to 0.5.23
(`srt/model_executor/model_runner.py`) and the texts of PyTorch's allocator, see `parse/oom.py`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bringup.parse.log_message import lines_at
from bringup.parse.oom import LITERALS, OutOfMemory, is_out_of_memory, read_out_of_memory
from bringup.planner.fitting import share_in_use
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.planner.memory_cures import Shortage, cures_of
from bringup.planner.vllm_figures import bytes_per_logit, default_utilization
from bringup.rules import Match, Rule
from bringup.units import GIB, bytes_text
from bringup.values.case import Case, CaseLine, Traceback
from bringup.values.finding import Fix, Severity
from bringup.values.setting_names import engine_of, flag_of, value_of
from bringup.values.start_log import Phase

_SAMPLER_WORDS = "warming up sampler"
# What llama.cpp says after the allocation that failed, and the step that it belongs to.
_LLAMA_CPP = (
    (re.compile(r"allocate buffer for (?:kv|rs) cache"), "mem.kv_none"),
    (re.compile(r"failed to allocate compute|ggml_gallocr_reserve_n"), "mem.profile_oom"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the start or of serving that allocates: how frames, lines and phases show it."""

    kind: str
    frames: str  # of `file:function`, anywhere in the traceback
    words: str  # in the line itself or in those that the case keeps around it
    phases: tuple[Phase, ...] = ()
    what: str = ""


# The first that fits decides: outer frames of an earlier row hold the inner ones of a later row.
_STEPS = (
    Step(  # warm-ups by text-generation-inference, and by what is built like it
        kind="mem.profile_oom",
        frames=r"^(?:text_generation_server|lmdeploy)/.*:(?i:warm_?up)$"
        r"|:(?:profile_run|determine_num_available_blocks|determine_available_memory"
        r"|profile_num_available_blocks|_profile_multimodal)$",
        words=r"processing method (?:determine_num_available_blocks|determine_available_memory)"
        r"|\.(?:profile_run|determine_num_available_blocks|determine_available_memory)\("
        r"|in (?:profile_run|determine_num_available_blocks|determine_available_memory)\b"
        r"|Not enough memory to handle \d+ (?:\w+ )?tokens|(?i:method warm_?up) encountered"
        r"|(?i:unable to warm_?up)|[:\s]warm_?up\{|:warm_?up: |Warmup\(Generation",
        phases=(Phase.PROFILE,),
        what="in the trial run that measures what a full step needs",
    ),
    Step(
        kind="mem.graph_capture_oom",
        frames=r":(?:capture_model|capture_one_batch_size|init_cuda_graphs|init_device_graphs"
        r"|_capture_cudagraphs"
        r"|_warmup_and_capture|_capture_generation_cuda_graphs|_run_cuda_graph_warmup|capture_graphs?"
        r"|init_decode_cuda_graph|init_prefill_cuda_graph)$"
        r"|(?:cuda|device)_graph_runner\.py:(?!can_run|replay|forward)",
        words=r"cuda_graph_runner\.py|\.(?:capture_model|init_cuda_graphs|capture_one_batch_size)\("
        r"|Capture (?:cuda|device) graph failed|in (?:capture_model"
        r"|capture_one_batch_size"
        r"|init_cuda_graphs)\b"
        r"|processing method capture_model",
        phases=(Phase.GRAPHS,),
        what="while CUDA graphs were recorded",
    ),
    Step(
        kind="mem.sampler_warmup_oom",
        frames=r":(?:_dummy_sampler_run|warmup_kernels|compile_or_warm_up_model)$|(?:^|/)sampl(?:e"
        r"|ing)/.*warm",
        words=_SAMPLER_WORDS + r"|in (?:_dummy_sampler_run|warmup_kernels)\b",
        phases=(Phase.WARM_UP,),
        what="in the warm-up of the sampler, after the cache had taken its share",
    ),
    Step(
        kind="mem.comm_buffer_oom",
        frames=r"custom_all_reduce\.py:|pynccl\w*\.py:|:(?:init_symm_mem|ncclCommInit\w*"
        r"|init_distributed_environment)$",
        words=r"NCCL|ncclUnhandledCudaError",
        phases=(Phase.COMMUNICATORS,),
        what="for buffers of communication between GPUs",
    ),
    Step(
        kind="mem.kv_none",
        frames=r":(?:initialize_kv_cache\w*|_allocate_kv_cache\w*|init_memory_pool|alloc_memory_pool"
        r"|_init_pools"
        r"|initialize_from_config|allocate_gpu_cache|_create_buffers|initialize_cache)$|memory_pool\.py:"
        r"|cache_engine\.py:",
        words=r"(?:memory_pool|cache_engine)\.py|(?:init_memory_pool|initialize_kv_cache"
        r"|_allocate_kv_cache\w*)\(|allocate (?:buffer for )?(?:kv|rs) cache"
        r"|processing method initialize_(?:kv_)?cache"
        r"|in (?:init_memory_pool|initialize_kv_cache|_allocate_kv_cache)\b",
        phases=(Phase.KV_CACHE,),
        what="when the pool of the KV cache was allocated",
    ),
    Step(
        kind="mem.weights_oom",
        frames=r":(?:load_model|load_weights|create_weights|process_weights_after_loading|initialize_model"
        r"|_initialize_model|get_model|load_model_from_file|_load_weights\w*|init_torch_distributed)$"
        r"|model_loader"
        # transformers and what it loads with
        r"|modeling_utils\.py:(?:from_pretrained|_?load_\w+)$|^accelerate/.*:(?:set_module_tensor_to_device"
        r"|load_checkpoint\w*"
        r"|dispatch_model)$|^safetensors/torch\.py:|torch/nn/modules/module\.py:(?:_apply|convert|cuda)$"
        r"|^bitsandbytes/.*:(?:to|cuda|_quantize|quantize\w*)$",
        words=r"model_loader/\w+\.py|layers/(?:linear|vocab_parallel_embedding)\.py|fused_moe/layer\.py"
        r"|processing method load_model|Parameter\(torch\.empty|\.load_model\(|create_weights\("
        r"|_initialize_model\("
        r"|in (?:load_model|create_weights|process_weights_after_loading)\b"
        r"|error loading model|alloc_tensor_range: "
        r"|allocating [\d.]+ MiB on device|allocate (?:backend|CUDA\d* ?\w*) buffer",
        phases=(Phase.ARGUMENTS, Phase.DEVICE, Phase.WEIGHTS),
        what="while weights were allocated or loaded",
    ),
    Step(
        kind="mem.runtime_oom",
        frames=r":(?:execute_model|forward_batch_generation|run_batch|event_loop_\w+|run_busy_loop"
        r"|forward_extend"
        r"|forward_decode|step|execute_method)$|generation/utils\.py:\w+$",
        words=r"processing method execute_model|Scheduler hit an exception|(?i:decode) out of memory"
        r"|(?i:prefill) out of memory"
        r"|launch_slot_|update_slots|compute (?:pp |tg )?buffers|forward_batch_generation\(|\.run_batch\("
        r"|\"POST /(?:v1|generate)|Avg prompt throughput|(?:Prefill|Decode) batch[. ,]"
        r"|Running: [1-9]\d* reqs|[:\s](?:prefill|decode|generate\w*)\{"
        r"|(?i:method (?:prefill|decode)) encountered"
        r"|Encountered an error in forward\w+ function|Request failed during generation"
        r"|(?i:error|failed) (?:during|while|in) (?:generation|generating|inference|predict)",
        phases=(Phase.HTTP_UP, Phase.SERVING),
        what="while requests were served",
    ),
)
# What functions are called that do one step, whoever wrote them; a warm-up runs whole requests, a load none.
_NAMES = (
    (r":\w*(?i:warm_?up|profile)\w*$", "mem.profile_oom"),
    (r":(?:\w*_)?(?:load|from_pretrained|load_\w+|init_model|build_model)(?:_\w+)?$", "mem.weights_oom"),
    (
        r":(?:\w*_)?(?:forward|fwd|prefill|decode|generate|infer|inference|predict|chat|step)(?:_\w+)?$",
        "mem.runtime_oom",
    ),
)
_ORDER = tuple(Phase)
_BY_KIND = {step.kind: step for step in _STEPS}
_KV_IS_THERE = (
    r"Available KV cache memory|GPU KV cache size|# GPU blocks|Graph capturing finished|Capturing CUDA graphs"
)
_SERVING_LOGGER = re.compile(r"\bserving_\w+\.py:\d+\]")  # vLLM logs from there what ends a request
_RETRIED = re.compile(
    r"while trying to allocate (?P<requested>\d+) bytes \(free: (?P<free>\d+), total: (?P<total>\d+)\)"
)
_TRIES_AGAIN = re.compile(
    r"allocation failed, retrying without pipeline parallelism"
)  # llama.cpp, since b6840
_OLDEST = (0, 0, 0)
_TENSORRT_SHARE = 0.9  # of what is free once the model is loaded: `kv_cache_free_gpu_memory_fraction`
_FOREIGN = 2 * GIB  # what other processes hold above this is not contexts of the same engine
_DUMMY_REQUESTS = re.compile(_SAMPLER_WORDS + r" with (\d+) dummy requests")
_LARGEST_TENSOR = 16 * GIB  # above it a part of one step: the experts of a layer, cut, are smaller than this
_OF_HOST = re.compile(
    r"\bCPU(?:_\w+)? (?:\w+ )?buffer|\bcpu_buffer_type|failed to allocate buffer of size|^Killed"
)
_BYTES = re.compile(r"size (\d{4,})")
_SHARE = re.compile(r"GPU memory utilization is \((0?\.\d+),")


def read(case: Case) -> tuple[Match, ...]:
    """What ran out of memory, the first failure first; the steps that it may be where nothing tells."""
    after = max((line.number for line, _ in case.matches(_TRIES_AGAIN)), default=0)
    lines = [
        line
        for line in case.lines
        if line.number > after and (is_out_of_memory(line.text) or _SAMPLER_WORDS in line.text)
    ]
    if not lines:
        return _retried(case)
    if _OF_HOST.search(lines[0].text) and not case.says(_LLAMA_CPP[0][0].pattern):
        return (_of_host(case, lines),)
    figures = _figures(lines)
    decided = _decide(case, lines)
    if decided is None:
        return tuple(_match(case, step, lines, figures, sure) for step, sure in _guesses(case, figures))
    step, sure = decided
    found = [_match(case, step, lines, figures, sure)]
    if _is_taken(figures, step):
        found.insert(0, _taken(case, lines, figures))
    return tuple(found)


def _retried(case: Case) -> tuple[Match, ...]:
    """PyTorch's warning of an allocation that failed before it freed its cache: not the end by itself."""
    found = case.first(_RETRIED)
    if found is None:
        return ()
    line, match = found
    requested, free, total = (int(match[name]) for name in ("requested", "free", "total"))
    figures = OutOfMemory(requested=requested, free=free, total=total)
    phase = next((step for step in _STEPS if line.phase is not None and line.phase in step.phases), None)
    step = phase or _BY_KIND["mem.runtime_oom"]
    return (
        Match(
            kind=step.kind,
            sure=0.4,
            lines=(line,),
            summary=f"GPU memory is at its end{_numbers(figures)}",
            explanation="PyTorch frees its cache and tries again: a log that goes on got its memory.",
            fixes=cures_of(case, _shortage(case, step.kind, figures, None)),
            severity=Severity.WARNING,
        ),
    )


def _decide(case: Case, lines: list[CaseLine]) -> tuple[Step, float] | None:
    """The step of the first failure: by its frames, by its words, else by how far the start had come."""
    errors = {line.number for line in lines}
    traces = [trace for trace in case.tracebacks if trace.error is not None and trace.error.number in errors]
    by_words = _by_words(case, lines)
    by_frames = next((step for trace in traces if (step := _by_frames(case, trace)) is not None), None)
    if by_frames is not None:
        return _corrected(case, by_frames, by_words), 0.93
    if by_words is not None:
        return by_words, 0.88
    if any(_SERVING_LOGGER.search(line.raw) for line in lines):
        return _BY_KIND["mem.runtime_oom"], 0.8
    phase = _reached(case, lines[0])
    for step in _STEPS:
        if phase is not None and phase in step.phases:
            return (_BY_KIND["mem.runtime_oom"] if _serves(case, step) else step), 0.6
    if case.is_ready:
        return _BY_KIND["mem.runtime_oom"], 0.6
    return next((found for trace in traces if (found := _by_names(trace)) is not None), None)


def _by_names(trace: Traceback) -> tuple[Step, float] | None:
    """What the names of functions in code that is not known here say that they do."""
    for words, kind in _NAMES:
        if trace.passes(words):
            return _BY_KIND[kind], 0.55
    return None


def _reached(case: Case, failed: CaseLine) -> Phase | None:
    """How far the start had come: ranks are not in step, and collectors repeat older lines later."""
    seen = [line.phase for line in case.lines if line.number <= failed.number and line.phase is not None]
    return max(seen, key=_ORDER.index, default=None)


def _serves(case: Case, step: Step) -> bool:
    """Whether the warm-up is a first request, as SGLang's is, and not one of the sampler alone."""
    return step.kind == "mem.sampler_warmup_oom" and engine_of(case) not in {"vllm", None}


def _by_frames(case: Case, trace: Traceback) -> Step | None:
    found = [step for step in _STEPS if trace.passes(step.frames)]
    if not found:
        return None
    step = found[0]
    if step.kind == "mem.profile_oom":  # one method measures, then other methods of it record or allocate
        later = [one for one in found if one.kind == "mem.graph_capture_oom"]
        return later[0] if later and not trace.passes(r":profile_run$") else step
    if step.kind == "mem.runtime_oom" and case.is_ready is False and trace.passes(r":__init__$"):
        return None
    return step


def _corrected(case: Case, step: Step, by_words: Step | None) -> Step:
    """The sampler's own message inside the trial run is the trial run's, unless the cache was there."""
    if step.kind == "mem.profile_oom" and by_words is not None and by_words.kind == "mem.sampler_warmup_oom":
        return by_words if case.says(_KV_IS_THERE) else step
    return step


def _by_words(case: Case, lines: list[CaseLine]) -> Step | None:
    """By the failing lines themselves first, then by what the case holds beside them."""
    for pattern, kind in _LLAMA_CPP:
        if case.first(pattern) is not None:
            return _BY_KIND[kind]
    if any(_SAMPLER_WORDS in line.text for line in lines):
        return _BY_KIND["mem.sampler_warmup_oom"]
    # A failure inside a phase that the words of a neighbour name is that phase's.
    for some in ([line.text for line in lines], [line.text for line in case.lines]):
        for step in _STEPS:
            if any(re.search(step.words, text) for text in some):
                return step
    return None


def _guesses(case: Case, figures: OutOfMemory) -> Iterator[tuple[Step, float]]:
    """With no frame, word or phase: the steps in the order of how often they are it."""
    order: Iterable[str] = ("mem.weights_oom", "mem.runtime_oom", "mem.profile_oom")
    if (figures.requested or 0) > _LARGEST_TENSOR:
        order = ("mem.runtime_oom", "mem.profile_oom", "mem.weights_oom")
    if figures.graph_pools:  # PyTorch names them only where graphs were recorded
        order = ("mem.runtime_oom", "mem.graph_capture_oom")
    if case.says(r"logits\.sort|topk_topp|apply_top_k_top_p"):
        order = ("mem.sampler_warmup_oom", *order)
    if engine_of(case) == "llama_cpp":
        order = ("mem.runtime_oom", "mem.weights_oom")
    for rank, kind in enumerate(order):
        yield _BY_KIND[kind], 0.45 - 0.05 * rank


def _figures(lines: list[CaseLine]) -> OutOfMemory:
    """Of the first line that gives figures."""
    told = [read_out_of_memory(line.text) for line in lines]
    return next((one for one in told if one.requested is not None), told[0])


def _is_taken(figures: OutOfMemory, step: Step) -> bool:
    """Whether others hold so much that this process had no chance."""
    if figures.total is None or step.kind in {"mem.runtime_oom", "mem.sampler_warmup_oom"}:
        return False
    return figures.held_by_others > max(_FOREIGN, figures.total // 10)


def _match(case: Case, step: Step, lines: list[CaseLine], figures: OutOfMemory, sure: float) -> Match:
    shortage = _shortage(case, step.kind, figures, _rows(lines))
    return Match(
        kind=step.kind,
        sure=sure,
        lines=(*_telling(lines), *_frames(case, step, lines)),
        summary=f"out of {_whose(lines)} {step.what}{_numbers(figures)}",
        explanation=_explanation(figures, sure),
        fixes=cures_of(case, shortage),
        next_measurement=_next(figures, sure),
    )


def _next(figures: OutOfMemory, sure: float) -> str:
    """Who holds what of the GPU, where the step is a guess; what is free, where the text tells no sizes."""
    if sure <= 0.5:
        return "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
    if figures.requested is None:
        return "nvidia-smi --query-gpu=index,memory.total,memory.used,memory.free --format=csv"
    return ""


def _taken(case: Case, lines: list[CaseLine], figures: OutOfMemory) -> Match:
    pids = ", ".join(f"{pid} ({bytes_text(size)})" for pid, size in figures.others[:4])
    shortage = _shortage(case, "mem.startup_free_low", figures, None)
    return Match(
        kind="mem.startup_free_low",
        sure=0.95,
        lines=_telling(lines),
        summary=f"other processes hold {bytes_text(figures.held_by_others)} of the GPU: {pids}",
        explanation="Two engines, an orphan of an earlier start, or several ranks on one GPU.",
        fixes=cures_of(case, shortage),
        next_measurement="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
    )


def _telling(lines: list[CaseLine]) -> tuple[CaseLine, ...]:
    """With figures first: wrappers repeat the text without them."""
    told = sorted(lines, key=lambda line: ("Tried to allocate" not in line.text, line.number))
    return tuple(told[:6])


def _frames(case: Case, step: Step, lines: list[CaseLine]) -> tuple[CaseLine, ...]:
    """The frames that tell the step, of the first traceback that has some."""
    for line in lines:
        trace = case.traceback_of(line)
        if trace is not None and trace.frames:
            own = [frame for frame in trace.frames if frame.is_engine] or list(trace.frames)
            told = [frame for frame in own if re.search(step.frames, f"{frame.file}:{frame.function}")]
            return lines_at(case, [frame.number for frame in (*told[:2], *own[:1], *own[-2:])])
    return ()


def _rows(lines: list[CaseLine]) -> int | None:
    found = next((found for line in lines if (found := _DUMMY_REQUESTS.search(line.text))), None)
    return int(found[1]) if found else None


def _shortage(case: Case, kind: str, figures: OutOfMemory, rows: int | None) -> Shortage:
    # With no version told the greedier sampler is assumed: fewer requests than need be, but they fit.
    version = read_version(case.version) or _OLDEST
    return Shortage(
        kind=kind,
        requested=figures.requested,
        free=figures.free,
        total=figures.total,
        rows=rows,
        share=_share(case),
        bytes_per_logit=bytes_per_logit(version),
        has_images=case.says(r"mm_per_prompt|(?i:vision)|mllama|encoder|image"),
    )


def _share(case: Case) -> float | None:
    """The share of the memory, as given, as printed, or as this version takes it by itself."""
    engine = engine_of(case)
    given = value_of(case, flag_of(engine, "memory_share"))
    printed = case.first(_SHARE)
    if given is not None and re.fullmatch(r"0?\.\d+|1(?:\.0+)?", given):
        return float(given)
    if printed is not None:
        return float(printed[1][1])
    if engine in {"sglang", "llama_cpp"}:
        return share_in_use(case.facts) if engine == "sglang" else None
    if engine == "tensorrt_llm":
        return _TENSORRT_SHARE
    return default_utilization(read_version(case.version) or NEWEST)


def _of_host(case: Case, lines: list[CaseLine]) -> Match:
    """A buffer in the machine's own memory: what GPUs hold does not matter."""
    found = next((found for line in lines if (found := _BYTES.search(line.text))), None)
    size = f" of {bytes_text(int(found[1]))}" if found else ""
    return Match(
        kind="host.ram_oom",
        sure=0.85,
        lines=tuple(lines[:6]),
        summary=f"a buffer{size} in the host's memory could not be allocated",
        explanation="Layers that are not on a GPU, and their cache, lie in the host's memory.",
        fixes=(
            Fix(
                type="hardware",
                name="host RAM / swap",
                new="more than the part of the model that is not on GPUs",
            ),
            Fix(
                type="flag",
                name="--n-gpu-layers",
                old=case.flags.get("--n-gpu-layers"),
                new="more, as GPUs allow",
            ),
            Fix(
                type="flag",
                name="--ctx-size",
                old=case.flags.get("--ctx-size"),
                new="smaller",
                cost="shorter requests",
            ),
        ),
        next_measurement="free -g; ulimit -v; cat /sys/fs/cgroup/memory.max",
    )


def _whose(lines: list[CaseLine]) -> str:
    return "memory of the host" if any(_OF_HOST.search(line.text) for line in lines) else "GPU memory"


def _numbers(figures: OutOfMemory) -> str:
    if figures.requested is None:
        return ""
    free = f", {bytes_text(figures.free)} were free" if figures.free is not None else ""
    total = f" of {bytes_text(figures.total)}" if figures.total is not None else ""
    return f": {bytes_text(figures.requested)} were asked for{free}{total}"


def _explanation(figures: OutOfMemory, sure: float) -> str:
    parts: list[str] = []
    if sure < 0.5:
        parts.append("The lines do not show in which step it happened.")
    if figures.fits_in_free:
        parts.append("More was free than asked for: a limit of the process, another device, or a race.")
    if figures.requested is not None and not figures.is_fragmented:
        parts.append(
            "`expandable_segments`, which the message advises, does not help: too little is held back unused."
        )
    return " ".join(parts)


RULE = Rule(
    kinds=(*_BY_KIND, "mem.startup_free_low", "host.ram_oom"),
    title="out of GPU memory",
    literals=(
        "ggml_gallocr_reserve_n",
        *LITERALS,
        _SAMPLER_WORDS,
        "processing method",
        "in profile_run",
        "in capture_model",
        "Capture cuda graph failed",
        "Available KV cache memory",
        "logits.sort",
        "while trying to allocate",
        "retrying without pipeline",
        "GPU memory utilization is",
    ),
    read=read,
    meaning="An allocation of GPU memory failed. The same text stands for seven kinds with opposite cures.",
    told_apart="By the frames of the traceback, from the outer to the inner: loading, trial run, graph "
    "capture, "
    "sampler warm-up, cache pool, communicators, serving; without frames by the words of the line, then "
    "by the "
    "phase of the start. Processes that hold memory beside this one make it another kind.",
    cure="Weights: more GPUs or a smaller format. Trial run: a smaller step. Sampler: fewer requests at "
    "once. Graphs: "
    "smaller ones. Cache pool and serving: a smaller share of the memory. Each computed from the figures "
    "of the text.",
    source="vLLM 0.5 to 0.33 `v1/worker/gpu_worker.py`, `v1/worker/gpu_model_runner.py` "
    "(`_dummy_sampler_run`), "
    "SGLang 0.3 to 0.5.23 `srt/model_executor/model_runner.py`, `cuda_graph_runner.py`, PyTorch "
    "`c10/cuda/CUDACachingAllocator.cpp`, llama.cpp `ggml-cuda.cu`.",
)
