"""Whether `response_format: json_schema` is enforced, silently ignored or not supported.

The question does not mention JSON, so an answer of exactly that form can only come from enforcement.

Source: `response_format` of OpenAI's chat interface, as vLLM 0.32.0, SGLang 0.5.23 and llama.cpp enforce it.
The numbers in such answers can be absurd (11.13e+18) without any fault of form.
"""

from bringup.checks import Batch, Check, Replies
from bringup.errors import UnreadableAnswer
from bringup.parse.answer_fault import Fault, FaultKind, reply_or_fault
from bringup.parse.chat_request import chat_body
from bringup.parse.json_schema import read_strict_json, violations
from bringup.parse.json_value import Json
from bringup.parse.second_try import next_asks, settled
from bringup.parse.tally import Heard, hear, quotes
from bringup.values.deployment import Deployment, Depth
from bringup.values.exchange import Answer, Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_FACTS: dict[str, Json] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "country": {"type": "string"},
        "population_millions": {"type": "number"},
    },
    "required": ["city", "country", "population_millions"],
    "additionalProperties": False,
}
_TRAFFIC: dict[str, Json] = {
    "type": "object",
    "properties": {
        "lights": {
            "type": "array",
            "items": {"type": "string", "enum": ["crimson", "amber", "emerald"]},
            "minItems": 1,
            "maxItems": 3,
        },
        "crossing": {
            "type": "object",
            "properties": {"lanes": {"type": "integer"}},
            "required": ["lanes"],
            "additionalProperties": False,
        },
    },
    "required": ["lights", "crossing"],
    "additionalProperties": False,
}
# key, question, schema
_EXERCISES: tuple[tuple[str, str, dict[str, Json]], ...] = (
    ("facts", "Tell me about Paris.", _FACTS),
    ("nested", "What colors do traffic lights have?", _TRAFFIC),
)
_MAX_TOKENS = 96
_ENFORCING = ("vllm", "sglang", "llama_cpp", "tensorrt_llm", "lmdeploy")  # engines known to enforce schemas
_EXPECTED = "an answer that is JSON of the schema and nothing else"


def _exercises(deployment: Deployment) -> tuple[tuple[str, str, dict[str, Json]], ...]:
    return _EXERCISES if deployment.depth is Depth.FULL else _EXERCISES[:1]


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    first = tuple(
        Ask(
            key=key,
            body=chat_body(
                deployment.model.id,
                question,
                max_tokens=_MAX_TOKENS,
                response_format={
                    "type": "json_schema",
                    "json_schema": {"name": key, "schema": schema, "strict": True},
                },
            ),
        )
        for key, question, schema in _exercises(deployment)
    )
    return next_asks(first, replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    findings = [
        _finding(deployment, key, schema, settled(replies.answers, key))
        for key, _, schema in _exercises(deployment)
    ]
    return Judgement(findings=tuple(findings))


def _finding(deployment: Deployment, key: str, schema: Json, answer: Answer | None) -> Finding:
    finding_id = "json_schema" if key == _EXERCISES[0][0] else f"json_schema.{key}"
    reply = reply_or_fault(answer)
    if isinstance(reply, Fault) and reply.kind is FaultKind.REFUSED:
        return _refused(finding_id, key, reply)
    heard = hear("json_schema", key, {key: answer} if answer else {})
    if isinstance(heard, Finding):
        return heard
    return _of_text(deployment, finding_id, schema, heard)


def _of_text(deployment: Deployment, finding_id: str, schema: Json, heard: Heard) -> Finding:
    """The finding for an answer that came."""
    text = heard.spoken.answer
    quote = quotes("json_schema", [heard])
    if heard.is_cut and (not text or text.startswith("{")):
        return _cut_off(finding_id, text, quote)
    wrong = _wrong(text, schema)
    if not wrong:
        return Finding(
            id=finding_id,
            severity=Severity.OK,
            summary="the schema is enforced",
            expected=_EXPECTED,
            evidence=quote,
        )
    return _ignored(finding_id, deployment.engine.engine, wrong, quote)


def _wrong(text: str, schema: Json) -> str:
    """What is wrong with the answer, in words; empty when nothing is."""
    try:
        value = read_strict_json(text)
    except UnreadableAnswer:
        return "the answer is not JSON"
    found = violations(value, schema)
    return f"JSON, but {'; '.join(found[:3])}" if found else ""


def _refused(finding_id: str, key: str, fault: Fault) -> Finding:
    return Finding(
        id=finding_id,
        severity=Severity.NOTE,
        summary=f"not supported: {fault.what}",
        expected=_EXPECTED,
        explanation="clients that ask for a schema get an error, so they notice",
        action="read the message: most engines need a grammar backend or a newer version",
        evidence=(Evidence(source=f"answer json_schema/{key}", text=fault.quote),),
    )


def _cut_off(finding_id: str, text: str, quote: tuple[Evidence, ...]) -> Finding:
    """The finding for an answer that ran out of tokens: enforced as far as one can see, or not begun."""
    begun = text.startswith("{")
    return Finding(
        id=finding_id,
        severity=Severity.NOTE if begun else Severity.UNKNOWN,
        summary=(
            "the answer is JSON as far as it goes, but did not end in the tokens allowed"
            if begun
            else "not measured: the reasoning trace did not end in the tokens allowed"
        ),
        expected=_EXPECTED,
        explanation="a schema bounds the form of a string, not its length, so small models ramble inside one",
        action="give requests room, and strings in the schema a `maxLength`",
        evidence=quote,
    )


def _ignored(finding_id: str, engine: str, wrong: str, quote: tuple[Evidence, ...]) -> Finding:
    is_known = engine in _ENFORCING
    return Finding(
        id=finding_id,
        severity=Severity.WARNING if is_known else Severity.NOTE,
        summary=f"the schema is accepted and not enforced: {wrong}",
        expected=_EXPECTED,
        explanation="clients that rely on the form break now and then, and nothing tells them why",
        action=(
            "look for a grammar backend that is switched off, and for a proxy that drops `response_format`"
            if is_known
            else "validate answers on the client's side; this server may not know `json_schema`"
        ),
        evidence=quote,
    )


CHECK = Check(title="keeps to a JSON schema", asks=_asks, judge=_judge)
