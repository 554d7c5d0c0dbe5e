from dataclasses import replace

import pytest

from bringup.checks.engine_kind import CHECK
from bringup.values.engine import EngineSpec, EngineStatus

VLLM = EngineSpec(engine="vllm", argv=("vllm", "serve", "m", "--api-key", "k"))


@pytest.mark.parametrize(
    ("spec", "answers", "expected"),
    [
        (VLLM, "vllm", {"engine_kind": "ok"}),
        (VLLM, "llama_cpp", {"engine_kind": "failure"}),
        (VLLM, "unknown", {}),
        (None, "vllm", {}),
    ],
)
def test_who_answers(make, spec, answers, expected):
    deployment = replace(make.deployment(), spec=spec, engine=EngineStatus(engine=answers))
    assert make.found(make.judge(CHECK, deployment)) == expected


def test_nothing_of_the_command_is_repeated(make):
    deployment = replace(make.deployment(), spec=VLLM, engine=EngineStatus(engine="sglang"))
    assert "--api-key" not in str(make.judge(CHECK, deployment))
