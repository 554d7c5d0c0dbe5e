"""Model folders for engines that read no GGUF: converted weights, and small random ones.

Run by the Python of an engine's environment, which brings `numpy` and `gguf`:
`python model_folder.py FILE.gguf OUT {converted,random,random-experts}`.
"""

import argparse
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray
SHARDS = 2  # more than one, so that the engine reads an index
TINY_SEED = 20261130
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SPECIAL_TYPES = (3, 4)  # control and user-defined tokens, llama.cpp's `llama_token_type`


class Source:
    """A GGUF file of the llama architecture: its fields and tensors."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        self.fields: dict[str, Any] = {
            name: field.contents()
            for name, field in self._reader.fields.items()
            if not name.startswith("GGUF.")
        }
        architecture = self.fields["general.architecture"]
        if architecture != "llama":
            raise SystemExit(f"only the llama architecture can be converted, this is `{architecture}`")

    def of_model(self, name: str) -> Any:
        """One hyper-parameter, by its name without the architecture."""
        return self.fields[f"llama.{name}"]

    def tensors(self) -> Iterator[tuple[str, Array]]:
        """Name as Hugging Face has it, and values as float32, rows first."""
        heads = self.of_model("attention.head_count"), self.of_model("attention.head_count_kv")
        for tensor in self._reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
            values = values.reshape([int(size) for size in reversed(tensor.shape)])
            if tensor.name in _TOP:
                yield _TOP[tensor.name], values
                continue
            _, layer, part, _ = tensor.name.split(".")
            if part == "attn_q":
                values = halves_apart(values, heads[0])
            elif part == "attn_k":
                values = halves_apart(values, heads[1])
            yield f"model.layers.{layer}.{_BLOCK[part]}.weight", values

    def config(self, *, is_tied: bool) -> dict[str, Any]:
        """What `config.json` says of this model."""
        width, heads = self.of_model("embedding_length"), self.of_model("attention.head_count")
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": width,
            "intermediate_size": self.of_model("feed_forward_length"),
            "num_hidden_layers": self.of_model("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self.of_model("attention.head_count_kv"),
            "head_dim": width // heads,
            "hidden_act": "silu",
            "max_position_embeddings": self.of_model("context_length"),
            "rms_norm_eps": float(self.of_model("attention.layer_norm_rms_epsilon")),
            "rope_theta": float(self.of_model("rope.freq_base")),
            "tie_word_embeddings": is_tied,
            **self.tokens_in_config(),
        }

    def tokens_in_config(self) -> dict[str, Any]:
        """The part of `config.json` that any model with this vocabulary shares."""
        return {
            "vocab_size": len(self.fields["tokenizer.ggml.tokens"]),
            "bos_token_id": self.fields["tokenizer.ggml.bos_token_id"],
            "eos_token_id": self.fields["tokenizer.ggml.eos_token_id"],
            "torch_dtype": "bfloat16",
        }

    def tokenizer(self) -> dict[str, Any]:
        """`tokenizer.json`: byte-level pairs, each digit a token of its own (pre-tokenizer `smollm`)."""
        tokens, kinds = self.fields["tokenizer.ggml.tokens"], self.fields["tokenizer.ggml.token_type"]
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {"id": number, "content": tokens[number], **plain}
                for number, kind in enumerate(kinds)
                if kind in _SPECIAL_TYPES
            ],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "Digits", "individual_digits": True},
                    {**byte_level, "use_regex": True},
                ],
            },
            "post_processor": None,
            "decoder": {**byte_level, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "vocab": {token: number for number, token in enumerate(tokens)},
                "merges": self.fields["tokenizer.ggml.merges"],
            },
        }

    def tokenizer_config(self) -> dict[str, Any]:
        """`tokenizer_config.json`, with the chat template."""
        tokens = self.fields["tokenizer.ggml.tokens"]
        return {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[self.fields["tokenizer.ggml.bos_token_id"]],
            "eos_token": tokens[self.fields["tokenizer.ggml.eos_token_id"]],
            "model_max_length": self.of_model("context_length"),
            "clean_up_tokenization_spaces": False,
            "chat_template": self.fields["tokenizer.chat_template"],
        }


def halves_apart(values: Array, heads: int) -> Array:
    """Rows of a query or key projection in Hugging Face's order.

    A llama GGUF has the two halves that a rotary embedding turns together side by side, row by row.
    """
    rows, *rest = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, *rest)
    return pairs.swapaxes(1, 2).reshape(rows, *rest)


def bfloat16(values: Array) -> Array:
    """The upper 16 bits of each float32, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) >> np.uint32(16)).astype(np.uint16)


