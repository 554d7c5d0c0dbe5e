"""LMDeploy.

Source: LMDeploy 0.10 and later, `lmdeploy/serve/openai/`; documentation of its metrics.
"""

from bringup.engines import Engine
from bringup.engines.lmdeploy.endpoints import HEALTH_MEANING, PROBES, identify
from bringup.engines.lmdeploy.flags import read_command

ENGINE = Engine(
    display_name="LMDeploy",
    probes=PROBES,
    identify=identify,
    health_path="/health",
    health_meaning=HEALTH_MEANING,
    metrics_path="/metrics",
    read_command=read_command,
)
