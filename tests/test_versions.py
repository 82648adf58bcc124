"""Which version of vLLM, SGLang and llama.cpp does what, compared with what their releases say."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from asking import refusal

from attncalc.engines.llamacpp.versions import LlamaCppVersion, llamacpp_version
from attncalc.engines.sglang.engine import ENGINE as SGLANG
from attncalc.engines.sglang.options import SglangArgs
from attncalc.engines.sglang.share import for_vision
from attncalc.engines.sglang.versions import SglangVersion, sglang_version
from attncalc.engines.switches import Switch, Version
from attncalc.engines.vllm.versions import OLDEST, VllmVersion, vllm_version
from attncalc.units import dtype

# One published fact per row: the value of a switch in a version, the URL of a file at that tag or
# of a pull request, and a quote of it, without its line breaks, or what the file does not contain
# ("absent").
FACTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "version-facts.json").read_text()
)
READERS: dict[str, Any] = {
    "vllm": vllm_version,
    "sglang": sglang_version,
    "llamacpp": llamacpp_version,
}
# {the versions of an engine: (the oldest, the newest)}
LIMITS: dict[type[Version], tuple[tuple[int, ...], Version]] = {
    VllmVersion: (OLDEST, vllm_version(None)),
    SglangVersion: ((0, 3, 6), sglang_version(None)),
    LlamaCppVersion: ((1,), llamacpp_version("b99999")),
}

# Switches that tell what is known of a version, and not what the engine does.
KNOWN = ("source_was_read", "between_graphs")


def _switches(versions: type[Version]) -> dict[str, Switch[Any]]:
    return {name: value for name, value in vars(versions).items() if isinstance(value, Switch)}


def _plain(value: Any) -> Any:
    """Return a switch's value as JSON writes it."""
    if isinstance(value, frozenset):
        return sorted(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("versions", "oldest", "newest"), [(key, *ends) for key, ends in LIMITS.items()]
)
def test_switches_step_from_value_to_value_within_the_supported_versions(
    versions: type[Version], oldest: tuple[int, ...], newest: Version
) -> None:
    for name, switch in _switches(versions).items():
        first, *later = switch.steps
        assert first == (), name
        assert [oldest, *later] == sorted({oldest, *later}), name
        assert newest.number >= (later or [oldest])[-1], name
        assert all(
            before != after for before, after in itertools.pairwise(switch.steps.values())
        ), name
        assert switch.source, name


def test_versions_do_what_their_releases_say() -> None:
    wrong = []
    for fact in FACTS:
        value = _plain(getattr(READERS[fact["engine"]](fact["version"]), fact["switch"]))
        if value != fact["value"]:
            wrong.append(
                f"{fact['engine']} {fact['version']} {fact['switch']}: {value}, but "
                f"{fact['source']}"
            )
    assert wrong == []


def test_every_step_that_is_not_measured_rests_on_a_published_fact() -> None:
    """A step has a fact on each side, so that it cannot move by a release that was looked at."""
    numbers: dict[str, set[tuple[int, ...]]] = {}
    for fact in FACTS:
        numbers.setdefault(fact["switch"], set()).add(
            READERS[fact["engine"]](fact["version"]).number
        )
    bare = []
    for versions in LIMITS:
        for name, switch in _switches(versions).items():
            if "measured" in switch.source or name in KNOWN:
                continue
            steps = list(switch.steps)
            for start, end in itertools.zip_longest(steps, steps[1:], fillvalue=(99_999,)):
                if not any(start <= number < end for number in numbers.get(name, ())):
                    bare.append(f"{versions.__name__}.{name} from {start}")
    assert bare == []


def test_a_switch_has_its_first_value_before_its_first_step_and_in_the_old_engine() -> None:
    for name, switch in _switches(VllmVersion).items():
        assert (
            getattr(vllm_version("v0"), name)
            == getattr(vllm_version("0.5"), name)
            == switch.steps[()]
        ), name
    assert vllm_version("0.20").utilization == vllm_version("0.20.0").utilization == "0.92"
    assert vllm_version("0.19.99").utilization == "0.9"


