"""The changes that `fit` tries: which are worth trying for a request, in which order, and how two
are combined.

That each of them fits once it is suggested is tested in test_fit.py.
"""

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

import pytest
from tables import each

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack, Workload, load
from attncalc import fit as fit_of
from attncalc.checkpoint import CheckpointWeights
from attncalc.config.gpus import gpu
from attncalc.hardware import Gpu
from attncalc.questions.fit.tables import best_of_each_cost
from attncalc.serving import changes as kinds
from attncalc.serving import more_gpus as module
from attncalc.serving.fit import fit, sure_sequences
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, ResolvedRequest, resolve
from attncalc.serving.suggestions import Suggestion, suggestions, tried_in_words
from attncalc.units import GIB

MIB = 2**20
H100 = gpu("h100-80gb")


def model(mlp: Mlp | None = None, attention: Grouped | None = None, **fields: Any) -> ModelSpec:
    """A model of 4 layers with 8 heads of 128, and as many for K and V: 16 KiB per token in 16
    bits.
    """
    layers = Layers("layers", 4, attention=attention or Grouped(8, 8, 128), mlp=mlp or Mlp(4096))
    stack = Stack("decoder", (layers,), 1024)
    return ModelSpec(
        "toy", "toy", (stack,), vocab_size=8192, head=Head("lm"), dtype="bf16", **fields
    )


EXPERTS = Mlp(1536, n_experts=8, n_experts_per_token=2)
MIXTURE = model(EXPERTS)
OF_24_HEADS = model(EXPERTS, Grouped(24, 24, 128))


def request(
    engine: str = "vllm", of: ModelSpec | None = None, *, batch: int = 1, **fields: Any
) -> FitRequest:
    workload = Workload.decode(batch, 4096, kv_dtype=fields.pop("kv_dtype", None))
    return FitRequest(of or model(), workload, engine, **{"gpu": H100, **fields})


def test_a_short_screen_has_the_best_of_each_cost_and_always_the_first_change() -> None:
    """Two changes of the cache, of which the second takes 2 rows, and one each of context and
    hardware.
    """
    costs = {"--kv-dtype fp8": 1, "--other": 1, "--context 9": 4, "--gpus 2": 5}
    changes = [Suggestion("", flag, fit(request()), cost) for flag, cost in costs.items()]
    shown = {
        room: [change.flag for change in best_of_each_cost(changes, [1, 2, 1, 1], room)]
        for room in range(6)
    }
    assert shown[5] == list(costs)
    assert shown[4] == shown[3] == ["--kv-dtype fp8", "--context 9", "--gpus 2"]
    assert shown[2] == ["--kv-dtype fp8", "--context 9"]
    assert shown[0] == shown[1] == ["--kv-dtype fp8"]


@each(
    ("asked", "costs"),
    [
        (
            request("vllm", load("qwen3-8b"), gpu=gpu("rtx-4090")).with_workload(context=40_960),
            [0, 1, 2, 3, 6],
        ),
        (
            request("llamacpp", load("qwen3-32b"), gpu=gpu("rtx-4090")).with_workload(
                context=32_768
            ),
            [4, 5, 6],
        ),
    ],
)
def test_changes_are_ordered_by_what_they_cost(asked: FitRequest, costs: list[int]) -> None:
    """What nobody notices, the cache, the weights, a shorter context, layers on the host, few bits,
    other hardware.
    """
    found = [change.cost for change in suggestions(fit(asked))]
    assert found == sorted(found)
    assert sorted(set(found)) == costs


def test_fewer_gpus_come_with_what_nobody_notices_if_they_may_be_enough_alone() -> None:
    """vLLM 0.19 captures graphs beside the cache, for which 4 GPUs may have no room, and 64
    have.
    """
    result = fit_of(
        "qwen3-32b",
        gpu="rtx-4090",
        engine_version="0.19.0",
        gpu_memory_utilization=0.9,
        context=40_960,
    )
    more = [change.flag for change in suggestions(result) if change.needs_hardware]
    assert more[0] == "--max-num-seqs 32 --max-num-batched-tokens 2048 --gpus 4 --tp 4"


def tried(
    kind: Callable[[ResolvedRequest], Iterable[Any]], asked: FitRequest
) -> dict[str, FitRequest]:
    """Return {flag: the changed request} of one kind of change."""
    return {change.flag: change.apply(asked) for change in kind(resolve(asked))}


# Each kind of change


SEQUENCES = [f"--max-num-seqs {n} --max-num-batched-tokens 2048" for n in (128, 32, 8)]


