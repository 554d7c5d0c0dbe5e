"""The sizes of the model that a log names: by the log, the host's files, files here, the catalogue.

The network is never asked.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace

from bringup.errors import BringupError
from bringup.flows.model_source import find_here
from bringup.flows.running_model import model_in_files
from bringup.parse.model_catalogue import variants_of
from bringup.parse.model_shape import completed, shape_in_lines, shape_of_model
from bringup.planner.weight_rules import WeightRules
from bringup.planner.weights import weights_per_rank
from bringup.transport.catalogue import load_models
from bringup.values.case import Case
from bringup.values.model import ModelSpec
from bringup.values.model_shape import ModelShape
from bringup.values.plan import Layout

_FAMILIES = ("mem.", "shard.")  # whose cures are computed from the model


def wants_shape(kinds: Iterable[str]) -> bool:
    """Whether a cure of one of these kinds is computed from the model."""
    return any(kind.startswith(_FAMILIES) for kind in kinds)


def shape_of(case: Case) -> ModelShape:
    """What is known of the case's model; what the log itself prints goes before all."""
    shape = shape_in_lines(line.text for line in case.lines)
    for model in _models(case):
        found = shape_of_model(model)
        if found.weight_bytes is None:
            found = replace(found, weight_bytes=_weight_bytes(model))
        return completed(shape, found)
    return completed(shape, _of_variants(case.model)) if case.model else shape


def _models(case: Case) -> Iterator[ModelSpec]:
    """The model as it is known here, the surest place first."""
    if case.host is not None:
        model = model_in_files(case.host.model_files, (case.model,) if case.model else ())
        if model is not None:
            yield model
    if case.model:
        model = find_here(case.model, is_this_machine=case.host is None)
        if model is not None:
            yield model


def _of_variants(name: str) -> ModelShape:
    """What all forms of this model in other number formats have in common: not what their formats decide."""
    catalogue = load_models()
    names = variants_of(name, catalogue)
    shapes = [
        shape_of_model(model, source=f"as {one}")
        for one in names
        if (model := find_here(one, is_this_machine=False)) is not None
    ]
    if not shapes:
        return ModelShape()
    formats = ("block", "group", "weight_bytes")
    unlike = [
        field.name
        for field in fields(ModelShape)
        if field.name in formats or len({getattr(shape, field.name) for shape in shapes}) > 1
    ]
    return replace(shapes[0], **dict.fromkeys(set(unlike) - {"source"}))


def _weight_bytes(model: ModelSpec) -> int | None:
    """All weights on one GPU, as an engine would hold them."""
    try:
        return weights_per_rank(model, Layout(), WeightRules()).total or None
    except (BringupError, ArithmeticError, LookupError, ValueError):  # a config with sizes that make no model
        return None
