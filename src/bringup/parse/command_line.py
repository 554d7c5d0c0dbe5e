"""A process's argument list to the flags of one engine. Unknown flags are kept as they stand."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_COUNT = re.compile(r"[0-9]{1,18}")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The ways in which one server program is started."""

    names: tuple[str, ...] = ()  # executables, without folder and `.exe`
    subcommands: tuple[str, ...] = ()  # words that follow the executable or the module; any one is needed
    modules: tuple[str, ...] = ()  # after `python -m`, taking the arguments directly
    command_modules: tuple[str, ...] = ()  # after `python -m`, wanting the subcommand as the executable does
    scripts: tuple[str, ...] = ()  # ends of the paths of scripts
    images: tuple[str, ...] = ()  # container images whose entry point is the server, without registry and tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Grammar:
    """How one program spells its flags. Names are written with their dashes, in the canonical spelling."""

    aliases: Mapping[str, str] = field(default_factory=dict[str, str])  # "-tp" -> "--tensor-parallel-size"
    switches: frozenset[str] = frozenset()  # flags without a value
    lists: frozenset[str] = frozenset()  # flags that take every word up to the next flag
    separator: str = "-"  # what stands between the words of a long flag


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What was given to the program."""

    flags: dict[str, str]  # canonical name -> value, "" for a switch; the last one wins
    positionals: tuple[str, ...] = ()


def arguments_of(argv: Sequence[str], program: Program) -> tuple[str, ...] | None:
    """What is given to `program` in `argv`, however it is wrapped (python, env, numactl, docker run, sh -c).

    None when the command line does not start that program.

    >>> vllm = Program(names=("vllm",), subcommands=("serve",))
    >>> arguments_of(["/usr/bin/python3", "/venv/bin/vllm", "serve", "m", "--port", "8000"], vllm)
    ('m', '--port', '8000')
    """
    for index, word in enumerate(argv):
        rest = _after(argv, index, word, program)
        if rest is not None:
            return tuple(rest)
    for word in argv:
        if " " in word and any(name in word for name in program.names + program.modules):
            words = _shell_words(word)
            found = arguments_of(words, program) if len(words) > 1 else None
            if found is not None:
                return found
    return None


def read_arguments(arguments: Sequence[str], grammar: Grammar) -> Arguments:
    """Flags and positionals. `--a_b`, `--a-b`, `--a b` and `--a=b` are one spelling each of the same thing.

    >>> read_arguments(["m", "--tensor_parallel_size=4", "-x"], Grammar()).flags
    {'--tensor-parallel-size': '4', '-x': ''}
    """
    flags: dict[str, str] = {}
    positionals: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            positionals += words
            break
        if not _is_flag(word):
            positionals.append(word)
            continue
        spelled, equals, value = word.partition("=")
        name = _canonical(spelled, grammar)
        if not equals:
            value = " ".join(_values(words, name, grammar))
        flags[name] = value
    return Arguments(flags=flags, positionals=tuple(positionals))


def whole_number(text: str | None) -> int | None:
    """The positive whole number that a flag's value states, or None."""
    return int(text) or None if text is not None and _COUNT.fullmatch(text) else None


def _values(words: list[str], name: str, grammar: Grammar) -> list[str]:
    """The values of the flag `name`, taken off the front of `words`."""
    if name in grammar.switches:
        return []
    limit = len(words) if name in grammar.lists else 1
    taken: list[str] = []
    while words and len(taken) < limit and not _is_flag(words[0]):
        taken.append(words.pop(0))
    return taken


def _canonical(spelled: str, grammar: Grammar) -> str:
    if spelled.startswith("--"):
        other = "_" if grammar.separator == "-" else "-"
        head, dot, tail = spelled[2:].partition(".")  # `--compilation-config.mode`: what follows is a key
        spelled = "--" + head.replace(other, grammar.separator) + dot + tail
    return grammar.aliases.get(spelled, spelled)


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and _NUMBER.fullmatch(word) is None


def _after(argv: Sequence[str], index: int, word: str, program: Program) -> Sequence[str] | None:
    rest = argv[index + 1 :]
    following = rest[0] if rest else ""
    if word == "-m" and following in program.modules:
        return rest[1:]
    if word == "-m" and following in program.command_modules:
        return _after_subcommand(rest[1:], program)
    name = word.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe")
    if name in program.names:
        return _after_subcommand(rest, program)
    if any(word.endswith(script) for script in program.scripts):
        return rest
    image = word.partition("@")[0]
    tagless = image.rsplit(":", 1)[0] if ":" in image.rsplit("/", 1)[-1] else image
    if any(tagless == known or tagless.endswith(f"/{known}") for known in program.images):
        return rest
    return None


def _after_subcommand(rest: Sequence[str], program: Program) -> Sequence[str] | None:
    if not program.subcommands:
        return rest
    for subcommand in program.subcommands:
        words = subcommand.split()
        if list(rest[: len(words)]) == words:
            return rest[len(words) :]
    return None


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []
