"""What a TensorRT-LLM server says about itself.

Source: TensorRT-LLM 1.x, `serve/openai_server.py` and `serve/openai_protocol.py` (models are owned by
`tensorrt_llm`); documentation of `trtllm-serve`: `/metrics` is a JSON list of iteration statistics, empty
unless `enable_iter_perf_stats` is set, and reading takes them away from every other reader. The Prometheus
page is at `/prometheus/metrics/`, when `return_perf_metrics` is set.
"""

from collections.abc import Mapping

from bringup.engines import Clue, weigh
from bringup.parse.json_value import Json, at, int_at, list_at, text_at
from bringup.parse.models_list import models_in, owners_in
from bringup.parse.probe import has_metrics, is_healthy, json_at, samples_at, share_of
from bringup.parse.prometheus import largest, total, totals
from bringup.values.engine import EngineStatus, KvCapacity
from bringup.values.exchange import Answer

PROBES = ("/health", "/metrics", "/prometheus/metrics/", "/server_info", "/v1/models", "/version")
HEALTH_MEANING = "200: the executor's processes live. Only /health_generate generates"

_PREFIX = "trtllm_"
METRICS: dict[str, tuple[str, ...]] = {
    "requests_running": ("trtllm_num_requests_running", "trtllm_num_active_requests"),
    "requests_waiting": ("trtllm_num_requests_waiting",),
    "requests_finished_total": ("trtllm_request_success_total",),
    "input_tokens_total": ("trtllm_prompt_tokens_total",),  # since 1.3, like the next two
    "cached_prompt_tokens_total": ("trtllm_prompt_cached_tokens_total",),
    "output_tokens_total": ("trtllm_generation_tokens_total",),
}


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is TensorRT-LLM, and its status; None when nothing speaks for it."""
    models = json_at(answers, "/v1/models")
    latest = (list_at(json_at(answers, "/metrics")) or [None])[-1]
    server = json_at(answers, "/server_info")
    sure, evidence = weigh(
        (
            Clue(
                holds="tensorrt_llm" in owners_in(models),
                weight=0.8,
                words="the models are owned by `tensorrt_llm`",
            ),
            Clue(
                holds=at(latest, "kvCacheStats") is not None or at(latest, "iterLatencyMS") is not None,
                weight=0.8,
                words="the metrics are a JSON list of iteration statistics",
            ),
            Clue(
                holds=has_metrics(answers, "/prometheus/metrics/", _PREFIX),
                weight=0.8,
                words="the metrics begin with `trtllm_`",
            ),
            Clue(
                holds=isinstance(server, dict) and "disaggregated_params" in server,
                weight=0.6,
                words="the server info names disaggregated parameters",
            ),
        )
    )
    if sure < 0.5:
        return None
    samples = samples_at(answers, "/prometheus/metrics/", _PREFIX)
    metrics = totals(samples, METRICS)
    used = largest(samples, "trtllm_kv_cache_utilization")
    running, waiting = int_at(latest, "numActiveRequests"), int_at(latest, "numQueuedRequests")
    return sure, EngineStatus(
        engine="tensorrt_llm",
        display_name="TensorRT-LLM",
        version=text_at(json_at(answers, "/version"), "version"),
        evidence=evidence,
        models=models_in(models),
        is_healthy=is_healthy(answers, "/health"),
        health_meaning=HEALTH_MEANING,
        kv=_kv(latest, used, total(samples, "trtllm_kv_cache_max_blocks")),
        max_running=int_at(latest, "maxNumActiveRequests"),
        running=running if running is not None else _whole(metrics.get("requests_running")),
        waiting=waiting if waiting is not None else _whole(metrics.get("requests_waiting")),
        metrics=metrics | ({} if used is None else {"kv_used_share": used}),
    )


def _kv(latest: Json, used: float | None, max_blocks: float | None) -> KvCapacity:
    """The block pool as the latest iteration saw it, else what the Prometheus page says."""
    blocks = int_at(latest, "kvCacheStats", "maxNumBlocks")
    block = int_at(latest, "kvCacheStats", "tokensPerBlock")
    busy = int_at(latest, "kvCacheStats", "usedNumBlocks")
    source = "/metrics kvCacheStats" if blocks is not None else ""
    if blocks is None and max_blocks is not None:
        blocks, source = round(max_blocks), "/prometheus/metrics trtllm_kv_cache_max_blocks"
    return KvCapacity(
        tokens=blocks * block if blocks is not None and block is not None else None,
        block_tokens=block,
        blocks=blocks,
        used_share=used if busy is None else share_of(busy, blocks),
        source=source,
    )


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
