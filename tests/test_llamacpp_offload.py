"""llama.cpp with a part of the model in host memory: layers, tensors and caches on each device, and
what fits.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import gguf
import pytest
from asking import Ask, results
from gguf_files import Shapes, write_gguf
from hypothesis import given
from hypothesis import strategies as st
from llamacpp_parts import spread_over_gpus
from tables import each
from test_gguf import RELEASED, dense, keys_of, outer, released

from attncalc import AttncalcError, load
from attncalc.config.gpus import gpu
from attncalc.cost.params import params
from attncalc.engines.llamacpp.log_lines import breakdown_lines
from attncalc.engines.llamacpp.offload import device_parts, held_layers
from attncalc.engines.llamacpp.options import ALL_LAYERS, LlamacppArgs, first_layers
from attncalc.engines.llamacpp.placement import HOST, place_layers
from attncalc.engines.llamacpp.tensors import tensors_by_device
from attncalc.engines.runtime import DeviceMemory
from attncalc.model import ModelSpec
from attncalc.serving.devices import device_memory
from attncalc.serving.fit import fit
from attncalc.serving.launch import launch_command
from attncalc.serving.offload import least_offload, with_auto_offload
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.weights import weights
from attncalc.units import GIB
from attncalc.workload import Workload

FACTS = json.loads((Path(__file__).parent / "data" / "llamacpp" / "offload-logs.json").read_text())
MIB = 2**20
Type = gguf.GGMLQuantizationType
pytestmark = pytest.mark.usefixtures("headers_only")

MODELS = {
    **RELEASED,
    "mistral-7b-v0.1": released(
        "llama",
        keys_of(4096, 32768, 32, 8),
        outer(4096, 32000),
        32 * [dense(4096, 4096, 1024, 14336)],
    ),
    "bge-small": released(
        "bert",
        {"embedding_length": 384, "context_length": 512, "attention.head_count": 12},
        {
            "token_embd": (384, 30522),
            "position_embd": (384, 512),
            "token_types": (384, 2),
            "token_embd_norm": (384,),
            "token_embd_norm.bias": (384,),
        },
        12
        * [
            {
                **{f"attn_{letter}": (384, 384) for letter in "qkv"},
                **{f"attn_{letter}.bias": (384,) for letter in "qkv"},
                "attn_output": (384, 384),
                "attn_output.bias": (384,),
                "ffn_up": (384, 1536),
                "ffn_up.bias": (1536,),
                "ffn_down": (1536, 384),
                "ffn_down.bias": (384,),
                **{
                    f"{name}_norm{part}": (384,)
                    for name in ("attn_output", "layer_output")
                    for part in ("", ".bias")
                },
            }
        ],
    ),
}


def more_bits(layer: int, layers: int) -> bool:
    """Whether Q4_K_M stores V and the MLP's down projection of a layer in Q6_K (use_more_bits in
    llama-quant.cpp).
    """
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def types_of(shapes: Shapes, mix: str, layers: int) -> dict[str, Type]:
    """Return the type of each tensor as llama-quantize chooses it."""
    types = {}
    for name, shape in shapes.items():
        block = int(name.split(".")[1]) if name.startswith("blk.") else 0
        better = "attn_v" in name or "ffn_down" in name
        if len(shape) == 1 or "gate_inp" in name or name.endswith(".bias") or name in F32:
            kind = "F32"
        elif mix == "MXFP4":
            kind = "MXFP4" if "_exps" in name else "Q8_0"
        elif mix in ("Q4_0", "Q4_K_M") and name == "output.weight":
            kind = "Q6_K"
        elif mix == "Q4_K_M":
            kind = "Q6_K" if better and more_bits(block, layers) else "Q4_K"
        else:
            kind = mix
        types[name] = getattr(Type, kind)
    return types


# Tables that convert_hf_to_gguf.py leaves in f32.
F32 = ("position_embd.weight", "token_types.weight")


def file_of(folder: Path, name: str, mix: str) -> Path:
    architecture, keys, shapes = MODELS[name]
    last = {tensor: shape for tensor, shape in shapes.items() if tensor.startswith("output")}
    shapes = {**{tensor: shape for tensor, shape in shapes.items() if tensor not in last}, **last}
    types = types_of(shapes, mix, keys["block_count"])
    return write_gguf(folder / f"{name}-{mix}.gguf", architecture, keys, shapes, types, data=False)


def request(
    model: ModelSpec, memory: str = "b300", context: int = 4096, gpus: int = 1, **args: Any
) -> FitRequest:
    kv_dtype = args.pop("kv", "f16")
    workload = Workload.decode(1, context, kv_dtype=kv_dtype)
    return FitRequest(
        model, workload, engine="llamacpp", gpu=gpu(memory), gpus=gpus, engine_args=args
    )


# Posted logs


@pytest.mark.parametrize(
    "log",
    [log for log in FACTS["logs"] if log["model"] != "bge-small"],
    ids=lambda log: f"{log['model']}-{log['types']}-{log['args']}",
)
def test_model_buffers_are_those_of_posted_logs(tmp_path: Path, log: dict[str, Any]) -> None:
    model = load(file_of(tmp_path, log["model"], log["types"]))
    asked = request(
        model, context=log.get("context", 512), engine_version=log["version"], **log["args"]
    )
    rows = device_memory(resolve(asked))
    gpu_buffer, host_buffer = rows[0].model_buffer, rows[-1].model_buffer
    # 0.03: Vulkan aligns tensors to 64 bytes and CUDA to 128
    assert gpu_buffer / MIB == pytest.approx(log["CUDA0"], abs=0.03)
    if "CPU_Mapped" in log:
        assert host_buffer / MIB == pytest.approx(log["CPU_Mapped"], abs=0.006)
    if "compute" in log:
        assert (rows[0].compute_buffer or 0) / MIB == pytest.approx(log["compute"], abs=0.01)


def test_tables_of_an_encoder_are_on_the_host(tmp_path: Path) -> None:
    log = next(log for log in FACTS["logs"] if log["model"] == "bge-small")
    model = load(file_of(tmp_path, "bge-small", "F16"))
    (part,) = spread_over_gpus(model, 1)
    assert part.stored
    assert part.stored.size / MIB == pytest.approx(log["CUDA0"], abs=0.01)
    assert model.stored
    tables = [
        tensor for tensor in model.stored.contents if tensor.name in ("token_embd.weight", *F32)
    ]
    assert sum(tensor.size for tensor in tables) / MIB == pytest.approx(
        log["CPU_Mapped"], abs=0.006
    )


def test_experts_on_the_host_are_those_of_a_posted_log(tmp_path: Path) -> None:
    fact = FACTS["differences"][0]
    model = load(file_of(tmp_path, fact["model"], fact["types"]))
    all_args: list[dict[str, Any]] = [{}, fact["args"]]
    sizes = [device_memory(resolve(request(model, **args)))[0].model_buffer for args in all_args]
    # 21 layers of 3 x 32 experts of 2880 x 2880 in MXFP4, 17 B per 32, and their biases. CUDA pads
    # rows of 2,880 elements by 192, which are 102 B, and aligns to 128 B.
    tensors = 21 * 3 * 32 * (2880 * 2880 // 32 * 17 + 2880 * 4)
    assert 0 < sizes[0] - sizes[1] - tensors < 21 * 3 * (102 + 128)
    assert (sizes[0] - sizes[1]) / MIB == pytest.approx(fact["more_on_gpu_without"], abs=0.01)


@pytest.mark.parametrize(
    "engine_args", [{"n_cpu_moe": 21}, {"override_tensor": "exps=CPU"}, {"n_gpu_layers": 4}]
)
def test_a_preset_leaves_as_much_on_the_host_as_its_file(
    tmp_path: Path, engine_args: dict[str, Any]
) -> None:
    """Biases of experts are moved with them: in both they are named 'blk.0.ffn_up_exps.bias'."""
    fact = FACTS["differences"][0]
    file = request(load(file_of(tmp_path, fact["model"], fact["types"])), **engine_args)
    preset = dataclasses.replace(file, model=load(fact["model"]), weights_dtype="mxfp4")
    moved = []
    for asked in (file, preset):
        all_on_gpu = dataclasses.replace(asked, engine_args={})
        buffers = [device_memory(resolve(one))[0].model_buffer for one in (all_on_gpu, asked)]
        moved.append(buffers[0] - buffers[1])
    # the file has other matrices in other types
    assert moved[0] == pytest.approx(moved[1], rel=0.0001)


@pytest.mark.parametrize("fact", FACTS["caches"], ids=lambda fact: fact["source"])
def test_caches_are_with_their_layers(fact: dict[str, Any]) -> None:
    new = int(fact["version"][1:]) > 7480
    placed = place_layers(fact["layers"], 1, fact["n_gpu_layers"], output_first=new)
    every = fact["full_attention_every"]
    full = [place for i, place in enumerate(placed.layers) if i % every == every - 1]
    for name, device in (("CPU", HOST), ("GPU", 0)):
        assert full.count(device) * fact["kv_MiB_per_layer"] == fact["kv"][name]
    if "recurrent" in fact:
        others = [place for i, place in enumerate(placed.layers) if i % every != every - 1]
        per_layer = sum(fact["recurrent"].values()) / len(others)
        for name, device in (("CPU", HOST), ("GPU", 0)):
            assert others.count(device) * per_layer == pytest.approx(
                fact["recurrent"][name], abs=0.02
            )


# Placement


def test_the_output_counts_as_a_layer_and_goes_first() -> None:
    assert place_layers(32, 1, 25).counts() == (8, 24)
    assert place_layers(32, 1, 25).output == 0
    assert place_layers(32, 1, 1).counts() == (32, 0)
    assert place_layers(32, 1, 0).output == HOST
    assert place_layers(32, 1, 99) == place_layers(32, 1)


def test_builds_of_2025_offload_the_output_last() -> None:
    assert place_layers(32, 1, 25, output_first=False).counts() == (7, 25)
    assert place_layers(32, 1, 32, output_first=False).output == HOST
    assert place_layers(32, 1, 33, output_first=False).output == 0


def test_tensor_split_gives_each_gpu_its_share() -> None:
    # 33 with the output: 3/4 of them is up to layer 24.75, so layers 0 to 24
    assert place_layers(32, 2, None, (3, 1)).counts() == (0, 25, 7)
    assert place_layers(32, 2, None, (1, 0)).counts() == (0, 32, 0)
    assert place_layers(32, 2, None, (1, 0)).output == 0
    # with -ngl 17 the 16 layers and the output are divided, not all 33
    assert place_layers(32, 2, 17, (1, 1)).counts() == (16, 9, 7)


@given(st.integers(1, 120), st.integers(1, 8), st.integers(0, 130))
def test_layers_are_in_order_and_complete(layers: int, gpus: int, n_gpu_layers: int) -> None:
    placed = place_layers(layers, gpus, n_gpu_layers)
    assert list(placed.layers) == sorted(placed.layers)
    assert sum(placed.counts()) == layers
    assert layers + 1 - placed.layers.count(HOST) - (placed.output == HOST) == min(
        n_gpu_layers, layers + 1
    )


def test_auto_is_llama_cpps_number_of_layers_with_all_engines(ask: Ask) -> None:
    """The output and as many layers of 0.43 GB as fit beside 1 GiB of cache: the other engines take
    no such number.
    """
    command = (
        "fit",
        "llama3-8b",
        "--gpu",
        "12GB",
        "--context",
        "8192",
        "--n-gpu-layers",
        "auto",
        "--dtype",
        "bf16",
    )
    one, every = (
        ask(*command, "--engine", "llamacpp", "--json"),
        ask(*command, "--engine", "all", "--json"),
    )
    assert results(every)["concurrency"] == results(one)["concurrency"]
    assert "FITS with llama.cpp." in json.loads(every.out)["summary"]


def test_auto_has_no_effect_on_another_engine(ask: Ask) -> None:
    error = ask(
        "fit", "llama3-8b", "--gpu", "rtx-4090", "--engine", "vllm", "--n-gpu-layers", "auto"
    ).error
    assert error.startswith("error: --n-gpu-layers has no effect on engine vllm\n")


def test_only_the_routed_experts_are_taken_from_a_quantized_mixture() -> None:
    """The shared expert keeps its scheme, which the config gives by its name.

    A layer has 256 experts of three matrices of 2048 x 512 in NVFP4: 4 bits, 8 more per 16, and a
    scale in fp32.
    """
    model = load(
        Path(__file__).parent / "data" / "quantized" / "nvidia__Qwen3.6-35B-A3B-NVFP4.json"
    )
    request = FitRequest(
        model, Workload.decode(context=4096), "llamacpp", gpu("h200"), engine_args={"n_cpu_moe": 40}
    )
    resolved = resolve(request)
    args: Any = resolved.args
    (part,) = spread_over_gpus(resolved.model, 1, args)

    def size(layers: ModelSpec) -> int:
        return int(weights(resolved.model, part=layers, weights_dtype=resolved.weights_dtype).total)

    matrix = 2048 * 512 * 4 // 8 + 2048 * 512 // 16 + 4
    assert size(part) - size(held_layers(part, args)) == 40 * 256 * 3 * matrix


def test_a_block_of_falcon_h1_is_two_layers() -> None:
    """-ngl 10 of 44 blocks and the output: 9 blocks, each of an attention and a Mamba-2 layer, are
    on the GPU.
    """
    model = load("falcon-h1-7b")
    request = FitRequest(
        model,
        Workload.decode(context=4096),
        "llamacpp",
        gpu("rtx-4090"),
        engine_args={"n_gpu_layers": 10},
    )
    result = fit(request)
    assert result.budget.layers == 2 * 9
    assert any("offloaded 10/45 layers to GPU" in line for line in result.log_lines)
    assert least_offload(request, "n_gpu_layers") == 45


def test_every_tensor_is_on_one_device(tmp_path: Path) -> None:
    model = load(file_of(tmp_path, "mixtral-8x7b", "Q4_K_M"))
    assert model.stored
    args = resolve(
        request(model, gpus=3, n_gpu_layers=20, n_cpu_moe=25, tensor_split=(2.0, 1.0, 1.0))
    ).args
    assert isinstance(args, LlamacppArgs)
    devices = tensors_by_device(model.stored.contents, args, 32, has_head=True)
    names = [tensor.name for tensors in devices.values() for tensor in tensors]
    assert sorted(names) == sorted(tensor.name for tensor in model.stored.contents)
    # 33 - 20 = 13 layers are on the host, and the experts of 25
    on_host = {tensor.name for tensor in devices[HOST]}
    assert "token_embd.weight" in on_host
    assert {"blk.12.attn_q.weight", "blk.24.ffn_up_exps.weight"} <= on_host
    assert (
        not {"blk.13.attn_q.weight", "blk.13.ffn_gate_inp.weight", "blk.25.ffn_up_exps.weight"}
        & on_host
    )
    assert "output.weight" in {tensor.name for tensor in devices[2]}


def test_a_tied_head_is_copied_to_the_gpu(tmp_path: Path) -> None:
    model = load(file_of(tmp_path, "gemma3-27b", "Q8_0"))
    table = 5376 * 262208 // 32 * 34
    rows = device_memory(resolve(request(model)))
    assert rows[-1].model_buffer == table
    assert rows[0].model_buffer > table
    host = device_memory(resolve(request(model, n_gpu_layers=0)))[-1]
    assert model.stored
    assert model.stored.size <= host.model_buffer < model.stored.size + 10_000  # nothing twice


# Without a file


def test_a_preset_has_the_same_layers_on_each_device() -> None:
    # half of 32 layers and the output: K and V of a layer are 2 x 4096 x 1024 elements of 2 B
    rows = device_memory(resolve(request(load("llama3-8b"), n_gpu_layers=17)))
    assert [row.layers for row in rows] == [16, 16]
    assert [row.kv_buffer for row in rows] == 2 * [16 * 4096 * 2 * 1024 * 2]
    # the head and the last norm are on the GPU, the embedding on the host
    assert rows[0].model_buffer - rows[1].model_buffer == 2 * 4096


@each("gpus", [1, 3])
@each("n_gpu_layers", [0, 1, 5, 12, 13])
def test_a_table_of_relative_positions_is_with_the_first_layer(
    tmp_path: Path, gpus: int, n_gpu_layers: int
) -> None:
    """T5's first block has it (blk.0.attn_rel_b). All devices together have 32 * 12 values more
    than without it.
    """
    text = "d_model: 768\nn_layers: 12\nnorm: rmsnorm\nn_heads: 12\nd_ff: 3072\n"
    sizes: list[list[int]] = []
    for i, table in enumerate(("", "relative_position_buckets: 32\n")):
        file = tmp_path / f"{i}.yaml"
        file.write_text(text + table)
        resolved = resolve(request(load(file), gpus=gpus, n_gpu_layers=n_gpu_layers))
        args: Any = resolved.args
        devices = device_parts(resolved.model, args)
        sizes.append([int(params(device).total) for device in devices])
    more = [after - before for before, after in zip(*sizes, strict=True)]
    # the output is the first that goes to a GPU, and layer 0 the last
    first = 0 if n_gpu_layers < 13 else 1
    assert more == [32 * 12 if i == first else 0 for i in range(gpus + 1)]


def test_experts_of_a_preset_are_on_the_host() -> None:
    model = load("mixtral-8x7b")
    without, with_all = (device_memory(resolve(request(model, n_cpu_moe=n))) for n in (0, 32))
    experts = 32 * 8 * 3 * 4096 * 14336 * 2
    assert without[0].model_buffer - with_all[0].model_buffer == experts
    assert with_all[-1].model_buffer - without[-1].model_buffer == experts


@each(
    ("pattern", "layers"),
    [
        (".ffn_.*_exps.=CPU", ALL_LAYERS),
        # the tables are there in any case
        ("token_embd=CPU,up_exps=CPU,(gate|down)_exps=CPU", ALL_LAYERS),
        (r"blk\.[0-9]\.ffn_(gate|up|down)_exps=CPU", 10),
        (r"\.(1[0-9]|3)\.ffn_.*_exps.=CPU", None),
    ],
)
def test_patterns_of_experts_may_be_those_of_the_first_layers(
    pattern: str, layers: int | None
) -> None:
    assert first_layers(pattern) == layers


def test_a_pattern_moves_the_experts_of_its_layers(tmp_path: Path) -> None:
    experts = 8 * 4096 * 14336 * 2  # of one of three matrices in a layer
    model = load("mixtral-8x7b")
    whole, some = (
        device_memory(resolve(request(model, override_tensor=pattern)))
        for pattern in (None, r"\.(3|1\d)\..*_exps=CPU")
    )
    assert whole[0].model_buffer - some[0].model_buffer == 11 * 3 * experts  # layers 3 and 10 to 19
    # a GGUF file has the tensors, and so a part of a layer's experts
    file = load(file_of(tmp_path, "mixtral-8x7b", "Q8_0"))
    whole, some = (
        device_memory(resolve(request(file, override_tensor=p)))
        for p in (None, "(up|down)_exps=CPU")
    )
    assert whole[0].model_buffer - some[0].model_buffer == 32 * 2 * experts // 2 * 34 // 32
    with pytest.raises(
        AttncalcError, match="a part of a layer's experts, which is computed for a GGUF file only"
    ):
        fit(request(model, override_tensor="(up|down)_exps=CPU"))


def test_the_cache_is_on_the_host_without_kv_offload() -> None:
    rows = device_memory(resolve(request(load("llama3-8b"), no_kv_offload=True)))
    assert [row.kv_buffer for row in rows] == [0, 32 * 4096 * 2 * 1024 * 2]
    # So are its scores without flash attention, of 512 tokens and 32 heads: a log has 312 MiB on
    # the GPU, 2,072 here.
    flash, scores = (
        device_memory(
            resolve(
                request(
                    load("llama3-8b"), no_kv_offload=True, engine_version="b5121", flash_attn=mode
                )
            )
        )
        for mode in ("on", "off")
    )
    assert (
        int(scores[1].compute_buffer or 0) - int(flash[1].compute_buffer or 0)
        == 32 * 4096 * 512 * 4
    )
    assert scores[0].compute_buffer == flash[0].compute_buffer


# Lines of the log


def mib(size: float) -> int:
    return int(size * MIB)


def test_the_breakdown_is_the_table_of_llama_cpp() -> None:
    # as posted (find_string id 227877646), with fractions that give the same numbers rounded down
    device = dataclasses.replace(gpu("rtx-4090"), memory=mib(24077.9))
    rows = [
        DeviceMemory("CUDA0", 36, mib(17904.4), mib(384), mib(898.7), mib(3945.0)),
        DeviceMemory("host", 0, mib(58259.0), 0, mib(12.5), None),
    ]
    prefix = "common_memory_breakdown_print: | "
    assert [line.removeprefix(prefix) for line in breakdown_lines(rows, device)] == [
        "memory breakdown [MiB] | total   free     self   model   context   compute    "
        "unaccounted |",
        "  - CUDA0 (RTX 4090)   | 24077 =  945 + (19187 = 17904 +     384 +     898) +        "
        "3945 |",
        "  - Host               |                 58271 = 58259 +       0 +      12              "
        "  |",
    ]


def test_the_log_has_the_breakdown(ask: Ask) -> None:
    answer = ask(
        "fit", "llama3-70b", "--engine", "llamacpp", "--gpu", "rtx-4090", "-ngl", "12", "--json"
    )
    lines = [line for line in answer.document["log_lines"] if "breakdown" in line]
    assert [line.split("|")[1].strip() for line in lines] == [
        "memory breakdown [MiB]",
        "- CUDA0 (RTX 4090)",
        "- Host",
    ]
    given = ask(
        "fit",
        "llama3-70b",
        "--engine",
        "llamacpp",
        "--gpu",
        "rtx-4090",
        "--reserve",
        "1GiB",
        "--json",
    )
    assert not any("breakdown" in line for line in given.document["log_lines"])


def test_a_log_with_layers_on_the_host_is_compared_with_as_many(ask: Ask, tmp_path: Path) -> None:
    # 24 layers of 32 in builds of 2025; a layer of 2 x 1024 elements has 32 MiB at 8,192 tokens
    path = file_of(tmp_path, "llama3-8b", "Q8_0")
    log = f"""build: 7000 (abcdef0) with cc
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - 23592 MiB free
llama_model_loader: loaded meta data with 20 key-value pairs and 291 tensors from {path} (version GGUF V3 (latest))
load_tensors: offloaded 25/33 layers to GPU
load_tensors:        CUDA0 model buffer size =  5525.79 MiB
llama_context: n_ctx         = 8192
llama_context: n_ubatch      = 512
llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  1/1 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB
"""
    answer = ask("fit", "--log", "-", "--json", stdin=log)
    assert answer.code == 0
    document = answer.document
    assert document["agrees"] is True
    (weights,) = [estimate for estimate in document["estimates"] if estimate["name"] == "weights"]
    assert weights["inside"]


# What fits


@pytest.mark.parametrize("name", ["llama3-70b", "mixtral-8x7b", "gemma3-27b"])
def test_one_layer_more_does_not_fit(name: str) -> None:
    asked = request(load(name), "rtx-4090")
    layers = least_offload(asked, "n_gpu_layers")
    assert layers is not None
    assert 0 < layers <= load(name).main.n_layers
    assert fit(asked.with_engine_args(n_gpu_layers=layers)).verdict == "fits"
    assert fit(asked.with_engine_args(n_gpu_layers=layers + 1)).verdict != "fits"
    assert (
        with_auto_offload(asked.with_engine_args(n_gpu_layers="auto")).engine_args["n_gpu_layers"]
        == layers
    )


def test_one_layer_of_experts_more_does_not_fit() -> None:
    asked = request(load("mixtral-8x7b"), "rtx-4090")
    layers = least_offload(asked, "n_cpu_moe")
    assert layers
    assert fit(asked.with_engine_args(n_cpu_moe=layers)).verdict == "fits"
    assert fit(asked.with_engine_args(n_cpu_moe=layers - 1)).verdict != "fits"


def test_a_model_that_fits_needs_nothing_on_the_host() -> None:
    asked = request(load("mixtral-8x7b"), "b300")
    assert (least_offload(asked, "n_gpu_layers"), least_offload(asked, "n_cpu_moe")) == (33, 0)
    assert least_offload(request(load("llama3-8b")), "n_cpu_moe") is None
    assert (
        with_auto_offload(asked.with_engine_args(n_gpu_layers="auto")).engine_args["n_gpu_layers"]
        is None
    )


@given(st.integers(0, 33))
def test_a_layer_more_on_the_gpu_never_needs_less_of_it(layers: int) -> None:
    model = load("mixtral-8x7b")
    sizes = [
        device_memory(resolve(request(model, n_gpu_layers=n)))[0] for n in (layers, layers + 1)
    ]
    assert sizes[0].model_buffer + sizes[0].kv_buffer <= sizes[1].model_buffer + sizes[1].kv_buffer


def test_experts_on_the_host_end_the_copies_of_several_gpus() -> None:
    # pipeline parallelism, and with it the four copies of each input, needs everything on the GPUs
    model = load("mixtral-8x7b")
    all_there, partly = (
        device_memory(resolve(request(model, gpus=2, n_cpu_moe=n))) for n in (0, 1)
    )
    # of the host's inputs those are the masks: 3 more of 2 B * 4,096 cells * 512 tokens
    assert (all_there[-1].compute_buffer or 0) - (
        partly[-1].compute_buffer or 0
    ) == 3 * 2 * 4096 * 512


# The command


def test_fit_takes_llama_cpp_for_a_gguf_file(ask: Ask, tmp_path: Path) -> None:
    path = file_of(tmp_path, "llama3-8b", "Q4_K_M")
    answer = ask("fit", str(path), "--gpu", "rtx-4090", "-c", "8192", "--json")
    document = answer.document
    assert document["engine"] == "llamacpp"
    assert results(answer)["model_buffer"] / MIB == pytest.approx(4403.49, abs=0.01)
    assert document["launch_command"] == f"llama-server -m {path} -c 8192 -np 1 -ngl 999"
    lines = document["log_lines"]
    assert "load_tensors: offloaded 33/33 layers to GPU" in lines
    assert "load_tensors:        CUDA0 model buffer size =  4403.49 MiB" in lines
    assert "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB" in lines
    assert [row["name"] for row in document["devices"]] == ["CUDA0", "host"]


def test_fit_suggests_layers_and_experts_for_the_host(ask: Ask, tmp_path: Path) -> None:
    path = file_of(tmp_path, "mixtral-8x7b", "Q4_K_M")
    answer = ask("fit", str(path), "--gpu", "rtx-4090", "-c", "8192", "--json")
    assert answer.code == 1
    found, suggestions = results(answer), answer.document["suggestions"]
    flags = {suggestion["flag"]: suggestion["launch_command"] for suggestion in suggestions}
    layers, experts = found["max_n_gpu_layers"], found["min_n_cpu_moe"]
    assert flags[f"--n-gpu-layers {layers}"].endswith(f"-ngl {layers}")
    assert flags[f"--n-cpu-moe {experts}"].endswith(f"-ngl 999 --n-cpu-moe {experts}")
    assert not any("--weights-dtype" in flag for flag in flags)  # another file has other weights
    for flag in (f"--n-gpu-layers {layers}", f"--n-cpu-moe {experts}"):
        assert ask("fit", str(path), "--gpu", "rtx-4090", "-c", "8192", *flag.split()).code == 0


def test_the_screen_has_a_row_per_device(ask: Ask) -> None:
    answer = ask(
        "fit",
        "llama3-70b",
        "--engine",
        "llamacpp",
        "--gpu",
        "rtx-4090",
        "--gpus",
        "2",
        "-ngl",
        "20",
    )
    rows = [
        line.split()[0] for line in answer.out.splitlines() if line.startswith(("  CUDA", "  host"))
    ]
    assert rows == ["CUDA0", "CUDA1", "host"]
    assert len(answer.out.splitlines()) <= 30


def test_auto_is_the_most_layers_that_fit(ask: Ask) -> None:
    common = (
        "fit",
        "llama3-70b",
        "--engine",
        "llamacpp",
        "--gpu",
        "h100-80gb",
        "-c",
        "8192",
        "--json",
    )
    layers = results(ask(*common))["max_n_gpu_layers"]
    assert f"-ngl {layers}" in ask(*common, "-ngl", "auto").document["launch_command"]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (("--gpu", "rtx-4090", "-ngl", "99"), ""),  # all 36 layers are on the GPU already
        (
            ("--gpu", "rtx-4090", "-ngl", "20"),
            "--n-gpu-layers can be left out: all layers fit on the GPU.",
        ),
        (("--gpu", "6GB", "-ngl", "20"), "keeps all layers on the GPU."),
    ],
)
def test_advice_about_the_host_is_of_layers_that_need_not_be_there(
    ask: Ask, options: tuple[str, ...], advice: str
) -> None:
    lines = ask(
        "fit", "qwen3-8b", "--weights-dtype", "q4_k_m", "-c", "8192", *options
    ).out.splitlines()
    assert [line.endswith(advice) for line in lines if "all layers" in line] == (
        [True] if advice else []
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-ngl", "many"), "-ngl: 'many' is not a number of layers"),
        (("-ngl", "-1"), "is not a number of layers"),
        (("--tensor-split", "1,1"), "--tensor-split has 2 shares for 1 GPU"),
        (("--tensor-split", "0"), "--tensor-split: all shares are 0"),
        (("--tensor-split", "a"), "--tensor-split: 'a' is not a number"),
        (("--cpu-moe", "--n-cpu-moe", "3"), "--cpu-moe cannot be combined with --n-cpu-moe"),
        (("-ot", "(exps=CPU"), "-ot: '(exps=CPU' has no pattern"),
        # searches that would take forever: 2^27 ways to match a tensor's name
        (("-ot", "(.|.)*exps=CPU"), "may take too long to search for"),
        (("-ot", "((a+))+exps=CPU"), "may take too long to search for"),
        (("-ot", "(.?){30}exps=CPU"), "may take too long to search for"),
        (("-ot", ".?" * 26 + "exps=CPU"), "may take too long to search for"),
        (("-ot", ".*.*.*.*.*exps=CPU"), "may take too long to search for"),
        (("-ot", ",".join(["f.*f.*exps=CPU"] * 21)), "may take too long to search for"),
        (("-ot", "exps=CUDA1"), "only routed experts can be moved, to the CPU"),
        (("-ot", "blk.1.*=CPU"), "only routed experts can be moved, to the CPU"),
    ],
)
def test_options_that_say_nothing_are_errors(
    ask: Ask, options: tuple[str, ...], message: str
) -> None:
    assert (
        message
        in ask("fit", "mixtral-8x7b", "--engine", "llamacpp", "--gpu", "rtx-4090", *options).error
    )


def test_the_options_need_llama_cpp_and_a_gpu(ask: Ask) -> None:
    error = ask(
        "fit", "llama3-8b", "--engine", "vllm", "--gpu", "rtx-4090", "--n-gpu-layers", "20"
    ).error
    assert "--n-gpu-layers has no effect on engine vllm" in error
    error = ask(
        "fit", "llama3-8b", "--engine", "llamacpp", "--kv-memory", "4GiB", "--n-gpu-layers", "20"
    ).error
    assert "--n-gpu-layers needs --gpu" in error


def test_the_launch_command_has_the_options() -> None:
    args: dict[str, Any] = {
        "n_gpu_layers": 20,
        "n_cpu_moe": 4,
        "tensor_split": (3.0, 1.5),
        "no_kv_offload": True,
    }
    for version, option in (("b10113", "--no-mmap"), ("v0.5.0", "--load-mode none")):
        asked = request(load("mixtral-8x7b"), gpus=2, no_mmap=True, engine_version=version, **args)
        assert (launch_command(resolve(asked)) or "").endswith(
            f"-ngl 20 --n-cpu-moe 4 -ts 3,1.5 -nkvo {option}"
        )
    command = launch_command(
        resolve(request(load("mixtral-8x7b"), override_tensor=r"\.9\..*exps=CPU"))
    )
    assert command is not None
    assert command.endswith(r"-ngl 999 -ot '\.9\..*exps=CPU'")
    command = launch_command(resolve(request(load("mixtral-8x7b"), n_cpu_moe=10**6)))
    assert command is not None
    assert command.endswith("-ngl 999 --cpu-moe")


def test_shares_must_name_every_gpu() -> None:
    with pytest.raises(AttncalcError, match="--tensor-split has 3 shares for 2 GPUs"):
        fit(request(load("llama3-8b"), gpus=2, tensor_split=(1.0, 1.0, 1.0)))


def test_a_given_reserve_leaves_out_the_buffers() -> None:
    asked = dataclasses.replace(request(load("llama3-8b"), n_gpu_layers=20), reserve=GIB)
    assert [row.compute_buffer for row in device_memory(resolve(asked))] == [None, None]
