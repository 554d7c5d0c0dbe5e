"""A model by path, by hub cache, by catalogue, and from a hub that runs on this machine for the test."""

import json
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bringup.errors import HostError, UnreadableAnswer, UsageError
from bringup.flows.model_source import HubPlace, find_model
from bringup.values.finding import Severity

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 32,
    "max_position_embeddings": 64,
    "torch_dtype": "bfloat16",
}


def shard(**tensors):
    """A whole safetensors file with zeros for weights."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


FIRST, SECOND = shard(embed=(512, 8)), shard(head=(512, 8), up=(16, 8))
INDEX = {
    "metadata": {"total_size": 1280},
    "weight_map": {"embed": "a-00001-of-00002.safetensors", "head": "a-00002-of-00002.safetensors"},
}


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "a-00001-of-00002.safetensors").write_bytes(FIRST)
    (model / "a-00002-of-00002.safetensors").write_bytes(SECOND)
    (model / "model.safetensors.index.json").write_text(json.dumps(INDEX))
    return model


@pytest.fixture
def place(tmp_path):
    """A cache that is empty and a hub that is not there."""
    return HubPlace(cache=tmp_path / "cache", endpoint="http://127.0.0.1:9")


def failures(model):
    return [finding.id for finding in model.findings if finding.severity is Severity.FAILURE]


def test_a_folder_is_read_with_the_headers_of_its_shards(folder):
    model = find_model(str(folder))
    assert (model.origin, len(model.layers), failures(model)) == ("headers", 2, [])
    assert {tensor.name: tensor.bytes for tensor in model.tensors} == {"embed": 8192, "head": 8192, "up": 256}
    assert str(folder) in model.source


def test_the_config_alone_will_do(folder):
    assert len(find_model(str(folder / "config.json")).layers) == 2
    model = find_model("some/name", config_file=folder / "config.json")
    assert (model.name, model.origin) == ("some/name", "config")


def test_a_folder_without_weights_says_so_and_plans_from_the_config(folder):
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    model = find_model(str(folder))
    assert (model.origin, model.tensors) == ("config", ())
    assert [finding.id for finding in model.findings] == ["weights.none"]


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"", "weights.unreadable"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "weights.unreadable"),
        (struct.pack("<Q", 10**11) + b"{}", "weights.unreadable"),
        (SECOND[:-100], "weights.truncated"),
        (None, "weights.missing_shard"),
    ],
)
def test_a_sick_shard_is_a_finding_and_its_sizes_are_not_believed(folder, content, finding):
    file = folder / "a-00002-of-00002.safetensors"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    model = find_model(str(folder))
    assert finding in failures(model)
    assert (model.origin, model.tensors) == ("config", ())


def test_the_quantisation_beside_the_config_is_read(folder):
    told = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(told))
    for name in (folder, folder / "config.json"):
        model = find_model(str(name))
        assert (model.quantization.scheme, model.quantization.kv_cache) == ("nvfp4", "fp8")


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "not JSON"), ("[1]", "no JSON object"), ("{}", "no layers"), ("\udcff", "no text")],
)
def test_what_is_no_config_is_refused(folder, text, said):
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=said):
        find_model(str(folder))


def test_a_folder_with_nothing_in_it_is_refused(tmp_path, place):
    with pytest.raises(UsageError, match=r"no config\.json"):
        find_model(str(tmp_path))
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="no model folder"):
        find_model(str(tmp_path / "x.bin"))
    with pytest.raises(UsageError, match="no file or folder here"):
        find_model(str(tmp_path / "gone" / "model"), place=place)
    with pytest.raises(UsageError, match="which model"):
        find_model(None)


def gguf(metadata, tensors):
    """A GGUF file without the data, which the header does not need."""

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(key, value):
        if isinstance(value, str):
            return text(key) + struct.pack("<I", 8) + text(value)
        if isinstance(value, list):
            numbers = b"".join(struct.pack("<I", number) for number in value)
            return text(key) + struct.pack("<IIQ", 9, 4, len(value)) + numbers
        return text(key) + struct.pack("<II", 4, value)

    body = b"".join(entry(key, value) for key, value in metadata.items())
    size = 0
    for name, shape in tensors.items():
        body += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, 0)
        size += 4 * shape[0] * shape[1]
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + body
    return start + bytes(-len(start) % 32 + size)


GGUF = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": 3,
    "qwen3moe.context_length": 4096,
    "qwen3moe.embedding_length": 8,
    "qwen3moe.attention.head_count": 4,
    "qwen3moe.attention.head_count_kv": 2,
    "qwen3moe.attention.key_length": 16,
    "qwen3moe.expert_count": 8,
    "qwen3moe.expert_used_count": 2,
    "qwen3moe.expert_feed_forward_length": 32,
}


def test_a_gguf_file_is_read_by_its_header(tmp_path):
    file = tmp_path / "tiny-Q4.gguf"
    file.write_bytes(gguf(GGUF, {"token_embd.weight": (8, 100), "blk.0.x": (4, 4)}))
    for name in (file, tmp_path):
        model = find_model(str(name))
        assert (model.name, model.origin, model.model_type) == ("tiny-Q4", "headers", "qwen3_moe")
        assert (len(model.layers), model.vocabulary, model.is_tied) == (3, 100, True)
        attention, mlp = model.layers[0].attention, model.layers[0].mlp
        assert (attention.query_heads, attention.kv_heads, attention.head_dim) == (4, 2, 16)
        assert (mlp.experts, mlp.experts_per_token, mlp.intermediate_size) == (8, 2, 32)
        assert sum(tensor.bytes for tensor in model.tensors) == 3200 + 64


def test_a_gguf_hybrid_has_zero_heads_where_there_is_no_attention(tmp_path):
    hybrid = {
        "general.architecture": "nemotron_h",
        "nemotron_h.block_count": 4,
        "nemotron_h.embedding_length": 8,
        "nemotron_h.attention.head_count": 4,
        "nemotron_h.attention.head_count_kv": [0, 0, 2, 0],
        "nemotron_h.attention.key_length": 16,
        "nemotron_h.feed_forward_length": [0, 64, 0, 0],
        "nemotron_h.ssm.state_size": 16,
        "nemotron_h.ssm.group_count": 2,
        "nemotron_h.ssm.inner_size": 32,
        "nemotron_h.ssm.time_step_rank": 4,
        "nemotron_h.ssm.conv_kernel": 4,
    }
    file = tmp_path / "h.gguf"
    file.write_bytes(gguf(hybrid, {"token_embd.weight": (8, 10), "output.weight": (8, 10)}))
    model = find_model(str(file))
    assert [layer.mixer.value for layer in model.layers] == ["mamba2", "none", "full", "mamba2"]
    assert (model.layers[0].state.value_heads, model.layers[0].state.value_head_dim) == (4, 8)
    assert model.layers[1].mlp.intermediate_size == 64
    assert not model.is_tied


def test_a_split_gguf_is_one_model(tmp_path):
    names = [tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2)]
    names[0].write_bytes(gguf(GGUF, {"token_embd.weight": (8, 100)}))
    with pytest.raises(UsageError, match="1 of 2 files of the model are missing"):
        find_model(str(names[0]))
    names[1].write_bytes(gguf({"general.architecture": "qwen3moe"}, {"blk.2.x": (4, 4)}))
    for name in (names[1], tmp_path):
        assert [tensor.name for tensor in find_model(str(name)).tensors] == ["token_embd.weight", "blk.2.x"]


def test_a_damaged_gguf_is_refused(tmp_path):
    file = tmp_path / "x.gguf"
    for content in (b"", b"GGML" + bytes(40), gguf(GGUF, {"t": (4, 4)})[:-30]):
        file.write_bytes(content)
        with pytest.raises((UnreadableAnswer, UsageError)):
            find_model(str(file))


def test_a_known_model_needs_neither_files_nor_network(place):
    model = find_model("MiniMaxAI/MiniMax-M2.5", place=place)
    assert (model.origin, len(model.layers), model.quantization.scheme) == ("catalogue", 62, "fp8_block")
    assert model.parameters == 228703644928
    assert model.notes == ()


def test_a_path_of_another_machine_is_taken_for_the_model_it_is_named_after(place):
    model = find_model("/srv/models/MiniMax-M2.5", place=place)
    assert (model.origin, len(model.layers)) == ("catalogue", 62)
    assert "not on this machine" in model.notes[-1]


def test_what_is_not_sure_in_the_catalogue_is_told(place):
    model = find_model("nvidia/Llama-3_1-Nemotron-Ultra-253B-v1", place=place)
    assert "not known" in model.notes[-1]


def test_the_hubs_cache_comes_before_the_catalogue(place):
    root = place.cache / "models--Qwen--Qwen3-8B"
    snapshot = root / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (root / "refs").mkdir()
    (root / "refs" / "main").write_text("0" * 40)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    model = find_model("Qwen/Qwen3-8B", place=place)
    assert (len(model.layers), model.origin, model.findings) == (2, "config", ())
    assert model.source.startswith("hub cache")
    (snapshot / "model.safetensors").write_bytes(FIRST)
    assert find_model("Qwen/Qwen3-8B", place=place).origin == "headers"


FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "model.safetensors.index.json": json.dumps(
        {"metadata": {}, "weight_map": {"embed": "one.safetensors", "head": "two.safetensors"}}
    ).encode(),
    "one.safetensors": FIRST,
    "two.safetensors": SECOND,
}


class Hub(BaseHTTPRequestHandler):
    """As much of a hub as a config and ranged reads of headers need."""

    protocol_version = "HTTP/1.1"
    asked: list[str]

    def do_HEAD(self):
        self.answer(has_body=False)

    def do_GET(self):
        self.answer(has_body=True)

    def answer(self, *, has_body):
        path = self.path.split("?")[0]
        self.server.asked.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if path.startswith("/api/models/"):
            name = path.removeprefix("/api/models/").split("/revision/")[0]
            if name == "own/gated":
                return self.send(403, b"{}", {"X-Error-Code": "GatedRepo"}, has_body=has_body)
            if name not in {"own/tiny", "own/bare"}:
                return self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"}, has_body=has_body)
            files = FILES if name == "own/tiny" else {"model.gguf": b""}
            told = {"id": name, "sha": "1" * 40, "siblings": [{"rfilename": file} for file in files]}
            return self.send(200, json.dumps(told).encode(), {}, has_body=has_body)
        content = FILES.get(path.rsplit("/", 1)[-1])
        if content is None or not path.startswith("/own/tiny/"):
            return self.send(404, b"", {"X-Error-Code": "EntryNotFound"}, has_body=has_body)
        headers = {"ETag": f'"{len(content)}"', "X-Repo-Commit": "1" * 40}
        if span := self.headers.get("Range"):
            first, last = span.removeprefix("bytes=").split("-")
            part = content[int(first) : int(last) + 1]
            headers["Content-Range"] = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            return self.send(206, part, headers, has_body=has_body)
        return self.send(200, content, headers, has_body=has_body)

    def send(self, status, body, headers, *, has_body):
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def served(tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield HubPlace(cache=tmp_path / "cache", endpoint=f"http://127.0.0.1:{server.server_port}"), server.asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_of_the_hub_is_read_by_its_config_and_headers(served):
    place, asked = served
    model = find_model("own/tiny", place=place)
    assert (model.origin, len(model.layers), len(model.tensors)) == ("headers", 2, 3)
    assert model.source == "hub: own/tiny"
    assert {tensor.file for tensor in model.tensors} == {"one.safetensors", "two.safetensors"}
    weights = [line for line in asked if "/one.safetensors" in line and line.startswith("GET")]
    assert weights
    assert all("bytes=" in line for line in weights)  # never a whole weight file


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("own/gated", HostError, "let in"),
        ("own/none", UsageError, "has no model"),
        ("own/bare", UsageError, r"no config\.json on the hub"),
    ],
)
def test_what_the_hub_will_not_give_is_told(served, name, error, said):
    with pytest.raises(error, match=said) as caught:
        find_model(name, place=served[0])
    assert caught.value.hint


def test_a_hub_that_is_not_there_is_told_at_once(place):
    with pytest.raises(HostError, match="cannot ask the hub") as caught:
        find_model("own/other", place=place)
    assert "--model-config" in caught.value.hint


def test_nothing_is_asked_when_the_user_is_offline(tmp_path):
    code = (
        "from pathlib import Path\n"
        "from bringup.errors import HostError\n"
        "from bringup.flows.model_source import HubPlace, find_model\n"
        "place = HubPlace(cache=Path(r'%s'), endpoint='http://127.0.0.1:9')\n"
        "try:\n"
        "    find_model('own/other', place=place)\n"
        "except HostError as error:\n"
        "    print(error.message)\n"
    ) % (tmp_path / "cache")
    source = str(Path(__file__).parents[3] / "src")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"HF_HUB_OFFLINE": "1", "PYTHONPATH": source, "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "HF_HUB_OFFLINE forbids" in done.stdout
