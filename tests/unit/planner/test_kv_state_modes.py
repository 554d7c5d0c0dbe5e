"""States per request and the blocks beside them, by version and mode, with the arithmetic."""

from dataclasses import replace

import pytest
from kv_models import attention, gated, latent, spec

from bringup.planner.kv_cache import blocks_per_request, kv_layout
from bringup.planner.kv_records import KvRules
from bringup.planner.kv_state_modes import state_mode
from bringup.values.model import Layer, LinearState, Mixer
from bringup.values.plan import Layout

GDN = (Layer(index=0, mixer=Mixer.GDN),)
MAMBA2 = (Layer(index=0, mixer=Mixer.MAMBA2),)
SCAN = LinearState(
    key_heads=8, key_head_dim=128, value_heads=64, value_head_dim=64, conv_kernel=4, state_dtype="float32"
)
CACHED = {"has_prefix_caching": True}


def layout_of(model, **rules):
    return kv_layout(model, Layout(tensor_parallel=1), KvRules(**rules))


def nemotron(chunk=None):
    """Four layers of attention with two heads of 128, and sixteen with a Mamba 2 state."""
    state = replace(SCAN, chunk=chunk)
    return spec([(4, Mixer.FULL, attention(2, 128), None), (16, Mixer.MAMBA2, None, state)])


@pytest.mark.parametrize(
    ("layers", "rules", "mode"),
    [
        (GDN, {}, "align"),
        (GDN, {"has_prefix_caching": False}, "none"),
        # On by default since 0.28; 0.26 and 0.27 can and do not.
        (GDN, {"version": (0, 28, 0)}, "align"),
        (GDN, {"version": (0, 27, 1)}, "none"),
        (GDN, {"version": (0, 26, 0)}, "none"),
        (GDN, {"version": (0, 25, 1), **CACHED}, "align"),
        (GDN, {"version": (0, 11, 0), **CACHED}, "none"),
        # The mode counts only beside prefix caching, and "none" beside it means the default.
        (GDN, {"mamba_mode": "none"}, "align"),
        (GDN, {"version": (0, 26, 0), "mamba_mode": "align"}, "none"),
        # Only Mamba 1 and 2 can keep all states. Up to 0.27 they do, without being asked.
        (GDN, {"version": (0, 20, 2), "mamba_mode": "all", **CACHED}, "align"),
        (MAMBA2, {"version": (0, 27, 1), **CACHED}, "all"),
        (MAMBA2, {"version": (0, 27, 1), "mamba_mode": "align", **CACHED}, "align"),
        (MAMBA2, {"version": (0, 28, 0)}, "align"),
        (MAMBA2, {"version": (0, 28, 0), "mamba_mode": "all"}, "all"),
        (MAMBA2, {"version": (0, 11, 2), **CACHED}, "all"),
        (MAMBA2, {"version": (0, 19, 1)}, "none"),
    ],
)
def test_the_mode_is_the_version_s(layers, rules, mode):
    assert state_mode(KvRules(**rules), layers) == mode


def test_all_states_are_one_for_every_block_of_the_request():
    # A state: (64 x 64 + 2 x 8 x 128) x 3 x 2 + 64 x 64 x 128 x 4 = 2,134,016 bytes; a token: 2 x 2 x 128 x 2
    # = 1024. That is 2084 tokens, in whole scans of 256: 2304. Attention and 4 groups of states need alike.
    found = layout_of(nemotron(chunk=256), version=(0, 27, 1), has_prefix_caching=True)
    assert found.groups[0][0].block_tokens == 2304
    assert found.bytes_per_block == 4 * 2304 * 1024
    assert blocks_per_request(found, 131_072) == 5 * -(-131_072 // 2304)


def test_blocks_are_whole_chunks_of_2048_tokens_where_the_config_names_none():
    found = layout_of(nemotron(), version=(0, 27, 1), has_prefix_caching=True)
    assert found.groups[0][0].block_tokens == 4096


@pytest.mark.parametrize(("version", "more"), [((0, 20, 2), 0), ((0, 22, 1), 3)])
def test_drafts_take_states_beside_all_states_since_0_22(version, more):
    found = layout_of(nemotron(chunk=256), version=version, has_prefix_caching=True, speculative_tokens=3)
    block = found.groups[0][0].block_tokens
    assert blocks_per_request(found, 131_072) == 5 * -(-131_072 // block) + 4 * more


@pytest.mark.parametrize(("version", "states"), [((0, 31, 0), 2), ((0, 32, 0), 3)])
def test_mamba_2_keeps_a_state_of_the_prompt_since_0_32(version, states):
    found = layout_of(nemotron(chunk=256), version=version)
    # Without all states blocks are multiples of 16 tokens: 131 x 16 = 2096.
    assert found.groups[0][0].block_tokens == 2096
    assert blocks_per_request(found, 131_072) == -(-131_072 // 2096) + 4 * states
    others = layout_of(gated(10, 2, 30, 32), version=version)
    assert blocks_per_request(others, 1) == 1 + 3 * 2


@pytest.mark.parametrize(("version", "states"), [((0, 13, 0), 1), ((0, 15, 1), 4)])
def test_drafts_take_states_since_0_15(version, states):
    found = layout_of(gated(10, 2, 30, 32), version=version, speculative_tokens=3)
    assert blocks_per_request(found, 1) == 1 + 3 * states


@pytest.mark.parametrize(
    ("version", "backend", "block"),
    [
        # A state of 32 x 128 x 128 x 4 + 3 x 12,288 x 2 = 2,170,880 bytes, a token of 1152: 1884.4 tokens.
        ((0, 19, 1), None, 1920),  # 30 x 64
        ((0, 19, 1), "CUTLASS_MLA", 1920),  # 15 x 128
        ((0, 26, 0), None, 1888),  # 118 x 16, what the back end takes
        ((0, 27, 1), None, 1920),
        ((0, 33, 0), None, 1920),
    ],
)
def test_blocks_of_a_latent_beside_states(version, backend, block):
    state = LinearState(
        key_heads=32,
        key_head_dim=128,
        value_heads=32,
        value_head_dim=128,
        conv_kernel=4,
        state_dtype="float32",
    )
    model = spec([(7, Mixer.MLA, latent(1).layers[0].attention, None), (20, Mixer.KDA, None, state)])
    found = layout_of(model, version=version, attention_backend=backend, block_tokens=16)
    assert found.groups[0][0].block_tokens == block


def test_all_states_are_refused_by_versions_without_that_mode():
    assert "--mamba-cache-mode all" in (layout_of(nemotron(), mamba_mode="all").refusal or "")
