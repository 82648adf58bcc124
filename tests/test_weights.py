"""Weights on one device, and the share and the reserve of a GPU's memory."""

import dataclasses
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from specs import models
from tables import each

from attncalc import AttncalcError, ModelSpec, Workload, load
from attncalc.checkpoint import CheckpointWeights, StoredDtype
from attncalc.config.gpus import gpu
from attncalc.cost.intensity import weights_read
from attncalc.cost.params import params
from attncalc.engines import find_engine
from attncalc.engines.base import EngineArgs, Limits
from attncalc.engines.pipeline import split_into_stages, stage_sizes
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.weight_format import multiplied_as
from attncalc.serving.weights import weights
from attncalc.serving.weights_read import bytes_read
from attncalc.units import GIB, dtype

# Weights


def test_weights_are_parameters_times_bytes() -> None:
    # LLaMA-2 70B: 68,976,648,192 parameters, 2 bytes each
    assert weights(load("llama2-70b")).total == 2 * 68_976_648_192


def test_weights_in_fp8_leave_embedding_head_and_norms_as_they_are() -> None:
    # embedding and head 2 * 32000 * 8192, norms (2 * 80 + 1) * 8192, all in 2 bytes; the rest in 1
    other = 2 * 32000 * 8192 + 161 * 8192
    assert (
        weights(load("llama2-70b"), weights_dtype="fp8").total
        == (68_976_648_192 - other) + 2 * other
    )


@pytest.mark.parametrize(
    ("name", "bits"),
    # bits of a weight with its share of the scales: int4 has 16 per 128, fp4 8 per 16, mxfp4 8 per
    # 32, q8_0 16 per 32
    [
        ("int4", Fraction(4 * 128 + 16, 128)),
        ("fp4", Fraction(9, 2)),
        ("mxfp4", Fraction(17, 4)),
        ("q8_0", Fraction(17, 2)),
    ],
)
def test_weights_in_groups_have_their_scales(name: str, bits: Fraction) -> None:
    other = 2 * 32000 * 8192 + 161 * 8192
    assert (
        weights(load("llama2-70b"), weights_dtype=name).total
        == (68_976_648_192 - other) * bits / 8 + 2 * other
    )


def test_weights_in_int8_have_a_scale_for_each_output_channel() -> None:
    # a layer of llama2-7b: q, k, v, o and down have 4096 outputs, gate and up 11008; 2 bytes each
    plain = weights(load("llama2-7b"), weights_dtype="fp8").total
    scales = 32 * (5 * 4096 + 2 * 11008) * 2
    assert weights(load("llama2-7b"), weights_dtype="int8").total == plain + scales


def test_weights_dtype_applies_to_all_experts_and_not_to_the_router() -> None:
    model = load("mixtral-8x7b")
    # a router 4096 x 8 a layer, norms 2 a layer and one at the end, embedding and head 32000 * 4096
    other = 32 * 4096 * 8 + 65 * 4096 + 2 * 32000 * 4096
    total = int(params(model).total)
    assert weights(model, weights_dtype="fp8").total == total - other + 2 * other
    # int4: half a byte, and 2 bytes of scale per 128
    assert weights(model, weights_dtype="int4").total == (total - other) * 33 // 64 + 2 * other


@given(models(), st.sampled_from([None, "fp8", "int8", "int4", "fp4"]))
def test_stages_add_up_to_the_model(model: ModelSpec, packed: str | None) -> None:
    """Every parameter is on exactly one pipeline stage."""
    layers = model.main.n_layers
    for pp in range(1, layers + 1):
        parts = [
            weights(stage, weights_dtype=packed).total for stage in split_into_stages(model, pp)
        ]
        assert sum(parts) == weights(model, weights_dtype=packed).total
        assert weights(model, pp=pp, weights_dtype=packed).total == max(parts)


def test_a_tied_head_is_copied_to_the_last_stage() -> None:
    model = load("gpt2")
    # gpt2's table is 50257 x 768; both ends need it
    assert (
        sum(int(params(stage).total) for stage in split_into_stages(model, 2))
        == int(params(model).total) + 50257 * 768
    )


def test_stages_are_cut_as_vllm_cuts_them() -> None:
    # vLLM's get_pp_indices: the rest goes to the stages before the last, from the back
    assert stage_sizes(61, 4) == [15, 15, 16, 15]
    assert stage_sizes(80, 3) == [27, 27, 26]


def test_an_encoder_decoder_has_no_stages() -> None:
    with pytest.raises(AttncalcError, match="encoder-decoder"):
        split_into_stages(load("t5-base"), 2)


