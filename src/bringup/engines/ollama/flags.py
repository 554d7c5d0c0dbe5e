"""Ollama's command line to an `EngineSpec`: it has no flags, all its settings are environment variables.

Source: Ollama, `ollama serve --help`.
"""

from collections.abc import Sequence

from bringup.parse.command_line import Program, arguments_of
from bringup.values.engine import EngineSpec

_PROGRAM = Program(names=("ollama",), subcommands=("serve", "start"))
_PORT = 11434  # unless OLLAMA_HOST says otherwise


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of Ollama; None when it starts something else."""
    if arguments_of(argv, _PROGRAM) is None:
        return None
    return EngineSpec(engine="ollama", argv=tuple(argv), port=_PORT)
