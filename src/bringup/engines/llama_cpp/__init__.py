"""llama.cpp's own server.

Source: two builds of llama.cpp (10434 and 11549), recorded answers of running servers.
"""

from bringup.engines import Engine
from bringup.engines.llama_cpp.endpoints import HEALTH_MEANING, PROBES, identify
from bringup.engines.llama_cpp.flags import read_command

ENGINE = Engine(
    display_name="llama.cpp",
    probes=PROBES,
    identify=identify,
    health_path="/health",
    health_meaning=HEALTH_MEANING,
    metrics_path="/metrics",
    counter_paths=("/metrics", "/slots"),
    counters_need="--metrics",
    read_command=read_command,
)
