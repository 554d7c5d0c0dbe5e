import json
import re

import pytest

from bringup.checks.arithmetic import CHECK
from bringup.values.deployment import Ability, Deployment, Depth
from bringup.values.engine import EngineStatus, ServedModel

RESULTS = {
    "7 x 13": "91",
    "12 x 12": "144",
    "9 x 8": "72",
    "17 x 6": "102",
    "48 + 57": "105",
    "123 + 456": "579",
    "100 - 37": "63",
    "81 - 29": "52",
    "144 / 16": "9",
    "2 to the power of 10": "1,024",
}


def result(ask) -> str:
    said = json.loads(ask.body)["messages"][0]["content"]
    return RESULTS[re.fullmatch(r"What is (.*)\? Answer with the number only\.", said)[1]]


def reasoning(engine: str, model: str, parser: str | None = None) -> Deployment:
    status = EngineStatus(engine=engine, reasoning_parser=parser)
    return Deployment(
        url="http://127.0.0.1:8000", engine=status, model=ServedModel(id=model), ability=Ability.CAPABLE
    )


def test_ten_right_results_are_ok(make):
    ran = make.run(CHECK, make.deployment(), lambda ask: make.whole(ask.key, result(ask)))
    assert make.found(ran.judgement) == {"arithmetic": "ok"}
    assert ran.judgement.findings[0].summary == "10 of 10 calculations right"
    assert ran.judgement.measurements[0].value == "none"


def test_no_result_is_an_operand_so_that_an_echo_is_not_taken_for_an_answer(make):
    ran = make.run(
        CHECK,
        make.deployment(ability=Ability.UNKNOWN),
        lambda ask: make.whole(ask.key, json.loads(ask.body)["messages"][0]["content"]),
    )
    assert ran.judgement.findings[0].summary == "0 of 10 calculations right"


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "warning"),
        (Ability.CAPABLE, "failure"),
        (Ability.UNKNOWN, "warning"),
    ],
)
def test_77_weighs_what_the_size_of_the_model_makes_it(make, ability, severity):
    deployment = make.deployment(ability=ability, depth=Depth.QUICK)
    ran = make.run(CHECK, deployment, lambda ask: make.whole(ask.key, "7 x 13 is 7 x 13, which equals 77."))
    assert len(ran.asked) == 1
    assert make.found(ran.judgement) == {"arithmetic": severity}


def test_a_capable_model_may_miss_one_but_not_7_x_13(make):
    def missing(key):
        return lambda ask: make.whole(ask.key, "1" if ask.key == key else result(ask))

    one = make.run(CHECK, make.deployment(), missing("17x6")).judgement
    first = make.run(CHECK, make.deployment(), missing("7x13")).judgement
    assert make.found(one) == {"arithmetic": "warning"}
    assert make.found(first) == {"arithmetic": "failure"}


def test_a_trace_in_its_own_field_is_recognised(make):
    ran = make.run(
        CHECK,
        make.deployment(),
        lambda ask: make.whole(ask.key, result(ask), reasoning_content="7 times 13, let me see"),
    )
    assert make.found(ran.judgement) == {"arithmetic": "ok"}
    assert ran.judgement.measurements[0].value == "in its own field"


@pytest.mark.parametrize(
    ("engine", "model", "flag"),
    [
        ("vllm", "MiniMaxAI/MiniMax-M2.5", "--reasoning-parser minimax_m2"),
        ("sglang", "Qwen/Qwen3-235B-A22B-Thinking-2507", "--reasoning-parser qwen3-thinking"),
        ("llama_cpp", "DeepSeek-R1-Distill.gguf", "--reasoning-format deepseek"),
        ("vllm", "acme/unheard-of", "--reasoning-parser <parser of this model family>"),
    ],
)
@pytest.mark.parametrize("opening", ["<think>", ""])
def test_a_trace_in_the_answer_is_a_warning_that_names_the_flag(make, engine, model, flag, opening):
    ran = make.run(
        CHECK,
        reasoning(engine, model),
        lambda ask: make.whole(ask.key, f"{opening}\n70 + 21 makes\n</think>\n\n{result(ask)}"),
    )
    assert make.found(ran.judgement) == {"arithmetic": "ok", "arithmetic.reasoning_leak": "warning"}
    leak = ran.judgement.findings[1]
    assert "no reasoning parser" in leak.summary
    assert flag in leak.action
    assert flag == f"{leak.fixes[0].name} {leak.fixes[0].new}"
    assert "70 + 21" in leak.evidence[0].text
    assert ("without its opening mark" in leak.summary) is (opening == "")


def test_a_leak_in_spite_of_a_parser_says_that_the_parser_does_not_match(make):
    ran = make.run(
        CHECK,
        reasoning("vllm", "Qwen/Qwen3-8B", parser="deepseek_r1"),
        lambda ask: make.whole(ask.key, f"<think>x</think>{result(ask)}"),
    )
    assert "`deepseek_r1` does not match" in ran.judgement.findings[1].summary


def test_a_parser_that_appends_the_trace_does_so_by_design(make):
    ran = make.run(
        CHECK,
        reasoning("vllm", "MiniMaxAI/MiniMax-M2.5", parser="minimax_m2_append_think"),
        lambda ask: make.whole(ask.key, f"<think>x</think>{result(ask)}"),
    )
    assert make.found(ran.judgement)["arithmetic.reasoning_leak"] == "note"


def test_a_cut_off_trace_is_asked_again_with_room_and_then_judged(make):
    def respond(ask):
        if json.loads(ask.body)["max_tokens"] < 100:
            return make.whole(ask.key, "", reasoning_content="Let me think", finish="length", tokens=24)
        return make.whole(ask.key, result(ask), reasoning_content="Let me think. 91.")

    deployment = make.deployment(depth=Depth.QUICK, context_tokens=32768)
    ran = make.run(CHECK, deployment, respond)
    assert [ask.key for ask in ran.asked] == ["7x13", "7x13.more"]
    assert json.loads(ran.asked[1].body)["max_tokens"] == 1024
    assert make.found(ran.judgement) == {"arithmetic": "ok"}


@pytest.mark.parametrize("leaks", [False, True])
def test_a_trace_that_never_ends_is_unknown_and_not_wrong(make, leaks):
    def respond(ask):
        tokens = json.loads(ask.body)["max_tokens"]
        text = "<think>wait, " if leaks else ""
        field = {} if leaks else {"reasoning_content": "wait, "}
        return make.whole(ask.key, text, finish="length", tokens=tokens, **field)

    ran = make.run(CHECK, make.deployment(context_tokens=32768), respond)
    found = make.found(ran.judgement)
    assert found.pop("arithmetic.trace") == "unknown"
    assert found == ({"arithmetic.reasoning_leak": "warning"} if leaks else {})
    assert "within 2048 tokens" in ran.judgement.findings[0].summary


def test_more_room_never_exceeds_half_of_what_the_model_takes(make):
    ran = make.run(
        CHECK,
        make.deployment(depth=Depth.QUICK, context_tokens=512),
        lambda ask: make.whole(ask.key, "<think>", finish="length"),
    )
    assert json.loads(ran.asked[-1].body)["max_tokens"] == 256


def test_a_tiny_model_that_rambles_is_not_asked_again(make):
    ran = make.run(
        CHECK,
        make.deployment(ability=Ability.TINY),
        lambda ask: make.whole(ask.key, "7 x 13 = 7 x 13 = 7", finish="length"),
    )
    assert ran.rounds == 1
    assert make.found(ran.judgement) == {"arithmetic": "note"}
