"""What a case says of its own layout, and how its engine spells what is to be changed."""

import re

from bringup.values.case import Case

# What we call a setting -> engine -> flag. The first is what is said when the engine is not told.
_SPELLINGS: dict[str, dict[str, str]] = {
    "tensor parallel": {
        "vllm": "--tensor-parallel-size",
        "sglang": "--tp-size",
        "tensorrt_llm": "--tp_size",
    },
    "port": {"vllm": "--port", "ollama": "OLLAMA_HOST"},
    "host": {"vllm": "--host", "ollama": "OLLAMA_HOST"},
    "custom all-reduce off": {"vllm": "--disable-custom-all-reduce"},
    "graphs off": {"vllm": "--enforce-eager", "sglang": "--disable-cuda-graph"},
    "tool parser": {"vllm": "--tool-call-parser", "llama_cpp": "--jinja"},
    "watchdog": {"sglang": "--watchdog-timeout"},
    "dtype": {"vllm": "--dtype"},
}
_TENSOR_PARALLEL = re.compile(
    r"(?:tensor[_-]parallel[_-]size|tp[_-]size|world[_ -]size|nranks|nRanks)(?:=| |': ?|\": ?|: )\s*(\d{1,4})"
)
_RANK = re.compile(r"(?:TP|rank )(\d+)")


def spelled(case: Case, setting: str) -> str:
    """The flag of a setting as the case's engine spells it.

    >>> spelled(Case(lines=(), engine="sglang"), "tensor parallel"), spelled(Case(lines=()), "port")
    ('--tp-size', '--port')
    """
    known = _SPELLINGS[setting]
    return known.get(case.engine or "", next(iter(known.values())))


def flag_of(case: Case, *names: str) -> str | None:
    """The value that the log says was given for one of these flags; with and without hyphens."""
    for name in names:
        for spelling in (name, name.lstrip("-"), name.lstrip("-").replace("-", "_")):
            if spelling in case.flags:
                return case.flags[spelling]
    return None


def tensor_parallel_size(case: Case) -> int | None:
    """How many ranks share the layers: from the start's arguments, else from lines, else from ranks seen."""
    if case.facts and case.facts.spec and case.facts.spec.tensor_parallel_size:
        return case.facts.spec.tensor_parallel_size
    given = flag_of(case, "--tensor-parallel-size", "--tp-size", "--tp")
    if given and given.isdigit():
        return int(given)
    told = [int(match[1]) for _, match in case.matches(_TENSOR_PARALLEL)]
    ranks = [int(number) for line in case.lines for number in _RANK.findall(line.rank or "")]
    return max([*told, *(rank + 1 for rank in ranks)], default=None)


def seconds_between(case: Case) -> float | None:
    """How long the log goes on, from the first line with a time to the last; None when they do not say."""
    times = [line.time for line in case.lines if line.time is not None]
    return max(times) - min(times) if len(times) > 1 else None


def last_line_number(case: Case) -> int:
    """The number of the last line that anyone kept."""
    return max([case.total_lines, *(line.number for line in case.lines)], default=0)
