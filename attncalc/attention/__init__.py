"""Attention kinds, one file each."""

from __future__ import annotations

from .blocks import BlockSparse
from .compressed import Compressed
from .cross import Cross
from .grouped import Grouped
from .kind import SHAPES, Attention, Cached, Kind, Matrix, Widths, shaped
from .latent import Latent
from .linear import Delta, Lightning, ShortConvolution
from .mamba import Mamba, Mamba2
from .recurrent import Absent, Recurrent
from .rglru import RgLru
from .rwkv import Rwkv
from .span import FULL, Chunked, Full, Sliding, Span, pairs, refuse_past
from .variant import Variant
from .xlstm import MLstm

KINDS: dict[str, type[Kind]] = {
    "grouped": Grouped,
    "latent": Latent,
    "block_sparse": BlockSparse,
    "compressed": Compressed,
    "mamba": Mamba,
    "mamba2": Mamba2,
    "delta": Delta,
    "lightning": Lightning,
    "short_convolution": ShortConvolution,
    "rglru": RgLru,
    "rwkv": Rwkv,
    "mlstm": MLstm,
    "none": Absent,
}
"""What the YAML key `attention` may name. A new kind is a file and a line here."""

__all__ = [
    "FULL",
    "KINDS",
    "SHAPES",
    "Absent",
    "Attention",
    "Cached",
    "Chunked",
    "Cross",
    "Delta",
    "Full",
    "Grouped",
    "Kind",
    "Latent",
    "Lightning",
    "MLstm",
    "Mamba",
    "Mamba2",
    "Matrix",
    "Recurrent",
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
