"""The two touchstone cases as recordings, whole and with one fault each.

The figures of nvidia-smi are the reported ones. The memory fraction of case A was not reported: these
recordings state 0.95. The number of cache blocks is what 33.9 GiB hold, at 62 layers x 2 heads x 128 x 2 x
2 B per token.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from machine import Box, Card, Worker

from bringup.transport.recording import load
from bringup.values.exchange import Answer
from bringup.values.recording import Recording

_GOLDEN = Path(__file__).parents[1] / "golden" / "recordings"
_BUSES = ("06", "16", "26", "36", "86", "96", "a6", "b6")
BLOCKS = 35_840


def box_a(*, share: str = "0.95") -> Box:
    """The machine of case A."""
    watts = (84.30, 84.49, 82.39, 81.89, 34.31, 33.58, 33.58, 32.60)
    cards = tuple(
        Card(
            index=index,
            bus=f"0000:{_BUSES[index]}:00.0",
            used_mib=96_721 if index < 4 else 3,
            watts=power,
            state="P1" if index < 4 else "P8",
            generation=5 if index < 4 else 1,
            temperature=45 if index < 4 else 33,
        )
        for index, power in enumerate(watts)
    )
    return Box(
        cards=cards,
        workers=tuple(Worker(pid=4101 + rank, card=rank, mib=96_712) for rank in range(4)),
        argv=(
            *("/opt/vllm/bin/python3", "/opt/vllm/bin/vllm", "serve", "MiniMaxAI/MiniMax-M2.5"),
            *("--tensor-parallel-size", "4", "--max-num-seqs", "256", "--max-model-len", "131072"),
            *("--gpu-memory-utilization", share),
        ),
        environment={"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
    )


def case_a(
    change: Callable[[Box], Box] = lambda box: box, *, share: str = "0.95", blocks: int = BLOCKS
) -> Recording:
    """MiniMax-M2.5 on vLLM 0.16.0, TP4 on four of eight RTX PRO 6000; `change` breaks one thing."""
    box = change(box_a(share=share))
    labels = 'engine="0",model_name="MiniMaxAI/MiniMax-M2.5"'
    page = (
        f"vllm:num_requests_running{{{labels}}} 0.0\n"
        f"vllm:num_requests_waiting{{{labels}}} 0.0\n"
        f"vllm:kv_cache_usage_perc{{{labels}}} 0.0\n"
        f"vllm:num_preemptions_total{{{labels}}} 0.0\n"
        f"vllm:generation_tokens_total{{{labels}}} 4096.0\n"
        f'vllm:cache_config_info{{block_size="16",cache_dtype="auto",gpu_memory_utilization="{share}",'
        f'engine="0",num_gpu_blocks="{blocks}"}} 1.0\n'
    )
    model = (
        '{"object":"list","data":[{"id":"MiniMaxAI/MiniMax-M2.5","object":"model","owned_by":"vllm",'
        '"root":"MiniMaxAI/MiniMax-M2.5","parent":null,"max_model_len":131072}]}'
    )
    return _recording(
        box,
        "answers-minimax",
        {"/health": "", "/version": '{"version":"0.16.0"}', "/v1/models": model, "/metrics": page},
    )


def case_b(change: Callable[[Box], Box] = lambda box: box) -> Recording:
    """Qwen3.5-397B-A17B NVFP4 on SGLang 0.5.9, TP4 on the four cards that the container still has."""
    used = (79_043, 78_369, 78_369, 78_193)
    buses = ("01", "11", "61", "71")
    cards = tuple(
        Card(
            index=index,
            bus=f"0000:{buses[index]}:00.0",
            used_mib=size,
            watts=83.0 + index / 10,
            state="P1",
            generation=5,
            temperature=44,
        )
        for index, size in enumerate(used)
    )
    box = change(
        Box(
            cards=cards,
            workers=tuple(
                Worker(pid=4101 + rank, card=rank, mib=size - 9, name="sglang::scheduler_TP")
                for rank, size in enumerate(used)
            ),
            argv=(
                *("/opt/sglang/bin/python3", "-m", "sglang.launch_server"),
                *("--model-path", "nvidia/Qwen3.5-397B-A17B-NVFP4", "--tp", "4", "--port", "8000"),
            ),
            unit="sglang",
        )
    )
    model = (
        '{"object":"list","data":[{"id":"nvidia/Qwen3.5-397B-A17B-NVFP4","object":"model",'
        '"owned_by":"sglang","root":"nvidia/Qwen3.5-397B-A17B-NVFP4","parent":null,"max_model_len":262144}]}'
    )
    server = (
        '{"version":"0.5.9","model_path":"nvidia/Qwen3.5-397B-A17B-NVFP4","tp_size":4,'
        '"mem_fraction_static":0.7897,"max_total_num_tokens":1350000,"max_running_requests":60,'
        '"context_length":262144,"page_size":64,"kv_cache_dtype":"auto"}'
    )
    info = '{"model_path":"nvidia/Qwen3.5-397B-A17B-NVFP4","tokenizer_path":"x","is_generation":true}'
    recording = _recording(
        box,
        "answers-qwen",
        {
            "/health": "",
            "/v1/models": model,
            "/get_server_info": server,
            "/server_info": server,
            "/get_model_info": info,
            "/model_info": info,
        },
    )
    # The answers are those of a server that counts as vLLM does: SGLang is asked otherwise for freed places.
    return replace(recording, options={**recording.options, "skip": ["cancel"]})


def under_load(recording: Recording, box: Box, busy: Mapping[str, object] | None = None) -> Recording:
    """The recording with a burst and what the cards of `box` did meanwhile; `busy` changes fields of it."""
    pieces = [box.trace(number, busy=busy or {}) for number in range(2)]
    snapshots = {**recording.snapshots, "load": {one.key: one for one in pieces}}
    return replace(recording, options={**recording.options, "load": True}, snapshots=snapshots)


def _recording(box: Box, answers: str, pages: dict[str, str]) -> Recording:
    base = load(_GOLDEN / f"{answers}.json.gz")
    probes = {path: Answer(key=path, status=200, body=body) for path, body in pages.items()}
    before = box.answers()
    after = {key: answer for key, answer in before.items() if key != "nvidia.samples"}
    return replace(
        base,
        host="gpubox",
        url="http://127.0.0.1:8000",
        options={**base.options, "port": 8000, "gpus": []},
        snapshots={"before": before, "after": after},
        looked_at={"before": 1_790_600_000.0, "after": 1_790_600_060.0},
        taken_at=1_790_600_000.0,
        probes=probes,
    )
