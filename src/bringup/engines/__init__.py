"""One folder per engine. Its `ENGINE` record says how its endpoint is recognised and read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bringup.values.engine import EngineStatus
from bringup.values.exchange import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """How one engine is asked about itself and how its answers are read.

    `identify` gets the answers of all engines' probes by path and returns how sure it is, 0..1, with the
    status read; None when the server is not this engine. The surest wins.
    """

    display_name: str  # "vLLM"
    probes: tuple[str, ...]  # GET paths, without key or body
    identify: Callable[[Mapping[str, Answer]], tuple[float, EngineStatus] | None]
    health_path: str  # the endpoint that says most about being able to generate
    health_meaning: str  # what its 200 proves and what not
