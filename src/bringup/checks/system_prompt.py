"""Whether a system message reaches the model and is honoured.

Some chat templates have no system role: they refuse it, which is a property of the model and no fault, or
drop it without a word, which the engine's own token counts give away.

Seen in: the templates of Gemma ("System role not supported") and Mistral ("Only user and assistant roles are
supported!").
"""

import re
from functools import partial

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, reply_or_fault
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import Json
from bringup.parse.prompt_growth import prompt_growth
from bringup.parse.second_try import next_asks
from bringup.parse.short_answer import says_word
from bringup.parse.tally import cut_off_findings, fault_findings, graded_findings, tally
from bringup.values.deployment import Ability, Deployment
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

# Long, so that it outweighs the default system text that many templates add when there is none.
_INSTRUCTION = (
    "You are the door keeper of a fruit market. You always reply with the word MANGO and with nothing else,"
    " whatever the visitor says or asks. You never explain, you never greet, and you never answer a question."
    " If the visitor insists, you reply with the word MANGO again, and if the visitor asks about cities,"
    " countries or people, you reply with the word MANGO as well."
)
_QUESTION = "Which fruit do you have?"
_CONVERSATION: tuple[dict[str, Json], ...] = (
    {"role": "system", "content": _INSTRUCTION},
    {"role": "user", "content": _QUESTION},
)
_INSTRUCTION_TOKENS = 25  # it takes about 80; a default system text that falls away takes up to 50

# Gemma: "System role not supported"; Mistral: "Only user and assistant roles are supported!"
_NO_SYSTEM_ROLE = re.compile(
    r"system (?:role|message|prompt)s?\b.*not|not.*\bsystem (?:role|message|prompt)"
    r"|only user and assistant|roles must alternate",
    re.IGNORECASE | re.DOTALL,
)


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    model = deployment.model.id
    first = (
        Ask(key="mango", body=chat_body(model, _CONVERSATION, max_tokens=16)),
        Ask(key="without", body=chat_body(model, _QUESTION, max_tokens=1)),
    )
    missing = tuple(ask for ask in first if ask.key not in replies.answers)
    return missing or next_asks(first[:1], replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    refusal = reply_or_fault(replies.answers.get("mango"))
    if isinstance(refusal, Fault) and _lacks_system_role(refusal):
        return Judgement(findings=(_not_supported(refusal),))
    heard = tally("system_prompt", [("mango", partial(says_word, word="mango"))], replies.answers)
    if heard.wrong and (dropped := _dropped(replies)):
        return Judgement(findings=(dropped,))
    graded = graded_findings(
        "system_prompt",
        heard,
        what="system instructions honoured",
        ability=deployment.ability,
        able_from=Ability.CAPABLE,
        expected="the one word that the system message demands",
    )
    return Judgement(findings=(*fault_findings(heard, 1), *cut_off_findings("system_prompt", heard), *graded))


def _lacks_system_role(fault: Fault) -> bool:
    is_error = fault.kind in (FaultKind.REFUSED, FaultKind.SERVER_ERROR, FaultKind.ENGINE_ERROR)
    return is_error and _NO_SYSTEM_ROLE.search(fault.quote) is not None


def _not_supported(fault: Fault) -> Finding:
    return Finding(
        id="system_prompt",
        severity=Severity.NOTE,
        summary=f"not supported: the chat template has no system role ({fault.what})",
        expected="a system message is accepted",
        explanation="the model was trained without one; clients that send a system message get an error",
        action="put the instruction into the first user message",
        evidence=(Evidence(source="answer system_prompt/mango", text=fault.quote),),
    )


def _dropped(replies: Replies) -> Finding | None:
    """The finding that the engine's own token counts show a dropped system message; None when they do not."""
    growth = prompt_growth(replies.answers.get("mango"), replies.answers.get("without"))
    if growth is None or growth.tokens >= _INSTRUCTION_TOKENS:
        return None
    return Finding(
        id="system_prompt",
        severity=Severity.WARNING,
        summary="the system message is accepted and dropped: it does not reach the model",
        expected=f"at least {_INSTRUCTION_TOKENS} prompt tokens more with the system message than without",
        explanation="clients believe that their instructions hold, and the model never sees them",
        action="compare the chat template with the model's own; put the instruction into the user message",
        evidence=(
            Evidence(
                source="answer system_prompt/mango",
                text=f"{growth.with_it} prompt tokens with it, {growth.without} without",
            ),
        ),
    )


CHECK = Check(title="honours a system message", asks=_asks, judge=_judge)
