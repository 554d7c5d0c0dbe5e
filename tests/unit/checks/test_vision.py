import json
from dataclasses import replace

import pytest

from bringup.checks.vision import CHECK
from bringup.values.deployment import Ability, Deployment
from bringup.values.engine import EngineStatus, ServedModel


def under_test(*, model="Qwen/Qwen2.5-VL-7B-Instruct", sees=None, ability=Ability.CAPABLE) -> Deployment:
    return Deployment(
        url="http://127.0.0.1:8000",
        engine=EngineStatus(engine="vllm", supports_vision=sees),
        model=ServedModel(id=model),
        ability=ability,
    )


@pytest.mark.parametrize(
    ("model", "sees", "asked"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", None, True),
        ("Qwen/Qwen3-VL-30B-A3B-Instruct", None, True),
        ("llava-hf/llava-1.5-7b-hf", None, True),
        ("google/gemma-3-27b-it", None, True),
        ("google/gemma-3-1b-it", None, False),
        ("MiniMaxAI/MiniMax-M2.5", None, False),
        ("served-name", True, True),
        ("Qwen/Qwen2.5-VL-7B-Instruct", False, False),
        ("smollm2-135m-instruct", None, False),
    ],
)
def test_pictures_are_shown_to_models_that_see(make, model, sees, asked):
    ran = make.run(CHECK, under_test(model=model, sees=sees), lambda ask: make.whole(ask.key, "red 7"))
    assert [ask.key for ask in ran.asked] == (["colour", "digit"] if asked else [])
    in_doubt = {"vision": "note"} if "VL" in model else {}  # its name says so and its engine does not
    assert make.found(ran.judgement) == ({"vision": "ok"} if asked else in_doubt)


def test_a_config_that_names_a_part_for_pictures_puts_it_in_doubt(make):
    ran = make.run(CHECK, replace(under_test(model="own-name"), has_encoder=True), lambda ask: None)
    (found,) = ran.judgement.findings
    assert found.severity == "note"
    assert "though the model's config says that it sees" in found.summary


def test_a_picture_travels_as_a_data_url(make):
    ran = make.run(CHECK, under_test(), lambda ask: make.whole(ask.key, "red 7"))
    parts = json.loads(ran.asked[0].body)["messages"][0]["content"]
    assert parts[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert len(ran.asked[1].body) < 10_000


@pytest.mark.parametrize(
    ("ability", "severity"),
    [
        (Ability.TINY, "note"),
        (Ability.SMALL, "warning"),
        (Ability.CAPABLE, "failure"),
        (Ability.UNKNOWN, "warning"),
    ],
)
def test_a_blind_model_is_judged_by_its_size(make, ability, severity):
    ran = make.run(CHECK, under_test(ability=ability), lambda ask: make.whole(ask.key, "A cat."))
    assert make.found(ran.judgement) == {"vision": severity}


@pytest.mark.parametrize(("sees", "severity"), [(True, "warning"), (None, "note")])
def test_refused_pictures_weigh_by_who_said_that_it_sees(make, sees, severity):
    message = "At most 0 image(s) may be provided in one prompt."
    ran = make.run(CHECK, under_test(sees=sees), lambda ask: make.error(ask.key, 400, message))
    assert make.found(ran.judgement) == {"vision": severity}
    assert "At most 0" in ran.judgement.findings[0].summary


def test_an_engine_that_breaks_on_a_picture_is_a_failure(make):
    ran = make.run(CHECK, under_test(), lambda ask: make.error(ask.key, 500, "CUDA error"))
    assert make.found(ran.judgement) == {"vision.delivery": "failure"}
