"""text-generation-launcher's command line to an `EngineSpec`.

Source: TGI 3.x, `text-generation-launcher --help`.
"""

from collections.abc import Sequence

from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(names=("text-generation-launcher",), images=("text-generation-inference",))
_GRAMMAR = Grammar(
    aliases={"-p": "--port", "-e": "--env"},
    switches=frozenset({"--trust-remote-code", "--disable-custom-kernels", "--json-output", "--env"}),
)
_PORT = 3000


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of TGI; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    flags = read_arguments(arguments, _GRAMMAR).flags
    model = flags.get("--model-id")
    return EngineSpec(
        engine="tgi",
        argv=tuple(argv),
        model=model,
        served_names=(model,) if model else (),
        context_tokens=whole_number(flags.get("--max-total-tokens")),
        tensor_parallel_size=whole_number(flags.get("--num-shard")),  # absent: all visible GPUs
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
    )