@pytest.mark.parametrize(
    ("model_type", "dense", "hybrid", "first"),
    [
        ("qwen3", True, False, "0.22"),
        ("llama", True, False, "0.23"),
        ("deepseek_v2", False, False, "0.24"),
        ("gemma3", True, False, "0.25"),
        (None, True, False, "0.25"),
        ("longcat_flash_ngram", False, False, "0.26"),
        ("kimi_k3", False, True, "0.27"),
        ("mixtral", False, False, "0.29"),
        ("falcon_h1", True, True, "0.29"),
    ],
)
def test_vllm_runs_models_on_the_second_runner_by_version(
    model_type: str | None, dense: bool, hybrid: bool, first: str
) -> None:
    """Listed architectures, from 0.25 dense models without recurrent layers too, from 0.29 all
    (config/vllm.py).
    """

    def runs(version: str) -> bool:
        return vllm_version(version).uses_v2_runner(
            model_type, dense=dense, hybrid=hybrid, quantized=False
        )

    assert [runs(version) for version in (f"0.{int(first[2:]) - 1}.99", first, "0.33.0")] == [
        False,
        True,
        True,
    ]


def test_vllm_ran_quantized_models_on_the_first_runner_until_0_24() -> None:
    runs = [
        vllm_version(text).uses_v2_runner("qwen3", dense=True, hybrid=False, quantized=True)
        for text in ("0.22.0", "0.23.0", "0.24.0")
    ]
    assert runs == [False, False, True]


def test_variables_of_vllm_replace_what_the_version_does_by_default() -> None:
    """0.18 can subtract CUDA graphs, 0.20 does; 0.12 has a second runner, and 0.29 uses it for
    all.
    """
    graphs = [
        vllm_version(text).subtracts_graphs(False, on)
        for text in ("0.17", "0.18", "0.20")
        for on in (True, False)
    ]
    assert graphs == [False, False, True, False, True, False]
    assert not vllm_version("0.28").subtracts_graphs(True, True)

    def runs(version: str, given: bool) -> bool:
        return vllm_version(version).uses_v2_runner(
            "mixtral", given, dense=False, hybrid=False, quantized=False
        )

    assert [runs("0.11.0", True), runs("0.12", True), runs("0.29", False)] == [False, True, False]


def test_methods_choose_between_the_switches_of_two_cases() -> None:
    assert [
        vllm_version("0.20").stores_state_per_chunk(drafting) for drafting in (False, True)
    ] == [True, False]
    assert [
        vllm_version("0.25").sampler_scratch(v2_runner, False) for v2_runner in (False, True)
    ] == [12, 4]
    assert [
        vllm_version("0.11.0").sampler_scratch(False, flashinfer) for flashinfer in (False, True)
    ] == [36, 12]
    assert [vllm_version("0.28").subtracts_graphs(v2_runner) for v2_runner in (False, True)] == [
        True,
        False,
    ]
    assert [
        vllm_version("0.27").counts_sampler_states(v2_runner) for v2_runner in (False, True)
    ] == [False, True]
    windows = [vllm_version(text).window_block(17) for text in ("0.24.0", "0.25", "0.29.0", "0.30")]
    assert (windows, vllm_version("0.25").window_block(8)) == ([17, 16, 16, 17], 8)


def test_versions_are_read_as_the_wheels_write_them() -> None:
    vllm = {
        None: ("0.33.0", False),
        "v0": ("V0", True),
        "V0": ("V0", True),
        "0.5": ("0.5", True),
        "0.7.9999": ("0.7.9999", True),
        "0.8": ("0.8", False),
        "v0.11.0": ("0.11.0", False),
        "0.11.0.post1": ("0.11.0", False),
        "0.11.0rc2+cu128": ("0.11.0", False),
        "0.33.9": ("0.33.9", False),
    }
    assert {text: (vllm_version(text).name, vllm_version(text).v0) for text in vllm} == vllm
    sglang = {
        None: ("0.5.23", (0, 5, 23)),
        "v0.5.3.post1": ("0.5.3.post1", (0, 5, 3, 1)),
        "0.5.3rc0": ("0.5.3rc0", (0, 5, 3)),
        "0.5.17.dev20260819+g5742746": ("0.5.17.dev20260819+g5742746", (0, 5, 17)),
        "0.5.11+05fb6a52": ("0.5.11+05fb6a52", (0, 5, 11)),
        "0.5.3.post1rc1.dev2": ("0.5.3.post1rc1.dev2", (0, 5, 3, 1)),
        "0.3.6": ("0.3.6", (0, 3, 6)),
        "0.4": ("0.4", (0, 4, 0)),
        "1.2.3": ("1.2.3", (1, 2, 3)),
    }
    assert {text: tuple(sglang_version(text)) for text in sglang} == sglang


