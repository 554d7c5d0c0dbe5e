"""vLLM's command line to an `EngineSpec`.

Source: vLLM 0.32.0, `vllm serve --help=all` and `entrypoints/openai/api_server.py`; hyphens and underscores
are the same to it. `--max-model-len` takes 1k (1,000) and 1K (1,024).
"""

import re
from collections.abc import Sequence

from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.units import GIB, KIB, MIB
from bringup.values.engine import EngineSpec

_PROGRAM = Program(
    names=("vllm",),
    subcommands=("serve",),
    modules=("vllm.entrypoints.openai.api_server",),
    command_modules=("vllm", "vllm.entrypoints.cli.main"),
    scripts=("vllm/entrypoints/openai/api_server.py",),
    images=("vllm/vllm-openai", "vllm-openai"),
)
_GRAMMAR = Grammar(
    aliases={
        "-tp": "--tensor-parallel-size",
        "-pp": "--pipeline-parallel-size",
        "-dp": "--data-parallel-size",
        "-dcp": "--decode-context-parallel-size",
        "-ep": "--enable-expert-parallel",
        "-q": "--quantization",
        "-asc": "--api-server-count",
        "-sc": "--speculative-config",
        "-cc": "--compilation-config",
    },
    switches=frozenset(
        {
            "--async-scheduling",
            "--disable-custom-all-reduce",
            "--disable-log-requests",
            "--disable-log-stats",
            "--disable-uvicorn-access-log",
            "--enable-auto-tool-choice",
            "--enable-chunked-prefill",
            "--enable-expert-parallel",
            "--enable-lora",
            "--enable-prefix-caching",
            "--enable-prompt-tokens-details",
            "--enable-server-load-tracking",
            "--enable-sleep-mode",
            "--enforce-eager",
            "--headless",
            "--no-enable-chunked-prefill",
            "--no-enable-prefix-caching",
            "--trust-remote-code",
        }
    ),
    lists=frozenset({"--served-model-name", "--lora-modules", "--api-key", "--middleware"}),
)
_PORT = 8000
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgG]?)")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "K": KIB, "M": MIB, "G": GIB}


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of vLLM; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    flags = given.flags
    model = given.positionals[0] if given.positionals else flags.get("--model")
    names = tuple(flags.get("--served-model-name", "").split())
    return EngineSpec(
        engine="vllm",
        argv=tuple(argv),
        model=model,
        served_names=names or ((model,) if model else ()),
        context_tokens=_count(flags.get("--max-model-len")),
        tensor_parallel_size=whole_number(flags.get("--tensor-parallel-size", "1")),
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
    )


def _count(text: str | None) -> int | None:
    """Tokens; None for `auto`, -1 and whatever is no count."""
    match = _COUNT.fullmatch(text or "")
    return round(float(match[1]) * _UNITS[match[2]]) or None if match else None