@each(
    ("batch", "args", "flags"),
    [
        (1, {}, SEQUENCES),
        (8, {}, SEQUENCES),
        (9, {}, SEQUENCES[:2]),
        (128, {}, SEQUENCES[:1]),
        (129, {}, []),
        (1, {"max_num_seqs": 129}, SEQUENCES),
        (1, {"max_num_seqs": 128}, SEQUENCES[1:]),
        (1, {"max_num_seqs": 16}, SEQUENCES[2:]),
        (1, {"max_num_seqs": 8}, []),
        (
            1,
            {"max_num_seqs": 20, "max_num_batched_tokens": 512},
            ["--max-num-seqs 8 --max-num-batched-tokens 512"],
        ),
        (1, {"max_num_seqs": 20, "max_num_batched_tokens": 4096}, SEQUENCES[2:]),
    ],
)
def test_fewer_sequences_are_below_the_limit_and_not_below_the_batch(
    batch: int, args: dict[str, int], flags: list[str]
) -> None:
    """vLLM's limits on an H100 are 1,024 sequences and 8,192 tokens per step; on small GPUs 2,048
    tokens.
    """
    assert list(tried(kinds.smaller_steps, request(batch=batch, engine_args=args))) == flags


def test_fewer_sequences_are_limits_of_a_pass_on_a_gpu() -> None:
    changed = tried(kinds.smaller_steps, request())[SEQUENCES[0]]
    assert changed.engine_args == {"max_num_seqs": 128, "max_num_batched_tokens": 2048}
    assert tried(kinds.smaller_steps, request(gpu=None, kv_memory=GIB)) == {}


def test_llama_cpp_has_smaller_micro_batches() -> None:
    changed = tried(kinds.smaller_steps, request("llamacpp"))
    assert {flag: each.engine_args for flag, each in changed.items()} == {
        "-ub 256": {"ubatch": 256},
        "-ub 128": {"ubatch": 128},
        "-ub 64": {"ubatch": 64},
    }
    assert list(tried(kinds.smaller_steps, request("llamacpp", engine_args={"ubatch": 128}))) == [
        "-ub 64"
    ]


def test_a_micro_batch_is_suggested_only_where_its_compute_buffer_is_enough() -> None:
    def found(context: int) -> list[Suggestion]:
        result = fit_of(
            "qwen3-14b", engine="llamacpp", weights_dtype="q4_k_m", gpu="12GB", context=context
        )
        return [change for change in suggestions(result) if change.flag.startswith("-ub")]

    (change,) = found(17_408)
    assert change.flag == "-ub 256"
    assert change.result.verdict == "fits"
    assert "-ub 256" in str(launch_command(change.result.resolved))
    # 18,432 tokens need 160 MiB more, and a smaller micro-batch gives less than that
    assert [each.flag for each in found(18_432)] == []


def test_cuda_graphs_are_given_up_where_the_engine_has_them() -> None:
    changed = tried(kinds.without_graphs, request())
    assert {flag: each.engine_args for flag, each in changed.items()} == {
        "--enforce-eager": {"enforce_eager": True}
    }
    assert tried(kinds.without_graphs, request(engine_args={"enforce_eager": True})) == {}
    assert tried(kinds.without_graphs, request(gpu=None, kv_memory=GIB)) == {}
    assert tried(kinds.without_graphs, request("sglang")) == {}


def test_towers_are_left_out_where_vllm_can() -> None:
    asked = FitRequest(
        load("qwen3-vl-8b"), Workload.decode(1, 16_384), "vllm", gpu=gpu("rtx4090"), gpus=1
    )
    assert suggestions(fit(asked))[0].flag == "--language-model-only"
    assert list(tried(kinds.text_only, asked)) == ["--language-model-only"]
    assert not tried(kinds.text_only, asked.with_engine_args(engine_version="0.16.0"))
    assert not tried(kinds.text_only, asked.with_engine_args(language_model_only=True))


@each(
    ("engine", "share", "larger"),
    [
        ("vllm", "0.9", ["0.95"]),
        ("vllm", "0.949", ["0.95"]),
        ("vllm", "0.95", []),
        ("vllm", "0.951", []),
        ("sglang", "0.5", ["0.8", "0.85", "0.88", "0.9", "0.92"]),
        ("sglang", "0.85", ["0.88", "0.9", "0.92"]),
        ("sglang", "0.9", ["0.92"]),
        ("sglang", "0.92", []),
        ("sglang", "1", []),
        ("ideal", "0.5", []),
    ],
)
def test_larger_shares_are_those_above_the_share(
    engine: str, share: str, larger: list[str]
) -> None:
    option = "--mem-fraction-static" if engine == "sglang" else "--gpu-memory-utilization"
    changed = tried(kinds.larger_share, request(engine, gpu_memory_utilization=share))
    assert list(changed) == [f"{option} {text}" for text in larger]
    assert [each.gpu_memory_utilization for each in changed.values()] == larger


def test_a_given_memory_has_neither_a_larger_share_nor_narrower_weights() -> None:
    given = request("sglang", kv_memory=GIB)
    assert tried(kinds.larger_share, given) == tried(kinds.narrow_weights, given) == {}
    assert list(tried(kinds.narrow_cache, given)) == ["--kv-dtype fp8"]


