"""A deployment with the figures of a four-GPU machine, and its report."""

import pytest

from bringup.report.build import Judged, build_report
from bringup.units import mib
from bringup.values.deployment import Ability, Deployment
from bringup.values.engine import EngineStatus, KvCapacity, ServedModel
from bringup.values.finding import Evidence, Finding, Fix, Judgement, Measurement, Severity
from bringup.values.host import Gpu, HostFacts, HostSnapshot

USED = (96721, 96721, 96721, 96721, 3, 3, 3, 3)


@pytest.fixture
def deployment():
    gpus = tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index:08d}",
            name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            memory_total=mib(97887),
            memory_reserved=mib(636),
            memory_used=mib(used),
            power=84.3 if used > 1000 else 34.3,
            utilization=0.0,
        )
        for index, used in enumerate(USED)
    )
    return Deployment(
        url="http://gpubox:8000",
        engine=EngineStatus(
            engine="vllm",
            display_name="vLLM",
            version="0.16.0",
            kv=KvCapacity(tokens=563_000),
            max_running=256,
        ),
        model=ServedModel(id="MiniMaxAI/MiniMax-M2.5", context_tokens=131072, parameters=230_000_000_000),
        ability=Ability.CAPABLE,
        host=HostSnapshot(
            taken_at=1_796_000_000.0,
            host="gpubox",
            facts=HostFacts(name="gpubox", memory_total=mib(1_031_000), memory_available=mib(900_000)),
            gpus=gpus,
        ),
    )


def make_judged(name, severity, summary, *, section="function", measurements=(), **parts):
    finding = Finding(id=name, severity=severity, summary=summary, **parts)
    judgement = Judgement(findings=(finding,), measurements=measurements)
    return Judged(name=name, title=f"does {name}", section=section, judgement=judgement)


def make_report(deployment, *rows):
    return build_report(deployment, rows, taken_at=1_796_000_000.0, duration_s=12.5, tool_version="1")


@pytest.fixture
def judged():
    return make_judged


@pytest.fixture
def report_of():
    return make_report


@pytest.fixture
def report(deployment):
    return make_report(
        deployment,
        make_judged("fact", Severity.OK, "Paris"),
        make_judged(
            "arithmetic",
            Severity.FAILURE,
            "7 x 13 came out as 77 | not 91",
            expected="91",
            explanation="A model of this size multiplies two small numbers.",
            action="look at the quantisation",
            evidence=(Evidence(source="answer arithmetic/7x13", text="7 x 13 = 77\x00 <b>`!`</b>"),),
            fixes=(Fix(type="flag", name="--dtype", old="auto", new="bfloat16"),),
        ),
        make_judged(
            "code", Severity.UNKNOWN, "no isolation here", action="run as a user who may create namespaces"
        ),
        make_judged("exposure", Severity.WARNING, "listens on all interfaces without a key"),
        make_judged(
            "speed",
            Severity.OK,
            "84 tokens/s",
            measurements=(
                Measurement(name="single-stream speed", value=84.04, unit="tokens/s"),
                Measurement(name="time to first token", value=0.0531, unit="s"),
                Measurement(name="long answer", value=None, unit="s"),
            ),
        ),
    )
