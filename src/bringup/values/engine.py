"""The engine: as wanted (its command line) and as seen (its endpoint)."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """One entry of the models endpoint."""

    id: str
    context_tokens: int | None = None  # longest prompt + answer the endpoint says it takes
    training_context_tokens: int | None = None
    parameters: int | None = None
    weights_bytes: int | None = None
    vocabulary: int | None = None
    root: str | None = None  # folder, file or hub id behind the served name
    owned_by: str | None = None
    is_adapter: bool = False  # a LoRA adapter served beside its base model


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCapacity:
    """What the engine itself says about its KV cache."""

    tokens: int | None = None
    block_tokens: int | None = None
    blocks: int | None = None
    used_share: float | None = None  # 0..1
    dtype: str | None = None
    slots: int | None = None  # requests that can run at once, where the engine has a fixed number
    source: str = ""  # which endpoint or metric said it


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """What the endpoint said about itself. `None` = it did not say."""

    engine: str  # "vllm", "sglang", "llama_cpp", "tensorrt_llm", "lmdeploy", "tgi", "ollama", "unknown"
    display_name: str = "unknown OpenAI-compatible server"
    version: str | None = None
    evidence: tuple[str, ...] = ()  # what the identification rests on, in words
    models: tuple[ServedModel, ...] = ()
    is_healthy: bool | None = None
    loading: bool = False  # it answers, and says that the model is not up yet
    needs_key: bool = False  # what it serves is closed without a key, or with the one given
    health_meaning: str = ""  # what a 200 of this engine's health endpoint does and does not prove
    kv: KvCapacity = field(default_factory=KvCapacity)
    max_running: int | None = None  # max_num_seqs, max_running_requests, slots
    running: int | None = None
    waiting: int | None = None
    supports_tools: bool | None = None
    supports_vision: bool | None = None
    reasoning_parser: str | None = None
    flags: dict[str, str] = field(default_factory=dict[str, str])  # settings the server reports of itself
    proxy: str | None = None  # "nginx", "litellm", ... when something stands in front
    metrics_open: bool | None = None  # metrics readable without a key
    metrics: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # our metric name -> value, one moment


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """The engine as its command line wants it. Filled by an engine's `flags` module."""

    engine: str
    argv: tuple[str, ...] = ()
    model: str | None = None
    served_names: tuple[str, ...] = ()
    context_tokens: int | None = None
    tensor_parallel_size: int | None = None
    port: int | None = None
    max_running: int | None = None  # requests at once, whatever the cache holds; None: not stated
    flags: dict[str, str] = field(default_factory=dict[str, str])
    environment: dict[str, str] = field(default_factory=dict[str, str])  # as far as it is known
