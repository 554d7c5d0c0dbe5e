"""`tools/setup.sh` where nothing may be installed: what it refuses, what it leaves alone, what it says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
USED = (
    *("cat", "cksum", "cut", "dirname", "env", "find", "flock", "grep"),
    *("head", "id", "mkdir", "mv", "rm", "sed", "sort"),
)


@pytest.fixture
def project(tmp_path):
    """A copy of what the script looks at, in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    (folder / "tools").mkdir(parents=True)
    for name in ("tools/setup.sh", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def set_up(project, *groups, path=None):
    return subprocess.run(
        [shutil.which("sh"), str(project / "tools" / "setup.sh"), *groups],
        env={**os.environ, "PATH": str(path) if path else os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def path_with(folder, **programs):
    """A folder with the script's own tools and the programs given, as shell text, to be all of the path."""
    folder.mkdir()
    for name in USED:
        if name not in programs and (found := shutil.which(name)):
            (folder / name).symlink_to(found)
    for name, text in programs.items():
        file = folder / name
        with file.open("x") as out:  # never through a link to a program of the system's
            out.write(f"#!{shutil.which('sh')}\n{text}\n")
        file.chmod(0o755)
    return folder


def test_a_linked_environment_is_used_and_not_changed(project):
    (project / ".venv").symlink_to(sys.prefix)
    done = set_up(project, "dev")
    assert done.returncode == 0, done.stderr
    assert "using the environment that .venv links to, as it is" in done.stderr
    assert sorted(file.name for file in project.iterdir()) == [".venv", "pyproject.toml", "tools", "uv.lock"]


def test_a_linked_environment_without_what_is_needed_is_said_so(project, tmp_path):
    other = tmp_path / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(other)], check=True)
    (project / ".venv").symlink_to(other)
    done = set_up(project, "demo")
    assert done.returncode == 1
    assert "environment without `click`" in done.stderr
    assert "hint: install it there, or remove the link" in done.stderr


def test_a_folder_of_somebody_else_is_not_deleted(project):
    precious = project / ".venv" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("four years")
    done = set_up(project, "demo")
    assert done.returncode == 1
    assert "`.venv` is there and is no Python environment" in done.stderr
    assert precious.read_text() == "four years"


def test_an_unknown_group_is_refused(project):
    done = set_up(project, "everything")
    assert done.returncode == 1
    assert "which group?" in done.stderr


def test_without_a_python_it_says_what_to_do(project, tmp_path):
    path = path_with(tmp_path / "bin", python3="exit 1", python="exit 127")
    done = set_up(project, "demo", path=path)
    assert done.returncode == 1
    assert "error: there is no Python 3.11 or later" in done.stderr
    assert "hint: install Python 3.11 or later, with pip and venv" in done.stderr
    assert not (project / ".venv").exists()


def test_without_root_the_missing_package_is_named(project, tmp_path):
    python = f'case "$*" in *ensurepip*) exit 1 ;; esac; exec "{sys.executable}" "$@"'
    path = path_with(
        tmp_path / "bin", python3=python, **{"apt-get": "exit 1", "sudo": "exit 1", "id": "echo 1000"}
    )
    done = set_up(project, "demo", path=path)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert "python3 has no venv and pip" in done.stderr
    assert f"hint: sudo apt-get update && sudo apt-get install python{version}-venv" in done.stderr


def test_the_newest_python_that_runs_is_taken(project, tmp_path):
    shim = 'echo "pyenv: python3.14: command not found" >&2; exit 127'
    refuses = 'case "$*" in *"-m venv"*) echo "made by python3.12" >&2; exit 3 ;; esac'
    makes = f'{refuses}; exec "{sys.executable}" "$@"'
    path = path_with(tmp_path / "bin", **{"python3.14": shim, "python3.12": makes, "python3": "exit 1"})
    done = set_up(project, "demo", path=path)
    assert done.returncode == 1
    assert "making .venv with python3.12" in done.stderr
    assert "made by python3.12" in done.stderr
    assert "error: python3.12 could not make an environment in .venv" in done.stderr
