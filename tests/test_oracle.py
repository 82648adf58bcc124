"""Comparison with measurements of transformers' own classes; tests/data/oracle.json describes
them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tables import each

from attncalc import (
    Chunked,
    Grouped,
    Layers,
    ModelSpec,
    Sliding,
    Stack,
    Workload,
    flops,
    kv_cache,
    load,
    params,
)

ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "oracle.json").read_text())[
    "models"
]
NAMES = sorted(ORACLE)


def rows(name: str, key: str) -> list[Any]:
    measured_rows: list[Any] = ORACLE[name][key]
    return [(name, row) for row in measured_rows]


def attention_in_order(name: str, cross: bool = False) -> list[int]:
    """Attention parameters of every layer, in order, all stacks."""
    layer_params = []
    for stack in load(name).stacks:
        for layers in stack.layers:
            kinds = [layers.cross] if cross else [layers.attention]
            for kind in kinds:
                if kind is not None:
                    total = sum(int(m.params) for m in kind.matrices(stack.d_model, stack.d_model))
                    layer_params += [total] * layers.count
    return layer_params


@each("name", NAMES)
def test_total_parameters(name: str) -> None:
    assert params(load(name)).total == ORACLE[name]["total_params"]


@each("name", NAMES)
def test_attention_parameters_layer_by_layer(name: str) -> None:
    measured = [
        v
        for runs in ORACLE[name]["attention_params_per_layer"].values()
        for v, n in runs
        for _ in range(n)
    ]
    # BERT's module holds the norm after it, T5's first layer of a stack the table of relative
    # positions.
    spec = load(name)
    norm = 2 * spec.main.d_model if name.startswith("bert") else 0
    computed = [value + norm for value in attention_in_order(name)]
    if name == "t5-base":
        computed[0] += 32 * 12
        computed[12] += 32 * 12
    assert computed == measured


@pytest.mark.parametrize("name", ["t5-base", "whisper-large-v3"])
def test_cross_attention_parameters(name: str) -> None:
    (runs,) = ORACLE[name]["cross_attention_params_per_layer"].values()
    assert attention_in_order(name, cross=True) == [v for v, n in runs for _ in range(n)]


@each(("name", "row"), [pair for name in NAMES for pair in rows(name, "kv")])
def test_cache_bytes_at_every_length(name: str, row: dict[str, int]) -> None:
    workload = Workload.decode(row["batch"], row["seq"], source=row["enc_seq"], kv_dtype="bf16")
    cache = kv_cache(load(name), workload)
    assert cache.total == row["ideal_total_bytes"]
    assert cache.cross_attention_cache == row["cross_bytes"]


@each("name", NAMES)
def test_prefill_flops_of_attention_dense(name: str) -> None:
    measured = ORACLE[name]["flops"]["prefill"]
    source = {"t5-base": 2048, "whisper-large-v3": 1500}.get(name)
    model_flops = flops(load(name), Workload.prefill(1, measured["seq"], source=source))
    modules = measured["attention"]
    assert model_flops.projections == sum(m["layers"] * m["proj"] for m in modules)
    assert model_flops.scores_dense == sum(m["layers"] * m["scores"] for m in modules)


@each("name", [n for n in NAMES if "decode" in ORACLE[n]["flops"] and n != "deepseek-v3"])
def test_decode_flops_of_attention(name: str) -> None:
    """Exact for windows: a sliding layer's decode reads its window. (The class of DeepSeek-V3
    expands its whole cache at every step; engines, and we, absorb instead: arXiv:2405.04434,
    appendix C.)
    """
    measured = ORACLE[name]["flops"]["decode"]
    source = {"t5-base": 2048, "whisper-large-v3": 1500}.get(name)
    model_flops = flops(load(name), Workload.decode(1, measured["cache_len"] + 1, source=source))
    modules = measured["attention"]
    assert model_flops.projections == sum(m["layers"] * m["proj"] for m in modules)
    assert model_flops.scores == sum(m["layers"] * m["scores"] for m in modules)


@pytest.mark.parametrize(
    "name", ["gpt2", "llama2-70b", "llama3-8b", "falcon-7b", "qwen3-8b", "bert-base"]
)
def test_flops_of_the_whole_model(name: str) -> None:
    """Where the class runs nothing but matrix products that we count."""
    measured = ORACLE[name]["flops"]["prefill"]
    model_flops = flops(load(name), Workload.prefill(1, measured["seq"]))
    assert model_flops.total_dense == measured["total_all_modules"]


def test_layers_with_different_heads_windows_and_sinks() -> None:
    """A small model of the MiMo-V2-Flash class: d_qk 192 and d_v 128, 2 KV heads or 4 with a window
    of 128.
    """
    full = Grouped(8, 2, 192, 128)
    sliding = Grouped(8, 4, 192, 128, span=Sliding(128), sinks=True)
    groups = [Layers("full", 1, attention=full), Layers("sliding", 4, attention=sliding)]
    layers = (*groups, Layers("full", 1, attention=full))
    model = ModelSpec("mimo", "mimo", (Stack("decoder", layers, 1024),), dtype="bf16")
    parameters = {g.group: int(g.attention_per_layer) for g in params(model).groups}
    assert parameters == {"full": 3_276_800, "sliding": 3_932_168}
    for tokens, measured in ((128, 3_276_800), (4096, 23_592_960), (40_000, 207_421_440)):
        assert kv_cache(model, Workload.decode(2, tokens)).total == measured
    model_flops = {g.group: g for g in flops(model, Workload.prefill(1, 2048)).groups}
    assert (model_flops["full"].projections, model_flops["full"].scores_dense) == (
        2 * 13_421_772_800,
        2 * 21_474_836_480,
    )
    assert (model_flops["sliding"].projections, model_flops["sliding"].scores_dense) == (
        4 * 16_106_127_360,
        4 * 21_474_836_480,
    )
    step = {g.group: g for g in flops(model, Workload.decode(1, 2049)).groups}
    assert (step["full"].scores, step["sliding"].scores) == (2 * 10_490_880, 4 * 655_360)


def test_chunked_layers_cache_at_most_one_chunk() -> None:
    """Llama 4 Scout: 36 of 48 layers attend within chunks of 8,192."""
    heads = Grouped(40, 8, 128)
    chunked = Grouped(40, 8, 128, span=Chunked(8192))
    layers = tuple(
        Layers(*kind, attention=a)
        for kind, a in ((("chunked", 36), chunked), (("full", 12), heads))
    )
    model = ModelSpec("scout", "scout", (Stack("decoder", layers, 5120),), dtype="bf16")
    assert params(model).attention == 48 * 62_914_560
    for tokens, measured in ((128, 50_331_648), (4096, 1_610_612_736), (40_000, 6_348_079_104)):
        assert kv_cache(model, Workload.decode(2, tokens)).total == measured
