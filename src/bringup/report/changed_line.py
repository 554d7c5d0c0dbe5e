"""The exact line to change for a fix, spelled as the user spells it."""

import re
from collections.abc import Sequence
from shlex import quote

from bringup.values.case import Case
from bringup.values.finding import Fix

# Long names and their short spellings: what the user's own command has is kept.
_SPELLINGS = {
    "--tensor-parallel-size": ("-tp", "--tp", "--tp-size"),
    "--pipeline-parallel-size": ("-pp", "--pp", "--pp-size"),
    "--data-parallel-size": ("-dp", "--dp", "--dp-size"),
    "--expert-parallel-size": ("--ep", "--ep-size"),
    "--model-path": ("--model",),
    "--ctx-size": ("-c",),
    "--n-gpu-layers": ("-ngl", "--gpu-layers"),
    "--ubatch-size": ("-ub",),
    "--batch-size": ("-b",),
    "--parallel": ("-np",),
    "--model": ("-m",),
    "--context-length": (),
}
_GIVEN = "given"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_VALUE = re.compile(
    r"\S+|[\[{].*"
)  # what can stand in a command: one word, or JSON; the rest is said to people
_DOCKER = "docker "
_USES_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?")
_SYSTEMD = re.compile(r"\bsystemd\[\d+\]: ")


def spelled(fix: Fix, case: Case | None) -> str:
    """The fix as a line: what it is now, what it shall be.

    >>> spelled(Fix(type="flag", name="--max-num-seqs", old="1024", new="256"), None)
    '--max-num-seqs 256 (now 1024)'
    >>> spelled(Fix(type="env", name="NCCL_P2P_DISABLE", new="1"), None)
    'NCCL_P2P_DISABLE=1'
    >>> spelled(Fix(type="env", name="HF_HOME", new="a folder of the unit's user"), None)
    "HF_HOME: a folder of the unit's user"
    """
    now = f" (now {fix.old})" if fix.old not in (None, "", _GIVEN) else ""
    new = fix.new or ""
    if fix.type == "flag":
        name = spelling(fix.name, case.argv if case else ())
        if fix.new is None:
            return f"without {name}{now}"
        return f"{name}{'' if new.lower() == 'true' else f' {_quoted(new)}'}{now}"
    if fix.type == "env":
        if fix.new is None:
            return f"{fix.name} unset{now}"
        if not (_VARIABLE.fullmatch(fix.name) and _VALUE.fullmatch(new)):
            return f"{fix.name}: {new}{now}"
        in_unit = f' (in the unit: Environment="{fix.name}={new}")' if _is_unit(case) else ""
        return f"{fix.name}={new}{now}{in_unit}"
    return f"{fix.name}: {new}{now}" if new else f"{fix.name}{now}"


def _quoted(value: str) -> str:
    """The value as a shell takes it; words for people as they are."""
    return quote(value) if _VALUE.fullmatch(value) else value


def _is_unit(case: Case | None) -> bool:
    """Whether systemd wrote into the log: what is to be set stands in a unit."""
    return case is not None and any(_SYSTEMD.search(line.raw) for line in case.lines)


def spelling(name: str, argv: Sequence[str]) -> str:
    """The flag's name as the command has it; its own where the command does not.

    >>> spelling("--tensor-parallel-size", ("vllm", "serve", "m", "-tp", "4"))
    '-tp'
    """
    words = [word.partition("=")[0] for word in argv]
    candidates = (name, name.replace("-", "_").replace("__", "--", 1), *_SPELLINGS.get(name, ()))
    return next((one for one in candidates if one in words), name)


def as_typed(words: Sequence[str]) -> str:
    """The command for a shell, with home folders and variables left to it.

    >>> as_typed(("docker", "run", "-v", "~/.cache:/c", "-e", "A=$B"))
    'docker run -v ~/.cache:/c -e "A=$B"'
    """
    return " ".join(_typed(word) for word in words)


def _typed(word: str) -> str:
    if word.startswith("~/"):
        return f"~/{quote(word[2:])}"
    if _USES_VARIABLE.search(word) and not set(word) & set('"`\\'):
        return f'"{word}"'
    return quote(word)


def can_be_run(case: Case, fix: Fix) -> bool:
    """Whether the log shows the whole command, and the fix can be written into it.

    >>> case = Case(lines=(), argv=("vllm", "serve", "m"), model="m")
    >>> can_be_run(case, Fix(type="flag", name="--max-num-seqs", new="1/2 of the present number"))
    False
    """
    names_model = bool(case.model) or any(word.startswith("--model") for word in case.argv)
    if fix.type not in ("flag", "env") or not case.argv or not names_model:
        return False
    if fix.name.startswith(_DOCKER):
        return _run_place(case.argv) > 0 and fix.new is not None
    if fix.type == "env":
        return bool(_VARIABLE.fullmatch(fix.name) and fix.new and _VALUE.fullmatch(fix.new))
    return fix.name.startswith("-") and fix.new is not None and _VALUE.fullmatch(fix.new) is not None


def _run_place(argv: Sequence[str]) -> int:
    """Where the options of `docker run` begin; 0: no container is started."""
    names = [word.rsplit("/", 1)[-1] for word in argv[:4]]
    if not {"docker", "podman", "nerdctl"} & set(names) or "run" not in names:
        return 0
    return names.index("run") + 1


def _in_container(argv: Sequence[str], fix: Fix) -> tuple[str, ...]:
    """The command with another option of `docker run`, in place of the one that it has."""
    place, name, new = _run_place(argv), fix.name.removeprefix(_DOCKER), fix.new or ""
    kept = [word for word in argv[place:] if not word.startswith(f"{name}=")]
    if name in kept:
        at = kept.index(name)
        kept = kept[:at] + kept[at + 2 :]
    return (*argv[:place], f"{name}={new}", *kept)


def changed_command(case: Case, fix: Fix) -> tuple[str, ...]:
    """The command with the fix in it.

    >>> case = Case(lines=(), argv=("vllm", "serve", "m", "--max-num-seqs=1024"))
    >>> changed_command(case, Fix(type="flag", name="--max-num-seqs", new="256"))
    ('vllm', 'serve', 'm', '--max-num-seqs=256')
    """
    words = list(case.argv)
    new = fix.new or ""
    place = _run_place(words)
    if place and fix.name.startswith(_DOCKER):
        return _in_container(words, fix)
    if fix.type == "env":
        given = f"{fix.name}={new}"
        return (*words[:place], "-e", given, *words[place:]) if place else ("env", given, *words)
    name = spelling(fix.name, words)
    value = [] if new.lower() == "true" else [new]
    for place, word in enumerate(words):
        if word.partition("=")[0] != name:
            continue
        if "=" in word:
            return (*words[:place], f"{name}={new}", *words[place + 1 :])
        has_value = place + 1 < len(words) and not words[place + 1].startswith("--")
        return (*words[:place], name, *value, *words[place + 1 + (has_value and bool(value)) :])
    return (*words, name, *value)
