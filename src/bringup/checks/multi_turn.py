"""Whether the earlier turns of a conversation reach the model.

Two things tell: what the model remembers, and how many tokens the engine counted. The second one also works
for a model that is too small to remember.

Source: `usage.prompt_tokens` as vLLM 0.32.0, SGLang 0.5.23 and llama.cpp count it: the template's tokens with
it.
"""

from functools import partial

from bringup.checks import Batch, Check, Replies
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import Json
from bringup.parse.prompt_growth import prompt_growth
from bringup.parse.second_try import next_asks
from bringup.parse.short_answer import says_word
from bringup.parse.tally import cut_off_findings, fault_findings, graded_findings, tally
from bringup.values.deployment import Ability, Deployment
from bringup.values.exchange import Ask
from bringup.values.finding import Evidence, Finding, Judgement, Severity

_QUESTION = "What is my name? Answer with one word."
_TRANSCRIPT: tuple[dict[str, Json], ...] = (
    {"role": "user", "content": "Hello! My name is Ada and I build bridges in Lisbon."},
    {"role": "assistant", "content": "Nice to meet you, Ada. Bridges in Lisbon must be a pleasure to build."},
    {"role": "user", "content": "They are. Please keep my name in mind."},
    {"role": "assistant", "content": "I will keep it in mind."},
    {"role": "user", "content": _QUESTION},
)
_EARLIER_TOKENS = 20  # the earlier turns take about 60 tokens in any vocabulary


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    model = deployment.model.id
    first = (
        Ask(key="name", body=chat_body(model, _TRANSCRIPT, max_tokens=24)),
        Ask(key="alone", body=chat_body(model, _QUESTION, max_tokens=1)),
    )
    missing = tuple(ask for ask in first if ask.key not in replies.answers)
    return missing or next_asks(first[:1], replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    heard = tally("multi_turn", [("name", partial(says_word, word="Ada"))], replies.answers)
    if heard.wrong and (lost := _lost_turns(replies)):
        return Judgement(findings=(lost,))
    graded = graded_findings(
        "multi_turn",
        heard,
        what="facts of earlier turns remembered",
        ability=deployment.ability,
        able_from=Ability.CAPABLE,
        expected="the name that was given three turns before",
    )
    return Judgement(findings=(*fault_findings(heard, 1), *cut_off_findings("multi_turn", heard), *graded))


def _lost_turns(replies: Replies) -> Finding | None:
    """The finding that the engine drops earlier turns, by its own token counts; None when it does not."""
    growth = prompt_growth(replies.answers.get("name"), replies.answers.get("alone"))
    if growth is None or growth.tokens >= _EARLIER_TOKENS:
        return None
    return Finding(
        id="multi_turn",
        severity=Severity.FAILURE,
        summary="the earlier turns of a conversation do not reach the model",
        expected=f"at least {_EARLIER_TOKENS} prompt tokens more with the earlier turns than without",
        explanation="every conversation starts anew at each message, and nothing tells the client so",
        action="compare the chat template with the model's own, and look for a proxy that cuts messages",
        evidence=(
            Evidence(
                source="answer multi_turn/name",
                text=f"{growth.with_it} prompt tokens with them, {growth.without} without",
            ),
        ),
    )


CHECK = Check(title="remembers earlier turns", asks=_asks, judge=_judge)
