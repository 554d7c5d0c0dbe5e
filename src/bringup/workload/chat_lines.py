"""JSON lines (or an array) of prompts or chats, in the forms that people have them in.

Source: OpenAI's fine-tuning format (`messages`) and batch format (`body`); `prompt` lines of vLLM's and
SGLang's custom data sets; `text` and `text_input` lines of AIPerf.
"""

from collections.abc import Iterator

from bringup.parse.json_value import Json, int_at, list_at, text_at
from bringup.workload.sample import Format, Sample
from bringup.workload.source import Raw, Source, elements, head, json_object, lines, unreadable

_TEXTS = ("prompt", "text", "text_input", "input_text", "question", "instruction", "input")
_CHATS = ("messages", "body")
_LENGTHS = ("max_tokens", "max_completion_tokens", "output_tokens", "output_length", "output_len")
# Fields of a request that a line may set for itself.
_OWN_LIST = """
temperature top_p top_k min_p seed stop n presence_penalty frequency_penalty repetition_penalty logit_bias
tools tool_choice response_format reasoning_effort chat_template_kwargs logprobs top_logprobs
"""
_OWN = frozenset(_OWN_LIST.split())
_WANTED = '{"messages": [{"role": "user", "content": ...}, ...]} or {"prompt": ...}'


def _looks_like(text: str) -> bool:
    first = text.lstrip().lstrip("[").lstrip().partition("\n")[0] if text.lstrip().startswith("{") else text
    return first.lstrip()[:1] in ("{", "[") and any(f'"{name}"' in first for name in (*_TEXTS, *_CHATS))


def _cut(source: Source) -> Iterator[Raw]:
    return elements(source) if head(source).lstrip().startswith("[") else lines(source)


def _read(raw: Raw, name: str) -> Sample:
    value = json_object(raw, name)
    if isinstance(body := value.get("body"), dict):
        value = body
    own = {field: part for field, part in value.items() if field in _OWN}
    if isinstance(extra := value.get("extra_body"), dict):
        own |= extra
    told: list[Json] = list_at(value, "messages") or list_at(value, "prompt")
    if not told:
        text = next((found for field in _TEXTS if (found := text_at(value, field))), None)
        told += [] if text is None else [_user(text)]
    messages = tuple(one for one in told if isinstance(one, dict) and text_at(one, "role"))
    if len(messages) != len(told) or "user" not in [one["role"] for one in messages]:
        raise unreadable(name, raw.line, _WANTED, raw.text.strip() or str(value))
    return Sample(
        messages=messages,
        output_tokens=next((length for field in _LENGTHS if (length := int_at(value, field))), None),
        own=own,
    )


def _user(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


FORMAT = Format(
    name="chat-lines",
    words="prompts or chats, one a line",
    wanted=_WANTED,
    looks_like=_looks_like,
    cut=_cut,
    read=_read,
)
