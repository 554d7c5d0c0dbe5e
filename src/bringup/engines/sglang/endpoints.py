"""What an SGLang server says about itself.

Source: SGLang 0.5.23, recorded: `/server_info` gives every resolved argument flat, the KV pool's size and the
state of each scheduler. The older paths `/get_server_info` and `/get_model_info` carry the same.
"""

import re
from collections.abc import Mapping

from bringup.engines import Clue, weigh
from bringup.parse.json_value import Json, at, bool_at, int_at, list_at, text_at
from bringup.parse.models_list import models_in, owners_in
from bringup.parse.probe import has_metrics, is_healthy, json_at, samples_at
from bringup.parse.prometheus import Sample, largest, sum_of_largest, total, totals
from bringup.values.engine import EngineStatus, KvCapacity
from bringup.values.exchange import Answer

PROBES = (
    "/get_model_info",
    "/get_server_info",
    "/health",
    "/metrics",
    "/model_info",
    "/server_info",
    "/v1/models",
)
HEALTH_MEANING = (
    "200: warmed up, and a token was generated just now or the scheduler is busy generating; "
    "with SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0 only a flag"
)

_PREFIX = "sglang:"
METRICS: dict[str, tuple[str, ...]] = {
    "output_tokens_total": ("sglang:generation_tokens_total",),
    "requests_finished_total": ("sglang:num_requests_total",),
    "input_tokens_total": ("sglang:prompt_tokens_total",),
    "prompt_tokens_total": ("sglang:prompt_tokens_total",),
    "cached_prompt_tokens_total": ("sglang:cached_tokens_total",),
    "preemptions_total": ("sglang:num_retracted_requests_total",),
}
# Tensor-parallel ranks of one group report the same batch and pool, data-parallel groups each their own.
_PER_GROUP = {
    "requests_running": "sglang:num_running_reqs",
    "requests_waiting": "sglang:num_queue_reqs",
    "kv_tokens": "sglang:max_total_num_tokens",
    "output_tokens_per_s": "sglang:gen_throughput",
}
_PROBE_PERIOD_S = 1.0  # the health endpoint looks for its token once a second
_SECRET = re.compile(r"key|token$|password|secret|launch_command")


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is SGLang, and its status; None when nothing speaks for it."""
    models = json_at(answers, "/v1/models")
    server = json_at(answers, "/server_info", "/get_server_info")
    model = json_at(answers, "/model_info", "/get_model_info")
    sure, evidence = weigh(
        (
            Clue(holds="sglang" in owners_in(models), weight=0.8, words="the models are owned by `sglang`"),
            Clue(
                holds=has_metrics(answers, "/metrics", _PREFIX),
                weight=0.9,
                words="the metrics begin with `sglang:`",
            ),
            Clue(
                holds=int_at(server, "tp_size") is not None and at(server, "mem_fraction_static") is not None,
                weight=0.9,
                words="the server info lists SGLang's arguments",
            ),
            Clue(
                holds=text_at(model, "model_path") is not None
                and bool_at(model, "is_generation") is not None,
                weight=0.7,
                words="the model info has SGLang's fields",
            ),
        )
    )
    if sure < 0.5:
        return None
    samples = samples_at(answers, "/metrics", _PREFIX)
    gauges = _gauges(samples)
    return sure, EngineStatus(
        engine="sglang",
        display_name="SGLang",
        version=text_at(server, "version"),
        evidence=evidence,
        models=models_in(models),
        is_healthy=is_healthy(answers, "/health"),
        loading=_is_starting(answers, samples),
        health_meaning=HEALTH_MEANING,
        kv=_kv(server, gauges),
        max_running=_max_running(server),
        running=_whole(gauges.get("requests_running")),
        waiting=_whole(gauges.get("requests_waiting")),
        supports_tools=_has_parser(server, model, "tool_call_parser"),
        supports_vision=bool_at(model, "has_image_understanding"),
        reasoning_parser=text_at(server, "reasoning_parser") or text_at(model, "reasoning_parser"),
        flags=_settings(server),
        metrics=totals(samples, METRICS) | gauges,
    )


def _is_starting(answers: Mapping[str, Answer], samples: tuple[Sample, ...]) -> bool:
    """Whether a 503 of the health endpoint means "not yet" rather than "no more".

    While starting it answers at once; a probe that got no token took a second at least. A server that has
    produced tokens is not starting.
    """
    health = answers.get("/health")
    if health is None or health.status != 503 or total(samples, "sglang:generation_tokens_total"):
        return False
    return health.total_s is None or health.total_s < _PROBE_PERIOD_S


def _gauges(samples: tuple[Sample, ...]) -> dict[str, float]:
    found = {
        ours: value
        for ours, name in _PER_GROUP.items()
        if (value := sum_of_largest(samples, name, by="dp_rank")) is not None
    }
    used = largest(samples, "sglang:token_usage")
    return found if used is None else found | {"kv_used_share": used}


def _kv(server: Json, gauges: Mapping[str, float]) -> KvCapacity:
    """The token pool; the server info states it for one data-parallel group, so it counts that many times."""
    groups = int_at(server, "dp_size") or 1
    stated = int_at(server, "max_total_num_tokens")
    measured = _whole(gauges.get("kv_tokens"))
    tokens = stated * groups if stated is not None else measured
    page = int_at(server, "page_size")
    source = "/server_info max_total_num_tokens" if stated is not None else "/metrics max_total_num_tokens"
    return KvCapacity(
        tokens=tokens,
        block_tokens=page,
        blocks=tokens // page if tokens is not None and page else None,
        used_share=gauges.get("kv_used_share"),
        dtype=text_at(server, "kv_cache_dtype"),
        source=source if tokens is not None else "",
    )


def _max_running(server: Json) -> int | None:
    stated = int_at(server, "max_running_requests")
    if stated is not None:
        return stated
    per_group = [
        limit
        for state in list_at(server, "internal_states")
        if (limit := int_at(state, "effective_max_running_requests_per_dp")) is not None
    ]
    return sum(per_group) if per_group else None


def _has_parser(server: Json, model: Json, name: str) -> bool | None:
    """Whether tool calls are parsed; without a parser the server gives them back as text."""
    for value in (server, model):
        if isinstance(value, dict) and name in value:
            return value[name] is not None
    return None


def _settings(server: Json) -> dict[str, str]:
    if not isinstance(server, dict):
        return {}
    return {
        name: str(value)
        for name, value in server.items()
        if isinstance(value, str | int | float) and value != "" and not _SECRET.search(name)
    }


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
