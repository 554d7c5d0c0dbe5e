"""SGLang.

Source: SGLang 0.5.23, recorded answers of a running server; `/get_server_info` is the form before 0.5.6.
"""

from bringup.engines import Engine
from bringup.engines.sglang.endpoints import HEALTH_MEANING, PROBES, identify

ENGINE = Engine(
    display_name="SGLang",
    probes=PROBES,
    identify=identify,
    health_path="/health",
    health_meaning=HEALTH_MEANING,
    metrics_path="/metrics",
)
