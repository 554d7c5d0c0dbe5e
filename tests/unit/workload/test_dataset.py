import json
import pickle
from dataclasses import replace

import pytest

from bodies import CALIBRATED, first, said, shared_out, synthetic, words
from bringup.errors import UsageError
from bringup.workload.dataset import open_dataset, survey
from bringup.workload.detect import FORMATS, detect, named_format
from bringup.workload.lengths import fixed_length
from bringup.workload.request_body import BodyShape
from bringup.workload.source import InMemory

PROMPTS = '{"prompt": "Say one", "max_tokens": 5}\n{"prompt": "Say two"}\n\n{"text_input": "Say \\u00e9"}\n'
CHATS = "\n".join(
    json.dumps(line)
    for line in (
        {
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "A"}],
            "temperature": 0.7,
        },
        {
            "messages": [
                {"role": "user", "content": "B"},
                {"role": "assistant", "content": "b" * 42},
                {"role": "user", "content": "C"},
                {"role": "assistant", "content": "c" * 84},
            ]
        },
        {
            "custom_id": "1",
            "method": "POST",
            "body": {"model": "other", "messages": [{"role": "user", "content": "D"}]},
        },
    )
)
SHAREGPT = json.dumps(
    [
        {"id": "a", "conversations": [{"from": "human", "value": "Q1"}, {"from": "gpt", "value": "x" * 42}]},
        {"id": "b", "conversations": []},
        {
            "id": "c",
            "conversations": [
                {"from": "gpt", "value": "cut off"},
                {"from": "human", "value": "Q2"},
                {"from": "gpt", "value": "A2"},
                {"from": "human", "value": "Q3"},
                {"from": "gpt", "value": "y" * 21},
            ],
        },
    ],
    indent=1,
)
MOONCAKE = "\n".join(
    json.dumps(dict(zip(("timestamp", "input_length", "output_length", "hash_ids"), line, strict=True)))
    for line in (
        (0, 1100, 52, [0, 1, 2]),
        (500, 1300, 26, [0, 1, 3]),
        (500, 700, 1, [0, 4]),
        (3000, 512, 0, [9]),
    )
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 18:17:03.9799600,480,10\r\n"
    "2023-11-16 18:17:04.4799600,30,8\r\n"
    "2023-11-16 18:17:05.9799600,120,27\r\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 00:00:00.509930+00:00,100,6\n"
)
BURST = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    '5,ChatGPT,472,18,490,"Conversation, log"\n45,GPT-4,1087,0,1087,API log\n'
)
FILES = {
    "prompts": ("chat-lines", PROMPTS),
    "chats": ("chat-lines", CHATS),
    "array": ("chat-lines", '[{"prompt": "A"}, {"question": "B"}]'),
    "sharegpt": ("sharegpt", SHAREGPT),
    "sharegpt lines": ("sharegpt", '{"conversations": [{"from": "user", "value": "Hi"}]}\n'),
    "mooncake": ("mooncake", MOONCAKE),
    "azure": ("azure", AZURE),
    "azure 2024": ("azure", AZURE_2024),
    "burst": ("burstgpt", BURST),
}


def dataset(text, *, padding=None, **fields):
    opened = open_dataset(InMemory(name="file", text=text), padding or synthetic())
    return replace(opened, **fields)


def messages(request):
    return [(one["role"], one["content"]) for one in json.loads(request.body)["messages"]]


@pytest.mark.parametrize(("name", "text"), FILES.values(), ids=FILES)
def test_a_format_is_told_by_its_beginning(name, text):
    assert detect(InMemory(name="f", text=text)).name == name
    assert detect(InMemory(name="f", text="\ufeff" + text)).name == name


@pytest.mark.parametrize("text", ["", "   \n", "PK\x03\x04", '{"a": 1}', "a,b\n1,2\n", "[1, 2]"])
def test_what_is_no_format_is_said_with_all_that_are_known(text):
    with pytest.raises(UsageError) as raised:
        detect(InMemory(name="f.bin", text=text))
    assert "f.bin" in raised.value.message
    if text.strip():
        assert all(name in raised.value.hint for name in FORMATS)


def test_a_format_can_be_named():
    assert named_format("azure", option="--format").name == "azure"
    with pytest.raises(UsageError, match="no format `csv`: `--format csv`"):
        named_format("csv", option="--format")


@pytest.mark.parametrize(("name", "text"), FILES.values(), ids=FILES)
def test_every_file_gives_the_same_requests_to_any_number_of_generators(name, text):
    workload = dataset(text, keeps_times=FORMATS[name].has_times, repeats=True)
    alone = first(workload, 11)
    for generators in (2, 3, 5, 12):
        assert shared_out(workload, 11, generators) == alone
    assert pickle.loads(pickle.dumps(workload)) == workload
    assert all(json.loads(one.body)["stream_options"] == {"include_usage": True} for one in alone)


