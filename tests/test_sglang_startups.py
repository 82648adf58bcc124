"""SGLang's share of the memory beside public start-up logs (tests/data/sglang/startups.json)."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from evaluate import text_of
from tables import each

from attncalc import AttncalcError, load
from attncalc.config.gpus import gpu, gpus_of
from attncalc.cost.cache import layer_cache_specs
from attncalc.engines import find_engine
from attncalc.engines.runtime import RuntimeFacts, RuntimeMemory
from attncalc.engines.sglang.options import SglangArgs
from attncalc.engines.sglang.share import for_vision
from attncalc.serving.fit import fit
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import dtype
from attncalc.workload import Workload

DATA = Path(__file__).parent / "data" / "sglang"
GIB = 2**30
DOCUMENT = json.loads((DATA / "startups.json").read_text())
LOGS = DOCUMENT["logs"]
# {GPU of a log: its preset}.
GPUS = {
    "24 GB (RTX 4090?)": "rtx-4090",
    "48 GB (L40/A6000/4090-48)": "l40",
    "80 GB": "h100-80gb",
    "B200": "b200",
    "H100": "h100-80gb",
    "H20 96GB": "h20",
    "H200": "h200",
    "H800 80GB": "h100-80gb",
    "L4": "l4",
    "L40S": "l40s",
    "MI300X": "mi300x",
    "MI355X": "mi355x",
    "RTX 4090": "rtx-4090",
    "RTX 5080": "rtx-5080",
    "RTX PRO 6000": "rtx-pro-6000",
}
BEFORE_WEIGHTS = DOCUMENT["before_weights"]
# The logs of a GPU whose memory is known.
KNOWN = [log for log in (*LOGS, *BEFORE_WEIGHTS) if log["physical_GiB"] and log["gpu"] in GPUS]


def source_of(log: dict[str, Any]) -> str:
    return str(log["source"]).split(": ")[0].rpartition(" ")[2]


def budget_facts(devices: int = 1, **changes: Any) -> RuntimeFacts[Any]:
    """Return the facts of a small model on an H100, with some of them changed."""
    request = FitRequest(
        load("qwen3-8b"), Workload.decode(1, 4096), engine="sglang", gpu=gpu("h100-80gb")
    )
    facts = memory_budget(resolve(request)).facts
    assert facts
    return dataclasses.replace(facts, args=dataclasses.replace(facts.args, tp=devices), **changes)


def runtime(facts: RuntimeFacts[Any]) -> RuntimeMemory:
    from attncalc.engines import find_engine

    return find_engine("sglang").runtime(facts)


@each("log", LOGS, ids=map(source_of, LOGS))
def test_memory_for_the_cache_is_the_share_of_what_is_free_less_weights(
    log: dict[str, Any],
) -> None:
    if log["kv_and_states_GiB"] is None or "left out" in log.get("note", ""):
        return
    # 0.88 * 22.76 - 14.39 = 5.64; whole slots of states may leave more
    memory = log["mem_fraction_static"] * log["avail_before_weights"] - log["weights"]
    assert memory == pytest.approx(log["kv_and_states_GiB"], abs=log.get("slack", 0.03))


@each("log", KNOWN, ids=map(source_of, KNOWN))
def test_what_is_gone_before_the_share_is_in_its_range(log: dict[str, Any]) -> None:
    """What is gone costs the cache its share: 0.88 of 23.51 - 22.76 GiB."""
    share = log.get("mem_fraction_static", 1)
    device = dataclasses.replace(gpu(GPUS[log["gpu"]]), memory=int(log["physical_GiB"] * GIB))
    part = runtime(
        budget_facts(log["tp"], gpu=device, share=(int(share * 10000 + 0.5), 10000))
    ).parts[0]
    at = share * (log["physical_GiB"] - log["avail_before_weights"]) * GIB
    assert part.low - 0.01 * GIB <= at <= part.high + 0.01 * GIB


def test_what_is_gone_before_the_share_is_expected_within_half_a_gib() -> None:
    def error(log: dict[str, Any]) -> float:
        device = gpu(GPUS[log["gpu"]])
        expected = (
            int(runtime(budget_facts(log["tp"], gpu=device, share=(1, 1))).parts[0].expected) / GIB
        )
        gone: float = log["physical_GiB"] - log["avail_before_weights"]
        return abs(expected - gone)

    errors = sorted(map(error, KNOWN))
    assert len(errors) >= 20
    assert errors[len(errors) // 2] < 0.25
    assert errors[int(0.9 * len(errors))] < 1.2


def test_memory_before_the_share_depends_on_the_link() -> None:
    def before(devices: int, name: str) -> tuple[int, int, int]:
        part = runtime(budget_facts(devices, gpu=gpus_of(name)[1], share=(1, 1))).parts[0]
        return (
            round(part.low / GIB * 100),
            round(int(part.expected) / GIB * 100),
            round(part.high / GIB * 100),
        )

    assert before(1, "h100-80gb") == before(1, "l4") == (25, 55, 100)
    assert before(2, "l4") == before(4, "rtx-4090") == (30, 55, 110)
    assert before(8, "rtx-4090") == (40, 90, 130)
    assert before(2, "h100-80gb") == before(8, "h200") == (120, 190, 310)
    assert before(2, "mi355x") == before(8, "mi355x") == (120, 440, 500)
    assert before(2, "24GB") == (30, 120, 310)  # unknown


def test_activations_and_graphs_are_not_subtracted() -> None:
    resolved = resolve(
        FitRequest(
            load("qwen3-8b"), Workload.decode(1, 4096), engine="sglang", gpu=gpu("h100-80gb")
        )
    )
    budget = memory_budget(resolved)
    assert budget.reserve
    assert budget.share
    assert budget.weights
    memory = resolved.gpu.memory if resolved.gpu else 0
    share = budget.share.numerator / budget.share.denominator
    assert int(budget.kv_memory) == pytest.approx(
        share * (memory - 0.55 * GIB) - int(budget.weights.total), abs=3, rel=0
    )
    assert [part.name for part in budget.reserve.runtime.parts] == ["before_share", "loading"]
    assert [part.name for part in budget.reserve.runtime.outside] == [
        "activations",
        "cuda_graphs",
        "req_to_token",
    ]


def test_the_table_of_requests_has_four_bytes_per_token_of_each() -> None:
    def table(**changes: Any) -> tuple[int, int]:
        facts = budget_facts(**{k: v for k, v in changes.items() if k == "context"})
        args = {k: v for k, v in changes.items() if k != "context"}
        part = runtime(
            dataclasses.replace(facts, args=dataclasses.replace(facts.args, **args))
        ).outside[2]
        return int(part.expected), part.high

    # 2,049 rows of 131,076 tokens: 1.00 GiB; 4.00 GiB at 256K with 4,096 requests
    assert table(context=131072)[0] == 2049 * 131076 * 4
    assert table(context=262144)[1] == 4097 * 262148 * 4
    assert table(context=4096, max_running_requests=100) == (101 * 4100 * 4, 101 * 4100 * 4)
    assert table(context=4096, speculative_layers=1, speculative_tokens=3)[0] == 49 * 4100 * 4


def test_a_vision_tower_makes_the_default_share_smaller() -> None:
    """27 layers of 1,152 against 24 of 1,024 (adjust_mem_fraction_for_vlm); Kimi-K2.5 logs 0.826 of
    288 GB.
    """
    args = SglangArgs(
        dtype("bf16"), dtype("bf16"), engine_version="0.5.9", vision_params=12 * 27 * 1152**2
    )
    assert float(for_vision(args, "0.908")) == pytest.approx(0.826, abs=0.001)


def test_a_tower_whose_config_has_a_depth_counts_as_24_layers() -> None:
    """Qwen3.6 has 27 layers of 1,152: 0.95 * (1 - 0.1 * (24 * 1152^2 / (24 * 1024^2) - 1)) =
    0.9248.
    """
    resolved = resolve(
        FitRequest(
            load("qwen3.6-35b-a3b"), Workload.decode(1, 4096), "sglang", gpu=gpu("h100-80gb")
        )
    )
    assert isinstance(resolved.args, SglangArgs)
    assert float(for_vision(resolved.args, "1")) == pytest.approx(
        0.95 * (1 - 0.1 * (1152**2 / 1024**2 - 1)), abs=1e-4
    )


def test_the_tower_of_kimi_k2_5_is_that_of_sglangs_own_class() -> None:
    """A log of 8 x MI355X has mem_fraction_static=0.8260405859375, 0.908 of its text."""
    model = load(str(DATA.parent / "startups" / "models" / "kimi-k2.5.json"))
    resolved = resolve(
        FitRequest(model, Workload.decode(1, 4096), "sglang", gpu=gpu("mi355x"), tp=8)
    )
    assert isinstance(resolved.args, SglangArgs)
    assert float(for_vision(resolved.args, "0.908")) == pytest.approx(0.8260405859375, abs=1e-4)


def kv_memory_on(name: str, model: str, *, tp: int = 1, context: int = 40960, **args: Any) -> float:
    """Return the GiB for the cache with a share of 0.6."""
    asked = FitRequest(
        load(model),
        Workload.decode(1, context),
        "sglang",
        gpu=gpu(name),
        tp=tp,
        gpu_memory_utilization="0.6",
    )
    return int(memory_budget(resolve(dataclasses.replace(asked, engine_args=args))).kv_memory) / GIB


def test_aiter_takes_a_part_of_the_share() -> None:
    """sgl-project/sglang#25199: with contexts above 8,192. A log of Qwen3-0.6B has 145.3 of 287.26
    GiB.
    """
    free, model = 287.98 - 0.55, str(DATA.parent / "startups" / "models" / "qwen3-0.6b.json")
    given = kv_memory_on("mi355x", model)
    assert given == pytest.approx(145.3, abs=0.4)
    triton = kv_memory_on("mi355x", model, attention_backend="triton")
    assert triton - given == pytest.approx(0.15 * 0.6 * free, abs=0.01)
    assert kv_memory_on("mi355x", model, context=8192) == triton
    # a log of DeepSeek-R1 has all of 0.7
    assert kv_memory_on("mi355x", model, engine_version="0.4.6.post2") == triton
    nvidia = [
        kv_memory_on("b200", model, attention_backend=backend) for backend in (None, "triton")
    ]
    assert nvidia[0] == nvidia[1]


def test_aiter_computes_mla_only_for_16_or_128_heads() -> None:
    def differs(model: str, tp: int) -> bool:
        default, triton = (
            kv_memory_on("mi355x", model, tp=tp, attention_backend=backend)
            for backend in (None, "triton")
        )
        return default != triton

    assert differs("deepseek-v3", 8)  # 128 heads on 8 GPUs: 16
    assert not differs("deepseek-v3", 4)  # 32
    assert not differs("glm-5", 8)  # sparse attention has a backend of its own
    assert not differs("gpt-oss-120b", 1)


def test_the_pool_of_an_fp8_latent_is_larger_than_its_share_before_0_5_17() -> None:
    """GLM-5 on 8 MI355X: 3,262,823 tokens of 78 x (576 + 132) B, 167.81 GiB, and a pool of 78 x
    (656 + 132) B.
    """
    memory = 78 * (576 + 132) * 3262823

    def pool(version: str) -> tuple[int, str]:
        asked = FitRequest(
            load("glm-5"), Workload.decode(1, 4096, kv_dtype="fp8"), "sglang", kv_memory=memory, tp=8,
            engine_args={"engine_version": version},
        )  # fmt: skip
        found = fit(asked).pool
        return int(found.tokens), next(
            line for line in found.log_lines if "KV Cache is allocated" in line
        )

    tokens, line = pool("0.5.16")
    assert tokens == 3262823 // 64 * 64
    assert line.endswith("KV size: 186.77 GB")
    assert pool("0.5.17")[0] == memory // (78 * (656 + 132)) // 64 * 64


def test_a_drafter_makes_the_default_share_smaller() -> None:
    def share_of(number: str, model: str | None = None, **drafter: int) -> str:
        draft = load(model) if model else None
        request = FitRequest(
            load("qwen3-8b"), Workload.decode(1, 4096), "sglang", gpu=gpu("h100-80gb"), draft=draft
        )
        resolved = resolve(request.with_engine_args(engine_version=number, **drafter))
        assert resolved.share
        return resolved.share.text

    # 1 - (9.5 + 0.5 + 2) * 1024 / 81,498 and 1 - (13,440 + 2,048) / 81,498
    assert share_of("0.4.9", speculative_tokens=3) == "0.849"
    assert share_of("0.5.9", speculative_tokens=3) == "0.810"
    assert share_of("0.5.23", speculative_tokens=3) == share_of("0.5.23")
    # 1 - (13,440 + 6,144) / 81,498 with a smaller model
    assert share_of("0.5.9", "qwen3-0.6b", speculative_tokens=3) == "0.760"
    assert share_of("0.5.14", "qwen3-0.6b", speculative_tokens=3) == share_of("0.5.14")


def test_the_default_share_is_of_the_memory_that_nvidia_smi_shows() -> None:
    # an RTX 5080 has 16,303 MiB, of which PyTorch sees 15,840: 1 - 2.9 * 1024 / 16,340
    request = FitRequest(
        load("qwen3-8b"), Workload.decode(1, 4096), engine="sglang", gpu=gpu("rtx-5080")
    )
    resolved = resolve(request.with_engine_args(engine_version="0.4.9"))
    assert resolved.share
    assert resolved.share.text == "0.818"


def test_a_share_that_leaves_too_little_is_a_warning() -> None:
    def warnings(share: tuple[int, int], context: int = 4096) -> list[str]:
        notes = runtime(budget_facts(share=share, context=context)).notes
        return [note for note in notes if note.startswith("warning: ")]

    assert warnings((85, 100)) == []
    (warning,) = warnings((99, 100))
    assert "smaller --mem-fraction-static" in warning
    # 4 GiB of the table of requests at 512K do not fit into 6%
    assert warnings((94, 100), context=524288)


@pytest.mark.parametrize(("memory_gib", "logged"), [(80, 1.00), (180, 1.44)])
def test_graphs_are_as_large_as_logged(memory_gib: int, logged: float) -> None:
    """sgl-project/sglang#12978 has 36 sizes to 256, #11830 52 sizes to 512 on a B200."""
    facts = budget_facts()
    args = dataclasses.replace(facts.args, device_memory=memory_gib * GIB)
    part = runtime(dataclasses.replace(facts, args=args)).outside[1]
    assert int(part.expected) / GIB == pytest.approx(logged, rel=0.06)


