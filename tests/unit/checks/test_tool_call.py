import json

import pytest

from bringup.checks.tool_call import CHECK
from bringup.values.deployment import Ability, Deployment
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer, Problem


def under_test(*, engine="vllm", model="Qwen/Qwen3-8B", ability=Ability.CAPABLE, tools=None) -> Deployment:
    return Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine=engine, supports_tools=tools),
        model=ServedModel(id=model, context_tokens=32768),
        ability=ability,
    )


def call(name="get_weather", arguments='{"city": "Paris"}') -> dict:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


def whole(make, text="", calls=(), *, finish="tool_calls", prompt_tokens=160, **message) -> Answer:
    more = {"tool_calls": list(calls)} if calls else {}
    return make.whole("whole", text, finish=finish, prompt_tokens=prompt_tokens, **more, **message)


def streamed(make, pieces=('{"city"', ': "Par', 'is"}'), name="get_weather", finish="tool_calls") -> Answer:
    deltas = [{"index": 0, "id": "call_1", "function": {"name": name, "arguments": ""}}]
    deltas += [{"index": 0, "function": {"arguments": piece}} for piece in pieces]
    frames = [json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]}) for delta in deltas]
    return make.stream("streamed", [], extra_frames=frames, finish=finish)


def bare(make, prompt_tokens=20) -> Answer:
    return make.whole("bare", "I", prompt_tokens=prompt_tokens)


def test_a_call_whole_and_streamed_is_ok(make):
    judgement = make.judge(CHECK, under_test(), whole(make, calls=[call()]), streamed(make), bare(make))
    assert make.found(judgement) == {"tool_call": "ok", "tool_call.streamed": "ok"}


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]',
        '{"name": "get_weather", "parameters": {"city": "Paris"}}',
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
        '[get_weather(city="Paris")]',
        "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
        '<minimax:tool_call><invoke name="get_weather"><parameter name="city">Paris</parameter></invoke>',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0",
        '[{\n    "name": "get_weather"\n\n,"parameters": {\n    "city',
    ],
)
def test_a_call_as_plain_text_is_a_warning_that_names_the_flags(make, text):
    answers = (whole(make, text, finish="stop"), make.stream("streamed", [text]), bare(make))
    judgement = make.judge(CHECK, under_test(), *answers)
    assert make.found(judgement) == {"tool_call": "warning"}
    finding = judgement.findings[0]
    assert "--enable-auto-tool-choice --tool-call-parser hermes" in finding.action
    assert [fix.name for fix in finding.fixes] == ["--enable-auto-tool-choice", "--tool-call-parser"]
    assert text[:20] in finding.evidence[0].text


@pytest.mark.parametrize(
    ("engine", "flag"), [("sglang", "--tool-call-parser qwen25"), ("llama_cpp", "--jinja")]
)
def test_every_engine_has_its_own_flag(make, engine, flag):
    text = '<tool_call>{"name": "get_weather"}</tool_call>'
    judgement = make.judge(CHECK, under_test(engine=engine), whole(make, text, finish="stop"), bare(make))
    assert flag in judgement.findings[0].action


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "note"),
        (Ability.UNKNOWN, "note"),
        (Ability.CAPABLE, "warning"),
    ],
)
def test_an_answer_in_words_is_judged_by_size(make, ability, severity):
    answers = (whole(make, "It is sunny.", finish="stop"), make.stream("streamed", ["Sunny"]), bare(make))
    assert make.found(make.judge(CHECK, under_test(ability=ability), *answers)) == {"tool_call": severity}


def test_tools_that_never_reach_the_model_show_in_the_token_counts(make):
    answers = (
        whole(make, "It is sunny.", finish="stop", prompt_tokens=20),
        make.stream("streamed", ["Sunny"]),
        bare(make),
    )
    judgement = make.judge(CHECK, under_test(), *answers)
    assert make.found(judgement) == {"tool_call": "note"}
    assert "do not reach the model" in judgement.findings[0].summary