@pytest.mark.parametrize(
    ("engine", "texts", "message", "tip"),
    [
        (
            "vllm",
            ["0.4.99"],
            "--engine-version {} is too old to be supported",
            "the oldest supported version is 0.5, the newest 0.33.0",
        ),
        (
            "vllm",
            ["0.34", "1.0"],
            "--engine-version {} is newer than the newest supported version",
            "the newest is 0.33.0, which is the default",
        ),
        (
            "vllm",
            ["11", "0.11111", "newest"],
            "--engine-version: '{}' is not a version of vLLM",
            "write a version as 0.33.0 or 0.11.0, or v0 for the old engine",
        ),
        (
            "sglang",
            ["0.3.5", "0.3", "0.3.5.post2"],
            "SGLang {} is not supported",
            "0.3.6 is the oldest supported version, and 0.5.23 the default",
        ),
        ("sglang", ["5", "0.5.3-1"], "SGLang has no version '{}'", "write it as 0.5.23"),
        (
            "llamacpp",
            ["b0", "b012", "b100000", "11258", "", "0.3.35", "xb1"],
            "--engine-version {}: llama.cpp has no such version",
            "known: builds as b11739, releases as v0.5.0, 0.3.36 (of llama-cpp-python), ik "
            "(ik_llama.cpp)",
        ),
    ],
)
def test_versions_that_are_not_supported_are_errors(
    engine: str, texts: list[str], message: str, tip: str
) -> None:
    for text in texts:
        assert str(refusal(READERS[engine], text)) == f"{message.format(text)}\n  tip: {tip}"


def sglang_args(version: str, **more: Any) -> SglangArgs:
    return SglangArgs(dtype("bf16"), dtype("bf16"), engine_version=version, **more)


def sglang_share(version: str, memory_mib: int, devices: int, **more: Any) -> str:
    return SGLANG.share(sglang_args(version, device_memory=memory_mib * 2**20, **more), devices)


def test_default_share_of_old_sglang_versions() -> None:
    """server_args.py (__post_init__) of these versions."""
    by_devices = {
        "0.3.6.post3": {
            1: "0.88",
            2: "0.87",
            3: "0.87",
            4: "0.85",
            7: "0.85",
            8: "0.82",
            15: "0.82",
            16: "0.79",
        },
        "0.4.0": {1: "0.88", 3: "0.87", 7: "0.85", 8: "0.81", 16: "0.79"},
        "0.4.6.post2": {1: "0.88", 8: "0.81"},
    }
    for version, shares in by_devices.items():
        assert {devices: sglang_share(version, 80 * 1024, devices) for devices in shares} == shares


def test_default_share_of_old_sglang_versions_by_the_gpus_memory() -> None:
    shares = {
        ("0.4.5.post2", 141 * 1024): "0.88",
        # larger GPUs than 81,920 MiB leave 13 GiB: 13,312 of 81,921 are 0.16250
        ("0.4.6", 81_920): "0.88",
        ("0.4.6", 81_921): "0.838",
        ("0.4.5.post3", 141 * 1024): "0.908",  # (141 - 13) / 141
        # then 18 GiB if they have more than 96 GiB; beyond 198 GiB, 0.12 of what they have above 48
        # GiB is more
        ("0.4.6.post2", 96 * 1024): "0.88",
        ("0.4.6.post2", 141 * 1024): "0.872",  # (141 - 18) / 141
        ("0.4.7", 248 * 1024): "0.903",  # 24 of 248
        # from 0.4.7.post1 a number of GiB by the GPU's size and the devices
        ("0.4.7.post1", 80 * 1024): "0.875",  # 80 - (9.5 + 0.5) = 70
        ("0.4.9", 24 * 1024): "0.879",  # 24 - (2.8 + 0.1) = 21.1
        ("0.5.2", 90 * 1024): "0.861",  # 90 - (12 + 0.5) = 77.5
        ("0.5.2", 160 * 1024): "0.800",  # 160 - 32 = 128
        # shares just below or above a half of the last place, which show a single MiB of what is
        # left
        ("0.4.6", 82_422): "0.838",  # 0.83849
        ("0.4.9", 36_120): "0.717",  # 10,240 left: 0.71650
        ("0.4.9", 36_117): "0.716",  # 0.71648
        ("0.4.9", 10_014): "0.704",  # 2,969 left: 0.70351
        ("0.4.9", 10_011): "0.703",  # 0.70343
        ("0.4.9", 92_419): "0.862",  # 12,800 left: 0.86150
        ("0.4.9", 92_412): "0.861",  # 0.86149
        ("0.4.9", 164_251): "0.801",  # 32,768 left: 0.800500
        ("0.4.9", 164_246): "0.800",  # 0.800494
        # the limits of 35, 90 and 160 GiB
        ("0.4.9", 35 * 1024 - 1): "0.917",  # 2867 + 102 MiB left
        ("0.4.9", 90 * 1024 - 1): "0.889",  # 9728 + 512
        ("0.4.9", 160 * 1024 - 1): "0.922",  # 12288 + 512
        ("0.4.9", 0): "0.001",
        ("0.4.9", 2_048): "0.001",  # less than what is left: SGLang would not start
        ("0.4.9", 2_974): "0.002",  # (2974 - 2867 - 102) / 2974 = 0.0017
    }
    assert {key: sglang_share(key[0], key[1], 1) for key in shares} == shares


