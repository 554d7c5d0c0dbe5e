import json
from dataclasses import replace

import pytest

from bringup.checks.models_endpoint import CHECK
from bringup.values.deployment import Deployment, Wanted
from bringup.values.engine import EngineSpec, EngineStatus, KvCapacity, ServedModel
from bringup.values.exchange import Answer, Problem


def listed(*rows: dict) -> Answer:
    body = json.dumps({"object": "list", "data": list(rows)})
    return Answer(key="list", status=200, headers=(("content-type", "application/json"),), body=body)


def under_test(*, engine="vllm", wanted=None, spec=None, slots=None, context=2048) -> Deployment:
    return Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine=engine, kv=KvCapacity(slots=slots)),
        model=ServedModel(id="m", context_tokens=context),
        wanted=wanted or Wanted(),
        spec=spec,
    )


VLLM = {"id": "m", "root": "MiniMaxAI/MiniMax-M2.5", "owned_by": "vllm", "max_model_len": 2048}


def test_any_model_will_do_when_none_is_wanted(make):
    assert make.found(make.judge(CHECK, under_test(), listed(VLLM))) == {"models_endpoint": "ok"}


def test_the_wanted_model_is_there(make):
    judgement = make.judge(CHECK, under_test(wanted=Wanted(model="m")), listed({"id": "x"}, VLLM))
    assert make.found(judgement) == {"models_endpoint": "ok"}


def test_another_model_than_the_wanted_one_is_a_failure(make):
    judgement = make.judge(CHECK, under_test(wanted=Wanted(model="other")), listed(VLLM))
    assert make.found(judgement) == {"models_endpoint": "failure"}
    assert judgement.findings[0].summary == "serves `m`, not `other`"


def test_another_name_than_the_command_line_says_is_a_warning(make):
    spec = EngineSpec(engine="vllm", served_names=("big", "large"))
    judgement = make.judge(CHECK, under_test(spec=spec), listed(VLLM))
    assert make.found(judgement) == {"models_endpoint": "warning"}
    assert "`big` or `large`" in judgement.findings[0].expected


def test_one_of_several_served_names_is_enough(make):
    spec = EngineSpec(engine="vllm", model="MiniMaxAI/MiniMax-M2.5", served_names=("m", "large"))
    assert make.found(make.judge(CHECK, under_test(spec=spec), listed(VLLM))) == {"models_endpoint": "ok"}


def test_the_wanted_model_under_another_name_is_a_note(make):
    wanted = Wanted(model="MiniMaxAI/MiniMax-M2.5")
    judgement = make.judge(CHECK, under_test(wanted=wanted), listed(VLLM))
    assert make.found(judgement) == {"models_endpoint": "note"}
    assert "under the name `m`" in judgement.findings[0].summary


def test_an_alias_counts_as_a_name(make):
    row = {"id": "/models/SmolLM2.gguf", "aliases": ["smol"], "owned_by": "llamacpp"}
    judgement = make.judge(CHECK, under_test(wanted=Wanted(model="smol")), listed(row))
    assert make.found(judgement) == {"models_endpoint": "ok"}


@pytest.mark.parametrize(
    ("served", "wanted", "severity"),
    [(2048, 2048, "ok"), (4096, 2048, "ok"), (2048, 131072, "failure"), (None, 2048, "unknown")],
)
def test_the_wanted_context_is_held_against_the_served_one(make, served, wanted, severity):
    deployment = under_test(wanted=Wanted(context_tokens=wanted), context=None)
    judgement = make.judge(CHECK, deployment, listed({"id": "m", "max_model_len": served}))
    assert make.found(judgement)["models_endpoint.context"] == severity


@pytest.mark.parametrize("served", [2048, 262144])
def test_another_context_than_configured_is_a_warning_with_the_flag(make, served):
    spec = EngineSpec(engine="vllm", context_tokens=131072)
    judgement = make.judge(CHECK, under_test(spec=spec), listed(VLLM | {"max_model_len": served}))
    assert make.found(judgement)["models_endpoint.context"] == "warning"
    fix = judgement.findings[1].fixes[0]
    assert (fix.name, fix.old, fix.new) == ("--max-model-len", str(served), "131072")


def test_llama_cpp_divides_the_context_among_its_slots(make):
    spec = EngineSpec(engine="llama_cpp", context_tokens=8192)
    row = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}
    judgement = make.judge(CHECK, under_test(engine="llama_cpp", spec=spec, slots=4), listed(row))
    assert make.found(judgement)["models_endpoint.context"] == "note"
    assert "4 slots" in judgement.findings[1].explanation
    assert judgement.findings[1].fixes[0].new == "32768"


@pytest.mark.parametrize(
    ("answer", "severity"),
    [
        (listed(), "failure"),
        (Answer(key="list", status=200, body="<html>hello</html>"), "failure"),
        (Answer(key="list", status=200, body=""), "failure"),
        (Answer(key="list", status=500, body="boom"), "failure"),
        (Answer(key="list", problem=Problem.RESET), "failure"),
        (Answer(key="list", problem=Problem.TIME_LIMIT, detail="20 s"), "failure"),
        (Answer(key="list", status=404, body="not found"), "note"),
        (Answer(key="list", status=401, body='{"error": "Unauthorized"}'), "unknown"),
        (Answer(key="list", problem=Problem.NOT_ASKED), "unknown"),
    ],
)
def test_no_list_of_models(make, answer, severity):
    assert make.found(make.judge(CHECK, under_test(), answer)) == {"models_endpoint": severity}


@pytest.mark.parametrize(
    ("asked", "named", "severities"),
    [
        ("m", "m", {}),
        ("m", "other-70b", {"models_endpoint.reply": "warning"}),
        ("m", "MiniMaxAI/MiniMax-M2.5", {}),
        ("openai/m", "m", {}),
        ("m", "openai/m", {}),
        ("m", None, {}),
    ],
)
def test_a_reply_in_another_name_is_routed_elsewhere(make, asked, named, severities):
    answer = make.whole("named", "Hi")
    body = json.dumps(json.loads(answer.body) | {"model": named})
    deployment = replace(under_test(), model=ServedModel(id=asked))
    judgement = make.judge(CHECK, deployment, listed(VLLM | {"id": asked}), replace(answer, body=body))
    assert make.found(judgement) == {"models_endpoint": "ok"} | severities


def test_a_reply_that_did_not_come_is_judged_by_other_checks(make):
    judgement = make.judge(CHECK, under_test(), listed(VLLM), make.error("named", 500))
    assert make.found(judgement) == {"models_endpoint": "ok"}


def test_it_asks_for_the_list_and_for_one_reply(make):
    ran = make.run(
        CHECK, under_test(), lambda ask: listed(VLLM) if ask.key == "list" else make.whole("named", "Hi")
    )
    assert [(ask.method, ask.path) for ask in ran.asked] == [
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
    ]
    assert json.loads(ran.asked[1].body)["max_tokens"] == 1
