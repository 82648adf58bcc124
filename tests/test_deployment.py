"""What fits on devices that differ: which of them limits, and the formulas and lines of the
result.
"""

import dataclasses
from typing import Any, NamedTuple

import pytest
from tables import each

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Sliding, Stack, Workload
from attncalc.engines.base import Pool
from attncalc.hardware import Gpu
from attncalc.quantity import Quantity, quantity, ratio
from attncalc.serving import devices as devices_module
from attncalc.serving import fit as module
from attncalc.serving.devices import Device, devices_of
from attncalc.serving.fit import (
    Deployment,
    fit,
    min_gpus,
    possible_verdict,
    sure_limits,
    with_other_gpus,
)
from attncalc.serving.memory_budget import MemoryBudget, memory_budget
from attncalc.serving.request import FitRequest, LoggedExcess, resolve
from attncalc.serving.traffic import Traffic
from attncalc.units import GIB

MIB = 2**20


def model(*groups: Layers, count: int = 4, **fields: Any) -> ModelSpec:
    """By default layers of 24 MiB in 16 bits, with 4 KiB of cache for a token."""
    layers = groups or (Layers("layers", count, attention=Grouped(8, 8, 128), mlp=Mlp(4096)),)
    return ModelSpec(
        "toy",
        "toy",
        (Stack("decoder", layers, 1024),),
        vocab_size=8192,
        head=Head("lm"),
        dtype="bf16",
        **fields,
    )


def request(
    engine: str, of: ModelSpec | None = None, *, memory: int = GIB, batch: int = 1, **fields: Any
) -> FitRequest:
    toy = Gpu("toy", "Toy", "nobody", memory, memory, 10**12, (("bf16", 10**14),))
    given = {"gpu": toy, "reserve": 0, **fields}
    return FitRequest(of or model(), Workload.decode(batch, 4096, kv_dtype="bf16"), engine, **given)


class Tokens(NamedTuple):
    """A layout of `size` bytes for each token of each sequence."""

    size: int
    max_num_seqs: int | None = None

    def needed(self, batch: int, context: int) -> int:
        return self.size * batch * context


def device(name: str, memory: int, size: int, start: int | None = None) -> Device:
    layout: Any = Tokens(size)
    begin: Any = None if start is None else Tokens(start)
    return Device(
        resolve(request("ideal")), model(), MemoryBudget(Quantity(memory)), layout, begin, name
    )


def on_devices(*devices: Device) -> Deployment:
    deployment = Deployment(resolve(request("ideal")))
    deployment.devices = list(devices)
    deployment.layouts = [each.layout for each in devices]
    return deployment


def limiting(found: Quantity | None) -> tuple[int, set[str]]:
    assert found is not None
    return int(found), {symbol.name for symbol in found.formula.symbols}


# Which device limits


def test_the_device_that_has_no_room_for_one_more_limits() -> None:
    """Of 10 each: 9, 6 and 100 bytes are free. Of 11 the first lacks 1; of 12 it lacks 11, and the
    last 100.
    """
    first, second, third = (
        device(f"gpu_{i}", memory, size)
        for i, (memory, size) in enumerate([(109, 10), (66, 6), (1100, 100)], start=1)
    )
    of = on_devices(first, second, third)
    for longest in (of.max_context(1, 1), of.max_batch(1, 1)):
        number, names = limiting(longest)
        assert number == 10
        assert {"needed", "kv_memory_gpu_1"} <= names
    assert limiting(of.max_context(1, 0))[1] >= {"needed", "kv_memory"}


def test_of_two_equal_devices_the_main_one_limits() -> None:
    of = on_devices(*(device(f"gpu_{i}", 109, 10) for i in (1, 2)))
    for main in (0, 1):
        for longest in (of.max_context(1, main), of.max_batch(1, main)):
            assert limiting(longest)[1] >= {"needed", "kv_memory"}


@each("last", [0, 1, 2, 3, 4, 5, 7, 8, 100, 2**49])
def test_the_largest_number_is_found(last: int) -> None:
    assert module._largest(lambda n: n <= last) == last


