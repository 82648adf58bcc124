"""Attention kinds, one file each.

The kinds that few models use are imported when a model names them: each dataclass takes about a
millisecond of every command's start. Import such a class from its own file: `from
attncalc.attention.mamba import Mamba`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from .cross import Cross
from .grouped import Grouped
from .kind import (
    SHAPES,
    Attention,
    CacheSpec,
    Kind,
    Matrix,
    Widths,
    matrices_from_shapes,
    required_keys,
)
from .span import FULL, Chunked, Full, Sliding, Span, check_mask, pairs
from .variant import Variant

if TYPE_CHECKING:
    from .compressed import Compressed
    from .latent import Latent

# The values of the YAML key `attention`, each with its file and class. A new kind is a new file and
# a line here.
_CLASSES = {
    "grouped": "grouped.Grouped",
    "latent": "latent.Latent",
    "differential": "differential.Differential",
    "relative": "relative.Relative",
    "global_window": "global_window.GlobalWindow",
    "position_scores": "position_scores.PositionScores",
    "pictures": "image_cross.ImageCross",
    "block_sparse": "block_sparse.BlockSparse",
    "compressed": "compressed.Compressed",
    "shared_pools": "shared_pools.SharedPools",
    "mamba": "mamba.Mamba",
    "mamba2": "mamba.Mamba2",
    "delta": "linear.GatedDeltaNet",
    "lightning": "linear.Lightning",
    "short_convolution": "linear.ShortConvolution",
    "rglru": "rglru.RgLru",
    "rwkv": "rwkv.Rwkv",
    "rwkv5": "rwkv.Rwkv5",
    "mlstm": "xlstm.MLstm",
    "none": "recurrent.NoAttention",
}


def as_latent(kind: Attention) -> Latent | None:
    """Return the attention if it is MLA, else None; without an import, since its module is loaded
    if a model has it.
    """
    module = sys.modules.get(f"{__name__}.latent")
    return kind if module and isinstance(kind, module.Latent) else None


def as_compressed(kind: Attention) -> Compressed | None:
    """Return the attention if it is DeepSeek-V4's, else None, as `as_latent` does."""
    module = sys.modules.get(f"{__name__}.compressed")
    return kind if module and isinstance(kind, module.Compressed) else None


class _Kinds(Mapping[str, type[Kind]]):
    """The class of each kind by its YAML name, imported when it is looked up."""

    def __getitem__(self, name: str) -> type[Kind]:
        module, class_name = _CLASSES[name].split(".")
        kind: type[Kind] = getattr(import_module(f".{module}", __name__), class_name)
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


KINDS: Mapping[str, type[Kind]] = _Kinds()

__all__ = [
    "FULL",
    "KINDS",
    "SHAPES",
    "Attention",
    "CacheSpec",
    "Chunked",
    "Cross",
    "Full",
    "Grouped",
    "Kind",
    "Matrix",
]
__all__ += [
    "Sliding",
    "Span",
    "Variant",
    "Widths",
    "as_compressed",
    "as_latent",
    "check_mask",
    "matrices_from_shapes",
]
__all__ += ["pairs", "required_keys"]
