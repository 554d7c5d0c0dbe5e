import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bodies import CALIBRATED, first, shared_out, synthetic, words
from bringup.errors import UsageError
from bringup.workload.conversations import Conversations, require_chat, system_prompt
from bringup.workload.lengths import fixed_length, read_lengths
from bringup.workload.request_body import BodyShape

ANSWERS = st.text(max_size=40)


def conversations(**fields):
    fields = {"turns": fixed_length(3), "turn_lengths": fixed_length(20)} | fields
    return Conversations(first=fields.pop("first", None) or synthetic("100", "16"), **fields)


def played(workload, request, answers):
    """All turns of a conversation with given answers."""
    turns = [request]
    for answer in answers:
        following = workload.next_turn(turns[-1], answer)
        if following is None:
            return turns
        turns.append(following)
    return turns


@given(generators=st.integers(1, 6))
def test_first_turns_are_the_same_for_any_number_of_generators(generators):
    alone = first(conversations(), 12)
    assert shared_out(conversations(), 12, generators) == alone
    assert [one.conversation for one in alone] == list(range(12))
    assert pickle.loads(pickle.dumps(conversations())) == conversations()


@given(answers=st.lists(ANSWERS, min_size=2, max_size=2))
def test_each_turn_carries_all_that_was_said(answers):
    turns = played(conversations(), first(conversations(), 3)[2], [*answers, "end"])
    assert [one.turn for one in turns] == [0, 1, 2]
    assert {one.conversation for one in turns} == {2}
    before = []
    for turn, answer in zip(turns, [None, *answers], strict=True):
        body = json.loads(turn.body)
        said = body["messages"]
        assert said[: len(before)] == before
        if answer is not None:
            assert said[-2] == {"role": "assistant", "content": answer}
        assert said[-1]["role"] == "user"
        assert (body["max_tokens"], body["stream"]) == (turn.output_tokens, True)
        before = said
    assert [len(words(one)) for one in turns] == [100 - CALIBRATED.overhead, 20, 20]


def test_the_turns_of_conversations_differ_from_one_another():
    made = [played(conversations(), one, ["a", "b"]) for one in first(conversations(), 50)]
    beginnings = {tuple(words(turn)[:6]) for turns in made for turn in turns}
    assert len(beginnings) == 150


def test_turns_and_lengths_can_be_drawn():
    workload = conversations(
        turns=read_lengths("1:4", option="-t"),
        turn_lengths=read_lengths("10:30", option="-l"),
        pause_high_s=2.0,
    )
    made = [played(workload, one, ["a"] * 9) for one in first(workload, 100)]
    assert {len(turns) for turns in made} == {1, 2, 3, 4}
    later = [turn for turns in made for turn in turns[1:]]
    assert 10 <= min(len(words(turn)) for turn in later) < max(len(words(turn)) for turn in later) <= 30
    assert 0 <= min(turn.pause_s for turn in later) < max(turn.pause_s for turn in later) <= 2
    assert all(turn.input_tokens is None and turn.at_s is None for turn in later)


def test_a_system_prompt_is_the_same_in_all():
    system = system_prompt(50, CALIBRATED, seed=1)
    assert len(system.split()) == 50
    workload = conversations(first=synthetic("100", shape=BodyShape(model="m", system=system)))
    turns = played(workload, first(workload, 1)[0], ["a", "b"])
    for turn in (*turns, *first(workload, 5)):
        body = json.loads(turn.body)
        assert body["messages"][0] == {"role": "system", "content": system}
    assert system_prompt(50, CALIBRATED, seed=2).split()[0] != system.split()[0]


def test_completions_have_no_turns():
    require_chat(BodyShape(model="m"))
    with pytest.raises(UsageError, match="chat endpoint"):
        require_chat(BodyShape(model="m", is_chat=False))
