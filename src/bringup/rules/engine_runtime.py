"""A running engine that dies or stands still: bad addresses, time-outs, a request that it cannot take.

Seen in: CUDA errors 700, 716, 719 (`cudaGetErrorString`), SGLang 0.2 to 0.5 `managers/scheduler.py`
(watchdog), vLLM 0.6 to 0.32 `v1/executor/multiproc_executor.py` (RPC time-outs), asserts of the engines'
own request handling.
"""

import re

from bringup.parse.case_facts import spelled
from bringup.rules import Match, Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_XID = re.compile(r"NVRM: Xid")
_JIT = re.compile(
    r"Loading JIT ops|flashinfer\.jit|Compiling|Building extension|nvcc|Entering DeepGEMM|DeepGEMM JIT|ninja"
)
_ROOM = 6  # a compile of a cold cache takes minutes; six limits is half an hour at SGLang's default


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "workaround"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


def _address(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    return (
        _fix("env", "CUDA_LAUNCH_BLOCKING", "1", cost="slow: no cure, names the kernel that failed"),
        _fix("flag", spelled(case, "graphs off"), "True", cost="slower decoding"),
        _fix("flag", spelled(case, "custom all-reduce off"), "True", cost="slower small all-reduces"),
        _fix("flag", "--attention-backend", "another backend", cost="may be slower"),
    )


def _watchdog(case: Case, found: re.Match[str]) -> tuple[Fix, ...]:
    limit = int(float(found["limit"]))
    longer = _fix(
        "flag", "--watchdog-timeout", str(limit * _ROOM), old=str(limit), cost="a real hang is seen later"
    )
    if not any(_JIT.search(line.text) for line in case.lines):
        return (
            longer,
            _fix("package", "sglang", "newer", kind="cure"),
            _fix("env", "NCCL_NVLS_ENABLE", "0", old="1"),
        )
    warm = _fix("file", "~/.cache/flashinfer", "warm before serving, and kept", old="cold", kind="cure")
    return longer, warm


def _longer(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    return _limits(case)


def _limits(case: Case) -> tuple[Fix, ...]:
    if case.engine == "sglang":
        return (_fix("flag", "--watchdog-timeout", "1800", old="300", cost="a real hang is seen later"),)
    return (
        _fix(
            "env", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "1800", old="300", cost="a real hang is seen later"
        ),
        _fix("env", "VLLM_RPC_TIMEOUT", "600000", old="10000", cost="older versions"),
        _fix("env", "VLLM_ENGINE_ITERATION_TIMEOUT_S", "600", old="60", cost="versions before V1"),
    )


SIGNS = (
    Sign(
        kind="engine.illegal_access",
        pattern=re.compile(
            r"illegal memory access|an illegal instruction was encountered"
            r"|CUDA error: (?:misaligned address|unspecified launch failure"
            r"|device-side assert triggered)|Cuda failure 700"
            r"|CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress|cudaErrorLaunchFailure"
            r"|CUDA_ERROR_LAUNCH_FAILED|Memory access fault by GPU node-\d+|HSA_STATUS_ERROR_(?!OUT_OF)\w+"
            r"|Triton Error \[CUDA\]: misaligned address"
            r"|HW Exception by GPU node-\d+|cudaErrorAssert|cudaErrorMisalignedAddress"
            r"|block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion"
        ),
        unless=_XID,
        sure=0.75,
        summary="a kernel used a bad address (CUDA error 700 or its like)",
        explanation="The line where it shows is not where it happened: the error stays until the next call, "
        "so NCCL and its watchdog "
        "print it too.",
        fixes=_address,
        next_measurement="CUDA_LAUNCH_BLOCKING=1, or compute-sanitizer; journalctl -k | grep Xid",
    ),
    Sign(
        kind="engine.timeout",
        pattern=re.compile(r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<limit>[\d.]+)"),
        beside=_JIT,
        sure=0.65,
        summary="a step took longer than SGLang's watchdog allows ({limit} s)",
        explanation="A compile while serving (line before it), a rank that waits for another, or a stuck "
        "kernel. The watchdog kills all.",
        fixes=_watchdog,
        next_measurement="py-spy dump --pid of each rank; the line before the watchdog's; nvidia-smi power "
        "over 10 s",
    ),
    Sign(
        kind="engine.timeout",
        pattern=re.compile(
            r"RPC call to (?P<call>\w+) timed out|execute_model.*timed out|Engine iteration timed out"
            r"|AsyncEngineDeadError.*timed out"
            r"|TimeoutError: RPC call|sample_tokens.*timed out|cancelled while waiting for a reply"
            r"|Timed out waiting for.*(?:reply|response) from|RayChannelTimeoutError"
            r"|ray\.exceptions\.GetTimeoutError"
        ),
        sure=0.6,
        summary="a worker did not answer in time",
        explanation="The call names no cause: look for the rank that stands still, or for an earlier error "
        "of a worker.",
        fixes=_longer,
        next_measurement="py-spy dump --pid of each worker; the earliest error of any rank",
    ),
    Sign(
        kind="engine.timeout",
        pattern=re.compile(
            r"the launch timed out and was terminated|cudaErrorLaunchTimeout|CUDA_ERROR_LAUNCH_TIMEOUT"
        ),
        sure=0.8,
        summary="a kernel ran longer than the driver lets one run on a card with a display",
        explanation="Only cards that drive a display have this limit; it is also what a hanging kernel "
        "gives.",
        fixes=lambda case, _found: (
            _fix("hardware", "display", "on another card, or no X server on this one", kind="cure"),
            _fix("flag", spelled(case, "graphs off"), "True", cost="slower decoding"),
        ),
        next_measurement="nvidia-smi --query-gpu=display_active --format=csv; journalctl -k | grep Xid",
    ),
    Sign(
        kind="engine.timeout",
        pattern=re.compile(
            r"Health check failed\. Server couldn't get a response from detokenizer for last (?P<limit>\d+)"
        ),
        sure=0.45,
        summary="no token came back for {limit} s, so the health check answers 503",
        explanation="A long prefill gives no token either: the check then fails on an engine that works. A "
        "rank that waits, or a dead scheduler, looks the same.",
        fixes=lambda _case, found: (
            _fix(
                "env",
                "SGLANG_HEALTH_CHECK_TIMEOUT",
                str(int(found["limit"]) * _ROOM),
                old=found["limit"],
                cost="a real hang is seen later",
            ),
            _fix("flag", "--chunked-prefill-size", "smaller", cost="slower prefill of long prompts"),
        ),
        next_measurement="py-spy dump --pid of each scheduler; whether `Prefill batch` lines go on; "
        "nvidia-smi power over 10 s",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="arch.dtype",
        pattern=re.compile(r"CUBLAS_STATUS_(?:NOT_SUPPORTED .*CUDA_R_16BF|ARCH_MISMATCH)"),
        sure=0.8,
        summary="cuBLAS has no product in this number format for this card",
        fixes=(_fix("flag", "--dtype", "half", old="bfloat16", kind="cure"),),
        next_measurement="nvidia-smi --query-gpu=name,compute_cap --format=csv  # bfloat16 needs 8.0",
    ),
    Sign(
        kind="pkg.abi",
        pattern=re.compile(r"CUBLAS_STATUS_INVALID_VALUE when calling"),
        sure=0.55,
        summary="cuBLAS refuses its arguments: mostly another cuBLAS than PyTorch's is loaded",
        explanation="A toolkit's folder in LD_LIBRARY_PATH stands before PyTorch's own libraries.",
        fixes=(
            _fix("env", "LD_LIBRARY_PATH", "without the toolkit's folders", kind="cure"),
            _fix("package", "nvidia-cublas-cu12", "the version that PyTorch pins", kind="cure"),
        ),
        next_measurement="grep -m3 cublas /proc/PID/maps",
    ),
    Sign(
        kind="engine.bug_request",
        pattern=re.compile(
            r"^\W*assert (?:not )?(?:batch|req|request|self\.req|sampling_params)\.(?P<field>\w+)"
        ),
        sure=0.97,
        summary="one request asked for something that this version cannot do ({field}), and it took the "
        "engine down",
        fixes=lambda _case, found: (
            _fix("flag", found["field"], "False", old="True", cost="in the request"),
            _fix("package", "the engine", "newer", kind="cure"),
        ),
        next_measurement="the request that was running when it died, sent alone",
    ),
    Sign(
        kind="engine.bug_request",
        pattern=re.compile(
            r"(?:EngineDeadError|EngineCore encountered a fatal error|AsyncLLMEngine.*background (?:loop"
            r"|task).*(?:error|failed))"
        ),
        needs=re.compile(
            r"(?:ValueError|KeyError|IndexError|NotImplementedError|AssertionError|AttributeError)\b"
        ),
        unless=re.compile(r"CUDA|NCCL|OutOfMemory|Timeout|initialization failed|init_device|load_model"),
        sure=0.4,
        summary="an error in the handling of a request took the engine down",
        fixes=(_fix("package", "the engine", "newer", kind="cure"),),
        next_measurement="the request that was running when it died, sent alone",
    ),
)

_PYTHON = re.compile(
    r"^(?:\w+\.)*(?:ValueError|KeyError|IndexError|AttributeError|AssertionError|TypeError"
    r"|NotImplementedError"
    r"|ZeroDivisionError|UnboundLocalError|OverflowError|RecursionError|pydantic_core\S*ValidationError)\b"
)
_DEEPER = re.compile(r"CUDA|NCCL|HIP|[Oo]ut of memory|timed out|[Tt]imeout")
_STEPS = r":(?:run_busy_loop|event_loop_\w+|_process_engine_step|run_engine_loop)$"
_WAITS = r"shm_broadcast\.py:acquire_(?:read|write)$|multiproc_executor\.py:(?:get_response|collective_rpc)$"


def _loop(case: Case) -> tuple[Match, ...]:
    """A traceback out of the loop that serves: the engine's own error, or a worker that did not answer."""
    for trace in case.tracebacks:
        if trace.error is None or not trace.frames:
            continue
        text = trace.error.text.strip()
        if re.match(r"(?:\w+\.)*TimeoutError\b", text) and trace.passes(_WAITS):
            return (
                Match(
                    kind="engine.timeout",
                    sure=0.6,
                    lines=(trace.error,),
                    summary="a worker did not answer in time",
                    explanation="Look for the rank that stands still, or for an earlier error of a worker.",
                    fixes=_limits(case),
                    next_measurement="py-spy dump --pid of each worker; the earliest error of any rank",
                ),
            )
        if _PYTHON.search(text) and not _DEEPER.search(text) and trace.passes(_STEPS):
            where = trace.innermost
            return (
                Match(
                    kind="engine.bug_request",
                    sure=0.5,
                    lines=(trace.error,),
                    summary="an error of the engine's own code ended its loop"
                    + (f": {where.file}, {where.function}" if where else ""),
                    explanation="It served, or was about to: a request, or a feature that is on, leads "
                    "there.",
                    fixes=(_fix("package", "the engine", "newer", kind="cure"),),
                    next_measurement="the request that was running when it died, sent alone",
                ),
            )
    return ()


_TOLD = read_signs(SIGNS)

RULE = Rule(
    kinds=("engine.illegal_access", "engine.timeout", "engine.bug_request"),
    title="a running engine that dies or stands still",
    literals=(
        "illegal memory access",
        "atchdog timeout",
        "the launch timed out",
        "ErrorLaunchTimeout",
        "ERROR_LAUNCH_TIMEOUT",
        "misaligned",
        "CUBLAS_STATUS_",
        "HW Exception by GPU",
        "HSA_STATUS_ERROR_",
        "cudaErrorAssert",
        "cudaErrorMisaligned",
        "] Assertion",
        "RayChannelTimeoutError",
        "GetTimeoutError",
        "run_busy_loop",
        "event_loop_",
        "acquire_read",
        "acquire_write",
        "illegal instruction",
        "Memory access fault by GPU",
        "HSA_STATUS_ERROR_MEMORY",
        "misaligned address",
        "unspecified launch failure",
        "device-side assert",
        "Cuda failure 700",
        "ILLEGAL_ADDRESS",
        "IllegalAddress",
        "ErrorLaunchFailure",
        "LAUNCH_FAILED",
        "Watchdog timeout",
        "Health check failed. Server",
        "JIT ops",
        "flashinfer.jit",
        "DeepGEMM",
        "RPC call to",
        "timed out",
        "TimeoutError: RPC",
        "imed out waiting for",
        "waiting for a reply",
        "assert ",
        "EngineDeadError",
        "encountered a fatal error",
        "AsyncLLMEngine",
    ),
    read=lambda case: (*_TOLD(case), *_loop(case)),
    meaning="The start was good; a kernel, a wait or a request ended it.",
    told_apart="With an Xid in the log the driver names the fault. NCCL's `Cuda failure 700` is left by an "
    "earlier kernel. A watchdog "
    "before the server was up at several ranks may be a P2P hang.",
    cure="The failing kernel by a synchronous run, then another backend; a limit that fits a compile; the "
    "request left out.",
    source="CUDA runtime error texts; sglang srt/managers/scheduler.py watchdog_thread, "
    "entrypoints/http_server.py health_generate; "
    "vllm/v1/executor/multiproc_executor.py; "
    "torch c10d/ProcessGroupNCCL.cpp",
)
