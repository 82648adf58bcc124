"""Fields of config.json that several tests start from, and the model that a config.json
describes.
"""

from typing import Any

from attncalc import ModelSpec
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.config.schema import check

SMALL_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 3,
    "vocab_size": 100,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}

LLAMA_3_8B: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def spec_of(config: dict[str, Any]) -> ModelSpec:
    """Return the model of a config.json, checked as a command does."""
    document = convert_config(config, "config.json")
    check(document)
    return build_model(document, "config")
