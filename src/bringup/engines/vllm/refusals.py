"""What vLLM refuses before it starts: layouts that do not divide, settings that contradict each other.

Source: vLLM 0.33.0 `config/model.py` (`verify_with_parallel_config`), `config/parallel.py` and
`config/scheduler.py` (`verify_max_model_len`). The texts are ours.
"""

from collections.abc import Iterator

from bringup.engines.vllm.settings import Settings, stage_partition
from bringup.planner.weights import Weights
from bringup.values.engine import EngineSpec
from bringup.values.finding import Finding, Fix, Severity
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus, Layout


def layout_findings(weights: Weights, layout: Layout, gpus: Gpus) -> list[Finding]:
    """Refusals of the layout: what does not divide, and GPUs that are not there."""
    found = [finding for finding in weights.findings if finding.severity is Severity.FAILURE]
    tp, dcp = layout.tensor_parallel, layout.decode_context_parallel
    if tp % dcp:
        found.append(
            Finding(
                id="layout.context_ranks",
                severity=Severity.FAILURE,
                summary=f"{dcp} context ranks do not divide the {tp} tensor parallel ranks",
                explanation="vLLM refuses to start with it",
            )
        )
    if layout.gpus > gpus.count:
        found.append(
            Finding(
                id="layout.gpus",
                severity=Severity.FAILURE,
                summary=f"the layout takes {layout.gpus} GPUs, {gpus.count} are there",
                fixes=(Fix(type="flag", name="--tensor-parallel-size", old=str(tp)),),
            )
        )
    return found


def partition_findings(spec: EngineSpec, model: ModelSpec, layout: Layout) -> list[Finding]:
    """A refusal where the environment's split of the layers is none of this model over these stages."""
    if stage_partition(spec, len(model.layers), layout) is not None:
        return []
    asked = spec.environment.get("VLLM_PP_LAYER_PARTITION", "")
    return [
        Finding(
            id="layout.partition",
            severity=Severity.FAILURE,
            summary=f"VLLM_PP_LAYER_PARTITION={asked} does not split {len(model.layers)} layers over "
            f"{layout.pipeline_parallel} stages",
            explanation="vLLM refuses to start with it; planned with an even split",
        )
    ]


def settings_findings(settings: Settings, model: ModelSpec, gpus: Gpus) -> list[Finding]:
    """Settings that vLLM refuses, or that do not mean what they seem to."""
    return [
        *_batch(settings),
        *_whole_prompts(settings),
        *_length(settings),
        *_share(settings),
        *_formats(settings, model, gpus),
    ]


def _batch(settings: Settings) -> Iterator[Finding]:
    batch = settings.batch
    if batch.tokens < batch.sequences:
        yield Finding(
            id="settings.batch",
            severity=Severity.FAILURE,
            summary=f"--max-num-batched-tokens {batch.tokens} is below --max-num-seqs {batch.sequences}",
            explanation="vLLM refuses to start with it",
            fixes=(Fix(type="flag", name="--max-num-seqs", old=str(batch.sequences), new=str(batch.tokens)),),
        )


def _whole_prompts(settings: Settings) -> Iterator[Finding]:
    """Without chunks the longest prompt has to pass in one step."""
    if settings.has_chunked_prefill or settings.batch.tokens >= settings.max_model_len:
        return
    yield Finding(
        id="settings.chunked_prefill",
        severity=Severity.FAILURE,
        summary=f"--max-num-batched-tokens {settings.batch.tokens} is below --max-model-len "
        f"{settings.max_model_len}, and chunked prefill is off",
        explanation="vLLM refuses to start with it: a prompt has to pass in one step",
        fixes=(
            Fix(
                type="flag",
                name="--max-num-batched-tokens",
                old=str(settings.batch.tokens),
                new=str(settings.max_model_len),
                cost="a larger activation peak, so a smaller cache",
            ),
        ),
    )


def _length(settings: Settings) -> Iterator[Finding]:
    if settings.max_model_len > settings.model_length and not settings.allows_longer:
        yield Finding(
            id="settings.max_model_len",
            severity=Severity.FAILURE,
            summary=f"--max-model-len {settings.max_model_len:,} is above the model's "
            f"{settings.model_length:,}",
            explanation="vLLM refuses it unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is set",
            fixes=(
                Fix(
                    type="flag",
                    name="--max-model-len",
                    old=str(settings.max_model_len),
                    new=str(settings.model_length),
                ),
            ),
        )


def _share(settings: Settings) -> Iterator[Finding]:
    if not 0 < settings.utilization <= 1:
        yield Finding(
            id="settings.gpu_memory_utilization",
            severity=Severity.FAILURE,
            summary=f"--gpu-memory-utilization {settings.utilization:g} is no share of the card",
            expected="above 0, at most 1",
            explanation="vLLM refuses to start with it",
        )
    if settings.kv_cache_memory_bytes is not None and settings.is_utilization_given:
        yield Finding(
            id="settings.kv_cache_memory",
            severity=Severity.NOTE,
            summary="--kv-cache-memory-bytes sizes the cache; --gpu-memory-utilization only decides whether "
            "vLLM finds enough free at its start",
        )


def _formats(settings: Settings, model: ModelSpec, gpus: Gpus) -> Iterator[Finding]:
    """Number formats of weights and cache that the card has no way to run."""
    known = dict(gpus.card.formats)
    form = model.quantization
    wanted = {form.scheme.split("_")[0]: "weights"} if form is not None else {}
    if settings.kv_cache_dtype.startswith("fp8"):
        wanted["fp8"] = "weights and KV cache" if "fp8" in wanted else "KV cache"
    for name, what in wanted.items():
        how = known.get(name, "")
        if how.startswith("no"):
            # Source: vLLM 0.33.0 `config/vllm.py`, `get_min_capability`: below it there is no kernel at all.
            is_refused = how == "no" and what.startswith("weights")
            yield Finding(
                id=f"format.{name}",
                severity=Severity.FAILURE if is_refused else Severity.WARNING,
                summary=f"{gpus.card.name} has no {name.upper()} arithmetic ({what})"
                + ("" if how == "no" else f": {how}"),
                explanation="vLLM refuses weights without a kernel for the card, and unpacks the rest to 16 "
                "bits for every step",
            )
