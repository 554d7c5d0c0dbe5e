"""Whether the model answers a question that every chat model can answer.

The wordings ask for one word: a bare "What is the capital of France?" sends a 135M model astray although
nothing is broken.

Seen in: SmolLM2-135M-Instruct Q4_1 at temperature 0, which answers Paris to these wordings.
"""

from collections.abc import Callable
from functools import partial

from bringup.checks import Batch, Check, Replies
from bringup.parse.chat_request import chat_body
from bringup.parse.second_try import next_asks
from bringup.parse.short_answer import says_word
from bringup.parse.tally import cut_off_findings, fault_findings, graded_findings, tally
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Ask
from bringup.values.finding import Judgement

# key, question, the word that must be said
_QUESTIONS = (
    ("capital", "What is the capital of France? Answer with one word.", "Paris"),
    ("capital_named", "Name the capital city of France.", "Paris"),
    ("japan", "What is the capital of Japan? Answer with one word.", "Tokyo"),
    ("sky", "What color is the sky on a clear day? Answer with one word.", "blue"),
)
_MAX_TOKENS = 24


def _questions(deployment: Deployment) -> tuple[tuple[str, str, str], ...]:
    return _QUESTIONS[:1] if deployment.depth is Depth.QUICK else _QUESTIONS


def _asks(deployment: Deployment, replies: Replies) -> Batch:
    first = tuple(
        Ask(key=key, body=chat_body(deployment.model.id, question, max_tokens=_MAX_TOKENS))
        for key, question, _ in _questions(deployment)
    )
    return next_asks(first, replies.answers, deployment)


def _judge(deployment: Deployment, replies: Replies) -> Judgement:
    tests: list[tuple[str, Callable[[str], bool]]] = [
        (key, partial(says_word, word=word)) for key, _, word in _questions(deployment)
    ]
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
