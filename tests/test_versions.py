"""Which version of vLLM, SGLang and llama.cpp does what: each behaviour at its versions, right before and after."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from attncalc.engines.llamacpp.versions import LlamaCppVersion, llamacpp_version
from attncalc.engines.sglang.versions import for_vision, old_share, sglang_version
from attncalc.engines.switches import Switch
from attncalc.engines.vllm.versions import vllm_version
from attncalc.errors import AttncalcError

VLLM: list[tuple[str, tuple[Any, ...] | None, dict[str, Any]]] = [
    ("utilization", None, {"0.5": "0.9", "0.20": "0.92"}),
    ("groups_hybrids", None, {"0.5": False, "0.9.1": True}),
    ("groups_chunks", None, {"0.5": False, "0.10": True, "0.10.1": False, "0.14": True}),
    ("aligns_states", None, {"0.5": False, "0.10": True}),
    ("groups_mixed_widths", None, {"0.5": False, "0.11": True}),
    ("unifies_pages", None, {"0.5": False, "0.12": True}),
    ("pads_pages", None, {"0.5": False, "0.24": True}),
    ("max_padding", None, {"0.5": None, "0.12": (5, 4), "0.18": (3, 2)}),
    ("aligns_to_requested_block", None, {"0.5": False, "0.20": True}),
    ("groups_every_nth_layer", None, {"0.5": False, "0.11": True}),
    ("multiplies_dcp", None, {"0.5": False, "0.11": True}),
    ("logs_requested_block", None, {"0.5": True, "0.11": False}),
    ("has_dcp", None, {"0.5": False, "0.10.2": True}),
    ("has_cross_attention", None, {"0.5": False, "0.10.2": True}),
    ("always_announces_block", None, {"0.5": True, "0.18": False}),
    ("aligns_latents", None, {"0.5": False, "0.11.1": True}),
    ("aligns_latent_entries", None, {"0.5": True, "0.8": False}),
    ("absorbs_products", None, {"0.5": True, "0.8": False}),
    ("latent_alignment", None, {"0.5": 64, "0.27": 128}),
    ("forces_flashmla", None, {"0.5": False, "0.8": True, "0.18": False}),
    ("sparse_latents_in_fp8", None, {"0.5": False, "0.11.0": True, "0.11.1": False}),
    ("supports_drafter_with_states", None, {"0.5": False, "0.17": True}),
    ("caches_state_prefixes", None, {"0.5": False, "0.11.1": True}),
    ("stores_state_per_chunk", (False,), {"0.5": True, "0.28": False}),
    ("stores_state_per_chunk", (True,), {"0.5": True, "0.20": False}),
    ("steps_depend_on_experts", None, {"0.5": False, "0.26": True, "0.29": False}),
    ("checks_all_layers", None, {"0.5": False, "0.14": True, "0.17": False}),
    ("groups_by_worker", None, {"0.5": True, "0.11": False}),
    ("cuts_groups_by_stage", None, {"0.5": True, "0.11": False, "0.17": True}),
    ("pads_values", None, {"0.5": True, "0.20": False}),
    ("cross_blocks_by_source", None, {"0.5": True, "0.13": False}),
    ("stores_drafted_states", None, {"0.5": False, "0.15": True}),
    ("concurrency_from_blocks", None, {"0.5": False, "0.9.1": True}),
    ("window_block", (16,), {"0.5": 16}),
    ("window_block", (17,), {"0.5": 17, "0.25": 16, "0.30": 17}),
    ("window_block", (8,), {"0.5": 8, "0.25": 8, "0.30": 8}),
    ("tokens_from_concurrency", None, {"0.5": False, "0.20.1": True}),
    ("two_steps_in_flight", None, {"0.5": False, "0.26": True}),
    ("caches_hybrid_prefixes", None, {"0.5": False, "0.26": True}),
    ("planner", None, {"0.5": "kv_cache_utils.py", "0.33": "kv_cache_planning.py"}),
    ("logs_one_line", None, {"0.5": False, "0.28": True}),
    ("sampler_scratch", (False,), {"0.5": 4 + 4 + 8 + 8 + 12, "0.17": 4 + 4 + 4}),
    ("sampler_scratch", (True,), {"0.5": 36, "0.17": 4, "0.28": 0, "0.33": 12}),
    ("has_top_k_buffer", None, {"0.5": False, "0.17": True}),
    ("samples_with_flashinfer", None, {"0.5": False, "0.21": True}),
    ("keeps_experts_workspace", None, {"0.5": False, "0.13": True}),
    ("shares_experts_buffer", None, {"0.5": True, "0.13": False}),
    ("largest_experts_chunk", None, {"0.5": 32 * 1024, "0.12": 16 * 1024, "0.20": None}),
    ("profiles_prefix_of_latents", None, {"0.5": False, "0.10.1": True}),
    ("profiles_indexer_logits", None, {"0.5": False, "0.18": True}),
    ("subtracts_graphs", (False,), {"0.5": False, "0.20": True}),
    ("subtracts_graphs", (True,), {"0.5": False, "0.29": True}),
    ("counts_sampler_states", (False,), {"0.5": False}),
    ("counts_sampler_states", (True,), {"0.5": False, "0.27": True}),
    ("videos_leave_room_for_image", None, {"0.5": True, "0.11": False}),
    ("autotunes_deltas", None, {"0.5": False, "0.18": True}),
    ("benchmarks_kernels", None, {"0.5": False, "0.11.1": True}),
    ("profiles_cold_compiler", None, {"0.5": False, "0.23": True}),
    ("splits_workspaces", None, {"0.5": False, "0.27": True, "0.31": False}),
    ("profiles_graphs_early", None, {"0.5": False, "0.18": True, "0.21": False}),
    ("has_symmetric_memory", None, {"0.5": False, "0.15": True}),
    ("gpus_with_small_defaults", None, {"0.5": (), "0.9": ("a100",), "0.33": ("a100", "gb10")}),
    ("has_default_for_160_gib", None, {"0.5": False, "0.28": True}),
]
"""(Property or method, its arguments, the value from each version on). 0.5 is the oldest version."""
V2_RUNNER: list[tuple[str | None, bool, bool, dict[str, bool]]] = [
    ("qwen3", True, False, {"0.5": False, "0.22": True}),
    ("llama", True, False, {"0.5": False, "0.23": True}),
    ("mistral", True, False, {"0.5": False, "0.23": True}),
    ("deepseek_v2", False, False, {"0.5": False, "0.24": True}),
    ("qwen2_moe", False, False, {"0.5": False, "0.24": True}),
    ("granitemoe", False, False, {"0.5": False, "0.24": True}),
    ("longcat_flash_ngram", False, False, {"0.5": False, "0.25": True}),
    ("mixtral", False, False, {"0.5": False, "0.29": True}),
    ("gemma3", True, False, {"0.5": False, "0.25": True}),
    (None, True, False, {"0.5": False, "0.25": True}),
    ("qwen3_next", False, True, {"0.5": False, "0.29": True}),
    ("falcon_h1", True, True, {"0.5": False, "0.29": True}),
]
"""(model_type, dense, hybrid, whether the second runner is the default from each version on)."""


def _around(changes: dict[str, Any], newest: str) -> Iterator[tuple[str, Any]]:
    """Yield (version, value): each version of `changes`, written with and without .0, and the last patch before it."""
    before = None
    for version, value in changes.items():
        parts = [int(part) for part in version.split(".")]
        if before is not None:
            last = [*parts[:-1], parts[-1] - 1] + [99] * (len(parts) == 2)
            yield ".".join(map(str, last)), before
        yield version, value
        if version.count(".") == 1:
            yield f"{version}.0", value
        before = value
    yield newest, before


@pytest.mark.parametrize(("name", "arguments", "changes"), VLLM, ids=lambda value: str(value)[:30])
def test_vllm_changes_at_its_versions(name: str, arguments: tuple[Any, ...] | None, changes: dict[str, Any]) -> None:
    """The docstring of each property in versions.py names the file of vLLM that decides it."""
    for text, expected in [*_around(changes, "0.33.0"), ("v0", next(iter(changes.values())))]:
        value = getattr(vllm_version(text), name)
        assert (value if arguments is None else value(*arguments)) == expected, text


@pytest.mark.parametrize(("model_type", "dense", "hybrid", "changes"), V2_RUNNER)
def test_vllm_runs_models_on_the_second_runner_by_version(
    model_type: str | None, dense: bool, hybrid: bool, changes: dict[str, bool]
) -> None:
    """DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES of 0.22 to 0.24, then dense models, from 0.29 all (config/vllm.py)."""
    for text, expected in _around(changes, "0.33.0"):
        assert vllm_version(text).uses_v2_runner(model_type, dense=dense, hybrid=hybrid) == expected, text


@pytest.mark.parametrize(
    ("text", "name", "v0"),
    [
        (None, "0.33.0", False),
        ("v0", "V0", True),
        ("V0", "V0", True),
        ("0.5", "0.5", True),
        ("0.7.9999", "0.7.9999", True),
        ("0.8", "0.8", False),
        ("v0.11.0", "0.11.0", False),
        ("0.11.0.post1", "0.11.0", False),
        ("0.11.0rc2+cu128", "0.11.0", False),
        ("0.33.9", "0.33.9", False),
    ],
)
def test_vllm_versions_are_read_as_the_wheels_write_them(text: str | None, name: str, v0: bool) -> None:
    version = vllm_version(text)
    assert (version.name, version.v0) == (name, v0)


@pytest.mark.parametrize(
    ("text", "message", "tip"),
    [
        ("0.4.99", "0.4.99 is too old to be supported", "the oldest supported version is 0.5, the newest 0.33.0"),
        ("0.34", "0.34 is newer than the newest supported version", "the newest is 0.33.0, which is the default"),
        ("1.0", "1.0 is newer than the newest supported version", "the newest is 0.33.0, which is the default"),
        ("11", "'11' is not a version of vLLM", "write a version as 0.33.0 or 0.11.0, or v0 for the old engine"),
        ("0.11111", "'0.11111' is not a version", "write a version as 0.33.0 or 0.11.0, or v0 for the old engine"),
        ("newest", "'newest' is not a version", "write a version as 0.33.0 or 0.11.0, or v0 for the old engine"),
    ],
)
def test_vllm_versions_out_of_range_are_errors(text: str, message: str, tip: str) -> None:
    with pytest.raises(AttncalcError) as error:
        vllm_version(text)
    assert str(error.value).startswith("--engine-version")
    assert message in str(error.value)
    assert str(error.value).endswith(f"\n  tip: {tip}")


SGLANG: list[tuple[str, dict[str, bool]]] = [
    ("captures_prefill", {"0.3.6": False, "0.5.10": True}),
    ("leaves_room_for_drafter", {"0.3.6": True, "0.5.10": False}),
    ("has_attn_dp_size", {"0.3.6": False, "0.5.23": True}),
]


@pytest.mark.parametrize(("name", "changes"), SGLANG)
def test_sglang_changes_at_its_versions(name: str, changes: dict[str, bool]) -> None:
    for text, expected in _around(changes, "0.5.24"):
        assert getattr(sglang_version(text), name) == expected, text


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        (None, "0.5.23", (0, 5, 23)),
        ("v0.5.3.post1", "0.5.3.post1", (0, 5, 3)),
        ("0.5.3rc0", "0.5.3rc0", (0, 5, 3)),
        ("0.3.6", "0.3.6", (0, 3, 6)),
        ("0.4", "0.4", (0, 4, 0)),
        ("1.2.3", "1.2.3", (1, 2, 3)),
    ],
)
def test_sglang_versions_are_read_as_the_wheels_write_them(
    text: str | None, name: str, number: tuple[int, int, int]
) -> None:
    assert sglang_version(text) == (name, number)


@pytest.mark.parametrize(
    ("text", "message", "tip"),
    [
        ("0.3.5", "SGLang 0.3.5 is not supported", "0.3.6 is the oldest supported version, and 0.5.23 the default"),
        ("0.3", "SGLang 0.3 is not supported", "0.3.6 is the oldest supported version, and 0.5.23 the default"),
        ("5", "SGLang has no version '5'", "write it as 0.5.23"),
        ("0.5.3-1", "SGLang has no version '0.5.3-1'", "write it as 0.5.23"),
    ],
)
def test_sglang_versions_that_are_not_supported_are_errors(text: str, message: str, tip: str) -> None:
    with pytest.raises(AttncalcError) as error:
        sglang_version(text)
    assert str(error.value) == f"{message}\n  tip: {tip}"


@pytest.mark.parametrize(
    ("version", "gib", "devices", "expected"),
    [
        # up to 0.4.2: 0.88 on one device, 0.87 up to 3, 0.85 up to 7, 0.82 up to 15, else 0.79
        ("0.3.6", 80, 1, "0.88"),
        ("0.4.2", 80, 2, "0.87"),
        ("0.4.2", 80, 3, "0.87"),
        ("0.4.2", 80, 4, "0.85"),
        ("0.4.2", 80, 7, "0.85"),
        ("0.4.2", 80, 8, "0.82"),
        ("0.4.2", 80, 15, "0.82"),
        ("0.4.2", 80, 16, "0.79"),
        # from 0.4.3 0.81 for 8 to 15 devices
        ("0.4.3", 80, 1, "0.88"),
        ("0.4.3", 80, 3, "0.87"),
        ("0.4.3", 80, 7, "0.85"),
        ("0.4.3", 80, 8, "0.81"),
        ("0.4.3", 80, 16, "0.79"),
        # from 0.4.6 a GPU of more than 81,920 MiB leaves 13 GiB: (141 - 13) / 141
        ("0.4.5", 141, 8, "0.81"),
        ("0.4.6", 80, 8, "0.81"),
        ("0.4.6", 141, 8, "0.908"),
        ("0.4.8", 141, 1, "0.908"),
        # from 0.4.9 a number of GiB by the GPU's size and the devices
        ("0.4.9", 24, 1, "0.879"),  # 24 - (2.8 + 0.1) = 21.1
        ("0.4.9", 24, 4, "0.867"),  # 24 - (2.8 + 0.4) = 20.8
        ("0.4.9", 35, 1, "0.714"),  # 35 - (9.5 + 0.5) = 25
        ("0.4.9", 80, 1, "0.875"),  # 80 - (9.5 + 0.5) = 70
        ("0.5.2", 80, 8, "0.831"),  # 80 - (9.5 + 4) = 66.5
        ("0.5.2", 90, 4, "0.844"),  # 90 - (12 + 2) = 76
        ("0.5.2", 141, 8, "0.887"),  # 141 - (12 + 4) = 125
        ("0.5.2", 160, 8, "0.800"),  # 160 - 32 = 128
        ("0.5.2", 180, 1, "0.822"),  # 180 - 32 = 148
        ("0.5.3", 80, 1, None),
    ],
)
def test_default_share_of_old_sglang_versions(version: str, gib: int, devices: int, expected: str | None) -> None:
    """server_args.py (__post_init__) of 0.3.6, 0.4.3, 0.4.6 and 0.4.9."""
    assert old_share(sglang_version(version), gib * 1024, devices) == expected


@pytest.mark.parametrize(
    ("version", "mib", "expected"),
    [
        ("0.4.6", 81_920, "0.88"),
        ("0.4.6", 81_921, "0.838"),  # 13,312 left: 0.83750
        # shares just below or above a half of the last place, which show a single MiB of what is left
        ("0.4.6", 82_422, "0.838"),  # 0.83849
        ("0.4.9", 36_120, "0.717"),  # 10,240 left: 0.71650
        ("0.4.9", 36_117, "0.716"),  # 0.71648
        ("0.4.9", 10_014, "0.704"),  # 2,969 left: 0.70351
        ("0.4.9", 10_011, "0.703"),  # 0.70343
        ("0.4.9", 92_419, "0.862"),  # 12,800 left: 0.86150
        ("0.4.9", 92_412, "0.861"),  # 0.86149
        ("0.4.9", 164_251, "0.801"),  # 32,768 left: 0.800500
        ("0.4.9", 164_246, "0.800"),  # 0.800494
        # the limits of 35, 90 and 160 GiB
        ("0.4.9", 35 * 1024 - 1, "0.917"),  # 2867 + 102 MiB left
        ("0.4.9", 90 * 1024 - 1, "0.889"),  # 9728 + 512
        ("0.4.9", 160 * 1024 - 1, "0.922"),  # 12288 + 512
        ("0.4.9", 0, "0.001"),
        ("0.4.9", 2_048, "0.001"),  # less than what is left: SGLang would not start
        ("0.4.9", 2_974, "0.002"),  # (2974 - 2867 - 102) / 2974 = 0.0017
    ],
)
def test_default_share_of_old_sglang_versions_at_the_limits(version: str, mib: int, expected: str) -> None:
    assert old_share(sglang_version(version), mib, 1) == expected


@pytest.mark.parametrize(
    ("attn_dp", "drafts", "expected"),
    [
        (1, False, "0.875"),  # 80 - 10
        (2, False, "0.825"),  # 80 - 10 - 4
        (1, True, "0.850"),  # 80 - 10 - 2
        (8, True, "0.800"),  # 80 - 10 - 4 - 2
    ],
)
def test_dp_attention_and_drafters_have_room_from_0_4_9(attn_dp: int, drafts: bool, expected: str) -> None:
    assert old_share(sglang_version("0.4.9"), 80 * 1024, 1, attn_dp=attn_dp, drafts=drafts) == expected
    assert old_share(sglang_version("0.4.8"), 80 * 1024, 1, attn_dp=attn_dp, drafts=drafts) == "0.88"


@pytest.mark.parametrize(
    ("mib", "attn_dp", "drafts", "expected"),
    [
        (36_089, 1, True, "0.660"),  # 9,728 + 512 + 2,048 left: 0.65951
        (36_086, 1, True, "0.659"),  # 0.65948
        (36_066, 2, False, "0.603"),  # 9,728 + 512 + 4,096 left: 0.60251
        (36_063, 2, False, "0.602"),  # 0.60247
    ],
)
def test_dp_attention_has_4_gib_and_a_drafter_2(mib: int, attn_dp: int, drafts: bool, expected: str) -> None:
    assert old_share(sglang_version("0.4.9"), mib, 1, attn_dp=attn_dp, drafts=drafts) == expected


@pytest.mark.parametrize(
    ("version", "layers", "width", "expected"),
    [
        ("0.5.23", 0, 0, "0.8"),  # no tower
        ("0.4.8", 24, 1024, "0.7600"),  # 0.8 * 0.95
        ("0.4.9", 24, 1024, "0.7200"),  # 0.8 * 0.90
        ("0.5.2", 24, 1024, "0.7200"),
        ("0.5.3", 24, 1024, "0.7600"),  # 0.8 * 0.95 * 1
        ("0.5.3", 48, 1024, "0.6840"),  # 0.8 * 0.95 * 0.9
        ("0.5.3", 72, 1024, "0.6080"),  # 0.8 * 0.95 * 0.8
        ("0.5.3", 96, 1024, "0.6080"),  # at least 0.8
        ("0.5.3", 18, 1024, "0.7790"),  # 0.8 * 0.95 * 1.025
        ("0.5.3", 12, 1024, "0.7980"),  # 0.8 * 0.95 * 1.05
        ("0.5.3", 6, 1024, "0.7980"),  # at most 1.05
        ("0.5.23", 27, 1152, "0.7278"),  # MoonViT: 0.8 * 0.95 * (1 - 0.1 * (27 * 1152^2 / (24 * 1024^2) - 1))
    ],
)
def test_share_shrinks_with_the_vision_tower(version: str, layers: int, width: int, expected: str) -> None:
    """adjust_mem_fraction_for_vlm: a layer has 12 width^2 parameters, and the unit is ViT-L's 24 * 1024^2."""
    assert for_vision(sglang_version(version), "0.8", layers * 12 * width**2) == expected


