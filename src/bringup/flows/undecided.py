"""What can be said of a case that no rule settles: what is known, and what to measure next."""

import re

from bringup.parse.known_lines import KnownLines
from bringup.parse.prose import is_document
from bringup.parse.traceback import is_error
from bringup.report.changed_line import as_typed
from bringup.values.case import Case, CaseLine
from bringup.values.finding import Evidence, Finding, Severity
from bringup.values.start_log import Phase

_LOOKS_BAD = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|Fatal|fatal|panic|Aborted|Segmentation fault|core dumped)\b|"
    r"(?:^|\s)error:|\bfailed\b"
)
_LEVEL = re.compile(r"\b(?:ERROR|CRITICAL|FATAL) ")
_DIED = re.compile(
    r"EngineDeadError|EngineCore encountered a fatal|Received sigquit|SIGQUIT received|"
    r"Fatal Python error|terminate called|"
    r"core dumped|Segmentation fault|Aborted|exited, code=(?:dumped|killed)|GGML_ASSERT|GGML_ABORT"
)
_TOLD_TO_END = re.compile(
    r"signal=SIG(?:TERM|INT)|SIGTERM received|\bKeyboardInterrupt\b|INFO: +Shutting down"
)
_STACK = re.compile(  # what a GPU or a model runtime calls itself in its errors
    r"\b(?:CUDA|HIP|NCCL|RCCL|cuBLAS|CUBLAS_STATUS|cuDNN|Triton|torch\.\w+\.?\w*(?:Error|Exception|Failed)"
    r"|safetensors\w*\.|huggingface_hub\.|vllm\.|sglang\.|tensorrt_llm|TensorRT-LLM|TRT-LLM|ggml_\w+|llama_\w+"
    r"|nvidia-container-cli)",
)
_FAILS = re.compile(r"\b[Ee]rror\b|ERROR|\w(?:Error|Exception|Failed)\b|\bfailed\b|\bfailure\b|\[E\]")
_DISPLAY = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp", "tensorrt_llm": "TensorRT-LLM"}
_PHASE_WORDS = {
    Phase.ARGUMENTS: "reading its arguments",
    Phase.DEVICE: "setting up its GPUs",
    Phase.COMMUNICATORS: "connecting its ranks",
    Phase.WEIGHTS: "loading weights",
    Phase.PROFILE: "profiling its memory",
    Phase.KV_CACHE: "allocating the KV cache",
    Phase.GRAPHS: "capturing graphs",
    Phase.WARM_UP: "warming up",
    Phase.HTTP_UP: "opening its port",
    Phase.SERVING: "serving",
}
_COULD_BE = {
    Phase.COMMUNICATORS: "a GPU-to-GPU path that hangs, a wrong network interface, too little /dev/shm",
    Phase.WEIGHTS: "weights that are still loading from a slow disk, too little host memory, a damaged shard",
    Phase.PROFILE: "kernels that are being compiled, or a kernel that does not suit this GPU",
    Phase.KV_CACHE: "too little GPU memory left",
    Phase.GRAPHS: "kernels that are being compiled, too little GPU memory left, a kernel that fails",
}
_LOUDER = {
    "vllm": ("VLLM_LOGGING_LEVEL=DEBUG NCCL_DEBUG=INFO CUDA_LAUNCH_BLOCKING=1", ""),
    "sglang": ("NCCL_DEBUG=INFO CUDA_LAUNCH_BLOCKING=1", "--log-level debug"),
    "llama_cpp": ("", "-lv 4"),
}


def undecided(case: Case, known: KnownLines, again: str) -> Finding | None:
    """The finding `unknown`; None where nothing says that something is broken.

    `again` is the command that reads the same log once more and asks the machine besides.
    """
    error = first_error(case, known)
    if case.is_ready and not _has_died(case):
        return None
    if case.engine is None or not _is_start(case):
        return _without_start(case, error, again)
    name = _DISPLAY.get(case.engine, case.engine)
    where = f"while {_PHASE_WORDS[case.phase]}" if case.phase else "at a point that the log does not show"
    doing = _PHASE_WORDS[case.phase] if case.phase else "starting"
    summary = (
        f"{name} stopped {where}: not explained by any rule"
        if error
        else f"{name} was {doing} when the log ends: not decided"
    )
    return Finding(
        id="unknown",
        severity=Severity.UNKNOWN,
        summary=summary,
        explanation=_known_so_far(case, name, where, has_error=error is not None),
        evidence=tuple(
            Evidence(source="log", line=line.number, text=(line.raw or line.text).strip())
            for line in ([error] if error else case.lines[-1:])
        ),
        next_measurement=_next(case, again),
    )


