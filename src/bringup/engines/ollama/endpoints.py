"""What an Ollama server says about itself: the models on disk and those that are loaded now.

Source: Ollama, API documentation of `/api/version`, `/api/tags` and `/api/ps`, and `api/types.go`: only a
loaded model has a context length, and `size_vram` below `size` means that a part of it runs on the CPU.
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.engines import Clue, weigh
from bringup.parse.json_value import Json, at, int_at, list_at, text_at
from bringup.parse.model_size import parameters_in_name
from bringup.parse.models_list import models_in
from bringup.parse.probe import is_healthy, json_at, share_of
from bringup.values.engine import EngineStatus, ServedModel
from bringup.values.exchange import Answer

PROBES = ("/api/ps", "/api/tags", "/api/version", "/v1/models")
HEALTH_MEANING = "200: the server runs. No model needs to be loaded, nor able to load"


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is Ollama, and its status; None when nothing speaks for it."""
    version = text_at(json_at(answers, "/api/version"), "version")
    loaded = json_at(answers, "/api/ps")
    tags = json_at(answers, "/api/tags")
    details = at(tags, "models", 0, "details")
    sure, evidence = weigh(
        (
            # weak: Open WebUI and other front ends have this path too
            Clue(holds=version is not None, weight=0.4, words="/api/version gives a version"),
            Clue(
                holds=isinstance(at(loaded, "models"), list), weight=0.4, words="/api/ps lists loaded models"
            ),
            Clue(
                holds=text_at(tags, "models", 0, "digest") not in (None, "") and details is not None,
                weight=0.5,
                words="/api/tags lists models with their digests",
            ),
        )
    )
    if sure < 0.5:
        return None
    return sure, EngineStatus(
        engine="ollama",
        display_name="Ollama",
        version=version,
        evidence=evidence,
        models=_models(json_at(answers, "/v1/models"), tags, loaded),
        is_healthy=is_healthy(answers, "/api/version"),
        health_meaning=HEALTH_MEANING,
        flags=_loaded(loaded),
    )


def _models(listed: Json, tags: Json, loaded: Json) -> tuple[ServedModel, ...]:
    """Every model once, with what the disk and the loaded state tell about it."""
    on_disk = {text_at(row, "name"): row for row in list_at(tags, "models")}
    running = {text_at(row, "name"): row for row in list_at(loaded, "models")}
    return tuple(
        replace(
            model,
            parameters=parameters_in_name(text_at(on_disk.get(model.id), "details", "parameter_size") or ""),
            weights_bytes=int_at(on_disk.get(model.id), "size"),
            context_tokens=int_at(running.get(model.id), "context_length") or None,
        )
        for model in models_in(listed) or models_in(tags)
    )


def _loaded(loaded: Json) -> dict[str, str]:
    """What is in memory now, as settings: how much of each loaded model is on the GPU."""
    found: dict[str, str] = {}
    for row in list_at(loaded, "models"):
        name, share = text_at(row, "name"), share_of(int_at(row, "size_vram"), int_at(row, "size"))
        if name and share is not None:
            found[f"gpu share of {name}"] = f"{share:.2f}"
    return found
