"""Which format a data file has, by its beginning."""

from bringup.errors import UsageError
from bringup.workload import azure_trace, burst_gpt, chat_lines, mooncake, sharegpt
from bringup.workload.sample import Format
from bringup.workload.source import Source, head

# The narrow ones first: `"prompt"` may stand anywhere.
FORMATS = {
    one.name: one
    for one in (azure_trace.FORMAT, burst_gpt.FORMAT, mooncake.FORMAT, sharegpt.FORMAT, chat_lines.FORMAT)
}


def detect(source: Source) -> Format:
    """The format of a file.

    Raises:
        UsageError: none that is known.

    >>> from bringup.workload.source import InMemory
    >>> detect(InMemory(name="p.jsonl", text='{"prompt": "Hi"}')).name
    'chat-lines'
    """
    text = head(source)
    found = next((one for one in FORMATS.values() if one.looks_like(text)), None)
    if found is not None:
        return found
    first = text.lstrip().partition("\n")[0][:80]
    known = "; ".join(f"{one.name}: {one.wanted}" for one in FORMATS.values())
    raise UsageError(
        f"no format that is known: `{source.name}` begins with `{first}`"
        if first
        else f"`{source.name}` is empty",
        hint=f"known are {known}",
    )


def named_format(name: str, *, option: str) -> Format:
    """The format that a user names.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in FORMATS:
        raise UsageError(f"no format `{name}`: `{option} {name}`", hint=f"known are {', '.join(FORMATS)}")
    return FORMATS[name]
