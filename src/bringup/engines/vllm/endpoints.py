"""What a vLLM server says about itself.

Source: vLLM 0.32.0, recorded: `/version`, `/v1/models`, `/metrics` (`vllm:cache_config_info` carries the
whole cache configuration as labels). Older metric names are tried after the present ones.
"""

from collections.abc import Iterable, Mapping

from bringup.engines import Clue, weigh
from bringup.parse.command_line import whole_number
from bringup.parse.json_value import text_at
from bringup.parse.models_list import models_in, owners_in
from bringup.parse.probe import has_metrics, is_healthy, json_at, samples_at
from bringup.parse.prometheus import labels_of, largest, totals
from bringup.values.engine import EngineStatus, KvCapacity
from bringup.values.exchange import Answer

PROBES = ("/health", "/metrics", "/v1/models", "/version")
HEALTH_MEANING = (
    "200: the engine's loop has not died. It does not generate: a hung collective operation still answers 200"
)

# our name -> theirs, the present name first
_PREFIX = "vllm:"
METRICS: dict[str, tuple[str, ...]] = {
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
    "preemptions_total": ("vllm:num_preemptions_total",),
    "requests_finished_total": ("vllm:request_success_total",),  # by reason, an abort is one of them
    "input_tokens_total": ("vllm:prompt_tokens_total",),
    "prompt_tokens_total": ("vllm:prompt_tokens_total",),
    "cached_prompt_tokens_total": ("vllm:prompt_tokens_cached_total",),
    "output_tokens_total": ("vllm:generation_tokens_total",),
    "prefix_cache_queries_total": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_cache_hits_total": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "draft_tokens_total": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted_tokens_total": ("vllm:spec_decode_num_accepted_tokens_total",),
}
_USED_SHARE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # the second until 0.11


def identify(answers: Mapping[str, Answer]) -> tuple[float, EngineStatus] | None:
    """How sure we are, 0..1, that this is vLLM, and its status; None when nothing speaks for it."""
    models = json_at(answers, "/v1/models")
    version = json_at(answers, "/version")
    sure, evidence = weigh(
        (
            Clue(holds="vllm" in owners_in(models), weight=0.8, words="the models are owned by `vllm`"),
            Clue(
                holds=has_metrics(answers, "/metrics", _PREFIX),
                weight=0.9,
                words="the metrics begin with `vllm:`",
            ),
            Clue(
                holds=isinstance(version, dict) and list(version) == ["version"],
                weight=0.1,  # other servers answer so too
                words="/version gives a version",
            ),
        )
    )
    if sure < 0.5:
        return None
    samples = samples_at(answers, "/metrics", _PREFIX)
    is_routed = bool(labels_of(samples, "vllm:current_qps"))  # then /version is the router's own
    used = next((share for name in _USED_SHARE if (share := largest(samples, name)) is not None), None)
    metrics = totals(samples, METRICS)
    labels = labels_of(samples, "vllm:cache_config_info")
    return sure, EngineStatus(
        engine="vllm",
        display_name="vLLM",
        version=None if is_routed else text_at(version, "version"),
        evidence=evidence,
        models=models_in(models),
        is_healthy=is_healthy(answers, "/health"),
        health_meaning=HEALTH_MEANING,
        kv=_kv(labels, used),
        running=_whole(metrics.get("requests_running")),
        waiting=_whole(metrics.get("requests_waiting")),
        flags=_settings(labels),
        metrics=metrics | ({} if used is None else {"kv_used_share": used}),
    )


def _kv(labels: tuple[dict[str, str], ...], used: float | None) -> KvCapacity:
    """The cache configuration; with data parallelism one row per engine, whose tokens add up.

    `kv_cache_size_tokens` came with 0.24; before, tokens are blocks times block size, which overstates
    models with sliding-window or state layers.
    """
    first = labels[0] if labels else {}
    blocks = whole_number(
        first.get("num_gpu_blocks")
    )  # the front end has already summed them over the engines
    block = whole_number(first.get("effective_attention_block_size")) or whole_number(first.get("block_size"))
    stated = [
        tokens for row in labels if (tokens := whole_number(row.get("kv_cache_size_tokens"))) is not None
    ]
    source = "/metrics vllm:cache_config_info" if labels else ""
    tokens = sum(stated) if stated else None
    if tokens is None and blocks is not None and block is not None:
        tokens = blocks * block
        source += ", blocks times block size"
    return KvCapacity(
        tokens=tokens,
        block_tokens=block,
        blocks=blocks,
        used_share=used,
        dtype=first.get("cache_dtype"),
        source=source,
    )


def _settings(labels: Iterable[Mapping[str, str]]) -> dict[str, str]:
    row = next(iter(labels), dict[str, str]())
    return {name: value for name, value in row.items() if value not in ("None", "") and name != "engine"}


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