def random_config(source: Source, *, experts: int) -> dict[str, Any]:
    """A Qwen3 of 15M parameters whose heads divide by two and four; with experts, a Qwen3-MoE."""
    config: dict[str, Any] = {
        "architectures": ["Qwen3MoeForCausalLM" if experts else "Qwen3ForCausalLM"],
        "model_type": "qwen3_moe" if experts else "qwen3",
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "hidden_act": "silu",
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        **source.tokens_in_config(),
    }
    if experts:
        config |= {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 128}
        config |= {"decoder_sparse_step": 1, "norm_topk_prob": True, "mlp_only_layers": []}
    return config


def random_tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    """Weights that nobody trained, the same in every run."""
    draw = np.random.default_rng(TINY_SEED)
    width, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head

    def drawn(*shape: int) -> Array:
        return draw.normal(0.0, 0.02, shape).astype(np.float32)

    def ones(size: int) -> Array:
        return np.ones(size, dtype=np.float32)

    def mlp(name: str, inner: int) -> Iterator[tuple[str, Array]]:
        yield f"{name}.gate_proj.weight", drawn(inner, width)
        yield f"{name}.up_proj.weight", drawn(inner, width)
        yield f"{name}.down_proj.weight", drawn(width, inner)

    yield "model.embed_tokens.weight", drawn(config["vocab_size"], width)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", ones(width)
        yield f"{name}.self_attn.q_proj.weight", drawn(queries, width)
        yield f"{name}.self_attn.k_proj.weight", drawn(keys, width)
        yield f"{name}.self_attn.v_proj.weight", drawn(keys, width)
        yield f"{name}.self_attn.o_proj.weight", drawn(width, queries)
        yield f"{name}.self_attn.q_norm.weight", ones(head)
        yield f"{name}.self_attn.k_norm.weight", ones(head)
        yield f"{name}.post_attention_layernorm.weight", ones(width)
        if config.get("num_experts"):
            yield f"{name}.mlp.gate.weight", drawn(config["num_experts"], width)
            for expert in range(config["num_experts"]):
                yield from mlp(f"{name}.mlp.experts.{expert}", config["moe_intermediate_size"])
        else:
            yield from mlp(f"{name}.mlp", config["intermediate_size"])
    yield "model.norm.weight", ones(width)


def write_shards(folder: Path, tensors: Iterable[tuple[str, Array]]) -> set[str]:
    """Names of the tensors written, in `SHARDS` safetensors files with an index."""
    halved = [(name, bfloat16(values)) for name, values in tensors]
    total = sum(values.nbytes for _, values in halved)
    shards: list[dict[str, Array]] = [{} for _ in range(SHARDS)]
    before = 0
    for name, values in halved:
        shards[min(SHARDS - 1, before * SHARDS // total)][name] = values
        before += values.nbytes
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{SHARDS:05d}.safetensors"
        _write_safetensors(folder / file, shard)
        places |= dict.fromkeys(shard, file)
    _write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": places}
    )
    return set(places)


def _write_safetensors(path: Path, tensors: Mapping[str, Array]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        end = offset + values.nbytes
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of eight
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.tobytes())


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_folder(source: Source, folder: Path, kind: str) -> None:
    """A folder that vLLM, SGLang and transformers load."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "converted":
        names = write_shards(folder, source.tensors())
        config = source.config(is_tied="lm_head.weight" not in names)
    else:
        config = random_config(source, experts=8 if kind == "random-experts" else 0)
        write_shards(folder, random_tensors(config))
    _write_json(folder / "config.json", config)
    ends = {name: config[name] for name in ("bos_token_id", "eos_token_id")}
    _write_json(folder / "generation_config.json", ends)
    _write_json(folder / "tokenizer.json", source.tokenizer())
    _write_json(folder / "tokenizer_config.json", source.tokenizer_config())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("kind", choices=("converted", "random", "random-experts"))
    options = parser.parse_args()
    write_folder(Source(options.gguf), options.folder, options.kind)
