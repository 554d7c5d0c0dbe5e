import asyncio
from pathlib import Path

import pytest

from bringup.errors import EXIT_UNKNOWN, HostError
from bringup.flows.reach import replayed
from bringup.flows.verify import (
    VerifyRequest,
    World,
    _changes_may_show,
    engine_spec,
    parameters_of_model,
    verify,
)
from bringup.transport.recording import save
from bringup.transport.replay import ReplayEndpoint, ReplayRunner, ReplaySandbox
from bringup.values.deployment import Deployment, Depth
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer
from bringup.values.host import CommandResult, EngineProcess, Gpu, HostSnapshot
from bringup.values.recording import Recording


class RememberingRunner:
    """A host that answers nothing and remembers what it was asked."""

    host = "gpubox"

    def __init__(self):
        self.scripts = {}

    async def ask(self, questions):
        self.scripts = {question.key: question.script for question in questions}
        return {question.key: CommandResult(key=question.key, status=1) for question in questions}

    async def close(self):
        pass


def test_the_disk_of_the_folders_that_the_command_line_names_is_asked_for():
    runner = RememberingRunner()
    recording = Recording(probes={"/v1/models": Answer(key="/v1/models", status=200, body="{}")})
    request = VerifyRequest(
        url="http://gpubox:8000",
        only=("gpu_memory",),
        spec=engine_spec(("vllm", "serve", "/models/Mini Max", "--download-dir", "/cache")),
    )
    world = World(runner=runner, endpoint=ReplayEndpoint(recording), sandbox=ReplaySandbox(recording))
    asyncio.run(verify(request, world))
    assert "disk model '/models/Mini Max'\n" in runner.scripts["machine.disks"]
    assert "disk download_folder /cache\n" in runner.scripts["machine.disks"]


@pytest.mark.parametrize(
    ("depth", "has_process", "has_gpus", "looks"),
    [
        (Depth.DEFAULT, True, False, True),
        (Depth.QUICK, True, False, False),
        (Depth.QUICK, False, True, True),
        (Depth.FULL, False, False, False),
    ],
)
def test_a_second_look_where_it_can_show_something(depth, has_process, has_gpus, looks):
    host = HostSnapshot(
        taken_at=0.0,
        host="gpubox",
        gpus=(Gpu(index=0),) if has_gpus else (),
        engines=(EngineProcess(pid=7, port=8000),) if has_process else (),
    )
    deployment = Deployment(
        url="http://gpubox:8000",
        engine=EngineStatus(engine="vllm"),
        model=ServedModel(id="m"),
        depth=depth,
        host=host,
    )
    assert _changes_may_show(deployment) is looks


def test_a_recording_without_the_first_probe_of_today_still_replays():
    recording = Recording(probes={"/v1/models": Answer(key="/v1/models", status=200, body="{}")})
    request = VerifyRequest(url="http://gpubox:8000", only=("gpu_memory",))
    world = World(runner=None, endpoint=ReplayEndpoint(recording), sandbox=ReplaySandbox(recording))
    report = asyncio.run(verify(request, world)).report
    assert (report.verdict, report.exit_code) == ("not measured", EXIT_UNKNOWN)


def test_a_recording_without_any_answer_is_no_endpoint():
    request = VerifyRequest(url="http://gpubox:8000", only=("gpu_memory",))
    world = World(runner=None, endpoint=ReplayEndpoint(Recording()), sandbox=ReplaySandbox(Recording()))
    with pytest.raises(HostError, match=r"no endpoint answered at .*: not in the recording"):
        asyncio.run(verify(request, world))


def test_a_hub_id_is_no_folder():
    runner = RememberingRunner()
    recording = Recording(probes={"/v1/models": Answer(key="/v1/models", status=200, body="{}")})
    spec = engine_spec(("vllm", "serve", "org/model"))
    request = VerifyRequest(url="http://gpubox:8000", only=("gpu_memory",), spec=spec)
    world = World(runner=runner, endpoint=ReplayEndpoint(recording), sandbox=ReplaySandbox(recording))
    asyncio.run(verify(request, world))
    assert "org/model" not in runner.scripts["machine.disks"]


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (ServedModel(id="x", parameters=5), 5),
        (ServedModel(id="Qwen3-8B"), 8_000_000_000),
        (ServedModel(id="m", root="/models/SmolLM2-135M-Instruct"), 135_000_000),
        (
            ServedModel(id="MiniMaxAI/MiniMax-M2.5"),
            228_703_644_928,
        ),  # the name says nothing
        (ServedModel(id="served", root="/data/MiniMax-M2.5"), 228_703_644_928),
        (ServedModel(id="my-model"), None),
    ],
)
def test_the_size_of_a_model(model, parameters):
    assert parameters_of_model(model) == parameters


def test_a_price_is_told_recorded_and_replayed(tmp_path):
    folder = Path(__file__).parents[2] / "golden/vendors/nvidia/case-a"
    told = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("nvidia.*.txt")}
    results = {key: CommandResult(key=key, status=0, stdout=text) for key, text in told.items()}
    recording = Recording(
        probes={"/v1/models": Answer(key="/v1/models", status=200, body="{}")},
        snapshots={"before": results, "after": results},
    )
    world = World(
        runner=ReplayRunner(recording),
        runner_after=ReplayRunner(recording, "after"),
        endpoint=ReplayEndpoint(recording),
        sandbox=ReplaySandbox(recording),
        is_replay=True,
    )
    request = VerifyRequest(url="http://gpubox:8000", only=("power_state",), price_per_kwh=0.25)
    outcome = asyncio.run(verify(request, world))
    power, cost = outcome.report.measurements
    assert (power.value, cost.value) == (467.1, 2.8)  # 467.14 W x 24 h = 11.21 kWh
    file = tmp_path / "priced.json.gz"
    save(file, outcome.recording)
    again = asyncio.run(verify(*replayed(file))).report
    assert again.measurements == outcome.report.measurements
    (found,) = again.findings
    assert found.summary == (
        "4 x 83.3 W with the model at rest + 4 x 33.5 W idle = 467 W (limit 600 W), 2.80 a day"
    )


class HangingEndpoint(ReplayEndpoint):
    """An endpoint of a recording whose answer to one check never comes."""

    def __init__(self, recording, *, hangs_at):
        super().__init__(recording)
        self.hangs_at = hangs_at
        self.is_hanging = asyncio.Event()

    async def send(self, ask):
        if ask.key.startswith(self.hangs_at):
            self.is_hanging.set()
            await asyncio.Event().wait()
        return await super().send(ask)


@pytest.mark.parametrize("keeps", [True, False])
def test_what_was_observed_before_an_interruption_can_be_kept(keeps):
    answers = {"models_endpoint": {"list": Answer(key="list", status=200, body='{"data":[{"id":"m"}]}')}}
    recording = Recording(
        probes={"/v1/models": Answer(key="/v1/models", status=200, body="{}")}, answers=answers
    )

    async def interrupted():
        endpoint = HangingEndpoint(recording, hangs_at="cancel/")
        world = World(runner=None, endpoint=endpoint, sandbox=ReplaySandbox(recording))
        request = VerifyRequest(
            url="http://gpubox:8000", only=("models_endpoint", "cancel"), keeps_interrupted=keeps
        )
        task = asyncio.ensure_future(verify(request, world))
        await endpoint.is_hanging.wait()
        task.cancel()
        return await task

    if not keeps:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(interrupted())
        return
    outcome = asyncio.run(interrupted())
    assert outcome.is_interrupted
    assert outcome.recording.answers["models_endpoint"]["list"].body == '{"data":[{"id":"m"}]}'
