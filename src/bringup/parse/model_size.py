"""The parameter count that a model's name states: `Qwen3-30B-A3B` -> 30e9."""

import re

_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}

# Nothing alphanumeric may touch the number: so `A3B` (active), `E2B` (effective), `FP8`, `M2.5`, `v0.1`,
# `4bit` and hashes fall through. `1_6b` and `1b6` are two more ways of writing 1.6B.
_COUNT = re.compile(
    r"""(?<![a-z0-9.])
    (?: (?P<copies>\d{1,3})x )?
    (?: (?P<number>\d{1,4}(?:\.\d{1,3})?) (?P<unit>[mbt])
      | (?P<whole>\d{1,2}) b (?P<tenth>\d)
    )
    (?![a-z0-9])""",
    re.VERBOSE,
)
_UNDERSCORE_DECIMAL = re.compile(r"(?:^|(?<=-))(\d)_(\d)b(?![a-z0-9])")
_EXPERTS = re.compile(r"-\d{1,3}e(?![a-z0-9])")  # Llama-4-Scout-17B-16E: the 17B are the active ones
_CONTEXT_LENGTHS = {1e6, 2e6, 4e6, 10e6}  # `-1M` at the end of a name is a context length


def parameters_in_name(name: str) -> int | None:
    """Total parameters that a model id or path states, the last part of a path first; None when it is silent.

    `8x7B` counts 56e9, an upper bound: the experts share attention (Mixtral has 46.7e9).

    >>> parameters_in_name("HuggingFaceTB/SmolLM2-135M-Instruct"), parameters_in_name("Qwen3-30B-A3B")
    (135000000, 30000000000)
    >>> parameters_in_name("MiniMaxAI/MiniMax-M2.5") is None
    True
    """
    for part in reversed(re.split(r"[/\\]|--", name.lower())):
        found = _in_part(part)
        if found is not None:
            return found
    return None


def _in_part(part: str) -> int | None:
    if _EXPERTS.search(part):
        return None
    for match in _COUNT.finditer(_UNDERSCORE_DECIMAL.sub(r"\1.\2b", part)):
        if match["unit"] is None:
            number = float(f"{match['whole']}.{match['tenth']}") * _UNITS["b"]
        else:
            number = float(match["number"]) * _UNITS[match["unit"]]
        if number in _CONTEXT_LENGTHS or number == 0:
            continue
        return round(number * int(match["copies"] or 1))
    return None