def test_from_2_to_the_50_on_there_is_no_limit() -> None:
    assert module._largest(lambda n: True) is None
    assert module._largest(lambda n: n < 2**50) == 2**50 - 1
    assert module._largest(lambda n: n <= 2**50) is None


def test_the_least_memory_decides_what_surely_fits() -> None:
    # 193 MiB less 128 of weights and 18 KiB of norms: 4,158.9 tokens of 16 KiB
    for maximum, longest in ((None, 4158), (4157, 4157), (4158, 4158), (4159, 4158)):
        of = model()
        of = dataclasses.replace(of, stacks=(dataclasses.replace(of.main, max_context=maximum),))
        assert sure_limits(resolve(request("ideal", of, memory=193 * MIB))) == (longest, 1)


def pool(tokens: int, concurrency: int) -> Pool:
    return Pool(quantity(tokens), quantity(tokens), ratio(concurrency, 1), (), ())


def test_the_fewest_tokens_are_those_of_their_device() -> None:
    of = on_devices(*(device(f"gpu_{i}", 100, 10) for i in (1, 2)))
    tightest, first = of.tightest([pool(7, 1), pool(5, 2)], 1, 1)
    assert (tightest, first.tokens, first.tokens.formula.text) == (0, 5, "kv_tokens_gpu_2")
    assert first.tokens.formula.symbols[0].meaning == "tokens on gpu 2, the fewest"
    for pools in ([pool(7, 2), pool(5, 1)], [pool(5, 2), pool(5, 1)]):
        assert of.tightest(pools, 1, 1) == (1, pools[1])


# The result


def test_each_gpu_has_its_layers_in_the_models_order() -> None:
    """Full, sliding, sliding | full, output: the first GPU has 16 + 2 x 3 MiB, the second 16 MiB.

    A layer has 4 KiB per cell: 4,096 cells, or 256 of a window and 512 of a micro-batch.
    """
    full = Layers("full", 1, attention=Grouped(8, 8, 128), mlp=Mlp(4096))
    sliding = Layers("sliding", 2, attention=Grouped(8, 8, 128, span=Sliding(256)), mlp=Mlp(4096))
    deployment = Deployment(resolve(request("llamacpp", model(full, sliding, full), gpus=2)))
    assert [layout.needed(1, 4096) for layout in deployment.layouts] == [22 * MIB, 16 * MIB]
    assert deployment.result(1, 4096).needed == 22 * MIB


def test_the_bytes_to_start_are_those_of_one_request_if_they_are_more() -> None:
    """A token takes 10 bytes on the device, and 25 or 20 in all layers."""
    deployment = Deployment(resolve(request("ideal")))
    for start, texts in (
        (25, ["start", "start", "30"]),
        (20, ["start", "20", "30"]),
        (None, ["10", "20", "30"]),
    ):
        deployment.devices = [device("", 100, 10, start)]
        deployment.layouts = [deployment.devices[0].layout]
        found = [deployment.needed(batch, 1, 0) for batch in (1, 2, 3)]
        assert [each.formula.text for each in found] == texts
        assert [int(each) for each in found] == [max(10 * batch, start or 0) for batch in (1, 2, 3)]


def test_a_cache_of_0_bytes_needs_none_to_start() -> None:
    deployment = Deployment(resolve(request("ideal")))
    deployment.devices = [device("", 100, 0)]
    deployment.layouts = [deployment.devices[0].layout]
    assert (deployment.needed(1, 1, 0), deployment.needed(1, 1, 0).formula.text) == (0, "0")


def test_figures_have_formulas_and_a_search_has_none() -> None:
    deployment = Deployment(resolve(request("ideal", batch=2)))
    result = deployment.result(2, 4096)
    assert result.needed.formula.has_symbols
    assert result.pool.tokens.formula.has_symbols
    assert not deployment.needed(2, 4096, 0).formula.has_symbols
    assert deployment.needed(2, 4096, 0) == result.needed == 2 * 64 * MIB
    (plain,) = deployment.pools(4096)
    assert plain.tokens == result.pool.tokens


