"""Bytes of one tensor on a rank after loading, as the engine counts them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from bringup.planner.allocation import Segments, allocated_bytes, round_up, shared_segments
from bringup.planner.formats import Matrix, matrix_bytes
from bringup.planner.held import Held, LatentCopy, Vector
from bringup.planner.ignored import format_of
from bringup.planner.weight_rules import WeightRules
from bringup.values.model import ModelSpec, Quantization

_SMALLEST = 512  # bytes: what the allocator rounds to


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """Number formats after loading."""

    linear: Quantization | None
    experts: Quantization | None
    encoder: Quantization | None  # only what is quantised while loading goes through the tower too


def forms_of(model: ModelSpec, rules: WeightRules) -> Forms:
    """Number formats of a model once it is loaded."""
    return Forms(
        linear=online_format(model.quantization, rules),
        experts=expert_format(model, rules),
        encoder=None if model.quantization else online_format(None, rules),
    )


def own_form(tensor: Matrix | LatentCopy, forms: Forms) -> Quantization | None:
    """The number format of one matrix; None where it stays in the model's own type."""
    is_expert = isinstance(tensor, Matrix) and tensor.is_expert
    form = forms.experts if is_expert else forms.encoder if tensor.part == "encoder" else forms.linear
    return format_of(tensor.names, form, is_expert=is_expert)


def online_format(quantization: Quantization | None, rules: WeightRules) -> Quantization | None:
    """The format after loading: the model's own, else the one that the engine makes while it loads.

    Source: vLLM 0.33.0 `quantization/fp8.py`: one scale per tensor, the head and the router stay.
    """
    if quantization is not None or rules.online_quantization is None:
        return quantization
    scheme = {"fp8": "fp8_tensor", "bitsandbytes": "bnb4"}.get(rules.online_quantization)
    return None if scheme is None else Quantization(scheme=scheme, method=rules.online_quantization)


def expert_format(model: ModelSpec, rules: WeightRules) -> Quantization | None:
    """The format of the experts: DeepSeek-V4 names one of their own beside the format of the rest.

    Source: vLLM 0.32.0 `models/deepseek_v4/quant_config.py`, `expert_dtype`.
    """
    own, quantization = model.config.get("expert_dtype"), model.quantization
    if own == "fp4" and quantization is not None and quantization.scheme == "fp8_block":
        return Quantization(scheme="mxfp4", method=quantization.method, group_size=32)
    return online_format(quantization, rules)


def float_scales(model: ModelSpec, rules: WeightRules, experts: int) -> int:
    """Bytes that float32 scales leave behind of `experts` bytes of repacked experts, where there are any.

    Of 17 bytes that 32 numbers take one is their scale: three more, and one layer twice while it is repacked.
    """
    layers = sum(1 for layer in model.layers if layer.mlp and layer.mlp.experts)
    if not layers or model.config.get("expert_dtype") != "fp4" or rules.has_float_scales is False:
        return 0
    return experts * 3 // 17 + 2 * experts // layers


def held_sizes(tensor: Held, forms: Forms, rules: WeightRules) -> tuple[int, ...]:
    """Bytes of everything that one tensor becomes, each an allocation."""
    if isinstance(tensor, Vector):
        return (tensor.bytes,) * tensor.count
    form = own_form(tensor, forms)
    if isinstance(tensor, LatentCopy):
        return (tensor.bytes,) if form is not None and rules.keeps_absorbed_latent else ()
    return matrix_bytes(tensor, form, rules)


# What is built first and what last; the layers in between, in their order.
# Source: vLLM 0.33.0, `__init__` of the model classes: tower, embedding, layers, head.
_FIRST_TO_LAST = {"encoder": 0, "embedding": 1, "rope": 2, "head": 4}
_LAYERS = 3


@dataclass(slots=True)
class Tally:
    """Bytes by part of the model, as the engine counts them."""

    rules: WeightRules
    scratch: tuple[tuple[int, ...], ...] = ()  # what each rope table needs while it is made
    parts: Counter[str] = field(default_factory=Counter[str])
    sizes: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])

    def add(self, part: str, sizes: Iterable[int]) -> None:
        """Count allocations of these sizes."""
        for size in sizes:
            self.sizes.append((part, size))
            if self.rules.counts_segments:
                self.parts[part] += round_up(size, _SMALLEST)
            else:
                self.parts[part] += allocated_bytes(size, split_limit=self.rules.split_limit)

    def closed(self) -> Counter[str]:
        """The parts, with what the allocator holds without using it and what libraries take."""
        if self.rules.counts_segments:
            more = self.rules.libraries + self._held() - self.parts.total()
        else:
            more = self.rules.libraries + shared_segments(size for _, size in self.sizes).given_away
        if more:
            self.parts["allocator" if not self.rules.libraries else "libraries"] += more
        return self.parts

    def _held(self) -> int:
        """Bytes of the segments behind it all, in the order in which engines build models.

        What a rope table took while it was made is free for the layers that come after it.
        """
        segments = Segments()
        ordered = sorted(self.sizes, key=lambda one: _FIRST_TO_LAST.get(one[0], _LAYERS))
        scratch = list(self.scratch)
        for part, size in ordered:
            if part == "rope" and scratch:
                blocks = [segments.take(needed) for needed in scratch.pop(0)]
                for block in blocks:
                    segments.give(block)
            segments.take(size)
        return segments.held


def adapter_bytes(matrix: Matrix, rules: WeightRules) -> int:
    """Room for LoRA adapters: two narrow matrices per merged piece and slot, in bf16.

    Source: vLLM 0.33.0 `lora/layers/column_parallel_linear.py`, `create_lora_weights`.
    """
    pieces = rules.lora_slots * rules.lora_rank * 2
    inputs = allocated_bytes(pieces * matrix.inputs * matrix.copies)
    return sum(inputs + allocated_bytes(pieces * rows * matrix.copies) for rows in matrix.outputs)
