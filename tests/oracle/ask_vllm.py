"""Answers of vLLM's own planning functions. Runs in an environment that has vLLM; talks JSON over its pipes.

One line in per case, one line out. Knows the module paths of 0.32 (`kv_cache_utils`) and 0.33
(`kv_cache_planning`).
"""

import json
import logging
import sys
import traceback
from types import SimpleNamespace

logging.disable(logging.CRITICAL)

import torch  # noqa: E402
from vllm.distributed.utils import get_pp_indices  # noqa: E402
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator  # noqa: E402
from vllm.v1 import kv_cache_interface as interface  # noqa: E402
from vllm.v1.core import kv_cache_utils as utils  # noqa: E402
from vllm.v1.kv_cache_layout import KVCacheLayout  # noqa: E402

try:
    from vllm.v1.core import kv_cache_planning as planning
except ImportError:
    planning = utils

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "fp8": torch.uint8, "float16": torch.float16}


def spec_of(layer):  # noqa: PLR0911 - one spec class, one return
    """One layer's spec, from plain facts."""
    kind = layer["kind"]
    if kind == "state":
        return interface.MambaSpec(
            block_size=layer["block"],
            shapes=tuple(tuple(shape) for shape in layer["shapes"]),
            dtypes=tuple(DTYPES[dtype] for dtype in layer["dtypes"]),
            page_size_padded=layer["padded"],
            num_speculative_blocks=layer["drafts"],
            mamba_cache_mode=layer["mode"],
            tp_replicated=layer.get("is_copied", False),
        )
    facts = {
        "block_size": layer["block"],
        "num_kv_heads": layer["heads"],
        "head_size": layer["head_dim"],
        "dtype": DTYPES[layer["dtype"]],
    }
    if kind == "ring":
        return interface.CircularBufferSpec(**facts, head_size_v=0)
    if kind == "keys":
        return interface.MLAAttentionSpec(**facts, tokens_per_state=layer["ratio"])
    if kind == "mla":
        return interface.MLAAttentionSpec(
            **facts, state_content_bytes=layer["packed"], cache_dtype_str=layer["dtype"]
        )
    if kind == "sliding_mla":
        return interface.SlidingWindowMLASpec(
            **facts, sliding_window=layer["window"], dcp_sharded=not layer["is_whole"]
        )
    if kind == "indexer":
        return interface.MLAAttentionSpec(**facts, cache_role=interface.SparseCacheRole.INDEXER)
    facts["head_size_v"] = layer["v_head_dim"]
    if kind == "sliding":
        return interface.SlidingWindowSpec(
            **facts, sliding_window=layer["window"], dcp_sharded=not layer["is_whole"]
        )
    if kind == "chunked":
        return interface.ChunkedLocalAttentionSpec(**facts, attention_chunk_size=layer["window"])
    if kind == "cross":
        return interface.CrossAttentionSpec(**facts)
    return interface.FullAttentionSpec(**facts)


def config_of(case):
    """As much of a configuration as the planning functions look at."""
    layout = KVCacheLayout[case.get("layout", "LBNHC")]
    return SimpleNamespace(
        model_config=SimpleNamespace(
            max_model_len=case["length"], original_max_model_len=case["length"], hf_config=None
        ),
        cache_config=SimpleNamespace(
            num_gpu_blocks_override=case.get("override"),
            mamba_cache_mode=case["mode"],
            prefix_cache_retention_interval=None,
            get_resolved_kv_cache_layout=lambda: layout,
        ),
        parallel_config=SimpleNamespace(
            decode_context_parallel_size=case["dcp"], tensor_parallel_size=case["dcp"]
        ),
        scheduler_config=SimpleNamespace(
            disable_hybrid_kv_cache_manager=not case["has_hybrid_manager"],
            max_num_encoder_input_tokens=case["encoder_tokens"],
        ),
        attention_config=SimpleNamespace(hisparse_config=None),
        speculative_config=None,
        max_in_flight_tokens=case["in_flight"],
        num_prefill_lookahead_tokens=0,
    )


def answer(case):
    """Groups, bytes per block and stage, blocks, tokens, concurrency, and whether it starts."""
    config = config_of(case)
    specs = {layer["name"]: spec_of(layer) for layer in case["layers"]}
    stages = [{layer["name"]: specs[layer["name"]] for layer in case["layers"] if layer["stage"] == stage}
              for stage in range(case["stages"])]  # fmt: skip
    try:
        groups = planning.get_kv_cache_groups(config, dict(specs))
    except (NotImplementedError, ValueError, StopIteration) as error:
        return {"error": f"{error}"}
    if sum(len(group.layer_names) for group in groups) < len(specs):
        return {"error": "Some layers are not assigned to any group."}  # as `get_kv_cache_configs` asserts
    project = getattr(planning, "_project_kv_cache_groups_to_worker", None)
    projected = [project(groups, stage) for stage in stages]
    cost = [planning._pool_bytes_per_block(config, part) for part in projected]
    blocks = min(size // price for size, price in zip(case["available"], cost, strict=True))
    found = planning.get_kv_cache_config_from_groups(config, projected[0], blocks * cost[0])
    tokens, concurrency = utils.get_kv_cache_capacity(config, found)
    try:
        utils.get_kv_cache_configs(config, stages, list(case["available"]))
    except ValueError:
        starts = False
    else:
        starts = True
    longest = min(
        planning._estimate_max_model_len_from_groups(config, part, size - price)
        for part, size, price in zip(projected, case["available"], cost, strict=True)
    )
    return {
        "groups": [group.layer_names for group in groups],
        "stage_bytes": cost,
        "blocks": blocks,
        "tokens": tokens,
        "concurrency": concurrency,
        "starts": starts,
        "longest": longest,
    }


def state(case):
    """Shapes of one state."""
    name, arguments = case["shape"], case["arguments"]
    return {"shapes": getattr(MambaStateShapeCalculator, name)(**arguments)}


def reply(case):
    """The answer to one line."""
    if "shape" in case:
        return state(case)
    if "indices" in case:
        layers, stages = case["indices"]
        return {"stages": [get_pp_indices(layers, stage, stages) for stage in range(stages)]}
    return answer(case)


def main():
    """Answer until the pipe closes."""
    for line in sys.stdin:
        case = json.loads(line)
        try:
            told = reply(case)
        except Exception:  # noqa: BLE001 - whatever it is, the test has to see it
            told = {"crash": traceback.format_exc()[-1500:]}
        sys.stdout.write("answer " + json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
