"""LMDeploy's command line to an `EngineSpec`.

Source: LMDeploy, `lmdeploy serve api_server --help`.
"""

from collections.abc import Sequence

from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(names=("lmdeploy",), subcommands=("serve api_server",), command_modules=("lmdeploy",))
_GRAMMAR = Grammar(
    switches=frozenset(
        {"--enable-prefix-caching", "--enable-metrics", "--eager-mode", "--trust-remote-code"}
    ),
    lists=frozenset({"--api-keys"}),
)
_PORT = 23333


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of LMDeploy; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    flags = given.flags
    return EngineSpec(
        engine="lmdeploy",
        argv=tuple(argv),
        model=given.positionals[0] if given.positionals else None,
        served_names=tuple(name for name in (flags.get("--model-name"),) if name),
        context_tokens=whole_number(flags.get("--session-len")),
        tensor_parallel_size=whole_number(flags.get("--tp", "1")),
        port=whole_number(flags.get("--server-port", str(_PORT))),
        flags=flags,
    )
