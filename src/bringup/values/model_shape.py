"""The few sizes of a model that cures are computed from. `None` = not known."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What decides how a model may be cut and what requests take; of layers that differ what divides all."""

    vocabulary: int | None = None
    heads: int | None = None  # of attention
    kv_heads: int | None = None
    layers: int | None = None
    hidden: int | None = None
    intermediate: int | None = None  # of dense MLPs and shared experts
    expert_intermediate: int | None = None
    experts: int | None = None
    block: tuple[int, int] | None = None  # rows and columns of the weights that share a scale
    group: int | None = None  # columns that share a scale, where whole groups must lie on one GPU
    max_positions: int | None = None
    weight_bytes: int | None = None  # of the whole model, in its stored format
    source: str = ""  # where they came from: "the log", "catalogue: ..."; empty where nothing is known

    @property
    def is_known(self) -> bool:
        """Whether anything is."""
        return bool(self.source)
