"""The tensors of one recurrent layer on one rank."""

from collections.abc import Callable, Iterator, Mapping

from bringup.planner.formats import Matrix, element_bytes
from bringup.planner.held import Held, Vector
from bringup.planner.spread import Spread, share
from bringup.values.model import LinearState, Mixer, ModelSpec

_Build = Callable[[ModelSpec, LinearState, str, int], Iterator[Held]]


def state_tensors(
    model: ModelSpec, mixer: Mixer, state: LinearState, path: str, ranks: Spread
) -> Iterator[Held]:
    """All of one layer's recurrence. A layer with attention beside it (FalconH1) is Mamba2."""
    build = _BUILD.get(mixer, _mamba2)
    yield from build(model, state, path, ranks.attention)


def _linear(
    model: ModelSpec, names: tuple[str, ...], outputs: tuple[int, ...], inputs: int, *, has_bias: bool = False
) -> Matrix:
    return Matrix(
        names=names, part="state", outputs=outputs, inputs=inputs, has_bias=has_bias, dtype=model.dtype
    )


def _plain(model: ModelSpec, elements: int, *, dtype: str | None = None, part: str = "state") -> Vector:
    return Vector(part=part, bytes=elements * element_bytes(dtype or model.dtype))


def _gdn(model: ModelSpec, state: LinearState, path: str, tp: int) -> Iterator[Held]:
    """Gated delta net. Source: vLLM 0.32.0 `layers/mamba/gdn/qwen_gdn_linear_attn.py`."""
    name = f"{path}.linear_attn"
    key = share(state.key_heads, tp) * state.key_head_dim
    heads = share(state.value_heads, tp)
    value = heads * state.value_head_dim
    pieces = (f"{name}.in_proj_qkv", f"{name}.in_proj_z", f"{name}.in_proj_qkvz")
    yield _linear(model, pieces, (key, key, value, value), model.hidden_size)
    gates = (f"{name}.in_proj_b", f"{name}.in_proj_a", f"{name}.in_proj_ba")
    yield _linear(model, gates, (heads, heads), model.hidden_size)
    yield _plain(model, (2 * key + value) * state.conv_kernel)
    yield _plain(model, heads, dtype="float32")
    yield _plain(model, heads)
    yield _plain(model, state.value_head_dim, part="norms")
    yield _linear(model, (f"{name}.out_proj",), (model.hidden_size,), value)


def _kda(model: ModelSpec, state: LinearState, path: str, tp: int) -> Iterator[Held]:
    """Kimi delta attention. Source: vLLM 0.32.0 `layers/mamba/gdn/kimi_gdn_linear_attn.py`."""
    name = f"{path}.self_attn"
    heads = share(state.value_heads or state.key_heads, tp)
    width = state.value_head_dim or state.key_head_dim
    inner = heads * width
    yield _linear(
        model,
        (f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj"),
        (inner, inner, inner, heads, width),
        model.hidden_size,
    )
    yield _linear(model, (f"{name}.f_b_proj",), (inner,), width)
    yield _linear(model, (f"{name}.g_a_proj",), (width,), model.hidden_size)
    yield _linear(model, (f"{name}.g_b_proj",), (inner,), width)
    yield _plain(model, inner, dtype="float32")
    yield _plain(model, 3 * inner * state.conv_kernel, dtype="float32")
    yield _plain(model, heads, dtype="float32")
    yield _plain(model, width, part="norms")
    yield _linear(model, (f"{name}.o_proj",), (model.hidden_size,), inner)


def _mamba2(model: ModelSpec, state: LinearState, path: str, tp: int) -> Iterator[Held]:
    """Mamba2; groups that do not divide are repeated until they do.

    Source: vLLM 0.32.0 `layers/mamba/mamba_mixer2.py`.
    """
    name = f"{path}.mixer"
    heads = share(state.value_heads, tp)
    inner = heads * state.value_head_dim
    groups = state.key_heads if state.key_heads % tp == 0 else tp
    shared = groups // tp * state.key_head_dim
    yield _linear(model, (f"{name}.in_proj",), (inner, inner, shared, shared, heads), model.hidden_size)
    convolved = inner + 2 * shared
    yield _plain(model, convolved * state.conv_kernel)
    yield _plain(model, convolved)
    yield _plain(model, heads, dtype="float32")
    yield Vector(part="state", bytes=heads * element_bytes(model.dtype), count=2)
    yield _plain(model, inner, part="norms")
    yield _linear(model, (f"{name}.out_proj",), (model.hidden_size,), inner)


def _mamba1(model: ModelSpec, state: LinearState, path: str, tp: int) -> Iterator[Held]:
    """Mamba. Source: vLLM 0.32.0 `layers/mamba/mamba_mixer.py`."""
    name = f"{path}.mixer"
    inner = share(state.inner_size, tp)
    states = state.key_head_dim
    rank = state.dt_rank or -(-model.hidden_size // 16)  # the "auto" of configs
    yield _linear(model, (f"{name}.in_proj",), (inner, inner), model.hidden_size)
    yield _plain(model, inner * (state.conv_kernel + 1))
    yield _linear(model, (f"{name}.x_proj",), (rank + 2 * states,), inner)
    yield _linear(model, (f"{name}.dt_proj",), (inner,), rank, has_bias=True)
    yield _plain(model, inner * states, dtype="float32")
    yield _plain(model, inner)
    yield _linear(model, (f"{name}.out_proj",), (model.hidden_size,), inner)


def _lightning(model: ModelSpec, state: LinearState, path: str, tp: int) -> Iterator[Held]:
    """Lightning attention: queries, keys, values, an output gate and a norm over all heads."""
    name = f"{path}.self_attn"
    inner = share(state.value_heads or state.key_heads, tp) * (state.value_head_dim or state.key_head_dim)
    yield _linear(model, (f"{name}.qkv_proj",), (inner, inner, inner), model.hidden_size)
    yield _linear(model, (f"{name}.output_gate",), (inner,), model.hidden_size)
    yield _plain(model, inner, part="norms")
    yield _linear(model, (f"{name}.out_proj",), (model.hidden_size,), inner)


def _short_conv(model: ModelSpec, state: LinearState, path: str, tp: int) -> Iterator[Held]:
    """LFM2's gated convolution. Source: vLLM 0.32.0 `layers/mamba/short_conv.py`."""
    name = f"{path}.conv"
    inner = share(state.inner_size or model.hidden_size, tp)
    yield _linear(model, (f"{name}.in_proj",), (inner, inner, inner), model.hidden_size)
    yield _plain(model, inner * state.conv_kernel)
    yield _linear(model, (f"{name}.out_proj",), (model.hidden_size,), inner)


_BUILD: Mapping[Mixer, _Build] = {
    Mixer.GDN: _gdn,
    Mixer.KDA: _kda,
    Mixer.MAMBA1: _mamba1,
    Mixer.MAMBA2: _mamba2,
    Mixer.LIGHTNING: _lightning,
    Mixer.SHORT_CONV: _short_conv,
}
