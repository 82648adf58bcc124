"""The part of a layer on one of several tensor-parallel devices.

Query heads are split, and KV heads too if there are at least as many as devices. Of fewer KV heads,
each is on several devices. W_o is split by its inputs. Latents and norms are on every device.
`tests/split_layers.py` compares it with torch's own tensor parallelism.
"""

import torch
from torch import Tensor, nn

from ...attention import Attention, Cross, Grouped
from ...attention.latent import Latent
from .grouped import GroupedLayer
from .latent import LatentLayer

# Matrices whose output features are heads.
BY_OUTPUT = {
    GroupedLayer: ("W_qkv", "W_q", "W_k", "W_v", "W_gate"),
    LatentLayer: ("W_q", "W_q_b", "W_kv_b"),
}


def split_by_output(layer: object) -> tuple[str, ...]:
    """Return the names of the matrices of a layer whose output features are heads; () for another
    layer.
    """
    for kind, names in BY_OUTPUT.items():
        if isinstance(layer, kind):
            return tuple(name for name in names if hasattr(layer, name))
    return ()


def keep_first_part(layer: nn.Module, kind: Attention, tp: int) -> None:
    """Leave the layer of `kind` with the parameters of the first of `tp` devices."""
    heads = kind.heads if isinstance(kind, Cross) else kind
    if isinstance(heads, Latent):
        n_kv_heads = heads.n_heads
    else:
        assert isinstance(heads, Grouped)
        n_kv_heads = heads.n_kv_heads
    for name in split_by_output(layer):
        linear = layer.get_submodule(name)
        for parameter, rows in list(linear.named_parameters()):
            if name == "W_qkv":
                assert isinstance(heads, Grouped)
                part = _first_of_fused(rows, heads, tp)
            elif name in ("W_k", "W_v"):
                part = _first_heads(rows, n_kv_heads, tp)
            else:
                part = _first_heads(rows, heads.n_heads, tp)
            setattr(linear, parameter, nn.Parameter(part))
    linear = layer.get_submodule("W_o")
    columns = linear.get_parameter("weight").chunk(tp, 1)[0]
    linear.register_parameter("weight", nn.Parameter(columns))
    if isinstance(layer, GroupedLayer):
        layer.share = heads.n_heads // max(tp, n_kv_heads)
        _keep_first_vectors(layer, heads.n_heads, n_kv_heads, tp)


def _first_heads(rows: Tensor, heads: int, tp: int) -> Tensor:
    """Return the rows of the heads on the first device."""
    by_head: Tensor = rows.unflatten(0, (heads, -1))
    held = max(1, heads // tp)
    return by_head[:held].flatten(0, 1)


def _first_of_fused(rows: Tensor, kind: Grouped, tp: int) -> Tensor:
    """Return the rows of the queries, keys and values on the first device."""
    d_v = kind.d_head if kind.d_v is None else kind.d_v
    n_heads = kind.n_heads
    n_kv_heads = kind.n_kv_heads
    widths = (n_heads * kind.d_head, n_kv_heads * kind.d_head, n_kv_heads * d_v)
    q, k, v = rows.split(widths)
    parts = (
        _first_heads(q, n_heads, tp),
        _first_heads(k, n_kv_heads, tp),
        _first_heads(v, n_kv_heads, tp),
    )
    return torch.cat(parts)


def _keep_first_vectors(layer: GroupedLayer, n_heads: int, n_kv_heads: int, tp: int) -> None:
    """Split sinks, and gains over the width of all heads."""
    if hasattr(layer, "sinks"):
        layer.sinks = nn.Parameter(_first_heads(layer.sinks, n_heads, tp))
    for name, heads in (("q_norm", n_heads), ("k_norm", n_kv_heads)):
        norm = getattr(layer, name, None)
        gain = getattr(norm, "weight", None)
        if norm is not None and gain is not None and gain.numel() == heads * layer.d_head:
            norm.weight = nn.Parameter(_first_heads(gain, heads, tp))
