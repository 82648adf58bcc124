"""The parts of the runtime memory of toy models, each by its engine's formula. test_startups.py has
real start-ups.
"""

import dataclasses
from typing import Any

import pytest
from tables import each

from attncalc import Grouped, Head, Latent, Layers, Mlp, ModelSpec, Stack, load
from attncalc.attention import Matrix
from attncalc.attention.compressed import Compressed
from attncalc.attention.linear import GatedDeltaNet
from attncalc.config.gpus import gpu
from attncalc.engines.base import Limits
from attncalc.engines.estimate import estimated_runtime, largest_tensors
from attncalc.engines.runtime import RuntimeFacts, RuntimeMemory, RuntimePart
from attncalc.engines.sglang.options import SglangArgs
from attncalc.engines.sglang.runtime import runtime as sglang_runtime
from attncalc.engines.vllm.options import VllmArgs
from attncalc.engines.vllm.runtime import runtime as vllm_runtime
from attncalc.hardware import Gpu
from attncalc.model import Tower, TowerItem
from attncalc.units import GIB, dtype

MIB = 2**20
# Width of the model, vocabulary, layers, tokens and sequences of a step.
D, V, L, N, S = 100, 1000, 6, 48, 20
HEADS, KV, D_QK, D_V, D_FF = 8, 2, 16, 24, 300
# Elements of q, k, v and the output.
QKVO = HEADS * (D_QK + D_V) + KV * (D_QK + D_V)
ATTENTION = Grouped(HEADS, KV, D_QK, D_V)
MLP = Mlp(D_FF, gated=True)
MIXTURE = Mlp(40, gated=True, n_experts=8, n_experts_per_token=3)
MLA = Latent(HEADS, 50, 12, 6, 9)
SPARSE = Latent(HEADS, 50, 12, 6, 9, index_topk=7, index_n_heads=2, index_head_dim=5)
DEVICE = Gpu(
    "toy",
    "NVIDIA Toy",
    "NVIDIA",
    80,
    80 * GIB,
    10**12,
    (("bf16", 10**14),),
    multiprocessors=10,
    compute_capability=(8, 9),
    nvlink=True,
)
HOPPER = dataclasses.replace(DEVICE, compute_capability=(9, 0))
# cuBLAS' workspace, the larger one on Hopper and on B200.
SMALL, LARGE = 8320 * 1024, 32 * MIB