LLAMACPP: list[tuple[str, dict[int, Any]]] = [
    ("short_masks", {1: False, 9500: True}),
    ("sampled_logits", {1: False, 9500: True}),
    ("f16_cache_copy", {1: False, 9500: True}),
    ("between_graphs", {1: False, 9372: True, 9500: False}),
    ("flash_attention", {1: False, 6325: True}),
    ("host_embeddings", {1: 1, 7600: 2}),
    ("output_first", {1: False, 7480: True}),
]


@pytest.mark.parametrize(("name", "changes"), LLAMACPP)
def test_llamacpp_changes_at_its_builds(name: str, changes: dict[int, Any]) -> None:
    """The constants of versions.py name the pull requests, of August 2025 (#15434) to June 2026 (#23764, #23861)."""
    starts = [*changes, 99_999 + 1]
    for start, end in itertools.pairwise(starts):
        for build in {start, min(start + 1, end - 1), end - 1}:
            assert getattr(llamacpp_version(f"b{build}"), name) == changes[start], build
    assert getattr(llamacpp_version(None), name) == changes[starts[-2]]
    assert getattr(llamacpp_version("0.3.36"), name) == changes[starts[-2]]


def test_the_fork_is_an_old_build_with_flash_attention() -> None:
    fork = llamacpp_version("ik")
    switches = [name for name, value in vars(LlamaCppVersion).items() if isinstance(value, Switch)]
    assert [getattr(fork, name) for name in switches] == [getattr(llamacpp_version("b1"), name) for name in switches]
    assert (fork.fork, fork.flash_attention) == (True, True)
    assert (llamacpp_version("b1").fork, llamacpp_version("b1").flash_attention) == (False, False)


@pytest.mark.parametrize("text", ["b0", "b012", "b100000", "11258", "", "0.3.35", "xb1"])
def test_unknown_llamacpp_versions_are_errors(text: str) -> None:
    with pytest.raises(AttncalcError) as error:
        llamacpp_version(text)
    assert str(error.value) == (
        f"--engine-version {text}: llama.cpp has no such version\n"
        "  tip: known: builds as b11258, 0.3.36 (of llama-cpp-python), ik (ik_llama.cpp)"
    )
