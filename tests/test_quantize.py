"""GGUF files of every type, held to the sizes that llama.cpp printed of published files."""

import dataclasses
from collections import Counter
from pathlib import Path

import pytest
from tables import each

from attncalc import Workload, fit, load
from attncalc.config.gpus import gpu
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.engines.llamacpp.quantize import quantized
from attncalc.engines.llamacpp.tensors import model_buffers
from attncalc.errors import AttncalcError
from attncalc.ggml import FILE_TYPES
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import dtype

MODELS = Path(__file__).parent / "data" / "engine-logs" / "models"
WORKLOAD = Workload.decode(1, 4096)

PUBLISHED = [
    # llama.cpp's 'file size', and its bits per weight
    ("qwen3-14b", "q4_k_m", "8.38 GiB", 4.87),
    ("qwen3-14b", "q6_k", "11.28 GiB", 6.56),
    ("llama3.2-3b", "q4_k_m", "1.87 GiB", 5.01),
    ("llama3.1-8b", "q4_k_m", "4.58 GiB", 4.89),
    ("llama3.2-1b", "q5_k_m", "861.81 MiB", 5.85),
    ("qwen2.5-7b", "q3_k_m", "3.54 GiB", 3.99),
    ("phi-4", "q4_k_m", "8.43 GiB", 4.94),  # Q, K and V in one tensor
    ("qwen3-30b-a3b", "q4_k_m", "17.28 GiB", 4.86),  # 128 experts
    ("llama2-70b", "iq4_xs", "34.30 GiB", 4.27),
]
FILES = [
    # GB of files made with an imatrix (bartowski's Llama-3.3-70B-Instruct and
    # Llama-3.1-8B-Instruct), which have about 10 MB of vocabulary besides
    (
        "llama3.1-70b",
        {
            "iq4_nl": 40.05,
            "iq4_xs": 37.90,
            "iq3_m": 31.94,
            "iq3_xs": 29.31,
            "iq3_xxs": 27.47,
            "iq1_m": 16.75,
        },
    ),
    ("llama3.1-70b", {"iq2_m": 24.12, "iq2_s": 22.24, "iq2_xs": 21.14, "iq2_xxs": 19.10}),
    ("llama3.1-8b", {"iq3_m": 3.78, "iq3_xs": 3.52, "iq2_m": 2.95}),
]
GPT_OSS_120B = [
    # GiB of Unsloth's files, of which 13 MB are the vocabulary; ggml-org's MXFP4 file is as large
    # as Q8_0's, 63.4 GB
    ("q8_0", 59.03),
    ("mxfp4", 59.03),
    ("q6_k", 58.94),
    ("q5_k_m", 58.57),
    ("q5_k_s", 58.56),
    ("q4_k_m", 58.46),
    ("q4_k_s", 58.45),
    ("q4_1", 58.41),
    ("q4_0", 58.32),
    ("q3_k_m", 58.33),
    ("q3_k_s", 58.27),
    ("q2_k", 58.27),
]
TENSORS = [
    # llama.cpp's 'type q4_K: 193 tensors'; the Llamas have one more in F32, the factors of their
    # rotary positions
    ("llama3.1-8b", "q4_k_m", {"F32": 65, "Q4_K": 193, "Q6_K": 33}),
    ("qwen3-30b-a3b", "q4_k_m", {"F32": 241, "Q4_K": 289, "Q6_K": 49}),
    ("llama3.2-1b", "q5_k_m", {"F32": 33, "Q5_K": 96, "Q6_K": 17}),
    ("qwen3-14b", "q6_k", {"F32": 161, "Q6_K": 282}),
]


@each(("name", "file_type", "size", "bits"), PUBLISHED)
def test_a_file_has_the_published_size(name: str, file_type: str, size: str, bits: float) -> None:
    stored = quantized(load(name), file_type).stored
    assert stored
    unit = 2**30 if size.endswith("GiB") else 2**20
    # 4,685.30 MiB is 4.5755 GiB; the file has 256 bytes of rotary factors that are not counted.
    assert abs(stored.size / unit - float(size.split(maxsplit=1)[0])) <= 0.00501
    assert stored.parameters
    assert round(stored.size * 8 / stored.parameters, 2) == bits


@each(("name", "sizes"), FILES)
def test_iq_types_have_the_published_sizes(name: str, sizes: dict[str, float]) -> None:
    for file_type, size in sizes.items():
        stored = quantized(load(name), file_type).stored
        assert stored
        assert 0 <= size - stored.size / 1e9 <= 0.012


@each(("file_type", "size"), GPT_OSS_120B)
def test_every_file_of_gpt_oss_keeps_experts_in_mxfp4(file_type: str, size: float) -> None:
    stored = quantized(load("gpt-oss-120b"), file_type).stored
    assert stored
    assert 0 <= size - stored.size / 2**30 <= 0.018


@each(("name", "file_type", "types"), TENSORS)
def test_tensors_have_the_published_types(name: str, file_type: str, types: dict[str, int]) -> None:
    stored = quantized(load(name), file_type).stored
    assert stored
    assert Counter(tensor.dtype for tensor in stored.contents) == types


