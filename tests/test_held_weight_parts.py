"""What vLLM holds beside the weights of toy models: tables, copies, padding and whole blocks, each
by its rule.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from tables import each

from attncalc import Grouped, Head, Latent, Layers, Mlp, ModelSpec, Stack
from attncalc.attention import Matrix
from attncalc.attention.linear import GatedDeltaNet
from attncalc.engines.engine import HeldWeights
from attncalc.engines.vllm.held_weights import absorbed_elements, extra_weights, rounding
from attncalc.engines.vllm.options import VllmArgs
from attncalc.model import RopeTable, Tower
from attncalc.units import dtype

D, L, MIB = 1024, 3, 2**20
ROPE, KV_B, PRODUCTS = "rope tables", "absorbed kv_b", "products of MLA's matrices"
WORKSPACE, MXFP4 = "FlashInfer's MLA workspace", "padding of MXFP4 experts"
INPUTS, VOCABULARY, BLOCKS = (
    "buffer of per-layer inputs",
    "padding of the vocabulary",
    "rounding of PyTorch's allocator",
)
SMALL = Grouped(8, 2, 16)
MLA = Latent(8, 50, 12, 6, 9)


def layers(attention: Any = SMALL, mlp: Mlp | None = None, count: int = L, **fields: Any) -> Layers:
    return Layers(f"{count} layers", count, attention=attention, mlp=mlp, **fields)


def model(*groups: Layers, d: int = D, **fields: Any) -> ModelSpec:
    return ModelSpec("toy", "toy", (Stack("decoder", groups or (layers(),), d),), **fields)


def extra(
    whole: ModelSpec,
    *,
    version: str = "0.33.0",
    device: str = "NVIDIA A100",
    bits: int | Callable[[int, str, str], int] = 16,
    experts: str = "bf16",
    stored: str = "bf16",
    **args: Any,
) -> dict[str, int]:
    """Return the bytes by label. `bits` are those of every matrix, or a function of layer, role and
    matrix.
    """
    given = VllmArgs(dtype("bf16"), dtype(stored), engine_version=version, device=device, **args)
    of_matrix = bits if callable(bits) else lambda layer, role, name: bits
    found = extra_weights(whole, given, HeldWeights(dtype(stored), experts, of_matrix))
    return {part.label: int(part.size) for part in found if part.size}


def test_a_plain_model_has_nothing_beside_its_weights() -> None:
    assert extra(model()) == {}
    assert extra(model(layers(MLA))) == {}


# Rotary tables and inputs per layer


def test_rope_tables_add_up_in_the_models_dtype() -> None:
    tables = (RopeTable("full", 1000, 64), RopeTable("sliding", 10, 32))
    assert extra(model(rope_tables=tables))[ROPE] == (1000 * 64 + 10 * 32) * 2
    assert extra(model(rope_tables=tables), stored="fp32")[ROPE] == (1000 * 64 + 10 * 32) * 4


@pytest.mark.parametrize(
    ("version", "model_type", "times"),
    [
        ("0.31.0", "qwen3_vl", 4),
        ("0.32", "qwen3_vl", 1),
        ("0.33.0", "qwen3_vl", 1),
        ("0.33.0", "qwen3_5_moe", 1),
        ("0.33.0", "qwen2_5_vl", 4),
        ("0.33.0", None, 4),
    ],
)
def test_mrope_has_four_rows_per_position_but_not_for_qwen3_from_0_32(
    version: str, model_type: str | None, times: int
) -> None:
    tables = (RopeTable("mrope", 1000, 64), RopeTable("full", 10, 64))
    found = extra(model(rope_tables=tables, model_type=model_type), version=version)
    assert found == {ROPE: (times * 1000 + 10) * 64 * 2}


def test_inputs_per_layer_have_a_buffer_in_classes_with_towers() -> None:
    """48 tokens of a step x 35 layers of 256 inputs."""
    inputs, towers = (Matrix("layers_embedding", 100, 35 * 256),), (Tower("vision", 10, 1),)
    with_both = model(extra=(Matrix("other", 100, 7), *inputs), towers=towers)
    assert extra(with_both, max_num_batched_tokens=48) == {INPUTS: 48 * 35 * 256 * 2}
    assert extra(model(extra=inputs), max_num_batched_tokens=48) == {}
    assert (
        extra(model(extra=(Matrix("other", 100, 7),), towers=towers), max_num_batched_tokens=48)
        == {}
    )


# MLA


def first_three(narrow: int, wide: int = 16) -> Callable[[int, str, str], int]:
    """Return the bits of kv_b: narrow in layers 0 to 2, wide in later layers. Other matrices are
    wide.
    """
    return lambda layer, role, name: (
        narrow if (role, name) == ("attention", "W_kv_b") and layer < 3 else wide
    )


def test_quantized_kv_b_is_copied_in_the_models_dtype() -> None:
    """A latent of 50 and 8 heads of 12 + 9. The layer in the middle of a run of equal layers stands
    for all of it.
    """
    one = 50 * 8 * (12 + 9) * 2
    assert extra(model(layers(MLA)), bits=8) == {KV_B: L * one}
    assert extra(model(layers(MLA)), bits=4) == {KV_B: L * one}
    assert (
        extra(model(layers(MLA)), bits=lambda layer, role, name: 16 if name == "W_kv_b" else 8)
        == {}
    )
    assert extra(model(layers(SMALL)), bits=8) == {}
    # layers 0 to 2, and 3 to 6, of which only the first run is quantized
    mixed = model(layers(MLA), layers(dataclasses.replace(MLA, gate="head"), count=4))
    assert extra(mixed, bits=first_three(8)) == {KV_B: L * one}
    assert extra(model(layers(SMALL), layers(MLA)), bits=first_three(8)) == {}
    # layer 2 is in the middle of 5, and layer 3 in the middle of 6
    assert extra(model(layers(MLA, count=5)), bits=first_three(8)) == {KV_B: 5 * one}
    assert extra(model(layers(MLA, count=6)), bits=first_three(8)) == {}
    # a later pipeline stage begins at layer 2: its layers 2 and 3 are represented by layer 3
    assert extra(model(layers(MLA, count=1), first_layer=2), bits=first_three(8)) == {KV_B: one}
    assert extra(model(layers(MLA, count=2), first_layer=2), bits=first_three(8)) == {}


@pytest.mark.parametrize(("bits", "bytes_per_element"), [(16, 2), (8, 1), (7, None), (4, None)])
def test_v0_keeps_products_of_mla_unless_kv_b_has_4_bits(
    bits: int, bytes_per_element: int | None
) -> None:
    """8 heads x 50 x (inputs of W_Q + d_model); the rotary part of W_Q is inputs x 8 heads x 6, in
    bf16.
    """
    compressed = dataclasses.replace(MLA, q_lora_rank=70)
    for kind, inputs in ((MLA, D), (compressed, 70)):
        found = extra(model(layers(SMALL), layers(kind)), version="0.7.3", bits=bits).get(PRODUCTS)
        expected = bytes_per_element and L * (
            8 * 50 * (inputs + D) * bytes_per_element + inputs * 8 * 6 * 2
        )
        assert found == expected
        assert absorbed_elements(Stack("decoder", (), D), layers(kind)) == 8 * 50 * (inputs + D)
    assert PRODUCTS not in extra(model(layers(MLA)), version="0.8.0", bits=bits)
    assert absorbed_elements(Stack("decoder", (), D), layers(SMALL)) == 0


@pytest.mark.parametrize(
    ("version", "has_buffer"),
    [("0.11.0", False), ("0.11.1", True), ("0.11.2", True), ("0.24.0", True), ("0.25", False)],
)
def test_flashinfers_mla_workspace_is_imported_from_0_11_1_to_0_24(
    version: str, has_buffer: bool
) -> None:
    expected = {WORKSPACE: 128 * MIB} if has_buffer else {}
    assert (
        extra(model(layers(SMALL), layers(MLA)), version=version, device="NVIDIA H100") == expected
    )
    assert extra(model(layers(SMALL)), version=version, device="NVIDIA H100") == {}


@each("name", ["H100", "H200", "H800", "H20", "GH200", "B100", "B200", "B300", "A100", "L40S"])
def test_flashinfers_mla_backend_is_a_candidate_on_capability_9_and_10(name: str) -> None:
    found = extra(model(layers(MLA)), version="0.19.0", device=f"NVIDIA {name}")
    assert (WORKSPACE in found) == (name not in ("A100", "L40S"))


# MXFP4


EXPERTS = Mlp(96, gated=True, n_experts=8, n_experts_per_token=2)


def padding(per_expert: int, d: int, d_ff: int) -> int:
    """Return what 8 experts in 3 layers need beyond the checkpoint's 4.25 bits per weight."""
    return L * 8 * (per_expert - 3 * d * d_ff * 17 // 32)


@pytest.mark.parametrize(
    ("device", "d", "d_ff"),
    # 320 -> 512 and 96 -> 128; with AMD's kernels 96 -> 256; Intel's pad nothing
    [
        ("NVIDIA A100", 512, 128),
        ("", 512, 128),
        ("AMD Instinct MI300X", 512, 256),
        ("Instinct MI250", 512, 256),
        ("MI300X", 512, 256),
        ("Radeon RX 7900", 512, 256),
        ("AMD", 512, 256),
        ("Intel Data Center GPU Max", 320, 96),
        ("Arc B580", 320, 96),
    ],
)
def test_mxfp4_experts_are_padded_by_the_vendors_kernels(device: str, d: int, d_ff: int) -> None:
    dense, mixture = layers(mlp=Mlp(90)), layers(mlp=EXPERTS)
    whole = model(layers(), dense, mixture, d=320)
    expected = padding(3 * d * d_ff * 17 // 32, 320, 96)
    found = extra(whole, version="0.27.0", device=device, experts="mxfp4")
    assert found.get(MXFP4, 0) == expected
    assert extra(whole, device=device, experts="fp8") == {}


@pytest.mark.parametrize(
    ("device", "version", "model_type", "step"),
    [
        ("AMD Instinct MI355X", "0.27.0", "kimi_k3", 256),
        ("AMD Instinct MI355X", "0.28.0", "kimi_k3", 128),
        ("AMD Instinct MI350X", "0.28.0", "deepseek_v4", 128),
        ("AMD Instinct MI300X", "0.30.0", "deepseek_v4", 256),
        ("AMD Instinct MI300X", "0.31.0", "deepseek_v4", 128),
        ("AMD Instinct MI355X", "0.33.0", "gpt_oss", 256),
    ],
)
def test_newer_kernels_of_amd_pad_mxfp4_less_but_for_gpt_oss(
    device: str, version: str, model_type: str, step: int
) -> None:
    whole = dataclasses.replace(
        model(layers(), layers(mlp=Mlp(90)), layers(mlp=EXPERTS), d=320), model_type=model_type
    )
    d = -(-320 // step) * step
    expected = padding(3 * d * step * 17 // 32, 320, 96)
    assert extra(whole, version=version, device=device, experts="mxfp4")[MXFP4] == expected


def test_intels_kernels_pad_no_odd_widths_either() -> None:
    """33 x 31 elements: gate and up 1,023 B and 63 of scales, down 511 and 31; the checkpoint has
    1,630.
    """
    odd = dataclasses.replace(EXPERTS, d_ff=31)
    found = extra(model(layers(mlp=odd), d=33), device="Intel Data Center GPU Max", experts="mxfp4")
    assert found == {MXFP4: L * 8 * (1023 + 63 + 511 + 31 - 1630)}


def test_experts_of_a_latent_are_padded_by_its_width() -> None:
    latent = dataclasses.replace(EXPERTS, d_latent=130)
    found = extra(model(layers(mlp=latent), d=320), experts="mxfp4")
    assert found == {MXFP4: padding(3 * 256 * 128 * 17 // 32, 130, 96)}


@pytest.mark.parametrize(
    ("version", "d", "d_ff", "values", "scales"),
    # d_ff 96 -> 128. Values of 352 / 2 by 256 and 64 by 352; up to 0.11 and from 0.17 to 0.21 both
    # padded to 64. Scales, one for 32: 11 groups by 256 and 4 by 352 -> 512; up to 0.25 groups in
    # twos, later in fours.
    # Up to 0.24 the checkpoint's own: 256 by 11 and 352 by 4.
    [
        ("0.21.0", 352, 96, 192 * 256 + 64 * 384, 12 * 256 + 4 * 512 + 256 * 11 + 352 * 4),
        ("0.16.0", 352, 96, 176 * 256 + 64 * 352, 12 * 256 + 4 * 512 + 256 * 11 + 352 * 4),
        ("0.22", 352, 96, 176 * 256 + 64 * 352, 12 * 256 + 4 * 512 + 256 * 11 + 352 * 4),
        ("0.24.0", 352, 96, 176 * 256 + 64 * 352, 12 * 256 + 4 * 512 + 256 * 11 + 352 * 4),
        ("0.25", 352, 96, 176 * 256 + 64 * 352, 12 * 256 + 4 * 512),
        ("0.27.0", 352, 96, 176 * 256 + 64 * 352, 12 * 256 + 4 * 512),
        # 320: 10 groups, padded to 10 and 12; 150 -> 192: 6 groups, padded to 6 and 8; 384 outputs
        # to 512
        ("0.25.1", 320, 150, 160 * 384 + 96 * 320, 10 * 512 + 6 * 512),
        ("0.26", 320, 150, 160 * 384 + 96 * 320, 12 * 512 + 8 * 512),
    ],
)
def test_gpt_oss_on_hopper_has_the_layout_of_triton_kernels(
    version: str, d: int, d_ff: int, values: int, scales: int
) -> None:
    plain = dataclasses.replace(EXPERTS, d_ff=d_ff)
    with_bias = dataclasses.replace(plain, bias=True)
    options: dict[str, Any] = {"version": version, "device": "NVIDIA H100", "experts": "mxfp4"}
    found = extra(model(layers(mlp=plain), d=d, model_type="gpt_oss"), **options)
    assert found == {MXFP4: padding(values + scales, d, d_ff)}
    # biases in fp32 and padded, instead of bf16
    padded = -(-d_ff // 64) * 64
    biases = (2 * padded + d) * 4 - (2 * d_ff + d) * 2
    found = extra(model(layers(mlp=with_bias), d=d, model_type="gpt_oss"), **options)
    assert found == {MXFP4: padding(values + scales + biases, d, d_ff)}


def test_other_models_on_hopper_and_gpt_oss_elsewhere_have_marlins_layout() -> None:
    with_bias = dataclasses.replace(EXPERTS, bias=True)
    expected = {MXFP4: padding(3 * 512 * 128 * 17 // 32, 320, 96)}
    for name, kind in (
        ("NVIDIA H100", "mixtral"),
        ("NVIDIA A100", "gpt_oss"),
        ("NVIDIA B200", "gpt_oss"),
    ):
        whole = model(layers(mlp=with_bias), d=320, model_type=kind)
        assert extra(whole, device=name, experts="mxfp4") == expected


# The vocabulary


@pytest.mark.parametrize(
    ("head", "tables"),
    [(None, 1), (Head("lm"), 2), (Head("lm", tied=True), 1), (Head("pooler"), 1)],
)
def test_the_vocabulary_is_padded_to_64_rows_in_each_table(head: Head | None, tables: int) -> None:
    assert extra(model(vocab_size=100, head=head)) == {VOCABULARY: tables * 28 * D * 2}
    assert extra(model(vocab_size=128, head=head)) == {}
    assert extra(model(vocab_size=129, head=head)) == {VOCABULARY: tables * 63 * D * 2}
    # over 2 devices 50 rows become 64; the embedding has a width of its own
    assert extra(model(vocab_size=100, head=head, d_embedding=40, tp=2)) == {
        VOCABULARY: tables * 14 * 40 * 2
    }
    # over 8 devices 13 rows become 16
    assert extra(model(layers(Grouped(8, 8, 16)), vocab_size=100, head=head, tp=8)) == {
        VOCABULARY: tables * 3 * D * 2
    }


# PyTorch's allocator


@pytest.mark.parametrize(
    ("mib", "free"),
    # from 10 MiB on, blocks of 2 MiB, of which more than 1 MiB would be split off
    [(9, 0), (9.5, 0), (10, 0), (10.5, 0), (11, 1), (11.5, 0.5), (12, 0), (13, 1), (75, 1)],
)
def test_tensors_of_10_mib_get_whole_blocks_if_at_most_1_mib_stays_free(
    mib: float, free: float
) -> None:
    size = int(mib * MIB)
    assert rounding(size) == free * MIB
    # the size is rounded up to 512 bytes first
    assert rounding(size - 511) == free * MIB


def test_the_last_512_bytes_decide_whether_a_block_is_split() -> None:
    assert [rounding(size * MIB - 512) for size in (10, 11, 12)] == [0, 0, 512]
    assert [rounding(size * MIB + 512) for size in (10, 11, 12)] == [0, MIB - 512, 0]


# Rows of D elements of 2 bytes that take 11 MiB, of which PyTorch makes 12.
MIB_11 = 11 * 512


@each(
    ("of_layer", "free"),
    [
        # q, k and v are one tensor: (36 + 2 x 4) heads of 128 are 11 MiB; the output of 36 heads is
        # 9 MiB
        (layers(Grouped(36, 4, 128)), 1),
        # the gate belongs to it: 2 x 20 + 2 x 2
        (layers(Grouped(20, 2, 128, gate=True)), 1),
        # the output alone: 44 heads are 11 MiB; q, k and v 2 x 23 MiB
        (layers(Grouped(44, 1, 128)), 1 + 0.5),
        # gate and up are one tensor: 2 x 2816 rows; down is 5.5 MiB
        (layers(mlp=Mlp(MIB_11 // 2, gated=True)), 1),
        # up and down, 11 MiB each
        (layers(mlp=Mlp(MIB_11)), 1 + 1),
        # all experts are one tensor: 11 x 512 rows, gate and up 2 x 11 MiB
        (layers(mlp=Mlp(MIB_11 // 4, n_experts=4, n_experts_per_token=1)), 1 + 1),
        # two shared experts of 2816 rows; the only routed one is 5.5 MiB
        (
            layers(mlp=Mlp(MIB_11 // 2, n_experts=1, n_experts_per_token=1, n_shared_experts=2)),
            1 + 1,
        ),
        # a router of 5,632 experts is 11 MiB; experts of width 1 have as many rows
        (layers(mlp=Mlp(1, n_experts=MIB_11, n_experts_per_token=1)), 1 + 1 + 1),
        # MLA's q_a and kv_a are one tensor: 5,000 + 560 + 72 rows
        (layers(Latent(1, 560, 12, 72, 9, q_lora_rank=5000)), 1),
        # q_b, kv_b and o of 8 heads: 1024 x 8 x 704, 1024 x 8 x 704 and 8 x 352 x 1024
        (layers(Latent(8, 1024, 352, 352, 352, q_lora_rank=1024)), 1 + 1),
        # a gated delta net's q, k and v are not one tensor: 11 MiB each, and so are its gate and
        # output
        (layers(GatedDeltaNet(44, 128, 128, 4)), 1 + 1 + 1 + 1 + 1),
        (layers(GatedDeltaNet(20, 128, 128, 4, n_k_heads=2)), 0),  # together they would be 11 MiB
        # weights of layers that are counted elsewhere
        (layers(mlp=Mlp(MIB_11), shares_weights=True), 0),
    ],
)
def test_fused_tensors_of_a_layer_get_whole_blocks(of_layer: Layers, free: float) -> None:
    expected = {BLOCKS: int(L * free * MIB)} if free else {}
    assert extra(model(of_layer)) == expected
    # beside layers that need none
    assert (
        extra(model(layers(shares_weights=True), layers(mlp=None, count=5), of_layer)) == expected
    )


def test_quantized_tensors_are_as_large_as_their_elements() -> None:
    whole = model(layers(mlp=Mlp(2 * MIB_11)))
    assert extra(whole, bits=8) == {BLOCKS: L * 2 * MIB}
    assert extra(
        whole, bits=lambda layer, role, name: 8 if (layer, role, name) == (1, "mlp", "W_up") else 4
    ) == {BLOCKS: L * MIB}


@pytest.mark.parametrize(
    ("head", "tables"), [(None, 1), (Head("lm"), 2), (Head("lm", tied=True), 1)]
)
def test_the_tables_of_the_vocabulary_get_whole_blocks(head: Head | None, tables: int) -> None:
    assert extra(model(vocab_size=MIB_11, head=head)) == {BLOCKS: tables * MIB}
    # over 2 devices; and a width of its own
    assert extra(model(vocab_size=2 * MIB_11, head=head, tp=2)) == {BLOCKS: tables * MIB}
    assert extra(model(vocab_size=2 * MIB_11, head=head, d_embedding=D // 2)) == {
        BLOCKS: tables * MIB
    }
    assert extra(model(vocab_size=MIB_11, head=head), stored="fp32") == {}


def test_a_stage_without_a_vocabulary_has_no_table() -> None:
    """64 rows of that width would be 11 MiB."""
    wide = 11 * 2**13
    small = layers(Grouped(4, 1, 4))
    assert extra(model(small, d=wide)) == {}
    assert extra(model(small, d=wide, vocab_size=64)) == {BLOCKS: MIB}


def test_the_formula_has_only_tensors_that_are_rounded_up() -> None:
    """Up and down of 11 MiB in three layers, beside attention and a small vocabulary."""
    given = VllmArgs(dtype("bf16"), dtype("bf16"))
    whole = model(layers(mlp=Mlp(MIB_11)), vocab_size=64)
    *_, blocks = extra_weights(
        whole, given, HeldWeights(dtype("bf16"), "bf16", lambda layer, role, name: 16)
    )
    assert blocks.size.formula.substituted == "6 * 1048576"


def test_mxfp4_experts_have_tensors_of_values_and_scales() -> None:
    """2048 wide and 128 within, with 88 experts: values of gate and up take 22 MiB and those of
    down 11.

    Scales are 1/16 and 1/32 of the elements: 1.375 and 0.6875 MiB.
    """
    mixture = dataclasses.replace(EXPERTS, d_ff=128, n_experts=88)
    whole = model(layers(mlp=mixture), d=1024)
    assert extra(whole, experts="mxfp4") == {BLOCKS: L * MIB}
    assert extra(
        model(layers(mlp=Mlp(90)), layers(), layers(mlp=mixture), d=1024), experts="mxfp4"
    ) == {BLOCKS: L * MIB}
    # attention, shared experts and experts in another dtype are as elsewhere: q, k and v, and up
    # and down of 11 MiB
    shared = dataclasses.replace(mixture, d_ff_shared=MIB_11, gated=False)
    beside = model(layers(Grouped(36, 4, 128), shared), d=1024)
    assert extra(beside, experts="mxfp4") == {BLOCKS: L * (1 + 1 + 1 + 1) * MIB}
    latent = dataclasses.replace(mixture, d_latent=2048, n_experts=44)
    assert extra(model(layers(mlp=latent), d=1024), experts="mxfp4") == {BLOCKS: L * MIB}
