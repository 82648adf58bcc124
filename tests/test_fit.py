"""Whether a workload fits: the budget of one GPU, the largest context and batch, and
suggestions.
"""

import dataclasses
from typing import Any, NamedTuple

import pytest
from asking import REPOSITORY
from hypothesis import given
from hypothesis import strategies as st
from llamacpp_parts import spread_over_gpus
from specs import models
from tables import each

from attncalc import AttncalcError, ModelSpec, Workload, load
from attncalc.attention.linear import Lightning
from attncalc.config.gpus import gpu, gpu_with
from attncalc.cost.cache import layer_cache_specs
from attncalc.cost.params import params
from attncalc.engines import find_engine
from attncalc.engines.base import Pool
from attncalc.engines.pipeline import split_into_stages
from attncalc.hardware import Gpu
from attncalc.quantity import quantity, ratio
from attncalc.serving import devices as devices_module
from attncalc.serving import fit as fit_module
from attncalc.serving.answer import Answer
from attncalc.serving.fit import fit, min_gpus, possible_verdict
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.suggestions import suggestions
from attncalc.serving.weights import weights
from attncalc.units import GIB, parse_bytes


def fits(request: FitRequest) -> bool:
    """Whether a request fits even with the least memory for the cache."""
    return possible_verdict(request) == "fits"


GPU = Gpu("toy", "Toy 10GB", "nobody", 10, 10 * GIB, 10**12, (("fp16", 10**14),))


def request_for(
    model: ModelSpec, engine: str = "ideal", *, batch: int = 1, context: int = 4096, **options: Any
) -> FitRequest:
    """Return a request; the default is one sequence of 4,096 tokens with the cache in the model's
    dtype.

    The model has no maximum context, so that memory limits the longest one.
    """
    stacks = (*model.stacks[:-1], dataclasses.replace(model.main, max_context=None))
    model = dataclasses.replace(model, stacks=stacks)
    dtypes = {"kv_dtype": options.pop("kv_dtype", model.dtype), "dtype": options.pop("dtype", None)}
    workload = Workload.decode(batch, context, **dtypes)
    fields = {field.name for field in dataclasses.fields(FitRequest)}
    engine_args = {name: options.pop(name) for name in list(options) if name not in fields}
    return FitRequest(model, workload, engine, engine_args=engine_args, **options)