@pytest.mark.parametrize(("name", "text"), FILES.values(), ids=FILES)
def test_a_file_that_is_not_repeated_ends(name, text):
    made = first(dataset(text), 100)
    assert len(made) == survey(dataset(text)).used < 5


def test_prompts_are_said_as_they_are():
    made = first(dataset(PROMPTS), 9)
    assert [said(one) for one in made] == ["Say one", "Say two", "Say é"]
    assert [one.output_tokens for one in made] == [5, None, None]
    assert "max_tokens" not in json.loads(made[1].body)


def test_an_answer_without_a_length_is_not_forced_on():
    padding = synthetic(shape=BodyShape(model="m", ignores_end=True))
    made = first(dataset(PROMPTS, padding=padding), 9)
    assert ["ignore_eos" in json.loads(one.body) for one in made] == [True, False, False]
    forced = first(dataset(PROMPTS, padding=padding, output_lengths=fixed_length(7)), 9)
    assert all(json.loads(one.body)["ignore_eos"] for one in forced)
    assert [one.output_tokens for one in forced] == [7, 7, 7]


def test_a_chat_is_one_request_with_its_history():
    made = first(dataset(CHATS), 9)
    assert messages(made[0]) == [("system", "S"), ("user", "A")]
    assert json.loads(made[0].body)["temperature"] == 0.7
    assert messages(made[1]) == [("user", "B"), ("assistant", "b" * 42), ("user", "C")]
    assert made[1].output_tokens == 20  # about 84 characters, as its own answer
    assert json.loads(made[2].body)["model"] == "m"
    assert all(one.conversation is None for one in made)


def test_a_chat_is_played_turn_by_turn_with_the_servers_answers():
    workload = dataset(CHATS, plays_turns=True, pause_low_s=1.0, pause_high_s=2.0)
    request = first(workload, 9)[1]
    assert (messages(request), request.conversation, request.turn) == ([("user", "B")], 1, 0)
    assert request.output_tokens == 10
    following = workload.next_turn(request, "real")
    assert messages(following) == [("user", "B"), ("assistant", "real"), ("user", "C")]
    assert (following.conversation, following.turn, following.output_tokens) == (1, 1, 20)
    assert 1.0 <= following.pause_s <= 2.0
    assert json.loads(following.body)["max_tokens"] == 20
    assert workload.next_turn(following, "end") is None


def test_a_chat_can_be_played_with_its_own_answers():
    workload = dataset(CHATS, plays_turns=True, takes_own_answers=True)
    following = workload.next_turn(first(workload, 2)[1], "real")
    assert messages(following)[1] == ("assistant", "b" * 42)


def test_sharegpt_asks_the_first_question_and_leaves_out_what_asks_nothing():
    made = first(dataset(SHAREGPT), 9)
    assert [(one.index, said(one), one.output_tokens) for one in made] == [(0, "Q1", 10), (2, "Q2", 1)]
    turns = dataset(SHAREGPT, plays_turns=True)
    following = turns.next_turn(first(turns, 9)[1], "real")
    assert [text for _, text in messages(following)] == ["Q2", "real", "Q3"]
    assert following.output_tokens == 5


def test_a_mooncake_trace_has_its_lengths_and_shares_its_blocks():
    made = first(dataset(MOONCAKE), 9)
    assert [one.input_tokens for one in made] == [1100, 1300, 700, 512]
    assert [one.output_tokens for one in made] == [52, 26, 1, 1]
    texts = [words(one) for one in made]
    assert [len(text) + CALIBRATED.overhead for text in texts] == [1100, 1300, 700, 512]
    assert texts[0][:1024] == texts[1][:1024]
    assert texts[0][1024:1030] != texts[1][1024:1030]
    assert texts[0][:512] == texts[2][:512]
    assert texts[0][512:518] != texts[2][512:518]
    assert texts[0][:6] != texts[3][:6]


def test_another_salt_shares_no_block_with_the_run_before():
    one, other = (first(dataset(MOONCAKE, padding=synthetic(salt=salt)), 1)[0] for salt in (0, 1))
    assert words(one)[:6] != words(other)[:6]


def test_other_block_sizes_are_found_out():
    trace = '{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}\n' * 2
    assert dataset(trace).block_tokens == 16
    with pytest.raises(UsageError, match="no block size that fits"):
        dataset('{"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3, 4, 5]}')


