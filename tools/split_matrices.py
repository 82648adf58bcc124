"""Which matrices of `verify`'s layers tensor parallelism splits by output features, for the tools
and the tests that split real layers.
"""

from attncalc.verify.layers.grouped import GroupedLayer
from attncalc.verify.layers.latent import LatentLayer

# Their output features are heads. W_o is split by input features.
BY_OUTPUT = {
    GroupedLayer: ("W_qkv", "W_q", "W_k", "W_v", "W_gate"),
    LatentLayer: ("W_q", "W_q_b", "W_kv_b"),
}


def split_by_output(layer: object) -> tuple[str, ...]:
    """Return the names of those matrices that a layer has; () for another layer."""
    for kind, names in BY_OUTPUT.items():
        if isinstance(layer, kind):
            return tuple(name for name in names if hasattr(layer, name))
    return ()
