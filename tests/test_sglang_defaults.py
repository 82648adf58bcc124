"""SGLang's defaults by the GPU's memory: the prefill chunk, captured graphs, and its share of the
memory.
"""

from fractions import Fraction
from math import floor
from typing import Any

import pytest
from tables import each

from attncalc import fit
from attncalc.engines.sglang.engine import ENGINE
from attncalc.engines.sglang.options import SglangArgs
from attncalc.engines.sglang.share import (
    chunked_prefill_size,
    decode_graphs,
    largest_graph,
    prefill_graphs_mib,
)
from attncalc.units import dtype

GIB = 2**30
# A version without graphs of prefills, and the first with larger steps for GPUs below 35 GiB.
OLD, NEW = "0.5.9", "0.5.20"


def args_of(**given: Any) -> SglangArgs:
    return SglangArgs(dtype("bf16"), dtype("bf16"), **given)


def below(gib: int) -> int:
    return gib * GIB - 1


# Chunks and graphs.


def test_a_given_chunk_decides_the_share_and_the_step() -> None:
    """On 24 GiB, 24,576 + 500 MiB: 512 + 2,048 x 1.5 + 128 + 48 x 2 MiB are left, the same for
    smaller chunks.
    """
    for chunk, counted in ((8192, 8192), (2048, 2048), (1024, 2048)):
        args = args_of(
            engine_version=OLD, device_memory=24 * GIB, device="NVIDIA", chunked_prefill_size=chunk
        )
        assert ENGINE.limits(args).max_num_batched_tokens == chunk
        left = 512 + counted * 3 // 2 + 128 + 2 * largest_graph(args)
        assert abs(float(ENGINE.share(args, 1)) - (1 - left / (24 * 1024 + 500))) <= 0.0005


@pytest.mark.parametrize(
    ("version", "sizes"),
    [
        (
            NEW,
            {
                below(20): 2048,
                20 * GIB: 4096,
                below(60): 4096,
                60 * GIB: 8192,
                below(160): 8192,
                160 * GIB: 16384,
            },
        ),
        (
            "0.5.19",
            {
                below(35): 2048,
                35 * GIB: 4096,
                below(60): 4096,
                60 * GIB: 8192,
                below(160): 8192,
                160 * GIB: 16384,
            },
        ),
    ],
)
def test_tokens_of_a_prefill_chunk(version: str, sizes: dict[int, int]) -> None:
    for memory, tokens in sizes.items():
        args = args_of(device_memory=memory, engine_version=version)
        assert chunked_prefill_size(args) == tokens
        assert ENGINE.limits(args) == (tokens, 256)
    assert chunked_prefill_size(args_of(engine_version=version)) == 16384


@pytest.mark.parametrize(
    ("version", "tp", "sizes"),
    [
        (NEW, 3, {below(20): 8, below(35): 48, below(60): 32, below(160): 256, 160 * GIB: 512}),
        (
            "0.5.19",
            3,
            {below(20): 8, below(35): 24, below(60): 32, below(160): 256, 160 * GIB: 512},
        ),
        (NEW, 4, {below(20): 8, below(60): 160, 60 * GIB: 512}),
        ("0.5.19", 4, {below(20): 8, below(35): 80, below(60): 160, 60 * GIB: 512}),
    ],
)
def test_most_sequences_of_a_captured_decode_step(
    version: str, tp: int, sizes: dict[int, int]
) -> None:
    """Each is that of memory just below a limit, and the next one begins at the limit."""
    for memory, sequences in sizes.items():
        assert (
            largest_graph(args_of(device_memory=memory, tp=tp, engine_version=version)) == sequences
        )
    for limit, sequences in zip(sizes, list(sizes.values())[1:], strict=False):
        assert (
            largest_graph(args_of(device_memory=limit + 1, tp=tp, engine_version=version))
            == sequences
        )


def test_concurrent_requests_limit_the_captured_steps() -> None:
    for requests, sequences in ((7, 7), (256, 256), (999, 256)):
        args = args_of(device_memory=80 * GIB, max_running_requests=requests)
        assert largest_graph(args) == sequences


