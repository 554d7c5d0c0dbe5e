"""Bytes of one pipeline stage's rank where the headers of the weight files are known."""

from collections import Counter
from dataclasses import dataclass, replace

from bringup.planner.formats import Matrix, element_bytes, matrix_bytes
from bringup.planner.header_tensors import Rest, Stored, dtypes_of, layer_of, matrix_kinds, rest_of, stored
from bringup.planner.held import Held, LatentCopy, Vector
from bringup.planner.rope import rope_scratch
from bringup.planner.sizes import Forms, Tally, forms_of, own_form
from bringup.planner.spread import Spread
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import ModelSpec

_PLAIN = frozenset({"BF16", "F16", "F32", "F64"})  # stored types that are no number format of their own
_EDGES = frozenset({"embed_tokens", "lm_head"})  # taken as matrices, or not loaded at all where they are tied


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one rank of a stage builds, beside the same tensors of the whole model."""

    pairs: tuple[tuple[Held, Held], ...]
    layers: tuple[int, ...]
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Bytes by part, and how much of them is in doubt."""

    parts: Counter[str]
    perhaps_less: int = 0
    perhaps_more: int = 0


def header_parts(model: ModelSpec, stage: Stage, ranks: Spread, rules: WeightRules) -> Counted:
    """Bytes by part: the stored bytes of every matrix times its share, and all that no matrix stands for."""
    checkpoint, forms = stored(model), forms_of(model, rules)
    tally, lost = Tally(rules, scratch=rope_scratch(model, rules)), set[int | None]()
    for mine, full in stage.pairs:
        if isinstance(mine, Matrix) and isinstance(full, Matrix):
            sizes = _matrix(mine, full, checkpoint, forms, rules)
            if sizes is None and mine.part != "encoder":
                lost.add(layer_of(mine.names[0]))
            tally.add(mine.part, sizes or ())
        elif isinstance(mine, LatentCopy):
            is_quantised = _kind(checkpoint, mine) not in (*_PLAIN, None)
            tally.add(mine.part, (mine.bytes,) if is_quantised and rules.keeps_absorbed_latent else ())
        elif isinstance(mine, Vector) and mine.part == "rope":
            tally.add(mine.part, (mine.bytes,))
    return _with_rest(model, stage, ranks, _Found(tally=tally, checkpoint=checkpoint, lost=lost))


def _matrix(
    mine: Matrix, full: Matrix, checkpoint: Stored, forms: Forms, rules: WeightRules
) -> tuple[int, ...] | None:
    if mine.part == "encoder":
        return None  # counted from what is left: towers have many names
    dtypes = dtypes_of(checkpoint, mine.names)
    found = matrix_kinds(mine, full, checkpoint)
    if found is None:
        return None
    whole, kinds = found
    growth = _growth(mine, full, whole, forms, rules)
    shrunk = element_bytes(mine.dtype) / 4  # float32 files, loaded in the model's own type
    return tuple(
        round(size * growth * (shrunk if dtypes.get(kind) == "F32" and kind in ("weight", "bias") else 1))
        for kind, size in kinds.items()
        if size
    )


def _growth(mine: Matrix, full: Matrix, whole: float, forms: Forms, rules: WeightRules) -> float:
    """What padding and repacking add to a shard, where the format in the files is the one in the config."""
    form = own_form(mine, forms)
    if form is None or not mine.may_be_quantised:
        return 1.0
    as_stored = sum(matrix_bytes(full, form, replace(rules, mxfp4_backend="none", pads_fp8_experts=False)))
    if not as_stored or abs(whole / as_stored - 1) > 0.02:
        return 1.0
    return sum(matrix_bytes(mine, form, rules)) / (as_stored * mine.elements / full.elements)


def _kind(checkpoint: Stored, copy: LatentCopy) -> str | None:
    dtypes = dtypes_of(checkpoint, copy.names)
    return dtypes.get("weight") or next(iter(dtypes.values()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    tally: Tally
    checkpoint: Stored
    lost: set[int | None]  # layers of which a matrix was not found under its name


def _with_rest(model: ModelSpec, stage: Stage, ranks: Spread, found: _Found) -> Counted:
    less, more, rules = 0, 0, found.tally.rules
    is_first = 0 in stage.layers or not stage.layers
    for rest in rest_of(model, found.checkpoint):
        if not _is_here(rest, stage, rules, is_first=is_first):
            continue
        over = _ranks_of(rest, ranks, found.lost)
        size = -(-rest.bytes // over)
        found.tally.add(rest.part, (size,))
        if rest.part == "other" and ranks.dense > 1:
            less += size - size // ranks.dense if over == 1 else 0
            more += rest.bytes - size if over > 1 else 0
    return Counted(parts=found.tally.closed(), perhaps_less=less, perhaps_more=more)


def _is_here(rest: Rest, stage: Stage, rules: WeightRules, *, is_first: bool) -> bool:
    if rest.part == "encoder":
        return rules.loads_encoder and is_first
    if rest.part == "mtp":
        return rules.loads_mtp and stage.is_last
    if rest.layer is None:
        return is_first and rest.module not in _EDGES
    return rest.layer in stage.layers


def _ranks_of(rest: Rest, ranks: Spread, lost: set[int | None]) -> int:
    """Ranks that share a tensor which is known by no name: as many as share the matrix that is missing."""
    if not rest.is_matrix:
        return 1
    if rest.part == "encoder":
        return ranks.encoder
    if rest.part == "mtp":
        return ranks.dense
    return ranks.dense if rest.layer in lost else 1
