"""What a short answer says: a word, or a number, however it is dressed up."""

import re
import unicodedata

_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
_AFTER_EQUALS = re.compile(r"(?:=|≈|\\boxed\{|\bequals\b|\bis\b)\s*\**\s*(?P<number>[-−]?\d[\d,]*)")


def says_word(text: str, word: str) -> bool:
    """Whether `word` stands in `text` as a word of its own; case, accents and decoration do not matter.

    >>> says_word("**Paris.**", "paris"), says_word("comparison", "paris")
    (True, False)
    """
    return re.search(rf"(?<!\w){re.escape(_plain(word))}(?!\w)", _plain(text)) is not None


def gives_number(text: str, number: int) -> bool:
    """Whether `text` gives `number` as its result, and not only as a step on the way.

    It counts when it is the first or the last number, or the last one that follows an equals sign.

    >>> gives_number("7 x 13 = 91.", 91), gives_number("7 x 13 is 77", 91)
    (True, False)
    >>> gives_number("91, because 70 + 21 makes it so", 91), gives_number("1,001", 1001)
    (True, True)
    """
    found = [_value(match.group()) for match in _NUMBER.finditer(text)]
    results = [_value(match["number"]) for match in _AFTER_EQUALS.finditer(text)]
    return number in (found[:1] + found[-1:] + results[-1:])


def _value(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _plain(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(sign for sign in decomposed if not unicodedata.combining(sign))
