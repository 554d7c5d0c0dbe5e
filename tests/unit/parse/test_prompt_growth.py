import json

import pytest

from bringup.parse.prompt_growth import prompt_growth
from bringup.values.exchange import Answer, Problem


def counted(tokens):
    usage = {} if tokens is None else {"usage": {"prompt_tokens": tokens, "completion_tokens": 1}}
    choice = {"message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    return Answer(key="a", status=200, body=json.dumps({"choices": [choice], **usage}))


def test_the_tokens_that_a_part_added():
    growth = prompt_growth(counted(80), counted(31))
    assert growth is not None
    assert (growth.with_it, growth.without, growth.tokens) == (80, 31, 49)


@pytest.mark.parametrize(
    "other", [None, counted(None), Answer(key="a", status=500), Answer(key="a", problem=Problem.RESET)]
)
def test_without_both_counts_nothing_is_known(other):
    assert prompt_growth(counted(80), other) is None
    assert prompt_growth(other, counted(80)) is None
