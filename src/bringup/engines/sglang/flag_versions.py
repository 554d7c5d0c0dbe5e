"""In which versions SGLang has which flags.

Source: the argument parsers of the released packages 0.5.5, 0.5.9, 0.5.12 and 0.5.16. A flag that came
between two of them is missed only in versions up to the older one.
"""

from bringup.planner.kv_versions import Version


def _names(text: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in text.split())


# Flags of the newest version that this one and all before it do not have.
ABSENT: tuple[tuple[Version, frozenset[str]], ...] = (
    (
        (0, 5, 5),
        _names("""
admin-api-key attention-context-parallel-size disable-flashinfer-autotune dllm-algorithm
dllm-algorithm-config enable-attn-tp-input-scattered enable-broadcast-mm-inputs-process
enable-draft-weights-cpu-backup enable-dynamic-chunking enable-fused-qk-norm-rope
enable-layerwise-nvtx-marker enable-lora-overlap-loading enable-multi-layer-eagle
enable-precise-embedding-interpolation enable-prefill-delayer enable-prefix-mm-cache
enable-return-routed-experts enable-torch-compile-debug-mode encoder-only encoder-transfer-backend
encoder-urls export-metrics-to-file export-metrics-to-file-dir extra-metric-labels fastapi-root-path
forward-hooks fp4-gemm-backend fp8-gemm-backend hf-chat-template-name kt-method kt-weight-path
language-only limit-mm-data-per-request log-requests-format log-requests-target mamba-backend
mamba-radix-cache-strategy mamba-track-interval mm-enable-dp-encoder mm-process-config
model-checksum moe-dp-size pp-async-batch-depth prefill-delayer-forward-passes-buckets
prefill-delayer-max-delay-passes prefill-delayer-token-usage-low-watermark
prefill-delayer-wait-seconds-buckets prefill-max-requests remote-instance-weight-loader-backend
remote-instance-weight-loader-start-seed-via-transfer-engine rl-quant-profile soft-watchdog-timeout
speculative-draft-attention-backend speculative-draft-model-quantization speculative-moe-a2a-backend
uvicorn-access-log-exclude-prefixes
"""),
    ),
    (
        (0, 5, 9),
        _names("""
batch-notify-size debug-cuda-graph default-priority-value detokenizer-worker-num
disable-prefill-cuda-graph disable-priority-preemption disaggregation-decode-enable-radix-cache
enable-adaptive-dispatch-to-encoder enable-aiter-allreduce-fusion
enable-dp-attention-local-control-broadcast enable-elastic-expert-backup enable-forward-pass-metrics
enable-fused-moe-sum-all-reduce enable-hisparse enable-http2 enable-mfu-metrics enable-mis
enable-mm-global-cache enable-quant-communications enable-return-indexer-topk enable-ssl-refresh
enable-streaming-session enable-strict-thinking enforce-disable-flashinfer-allreduce-fusion
enforce-shared-experts-fusion engine-info-bootstrap-port experts-shared-outer-loras gc-threshold
hisparse-config incremental-streaming-output linear-attn-backend linear-attn-decode-backend
linear-attn-prefill-backend lora-drain-wait-threshold lora-strict-loading lora-use-virtual-experts
model-config-parser modelexpress-config msprobe-dump-config pre-warm-nccl
prefill-delayer-max-delay-ms prefill-delayer-queue-min-ratio prefill-only-disable-kv-cache
speculative-adaptive speculative-adaptive-config speculative-dflash-block-size
speculative-draft-window-size speculative-ngram-external-corpus-max-tokens
speculative-ngram-external-corpus-path speculative-ngram-external-sam-budget
speculative-ngram-max-trie-depth ssl-ca-certs ssl-certfile ssl-keyfile ssl-keyfile-password
stream-response-default-include-usage strip-thinking-cache tokenizer-backend use-ray
weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
weight-loader-prefetch-num-threads
"""),
    ),
    (
        (0, 5, 12),
        _names("""
asr-max-buffer-seconds asr-max-concurrent-sessions bf16-gemm-backend cp-strategy
cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-bs-prefill cuda-graph-config
decode-context-parallel-size decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints
decoupled-spec-rank decoupled-spec-role deepep-dispatcher-output-dtype default-chat-template-kwargs
disable-attn-tp-gather disable-decode-cuda-graph disaggregation-decode-extra-slots dllm-fdfo
dsa-decode-backend dsa-paged-mqa-logits-backend dsa-prefill-backend dsa-topk-backend
elastic-ep-initial-size elastic-ep-join-mode elastic-ep-join-rank-offset elastic-ep-scale-timeout
enable-deepseek-v4-fp4-indexer enable-dsa-cache-layer-split enable-flexkv
enable-int8-mamba-checkpoint enable-linear-replayssm enable-mamba-cache-stochastic-rounding
enable-page-major-kv-layout enable-prefill-cp enable-scattered-sconv enable-session-radix-cache
enable-tf32-matmul enable-unified-memory enable-waterfill encoder-bootstrap-port
encoder-register-urls flashinfer-allreduce-fusion-backend flexkv-config-file fuseep-mode grpc-port
int8-mamba-ckpt-size kv-canary kv-canary-real-data kv-canary-sweep-interval
linear-replayssm-cache-len lmcache-config-file load-snapshot-publish-interval
mamba-cache-philox-rounds max-ep-size min-free-slots-delay mm-feature-transport
optimistic-prefill-attempts radix-cache-backend retraction-policy sidecar sidecar-args smg-grpc-mode
smg-http-sidecar-port spec-trace-dir speculative-dspark-align-verify-tokens-to-graph-tier
speculative-dspark-block-size speculative-dspark-confidence-sts-path
speculative-dspark-sps-table-path speculative-use-rejection-sampling trace-modules
"""),
    ),
)

