"""What a Text Generation Inference server says about itself.

Source: TGI 1.2 to 3.3, `/info`: `router` names it (absent in 1.x), `max_total_tokens` is the longest prompt
plus answer, `max_batch_total_tokens` (null in newer ones) the tokens that fit into memory.
"""

from collections.abc import Mapping
from dataclasses import replace

from bringup.engines import Clue, weigh
from bringup.parse.json_value import Json, int_at, text_at
from bringup.parse.models_list import models_in
from bringup.parse.probe import has_metrics, is_healthy, json_at, samples_at
from bringup.parse.prometheus import largest, totals
from bringup.values.engine import EngineStatus, KvCapacity, ServedModel
from bringup.values.exchange import Answer

PROBES = ("/health", "/info", "/metrics", "/v1/models")
HEALTH_MEANING = (
    "200: the shards can allocate on their device; after a failure, a forward pass of the model succeeded"
)

_PREFIX = "tgi_"
METRICS: dict[str, tuple[str, ...]] = {
    "requests_running": ("tgi_batch_current_size",),
    "requests_waiting": ("tgi_queue_size",),
    "prompt_tokens_total": ("tgi_request_input_length_sum",),
    "output_tokens_total": ("tgi_request_generated_tokens_sum",),
}


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is TGI, and its status; None when nothing speaks for it."""
    info = json_at(answers, "/info")
    sure, evidence = weigh(
        (
            Clue(
                holds=(text_at(info, "router") or "").startswith("text-generation-router"),
                weight=0.9,
                words="/info names the router `text-generation-router`",
            ),
            Clue(
                holds=text_at(info, "model_id") is not None and int_at(info, "max_total_tokens") is not None,
                weight=0.7,
                words="/info has TGI's fields",
            ),
            Clue(
                holds=has_metrics(answers, "/metrics", _PREFIX),
                weight=0.8,
                words="the metrics begin with `tgi_`",
            ),
        )
    )
    if sure < 0.5:
        return None
    samples = samples_at(answers, "/metrics", _PREFIX)
    metrics = totals(samples, METRICS)
    pool = int_at(info, "max_batch_total_tokens")
    measured = largest(samples, "tgi_batch_max_total_tokens")
    if pool is None and measured is not None:
        pool = round(measured)
    return sure, EngineStatus(
        engine="tgi",
        display_name="TGI",
        version=text_at(info, "version"),
        evidence=evidence,
        models=_models(info, json_at(answers, "/v1/models")),
        is_healthy=is_healthy(answers, "/health"),
        health_meaning=HEALTH_MEANING,
        kv=KvCapacity(tokens=pool, source="" if pool is None else "max_batch_total_tokens"),
        max_running=int_at(info, "max_batch_size"),
        running=_whole(metrics.get("requests_running")),
        waiting=_whole(metrics.get("requests_waiting")),
        flags=_settings(info),
        metrics=metrics,
    )


def _models(info: Json, listed: Json) -> tuple[ServedModel, ...]:
    """The listed models with the limits of /info; the model of /info where none are listed."""
    model = text_at(info, "model_id")
    models = models_in(listed) or ((ServedModel(id=model),) if model else ())
    return tuple(
        replace(one, context_tokens=int_at(info, "max_total_tokens"), root=model) if one.id == model else one
        for one in models
    )


def _settings(info: Json) -> dict[str, str]:
    if not isinstance(info, dict):
        return {}
    return {name: str(value) for name, value in info.items() if isinstance(value, str | int | float)}


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
