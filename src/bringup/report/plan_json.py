"""A plan as JSON, schema `bringup/plan/1`. Sizes are bytes and say so in their names."""

import json

from bringup.report.plain import plain_record
from bringup.values.against_log import AgainstLog
from bringup.values.plan import KvPlan, Layout, LayoutPlan, LedgerLine, Neighbour, Plan, Variant

SCHEMA = "bringup/plan/1"


def render_plan_json(plan: Plan, against: AgainstLog | None = None) -> str:
    """The plan as one JSON object with two-space indent and a final newline."""
    card = plan.gpus.card
    body: dict[str, object] = {
        "schema": SCHEMA,
        "fits": plan.fits,
        "model": plan.model,
        "engine": plan.engine,
        "engine_version": plan.engine_version,
        "gpus": {
            "name": card.name,
            "count": plan.gpus.count,
            "memory_total_bytes": card.memory_total,
            "cuda_total_bytes": card.cuda_total,
            "used_by_others_bytes": plan.gpus.used_by_others,
            "source": card.source,
        },
        "layouts": [_layout_plan(layout) for layout in plan.layouts],
        "rejected": [{**_layout(layout), "reason": reason} for layout, reason in plan.rejected],
        "neighbours": [_neighbour(other) for other in plan.neighbours],
        "findings": [plain_record(finding) for finding in plan.findings],
    }
    if plan.variants is not None:
        body["quantizations"] = {
            "variants": [_variant(variant) for variant in plan.variants.found],
            "not_asked": list(plan.variants.not_asked),
        }
    if against is not None:
        from bringup.report.against_log import plain_comparison  # noqa: PLC0415 - only what is printed is loaded

        body["against_log"] = plain_comparison(against)
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def _layout_plan(plan: LayoutPlan) -> dict[str, object]:
    return {
        **_layout(plan.layout),
        "fits": plan.fits,
        "weights_bytes_per_gpu": plan.weights_bytes,
        "kv_cache": _kv(plan.kv),
        "requests": {"context_tokens": plan.context, "at_once": plan.requests},
        "smi_used_bytes_per_gpu": {"low": plan.smi_used_low, "high": plan.smi_used_high},
        "ledger": [_line(line) for line in plan.ledger],
        "findings": [plain_record(finding) for finding in plan.findings],
        "command": list(plan.command),
    }


def _layout(layout: Layout) -> dict[str, object]:
    return {
        "tensor_parallel_size": layout.tensor_parallel,
        "pipeline_parallel_size": layout.pipeline_parallel,
        "data_parallel_size": layout.data_parallel,
        "decode_context_parallel_size": layout.decode_context_parallel,
        "expert_parallel": layout.has_expert_parallel,
        "attention_data_parallel_size": layout.attention_data_parallel,
        "detail": layout.detail,
        "gpus": layout.gpus,
    }


def _neighbour(other: Neighbour) -> dict[str, object]:
    return {
        "side": other.side,
        **_layout(other.layout),
        "fits": other.fits,
        "requests": {"context_tokens": other.context, "at_once": other.requests} if other.fits else None,
        "tokens": other.tokens if other.fits else None,
        "reason": other.reason or None,
    }


def _variant(variant: Variant) -> dict[str, object]:
    best = variant.best
    return {
        "name": variant.name,
        "found_in": variant.found_in,
        "format": variant.weights_format,
        "runs": variant.runs,
        "engine": variant.engine or None,
        "origin": variant.origin or None,
        "fits": best is not None and best.fits,
        "reason": variant.reason or None,
        "layout": _layout(best.layout) if best else None,
        "weights_bytes_per_gpu": best.weights_bytes if best else None,
        "tokens": best.kv.tokens if best else None,
        "requests": {"context_tokens": best.context, "at_once": best.requests} if best else None,
        "command": list(best.command) if best else None,
    }


def _kv(kv: KvPlan) -> dict[str, object]:
    return {
        "available_bytes_per_gpu": kv.available_bytes,
        "bytes_per_token_per_gpu": kv.bytes_per_token,
        "tokens": kv.tokens,
        "max_concurrency": kv.max_concurrency,
        "low_tokens": kv.low_tokens,
        "high_tokens": kv.high_tokens,
        "dtype": kv.cache_dtype,
        "block_tokens": kv.block_tokens,
        "blocks": kv.blocks,
        "bytes_per_block": kv.bytes_per_block,
        "fixed_bytes_per_request": kv.fixed_bytes_per_request,
        "longest_context_tokens": kv.longest_context,
        "layers_per_group": list(kv.groups),
    }


def _line(line: LedgerLine) -> dict[str, object]:
    return {
        "name": line.name,
        "bytes": line.bytes,
        "low": line.low,
        "high": line.high,
        "origin": line.origin.value,
        "formula": line.formula,
    }
