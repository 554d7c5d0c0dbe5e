"""A server of the OpenAI interface that is none of the known engines.

Source: OpenAI API reference, models endpoint: `GET /v1/models` gives `{"object": "list", "data": [...]}`.
"""

from bringup.engines import Engine
from bringup.engines.openai_compatible.endpoints import HEALTH_MEANING, PROBES, identify

ENGINE = Engine(
    display_name="unknown OpenAI-compatible server",
    probes=PROBES,
    identify=identify,
    health_path="/v1/models",
    health_meaning=HEALTH_MEANING,
    counter_paths=("/metrics",),
)
