"""What llama.cpp has on each GPU and on the host: the parts of small models, and the numbers of
layers that fit.
"""

import dataclasses
from typing import Any

import pytest
from asking import Ask
from llamacpp_parts import spread_over_gpus
from tables import each

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack, Workload
from attncalc.attention import Matrix
from attncalc.cost.params import params
from attncalc.engines.expert_parallel import WholeExperts
from attncalc.engines.llamacpp.log_lines import breakdown_lines
from attncalc.engines.llamacpp.offload import device_parts, held_layers
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.engines.runtime import DeviceMemory
from attncalc.hardware import Gpu
from attncalc.serving.devices import device_memory, devices_of
from attncalc.serving.offload import least_offload, with_auto_offload
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import GIB, dtype

MIB = 2**20
EXPERTS = Mlp(1536, n_experts=8, n_experts_per_token=2)
OUTSIDE = (Matrix("table", 7, 5), Matrix("projection", 1024, 64, applied_to="queries"))


def model(mlp: Mlp | None = None, count: int = 4, **fields: Any) -> ModelSpec:
    """Layers with 8 heads of 128: 24 MiB of weights in 16 bits with a dense MLP, and 4 KiB of cache
    for a token.
    """
    of_stack = {
        name: fields.pop(name) for name in ("learned_positions", "embedding_norm") if name in fields
    }
    layers = Layers("layers", count, attention=Grouped(8, 8, 128), mlp=mlp or Mlp(4096))
    stack = Stack("decoder", (layers,), 1024, **of_stack)
    return ModelSpec(
        "toy",
        "toy",
        (stack,),
        **{"vocab_size": 8192, "head": Head("lm"), "dtype": "bf16", **fields},
    )


def args(**given: Any) -> LlamacppArgs:
    return LlamacppArgs(dtype("fp16"), dtype("fp16"), **given)


def on(memory: int, of: ModelSpec | None = None, **fields: Any) -> FitRequest:
    toy = Gpu("toy", "Toy", "nobody", memory, memory, 10**12, (("bf16", 10**14),))
    given = {"gpu": toy, "reserve": 0, **fields}
    return FitRequest(of or model(), Workload.decode(1, 4096), "llamacpp", **given)


# Parts


def test_the_host_has_the_tables_and_the_gpu_of_the_output_the_head() -> None:
    whole = model(
        learned_positions=50,
        embedding_norm=True,
        extra=OUTSIDE,
        token_types=2,
        head=Head("lm", tied=False),
    )
    placed = args(n_gpu_layers=4)
    host = device_parts(whole, dataclasses.replace(placed, gpus=2))[0]
    first, second = spread_over_gpus(whole, 2, placed)
    assert [part.main.n_layers for part in (host, first, second)] == [1, 2, 1]
    assert [part.main.learned_positions for part in (host, first, second)] == [50, None, None]
    assert [part.main.embedding_norm for part in (host, first, second)] == [True, False, False]
    assert [part.token_types for part in (host, first, second)] == [2, None, None]
    assert [part.main.final_norm for part in (host, first, second)] == [False, False, True]
    assert [part.vocab_size for part in (host, first, second)] == [8192, None, 8192]
    assert [part.head and part.head.tied for part in (host, first, second)] == [None, None, True]
    # a table is looked up on the host, a matrix multiplies where the output is
    assert [part.extra for part in (host, first, second)] == [OUTSIDE, (), OUTSIDE[1:]]


def test_the_output_may_be_on_the_host() -> None:
    whole = model(head=Head("lm", tied=False), extra=OUTSIDE)
    placed = args(n_gpu_layers=0)
    host, (first,) = (
        device_parts(whole, dataclasses.replace(placed, gpus=1))[0],
        spread_over_gpus(whole, 1, placed),
    )
    assert (host.main.n_layers, first.main.n_layers) == (4, 0)
    assert (host.main.final_norm, first.main.final_norm) == (True, False)
    assert host.head == Head("lm", tied=False)  # its own matrix, beside the embedding
    assert (host.extra, first.extra, first.head, first.vocab_size) == (OUTSIDE, (), None, None)
    assert int(params(host).total) == int(params(whole).total)


def test_a_model_without_a_final_norm_has_none_on_the_last_gpu() -> None:
    whole = model()
    whole = dataclasses.replace(whole, stacks=(dataclasses.replace(whole.main, final_norm=False),))
    assert [part.main.final_norm for part in spread_over_gpus(whole, 2)] == [False, False]


def test_a_head_that_is_no_lm_head_has_no_table() -> None:
    pooler = model(head=Head("pooler"))
    host, gpus = (
        device_parts(pooler, dataclasses.replace(args(), gpus=2))[0],
        spread_over_gpus(pooler, 2, args()),
    )
    assert [part.vocab_size for part in (host, *gpus)] == [8192, None, None]
    assert [part.head for part in (host, *gpus)] == [None, None, Head("pooler")]


