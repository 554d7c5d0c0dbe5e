"""Whether the model answers a question that every chat model can answer.

Source: the questions of `parse/known_facts.py`, with the model that answers them.
"""

from collections.abc import Callable

from bringup.checks import Batch, Check, Replies
from bringup.parse.chat_request import chat_body
from bringup.parse.known_facts import CAPITAL, CAPITAL_NAMED, JAPAN, SKY, Fact
from bringup.parse.second_try import next_asks
from bringup.parse.tally import cut_off_findings, fault_findings, graded_findings, tally
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import Judgement

_FACTS = (CAPITAL, CAPITAL_NAMED, JAPAN, SKY)
_MAX_TOKENS = 24


def _facts(deployment: Deployment) -> tuple[Fact, ...]:
    return _FACTS[:1] if deployment.depth is Depth.QUICK else _FACTS


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    first = tuple(
        Ask(key=fact.key, body=chat_body(deployment.model.id, fact.question, max_tokens=_MAX_TOKENS))
        for fact in _facts(deployment)
    )
    return next_asks(first, replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    tests: list[tuple[str, Callable[[str], bool]]] = [(fact.key, fact.is_in) for fact in _facts(deployment)]
    heard = tally("fact", tests, replies.answers)
    graded = graded_findings(
        "fact",
        heard,
        what="facts right",
        ability=deployment.ability,
        able_from=Ability.SMALL,
        expected="Paris, and other facts of one word",
    )
    return Judgement(findings=(*fault_findings(heard, len(tests)), *cut_off_findings("fact", heard), *graded))


CHECK = Check(title="answers a fact", depth=Depth.QUICK, asks=_asks, judge=_judge)
