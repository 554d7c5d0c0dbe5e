"""The model's own files, found by the shells of this machine in a folder and in a hub's cache."""

import shutil
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
