"""Attention kinds, one file each. Those of few models are imported when a model names them: each costs a
millisecond of every command's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .cross import Cross
from .grouped import Grouped
from .kind import SHAPES, Attention, CacheSpec, Kind, Matrix, Widths, shaped
from .latent import Latent
from .span import FULL, Chunked, Full, Sliding, Span, pairs, refuse_past
from .variant import Variant

if TYPE_CHECKING:
    from .blocks import BlockSparse
    from .compressed import Compressed
    from .differential import Differential
    from .image_cross import ImageCross
    from .linear import GatedDeltaNet, Lightning, ShortConvolution
    from .mamba import Mamba, Mamba2
    from .recurrent import NoAttention, Recurrent
    from .relative import Relative
    from .rglru import RgLru
    from .rwkv import Rwkv
    from .xlstm import MLstm

_HOMES = {
    "BlockSparse": "blocks",
    "Compressed": "compressed",
    "GatedDeltaNet": "linear",
    "Differential": "differential",
    "Lightning": "linear",
    "ShortConvolution": "linear",
    "Mamba": "mamba",
    "Mamba2": "mamba",
    "Relative": "relative",
    "ImageCross": "image_cross",
    "NoAttention": "recurrent",
    "Recurrent": "recurrent",
    "RgLru": "rglru",
    "Rwkv": "rwkv",
    "MLstm": "xlstm",
}
"""The files of the classes that are imported when they are first used."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


class _Kinds(Mapping[str, type[Kind]]):
    """{name: class}, each class imported when it is asked for."""

    def __init__(self, classes: Mapping[str, str]) -> None:
        self._classes = classes

    def __getitem__(self, name: str) -> type[Kind]:
        kind: type[Kind] = globals().get(self._classes[name]) or __getattr__(self._classes[name])
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def __len__(self) -> int:
        return len(self._classes)


KINDS: Mapping[str, type[Kind]] = _Kinds(
    {
        "grouped": "Grouped",
        "latent": "Latent",
        "differential": "Differential",
        "relative": "Relative",
        "pictures": "ImageCross",
        "block_sparse": "BlockSparse",
        "compressed": "Compressed",
        "mamba": "Mamba",
        "mamba2": "Mamba2",
        "delta": "GatedDeltaNet",
        "lightning": "Lightning",
        "short_convolution": "ShortConvolution",
        "rglru": "RgLru",
        "rwkv": "Rwkv",
        "mlstm": "MLstm",
        "none": "NoAttention",
    }
)
"""What the YAML key `attention` may name. A new kind is a file, and a line here and in _HOMES."""

__all__ = [
    "FULL",
    "KINDS",
    "SHAPES",
    "Attention",
    "BlockSparse",
    "CacheSpec",
    "Chunked",
    "Compressed",
    "Cross",
    "Differential",
    "Full",
    "GatedDeltaNet",
    "Grouped",
    "ImageCross",
    "Kind",
    "Latent",
    "Lightning",
    "MLstm",
    "Mamba",
    "Mamba2",
    "Matrix",
    "NoAttention",
    "Recurrent",
    "Relative",
    "RgLru",
    "Rwkv",
    "ShortConvolution",
    "Sliding",
    "Span",
    "Variant",
    "Widths",
    "pairs",
    "refuse_past",
    "shaped",
]