def _without_start(case: Case, error: CaseLine | None, again: str) -> Finding | None:
    """An error of a GPU or model runtime, pasted without the start that it ended."""
    if error is None or is_document(line.raw or line.text for line in case.lines):
        return None
    if not (_STACK.search(error.text) and _FAILS.search(error.text)):
        return None
    return Finding(
        id="unknown",
        severity=Severity.UNKNOWN,
        summary="an error that no rule explains, and no start of an engine around it",
        explanation="The line quoted is the first error of the text that is no wrapper; the log from its "
        "first "
        "line may tell more.",
        evidence=(Evidence(source="log", line=error.number, text=(error.raw or error.text).strip()),),
        next_measurement=again,
    )


def _known_so_far(case: Case, name: str, where: str, *, has_error: bool) -> str:
    """What is known of the start, and what it could be."""
    told = [f"{name} {case.version}" if case.version else name, *([case.model] if case.model else []), where]
    quoted = (
        "The line quoted is the first error of the log that is no wrapper; it is not explained."
        if has_error
        else "The log holds no error: it ends, or it is still going on."
    )
    could = _COULD_BE.get(case.phase) if case.phase else None
    parts = (f"Known: {', '.join(told)}.", quoted, f"It could be {could}." if could else "")
    return " ".join(part for part in parts if part)


def first_error(case: Case, known: KnownLines) -> CaseLine | None:
    """The first line that is an error, no wrapper, and nothing that healthy starts print."""

    def counts(line: CaseLine) -> bool:
        return not known.is_wrapper(line.text) and not known.is_healthy(line.text)

    ends = [one.error for one in case.tracebacks if one.error is not None and counts(one.error)]
    if ends:
        return min(ends, key=lambda line: line.number)
    exact = next((line for line in case.lines if is_error(line.text) and counts(line)), None)
    if exact is not None:
        return exact
    return next(
        (
            line
            for line in case.lines
            if (_LEVEL.search(line.raw) or _LOOKS_BAD.search(line.text)) and counts(line)
        ),
        None,
    )


def _is_start(case: Case) -> bool:
    """Whether an engine wrote this: a text that only mentions one, or an error, is no start."""
    if is_document(line.raw or line.text for line in case.lines):
        return False
    return case.phase is not None or any(frame.is_engine for one in case.tracebacks for frame in one.frames)


def _has_died(case: Case) -> bool:
    for line in case.lines:
        if _TOLD_TO_END.search(line.text):
            return False
        if _DIED.search(line.text):
            return True
    return False


def _next(case: Case, again: str) -> str:
    """A start that tells more, where the log shows the command; else the machine itself and the same log."""
    variables, flags = _LOUDER.get(case.engine or "", ("", ""))
    if case.argv and (variables or flags) and (case.phase is not Phase.COMMUNICATORS or case.host):
        louder = _with_variables(case.argv, variables)
        return f"{louder}{flags and ' '}{flags} 2>&1 | tee start.log; bringup diagnose start.log"
    if case.host is None:
        return again
    pid = next((engine.pid for engine in case.host.engines if engine.pid), None)
    return f"py-spy dump --pid {pid}" if pid else "nvidia-smi -q -d UTILIZATION,POWER,MEMORY"


def _with_variables(argv: tuple[str, ...], variables: str) -> str:
    """The command with variables set: before it, or inside the container that it starts."""
    names = [word.rsplit("/", 1)[-1] for word in argv]
    place = next((at + 1 for at, name in enumerate(names[1:], start=1) if name == "run"), 0)
    if not place or not {"docker", "podman", "nerdctl"} & set(names[:place]):
        return " ".join(part for part in (variables, as_typed(argv)) if part)
    given = [word for one in variables.split() for word in ("-e", one)]
    return as_typed((*argv[:place], *given, *argv[place:]))
