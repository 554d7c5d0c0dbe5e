"""Bytes of one matrix in each number format: weight, scales, zero points, as separate allocations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bringup.planner.allocation import round_up
from bringup.planner.weight_rules import MXFP4_PADDING, Padding, WeightRules
from bringup.values.model import Quantization

_ELEMENT = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2, "float8_e4m3fn": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One matrix as a rank holds it: pieces that the engine merges are stacked along the outputs."""

    names: tuple[str, ...]  # the modules it comes from, in the checkpoint's words
    part: str  # "attention", "mlp", "experts", "shared experts", "embedding", "head", ...
    outputs: tuple[int, ...]  # rows of every piece on this rank
    inputs: int  # columns on this rank
    copies: int = 1  # experts, stacked in one allocation
    has_bias: bool = False
    dtype: str = "bfloat16"  # where it is not quantised
    may_be_quantised: bool = True
    is_expert: bool = False
    inputs_are_hidden: bool = True  # of an expert: False for down_proj, whose inputs are its width

    @property
    def rows(self) -> int:
        """Rows of all pieces."""
        return sum(self.outputs)

    @property
    def elements(self) -> int:
        """Numbers in all copies."""
        return self.copies * self.rows * self.inputs


Sizes = tuple[int, ...]
Format = Callable[[Matrix, Quantization, WeightRules], Sizes]


def element_bytes(dtype: str) -> int:
    """Bytes of one number of a torch type; two where the type is not known.

    >>> element_bytes("bfloat16"), element_bytes("torch.float32")
    (2, 4)
    """
    return _ELEMENT.get(dtype.removeprefix("torch."), 2)


def _ceil(value: int, step: int) -> int:
    return -(-value // step)


def _fp8_block(matrix: Matrix, quantization: Quantization, rules: WeightRules) -> Sizes:
    """One float32 scale per block. Marlin instead: one bf16 scale per row and group of columns."""
    rows, columns = quantization.block or (128, 128)
    if matrix.is_expert and rules.pads_fp8_experts:
        matrix = _padded(matrix, Padding(intermediate=rows))
    groups = _ceil(matrix.inputs, columns)
    if not rules.has_native_fp8:
        return matrix.elements, 2 * matrix.copies * matrix.rows * groups
    return matrix.elements, 4 * matrix.copies * sum(_ceil(piece, rows) for piece in matrix.outputs) * groups


def _fp8_tensor(matrix: Matrix, quantization: Quantization, _: WeightRules) -> Sizes:
    scales = 4 * matrix.copies
    return matrix.elements, scales, *(() if quantization.is_dynamic else (scales,))


def _fp8_channel(matrix: Matrix, _: Quantization, rules: WeightRules) -> Sizes:
    return matrix.elements, (4 if rules.has_native_fp8 else 2) * matrix.copies * matrix.rows


def _int8(matrix: Matrix, _: Quantization, __: WeightRules) -> Sizes:
    return matrix.elements, 4 * matrix.copies * matrix.rows


def _mxfp8(matrix: Matrix, quantization: Quantization, _: WeightRules) -> Sizes:
    return matrix.elements, matrix.elements // (quantization.group_size or 32)


def _nvfp4(matrix: Matrix, quantization: Quantization, rules: WeightRules) -> Sizes:
    """Scales lie in tiles of 128 rows and 4 columns.

    Source: vLLM 0.33.0 `nvfp4_utils.py`, `swizzle_blockscale`.
    """
    columns = _ceil(matrix.inputs, quantization.group_size or 16)
    rows = matrix.rows
    if rules.has_native_fp4:
        rows, columns = round_up(rows, 128), round_up(columns, 4)
    weight = matrix.elements // 2
    return weight, matrix.copies * rows * columns, 4 * matrix.copies, 4 * matrix.copies, 4 * matrix.copies


def _mxfp4(matrix: Matrix, quantization: Quantization, rules: WeightRules) -> Sizes:
    if matrix.is_expert:
        matrix = _padded(matrix, MXFP4_PADDING.get(rules.mxfp4_backend, Padding()))
    sizes = (matrix.elements // 2, matrix.elements // (quantization.group_size or 32))
    return (*sizes, 2 * matrix.copies * matrix.rows) if matrix.has_bias else sizes


def _int4_group(matrix: Matrix, quantization: Quantization, _: WeightRules) -> Sizes:
    """Packed eight to an int32, an fp16 scale and, unless symmetric, a zero point per group."""
    group = quantization.group_size or matrix.inputs
    groups = matrix.copies * matrix.rows * _ceil(matrix.inputs, group)
    sizes = [matrix.elements // 2, 2 * groups]
    if not quantization.is_symmetric:
        sizes.append(groups // 2)
    if quantization.has_act_order:
        sizes += [4 * matrix.copies * matrix.inputs] * 2  # the order, and the inverse that Marlin makes
    return tuple(sizes)


def _int8_group(matrix: Matrix, quantization: Quantization, _: WeightRules) -> Sizes:
    group = quantization.group_size or matrix.inputs
    return matrix.elements, 2 * matrix.copies * matrix.rows * _ceil(matrix.inputs, group)


def _bnb4(matrix: Matrix, _: Quantization, __: WeightRules) -> Sizes:
    """Four bits, a float32 maximum per 64. Source: bitsandbytes 0.46, `quantize_4bit`, its block size."""
    return matrix.elements // 2, matrix.elements // 64 * 4


FORMATS: Mapping[str, Format] = {
    "fp8_block": _fp8_block,
    "fp8_tensor": _fp8_tensor,
    "fp8_channel": _fp8_channel,
    "mxfp8": _mxfp8,
    "nvfp4": _nvfp4,
    "mxfp4": _mxfp4,
    "int4_group": _int4_group,
    "int8": _int8,
    "int8_group": _int8_group,
    "bnb4": _bnb4,
}


def _padded(matrix: Matrix, padding: Padding) -> Matrix:
    """An expert whose width and hidden size are rounded up to what a kernel wants."""
    wide, hidden = padding.intermediate, padding.hidden
    inputs, outputs = (hidden, wide) if matrix.inputs_are_hidden else (wide, hidden)
    return Matrix(
        names=matrix.names,
        part=matrix.part,
        outputs=tuple(round_up(piece, outputs) for piece in matrix.outputs),
        inputs=round_up(matrix.inputs, inputs),
        copies=matrix.copies,
        has_bias=matrix.has_bias,
        dtype=matrix.dtype,
    )


def matrix_bytes(
    matrix: Matrix, quantization: Quantization | None, rules: WeightRules | None = None
) -> Sizes:
    """Bytes of every allocation that a matrix becomes: the weight first, then scales and bias.

    >>> matrix_bytes(Matrix(names=(), part="", outputs=(5120,), inputs=12800), None)
    (131072000,)
    >>> matrix_bytes(Matrix(names=(), part="", outputs=(5120,), inputs=12800),
    ...              Quantization(scheme="fp8_block", method="fp8", block=(128, 128)))
    (65536000, 16000)
    """
    bias = (matrix.copies * matrix.rows * element_bytes(matrix.dtype),) if matrix.has_bias else ()
    form = None if quantization is None else FORMATS.get(quantization.scheme)
    if form is None or quantization is None or not matrix.may_be_quantised:
        return matrix.elements * element_bytes(matrix.dtype), *bias
    sizes = form(matrix, quantization, rules or WeightRules())
    return sizes if quantization.scheme == "mxfp4" and bias else (*sizes, *bias)