def test_a_template_without_tools_is_not_asked(make):
    ran = make.run(CHECK, under_test(engine="llama_cpp", tools=False), lambda _: None)
    assert ran.asked == []
    assert make.found(ran.judgement) == {"tool_call": "note"}


def test_missing_flags_are_a_note_with_the_flags_as_fixes(make):
    message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    ran = make.run(
        CHECK,
        under_test(model="MiniMaxAI/MiniMax-M2.5"),
        lambda ask: bare(make) if ask.key == "bare" else make.error(ask.key, 400, message),
    )
    assert make.found(ran.judgement) == {"tool_call": "note"}
    finding = ran.judgement.findings[0]
    assert finding.summary.startswith("not configured")
    assert [(fix.name, fix.new) for fix in finding.fixes] == [
        ("--enable-auto-tool-choice", ""),
        ("--tool-call-parser", "minimax_m2"),
    ]


def test_any_other_refusal_is_not_supported(make):
    judgement = make.judge(CHECK, under_test(), make.error("whole", 422, "unknown field tools"))
    assert make.found(judgement) == {"tool_call": "note"}
    assert judgement.findings[0].fixes == ()


@pytest.mark.parametrize(
    ("one", "finish", "ability", "severity"),
    [
        (call(arguments='{"city": "Par'), "tool_calls", Ability.TINY, "failure"),
        (call(arguments='{"city": "Par'), "length", Ability.TINY, "unknown"),
        (call(arguments="[1]"), "tool_calls", Ability.CAPABLE, "failure"),
        (call(name="get_time"), "tool_calls", Ability.CAPABLE, "warning"),
        (call(arguments='{"town": "Paris"}'), "tool_calls", Ability.SMALL, "note"),
        (call(arguments='{"city": "London"}'), "tool_calls", Ability.CAPABLE, "warning"),
    ],
)
def test_a_call_that_is_wrong(make, one, finish, ability, severity):
    answers = (whole(make, calls=[one], finish=finish), bare(make))
    assert make.found(make.judge(CHECK, under_test(ability=ability), *answers))["tool_call"] == severity


def test_a_call_that_is_lost_in_the_stream_is_a_failure(make):
    answers = (whole(make, calls=[call()]), make.stream("streamed", ["<tool_call>"]), bare(make))
    assert make.found(make.judge(CHECK, under_test(), *answers)) == {
        "tool_call": "ok",
        "tool_call.streamed": "failure",
    }


@pytest.mark.parametrize("pieces", [('{"city"', '"Paris"}'), ('{"city": "Lond', 'on"}')])
def test_a_streamed_call_that_differs_from_the_whole_one_is_a_failure(make, pieces):
    answers = (whole(make, calls=[call()]), streamed(make, pieces), bare(make))
    assert make.found(make.judge(CHECK, under_test(), *answers))["tool_call.streamed"] == "failure"


def test_an_error_in_the_stream_alone_is_a_failure(make):
    answers = (whole(make, calls=[call()]), make.error("streamed", 500, "parser"), bare(make))
    found = make.found(make.judge(CHECK, under_test(), *answers))
    assert found["tool_call"] == "ok"
    assert "failure" in found.values()


@pytest.mark.parametrize(
    ("problem", "severity"), [(Problem.RESET, "failure"), (Problem.NOT_ASKED, "unknown")]
)
def test_an_answer_that_did_not_come(make, problem, severity):
    judgement = make.judge(CHECK, under_test(ability=Ability.TINY), make.broken("whole", problem))
    assert make.found(judgement) == {"tool_call.delivery": severity}


def test_a_trace_that_did_not_end_is_unknown(make):
    ran = make.run(
        CHECK,
        under_test(),
        lambda ask: make.whole(ask.key, "", reasoning_content="Let me", finish="length", tokens=9),
    )
    assert make.found(ran.judgement) == {"tool_call": "unknown"}
