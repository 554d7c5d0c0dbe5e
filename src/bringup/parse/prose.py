"""Whether a text is a document or a program that quotes messages, and no log in which they stand."""

import re
from collections.abc import Iterable

_DOCUMENT = re.compile(
    r"#{1,6} \w|\|? ?:?-{3,}:? ?\||[|] .+ [|]$|[-*+] (?:\*\*|`|\[)?[A-Z`*\[]|\d+\. [A-Z*`\[]|```\w*$|"
    r"=====+$|-----+$|"
    r"[A-Z][a-z]+ [a-z]+ [a-z, ]{12,}.*\.$"
)
_PROGRAM = re.compile(
    r"(?:async )?def \w+\(.*:$|class \w+.*:$|from [\w.]+ import |import \w+$|#include |@\w+|\"\"\"|"
    r"package \w+;?$|"
    r"(?:const|let|var|function|static|void|int|fn|pub|use|func) \w+|[A-Z_]+ = "
)
_LOG = re.compile(
    r"Traceback \(most recent|  File \"|(?:\w+\.)*\w*(?:Error|Exception)(?::|$)|"
    r"(?:INFO|WARNING|ERROR|DEBUG)\b|"
    r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|"
    r"\[ *\d+\.\d+\] |\d+\.\d\d\.\d{3}\.\d{3} "
)
_FEWEST = 5  # lines that only a document has


def is_document(texts: Iterable[str]) -> bool:
    r"""Whether lines of documents or programs outnumber those of logs.

    A report of a failure, prose around a pasted log, is none.

    >>> is_document(["# Notes", "## Memory", "- **OOM**: out of memory", "| a | b |", "|---|---|", "# End"])
    True
    >>> is_document(["## Bug", "It fails:", 'Traceback (most recent call last):', '  File "a.py", line 1'])
    False
    """
    found = log = 0
    for text in texts:
        if _LOG.match(text):
            log += 1
        elif _DOCUMENT.match(text) or _PROGRAM.match(text):
            found += 1
    return found >= _FEWEST and found > 2 * log
