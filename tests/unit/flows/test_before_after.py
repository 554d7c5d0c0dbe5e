from dataclasses import replace

from bringup.flows.before_after import before_and_after
from bringup.flows.diagnose import diagnose, load_rules, sift
from bringup.planner.fitting import MARGIN
from bringup.units import mib
from bringup.values.case import Case, CaseLine
from bringup.values.diagnosis import BeforeAfter
from bringup.values.finding import Finding, Fix, Severity

ARGV = ("vllm", "serve", "MiniMaxAI/MiniMax-M2.5", "--tensor-parallel-size", "4", "--max-num-seqs", "1024")
LINE = CaseLine(
    number=1, text="CUDA out of memory. GPU 0 has a total capacity of 94.97 GiB of which 1 GiB is free"
)


def case(**more: object) -> Case:
    told = {"engine": "vllm", "version": "0.16.0", "argv": ARGV, "model": ARGV[2], "lines": (LINE,)}
    return Case(**{**told, "flags": {"--tensor-parallel-size": "4"}, **more})


def finding(kind: str = "mem.sampler_warmup_oom") -> Finding:
    fix = Fix(type="flag", name="--max-num-seqs", old="1024", new="256")
    return Finding(id=kind, severity=Severity.FAILURE, summary="x", fixes=(fix,))


def account(**more: object) -> BeforeAfter:
    found = before_and_after(finding(), case(**more))
    assert found is not None
    return found


def test_fewer_sequences_leave_more_for_the_cache():
    found = account()
    rows = {row.name: row for row in found.rows}
    assert rows["weights"].before == rows["weights"].after
    assert (rows["activations"].before or 0) > (rows["activations"].after or 0)
    assert found.tokens[0] < found.tokens[1]
    assert found.gained() > 0
    assert not found.reason


def test_arguments_do_where_no_command_is_shown():
    flags = {"--tensor-parallel-size": "4", "--max-num-seqs": "1024", "--trust-remote-code": "true"}
    assert account(argv=(), flags=flags).rows == account().rows


def test_what_is_missing_for_an_account_is_said():
    assert "`nobody/unknown-model` is neither" in account(model="nobody/unknown-model").reason
    assert "does not name the model" in account(model=None).reason
    assert "arguments" in account(argv=(), flags={}).reason
    assert "neither the GPU nor its memory" in account(lines=()).reason
    assert account(engine="tgi").reason
    assert before_and_after(finding("host.port"), case()) is None


LLAMA = """\
llama_load_model_from_file: using device CUDA0 (NVIDIA GeForce RTX 3060) - 10362 MiB free
llama_model_loader: loaded meta data with 26 key-value pairs and 291 tensors from /m/7b.gguf (version GGUF V3)
llama_model_loader: - kv   0:                       general.architecture str              = llama
llama_model_loader: - kv   2:                          llama.block_count u32              = 32
llama_model_loader: - kv   3:                       llama.context_length u32              = 32768
llama_model_loader: - kv   4:                     llama.embedding_length u32              = 4096
llama_model_loader: - kv   5:                  llama.feed_forward_length u32              = 14336
llama_model_loader: - kv   6:                 llama.attention.head_count u32              = 32
llama_model_loader: - kv   7:              llama.attention.head_count_kv u32              = 8
llama_model_loader: - kv  11:                           llama.vocab_size u32              = 32768
llama_model_loader: - kv  16:                      tokenizer.ggml.tokens arr[str,32768]   = ["<unk>", ...
print_info: file size   = 4.24 GiB (5.03 BPW)
load_tensors: offloaded 31/33 layers to GPU
llama_context: n_ctx      = 32768
llama_context: n_batch    = 2048
llama_context: n_ubatch   = 512
llama_kv_cache:      CUDA0 KV buffer size =  3968.00 MiB
llama_context:      CUDA0 compute buffer size =  2266.00 MiB
CUDA error: CUBLAS_STATUS_NOT_INITIALIZED
"""


def test_llama_cpp_is_planned_from_what_its_loader_prints():
    rules = load_rules()
    found = diagnose(sift([LLAMA.encode()], rules), rules, source="x")
    layers = next(fix for fix in found.findings[0].fixes if fix.name == "--n-gpu-layers")
    account = found.ledger
    assert account is not None
    assert not account.reason
    rows = {row.name: row for row in account.rows}
    assert rows["compute"].before == mib(2266)  # the log's own figure
    assert abs((rows["kv_pool"].before or 0) - mib(3968)) <= mib(128)  # one layer more or less
    assert abs((rows["weights"].before or 0) - mib(4031)) < mib(64)
    assert int(layers.new or 0) < int(layers.old or 0) == 31
    assert (rows["free"].after or 0) >= MARGIN > (rows["free"].before or 0)
    assert not any(fix.name == "--tensor-split" for fix in found.findings[0].fixes)  # there is one GPU


def test_tensorrt_llm_is_planned_from_its_command():
    command = f"trtllm-serve {ARGV[2]} --tp_size 4 --max_batch_size 1024".split()
    fix = Fix(type="flag", name="--max_seq_len", new="8192")
    found = before_and_after(
        replace(finding("mem.kv_too_small"), fixes=(fix,)),
        case(engine="tensorrt_llm", version="1.2.0", argv=tuple(command), flags={"--tp_size": "4"}),
    )
    assert found is not None
    assert not found.reason
    assert {"weights", "kv_pool"} <= {row.name for row in found.rows}
