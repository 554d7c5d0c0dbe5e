"""Whether the model's tool calls arrive as tool calls, whole and streamed.

What goes wrong here is mostly the engine's parser: none configured, the wrong one, or one that loses calls in
a stream. Then the call stands in the answer as text, and clients show it to people.

Source: vLLM wants `--enable-auto-tool-choice --tool-call-parser`, SGLang `--tool-call-parser`; llama.cpp says
in `chat_template_caps` whether the template has tools, and leaves them out without a word where it has none.
"""

import re

from bringup.checks import Batch, Check, Replies
from bringup.errors import UnreadableAnswer
from bringup.parse.answer_fault import Fault, FaultKind, reply_or_fault
from bringup.parse.chat import ChatReply, ToolCall
from bringup.parse.chat_request import chat_body
from bringup.parse.json_schema import read_strict_json
from bringup.parse.json_value import Json, text_at
from bringup.parse.prompt_growth import prompt_growth
from bringup.parse.reasoning import split_reply
from bringup.parse.second_try import next_asks, settled
from bringup.parse.short_answer import says_word
from bringup.parse.tally import hear
from bringup.values.deployment import Ability, Deployment
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Severity
from bringup.values.grade import SIZE_WORDS
from bringup.values.parsers import as_arguments, tool_fixes

_TOOL = "get_weather"
_CITY = "Paris"
_TOOLS: list[Json] = [
    {
        "type": "function",
        "function": {
            "name": _TOOL,
            "description": "Get the current weather of a city",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "The city's name"}},
                "required": ["city"],
            },
        },
    }
]
_QUESTION = f"What is the weather in {_CITY} right now? Use the tool."
_MAX_TOKENS = 128
_TOOL_TOKENS = 20  # the description takes about 60 tokens or more in any template
_EXPECTED = f"a tool call `{_TOOL}` with the city {_CITY} in `tool_calls`"

