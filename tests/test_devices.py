"""The devices of a request: what each has room for, its memory, and which requests they have to
start with.
"""

import dataclasses
from typing import Any, NamedTuple

import pytest

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack, Workload
from attncalc.engines.llamacpp.engine import Llamacpp
from attncalc.engines.llamacpp.runtime import runtime
from attncalc.engines.runtime import RuntimeFacts, RuntimeMemory
from attncalc.hardware import Gpu
from attncalc.quantity import Quantity
from attncalc.serving.devices import Device, devices_of, each_device, layout_per_device
from attncalc.serving.memory_budget import MemoryBudget, Reserve
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import GIB

MIB = 2**20


def model(count: int = 4) -> ModelSpec:
    """Layers of 24 MiB in 16 bits, with 4 KiB of cache for a token; 16 MiB for embedding and for
    head.
    """
    layers = Layers("layers", count, attention=Grouped(8, 8, 128), mlp=Mlp(4096))
    return ModelSpec(
        "toy",
        "toy",
        (Stack("decoder", (layers,), 1024),),
        vocab_size=8192,
        head=Head("lm"),
        dtype="bf16",
    )


def request(
    engine: str, of: ModelSpec | None = None, *, memory: int = GIB, **fields: Any
) -> FitRequest:
    toy = Gpu("toy", "Toy", "nobody", memory, memory, 10**12, (("bf16", 10**14),))
    given = {"gpu": toy, "reserve": 0, **fields}
    return FitRequest(of or model(), Workload.decode(1, 4096, kv_dtype="bf16"), engine, **given)


class Bytes(NamedTuple):
    """A layout of `size` bytes for each sequence."""

    size: int
    max_num_seqs: int | None = None
    parts: tuple[Any, ...] = ()

    def needed(self, batch: int, context: int) -> int:
        return self.size * batch


def device(
    memory: int, layout: Bytes, start: Bytes | None = None, reserve: Reserve | None = None
) -> Device:
    budget = MemoryBudget(Quantity(memory), reserve=reserve)
    return Device(resolve(request("ideal")), model(), budget, layout, start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("memory", "limit", "batch", "room"),
    [
        (30, None, 3, True),
        (29, None, 3, False),
        (30, 3, 3, True),
        (300, 3, 3, True),
        (300, 3, 4, False),
        (300, 2, 3, False),
        (300, 4, 3, True),
        (0, None, 0, True),
    ],
)
def test_a_device_has_room_up_to_its_memory_and_the_engines_limit(
    memory: int, limit: int | None, batch: int, room: bool
) -> None:
    found = device(memory, Bytes(10, limit))
    assert found.slack(batch, 5) == memory - 10 * batch
    assert found.has_room(batch, 5) == room


def test_a_device_needs_what_the_engine_needs_to_start() -> None:
    """One request of 25 bytes in all layers, whatever the batch."""
    found = device(100, Bytes(10), Bytes(25))
    assert [found.needed(batch, 5) for batch in (1, 2, 3, 4)] == [25, 25, 30, 40]
    assert [device(100, Bytes(10)).needed(batch, 5) for batch in (1, 2, 3)] == [10, 20, 30]


@pytest.mark.parametrize(("short", "expected"), [(0, 100), (30, -30)])
def test_the_ends_of_the_memory_are_those_of_the_runtime_memory(short: int, expected: int) -> None:
    """40 to 70 bytes are reserved, 50 are expected: the cache has 20 fewer at the low end, 10 more
    at the high one.
    """
    reserve = Reserve(Quantity(50), 40, 70, RuntimeMemory())
    memory = 0 if short else 100
    budget = MemoryBudget(Quantity(memory), reserve=reserve, short=short)
    assert [budget.room(end) for end in ("low", "expected", "high")] == [
        expected - 20,
        expected,
        expected + 10,
    ]
    assert (budget.kv_memory_low, budget.kv_memory_high) == (
        max(0, expected - 20),
        max(0, expected + 10),
    )
    assert budget.room() == expected
    assert MemoryBudget(Quantity(memory), short=short).room("low") == expected
    found = device(100, Bytes(10), reserve=reserve)
    assert [found.has_room(batch, 1, "low") for batch in (8, 9)] == [True, False]
    assert [found.has_room(batch, 1, "high") for batch in (11, 12)] == [True, False]


def test_a_memory_is_named_by_its_device_unless_that_is_the_main_one() -> None:
    one, two = devices_of(resolve(request("llamacpp", gpus=2)))
    own = one.kv_memory(1, 4096, one)
    assert [(symbol.name, symbol.meaning) for symbol in own.formula.symbols] == [
        ("kv_memory", "bytes for the cache")
    ]
    other = two.kv_memory(1, 4096, one)
    assert [(symbol.name, symbol.meaning) for symbol in other.formula.symbols] == [
        ("kv_memory_gpu_2", "bytes for the cache on gpu 2")
    ]
    # layers of 24 MiB and norms: 3 and 1, of which the second GPU has the head and the last norm
    assert int(own) == GIB - 3 * (24 * MIB + 4096)
    assert int(other) == GIB - (24 * MIB + 4096) - 16 * MIB - 2048
    assert two.kv_memory(1, 4096, two).formula.text == "kv_memory"


