"""A file of flags (`vllm serve --config FILE`) to names and values: the part of YAML that such files use.

One `name: value` a line, lists as `[a, b]` or `- a` lines, nested keys and `{...}` as a JSON value.
"""

import json
import re

from bringup.errors import UsageError

_ENTRY = re.compile(r"(?P<name>[A-Za-z_][\w.-]*)\s*:(?:\s+(?P<value>.*))?")
_COMMENT = re.compile(r"(^|\s)#.*$")
_FALSE = ("false", "no", "off")
_QUOTED = 80  # characters of a line that is told
_TRUE = ("true", "yes", "on")


def read_flag_file(text: str, *, source: str) -> dict[str, str]:
    r"""Flags by name, without dashes; a switch that is off under `no-NAME`.

    >>> read_flag_file("model: m\nenforce-eager: true\nmax-num-seqs: 8  # few", source="x")
    {'model': 'm', 'enforce-eager': '', 'max-num-seqs': '8'}

    Raises:
        UsageError: a line is none of this.
    """
    settings: dict[str, str] = {}
    lists: dict[str, list[str]] = {}
    nested: dict[str, dict[str, object]] = {}
    name = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = _COMMENT.sub("", raw).rstrip()
        if not line or line == "---":
            continue
        body = line.strip()
        is_inner = line[0] in " \t" or body.startswith("- ")
        if is_inner and name and body.startswith("- "):
            lists.setdefault(name, []).append(_plain(body[2:]))
            continue
        match = _ENTRY.fullmatch(body)
        if match is None or (is_inner and not name):
            raise UsageError(f"{source} line {number} is no `name: value`: {body[:_QUOTED]}")
        if is_inner:
            nested.setdefault(name, {})[match["name"]] = _value(match["value"] or "")
            continue
        name = match["name"].replace("_", "-")
        settings[name] = _plain(match["value"] or "")
    settings |= {name: " ".join(words) for name, words in lists.items()}
    settings |= {name: json.dumps(keys) for name, keys in nested.items()}
    return dict(_switched(name, value) for name, value in settings.items())


def _plain(text: str) -> str:
    """A scalar without its quotes; a list `[a, b]` as words."""
    body = text.strip()
    if len(body) >= 2 and body[0] == body[-1] and body[0] in "\"'":
        return body[1:-1]
    if body.startswith("[") and body.endswith("]"):
        return " ".join(_plain(word) for word in body[1:-1].split(","))
    return body


def _value(text: str) -> object:
    plain = _plain(text)
    try:
        return json.loads(plain)
    except ValueError:
        return plain


def _switched(name: str, value: str) -> tuple[str, str]:
    if value.lower() in _TRUE:
        return name, ""
    return (f"no-{name}", "") if value.lower() in _FALSE else (name, value)