def stored(model: ModelSpec, size: int) -> ModelSpec:
    stored = CheckpointWeights(1, 1, (StoredDtype("BF16", size // 2, size),), size)
    return dataclasses.replace(model, stored=stored)


def test_weights_as_stored_are_the_bytes_of_the_files() -> None:
    model = stored(load("llama2-7b"), 13_476_839_424 + 10)
    assert weights(model).total == 13_476_839_434
    assert weights(model).dtype == "as stored"
    # over two devices as the parameters divide: norms are whole on both
    half = int(params(model.shard(2)).total)
    assert weights(model.shard(2)).total == -(-13_476_839_434 * half // int(params(model).total))

    # over two stages: 16 layers each, the last with the final norm of 4096 more
    layer = (6_738_415_616 - 2 * 32000 * 4096 - 4096) // 32
    last = 16 * layer + 32000 * 4096 + 4096
    assert weights(model, pp=2).total == -(-13_476_839_434 * last // 6_738_415_616)


def test_weights_dtype_overrides_the_dtype_of_the_files() -> None:
    model = stored(load("llama2-7b"), 10)
    assert (
        weights(model, weights_dtype="fp8").total
        == weights(load("llama2-7b"), weights_dtype="fp8").total
    )
    assert weights(model, in_dtype="fp32").total == 4 * int(params(model).total)


# The weights that a step reads


def quantised(model: ModelSpec, size: int, of: str = "F8_E4M3") -> ModelSpec:
    """Return the model with files of `size` bytes, of which all but one element have the dtype
    `of`.
    """
    dtypes = (StoredDtype(of, size - 2, size - 2), StoredDtype("BF16", 1, 2))
    return dataclasses.replace(model, stored=CheckpointWeights(1, 2, dtypes, size))


STEP = Workload.decode(1, 4096)
TABLE = 128_256 * 4096  # llama3-8b's embedding, of which a step reads only one row


@pytest.mark.parametrize("packed", [None, "fp8", "int8", "int4", "fp4", "mxfp4", "q4_0"])
def test_a_step_reads_all_weights_but_the_embedding(packed: str | None) -> None:
    model = load("llama3-8b")
    assert (
        bytes_read(model, STEP, weights_dtype=packed)
        == weights(model, weights_dtype=packed).total - 2 * TABLE
    )


def test_a_step_reads_quantised_files_but_for_the_embedding() -> None:
    # 8.0 GB, of which the embedding has 128,256 x 4,096 x 2 B = 1,050,673,152
    model = quantised(load("llama3-8b"), 8_000_000_000)
    assert weights(model).total == 8_000_000_000
    assert bytes_read(model, STEP) == 8_000_000_000 - 1_050_673_152
    # over two devices: the bytes of one device, less half the embedding
    half = model.shard(2)
    assert bytes_read(half, STEP) == weights(half).total - 1_050_673_152 // 2
    # --weights-dtype overrides the files
    assert bytes_read(model, STEP, weights_dtype="int4") == bytes_read(
        load("llama3-8b"), STEP, weights_dtype="int4"
    )


def test_a_step_reads_plain_files_element_by_element() -> None:
    # 4 bytes each: 8,030,261,248 parameters without the embedding's 525,336,576
    size = 4 * 8_030_261_248
    stored = CheckpointWeights(1, 1, (StoredDtype("F32", size // 4, size),), size)
    assert bytes_read(dataclasses.replace(load("llama3-8b"), stored=stored), STEP) == 4 * (
        8_030_261_248 - TABLE
    )
    # one byte more in all files: its part of a step is rounded down
    longer = dataclasses.replace(load("llama3-8b"), stored=stored._replace(size=size + 1))
    assert bytes_read(longer, STEP) == 4 * (8_030_261_248 - TABLE)
    # the files also have the 10^9 elements of a vision tower, which no decode step reads
    with_tower = CheckpointWeights(
        1, 1, (StoredDtype("BF16", 9_030_261_248, 18_060_522_496),), 18_060_522_496
    )
    assert bytes_read(dataclasses.replace(load("llama3-8b"), stored=with_tower), STEP) == 2 * (
        8_030_261_248 - TABLE
    )


def test_a_step_never_reads_more_of_files_than_without_them() -> None:
    """The index has no dtypes, and its 40 GB are more than the model's parameters take."""
    model = dataclasses.replace(
        load("llama3-8b"), stored=CheckpointWeights(4, 9, (), 40_000_000_000)
    )
    assert bytes_read(model, STEP) == 2 * (8_030_261_248 - TABLE)


def test_files_smaller_than_all_but_the_matrices_are_read_in_proportion_to_parameters() -> None:
    # 2 * 10^9 B are less than embedding, head and norms in 2 bytes each, 2 * (2 * 525,336,576 + 65
    # * 4,096)
    model = quantised(load("llama3-8b"), 2_000_000_000)
    others = 2 * TABLE + 65 * 4096
    linear = 8_030_261_248 - others
    assert bytes_read(model, STEP) == linear * 2_000_000_000 // 8_030_261_248 + 2 * (others - TABLE)


def test_a_step_reads_the_experts_that_its_tokens_pick() -> None:
    # one of Mixtral's experts has 32 layers x 3 x 4096 x 14336 parameters of 1 byte in fp8; a token
    # reads 2 of 8
    model, expert = load("mixtral-8x7b"), 32 * 3 * 4096 * 14336
    step = Workload.decode(2, 9)
    fewest, every = (
        bytes_read(model, step, weights_dtype="fp8"),
        bytes_read(model, step, weights_dtype="fp8", routing="all"),
    )
    assert every - fewest == 6 * expert
    # two tokens: 8 * (1 - (6 / 8)^2) = 3.5 experts
    assert (
        bytes_read(model, step, weights_dtype="fp8", routing="expected") - fewest == 3 * expert // 2
    )
    files = quantised(model, int(weights(model, weights_dtype="fp8").total))
    assert bytes_read(files, step, routing="all") - bytes_read(files, step) == 6 * expert


@pytest.mark.parametrize(
    ("name", "layers", "experts", "gib"), [("20b", 24, 32, 12.8), ("120b", 36, 128, 60.8)]
)
def test_gpt_oss_is_as_large_as_its_checkpoint(
    name: str, layers: int, experts: int, gib: float
) -> None:
    """Model card, table 1 (arXiv:2508.10925): experts in MXFP4, 4 bits and 8 per 32 elements; the
    rest in bf16.
    """
    model, among = load(f"gpt-oss-{name}"), layers * experts * 3 * 2880**2
    narrow = weights(model, weights_dtype="mxfp4")
    assert narrow.total == 2 * (params(model).total - among) + among * 17 // 32
    assert round(int(narrow.total) / 2**30, 1) == gib
    assert (
        "is assumed for the matrices of routed experts, bf16 for everything else."
        in narrow.notes[0]
    )
    # a dtype other than the released one applies to all matrices, those of attention included
    linear = among + layers * 2880 * 2 * (4096 + 512)
    assert weights(model, weights_dtype="fp8").total == 2 * params(model).total - linear


def test_weights_are_as_released_by_default() -> None:
    model = load("gpt-oss-20b")
    request = FitRequest(model, Workload.decode(1, 100), gpu=gpu("h100-80gb"))
    assert resolve(request).weights_dtype == "mxfp4"
    assert resolve(dataclasses.replace(request, weights_dtype="fp8")).weights_dtype == "fp8"
    # the rest is in fp16
    assert resolve(request.with_workload(dtype="fp16")).weights_dtype == "mxfp4"
    assert resolve(dataclasses.replace(request, weights_dtype="bf16")).weights_dtype == "bf16"
    assert (
        resolve(dataclasses.replace(request, model=quantised(model, 10**9))).weights_dtype is None
    )
    budget_weights = memory_budget(resolve(request)).weights
    assert budget_weights is not None
    (of_model,) = (part for name, _, part in budget_weights.parts if name == "weights_model")
    assert of_model == weights(model, weights_dtype="mxfp4").total


def test_a_step_reads_released_experts_as_they_are() -> None:
    # one token reads 4 of 32 experts, each 24 layers x 3 x 2880^2, in 4 bits and 8 per 32 elements;
    # the rest is bf16
    model, step = load("gpt-oss-20b"), Workload.decode(1, 9)
    picked = 24 * 4 * 3 * 2880**2
    others = weights_read(model, step) - picked
    assert bytes_read(model, step, weights_dtype="mxfp4") == 2 * others + picked * 17 // 32


def test_a_decode_step_does_not_read_the_weights_of_cross_keys_and_values() -> None:
    # in fp8 are, per decoder layer, attention's 4 d^2, 2 d^2 of cross-attention (query and output)
    # and the MLP's 8 d^2
    model, step = load("whisper-large-v3"), Workload.decode(1, 10, source=20)
    assert (
        bytes_read(model, step, weights_dtype="fp8")
        == 2 * weights_read(model, step) - 32 * 14 * 1280**2
    )


def test_products_run_in_the_dtype_of_the_files() -> None:
    model, model_dtype = load("llama3-8b"), dtype("bf16")
    named = {
        of: multiplied_as(quantised(model, 8 * 10**9, of), model_dtype, None).name
        for of in ("F8_E4M3", "I8", "I32", "U8")
    }
    assert named == {"F8_E4M3": "fp8", "I8": "int8", "I32": "bf16", "U8": "bf16"}
    assert multiplied_as(quantised(model, 8 * 10**9), model_dtype, "int4").name == "int4"
    # in another dtype than the model's, its files are not read as they are
    assert multiplied_as(quantised(model, 8 * 10**9), dtype("fp16"), None).name == "fp16"


# The share of the memory, and the reserve


def on_gpu(engine: str, memory: int, device: str = "", **given: Any) -> EngineArgs:
    """Return an engine's arguments on a GPU of that memory and name."""
    plain = dtype("bf16")
    args: EngineArgs = find_engine(engine).args(
        plain, plain, device_memory=memory, device=device, **given
    )
    return args


@pytest.mark.parametrize(
    ("engine", "version", "text"),
    [
        ("vllm", None, "0.92"),
        ("vllm", "0.20.2", "0.92"),
        ("vllm", "0.19.0", "0.9"),
        ("vllm", "0.9.2", "0.9"),
        ("ideal", None, "1"),
        ("transformers", None, "1"),
        # 80 GiB: (81920 - (512 + 8192 * 1.5 + 128 + 256 * 2 + 58 * 8)) / 81920 = 0.8303
        ("sglang", None, "0.830"),
    ],
)
def test_the_share_an_engine_takes_is_its_own_default(
    engine: str, version: str | None, text: str
) -> None:
    assert find_engine(engine).share(on_gpu(engine, 80 * GIB, engine_version=version), 1) == text


def test_each_engine_has_its_own_limits_of_a_pass() -> None:
    # vLLM 0.33, API server: 16384 from 160 GiB, 8192 from 70 GiB but for an A100, else 2048
    assert find_engine("vllm").limits(on_gpu("vllm", 180 * GIB, "B200")) == Limits(16384, 1024)
    assert find_engine("vllm").limits(on_gpu("vllm", 79 * GIB, "H100")) == Limits(8192, 1024)
    assert find_engine("vllm").limits(on_gpu("vllm", 79 * GIB, "NVIDIA A100 80GB")) == Limits(
        2048, 256
    )
    # up to 0.8.5 an A100 of 80 GB had the defaults of an H100
    a100 = on_gpu("vllm", 79 * GIB, "NVIDIA A100 80GB", engine_version="0.8.5")
    assert find_engine("vllm").limits(a100) == Limits(8192, 1024)
    args = on_gpu("vllm", 79 * GIB, "H100", max_num_batched_tokens=512, max_num_seqs=7)
    assert find_engine("vllm").limits(args) == Limits(512, 7)
    assert (
        find_engine("sglang").limits(on_gpu("sglang", 24 * GIB, "L4")).max_num_batched_tokens
        == 4096
    )
    assert find_engine("llamacpp").limits(on_gpu("llamacpp", 24 * GIB, "L4")) == Limits(512, 1)


@each(
    ("model", "weights_dtype", "gib"),
    [
        # 48 layers of W_qkv 5120 x 10240, W_z 5120 x 6144, W_ba 5120 x 96 and W_o 6144 x 5120, 2 -
        # 9/16 B each
        (
            "qwen3.6-27b",
            "nvfp4",
            48 * (5120 * (10240 + 6144 + 96) + 6144 * 5120) * (2 - 9 / 16) / 2**30,
        ),
        ("qwen3.6-27b", "fp8", None),
        ("qwen3.6-27b", None, None),
        ("qwen3-8b", "nvfp4", None),
        # 48 layers of W_q and W_o 2048 x 4096, W_k and W_v 2048 x 512
        ("qwen3-30b-a3b", "nvfp4", 48 * 2048 * 2 * (4096 + 512) * (2 - 9 / 16) / 2**30),
    ],
)
def test_attention_may_stay_in_16_bits(
    model: str, weights_dtype: str | None, gib: float | None
) -> None:
    request = FitRequest(
        load(model),
        Workload.decode(context=4096),
        "vllm",
        gpu=gpu("h100"),
        weights_dtype=weights_dtype,
    )
    budget = memory_budget(resolve(request))
    assert budget.reserve
    parts = {part.name: part for part in budget.reserve.runtime.parts}
    found = parts.get("unquantized_weights")
    assert (None if found is None else found.high / 2**30) == pytest.approx(gib)
    assert found is None or (found.low, int(found.expected)) == (0, 0)
