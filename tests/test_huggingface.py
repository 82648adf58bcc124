"""config.json -> figures, held against what 123 models' own classes hold, cache and compute.

tests/data/huggingface.json: for each, its config, and what transformers 5.23's class of it was measured
to have on the meta device (torch 2.13). kv is at batch 2 in bf16, flops at batch 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from attncalc import ModelSpec, Workload, flops, kv_cache, params
from attncalc.attention.image_cross import ImageCross
from attncalc.config.build import build
from attncalc.config.document import Document
from attncalc.config.huggingface import document
from attncalc.config.schema import check
from attncalc.config.yaml import read, written
from attncalc.errors import AttncalcError

ORACLE: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "huggingface.json").read_text())
REFUSED = {"default-csm": "csm"}
"""Of these, those that are refused, by the family that is not modelled."""


@cache
def written_from(name: str) -> Document:
    return document(ORACLE[name]["config"], f"{name}.json", title=name)


@cache
def spec_of(name: str) -> ModelSpec:
    document = written_from(name)
    check(document)
    return build(document, name)


def measured(key: str) -> list[str]:
    """The models that were measured for it and are read."""
    return [name for name in ORACLE if ORACLE[name]["measured"].get(key) and name not in REFUSED]


def layers_in_order(name: str, cross: bool = False) -> Iterator[tuple[str, int]]:
    """(stack, parameters of attention) of every layer that has one; of loops over layers, as HRM's, once."""
    spec = spec_of(name)
    for stack in spec.stacks:
        for layers in stack.layers:
            if layers.shares_weights and ORACLE[name]["config"]["model_type"] == "hrm_text":
                continue
            pictures = isinstance(layers.attention, ImageCross)
            across = layers.attention if pictures else layers.cross
            for kind in (across,) if cross else (layers.attention,):
                if kind is not None and (cross or kind.widths().n_heads):
                    one = sum(int(m.params) for m in kind.matrices(stack.d_model, spec.d_source))
                    yield from [(stack.name, one)] * layers.count


@pytest.mark.parametrize("name", ORACLE)
def test_a_model_is_read_or_refused_by_name(name: str) -> None:
    if name not in REFUSED:
        assert spec_of(name).main.n_layers
        return
    with pytest.raises(AttncalcError, match=REFUSED[name]):
        written_from(name)


@pytest.mark.parametrize("name", measured("total_params"))
def test_total_parameters(name: str) -> None:
    facts = ORACLE[name]["measured"]
    counts = ("total_params", "total_params_plus_persistent_buffers", "language_params")
    assert params(spec_of(name)).total in [facts.get(key) for key in counts]
    if params(spec_of(name)).total == facts.get("language_params") != facts["total_params"]:
        assert any("not counted" in note for note in spec_of(name).notes)


TOWERS = ("vision", "visual", "embed_tokens_extend")
"""Parts of the names of modules that belong to a tower."""


def in_order(runs: list[list[int]]) -> list[int]:
    """[[value, layers], ...] -> a value a layer, of the layers that have attention."""
    return [value for value, count in runs for _ in range(count) if value]


@pytest.mark.parametrize("name", measured("attention_params_per_layer"))
def test_attention_parameters_layer_by_layer(name: str) -> None:
    """BERT's module also holds the norm after it, and T5's first layer the table of relative positions."""
    spec, facts = spec_of(name), ORACLE[name]["measured"]["attention_params_per_layer"]
    language = {where: runs for where, runs in facts.items() if where and not any(t in where for t in TOWERS)}
    theirs = [value for runs in language.values() for value in in_order(runs)]
    norm = 2 * spec.main.d_model if ORACLE[name]["config"]["model_type"] in ("bert", "roberta", "xlm-roberta") else 0
    ours = [(stack, value + norm) for stack, value in layers_in_order(name)]
    for stack in spec.stacks:
        if stack.relative_position_buckets:
            first = [where for where, _ in ours].index(stack.name)
            table = stack.relative_position_buckets * stack.layers[0].attention.widths().n_heads
            ours[first] = (stack.name, ours[first][1] + table)
    assert sorted(value for _, value in ours) == sorted(theirs)


@pytest.mark.parametrize("name", measured("cross_attention_params_per_layer"))
def test_cross_attention_parameters_layer_by_layer(name: str) -> None:
    theirs = [
        v for runs in ORACLE[name]["measured"]["cross_attention_params_per_layer"].values() for v in in_order(runs)
    ]
    assert [value for _, value in layers_in_order(name, cross=True)] == theirs


CACHES = [(name, row) for name in measured("kv") for row in ORACLE[name]["measured"]["kv"]]


def keeps(name: str, row: dict[str, int], engine: str) -> tuple[int, int]:
    """Bytes that grow with tokens, and of them those of the source."""
    workload = Workload.decode(row["batch"], row["seq"], source=row["enc_seq"], kv_dtype="bf16")
    cache = kv_cache(spec_of(name), workload, engine_name=engine)
    return int(cache.total) - int(cache.recurrent_state), int(cache.cross_attention_cache)


@pytest.mark.parametrize(("name", "row"), CACHES)
def test_transformers_keeps_what_its_class_keeps(name: str, row: dict[str, int]) -> None:
    if name == "default-kimi_linear" and row["seq"] > 128:
        pytest.skip("measured with its mixers stubbed out: no cache was filled")
    assert keeps(name, row, "transformers") == (row["total_bytes"], row["cross_bytes"])


