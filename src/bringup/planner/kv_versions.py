"""vLLM's KV rules by version, as data: the only place that knows when a rule changed.

Source: the released packages 0.6.6.post1, 0.8.5, 0.9.2, 0.11.0, 0.11.2, 0.13.0, 0.15.1, 0.17.1, 0.19.1,
0.20.2, 0.21.0, 0.22.1, 0.23.0, 0.24.0, 0.25.1, 0.26.0, 0.27.1, 0.28.0, 0.29.0, 0.30.0, 0.31.0, 0.32.0 and
0.33.0. A rule that changed between two of them is given to the newer one; releases in between were not read.
"""

import re
from enum import StrEnum

Version = tuple[int, int, int]

NEWEST: Version = (0, 33, 0)  # newest whose rules are known


class KvRule(StrEnum):
    """A rule that some versions do not have."""

    SPLITS_TOKENS = "splits_tokens"  # prints blocks // groups * smallest block, not blocks * block
    TOKENS_FROM_CONCURRENCY = "tokens_from_concurrency"  # prints int(concurrency * max_model_len)
    ROUNDS_EACH_GROUP = "rounds_each_group"  # a request takes whole blocks of every group
    COUNTS_IN_FLIGHT = "counts_in_flight"  # windows keep the tokens of every batch in flight
    PADS_ANY_PAGE = "pads_any_page"  # attention pages that do not divide the largest are padded
    RESERVES_NULL_BLOCK = "reserves_null_block"  # the fit check leaves out the block that is never usable
    CACHES_HYBRID_PREFIXES = "caches_hybrid_prefixes"  # on for models with states unless told not to
    ALIGNS_STATES = "aligns_states"  # prefix caching keeps a second state per request; drafts take states
    PREFERS_ALIGNED_STATES = "prefers_aligned_states"  # even where the state of every block could be kept
    DRAFTS_BESIDE_ALL_STATES = "drafts_beside_all_states"  # drafts take states in that mode too
    CHECKPOINTS_PREFILLS = "checkpoints_prefills"  # Mamba 2 keeps a third state with prefix caching
    ALIGNS_TO_BACKEND = "aligns_to_backend"  # blocks beside states are those of the back end
    SPLITS_LATENT_BLOCKS = "splits_latent_blocks"  # and multiples of 128 tokens where there is a latent
    PACKS_ANY_PAGES = "packs_any_pages"  # pages of all sizes lie side by side, in no pattern of layers
    COUNTS_EACH_PAGE_SIZE = "counts_each_page_size"  # before that: as many slots of a size as it has layers
    KEEPS_CHUNKS = "keeps_chunks"  # chunked layers keep a chunk, not everything
    SHARDS_CONTEXT = "shards_context"  # decode context parallelism
    GROUPS_LAYERS = "groups_layers"  # the hybrid KV cache manager
    REFUSES_FEW_STATES = "refuses_few_states"  # fewer blocks than --max-num-seqs: no start
    DROPS_ALL_STATES = "drops_all_states"  # no mode that keeps the state of every block
    HAS_SECOND_RUNNER = "has_second_runner"  # one batch more in flight than pipeline stages


FIRST_WITH: dict[KvRule, Version] = {
    KvRule.GROUPS_LAYERS: (0, 9, 0),
    KvRule.SPLITS_TOKENS: (0, 9, 0),
    KvRule.SHARDS_CONTEXT: (0, 11, 0),
    KvRule.KEEPS_CHUNKS: (0, 12, 0),  # VLLM_ALLOW_CHUNKED_LOCAL_ATTN_...: 0 in 0.11.0, 1 by 0.15.1
    KvRule.ALIGNS_STATES: (0, 15, 0),
    KvRule.REFUSES_FEW_STATES: (0, 20, 0),
    KvRule.DROPS_ALL_STATES: (0, 32, 0),
    KvRule.CHECKPOINTS_PREFILLS: (0, 32, 0),
    KvRule.HAS_SECOND_RUNNER: (0, 30, 0),  # for every model; for some from 0.22 on
    KvRule.TOKENS_FROM_CONCURRENCY: (0, 20, 0),
    KvRule.ALIGNS_TO_BACKEND: (0, 20, 0),
    KvRule.DRAFTS_BESIDE_ALL_STATES: (0, 22, 0),
    KvRule.PADS_ANY_PAGE: (0, 24, 0),
    KvRule.COUNTS_EACH_PAGE_SIZE: (0, 24, 0),
    KvRule.COUNTS_IN_FLIGHT: (0, 26, 0),
    KvRule.ROUNDS_EACH_GROUP: (0, 27, 0),
    KvRule.SPLITS_LATENT_BLOCKS: (0, 27, 0),
    KvRule.PACKS_ANY_PAGES: (0, 27, 0),
    KvRule.CACHES_HYBRID_PREFIXES: (0, 28, 0),  # 0.26 and 0.27 can, and leave it off
    KvRule.PREFERS_ALIGNED_STATES: (0, 28, 0),
    KvRule.RESERVES_NULL_BLOCK: (0, 30, 0),
}

# Groups are as large as the largest bucket of layers when it is below this multiple of the smallest.
_GROUP_STRETCH: tuple[tuple[Version, float], ...] = (((0, 18, 0), 1.5), ((0, 12, 0), 1.25))


def has_rule(version: Version, rule: KvRule) -> bool:
    """Whether that version has the rule.

    >>> has_rule((0, 19, 1), KvRule.TOKENS_FROM_CONCURRENCY), has_rule((0, 20, 2), KvRule.RESERVES_NULL_BLOCK)
    (False, False)
    """
    return version >= FIRST_WITH[rule]


def group_stretch(version: Version) -> float:
    """Below this ratio of largest to smallest bucket, groups are as large as the largest; 1: no such rule.

    >>> group_stretch((0, 33, 0)), group_stretch((0, 13, 0)), group_stretch((0, 11, 0))
    (1.5, 1.25, 1.0)
    """
    return next((ratio for since, ratio in _GROUP_STRETCH if version >= since), 1.0)


def read_version(text: str | None) -> Version | None:
    """The release that a version text belongs to; None when it holds none.

    >>> read_version("0.26.1rc1.dev156+g0eec856cc"), read_version("v0.33"), read_version("2026-10 nightly")
    ((0, 26, 1), (0, 33, 0), None)
    """
    match = re.match(r"v?(\d{1,3})\.(\d{1,4})(?:\.(\d{1,4}))?", text or "")
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None
