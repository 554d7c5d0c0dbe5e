"""The flags of `vllm serve`: since which version, until which, and what stands after them.

Source: the argument parsers of the released packages 0.8.5 to 0.32.0, every minor version (0.21.0, 0.22.1,
...). `-` in the third column: still there in the newest read.
"""

from dataclasses import dataclass
from enum import StrEnum

OLDEST_READ = (0, 8)
NEWEST_READ = (0, 32)


class Kind(StrEnum):
    """What stands after a flag."""

    SWITCH = "switch"  # nothing; `--no-` turns it off
    VALUE = "value"
    LIST = "list"  # every word up to the next flag
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag and the versions that have it."""

    kind: Kind
    first: tuple[int, int]
    last: tuple[int, int] | None  # None: still there in the newest version read


SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-dcp": "--decode-context-parallel-size",
    "-pcp": "--prefill-context-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-q": "--quantization",
    "-asc": "--api-server-count",
    "-sc": "--speculative-config",
    "-cc": "--compilation-config",
    "-ac": "--attention-config",
    "-n": "--nnodes",
    "-r": "--node-rank",
    "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank",
    "-dpl": "--data-parallel-size-local",
    "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port",
    "-dpb": "--data-parallel-backend",
    "-dph": "--data-parallel-hybrid-lb",
    "-dpe": "--data-parallel-external-lb",
    "-dc": "--diffusion-config",
    "-dpm": "--data-parallel-multi-port-external-lb",
}

_TABLE = """
--additional-config 0.8 - json
--aggregate-engine-logging 0.11 - switch
--all2all-backend 0.11 - value
--allow-credentials 0.8 - switch
--allow-deprecated-quantization 0.14 - switch
--allowed-headers 0.8 - list
--allowed-local-media-path 0.8 - value
--allowed-media-domains 0.11 - list
--allowed-methods 0.8 - list
--allowed-origins 0.8 - list
--anthropic-disabled-thinking-effort 0.31 - value
--api-key 0.8 - list
--api-server-count 0.9 - value
--async-scheduling 0.10 - switch
--attention-backend 0.13 - value
--attention-config 0.13 - json
--aux-output-config 0.31 - json
--block-size 0.8 - value
--calculate-kv-scales 0.8 0.27 switch
--chat-template 0.8 - value
--chat-template-content-format 0.8 - value
--code-revision 0.8 - value
--cohere-format 0.27 - value
--cohere-is-reasoning-model 0.27 - switch
--collect-detailed-traces 0.8 - list
--compilation-config 0.8 - json
--config 0.8 - value
--config-format 0.8 - value
--convert 0.10 - value
--cp-kv-cache-interleave-size 0.12 - value
--cpu-distributed-timeout-seconds 0.22 - value
--cpu-offload-gb 0.8 - value
--cpu-offload-params 0.17 - list
--cuda-graph-sizes 0.9 0.12 list
--cudagraph-capture-sizes 0.11 - list
--cudagraph-metrics 0.13 - switch
--custom-histogram-buckets 0.32 - json
--data-parallel-address 0.9 - value
--data-parallel-backend 0.9 - value
--data-parallel-external-lb 0.11 - switch
--data-parallel-hybrid-lb 0.10 - switch
--data-parallel-multi-port-external-lb 0.22 - switch
--data-parallel-rank 0.9 - value
--data-parallel-rpc-port 0.9 - value
--data-parallel-size 0.8 - value
--data-parallel-size-local 0.9 - value
--data-parallel-start-rank 0.9 - value
--data-parallel-supervisor-port 0.22 - value
--dbo-decode-token-threshold 0.11 - value
--dbo-prefill-token-threshold 0.11 - value
--dcp-comm-backend 0.18 - value
--dcp-kv-cache-interleave-size 0.11 - value
--dcp-q-replicate 0.29 - switch
--decode-context-parallel-size 0.10 - value
--default-chat-template-kwargs 0.14 - json
--default-mm-loras 0.10 - json
--device 0.8 0.9 value
--device-ids 0.24 - list
--device-memory-utilization 0.31 - value
--diffusion-config 0.24 - json
--disable-access-log-for-endpoints 0.16 - value
--disable-async-output-proc 0.8 0.10 switch
--disable-cascade-attn 0.8 - switch
--disable-chunked-mm-input 0.8 - switch
--disable-custom-all-reduce 0.8 - switch
--disable-fastapi-docs 0.8 - switch
--disable-frontend-multiprocessing 0.8 0.18 switch
--disable-hybrid-kv-cache-manager 0.9 - switch
--disable-log-requests 0.8 0.16 switch
--disable-log-stats 0.8 - switch
--disable-mm-preprocessor-cache 0.8 0.12 switch
--disable-nccl-for-dp-synchronization 0.11 - switch
--disable-sliding-window 0.8 - switch
--disable-uvicorn-access-log 0.8 - switch
--distributed-executor-backend 0.8 - value
--distributed-timeout-seconds 0.18 - value
--download-dir 0.8 - value
--dp-supervisor-probe-failure-threshold 0.22 - value
--dp-supervisor-probe-interval-s 0.22 - value
--dp-supervisor-probe-timeout-s 0.22 - value
--dp-sync-interval 0.30 - value
--dtype 0.8 - value
--ec-manager-config 0.28 - json
--ec-transfer-config 0.11 - json
--elastic-ep-max-dp-size 0.30 - value
--enable-auto-tool-choice 0.8 - switch
--enable-batch-sharded-sampling 0.29 - switch
--enable-bf16x3-router-gemm 0.26 0.29 switch
--enable-chunked-prefill 0.8 - switch
--enable-cumem-allocator 0.22 - switch
--enable-dbo 0.11 - switch
--enable-elastic-ep 0.17 - switch
--enable-ep-weight-filter 0.18 - switch
--enable-eplb 0.9 - switch
--enable-expert-parallel 0.8 - switch
--enable-fault-tolerance 0.27 - switch
--enable-flash-late-interaction 0.20 - switch
--enable-flashinfer-autotune 0.16 - switch
--enable-force-include-usage 0.9 - switch
--enable-hc-sp 0.32 - switch
--enable-layerwise-nvtx-tracing 0.13 - switch
--enable-log-deltas 0.14 - switch
--enable-log-outputs 0.10 - switch
--enable-log-requests 0.10 - switch
--enable-logging-iteration-details 0.14 - switch
--enable-lora 0.8 - switch
--enable-lora-bias 0.8 0.11 switch
--enable-mamba-cache-stochastic-rounding 0.20 - switch
--enable-mamba-fine-grained-prefix-cache 0.30 0.30 switch
--enable-mamba-shared-prefix-checkpoint 0.31 - switch
--enable-mfu-metrics 0.14 - switch
--enable-mixed-moe-lora-format 0.22 - switch
--enable-mm-embeds 0.11 - switch
--enable-moe-shared-loras 0.26 - switch
--enable-multimodal-encoder-data-parallel 0.9 0.12 switch
--enable-nccl-comm-suspend 0.30 - switch
--enable-offline-docs 0.14 - switch
--enable-per-request-metrics 0.25 - switch
--enable-prefix-caching 0.8 - switch
--enable-prompt-adapter 0.8 0.9 switch
--enable-prompt-embeds 0.9 - switch
--enable-prompt-tokens-details 0.8 - switch
--enable-reasoning 0.8 0.9 switch
--enable-request-id-headers 0.8 - switch
--enable-return-routed-experts 0.14 - switch
--enable-scale-out 0.30 - switch
--enable-server-load-tracking 0.8 - switch
--enable-shm-tensor-arena 0.32 - switch
--enable-sleep-mode 0.8 - switch
--enable-ssl-refresh 0.8 - switch
--enable-tokenizer-info-endpoint 0.10 - switch
--enable-tower-connector-lora 0.14 - switch
--enable-trace-replay 0.29 - switch
--enforce-eager 0.8 - switch
--engram-config 0.30 - json
--eplb-config 0.10 - json
--eplb-log-balancedness 0.9 0.11 switch
--eplb-step-interval 0.9 0.11 value
--eplb-window-size 0.9 0.11 value
--exclude-tools-when-tool-choice-none 0.10 - switch
--expand-tools-even-if-tool-choice-none 0.9 0.9 switch
--expert-placement-strategy 0.11 - value
--fail-on-environ-validation 0.17 - switch
--fault-tolerance-config 0.27 - json
--fingerprint-mode 0.21 - value
--fingerprint-value 0.21 - value
--fully-sharded-loras 0.8 - switch
--gdn-prefill-backend 0.18 - value
--generation-config 0.8 - value
--gpu-memory-utilization 0.8 - value
--grpc 0.18 - switch
--grpc-port 0.32 - value
--guided-decoding-backend 0.8 0.10 value
--guided-decoding-disable-additional-properties 0.9 0.10 switch
--guided-decoding-disable-any-whitespace 0.9 0.10 switch
--guided-decoding-disable-fallback 0.9 0.10 switch
--h11-max-header-count 0.10 - value
--h11-max-incomplete-event-size 0.10 - value
--headless 0.9 - switch
--hf-config-path 0.8 - value
--hf-overrides 0.8 - json
--hf-token 0.8 - value
--host 0.8 - value
--ignore-patterns 0.8 - list
--interleave-mm-strings 0.10 - switch
--io-processor-plugin 0.10 - value
--ir-op-priority 0.20 - json
--jit-monitor-mode 0.25 - value
--jit-monitor-verbose 0.24 - switch
--kda-decode-backend 0.30 - value
--kda-prefill-backend 0.27 - value
--kernel-config 0.16 - json
--kv-cache-dtype 0.8 - value
--kv-cache-dtype-skip-layers 0.19 - list
--kv-cache-memory-bytes 0.10 - value
--kv-cache-metrics 0.12 - switch
--kv-cache-metrics-sample 0.12 - value
--kv-events-config 0.9 - json
--kv-offloading-backend 0.11 - value
--kv-offloading-size 0.11 - value
--kv-sharing-fast-prefill 0.10 - switch
--kv-transfer-config 0.8 - json
--language-model-only 0.17 - switch
--limit-mm-per-prompt 0.8 - json
--linear-backend 0.22 - value
--load-format 0.8 - value
--log-config-file 0.9 - value
--log-error-stack 0.10 - switch
--log-level 0.31 - value
--logging-config 0.31 - json
--logits-processor-pattern 0.8 0.16 value
--logits-processors 0.10 - list
--logprobs-mode 0.10 - value
--long-lora-scaling-factors 0.8 0.9 value
--long-prefill-token-threshold 0.8 - value
--long-prefill-token-threshold-adaptive 0.31 - switch
--lora-dtype 0.8 - value
--lora-extra-vocab-size 0.8 0.11 value
--lora-modules 0.8 - list
--lora-target-modules 0.19 - list
--mamba-backend 0.20 - value
--mamba-block-size 0.11 - value
--mamba-cache-dtype 0.10 - value
--mamba-cache-mode 0.15 - value
--mamba-cache-philox-rounds 0.20 - value
--mamba-ssm-cache-dtype 0.10 - value
--mamba-ssu-algorithm 0.27 - value
--master-addr 0.11 - value
--master-port 0.11 - value
--max-cpu-loras 0.8 - value
--max-cudagraph-capture-size 0.11 - value
--max-log-len 0.8 - value
--max-logprobs 0.8 - value
--max-long-partial-prefills 0.8 0.26 value
--max-lora-cls-labels 0.31 - value
--max-lora-rank 0.8 - value
--max-loras 0.8 - value
--max-model-len 0.8 - value
--max-num-active-seqs 0.31 - value
--max-num-batched-tokens 0.8 - value
--max-num-partial-prefills 0.8 0.26 value
--max-num-queued-reqs 0.29 - value
--max-num-queued-tokens 0.29 - value
--max-num-scheduled-tokens 0.26 - value
--max-num-seqs 0.8 - value
--max-parallel-loading-workers 0.8 - value
--max-prompt-adapter-token 0.8 0.9 value
--max-prompt-adapters 0.8 0.9 value
--max-seq-len-to-capture 0.8 0.10 value
--media-io-kwargs 0.9 - json
--middleware 0.8 - list
--mm-device-do-normalize 0.28 - switch
--mm-encoder-attn-backend 0.11 - value
--mm-encoder-attn-dtype 0.21 - value
--mm-encoder-fp8-scale-path 0.21 - value
--mm-encoder-fp8-scale-save-margin 0.21 - value
--mm-encoder-fp8-scale-save-path 0.21 - value
--mm-encoder-only 0.15 - switch
--mm-encoder-tp-mode 0.10 - value
--mm-hasher-algorithm 0.27 - value
--mm-ipc-gpu-memory-gb 0.25 - value
--mm-processor-cache-gb 0.10 - value
--mm-processor-cache-type 0.11 - value
--mm-processor-device 0.28 - value
--mm-processor-kwargs 0.8 - json
--mm-shm-cache-max-object-size-mb 0.11 - value
--mm-tensor-ipc 0.19 - value
--model 0.8 - value
--model-class-overrides 0.25 - json
--model-impl 0.8 - value
--model-loader-extra-config 0.8 - json
--moe-backend 0.17 - value
--multi-step-stream-outputs 0.8 0.9 switch
--nnodes 0.11 - value
--node-rank 0.11 - value
--num-gpu-blocks-override 0.8 - value
--num-lookahead-slots 0.8 0.11 value
--num-redundant-experts 0.9 0.11 value
--num-scheduler-steps 0.8 0.9 value
--numa-bind 0.20 - switch
--numa-bind-cpus 0.20 - list
--numa-bind-nodes 0.20 - list
--offload-backend 0.17 - value
--offload-group-size 0.17 - value
--offload-num-in-group 0.17 - value
--offload-params 0.17 - list
--offload-prefetch-step 0.17 - value
--optimization-level 0.12 - value
--otlp-traces-endpoint 0.8 - value
--override-attention-dtype 0.9 0.27 value
--override-generation-config 0.8 - json
--override-neuron-config 0.8 0.9 json
--override-pooler-config 0.8 0.11 json
--per-request-spec-decode-metrics 0.29 - value
--performance-mode 0.17 - value
--pipeline-parallel-size 0.8 - value
--pooler-config 0.11 - json
--port 0.8 - value
--preemption-mode 0.8 0.10 value
--prefill-context-parallel-size 0.12 - value
--prefill-schedule-interval 0.24 - value
--prefix-cache-retention-interval 0.29 - value
--prefix-caching-hash-algo 0.8 - value
--prefix-match-unit 0.26 - value
--profiler-config 0.13 - json
--prompt-adapters 0.8 0.9 list
--pt-load-map-location 0.9 - json
--qlora-adapter-name-or-path 0.8 0.9 value
--quantization 0.8 - value
--quantization-config 0.22 - json
--ray-workers-use-nsight 0.8 - switch
--reasoning-config 0.19 - json
--reasoning-parser 0.8 - value
--reasoning-parser-plugin 0.11 - value
--renderer-num-workers 0.19 - value
--replayssm-buffer-len 0.27 - value
--response-role 0.8 - value
--return-sampling-mask 0.28 - switch
--return-tokens-as-token-ids 0.8 - switch
--revision 0.8 - value
--root-path 0.8 - value
--rope-scaling 0.8 0.11 json
--rope-theta 0.8 0.11 value
--runner 0.10 - value
--safetensors-load-strategy 0.10 - value
--safetensors-prefetch-block-size 0.21 - value
--safetensors-prefetch-num-threads 0.21 - value
--scheduler-cls 0.8 - value
--scheduler-delay-factor 0.8 0.10 value
--scheduler-reserve-full-isl 0.19 - switch
--scheduling-policy 0.8 - value
--seed 0.8 - value
--served-model-name 0.8 - list
--show-hidden-metrics-for-version 0.8 - value
--shutdown-timeout 0.18 - value
--skip-mm-profiling 0.10 - switch
--skip-tokenizer-init 0.8 - switch
--sleep-mode-offload-cudagraph 0.32 - switch
--sleep-preserve-parameter-names 0.31 - list
--sparse-indexer-topk-backend 0.30 - value
--spec-method 0.22 - value
--spec-model 0.22 - value
--spec-tokens 0.22 - value
--specialize-active-lora 0.16 - switch
--speculative-config 0.8 - json
--sse-keep-alive-interval 0.29 - value
--ssl-ca-certs 0.8 - value
--ssl-cert-reqs 0.8 - value
--ssl-certfile 0.8 - value
--ssl-ciphers 0.15 - value
--ssl-keyfile 0.8 - value
--stream-interval 0.11 - value
--structured-outputs-config 0.11 - json
--swa-bounded-replay 0.31 - switch
--swap-space 0.8 0.17 value
--task 0.8 0.12 value
--tensor-parallel-size 0.8 - value
--tokenizer 0.8 - value
--tokenizer-mode 0.8 - value
--tokenizer-pool-extra-config 0.8 0.9 json
--tokenizer-pool-size 0.8 0.9 value
--tokenizer-pool-type 0.8 0.9 value
--tokenizer-revision 0.8 - value
--tokens-only 0.11 - switch
--tool-call-parser 0.8 - value
--tool-parser-plugin 0.8 - value
--tool-server 0.10 - value
--tool-strict-level 0.31 - value
--trust-remote-code 0.8 - switch
--trust-request-chat-template 0.11 - switch
--trust-request-mm-kwargs 0.31 - switch
--ubatch-size 0.14 - value
--uds 0.10 - value
--use-fp64-gumbel 0.22 - switch
--use-gpu-for-pooling-score 0.17 0.17 switch
--use-replayssm 0.27 - switch
--use-tqdm-on-load 0.8 - switch
--use-v2-block-manager 0.8 0.9 switch
--uvicorn-log-level 0.8 - value
--video-pruning-method 0.27 - value
--video-pruning-rate 0.11 - value
--watermark 0.24 - value
--watermark-config 0.30 - json
--weight-transfer-config 0.16 - json
--worker-cls 0.8 - value
--worker-extension-cls 0.8 - value
"""


def _release(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _read(line: str) -> tuple[str, Flag]:
    name, first, last, kind = line.split()
    return name, Flag(Kind(kind), _release(first), None if last == "-" else _release(last))


FLAGS: dict[str, Flag] = dict(_read(line) for line in _TABLE.strip().splitlines())
