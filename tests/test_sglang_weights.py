"""What SGLang takes from a quantized checkpoint, and what it holds beside the weights."""

import dataclasses

import pytest
from tables import each

from attncalc import Grouped, Head, Latent, Layers, ModelSpec, Stack
from attncalc.engines.engine import HeldWeights
from attncalc.engines.sglang.engine import ENGINE
from attncalc.engines.sglang.options import SglangArgs
from attncalc.model import RopeTable
from attncalc.quantization import Quantization
from attncalc.units import dtype

GQA, MLA = Grouped(8, 2, 16), Latent(4, 50, 12, 6, 9)


def model(*kinds: Grouped | Latent, tables: tuple[RopeTable, ...] = ()) -> ModelSpec:
    layers = tuple(Layers(f"layers{i}", 3, attention=kind) for i, kind in enumerate(kinds))
    return ModelSpec(
        "toy",
        "toy",
        (Stack("decoder", layers, 100),),
        vocab_size=70,
        head=Head("lm"),
        rope_tables=tables,
    )


@each(
    ("method", "version", "is_read"),
    [
        ("modelopt", "0.5.2", False),
        ("modelopt", "0.5.3", True),
        ("modelopt_fp4", "0.5.4", True),
        ("modelopt-fp4", "0.4.9", False),
        ("modelopt", "0.6.0", True),
        ("modelopt", "1.0.0", True),
        ("fp8", "0.5.17", False),
        ("fp8", "0.5.18", True),
        ("fp8", "0.6.0", True),
        ("fp8", "0.4.99", False),
        ("compressed-tensors", "0.5.18", False),
        ("compressed-tensors", "0.5.19", True),
        ("fp8", None, True),
        ("awq", None, False),
    ],
)
def test_versions_that_take_the_caches_dtype_from_the_checkpoint(
    method: str, version: str | None, is_read: bool
) -> None:
    """kv_cache_quant_algo of modelopt from 0.5.3 and of fp8 from 0.5.18, kv_cache_scheme from
    0.5.19.
    """
    quantized = dataclasses.replace(
        model(GQA), kv_dtype="fp8", quantization=Quantization(method, ())
    )
    assert ENGINE.checkpoint_cache_dtype(quantized, version) == ("fp8" if is_read else None)
    assert (
        ENGINE.checkpoint_cache_dtype(dataclasses.replace(quantized, kv_dtype="fp4"), version)
        is None
    )
    assert (
        ENGINE.checkpoint_cache_dtype(dataclasses.replace(quantized, quantization=None), version)
        is None
    )


def test_some_formats_are_never_loaded() -> None:
    assert [
        method
        for method in ("awq", "mlx", "exl3", "fp8")
        if not ENGINE.loads_quantization(method, None)
    ] == ["mlx", "exl3"]


def test_tables_of_rotary_positions_are_in_fp32() -> None:
    """mrope_section needs four times the positions."""
    tables = RopeTable("full", 1000, 64), RopeTable("mrope", 500, 32)
    held = HeldWeights(dtype("bf16"), "bf16", lambda layer, role, name: 16)
    rope, kv_b, *_ = ENGINE.extra_weights(
        model(GQA, tables=tables), SglangArgs(dtype("bf16"), dtype("bf16")), held
    )
    assert (rope.name, rope.size) == ("weights_rope_tables", 1000 * 64 * 4 + 4 * 500 * 32 * 4)
    assert (kv_b.name, kv_b.size) == ("weights_absorbed_kv_b", 0)


@pytest.mark.parametrize(("name", "width"), [("bf16", 2), ("fp32", 4)])
def test_kv_b_of_mla_is_held_twice(name: str, width: int) -> None:
    """W_kc and W_vc: 50 x 12 and 50 x 9 for each of 4 heads in 3 layers, in the model's dtype."""
    held = HeldWeights(dtype(name), name, lambda layer, role, name: 16)
    rope, kv_b, *_ = ENGINE.extra_weights(
        model(GQA, MLA), SglangArgs(dtype("bf16"), dtype("bf16")), held
    )
    assert rope.size == 0
    assert kv_b.size == 3 * 4 * 50 * (12 + 9) * width
