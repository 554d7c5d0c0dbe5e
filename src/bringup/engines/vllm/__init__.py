"""vLLM.

Source: vLLM 0.32.0, recorded answers of a running server; metric names back to 0.6.
"""

from bringup.engines import Engine


def __getattr__(name: str) -> Engine:
    """`ENGINE`, made when it is asked for: a plan needs no reader of endpoints."""
    if name != "ENGINE":
        raise AttributeError(name)
    from bringup.engines.vllm.endpoints import (  # noqa: PLC0415 - loaded when asked for
        HEALTH_MEANING,
        PROBES,
        identify,
    )
    from bringup.engines.vllm.flags import read_command  # noqa: PLC0415 - the same

    engine = Engine(
        display_name="vLLM",
        probes=PROBES,
        identify=identify,
        health_path="/health",
        health_meaning=HEALTH_MEANING,
        metrics_path="/metrics",
        read_command=read_command,
    )
    globals()["ENGINE"] = engine  # made once: the next one who asks finds it without this function
    return engine
