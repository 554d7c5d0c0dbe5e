"""The exact line to change for a fix, spelled as the user spells it."""

from collections.abc import Sequence

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


def spelled(fix: Fix, case: Case | None) -> str:
    """The fix as a line: what it is now, what it shall be.

    >>> spelled(Fix(type="flag", name="--max-num-seqs", old="1024", new="256"), None)
    '--max-num-seqs 256 (now 1024)'
    >>> spelled(Fix(type="env", name="NCCL_P2P_DISABLE", new="1"), None)
    'NCCL_P2P_DISABLE=1 (in a unit: Environment="NCCL_P2P_DISABLE=1")'
    """
    now = f" (now {fix.old})" if fix.old not in (None, "", _GIVEN) else ""
    new = fix.new or ""
    if fix.type == "flag":
        name = spelling(fix.name, case.argv if case else ())
        if fix.new is None:
            return f"without {name}{now}"
        return f"{name}{'' if new.lower() == 'true' else f' {new}'}{now}"
    if fix.type == "env":
        if fix.new is None:
            return f"{fix.name} unset{now}"
        return f'{fix.name}={new}{now} (in a unit: Environment="{fix.name}={new}")'
    return f"{fix.name}: {new}{now}" if new else f"{fix.name}{now}"


def spelling(name: str, argv: Sequence[str]) -> str:
    """The flag's name as the command has it; its own where the command does not.

    >>> spelling("--tensor-parallel-size", ("vllm", "serve", "m", "-tp", "4"))
    '-tp'
    """
    words = [word.partition("=")[0] for word in argv]
    candidates = (name, name.replace("-", "_").replace("__", "--", 1), *_SPELLINGS.get(name, ()))
    return next((one for one in candidates if one in words), name)


def changed_command(case: Case, fix: Fix) -> tuple[str, ...]:
    """The command with the fix in it.

    >>> case = Case(lines=(), argv=("vllm", "serve", "m", "--max-num-seqs=1024"))
    >>> changed_command(case, Fix(type="flag", name="--max-num-seqs", new="256"))
    ('vllm', 'serve', 'm', '--max-num-seqs=256')
    """
    words = list(case.argv)
    new = fix.new or ""
    if fix.type == "env":
        return ("env", f"{fix.name}={new}", *words)
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
