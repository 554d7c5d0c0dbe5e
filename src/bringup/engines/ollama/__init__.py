"""Ollama.

Source: Ollama's API documentation and `api/types.go` (0.12 and later).
"""

from bringup.engines import Engine
from bringup.engines.ollama.endpoints import HEALTH_MEANING, PROBES, identify
from bringup.engines.ollama.flags import read_command

ENGINE = Engine(
    display_name="Ollama",
    probes=PROBES,
    identify=identify,
    health_path="/api/version",
    health_meaning=HEALTH_MEANING,
    read_command=read_command,
)
