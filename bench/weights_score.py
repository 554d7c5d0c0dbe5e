#!/usr/bin/env python3
"""Predicted against reported weights per GPU, over the records of ../shared/data/memory.jsonl.

usage: PYTHONPATH=src python bench/weights_score.py [--rows] [--worst N] [--parts ID ...]

A record counts where its own config is stored (or one of the same shape and number format) and nothing else,
such as a draft model that is not described, was loaded with it. Errors are |predicted - reported| / reported.
"""

import argparse
import importlib.util
import json
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from bringup.errors import BringupError
from bringup.parse.hf_config import read_config
from bringup.parse.model_catalogue import find_model
from bringup.planner.weight_rules import WeightRules, sglang_rules, vllm_rules
from bringup.planner.weights import Weights, weights_per_rank
from bringup.transport.catalogue import load_models
from bringup.units import GIB
from bringup.values.plan import Layout

SHARED = Path(__file__).resolve().parents[2] / "shared"
CATALOGUE = load_models()
CONFIGS = SHARED / "data/model_configs"
# GPU name in the report -> compute capability. Source: NVIDIA's list of CUDA GPUs.
CAPABILITY = (
    (r"3090|A5000|A40\b", "8.6"),
    (r"A100", "8.0"),
    (r"4090|L40|Ada", "8.9"),
    (r"H100|H200|H20\b|GH200", "9.0"),
    (r"B200|GB200", "10.0"),
    (r"GB10", "12.1"),
    (r"5090|RTX PRO 6000", "12.0"),
)


def scorer() -> ModuleType:
    """The scoring tool beside the data: it decides which record is usable with which config."""
    spec = importlib.util.spec_from_file_location("score_plan", SHARED / "tools/score_plan.py")
    if spec is None or spec.loader is None:
        sys.exit(f"no scoring tool in {SHARED}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules_of(record: dict) -> WeightRules:
    """The engine's rules as the record describes the run."""
    flags = {}
    for flag in record.get("flags") or []:
        name, _, value = flag.partition("=")
        flags[name.replace("-", "_")] = value.strip("'") or "True"
    capability = next((cc for pattern, cc in CAPABILITY if re.search(pattern, record["gpu"] or "")), None)
    if record["engine"].startswith("sglang"):
        rules = sglang_rules(compute_capability=capability)
        ranks, gpus = record["tp"] or 1, record.get("num_gpus") or record["tp"]
        attention = (record.get("dp") or 1) if gpus == ranks else 1
        rules = replace(rules, attention_data_parallel=attention, expert_groups=record.get("ep") or 1)
    else:
        version = re.match(
            r"~?(\d+\.\d+(?:\.\d+)?(?:(?:rc|\.post|\.dev)\d+)*)", record.get("engine_version") or ""
        )
        is_rocm = bool(re.search(r"R9700|MI3\d\d", record["gpu"] or ""))
        number = version[1] if version else None
        rules = vllm_rules(number, compute_capability=capability, is_rocm=is_rocm)
    return replace(
        rules,
        loads_mtp="'method': 'mtp'" in str(record.get("flags")),
        loads_encoder=flags.get("language_model_only") != "True",
        online_quantization=record.get("quantization"),
    )


def layout_of(record: dict) -> Layout:
    """The layout of the record."""
    return Layout(
        tensor_parallel=record["tp"] or 1,
        pipeline_parallel=record.get("pp") or 1,
        data_parallel=1 if record["engine"].startswith("sglang") else (record.get("dp") or 1),
        has_expert_parallel=bool(record.get("ep")) and record["engine"].startswith("vllm"),
    )


def predict(record: dict, config: dict) -> Weights:
    """Our answer for one record."""
    entry = find_model(re.sub(r" \(.*\)$", "", record["model"]), CATALOGUE)
    known = dict(entry.config) if entry else None
    if known and ("quantization_config" in known) != ("quantization_config" in config):
        known.pop("quantization_config", None)  # a variant in another format of the same shape
    model = read_config(config, name=record["model"], source="data", known=known)
    return weights_per_rank(model, layout_of(record), rules_of(record))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record and our answer."""

    record: dict
    weights: Weights
    reported: int  # bytes

    @property
    def error(self) -> float:
        """(predicted - reported) / reported."""
        return self.weights.total / self.reported - 1

    @property
    def is_inside(self) -> bool:
        """Whether the report lies in the interval given."""
        return self.weights.low <= self.reported <= self.weights.high


def scored() -> tuple[list[Row], list[tuple[str, str, str]]]:
    """Every usable record with our answer, best first, and those that were refused."""
    score, args = scorer(), argparse.Namespace(configs=CONFIGS)
    rows, refused = [], []
    for line in (SHARED / "data/memory.jsonl").read_text().splitlines():
        record = json.loads(line)
        reported = record["reported"].get("weights_gib_per_gpu")
        config = score.config_of(args, record)
        is_usable = score.command(record) and config and not score.contradicts(args, record)
        is_usable = is_usable and (record.get("check") or {}).get("verdict") != "odd"
        if not reported or not record.get("tp") or not is_usable or score.has_foreign_draft(record):
            continue
        try:
            weights = predict(record, config)
        except BringupError as error:
            refused.append((record["id"], record["model"], error.message))
            continue
        rows.append(Row(record=record, weights=weights, reported=round(reported * GIB)))
    return sorted(rows, key=lambda row: abs(row.error)), refused


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", action="store_true", help="print every row, worst last")
    parser.add_argument("--worst", type=int, default=15, help="rows to print")
    parser.add_argument("--parts", nargs="*", default=[], help="ids whose parts are printed too")
    args = parser.parse_args()
    rows, refused = scored()
    for row in rows if args.rows else rows[len(rows) - args.worst :]:
        record = row.record
        print(
            f"{record['id']} {record['engine'][:6]:6} {record['engine_version'] or '-':10.10} "
            f"{record['model'][:48]:48} tp{record['tp']} reported {row.reported / GIB:8.4f} "
            f"predicted {row.weights.total / GIB:8.4f} {row.error:+8.3%} {record['gpu'] or ''}"
        )
        if record["id"] in args.parts:
            print("   ", row.weights.formula)
    for refusal in refused:
        print("refused", *refusal)
    errors = [abs(row.error) for row in rows] + [1.0] * len(refused)
    print(
        f"weights n={len(errors)} unanswered={len(refused)} median={errors[len(errors) // 2]:.3%} "
        f"p90={errors[min(len(errors) - 1, int(0.9 * len(errors)))]:.2%} "
        f"inside={sum(row.is_inside for row in rows) / len(errors):.1%}"
    )


if __name__ == "__main__":
    main()
