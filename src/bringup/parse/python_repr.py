"""What Python prints of a mapping or of a call, `{'a': 1}` or `Args(a=1)`: names to their source text.

Values may hold objects that no reader of literals knows (`<CompilationMode.NONE: 0>`), so that only quotes
and brackets are followed.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from typing import cast

from bringup.parse.json_value import Json

_OPEN, _CLOSE = "([{", ")]}"
_KEY = re.compile(r"\s*(?:'([^']*)'|\"([^\"]*)\")\s*:\s*|\s*([A-Za-z_]\w*)=")


def read_names(text: str) -> dict[str, str]:
    """Names and the source text of their values, as far as the text goes.

    The text begins at the opening bracket or at the first name.

    >>> read_names("{'a': [1, 2], 'b': X(c='d, e')}")
    {'a': '[1, 2]', 'b': "X(c='d, e')"}
    >>> read_names("model='m', mode=<Mode.NONE: 0>, sizes={1: 2}, cut=[1, ")
    {'model': "'m'", 'mode': '<Mode.NONE: 0>', 'sizes': '{1: 2}', 'cut': '[1,'}
    """
    if text[:1] and text[0] in _OPEN:
        text = text[1:]
    found: dict[str, str] = {}
    for part in _parts(text):
        if match := _KEY.match(part):
            found[match[1] or match[2] or match[3]] = part[match.end() :].strip()
    return found


def literal(source: str) -> Json:
    """The value of a Python literal; its source text where it is none.

    >>> literal("True"), literal("'a'"), literal("[1, 'b']"), literal("<Mode.NONE: 0>")
    (True, 'a', [1, 'b'], '<Mode.NONE: 0>')
    """
    try:
        return _json(ast.literal_eval(source))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return source


def _json(value: object) -> Json:
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return {str(key): _json(one) for key, one in pairs.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(one) for one in cast("Iterable[object]", value)]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas of the outermost level."""
    depth, quote, start, skip = 0, "", 0, False
    for place, sign in enumerate(text):
        if skip or sign == "\\":
            skip = not skip
        elif quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        elif sign in _OPEN:
            depth += 1
        elif sign in _CLOSE:
            depth -= 1
            if depth < 0:
                yield text[start:place]
                return
        elif sign == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    yield text[start:]