@each(
    ("engine", "fields", "names"),
    [
        ("vllm", {}, ["fp8"]),
        ("vllm", {"kv_dtype": "fp8"}, []),
        ("vllm", {"kv_dtype": "int4"}, []),
        ("llamacpp", {}, ["q8_0", "q4_0"]),
        ("llamacpp", {"kv_dtype": "q8_0"}, ["q4_0"]),
        ("llamacpp", {"kv_dtype": "q4_0"}, []),
        # K and V have one dtype after the change: it has to be narrower than the wider of them
        ("llamacpp", {"kv_dtype": "q4_0", "engine_args": {"kv_dtype_k": "q8_0"}}, ["q4_0"]),
        ("llamacpp", {"kv_dtype": "q4_0", "engine_args": {"kv_dtype_v": "q8_0"}}, ["q4_0"]),
        ("llamacpp", {"engine_args": {"kv_dtype_k": "q4_0", "kv_dtype_v": "q8_0"}}, ["q4_0"]),
        ("llamacpp", {"engine_args": {"kv_dtype_k": "q4_0", "kv_dtype_v": "q4_0"}}, []),
        ("llamacpp", {"engine_args": {"kv_dtype_k": "q4_0"}}, ["q8_0", "q4_0"]),
    ],
)
def test_a_narrower_cache_has_fewer_bits(
    engine: str, fields: dict[str, Any], names: list[str]
) -> None:
    changed = tried(kinds.narrow_cache, request(engine, **fields))
    assert list(changed) == [f"--kv-dtype {name}" for name in names]
    for name, narrower in zip(names, changed.values(), strict=True):
        resolved = resolve(narrower)
        assert {dtype.name for dtype in resolved.engine.cache_dtypes(resolved.args)} == {name}


@pytest.mark.parametrize(
    ("engine", "given", "names"),
    [
        ("vllm", None, ["fp8", "int4"]),
        ("vllm", "bf16", ["fp8", "int4"]),
        ("vllm", "int8", ["int4"]),
        ("vllm", "fp8", ["int4"]),
        ("vllm", "int4", []),
        ("llamacpp", None, ["q8_0", "q4_k_m", "q3_k_m", "q2_k"]),
        ("llamacpp", "q8_0", ["q4_k_m", "q3_k_m", "q2_k"]),
        ("llamacpp", "q4_k_m", ["q3_k_m", "q2_k"]),
        ("llamacpp", "q2_k", []),
    ],
)
def test_narrower_weights_have_fewer_bits(engine: str, given: str | None, names: list[str]) -> None:
    changed = tried(kinds.narrow_weights, request(engine, weights_dtype=given))
    assert list(changed) == [f"--weights-dtype {name}" for name in names]
    assert [each.weights_dtype for each in changed.values()] == names


@pytest.mark.parametrize(
    ("engine", "device", "half"),
    [("vllm", "l4", "bf16"), ("vllm", "t4", "fp16"), ("sglang", "l4", "bf16")],
)
def test_fp32_is_given_up_before_weights_are_narrower(engine: str, device: str, half: str) -> None:
    """The model is released in bf16, for which a T4 has no units."""
    asked = request(engine, gpu=gpu(device)).with_workload(dtype="fp32")
    changed = tried(kinds.narrow_weights, asked)
    assert list(changed)[:2] == [f"--dtype {half}", f"--dtype {half} --weights-dtype fp8"]
    assert {each.workload.dtype for each in changed.values()} == {half}


def stored(kind: Literal["safetensors", "GGUF"]) -> ModelSpec:
    return model(stored=CheckpointWeights(1, 1, (), 10**8, kind=kind))


def test_weights_of_a_gguf_file_are_as_they_are() -> None:
    """llama.cpp cannot convert them: other weights are another file."""
    assert tried(kinds.narrow_weights, request("llamacpp", stored("GGUF"))) == {}
    assert list(tried(kinds.narrow_weights, request("vllm", stored("safetensors")))) == [
        "--weights-dtype fp8",
        "--weights-dtype int4",
    ]


LATENTS = load("deepseek-v3")


@each(
    ("engine", "of", "fields", "flags"),
    [
        ("vllm", model(), {"tp": 2, "gpus": 8}, ["--tp 4", "--tp 8"]),
        ("vllm", model(), {"tp": 2, "dp": 4}, ["--tp 4 --dp 2", "--tp 8 --dp 1"]),
        ("vllm", model(), {"gpus": 6, "tp": 1}, ["--tp 2"]),  # 8 heads are not divided by 3 or 6
        ("vllm", model(), {"tp": 8}, []),
        ("vllm", model(), {"tp": 1, "gpus": 16}, ["--tp 2", "--tp 4", "--tp 8"]),
        ("vllm", MIXTURE, {"dp": 2}, []),  # ranks that share the experts
        ("vllm", LATENTS, {"tp": 8}, ["--tp 1 --dp 8 --enable-expert-parallel", "--dcp 8"]),
        ("sglang", LATENTS, {"tp": 8}, ["--tp 8 --attn-dp 8", "--dcp 8"]),
        ("sglang", MIXTURE, {"tp": 2, "dp": 2}, ["--tp 4 --enable-dp-attention", "--tp 4 --dp 1"]),
        (
            "sglang",
            OF_24_HEADS,
            {"tp": 3, "dp": 2},
            ["--tp 6 --enable-dp-attention", "--tp 6 --dp 1"],
        ),
        ("sglang", MIXTURE, {"tp": 2}, []),
        ("llamacpp", model(), {"gpus": 2}, []),
    ],
)
def test_other_splits_are_of_the_same_gpus(
    engine: str, of: ModelSpec, fields: dict[str, int], flags: list[str]
) -> None:
    asked = request(engine, of, **fields)
    changed = tried(kinds.other_split, asked)
    assert list(changed) == flags
    assert {resolve(each).gpus for each in changed.values()} <= {resolve(asked).gpus}


