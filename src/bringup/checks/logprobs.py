"""Log-probabilities are sane; with greedy answers of fixed prompts they are the fingerprint of the numerics.

Source: vLLM 0.32.0, SGLang 0.5.23 and llama.cpp answer `logprobs`/`top_logprobs` in OpenAI's chat form; vLLM
and SGLang score a given text through `/v1/completions` with `echo`. NaN in the logits shows as NaN here or as
a 500 about values that are "not JSON compliant" (vLLM). SmolLM2-135M: -0.1 to -2.5 per greedy token; weights
drawn at random: about -ln(vocabulary), -10 to -12. Asked one by one on a quiet engine, since a batch rounds
otherwise and the fingerprint would change with it.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence

from bringup.checks import Batch, Check, Replies
from bringup.parse.answer_fault import Fault, FaultKind, fault_finding, fault_of, reply_or_fault
from bringup.parse.chat import ChatReply, TokenLogprob
from bringup.parse.chat_request import chat_body
from bringup.parse.json_value import at, float_at, json_or_none, list_at, text_at
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.exchange import Answer, Ask
from bringup.values.finding import Evidence, Finding, Fingerprint, Judgement, Measurement, Severity

# Never reworded and never renumbered: fingerprints of two runs are compared by these keys.
_PROMPTS = {
    "sea": "Say hi to the captain.",
    "capital": "What is the capital of France? Answer with one word.",
    "count": "Count from 1 to 5.",
    "code": "Write a Python function that adds two numbers.",
}
_TEXTS = {"text": "The quick brown fox jumps over the lazy dog. Two plus two is four."}
_QUICK = ("sea", "capital")
_TOKENS = 8
_TOP = 5
_ABOVE_ZERO = 1e-3  # rounding of bfloat16 logits
_ABOVE_ONE = 0.02  # sum of the alternatives' probabilities over 1
_BEHIND = 0.3  # nats that a greedy token may lie behind the best: two equal logits in bfloat16
_GUESSING = -4.0  # mean over greedy tokens: below it the model has no idea what comes next
_RANDOM = -6.0  # below it, no training was: a tiny Qwen3 with weights drawn at random gives -8.9


def asks(deployment: Deployment, replies: Replies) -> Batch:
    """One prompt after the other; once logprobs are refused without them, for the greedy answers alone."""
    answers = replies.answers
    is_refused = any(_is_refused(answer) for key, answer in answers.items() if key in _PROMPTS)
    for key in _keys(deployment):
        if is_refused and f"{key} plain" not in answers:
            return (_ask(deployment, key, is_plain=True),)
        if not is_refused and key not in answers:
            return (_ask(deployment, key, is_plain=False),)
    return tuple(ask for ask in _scoring(deployment) if ask.key not in answers and not is_refused)


def judge(deployment: Deployment, replies: Replies) -> Judgement:
    """What is wrong with the log-probabilities, and the fingerprint of what came."""
    got = {key: reply_or_fault(replies.answers.get(key)) for key in _keys(deployment)}
    whole = {key: reply for key, reply in got.items() if isinstance(reply, ChatReply)}
    rows = {key: reply.logprobs for key, reply in whole.items() if reply.logprobs}
    findings = tuple(_findings(deployment, got, rows))
    tokens = [row.logprob for those in rows.values() for row in those]
    mean = _mean(tokens)
    if not findings:
        average = "" if mean is None else f", {mean:.2f} on average"
        ok = Finding(
            id="logprobs",
            severity=Severity.OK,
            summary=f"{len(tokens)} log-probabilities, all sane{average}",
            expected="finite, at most 0, and the best token chosen at temperature 0",
        )
        findings = (ok,)
    return Judgement(
        findings=findings,
        measurements=(
            Measurement(name="mean log-probability of greedy tokens", value=mean, unit="nats/token"),
        ),
        fingerprint=_fingerprint(replies, rows, whole),
    )


def _keys(deployment: Deployment) -> tuple[str, ...]:
    return _QUICK if deployment.depth is Depth.QUICK else tuple(_PROMPTS)


def _ask(deployment: Deployment, key: str, *, is_plain: bool) -> Ask:
    model, prompt = deployment.model.id, _PROMPTS[key]
    if is_plain:
        return Ask(key=f"{key} plain", body=chat_body(model, prompt, max_tokens=_TOKENS))
    body = chat_body(model, prompt, max_tokens=_TOKENS, logprobs=True, top_logprobs=_TOP)
    return Ask(key=key, body=body)


def _scoring(deployment: Deployment) -> tuple[Ask, ...]:
    """Fixed texts to be scored, where the engine can; not asked in a hurry."""
    if deployment.depth is Depth.QUICK:
        return ()
    return tuple(
        Ask(
            key=key,
            path="/v1/completions",
            body=json.dumps(
                {
                    "model": deployment.model.id,
                    "prompt": text,
                    "max_tokens": 1,
                    "temperature": 0,
                    "echo": True,
                    "logprobs": 1,
                }
            ),
        )
        for key, text in _TEXTS.items()
    )


def _is_refused(answer: Answer) -> bool:
    fault = fault_of(answer)
    return fault is not None and fault.kind is FaultKind.REFUSED


def _findings(
    deployment: Deployment,
    got: dict[str, ChatReply | Fault],
    rows: dict[str, tuple[TokenLogprob, ...]],
) -> Iterator[Finding]:
    expected = "log-probabilities for every token, as asked"
    refusal = next((fault for fault in got.values() if isinstance(fault, Fault)), None)
    if refusal is not None and refusal.kind is not FaultKind.REFUSED:
        yield _fault(refusal, expected)
    elif not rows:
        yield Finding(
            id="logprobs",
            severity=Severity.NOTE,
            summary="not supported: " + (refusal.what if refusal else "answers carry no log-probabilities"),
            expected=expected,
            explanation="without them a change of numerics can only be seen in the greedy texts",
            action="none, unless clients need them",
            evidence=(Evidence(source="answer logprobs", text=refusal.quote),) if refusal else (),
        )
    yield from _wrong_values(rows)
    yield from _level(deployment, rows)


def _fault(fault: Fault, expected: str) -> Finding:
    if "json compliant" in fault.quote.lower():
        return Finding(
            id="logprobs",
            severity=Severity.FAILURE,
            summary=f"the logits hold NaN or infinity: {fault.what}",
            expected=expected,
            explanation="numbers that are no numbers come out of the model: wrong weights, scales or kernels",
            action="compare the weights' checksums and try another attention or quantisation backend",
            evidence=(Evidence(source="answer logprobs", text=fault.quote),),
        )
    return fault_finding("logprobs", fault, source="answer logprobs", expected=expected)


def _wrong_values(rows: dict[str, tuple[TokenLogprob, ...]]) -> Iterator[Finding]:
    flat = tuple((key, row) for key, those in rows.items() for row in those)
    if any(not _is_number(row) for _, row in flat):
        yield _wrong(
            Severity.FAILURE, "log-probabilities that are no numbers", flat, lambda row: not _is_number(row)
        )
        return
    for what, is_wrong in _FAULTS:
        if any(is_wrong(row) for _, row in flat):
            yield _wrong(Severity.WARNING, what, flat, is_wrong)
            return  # the others follow from it
    if len(flat) >= _TOKENS and len({row.logprob for _, row in flat}) == 1:
        yield _wrong(Severity.WARNING, "log-probabilities that are all the same", flat, lambda _: True)


def _is_number(row: TokenLogprob) -> bool:
    """Whether its values are numbers; an alternative may have no probability at all, a chosen token not."""
    alternatives = (value for _, value in row.top)
    return math.isfinite(row.logprob) and not any(
        math.isnan(value) or value == math.inf for value in alternatives
    )


def _mean(values: Sequence[float]) -> float | None:
    """The mean, without overflow whatever was sent; None when there is no value or one that is no number."""
    if not values or not all(map(math.isfinite, values)):
        return None
    return math.fsum(value / len(values) for value in values)


def _sums_over_one(row: TokenLogprob) -> bool:
    return math.fsum(math.exp(min(0.0, value)) for _, value in row.top) > 1 + _ABOVE_ONE


def _is_not_best(row: TokenLogprob) -> bool:
    """Whether the token lies well behind the best; by value, as the texts of byte tokens are ambiguous."""
    return bool(row.top) and row.logprob < max(value for _, value in row.top) - _BEHIND


_FAULTS: tuple[tuple[str, Callable[[TokenLogprob], bool]], ...] = (
    ("log-probabilities above 0", lambda row: row.logprob > _ABOVE_ZERO),
    ("alternatives whose probabilities add up to more than 1", _sums_over_one),
    ("greedy tokens that are not the likeliest", _is_not_best),
)


def _wrong(
    severity: Severity,
    what: str,
    flat: Sequence[tuple[str, TokenLogprob]],
    is_wrong: Callable[[TokenLogprob], bool],
) -> Finding:
    wrong = [(key, row) for key, row in flat if is_wrong(row)]
    return Finding(
        id="logprobs.values",
        severity=severity,
        summary=f"{what}: {len(wrong)} of {len(flat)} tokens",
        expected="finite, at most 0, and the best token chosen at temperature 0",
        explanation="the model's numbers are wrong, or the engine or a proxy reports them wrongly, or it "
        "samples although temperature is 0; scoring and evaluation on this endpoint mislead",
        action="compare with the same weights on another engine or version",
        evidence=tuple(
            Evidence(
                source=f"answer logprobs/{key}", text=f"`{row.token}` {row.logprob:g}, best {row.top[:2]}"
            )
            for key, row in wrong[:4]
        ),
    )


def _level(deployment: Deployment, rows: dict[str, tuple[TokenLogprob, ...]]) -> Iterator[Finding]:
    values = [row.logprob for those in rows.values() for row in those]
    mean = _mean(values)
    if len(values) < _TOKENS or mean is None or mean > _GUESSING:
        return
    is_certain = deployment.ability is Ability.CAPABLE or mean < _RANDOM
    yield Finding(
        id="logprobs.guessing",
        severity=Severity.FAILURE if is_certain else Severity.WARNING,
        summary=f"the model guesses: its own best tokens have {mean:.1f} nats on average",
        expected="about -0.1 to -2.5 for greedy tokens of a trained model, however small",
        explanation="near the logarithm of the vocabulary's size this is what random or damaged weights give",
        action="compare the weights' checksums; check quantisation scales and rope settings",
        evidence=tuple(
            Evidence(source=f"answer logprobs/{key}", text="".join(row.token for row in those))
            for key, those in rows.items()
        ),
    )


def _fingerprint(
    replies: Replies, rows: dict[str, tuple[TokenLogprob, ...]], whole: dict[str, ChatReply]
) -> Fingerprint | None:
    texts = {key: reply.everything for key, reply in whole.items()}
    for key in _PROMPTS:
        plain = reply_or_fault(replies.answers.get(f"{key} plain"))
        if isinstance(plain, ChatReply):
            texts[key] = plain.everything
    scored = {key: tuple((row.token, row.logprob) for row in those) for key, those in rows.items()}
    for key, text in _TEXTS.items():
        if values := _scores(replies.answers.get(key), text):
            scored[key] = values
    if not texts and not scored:
        return None
    return Fingerprint(texts=tuple(sorted(texts.items())), logprobs=tuple(sorted(scored.items())))


def _scores(answer: Answer | None, text: str) -> tuple[tuple[str, float], ...]:
    """Log-probability of each token of a given text, where the engine echoed it; the first token has none."""
    if answer is None or answer.problem is not None or answer.status != 200:
        return ()
    choice = at(json_or_none(answer.body), "choices", 0)
    echoed = text_at(choice, "text") or ""
    if not echoed.startswith(text):
        return ()
    tokens = list_at(choice, "logprobs", "tokens")
    values = list_at(choice, "logprobs", "token_logprobs")
    pairs = [(str(token), float_at(value)) for token, value in zip(tokens, values, strict=False)]
    # the last token was generated, not given
    return tuple((token, value) for token, value in pairs[:-1] if value is not None)


CHECK = Check(
    title="log-probabilities and fingerprint", phase="exclusive", depth=Depth.QUICK, asks=asks, judge=judge
)
