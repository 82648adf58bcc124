"""llama.cpp's devices: which layer, tensor and matrix is on which GPU, or on the host, and in how
many bytes.

Whole models and posted logs are in test_llamacpp_offload.py.
"""

import dataclasses
from typing import Any

import pytest
from asking import refusal
from tables import each

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack
from attncalc.checkpoint import CheckpointWeights, StoredTensor
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.engines.llamacpp.placement import (
    HOST,
    Placement,
    block_count,
    float32,
    place_layers,
    placement_of,
)
from attncalc.engines.llamacpp.tensors import (
    cuda_bytes,
    host_bytes,
    largest_on_host,
    model_buffers,
    tensors_by_device,
)
from attncalc.units import dtype

F16 = LlamacppArgs(kv_dtype=dtype("f16"), dtype=dtype("f16"))


def args_of(**given: Any) -> LlamacppArgs:
    return dataclasses.replace(F16, **given)


def largest(whole: ModelSpec, args: LlamacppArgs, weights_dtype: str, *, of_head: bool) -> int:
    found = largest_on_host(whole, args, weights_dtype)
    return max((size for kind, size in found.items() if (kind == "head") == of_head), default=0)


# Layers.


@each(
    ("given", "devices", "output"),
    [
        # four layers and the output, the first of which stay on the host
        ({}, (0, 0, 0, 0), 0),
        ({"n_gpu_layers": 9}, (0, 0, 0, 0), 0),
        ({"n_gpu_layers": 5}, (0, 0, 0, 0), 0),
        ({"n_gpu_layers": 4}, (HOST, 0, 0, 0), 0),
        ({"n_gpu_layers": 1}, (HOST, HOST, HOST, HOST), 0),
        ({"n_gpu_layers": 0}, (HOST, HOST, HOST, HOST), HOST),
        # before December 2025 the output is the last that goes to a GPU
        ({"n_gpu_layers": 9, "engine_version": "b7000"}, (0, 0, 0, 0), 0),
        ({"n_gpu_layers": 5, "engine_version": "b7000"}, (0, 0, 0, 0), 0),
        ({"n_gpu_layers": 4, "engine_version": "b7000"}, (0, 0, 0, 0), HOST),
        ({"n_gpu_layers": 3, "engine_version": "b7000"}, (HOST, 0, 0, 0), HOST),
        ({"n_gpu_layers": 0, "engine_version": "b7000"}, (HOST, HOST, HOST, HOST), HOST),
        # 0, 1/5, 2/5 are below a half
        ({"gpus": 2}, (0, 0, 0, 1), 1),
        # of four: 0 and 1/4
        ({"gpus": 2, "n_gpu_layers": 4}, (HOST, 0, 0, 1), 1),
        ({"gpus": 2, "n_gpu_layers": 2}, (HOST, HOST, HOST, 0), 1),
        ({"gpus": 2, "tensor_split": (1.0, 4.0)}, (0, 1, 1, 1), 1),
        ({"gpus": 2, "tensor_split": (0.0, 1.0)}, (1, 1, 1, 1), 1),
        ({"gpus": 3, "tensor_split": (2.0, 0.0, 2.0)}, (0, 0, 0, 2), 2),
    ],
)
def test_devices_of_four_layers_and_the_output(
    given: dict[str, Any], devices: tuple[int, ...], output: int
) -> None:
    placed = placement_of(4, args_of(**given))
    assert (placed.layers, placed.output) == (devices, output)
    assert placed.on_gpus == min(given.get("n_gpu_layers", 5), 5)
    assert placed.is_partial == (HOST in (*devices, output))
    assert placed.counts() == tuple(
        devices.count(device) for device in (HOST, 0, 1, 2)[: placed.gpus + 1]
    )


def test_a_model_is_partly_on_the_host_if_a_layer_or_the_output_is() -> None:
    assert not Placement((0, 1), 1, 2, 3).is_partial
    assert Placement((HOST, 1), 1, 2, 2).is_partial
    assert Placement((0, 1), HOST, 2, 2).is_partial


