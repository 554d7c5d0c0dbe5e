"""Answers that are wrong: one token for ever, word salad, NaN, no end.

Seen in: PyTorch `aten/.../MultinomialKernel.cu` ("probability tensor contains"), SGLang `layers/sampler.py`
("NaN in the logits"), llama.cpp `ggml-cuda.cu` (GGML_CUDA_P2P), reports of each engine. Token 0 of most
vocabularies is "!".
"""

import re

from bringup.parse.case_facts import flag_of, spelled
from bringup.rules import Rule, Sign, read_signs
from bringup.values.case import Case
from bringup.values.finding import Fix, Severity

_REPEATED = re.compile(  # rules and progress bars are no text: their characters are left out
    r"(?:content|text|output|response)\"?'?\s*[:=]?\s*.*?"
    r"(?:!{6,}|/{7,}|\?{8,}|(?P<unit>[^\s\-=_.*#~+|<>\\\u2500-\u259f]{1,3})(?:(?P=unit)){9,})"
)
_PEER = re.compile(
    r"GGML_CUDA_P2P|P2P[- ]patched|[Cc]anAccessPeer\(|p2p (?:fork|patch)|cudaMemcpyPeer|peer access"
    r"|peer cop(?:y|ies)|NCCL_P2P|IO_PAGE_FAULT"
)
_SEVERAL = re.compile(
    r"(?:tensor[_-]parallel[_-]size|tp[_-]size|--tp)(?:=| )['\"]?(?:[2-9]|\d\d)|\bTP ?[2-9]\b|TP>1|-sm row"
    r"|--split-mode row"
)
_SCALES = re.compile(
    r"(?:k_scale|v_scale|[a-z_]*scale)s? (?:is|are|not) (?:missing|not found|found)"
    r"|no (?:kv )?scales? (?:found|provided)|scaling factors? of 1\.0"
)


def _fix(
    type_: str, name: str, new: str, *, old: str | None = None, cost: str = "", kind: str = "workaround"
) -> Fix:
    return Fix(type=type_, name=name, old=old, new=new, kind=kind, cost=cost)