@each(
    ("largest", "sizes"),
    [
        (1, 1),
        (2, 2),
        (3, 3),  # 1, 2 and 3, which is the largest
        (4, 3),
        (5, 4),
        (8, 4),
        (9, 5),
        (12, 5),
        (13, 6),
        (16, 6),
        (17, 7),
        (24, 7),
        (25, 8),
        (256, 36),  # 5, and 31 from 16 on by 8
        (257, 37),
        (271, 37),
        (272, 37),
        (273, 38),
        (288, 38),  # by 16
        (289, 39),
        (496, 36 + 15),
        (511, 36 + 16),
        (512, 36 + 16),
        (513, 36 + 17),
        (544, 36 + 17),  # by 32
        (545, 36 + 18),
        (576, 36 + 18),
    ],
)
def test_captured_batch_sizes(largest: int, sizes: int) -> None:
    """generate_decode_cuda_graph_batch_sizes: 1, 2, 4, 8, 12, then by 8, 16 and 32; the largest is
    one of them.
    """
    assert decode_graphs(largest) == sizes


@each(
    ("chunk", "sizes"),
    [
        (3, 0),
        (4, 1),
        (31, 7),
        (32, 8),
        (47, 8),
        (48, 9),
        (63, 9),
        (64, 10),
        (256, 8 + 14),
        (287, 8 + 14),
        (288, 8 + 14 + 1),
        (319, 8 + 14 + 1),
        (512, 30),
        (575, 30),
        (576, 31),
        (639, 31),
        (1024, 38),
        (1279, 38),
        (1280, 39),
        (1535, 39),
        (4096, 50),
        (4607, 50),
        (4608, 51),
        (8191, 57),
        (8192, 58),
        (16384, 74),
    ],
)
def test_each_captured_prefill_size_has_8_mib(chunk: int, sizes: int) -> None:
    """4 to 32 by 4, to 256 by 16, to 512 by 32, to 1,024 by 64, to 4,096 by 256, and then by
    512.
    """
    assert prefill_graphs_mib(args_of(), chunk) == 8 * sizes
    assert prefill_graphs_mib(args_of(pp=2), chunk) == 0
    assert prefill_graphs_mib(args_of(attentions=frozenset({"KDA", "MLA"})), chunk) == 0
    assert prefill_graphs_mib(args_of(attentions=frozenset({"MLA", "GQA"})), chunk) == 1536
    assert prefill_graphs_mib(args_of(attentions=frozenset({"GQA"})), chunk) == 8 * sizes


VERSIONS = [f"0.5.{n}" for n in range(9, 24)]
LATENTS: dict[str, Any] = {"attentions": frozenset({"MLA"})}


def reserving(**given: Any) -> list[str]:
    return [
        name for name in VERSIONS if prefill_graphs_mib(args_of(engine_version=name, **given), 2048)
    ]


@each(
    ("given", "first"),
    [
        ({}, "0.5.10"),
        ({"device": "AMD Toy"}, None),
        ({"dcp": 2}, None),
        ({"attentions": frozenset({"CSA"})}, None),
        ({"speculative_tokens": 4}, "0.5.11"),
        ({"attn_dp": 2}, "0.5.17"),
        ({"enable_lora": True}, "0.5.17"),
        ({"moe_a2a_backend": "deepep"}, "0.5.17"),
        ({"hicache_ratio": "2"}, "0.5.15"),
        ({"model_type": "qwen3_next"}, "0.5.15"),
        ({"vision_params": 1, "model_type": "qwen3_5"}, "0.5.16"),
        ({"vision_params": 1, "model_type": "gemma4"}, None),
        ({**LATENTS, "vision_params": 1, "model_type": "kimi_k25"}, "0.5.16"),
    ],
)
def test_which_versions_reserve_for_graphs_of_prefills(
    given: dict[str, Any], first: str | None
) -> None:
    """A drafter, HiCache and some models had none while prefills were compiled, and other options
    until 0.5.16.
    """
    assert reserving(**given) == (VERSIONS[VERSIONS.index(first) :] if first else [])


@each(
    ("model_type", "without"),
    [
        ("deepseek_v3", ["0.5.9", "0.5.15", "0.5.16", "0.5.17"]),
        ("deepseek_v32", ["0.5.9", "0.5.10", "0.5.11", "0.5.12", "0.5.15", "0.5.16"]),
    ],
)
def test_latents_have_no_graphs_of_prefills_in_some_versions(
    model_type: str, without: list[str]
) -> None:
    reserved = reserving(**LATENTS, model_type=model_type)
    assert [name for name in VERSIONS if name not in reserved] == without


