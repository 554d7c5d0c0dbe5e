"""What a llama.cpp server says about itself.

Source: llama.cpp builds 10434 and 11549, recorded: `/props`, `/slots`, `/v1/models`, `/metrics`. While the
model loads every path but the health endpoint's answers 503 `Loading model`. Builds before about 9500 leave
`n_ctx` out of the model list.
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.engines import Clue, weigh
from bringup.parse.json_value import Json, at, bool_at, int_at, json_or_none, list_at, text_at
from bringup.parse.models_list import models_in, owners_in
from bringup.parse.probe import has_metrics, is_healthy, json_at, samples_at, servers_in
from bringup.parse.prometheus import totals
from bringup.values.engine import EngineStatus, KvCapacity, ServedModel
from bringup.values.exchange import Answer

PROBES = ("/health", "/metrics", "/props", "/slots", "/v1/models")
HEALTH_MEANING = (
    "200: the model is loaded and warmed up. Afterwards it stays 200 whatever the GPU does, "
    "and in router mode it is 200 with no model at all"
)

_PREFIX = "llamacpp:"
METRICS: dict[str, tuple[str, ...]] = {
    "requests_running": ("llamacpp:requests_processing",),
    "requests_waiting": ("llamacpp:requests_deferred",),
    "prompt_tokens_total": ("llamacpp:prompt_tokens_total",),
    "cached_prompt_tokens_total": ("llamacpp:prompt_tokens_cached_total",),
    "output_tokens_total": ("llamacpp:tokens_predicted_total",),
    "output_tokens_per_s": ("llamacpp:predicted_tokens_seconds",),
    "kv_used_share": ("llamacpp:kv_cache_usage_ratio",),  # gone from present builds
}
_SETTINGS = (
    "build_info",
    "model_alias",
    "model_path",
    "model_ftype",
    "total_slots",
    "is_sleeping",
    "endpoint_metrics",
    "endpoint_slots",
    "endpoint_props",
)


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is llama.cpp, and its status; None when nothing speaks for it."""
    models = json_at(answers, "/v1/models")
    props = json_at(answers, "/props")
    loading = _is_loading(answers)
    sure, evidence = weigh(
        (
            Clue(
                holds="llama.cpp" in servers_in(answers),
                weight=0.8,
                words="the `Server` header says `llama.cpp`",
            ),
            Clue(
                holds="llamacpp" in owners_in(models),
                weight=0.8,
                words="the models are owned by `llamacpp`",
            ),
            Clue(
                holds=has_metrics(answers, "/metrics", _PREFIX),
                weight=0.8,
                words="the metrics begin with `llamacpp:`",
            ),
            Clue(
                holds=at(props, "default_generation_settings") is not None,
                weight=0.7,
                words="/props has llama.cpp's fields",
            ),
            Clue(holds=loading, weight=0.7, words="it answers 503 `Loading model`"),
        )
    )
    if sure < 0.5:
        return None
    samples = samples_at(answers, "/metrics", _PREFIX)
    slots = int_at(props, "total_slots") or len(list_at(json_at(answers, "/slots"))) or None
    metrics = _with_input(totals(samples, METRICS)) | _slot_tokens(answers)
    return sure, EngineStatus(
        engine="llama_cpp",
        display_name="llama.cpp",
        version=_version(text_at(props, "build_info")),
        evidence=evidence,
        models=_models(models, props),
        is_healthy=is_healthy(answers, "/health"),
        loading=loading,
        health_meaning=HEALTH_MEANING,
        kv=_kv(props, slots, metrics.get("kv_used_share")),
        max_running=slots,
        running=_running(answers, metrics),
        waiting=_whole(metrics.get("requests_waiting")),
        supports_tools=bool_at(props, "chat_template_caps", "supports_tools"),
        supports_vision=bool_at(props, "modalities", "vision"),
        flags=_settings(props),
        metrics=metrics,
    )


def _models(models: Json, props: Json) -> tuple[ServedModel, ...]:
    """The listed models, each with the context of a slot where the list itself does not tell one."""
    per_slot = int_at(props, "default_generation_settings", "n_ctx")
    return tuple(
        model if model.context_tokens is not None else replace(model, context_tokens=per_slot or None)
        for model in models_in(models)
    )


def _is_loading(answers: Mapping[str, Answer]) -> bool:
    return any(
        answer.status == 503 and text_at(json_or_none(answer.body), "error", "message") == "Loading model"
        for answer in answers.values()
    )


def _kv(props: Json, slots: int | None, used: float | None) -> KvCapacity:
    """The cache as far as the server says it.

    `n_ctx` is one slot's share, or with a unified cache the whole that all slots draw from. The server
    does not say which, so with several slots the total stays unknown.
    """
    per_slot = int_at(props, "default_generation_settings", "n_ctx")
    return KvCapacity(
        tokens=per_slot if slots == 1 else None,
        used_share=used,
        slots=slots,
        source="/props" if slots is not None else "",
    )


def _running(answers: Mapping[str, Answer], metrics: Mapping[str, float]) -> int | None:
    if "requests_running" in metrics:
        return round(metrics["requests_running"])
    slots = list_at(json_at(answers, "/slots"))
    busy = [is_busy for slot in slots if (is_busy := bool_at(slot, "is_processing")) is not None]
    return sum(busy) if busy else None


def _with_input(metrics: dict[str, float]) -> dict[str, float]:
    """The metrics with all tokens that came in: the server counts those it found in the cache apart."""
    processed, cached = metrics.get("prompt_tokens_total"), metrics.get("cached_prompt_tokens_total")
    if processed is None or cached is None:
        return metrics
    return metrics | {"input_tokens_total": processed + cached}


def _slot_tokens(answers: Mapping[str, Answer]) -> dict[str, float]:
    """Tokens that the slots hold, busy or not, where the server tells them."""
    slots = list_at(json_at(answers, "/slots"))
    held = [count for slot in slots if (count := int_at(slot, "n_prompt_tokens")) is not None]
    return {"slot_tokens": float(sum(held))} if held else {}


def _settings(props: Json) -> dict[str, str]:
    if not isinstance(props, dict):
        return {}
    found = {name: props.get(name) for name in _SETTINGS}
    return {name: str(value) for name, value in found.items() if value is not None}


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _version(build_info: str | None) -> str | None:
    """The build, unless it was compiled without knowing its own: then it calls itself `b0-unknown`.

    >>> _version("b11434-7e4c0a9"), _version("b0-unknown")
    ('b11434-7e4c0a9', None)
    """
    return None if build_info == "b0-unknown" else build_info