class Paged(NamedTuple):
    """A layout with pages of 16 tokens of 1,000 bytes, one of which is never used."""

    bound: str = "reserved"
    version: str | None = "1.0"
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    max_num_seqs: int | None = None
    parts: tuple[()] = ()
    source: str = "a toy"

    def with_shared_prefix(self, tokens: int) -> None:
        return None

    def needed(self, batch: int, context: int) -> int:
        return (batch * -(-int(context) // 16) + 1) * 16_000

    def pool(self, memory: int, context: int) -> Pool:
        blocks = quantity(memory // 16_000)
        return Pool(blocks, quantity(blocks * 16), ratio(blocks, -(-context // 16)), (), ())


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_engine("ideal"), "layout", lambda *_: Paged())


# The budget


@given(
    st.integers(1, 200 * GIB),
    st.integers(0, 9 * GIB),
    st.integers(1, 100),
    st.sampled_from([1, 2, 4]),
)
def test_the_budget_sums_to_the_gpu(memory: int, reserved: int, percent: int, tp: int) -> None:
    request = request_for(
        load("llama2-7b"),
        gpu=dataclasses.replace(GPU, memory=memory),
        gpus=tp,
        tp=tp,
        reserve=reserved,
        gpu_memory_utilization=f"{percent / 100:.2f}",
    )
    budget = fit(request).budget
    assert budget.usable is not None
    assert budget.weights is not None
    assert int(budget.usable) == -(-memory * percent // 100)
    assert int(budget.weights.total) == 2 * int(params(load("llama2-7b").shard(tp)).total)
    assert (
        budget.kv_memory - budget.short == int(budget.usable) - int(budget.weights.total) - reserved
    )
    assert budget.kv_memory == 0 or budget.short == 0


def test_kv_memory_is_used_unchanged() -> None:
    result = fit(request_for(load("llama2-7b"), kv_memory=parse_bytes("5.38GiB", "")))
    # 5.38 * 2^30 = 5,776,731,013.12
    assert result.budget.kv_memory == 5_776_731_013
    assert result.budget.weights is None


def test_too_large_weights_do_not_fit_and_are_no_error() -> None:
    result = fit(request_for(load("llama2-70b"), gpu=GPU))
    # 128.48 GiB of weights in 10 GiB
    assert not result.fits
    assert result.budget.short == 2 * 68_976_648_192 - 10 * GIB
    assert result.budget.kv_memory == result.max_batch == result.max_context == 0


def test_llama_cpp_spreads_layers_over_all_gpus() -> None:
    result = fit(request_for(load("llama2-7b"), "llamacpp", gpu=GPU, gpus=3, reserve=GIB))
    # 32 layers and the output over 3 GPUs: 11, 11 and 10; a layer has 4 x 4096^2 + 3 x 4096 x 11008
    # + 2 x 4096
    layer = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    room = 9 * GIB - 2 * 11 * layer
    assert (result.budget.kv_memory, result.budget.layers) == (room, 11)
    # 11 layers of 4,096 tokens of 2 * 4096 elements
    assert result.needed == 11 * 4096 * 2 * 4096 * 2
    assert result.max_batch == room // result.needed
    assert result.max_context == room // (11 * 2 * 4096 * 2) // 256 * 256 == result.pool.tokens
    assert any("32 layers" in line for line in result.pool.log_lines)
    # the embedding is in host memory, the head with the last layers
    parts = spread_over_gpus(load("llama2-7b"), 3)
    assert [params(part).total for part in parts] == [
        11 * layer,
        11 * layer,
        10 * layer + 4096 + 32000 * 4096,
    ]


def test_the_gpu_with_room_for_the_fewest_decides() -> None:
    # Two layers in fp32 over two GPUs: the second has only the output, 4 * 50257 * 768 B, and no
    # cache
    model = load("gpt2")
    stack = dataclasses.replace(
        model.main, layers=(dataclasses.replace(model.main.layers[0], count=2),)
    )
    small = dataclasses.replace(model, stacks=(stack,))
    head = 4 * (50257 * 768 + 2 * 768)
    layers = 4 * 2 * (12 * 768**2 + 13 * 768)

    def request(memory: int) -> FitRequest:
        gpu = dataclasses.replace(GPU, memory=memory)
        return request_for(small, "llamacpp", gpu=gpu, gpus=2, reserve=0, context=256)

    assert layers < head
    assert not fits(request(head - 1))
    assert fit(request(head - 1)).budget.short == 1
    result = fit(request(head))
    assert result.fits
    assert result.budget.layers == 2
    assert int(float(result.pool.concurrency)) == result.max_batch
    assert result.max_batch == (head - layers) // (2 * 256 * 2 * 768 * 4)


def test_the_longest_context_is_that_of_all_gpus() -> None:
    # Six layers of Gemma 3 27B over two GPUs: four with a window; one with it, the global one and
    # the head
    model = load("gemma3-27b")
    stack = dataclasses.replace(model.main, layers=model.main.layers[:2])
    six = dataclasses.replace(model, stacks=(stack,), vocab_size=1000)
    request = request_for(
        six,
        "llamacpp",
        gpu=dataclasses.replace(GPU, memory=5 * GIB),
        gpus=2,
        reserve=0,
        context=256,
    )
    result = fit(request)
    # The first GPU limits short sequences. For long ones its windows are full, and the second
    # limits them:
    # K and V of 16 heads x 128.
    assert (stack.n_layers, result.budget.layers) == (6, 4)
    room = (
        5 * GIB
        - weights(six, part=spread_over_gpus(six, 2)[1], engine=find_engine("llamacpp")).total
    )
    assert result.pool.tokens == (room - 1536 * 8192) // 8192 // 256 * 256
    assert result.max_context == result.pool.tokens


def of_layers(name: str, layers: int) -> ModelSpec:
    """Return a preset with that number of layers, all of its first kind."""
    model = load(name)
    stack = dataclasses.replace(
        model.main, layers=(dataclasses.replace(model.main.layers[0], count=layers),)
    )
    return dataclasses.replace(model, stacks=(stack,))


def test_each_stage_has_its_own_weights_and_its_own_cache() -> None:
    # GPT-2's: a layer 12 * 768^2 + 13 * 768 parameters, the table 50257 * 768, positions 1024 *
    # 768; 4 B each.
    # Of 4 layers over 3 stages vLLM has 1, 2 and 1; the first has the tables, the last the head and
    # a norm.
    # vLLM pads the table to 50,304 rows (a multiple of 64) = 147.375 MiB, for which PyTorch's
    # allocator gives 148.
    layer, table = 4 * (12 * 768**2 + 13 * 768), 4 * 50304 * 768 + 5 * 2**20 // 8
    first, middle = layer + table + 4 * 1024 * 768, 2 * layer
    token = 2 * 768 * 4
    gpu = dataclasses.replace(GPU, memory=400_000_000)
    options: dict[str, Any] = {
        "gpu": gpu,
        "gpus": 3,
        "pp": 3,
        "reserve": 0,
        "gpu_memory_utilization": "1",
    }
    four = request_for(of_layers("gpt2", 4), "vllm", dtype="fp32", **options)
    result = fit(four)
    assert result.pool.blocks == (400_000_000 - middle) // (2 * 16 * token)  # 1,746
    assert result.pool.blocks > (400_000_000 - first) // (
        2 * 16 * token
    )  # the first stage's weights with the second's cache
    assert result.budget.weights is not None
    assert (result.budget.weights.total, result.budget.layers) == (middle, 2)
    assert f"{int(result.pool.tokens):,} tokens" in result.pool.log_lines[0]
    assert result.max_batch == result.pool.blocks // 256 == 6
    # the first stage has most bytes of weights, so that in a small memory it has room for the
    # fewest tokens
    few = fit(dataclasses.replace(four, gpu=dataclasses.replace(GPU, memory=first + 16 * token)))
    assert (few.pool.blocks, few.budget.layers) == (1, 1)
    ideal = fit(dataclasses.replace(four.with_workload(context=1000), engine="ideal"))
    assert ideal.max_batch == (400_000_000 - middle) // (1000 * 2 * token)
    # with a reported memory the fullest stage decides
    reported = fit(
        dataclasses.replace(
            four, gpu=None, gpus=None, kv_memory=10**8, reserve=None, gpu_memory_utilization=None
        )
    )
    assert reported.pool.blocks == 10**8 // (2 * 16 * token)


def test_sglang_cuts_stages_its_own_way_and_all_have_the_least_memory() -> None:
    # 1, 1 and 2 layers; the last has the head, a norm and most of the cache
    gpu = dataclasses.replace(GPU, memory=400_000_000)
    options: dict[str, Any] = {
        "gpu": gpu,
        "pp": 3,
        "gpus": 3,
        "reserve": 0,
        "gpu_memory_utilization": "1",
    }
    options["dtype"] = "fp32"
    result = fit(request_for(of_layers("gpt2", 4), "sglang", **options))
    layer, table = 4 * (12 * 768**2 + 13 * 768), 4 * 50257 * 768
    last = 2 * layer + table + 4 * 2 * 768
    assert result.budget.weights is not None
    assert (result.budget.weights.total, result.budget.layers) == (last, 2)
    assert result.pool.tokens == (400_000_000 - last) // (2 * 2 * 768 * 4)
    # 2 attention layers on the first stage; 2 recurrent layers with wider MLPs on the second
    model = of_layers("gpt2", 2)
    (layer_,) = model.main.layers
    assert layer_.mlp is not None
    states = dataclasses.replace(
        layer_, attention=Lightning(12, 64), mlp=dataclasses.replace(layer_.mlp, d_ff=4 * 3072)
    )
    hybrid = dataclasses.replace(
        model, stacks=(dataclasses.replace(model.main, layers=(layer_, states)),)
    )
    two = fit(request_for(hybrid, "sglang", **{**options, "pp": 2, "gpus": 2}))
    first, second = (int(weights(part).total) for part in split_into_stages(hybrid, 2))
    assert first < second
    assert two.budget.kv_memory == 400_000_000 - second
    slot = 2 * 12 * 64 * 64 * 4
    slots = (400_000_000 - second) * 9 // (19 * slot)
    assert two.pool.tokens == (400_000_000 - second - slots * slot) // (2 * 2 * 768 * 4)


def test_a_symbol_has_the_same_value_in_all_figures() -> None:
    model = load("gemma3-27b")
    stack = dataclasses.replace(model.main, layers=model.main.layers[:2])
    six = dataclasses.replace(model, stacks=(stack,), vocab_size=1000)
    gpu = dataclasses.replace(GPU, memory=5 * GIB)
    result = fit(request_for(six, "llamacpp", gpu=gpu, gpus=2, reserve=0, context=256))
    assert result.max_context is not None
    assert result.max_batch is not None
    figures = (
        result.pool.tokens,
        result.pool.concurrency,
        result.max_context,
        result.max_batch,
        result.needed,
    )
    symbols = {s for figure in figures for s in figure.formula.symbols if s.name.startswith("kv_")}
    assert len({s.name for s in symbols}) == len(symbols)
    # the second GPU has the global layer, whose cells are as many as the context
    assert result.pool.tokens.formula.text == "kv_tokens_gpu_2"
    assert result.max_context.formula.text == "most T where needed <= kv_memory_gpu_2"
    assert {s.value for s in symbols if s.name == "kv_memory"} == {int(result.budget.kv_memory)}


def test_a_purely_recurrent_model_has_a_token_count_on_several_gpus() -> None:
    model = of_layers("gpt2", 15)
    (layer,) = model.main.layers
    stack = dataclasses.replace(
        model.main, layers=(dataclasses.replace(layer, attention=Lightning(12, 64)),)
    )
    model = dataclasses.replace(model, stacks=(stack,))
    for gpus in (1, 2, 16):  # the last of 16 has only the output
        result = fit(request_for(model, "llamacpp", gpu=GPU, gpus=gpus, reserve=0, context=1000))
        # the sequences that fit, as a fraction, times 1,000 tokens; a layer's states take 12 * 64 *
        # 64 * 4 B
        sizes = [
            (10 * GIB - int(weights(part).total), part.main.n_layers)
            for part in spread_over_gpus(model, gpus)
        ]
        assert result.pool.tokens == min(room * 1000 // (n * 196_608) for room, n in sizes if n)
        assert result.max_context is None


def test_the_longest_context_is_at_most_the_models_own() -> None:
    """A token of gpt2's cache has 12 * 2 * 768 * 2 B = 36,864 B: 10 GiB hold 291,271, and it was
    made for 1,024.
    """
    request = request_for(load("gpt2"), kv_memory=10 * GIB, kv_dtype="fp16")
    assert fit(request).max_context == 291_271
    capped = fit(dataclasses.replace(request, model=load("gpt2"))).max_context
    assert (capped, capped and capped.formula.text) == (1024, "max_positions")


def test_a_server_of_llama_cpp_has_at_most_16_gpus() -> None:
    """llama_max_devices in src/llama.cpp returns 16."""
    model = of_layers("gpt2", 20)
    assert fit(request_for(model, "llamacpp", gpu=GPU, gpus=16, reserve=0)).fits
    with pytest.raises(
        AttncalcError, match="131,072 GPUs are more than the 16 that one server supports"
    ) as raised:
        fit(request_for(model, "llamacpp", gpu=GPU, gpus=131_072, reserve=0))
    assert raised.value.tip == "give --gpus 16: a second server of llama.cpp can use other GPUs"
    assert fit(request_for(model, "ideal", gpu=GPU, gpus=131_072, tp=1, reserve=0)).fits  # replicas


def test_fewest_gpus_of_llama_cpp_are_at_most_16() -> None:
    # a layer has 12 * 768^2 * 4 B = 28.3 MB, the head 50257 * 768 * 4 B = 154 MB: 400 MB hold 14
    # layers
    def fewest(layers: int) -> int | None:
        small = dataclasses.replace(GPU, memory=4 * 10**8)
        request = request_for(
            of_layers("gpt2", layers), "llamacpp", gpu=small, reserve=0, context=1
        )
        found = min_gpus(resolve(request))
        return None if found is None else int(found)

    assert 130 / 14 <= (fewest(130) or 0) <= 16
    assert fewest(260) is None  # 260 / 14 are 19 GPUs


def test_transformers_reserves_a_pass_over_the_whole_batch() -> None:
    model, memory = load("llama2-7b"), 24 * GIB
    result = fit(
        request_for(
            model,
            "transformers",
            gpu=dataclasses.replace(GPU, memory=memory),
            batch=2,
            context=1000,
        )
    )
    assert result.budget.reserve_for is not None
    reserve_for = result.budget.reserve_for

    def used_bytes(batch: int, context: int) -> int:
        reserved = int(reserve_for(batch, context).total)
        # 32 layers * 2 * 4096 * 2 B per token
        return 2 * 6_738_415_616 + reserved + batch * context * 524_288

    assert result.max_batch is not None
    assert result.max_context is not None
    batch, context = int(result.max_batch), int(result.max_context)
    assert used_bytes(batch, 1000) <= memory < used_bytes(batch + 1, 1000)
    assert used_bytes(2, context) <= memory < used_bytes(2, context + 1)
    assert fit(result.request.with_workload(batch=batch)).max_batch == batch
    assert fit(result.request.with_workload(batch=batch + 1)).max_batch == batch
    # of a reserve that is given nothing is known but its size
    with_reserve = fit(dataclasses.replace(result.request, reserve=GIB))
    assert with_reserve.max_batch == (23 * GIB - 2 * 6_738_415_616) // (1000 * 524_288)


@given(
    models(), st.integers(1, 6), st.integers(1, 4 * 2**20), st.integers(1, 5), st.integers(1, 600)
)
def test_every_gpu_of_llama_cpp_has_room(
    model: ModelSpec, gpus: int, memory: int, batch: int, context: int
) -> None:
    gpu = dataclasses.replace(GPU, memory=memory)
    request = request_for(
        model, "llamacpp", gpu=gpu, gpus=gpus, reserve=0, batch=batch, context=context
    )
    try:
        result = fit(request)
    except AttncalcError:
        return  # several windows, rows of other widths than blocks
    whole = find_engine("llamacpp").layout(
        layer_cache_specs(model.plain()), resolve(request).args_without_slots
    )
    sizes = [int(weights(model, part=part).total) for part in spread_over_gpus(model, gpus)]

    def has_room(n: int, tokens: int) -> bool:
        needed = [part.needed(n, tokens) for part in whole.parts or (whole,)]
        return n <= 256 and all(a + b <= memory for a, b in zip(sizes, needed, strict=True))

    assert result.fits == fits(request) == has_room(batch, context)
    if result.max_batch:
        assert has_room(int(result.max_batch), context)
    if result.max_batch is not None:
        assert not has_room(int(result.max_batch) + 1, context)
    if result.max_context:
        assert has_room(batch, int(result.max_context))
    if result.max_context is not None:
        assert not has_room(batch, int(result.max_context) + 1)


def test_llama_cpp_has_a_slot_per_sequence_and_a_cache_in_f16() -> None:
    request = request_for(
        load("qwen3-8b"), "llamacpp", batch=4, context=1000, kv_memory=GIB, kv_dtype=None
    )
    result = fit(request)
    # four slots of 1,000 tokens, padded to 1,024
    assert result.pool.log_lines[0].endswith("n_ctx                 = 4096")
    assert "4/4 seqs" in result.pool.log_lines[1]
    assert "K (f16)" in result.pool.log_lines[1]
    assert resolve(dataclasses.replace(request, engine="vllm")).args.kv_dtype.name == "bf16"
    assert resolve(request.with_workload(kv_dtype="bf16")).args.kv_dtype.name == "bf16"
    with_slots = fit(
        request_for(load("qwen3-8b"), "llamacpp", batch=4, context=1000, kv_memory=GIB, sequences=8)
    )
    assert "8/8 seqs" in with_slots.pool.log_lines[1]
    # more than it takes are answered, as 256
    assert "256/256 seqs" in fit(request.with_workload(batch=300)).pool.log_lines[1]


def test_the_engines_maximum_limits_the_batch() -> None:
    request = request_for(load("qwen3-8b"), "llamacpp", batch=257, context=256, kv_memory=2**50)
    result = fit(request)
    assert not result.fits
    assert not fits(request)
    assert (result.max_batch, result.max_context) == (256, 0)
    assert [change.flag for change in suggestions(result)] == ["--batch 256"]
    small = dataclasses.replace(request, kv_memory=330 * 2**20)
    little = small.with_workload(batch=1, context=4096, kv_dtype=None)
    narrow = suggestions(fit(little))[0]  # 36 * 4096 * 2 * 1024 * 34 / 32 B = 306 MiB
    assert (narrow.flag, narrow.result.request.workload.kv_dtype) == ("--kv-dtype q8_0", "q8_0")
    assert fit(request.with_workload(batch=256)).fits
    seven = fit(request_for(load("qwen3-8b"), "vllm", batch=8, kv_memory=2**50, max_num_seqs=7))
    assert (seven.fits, seven.max_batch) == (False, 7)
    three = fit(
        request_for(load("qwen3-8b"), "sglang", batch=4, kv_memory=2**50, max_running_requests=3)
    )
    assert (three.fits, three.max_batch) == (False, 3)


# The largest context and batch


@pytest.mark.usefixtures("paged")
def test_the_longest_context_and_the_most_sequences_of_a_paged_cache() -> None:
    # 100 blocks of 16,000 bytes, of which one is never used: 99 left
    result = fit(request_for(load("gpt2"), batch=2, context=100, kv_memory=100 * 16_000 + 15_999))
    assert result.max_context == 49 * 16  # 99 // 2 blocks each
    assert result.max_batch == 99 // 7  # 100 tokens take 7 blocks
    assert result.fits
    assert result.max_batch.formula.text == "most B where needed <= kv_memory"


@pytest.mark.usefixtures("paged")
def test_a_memory_that_is_enough_to_the_byte_fits() -> None:
    # 2 sequences of 100 tokens: 7 blocks each, and the one that is never used
    exact = request_for(load("gpt2"), batch=2, context=100, kv_memory=15 * 16_000)
    assert fit(exact).fits
    assert fits(exact)
    assert fit(exact).max_batch == 2
    assert fit(exact).max_context == 7 * 16
    less = dataclasses.replace(exact, kv_memory=15 * 16_000 - 1)
    assert not fit(less).fits
    assert not fits(less)
    assert fit(less).max_batch == 1
    assert fit(less).max_context == 6 * 16


SIZES = st.integers(0, 10**9)


@given(models(), SIZES, st.integers(1, 50), st.integers(1, 5000))
def test_one_more_than_the_maximum_does_not_fit(
    model: ModelSpec, memory: int, batch: int, context: int
) -> None:
    result = fit(request_for(model, kv_memory=memory, batch=batch, context=context))
    most, longest = result.max_batch, result.max_context
    assert most is not None
    assert most == 0 or result.layout.needed(int(most), context) <= memory
    assert result.layout.needed(int(most) + 1, context) > memory
    if longest is None:  # every layer has a window that is full already
        assert result.layout.needed(batch, 10**9) <= memory
    else:
        assert longest == 0 or result.layout.needed(batch, int(longest)) <= memory
        assert result.layout.needed(batch, int(longest) + 1) > memory
    assert result.fits == (most >= batch) == (longest is None or longest >= context)
    assert result.fits == fits(result.request)


@given(models(), SIZES)
def test_the_most_sequences_are_the_memory_divided_by_one_sequence(
    model: ModelSpec, memory: int
) -> None:
    """The ideal engine has neither pages nor padding."""
    result = fit(request_for(model, kv_memory=memory, context=37))
    assert result.max_batch == memory // result.layout.needed(1, 37)


def test_the_fewest_gpus_are_the_first_that_fit() -> None:
    # weights 128.48 GiB and a cache of 1.25 GiB over tp GPUs of 80 GiB x 0.9: 2 have 143.9
    eighty = dataclasses.replace(GPU, memory=80 * GIB)
    request = request_for(load("llama2-70b"), gpu=eighty, reserve=0, gpu_memory_utilization="0.9")
    assert min_gpus(resolve(request)) == 2
    # in 40 GiB: 4 x 36 = 144
    assert (
        min_gpus(
            resolve(dataclasses.replace(request, gpu=dataclasses.replace(GPU, memory=40 * GIB)))
        )
        == 4
    )
    assert min_gpus(resolve(request.with_workload(batch=10**6))) is None
    # in 20 GiB, 18 of them for each of 8: two stages of four
    twenty = dataclasses.replace(request, gpu=dataclasses.replace(GPU, memory=20 * GIB))
    assert min_gpus(resolve(dataclasses.replace(twenty, pp=2))) == 8
    # llama.cpp splits layers over any number: 129.73 GiB over GPUs of 20 are 7, of 200 one
    spread = request_for(
        load("llama2-70b"), "llamacpp", gpu=dataclasses.replace(GPU, memory=20 * GIB), reserve=0
    )
    assert min_gpus(resolve(spread)) == 7
    assert (
        min_gpus(
            resolve(dataclasses.replace(spread, gpu=dataclasses.replace(GPU, memory=200 * GIB)))
        )
        == 1
    )
    assert min_gpus(resolve(request_for(load("gpt2"), kv_memory=1))) is None


def test_a_search_computes_no_more_gpus_after_one_without_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts: list[ModelSpec | None] = []

    def counted(resolved: Any, part: ModelSpec | None = None, **ends: bool) -> Any:
        parts.append(part)
        return memory_budget(resolved, part, **ends)

    monkeypatch.setattr(devices_module, "memory_budget", counted)
    # 61 layers on 16 GPUs: the first has 4, three of them mixtures of 16.9 GB each, which 24 GB do
    # not hold
    request = FitRequest(
        load("kimi-k2"), Workload.decode(context=4096), "llamacpp", gpu("rtx-4090"), gpus=16
    )
    assert possible_verdict(request) == "does_not_fit"
    assert [part.main.n_layers for part in parts if part] == [4]


def test_a_refusal_computes_each_number_of_gpus_once_and_none_that_is_not_suggested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two GPUs are enough for 128K tokens of gpt-oss with its experts on the host; one is not, in
    no dtype of it.
    """
    asked = []

    def counted(request: FitRequest) -> Any:
        asked.append((request.gpus, request.weights_dtype))
        return possible(request)

    possible = fit_module._possible_verdict
    monkeypatch.setattr(fit_module, "_possible_verdict", counted)
    workload, args = Workload.decode(context=131_072), {"n_cpu_moe": 99}
    answer = Answer.to(
        FitRequest(load("gpt-oss-120b"), workload, "llamacpp", gpu_with("8GB"), engine_args=args)
    )
    assert answer.fewest_gpus == 2
    assert "--gpus 2" in [change.flag for change in answer.changes]
    assert [number for number in asked if number[0]] == [(1, None), (2, None)]


def test_every_suggestion_fits_with_the_options_it_names() -> None:
    request = request_for(
        load("llama3-8b"), gpu=dataclasses.replace(GPU, memory=24 * GIB), batch=40, context=8192
    )
    # weights 14.96 GiB of 24; 40 sequences of 1 GiB are 40 GiB
    result = fit(request)
    changes = {change.flag: change for change in suggestions(result)}
    assert not result.fits
    assert all(change.result.fits for change in changes.values())
    # 9.04 GiB are 9 sequences of 1 GiB, or 40 of 0.226 GiB: 1851 tokens of 128 KiB, less than half
    # of what is asked
    assert "--gpus 4 --tp 4" in changes
    assert not {"--batch 9", "--context 1851"} & set(changes)
    assert "--gpus 2 --tp 2" not in changes  # 48 - 14.96 = 33.04 GiB, the whole model once
    assert "--kv-dtype fp8" not in changes  # 20 GiB are not there either
    assert suggestions(fit(request.with_workload(batch=9))) == ()


def test_gpus_of_replicas_are_suggested_before_further_ones() -> None:
    # 14.96 GiB of weights: four replicas on four GPUs of 12 do not fit, two on two GPUs each do
    request = request_for(
        load("llama3-8b"), gpu=dataclasses.replace(GPU, memory=12 * GIB), gpus=4, tp=1, context=8192
    )
    changes = {change.flag: change for change in suggestions(fit(request))}
    both = changes["--tp 2"]
    assert (both.change, both.result.resolved.replicas, both.cost) == ("2 replicas", 2, 0)


def test_a_larger_share_of_the_memory_is_suggested_with_a_narrow_cache_if_neither_is_enough() -> (
    None
):
    # vLLM takes 0.92 of 20 GiB = 18.4, or 19.0 with 0.95. 14.96 of weights and 1 of reserve leave
    # 2.44 or 3.04 for 6 sequences of 1 GiB, which are 3 GiB in fp8
    small = dataclasses.replace(GPU, memory=20 * GIB)
    request = request_for(load("llama3-8b"), "vllm", gpu=small, reserve=GIB, batch=6, context=8192)
    flags = [change.flag for change in suggestions(fit(request))]
    assert "--kv-dtype fp8 --gpu-memory-utilization 0.95" in flags
    assert not {"--kv-dtype fp8", "--gpu-memory-utilization 0.95"} & {*flags}


def test_a_model_that_nothing_makes_fit_has_no_suggestion() -> None:
    assert suggestions(fit(request_for(load("llama3-8b"), kv_memory=1))) == ()


def test_weights_and_cache_are_narrowed_together_if_one_is_not_enough() -> None:
    # 17 GiB for 13 sequences of 1 GiB beside 14.96 of weights, 13.0 of them in matrices: fp8
    # weights leave 8.5, int4 (0.52 bytes each) 11.7, an fp8 cache needs 6.5 where 2.0 are; both in
    # fp8 fit
    small = dataclasses.replace(GPU, memory=17 * GIB)
    request = request_for(load("llama3-8b"), gpu=small, batch=13, context=8192)
    flags = [change.flag for change in suggestions(fit(request))]
    assert "--kv-dtype fp8 --weights-dtype fp8" in flags
    assert "--weights-dtype fp8" not in flags
    assert "--kv-dtype fp8" not in flags


def test_more_gpus_and_a_narrow_cache_are_combined_if_neither_is_enough() -> None:
    # 8 KV heads divide by 8 at most: a sequence of 32 x 8,192 tokens is 32 GiB / 8 = 4 GiB on each,
    # beside at least 14.96 / 64 = 0.23 of weights; in fp8 2 GiB, beside 14.96 / 8 = 1.87 from 8
    # GPUs on
    small = dataclasses.replace(GPU, memory=4 * GIB, per_node=64)
    request = request_for(load("llama3-8b"), gpu=small, context=32 * 8192)
    result = {change.flag: change for change in suggestions(fit(request))}
    assert min_gpus(resolve(request)) is None
    both = result["--kv-dtype fp8 --gpus 8 --tp 8"]
    assert (both.change, both.result.fits) == ("a cache in fp8, 8 GPUs", True)
    assert set(result) - {both.flag} <= {f"--context {fit(request).max_context}"}


# The tests of sizes


@each(
    ("text", "size"),
    [
        ("5.38GiB", 5_776_731_013),  # 5.38 * 2^30 = 5,776,731,013.12, rounded down
        ("5.38GB", 5_380_000_000),
        ("5.38 gb", 5_380_000_000),
        ("512MiB", 512 * 2**20),
        ("1_000", 1000),
        ("6K", 6144),
        ("6k", 6000),
        ("6kB", 6000),
        ("1 B", 1),
        ("0.1TiB", 2**40 // 10),
    ],
)
def test_a_size_is_read_exactly(text: str, size: int) -> None:
    assert parse_bytes(text, "--kv-memory") == size


@each(
    "text", ["", "GiB", "-1GiB", "1e9", "0", "0.4B", "5.38XB", "1,00GiB", "nan", "5.GiB", "9" * 41]
)
def test_a_wrong_size_is_an_error(text: str) -> None:
    with pytest.raises(AttncalcError, match="not a size of at least one byte"):
        parse_bytes(text, "--kv-memory")


def test_every_known_gpu_can_be_requested() -> None:
    assert (REPOSITORY / "presets" / "gpus").is_dir()
    # 4 x H100: 4 * 79.1 GiB less 128.5 of weights leave room for 150 sequences of 1.25 GiB
    assert fit(request_for(load("llama2-70b"), gpu=gpu("h100-80gb"), gpus=4, tp=4)).max_batch == 150


# A request is completed once


def test_the_api_stores_llama_cpps_cache_in_f16_by_default() -> None:
    # Qwen3 is in bf16: without --kv-dtype llama.cpp's K and V are in f16, on the command line and
    # here
    result = fit(FitRequest(load("qwen3-8b"), Workload.decode(1, 1000), "llamacpp", kv_memory=GIB))
    assert result.resolved.args.kv_dtype.name == "fp16"
    assert "K (f16)" in result.pool.log_lines[1]


def test_a_request_without_tp_uses_all_gpus() -> None:
    resolved = resolve(
        FitRequest(load("llama2-70b"), Workload.decode(1, 4096), gpu=gpu("h100-80gb"), gpus=8, pp=2)
    )
    assert (resolved.args.tp, resolved.devices, resolved.replicas) == (4, 8, 1)
    spread = resolve(
        FitRequest(
            load("llama2-70b"), Workload.decode(1, 4096), "llamacpp", gpu=gpu("h100"), gpus=8
        )
    )
    assert (spread.args.tp, spread.args.gpus, spread.replicas) == (1, 8, 1)


def test_an_unknown_argument_of_an_engine_is_an_error() -> None:
    request = FitRequest(
        load("gpt2"), Workload.decode(1, 100), kv_memory=GIB, engine_args={"blok_size": 16}
    )
    with pytest.raises(AttncalcError, match="no argument 'blok_size'") as error:
        resolve(request)
    assert "did you mean 'block_size'" in error.value.tip


def test_a_resolved_request_names_the_dtypes_that_were_left_out() -> None:
    resolved = resolve(
        FitRequest(load("gpt-oss-20b"), Workload.decode(1, 100), gpu=gpu("h100-80gb"))
    )
    assert (resolved.args.dtype.name, resolved.args.kv_dtype.name, resolved.weights_dtype) == (
        "bf16",
        "bf16",
        "mxfp4",
    )
    assert (resolved.workload.kv_dtype, resolved.args.device_memory) == (
        "bf16",
        gpu("h100-80gb").memory,
    )
    assert resolved.share is not None
    assert resolved.share.text == "0.92"


@pytest.mark.parametrize("name", ["gpus", "tp", "pp", "dcp"])
def test_a_number_of_devices_is_at_least_1(name: str) -> None:
    request = FitRequest(load("gpt2"), Workload.decode(1, 100), gpu=GPU)
    changes: dict[str, Any] = {name: 0}
    with pytest.raises(AttncalcError, match=f"--{name} is 0, and must be at least 1"):
        resolve(dataclasses.replace(request, **changes))