def test_shares_are_32_bit_floats() -> None:
    """29 layers and the output: in 32 bits 1 / 30 + 1e-9 is 1 / 30, so layer 1 is beyond the first
    GPU's share.
    """
    first = 1 / 30 + 1e-9
    assert float32(first) == float32(1 / 30) != first
    assert place_layers(29, 2, None, (first, 1 - first)).counts() == (0, 1, 28)


@pytest.mark.parametrize(
    ("gpus", "split", "message"),
    [
        (1, (1.0, 1.0), "--tensor-split has 2 shares for 1 GPU\n"),
        (2, (1.0,), "--tensor-split has 1 shares for 2 GPUs\n"),
        (3, (1.0, 1.0), "--tensor-split has 2 shares for 3 GPUs\n"),
        (2, (0.0, 0.0), "--tensor-split has 2 shares for 2 GPUs\n"),
    ],
)
def test_shares_must_name_each_gpu_once(gpus: int, split: tuple[float, ...], message: str) -> None:
    assert str(refusal(placement_of, 4, args_of(gpus=gpus, tensor_split=split))).startswith(message)


@pytest.mark.parametrize(
    ("layers", "given", "blocks", "on_host"),
    [
        (6, {}, 6, 4),
        # a block of Falcon-H1 is attention and Mamba-2, which are two layers: 2 of 3 blocks are on
        # the host
        (6, {"model_type": "falcon_h1"}, 3, 2),
        (6, {"blocks": 3}, 3, 2),
        # a file has blocks of multi-token prediction too: 2 of 3 layers and such a block, and the
        # output
        (6, {"blocks": 7}, 7, 5),
        (6, {"model_type": "llama"}, 6, 4),
    ],
)
def test_layers_of_one_block_are_on_one_device(
    layers: int, given: dict[str, Any], blocks: int, on_host: int
) -> None:
    """-ngl 3: the output, and two blocks."""
    args = args_of(n_gpu_layers=3, **given)
    assert block_count(layers, args) == blocks
    placed = placement_of(layers, args)
    per_block = 2 if blocks == 3 else 1
    hosted = blocks - 2 if per_block == 1 else 1
    assert placed.layers == (HOST,) * (hosted * per_block) + (0,) * (layers - hosted * per_block)


# Tensors of a GGUF file.


def stored(
    name: str, kind: str = "F16", row: int = 64, size: int = 128, file: int = 0, start: int = 0
) -> StoredTensor:
    return StoredTensor(name, kind, row, size, file, start)


# Four layers, and a block of multi-token prediction that is not loaded.
NAMES = (
    "token_embd.weight",
    "token_embd_norm.weight",
    "rope_freqs.weight",
    *(
        f"blk.{i}.{name}.weight"
        for i in range(5)
        for name in ("attn_q", "ffn_gate_inp", "ffn_up_exps")
    ),
    "output_norm.weight",
    "output.weight",
)


def devices_of(name: str, *, has_head: bool = True, tied: bool = False, **given: Any) -> list[int]:
    """Return the devices that have a tensor."""
    contents = [stored(other) for other in NAMES if not (tied and other == "output.weight")]
    found = tensors_by_device(contents, args_of(blocks=5, **given), 4, has_head=has_head)
    assert set(found) == {HOST, *range(given.get("gpus", 1))}
    return [
        device for device, tensors in found.items() for tensor in tensors if tensor.name == name
    ]