@each(
    ("version", "memory_mib", "tp", "share"),
    [
        ("0.3.6", 24000, 1, "0.88"),
        ("0.4.2", 24074, 1, "0.88"),  # a log of 24 GB: 0.88 * 22.76 - 14.39 = 5.64
        ("0.4.6", 48640, 1, "0.88"),  # a log of 48 GB: 19.67 - 14.00 = 0.12 * 47.24
        ("0.4.0", 81559, 8, "0.81"),
        ("0.3.6", 81559, 8, "0.82"),
        ("0.4.6", 81559, 16, "0.79"),
        ("0.4.6", 143771, 8, "0.907"),  # (143771 - 13312) / 143771
        ("0.4.9", 24564, 1, "0.879"),  # 2.9 GiB of 23.99: 1 - 2969 / 24564
        ("0.5.2", 81559, 8, "0.831"),  # 13.5 GiB: 1 - 13824 / 81559
        ("0.4.9", 143771, 8, "0.886"),  # 16 GiB: 1 - 16384 / 143771
        ("0.5.0", 196608, 8, "0.833"),  # 32 of 192 GiB
        # 512 + 12,288 + 2 * 512 + 128 * 16 MiB of 81,559: a log of an H800 with tp 16 has 0.805
        ("0.5.9", 81559, 16, "0.805"),
        ("0.5.3", 81559, 1, "0.835"),  # 512 + 12,288 + 2 * 256 + 128: 13,440 MiB
        ("0.5.8", 24564, 1, "0.847"),  # 512 + 3,072 + 48 + 128: 3,760 MiB
        # from 0.5.10, graphs of prefills too: 8 MiB for each of 8 + 14 + 8 + 8 + 12 + 8 sizes, 464
        # more
        ("0.5.10", 81559, 1, "0.830"),
    ],
)
def test_the_default_share_by_version(version: str, memory_mib: int, tp: int, share: str) -> None:
    """Old versions have their own; from 0.5.3 it leaves a chunk and graphs."""
    args = SglangArgs(
        dtype("bf16"),
        dtype("bf16"),
        engine_version=version,
        tp=tp,
        device_memory=memory_mib * 2**20,
    )
    assert find_engine("sglang").share(args, tp) == share


