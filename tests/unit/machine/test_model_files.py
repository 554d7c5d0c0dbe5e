"""The model's own files, found by the shells of this machine in a folder and in a hub's cache."""

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from bringup.machine import Target
from bringup.machine.model_files import SUBJECT
from bringup.values.host import CommandResult, HostSnapshot, ModelFiles

SHELLS = [name for name in ("dash", "bash") if shutil.which(name)] or ["sh"]
CONFIG = '{"architectures": ["Qwen3ForCausalLM"], "note": "@@ not a mark"}'


def seen(shell: str, target: Target) -> ModelFiles | None:
    """What the question finds."""
    (question,) = SUBJECT.questions(target)
    ran = subprocess.run([shell, "-c", question.script], capture_output=True, text=True, check=True)
    result = CommandResult(key=question.key, status=0, stdout=ran.stdout)
    return SUBJECT.read(HostSnapshot(taken_at=0.0, host="h"), {question.key: result}).model_files


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(CONFIG)
    (folder / "model-00001-of-00002.safetensors").write_bytes(b"x" * 1234)
    (folder / "model 2.safetensors").write_bytes(b"y" * 77)
    (folder / "notes.txt").write_text("no weight")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder(shell: str, tmp_path: Path) -> None:
    fill(tmp_path / "a model")
    files = seen(shell, Target(model=str(tmp_path / "a model")))
    assert files is not None
    assert dict(files.texts)["config.json"].strip() == CONFIG
    assert dict(files.sizes) == {"model-00001-of-00002.safetensors": 1234, "model 2.safetensors": 77}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_hub_id_in_the_cache_of_the_engine(shell: str, tmp_path: Path) -> None:
    place = tmp_path / "hub" / "models--org--name"
    fill(place / "snapshots" / "abc123")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc123\n")
    files = seen(shell, Target(model="org/name", model_places=(("HF_HOME", str(tmp_path)),)))
    assert files is not None
    assert files.folder.endswith("snapshots/abc123")
    assert len(files.sizes) == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_not_there_is_not_told(shell: str, tmp_path: Path) -> None:
    assert seen(shell, Target(model="org/none", model_places=(("HF_HOME", str(tmp_path)),))) is None
    assert SUBJECT.questions(Target()) == ()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_name_that_is_shell_is_only_a_name(shell: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert seen(shell, Target(model=f"$(touch {mark})/`touch {mark}`; touch {mark}")) is None
    assert not mark.exists()


def gguf(*, vocabulary: int = 0) -> bytes:
    """The start of a GGUF file: shape first, then tokens, as converters write it."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {
        "llama.block_count": 30,
        "llama.embedding_length": 576,
        "llama.attention.head_count": 9,
        "llama.attention.head_count_kv": 3,
        "llama.feed_forward_length": 1536,
        "llama.vocab_size": 49152,
    }
    entries = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    entries += [text(key) + struct.pack("<II", 4, number) for key, number in numbers.items()]
    tokens = b"".join(text(f"token {number}") for number in range(vocabulary))
    entries.append(text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, vocabulary) + tokens)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("vocabulary", [0, 20_000])  # within what is read, and far beyond
def test_the_shape_of_a_gguf_file(shell: str, vocabulary: int, tmp_path: Path) -> None:
    (tmp_path / "a model.gguf").write_bytes(gguf(vocabulary=vocabulary))
    (tmp_path / "other.gguf").write_bytes(b"x" * 10)
    (tmp_path / "config.json").write_text('{"of": "another model"}')
    files = seen(shell, Target(model=str(tmp_path / "a model.gguf")))
    assert files is not None
    assert files.folder == str(tmp_path)
    assert dict(files.sizes) == {"a model.gguf": len(gguf(vocabulary=vocabulary)), "other.gguf": 10}
    ((name, config),) = files.texts
    assert name == "a model.gguf"
    assert json.loads(config)["num_key_value_heads"] == 3
    assert json.loads(config)["vocab_size"] == 49152


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_that_is_no_gguf_is_weighed_and_not_read(shell: str, tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"version https://git-lfs")
    files = seen(shell, Target(model=str(tmp_path / "a.gguf")))
    assert files is not None
    assert files.texts == ()
    assert dict(files.sizes) == {"a.gguf": 23}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_path_is_one_of_the_process_that_reads_it(shell: str, tmp_path: Path) -> None:
    fill(tmp_path / "models" / "mine")
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as reader:
        files = seen(shell, Target(model="models/mine", model_reader=reader.pid))
        reader.kill()
    assert files is not None
    assert files.folder == "models/mine"
    assert len(files.sizes) == 2
