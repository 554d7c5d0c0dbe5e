"""Published forms of one model: where they are looked for, how they are planned, who could not be asked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from small_model import CONFIG

from bringup.errors import UsageError
from bringup.flows.model_source import HubPlace
from bringup.flows.plan import PlanRequest, plan
from bringup.flows.variants import Asked, compare, engine_for
from bringup.parse.model_catalogue import base_name
from bringup.report.plan import build_plan_report
from bringup.report.plan_json import render_plan_json
from bringup.transport import hub
from bringup.values.model import ModelSpec

FP8 = {**CONFIG, "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and beside it the same in eight bits."""
    for name, config in (("made-up-3b", CONFIG), ("made-up-3b-FP8", FP8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    return tmp_path


def request(model: Path | str, **more: object) -> PlanRequest:
    words = {"model": str(model), "gpus": "1x RTX 4090", "engine_version": "0.32.0", "context": 4096, **more}
    return PlanRequest(**words)  # type: ignore[arg-type]


def test_named_variants_are_planned_and_shown(folder: Path) -> None:
    asked = request(
        folder / "made-up-3b", compares_variants=True, variants=(str(folder / "made-up-3b-FP8"), "/nowhere")
    )
    found = plan(asked)
    assert found.variants is not None
    own, eight, lost = found.variants.found
    assert (own.weights_format, own.runs, own.found_in) == ("bf16", "native", "asked for")
    assert (eight.weights_format, eight.found_in, eight.engine) == ("fp8 tensor", "named", "vllm")
    assert eight.runs is not None
    assert eight.runs.startswith("native")
    assert own.best is not None
    assert eight.best is not None
    assert eight.best.weights_bytes < own.best.weights_bytes
    assert eight.best.kv.tokens > own.best.kv.tokens
    assert lost.best is None
    assert "no file or folder" in lost.reason
    shown = json.loads(render_plan_json(found))["quantizations"]["variants"]
    assert [(row["fits"], row["tokens"] is None) for row in shown] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    report = build_plan_report(found, explain=False, tool_version="1")
    (table,) = [one for one in report.tables if one.title.startswith("Published variants")]
    assert len(table.rows) == 3
    assert "/nowhere" in table.note


def test_without_asking_nothing_is_compared(folder: Path) -> None:
    found = plan(request(folder / "made-up-3b"))
    assert found.variants is None
    assert "quantizations" not in json.loads(render_plan_json(found))


def test_the_command_is_the_same_for_every_variant(folder: Path) -> None:
    line = f"vllm serve {folder / 'made-up-3b'} --max-model-len 4096"
    found = plan(
        request(
            "",
            argv=tuple(line.split()),
            variants=(str(folder / "made-up-3b-FP8"),),
            compares_variants=True,
        )
    )
    assert found.variants is not None
    best = found.variants.found[1].best
    assert best is not None
    assert best.command == ("vllm", "serve", str(folder / "made-up-3b-FP8"), "--max-model-len", "4096")


def test_catalogue_rows_of_the_same_model(tmp_path: Path) -> None:
    place = HubPlace(cache=tmp_path, endpoint="http://127.0.0.1:9")
    first = plan(request("Qwen/Qwen3-32B", gpus="2x RTX 5090"))
    model = ModelSpec(name="m", architecture="", model_type="", layers=(), hidden_size=1, vocabulary=1)
    asked = Asked(model=model, name="Qwen/Qwen3-32B")
    found = compare(asked, first, lambda *_: first, place=place)
    names = {one.name for one in found.found}
    assert len(found.found) >= 4  # itself, FP8, FP8 static, NVFP4
    assert "m" in names
    assert all(one.found_in in ("asked for", "catalogue") for one in found.found)
    (lost,) = found.not_asked
    assert lost.startswith("the hub: cannot ask")


class Hub(BaseHTTPRequestHandler):
    """A hub that knows one model and one variant of it."""

    def do_GET(self) -> None:
        place = urlparse(self.path)
        if place.path == "/api/models/own/tiny":
            return self.send({"id": "own/tiny", "siblings": []})
        if place.path == "/api/models":
            (wanted,) = parse_qs(place.query)["filter"]
            names = ["own/tiny-AWQ"] if wanted == "base_model:quantized:own/tiny" else []
            return self.send([{"id": name, "modelId": name} for name in names])
        return self.send({}, 404)

    def send(self, content: object, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        if status == 404:
            self.send_header("X-Error-Code", "RepoNotFound")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_hub_is_asked_for_what_names_the_model_as_its_base() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        assert hub.list_quantized("own/tiny", limit=5, endpoint=endpoint) == ("own/tiny-AWQ",)
        with pytest.raises(UsageError, match="has no model"):
            hub.list_quantized("own/other", limit=5, endpoint=endpoint)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_models_in_the_hubs_cache(tmp_path: Path) -> None:
    for name in ("models--own--tiny-FP8/snapshots/1", "models--own--empty"):
        (tmp_path / name).mkdir(parents=True)
    folder = tmp_path / "models--own--tiny-FP8/snapshots/1"
    assert hub.cached_models(cache=tmp_path) == (("own/tiny-FP8", folder),)


def test_a_gguf_file_is_llama_cpps_whatever_the_others_are_planned_for() -> None:
    spec = ModelSpec(name="m", architecture="", model_type="", layers=(), hidden_size=1, vocabulary=1)
    gguf = ModelSpec(
        name="m", architecture="", model_type="", layers=(), hidden_size=1, vocabulary=1, source="m.gguf"
    )
    assert [engine_for(gguf, engine) for engine in ("vllm", "sglang")] == ["llama_cpp", "llama_cpp"]
    assert [engine_for(spec, engine) for engine in ("sglang", "llama_cpp")] == ["sglang", "vllm"]


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-32B",
        "RedHatAI/Qwen3-32B-NVFP4",
        "Qwen/Qwen3-32B-FP8-Static-PerTensor",
        "Qwen3-32B-Q4_K_M.gguf",
        "unsloth/Qwen3-32B-GGUF",
        "Qwen3-32B-UD-IQ2_XXS-00001-of-00002.gguf",
        "Qwen/Qwen3-32B-AWQ",
    ],
)
def test_names_of_the_same_model(name: str) -> None:
    assert base_name(name) == "qwen3-32b"
    assert base_name("Qwen/Qwen3-32B-Thinking") != base_name(name)