@pytest.mark.parametrize("version", ["0.4.3", "0.5.2", "0.5.9", "v0.5.23", "0.5.6.post1"])
def test_old_versions_have_their_own_share(version: str) -> None:
    request = FitRequest(
        load("qwen3-8b"),
        Workload.decode(1, 4096),
        engine="sglang",
        gpu=gpu("h100-80gb"),
        engine_args={"engine_version": version},
    )
    assert fit(request).layout.version == version.removeprefix("v")
    with pytest.raises(AttncalcError, match="not supported"):
        fit(request.with_engine_args(engine_version="0.3.5"))


def test_layers_that_share_keys_have_rows_in_the_pool_of_their_kind() -> None:
    """A log of Gemma 4 E4B: 79.94 GiB hold 997,846 and 798,276 tokens, with rows for the 18 layers
    that share keys.
    """
    model = load(str(DATA / "gemma-4-e4b.json"))
    args = SglangArgs(dtype("bf16"), dtype("bf16"), model_type="gemma4_text")
    # 7 full layers of 2 heads x 512 and 35 with a window of 2 heads x 256, K and V in bf16
    full, swa = 7 * 2 * 2 * 512 * 2, 35 * 2 * 2 * 256 * 2
    assert (full, swa) == (28672, 71680)
    memory = 997846 * full + 798276 * swa
    assert f"{memory / GIB:.2f}" == "79.94"
    pool = (
        find_engine("sglang")
        .layout(layer_cache_specs(model.plain()), args)
        .pool(memory + 10**5, 32768)
    )
    assert pool.tokens == 997846
    assert any("swa_layer_tokens=798276" in line for line in pool.log_lines)


