"""Which modules a quantised model keeps in its own number format, by the many ways configs say so."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from bringup.planner.module_names import LAYER, aliases, canonical
from bringup.values.model import Quantization


@dataclass(frozen=True, slots=True)
class _Matcher:
    words: frozenset[str]  # bare words: a component of the name
    starts: tuple[str, ...]  # canonical beginnings
    patterns: tuple[re.Pattern[str], ...]


def is_ignored(names: Iterable[str], ignored: tuple[str, ...], *, is_cut: bool = False) -> bool:
    """Whether one of the merged modules stays as it is.

    Names, beginnings of names, shell patterns and `re:` patterns occur; a name that ends at a module
    covers all below it. In a list that was cut, what is said of a part of one layer holds for all layers.

    >>> is_ignored(["model.layers.3.self_attn.q_proj"], ("re:.*self_attn.*",))
    True
    >>> is_ignored(["model.layers.13.mlp.down_proj"], ("lm_head", "model.layers.1*"))
    True
    >>> is_ignored(["model.layers.3.mlp.experts.0.up_proj"], ("model.layers.3.block_sparse_moe.gate",))
    False
    >>> is_ignored(["model.layers.10.mlp.down_proj"], ("model.layers.1.*",))
    False
    """
    if not ignored:
        return False
    matcher = _matcher(ignored, is_cut)
    return any(_matches(name, matcher) for name in names)


# Methods that touch nothing but experts. Source: vLLM 0.33.0 `quantization/mxfp4.py`, `get_quant_method`.
_EXPERTS_ONLY = ("mxfp4",)


def format_of(
    names: Iterable[str], quantization: Quantization | None, *, is_expert: bool = False
) -> Quantization | None:
    """The number format of one module; None where it stays in the model's own."""
    if quantization is None or (quantization.method in _EXPERTS_ONLY and not is_expert):
        return None
    names = tuple(names)
    if is_ignored(names, quantization.ignored, is_cut=quantization.is_list_cut):
        return None
    forms = (quantization, *quantization.others)
    return next((form for form in forms if not form.targets or is_ignored(names, form.targets)), None)


def _matches(name: str, matcher: _Matcher) -> bool:
    if matcher.words.intersection(name.split(".")):
        return True
    if (canonical(name) + ".").startswith(matcher.starts):
        return True
    return any(pattern.match(alias) for pattern in matcher.patterns for alias in aliases(name))


@lru_cache(maxsize=64)
def _matcher(ignored: tuple[str, ...], is_cut: bool) -> _Matcher:  # noqa: FBT001 - the key of a cache
    words: set[str] = set()
    starts: set[str] = set()
    patterns: list[re.Pattern[str]] = []
    for entry in ignored:
        if entry.startswith("re:"):
            patterns += _compiled(entry[3:])
        elif "." not in entry and "*" not in entry:
            words.add(entry)
        elif is_cut and (match := LAYER.match(entry)) and entry[match.end() :].strip(".*"):
            patterns += _compiled(r".*layers\.\d+\." + _shell(entry[match.end() :]))
        elif "*" in entry.rstrip("*"):
            patterns += _compiled(_shell(entry) + ("" if entry.endswith("*") else r"(\..*)?$"))
        else:
            stem = entry.rstrip("*")
            is_whole_name = stem == entry or stem.endswith(".")
            starts.add(canonical(stem) + ("." if is_whole_name else ""))
    return _Matcher(words=frozenset(words), starts=tuple(starts), patterns=tuple(patterns))


def _compiled(pattern: str) -> list[re.Pattern[str]]:
    try:
        return [re.compile(pattern)]
    except re.error:
        return []  # a pattern that no engine can read matches nothing


def _shell(pattern: str) -> str:
    return ".*".join(re.escape(part) for part in pattern.split("*"))