def test_another_split_is_combined_with_a_change_only_if_that_is_cheaper() -> None:
    """Two copies of 129 MiB of weights on GPUs of 170 MiB; half of it beside 32 MiB for each
    request.

    With tp 2 there are 105 MiB: 3 requests of 32 MiB, or 6 in fp8. With a copy on each GPU there
    are 41: none of 64 MiB, and one in fp8, so that 2 are enough for a cache in fp8 on either split.
    """
    of_6 = flags(on(170 * MIB, gpus=2, tp=1, batch=6))
    assert "--tp 2 --kv-dtype fp8" in of_6
    of_2 = flags(on(170 * MIB, gpus=2, tp=1, batch=2))
    assert of_2[0] == "--tp 2"
    assert not any("--tp 2 --kv" in flag for flag in of_2)


def on(
    memory: int, engine: str = "ideal", of: ModelSpec | None = None, **fields: Any
) -> FitRequest:
    """A request on GPUs of that memory, all of which is for weights and cache."""
    toy = Gpu("toy", "Toy", "nobody", memory, memory, 10**12, (("bf16", 10**14),))
    return request(engine, of, **{"gpu": toy, "reserve": 0, **fields})


# Four matrices of attention, two of the MLP, two norms a layer, a final norm; embedding and head.
# 129 MiB.
WEIGHTS = 2 * (4 * (4 * 1024**2 + 2 * 1024 * 4096 + 2 * 1024) + 1024 + 2 * 8192 * 1024)
# 64 MiB for a sequence of 4,096 tokens: 4 layers, K and V of 1,024 elements, 2 bytes.
CACHE = 4 * 2 * 1024 * 2 * 4096


def test_the_toys_sizes_are_those_of_the_budget() -> None:
    exactly = fit(on(WEIGHTS + CACHE))
    assert (exactly.verdict, exactly.budget.kv_memory, exactly.needed) == ("fits", CACHE, CACHE)
    assert fit(on(WEIGHTS + CACHE - 1)).verdict == "does_not_fit"


# More GPUs


def more_gpus(asked: FitRequest) -> dict[str, str]:
    """Return {flag: words} of all numbers of GPUs that fit."""
    return {change.flag: change.words for change in module.more_gpus(resolve(asked))}


def test_more_gpus_are_those_that_divide_the_model_and_fit() -> None:
    """Of two GPUs each has half of 193 MiB, but for norms; of four a quarter, of eight an
    eighth.
    """
    assert more_gpus(on(100 * MIB)) == {
        "--gpus 2 --tp 2": "2 GPUs",
        "--gpus 4 --tp 4": "4 GPUs",
        "--gpus 8 --tp 8": "8 GPUs",
    }
    assert list(more_gpus(on(50 * MIB))) == ["--gpus 4 --tp 4", "--gpus 8 --tp 8"]
    assert list(more_gpus(on(100 * MIB, tp=2))) == ["--gpus 4 --tp 4", "--gpus 8 --tp 8"]
    assert more_gpus(on(50 * MIB, tp=8)) == {}
    assert more_gpus(request(gpu=None, kv_memory=1)) == {}


@each(
    "asked",
    [
        on(390 * MIB, batch=23),
        on(390 * MIB, batch=40, gpus=5, tp=1),
        on(GIB, "vllm", batch=3, gpu_memory_utilization="0.4"),
        on(GIB, "sglang", MIXTURE, dp=2, batch=40, gpu_memory_utilization="0.9"),
    ],
)
def test_a_change_counts_the_requests_that_surely_fit(asked: FitRequest) -> None:
    """As many fit with the least memory, as the verdict demands, and not one more; so they are
    never too few.
    """
    for change in suggestions(fit(asked)):
        resolved = change.result.resolved
        requests = sure_sequences(resolved) * resolved.replicas
        assert requests >= (1 if "--batch" in change.flag else asked.workload.batch)
        assert fit(resolved.request.with_workload(batch=requests)).verdict == "fits"
        assert fit(resolved.request.with_workload(batch=requests + 1)).verdict != "fits"