def test_more_devices_leave_more_from_0_4_7_post1() -> None:
    shares = {
        (24, 4): "0.867",  # 24 - (2.8 + 0.4) = 20.8
        (80, 8): "0.831",  # 80 - (9.5 + 4) = 66.5
        (90, 4): "0.844",  # 90 - (12 + 2) = 76
        (141, 8): "0.887",  # 141 - (12 + 4) = 125
    }
    for version in ("0.4.7.post1", "0.5.2"):
        assert {key: sglang_share(version, key[0] * 1024, key[1]) for key in shares} == shares


def test_dp_attention_leaves_4_gib_and_a_drafter_2_from_0_4_7_post1() -> None:
    shares = {
        (80 * 1024, 1, False): "0.875",  # 80 - 10
        (80 * 1024, 2, False): "0.825",  # 80 - 10 - 4
        (80 * 1024, 1, True): "0.850",  # 80 - 10 - 2
        (80 * 1024, 8, True): "0.800",  # 80 - 10 - 4 - 2
        (36_089, 1, True): "0.660",  # 9,728 + 512 + 2,048 left: 0.65951
        (36_086, 1, True): "0.659",  # 0.65948
        (36_066, 2, False): "0.603",  # 9,728 + 512 + 4,096 left: 0.60251
        (36_063, 2, False): "0.602",  # 0.60247
    }
    for (mib, attn_dp, drafts), expected in shares.items():
        more = {"attn_dp": attn_dp, "speculative_tokens": int(drafts)}
        assert [sglang_share(version, mib, 1, **more) for version in ("0.4.7.post1", "0.4.7")] == [
            expected,
            "0.88",
        ]


def test_share_shrinks_with_the_vision_tower() -> None:
    """adjust_mem_fraction_for_vlm: a layer has 12 width^2 parameters, and the unit is ViT-L's 24 *
    1024^2.
    """
    shares = {
        ("0.5.23", 0, 0): "0.8",  # no tower
        ("0.4.4.post3", 24, 1024): "0.7600",  # 0.8 * 0.95
        ("0.4.4.post4", 24, 1024): "0.7200",  # 0.8 * 0.90
        ("0.5.2", 24, 1024): "0.7200",
        ("0.5.3", 24, 1024): "0.7600",  # 0.8 * 0.95 * 1
        ("0.5.3", 48, 1024): "0.6840",  # 0.8 * 0.95 * 0.9
        ("0.5.3", 72, 1024): "0.6080",  # 0.8 * 0.95 * 0.8
        ("0.5.3", 96, 1024): "0.6080",  # at least 0.8
        ("0.5.3", 18, 1024): "0.7790",  # 0.8 * 0.95 * 1.025
        ("0.5.3", 12, 1024): "0.7980",  # 0.8 * 0.95 * 1.05
        ("0.5.3", 6, 1024): "0.7980",  # at most 1.05
        # MoonViT: 0.8 * 0.95 * (1 - 0.1 * (27 * 1152^2 / (24 * 1024^2) - 1))
        ("0.5.23", 27, 1152): "0.7278",
    }
    for (version, layers, width), expected in shares.items():
        args = sglang_args(version, vision_params=layers * 12 * width**2)
        assert for_vision(args, "0.8") == expected


def test_the_default_and_releases_are_as_the_newest_build() -> None:
    for name in _switches(LlamaCppVersion):
        builds = {getattr(llamacpp_version(text), name) for text in (None, "v0.5.0", "b99999")}
        assert builds == {list(_switches(LlamaCppVersion)[name].steps.values())[-1]}, name


def test_llama_cpp_python_has_a_build_of_its_own() -> None:
    """Commit 0c1e57098 of llama.cpp, in the changelog of 0.3.36, is b11312."""
    assert llamacpp_version("0.3.36").number == llamacpp_version("b11312").number


def test_the_fork_is_an_old_build_with_flash_attention() -> None:
    fork = llamacpp_version("ik")
    switches = [name for name, value in vars(LlamaCppVersion).items() if isinstance(value, Switch)]
    assert [getattr(fork, name) for name in switches] == [
        getattr(llamacpp_version("b1"), name) for name in switches
    ]
    assert (fork.fork, fork.flash_attention) == (True, True)
    assert (llamacpp_version("b1").fork, llamacpp_version("b1").flash_attention) == (False, False)
