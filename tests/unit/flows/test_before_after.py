from bringup.flows.before_after import before_and_after
from bringup.values.case import Case, CaseLine
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


def test_fewer_sequences_leave_more_for_the_cache():
    (table,) = before_and_after(finding(), case())
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["weights"][0] == rows["weights"][1]
    assert rows["activations"][0] > rows["activations"][1]
    assert rows["tokens of KV cache"][0] < rows["tokens of KV cache"][1]
    assert table.columns[2] == "--max-num-seqs 256 (now 1024)"


def test_without_model_command_or_card_there_is_no_table():
    assert before_and_after(finding(), case(model="nobody/unknown-model")) == ()
    assert before_and_after(finding(), case(argv=())) == ()
    assert before_and_after(finding(), case(lines=())) == ()
    assert before_and_after(finding("host.port"), case()) == ()