def test_layers_in_turn_stay_in_their_order_on_gpus() -> None:
    """Of 4 layers the first three are on the first GPU: two with a window of 16 tokens, and one
    without.
    """
    groups = tuple(
        Layers(
            name,
            1,
            attention=Grouped(8, 8, 128, span=span) if span else Grouped(8, 8, 128),
            mlp=Mlp(4096),
        )
        for name, span in (("w", Sliding(16)), ("f", None), ("w", Sliding(16)), ("f", None))
    )
    result = fit(request("llamacpp", model(*groups), gpus=2))
    devices = devices_of(result.resolved)
    assert [each.model.main.n_layers for each in devices] == [3, 1]
    names = [each.name for each in devices]
    needed = {each.name: each.needed(1, 4096) for each in devices}
    assert int(result.needed) in needed.values()
    assert min(names, key=lambda name: GIB - needed[name]) == "gpu_1"


def test_slots_are_those_of_the_request_and_any_number_for_a_search() -> None:
    deployment = Deployment(resolve(request("llamacpp", batch=3)))
    assert [layout.max_num_seqs for layout in deployment.layouts] != []
    again = Deployment(resolve(request("ideal", batch=3)))
    assert [*again.layouts] == [each.layout for each in again.devices]
    assert [*deployment.layouts] != [each.layout for each in deployment.devices]


def test_llama_cpps_lines_end_with_the_memory_of_its_devices() -> None:
    def lines(asked: FitRequest) -> list[str]:
        return [line for line in fit(asked).log_lines if "memory_breakdown" in line]

    estimated = dataclasses.replace(request("llamacpp", memory=4 * GIB), reserve=None)
    assert len(lines(estimated)) == 3
    assert lines(request("llamacpp")) == []  # without compute buffers
    assert lines(dataclasses.replace(estimated, gpu=None, kv_memory=GIB)) == []
    assert lines(request("vllm")) == lines(request("ideal")) == []
    assert fit(request("vllm")).log_lines


