from bringup.flows.before_after import before_and_after
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
    assert account(engine="llama_cpp").reason
    assert before_and_after(finding("host.port"), case()) is None
