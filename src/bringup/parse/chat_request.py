"""The JSON body of a chat request, the same in every check: greedy, with a fixed seed."""

import json
from collections.abc import Mapping, Sequence

from bringup.parse.json_value import Json

SEED = 1  # any fixed number: engines that sample in spite of temperature 0 then at least repeat themselves


def chat_body(
    model: str,
    messages: str | Sequence[Mapping[str, Json]],
    *,
    max_tokens: int,
    stream: bool = False,
    **extra: Json,
) -> str:
    """JSON text of a greedy chat request; a string stands for one user message.

    `extra` joins the body as it stands and wins over the defaults. A streamed request asks for usage.

    >>> body = json.loads(chat_body("m", "Hi", max_tokens=4))
    >>> body["messages"], body["temperature"], body["seed"]
    ([{'role': 'user', 'content': 'Hi'}], 0, 1)
    """
    said: list[Mapping[str, Json]] = (
        [{"role": "user", "content": messages}] if isinstance(messages, str) else [*messages]
    )
    body: dict[str, object] = {
        "model": model,
        "messages": said,
        "max_tokens": max_tokens,
        "temperature": 0,
        "seed": SEED,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body | extra, ensure_ascii=False)
