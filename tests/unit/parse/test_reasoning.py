import pytest

from bringup.parse.chat import ChatReply
from bringup.parse.reasoning import Place, split_reply

HARMONY = (
    "<|channel|>analysis<|message|>7 times 13<|end|><|start|>assistant<|channel|>final<|message|>91<|return|>"
)


@pytest.mark.parametrize(
    ("text", "answer", "trace", "place"),
    [
        ("91", "91", "", Place.NONE),
        ("<think>\n7 x 13\n</think>\n\n91", "91", "7 x 13", Place.IN_ANSWER),
        ("7 x 13\n</think>\n91", "91", "7 x 13", Place.CLOSING_ONLY),
        ("[THINK]7 x 13[/THINK]91", "91", "7 x 13", Place.IN_ANSWER),
        ("◁think▷7 x 13◁/think▷91", "91", "7 x 13", Place.IN_ANSWER),
        (HARMONY, "91", "7 times 13", Place.IN_ANSWER),
        ("<think></think>91", "91", "", Place.IN_ANSWER),
        ("a < b and <thinkable>", "a < b and <thinkable>", "", Place.NONE),
    ],
)
def test_trace_and_answer_are_told_apart(text, answer, trace, place):
    spoken = split_reply(ChatReply(text=text, finish_reason="stop"))
    assert spoken.answer == answer
    assert trace in spoken.trace
    assert spoken.place is place
    assert spoken.is_finished
    assert spoken.is_leaking is (place is not Place.NONE)


def test_a_field_of_its_own_is_no_leak():
    spoken = split_reply(ChatReply(text="\n\n91", reasoning="7 x 13", finish_reason="stop"))
    assert (spoken.answer, spoken.trace, spoken.place) == ("91", "7 x 13", Place.FIELD)
    assert not spoken.is_leaking


@pytest.mark.parametrize(
    "reply",
    [
        ChatReply(text="<think>7 x", finish_reason="length"),
        ChatReply(text="", reasoning="7 x", finish_reason="length"),
    ],
)
def test_a_trace_that_was_cut_off_leaves_no_answer(reply):
    spoken = split_reply(reply)
    assert not spoken.is_finished
    assert spoken.answer == ""


def test_a_trace_without_answer_that_ended_by_itself_is_finished():
    assert split_reply(ChatReply(reasoning="7 x 13", finish_reason="stop")).is_finished


def test_only_the_last_closing_mark_ends_the_trace():
    spoken = split_reply(ChatReply(text="<think>they write </think> here</think>91"))
    assert spoken.answer == "91"
