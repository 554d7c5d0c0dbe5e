import itertools
import json
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import CALIBRATED, first, said, shared_out, synthetic, words
from bringup.errors import UsageError
from bringup.workload.calibration import Calibration
from bringup.workload.lengths import read_lengths
from bringup.workload.request_body import BodyShape
from bringup.workload.synthetic import require_room


@given(generators=st.integers(1, 9), seed=st.integers(0, 2**40), share=st.sampled_from([0.0, 0.3, 1.0]))
def test_the_same_seed_gives_the_same_requests_to_any_number_of_generators(generators, seed, share):
    workload = synthetic("20:300", "normal:50,20", seed=seed, prefix_share=share, prefix_groups=3)
    alone = first(workload, 30)
    assert [one.index for one in alone] == list(range(30))
    assert shared_out(workload, 30, generators) == alone
    assert pickle.loads(pickle.dumps(workload)) == workload


@given(tokens=st.integers(10, 1500), share=st.floats(0, 1))
def test_a_prompt_has_the_tokens_that_were_asked_for(tokens, share):
    request = first(synthetic(str(tokens), prefix_share=share), 3)[2]
    assert len(words(request)) + CALIBRATED.overhead == tokens == request.input_tokens


def test_lengths_follow_the_distributions():
    made = first(synthetic("100:300", "8=1,64=3"), 800)
    assert {one.output_tokens for one in made} == {8, 64}
    assert 190 < sum(one.input_tokens for one in made) / 800 < 210
    assert all(len(words(one)) + CALIBRATED.overhead == one.input_tokens for one in made)
    assert all(json.loads(one.body)["max_tokens"] == one.output_tokens for one in made)


def test_no_two_prompts_begin_alike():
    beginnings = {" ".join(words(one)[:6]) for one in first(synthetic("60"), 3000)}
    assert len(beginnings) == 3000
    neighbours = [words(one)[0] for one in first(synthetic("60"), 100)]
    assert len(set(neighbours)) == 100


def test_another_salt_gives_other_prompts_of_the_same_lengths():
    one, other = (first(synthetic("50:90", "1:9", salt=salt), 200) for salt in (0, 1))
    assert [(r.input_tokens, r.output_tokens) for r in one] == [
        (r.input_tokens, r.output_tokens) for r in other
    ]
    assert not {said(r)[:40] for r in one} & {said(r)[:40] for r in other}


@given(share=st.floats(0.05, 0.95), groups=st.integers(1, 5))
def test_the_asked_share_is_shared_within_a_group_and_no_more(share, groups):
    made = first(synthetic("409", prefix_share=share, prefix_groups=groups), 40)
    count = round(share * 400)
    by_prefix = {}
    for request in made:
        by_prefix.setdefault(tuple(words(request)[:count]), []).append(words(request)[count:])
    assert len(by_prefix) <= groups
    own_beginnings = [rest[0:6] for rests in by_prefix.values() for rest in rests]
    assert len({tuple(one) for one in own_beginnings}) == len(made)


def test_groups_are_all_used_and_begin_differently():
    made = first(synthetic("209", prefix_share=0.5, prefix_groups=4), 200)
    prefixes = {tuple(words(one)[:100]) for one in made}
    assert len(prefixes) == 4
    assert len({prefix[0] for prefix in prefixes}) == 4


def test_prefixes_of_different_lengths_are_prefixes_of_one_another():
    made = first(synthetic("50:400", prefix_share=0.5), 50)
    shared = sorted((words(one)[: round(0.5 * len(words(one)))] for one in made), key=len)
    assert all(longer[: len(shorter)] == shorter for shorter, longer in itertools.pairwise(shared))


def test_a_shared_prefix_stays_when_the_salt_changes():
    one, other = (first(synthetic("209", prefix_share=0.5, salt=salt), 1)[0] for salt in (0, 1))
    assert words(one)[:100] == words(other)[:100]
    assert words(one)[100:] != words(other)[100:]


@pytest.mark.parametrize("is_chat", [True, False])
def test_a_body_is_a_streamed_request_for_usage(is_chat):
    shape = BodyShape(
        model='m"1',
        is_chat=is_chat,
        ignores_end=True,
        output_field="max_completion_tokens",
        extra='{"top_k":1}',
    )
    body = json.loads(first(synthetic(shape=shape), 1)[0].body)
    content = body.pop("messages")[0]["content"] if is_chat else body.pop("prompt")
    assert len(content.split()) == 200 - CALIBRATED.overhead
    assert body == {
        "model": 'm"1',
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.0,
        "seed": 1,
        "ignore_eos": True,
        "top_k": 1,
        "max_completion_tokens": 16,
    }


def test_nothing_is_made_before_it_is_wanted():
    requests = synthetic().requests(10**12, 10**12 + 1)
    assert next(requests).index == 10**12


def test_a_prompt_shorter_than_its_template_is_refused():
    require_room(CALIBRATED, read_lengths("10", option="-i"), option="-i")
    with pytest.raises(UsageError, match="template alone takes 9 tokens, `-i 9:20` asks for prompts of 9"):
        require_room(CALIBRATED, read_lengths("9:20", option="-i"), option="-i")


def test_the_words_say_how_exact_the_lengths_are():
    exact = synthetic(prefix_share=0.5, prefix_groups=2)
    assert exact.words == "synthetic, 200 in (exact), 16 out, 50% shared prefix, 2 different, seed 0"
    assert "(estimated)" in replace(exact, calibration=Calibration()).words
