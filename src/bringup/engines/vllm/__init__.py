"""vLLM.

Source: vLLM 0.32.0, recorded answers of a running server; metric names back to 0.6.
"""

from bringup.engines import Engine
from bringup.engines.vllm.endpoints import HEALTH_MEANING, PROBES, identify

ENGINE = Engine(
    display_name="vLLM",
    probes=PROBES,
    identify=identify,
    health_path="/health",
    health_meaning=HEALTH_MEANING,
    metrics_path="/metrics",
)