def test_more_gpus_leave_the_pipeline_stages() -> None:
    """Each stage has 64 MiB of weights, with the embedding or the head, and 32 MiB of cache: halves
    are 48 MiB.
    """
    assert more_gpus(on(50 * MIB, pp=2)) == {
        f"--gpus {2 * tp} --tp {tp} --pp 2": f"{2 * tp} GPUs" for tp in (2, 4, 8)
    }


def test_more_gpus_are_more_than_there_are() -> None:
    """Six GPUs with a copy each are three pairs, which is another split; four or six of one copy
    are not more.
    """
    assert more_gpus(on(100 * MIB, gpus=6, tp=1)) == {"--gpus 8 --tp 8": "8 GPUs"}


def test_more_gpus_keep_the_ranks_that_divide_experts() -> None:
    """Two ranks of one GPU each are two GPUs already: the next number is two ranks of two."""
    asked = on(GIB, "vllm", MIXTURE, dp=2, gpu_memory_utilization="1")
    assert list(more_gpus(asked)) == ["--gpus 4 --tp 2", "--gpus 8 --tp 4", "--gpus 16 --tp 8"]


def test_more_replicas_are_suggested_if_they_take_fewer_gpus() -> None:
    """129 MiB of weights and 64 for each request: 390 MiB hold 4 requests, so 23 need 6 replicas.

    Four GPUs with a quarter of both hold 22, and eight with an eighth more.
    """
    assert list(more_gpus(on(390 * MIB, batch=23))) == [
        "--gpus 6 --tp 1",
        "--gpus 6 --tp 2",  # 10 sequences on each pair
        "--gpus 8 --tp 8",
        "--gpus 8 --tp 4",
    ]
    assert list(more_gpus(on(390 * MIB, batch=20)))[:3] == [
        "--gpus 4 --tp 4",
        "--gpus 4 --tp 2",
        "--gpus 5 --tp 1",
    ]
    assert "--gpus 6 --tp 1" in more_gpus(on(390 * MIB, batch=23, gpus=5, tp=1))
    assert not any(
        "replicas" in words for words in more_gpus(on(390 * MIB, batch=20, gpus=5, tp=1)).values()
    )


def test_llama_cpp_spreads_layers_over_any_number_of_gpus() -> None:
    """4 layers are on at most 4 GPUs, which have no tensor parallelism."""
    asked = on(150 * MIB, "llamacpp", kv_dtype="bf16")
    assert more_gpus(asked) == {f"--gpus {n}": f"{n} GPUs" for n in (2, 3, 4)}
    assert list(more_gpus(dataclasses.replace(asked, gpus=2))) == ["--gpus 3", "--gpus 4"]


# Which changes are suggested


def flags(asked: FitRequest) -> list[str]:
    return [change.flag for change in suggestions(fit(asked))]


def test_what_fits_needs_no_change() -> None:
    assert flags(on(WEIGHTS + CACHE)) == []


def test_the_smallest_change_of_each_kind_that_is_enough_comes_first() -> None:
    """One byte is missing: fp8 is enough for cache or weights, so int4 is not tried. More GPUs are
    last.
    """
    found = flags(on(WEIGHTS + CACHE - 1))
    assert found[:2] == ["--kv-dtype fp8", "--weights-dtype fp8"]
    # these two are combined too: together they leave room for more
    assert found[2:] == ["--kv-dtype fp8 --weights-dtype fp8", "--context 4095", "--gpus 2 --tp 2"]


def test_a_smaller_batch_is_suggested_after_a_shorter_context() -> None:
    """4 sequences of 4,096 tokens, of which 3 fit, or 4 of 3/4 of the context."""
    found = flags(on(WEIGHTS + 3 * CACHE, batch=4))
    assert found[-3:] == ["--context 3072", "--batch 3", "--gpus 2 --tp 2"]
    assert [change.change for change in suggestions(fit(on(WEIGHTS + 3 * CACHE, batch=4)))][
        -3:-1
    ] == ["3,072 tokens of context", "3 sequences"]


def test_a_shorter_context_is_offered_with_a_narrower_cache_and_weights_too() -> None:
    """Half the cache and half the weights leave more than twice the context."""
    asked = FitRequest(load("qwen3-vl-8b"), Workload.decode(1, 262_144), gpu=gpu("rtx-4090"))
    contexts = {
        change.flag.partition("--context")[0]: change.result.resolved.workload.context
        for change in suggestions(fit(asked))
        if "--context" in change.flag
    }
    assert 2 * contexts[""] < contexts["--kv-dtype fp8 --weights-dtype fp8 "] < 262_144


