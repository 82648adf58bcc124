"""The cache of compressed attention is that of transformers' own class (DeepSeek-V4), tensor by
tensor.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tables import each

from attncalc import Workload, kv_cache
from attncalc.config.build import build_model
from attncalc.config.huggingface import convert_config
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402

CONFIG: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "head_dim": 16,
    "q_lora_rank": 8,
    "o_groups": 2,
    "o_lora_rank": 8,
    "num_experts_per_tok": 2,
    "n_routed_experts": 4,
    "sliding_window": 128,
    "index_n_heads": 2,
    "index_head_dim": 8,
    "index_topk": 4,
    "partial_rotary_factor": 0.5,
    "layer_types": [
        "sliding_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ],
}


def cache_tensors(layer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a layer's cache. Entries of one name are in a dict."""
    for name, entry in vars(layer).items():
        tensors = entry.values() if isinstance(entry, dict) else (entry,)
        yield from (
            (name, tensor)
            for tensor in tensors
            if isinstance(tensor, torch.Tensor) and tensor.dim()
        )


@each("passes", [(8,), (8, 1, 1), (130,), (126, 1, 1, 1)])
def test_the_class_caches_as_many_bytes(transformers: ModuleType, passes: tuple[int, ...]) -> None:
    """Keys and values of a layer with pools are one tensor. Their sum over all attributes has it
    twice.

    With 8 tokens: 3 x 8 x 16 keys, of which the layer without pools has a copy as values; 2 pools
    of 16 and of 8 with the last pool's 4 keys and gates each; 8 keys and gates to pool by 128:
    (4 x 128 + 2 x 24 + 2 x 4 x 24 + 2 x 128) x 4 B = 4,032 B.
    """
    config = transformers.DeepseekV4Config(**CONFIG)
    torch.manual_seed(0)
    model = transformers.DeepseekV4ForCausalLM(config).eval().float()
    cache = transformers.DynamicCache(config=config)
    with torch.no_grad():
        for tokens in passes:
            model(torch.zeros((1, tokens), dtype=torch.long), past_key_values=cache, use_cache=True)
    found = [entry for layer in cache.layers for entry in cache_tensors(layer)]
    stored = sum(
        {tensor.data_ptr(): tensor.nbytes for _, tensor in found if tensor.numel()}.values()
    )
    spec = build_model(convert_config(config.to_dict(), "config.json", title="tiny"), "tiny")
    workload = Workload.decode(1, sum(passes), kv_dtype="fp32")
    assert kv_cache(spec, workload, engine="transformers").total == stored
    # values of the two layers with pools are their keys
    shared = sum(tensor.nbytes for name, tensor in found if name == "values") * 2 // 3
    assert sum(tensor.nbytes for _, tensor in found) == stored + shared
    if passes == (8,):
        assert stored == 4_032
