from bringup.parse.traceback import package_path, read_tracebacks
from bringup.values.case import CaseLine

HEAD = "Traceback (most recent call last):"


def frame(path: str, line: int, function: str) -> str:
    return f'  File "/venv/lib/python3.12/site-packages/{path}", line {line}, in {function}'


def read(*lines: str | tuple[str, str]):
    told = [("", line) if isinstance(line, str) else line for line in lines]
    return read_tracebacks(
        (source, CaseLine(number=number, text=text, rank=source or None))
        for number, (source, text) in enumerate(told, start=1)
    )


def test_frames_are_named_by_package_and_the_error_ends_them():
    (one,) = read(
        HEAD,
        frame("vllm/v1/engine/core.py", 10, "step"),
        "    self.go()",
        "    ^^^^^^^^^",
        frame("torch/nn/functional.py", 7, "linear"),
        "    return f(x)",
        "torch.OutOfMemoryError: CUDA out of memory",
    )
    assert [two.file for two in one.frames] == ["vllm/v1/engine/core.py", "torch/nn/functional.py"]
    assert one.innermost is not None
    assert one.innermost.function == "step"
    assert one.error is not None
    assert one.error.number == 7


def test_ranks_that_write_at_the_same_time_are_told_apart():
    first, second = read(
        ("TP0", HEAD),
        ("TP1", HEAD),
        ("TP0", frame("sglang/a.py", 1, "a")),
        ("TP1", frame("sglang/b.py", 2, "b")),
        ("TP1", "KeyError: 'b'"),
        ("TP0", "KeyError: 'a'"),
    )
    assert (first.rank, first.frames[0].function) == ("TP1", "b")
    assert (second.rank, second.frames[0].function) == ("TP0", "a")


def test_chained_exceptions_are_one_each():
    found = read(
        HEAD, frame("vllm/a.py", 1, "a"), "KeyError: 'x'", "",
        "The above exception was the direct cause of the following exception:", "",
        HEAD, frame("vllm/b.py", 1, "b"), "RuntimeError: wrapped",
    )  # fmt: skip
    assert [one.error.text for one in found if one.error] == ["KeyError: 'x'", "RuntimeError: wrapped"]


def test_a_log_that_begins_or_ends_within_a_traceback():
    (cut,) = read(frame("vllm/a.py", 1, "a"), "    x()", "EOFError")
    assert cut.error is not None
    assert cut.error.text == "EOFError"
    (open_end,) = read(HEAD, frame("vllm/a.py", 1, "a"))
    assert open_end.error is None


def test_a_notebook_writes_its_frames_in_its_own_way():
    (one,) = read(
        "File ~/venv/lib/python3.11/site-packages/vllm/engine.py:12, in LLM.load(self)", "KeyError: 'x'"
    )
    assert one.frames[0].file == "vllm/engine.py"


def test_a_checkout_of_the_engine_is_its_package_too():
    assert package_path("/home/u/src/vllm/vllm/v1/core.py") == "vllm/v1/core.py"
    assert package_path("C:\\llm\\Lib\\site-packages\\vllm\\a.py") == "vllm/a.py"
    assert package_path("app/server.py") == "app/server.py"