@each(
    ("name", "given", "devices"),
    [
        # five blocks and the output: three are on the first of two GPUs
        ("blk.0.attn_q.weight", {"gpus": 2}, [0]),
        ("blk.2.attn_q.weight", {"gpus": 2}, [0]),
        ("blk.3.attn_q.weight", {"gpus": 2}, [1]),
        ("blk.4.attn_q.weight", {"gpus": 2}, []),
        ("token_embd.weight", {"gpus": 2}, [HOST]),
        ("token_embd_norm.weight", {"gpus": 2}, [0]),
        ("output_norm.weight", {"gpus": 2}, [1]),
        ("output.weight", {"gpus": 2}, [1]),
        ("rope_freqs.weight", {"gpus": 2}, [0, 1]),
        # a tied head is a copy of the embeddings on the GPU of the output, if that is on a GPU
        ("token_embd.weight", {"gpus": 2, "tied": True}, [HOST, 1]),
        ("token_embd.weight", {"gpus": 2, "tied": True, "has_head": False}, [HOST]),
        ("token_embd.weight", {"gpus": 2, "tied": True, "n_gpu_layers": 0}, [HOST]),
        ("token_embd_norm.weight", {"gpus": 2, "tied": True}, [0]),
        # the first block is on the host
        ("blk.0.attn_q.weight", {"n_gpu_layers": 5}, [HOST]),
        ("blk.1.attn_q.weight", {"n_gpu_layers": 5}, [0]),
        ("token_embd_norm.weight", {"n_gpu_layers": 5}, [HOST]),
        ("output.weight", {"n_gpu_layers": 5}, [0]),
        ("rope_freqs.weight", {"n_gpu_layers": 5}, [HOST, 0]),
        ("rope_freqs.weight", {}, [0]),
        ("output.weight", {"n_gpu_layers": 0}, [HOST]),
        # routed experts of the first two layers; their router stays
        ("blk.1.ffn_up_exps.weight", {"n_cpu_moe": 2}, [HOST]),
        ("blk.2.ffn_up_exps.weight", {"n_cpu_moe": 2}, [0]),
        ("blk.0.ffn_gate_inp.weight", {"n_cpu_moe": 2}, [0]),
        ("blk.4.ffn_up_exps.weight", {"n_cpu_moe": 9}, []),
        ("blk.2.ffn_up_exps.weight", {}, [0]),
    ],
)
def test_devices_of_a_tensor(name: str, given: dict[str, Any], devices: list[int]) -> None:
    assert devices_of(name, **given) == devices


def test_no_block_of_multi_token_prediction_is_loaded() -> None:
    contents = [stored(f"blk.{i}.attn_q.weight") for i in range(7)]
    devices = tensors_by_device(contents, args_of(blocks=7), 4, has_head=False)
    assert [tensor.name for tensor in devices[0]] == [f"blk.{i}.attn_q.weight" for i in range(4)]


@each(
    ("tensors", "size"),
    [
        ([], 0),
        # aligned to 128 B
        ([stored("a", "F32", 25, 100)], 128),
        ([stored("a", "F32", 32, 128)], 128),
        ([stored("a", "F32", 33, 132)], 256),
        ([stored("a", "F32", 25, 100), stored("b", "F32", 25, 100)], 256),
        # blocks of 32 elements: a row of 544 is padded by 480 elements, 15 blocks of 18 B, to 306 +
        # 270 = 576 B
        ([stored("a", "Q4_0", 544, 306)], 640),
        # 1,056 = 2 * 512 + 32 too; 33 * 34 + 15 * 34 = 1,632 B
        ([stored("a", "Q8_0", 1056, 33 * 34)], 1664),
        # rows of whole 512 elements are not padded, nor those that are not quantized
        ([stored("a", "Q8_0", 512, 16 * 34)], 640),
        ([stored("a", "Q8_0", 1024, 32 * 34)], 1152),
        ([stored("a", "Q8_0", 16384, 512 * 34)], 17408),
        ([stored("a", "F16", 544, 1088)], 1152),
    ],
)
def test_cuda_pads_and_aligns_tensors(tensors: list[StoredTensor], size: int) -> None:
    """GGML_CUDA's MATRIX_ROW_PADDING is 512 elements, and its alignment 128 B."""
    assert cuda_bytes(tensors) == size
    assert type(cuda_bytes(tensors)) is int