@pytest.mark.parametrize(
    ("n_cpu_moe", "groups", "first"), [(0, [2], 0), (1, [1, 1], 2), (2, [1, 1], 2)]
)
def test_layers_are_numbered_if_the_experts_of_some_are_on_the_host(
    n_cpu_moe: int, groups: list[int], first: int
) -> None:
    placed = args(n_cpu_moe=n_cpu_moe)
    _, second = spread_over_gpus(model(EXPERTS, 5), 2, placed)
    assert [layers.count for layers in second.main.layers] == groups
    assert second.first_layer == (3 if first else 0)


@pytest.mark.parametrize(
    ("n_cpu_moe", "without"),
    # layers 3 to 5 of a model: 0 to 2 are elsewhere
    [
        (0, []),
        (1, []),
        (3, []),
        (4, [3]),
        (5, [3, 4]),
        (6, [3, 4, 5]),
        (7, [3, 4, 5]),
        (9, [3, 4, 5]),
    ],
)
def test_the_first_layers_leave_their_experts_on_the_host(
    n_cpu_moe: int, without: list[int]
) -> None:
    groups = (
        Layers("two", 2, attention=Grouped(8, 8, 128), mlp=EXPERTS),
        Layers("one", 1, attention=Grouped(8, 8, 128), mlp=EXPERTS),
    )
    part = dataclasses.replace(model(), stacks=(Stack("decoder", groups, 1024),), first_layer=3)
    held = held_layers(part, args(n_cpu_moe=n_cpu_moe))
    number, found = 3, []
    for layers in held.main.layers:
        assert layers.count
        for _ in range(layers.count):
            if isinstance(layers.mlp, WholeExperts):
                assert (layers.mlp.n_experts, layers.mlp.n_routed) == (0, 8)
                found.append(number)
            number += 1
    assert (number, found) == (6, without)


def test_layers_without_experts_are_held_as_a_whole() -> None:
    groups = (
        Layers("dense", 1, attention=Grouped(8, 8, 128), mlp=Mlp(64)),
        Layers("plain", 1, attention=Grouped(8, 8, 128)),
        Layers("experts", 1, attention=Grouped(8, 8, 128), mlp=EXPERTS),
    )
    part = dataclasses.replace(model(), stacks=(Stack("decoder", groups, 1024),))
    held = held_layers(part, args(n_cpu_moe=3))
    assert held.main.layers[:2] == groups[:2]
    assert int(params(part).total) - int(params(held).total) == 8 * 2 * 1024 * 1536
    assert held_layers(part, args()) is part


# How many layers fit


@each(
    ("memory", "layers"),
    # 16 MiB of the head, and 24 with 16 of cache for each layer; MiB with room for norms
    [(10, 0), (15, 0), (17, 1), (55, 1), (57, 2), (97, 3), (137, 4), (176, 4), (177, 5), (500, 5)],
)
def test_the_most_layers_on_a_gpu(memory: int, layers: int) -> None:
    asked = on(memory * MIB)
    assert least_offload(asked, "n_gpu_layers") == layers
    auto = with_auto_offload(asked.with_engine_args(n_gpu_layers="auto"))
    assert auto.engine_args["n_gpu_layers"] == (layers if layers < 5 else None)


def test_no_layers_fit_beside_a_reserve_that_is_too_large() -> None:
    asked = on(10 * MIB, reserve=11 * MIB)
    assert least_offload(asked, "n_gpu_layers") is None
    assert (
        with_auto_offload(asked.with_engine_args(n_gpu_layers="auto")).engine_args["n_gpu_layers"]
        is None
    )


@each(
    ("memory", "layers"),
    # 4 layers of 8 + 48 + 16 MiB, routers and 16 of the head are 304: each layer of experts less is
    # 48
    [
        (400, 0),
        (305, 0),
        (303, 1),
        (257, 1),
        (255, 2),
        (209, 2),
        (207, 3),
        (161, 3),
        (159, 4),
        (113, 4),
        (111, None),
    ],
)
def test_the_fewest_layers_of_experts_on_the_host(memory: int, layers: int | None) -> None:
    assert least_offload(on(memory * MIB, model(EXPERTS)), "n_cpu_moe") == layers
    assert least_offload(on(memory * MIB), "n_cpu_moe") is None


# The memory of each device


def test_each_device_has_its_weights_and_its_cache() -> None:
    """3 of 4 layers and the head are on two GPUs; the host has the embedding, and a layer with its
    cache.
    """
    asked = on(GIB, gpus=2, engine_args={"n_gpu_layers": 4})
    first, second, host = device_memory(resolve(asked))
    layer, norms, table = 24 * MIB + 2 * 2 * 1024, 2 * 1024, 16 * MIB
    assert [row.name for row in (first, second, host)] == ["CUDA0", "CUDA1", "host"]
    assert [row.layers for row in (first, second, host)] == [2, 1, 1]
    assert [row.model_buffer for row in (first, second, host)] == [
        2 * layer,
        layer + table + norms,
        layer + table,
    ]
    assert [row.kv_buffer for row in (first, second, host)] == [32 * MIB, 16 * MIB, 16 * MIB]
    assert [row.compute_buffer for row in (first, second, host)] == [None, None, None]
    assert [row.outside_buffers for row in (first, second, host)] == [None, None, None]
    assert first.total == 2 * layer + 32 * MIB


