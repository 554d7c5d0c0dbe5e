"""What a rank holds: matrices, which may be quantised, and vectors, which never are."""

from dataclasses import dataclass

from bringup.planner.formats import Matrix


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """A norm, a bias, a table: never quantised. `count` of them, each an allocation of its own."""

    part: str
    bytes: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCopy:
    """The bf16 copy of a quantised kv_b_proj that absorbed attention works with."""

    names: tuple[str, ...]
    bytes: int
    part: str = "attention"


Held = Matrix | Vector | LatentCopy
