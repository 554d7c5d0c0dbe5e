"""TensorRT-LLM, served by `trtllm-serve`.

Source: TensorRT-LLM 1.x, `tensorrt_llm/serve/openai_server.py` and the documentation of `trtllm-serve`.
"""

from bringup.engines import Engine
from bringup.engines.tensorrt_llm.endpoints import PROBES, identify
from bringup.engines.tensorrt_llm.flags import read_command

ENGINE = Engine(
    display_name="TensorRT-LLM",
    probes=PROBES,
    identify=identify,
    health_path="/health_generate",
    health_meaning="200: it has generated an answer to a chat request just now",
    metrics_path="/metrics",
    counter_paths=("/prometheus/metrics/",),  # what is read at the other path is gone for everybody else
    counters_need="return_perf_metrics: true",
    read_command=read_command,
)