def _peers(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    iommu = _fix("kernel-param", "iommu", "pt", kind="cure", cost="reboot; not together with SEV-SNP")
    if case.engine in ("vllm", "sglang", "tensorrt_llm"):
        off = _fix("flag", spelled(case, "custom all-reduce off"), "True", cost="slower small all-reduces")
        return iommu, _fix("env", "NCCL_P2P_DISABLE", "1", cost="slower collectives"), off
    return (
        _fix(
            "env",
            "GGML_CUDA_P2P",
            "unset",
            old="1 (any value, even 0, enables it)",
            kind="cure",
            cost="none where P2P lies",
        ),
        iommu,
        _fix("flag", "--split-mode", "none", old="layer", cost="one card only"),
        _fix("package", "llama.cpp", "newer build: staged copies keep their order", kind="cure"),
        _fix(
            "driver", "open-gpu-kernel-modules", "stock", old="p2p fork", cost="no peer copies on these cards"
        ),
    )


def _wider(case: Case, _found: re.Match[str]) -> tuple[Fix, ...]:
    old = flag_of(case, "--dtype")
    return (
        _fix(
            "flag",
            "--dtype",
            "bfloat16",
            old=old or "half",
            kind="cure",
            cost="float32 on cards before Ampere",
        ),
        _fix("flag", "--quantization", "fp8 or other", cost="another checkpoint"),
    )


_OTHER_BACKEND = (
    _fix("flag", "--attention-backend", "another backend", cost="may be slower"),
    _fix("flag", "--moe-backend", "marlin", old="flashinfer_cutlass", cost="may be slower"),
    _fix("flag", "--fp4-gemm-backend", "flashinfer_cudnn", old="flashinfer_cutlass", cost="may be slower"),
    _fix("package", "flashinfer", "newer", kind="cure"),
)
_AB = "the same prompt at temperature 0: one card against all, then with NCCL_P2P_DISABLE=1"

SIGNS = (
    Sign(
        kind="out.garbage_p2p",
        pattern=re.compile(
            r"GGML_CUDA_P2P ?=|(?:cudaDevice)?CanAccessPeer\(\d+, ?\d+\) ?==? ?0|cudaMemcpyPeer\w* (?:wrong"
            r"|corrupt|mismatch)"
        ),
        beside=_REPEATED,
        sure=0.8,
        summary="answers are wrong because copies between cards are lost or come in the wrong order",
        explanation="The copy returns success. One card alone is right. `GGML_CUDA_P2P` is tested for "
        "presence: even 0 enables it.",
        fixes=_peers,
        next_measurement=_AB,
    ),
    Sign(
        kind="out.garbage_p2p",
        pattern=_REPEATED,
        needs=_PEER,
        sure=0.75,
        summary="the answer is one token for ever or word salad, and cards copy to each other directly",
        fixes=_peers,
        next_measurement=_AB,
    ),
    Sign(
        kind="out.garbage_nan",
        pattern=re.compile(
            r"probability tensor contains either `?inf`?, `?nan`? or element < 0|NaN in the logits"
            r"|[Ll]ogits (?:contain|has|have) NaN|nan in logits"
            r"|all logits are nan|(?:gate_up_proj|down_proj|hidden_states|logits)\b.*(?:tensor\(True\)"
            r"|isnan)|Detected errors during sampling"
        ),
        sure=0.85,
        summary="numbers overflow: the logits are NaN",
        explanation="Half precision overflows where bfloat16 does not. If one card is right and several are "
        "wrong it is the "
        "communication instead.",
        fixes=_wider,
        next_measurement="the same prompt with --dtype bfloat16, then on one card",
    ),
    Sign(
        kind="out.garbage_scales",
        pattern=_SCALES,
        needs=_REPEATED,
        sure=0.7,
        summary="the answer is garbage and the quantisation's scales were not read",
        fixes=(
            _fix("flag", "--kv-cache-dtype", "auto", old="fp8", cost="more memory per token"),
            *_OTHER_BACKEND,
        ),
        next_measurement="the same prompt with another kernel backend",
    ),
    Sign(
        kind="out.garbage_tp",
        pattern=_REPEATED,
        needs=_SEVERAL,
        unless=_PEER,
        sure=0.7,
        summary="the answer is one token for ever on several cards",
        explanation="Token 0 decodes to `!`: NaN or zero logits. Communication if one card is right, "
        "overflow if it is not.",
        fixes=(
            _fix("flag", "--disable-custom-all-reduce", "True", cost="slower small all-reduces"),
            _fix("flag", "--quantization", "awq_marlin", old="awq", cost="for AWQ checkpoints"),
            _fix("env", "NCCL_P2P_DISABLE", "1", cost="slower collectives"),
        ),
        next_measurement=_AB,
    ),
    Sign(
        kind="out.garbage_backend",
        pattern=re.compile(
            r"(?:GEMM|kernel|backend|attention)\b.*(?:produces? (?:invalid|wrong|garbage)|wrong (?:output"
            r"|results?)|invalid output)"
            r"|token degradation|(?:garbage|gibberish) (?:output|tokens)"
        ),
        beside=_REPEATED,
        sure=0.6,
        summary="a kernel computes wrongly on this architecture, perhaps only with many requests at once",
        fixes=_OTHER_BACKEND,
        next_measurement="the same prompts at concurrency 1 and 16, on each backend",
        severity=Severity.WARNING,
    ),
    Sign(
        kind="out.garbage_backend",
        pattern=_REPEATED,
        unless=re.compile(_PEER.pattern + "|" + _SEVERAL.pattern),
        sure=0.4,
        summary="the answer is one token for ever",
        explanation="Overflow, a kernel, a missing shard or lost copies: the next measurement tells which.",
        fixes=_OTHER_BACKEND,
        next_measurement=_AB,
        severity=Severity.WARNING,
    ),
    Sign(
        kind="out.endless",
        pattern=re.compile(
            r"finish_reason\"?: ?\"?length.*<\|(?:eot_id|im_end|end_of_turn|endoftext)\|>|<\|(?:eot_id"
            r"|im_end)\|> (?:visible|in the (?:output|text))"
            r"|runs to max_tokens|never (?:stops|ends) generating|does not stop generating"
            r"|EOS (?:token )?(?:not honou?red|ignored)"
        ),
        sure=0.8,
        summary="answers do not end: the model's end token is not among the stop tokens",
        explanation="generation_config.json or config.json names fewer end tokens than the model was trained "
        "to use.",
        fixes=(
            _fix(
                "file",
                "generation_config.json eos_token_id",
                "a list with every end token",
                old="one token",
                kind="cure",
            ),
            _fix("file", "config.json eos_token_id", "the same list", kind="cure"),
            _fix("flag", "stop_token_ids", "[id of the end token]", cost="in every request"),
        ),
        next_measurement="eos_token_id in generation_config.json and config.json against "
        "tokenizer_config.json",
        severity=Severity.WARNING,
    ),
)

RULE = Rule(
    kinds=tuple(dict.fromkeys(sign.kind for sign in SIGNS)),
    title="wrong answers",
    literals=(
        "!!!!!!",
        "///////",
        "????????",
        '"content"',
        "output:",
        "GGML_CUDA_P2P",
        "CanAccessPeer",
        "cudaMemcpyPeer",
        "NCCL_P2P",
        "P2P patched",
        "P2P-patched",
        "p2p patch",
        "p2p fork",
        "probability tensor",
        "NaN in the logits",
        "ogits contain",
        "nan in logits",
        "logits are nan",
        "tensor(True)",
        "errors during sampling",
        "scales",
        "scaling factor",
        "_scale ",
        "produces invalid",
        "invalid output",
        "wrong output",
        "wrong result",
        "token degradation",
        "arbage",
        "gibberish",
        "finish_reason",
        "<|eot_id|>",
        "<|im_end|>",
        "max_tokens",
        "stop generating",
        "stops generating",
        "EOS ",
    ),
    read=read_signs(SIGNS),
    meaning="The server runs and its answers are wrong.",
    told_apart="One card right and several wrong is communication. Wrong at one card in float16 and right in "
    "bfloat16 is overflow. "
    "Right alone and wrong with 16 at once is a kernel. Nothing helps: a missing shard or scales.",
    cure="Sound peer copies, a wider number format, another kernel backend, the full list of end tokens.",
    source="torch MultinomialKernel.cu; sglang srt/layers/sampler.py; llama.cpp ggml/src/ggml-cuda; reports "
    "per engine",
)
