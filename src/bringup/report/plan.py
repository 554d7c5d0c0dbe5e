"""A plan to a `Report`: the verdict, what a GPU holds line by line, the layouts looked at."""

import shlex
from collections.abc import Sequence
from dataclasses import replace

from bringup.planner.layouts import layout_text
from bringup.units import GIB, bytes_text, in_mib, mib_text
from bringup.values.finding import WORST_FIRST, Finding, Severity, worst
from bringup.values.plan import Layout, LayoutPlan, LedgerLine, Origin, Plan, Variant, Variants
from bringup.values.report import Cell, Report, Table

_MOST_LAYOUTS = 12  # rows of a table that still can be read
_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llama_cpp": "llama.cpp", "tensorrt_llm": "TensorRT-LLM"}
_NAMES = {
    "reserved": "reserved by the driver",
    "other_processes": "other processes",
    "context": "CUDA context",
    "communication": "communication buffers",
    "weights": "weights",
    "kernels": "kernels, outside the allocator",
    "activations": "activations at their peak",
    "graphs": "CUDA graphs",
    "kv_pool": "KV cache",
    "state_pool": "recurrent states",
    "request_table": "table of requests",
    "workspace": "workspace of attention",
    "system": "operating system",
    "compute": "compute buffer",
    "free": "free",
}


def build_plan_report(plan: Plan, *, explain: bool, tool_version: str) -> Report:
    """The report of a plan, for a terminal."""
    best = plan.layouts[0]
    findings = tuple(
        sorted(plan.findings + best.findings, key=lambda finding: WORST_FIRST.index(finding.severity))
    )
    tables = [_ledger_table(best)]
    if explain:
        tables += [_formula_table(best), _cache_table(best)]
    if len(plan.layouts) > 1:
        tables.append(_layout_table(plan.layouts))
    if plan.variants is not None:
        tables.append(_variant_table(plan.variants))
    if plan.rejected:
        tables.append(_rejected_table(plan.rejected))
    return Report(
        kind="plan",
        verdict=_verdict(plan, findings=worst(findings)),
        title=_title(plan, best),
        paragraph=_paragraph(plan, best),
        findings=tuple(_with_cure(finding) for finding in findings),
        tables=tuple(tables),
        tool_version=tool_version,
        exit_code=plan.exit_code,
    )


def _with_cure(finding: Finding) -> Finding:
    """The finding with its first flag as what to do, where no sentence says that and the summary does not."""
    cure = next((fix for fix in finding.fixes if fix.new not in (None, "", "0")), None)
    if finding.action or cure is None or cure.new is None or cure.new in finding.summary:
        return finding
    now = f" (now {cure.old})" if cure.old else ""
    cost = f": {cure.cost}" if cure.cost else ""
    return replace(finding, action=f"{cure.name} {cure.new}{now}{cost}")


def _verdict(plan: Plan, *, findings: Severity) -> str:
    if not plan.fits:
        return "does not fit"
    return "fits, with warnings" if findings in (Severity.WARNING, Severity.FAILURE) else "fits"


def _title(plan: Plan, best: LayoutPlan) -> str:
    engine = f"{_ENGINES.get(plan.engine, plan.engine)} {plan.engine_version}"
    used, there = best.layout.gpus, plan.gpus.count
    return (
        f"{plan.model} on {engine}, {layout_text(best.layout)} on {used} of {there} x {plan.gpus.card.name}"
    )


def _paragraph(plan: Plan, best: LayoutPlan) -> str:
    kv = best.kv
    cache = bytes_text(max(0, kv.available_bytes))
    parts = [f"Per GPU: weights {bytes_text(best.weights_bytes)}, KV cache {cache}"]
    if kv.tokens:
        parts[0] += f" for {kv.tokens:,} tokens ({kv.low_tokens:,} to {kv.high_tokens:,})"
    parts[0] += "."
    if best.requests:
        copies = best.layout.data_parallel
        over = f" over {copies} engines" if copies > 1 else ""
        parts.append(f"Room for {best.requests:.1f} requests of {best.context:,} tokens at once{over}.")
    if plan.fits:
        low, high = mib_text(best.smi_used_low), mib_text(best.smi_used_high)
        parts.append(f"nvidia-smi will show {low} to {high} used of {mib_text(plan.gpus.card.memory_total)}.")
    if best.command:
        parts.append(f"\n$ {shlex.join(best.command)}")
    return " ".join(parts)


