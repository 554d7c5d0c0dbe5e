"""How many numbers a model has by its config, beside the number that is published of it."""

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, LatentCopy
from bringup.planner.spread import WHOLE
from bringup.planner.tensors import edge_tensors, layer_tensors, mtp_tensors
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import ModelSpec

_RULES = WeightRules(vocabulary_padding=1, has_rope_table=False)
_LIKE = 0.05  # share by which counts of the same model differ: copies of tables, buffers


def described_parameters(model: ModelSpec) -> int:
    """The count that comes nearest to the published one; without one, layers, edges and towers.

    Publishers count extra layers or not, and tied tables once or twice.
    """
    base = sum(_count(model, one) for one in edge_tensors(model, WHOLE, _RULES, is_first=True, is_last=True))
    counted: dict[object, int] = {}
    for layer in model.layers:
        kind = (layer.mixer, layer.attention, layer.state, layer.mlp)
        if kind not in counted:
            counted[kind] = sum(_count(model, one) for one in layer_tensors(model, layer, WHOLE, _RULES))
        base += counted[kind]
    if model.parameters is None:
        return base
    published = model.parameters
    extra = sum(_count(model, one) for one in mtp_tensors(model, WHOLE, _RULES))
    table = model.vocabulary * model.hidden_size
    candidates = (base, base + table, base + extra, base + extra + 2 * table)
    return min(candidates, key=lambda count: abs(count - published))


def missing_parameters(model: ModelSpec) -> int:
    """Numbers that the model is known to have and its config does not describe; less than 0: too many.

    0 where both agree, where nothing is published, and for quantised files, of which packed numbers are
    published.
    """
    if not model.parameters or model.quantization is not None or model.tensors:
        return 0
    missing = model.parameters - described_parameters(model)
    return missing if abs(missing) > _LIKE * model.parameters else 0


def _count(model: ModelSpec, tensor: Held) -> int:
    if isinstance(tensor, Matrix):
        return tensor.elements + (tensor.copies * tensor.rows if tensor.has_bias else 0)
    if isinstance(tensor, LatentCopy):
        return 0
    return tensor.bytes * tensor.count // element_bytes(model.dtype)
