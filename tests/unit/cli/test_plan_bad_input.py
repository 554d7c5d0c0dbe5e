"""Bad input to `bringup plan`, as it is typed: each with its exit code and words, never a traceback."""

import json
import struct
import sys

import pytest

from bringup.cli.main import main
from bringup.errors import (
    EXIT_FINDINGS,
    EXIT_NO_FIT,
    EXIT_OK,
    EXIT_UNKNOWN,
    EXIT_USAGE,
)

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def run(monkeypatch, capsys):
    """The exit code and both outputs of one `bringup plan`."""

    def run(*arguments):
        words = [
            "bringup",
            "plan",
            "--gpus",
            "2x RTX 4090",
            "--engine-version",
            "0.32.0",
            *map(str, arguments),
        ]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return end.value.code, said.out, said.err

    return run


def shard(**tensors):
    """A whole safetensors file with zeros for weights."""
    header, at = {}, 0
    for name, shape in tensors.items():
        size = 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path):
    model = tmp_path / "tiny"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / ONE).write_bytes(shard(a=(1024, 512)))
    (model / TWO).write_bytes(shard(b=(1024, 512)))
    index = {"metadata": {"total_size": 2 * 2 * 1024 * 512}, "weight_map": {"a": ONE, "b": TWO}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    return model


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{nothing", "is not JSON"),
        ("[1]", "holds no JSON object"),
        ('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}', "no layers, no hidden size"),
        ('{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8}', "no vocabulary"),
    ],
)
def test_a_config_that_is_none_is_2_with_what_to_do(run, folder, text, said):
    (folder / "config.json").write_text(text)
    for own in ((folder,), ("--model-config", folder / "config.json"), (folder, "--engine", "sglang")):
        code, _, error = run(*own)
        assert code == EXIT_USAGE
        assert said in error
        assert "hint: " in error


def test_an_unknown_architecture_gives_what_can_be_had_and_is_7(run, folder):
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"x")
    config = {**CONFIG, "architectures": ["MysteryForCausalLM"], "model_type": "mystery"}
    (folder / "config.json").write_text(json.dumps(config))
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        code, out, _ = run(folder, "--json", "--engine", engine)
        assert code == EXIT_UNKNOWN
        plan = json.loads(out)
        assert plan["layouts"][0]["kv_cache"]["tokens"] > 0
        (mark,) = [one for one in plan["findings"] if one["id"] == "model.architecture"]
        assert mark["severity"] == "unknown"
        assert "mystery" in mark["summary"]


@pytest.mark.parametrize(
    ("line", "finding", "code"),
    [
        ("vllm serve M --max-num-batched-tokens 8 --max-num-seqs 64", "settings.batch", EXIT_NO_FIT),
        (
            "vllm serve M --no-enable-chunked-prefill --max-num-batched-tokens 64 --max-num-seqs 8",
            "settings.chunked_prefill",
            EXIT_NO_FIT,
        ),
        ("vllm serve M --max-model-len 8192", "settings.max_model_len", EXIT_NO_FIT),
        ("vllm serve M --gpu-memory-utilization 1.5", "settings.gpu_memory_utilization", EXIT_NO_FIT),
        ("vllm serve M -tp 4", "layout.gpus", EXIT_NO_FIT),
        ("vllm serve M -tp 2 -dcp 3", "layout.context_ranks", EXIT_NO_FIT),
        ("sglang serve M --tp 2 --context-length 8192", "settings.context_length", EXIT_NO_FIT),
        ("sglang serve M --tp 2 --enable-dp-attention", "settings.attention_replicas", EXIT_FINDINGS),
        ("trtllm-serve M --tp_size 2 --ep_size 4", "layout.experts", EXIT_NO_FIT),
        ("vllm serve M --swap-space 4", "flags.version", EXIT_FINDINGS),
        ("vllm serve M --max-num-sequences 4", "flags.unknown", EXIT_OK),
    ],
)
def test_flags_that_contradict_each_other_or_are_none(run, folder, line, finding, code):
    words = line.replace(" M", f" {folder}").split()
    found, out, _ = run("--json", "--", *words)
    plan = json.loads(out)
    assert finding in {one["id"] for one in plan["findings"] + plan["layouts"][0]["findings"]}
    assert found == code


def test_an_engine_named_against_its_command_is_2(run, folder):
    code, _, error = run("--engine", "sglang", "--", "vllm", "serve", folder)
    assert (code, "starts another engine" in error) == (EXIT_USAGE, True)


def test_two_sources_of_gpus_are_2(run, folder):
    code, _, error = run(folder, "--host", "local")
    assert (code, "`--host`" in error) == (EXIT_USAGE, True)


def ids(out):
    plan = json.loads(out)
    return {one["id"]: one["severity"] for one in plan["findings"]}, plan


def test_whole_weights_are_nothing_to_speak_of(run, folder):
    code, out, _ = run(folder, "--json")
    assert code == EXIT_OK
    assert not [name for name in ids(out)[0] if name.startswith("weights.")]


def test_a_folder_without_weights_is_1_and_planned_from_the_config(run, folder):
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    code, out, _ = run(folder, "--json")
    found, plan = ids(out)
    assert (code, found["weights.none"]) == (EXIT_FINDINGS, "warning")
    assert plan["layouts"][0]["kv_cache"]["tokens"] > 0


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"", "weights.unreadable"),
        (struct.pack("<Q", 10**11) + b"{}", "weights.unreadable"),  # a header of 100 GB
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "weights.unreadable"),
        (shard(b=(1024, 512))[:-100], "weights.truncated"),
        (None, "weights.missing_shard"),
    ],
)
def test_a_damaged_shard_is_a_finding_and_1(run, folder, content, finding):
    if content is None:
        (folder / TWO).unlink()
    else:
        (folder / TWO).write_bytes(content)
    code, out, _ = run(folder, "--json")
    found, plan = ids(out)
    assert (code, found[finding]) == (EXIT_FINDINGS, "failure")
    assert plan["layouts"][0]["weights_bytes_per_gpu"] > 0
    code, out, _ = run(folder)
    assert finding in out