# The share.


def share(memory_mib: int, left_mib: int) -> str:
    """Return (memory - left) / memory with three decimals, a half rounded up."""
    return f"0.{floor(Fraction(1000 * (memory_mib - left_mib), memory_mib) + Fraction(1, 2)):03d}"


@each(
    ("gib", "devices", "given", "left"),
    [
        (16, 1, {"engine_version": OLD}, 512 + 2048 * 3 // 2 + 128 + 8 * 2),
        (24, 1, {"engine_version": OLD}, 512 + 2048 * 3 // 2 + 128 + 24 * 2),
        (24, 1, {}, 512 + 4096 * 3 // 2 + 128 + 48 * 2 + 8 * 50),
        (24, 4, {"tp": 4}, 512 + 4096 * 3 // 2 + 4 * 128 + 160 * 2 + 8 * 50),
        (24, 4, {"pp": 4}, 512 + 4096 * 3 // 2 + 4 * 128 + 48 * 2),
        # up to 0.5.9 a drafter has 2 GiB
        (
            24,
            1,
            {"engine_version": OLD, "speculative_tokens": 1},
            512 + 2048 * 3 // 2 + 128 + 24 * 2 + 2048,
        ),
        (
            24,
            1,
            {"engine_version": OLD, "speculative_layers": 1},
            512 + 2048 * 3 // 2 + 128 + 24 * 2 + 2048,
        ),
        (24, 1, {"speculative_layers": 1}, 512 + 4096 * 3 // 2 + 128 + 48 * 2 + 8 * 50),
        # up to 0.5.19 GPUs with less than 35 GiB have chunks of 2,048 tokens and 24 sequences
        (24, 1, {"engine_version": "0.5.19"}, 512 + 2048 * 3 // 2 + 128 + 24 * 2 + 8 * 42),
        # the share counts --max-running-requests from 0.5.22 on, and a limit of the graphs always
        (
            24,
            1,
            {"engine_version": "0.5.21", "max_running_requests": 2},
            512 + 4096 * 3 // 2 + 128 + 48 * 2 + 8 * 50,
        ),
        (24, 1, {"max_running_requests": 2}, 512 + 4096 * 3 // 2 + 128 + 2 * 2 + 8 * 50),
        (
            24,
            1,
            {"engine_version": "0.5.21", "cuda_graph_max_bs": 2},
            512 + 4096 * 3 // 2 + 128 + 2 * 2 + 8 * 50,
        ),
        # DeepEP: 2 GiB, and 1 GiB with graphs of prefills
        (24, 1, {"moe_a2a_backend": "deepep"}, 512 + 4096 * 3 // 2 + 128 + 48 * 2 + 8 * 50 + 3072),
        (
            24,
            4,
            {"moe_a2a_backend": "deepep", "pp": 4},
            512 + 4096 * 3 // 2 + 4 * 128 + 48 * 2 + 2048,
        ),
        (
            24,
            1,
            {"engine_version": "0.5.14", "moe_a2a_backend": "deepep"},
            512 + 2048 * 3 // 2 + 128 + 48,
        ),
        (
            24,
            1,
            {"engine_version": "0.5.15", "moe_a2a_backend": "deepep"},
            512 + 2048 * 3 // 2 + 128 + 48 + 2048,
        ),
        # DP attention: 3 MiB for each of 48 sequences per rank, and 4.5 if more than 300 are
        # captured
        (
            24,
            2,
            {"tp": 2, "attn_dp": 2},
            512 + 4096 * 3 // 2 + 2 * 128 + 48 * 2 + 8 * 50 + 3 * 48 * 2,
        ),
        (
            170,
            2,
            {"tp": 2, "attn_dp": 2},
            512 + 16384 * 3 // 2 + 2 * 128 + 512 * 2 + 8 * 74 + 9 * 512,
        ),
        (
            170,
            2,
            {"tp": 2, "attn_dp": 3, "max_running_requests": 300},
            512 + 16384 * 3 // 2 + 2 * 128 + 300 * 2 + 8 * 74 + 3 * 300 * 3,
        ),
        (
            170,
            2,
            {"tp": 2, "attn_dp": 3, "max_running_requests": 301},
            512 + 16384 * 3 // 2 + 2 * 128 + 301 * 2 + 8 * 74 + 301 * 3 * 9 // 2,
        ),
        # nvidia-smi shows 500 MiB more than PyTorch sees
        (24, 1, {"device": "NVIDIA Toy"}, 512 + 4096 * 3 // 2 + 128 + 48 * 2 + 8 * 50),
        (24, 1, {"device": "AMD Toy"}, 512 + 4096 * 3 // 2 + 128 + 48 * 2),
        # above 60 GiB at least 10 GiB are left: with a chunk of 8,192 tokens that is more than
        # enough
        (64, 1, {"engine_version": OLD}, 512 + 8192 * 3 // 2 + 128 + 256 * 2),
    ],
)
def test_the_share_leaves_a_chunk_devices_and_graphs(
    gib: int, devices: int, given: dict[str, Any], left: int
) -> None:
    """As many sizes of memory as the third decimal needs to change: then one MiB more or less
    shows.
    """
    shown = 500 if given.get("device") == "NVIDIA Toy" else 0
    first = gib * 1024
    for mib in range(first, first + first * first // (1000 * left) + 8, max(1, gib // 24)):
        args = args_of(device_memory=mib * 2**20 + 5, **given)
        assert ENGINE.share(args, devices) == share(mib + shown, left), mib


def test_more_than_60_gib_leave_10_gib() -> None:
    """nvidia-smi shows 500 MiB more than the 4,096-token chunk depends on: 61,440 MiB and one
    more.
    """
    given: dict[str, Any] = {"device": "NVIDIA Toy", "engine_version": OLD, "cuda_graph_max_bs": 1}
    left = 512 + 4096 * 3 // 2 + 128 + 2
    at = 60 * 1024 - 500
    assert ENGINE.share(args_of(device_memory=at * 2**20, **given), 1) == share(60 * 1024, left)
    for more in range(1, 400):
        found = ENGINE.share(args_of(device_memory=(at + more) * 2**20, **given), 1)
        assert found == share(60 * 1024 + more, 10 * 1024)


def test_a_vision_tower_and_old_versions_have_their_own_rules() -> None:
    # a tower like ViT-L: 0.95 of the share
    vit = 12 * 24 * 1024**2
    args = (args_of(device_memory=24 * GIB, engine_version=OLD, vision_params=n) for n in (0, vit))
    text, vision = (ENGINE.share(given, 1) for given in args)
    assert float(vision) == pytest.approx(0.95 * float(text), abs=1e-4)
    # 0.4.9: 24 - 2.9 GiB of 24, less 4 GiB for DP attention, less 2 GiB for a drafter; 0.9 with a
    # tower
    old: dict[str, Any] = {"device_memory": 24 * GIB, "engine_version": "0.4.9"}
    assert ENGINE.share(args_of(**old), 1) == "0.879"
    assert ENGINE.share(args_of(attn_dp=2, **old), 1) == "0.713"
    assert ENGINE.share(args_of(speculative_tokens=1, **old), 1) == "0.796"
    assert float(ENGINE.share(args_of(vision_params=vit, **old), 1)) == pytest.approx(
        0.9 * 0.879, abs=1e-4
    )
    # 2.8 + 0.8 GiB with 8 devices
    assert ENGINE.share(args_of(**old), 8) == "0.850"
    assert ENGINE.share(args_of(), 1) == "0.001"


def test_a_drafter_has_layers_or_tokens() -> None:
    found = [
        args_of(speculative_layers=a, speculative_tokens=b).has_drafter
        for a in (0, 1)
        for b in (0, 1)
    ]
    assert found == [False, True, True, True]


def test_a_model_that_sglang_lacks_does_not_start() -> None:
    """SGLang 0.5.23: "has no SGlang implementation", says srt/model_loader/utils.py."""
    found = fit("falcon-7b", gpu="h100", engine="sglang", context=2048)
    assert found.refusal is not None
    assert "FalconForCausalLM has no SGlang implementation" in found.refusal.reason