@pytest.mark.parametrize(("name", "row"), CACHES)
def test_ideal_keeps_the_window_and_no_more(name: str, row: dict[str, int]) -> None:
    if name == "default-kimi_linear" and row["seq"] > 128:
        pytest.skip("measured with its mixers stubbed out: no cache was filled")
    heads = spec_of(name).main.layers[0].attention.cache()
    # Falcon's class keeps K and V once for every query head: what it keeps is not what is needed.
    repeated = heads[0].repeated if heads else 1
    assert keeps(name, row, "ideal")[0] * repeated == row["ideal_total_bytes"]


@pytest.mark.parametrize("name", measured("state_bytes"))
def test_states_do_not_grow(name: str) -> None:
    state = ORACLE[name]["measured"]["state_bytes"]
    for tokens in (128, 40_000):
        cache = kv_cache(spec_of(name), Workload.decode(state["batch"], tokens, kv_dtype="bf16"))
        assert cache.recurrent_state == state["total_bytes"]


def source_of(name: str) -> int | None:
    """Tokens of the encoder: Whisper's fixed 1,500, else as many as in the prefill."""
    if spec_of(name).encoder is None:
        return None
    if ORACLE[name]["config"]["model_type"] == "whisper":
        return 1500
    return int(ORACLE[name]["measured"]["flops"]["prefill"]["seq"])


def tokens_of(name: str, phase: dict[str, Any]) -> int:
    """Tokens of the prefill; a picture has as many as it has patches, and one."""
    return 197 if ORACLE[name]["config"]["model_type"] == "vit" else int(phase["seq"])


@pytest.mark.parametrize("name", [n for n in measured("flops") if not ORACLE[n]["measured"]["state_bytes"]])
def test_flops_of_a_prefill_dense(name: str) -> None:
    phase = ORACLE[name]["measured"]["flops"]["prefill"]
    workload = Workload.prefill(phase["batch"], tokens_of(name, phase), source=source_of(name))
    spent, modules = flops(spec_of(name), workload), phase["attention"]
    assert_alike(name, spent.projections, spent.scores_dense, modules)


BATCHED = ("default-deepseek_v4",)
"""Its output goes through a matrix for each group of heads, a batched product: measured among the scores."""


def assert_alike(name: str, projections: int, scores: int, modules: list[dict[str, Any]]) -> None:
    """Projections and scores are those of the modules, all together."""
    theirs = [sum(m["layers"] * m[key] for m in modules) for key in ("proj", "scores")]
    if name in BATCHED:
        assert projections + scores == sum(theirs)
    else:
        assert [projections, scores] == theirs


def absorbs(name: str) -> bool:
    """MLA: its class expands its whole cache at every step, we absorb, as engines do."""
    return any(layers.attention.label == "MLA" for layers in spec_of(name).main.layers)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", [n for n in measured("flops") if ORACLE[n]["measured"]["state_bytes"]])
def test_flops_of_one_layer_of_a_hybrid(name: str, phase: str) -> None:
    """Its attention as above; of a recurrent layer the projections, for its class runs a chunked form of the
    rest. Only one layer of each recurrent kind was measured, and the others are 0.
    """
    asked = ORACLE[name]["measured"]["flops"].get(phase)
    if not asked or (phase == "decode" and absorbs(name)):
        pytest.skip("not measured, or computed another way")
    workload = Workload.prefill(1, asked["seq"]) if phase == "prefill" else Workload.decode(1, asked["cache_len"] + 1)
    # before its first token Zaya's class makes half a V of zeros, 1 token of 2,048 x 128
    zeros = 2 * 2048 * 128 if name == "default-zaya" and phase == "prefill" else 0
    attention, recurrent = set(), set()
    for group in flops(spec_of(name), workload).groups:
        one = int(group.projections) // int(group.layers.count)
        if group.layers.attention.widths().n_heads:
            attention.add((one, int(group.scores) // int(group.layers.count)))
            attention.add((one, int(group.scores_dense) // int(group.layers.count)))
        else:
            recurrent.add(one)
    for module in asked["attention"]:
        if module["proj"]:
            assert (module["proj"] - zeros, module["scores"]) in attention or module["proj"] in recurrent


@pytest.mark.parametrize("name", [n for n in measured("flops") if not ORACLE[n]["measured"]["state_bytes"]])
def test_flops_of_a_decode_step(name: str) -> None:
    """Exact for windows: a sliding layer's decode reads its window."""
    phase = ORACLE[name]["measured"]["flops"].get("decode")
    if not phase or absorbs(name):
        pytest.skip("not measured, or computed another way")
    workload = Workload.decode(phase["batch"], phase["cache_len"] + 1, source=source_of(name))
    spent, modules = flops(spec_of(name), workload), phase["attention"]
    assert_alike(name, spent.projections, spent.scores, modules)


@pytest.mark.parametrize("name", ORACLE)
def test_a_preset_written_from_it_gives_the_same_model(name: str) -> None:
    """Figures come from the specification: one that is equal gives equal figures for every command."""
    if name in REFUSED:
        pytest.skip("refused")
    again = read(written(written_from(name).data, name).encode(), f"{name}.yaml")
    check(again)
    assert build(again, name) == spec_of(name)