@pytest.mark.parametrize(
    ("text", "times"),
    [(MOONCAKE, [0, 0.5, 0.5, 3.0]), (AZURE, [0, 0.5, 2.0]), (AZURE_2024, [0, 0.5]), (BURST, [0, 40])],
)
def test_a_trace_keeps_its_times_and_can_be_played_faster(text, times):
    assert [one.at_s for one in first(dataset(text), 9)] == [None] * len(times)
    kept = [one.at_s for one in first(dataset(text, keeps_times=True), 9)]
    assert kept == pytest.approx(times)
    fast = [one.at_s for one in first(dataset(text, keeps_times=True, speed=4.0), 9)]
    assert fast == pytest.approx([time / 4 for time in times])


def test_a_generator_whose_records_ask_nothing_ends():
    assert first(dataset(SHAREGPT, repeats=True), 5, generator=1, generators=3) == []
    assert len(first(dataset(SHAREGPT, repeats=True), 5, generator=1, generators=2)) == 5


def test_a_repeated_trace_goes_on_after_its_end():
    made = first(dataset(AZURE, keeps_times=True, repeats=True), 7)
    assert [one.at_s for one in made] == pytest.approx([0, 0.5, 2, 3, 3.5, 5, 6])
    assert len({said(one) for one in made}) == 7  # no prompt comes from the cache


def test_too_long_prompts_are_left_out_and_leave_a_gap():
    made = first(dataset(MOONCAKE, longest_input=1200), 9)
    assert [one.index for one in made] == [0, 2, 3]
    assert survey(dataset(MOONCAKE, longest_input=1200)).used == 3


def test_a_survey_tells_what_a_file_holds():
    found = survey(dataset(AZURE, keeps_times=True))
    assert (found.records, found.used, found.length_s) == (3, 3, pytest.approx(2.0))
    assert (found.mean_input_tokens, found.most_input_tokens, found.mean_output_tokens) == (210, 480, 15)
    assert survey(dataset(PROMPTS)).mean_input_tokens is None


def test_times_that_go_back_are_an_error_before_the_load():
    trace = AZURE + "2023-11-16 18:17:01.0000000,30,8\n"
    with pytest.raises(UsageError, match=r"wanted a time not before the one above, found .* `file`, line 5"):
        survey(dataset(trace, keeps_times=True))
    assert survey(dataset(trace)).used == 4


def test_a_file_without_times_cannot_keep_them():
    with pytest.raises(UsageError, match="wanted a time in every record"):
        survey(dataset(PROMPTS, keeps_times=True))


@pytest.mark.parametrize(
    ("text", "line", "wanted"),
    [
        (PROMPTS + '{"prompt": 5}\n', 5, '"messages"'),
        (PROMPTS + "not json\n", 5, "a JSON object"),
        (CHATS + '\n{"messages": [{"role": "assistant", "content": "x"}]}', 4, '"messages"'),
        (CHATS + '\n{"messages": ["Hi"]}', 4, '"messages"'),
        (MOONCAKE + '\n{"timestamp": 1, "output_length": 3}', 5, '"input_length"'),
        (MOONCAKE + '\n{"timestamp": 1, "input_length": -3}', 5, '"input_length"'),
        (AZURE + "yesterday,3,4\n", 5, "2023-11-16"),
        (AZURE + "2023-11-16 18:17:08,3\n", 5, "2023-11-16"),
        (BURST + "7,x,many,3,4,API log\n", 4, "Request tokens"),
        (SHAREGPT.replace('"from": "human"', "X", 1), 2, '"conversations"'),
        (SHAREGPT.replace('"conversations": []', '"talks": []'), 15, '"conversations"'),
    ],
)
def test_a_record_that_is_wrong_is_named_with_file_line_wanted_and_found(text, line, wanted):
    opened = InMemory(name="file", text=text)
    with pytest.raises(UsageError) as raised:
        survey(open_dataset(opened, synthetic()))
    assert f"in `file`, line {line}" in raised.value.message
    assert wanted in raised.value.message
    assert ", found `" in raised.value.message


def test_a_completion_takes_the_text_alone():
    padding = synthetic(shape=BodyShape(model="m", is_chat=False))
    assert said(first(dataset(PROMPTS, padding=padding), 1)[0]) == "Say one"
    assert said(first(dataset(CHATS, padding=padding), 1)[0]) == "S\n\nA"


def test_the_words_name_the_file_and_how_it_is_played():
    assert dataset(MOONCAKE, keeps_times=True, speed=2.0).words == (
        "a Mooncake trace `file`, filler (exact), at its times, 2 times as fast"
    )
    assert dataset(CHATS, plays_turns=True).words.endswith("turn by turn with real answers")
