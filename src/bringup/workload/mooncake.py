"""Mooncake traces: when requests came, how long they were, and which blocks of 512 tokens they had in common.

Source: kvcache-ai/Mooncake, `FAST25-release/traces/*.jsonl`: `{"timestamp": 27482, "input_length": 6955,
"output_length": 52, "hash_ids": [46, 47, ...]}`, the time in milliseconds since the first request; the same
number in `hash_ids` is the same block after the same blocks. Qwen's Bailian traces have the same fields with
blocks of 16 tokens and `chat_id`.
"""

from bringup.parse.json_value import float_at, int_at, list_at
from bringup.workload.sample import Format, Sample
from bringup.workload.source import Raw, json_object, lines, unreadable

_WANTED = '{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}'


def _looks_like(text: str) -> bool:
    first = text.lstrip().partition("\n")[0]
    return first.startswith("{") and '"input_length"' in first


def _read(raw: Raw, name: str) -> Sample:
    value = json_object(raw, name)
    input_tokens, output_tokens = int_at(value, "input_length"), int_at(value, "output_length")
    ids = list_at(value, "hash_ids")
    hash_ids = tuple(one for one in ids if isinstance(one, int))
    at_ms = float_at(value, "timestamp")
    if not input_tokens or input_tokens < 0 or len(hash_ids) != len(ids) or (at_ms or 0) < 0:
        raise unreadable(name, raw.line, _WANTED, raw.text.strip())
    return Sample(
        input_tokens=input_tokens,
        output_tokens=max(1, output_tokens) if output_tokens is not None else None,
        hash_ids=hash_ids,
        at_s=None if at_ms is None else at_ms / 1000,
    )


FORMAT = Format(
    name="mooncake",
    words="a Mooncake trace",
    wanted=_WANTED,
    looks_like=_looks_like,
    cut=lines,
    read=_read,
    has_times=True,
)
