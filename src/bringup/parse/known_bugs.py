"""`data/known_bugs.json` to records, and versions of engines to what can be compared."""

import re
from typing import cast

from bringup.parse.json_value import Json, at, bool_at, int_at, list_at, text_at
from bringup.values.known_bug import KnownBug

Version = tuple[int, ...]


def read_version(text: str | None) -> Version | None:
    """Numbers that sort as the versions do: a candidate before its release, a post release after it.

    >>> read_version("0.28.1rc1") < read_version("0.28.1") < read_version("0.28.1.post2+cu130")
    True
    >>> read_version("b8502-1a2b3c"), read_version("8502 (1a2b3c)"), read_version("unknown")
    ((8502, 0, 0, 0), (8502, 0, 0, 0), None)
    """
    match = re.match(r"[vb]?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?", (text or "").strip())
    if match is None:
        return None
    rest = (text or "").strip()[match.end() :]
    release = tuple(int(part or 0) for part in match.groups())
    if re.match(r"\.?(rc|a|b|dev|alpha|beta)\d", rest):
        return (*release, -1)
    after = re.match(r"\.?post(\d{1,6})", rest)
    return (*release, int(after[1]) if after else 0)


def read_known_bugs(rows: Json) -> tuple[KnownBug, ...]:
    """The bugs of the data file."""
    return tuple(_row(row) for row in list_at(rows, "bugs"))


def _row(row: Json) -> KnownBug:
    return KnownBug(
        id=text_at(row, "id") or "",
        engine=text_at(row, "engine") or "",
        summary=text_at(row, "summary") or "",
        explanation=text_at(row, "explanation") or "",
        action=text_at(row, "action") or "",
        sources=_words(row, "sources"),
        is_serious=bool_at(row, "is_serious") or False,
        first=text_at(row, "first"),
        last=text_at(row, "last"),
        fixed_in=text_at(row, "fixed_in"),
        capabilities=_words(row, "capabilities"),
        gpu_names=_words(row, "gpu_names"),
        gpu_count_min=int_at(row, "gpu_count_min"),
        without_gpu=bool_at(row, "without_gpu") or False,
        models=_words(row, "models"),
        flags=_values(row, "flags"),
        flags_absent=_words(row, "flags_absent"),
        environment=_values(row, "environment"),
        environment_absent=_words(row, "environment_absent"),
    )


def _words(row: Json, name: str) -> tuple[str, ...]:
    return tuple(word for word in list_at(row, name) if isinstance(word, str))


def _values(row: Json, name: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = at(row, name)
    named = cast("dict[str, Json]", found) if isinstance(found, dict) else {}
    return tuple((key, _words(named, key)) for key in named)