def test_two_naming_schemes_in_one_folder_are_a_finding(run, folder):
    (folder / "consolidated.safetensors").write_bytes(shard(a=(1024, 512), b=(1024, 512)))
    _, out, _ = run(folder, "--json")
    assert "weights.extra_files" in ids(out)[0]


@pytest.mark.parametrize(
    "content", [b"", b"GGUF", b"GGML" + bytes(60), b"GGUF" + struct.pack("<IQQ", 3, 10**15, 10**15)]
)
def test_a_damaged_gguf_file_is_told(run, tmp_path, content):
    (tmp_path / "m.gguf").write_bytes(content)
    code, _, error = run(tmp_path / "m.gguf")
    assert code in (2, 4)
    assert "m.gguf" in error


def test_what_others_hold_and_what_cuda_sees(run, folder):
    def tokens(*own):
        code, out, _ = run(folder, "--json", "--engine", "sglang", *own)
        assert code in (EXIT_OK, EXIT_FINDINGS)
        return json.loads(out)["layouts"][0]["kv_cache"]["tokens"]

    assert tokens("--gpu-used-mib", 4000) < tokens("--cuda-memory-mib", 22000) < tokens()


def test_more_in_use_than_the_card_has_is_2(run, folder):
    code, _, error = run(folder, "--gpu-used-mib", 99999)
    assert (code, "used by others" in error) == (EXIT_USAGE, True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 384}, "query heads"),
        ({"num_local_experts": 5, "num_experts_per_tok": 2, "model_type": "mixtral"}, "experts"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_reason(run, folder, changes, words):
    architecture = "MixtralForCausalLM" if "model_type" in changes else "LlamaForCausalLM"
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes, "architectures": [architecture]}))
    config = folder / "config.json"
    flags = ("--tp", "4", "--ep", "4")
    code, out, _ = run(
        "--model-config", config, "--gpus", "4x RTX 4090", "--json", "--", "sglang", "serve", "m", *flags
    )
    found = [
        one["summary"] for one in json.loads(out)["layouts"][0]["findings"] if one["severity"] == "failure"
    ]
    assert code == EXIT_NO_FIT
    assert any(words in one for one in found), found


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("card", "code"), [("1x Tesla V100-SXM2-32GB", EXIT_NO_FIT), ("1x RTX 4090", EXIT_OK)]
)
def test_a_format_for_which_the_card_has_no_kernel_is_refused(run, folder, engine, card, code):
    form = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    (folder / "config.json").write_text(json.dumps({**CONFIG, "quantization_config": form}))
    own = ("m", "--model-config", folder / "config.json", "--gpus", card, "--engine", engine)
    found, out, _ = run(*own, "--gpu-memory-mib", 24564, "--json")
    refused = [one for one in json.loads(out)["layouts"][0]["findings"] if one["id"] == "format.fp8"]
    assert (found, bool(refused)) == (code, code == EXIT_NO_FIT)


def test_a_length_above_the_pool_names_the_longest_that_fits(run, folder):
    config = {**CONFIG, "max_position_embeddings": 100_000_000}
    (folder / "config.json").write_text(json.dumps(config))
    command = ("vllm", "serve", "m", "--max-num-batched-tokens", "2048")
    code, out, _ = run("--model-config", folder / "config.json", "--json", "--", *command)
    (finding,) = [one for one in json.loads(out)["layouts"][0]["findings"] if one["id"] == "kv.max_model_len"]
    fits = finding["fixes"][0]["to"]
    assert code == EXIT_NO_FIT
    command = (*command, "--max-model-len", fits)
    code, _, _ = run("--model-config", folder / "config.json", "--json", "--", *command)
    assert code in (EXIT_OK, EXIT_FINDINGS)


@pytest.mark.parametrize("size", [0, -3])
def test_a_config_of_no_layers(run, tmp_path, size):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**CONFIG, "num_hidden_layers": size}))
    code, _, err = run("--", "vllm", "serve", tmp_path)
    assert (code, "gives no layers" in err) == (EXIT_USAGE, True)


@pytest.mark.parametrize("name", ["model.gguf", "config.json"])
def test_a_file_that_is_not_there_is_not_asked_for_at_the_hub(run, name):
    code, _, err = run(name)
    assert (code, f"`{name}` is no file" in err) == (EXIT_USAGE, True)


def test_a_config_far_too_large_is_not_read(run, tmp_path):
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(8_000_000_000)  # holes: takes no room
    for words in (("--model-config", path), ("--", "vllm", "serve", "Qwen/Qwen3-8B", "--config", path)):
        code, _, err = run(*words)
        assert (code, "more than 128 MiB" in err) == (EXIT_USAGE, True)


def test_a_line_of_a_flag_file_is_quoted_shortly(run, tmp_path):
    path = tmp_path / "serve.yaml"
    path.write_text("[" * 100_000)
    code, _, err = run("--", "vllm", "serve", "Qwen/Qwen3-8B", "--config", path)
    assert code == EXIT_USAGE
    assert len(err) < 500
