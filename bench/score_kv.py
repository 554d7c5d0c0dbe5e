"""How well the KV rules foretell what real servers printed, given the bytes they had.

usage: python bench/score_kv.py [--shared ../shared] [--rows]

Scores two things over the reports of `data/memory.jsonl`, as `tools/score_plan.py` does, but without the
command line: `bytes_per_token` (where the report's is a rate) and `kv_from_bytes` (tokens from its bytes).
"""

import argparse
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

from bringup.errors import UsageError
from bringup.parse.gpu_name import read_catalogue, read_gpus
from bringup.parse.hf_config import read_config
from bringup.planner.kv_cache import kv_layout, kv_plan
from bringup.planner.kv_records import KvRules
from bringup.planner.kv_sglang import SglangRules, sglang_token_bytes
from bringup.planner.kv_versions import NEWEST, read_version
from bringup.units import GIB
from bringup.values.plan import Layout

CATALOGUE = Path(__file__).resolve().parents[1] / "src" / "bringup" / "data" / "gpus.json"
KINDS = ("bytes_per_token", "kv_from_bytes")


def load_scorer(shared: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location("score_plan", shared / "tools" / "score_plan.py")
    if found is None or found.loader is None:
        raise SystemExit(f"no scorer in {shared}")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def flags_of(record: dict) -> dict[str, str]:
    pairs = (flag.partition("=") for flag in record.get("flags") or [] if "{" not in flag)
    return {name.replace("-", "_"): value or "True" for name, _, value in pairs}


def layout_of(record: dict) -> Layout:
    context = flags_of(record).get("decode_context_parallel_size")
    return Layout(
        tensor_parallel=record.get("tp") or 1,
        pipeline_parallel=record.get("pp") or 1,
        decode_context_parallel=int(context or 1),
    )


def cache_dtype(record: dict, scorer: ModuleType) -> str:
    """The format that the report's command line would name."""
    text = record.get("kv_cache_dtype") or ""
    word = text.split(" ")[0]
    return word if word in scorer.KV_TYPES and "(auto" not in text else "auto"


def vllm_rules(record: dict, scorer: ModuleType) -> KvRules:
    text = record.get("engine_version") or ""
    flags, draft = flags_of(record), scorer.speculative(record) or {}
    prefix = flags.get("enable_prefix_caching")
    return KvRules(
        version=read_version(text.lstrip("~")) or NEWEST,
        cache_dtype=cache_dtype(record, scorer),
        block_tokens=record.get("block_size"),
        max_num_batched_tokens=record.get("max_num_batched_tokens") or 8192,
        has_prefix_caching=None if prefix is None else prefix == "True",
        compute_capability=capability(record),
        speculative_tokens=int(draft.get("num_speculative_tokens", 0)),
        loads_mtp=draft.get("method") == "mtp",
    )


def capability(record: dict) -> str | None:
    """Compute capability of the report's card, where the catalogue has one of that name."""
    rows = json.loads(CATALOGUE.read_text())
    name = re.sub(r" \(.*\)$", "", record.get("gpu") or "")
    try:
        return read_gpus(f"1x {name}", read_catalogue(rows)).card.compute_capability if name else None
    except UsageError:
        return None


def predict(record: dict, config: dict, scorer: ModuleType, size: int) -> tuple[float, int]:
    model = read_config(config, name=record["model"], source="report")
    if record["engine"].startswith("sglang"):
        layout, said = layout_of(record), record["engine_version"] or ""
        shards = record.get("dp") or 1
        has_shared_ranks = "enable-dp-attention" in (record.get("flags") or []) or record.get("num_gpus") in (
            None,
            record.get("tp"),
        )
        rules = SglangRules(
            version=read_version(said.lstrip("~")),
            cache_dtype=cache_dtype(record, scorer),
            compute_capability=capability(record),
            attention_data_parallel=shards if shards > 1 and has_shared_ranks else 1,
        )
        rate = sglang_token_bytes(model, layout, rules)
        return rate, int(size / rate)
    rules = vllm_rules(record, scorer)
    length = record.get("max_model_len") or model.max_position or 0
    plan = kv_plan(kv_layout(model, layout_of(record), rules), size, length, rules)
    return plan.bytes_per_token, plan.tokens


def score(record: dict, scorer: ModuleType, folder: Path) -> list[tuple[str, float, float | None]]:
    said, check = record["reported"], record.get("check") or {}
    tokens, kv = said.get("kv_tokens"), said.get("kv_available_gib")
    verdict = str(check.get("verdict", ""))
    if not tokens or not kv or scorer.command(record) is None:
        return []
    config = scorer.config_of(SimpleNamespace(configs=str(folder)), record)
    got = predict(record, config, scorer, int(kv * GIB)) if config else (None, None)
    rows = []
    if verdict == "consistent":
        rows.append(("bytes_per_token", check["reported_bytes_per_token"], got[0]))
    is_counted = record["engine"].startswith("vllm") and kv > 0.5 and verdict != "odd"
    if is_counted and not scorer.has_foreign_draft(record):
        rows.append(("kv_from_bytes", tokens, got[1]))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path(__file__).resolve().parents[2] / "shared")
    parser.add_argument("--rows", action="store_true", help="every row, worst last")
    options = parser.parse_args()
    scorer, rows = load_scorer(options.shared), []
    with (options.shared / "data" / "memory.jsonl").open() as lines:
        for line in lines:
            record = json.loads(line)
            for kind, want, got in score(record, scorer, options.shared / "data" / "model_configs"):
                error = 1.0 if got is None else abs(got - want) / want
                rows.append((kind, error, want, got, record))
    for kind in KINDS:
        mine = sorted((row for row in rows if row[0] == kind), key=lambda row: row[1])
        if options.rows:
            for _, error, want, got, record in mine:
                named = f"{record['id']} {record['model']}"
                print(f"{kind} {error:8.3%} reported {want:.7g} predicted {got} {named}")
        near = sum(row[1] <= 0.01 for row in mine)
        middle = mine[len(mine) // 2][1]
        print(f"{kind:16} n={len(mine)} within 1 %: {near / len(mine):.1%} ({near}), median {middle:.4%}")


if __name__ == "__main__":
    main()