# How models write calls. Source: the chat templates of Qwen3, Hermes, Mistral, Llama 3 and 4, DeepSeek,
# Kimi-K2, GLM-4.5, MiniMax-M2 and gpt-oss.
_AS_TEXT = re.compile(
    r"<\|?tool_calls?|<tool_call|</?function[=>]|<invoke |\[TOOL_CALLS\]|<\|python_tag\|>|minimax:tool_call"
    r"|<｜tool▁call|<\|tool_calls_section_begin\|>|to=functions\."
    rf"|[\"']name[\"']\s*:\s*[\"']{_TOOL}[\"']|\b{_TOOL}\s*[({{\[]",
)


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    if deployment.engine.supports_tools is False:
        return ()
    model = deployment.model.id
    calls = tuple(
        Ask(key=key, body=chat_body(model, _QUESTION, max_tokens=_MAX_TOKENS, stream=stream, tools=_TOOLS))
        for key, stream in (("whole", False), ("streamed", True))
    )
    bare = Ask(key="bare", body=chat_body(model, _QUESTION, max_tokens=1))
    missing = tuple(ask for ask in (*calls, bare) if ask.key not in replies.answers)
    return missing or next_asks(calls, replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    if deployment.engine.supports_tools is False:
        return Judgement(findings=(_not_supported_by_template(deployment),))
    whole = reply_or_fault(settled(replies.answers, "whole"))
    if isinstance(whole, Fault):
        return Judgement(findings=(_fault(deployment, "tool_call", whole, replies),))
    findings = [_of_whole(deployment, whole, replies)]
    streamed = reply_or_fault(settled(replies.answers, "streamed"))
    if isinstance(streamed, Fault):
        findings.append(_fault(deployment, "tool_call.streamed", streamed, replies))
    elif whole.tool_calls or streamed.tool_calls:
        findings.append(_of_streamed(whole, streamed))
    return Judgement(findings=tuple(findings))


def _fault(deployment: Deployment, finding_id: str, fault: Fault, replies: Replies) -> Finding:
    """The finding for a request with tools that got no reply."""
    key = "streamed" if finding_id.endswith("streamed") else "whole"
    if fault.kind is not FaultKind.REFUSED:
        heard = hear("tool_call", key, replies.answers)
        if isinstance(heard, Finding):
            return heard
    fixes = tool_fixes(deployment.engine.engine, deployment.model.root or deployment.model.id)
    is_setting = re.search(r"enable-auto-tool-choice|tool-call-parser|--jinja", fault.quote) is not None
    return Finding(
        id=finding_id,
        severity=Severity.NOTE,
        summary=f"{'not configured' if is_setting else 'not supported'}: {fault.what}",
        expected=_EXPECTED,
        explanation="clients that send tools get an error, so agents cannot use this endpoint",
        action=_start_with(fixes) if is_setting and fixes else "nothing, if no client uses tools",
        evidence=(Evidence(source=f"answer tool_call/{key}", text=fault.quote),),
        fixes=fixes if is_setting else (),
    )


def _not_supported_by_template(deployment: Deployment) -> Finding:
    return Finding(
        id="tool_call",
        severity=Severity.NOTE,
        summary="not supported: the model's chat template has no tools",
        expected=_EXPECTED,
        explanation="the engine takes such requests and leaves the tools out, even when one is required",
        action="nothing, if no client uses tools; else a model that was trained with them",
        evidence=(
            Evidence(
                source=f"{deployment.engine.display_name} about itself",
                text="the chat template does not support tools",
            ),
        ),
    )


def _of_whole(deployment: Deployment, reply: ChatReply, replies: Replies) -> Finding:
    """The finding for the reply that came in one piece."""
    if reply.tool_calls:
        return _of_call("tool_call", deployment.ability, reply.tool_calls[0], reply)
    heard = hear("tool_call", "whole", replies.answers)
    if isinstance(heard, Finding):
        return heard
    text = f"{reply.reasoning}{reply.text}"
    quote = (Evidence(source="answer tool_call/whole", text=text[:300]),)
    if _AS_TEXT.search(reply.text):
        return _as_text(deployment, quote)
    if not split_reply(reply).is_finished or (reply.finish_reason == "length" and reply.reasoning):
        return Finding(
            id="tool_call",
            severity=Severity.UNKNOWN,
            summary="not measured: the reasoning trace did not end in the tokens allowed",
            expected=_EXPECTED,
            explanation="whether a call would have followed is not known",
            action="ask again with more depth (`--full`)",
            evidence=quote,
        )
    return _without_call(deployment, replies, quote)


def _as_text(deployment: Deployment, quote: tuple[Evidence, ...]) -> Finding:
    fixes = tool_fixes(deployment.engine.engine, deployment.model.root or deployment.model.id)
    return Finding(
        id="tool_call",
        severity=Severity.WARNING,
        summary="the tool call comes as plain text in the answer: no tool parser, or not the model's",
        expected=_EXPECTED,
        explanation="clients take it for an answer: agents stop, and people see raw markup",
        action=_start_with(fixes) if fixes else "set the engine's tool-call parser",
        evidence=quote,
        fixes=fixes,
    )


def _without_call(deployment: Deployment, replies: Replies, quote: tuple[Evidence, ...]) -> Finding:
    """The finding for plain words: tools never reached the model, or the model did not call."""
    growth = prompt_growth(settled(replies.answers, "whole"), replies.answers.get("bare"))
    if growth is not None and growth.tokens < _TOOL_TOKENS:
        return Finding(
            id="tool_call",
            severity=Severity.NOTE,
            summary="not supported: the tools are accepted and do not reach the model",
            expected=f"at least {_TOOL_TOKENS} prompt tokens more with tools than without",
            explanation="the chat template has no place for tools, so they are left out without a word",
            action="nothing, if no client uses tools; else a chat template or a model with tools",
            evidence=quote,
        )
    size = SIZE_WORDS[deployment.ability]
    if deployment.ability is Ability.CAPABLE:
        severity, action = Severity.WARNING, "compare the chat template with the model's own"
        explanation = f"{size} calls a tool when told to; the template may present tools wrongly"
    else:
        severity, action = Severity.NOTE, "nothing, if no client uses tools"
        explanation = f"{size} may not be up to it"
    return Finding(
        id="tool_call",
        severity=severity,
        summary="the model answers in words instead of calling the tool",
        expected=_EXPECTED,
        explanation=explanation,
        action=action,
        evidence=quote,
    )


def _of_call(finding_id: str, ability: Ability, call: ToolCall, reply: ChatReply) -> Finding:
    """The finding for a call that arrived as one."""
    quote = (
        Evidence(
            source=f"answer tool_call/{'streamed' if reply.is_stream else 'whole'}",
            text=f"{call.name}({call.arguments[:200]})",
        ),
    )
    wrong, is_form = _wrong(call)
    if not wrong:
        return Finding(
            id=finding_id,
            severity=Severity.OK,
            summary=f"the call arrives{' in a stream' if reply.is_stream else ''}: {quote[0].text}",
            expected=_EXPECTED,
            evidence=quote,
        )
    if is_form and reply.finish_reason == "length":
        severity, explanation = Severity.UNKNOWN, "the call was cut off before its end, so it says nothing"
    elif is_form:
        severity, explanation = Severity.FAILURE, "clients cannot read the arguments, so every call fails"
    elif ability is Ability.CAPABLE:
        severity, explanation = Severity.WARNING, f"{SIZE_WORDS[ability]} fills in one argument rightly"
    else:
        severity, explanation = Severity.NOTE, f"{SIZE_WORDS[ability]} may not be up to it"
    return Finding(
        id=finding_id,
        severity=severity,
        summary=wrong,
        expected=_EXPECTED,
        explanation=explanation,
        action="check that the tool parser is the model's own, and compare the chat template",
        evidence=quote,
    )


def _wrong(call: ToolCall) -> tuple[str, bool]:
    """What is wrong with a call, in words, and whether it is its form; empty when nothing is."""
    if call.name != _TOOL:
        return f"the call names `{call.name}`, which was not offered", False
    try:
        arguments = read_strict_json(call.arguments)
    except UnreadableAnswer:
        return "the arguments of the call are not JSON", True
    if not isinstance(arguments, dict):
        return "the arguments of the call are no JSON object", True
    city = text_at(arguments, "city")
    if city is None or not says_word(city, _CITY):
        return f"the call does not carry the city {_CITY}", False
    return "", False


def _of_streamed(whole: ChatReply, streamed: ChatReply) -> Finding:
    """The finding for the streamed reply, held against the whole one."""
    if not streamed.tool_calls:
        return Finding(
            id="tool_call.streamed",
            severity=Severity.FAILURE,
            summary="the tool call is lost when the answer is streamed",
            expected="the same call streamed as in one piece",
            explanation="agents stream, and see an answer without a call",
            action="update the engine: its tool parser misses calls that arrive in pieces",
            evidence=(Evidence(source="answer tool_call/streamed", text=streamed.everything[:300]),),
        )
    call = streamed.tool_calls[0]
    wrong, is_form = _wrong(call)
    if is_form or (whole.tool_calls and wrong and not _wrong(whole.tool_calls[0])[0]):
        return Finding(
            id="tool_call.streamed",
            severity=Severity.UNKNOWN if streamed.finish_reason == "length" else Severity.FAILURE,
            summary=f"streamed: {wrong}",
            expected="the same call streamed as in one piece",
            explanation="agents stream; the pieces of the call do not make up the call",
            action="update the engine: its tool parser puts streamed calls together wrongly",
            evidence=(
                Evidence(source="answer tool_call/streamed", text=f"{call.name}({call.arguments[:200]})"),
            ),
        )
    return _of_call("tool_call.streamed", Ability.UNKNOWN, call, streamed)


def _start_with(fixes: tuple[Fix, ...]) -> str:
    return f"start the engine with {as_arguments(fixes)}"


CHECK = Check(title="calls a tool", asks=_asks, judge=_judge)
