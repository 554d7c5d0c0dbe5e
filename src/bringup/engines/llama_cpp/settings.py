"""What llama-server makes of a command line: the settings that decide memory.

Source: llama.cpp b11434, `common/arg.cpp`, `common/common.h`, `src/llama-model.cpp`, `common/fit.cpp`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bringup.errors import UsageError
from bringup.parse.command_line import whole_number
from bringup.planner.kv_llama_cpp import CACHE_TYPES, LlamaRules
from bringup.values.engine import EngineSpec
from bringup.values.model import ModelSpec
from bringup.values.plan import Gpus

_SLOTS = 4  # where -np is not given; they share one cache
_MICRO_BATCH = 512
_MARGIN_MIB = 1024  # -fitt
_SHORTEST = 4096  # -fitc
_ALL = 1_000_000_000  # layers: more than any model has
_EXPERTS = re.compile(r"blk\.(\d+)\.ffn_(up|down|gate|gate_up)_(ch)?exps\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the memory rules ask about a command line, decided."""

    context: int  # -c, over all slots; the model's own where it is not given
    is_context_given: bool
    slots: int
    is_unified: bool
    gpu_layers: int  # -ngl, counted from the last; the output layer is one of them
    split_mode: str  # layer, row, tensor, none
    shares: tuple[float, ...]  # of the devices, adding up to 1
    main_gpu: int
    key_type: str
    value_type: str
    micro_batch: int
    has_flash_attention: bool
    keeps_cache_on_gpu: bool
    has_full_windows: bool
    host_experts: int  # layers, from the first, whose experts stay on the host
    overrides: tuple[tuple[str, str], ...]  # -ot: pattern of tensor names, buffer
    may_fit: bool  # whether what does not fit is made to fit
    may_shorten: bool
    margin_mib: int
    shortest: int

    def rules(self) -> LlamaRules:
        """The settings as far as the cache's rules ask for them."""
        return LlamaRules(
            context_tokens=self.context,
            slots=self.slots,
            is_unified=self.is_unified,
            key_type=self.key_type,
            value_type=self.value_type,
            micro_batch=self.micro_batch,
            has_full_windows=self.has_full_windows,
        )


def settings_of(spec: EngineSpec, model: ModelSpec, gpus: Gpus) -> Settings:
    """The settings of `spec`, flags first, then the program's defaults."""
    flags = spec.flags
    for name in ("--cache-type-k", "--cache-type-v"):
        if flags.get(name, "f16") not in CACHE_TYPES:
            raise UsageError(f"`{flags[name]}` is no cache type", hint=f"one of {', '.join(CACHE_TYPES)}")
    asked = whole_number(flags.get("--ctx-size"))
    slots = whole_number(flags.get("--parallel"))
    mode = flags.get("--split-mode", "layer")
    shares = _shares(flags, gpus, mode)
    is_placed = flags.keys() & {"--n-gpu-layers", "--tensor-split", "--override-tensor"}
    is_placed = is_placed or flags.keys() & {"--cpu-moe", "--n-cpu-moe"} or mode in ("row", "tensor")
    may_fit = flags.get("--fit", "on") != "off" and not is_placed
    return Settings(
        context=asked or model.max_position or _SHORTEST,
        is_context_given=asked is not None,
        slots=slots or _SLOTS,
        is_unified="--no-kv-unified" not in flags and (slots is None or "--kv-unified" in flags),
        gpu_layers=_gpu_layers(flags.get("--n-gpu-layers", "auto")),
        split_mode=mode,
        shares=shares,
        main_gpu=min(whole_number(flags.get("--main-gpu")) or 0, len(shares) - 1),
        key_type=flags.get("--cache-type-k", "f16"),
        value_type=flags.get("--cache-type-v", "f16"),
        micro_batch=min(
            whole_number(flags.get("--ubatch-size")) or _MICRO_BATCH,
            whole_number(flags.get("--batch-size")) or 2048,
        ),
        has_flash_attention=flags.get("--flash-attn", "auto") not in ("off", "0"),
        keeps_cache_on_gpu="--no-kv-offload" not in flags,
        has_full_windows="--swa-full" in flags,
        host_experts=_ALL if "--cpu-moe" in flags else whole_number(flags.get("--n-cpu-moe")) or 0,
        overrides=_overrides(flags.get("--override-tensor", "")),
        may_fit=may_fit,
        # `-c 0` on the command line is a wish too: the whole length of the model.
        may_shorten=may_fit and "--ctx-size" not in flags,
        margin_mib=whole_number(flags.get("--fit-target", "").split(",")[0]) or _MARGIN_MIB,
        shortest=whole_number(flags.get("--fit-ctx")) or _SHORTEST,
    )


def expert_layer(tensor: str) -> int | None:
    """Layer of an expert tensor; None for all others.

    >>> expert_layer("blk.12.ffn_up_exps.weight"), expert_layer("blk.12.ffn_up.weight")
    (12, None)
    """
    match = _EXPERTS.match(tensor)
    return int(match[1]) if match else None


def _gpu_layers(text: str) -> int:
    return whole_number(text) or (0 if text == "0" else _ALL)


def _shares(flags: Mapping[str, str], gpus: Gpus, mode: str) -> tuple[float, ...]:
    """What part of the layers each device gets: as told, else alike, since the cards are."""
    devices = [name for name in flags.get("--device", "").split(",") if name]
    count = 1 if mode == "none" else min(gpus.count, len(devices) or gpus.count)
    given = [float(part) for part in re.split(r"[,/]", flags.get("--tensor-split", "")) if _is_number(part)]
    parts = (given + [0.0] * count)[:count] if given else [1.0] * count
    whole = sum(parts) or 1.0
    return tuple(part / whole for part in parts)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"\d+(\.\d*)?|\.\d+", text.strip()) is not None


def _overrides(text: str) -> tuple[tuple[str, str], ...]:
    """Patterns that are regular expressions; others are left out, as the server would refuse them."""
    found: list[tuple[str, str]] = []
    for part in text.split(","):
        pattern, equals, buffer = part.rpartition("=")
        if not equals:
            continue
        try:
            re.compile(pattern)
        except re.error:
            continue
        found.append((pattern, buffer))
    return tuple(found)