def test_a_change_that_is_enough_alone_is_not_part_of_a_pair() -> None:
    """96 MiB are missing: a cache in fp8 takes 96 less, weights in int4 only 71, as 33 / 128 of 96
    are left.
    """
    found = flags(on(WEIGHTS + 3 * CACHE // 2, batch=3))
    assert found[0] == "--kv-dtype fp8"
    assert not any("--weights-dtype" in flag for flag in found)
    # 64 MiB are missing: both are enough, and fp8 weights, which take 48 less, are not tried again
    # in the pair
    found = flags(on(WEIGHTS + CACHE, batch=2))
    assert found[:3] == [
        "--kv-dtype fp8",
        "--weights-dtype int4",
        "--kv-dtype fp8 --weights-dtype int4",
    ]
    assert not any("--weights-dtype fp8" in flag for flag in found)


def test_pairs_are_the_first_of_two_kinds_that_are_enough_together() -> None:
    """3 sequences of 64 MiB where 1 fits, so 128 MiB are missing: fp8 is 96 less for the cache, 48
    for the matrices.

    Neither alone is enough, and int4 with fp8 is not suggested beside fp8 with fp8.
    """
    asked = on(WEIGHTS + CACHE, batch=3)
    assert flags(asked)[0] == "--kv-dtype fp8 --weights-dtype fp8"
    assert not any("int4" in flag for flag in flags(asked))
    (both, *_) = suggestions(fit(asked))
    assert both.change == "a cache in fp8, weights in fp8"
    assert (both.result.request.workload.kv_dtype, both.result.request.weights_dtype) == (
        "fp8",
        "fp8",
    )
    assert both.result.verdict == "fits"


def test_at_most_two_pairs_are_suggested() -> None:
    """0.7 of 240 MiB are 168, and weights and 2 sequences 256: 88 are missing.

    A cache in fp8 takes 64 less, weights in fp8 48 and in int4 71; a share of 0.8 is 24 more, 0.85
    36, 0.92 53. Any two kinds are enough together, of which weights with a share are the third
    pair.
    """
    found = flags(on(240 * MIB, "sglang", gpu_memory_utilization="0.7", batch=2))
    assert [flag for flag in found if "--gpus" not in flag and flag.count("--") == 2] == [
        "--kv-dtype fp8 --mem-fraction-static 0.85",
        "--kv-dtype fp8 --weights-dtype fp8",
    ]


def test_three_changes_are_combined_if_no_two_are_enough() -> None:
    """0.7 of 165 MiB are 115 and 0.92 are 151: of 256 MiB at most 136 may be missing, and 105 with
    a larger share.

    A cache in fp8 takes 64 less, weights in fp8 48, in int4 71: 135 together, 141 are missing. In
    fp8 both need 144 MiB, which is 0.88 of 165, so int4 is not tried.
    """
    found = flags(on(165 * MIB, "sglang", gpu_memory_utilization="0.7", batch=2))
    assert found[0] == "--kv-dtype fp8 --weights-dtype fp8 --mem-fraction-static 0.88"
    assert [flag for flag in found[1:] if "dtype" in flag and "--gpus" not in flag] == []


def test_narrower_weights_are_offered_with_more_gpus_only_if_they_take_fewer() -> None:
    """129 MiB of weights and 64 of cache are 96 MiB on each of 2 GPUs, and 48 on each of 4.

    Weights in fp8 are 48 MiB smaller, so 72 MiB on each of 2; in int4 71 smaller, so 61.
    """
    assert flags(on(53 * MIB)) == ["--gpus 4 --tp 4"]
    assert flags(on(67 * MIB))[-2:] == ["--gpus 4 --tp 4", "--weights-dtype int4 --gpus 2 --tp 2"]
    assert flags(on(75 * MIB))[-2:] == ["--gpus 4 --tp 4", "--weights-dtype fp8 --gpus 2 --tp 2"]


def test_all_changes_are_combined_with_more_gpus_if_nothing_else_is_enough() -> None:
    """On each of 8 GPUs 16 MiB of weights, 7 in int4, and 8 of the cache, 4 in fp8: only 7 + 4 are
    below 12.
    """
    assert flags(on(12 * MIB)) == ["--kv-dtype fp8 --weights-dtype int4 --gpus 8 --tp 8"]
    assert flags(on(11 * MIB)) == []


def test_all_changes_are_combined_with_a_shorter_context_if_nothing_else_is_enough() -> None:
    """One head cannot be divided, so more GPUs do not help. A token takes 2 KiB, and 1 KiB in
    fp8.
    """
    asked = on(0, of=model(attention=Grouped(1, 1, 128)), weights_dtype="int4")
    weights = fit(asked).budget.weights
    assert weights is not None
    tokens = dataclasses.replace(on(int(weights.total) + 100 * 1024), model=asked.model)
    assert flags(tokens) == [
        "--weights-dtype int4 --context 50",
        "--kv-dtype fp8 --weights-dtype int4 --context 100",
    ]


def test_what_changes_no_answer_comes_before_a_narrower_cache() -> None:
    """On an RTX 4090 the cache in fp8 is enough alone, and a larger share is not, nor no CUDA
    graphs.
    """
    asked = FitRequest(load("qwen3-8b"), Workload.decode(1, 40_960), gpu=gpu("rtx-4090"))
    found = flags(asked)
    assert found[:2] == ["--enforce-eager --gpu-memory-utilization 0.95", "--kv-dtype fp8"]
    assert [flag for flag in found if "--enforce-eager" in flag] == found[:1]
    larger = dataclasses.replace(asked, gpu_memory_utilization="0.95")
    for request in (asked.with_engine_args(enforce_eager=True), larger):
        assert fit(request).verdict == "may_not_fit"


def test_a_second_gpu_is_not_the_only_change_of_a_model_that_almost_fits() -> None:
    """Qwen3 32B in int4 has 18.1 of 21.6 GiB, and the cache of 8,192 tokens 2: 1.5 are left for the
    rest.
    """
    asked = FitRequest(
        load("qwen3-32b"), Workload.decode(1, 8192), gpu=gpu("rtx-4090"), weights_dtype="int4"
    )
    assert flags(asked) == [
        "--max-num-seqs 128 --max-num-batched-tokens 2048 --enforce-eager",
        "--enforce-eager --kv-dtype fp8",
        "--gpus 2 --tp 2",
    ]


def test_a_refused_context_is_shortened_with_what_else_is_needed() -> None:
    """LLaMA-2 70B has 4,096 positions and 128 GiB of weights, which one H100 does not hold."""
    found = flags(FitRequest(load("llama2-70b"), Workload.decode(1, 8192), gpu=H100))
    assert found[0] == "--context 4096 --weights-dtype fp8"
    assert all(flag.startswith("--context 4096 --") for flag in found)


def test_a_larger_share_can_be_left_out() -> None:
    asked = fit(on(240 * MIB, "sglang", gpu_memory_utilization="0.8", kv_dtype="bf16"))
    assert "--mem-fraction-static 0.85" in [change.flag for change in suggestions(asked)]
    assert not any("fraction" in change.flag for change in suggestions(asked, with_share=False))


def test_what_was_tried_is_what_the_engine_and_the_request_have() -> None:
    assert tried_in_words(resolve(request(batch=2))) == (
        "fewer sequences or tokens per step, no CUDA graphs, a narrower cache, narrower weights, "
        "a larger share of "
        "the GPU's memory, more GPUs, a shorter context and a smaller batch"
    )
    assert (
        tried_in_words(resolve(request(gpu=None, kv_memory=GIB)))
        == "a narrower cache and a shorter context"
    )
    assert tried_in_words(resolve(request(kv_dtype="fp8")), with_share=False) == (
        "fewer sequences or tokens per step, no CUDA graphs, narrower weights, more GPUs and a "
        "shorter context"
    )
    assert "layers on the host" in tried_in_words(resolve(request("llamacpp")))


def test_three_changes_that_are_enough_need_no_other_pair() -> None:
    """1 MiB is missing, so that fp8 is enough for cache and for weights, and a larger share too,
    which is free.
    """
    found = flags(
        on(240 * MIB, "sglang", of=model(), gpu_memory_utilization="0.8", kv_dtype="bf16")
    )
    assert found[:4] == [
        "--mem-fraction-static 0.85",
        "--kv-dtype fp8",
        "--weights-dtype fp8",
        "--kv-dtype fp8 --weights-dtype fp8",
    ]


def test_only_cache_and_weights_are_combined_if_they_are_enough_alone() -> None:
    """Weights in int4 cannot be narrower, so a cache in fp8 and a larger share are the changes that
    are enough.
    """
    # 57 MiB of weights and 128 of 2 sequences are 185, where 0.7 of 250 MiB are 175
    found = flags(
        on(250 * MIB, "sglang", gpu_memory_utilization="0.7", weights_dtype="int4", batch=2)
    )
    assert found[:2] == ["--mem-fraction-static 0.8", "--kv-dtype fp8"]
    assert [flag for flag in found if flag.count("--") == 2] == ["--gpus 2 --tp 2"]


def test_an_unsupported_change_does_not_end_the_list() -> None:
    """5 GPUs do not divide experts of 1,536, which is an error; more GPUs are still suggested after
    it.
    """
    asked = on(200 * MIB, "sglang", MIXTURE, dp=5, batch=20, gpu_memory_utilization="1")
    found = flags(asked)
    assert list(tried(kinds.other_split, asked)) == ["--tp 5 --enable-dp-attention"]
    assert not any("dp-attention" in flag for flag in found)
    assert "--gpus 20 --tp 4" in found


def test_more_gpus_are_combined_with_a_narrow_cache_only_if_nothing_else_is_enough() -> None:
    """8 GPUs at most: a sequence of 16 times the context is 1 GiB, 128 MiB on each beside 16 MiB of
    weights.
    """
    enough = on(WEIGHTS // 8 + 131 * MIB).with_workload(context=16 * 4096)
    assert "--gpus 8 --tp 8" in flags(enough)
    assert "--kv-dtype fp8 --gpus 8 --tp 8" not in flags(enough)
    small = on(WEIGHTS // 8 + 67 * MIB).with_workload(context=16 * 4096)
    assert [flag for flag in flags(small) if "--gpus" in flag] == ["--kv-dtype fp8 --gpus 8 --tp 8"]
    # 4 heads of K and V are copied from 8 GPUs on: 128 MiB on each of 4 and of 8, beside 31 or 16
    # of weights
    copied = on(100 * MIB, of=model(attention=Grouped(8, 4, 128))).with_workload(context=16 * 4096)
    assert [flag for flag in flags(copied) if "--gpus" in flag] == [
        "--kv-dtype fp8 --gpus 4 --tp 4"
    ]


def test_a_larger_share_needs_no_more_gpus_with_a_narrow_cache() -> None:
    """88 sequences of 8 MiB, as one head of K and V is on every GPU: 704 MiB, and 53 of weights.

    0.3 of 1,258 MiB are 377: 380 are missing. A cache in fp8 takes 352 less, and 8 GPUs 46 of the
    weights.
    """
    asked = on(
        1258 * MIB,
        "sglang",
        model(attention=Grouped(8, 1, 128)),
        batch=88,
        gpu_memory_utilization="0.3",
        weights_dtype="int4",
    )
    narrow = asked.with_workload(kv_dtype="fp8")
    assert "--gpus 8 --tp 8" in more_gpus(narrow)
    found = flags(asked)
    assert found[0] == "--mem-fraction-static 0.8"
    # 30 requests on each of 3 replicas are 240 MiB
    assert [flag for flag in found if "--gpus" in flag] == ["--gpus 3 --tp 1"]


def test_two_changes_together_change_what_each_does() -> None:
    asked = on(GIB)
    one = kinds.Change("a", "--a", {"gpus": 2}, {"batch": 3}, {"block_size": 32})
    other = kinds.Change("b", "--b", {"reserve": 4}, {"context": 5}, {"max_num_seqs": 6})
    both = kinds.both(one, other)
    assert (both.words, both.flag) == ("a, b", "--a --b")
    assert both.apply(asked) == other.apply(one.apply(asked)) != one.apply(asked)


# Layers and experts in host memory

LAYERS_ON_HOST = partial(kinds.on_host, option="n_gpu_layers")
EXPERTS_ON_HOST = partial(kinds.on_host, option="n_cpu_moe")


def test_llama_cpp_leaves_layers_in_host_memory() -> None:
    """4 layers of 24 MiB with 16 MiB of cache each, and the output layer with 16 MiB of the head.

    In 140 MiB are 3 layers and the output layer. One of 4 experts' layers is enough on the host as
    well.
    """
    asked = on(140 * MIB, "llamacpp", kv_dtype="bf16")
    changed = tried(LAYERS_ON_HOST, asked)
    assert list(changed) == ["--n-gpu-layers 4"]
    assert changed["--n-gpu-layers 4"].engine_args == {"n_gpu_layers": 4}
    assert tried(EXPERTS_ON_HOST, asked) == {}
    # a given memory for the cache is as large with fewer layers
    given = on(140 * MIB, "llamacpp", kv_dtype="bf16", kv_memory=MIB)
    given = dataclasses.replace(given, reserve=None)
    assert tried(LAYERS_ON_HOST, given) == tried(EXPERTS_ON_HOST, given) == {}
    # no other engine leaves layers there
    assert tried(LAYERS_ON_HOST, on(140 * MIB)) == tried(EXPERTS_ON_HOST, on(140 * MIB)) == {}
    # everything fits: nothing has to be on the host
    assert tried(LAYERS_ON_HOST, on(300 * MIB, "llamacpp")) == {}


def test_llama_cpp_leaves_experts_in_host_memory() -> None:
    """4 layers of 8 experts with 2 x 1,024 x 1,536 elements: 48 MiB of experts each, 8 of
    attention, 16 of cache.

    304 MiB in all with the head: one of 48 less is enough for 260, two for 210.
    """
    for memory, layers in ((260, 1), (210, 2)):
        asked = on(memory * MIB, "llamacpp", MIXTURE, kv_dtype="bf16")
        (change,) = EXPERTS_ON_HOST(resolve(asked))
        words = (
            "experts of 1 layer on the host" if layers == 1 else "experts of 2 layers on the host"
        )
        assert (change.words, change.flag) == (words, f"--n-cpu-moe {layers}")
        assert change.apply(asked).engine_args == {"n_cpu_moe": layers}
    given = on(140 * MIB, "llamacpp", MIXTURE, kv_memory=MIB)
    assert tried(EXPERTS_ON_HOST, dataclasses.replace(given, reserve=None)) == {}


def test_whole_experts_are_suggested_where_tensor_parallelism_cuts_their_blocks() -> None:
    """1,536 outputs / 8 = 192 are no whole FP8 blocks of 128 (vllm-project/vllm issue 17569)."""
    of = fit(FitRequest(load("minimax-m2.5"), Workload.decode(1, 4096), "vllm", gpu=H100, tp=8))
    found = suggestions(of)[0]
    assert (found.flag, found.result.verdict) == ("--enable-expert-parallel", "fits")
    assert not any(
        change.flag.startswith("--enable-expert-parallel")
        for change in suggestions(fit(request(of=MIXTURE, tp=8, batch=100_000)))
    )
