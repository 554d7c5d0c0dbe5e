"""A bug of an engine that is known: in which versions, on what, and which version has the fix."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """One bug. Every condition that is given must hold; one that cannot be checked counts as not holding."""

    id: str
    engine: str
    summary: str  # what it does, as a person meets it
    explanation: str  # why
    action: str
    sources: tuple[str, ...]  # issue, pull request or report
    is_serious: bool = False  # wrong answers or a dead engine, in this very set-up
    first: str | None = None  # first version that has it; None: all before the fix
    last: str | None = None  # last version known to have it; None: not known, or fixed in `fixed_in`
    fixed_in: str | None = None  # first version without it
    capabilities: tuple[str, ...] = ()  # compute capabilities, or majors: "9.0", "12"
    gpu_names: tuple[str, ...] = ()  # one of these stands in the GPU's name
    gpu_count_min: int | None = None  # GPUs or ranks that carry the model
    without_gpu: bool = False  # only where the host has none
    models: tuple[str, ...] = ()  # one of these words stands in the model's name
    flags: tuple[tuple[str, tuple[str, ...]], ...] = ()  # flag and its values; no values: whatever it is
    flags_absent: tuple[str, ...] = ()
    environment: tuple[tuple[str, tuple[str, ...]], ...] = ()
    environment_absent: tuple[str, ...] = ()
