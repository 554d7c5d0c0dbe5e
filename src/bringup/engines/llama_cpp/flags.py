"""llama-server's command line to an `EngineSpec`.

Source: llama.cpp build 10434, `llama-server --help`. `-c` is the whole context; without a unified cache each
of the `-np` slots gets its share, padded to 256 (`llama-context.cpp`).
"""

import re
from collections.abc import Mapping, Sequence

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
_VARIABLE = "LLAMA_ARG_"
# Variables that are not named after the long flag. Source: llama.cpp b11434, `common/arg.cpp`, `set_env`.
_VARIABLES = {
    "n_parallel": "--parallel",
    "batch": "--batch-size",
    "ubatch": "--ubatch-size",
    "port": "--port",
    "endpoint_metrics": "--metrics",
    "n_predict": "--n-predict",
    "no_mmap": "--no-mmap",
    "no_kv_offload": "--no-kv-offload",
}
_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of llama-server; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    environment = _environment(argv)
    flags = _from_environment(environment) | read_arguments(arguments, _GRAMMAR).flags
    return EngineSpec(
        engine="llama_cpp",
        argv=tuple(argv),
        model=flags.get("--model") or flags.get("--hf-repo") or flags.get("--model-url"),
        served_names=tuple(name.strip() for name in flags.get("--alias", "").split(",") if name.strip()),
        context_tokens=_context(flags),
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
        environment=environment,
    )


def render_command(spec: EngineSpec) -> tuple[str, ...]:
    """The command line that means `spec`, in its plainest spelling."""
    words = ["llama-server"]
    for name, value in spec.flags.items():
        words += [name] if name in SWITCHES else [name, value]
    return tuple(words)


def _environment(argv: Sequence[str]) -> dict[str, str]:
    """The assignments before the program (`env A=1 llama-server`) or in `docker run -e A=1`."""
    found: dict[str, str] = {}
    for word in argv:
        if word.rsplit("/", 1)[-1] in _PROGRAM.names:
            break
        if match := _ASSIGNMENT.fullmatch(word):
            found[match[1]] = match[2]
    return found


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The flags that variables stand for; those of the command line win.

    >>> _from_environment({"LLAMA_ARG_CTX_SIZE": "8192", "LLAMA_ARG_CPU_MOE": "1", "LLAMA_ARG_MMAP": "0"})
    {'--ctx-size': '8192', '--cpu-moe': '', '--no-mmap': ''}
    """
    flags: dict[str, str] = {}
    for name, value in environment.items():
        if not name.startswith(_VARIABLE):
            continue
        word = name.removeprefix(_VARIABLE).lower()
        flag = _VARIABLES.get(word, "--" + word.replace("_", "-"))
        is_off = value.lower() in ("0", "off", "false", "disabled")
        if flag in SWITCHES:
            negated = f"--no-{flag[2:]}"
            if not is_off:
                flags[flag] = ""
            elif negated in SWITCHES:
                flags[negated] = ""
        else:
            flags[flag] = value
    return flags


def _context(flags: dict[str, str]) -> int | None:
    """Tokens that one request may have; without `-np` the slots share one unified cache."""
    whole = whole_number(flags.get("--ctx-size"))
    slots = whole_number(flags.get("--parallel"))
    if whole is None or slots is None or "--kv-unified" in flags:
        return whole
    return -(-(whole // slots) // _PAD) * _PAD
