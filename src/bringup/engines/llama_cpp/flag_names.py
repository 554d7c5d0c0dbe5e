"""The flags of `llama-server`, by what stands after them.

Source: llama.cpp build 10434, its help text.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(f"--{name}" for name in text.split())


def _pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


# Every other spelling, and the one that is used here.
ALIASES = _pairs("""
--ctx-checkpoints --swa-checkpoints --draft --draft-max --draft-min --draft-n-min --draft-n
--draft-max --embedding --embeddings --gpu-layers --n-gpu-layers --gpu-layers-draft
--n-gpu-layers-draft --help --usage --predict --n-predict --rerank --reranking --sampler-seq
--sampling-seq --spec-draft-cpu-mask --cpu-mask-draft --spec-draft-cpu-mask-batch
--cpu-mask-batch-draft --spec-draft-cpu-moe --cpu-moe-draft --spec-draft-cpu-range --cpu-range-draft
--spec-draft-cpu-strict --cpu-strict-draft --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
--spec-draft-device --device-draft --spec-draft-hf --hf-repo-draft --spec-draft-model --model-draft
--spec-draft-n-cpu-moe --n-cpu-moe-draft --spec-draft-ncmoe --n-cpu-moe-draft --spec-draft-ngl
--n-gpu-layers-draft --spec-draft-override-tensor --override-tensor-draft --spec-draft-p-min
--draft-p-min --spec-draft-p-split --draft-p-split --spec-draft-poll --poll-draft
--spec-draft-poll-batch --poll-batch-draft --spec-draft-prio --prio-draft --spec-draft-prio-batch
--prio-batch-draft --spec-draft-threads --threads-draft --spec-draft-threads-batch
--threads-batch-draft --spec-draft-type-k --cache-type-k-draft --spec-draft-type-v
--cache-type-v-draft --temp --temperature --top-nsigma --top-n-sigma --typical --typical-p --ui
--webui --ui-config --webui-config --ui-config-file --webui-config-file --ui-mcp-proxy
--webui-mcp-proxy --verbose --log-verbose --verbosity --log-verbosity -C --cpu-mask -Cb
--cpu-mask-batch -Cbd --cpu-mask-batch-draft -Cd --cpu-mask-draft -Cr --cpu-range -Crb
--cpu-range-batch -Crd --cpu-range-draft -a --alias -ag --agent -b --batch-size -bs
--backend-sampling -c --ctx-size -cb --cont-batching -cl --cache-list -cmoe --cpu-moe -cmoed
--cpu-moe-draft -cms --checkpoint-min-step -cram --cache-ram -ctk --cache-type-k -ctkd
--cache-type-k-draft -ctv --cache-type-v -ctvd --cache-type-v-draft -ctxcp --swa-checkpoints -dev
--device -devd --device-draft -dio --direct-io -dr --docker-repo -dt --defrag-thold -e --escape -fa
--flash-attn -fit --fit -fitc --fit-ctx -fitt --fit-target -h --usage -hf --hf-repo -hfd
--hf-repo-draft -hff --hf-file -hfr --hf-repo -hfrd --hf-repo-draft -hft --hf-token -j --json-schema
-jf --json-schema-file -kvo --kv-offload -kvu --kv-unified -l --logit-bias -lcd
--lookup-cache-dynamic -lcs --lookup-cache-static -lm --load-mode -lv --log-verbosity -m --model -md
--model-draft -mg --main-gpu -mm --mmproj -mmu --mmproj-url -mu --model-url -n --n-predict -ncmoe
--n-cpu-moe -ncmoed --n-cpu-moe-draft -ndio --no-direct-io -ngl --n-gpu-layers -ngld
--n-gpu-layers-draft -nkvo --no-kv-offload -no-ag --no-agent -no-kvu --no-kv-unified -nocb
--no-cont-batching -np --parallel -nr --no-repack -ot --override-tensor -otd --override-tensor-draft
-r --reverse-prompt -rea --reasoning -s --seed -sm --split-mode -sp --special -sps
--slot-prompt-similarity -t --threads -tb --threads-batch -tbd --threads-batch-draft -td
--threads-draft -to --timeout -ts --tensor-split -ub --ubatch-size -v --log-verbose
""")

SWITCHES = _names("""
agent backend-sampling cache-idle-slots cache-list cache-prompt check-tensors completion-bash
cont-batching context-shift cors-credentials cpu-moe cpu-moe-draft direct-io embd-gemma-default
embeddings escape fim-qwen-1 fim-qwen-14b-spec fim-qwen-30b-default fim-qwen-3b-default
fim-qwen-7b-default fim-qwen-7b-spec gpt-oss-120b-default gpt-oss-20b-default ignore-eos jinja
kv-offload kv-unified list-devices log-disable log-prefix log-timestamps log-verbose
lora-init-without-apply metrics mlock mmap mmproj-auto mmproj-offload models-autoload no-agent
no-cache-idle-slots no-cache-prompt no-cont-batching no-context-shift no-cors-credentials
no-direct-io no-escape no-host no-jinja no-kv-offload no-kv-unified no-log-prefix no-log-timestamps
no-mmap no-mmproj no-mmproj-auto no-mmproj-offload no-models-autoload no-op-offload no-perf
no-prefill-assistant no-reasoning-preserve no-repack no-skip-chat-parsing no-slots
no-spec-draft-backend-sampling no-ui no-ui-mcp-proxy no-warmup no-webui no-webui-mcp-proxy offline
op-offload perf prefill-assistant props reasoning-preserve repack reranking reuse-port
skip-chat-parsing slots spec-default spec-draft-backend-sampling special spm-infill swa-full usage
verbose version vision-gemma-12b-default vision-gemma-4b-default warmup webui webui-mcp-proxy
""")

VALUES = _names("""
adaptive-decay adaptive-target alias api-key api-key-file api-prefix batch-size cache-ram
cache-reuse cache-type-k cache-type-k-draft cache-type-v cache-type-v-draft chat-template
chat-template-file chat-template-kwargs checkpoint-min-step control-vector
control-vector-layer-range control-vector-scaled cors-headers cors-methods cors-origins cpu-mask
cpu-mask-batch cpu-mask-batch-draft cpu-mask-draft cpu-range cpu-range-batch cpu-range-draft
cpu-strict cpu-strict-batch cpu-strict-batch-draft cpu-strict-draft ctx-size defrag-thold device
device-draft docker-repo draft-max draft-n-min draft-p-min draft-p-split dry-allowed-length dry-base
dry-multiplier dry-penalty-last-n dry-sequence-breaker dynatemp-exp dynatemp-range embd-normalize
fit fit-ctx fit-target flash-attn frequency-penalty grammar grammar-file hf-file hf-repo
hf-repo-draft hf-token host image-max-tokens image-min-tokens json-schema json-schema-file keep
load-mode log-colors log-file log-prompts-dir log-verbosity logit-bias lookup-cache-dynamic
lookup-cache-static lora lora-scaled main-gpu mcp-servers-config mcp-servers-json media-path min-p
mirostat mirostat-ent mirostat-lr mmproj mmproj-url model model-draft model-url models-dir
models-max models-preset mtmd-batch-max-tokens n-cpu-moe n-cpu-moe-draft n-gpu-layers
n-gpu-layers-draft n-predict numa override-kv override-tensor override-tensor-draft parallel path
poll poll-batch poll-batch-draft poll-draft pooling port presence-penalty prio prio-batch
prio-batch-draft prio-draft reasoning reasoning-budget reasoning-budget-message reasoning-effort
reasoning-format repeat-last-n repeat-penalty reverse-prompt rope-freq-base rope-freq-scale
rope-scale rope-scaling rpc samplers sampling-seq seed sleep-idle-seconds slot-prompt-similarity
slot-save-path spec-draft-n-max spec-draft-n-min spec-ngram-map-k-min-hits spec-ngram-map-k-size-m
spec-ngram-map-k-size-n spec-ngram-map-k4v-min-hits spec-ngram-map-k4v-size-m
spec-ngram-map-k4v-size-n spec-ngram-min-hits spec-ngram-mod-n-match spec-ngram-mod-n-max
spec-ngram-mod-n-min spec-ngram-simple-min-hits spec-ngram-simple-size-m spec-ngram-simple-size-n
spec-ngram-size-m spec-ngram-size-n spec-type split-mode sse-ping-interval ssl-cert-file
ssl-key-file swa-checkpoints tags temperature tensor-split threads threads-batch threads-batch-draft
threads-draft threads-http timeout tools tools-runtime top-k top-n-sigma top-p typical-p ubatch-size
webui-config webui-config-file xtc-probability xtc-threshold yarn-attn-factor yarn-beta-fast
yarn-beta-slow yarn-ext-factor yarn-orig-ctx
""")

KNOWN = SWITCHES | VALUES
