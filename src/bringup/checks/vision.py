"""Whether a multimodal model sees: a square of one colour, and one digit, both made here.

Of a model that neither its engine nor its name nor its config calls one that sees, nothing is said.

Source: the content part `image_url` of OpenAI's chat interface with a `data:` URL, as vLLM, SGLang and
llama.cpp take it.
"""

import re
from collections.abc import Callable

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, reply_or_fault
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import Json
from bringup.parse.picture import digit_picture, plain_picture
from bringup.parse.second_try import next_asks
from bringup.parse.short_answer import gives_number, says_word
from bringup.parse.tally import cut_off_findings, fault_findings, graded_findings, tally
from bringup.values.deployment import Ability, Deployment
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

# Names of families that see. A name is a guess: the engine's own word counts more.
_SEES = re.compile(
    r"vision|[-_.]vl\b|\bvl[-_.]|\d-?vl\b|llava|pixtral|internvl|minicpm-?v|molmo|multimodal|omni\b|paligemma"
    r"|gemma-?3-(?:4|12|27)b|gemma-?3n|gemma-?4|llama-?4|glm-?4\.\dv|kimi-?vl|kimi-?k2\.5|mistral-small-3\.[1-9]"
    r"|qwen-?3\.[5-9]",
    re.IGNORECASE,
)
_MAX_TOKENS = 24
_EXPECTED = "the colour of a red square and the digit in a picture of a 7"


def _is_red(text: str) -> bool:
    return any(says_word(text, word) for word in ("red", "scarlet", "crimson"))


def _is_seven(text: str) -> bool:
    return gives_number(text, 7) or says_word(text, "seven")


# key, question, picture, test
_EXERCISES: tuple[tuple[str, str, Callable[[], str], Callable[[str], bool]], ...] = (
    (
        "colour",
        "What color is this picture? Answer with one word.",
        lambda: plain_picture((255, 0, 0)),
        _is_red,
    ),
    (
        "digit",
        "Which digit does this picture show? Answer with the digit only.",
        lambda: digit_picture("7"),
        _is_seven,
    ),
)


def _is_asked(deployment: Deployment) -> bool:
    if deployment.engine.supports_vision is not None:
        return deployment.engine.supports_vision
    return _is_named_so(deployment)


def _is_named_so(deployment: Deployment) -> bool:
    return _SEES.search(f"{deployment.model.id} {deployment.model.root or ''}") is not None


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    if not _is_asked(deployment):
        return ()
    first = tuple(
        Ask(
            key=key,
            body=chat_body(deployment.model.id, [_message(question, picture())], max_tokens=_MAX_TOKENS),
        )
        for key, question, picture, _ in _EXERCISES
    )
    return next_asks(first, replies.answers, deployment)


def _message(question: str, picture: str) -> dict[str, Json]:
    return {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": picture}},
            {"type": "text", "text": question},
        ],
    }


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    if not _is_asked(deployment):
        return Judgement(findings=_not_asked(deployment))
    refusal = reply_or_fault(replies.answers.get("colour"))
    if isinstance(refusal, Fault) and refusal.kind is FaultKind.REFUSED:
        return Judgement(findings=(_refused(deployment, refusal),))
    heard = tally("vision", [(key, test) for key, _, _, test in _EXERCISES], replies.answers)
    graded = graded_findings(
        "vision",
        heard,
        what="pictures recognised",
        ability=deployment.ability,
        able_from=Ability.CAPABLE,
        expected=_EXPECTED,
    )
    return Judgement(findings=(*fault_findings(heard, 2), *cut_off_findings("vision", heard), *graded))


def _not_asked(deployment: Deployment) -> tuple[Finding, ...]:
    """A note where it is in doubt whether the model sees; nothing for a model of text."""
    who = [
        word
        for word, says in (("name", _is_named_so(deployment)), ("config", deployment.has_encoder))
        if says
    ]
    if not who:
        return ()
    is_told = deployment.engine.supports_vision is False
    engine = "the engine takes text only" if is_told else "the engine does not say that it takes pictures"
    finding = Finding(
        id="vision",
        severity=Severity.NOTE,
        summary=f"no pictures were shown: {engine}, though the model's {' and '.join(who)} "
        f"say{'s' if len(who) == 1 else ''} that it sees",
        expected=_EXPECTED,
        explanation="it is served for text only, or its part for pictures was not loaded",
        action="none, if it is meant for text only; else look in the engine's log for its vision part",
    )
    return (finding,)


def _refused(deployment: Deployment, fault: Fault) -> Finding:
    is_told = deployment.engine.supports_vision is True
    return Finding(
        id="vision",
        severity=Severity.WARNING if is_told else Severity.NOTE,
        summary=f"pictures are refused: {fault.what}",
        expected=_EXPECTED,
        explanation=(
            "the engine says that it takes pictures and refuses one"
            if is_told
            else "the model's name says that it sees, but it is served for text only"
        ),
        action="look for a limit on pictures per prompt, a text-only switch or a missing projector file",
        evidence=(Evidence(source="answer vision/colour", text=fault.quote),),
    )


CHECK = Check(title="recognises a picture", asks=_asks, judge=_judge)