# Bytes that the estimate has outside tensors on one GPU.
CONSTANT = -(-179 * GIB // 100)


def model(attention: Any = ATTENTION, mlp: Mlp | None = MLP, **fields: Any) -> ModelSpec:
    stack = Stack("decoder", (Layers("layers", L, attention=attention, mlp=mlp),), D)
    return ModelSpec("toy", "toy", (stack,), **{"vocab_size": V, "head": Head("lm"), **fields})


def facts(whole: ModelSpec | None = None, of: Any = VllmArgs, **changes: Any) -> RuntimeFacts[Any]:
    """Return the facts; changes of the engine's arguments, of that class, are `max_num_seqs`, `tp`
    and so on.
    """
    whole = whole or model()
    fields = {field.name for field in dataclasses.fields(RuntimeFacts)}
    limits = {"engine_version": "0.19.0", "max_num_batched_tokens": N, "max_num_seqs": S}
    args = {
        **(limits if of is VllmArgs else {}),
        "attentions": frozenset(layers.attention.label for _, layers in whole.groups()),
        **{name: value for name, value in changes.items() if name not in fields},
    }
    given = {
        "model": whole,
        "whole": whole,
        "args": of(kv_dtype=dtype("bf16"), dtype=dtype("bf16"), **args),
        "limits": Limits(N, S),
        "gpu": DEVICE,
        "share": (9, 10),
        "batch": 1,
        "context": 500,
        "weights": 10**9,
        "weights_dtype": "bf16",
        **{name: value for name, value in changes.items() if name in fields},
    }
    return RuntimeFacts(**given)


def sglang_facts(**changes: Any) -> RuntimeFacts[SglangArgs]:
    return facts(None, SglangArgs, **changes)


def ends(part: RuntimePart) -> tuple[int, int, int]:
    assert type(part.low) is type(part.high) is int  # no fractions of bytes
    assert part.expected.formula.symbols or not part.expected
    return part.low, int(part.expected), part.high


def parts(memory: RuntimeMemory) -> dict[str, tuple[int, int, int]]:
    return {part.name: ends(part) for part in (*memory.parts, *memory.outside)}


def terms(memory: RuntimeMemory) -> dict[str, int]:
    assert all(size.formula.symbols for _, _, size in memory.terms)
    return {name: int(size) for name, _, size in memory.terms}


# The estimate of engines without a formula of their own


@pytest.mark.parametrize(
    ("whole", "widest"),
    [
        (model(), 3 * D_FF),
        (model(mlp=Mlp(D_FF)), 2 * D_FF),
        (model(mlp=None), QKVO),
        (model(Grouped(HEADS, HEADS, 50, 60), MLP), 2 * HEADS * (50 + 60)),
        (model(mlp=MIXTURE), 3 * (3 * 40 + D)),  # three experts, each with its copy of the token
        # MLA's latent, and the part copied from K
        (model(MLA, None), 2 * HEADS * (18 + 9) + 56 + HEADS * 12),
    ],
)
def test_estimate_is_the_widest_part_of_a_layer_and_the_logits(
    whole: ModelSpec, widest: int
) -> None:
    tensors = N * (2 * D + widest) * 2 + S * V * 8
    memory = estimated_runtime(facts(whole))
    assert parts(memory) == {
        "activations": (tensors // 2, tensors, tensors * 3 // 2),
        "cuda": (GIB // 4, CONSTANT, CONSTANT * 3 // 2),
    }
    assert terms(memory) == {"activation_bytes": N * (2 * D + widest) * 2, "logit_bytes": S * V * 8}


def test_estimate_of_a_device_without_layers() -> None:
    bare = ModelSpec("toy", "toy", (Stack("decoder", (), D),), vocab_size=V, head=Head("lm"))
    memory = estimated_runtime(facts(bare))
    assert terms(memory)["activation_bytes"] == N * 2 * D * 2
    assert largest_tensors(facts(bare))[0] == N * 2 * D * 2 + S * V * 8


def test_estimate_has_as_many_logits_as_tokens_or_sequences() -> None:
    assert terms(estimated_runtime(facts(limits=Limits(7, 20))))["logit_bytes"] == 7 * V * 8
    assert "logit_bytes" not in terms(estimated_runtime(facts(model(vocab_size=None, head=None))))
    (note,) = estimated_runtime(facts(limits=Limits(7, 20))).notes
    assert "a pass over 7 tokens, logits of 7 sequences" in note


@pytest.mark.parametrize(("tp", "pp", "several"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_constants_are_those_of_a_profile_of_vllm(tp: int, pp: int, several: bool) -> None:
    """vllm-project/vllm pull request 10511: 1.79 GiB outside PyTorch's tensors, and 3.58 with tp 2,
    rounded up.
    """
    size = -(-358 * GIB // 100) if several else CONSTANT
    _, part = estimated_runtime(facts(tp=tp, pp=pp)).parts
    assert ends(part) == (GIB // 4, size, size * 3 // 2)
    assert part.label == (
        "CUDA context, graphs and collectives" if several else "CUDA context and graphs"
    )


# SGLang


@pytest.mark.parametrize(
    ("tp", "pp", "vendor", "nvlink", "hundredths"),
    [
        (1, 1, "NVIDIA", True, (25, 55, 100)),
        (2, 1, "NVIDIA", False, (30, 55, 110)),
        (8, 1, "NVIDIA", False, (40, 90, 130)),
        (1, 2, "NVIDIA", True, (120, 190, 310)),
        (2, 2, "NVIDIA", True, (120, 190, 310)),
        (2, 1, "NVIDIA", None, (30, 120, 310)),
        (8, 1, "AMD", True, (120, 440, 500)),
        (2, 1, "AMD", True, (120, 440, 500)),  # the buffers of quick reduce are per GPU
        (1, 1, "AMD", True, (25, 55, 100)),
    ],
)
def test_sglang_loses_its_share_of_what_is_gone_before(
    tp: int, pp: int, vendor: str, nvlink: bool | None, hundredths: tuple[int, int, int]
) -> None:
    device = dataclasses.replace(DEVICE, vendor=vendor, nvlink=nvlink)
    sizes = tuple(-(-(h * GIB // 100) * 9 // 10) for h in hundredths)
    found = parts(sglang_runtime(sglang_facts(tp=tp, pp=pp, gpu=device, engine_version="0.5.23")))
    assert found["before_share"] == sizes
    assert found["loading"] == (0, 0, 3 * GIB // 10)


def test_sglang_loses_more_on_several_b200() -> None:
    """3.0 GiB are gone before the share in a log of four, 3.3 in one of eight."""
    device = dataclasses.replace(DEVICE, nvlink=True, compute_capability=(10, 0))
    low, expected, high = parts(sglang_runtime(sglang_facts(tp=8, gpu=device)))["before_share"]
    assert low / 0.9 / GIB < 3.0 <= round(expected / 0.9 / GIB, 2) < 3.3 < high / 0.9 / GIB


def test_sglang_may_have_less_of_a_gpu_that_shows_a_desktop() -> None:
    game = dataclasses.replace(DEVICE, title="NVIDIA GeForce Toy")
    assert (
        parts(sglang_runtime(sglang_facts(gpu=game)))["before_share"][2]
        == 130 * GIB // 100 * 9 // 10 + 1
    )


def test_sglang_keeps_the_indices_of_packed_experts_on_amd() -> None:
    """8 bytes per input of both products: D and 40 of each of 8 experts in L layers."""
    whole = model(mlp=MIXTURE, experts_dtype="int4")
    packed: dict[str, Any] = {"weights_dtype": "int4", "engine_version": "0.5.8"}
    amd = dataclasses.replace(DEVICE, vendor="AMD")
    for device, indices in ((amd, L * 8 * (D + 40) * 8), (DEVICE, 0)):
        found = parts(sglang_runtime(facts(whole, SglangArgs, gpu=device, **packed)))
        assert found["loading"] == (indices, indices, indices + 3 * GIB // 10)


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({}, (2048, 4096, 4096)),  # the pool holds more than 8 contexts of 500 tokens
        ({"context": 10**9}, (2048, 2048, 4096)),  # and not one of a billion
        ({"max_running_requests": 7}, (7, 7, 7)),
        ({"speculative_tokens": 2}, (48, 48, 48)),
        ({"speculative_layers": 1}, (48, 48, 48)),
        ({"speculative_layers": 1, "max_running_requests": 100}, (100, 100, 100)),
    ],
)
def test_sglangs_table_of_requests(options: dict[str, Any], requests: tuple[int, int, int]) -> None:
    """A row per request and one more, of 4 bytes for each token of the context and 4 more
    tokens.
    """
    found = parts(sglang_runtime(sglang_facts(engine_version="0.5.23", **options)))
    row = (options.get("context", 500) + 4) * 4
    assert found["req_to_token"] == tuple((count + 1) * row for count in requests)


def test_sglangs_table_has_512_requests_per_context_of_the_pool() -> None:
    """DeepSeek-V2-Lite on 80 GB: 1,250,139 tokens / 163,840 * 512 are 3,906 requests, 2.38 GiB;
    2.42 were measured.
    """
    deepseek = load("deepseek-v2-lite")
    weights = {"share": (85, 100), "weights": 31_413_626_880}
    asked = facts(deepseek, SglangArgs, gpu=gpu("h100-80gb"), context=163_840, **weights)
    assert parts(sglang_runtime(asked))["req_to_token"][1] == pytest.approx(2.42 * GIB, rel=0.03)


@pytest.mark.parametrize(
    ("version", "gib", "tp", "running", "sizes"),
    [
        # 1, 2, 4, 8 / 12 and 16 to 256 by 8 / 272 to 512 by 16
        ("0.5.23", 16, 1, None, 4),
        ("0.5.23", 24, 1, None, 5 + 5),  # up to 48
        ("0.5.9", 24, 1, None, 5 + 2),  # up to 24
        ("0.5.23", 40, 3, None, 5 + 3),  # up to 32
        ("0.5.23", 40, 4, None, 5 + 19),  # up to 160
        ("0.5.9", 24, 4, None, 5 + 9),  # up to 80
        ("0.5.23", 80, 1, None, 5 + 31),
        ("0.5.23", 180, 1, None, 5 + 31 + 16),
        ("0.5.23", 80, 1, 3, 2 + 1),  # up to --max-running-requests, which is one of them
    ],
)
def test_sglang_captures_graphs_by_the_gpus_memory(
    version: str, gib: int, tp: int, running: int | None, sizes: int
) -> None:
    size = sizes * 27 * MIB
    asked = sglang_facts(
        engine_version=version, tp=tp, device_memory=gib * GIB, max_running_requests=running
    )
    assert parts(sglang_runtime(asked))["cuda_graphs"] == (size // 2, size, size * 2)


def test_sglang_holds_the_activations_of_a_chunk_within_a_half() -> None:
    """48 tokens of 2 * 100 and 3 * 300 elements in bf16, and logits of 20 sequences, twice in
    fp32.
    """
    found = sglang_runtime(sglang_facts(engine_version="0.5.23"))
    size = 48 * (2 * D + 3 * D_FF) * 2 + 20 * V * 8
    assert parts(found)["activations"] == (size // 2, size, size * 3 // 2)
    assert all(
        type(end) is int for part in (*found.parts, *found.outside) for end in (part.low, part.high)
    )


def test_sglang_warns_if_the_rest_is_too_small_for_what_is_outside_the_share() -> None:
    """80 - 0.55 GiB, of which 1 - f is left; the three parts outside need more or less."""
    needed = sum(
        size
        for _, size, _ in list(
            parts(sglang_runtime(sglang_facts(engine_version="0.5.23"))).values()
        )[2:]
    )
    seen = 80 * GIB - 55 * GIB // 100
    warned = [
        any(
            "warning" in note
            for note in sglang_runtime(sglang_facts(engine_version="0.5.23", share=share)).notes
        )
        for share in ((seen - needed, seen), (seen - needed + 1, seen), (9, 10))
    ]
    assert warned == [False, True, seen // 10 < needed]


# vLLM: forward pass and sampler


def vllm(whole: ModelSpec | None = None, **changes: Any) -> RuntimeMemory:
    return vllm_runtime(facts(whole, **changes))


def forward(widest: int, workspace: int = SMALL) -> int:
    return N * 2 * widest + N * 2 * D * 15 // 4 + workspace


@each(
    ("whole", "changes", "expected"),
    [
        (model(), {}, forward(3 * D_FF)),
        (model(), {"gpu": HOPPER}, forward(3 * D_FF, LARGE)),
        (
            model(),
            {"gpu": dataclasses.replace(DEVICE, compute_capability=(10, 0))},
            forward(3 * D_FF, LARGE),
        ),
        (
            model(),
            {"gpu": dataclasses.replace(DEVICE, compute_capability=(12, 0))},
            forward(3 * D_FF),
        ),
        (model(), {"gpu": dataclasses.replace(DEVICE, compute_capability=None)}, forward(3 * D_FF)),
        (model(mlp=Mlp(D_FF)), {}, forward(2 * D_FF)),
        (model(mlp=None), {}, forward(QKVO)),
        (model(mlp=Mlp(100)), {}, forward(QKVO)),
        # MLA holds the latent and the part copied from K too
        (
            model(MLA, None),
            {"engine_version": "0.10.0"},
            forward(2 * HEADS * (18 + 9) + 56 + HEADS * 12),
        ),
        (model(), {"weights_dtype": "fp8"}, forward(2 * D_FF) + N * D_FF),
        (model(), {"weights_dtype": "int8"}, forward(3 * D_FF) + N * D_FF),
        (model(mlp=None), {"weights_dtype": "fp8"}, forward(QKVO)),
        (model(), {"weights_dtype": "int4"}, forward(3 * D_FF)),
        (model(mlp=MIXTURE), {}, forward(QKVO)),
        (model(mlp=MIXTURE), {"weights_dtype": "fp8"}, forward(QKVO)),
        (model(mlp=dataclasses.replace(MIXTURE, n_shared_experts=5)), {}, forward(3 * 5 * 40)),
        (model(mlp=dataclasses.replace(MIXTURE, d_ff_shared=250)), {}, forward(3 * 250)),
        # MLA: K and V of a chunk of the prefix: 8 contexts of 500, 4 blocks of 64 of 20 sequences,
        # at most 65,536
        (model(MLA), {}, forward(3 * D_FF) + 4 * 20 * 64 * HEADS * (12 + 9) * 2),
        (model(MLA), {"context": 1000}, forward(3 * D_FF) + 8 * 1000 * HEADS * (12 + 9) * 2),
        (model(MLA), {"context": 10**5}, forward(3 * D_FF) + 65_536 * HEADS * (12 + 9) * 2),
        (model(MLA), {"block_size": 128}, forward(3 * D_FF) + 4 * 20 * 128 * HEADS * (12 + 9) * 2),
        (
            model(MLA),
            {"limits": Limits(N, 2000)},
            forward(3 * D_FF) + 2000 * 64 * HEADS * (12 + 9) * 2,
        ),
        (model(MLA), {"engine_version": "0.10.0"}, forward(3 * D_FF)),
        (model(SPARSE), {}, forward(3 * D_FF) + 512 * MIB),
        (model(SPARSE), {"sparse_indexer_max_logits_mb": 256}, forward(3 * D_FF) + 256 * MIB),
        (
            model(SPARSE),
            {"engine_version": "0.17.0"},
            forward(3 * D_FF) + 4 * 20 * 64 * HEADS * (12 + 9) * 2,
        ),
    ],
)
def test_vllms_forward_pass(whole: ModelSpec, changes: dict[str, Any], expected: int) -> None:
    assert terms(vllm(whole, **changes))["forward_bytes"] == expected


def test_a_drafter_reads_hidden_states_of_three_layers() -> None:
    """They are there until the drafter ran: beside the forward pass, and with 5 more when the
    drafter is compiled.
    """
    with_drafter, without = (
        terms(vllm(engine_version="0.22.0", states_read=states)) for states in (3, 0)
    )
    assert with_drafter["forward_bytes"] - without["forward_bytes"] == 3 * N * D * 2
    assert with_drafter["compiler_bytes"] - without["compiler_bytes"] == (3 + 5) * N * D * 2


COMPRESSED = Compressed(
    HEADS, 16, 20, 2, 10, compress_rate=4, index_topk=7, index_n_heads=2, index_head_dim=5
)
WITH_STREAMS = Layers(
    "layers",
    L,
    attention=COMPRESSED,
    mlp=MIXTURE,
    extra=(Matrix("stream_mixer_attention", 4 * D, 24),),
)
STREAMS = 2 * (4 * D + D)  # bytes of 4 residual streams and a layer's input, per token
# latents twice, and what pools are averaged from in fp32
BESIDE = 2 * 2 * (20 + 16) + 4 * 4 * (16 + 5)
QUERIES, PADDED = 2 * HEADS * 16, 2 * 64 * 16


@each(
    ("changes", "per_token"),
    [
        # output and queries in 64 heads, the queries before that, and the streams of the layer
        # before
        ({"device": "NVIDIA H200"}, 2 * STREAMS + BESIDE + 2 * PADDED + QUERIES),
        (
            {"device": "NVIDIA H200", "engine_version": "0.22.0"},
            STREAMS + BESIDE + 2 * PADDED + QUERIES,
        ),
        ({"device": "NVIDIA RTX PRO 6000"}, 2 * STREAMS + BESIDE + 2 * 2 * 16 * 16 + QUERIES),
        ({"device": "AMD Instinct MI355X"}, 2 * STREAMS + BESIDE + 2 * QUERIES),
    ],
)
def test_vllms_forward_pass_of_deepseek_v4(changes: dict[str, Any], per_token: int) -> None:
    whole = dataclasses.replace(model(), stacks=(Stack("decoder", (WITH_STREAMS,), D),))
    tokens = 10**7  # with fewer the indexer's logits decide
    memory = vllm(whole, **{"engine_version": "0.25.0", "limits": Limits(tokens, S), **changes})
    assert terms(memory)["forward_bytes"] == tokens * per_token + SMALL
    assert "compiler_bytes" not in terms(memory) or changes.get("engine_version") == "0.22.0"


def test_the_indexer_of_deepseek_v4_has_its_logits() -> None:
    """512 MiB, beside the indexer's queries of 2 x 5 bytes; from 0.28 on beside the padded queries
    too.
    """
    whole = dataclasses.replace(model(), stacks=(Stack("decoder", (WITH_STREAMS,), D),))
    for version, queries in (("0.27.0", 0), ("0.28.0", PADDED)):
        found = terms(vllm(whole, engine_version=version, device="NVIDIA H200"))["forward_bytes"]
        assert found == N * (2 * STREAMS + BESIDE + PADDED + 2 * 5 + queries) + 512 * MIB + SMALL


@each(
    ("changes", "size"),
    [
        # 40 contexts in pools of 4, of 5 bytes and a scale of 4, and the top k's 1 MiB
        ({}, 40 * 10**5 // 4 * 9 + MIB),
        ({"context": 10**6, "engine_version": "0.32.0"}, 16 * 10**6 // 4 * 9 + MIB),
        ({"context": 10**6, "engine_version": "0.31.0"}, 40 * 10**6 // 4 * 9 + MIB),
        # FlashMLA: the pools of 4 contexts and the tokens of a step, of 16 values
        ({"device": "NVIDIA H200", "limits": Limits(10**6, S)}, 4 * (10**5 // 4 + 10**6) * 16 * 2),
    ],
)
def test_deepseek_v4_gathers_its_pools(changes: dict[str, Any], size: int) -> None:
    whole = dataclasses.replace(
        model(), stacks=(Stack("decoder", (dataclasses.replace(WITH_STREAMS, mlp=None),), D),)
    )
    assert parts(vllm(whole, **{"context": 10**5, **changes}))["gathered_latents"][1] == size


def sampler(per_logit: int, *, rows: int = S, buffer: int = 0, workspace: int = SMALL) -> int:
    return rows * V * per_logit + (N + 2 * rows) * D * 2 + workspace + buffer


@each(
    ("changes", "expected"),
    [
        ({}, sampler(2 + 12, buffer=4 * 10 * V)),
        ({"engine_version": "0.16.0"}, sampler(2 + 36)),
        ({"engine_version": "0.20.0"}, sampler(2 + 12, buffer=4 * 10 * V)),
        ({"engine_version": "0.21.0"}, sampler(2 + 12)),  # FlashInfer samples
        (
            {
                "engine_version": "0.21.0",
                "gpu": dataclasses.replace(DEVICE, compute_capability=(7, 5)),
            },
            sampler(2 + 12, buffer=4 * 10 * V),
        ),
        (
            {
                "engine_version": "0.21.0",
                "gpu": dataclasses.replace(DEVICE, compute_capability=(8, 0)),
            },
            sampler(2 + 12),
        ),
        # the profile samples again, without FlashInfer
        (
            {
                "engine_version": "0.22.0",
                "gpu": dataclasses.replace(DEVICE, compute_capability=(8, 0)),
            },
            sampler(2 + 12, buffer=4 * 10 * V),
        ),
        # drafts are verified: logits of two tokens and a copy of one in bf16, and six tensors in
        # fp32
        (
            {"engine_version": "0.17.0", "speculative_tokens": 3},
            sampler(3 * 2 + 6 * 4, buffer=4 * 10 * V),
        ),
        ({"engine_version": "0.16.0", "speculative_tokens": 3}, sampler(2 + 36)),
        (
            {"engine_version": "0.22.0", "model_type": "qwen3", "speculative_tokens": 3},
            sampler(2 + 4),
        ),
        ({"engine_version": "0.22.0", "model_type": "qwen3"}, sampler(2 + 4)),
        ({"gpu": dataclasses.replace(DEVICE, multiprocessors=0)}, sampler(2 + 12)),
        # a GPU without a compute capability has no FlashInfer; the second runner has no buffer
        (
            {
                "engine_version": "0.21.0",
                "gpu": dataclasses.replace(DEVICE, compute_capability=None),
            },
            sampler(2 + 12, buffer=4 * 10 * V),
        ),
        (
            {
                "engine_version": "0.29.0",
                "gpu": dataclasses.replace(DEVICE, compute_capability=(7, 5)),
            },
            sampler(2),
        ),
        ({"limits": Limits(N, 100)}, sampler(2 + 12, rows=N, buffer=4 * 10 * V)),
        ({"tp": 2}, sampler(2 + 12, buffer=4 * 10 * V)),
        ({"gpu": HOPPER}, sampler(2 + 12, buffer=4 * 10 * V, workspace=LARGE)),
        ({"runner": "pooling"}, None),  # nothing samples
        ({"last": False}, None),
    ],
)
def test_vllms_sampler(changes: dict[str, Any], expected: int | None) -> None:
    assert terms(vllm(**changes)).get("sampler_bytes") == expected


@pytest.mark.parametrize(
    ("whole", "changes", "expected"),
    [
        (model(), {"engine_version": "0.24.0"}, (V + N) * D * 2),
        (model(), {"engine_version": "0.11.1"}, (V + N) * D * 2),
        (model(), {"engine_version": "0.11.0"}, None),
        (model(), {"engine_version": "0.24.0", "tp": 3}, (334 + N) * D * 2),
        (model(), {"engine_version": "0.24.0", "first": False}, None),
        (model(), {"engine_version": "0.24.0", "enforce_eager": True}, None),
        (model(vocab_size=None, head=None), {"engine_version": "0.24.0"}, None),
        (model(towers=(Tower("vision", 10, 1),)), {"engine_version": "0.24.0"}, None),
    ],
)
def test_vllms_compiler_copies_the_embedding(
    whole: ModelSpec, changes: dict[str, Any], expected: int | None
) -> None:
    assert terms(vllm(whole, **changes)).get("compiler_bytes") == expected


def test_activations_are_the_largest_step_with_a_range() -> None:
    """0.75 d_model per token, a twentieth of the sampler, and 0.1 or 0.15 GiB; 0.3 if the sequences
    are assumed.
    """
    ahead, sample, margin = forward(3 * D_FF), sampler(14, buffer=4 * 10 * V), D * N * 2 * 3 // 4
    compile_ = (V + N) * D * 2 + GIB // 20
    found = vllm()
    assert parts(found)["activations"] == (
        max(0, max(ahead - margin, sample) - GIB // 10),
        max(ahead, sample),
        max(max(ahead + margin, sample * 21 // 20) + GIB * 15 // 100, compile_),
    )
    assert found.parts[0].label == "sampler, 20 sequences"


def test_formulas_of_vllms_parts() -> None:
    found = vllm(engine_version="0.20.0")
    assert {name: size.formula.text for name, _, size in found.terms} == {
        "forward_bytes": "N * bytes * 3 * d_ff + N * bytes * d_model * 15 // 4 + workspace",
        "sampler_bytes": "min(N, max_num_seqs) * V * (bytes + scratch) + (N + 2 * min(N, "
        "max_num_seqs)) * "
        "d_model"
        " * bytes + workspace + 4 * multiprocessors * V",
        "compiler_bytes": "(V_device + N) * d_model * bytes",
    }
    assert {part.name: part.expected.formula.text for part in found.parts} == {
        "activations": "max(forward_bytes, sampler_bytes)",
        "outside_torch": "libraries + L * per_layer",
        "cuda_graphs": "first + (2 * (piecewise - 1) + full - 1) * ((2097152 + L * per_layer) // "
        "3)",
    }


BIG, MANY = 8192, 4096


def big(**changes: Any) -> RuntimeMemory:
    return vllm(limits=Limits(BIG, MANY), **changes)


def test_assumed_limits_leave_the_range_of_activations() -> None:
    def ahead(side: int) -> int:
        width = 3 * 30_000
        return BIG * 2 * width + BIG * 2 * D * 15 // 4 + SMALL + side * (D * BIG * 2 * 3 // 4)

    wide = model(mlp=Mlp(30_000, gated=True))
    given = parts(big(whole=wide))["activations"]
    assert given == (ahead(-1) - GIB // 10, ahead(0), ahead(1) + GIB * 15 // 100)
    assert (
        parts(big(whole=wide, max_num_batched_tokens=None, max_num_seqs=None))["activations"]
        == given
    )


def test_a_freed_block_may_count_once_more_from_0_27_to_0_30() -> None:
    """The compiler's copy of the embedding, 2 GB; without a compiler, half of the largest step."""
    wide, size = model(vocab_size=10**7), (10**7 + N) * D * 2
    few: dict[str, Any] = {"limits": Limits(N, 1), "max_num_seqs": 1}
    for version, dtype_, capability, expected, most in (
        ("0.26.0", "int4", (12, 0), 1, 1),
        ("0.27.0", "bf16", (12, 0), 1, 2),
        ("0.27.0", "int4", (12, 0), 2, 2),
        ("0.27.0", "int4", (8, 9), 1, 2),
        ("0.27.0", "int4", None, 1, 2),
        ("0.30.0", "int4", (12, 0), 2, 2),
        ("0.31.0", "int4", (12, 0), 1, 1),
    ):
        device = dataclasses.replace(DEVICE, compute_capability=capability)
        found = parts(vllm(wide, engine_version=version, weights_dtype=dtype_, gpu=device, **few))[
            "activations"
        ]
        assert found[1:] == (expected * size, most * size + GIB // 20), (
            version,
            dtype_,
            capability,
        )
    eager: dict[str, Any] = {"enforce_eager": True, **few}
    old, new = (
        parts(vllm(wide, engine_version=v, **eager))["activations"] for v in ("0.26.0", "0.27.0")
    )
    assert (new[1], new[2] - old[2]) == (old[1], old[1] // 2)


def test_a_later_start_does_not_compile() -> None:
    """10 million tokens: the copy of the embedding takes 2 GB, and the logits of a sequence 60
    MB.
    """
    wide: dict[str, Any] = {
        "whole": model(vocab_size=10**7),
        "limits": Limits(N, 1),
        "max_num_seqs": 1,
    }
    first, cold, warm = (
        vllm(engine_version="0.24.0", warm_start=start, **wide) for start in (None, False, True)
    )
    size = (10**7 + N) * D * 2
    assert parts(first)["activations"][1] == parts(cold)["activations"][1] == size
    assert parts(cold)["activations"][0] == size - GIB // 20
    low, expected, high = parts(warm)["activations"]
    assert expected == terms(warm)["sampler_bytes"]
    assert parts(first)["activations"][0] == low < high < size
    assert any("--warm-start" in note for note in first.notes)
    assert not any("--warm-start" in note for memory in (cold, warm) for note in memory.notes)


@each(
    ("version", "given", "scratch", "may_be_less"),
    [
        ("0.7.3", None, 36, False),
        ("0.8.0", None, 36, True),
        ("0.11.0", None, 36, True),
        ("0.11.0", False, 36, False),
        ("0.11.0", True, 12, False),
        ("0.11.1", None, 36, False),
        ("0.16.0", True, 12, False),
        ("0.21.0", None, 12, False),
    ],
)
def test_flashinfer_samples_with_less_memory(
    version: str, given: bool | None, scratch: int, may_be_less: bool
) -> None:
    """Gemma 3 and 256 sequences: 24 x 256 x 262,144 B are 1.5 GiB; 4.00 and 2.49 GiB of cache were
    logged.
    """
    many: dict[str, Any] = {
        "limits": Limits(256, 256),
        "max_num_seqs": 256,
        "max_num_batched_tokens": 256,
    }
    found = vllm(
        model(vocab_size=262_144), engine_version=version, flashinfer_sampler=given, **many
    )
    assert terms(found)["sampler_bytes"] == 256 * 262_144 * (2 + scratch) + 3 * 256 * D * 2 + SMALL
    low, expected, _ = parts(found)["activations"]
    assert expected - low == GIB // 10 + (3 * GIB // 2 if may_be_less else 0)
    assert any("--flashinfer-sampler" in note for note in found.notes) == may_be_less


def test_without_given_sequences_the_sampler_of_v0_may_need_half() -> None:
    for version, scratch, most in (("v0", 38, 2), ("0.19.0", 14, 1)):
        changes: dict[str, Any] = {"whole": model(vocab_size=200_000), "engine_version": version}
        top_k = 4 * 10 * 200_000 if scratch == 14 else 0
        sample = MANY * 200_000 * scratch + (BIG + 2 * MANY) * D * 2 + SMALL + top_k
        given = parts(big(**changes))["activations"]
        assert given == (sample - GIB // 10, sample, sample * 21 // 20 + GIB * 15 // 100)
        assert (
            parts(big(**changes, max_num_seqs=None))["activations"][0] == sample // most - GIB // 10
        )


@each(
    ("changes", "widths"),
    [
        ({"engine_version": "0.11.0"}, 3),
        ({"engine_version": "0.11.1"}, 2),
        ({"engine_version": "0.11.1", "enforce_eager": True}, 3),
        ({"engine_version": "0.11.1", "weights_dtype": "int8"}, 3),
    ],
)
def test_a_compiled_model_writes_the_product_of_silu_in_fp8_only(
    changes: dict[str, Any], widths: int
) -> None:
    """Gate and up in bf16, and their product in 1 byte; before, also the product in bf16."""
    found = vllm(**{"weights_dtype": "fp8", **changes})
    assert terms(found)["forward_bytes"] == forward(widths * D_FF) + N * D_FF


def test_gated_delta_nets_tune_their_kernels_from_0_18() -> None:
    delta = model(GatedDeltaNet(4, 8, 10, 3))
    before, after = (
        parts(vllm(delta, engine_version=v))["activations"] for v in ("0.17.1", "0.18.0")
    )
    assert (after[0], after[1], after[2]) == (before[0], before[1], before[2] + GIB)
    kda = model(GatedDeltaNet(4, 8, 10, 3, channel_decay=True))
    assert parts(vllm(kda))["activations"][2] == after[2]


# vLLM: experts


def experts(d_ff: int, *, tokens: int = N, activation: int | None = None, d: int = D) -> int:
    return (
        tokens * 3 * ((max(d_ff, d) if activation is None else activation) + max(2 * d_ff, d)) * 2
    )


@each(
    ("whole", "changes", "expected"),
    [
        (model(mlp=MIXTURE), {}, experts(40)),
        (model(mlp=dataclasses.replace(MIXTURE, d_ff=90)), {}, experts(90)),
        (model(mlp=dataclasses.replace(MIXTURE, d_ff=190)), {}, experts(190)),
        (model(mlp=MIXTURE), {"engine_version": "0.12.0"}, experts(40, activation=40)),
        (model(mlp=dataclasses.replace(MIXTURE, d_latent=70)), {}, experts(40, d=70)),
        (
            model(mlp=MIXTURE),
            {"limits": Limits(50_000, S), "engine_version": "0.17.1"},
            experts(40, tokens=16_384),
        ),
        (
            model(mlp=MIXTURE),
            {"limits": Limits(50_000, S), "engine_version": "0.11.0"},
            experts(40, tokens=32_768, activation=40),
        ),
        (
            model(mlp=MIXTURE),
            {"limits": Limits(50_000, S), "engine_version": "0.18.0"},
            experts(40, tokens=50_000),
        ),
        (
            model(mlp=MIXTURE),
            {"engine_version": "0.17.1", "fused_moe_chunk_size": 7},
            experts(40, tokens=7),
        ),
        (model(mlp=MIXTURE, experts_dtype="mxfp4"), {}, experts(40)),
        (model(mlp=MIXTURE, experts_dtype="mxfp4"), {"gpu": HOPPER}, None),
        (
            model(mlp=MIXTURE, experts_dtype="mxfp4"),
            {"gpu": dataclasses.replace(DEVICE, compute_capability=(10, 0))},
            experts(40),
        ),
        (
            # DeepGEMM pads the tokens of 8 experts to 128
            model(mlp=MIXTURE, weights_dtype="mxfp4"),
            {"gpu": dataclasses.replace(DEVICE, compute_capability=(12, 0))},
            experts(40) + 8 * 127 * experts(40, tokens=1) // 3,
        ),
        (model(mlp=MIXTURE, experts_dtype="fp8"), {"gpu": HOPPER}, experts(40)),
        (model(), {}, None),
    ],
)
def test_vllms_experts(whole: ModelSpec, changes: dict[str, Any], expected: int | None) -> None:
    found = vllm(whole, **changes)
    assert terms(found).get("experts_bytes") == expected
    keeps = changes.get("engine_version") not in ("0.11.0", "0.12.0")
    assert ("experts" in parts(found)) == (expected is not None and keeps)


def several(*groups: tuple[Any, Mlp | None], **fields: Any) -> ModelSpec:
    """Return a model with several kinds of layers."""
    layers = tuple(
        Layers(f"kind{i}", L, attention=kind, mlp=mlp) for i, (kind, mlp) in enumerate(groups)
    )
    return ModelSpec(
        "toy",
        "toy",
        (Stack("decoder", layers, D),),
        **{"vocab_size": V, "head": Head("lm"), **fields},
    )


def test_the_widest_experts_decide_the_workspace() -> None:
    wider = dataclasses.replace(MIXTURE, d_ff=190)
    for mixtures in ((MIXTURE, wider), (wider, MIXTURE)):
        layers = [(ATTENTION, mlp) for mlp in (None, MLP, *mixtures)]
        found = vllm(several(*layers, experts_dtype="fp4"))
        assert terms(found)["experts_bytes"] == experts(190)
        assert parts(found)["experts"][2] == experts(190) * 5 // 4 + 3 * N * 3 * D * 2


def test_the_widest_mlp_and_the_widest_heads_decide_the_forward_pass() -> None:
    """A gated MLP of 90, and one of 300 that is counted as if it were gated too; 64 heads are wider
    than both.
    """
    groups = [(ATTENTION, Mlp(90, gated=True)), (ATTENTION, Mlp(300)), (ATTENTION, None)]
    for order in (groups, groups[::-1]):
        assert terms(vllm(several(*order)))["forward_bytes"] == forward(3 * 300)
        many = Grouped(64, 2, D_QK, D_V)
        wide = several(*order, (many, None))
        assert terms(vllm(wide))["forward_bytes"] == forward(66 * (D_QK + D_V))


def test_a_cold_compiler_decides_from_0_22_if_it_needs_the_most() -> None:
    """A million tokens: the copy of the embedding takes 200 MB, and a sequence's logits 14 MB."""
    large: dict[str, Any] = {"limits": Limits(N, 1), "max_num_seqs": 1}
    old, new = (
        vllm(model(vocab_size=10**6), engine_version=version, **large)
        for version in ("0.21.0", "0.22.0")
    )
    copy = (10**6 + N) * D * 2
    assert parts(new)["activations"][1:] == (copy, copy + GIB // 20)
    assert new.parts[0].label == "compiler, which copies the embedding"
    assert parts(old)["activations"][1:] == (terms(old)["sampler_bytes"], copy + GIB // 20)
    assert old.parts[0].label == "sampler, 1 sequence"
    few = vllm(limits=Limits(30_000, 1), max_num_seqs=1)
    assert few.parts[0].label == "forward pass, 30,000 tokens"


def test_range_of_the_experts_workspace() -> None:
    size = experts(40)
    assert parts(vllm(model(mlp=MIXTURE)))["experts"] == (size * 9 // 10, size, size * 5 // 4)
    nvfp4 = model(mlp=MIXTURE, experts_dtype="fp4")
    copies = 3 * N * 3 * D * 2
    assert parts(vllm(nvfp4))["experts"] == (size * 9 // 10, size, size * 5 // 4 + copies)
    latent = model(mlp=dataclasses.replace(MIXTURE, d_latent=70), weights_dtype="fp4")
    size = experts(40, d=70)
    assert parts(vllm(latent))["experts"] == (
        size * 9 // 10,
        size,
        size * 5 // 4 + 3 * N * 3 * 70 * 2,
    )


def test_cutlass_copies_the_inputs_of_experts_in_nvfp4_on_compute_capability_12() -> None:
    """Three copies of what each expert that a token picks reads, in the pass; the workspace has
    only its width.
    """
    blackwell, whole = (
        dataclasses.replace(DEVICE, compute_capability=(12, 1)),
        model(mlp=MIXTURE, experts_dtype="fp4"),
    )
    of_fp4, of_fp8 = (
        vllm(each, gpu=blackwell) for each in (whole, model(mlp=MIXTURE, experts_dtype="fp8"))
    )
    copies = 3 * N * 3 * D * 2
    assert terms(of_fp4)["forward_bytes"] == terms(of_fp8)["forward_bytes"] + copies
    assert terms(of_fp4)["experts_bytes"] == experts(40, activation=40)
    least, most = (
        parts(vllm(whole, gpu=blackwell, limits=Limits(BIG, 1)))["activations"][i] for i in (0, 1)
    )
    assert most - least > 3 * BIG * 3 * D * 2  # another backend has none


def test_old_versions_have_the_experts_in_the_forward_pass() -> None:
    wide = model(mlp=dataclasses.replace(MIXTURE, d_ff=4000))
    found = parts(vllm(wide, engine_version="0.12.0", max_num_seqs=1, limits=Limits(BIG, 1)))
    size = (
        BIG * 2 * QKVO + BIG * 2 * D * 15 // 4 + SMALL + experts(4000, tokens=BIG, activation=4000)
    )
    margin = D * BIG * 2 * 3 // 4
    assert found["activations"] == (
        size - margin - GIB // 10,
        size,
        size + margin + GIB * 15 // 100,
    )


def test_sparse_mla_gathers_five_contexts_in_its_workspace() -> None:
    size = 5 * 500 * 56 * 2
    assert parts(vllm(model(SPARSE)))["gathered_latents"] == (size // 2, size, size * 5 // 4)
    assert "gathered_latents" not in parts(vllm(model(SPARSE), engine_version="0.12.0"))
    # 576 elements if the layers here read the latents of earlier ones; the widest of several
    shared = dataclasses.replace(SPARSE, shares_kv=True)
    assert parts(vllm(model(shared)))["gathered_latents"][1] == 5 * 500 * 576 * 2
    wider = dataclasses.replace(SPARSE, kv_lora_rank=60)
    for kinds in ((SPARSE, wider, shared), (wider, ATTENTION, SPARSE)):
        found = vllm(several(*((kind, MLP) for kind in kinds)))
        assert parts(found)["gathered_latents"][1] == 5 * 500 * 66 * 2
    # the larger of this and the experts' workspace
    both = parts(vllm(model(SPARSE, dataclasses.replace(MIXTURE, d_ff=400))))
    assert "gathered_latents" not in both
    assert both["experts"][1] == experts(400) > size


def test_a_later_stage_receives_hidden_states_and_the_residual() -> None:
    size = 2 * N * D * 2
    assert parts(vllm(first=False))["received"] == (size, size, size)
    assert "received" not in parts(vllm())


def test_the_second_runner_counts_tokens_of_prompts_and_outputs() -> None:
    size = S * V * 33 // 8
    new: dict[str, Any] = {"engine_version": "0.29.0"}
    assert parts(vllm(**new))["sampler_states"] == (size, size, size)
    assert parts(vllm(**new, max_num_seqs=None))["sampler_states"] == (0, size, size)
    for changes in ({"engine_version": "0.26.0"}, {**new, "last": False}):
        assert "sampler_states" not in parts(vllm(**changes))
    assert "sampler_states" not in parts(vllm(model(vocab_size=None, head=None), **new))
    # 0.27 runs dense models on the second runner, mixtures and recurrent layers on the first
    assert "sampler_states" in parts(vllm(engine_version="0.27.0"))
    assert "sampler_states" not in parts(vllm(model(mlp=MIXTURE), engine_version="0.27.0"))
    assert "sampler_states" not in parts(
        vllm(model(GatedDeltaNet(4, 8, 10, 3)), engine_version="0.27.0")
    )


# vLLM: what PyTorch does not allocate


AMPERE, PCIE = DEVICE, dataclasses.replace(DEVICE, nvlink=False)
UNKNOWN = dataclasses.replace(DEVICE, nvlink=None)
NO_NVIDIA = dataclasses.replace(DEVICE, vendor="AMD", compute_capability=None, nvlink=None)


@each(
    ("device", "version", "tp", "thousandths", "per_layer", "low", "high"),
    [
        (AMPERE, "0.17.0", 1, 130, 0, 120, 350),
        (AMPERE, "0.18.0", 1, 225, 8, 120, 350),
        (AMPERE, "0.20.0", 1, 225, 8, 120, 350),
        (AMPERE, "0.21.0", 1, 130, 0, 120, 350),
        (AMPERE, "0.9.0", 1, 130 + 400, 0, 120 + 200, 350 + 200),
        (AMPERE, "0.9.1", 1, 130, 0, 120, 350),
        (AMPERE, "0.7.3", 1, 100, 0, 120, 350 + 200),
        (UNKNOWN, "0.19.0", 2, 230, 0, 180, 1970),  # PCIe expected, and NVLink in the range
        (PCIE, "0.19.0", 2, 230, 0, 180, 450),
        (PCIE, "0.20.2", 4, 200, 0, 150, 900),
        (PCIE, "0.21.0", 4, 800, 0, 750, 900),
        (AMPERE, "0.14.0", 2, 740, 0, 700, 700),
        (AMPERE, "0.14.0", 4, 1390, 0, 1350, 700),
        (AMPERE, "0.14.0", 8, 1390, 0, 1350, 1500),
        (AMPERE, "0.7.3", 8, 2100, 0, 2060, 1500 + 200),
        (AMPERE, "0.7.3", 4, 1390, 0, 1350, 700 + 200),
        (AMPERE, "0.7.3", 7, 1390, 0, 1350, 1500 + 200),
        (AMPERE, "0.15.0", 4, 1390, 0, 1350, 700),
        (HOPPER, "0.10.1", 4, 2250, 0, 600, 700),  # without the driver's virtual memory for NCCL
        (HOPPER, "0.15.0", 5, 1390, 0, 1300, 2200),
        (HOPPER, "0.21.0", 2, 2050, 6, 1400, 700),
        (HOPPER, "0.20.0", 2, 2050, 6, 100, 200),
        (HOPPER, "0.20.0", 4, 2080, 16, 100, 200),
        (HOPPER, "0.21", 4, 2080, 16, 1400, 700),
        (dataclasses.replace(DEVICE, compute_capability=(10, 0)), "0.19.0", 2, 2050, 6, 1400, 700),
        (NO_NVIDIA, "0.17.0", 1, 560, 0, 430, 350 + 1200),
    ],
)
def test_vllm_outside_torch_as_measured(
    device: Gpu, version: str, tp: int, thousandths: int, per_layer: int, low: int, high: int
) -> None:
    """Thousandths of a GiB, and ten-thousandths per layer; _link's docstring has the logs."""
    unit = GIB // 1000
    size = thousandths * unit + L * (per_layer * GIB // 10_000)
    found = parts(vllm(gpu=device, engine_version=version, tp=tp))["outside_torch"]
    assert found == (max(0, size - low * unit), size, size + high * unit)


def test_vllm_may_take_less_without_symmetric_memory() -> None:
    of_four: dict[str, Any] = {"gpu": HOPPER, "engine_version": "0.20.0", "tp": 4}
    low, size, high = parts(vllm(**of_four))["outside_torch"]
    without = parts(vllm(**of_four, allreduce_symm_mem=False))["outside_torch"]
    assert without == (low - 1300 * (GIB // 1000), size, high + 500 * (GIB // 1000))


def test_eager_mode_captures_no_graphs_early() -> None:
    assert parts(vllm(enforce_eager=True))["outside_torch"][1] == 130 * (GIB // 1000)


def test_products_of_mla_may_leave_gaps_before_v1() -> None:
    """128 heads x 512 x (100 + 100) elements in 6 layers, of 2 bytes or of 1, in thousandths of a
    GiB.
    """
    unit = GIB // 1000
    large = Latent(128, 512, 128, 64, 128)
    text = parts(vllm(engine_version="0.7.3"))["outside_torch"]
    elements = 6 * 128 * 512 * (D + D)
    for name, size in (("bf16", 2), ("fp16", 2), ("fp32", 2), ("fp8", 1), ("int4", 0), ("int8", 0)):
        old = parts(vllm(model(large), engine_version="0.7.3", weights_dtype=name))["outside_torch"]
        assert old == (*text[:2], text[2] + size * elements // unit * unit), name
    new = (
        parts(vllm(whole, engine_version="0.8.5"))["outside_torch"]
        for whole in (model(), model(large))
    )
    assert len(set(new)) == 1


# vLLM: CUDA graphs


def graphs(
    first: int, *, per_layer: int = 34, piecewise: int = 8, full: int = 5, times: int = 1
) -> int:
    """20 sequences: sizes up to 40 have piecewise graphs (1, 2, 4, 8, 16, 24, 32, 40), sizes up to
    20 full ones.
    """
    return first + times * (2 * (piecewise - 1) + full - 1) * (
        (2 * MIB + L * (MIB * per_layer // 100)) // 3
    )


BLACKWELL = dataclasses.replace(DEVICE, compute_capability=(10, 3))


@each(
    ("whole", "changes", "expected"),
    [
        (model(), {}, graphs(50 * MIB)),
        (model(), {"gpu": HOPPER}, graphs(130 * MIB)),
        (
            model(Grouped(64, 64, 128)),
            {"gpu": HOPPER},
            graphs(130 * MIB),  # 64 x 128 x 32 splits in 4 bytes are 1 MiB per row, and 16 rows
        ),
        (model(MLA), {}, graphs(50 * MIB, per_layer=80)),
        (model(experts_dtype="mxfp4"), {"gpu": HOPPER}, graphs(130 * MIB, per_layer=80)),
        (model(experts_dtype="mxfp4"), {}, graphs(50 * MIB)),
        (model(), {"gpu": BLACKWELL}, graphs(394 * MIB)),
        (
            model(),
            {"gpu": BLACKWELL, "flashinfer_workspace_buffer_size": 10 * MIB},
            graphs(10 * MIB),
        ),
        (model(MLA), {"gpu": BLACKWELL}, graphs(50 * MIB, per_layer=80)),
        (model(), {"gpu": BLACKWELL, "model_type": "gemma4_text"}, graphs(50 * MIB)),
        (
            model(),
            {"gpu": dataclasses.replace(DEVICE, compute_capability=(12, 0))},
            graphs(50 * MIB),
        ),
        (model(), {"limits": Limits(24, S)}, graphs(50 * MIB, piecewise=6)),
        (model(), {"limits": Limits(4096, 1000)}, graphs(50 * MIB, piecewise=51, full=51)),
        (
            model(),
            {"limits": Limits(4096, 250)},
            graphs(50 * MIB, piecewise=3 + 31 + 16, full=3 + 31),
        ),
    ],
)
def test_vllms_graphs(whole: ModelSpec, changes: dict[str, Any], expected: int) -> None:
    """0.4 to 1.8 times as much, and 0.3 GiB more at least."""
    found = parts(vllm(whole, engine_version="0.20.0", **changes))["cuda_graphs"]
    assert found == (expected * 2 // 5, expected, expected + max(GIB * 3 // 10, expected * 4 // 5))


def test_graphs_of_an_unknown_number_of_sequences_may_be_few() -> None:
    found = parts(vllm(engine_version="0.20.0", max_num_seqs=None))["cuda_graphs"]
    assert found[:2] == (25 * MIB, graphs(50 * MIB))


def test_graphs_take_half_as_much_again_on_unified_memory() -> None:
    """Qwen3.8 27B: 1.94 GiB on a GB10 and 1.55 on a Strix Halo, where an L40S has 1.11."""
    further = graphs(50 * MIB) - 50 * MIB
    for vendor in ("NVIDIA", "AMD"):
        shared = dataclasses.replace(DEVICE, unified=True, vendor=vendor)
        found = parts(vllm(gpu=shared, engine_version="0.29.0"))["cuda_graphs"]
        assert abs(found[1] - 50 * MIB - further * 3 // 2) < MIB


def test_an_fp8_cache_off_hopper_runs_in_flashinfer() -> None:
    def first(device: Gpu) -> int:
        asked = facts(engine_version="0.20.0", gpu=device)
        args = dataclasses.replace(asked.args, kv_dtype=dtype("fp8"))
        return parts(vllm_runtime(dataclasses.replace(asked, args=args)))["cuda_graphs"][
            1
        ] - graphs(0)

    for capability, size in (
        ((7, 5), 50),
        ((8, 0), 394),
        ((8, 9), 394),
        ((9, 0), 130),
        ((12, 0), 394),
        (None, 50),
    ):
        assert first(dataclasses.replace(DEVICE, compute_capability=capability)) == size * MIB, (
            capability
        )


def test_hip_graphs_take_five_times_as_much_up_to_ten() -> None:
    size = graphs(50 * MIB, times=5)
    found = parts(vllm(gpu=NO_NVIDIA, engine_version="0.29.0"))["cuda_graphs"]
    assert found == (graphs(50 * MIB) * 2 // 5, size, 2 * size)


def test_graphs_are_subtracted_only_if_they_are_captured() -> None:
    assert "cuda_graphs" not in parts(vllm(engine_version="0.19.1"))
    assert "cuda_graphs" not in parts(vllm(engine_version="0.20.0", enforce_eager=True))


@each(
    ("changes", "times"),
    [
        ({}, 0),  # at least 0.3 GiB more than the estimate
        ({"limits": Limits(BIG, 512)}, 2),
        ({"limits": Limits(BIG, 512), "gpu": PCIE, "tp": 2}, 2),
        ({"limits": Limits(BIG, 512), "gpu": PCIE, "tp": 4}, 7),
        ({"limits": Limits(BIG, 512), "tp": 4}, 2),  # NVLink
    ],
)
def test_graphs_that_are_not_subtracted_are_outside_the_share(
    changes: dict[str, Any], times: int
) -> None:
    found = vllm(engine_version="0.19.1", **changes)
    (part,) = found.outside
    assert part.name == "captured_graphs"
    assert part.high == max(times * int(part.expected), int(part.expected) + GIB * 3 // 10)


def test_graphs_may_run_out_of_what_the_share_leaves() -> None:
    """They have the tenth that the share leaves, and the activations less the sampler's, which runs
    after them.
    """
    found = vllm(engine_version="0.19.1", share=(9, 10))
    sampler = next(int(size) for name, _, size in found.terms if name == "sampler_bytes")
    assert found.room_outside == 8 * GIB + parts(found)["activations"][1] - sampler
    assert not found.may_run_out
    assert vllm(engine_version="0.19.1", share=(1, 1)).may_run_out
    assert not vllm(engine_version="0.19.1", share=(1, 1), enforce_eager=True).may_run_out
    assert not vllm(engine_version="0.20.0", share=(1, 1)).may_run_out


# vLLM: what loading leaves


@each(
    ("whole", "weights_dtype", "most"),
    [
        (model(), "bf16", None),
        (model(), "int4", 10**9 * 6 // (5 * L)),  # 1.2 of L layers
        (model(), "mxfp4", None),
        (model(towers=(Tower("vision", 100, 0),)), "bf16", GIB * 45 // 100),
        (model(towers=(Tower("vision", 100, 0),)), "fp8", GIB * 45 // 100),
    ],
)
def test_packed_weights_and_towers_may_leave_more(
    whole: ModelSpec, weights_dtype: str, most: int | None
) -> None:
    found = parts(vllm(whole, weights_dtype=weights_dtype)).get("loading")
    assert found == (None if most is None else (0, 0, most))


# vLLM: notes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"max_num_seqs": None}, ["--max-num-seqs 20 is assumed."]),
        ({"max_num_batched_tokens": None}, ["--max-num-batched-tokens 48 is assumed"]),
        (
            {"max_num_seqs": None, "max_num_batched_tokens": None},
            ["--max-num-seqs 20 and --max-num-batched-tokens 48 are assumed"],
        ),
        (
            {"max_num_seqs": None, "max_num_batched_tokens": None, "engine_version": None},
            # the heading of a screen has the version
            ["--max-num-seqs 20 and --max-num-batched-tokens 48 are assumed."],
        ),
        ({"gpu": NO_NVIDIA}, ["compared with logs of NVIDIA GPUs; on NVIDIA Toy it may be larger"]),
        ({"gpu": dataclasses.replace(NO_NVIDIA, vendor="NVIDIA")}, []),
        ({"share": (92, 100)}, []),
        ({"share": (93, 100)}, ["warning: 5.60 GiB are left outside vLLM's share"]),
        ({"share": (93, 100), "enforce_eager": True}, []),
    ],
)
def test_vllms_notes_name_what_is_assumed(changes: dict[str, Any], words: list[str]) -> None:
    notes = vllm(**changes).notes
    rest = [
        note
        for note in notes
        if note != "The runtime memory is an estimate with a range. --reserve replaces it."
    ]
    assert len(rest) == len(notes) - 1 == len(words)
    assert all(word in note for word, note in zip(words, rest, strict=True))


# vLLM: the encoder


ITEM = TowerItem(tokens=10, positions=4000, values=500, d_model=1024, d_inside=8192, d_output=4096)


def test_range_of_an_encoder_that_needs_more_than_the_language_model() -> None:
    """Held: patches and output. At the peak: the patches, 4 tensors as wide as the tower, and the
    inside of a layer.
    """
    whole = model(towers=(Tower("vision", 10, 1, ITEM),))
    found = parts(vllm(whole, limits=Limits(100, S), context=1000))
    passes = found["activations"]
    held = 10 * (4000 * 500 + 10 * 4096) * 2
    encoding = 10 * 4000 * (500 + 4 * 1024 + 8192) * 2
    assert found["encoder"] == (
        max(held // 4, encoding * 3 // 4 - passes[1]),
        encoding - passes[1],
        max(encoding - passes[1], 2 * held, encoding * 13 // 10 - passes[1]),
    )


def test_range_of_an_unknown_encoder() -> None:
    whole = model(towers=(Tower("vision", 10, 1),))
    found = parts(vllm(whole))
    size = N * (D + 28 * 28 * 3) * 2
    assert found["encoder"] == (size // 4, size, max(2 * size, 4 * GIB - found["activations"][1]))
    tokens = 10**6
    large = parts(vllm(whole, limits=Limits(tokens, S)))["encoder"]
    size = tokens * (D + 28 * 28 * 3) * 2
    assert large == (size // 4, size, 2 * size)
    assert "encoder" not in parts(vllm(whole, first=False))
