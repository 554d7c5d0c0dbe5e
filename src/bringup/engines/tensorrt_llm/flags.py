"""trtllm-serve's command line to an `EngineSpec`, and back.

Source: TensorRT-LLM 1.2, `commands/serve.py`; its long flags are spelled with underscores. What the file
behind `--config` (or `--extra_llm_api_options`) says wins over the command line.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bringup.engines.tensorrt_llm.flag_names import ALIASES, SETTINGS, SWITCHES
from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(names=("trtllm-serve",), command_modules=("tensorrt_llm.commands.serve",))
_GRAMMAR = Grammar(aliases=ALIASES, switches=SWITCHES, separator="_")
_PORT = 8000
_SUBCOMMANDS = ("serve", "disaggregated", "disaggregated_mpi_worker", "mm_embedding_serve")
_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of TensorRT-LLM; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    words = given.positionals[1:] if given.positionals[:1] and given.positionals[0] in _SUBCOMMANDS else None
    models = given.positionals if words is None else words  # `serve` may be left out
    return _spec(tuple(argv), given.flags, models[0] if models else None, _environment(argv))


def with_settings(spec: EngineSpec, settings: Mapping[str, str]) -> EngineSpec:
    """The same command with the settings of its `--config` file, which win.

    Keys that are no flag stay under their own name, nested ones (`kv_cache_config`) as JSON.
    """
    flags = dict(spec.flags)
    for spelled, value in settings.items():
        name = spelled.replace("-", "_")
        is_off = name.startswith("no_") and name.removeprefix("no_") in SETTINGS
        flag = SETTINGS.get(name.removeprefix("no_") if is_off else name, name)
        if is_off:
            flags.pop(flag, None)
        else:
            flags[flag] = value
    return _spec(spec.argv, flags, spec.model or settings.get("model"), spec.environment)


def render_command(spec: EngineSpec) -> tuple[str, ...]:
    """The command line that means `spec`, in its plainest spelling; a file's settings are left out."""
    words = ["trtllm-serve", *([spec.model] if spec.model else [])]
    for name, value in spec.flags.items():
        if name.startswith("-"):
            words += [name] if name in SWITCHES else [name, value]
    return tuple(words)


def _spec(
    argv: tuple[str, ...], flags: dict[str, str], model: str | None, environment: dict[str, str]
) -> EngineSpec:
    return replace(
        EngineSpec(engine="tensorrt_llm", argv=argv, model=model, flags=flags, environment=environment),
        served_names=tuple(name for name in (flags.get("--served_model_name"),) if name),
        context_tokens=whole_number(flags.get("--max_seq_len")),
        tensor_parallel_size=whole_number(flags.get("--tp_size", "1")),
        port=whole_number(flags.get("--port", str(_PORT))),
    )


def _environment(argv: Sequence[str]) -> dict[str, str]:
    """The assignments before the program (`env A=1 trtllm-serve`) or in `docker run -e A=1`."""
    found: dict[str, str] = {}
    for word in argv:
        if word.rsplit("/", 1)[-1] in (*_PROGRAM.names, "-m"):
            break
        if match := _ASSIGNMENT.fullmatch(word):
            found[match[1]] = match[2]
    return found
