import json

from bringup.parse.chat_request import chat_body


def test_a_string_is_one_user_message_asked_greedily():
    body = json.loads(chat_body("m", 'say "é"', max_tokens=7))
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": 'say "é"'}],
        "max_tokens": 7,
        "temperature": 0,
        "seed": 1,
    }


def test_messages_are_sent_as_they_are():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert json.loads(chat_body("m", messages, max_tokens=7))["messages"] == messages


def test_a_stream_asks_for_usage():
    body = json.loads(chat_body("m", "x", max_tokens=7, stream=True))
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_extra_fields_join_and_win():
    body = json.loads(chat_body("m", "x", max_tokens=7, stop=["4"], temperature=1))
    assert body["stop"] == ["4"]
    assert body["temperature"] == 1