def test_a_file_is_mapped_from_the_first_to_the_last_of_its_tensors() -> None:
    tensors = [
        stored("a", size=50, start=100),
        stored("b", size=10, start=400),
        stored("c", size=5, start=1000, file=1),
        stored("d", size=200, start=150),
    ]
    # 100 to 410, and 1000 to 1005 of the second file
    assert host_bytes(tensors, F16) == 310 + 5
    assert host_bytes(tensors[:1], F16) == 50
    assert host_bytes([], F16) == 0
    assert host_bytes(tensors, args_of(no_mmap=True)) == 50 + 10 + 5 + 200


# Models.


D, V = 64, 70
EXPERTS = Mlp(96, gated=True, n_experts=4, n_experts_per_token=2, n_shared_experts=1)


def model(*layers: Layers, contents: tuple[StoredTensor, ...] = (), **fields: Any) -> ModelSpec:
    weights = CheckpointWeights(1, len(contents), (), 0, "GGUF", contents) if contents else None
    fields = {"vocab_size": V, "head": Head("lm"), **fields}
    return ModelSpec("toy", "toy", (Stack("decoder", layers, D),), stored=weights, **fields)


# Matrices of 64 x 64 and 64 x 100 in the first two layers; 4 x 64 x 96, 64 x 96 and 64 x 4 in three
# more.
MIXED = model(
    Layers("dense", 2, attention=Grouped(4, 2, 16), mlp=Mlp(100, gated=True)),
    Layers("experts", 3, attention=Grouped(4, 2, 16), mlp=EXPERTS),
)


@each(
    ("given", "of_head", "elements"),
    [
        ({}, False, 0),
        ({}, True, 0),
        ({"n_gpu_layers": 5}, False, 64 * 100),  # the first layer is on the host
        ({"n_gpu_layers": 4}, False, 64 * 100),
        ({"n_gpu_layers": 3}, False, 4 * 64 * 96),  # and the first with experts
        ({"n_gpu_layers": 3}, True, 0),
        ({"n_gpu_layers": 0}, True, 70 * 64),
        ({"n_gpu_layers": 0}, False, 4 * 64 * 96),
        # only experts: layers without any have nothing there
        ({"n_cpu_moe": 2}, False, 0),
        ({"n_cpu_moe": 3}, False, 4 * 64 * 96),
        ({"n_cpu_moe": 9}, False, 4 * 64 * 96),
        ({"n_cpu_moe": 9}, True, 0),
    ],
)
def test_the_largest_matrix_on_the_host(
    given: dict[str, Any], of_head: bool, elements: int
) -> None:
    """The first GPU copies it for a pass, so the compute buffer has room for it."""
    assert largest(MIXED, args_of(**given), "f16", of_head=of_head) == 2 * elements
    # 32 elements have 34 B; a row of 64 has two such blocks
    if elements % (64 * 64) == 0:
        assert largest(MIXED, args_of(**given), "q8_0", of_head=of_head) == elements // 32 * 34


def test_a_model_without_a_vocabulary_has_no_head_on_the_host() -> None:
    encoder = dataclasses.replace(MIXED, vocab_size=None, head=None)
    assert largest(encoder, args_of(n_gpu_layers=0), "f16", of_head=True) == 0


FILE = (
    stored("token_embd.weight", size=1000, start=0),
    stored("blk.0.attn_q.weight", size=300, start=1000),
    stored("blk.0.ffn_up.weight", size=700, start=1300),
    stored("blk.1.attn_q.weight", size=900, start=2000),
    stored("blk.1.ffn_up_exps.weight", size=5000, start=2900),
    stored("output.weight", size=2000, start=7900),
)
LAYERS = Layers("layers", 2, attention=Grouped(4, 2, 16), mlp=Mlp(100))
LOADED = model(LAYERS, contents=FILE)
TIED = model(LAYERS, contents=FILE[:-1])


