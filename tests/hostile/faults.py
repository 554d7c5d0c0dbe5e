"""What can be wrong with a server, one named fault each, as hooks that the healthy server calls.

A fault is a record: what it takes over, what it alters, what it ignores. Everything that it does not mention
stays healthy.
"""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from capable_model import CONTEXT_TOKENS, Reply, Talk, tokens_of

if TYPE_CHECKING:
    from server import Exchange

_BUSY = 6  # generations at once, from which the faults "under concurrency" begin
_ESCAPES = "\x1b[2J\x1b]0;owned\x07\x1b[31m[bold]\u202e\r"  # clears a screen, renames it, writes backwards
_GIGABYTE = 1_000_000_000
_SALAD = ("ниtrap", "缝зоnе", "ünd𝔸", "ق_vec};);", "الpoly蓝gt", "ྀsein", "ぬrou(*", "ķõrv", "漢itatৎ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One sickness. Hooks that are None leave the healthy behaviour as it is."""

    about: str
    takes_over: "Callable[[Exchange], Awaitable[bool]] | None" = None  # any request; True: answered
    generates: "Callable[[Exchange, Talk], Awaitable[bool]] | None" = None  # a sound generation request
    text: "Callable[[str, Exchange], str] | None" = None  # before stop sequences and max_tokens
    reply: "Callable[[Reply, Exchange], Reply] | None" = None  # after them
    payload: "Callable[[dict, Exchange], dict] | None" = None  # each JSON body or event of a generation
    frames: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None  # of an event stream
    body: Callable[[bytes], tuple[bytes, tuple[str, ...]]] | None = None  # whole body, more headers
    write: "Callable[[Exchange, bytes], Awaitable[None]] | None" = None  # bytes of a generation
    content_type: str | None = None
    token_s: float | None = None  # seconds between tokens, where the fault needs time to show
    models: str | None = None  # the id that the models list shows
    ignores: frozenset[str] = frozenset()


# taking over


def _only_generations(
    act: "Callable[[Exchange], Awaitable[None]]",
) -> "Callable[[Exchange], Awaitable[bool]]":
    async def take_over(exchange: "Exchange") -> bool:
        if not exchange.request.is_generation:
            return False
        await act(exchange)
        return True

    return take_over


def _everything(act: "Callable[[Exchange], Awaitable[None]]") -> "Callable[[Exchange], Awaitable[bool]]":
    async def take_over(exchange: "Exchange") -> bool:
        await act(exchange)
        return True

    return take_over


async def _fail(exchange: "Exchange") -> None:
    await exchange.json(
        500, {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError"}}
    )


def _fail_when(
    condition: "Callable[[Exchange], bool]",
) -> "Callable[[Exchange, Talk], Awaitable[bool]]":
    async def generates(exchange: "Exchange", _talk: Talk) -> bool:
        if not condition(exchange):
            return False
        await _fail(exchange)
        return True

    return generates


async def _page(exchange: "Exchange") -> None:
    page = b"<!DOCTYPE html>\n<html><head><title>Welcome</title></head><body>Please log in.</body></html>"
    await exchange.respond(200, page, "text/html")


async def _hang(exchange: "Exchange") -> None:
    await exchange.hang()


async def _unauthorized(exchange: "Exchange") -> None:
    await exchange.json(
        401, {"error": {"message": "Invalid API key", "type": "AuthenticationError", "code": 401}}
    )


async def _no_http(exchange: "Exchange") -> None:
    exchange.keeps_open = False
    await exchange.raw(b"\x16\x03\x01 HTTP? 200 maybe\n\n{]\x00\xff\r\n\r\n")


async def _bad_chunks(exchange: "Exchange") -> None:
    exchange.keeps_open = False
    await exchange.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b"zz\r\ndata: {}\n\n\r\n-5\r\n"
    )


async def _huge_headers(exchange: "Exchange") -> None:
    exchange.keeps_open = False
    await exchange.raw(b"HTTP/1.1 200 OK\r\n")
    line = b"x-padding-%d: " + b"a" * 8000 + b"\r\n"
    for number in range(40_000):  # 320 MB of headers
        if exchange.is_gone:
            return
        await exchange.raw(line % number)
    await exchange.raw(b"content-length: 2\r\n\r\n{}")


async def _gigabyte(exchange: "Exchange") -> None:
    exchange.keeps_open = False
    head = b'{"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "'
    await exchange.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (_GIGABYTE, head)
    )
    block = b"All work and no play makes a dull day. " * 1600
    sent = len(head)
    while sent < _GIGABYTE and not exchange.is_gone:
        await exchange.raw(block[: _GIGABYTE - sent])
        sent += len(block)
        await asyncio.sleep(0)


