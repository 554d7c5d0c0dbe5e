"""Text Generation Inference (maintenance mode).

Source: TGI 3.x, `router/src/server.rs` and `router/src/lib.rs`; its documentation of metrics.
"""

from bringup.engines import Engine
from bringup.engines.tgi.endpoints import HEALTH_MEANING, PROBES, identify
from bringup.engines.tgi.flags import read_command

ENGINE = Engine(
    display_name="TGI",
    probes=PROBES,
    identify=identify,
    health_path="/health",
    health_meaning=HEALTH_MEANING,
    metrics_path="/metrics",
    read_command=read_command,
)
