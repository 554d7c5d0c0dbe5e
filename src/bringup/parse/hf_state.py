"""The recurrent state of one layer of a config.

Source: vLLM 0.33.0, `model_executor/layers/mamba/mamba_utils.py`.
"""

from bringup.parse.hf_families import Family
from bringup.parse.hf_fields import Fields
from bringup.values.model import LinearState, Mixer


def read_state(fields: Fields, family: Family, mixer: Mixer) -> LinearState | None:
    """State of a recurrent mixer; None for the others."""
    reader = _READERS.get(mixer)
    return reader(fields, family) if reader else None


def read_side_state(fields: Fields, index: int) -> LinearState | None:
    """The convolution over embedded n-grams that some layers of Qwen4-Exp have besides; None for others.

    It looks back as many n-grams as its kernel is long, at all copies of the hidden state.
    Source: vLLM 0.30.0, `models/qwen4_exp/nvidia/model.py`, `get_ple_mamba_state_shape_from_config`.
    """
    if index + 1 not in fields.numbers("ple_layer_ids"):
        return None
    return LinearState(
        conv_kernel=(fields.count("ple_conv_kernel_size") - 1) * fields.count("ngram_size") + 1,
        inner_size=fields.count("hidden_size") * fields.count("hc_count"),
    )


def _gdn(fields: Fields, _family: Family) -> LinearState:
    return LinearState(
        key_heads=fields.count("linear_num_key_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_heads=fields.count("linear_num_value_heads"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel=fields.count("linear_conv_kernel_dim"),
        state_dtype=fields.text("mamba_ssm_dtype"),
    )


def _kda(fields: Fields, _family: Family) -> LinearState:
    own = Fields(
        given=dict(fields.part("linear_attn_config")),
        # vLLM 0.33.0, `transformers_utils/configs/kimi_linear.py`; the released 48B says the same.
        assumed={"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4},
    )
    heads, size = own.count("num_heads"), own.count("head_dim")
    return LinearState(
        key_heads=heads,
        key_head_dim=size,
        value_heads=heads,
        value_head_dim=size,
        conv_kernel=own.count("short_conv_kernel_size"),
        state_dtype="float32",
    )


def _mamba2(fields: Fields, family: Family) -> LinearState:
    heads = fields.count("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", "num_heads")
    inner = fields.number("mamba_d_ssm") or (  # FalconH1 names the inner width itself
        fields.count("hidden_size") * (fields.number("mamba_expand", "expand") or 2)
    )
    size = fields.number("mamba_head_dim", "mamba_d_head", "mamba_headdim") or (
        inner // heads if heads else 0
    )
    return LinearState(
        key_heads=fields.number("n_groups", "mamba_n_groups", "mamba_ngroups") or 1,
        key_head_dim=fields.count("ssm_state_size", "mamba_d_state", "state_size"),
        value_heads=heads,
        value_head_dim=size,
        conv_kernel=fields.count("conv_kernel", "mamba_d_conv"),
        inner_size=heads * size,
        state_dtype=fields.text("mamba_ssm_cache_dtype") or family.state_dtype,
        chunk=fields.number("mamba_chunk_size", "chunk_size"),
        has_bias=fields.flag("use_bias", "mamba_proj_bias") is True,
        has_conv_bias=fields.flag("use_conv_bias", "mamba_conv_bias") is not False,
    )


def _mamba1(fields: Fields, family: Family) -> LinearState:
    hidden = fields.count("hidden_size")
    inner = hidden * (fields.number("mamba_expand", "expand") or 2)
    rank = fields.number("mamba_dt_rank", "time_step_rank") or -(-hidden // 16)  # "auto" is hidden / 16
    return LinearState(
        key_heads=1,
        key_head_dim=fields.number("mamba_d_state", "state_size") or 16,
        value_heads=1,
        value_head_dim=inner,
        conv_kernel=fields.number("mamba_d_conv", "conv_kernel") or 4,
        inner_size=inner,
        state_dtype=family.state_dtype,
        dt_rank=rank,
        has_bias=fields.flag("mamba_proj_bias", "use_bias") is True,
        has_conv_bias=fields.flag("mamba_conv_bias", "use_conv_bias") is not False,
    )


def _short_conv(fields: Fields, _family: Family) -> LinearState:
    return LinearState(
        conv_kernel=fields.number("conv_L_cache") or 3,
        inner_size=fields.number("conv_dim", "hidden_size") or 0,
        has_bias=fields.flag("conv_bias") is True,
    )


def _lightning(fields: Fields, _family: Family) -> LinearState:
    heads = fields.count("num_attention_heads")
    size = fields.number("head_dim") or (fields.count("hidden_size") // heads if heads else 0)
    return LinearState(
        key_heads=heads, key_head_dim=size, value_heads=heads, value_head_dim=size, state_dtype="float32"
    )


_READERS = {
    Mixer.GDN: _gdn,
    Mixer.KDA: _kda,
    Mixer.MAMBA1: _mamba1,
    Mixer.MAMBA2: _mamba2,
    Mixer.SHORT_CONV: _short_conv,
    Mixer.LIGHTNING: _lightning,
}
