"""Figures of vLLM by version that plans and diagnoses share.

Source: vLLM 0.8.5 to 0.33.0 `config/cache.py`, `v1/worker/gpu_model_runner.py`, and logs of servers.
"""

from bringup.planner.kv_versions import Version

# Bytes that the sampler takes for one logit, by version. Up to 0.16 it sorts: float32 copies, sorted values
# and 64-bit indices. Seen: 38.5 (Qwen3-30B, 0.10.2, H100), 37 (Llama-3-8B, 0.11.2), 41 (Qwen3-30B, 0.15.0),
# 10 (Llama-3.1-8B, 0.17.1). 0.33's second runner tries every option out: 10 to 14, inferred.
BYTES_PER_LOGIT: tuple[tuple[Version, float], ...] = (
    ((0, 33, 0), 12.0),
    ((0, 17, 0), 11.0),
    ((0, 0, 0), 38.5),
)
_UTILIZATION: tuple[tuple[Version, float], ...] = (((0, 20, 0), 0.92), ((0, 0, 0), 0.9))


def bytes_per_logit(version: Version) -> float:
    """Bytes of the sampler's peak for one logit of one request.

    >>> bytes_per_logit((0, 16, 0)), bytes_per_logit((0, 17, 1))
    (38.5, 11.0)
    """
    return next(size for since, size in BYTES_PER_LOGIT if version >= since)


def default_utilization(version: Version) -> float:
    """`--gpu-memory-utilization` where it is not given.

    >>> default_utilization((0, 19, 1)), default_utilization((0, 20, 2))
    (0.9, 0.92)
    """
    return next(value for since, value in _UTILIZATION if version >= since)
