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
    read_command=read_command,
)
