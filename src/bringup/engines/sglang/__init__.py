"""SGLang.

Source: SGLang 0.5.23, recorded answers of a running server; `/get_server_info` is the form before 0.5.6.
"""

from bringup.engines import Engine
from bringup.engines.sglang.endpoints import HEALTH_MEANING, PROBES, identify
from bringup.engines.sglang.flags import read_command

ENGINE = Engine(
    display_name="SGLang",
    probes=PROBES,
    identify=identify,
    health_path="/health",
    health_meaning=HEALTH_MEANING,
    metrics_path="/metrics",
    counters_need="--enable-metrics",
    gauges_lag=True,  # renewed every 40 steps of decoding, and at rest every 30 s
    read_command=read_command,
)
