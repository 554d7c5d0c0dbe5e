"""SGLang's command line to an `EngineSpec`.

Source: SGLang 0.5.23, `python -m sglang.launch_server --help`; `sglang serve` since 0.5.6. A long flag may be
cut short as long as it stays unique; an older name means the newer one that took its place.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bringup.engines.sglang.flag_names import ALIASES, KNOWN, LISTS, RENAMED, SWITCHES
from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.values.engine import EngineSpec

_PROGRAM = Program(
    names=("sglang",),
    subcommands=("serve",),
    modules=("sglang.launch_server",),
    command_modules=("sglang", "sglang.cli.main"),
    scripts=("sglang/launch_server.py",),
)
_GRAMMAR = Grammar(aliases=ALIASES, switches=SWITCHES, lists=LISTS)
_PORT = 30000
_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of SGLang; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    flags = {full_name(spelled): value for spelled, value in given.flags.items()}
    model = flags.get("--model-path") or (given.positionals[0] if given.positionals else None)
    return _spec(tuple(argv), flags, model, _environment(argv))


def with_settings(spec: EngineSpec, settings: Mapping[str, str]) -> EngineSpec:
    """The same command with the settings of its `--config` file; what stands on the command line wins."""
    words: list[str] = []
    for name, value in settings.items():
        flag = f"--{name.lstrip('-')}".replace("_", "-")
        if full_name(flag) not in SWITCHES:
            words += [flag, *value.split()]
        elif value.lower() not in ("false", "no", "0"):
            words.append(flag)
    read = read_arguments(words, _GRAMMAR).flags
    flags = {full_name(name): value for name, value in read.items()} | spec.flags
    return replace(
        _spec(spec.argv, flags, spec.model or flags.get("--model-path"), spec.environment), argv=spec.argv
    )


def render_command(spec: EngineSpec) -> tuple[str, ...]:
    """The command line that means `spec`, in its plainest spelling."""
    words = ["python", "-m", "sglang.launch_server"]
    flags = ({"--model-path": spec.model} if spec.model else {}) | spec.flags
    for name, value in flags.items():
        words.append(name)
        if name in LISTS:
            words += value.split()
        elif value or name not in SWITCHES:
            words.append(value)
    return tuple(words)


def full_name(spelled: str) -> str:
    """The flag that `spelled` means: its newer name, or the only one that begins so.

    >>> full_name("--cuda-graph-max-bs"), full_name("--mem-frac"), full_name("--no-such-flag")
    ('--cuda-graph-max-bs-decode', '--mem-fraction-static', '--no-such-flag')
    """
    name = RENAMED.get(spelled, spelled)
    if name in KNOWN or not name.startswith("--"):
        return name
    longer = [known for known in (*KNOWN, *ALIASES) if known.startswith(name)]
    return ALIASES.get(longer[0], longer[0]) if len(longer) == 1 else name


def _spec(
    argv: tuple[str, ...], flags: dict[str, str], model: str | None, environment: dict[str, str]
) -> EngineSpec:
    name = flags.get("--served-model-name") or model
    return EngineSpec(
        engine="sglang",
        argv=argv,
        model=model,
        served_names=(name,) if name else (),
        context_tokens=whole_number(flags.get("--context-length")),
        tensor_parallel_size=whole_number(flags.get("--tensor-parallel-size", "1")),
        port=whole_number(flags.get("--port", str(_PORT))),
        flags=flags,
        environment=environment,
    )


def _environment(argv: Sequence[str]) -> dict[str, str]:
    """The assignments that stand before the program (`env A=1 python ...`) or in `docker run -e A=1`."""
    found: dict[str, str] = {}
    for word in argv:
        if word in ("serve", "-m"):
            break
        if match := _ASSIGNMENT.fullmatch(word):
            found[match[1]] = match[2]
    return found
