"""How many states of a recurrent layer are kept, and how large blocks are beside them, by version.

Source: vLLM 0.11.2 to 0.32.0, `model_executor/models/config.py` (`MambaModelConfig`,
`HybridAttentionMambaModelConfig`), `platforms/interface.py` (`_align_hybrid_block_size`),
`v1/kv_cache_interface.py` (`MambaSpec`), `engine/arg_utils.py` (which default prefix caching has).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, lcm

from bringup.planner.kv_blocks import BACKEND_BLOCKS
from bringup.planner.kv_records import KvRules
from bringup.planner.kv_versions import KvRule, has_rule
from bringup.values.model import Layer, Mixer

# Those whose kernels can keep the state of every block.
_KEEP_ALL = frozenset({Mixer.MAMBA1, Mixer.MAMBA2})

_DEFAULT_CHUNK = 2048  # tokens, where the config names no chunk of the scan
_LATENT_ALIGNMENT = 128  # tokens; blocks of a latent are split into kernel blocks, 128 of which are one
_OLD_LATENT_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCount:
    """States that one request keeps of one layer."""

    fixed: int
    has_one_per_block: bool = False


def state_mode(rules: KvRules, layers: Iterable[Layer] = ()) -> str:
    """How states are kept: "none" is one per request, "align" one more, "all" one for every block.

    Without prefix caching a mode that was asked for does not count. Up to 0.27 all states of the models that
    can (Mamba 1 and 2) are kept when prefix caching is asked for, from 0.28 on when that is asked for too.

    >>> state_mode(KvRules()), state_mode(KvRules(version=(0, 27, 1)))
    ('align', 'none')
    """
    version = rules.version
    is_cached = rules.has_prefix_caching
    if is_cached is None:
        is_cached = has_rule(version, KvRule.CACHES_HYBRID_PREFIXES)
    if not is_cached:
        return "none"
    keeps_all = any(layer.mixer in _KEEP_ALL for layer in layers)
    if not has_rule(version, KvRule.ALIGNS_STATES):
        return "all" if keeps_all else "none"
    if has_rule(version, KvRule.DROPS_ALL_STATES) or not keeps_all or rules.mamba_mode == "align":
        return "align"
    is_preferred = not has_rule(version, KvRule.PREFERS_ALIGNED_STATES)
    return "all" if is_preferred or rules.mamba_mode == "all" else "align"


def state_count(mode: str, mixer: Mixer, rules: KvRules) -> StateCount:
    """States of one request in that mode; each speculated token takes one more.

    >>> state_count("align", Mixer.GDN, KvRules(speculative_tokens=3)).fixed
    5
    >>> state_count("align", Mixer.MAMBA2, KvRules()).fixed  # and one at the end of a prompt's blocks
    3
    """
    version, drafts = rules.version, rules.speculative_tokens
    if mode == "all":
        more = drafts if has_rule(version, KvRule.DRAFTS_BESIDE_ALL_STATES) else 0
        return StateCount(fixed=more, has_one_per_block=True)
    if mode == "none":
        return StateCount(fixed=1 + (drafts if has_rule(version, KvRule.ALIGNS_STATES) else 0))
    has_checkpoint = mixer is Mixer.MAMBA2 and has_rule(version, KvRule.CHECKPOINTS_PREFILLS)
    return StateCount(fixed=2 + drafts + has_checkpoint)


def aligned_block(
    block: int, *, state: int, token: int, mixer: Mixer, chunk: int | None, rules: KvRules
) -> int:
    """Tokens of the smallest block that holds a whole state; `token` is of one layer of attention.

    Qwen3.6-35B-A3B with a cache of eight bits:

    >>> aligned_block(16, state=2_146_304, token=1024, mixer=Mixer.FULL, chunk=None, rules=KvRules())
    2096
    """
    step = _step(block, mixer, rules)
    if chunk is not None:
        step = lcm(chunk, step)
    return max(block, step * ceil(state / (step * token)))


def chunk_of(mode: str, layers: Iterable[Layer]) -> int | None:
    """Tokens whose multiples blocks are of where all states are kept; None in the other modes."""
    if mode != "all":
        return None
    return next((layer.state.chunk for layer in layers if layer.state and layer.state.chunk), _DEFAULT_CHUNK)


def _step(block: int, mixer: Mixer, rules: KvRules) -> int:
    if mixer is not Mixer.MLA:
        return block
    if has_rule(rules.version, KvRule.SPLITS_LATENT_BLOCKS):
        return max(block, _LATENT_ALIGNMENT)
    if has_rule(rules.version, KvRule.ALIGNS_TO_BACKEND):
        return block
    is_cutlass = (rules.attention_backend or "").upper() == "CUTLASS_MLA"
    return BACKEND_BLOCKS["CUTLASS_MLA"] if is_cutlass else _OLD_LATENT_ALIGNMENT
