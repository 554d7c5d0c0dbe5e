"""Bytes of the fixed state that a recurrent layer keeps per request.

Source: vLLM 0.32.0, `model_executor/layers/mamba/mamba_utils.py`, `MambaStateShapeCalculator` and
`MambaStateDtypeCalculator`.
"""

from dataclasses import dataclass

from bringup.planner.kv_formats import element_bytes
from bringup.values.model import LinearState, Mixer


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBytes:
    """Bytes of the two parts of a state, on one rank."""

    convolution: int
    recurrent: int

    @property
    def total(self) -> int:
        """Both together."""
        return self.convolution + self.recurrent


def state_bytes(
    mixer: Mixer, state: LinearState, *, tp: int, convolution_dtype: str, state_dtype: str, drafts: int = 0
) -> StateBytes:
    """Bytes of one state on one rank. A speculated token lengthens the convolution by one.

    Qwen3.6-35B-A3B, and Qwen3.6-27B on two ranks with three speculated tokens:

    >>> state = LinearState(
    ...     key_heads=16, key_head_dim=128, value_heads=32, value_head_dim=128, conv_kernel=4
    ... )
    >>> state_bytes(Mixer.GDN, state, tp=1, convolution_dtype="bfloat16", state_dtype="float32").total
    2146304
    >>> state = LinearState(
    ...     key_heads=16, key_head_dim=128, value_heads=48, value_head_dim=128, conv_kernel=4
    ... )
    >>> state_bytes(
    ...     Mixer.GDN, state, tp=2, convolution_dtype="bfloat16", state_dtype="float32", drafts=3
    ... ).total
    1634304
    """
    tail = state.conv_kernel - 1 + (drafts if mixer is not Mixer.MAMBA1 else 0)
    convolution = _convolution_width(mixer, state, tp) // tp * tail
    return StateBytes(
        convolution=convolution * element_bytes(convolution_dtype),
        recurrent=_recurrent_elements(mixer, state, tp) * element_bytes(state_dtype),
    )


def _convolution_width(mixer: Mixer, state: LinearState, tp: int) -> int:
    if mixer in (Mixer.GDN, Mixer.KDA):
        return 2 * state.key_heads * state.key_head_dim + state.value_heads * state.value_head_dim
    if mixer is Mixer.MAMBA2:
        # Groups that do not divide are copied until every rank has one.
        groups = state.key_heads if state.key_heads % tp == 0 else tp
        return _inner_size(state) + 2 * groups * state.key_head_dim
    if mixer in (Mixer.MAMBA1, Mixer.SHORT_CONV):
        return _inner_size(state)
    return 0


def _inner_size(state: LinearState) -> int:
    return state.inner_size or state.value_heads * state.value_head_dim


def _recurrent_elements(mixer: Mixer, state: LinearState, tp: int) -> int:
    heads = state.value_heads // tp
    if mixer is Mixer.MAMBA1:
        return _inner_size(state) // tp * state.key_head_dim
    if mixer is Mixer.SHORT_CONV:
        return 0
    if mixer in (Mixer.KDA, Mixer.LIGHTNING):
        return heads * state.value_head_dim * state.value_head_dim
    return heads * state.value_head_dim * state.key_head_dim
