import json

import pytest

from bringup.checks.context_limit import CHECK
from bringup.values.deployment import Depth
from bringup.values.exchange import Problem

REASON = "This model's maximum context length is 2048 tokens."


def refusing(make):
    """An engine that refuses what is too long."""
    return lambda ask: make.error(ask.key, 400, REASON) if ask.key == "over" else make.whole(ask.key, "hi")


def judged(make, over, after=None, **options):
    after = after or make.whole("after", "hi")
    before = make.whole("before", "hi")
    return make.found(make.judge(CHECK, make.deployment(**options), before, over, after))


def test_refused_with_a_reason(make):
    result = make.run(
        CHECK,
        make.deployment(),
        lambda ask: make.error(ask.key, 400, REASON) if ask.key == "over" else make.whole(ask.key, "hi"),
    )
    assert make.found(result.judgement) == {"context_limit": "ok"}
    assert [ask.key for ask in result.asked] == ["before", "over", "after"]
    prompt = json.loads(result.asked[1].body)["messages"][0]["content"]
    assert len(prompt.split()) > 2048


@pytest.mark.parametrize("status", [400, 413, 422])
def test_any_refusal_will_do(make, status):
    assert judged(make, make.error("over", status, REASON)) == {"context_limit": "ok"}


def test_without_a_reason(make):
    assert judged(make, make.error("over", 400, "bad request")) == {"context_limit": "note"}


def test_server_error(make):
    assert judged(make, make.error("over", 500, "boom")) == {"context_limit": "warning"}


def test_hang_and_reset(make):
    assert judged(make, make.broken("over", Problem.TIME_LIMIT)) == {"context_limit": "failure"}
    assert judged(make, make.broken("over", Problem.RESET)) == {"context_limit": "failure"}


def test_dead_afterwards(make):
    after = make.broken("after", Problem.REFUSED)
    found = judged(make, make.error("over", 500, "boom"), after)
    assert found == {"context_limit.after": "failure", "context_limit": "warning"}
    gone = make.broken("after", Problem.NOT_ASKED, "the endpoint stopped listening")
    assert judged(make, make.broken("over", Problem.RESET), gone) == {"context_limit.after": "failure"}


@pytest.mark.parametrize("read", [1800, None])
def test_cut_in_silence(make, read):
    over = make.whole("over", "ok", prompt_tokens=read)
    assert judged(make, over) == {"context_limit": "warning"}


def test_a_real_limit_above_the_told_one(make):
    assert judged(make, make.whole("over", "ok", prompt_tokens=2400)) == {"context_limit": "note"}


def test_unknown_context_is_not_asked(make):
    result = make.run(CHECK, make.deployment(context_tokens=None), lambda ask: make.whole(ask.key, "hi"))
    assert make.found(result.judgement) == {"context_limit": "unknown"}
    assert [ask for ask in result.asked if len(ask.body) > 1000] == []


@pytest.mark.parametrize(("depth", "asked"), [(Depth.DEFAULT, False), (Depth.FULL, True)])
def test_very_long_contexts_only_when_asked_for(make, depth, asked):
    under_test = make.deployment(context_tokens=262_144, depth=depth)
    result = make.run(CHECK, under_test, refusing(make))
    assert any(ask.key == "over" for ask in result.asked) is asked
    assert max(len(ask.body) for ask in result.asked) < 12_000_000 if asked else not result.asked


def test_never_tens_of_megabytes(make):
    under_test = make.deployment(context_tokens=10_000_000, depth=Depth.FULL)
    result = make.run(CHECK, under_test, refusing(make))
    assert result.asked == []
    assert make.found(result.judgement) == {"context_limit": "note"}


@pytest.mark.parametrize(("status", "severity"), [(400, "unknown"), (500, "failure"), (401, "unknown")])
def test_a_server_that_refuses_a_short_prompt_is_not_put_to_the_test(make, status, severity):
    result = make.run(CHECK, make.deployment(), lambda ask: make.error(ask.key, status))
    assert make.found(result.judgement) == {"context_limit": severity}
    assert [ask.key for ask in result.asked] == ["before"]


def test_an_endless_answer_afterwards_is_no_death(make):
    over, after = make.error("over", 400, REASON), make.broken("after", Problem.TOO_LARGE)
    assert judged(make, over, after) == {"context_limit": "ok"}


def test_not_asked(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"context_limit": "unknown"}
    assert judged(make, make.error("over", 401, "key")) == {"context_limit": "unknown"}