def _ledger_table(plan: LayoutPlan) -> Table:
    rows = [
        (
            _NAMES.get(line.name, line.name),
            round(in_mib(line.bytes)),
            _bounds(line),
            line.origin.value,
        )
        for line in plan.ledger
        if line.bytes or line.low != line.high
    ]
    total = sum(line.bytes for line in plan.ledger)
    rows.append(("together", round(in_mib(total)), "", ""))
    return Table(title="One GPU, in MiB", columns=("what", "MiB", "between", "origin"), rows=tuple(rows))


def _bounds(line: LedgerLine) -> str:
    if line.low == line.high:
        return ""
    return f"{round(in_mib(line.low)):,} and {round(in_mib(line.high)):,}"


def _formula_table(plan: LayoutPlan) -> Table:
    rows = tuple(
        (_NAMES.get(line.name, line.name), f"{line.bytes:,} B", line.formula)
        for line in plan.ledger
        if line.bytes or line.origin is not Origin.MEASURED
    )
    return Table(title="How each line comes about", columns=("what", "bytes", "formula"), rows=rows)


def _cache_table(plan: LayoutPlan) -> Table:
    kv = plan.kv
    blocks, size, block = kv.blocks or 0, kv.bytes_per_block or 0, kv.block_tokens or 0
    rows: list[tuple[Cell, ...]] = [
        ("number format", kv.cache_dtype or "the model's own"),
        ("layers per group", ", ".join(map(str, kv.groups)) or "none"),
        ("bytes of a block", f"{size:,} B for {block:,} tokens"),
        ("blocks", f"{max(0, kv.available_bytes):,} B / {size:,} B = {blocks:,}"),
        ("bytes per token", f"{kv.bytes_per_token:,.1f} B"),
        ("fixed per request", f"{kv.fixed_bytes_per_request:,} B"),
        ("needed for one request", f"{kv.needed_bytes:,} B = {kv.needed_bytes / GIB:.2f} GiB"),
    ]
    return Table(title="The KV cache", columns=("what", "how much"), rows=tuple(rows))


def _layout_table(layouts: Sequence[LayoutPlan]) -> Table:
    rows = tuple(
        (
            layout_text(plan.layout),
            plan.layout.gpus,
            round(plan.weights_bytes / GIB, 1),
            round(max(0, plan.kv.available_bytes) / GIB, 1),
            plan.kv.tokens,
            round(plan.requests, 1),
        )
        for plan in layouts[:_MOST_LAYOUTS]
    )
    left_out = len(layouts) - len(rows)
    return Table(
        title="Layouts that fit, best first",
        columns=("layout", "GPUs", "weights GiB", "cache GiB", "tokens per engine", "requests at once"),
        rows=rows,
        note=f"{left_out} more: --json" if left_out else "",
    )


def _variant_table(variants: Variants) -> Table:
    rows = tuple(_variant_row(variant) for variant in variants.found)
    columns = ("variant", "format", "on this card", "layout", "weights GiB", "tokens", "at once", "fits")
    notes = [f"not asked: {one}" for one in variants.not_asked]
    notes += [f"{one.name}: {one.reason}" for one in variants.found if one.reason]
    return Table(title="Published variants, per GPU", columns=columns, rows=rows, note="; ".join(notes))


def _variant_row(variant: Variant) -> tuple[Cell, ...]:
    best = variant.best
    start = (f"{variant.name} ({variant.found_in})", variant.weights_format, variant.runs or "unknown")
    if best is None:
        return (*start, "", "", "", "", "unknown")
    return (
        *start,
        f"{_ENGINES.get(variant.engine, variant.engine)} {layout_text(best.layout)}",
        round(best.weights_bytes / GIB, 1),
        best.kv.tokens,
        round(best.requests, 1),
        "yes" if best.fits else "no",
    )


def _rejected_table(rejected: Sequence[tuple[Layout, str]]) -> Table:
    """Layouts by the reason that they share."""
    by_reason: dict[str, list[str]] = {}
    for layout, reason in rejected:
        by_reason.setdefault(reason, []).append(layout_text(layout))
    rows = tuple((", ".join(names), reason) for reason, names in by_reason.items())
    return Table(title="Layouts that do not do", columns=("layout", "why"), rows=rows[:_MOST_LAYOUTS])
