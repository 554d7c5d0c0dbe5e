"""Python source out of an answer that explains, fences and decorates it."""

import ast
import re

_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE
)
_STATEMENT = re.compile(r"\s*(?:(?:import|from|def|async def|class)\b|@)")
_PYTHON = ("", "python", "py", "python3")


def extract_function(text: str, name: str) -> str | None:
    r"""Source that defines function `name`, None when there is none.

    The first fenced block that defines it wins; its fence may be unclosed, as in a cut-off answer. Without
    a fence the lines from the first import or definition on are taken, as far as they parse.

    >>> print(extract_function("Sure:\n```python\ndef f(x):\n    return x\n```\nDone.", "f"))
    def f(x):
        return x
    """
    blocks = [match["code"] for match in _FENCE.finditer(text) if match["language"].lower() in _PYTHON]
    for candidate in (*blocks, text):
        if re.search(rf"^\s*(?:async\s+)?def\s+{re.escape(name)}\b", candidate, re.MULTILINE):
            return _longest_that_parses(candidate)
    return None


def _longest_that_parses(source: str) -> str:
    """`source` from its first statement on, without what follows the last line that parses.

    Where nothing parses it is returned whole: running it will say what is wrong.
    """
    lines = source.strip("\n").splitlines()
    start = next((i for i, line in enumerate(lines) if _STATEMENT.match(line)), 0)
    kept = lines[start:]
    indent = min((len(line) - len(line.lstrip()) for line in kept[:1]), default=0)
    kept = [line[indent:] if not line[:indent].strip() else line for line in kept]
    for end in range(len(kept), 0, -1):
        try:
            ast.parse("\n".join(kept[:end]))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        return "\n".join(kept[:end]).rstrip()
    return "\n".join(kept).rstrip()
