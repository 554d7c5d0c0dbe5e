"""What an LMDeploy server says about itself: its models, a health monitor, and metrics when they are enabled.

Source: LMDeploy, `serve/openai/protocol.py` (models are owned by `lmdeploy`), `serve/openai/endpoints/
management.py` (health: `healthy`, `sleeping`, `unhealthy`), `metrics/loggers.py`. It tells no version.
"""

from collections.abc import Mapping

from bringup.engines import Clue, weigh
from bringup.parse.json_value import json_or_none, text_at
from bringup.parse.models_list import models_in, owners_in
from bringup.parse.probe import has_metrics, is_healthy, json_at, samples_at
from bringup.parse.prometheus import largest, totals
from bringup.values.engine import EngineStatus, KvCapacity
from bringup.values.exchange import Answer

PROBES = ("/health", "/metrics", "/v1/models")
HEALTH_MEANING = "200: the engine's monitor sees it alive. A sleeping engine answers 200 too"

_PREFIX = "lmdeploy:"
METRICS: dict[str, tuple[str, ...]] = {
    "requests_running": ("lmdeploy:num_requests_running",),
    "requests_waiting": ("lmdeploy:num_requests_waiting",),
    "prompt_tokens_total": ("lmdeploy:prompt_tokens_total",),
    "output_tokens_total": ("lmdeploy:generation_tokens_total",),
}


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is LMDeploy, and its status; None when nothing speaks for it."""
    models = json_at(answers, "/v1/models")
    sure, evidence = weigh(
        (
            Clue(
                holds="lmdeploy" in owners_in(models), weight=0.8, words="the models are owned by `lmdeploy`"
            ),
            Clue(
                holds=has_metrics(answers, "/metrics", _PREFIX),
                weight=0.9,
                words="the metrics begin with `lmdeploy:`",
            ),
        )
    )
    if sure < 0.5:
        return None
    samples = samples_at(answers, "/metrics", _PREFIX)
    metrics = totals(samples, METRICS)
    used = largest(samples, "lmdeploy:gpu_cache_usage_perc")
    health = answers.get("/health")
    state = text_at(json_or_none(health.body), "status") if health is not None else None
    return sure, EngineStatus(
        engine="lmdeploy",
        display_name="LMDeploy",
        evidence=evidence,
        models=models_in(models),
        is_healthy=False if state == "sleeping" else is_healthy(answers, "/health"),
        health_meaning=HEALTH_MEANING,
        kv=KvCapacity(
            used_share=used, source="" if used is None else "/metrics lmdeploy:gpu_cache_usage_perc"
        ),
        running=_whole(metrics.get("requests_running")),
        waiting=_whole(metrics.get("requests_waiting")),
        flags={} if state is None else {"health": state},
        metrics=metrics | ({} if used is None else {"kv_used_share": used}),
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
