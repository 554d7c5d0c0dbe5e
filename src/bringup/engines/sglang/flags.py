"""SGLang's command line to an `EngineSpec`.

Source: SGLang 0.5.23, `python -m sglang.launch_server --help`; `sglang serve` since 0.5.6.
"""

from collections.abc import Sequence

from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(
    names=("sglang",),
    subcommands=("serve",),
    modules=("sglang.launch_server",),
    command_modules=("sglang", "sglang.cli.main"),
    scripts=("sglang/launch_server.py",),
)
_GRAMMAR = Grammar(
    aliases={
        "--model": "--model-path",
        "--tp": "--tensor-parallel-size",
        "--tp-size": "--tensor-parallel-size",
        "--pp": "--pipeline-parallel-size",
        "--pp-size": "--pipeline-parallel-size",
        "--dp": "--data-parallel-size",
        "--dp-size": "--data-parallel-size",
        "--ep": "--expert-parallel-size",
        "--ep-size": "--expert-parallel-size",
    },
    switches=frozenset(
        {
            "--disable-cuda-graph",
            "--disable-custom-all-reduce",
            "--disable-overlap-schedule",
            "--disable-radix-cache",
            "--enable-dp-attention",
            "--enable-metrics",
            "--enable-mixed-chunk",
            "--enable-p2p-check",
            "--enable-torch-compile",
            "--skip-server-warmup",
            "--sleep-on-idle",
            "--trust-remote-code",
        }
    ),
    lists=frozenset({"--lora-paths", "--cuda-graph-bs"}),
)
_PORT = 30000


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of SGLang; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    flags = given.flags
    model = flags.get("--model-path") or (given.positionals[0] if given.positionals else None)
    name = flags.get("--served-model-name") or model
    return EngineSpec(
        engine="sglang",
        argv=tuple(argv),
        model=model,
        served_names=(name,) if name else (),
        context_tokens=whole_number(flags.get("--context-length")),
        tensor_parallel_size=whole_number(flags.get("--tensor-parallel-size", "1")),
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
    )
