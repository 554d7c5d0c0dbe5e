"""ShareGPT: one JSON array of conversations between `human` and `gpt`.

Source: `ShareGPT_V3_unfiltered_cleaned_split.json`, an array of `{"id": ..., "conversations": [{"from":
"human", "value": ...}, {"from": "gpt", "value": ...}]}`, which vLLM's and SGLang's benchmarks read; records
whose conversation is empty or begins with an answer stand in it.
"""

from collections.abc import Iterator, Mapping

from bringup.parse.json_value import Json, list_at, text_at
from bringup.workload.sample import Format, Sample
from bringup.workload.source import Raw, Source, elements, head, json_object, lines, unreadable

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
}
_WANTED = '{"conversations": [{"from": "human", "value": ...}, ...]}'


def _looks_like(text: str) -> bool:
    return text.lstrip()[:1] in ("[", "{") and '"conversations"' in text


def _cut(source: Source) -> Iterator[Raw]:
    return elements(source) if head(source).lstrip().startswith("[") else lines(source)


def _read(raw: Raw, name: str) -> Sample:
    value = json_object(raw, name)
    if not isinstance(value.get("conversations"), list):
        raise unreadable(name, raw.line, _WANTED, raw.text.strip() or str(value))
    said = [_message(one, raw, name) for one in list_at(value, "conversations")]
    while said and said[0]["role"] == "assistant":  # the question was cut off
        said.pop(0)
    return Sample(messages=tuple(said))


def _message(one: Json, raw: Raw, name: str) -> Mapping[str, Json]:
    role, text = text_at(one, "from"), text_at(one, "value")
    if role not in _ROLES or text is None:
        raise unreadable(name, raw.line, _WANTED, str(one))
    return {"role": _ROLES[role], "content": text}


FORMAT = Format(
    name="sharegpt",
    words="ShareGPT conversations",
    wanted=_WANTED,
    looks_like=_looks_like,
    cut=_cut,
    read=_read,
    takes_first_turn=True,
)
