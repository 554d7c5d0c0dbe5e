"""A small dense model, as its config.json has it: 1.5 billion weights in 16 layers of 8 KV heads."""

from bringup.parse.hf_config import read_config

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 16,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
LONG = {**CONFIG, "max_position_embeddings": 131072}
TIED = {**LONG, "tie_word_embeddings": True}
MODEL = read_config(CONFIG, name="org/small", source="test")