def _redirect(status: int) -> "Callable[[Exchange], Awaitable[None]]":
    async def act(exchange: "Exchange") -> None:
        where = f"location: {exchange.server.url}/elsewhere{exchange.request.path}"
        await exchange.respond(status, b"", "text/plain", headers=(where,))

    return act


def _dies_when(condition: Callable[[bytes], bool]) -> "Callable[[Exchange], Awaitable[bool]]":
    async def take_over(exchange: "Exchange") -> bool:
        if not exchange.request.is_generation or not condition(exchange.request.body):
            return False
        exchange.reset()
        exchange.server.die()
        return True

    return take_over


def _is_too_long(body: bytes) -> bool:
    return len(tokens_of(body.decode("utf-8", "replace"))) > CONTEXT_TOKENS


def _is_bad_json(body: bytes) -> bool:
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return True
    return False


# generating


async def _endless(exchange: "Exchange", _talk: Talk) -> bool:
    """Words without end, streamed or not, as fast as the socket takes them."""
    exchange.keeps_open = False
    words = [f" word{number}" for number in range(97)]
    if exchange.request.wants_stream:
        await exchange.start_stream()
        number = 0
        while not exchange.is_gone:
            event = {
                "model": exchange.server.model,
                "choices": [{"index": 0, "delta": {"content": words[number % 97]}}],
            }
            await exchange.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
            number += 1
            await asyncio.sleep(0)
        return True
    await exchange.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    await exchange.chunk(b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "')
    block = "".join(words).encode() * 80
    while not exchange.is_gone:
        await exchange.chunk(block)
        await asyncio.sleep(0)
    return True


async def _reset_midstream(exchange: "Exchange", _talk: Talk) -> bool:
    if not exchange.request.wants_stream:
        return False
    await exchange.start_stream()
    for word in ("The", " answer", " is"):
        event = {"model": exchange.server.model, "choices": [{"index": 0, "delta": {"content": word}}]}
        await exchange.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        await asyncio.sleep(0.002)
    exchange.reset()
    return True


async def _unsupported(exchange: "Exchange", talk: Talk) -> bool:
    extras = {"response_format", "tools", "logprobs", "guided_json"}
    found = sorted(extras & {name for name, value in talk.body.items() if value not in (None, False)})
    if not found:
        return False
    await exchange.error(400, f"Unsupported parameter: '{found[0]}'")
    return True


# texts


def _garbage(text: str, _exchange: "Exchange") -> str:
    """Script salad as long as the text, the same for the same text."""
    count = max(12, len(text) // 4)
    start = sum(map(ord, text)) % len(_SALAD)
    return "".join(_SALAD[(start + place * place) % len(_SALAD)] for place in range(count))


def _garbage_among_others(text: str, exchange: "Exchange") -> str:
    return _garbage(text, exchange) if exchange.server.load.active >= _BUSY else text


def _varied(text: str, exchange: "Exchange") -> str:
    endings = ("", " I think.", " That is all.", " Thank you for asking.", " Anything else?")
    return f"{endings[exchange.number % 5].strip()} {text}".strip()


def _replaced_characters(text: str, _exchange: "Exchange") -> str:
    return f"{text[:1]}\ufffd\ufffd\ufffd{text[1:]}"


def _nul_characters(text: str, _exchange: "Exchange") -> str:
    return f"\0\0\0{text}"


def _half_characters(text: str, _exchange: "Exchange") -> str:
    """The escape of half an emoji, as detokenizers give that cut inside of a character."""
    return f"{text[:1]}\ud83d{text[1:]}"


def _escapes(text: str, _exchange: "Exchange") -> str:
    return f"{_ESCAPES}{text}"


# replies


def _tools_as_text(reply: Reply, _exchange: "Exchange") -> Reply:
    if not reply.calls:
        return reply
    call = reply.calls[0]
    text = f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'
    return replace(reply, calls=(), text=text, finish_reason="stop", tokens=tuple(tokens_of(text)))


def _reasons(reply: Reply, _exchange: "Exchange") -> Reply:
    """The good case: thoughts apart from the answer."""
    if reply.calls or not reply.text or reply.finish_reason == "length":
        return reply
    thoughts = "The user wants an answer. I know it."
    return replace(reply, reasoning=thoughts, tokens=(*tokens_of(thoughts), *reply.tokens))


# JSON


def _wrong_usage(value: dict, _exchange: "Exchange") -> dict:
    if value.get("usage"):
        value["usage"] = {"prompt_tokens": 1, "completion_tokens": 5000, "total_tokens": 1}
    return value


def _without_usage(value: dict, _exchange: "Exchange") -> dict:
    value.pop("usage", None)
    return value


def _wrong_model(value: dict, _exchange: "Exchange") -> dict:
    return value | {"model": "some-other-model-1b"}


def _without_finish(value: dict, _exchange: "Exchange") -> dict:
    for choice in value["choices"]:
        choice.pop("finish_reason", None)
    return value


def _each_logprob(new: float) -> "Callable[[dict, Exchange], dict]":
    def payload(value: dict, _exchange: "Exchange") -> dict:
        for choice in value["choices"]:
            logprobs = choice.get("logprobs") or {}
            for row in logprobs.get("content") or []:
                row["logprob"] = new
                for other in row["top_logprobs"]:
                    other["logprob"] = new
            if "token_logprobs" in logprobs:
                logprobs["token_logprobs"] = [new for _ in logprobs["token_logprobs"]]
        return value

    return payload


# bytes


def _cut(frames: Iterator[bytes]) -> Iterator[bytes]:
    """Three frames and a half."""
    for number, frame in enumerate(frames):
        if number == 3:
            yield frame[: len(frame) // 2]
            return
        yield frame


def _without_done(frames: Iterator[bytes]) -> Iterator[bytes]:
    yield from (frame for frame in frames if b"[DONE]" not in frame)


async def _bytewise(exchange: "Exchange", data: bytes) -> None:
    for place in range(len(data)):
        exchange.writer.write(data[place : place + 1])
        await exchange.writer.drain()
        if place % 16 == 0:
            await asyncio.sleep(0)


async def _drip(exchange: "Exchange", data: bytes) -> None:
    for place in range(len(data)):
        await exchange.raw(data[place : place + 1])
        await asyncio.sleep(1.0)
        if exchange.is_gone:
            exchange.keeps_open = False
            return


def _deep(_body: bytes) -> tuple[bytes, tuple[str, ...]]:
    return b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", ()


def _deep_frames(frames: Iterator[bytes]) -> Iterator[bytes]:
    yield b'data: {"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"
    yield from frames


def _not_utf8(body: bytes) -> tuple[bytes, tuple[str, ...]]:
    return body.replace(b'"content": "', b'"content": "\xff\xfe\xc3('), ()


def _not_utf8_frames(frames: Iterator[bytes]) -> Iterator[bytes]:
    yield from (_not_utf8(frame)[0] for frame in frames)


def _gzipped(body: bytes) -> tuple[bytes, tuple[str, ...]]:
    return gzip.compress(body), ("content-encoding: gzip",)


def _gzipped_frames(frames: Iterator[bytes]) -> Iterator[bytes]:
    yield gzip.compress(b"".join(frames))


FAULTS: dict[str, Fault] = {
    "healthy": Fault(about="nothing is wrong"),
    "reasoning_content": Fault(about="thinks, in its own field: nothing is wrong", reply=_reasons),
    # what it says
    "garbage": Fault(about="script salad", text=_garbage, ignores=frozenset({"tools", "json_schema"})),
    "repeated_tokens": Fault(
        about="one token for ever, up to max_tokens",
        text=lambda _text, _exchange: " the" * 4000,
        ignores=frozenset({"tools", "json_schema"}),
    ),
    "exclamation_marks": Fault(
        about="token 0 for ever, as NaN logits give",
        text=lambda _text, _exchange: "!" * 4000,
        ignores=frozenset({"tools", "json_schema"}),
    ),
    "garbled_concurrent": Fault(
        about=f"script salad while {_BUSY} or more requests run", text=_garbage_among_others
    ),
    "empty": Fault(
        about="ends its turn at once", text=lambda _text, _exchange: "", ignores=frozenset({"tools"})
    ),
    "replacement_characters": Fault(about="U+FFFD in every answer", text=_replaced_characters),
    "nul_bytes": Fault(about="NUL characters in every answer", text=_nul_characters),
    "half_characters": Fault(about="half of a surrogate pair in every answer", text=_half_characters),
    "terminal_escapes": Fault(about="escape sequences in every answer", text=_escapes),
    "nondeterministic": Fault(about="another text each time, at temperature 0", text=_varied),
    "think_leak": Fault(
        about="<think> and its end in the answer",
        text=lambda text, _exchange: f"<think>\nThe user wants an answer. I know it.\n</think>\n\n{text}",
    ),
    "think_leak_unopened": Fault(
        about="thoughts and </think> in the answer, without <think>",
        text=lambda text, _exchange: f"The user wants an answer. I know it.\n</think>\n\n{text}",
    ),
    "tools_as_text": Fault(about="tool calls stand in the text", reply=_tools_as_text),
    "endless": Fault(about="generates for ever", generates=_endless),
    "stop_ignored": Fault(about="stop sequences do nothing", ignores=frozenset({"stop"})),
    "max_tokens_ignored": Fault(about="max_tokens does nothing", ignores=frozenset({"max_tokens"})),
    "schema_ignored": Fault(about="json_schema does nothing", ignores=frozenset({"json_schema"})),
    # how it says it
    "truncated_sse": Fault(about="streams end in the middle of a frame", frames=_cut),
    "bytewise": Fault(about="each byte in a write of its own: nothing is wrong", write=_bytewise),
    "reset_midstream": Fault(about="breaks streams off after three words", generates=_reset_midstream),
    "no_done": Fault(about="streams end without [DONE]", frames=_without_done),
    "no_usage": Fault(about="never says how many tokens", payload=_without_usage),
    "wrong_usage": Fault(about="counts 5000 tokens for everything", payload=_wrong_usage),
    "wrong_model": Fault(about="answers in another model's name", payload=_wrong_model),
    "wrong_model_listed": Fault(
        about="lists and takes another model than the wanted one",
        models="some-other-8b",
        ignores=frozenset({"model"}),
    ),
    "no_finish_reason": Fault(about="finish_reason is missing", payload=_without_finish),
    "logprobs_positive": Fault(about="logprobs above 0", payload=_each_logprob(1.5)),
    "logprobs_nan": Fault(about="logprobs are NaN", payload=_each_logprob(float("nan"))),
    "buffering": Fault(
        about="a proxy holds streams back until they end", token_s=0.006, ignores=frozenset({"buffering"})
    ),
    "wrong_content_type": Fault(about="everything is text/plain", content_type="text/plain"),
    "invalid_utf8": Fault(
        about="bytes that are not UTF-8 in every text", body=_not_utf8, frames=_not_utf8_frames
    ),
    "deep_json": Fault(about="JSON nested 100,000 deep", body=_deep, frames=_deep_frames),
    "gzip": Fault(about="compressed without being asked", body=_gzipped, frames=_gzipped_frames),
    "slow_drip": Fault(about="one byte per second", write=_drip),
    # instead of saying it
    "error_500": Fault(about="500 for every generation", takes_over=_only_generations(_fail)),
    "error_500_sometimes": Fault(
        about="500 for every third generation",
        generates=_fail_when(lambda exchange: exchange.number % 3 == 0),
    ),
    "error_500_streaming": Fault(
        about="500 when streaming", generates=_fail_when(lambda exchange: exchange.request.wants_stream)
    ),
    "error_500_concurrent": Fault(
        about=f"500 while {_BUSY} or more requests run",
        generates=_fail_when(lambda exchange: exchange.server.load.active >= _BUSY),
    ),
    "html_page": Fault(about="200 with a web page for every generation", takes_over=_only_generations(_page)),
    "html_everywhere": Fault(about="200 with a web page for every path", takes_over=_everything(_page)),
    "never_answers": Fault(about="takes generations and never answers", takes_over=_only_generations(_hang)),
    "silent_everywhere": Fault(about="takes every request and never answers", takes_over=_everything(_hang)),
    "gigabyte_body": Fault(
        about="a body of 1 GB for every generation", takes_over=_only_generations(_gigabyte)
    ),
    "malformed_http": Fault(
        about="generations are answered with no HTTP", takes_over=_only_generations(_no_http)
    ),
    "malformed_everywhere": Fault(about="nothing that it says is HTTP", takes_over=_everything(_no_http)),
    "malformed_chunks": Fault(about="broken chunk sizes", takes_over=_only_generations(_bad_chunks)),
    "huge_headers": Fault(about="320 MB of headers", takes_over=_only_generations(_huge_headers)),
    "redirect_301": Fault(about="301 for every generation", takes_over=_only_generations(_redirect(301))),
    "redirect_307": Fault(about="307 for every generation", takes_over=_only_generations(_redirect(307))),
    "unsupported_400": Fault(about="400 for every parameter beyond the basic ones", generates=_unsupported),
    "dies_long_prompt": Fault(about="stops for good at a long prompt", takes_over=_dies_when(_is_too_long)),
    "dies_bad_json": Fault(about="stops for good at malformed JSON", takes_over=_dies_when(_is_bad_json)),
    "slot_leak": Fault(about="never frees the slot of a client that hung up", ignores=frozenset({"cancel"})),
    # keys
    "unauthorized": Fault(about="401 on every path", takes_over=_everything(_unauthorized)),
    "key_unchecked": Fault(
        about="has a key and takes every other, too", ignores=frozenset({"key", "metrics key"})
    ),
    "metrics_open": Fault(
        about="has a key, and shows its metrics without", ignores=frozenset({"metrics key"})
    ),
}