def test_gemmas_table_of_layer_inputs_is_quantized_and_on_the_host() -> None:
    """262,144 rows of 42 * 256 and 2,560 elements, 34 bytes per 32, and a norm; a log's file has
    7.62 GiB.
    """
    model = quantized(load(str(MODELS / "gemma-4-e4b.json")), "q8_0")
    buffers = model_buffers(model, LlamacppArgs(dtype("fp16"), dtype("fp16")))
    assert buffers["CPU_Mapped"] == 262144 * (42 * 256 + 2560) // 32 * 34 + 4 * 2560
    assert model.stored
    assert abs(model.stored.size / 2**30 - 7.62) < 0.25
    assert {t.dtype for t in model.stored.contents if "model_proj" in t.name} == {"BF16"}


def test_half_of_the_layers_have_more_bits() -> None:
    """use_more_bits(i, 32): i < 4, i >= 28, and (i - 4) % 3 == 2 between them: 6, 9, ... 27."""
    stored = quantized(load("llama3.1-8b"), "q4_k_m").stored
    assert stored
    for name in ("attn_v", "ffn_down"):
        wide = [
            int(t.name.split(".")[1])
            for t in stored.contents
            if name in t.name and t.dtype == "Q6_K"
        ]
        assert wide == [0, 1, 2, 3, *range(6, 28, 3), 28, 29, 30, 31]


def test_eight_experts_have_wider_keys_values_and_outputs() -> None:
    """llama_tensor_get_type_impl: attn_k and attn_v in Q8_0, attn_output in Q5_K."""
    stored = quantized(load("mixtral-8x7b"), "q4_k_m").stored
    assert stored
    types = {tensor.name: tensor.dtype for tensor in stored.contents}
    found = [
        types[f"blk.9.{name}.weight"] for name in ("attn_q", "attn_k", "attn_v", "attn_output")
    ]
    assert found == ["Q4_K", "Q8_0", "Q8_0", "Q5_K"]


def test_a_model_of_80_layers_has_wider_values() -> None:
    stored = quantized(load("llama2-70b"), "q3_k_s").stored
    assert stored
    assert {tensor.dtype for tensor in stored.contents if "attn_v" in tensor.name} == {"Q5_K"}


def test_rows_that_blocks_do_not_divide_have_another_type() -> None:
    """2,880 is a multiple of 32, and not of 256: Q4_K becomes Q5_0 and Q6_K Q8_0."""
    stored = quantized(load("gpt-oss-20b"), "q4_k_m").stored
    assert stored
    types = {tensor.name: tensor.dtype for tensor in stored.contents}
    # The output of attention has 64 heads x 64 = 4,096 inputs.
    names = ("token_embd", "output", "blk.0.attn_q", "blk.0.attn_output")
    assert [types[f"{name}.weight"] for name in names] == ["Q5_0", "Q8_0", "Q5_0", "Q4_K"]


@each("file_type", FILE_TYPES)
def test_every_type_fits(file_type: str) -> None:
    result = fit(
        "llama3.2-3b", gpu="12GB", engine="llamacpp", weights_dtype=file_type, context=4096
    )
    assert result.budget.weights
    assert result.budget.weights.dtype == file_type
    assert f"-{file_type.upper()}.gguf" in str(result.report)


def test_buffers_of_a_preset_are_those_of_a_published_file() -> None:
    """Llama-3.2-3B-Instruct-Q4_K_M.gguf: 1,918.35 MiB on CUDA0, which has a copy of the tied
    embedding, and 308.23.
    """
    resolved = resolve(
        FitRequest(
            load("llama3.2-3b"), WORKLOAD, "llamacpp", gpu("rtx-3060-12gb"), weights_dtype="q4_k_m"
        )
    )
    args = resolved.args
    assert isinstance(args, LlamacppArgs)
    sizes = {
        name: f"{size / 2**20:.2f}" for name, size in model_buffers(resolved.model, args).items()
    }
    assert sizes == {"CPU_Mapped": "308.23", "CUDA0": "1918.35"}
    # a Mac that was asked about before has buffers of another name
    on_a_mac = dataclasses.replace(args, device="Apple M4")
    assert [*model_buffers(resolved.model, on_a_mac)] == ["CPU_Mapped", "MTL0"]
    assert [*model_buffers(resolved.model, args)] == ["CPU_Mapped", "CUDA0"]


@each(
    ("served", "command"),
    [
        ("Qwen3-8B-Q8_0.gguf", "-m Qwen3-8B-Q3_K_M.gguf"),
        ("/models/qwen3-8b.UD-Q4_K_XL.gguf", "-m /models/qwen3-8b-Q3_K_M.gguf"),
        ("Qwen3-8B-q3_k_m.gguf", "-m Qwen3-8B-q3_k_m.gguf"),
        ("Qwen/Qwen3-8B", "-m Qwen3-8B-Q3_K_M.gguf"),
    ],
)
def test_the_command_names_a_file_of_that_type(served: str, command: str) -> None:
    of = FitRequest(
        load("qwen3-8b"),
        WORKLOAD,
        "llamacpp",
        gpu("rtx-4090"),
        weights_dtype="q3_k_m",
        served_model=served,
    )
    assert command in str(launch_command(resolve(of)))


def test_other_engines_refuse_the_types_of_gguf_files() -> None:
    with pytest.raises(AttncalcError, match="vLLM cannot load Llama 3") as error:
        fit("llama3.2-3b", gpu="12GB", engine="vllm", weights_dtype="q4_k_m")
    assert "engine='llamacpp'" in error.value.tip
    with pytest.raises(AttncalcError, match="there is no dtype 'q4_k'") as error:
        fit("llama3.2-3b", gpu="12GB", weights_dtype="q4_k")
    assert "q4_k_s" in error.value.tip