def test_experts_on_the_host_are_among_its_weights() -> None:
    """48 MiB of each of 3 layers; everything else but the embedding is on the GPU."""
    gpu, host = device_memory(resolve(on(GIB, model(EXPERTS), engine_args={"n_cpu_moe": 3})))
    assert host.model_buffer == 3 * 48 * MIB + 16 * MIB
    assert gpu.model_buffer + host.model_buffer == 2 * int(params(model(EXPERTS)).total)
    assert (gpu.kv_buffer, host.kv_buffer, gpu.layers, host.layers) == (64 * MIB, 0, 4, 0)


def test_a_cache_on_the_host_is_that_of_all_layers() -> None:
    gpu, host = device_memory(resolve(on(GIB, engine_args={"no_kv_offload": True})))
    assert (gpu.kv_buffer, host.kv_buffer) == (0, 64 * MIB)


def test_compute_buffers_are_those_of_the_runtime_memory() -> None:
    gpu, host = device_memory(resolve(dataclasses.replace(on(GIB), reserve=None)))
    assert gpu.compute_buffer
    assert host.compute_buffer
    assert gpu.outside_buffers
    assert (gpu.total, host.outside_buffers) == (
        gpu.model_buffer + gpu.kv_buffer + gpu.compute_buffer + gpu.outside_buffers,
        None,
    )


def test_the_hosts_compute_buffer_is_the_same_on_every_gpu() -> None:
    resolved = resolve(dataclasses.replace(on(GIB, gpus=3), reserve=None))
    found = [
        int(float(detail.quantity))
        for device in devices_of(resolved)
        if device.budget.reserve
        for detail in device.budget.reserve.runtime.details
        if detail.name == "host_compute_buffer"
    ]
    assert found == 3 * [device_memory(resolved)[-1].compute_buffer]


def test_other_engines_and_a_given_memory_have_no_rows() -> None:
    assert device_memory(resolve(dataclasses.replace(on(GIB), engine="ideal"))) == ()
    assert device_memory(resolve(dataclasses.replace(on(GIB), kv_memory=5, reserve=None))) == ()


def test_the_breakdown_is_llama_cpps_table() -> None:
    """Sizes in MiB are rounded down; 24,576 - (110 + 3) - 7 are free."""
    title = "NVIDIA GeForce RTX 4090"
    gpu = Gpu("toy", title, "NVIDIA", 24, 24_576 * MIB, 1, (("bf16", 1),))
    rows = (
        DeviceMemory("CUDA0", 4, 100 * MIB + MIB - 1, 10 * MIB, 3 * MIB, 7 * MIB),
        DeviceMemory("host", 0, 16 * MIB, 0, 2 * MIB, None),
    )
    assert list(breakdown_lines(rows, gpu)) == [
        "common_memory_breakdown_print: | memory breakdown [MiB] | total    free    self   model "
        "  context   compute"
        "    unaccounted |",
        "common_memory_breakdown_print: |   - CUDA0 (RTX 4090)   | 24576 = 24455 + ( 113 =   100 "
        "+      10 +       3)"
        " +           7 |",
        "common_memory_breakdown_print: |   - Host               |                    18 =    16 "
        "+       0 +       2"
        "                |",
    ]
    # without a compute buffer of its own, and 16 MiB or a byte less
    for size, mib in ((16 * MIB - 1, 15), (16 * MIB, 16)):
        bare = DeviceMemory("host", 0, size, 0, None, None)
        assert list(breakdown_lines((rows[0], bare), gpu))[-1] == (
            f"common_memory_breakdown_print: |   - Host               |                    {mib} "
            f"=    {mib} +       0"
            " +       0                |"
        )
    assert list(breakdown_lines((), gpu)) == []
    assert list(breakdown_lines((rows[0]._replace(compute_buffer=None), rows[1]), gpu)) == []


def test_experts_on_the_host_are_read_in_their_own_dtype(ask: Ask) -> None:
    # 28 layers x 4 experts x 3 matrices of 2,880 x 2,880 in mxfp4, 17 B per 32 elements: 1.38 GiB.
    # Attention is in bf16
    answer = ask(
        "fit",
        "gpt-oss-120b",
        "--gpu",
        "rtx-5090",
        "--engine",
        "llamacpp",
        "--n-cpu-moe",
        "28",
        "--roofline",
    )
    assert f"reads {28 * 4 * 3 * 2880**2 * 17 / 32 / 2**30:.2f} GiB in host memory" in " ".join(
        answer.out.split()
    )