def test_a_memory_is_never_below_0() -> None:
    """Weights and reserve may take more than the engine's share."""
    found = device(0, Bytes(10))
    short = found._replace(budget=found.budget._replace(short=5))
    assert (short.slack(1, 1), short.kv_memory(1, 1, short)) == (-15, 0)


def test_a_memory_that_depends_on_the_batch_has_a_name_of_its_own() -> None:
    """llama.cpp's compute buffer grows with the context."""
    (found,) = devices_of(
        resolve(dataclasses.replace(request("llamacpp", memory=4 * GIB), reserve=None))
    )
    same, longer = found.kv_memory(1, 4096, found), found.kv_memory(1, 65536, found)
    assert same.formula.text == "kv_memory"
    assert longer.formula.text == "kv_memory_then"
    assert (
        longer.formula.symbols[0].meaning
        == "bytes for the cache, less what a pass over these sequences takes"
    )
    assert longer < same
    assert found.slack(1, 65536) == longer - found.needed(1, 65536)
    # a reserve that was given does not grow
    (given,) = devices_of(resolve(request("llamacpp")))
    assert given.kv_memory(1, 65536, given).formula.text == "kv_memory"


@pytest.mark.parametrize(
    ("engine", "fields", "names", "layers"),
    [
        ("llamacpp", {"gpus": 3}, ["gpu_1", "gpu_2", "gpu_3"], [2, 2, 1]),
        ("llamacpp", {}, ["gpu_1"], [5]),
        ("vllm", {"pp": 2}, ["stage_1", "stage_2"], [3, 2]),
        ("vllm", {"pp": 3}, ["stage_1", "stage_2", "stage_3"], [2, 2, 1]),
        ("vllm", {}, [""], [5]),
        ("vllm", {"tp": 2}, [""], [5]),
        # the memory of each stage was given: none of them is the model's
        ("vllm", {"pp": 2, "kv_memory": GIB, "gpu": None, "reserve": None}, [""], [5]),
    ],
)
def test_devices_with_layers_of_their_own_have_names(
    engine: str, fields: dict[str, Any], names: list[str], layers: list[int]
) -> None:
    resolved = resolve(request(engine, model(5), **fields))
    found = devices_of(resolved)
    assert [each.name for each in found] == names
    assert [each.model.main.n_layers for each in found] == layers
    assert sum(each.budget.layers or 5 for each in found) == 5
    fullest = [each.model.main.n_layers for each in each_device(resolved, most_layers_first=True)]
    assert fullest == sorted(layers, reverse=True)
    assert sorted(each.name for each in each_device(resolved, most_layers_first=True)) == sorted(
        names
    )


def test_only_the_first_and_the_last_stage_have_what_belongs_there() -> None:
    """The sampler's memory is on the last stage of vLLM; equal stages between have equal
    budgets.
    """
    resolved = resolve(
        dataclasses.replace(request("vllm", model(8), memory=24 * GIB, pp=4), reserve=None)
    )
    facts = [each.budget.facts for each in devices_of(resolved)]
    assert [(each.first, each.last) for each in facts if each] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    (alone,) = devices_of(
        resolve(dataclasses.replace(request("vllm", memory=24 * GIB), reserve=None))
    )
    assert alone.budget.facts is not None
    assert (alone.budget.facts.first, alone.budget.facts.last) == (True, True)


def test_gpus_with_equal_layers_estimate_their_runtime_memory_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 16 GPUs and 4 layers, most GPUs have none; a search estimates the memory for dozens of
    batches.
    """
    estimated: list[tuple[int, int]] = []

    def counted(engine: Any, facts: RuntimeFacts[Any]) -> RuntimeMemory:
        estimated.append((facts.batch, facts.context))
        return runtime(facts)

    monkeypatch.setattr(Llamacpp, "runtime", counted)
    resolved = resolve(
        dataclasses.replace(request("llamacpp", model(4), memory=24 * GIB, gpus=16), reserve=None)
    )
    devices = devices_of(resolved)
    for _ in range(3):
        assert len({device.slack(2, 1000) for device in devices}) > 1
    kinds = len({(device.model, i == 0, i == 15) for i, device in enumerate(devices)})
    assert 2 <= kinds < 10
    assert len(estimated) == 2 * kinds  # as requested, and with two sequences


@pytest.mark.parametrize(
    ("version", "starts"),
    [("0.13.0", False), ("0.14.0", True), ("0.16.0", True), ("0.17.0", False)],
)
def test_some_versions_start_a_stage_only_if_one_request_of_all_layers_fits(
    version: str, starts: bool
) -> None:
    """vllm-project/vllm issue 34076: 4 layers have twice the bytes of the 2 layers of a stage."""
    found = devices_of(resolve(request("vllm", pp=2, engine_args={"engine_version": version})))
    assert [each.start is not None for each in found] == 2 * [starts]
    for each in found:
        if each.start is not None:
            assert each.start.needed(1, 4096) == 2 * each.layout.needed(1, 4096)
            assert each.needed(1, 4096) == each.start.needed(1, 4096)


def test_a_layout_is_that_of_its_device_or_of_all() -> None:
    parts: tuple[Any, ...] = (Bytes(1), Bytes(2))
    whole: Any = Bytes(3, parts=parts)
    assert list(layout_per_device(whole, 2)) == [*parts]
    assert list(layout_per_device(whole, 3)) == [whole] * 3
    assert list(layout_per_device(whole, 1)) == [whole]