def test_formulas_evaluate_to_their_figures() -> None:
    found = runtime(budget_facts(4))
    for part in (*found.parts, *found.outside):
        text_of(part.expected)


def test_a_published_share_is_too_small_for_the_weights_of_its_model() -> None:
    """SGLang's cookbook has a share of 0.8 for Qwen3.6-35B-A3B in bf16 on one H100: of 78.5 GiB
    less than the weights.

    Source: docs_new/src/snippets/autoregressive/qwen36-deployment.jsx; its fp8 variant, with the
    same share, starts.
    """

    def verdict(share: str, weights: str | None = None) -> str:
        workload = Workload.decode(1, 8192)
        request = FitRequest(
            load("qwen3.6-35b-a3b"), workload, engine="sglang", gpu=gpu("h100-80gb")
        )
        return fit(
            dataclasses.replace(request, gpu_memory_utilization=share, weights_dtype=weights)
        ).verdict

    assert verdict("0.8") == "does_not_fit"
    assert verdict("0.8", "fp8") == "fits"
    assert verdict("0.88") == "fits"


def test_scales_of_experts_in_nvfp4_stay_on_rtx_blackwell_gpus() -> None:
    """Kimi K2 on 8 GPUs: 60 layers of 384 experts, each with 7,168 x 2,048 / 8 / 16 scales of its
    down matrix.
    """
    model = load(str(DATA.parent / "startups" / "models" / "kimi-k2-thinking-nvfp4.json"))
    for name, left in (("rtx-pro-6000", 60 * 384 * 7168 * 2048 // 8 // 16), ("b200", 0)):
        asked = FitRequest(
            model, Workload.decode(1, 4096, kv_dtype="fp8"), "sglang", gpu=gpu(name), tp=8
        )
        reserve = memory_budget(resolve(asked)).reserve
        assert reserve is not None
        assert reserve.runtime is not None
        assert (
            next(int(part.expected) for part in reserve.runtime.parts if part.name == "loading")
            == left
        )
