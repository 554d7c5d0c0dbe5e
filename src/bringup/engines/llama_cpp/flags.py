"""llama-server's command line to an `EngineSpec`.

Source: llama.cpp build 10434, `llama-server --help`. `-c` is the whole context; without a unified cache each
of the `-np` slots gets its share, padded to 256 (`llama-context.cpp`).
"""

from collections.abc import Sequence

from bringup.engines.llama_cpp.flag_names import ALIASES, SWITCHES
from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(
    names=("llama-server", "llama-server-vulkan", "llama-server-cuda", "llama-server-rocm"),
    images=("llama.cpp",),
)
_GRAMMAR = Grammar(aliases=ALIASES, switches=SWITCHES)
_PORT = 8080
_PAD = 256


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of llama-server; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    flags = read_arguments(arguments, _GRAMMAR).flags
    return EngineSpec(
        engine="llama_cpp",
        argv=tuple(argv),
        model=flags.get("--model") or flags.get("--hf-repo") or flags.get("--model-url"),
        served_names=tuple(name.strip() for name in flags.get("--alias", "").split(",") if name.strip()),
        context_tokens=_context(flags),
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
    )


def _context(flags: dict[str, str]) -> int | None:
    """Tokens that one request may have; without `-np` the slots share one unified cache."""
    whole = whole_number(flags.get("--ctx-size"))
    slots = whole_number(flags.get("--parallel"))
    if whole is None or slots is None or "--kv-unified" in flags:
        return whole
    return -(-(whole // slots) // _PAD) * _PAD
