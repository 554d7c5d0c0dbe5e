"""Wordings that were met in reports after the rules were written, in texts of our own."""

import pytest

from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.rules import Rule
from bringup.values.diagnosis import Diagnosis
from bringup.values.finding import Severity

SUPPORTED = "Supported architectures: ['OtherForCausalLM', 'BirchForCausalLM']"


@pytest.fixture(scope="module")
def rules() -> dict[str, Rule]:
    return load_rules()


def _read(text: str, rules: dict[str, Rule]) -> Diagnosis:
    return diagnose(sift([text.encode()], rules), rules, source="test")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("NVRM: GPU2 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 9 heartbeat 1", "xid.119"),
        ("NVRM: GPU0 _kgspLogRpcTimeout: ************ GSP Timeout ************", "xid.119"),
        ("[ 12.5] NVRM: fallen off the bus and is not responding to commands.", "xid.79"),
        ("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "xid.94_95"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "xid.74_nvlink"),
        ("ERROR 01-02 03:04:05 engine.py:9] 'layers.3.mlp.gate_proj.weight.absmax'", "file.param_mismatch"),
        ("OSError: Consistency check failed: file should be of size 90 but has size 40 (a)", "file.corrupt"),
        (
            "Health check failed. Server couldn't get a response from detokenizer for last 30 seconds.",
            "engine.timeout",
        ),
        ("Memory access fault by GPU node-3 (Agent handle: 0x1) on address 0x2.", "engine.illegal_access"),
        ("CUDA error: an illegal instruction was encountered", "engine.illegal_access"),
        ("llama_model_load: error loading model: unknown model architecture: ''", "gguf.wrong_file"),
        ("llama_model_load: error loading model: unknown architecture", "gguf.arch"),
        (
            f"ValueError: Model architectures ['BirchForCausalLM'] are not supported for now. {SUPPORTED}",
            "pkg.inspect_wrapper",
        ),
        (
            f"ValueError: Model architectures ['AlderForCausalLM'] are not supported for now. {SUPPORTED}",
            "model.arch_unknown",
        ),
        ('2 errors detected in the compilation of "/cache/gen/gemm.cu".', "jit.compile_error"),
        ("h0:1:2 [0] include/shm.h:30 NCCL WARN Call to posix_fallocate failed : No space left", "nccl.shm"),
        ("max_total_tokens=4096 is larger than the profiled value -77. Use it instead.", "mem.kv_none"),
        (
            "mpirun noticed that process rank 3 with PID 0 on node n1 exited on signal 9 (Killed).",
            "host.ram_oom",
        ),
        ("RuntimeError: Cutlass MoE kernel does not support current device sm_121", "arch.backend_gate"),
        ("RuntimeError: HIP error: invalid device function", "arch.no_kernel_image"),
        ("RuntimeError: No HIP GPUs are available", "drv.no_device"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded", "drv.no_device"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0", "drv.too_old"),
        ("PermissionError: [Errno 13] Permission denied: '/app/.cache/flashinfer'", "systemd.env"),
        (
            "ERROR 01-02 03:04:05 serving_chat.py:7] torch.OutOfMemoryError: CUDA out of memory.",
            "mem.runtime_oom",
        ),
    ],
)
def test_the_kind_is_told(text: str, kind: str, rules: dict[str, Rule]) -> None:
    found = _read(text + "\n", rules)
    assert found.findings[0].id == kind
    assert found.exit_code == 1


@pytest.mark.parametrize(("work", "kind"), [("1", "nccl.p2p_hang"), ("812", "nccl.watchdog")])
def test_the_first_collective_is_a_hang_and_a_later_one_a_wait(
    work: str, kind: str, rules: dict[str, Rule]
) -> None:
    said = f"[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={work}, OpType=ALLREDUCE)"
    assert _read(said, rules).findings[0].id == kind


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
        "[TRT-LLM] [RANK 0] [E] Failed to initialize executor on rank 0: Assertion failed: no plan",
    ],
)
def test_an_error_of_the_stack_that_no_rule_explains_is_unknown(text: str, rules: dict[str, Rule]) -> None:
    found = _read(text, rules)
    assert (found.findings[0].id, found.exit_code) == ("unknown", 7)


def test_an_error_of_another_program_is_a_note_that_quotes_it(rules: dict[str, Rule]) -> None:
    finding = _read("starting\nValueError: the ledger is closed\n", rules).findings[0]
    assert (finding.id, finding.severity) == ("no_start", Severity.NOTE)
    assert [line.line for line in finding.evidence] == [2]


def test_a_second_attempt_without_pipelining_is_no_failure(rules: dict[str, Rule]) -> None:
    failed = (
        "0.01 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9.00 MiB on device 1: cudaMalloc "
        "failed: out of memory\n"
    )
    again = "0.02 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n"
    assert _read(failed + again, rules).exit_code != 1
    assert _read(failed + again + failed, rules).exit_code == 1


def test_a_retried_allocation_is_a_warning(rules: dict[str, Rule]) -> None:
    said = (
        "[rank0]:[W1 CUDACachingAllocator.cpp:1] memory allocation failed with OOM on device 0\n"
        "  while trying to allocate 600000000 bytes (free: 500000000, total: 85000000000).\n"
    )
    assert _read(said, rules).findings[0].severity is Severity.WARNING


def test_texts_inside_a_binary_are_no_messages(rules: dict[str, Rule]) -> None:
    assert _read("a\0Address already in use\0bind: address already in use\0b", rules).exit_code == 0
