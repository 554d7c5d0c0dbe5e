import json

import pytest

from bringup.checks import Replies
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


def test_it_is_asked_once(make):
    ran = make.run(CHECK, under_test(), lambda _: listed(VLLM))
    assert [(ask.method, ask.path) for ask in ran.asked] == [("GET", "/v1/models")]


def answered_by(
    name: str, *, check: str = "fact", listed_names: tuple[str, ...] = ("big-8b",)
) -> dict[str, str]:
    """Findings by id when an answer to `check` carries `name`."""
    model = ServedModel(id="big-8b", root="/models/Big-8B-Instruct/")
    status = EngineStatus(engine="vllm", models=tuple(ServedModel(id=one) for one in listed_names))
    body = json.dumps(
        {"model": name, "choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}]}
    )
    replies = Replies(
        answers={"list": listed({"id": "big-8b"})},
        programs={},
        everyone={check: {"capital": Answer(key="capital", status=200, body=body)}},
    )
    found = CHECK.judge(Deployment(url="http://x:1", engine=status, model=model), replies).findings
    return {one.id: one.severity for one in found}


@pytest.mark.parametrize(
    "name", ["big-8b", "Big-8B", "meta/big-8b", "big-8b:latest", "/models/Big-8B-Instruct"]
)
def test_answers_in_a_spelling_of_the_own_name_are_fine(name):
    assert answered_by(name) == {"models_endpoint": "ok"}


def test_answers_in_another_name_are_a_warning():
    assert answered_by("small-1b") == {"models_endpoint": "ok", "models_endpoint.answers": "warning"}


def test_answers_to_the_request_for_another_model_are_no_surprise():
    assert answered_by("no-such-model", check="bad_requests") == {"models_endpoint": "ok"}


def test_where_no_model_is_listed_any_name_may_be_its_own():
    assert answered_by("small-1b", listed_names=()) == {"models_endpoint": "ok"}