@pytest.mark.parametrize(
    ("loaded", "given", "of_head", "size"),
    [
        (LOADED, {}, False, 0),
        (LOADED, {"n_gpu_layers": 2}, False, 700),
        (LOADED, {"n_gpu_layers": 1}, False, 5000),
        (LOADED, {"n_cpu_moe": 2}, False, 5000),
        (LOADED, {"n_gpu_layers": 1}, True, 0),
        (LOADED, {"n_gpu_layers": 0}, True, 2000),
        (TIED, {"n_gpu_layers": 0}, True, 1000),
        (model(LAYERS, contents=FILE[1:-1]), {"n_gpu_layers": 0}, True, 0),
    ],
)
def test_the_largest_tensor_of_a_file_on_the_host(
    loaded: ModelSpec, given: dict[str, Any], of_head: bool, size: int
) -> None:
    assert largest(loaded, args_of(blocks=2, **given), "f16", of_head=of_head) == size


def test_the_last_matrices_of_mlps_count_apart() -> None:
    down = stored("blk.0.ffn_down.weight", size=800, start=1300)
    found = largest_on_host(
        model(LAYERS, contents=(*FILE[:2], down)), args_of(blocks=2, n_gpu_layers=0), "f16"
    )
    assert found == {"head": 1000, "other": 300, "down": 800}
    # 100 columns of 64 elements are as large as 64 of 100
    found = largest_on_host(
        dataclasses.replace(LOADED, stored=None), args_of(blocks=2, n_gpu_layers=2), "f16"
    )
    assert found["down"] == found["other"]


@pytest.mark.parametrize(
    ("loaded", "given", "sizes"),
    [
        # 384 + 768 + 1024 + 5120 + 2048 B aligned; the embeddings are on the host
        (LOADED, {}, {"CPU_Mapped": 1000, "CUDA0": 384 + 768 + 1024 + 5120 + 2048}),
        # a tied head is on the GPU too; a model with another head, or without one, has none
        (TIED, {}, {"CPU_Mapped": 1000, "CUDA0": 384 + 768 + 1024 + 5120 + 1024}),
        (
            dataclasses.replace(TIED, head=Head("pooler")),
            {},
            {"CPU_Mapped": 1000, "CUDA0": 384 + 768 + 1024 + 5120},
        ),
        (
            dataclasses.replace(TIED, head=None),
            {},
            {"CPU_Mapped": 1000, "CUDA0": 384 + 768 + 1024 + 5120},
        ),
        # the file is mapped from the embeddings to the end of the experts
        (LOADED, {"n_cpu_moe": 2}, {"CPU_Mapped": 7900, "CUDA0": 384 + 768 + 1024 + 2048}),
        (LOADED, {"n_gpu_layers": 0}, {"CPU_Mapped": 9900}),
        # layer 0 on one GPU, layer 1 and the output on the other
        (
            LOADED,
            {"gpus": 2, "tensor_split": (1.0, 2.0)},
            {"CPU_Mapped": 1000, "CUDA0": 384 + 768, "CUDA1": 1024 + 5120 + 2048},
        ),
        (dataclasses.replace(LOADED, stored=None), {}, {}),
        (dataclasses.replace(LOADED, stored=CheckpointWeights(1, 9, (), 9)), {}, {}),
    ],
)
def test_buffers_of_a_file_have_the_names_of_the_log(
    loaded: ModelSpec, given: dict[str, Any], sizes: dict[str, int]
) -> None:
    assert model_buffers(loaded, args_of(blocks=2, **given)) == sizes


def test_two_layers_of_a_block_have_the_tensors_of_one() -> None:
    """Falcon-H1: four layers are two blocks, and a block more is one of multi-token prediction."""
    four = dataclasses.replace(LAYERS, count=4)
    everything = 384 + 768 + 1024 + 5120 + 2048
    assert model_buffers(model(four, contents=FILE), args_of(blocks=2))["CUDA0"] == everything
    prediction = (*FILE, stored("blk.2.attn_q.weight", size=10**6, start=9900))
    assert (
        model_buffers(model(LAYERS, contents=prediction), args_of(blocks=3))["CUDA0"] == everything
    )
    # without the number of blocks, there is one per layer
    assert model_buffers(model(LAYERS, contents=prediction), args_of())["CUDA0"] == everything
