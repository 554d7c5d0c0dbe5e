"""Models made by hand, with the geometry of well-known ones."""

from bringup.values.model import Attention, Layer, LinearState, Mixer, ModelSpec


def attention(kv_heads, head_dim, **more):
    return Attention(
        query_heads=more.pop("query_heads", 64),
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=head_dim,
        **more,
    )


def spec(mixers, **more):
    """A model of (count, mixer, attention, state) runs."""
    layers, mtp = [], more.pop("mtp", 0)
    for count, mixer, of_attention, of_state in mixers:
        layers += [
            Layer(index=len(layers) + n, mixer=mixer, attention=of_attention, state=of_state)
            for n in range(count)
        ]
    drafts = [Layer(index=len(layers) + n, mixer=Mixer.FULL, attention=mixers[0][2]) for n in range(mtp)]
    return ModelSpec(
        name="a/model",
        architecture="AModel",
        model_type=more.pop("model_type", "a"),
        layers=tuple(layers),
        mtp_layers=tuple(drafts),
        hidden_size=4096,
        vocabulary=151936,
        **more,
    )


def full(layers, kv_heads, head_dim):
    return spec([(layers, Mixer.FULL, attention(kv_heads, head_dim), None)])


def latent(layers, index=None):
    more = {"index_heads": 64, "index_head_dim": index, "owns_index_cache": True} if index else {}
    return spec([(layers, Mixer.MLA, attention(1, 576, kv_lora_rank=512, qk_rope_head_dim=64, **more), None)])


def gated(full_layers, kv_heads, state_layers, value_heads, **more):
    state = LinearState(
        key_heads=16,
        key_head_dim=128,
        value_heads=value_heads,
        value_head_dim=128,
        conv_kernel=4,
        state_dtype="float32",
    )
    return spec(
        [
            (full_layers, Mixer.FULL, attention(kv_heads, 256), None),
            (state_layers, Mixer.GDN, None, state),
        ],
        **more,
    )