def test_a_search_computes_the_stage_with_the_most_layers_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM puts the fifth layer on the stage before the last: 48 MiB do not fit in 45."""
    parts: list[int] = []

    def counted(resolved: Any, part: ModelSpec | None = None, **ends: bool) -> Any:
        parts.append(part.main.n_layers if part else 0)
        return memory_budget(resolved, part, **ends)

    monkeypatch.setattr(devices_module, "memory_budget", counted)
    asked = request("vllm", model(count=5), memory=45 * MIB, pp=4, gpu_memory_utilization="1")
    assert possible_verdict(asked) == "does_not_fit"
    assert parts == [2]


def test_what_is_not_possible_has_no_verdict() -> None:
    assert possible_verdict(request("vllm", tp=3)) is None
    assert possible_verdict(request("ideal")) == "fits"


# Other numbers of GPUs


@pytest.mark.parametrize(
    ("memory", "numbers"),
    # 4 layers of 24 MiB, the head's 16, and norms: a little more than 112
    [
        (GIB, [1, 2, 3, 4]),
        (113 * MIB, [1, 2, 3, 4]),
        (56 * MIB, [2, 3, 4]),
        (37 * MIB, [3, 4]),
        (29 * MIB, [3, 4]),
    ],
)
def test_llama_cpps_gpus_are_at_least_those_of_the_weights(memory: int, numbers: list[int]) -> None:
    assert [
        each.gpus for each in with_other_gpus(resolve(request("llamacpp", memory=memory)))
    ] == numbers


@pytest.mark.parametrize(
    ("engine", "fields", "numbers"),
    [
        ("vllm", {}, [(1, 1), (2, 2), (4, 4), (8, 8)]),
        ("vllm", {"pp": 2}, [(1, 2), (2, 4), (4, 8), (8, 16)]),
        ("vllm", {"tp": 2, "dp": 3}, [(1, 3), (2, 6), (4, 12), (8, 24)]),
        ("sglang", {"tp": 2, "attn_dp": 2}, [(2, 2), (4, 4), (8, 8), (16, 16)]),
        ("vllm", {"kv_memory": GIB, "reserve": None}, []),
        ("vllm", {"kv_memory": GIB, "reserve": None, "gpu": None}, []),
        ("llamacpp", {"kv_memory": GIB, "reserve": None}, []),
    ],
)
def test_other_engines_gpus_divide_the_heads(
    engine: str, fields: dict[str, Any], numbers: list[tuple[int, int]]
) -> None:
    found = [(each.tp, each.gpus) for each in with_other_gpus(resolve(request(engine, **fields)))]
    assert found == numbers


@pytest.mark.parametrize(
    ("memory", "fewest"),
    # weights 128 MiB, a sequence 64: halves are 96 and norms, quarters 48, eighths 24
    [(193, 1), (192, 2), (97, 2), (96, 4), (49, 4), (48, 8), (25, 8), (24, None)],
)
def test_the_fewest_gpus_are_the_first_number_with_room(memory: int, fewest: int | None) -> None:
    found = min_gpus(resolve(request("ideal", memory=memory * MIB)))
    assert found == fewest
    if found is not None:
        symbols = {symbol.name: symbol.value for symbol in found.formula.symbols}
        assert symbols["needed_at"] == 64 * MIB // found
        assert symbols["kv_memory_at"] >= symbols["needed_at"]
        assert found.formula.text == "least gpus where kv_memory_at >= needed_at"


def test_the_formula_of_the_fewest_gpus_is_that_of_the_fullest() -> None:
    """Of 4 layers and the output, 3 are on the first of two GPUs: 72 MiB of weights and 48 of
    cache.
    """
    found = min_gpus(resolve(request("llamacpp", memory=125 * MIB)))
    assert found == 2
    symbols = {symbol.name: symbol.value for symbol in found.formula.symbols}
    assert symbols["needed_at"] == 48 * MIB
    assert symbols["kv_memory_at"] == 125 * MIB - 72 * MIB - 3 * 4096


# The budget


def test_a_memory_of_0_bytes_is_a_memory() -> None:
    assert (
        memory_budget(resolve(request("ideal", gpu=None, kv_memory=0, reserve=None))).kv_memory == 0
    )


def test_what_is_short_is_what_weights_and_reserve_take_too_much() -> None:
    """128 MiB of weights and norms, and 10 of reserve."""
    weights = 128 * MIB + (4 * 2 + 1) * 2048
    for memory, short in (
        (138 * MIB, weights - 128 * MIB),
        (GIB, 0),
        (weights + 10 * MIB, 0),
        (weights, 10 * MIB),
    ):
        budget = memory_budget(resolve(request("ideal", memory=memory, reserve=10 * MIB)))
        assert (budget.short, budget.room()) == (short, memory - weights - 10 * MIB)


@pytest.mark.parametrize(
    ("size", "estimated", "excess"),
    [
        (5, 10, 5),
        (-40, 120, -40),
        (-40, 30, -30),  # no runtime memory is below 0
        (-80, 50, -30),  # 20 of 100 were taken, and stay
    ],
)
def test_a_smaller_estimate_never_becomes_less_than_nothing(
    size: int, estimated: int, excess: int
) -> None:
    assert LoggedExcess(size, 1, 100).of(estimated) == excess


@pytest.mark.parametrize(
    ("tp", "devices", "exact"), [(1, 1, True), (1, 2, False), (2, 1, False), (2, 2, True)]
)
def test_the_excess_of_a_log_is_exact_on_as_many_devices(
    tp: int, devices: int, exact: bool
) -> None:
    asked = request(
        "vllm",
        memory=24 * GIB,
        reserve=None,
        tp=tp,
        logged_excess=LoggedExcess(5 * MIB, devices, 0),
    )
    plain = memory_budget(resolve(dataclasses.replace(asked, logged_excess=None))).reserve
    found = memory_budget(resolve(asked)).reserve
    assert plain is not None
    assert found is not None
    assert found.total == plain.total + 5 * MIB
    assert plain.low < plain.total < plain.high
    if exact:
        assert found.low == found.high == found.total
    else:
        assert (found.low, found.high) == (plain.low + 5 * MIB, plain.high + 5 * MIB)


def test_requests_share_no_prefix_by_default() -> None:
    assert Traffic(5, 5).shared_tokens == 0