# Flags that the newest version has no longer, and the newest version that was read with them.
GONE: tuple[tuple[Version, frozenset[str]], ...] = (
    (
        (0, 5, 5),
        _names("""
kt-amx-method kt-amx-weight-path load-watch-interval
"""),
    ),
    (
        (0, 5, 9),
        _names("""
disable-hicache-numa-detect disaggregation-decode-dp disaggregation-decode-tp
disaggregation-prefill-pp ds-channel-config-path ds-heavy-channel-num ds-heavy-channel-type
ds-heavy-token-num ds-sparse-decode-threshold enable-double-sparsity mm-max-concurrent-calls
mm-per-request-timeout multi-item-scoring-delimiter speculative-ngram-branch-length
speculative-ngram-max-match-window-size speculative-ngram-min-match-window-size
"""),
    ),
    (
        (0, 5, 12),
        _names("""
custom-sigquit-handler debug-tensor-dump-inject elastic-ep-rejoin enable-deepep-waterfill
enable-expert-distribution-metrics enable-nan-detection enable-piecewise-cuda-graph
forward-pass-metrics-ipc-name forward-pass-metrics-worker-id hybrid-kvcache-ratio
keep-mm-feature-on-device record-nolora-graph speculative-skip-dp-mlp-sync torchao-config
"""),
    ),
    (
        (0, 5, 16),
        _names("""
collect-tokens-histogram cuda-graph-tc-compiler dsa-prefill-cp-mode enable-breakable-cuda-graph
enable-dsa-prefill-context-parallel enable-nsa-prefill-context-parallel
enable-prefill-context-parallel enforce-piecewise-cuda-graph nsa-decode-backend nsa-prefill-backend
nsa-prefill-cp-mode piecewise-cuda-graph-compiler piecewise-cuda-graph-tokens prefill-cp-mode
prefill-round-robin-balance speculative-dflash-draft-window-size stream-output
"""),
    ),
    (
        (0, 5, 20),
        _names("""
grpc-http-sidecar-port hierarchical-sparse-attention-extra-config moe-data-parallel-size
"""),
    ),
)


def lacks(name: str, version: Version) -> Version | None:
    """The newest version read that does not have the flag, where `version` is no newer; None where it may.

    >>> lacks("--admin-api-key", (0, 5, 5)), lacks("--admin-api-key", (0, 5, 9)), lacks("--port", (0, 5, 5))
    ((0, 5, 5), None, None)
    """
    return next((last for last, names in ABSENT if name in names and version <= last), None)


def had(name: str, version: Version) -> bool:
    """Whether a flag that the newest version does not know was one of `version`'s.

    >>> had("--enable-double-sparsity", (0, 5, 5)), had("--enable-double-sparsity", (0, 5, 23))
    (True, False)
    """
    return any(name in names and version <= last for last, names in GONE)
