"""vLLM's command line to an `EngineSpec`, and back.

Source: vLLM 0.8.5 to 0.32.0, `vllm serve --help=all` and `engine/arg_utils.py`; hyphens and underscores are
the same to it, a long flag may be cut short as long as it stays unique, `--compilation-config.mode 3` sets
one key of a JSON value. `--max-model-len` takes 1k (1,000) and 1K (1,024).
"""

import json
import re
from collections.abc import Mapping, Sequence

from bringup.engines.vllm.flag_names import FLAGS, SHORT, Kind
from bringup.parse.command_line import Grammar, Program, arguments_of, read_arguments, whole_number
from bringup.parse.json_value import Json, json_or_none
from bringup.units import GIB, KIB, MIB, TIB
from bringup.values.engine import EngineSpec

_PROGRAM = Program(
    names=("vllm",),
    subcommands=("serve",),
    modules=("vllm.entrypoints.openai.api_server",),
    command_modules=("vllm", "vllm.entrypoints.cli.main"),
    scripts=("vllm/entrypoints/openai/api_server.py",),
    images=("vllm/vllm-openai", "vllm-openai"),
)
_SWITCHES = frozenset(name for name, fact in FLAGS.items() if fact.kind is Kind.SWITCH)
_GRAMMAR = Grammar(
    aliases=SHORT,
    switches=_SWITCHES | {f"--no-{name[2:]}" for name in _SWITCHES},
    lists=frozenset(name for name, fact in FLAGS.items() if fact.kind is Kind.LIST),
)
# Names that vLLM takes for another flag.
_SAME = {"--device-memory-utilization": "--gpu-memory-utilization"}
_PORT = 8000
_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgGtT]?)")
_DECIMAL = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000, "t": 1_000_000_000_000}
_UNITS = {**_DECIMAL, "K": KIB, "M": MIB, "G": GIB, "T": TIB}
_ASSIGNMENT = re.compile(r"([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_LEVEL = re.compile(r"-O(\d)")


def read_command(argv: Sequence[str]) -> EngineSpec | None:
    """What the command line wants of vLLM; None when it starts something else."""
    arguments = arguments_of(argv, _PROGRAM)
    if arguments is None:
        return None
    given = read_arguments(arguments, _GRAMMAR)
    flags = _settled(given.flags)
    model = given.positionals[0] if given.positionals else flags.get("--model")
    return _spec(tuple(argv), flags, model, _environment(argv))


def with_settings(spec: EngineSpec, settings: Mapping[str, str]) -> EngineSpec:
    """The same command with the settings of its `--config` file; what stands on the command line wins."""
    words = [word for name, value in settings.items() for word in (f"--{name.lstrip('-')}", *_words(value))]
    read = _settled(read_arguments(words, _GRAMMAR).flags)
    flags = {
        **{name: value for name, value in read.items() if _opposite(name) not in spec.flags},
        **spec.flags,
    }
    return _spec(spec.argv, flags, spec.model or flags.get("--model"), spec.environment)


def render_command(spec: EngineSpec) -> tuple[str, ...]:
    """The command line that means `spec`, in its plainest spelling."""
    words = ["vllm", "serve", *([spec.model] if spec.model else [])]
    for name, value in spec.flags.items():
        if name == "--model":
            continue
        words.append(name)
        if name in _GRAMMAR.lists:
            words += value.split()
        elif value or name not in _GRAMMAR.switches:
            words.append(value)
    return tuple(words)


def switch(flags: Mapping[str, str], name: str) -> bool | None:
    """Whether a switch is on; None when the command line does not say.

    >>> switch({"--no-enable-prefix-caching": ""}, "--enable-prefix-caching")
    False
    """
    if name in flags:
        return flags[name].lower() not in ("false", "0", "no")
    return False if _opposite(name) in flags else None


def settings_at(flags: Mapping[str, str], name: str) -> dict[str, Json]:
    """The keys of a JSON-valued flag, however it is spelled.

    >>> settings_at({"--speculative-config": '{"method": "mtp"}', "--speculative-config.k": "3"},
    ...             "--speculative-config")
    {'method': 'mtp', 'k': 3}
    """
    whole = json_or_none(flags.get(name, ""))
    keys: dict[str, Json] = dict(whole) if isinstance(whole, dict) else {}
    for flag, value in flags.items():
        head, dot, path = flag.partition(".")
        if dot and head == name:
            _put(keys, path.replace("-", "_").split("."), value)
    return keys


def count(text: str | None) -> int | None:
    """Tokens or bytes; None for `auto`, -1 and whatever is no count.

    >>> count("131072"), count("128K"), count("1k"), count("auto")
    (131072, 131072, 1000, None)
    """
    match = _COUNT.fullmatch(text or "")
    return round(float(match[1]) * _UNITS[match[2]]) or None if match else None


def _spec(
    argv: tuple[str, ...], flags: dict[str, str], model: str | None, environment: dict[str, str]
) -> EngineSpec:
    names = tuple(flags.get("--served-model-name", "").split())
    return EngineSpec(
        engine="vllm",
        argv=argv,
        model=model,
        served_names=names or ((model,) if model else ()),
        context_tokens=count(flags.get("--max-model-len")),
        tensor_parallel_size=whole_number(flags.get("--tensor-parallel-size", "1")),
        port=whole_number(flags.get("--port", str(_PORT))),
        max_running=_max_running(flags),
        flags=flags,
        environment=environment,
    )


def _max_running(flags: Mapping[str, str]) -> int | None:
    """Requests at once over all engines, where the command says how many each schedules."""
    each = count(flags.get("--max-num-seqs"))
    return each and each * (whole_number(flags.get("--data-parallel-size")) or 1)


def _settled(flags: Mapping[str, str]) -> dict[str, str]:
    """Every flag under its full name; of a switch and its opposite the last one counts."""
    settled: dict[str, str] = {}
    for spelled, value in flags.items():
        level = _LEVEL.fullmatch(spelled) or (_LEVEL.fullmatch(f"-O{value}") if spelled == "-O" else None)
        name = "--optimization-level" if level else _full_name(spelled)
        if _opposite(name) in settled:
            del settled[_opposite(name)]
        settled[name] = level[1] if level else value
    return settled


def _full_name(spelled: str) -> str:
    """The flag that `spelled` means: itself, another name of it, or the only one that begins so."""
    head, dot, path = spelled.partition(".")
    name = _SAME.get(SHORT.get(head, head), SHORT.get(head, head))
    positive = f"--{name[5:]}" if name.startswith("--no-") else name
    if positive not in FLAGS and name.startswith("--"):
        longer = [known for known in FLAGS if known.startswith(name)]
        name = longer[0] if len(longer) == 1 else name
    return f"{name}{dot}{path}"


def _opposite(name: str) -> str:
    return f"--{name[5:]}" if name.startswith("--no-") else f"--no-{name[2:]}"


def _environment(argv: Sequence[str]) -> dict[str, str]:
    """The assignments that stand before the program (`env A=1 vllm ...`) or in `docker run -e A=1`."""
    found: dict[str, str] = {}
    for word in argv:
        if word in ("serve", "--model"):
            break
        if match := _ASSIGNMENT.fullmatch(word):
            found[match[1]] = match[2]
    return found


def _words(value: str) -> list[str]:
    return [value] if value else []


def _put(keys: dict[str, Json], path: list[str], value: str) -> None:
    place = keys
    for step in path[:-1]:
        inner = place.setdefault(step, {})
        if not isinstance(inner, dict):
            return
        place = inner
    try:
        place[path[-1]] = json.loads(value)
    except ValueError:
        place[path[-1]] = value
