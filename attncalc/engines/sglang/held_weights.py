"""What SGLang holds beside a checkpoint's tensors: tables of rotary positions, and the copies of MLA's kv_b."""

from __future__ import annotations

from ...model import ModelSpec
from ...quantity import symbol, total
from ..engine import ExtraWeights, HeldWeights
from .options import SglangArgs


def extra_weights(model: ModelSpec, args: SglangArgs, held: HeldWeights) -> list[ExtraWeights]:
    """Return what SGLang holds on one device beside the weights and the towers of `model`, a part of a model.

    Tables are in fp32 (layers/rotary_embedding/base.py), with four times the positions if they have mrope_section.
    `w_kc` and `w_vc` are copies of kv_b in the model's dtype (models/deepseek_common/deepseek_weight_loader.py).
    """
    width = symbol("bytes", held.dtype.bits // 8, f"bytes of an element in {held.dtype.name}")
    tables = [
        symbol("rows", table.rows * (4 if table.name == "mrope" else 1), f"positions of the {table.name} table")
        * symbol("d_rotary", table.width, "elements of a row")
        * symbol("bytes_table", 4, "bytes of an element in fp32")
        for table in model.rope_tables
    ]
    copies = [
        symbol("L", layers.count, "layers with MLA")
        * symbol("kv_b", matrix.weights, "weights of kv_b in one layer")
        * width
        for _, layers in model.plain().groups()
        for matrix in layers.attention.matrices(1, 1)
        if matrix.name == "W_kv_b"
    ]
    return [
        ExtraWeights("weights_rope_tables", "rope tables", total(tables)),
        ExtraWeights("weights_absorbed_kv_b", "absorbed kv_b", total(copies)),
    ]
