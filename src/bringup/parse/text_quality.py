"""Signs that a text is machine garbage rather than language, code or data. Pure measures, no model.

A *hard* sign is none that a weak model shows: it points at numerics, weights or the detokeniser. A soft one
(loops, mixed scripts) is also what a very small model does.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

_LOOKED_AT = 20_000  # characters at the start of a text, and at its end for loops
_RULES = frozenset("-=_.*#~|+─━═│┃ ·•…/\\")  # characters that people draw lines with
_TEMPLATE = re.compile(
    r"<\|(?:im_start|im_end|im_sep|endoftext|eot_id|eom_id|start_header_id|end_header_id|begin_of_text|end|user"
    r"|assistant|system|return|channel|message)\|>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|<｜[^｜>]{1,40}｜>|<unk>|<pad>|</s>\s*$"
)
_EAST_ASIAN = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "KATAKANA-HIRAGANA", "IDEOGRAPHIC", "HANGUL"}
)
_NO_SCRIPT = frozenset({"MATHEMATICAL", "FULLWIDTH", "HALFWIDTH", "MICRO", "SUPERSCRIPT", "MODIFIER"})
_VOICED = frozenset("aeiouyæøœırl")  # r and l carry syllables too: Czech `prst`, `vlk`


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One sign of garbage in a text."""

    name: str
    words: str  # what was seen, for a finding
    is_hard: bool


def garble_signs(text: str) -> tuple[Sign, ...]:
    """The signs of garbage in one answer; none for language, code, tables, JSON and numbers.

    >>> garble_signs("The capital of France is Paris.")
    ()
    >>> [sign.name for sign in garble_signs("!" * 40)]
    ['one character']
    """
    start = text[:_LOOKED_AT]
    signs = (
        _one_character(start),
        _replacement(start),
        _control(start),
        _loop(text[-_LOOKED_AT:]),
        _few_words(start),
        _mixed_scripts(start),
        _unpronounceable(start),
        _template_tokens(start),
    )
    return tuple(sign for sign in signs if sign is not None)


def is_salad(text: str) -> bool:
    """Whether `text` has a sign that no whole answer of a working engine has."""
    return any(sign.is_hard for sign in garble_signs(text))


def _one_character(text: str) -> Sign | None:
    """A run of one character that fills the text: argmax over NaN is token 0, in many vocabularies `!`."""
    solid = "".join(text.split())
    if len(solid) < 12:
        return None
    run = max(re.finditer(r"(.)\1*", solid), key=lambda match: match.end() - match.start())
    length, character = run.end() - run.start(), run[1]
    if length < 12 or length < 0.5 * len(solid) or character in _RULES:
        return None
    words = f"`{character}` {length} times in a row in {len(solid)} characters"
    return Sign(name="one character", words=words, is_hard=not character.isalnum())


def _replacement(text: str) -> Sign | None:
    # up to three at the end are a character that the length limit cut
    count = text.rstrip("\ufffd").count("\ufffd")
    if count == 0:
        return None
    words = f"{count} replacement characters (U+FFFD) in {len(text)} characters"
    return Sign(name="replacement characters", words=words, is_hard=count >= 3 and count >= 0.02 * len(text))


def _control(text: str) -> Sign | None:
    count = sum(1 for sign in text if unicodedata.category(sign) in ("Cc", "Co") and sign not in "\n\r\t\f")
    if count < 3 or count < 0.01 * len(text):
        return None
    words = f"{count} control or private characters in {len(text)} characters"
    return Sign(name="control characters", words=words, is_hard=True)


def _loop(text: str) -> Sign | None:
    """The text ends in one unit said over and over."""
    text = text.rstrip()
    for size in range(1, min(240, len(text) // 8) + 1):
        unit = text[-size:]
        has_letter = any(sign.isalpha() for sign in unit)
        least = max(60 if has_letter else 120, 8 * size)
        if len(text) < least or text[-least:] != (unit * (least // size + 1))[-least:]:
            continue
        length = _periodic_tail(text, size)
        if length < (0.4 if has_letter else 0.9) * len(text) or set(unit) <= _RULES:
            return None
        times = length // size
        said = unit.strip() or unit
        return Sign(name="loop", words=f"`{said[:60]}` {times} times in a row", is_hard=False)
    return None


def _periodic_tail(text: str, size: int) -> int:
    """Characters at the end of `text` that repeat with period `size`."""
    length = size
    while length < len(text) and text[-length - 1] == text[-length - 1 + size]:
        length += 1
    return length


def _few_words(text: str) -> Sign | None:
    words = re.findall(r"[^\W\d_]{2,}", text)
    if len(words) < 80 or len(set(words)) >= 0.08 * len(words):
        return None
    common = Counter(words).most_common(1)[0]
    said = f"{len(set(words))} different words among {len(words)}, `{common[0]}` {common[1]} times"
    return Sign(name="few words", words=said, is_hard=False)


@lru_cache(maxsize=4096)
def _script(letter: str) -> str | None:
    """The script of a letter by its Unicode name; those of Japanese and Korean count as one."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    if not letter.isalpha() or not name or name in _NO_SCRIPT:
        return None
    return "EAST ASIAN" if name in _EAST_ASIAN else name


def _mixed_scripts(text: str) -> Sign | None:
    """Three scripts or more that change in mid-phrase, again and again."""
    counts: Counter[str] = Counter()
    switches = 0
    for phrase in re.split(r"[^\w\s\u200c\u200d]|[\n\d_]", text):
        last = None
        for word in phrase.split():
            for script in _runs(word):
                counts[script] += 1
                switches += last is not None and last != script
                last = script
    often = [script for script, count in counts.items() if count >= 2]
    if len(often) < 3 or switches < 6 or switches < 0.1 * sum(counts.values()):
        return None
    names = ", ".join(sorted(often)).lower()
    words = f"{len(often)} scripts ({names}) that change {switches} times in mid-phrase"
    return Sign(name="mixed scripts", words=words, is_hard=False)


def _runs(word: str) -> list[str]:
    """Scripts of a word's runs of two letters or more; a lone Greek letter is a formula."""
    runs: list[tuple[str, int]] = []
    for script in map(_script, word):
        if script is None:
            continue
        if runs and runs[-1][0] == script:
            runs[-1] = (script, runs[-1][1] + 1)
        else:
            runs.append((script, 1))
    return [script for script, length in runs if length >= 2 or script == "EAST ASIAN"]


def _unpronounceable(text: str) -> Sign | None:
    """Prose-like text whose Latin words have no vowels."""
    words = [
        word for word in text.split() if re.fullmatch(r"[^\W\d_]{4,24}[.,;:!?]?", word) and word.islower()
    ]
    latin = [word for word in words if _script(word[0]) == "LATIN"]
    if len(latin) < 12 or len(latin) < 0.5 * len(text.split()):
        return None
    mute = [word for word in latin if not _VOICED & set(unicodedata.normalize("NFD", word))]
    if len(mute) < max(4, 0.1 * len(latin)):
        return None
    words_said = f"{len(mute)} of {len(latin)} words without a vowel, such as `{mute[0]}`"
    return Sign(name="no words", words=words_said, is_hard=False)


def _template_tokens(text: str) -> Sign | None:
    if (match := _TEMPLATE.search(text)) is None:
        return None
    return Sign(name="template tokens", words=f"`{match[0].strip()}` stands in the text", is_hard=False)
