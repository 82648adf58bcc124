"""Quantized weights held to released checkpoints, and to the tensors that the quantizing libraries
write.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tables import each

from attncalc import load
from attncalc.config.huggingface.quantized.released import released
from attncalc.serving.weight_format import released_dtype
from attncalc.serving.weights import weights

DATA = Path(__file__).parent / "data" / "quantized"
RELEASES: list[dict[str, Any]] = json.loads((DATA / "releases.json").read_text())
PACKED: list[dict[str, Any]] = json.loads((DATA / "packed.json").read_text())
GIB = 2**30

# AutoGPTQ stores a bias of zeros for each matrix: 80 layers with q and o of 8,192 outputs, k and v
# of 1,024, gate and up of 28,672 and down of 8,192, in fp16. The header has a line for each of 80 *
# 7 * 5 + 163 tensors.
GENZ_BIASES = 80 * (2 * 8192 + 2 * 1024 + 2 * 28672 + 8192) * 2
GENZ_HEADER = 335_832
# Qwen-VL's tower, ViT-bigG: 48 layers of attention and an MLP of 8,192 with biases and two norms;
# patches of 3 * 14 * 14, 256 positions, and a resampler with 256 queries of 4,096.
VIT_LAYER = 4 * 1664**2 + 4 * 1664 + 2 * 1664 * 8192 + 8192 + 1664 + 4 * 1664
RESAMPLER = 2 * 256 * 4096 + 1664 * 4096 + 4 * (4096**2 + 4096) + 4 * 4096
VIT = 48 * VIT_LAYER + 1664 * 3 * 14 * 14 + 256 * 1664 + 2 * 1664 + RESAMPLER + 2 * 4096 + 4096**2
QWEN_BIASES = 32 * (4096 + 2 * 11008 + 4096)  # of c_proj, w1, w2 and the MLP's c_proj, again zeros
# DeepSeek-R1's prediction layer: a layer with experts, eh_proj, an embedding and a head of its own,
# three more norms.
ATTENTION = ((7168, 1536), (1536, 128 * 192), (7168, 576), (512, 128 * 256), (128 * 128, 7168))
EXPERT = ((7168, 2048), (7168, 2048), (2048, 7168))
R1_FP8 = sum(i * o for i, o in ATTENTION) + 257 * sum(i * o for i, o in EXPERT)
R1_SCALES = sum(-(-i // 128) * -(-o // 128) for i, o in (*ATTENTION, *(257 * EXPERT)))
R1_BF16 = 2 * 7168**2 + 2 * 129280 * 7168 + 5 * 7168 + 1536 + 512 + 256 * 7168
# The corrections of scores (e_score_correction_bias) of 58 layers and of the prediction layer are
# buffers in fp32.
R1_CORRECTIONS = 59 * 256 * 4
# Qwen3.6-35B-A3B's prediction layer in bf16: 256 experts and a shared one of 3 * 2,048 * 512 with
# its gate, a router, attention with a gate (q of 2 * 16 * 256), 2 KV heads of 256, and fc of 4,096
# to 2,048.
QWEN_MTP = 2 * (
    257 * 3 * 2048 * 512
    + 2048
    + 256 * 2048
    + 2048 * (8192 + 2 * 512 + 4096 + 4096)
    + 5 * 2048
    + 512
)
# Qwen3.8-Flash-Next's in bf16: the same of 3 * 2,560 * 640 with 512 experts, q of 2 * 24 * 256, an
# indexer of 4 heads and one key of 128, and mixers of 4 streams: two in the layer, with 8 columns
# to inject, and one after it.
FLASH_ATTENTION = 2560 * (12_288 + 2 * 512 + 6144 + 5 * 128) + 2 * 256 + 2 * 128
FLASH_STREAMS = 3 * 10_240 * (2 * 320 + 1) + 10_240 * 8
FLASH_MTP = (
    513 * (3 * 2560 * 640 + 2560) + FLASH_ATTENTION + FLASH_STREAMS + 2 * 2560**2 + 2560 + 10_240
)

# {config: bytes in its files that are no weights of the model as engines load it}.
BESIDE = {
    "Genz-70b-GPTQ.json": GENZ_BIASES + GENZ_HEADER,
    "Qwen-VL-Chat-Int4.json": 2 * (VIT + QWEN_BIASES),
    "deepseek-ai__DeepSeek-R1.json": R1_FP8 + 4 * R1_SCALES + 2 * R1_BF16 + R1_CORRECTIONS,
    "nvidia__Qwen3.6-35B-A3B-NVFP4.json": QWEN_MTP,
    # the parameters that are not the language model's
    "Molmo-7B-D-NF4.json": 2 * (8_021_025_280 - 7_616_075_264),
    # 16 offsets and 16 sizes of the table of n-grams, and 3 multipliers, in int64, beside the
    # prediction layer
    "RadixArk__Qwen3.8-Flash-Next-NVFP4.json": 2 * FLASH_MTP + 35 * 8,
    # the prediction layer's experts
    "deepseek-ai__DeepSeek-V4-Flash.json": 256 * 3 * 4096 * 2048 * 17 // 32,
}


def of_model(name: str) -> int:
    model = load(str(DATA / name))
    return int(weights(model, weights_dtype=released_dtype(model)).total)


@pytest.mark.parametrize(
    "release", [r for r in RELEASES if "bytes" in r], ids=lambda r: r["config"]
)
def test_weights_are_the_stored_bytes_of_a_release(release: dict[str, Any]) -> None:
    assert of_model(release["config"]) + BESIDE.get(release["config"], 0) == release["bytes"]


@pytest.mark.parametrize(
    "release", [r for r in RELEASES if "bytes" not in r], ids=lambda r: r["config"]
)
def test_weights_are_near_the_size_of_a_releases_files(release: dict[str, Any]) -> None:
    files = release.get("about") or release["gib"] * GIB
    assert of_model(release["config"]) + BESIDE.get(release["config"], 0) == pytest.approx(
        files, rel=0.004
    )


def test_deepseek_r1_has_as_many_elements_per_dtype_as_the_hub_counts() -> None:
    model = load(str(DATA / "deepseek-ai__DeepSeek-R1.json"))
    parts = {name: int(figure) for name, _, figure in weights(model, weights_dtype="fp8").parts}
    assert parts["params_fp8"] + R1_FP8 == 680_571_043_840
    assert parts["params_on_device"] - parts["params_fp8"] + R1_BF16 == 3_918_786_560
    assert (parts["bytes_fp8"] - parts["params_fp8"]) // 4 + R1_SCALES + 59 * 256 == 41_555_600


def test_kimi_k3_has_as_many_quantized_elements_as_the_hub_counts() -> None:
    """The hub counts 2,722,740,830,208 elements in 4 bits, and 57,179,884,544 in BF16 with the
    vision tower.
    """
    model = load(str(DATA / "moonshotai__Kimi-K3.json"))
    parts = {name: int(figure) for name, _, figure in weights(model, weights_dtype="mxfp4").parts}
    assert parts["params_mxfp4"] == 2_722_740_830_208
    assert parts["params_on_device"] - parts["params_mxfp4"] == pytest.approx(
        57_179_884_544 + 11_122_432, rel=0.01
    )


@each("packed", PACKED)
def test_a_matrix_has_the_bytes_that_the_library_stores(packed: dict[str, Any]) -> None:
    found = released({"model_type": "llama", "quantization_config": packed["config"]}, {})
    assert found
    assert found.quantization
    scheme = found.quantization.scheme_of(0, "mlp", "W_up")
    assert scheme
    # quant_state of bitsandbytes is JSON, whose length depends on the names of dtypes and the
    # digits of the shape;
    # hqq pads its rows of groups to a multiple of ten
    tolerance = {"bitsandbytes 0.50.2": 1, "hqq 0.2.8.post1": 256}.get(packed["library"], 0)
    assert abs(scheme.matrix_bytes(512, 384) - packed["bytes"]) <= tolerance
