import json
import re

import pytest

from bringup.checks.long_context import CHECK
from bringup.values.deployment import Ability, Depth, Wanted
from bringup.values.exchange import Problem

NEEDLE = re.compile(r"The code of the ([a-z ]+) is (\d+)\.")


TEMPLATE = 30  # tokens


def reader(make, *, forgets=lambda depth: False, tokens_per_word=1.3, prompt_tokens=None, knows_short=True):
    """An engine that finds what it was asked for, except where it `forgets`."""

    def respond(ask):
        prompt = json.loads(ask.body)["messages"][0]["content"]
        size = TEMPLATE + int(len(prompt.split()) * tokens_per_word)
        if ask.key == "bare":
            return make.whole(ask.key, "Hello", prompt_tokens=size)
        thing = prompt.rpartition("code of the ")[2].partition("?")[0]
        codes = dict(NEEDLE.findall(prompt))
        place = prompt.index(f"The code of the {thing} is") / len(prompt)
        is_known = knows_short if ask.key == "short" else not forgets(place)
        said = codes[thing] if is_known else "I do not know."
        return make.whole(ask.key, said, prompt_tokens=size if prompt_tokens is None else prompt_tokens)

    return respond


def test_all_found(make):
    result = make.run(CHECK, make.deployment(), reader(make))
    assert make.found(result.judgement) == {"long_context": "ok"}
    assert result.rounds == 4
    assert 900 < result.judgement.measurements[0].value <= 1030


@pytest.mark.parametrize(
    ("depth", "context", "low", "high"),
    [
        (Depth.DEFAULT, 2048, 930, 1030),
        (Depth.DEFAULT, 131_072, 1400, 1510),
        (Depth.FULL, 2048, 1440, 1540),
        (Depth.FULL, 131_072, 7800, 8050),
        (Depth.DEFAULT, None, 1400, 1510),
    ],
)
@pytest.mark.parametrize("tokens_per_word", [1.1, 1.5, 3.0])
def test_sized_in_tokens_whatever_a_word_takes(make, depth, context, low, high, tokens_per_word):
    under_test = make.deployment(depth=depth, context_tokens=context, ability=Ability.TINY)
    result = make.run(CHECK, under_test, reader(make, tokens_per_word=tokens_per_word))
    assert low <= result.judgement.measurements[0].value <= high
    assert len(result.asked) == (7 if depth is Depth.FULL else 5)


def test_length_as_wanted(make):
    under_test = make.deployment(context_tokens=131_072, wanted=Wanted(long_context_tokens=60_000))
    result = make.run(CHECK, under_test, reader(make))
    assert 59_000 <= result.judgement.measurements[0].value <= 60_100
    assert make.found(result.judgement) == {"long_context": "ok"}


def test_longer_than_served_is_a_warning_with_the_figure(make):
    under_test = make.deployment(context_tokens=4096, wanted=Wanted(long_context_tokens=60_000))
    result = make.run(CHECK, under_test, reader(make))
    assert make.found(result.judgement) == {"long_context.served": "warning", "long_context": "ok"}
    assert "60000" in result.judgement.findings[0].summary
    assert "4096" in result.judgement.findings[0].summary
    assert result.judgement.measurements[0].value < 4096


@pytest.mark.parametrize(
    ("ability", "some", "all_"),
    [
        (Ability.TINY, "note", "note"),
        (Ability.SMALL, "note", "warning"),
        (Ability.UNKNOWN, "warning", "warning"),
        (Ability.CAPABLE, "warning", "failure"),
    ],
)
def test_lost_facts(make, ability, some, all_):
    early = make.run(CHECK, make.deployment(ability=ability), reader(make, forgets=lambda depth: depth < 0.3))
    assert make.found(early.judgement) == {"long_context": some}
    assert "lost at 10%" in early.judgement.findings[0].summary
    every = make.run(CHECK, make.deployment(ability=ability), reader(make, forgets=lambda depth: True))
    assert make.found(every.judgement) == {"long_context": all_}


def test_a_model_that_does_not_find_it_in_a_short_prompt_either_is_weak(make):
    respond = reader(make, forgets=lambda depth: True, knows_short=False)
    assert make.found(make.run(CHECK, make.deployment(), respond).judgement) == {"long_context": "note"}


@pytest.mark.parametrize("ability", list(Ability))
def test_garbage_with_a_long_prompt_is_a_failure(make, ability):
    good = reader(make)

    def respond(ask):
        return (
            good(ask) if ask.key in ("short", "bare") else make.whole(ask.key, "!" * 80, prompt_tokens=1000)
        )

    judgement = make.run(CHECK, make.deployment(ability=ability), respond).judgement
    assert make.found(judgement) == {"long_context": "failure"}


def after_short(make, answer):
    good = reader(make)
    return lambda ask: good(ask) if ask.key in ("short", "bare") else answer(ask.key)


def test_engine_error(make):
    respond = after_short(make, lambda key: make.error(key, 500, "CUDA error: illegal memory access"))
    judgement = make.run(CHECK, make.deployment(), respond).judgement
    assert make.found(judgement) == {"long_context.engine": "failure"}


def test_refused_below_the_told_context(make):
    respond = after_short(make, lambda key: make.error(key, 400, "prompt too long"))
    judgement = make.run(CHECK, make.deployment(), respond).judgement
    assert make.found(judgement) == {"long_context.refused": "warning"}


def test_refused_where_no_context_is_told(make):
    respond = after_short(make, lambda key: make.error(key, 400, "exceeds the available context size (2048)"))
    judgement = make.run(CHECK, make.deployment(context_tokens=None), respond).judgement
    assert make.found(judgement) == {"long_context": "unknown"}


def test_cut_in_silence(make):
    respond = after_short(make, lambda key: make.whole(key, "I do not know.", prompt_tokens=300))
    found = make.found(make.run(CHECK, make.deployment(), respond).judgement)
    assert found["long_context.cut"] == "warning"


def test_not_measured(make):
    assert make.found(make.judge(CHECK, make.deployment())) == {"long_context": "unknown"}

    def unsized(ask):
        return make.whole(ask.key, "4826", prompt_tokens=None)

    result = make.run(CHECK, make.deployment(), unsized)
    assert make.found(result.judgement) == {"long_context": "unknown"}
    assert len(result.asked) == 2
    broken = make.run(CHECK, make.deployment(), lambda ask: make.broken(ask.key, Problem.REFUSED))
    assert make.found(broken.judgement) == {"long_context": "failure"}
