"""The figures of 123 config.json files, compared with those of their own classes in transformers.

tests/data/huggingface.json has each config, and the parameters, caches and FLOPs of transformers
5.23's class, measured on the meta device (torch 2.13). `kv` is at batch 2 in bf16, `flops` at batch
1.
"""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tables import each

from attncalc import ModelSpec, Workload, flops, kv_cache, params
from attncalc.attention.image_cross import ImageCross
from attncalc.config.build import build_model
from attncalc.config.document import Document
from attncalc.config.huggingface import convert_config
from attncalc.config.schema import check
from attncalc.config.yaml import parse_document, to_yaml
from attncalc.errors import AttncalcError

ORACLE: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "huggingface.json").read_text()
)
# Configs that are not supported, with their families.
UNSUPPORTED = {"default-csm": "csm"}


@cache
def converted(name: str) -> Document:
    return convert_config(ORACLE[name]["config"], f"{name}.json", title=name)


@cache
def spec_of(name: str) -> ModelSpec:
    document = converted(name)
    check(document)
    return build_model(document, name)


def measured(key: str) -> list[str]:
    """Return the supported models that have this measurement."""
    return [
        name for name in ORACLE if ORACLE[name]["measured"].get(key) and name not in UNSUPPORTED
    ]


def layers_in_order(name: str, cross: bool = False) -> Iterator[tuple[str, int]]:
    """Yield (stack, parameters of attention) of every layer with attention.

    The layers of HRM, which run in loops, count once.
    """
    spec = spec_of(name)
    for stack in spec.stacks:
        for layers in stack.layers:
            if layers.shares_weights and ORACLE[name]["config"]["model_type"] == "hrm_text":
                continue
            is_image_cross = isinstance(layers.attention, ImageCross)
            cross_attention = layers.attention if is_image_cross else layers.cross
            for kind in (cross_attention,) if cross else (layers.attention,):
                if kind is not None and (cross or kind.widths().n_heads):
                    per_layer = sum(
                        int(m.params) for m in kind.matrices(stack.d_model, spec.d_source)
                    )
                    yield from [(stack.name, per_layer)] * layers.count


@each("name", ORACLE)
def test_a_config_is_supported_or_an_error_names_its_family(name: str) -> None:
    if name not in UNSUPPORTED:
        assert spec_of(name).main.n_layers
        return
    with pytest.raises(AttncalcError, match=UNSUPPORTED[name]):
        converted(name)


@each("name", measured("total_params"))
def test_total_parameters(name: str) -> None:
    facts = ORACLE[name]["measured"]
    counts = ("total_params", "total_params_plus_persistent_buffers", "language_params")
    assert params(spec_of(name)).total in [facts.get(key) for key in counts]
    if params(spec_of(name)).total == facts.get("language_params") != facts["total_params"]:
        assert any("not counted" in note for note in spec_of(name).notes)


# Parts of the names of modules of a tower.
TOWERS = ("vision", "visual", "embed_tokens_extend")


def in_order(runs: list[list[int]]) -> list[int]:
    """Expand [[value, layers], ...] to one value per layer, without the zeros of layers that have
    no attention.
    """
    return [value for value, count in runs for _ in range(count) if value]


@each("name", measured("attention_params_per_layer"))
def test_attention_parameters_layer_by_layer(name: str) -> None:
    """BERT's module includes the norm after it, and T5's first layer the table of relative
    positions.
    """
    spec, facts = spec_of(name), ORACLE[name]["measured"]["attention_params_per_layer"]
    language = {
        module: runs
        for module, runs in facts.items()
        if module and not any(t in module for t in TOWERS)
    }
    theirs = [value for runs in language.values() for value in in_order(runs)]
    norm = (
        2 * spec.main.d_model
        if ORACLE[name]["config"]["model_type"] in ("bert", "roberta", "xlm-roberta")
        else 0
    )
    ours = [(stack, value + norm) for stack, value in layers_in_order(name)]
    for stack in spec.stacks:
        if stack.relative_position_buckets:
            first = [name for name, _ in ours].index(stack.name)
            table = stack.relative_position_buckets * stack.layers[0].attention.widths().n_heads
            ours[first] = (stack.name, ours[first][1] + table)
    assert sorted(value for _, value in ours) == sorted(theirs)


@each("name", measured("cross_attention_params_per_layer"))
def test_cross_attention_parameters_layer_by_layer(name: str) -> None:
    theirs = [
        v
        for runs in ORACLE[name]["measured"]["cross_attention_params_per_layer"].values()
        for v in in_order(runs)
    ]
    assert [value for _, value in layers_in_order(name, cross=True)] == theirs


CACHES = [
    (name, row)
    for name in measured("kv")
    for row in ORACLE[name]["measured"]["kv"]
    # Kimi Linear's longer contexts were measured with its mixers stubbed out: no cache was filled
    if name != "default-kimi_linear" or row["seq"] <= 128
]


def cache_bytes(name: str, row: dict[str, int], engine: str) -> tuple[int, int]:
    """Return the bytes that grow with the tokens, and how many of them cache the source."""
    workload = Workload.decode(row["batch"], row["seq"], source=row["enc_seq"], kv_dtype="bf16")
    cache = kv_cache(spec_of(name), workload, engine=engine)
    return int(cache.total) - int(cache.recurrent_state), int(cache.cross_attention_cache)


@each(("name", "row"), CACHES)
def test_engine_transformers_caches_what_the_class_caches(name: str, row: dict[str, int]) -> None:
    assert cache_bytes(name, row, "transformers") == (row["total_bytes"], row["cross_bytes"])


@each(("name", "row"), CACHES)
def test_engine_ideal_caches_only_the_window(name: str, row: dict[str, int]) -> None:
    heads = spec_of(name).main.layers[0].attention.cache()
    # Falcon's class caches K and V once per query head, although its attention needs only one per
    # KV head.
    repeated = heads[0].repeated if heads else 1
    assert cache_bytes(name, row, "ideal")[0] * repeated == row["ideal_total_bytes"]


@each("name", measured("state_bytes"))
def test_recurrent_states_do_not_grow_with_the_context(name: str) -> None:
    state = ORACLE[name]["measured"]["state_bytes"]
    for tokens in (128, 40_000):
        workload = Workload.decode(state["batch"], tokens, kv_dtype="bf16")
        stored, needed = (
            kv_cache(spec_of(name), workload, engine=engine) for engine in ("transformers", "ideal")
        )
        assert stored.recurrent_state == state["total_bytes"]
        assert int(needed.recurrent_state) <= state["total_bytes"]


def source_of(name: str) -> int | None:
    """Return the encoder's tokens: 1,500 for Whisper, else as many as in the prefill."""
    if spec_of(name).encoder is None:
        return None
    if ORACLE[name]["config"]["model_type"] == "whisper":
        return 1500
    return int(ORACLE[name]["measured"]["flops"]["prefill"]["seq"])


def tokens_of(name: str, phase: dict[str, Any]) -> int:
    """Return the tokens of the prefill; an image has one per patch, and one more."""
    return 197 if ORACLE[name]["config"]["model_type"] == "vit" else int(phase["seq"])


@each("name", [n for n in measured("flops") if not ORACLE[n]["measured"]["state_bytes"]])
def test_flops_of_a_prefill_dense(name: str) -> None:
    phase = ORACLE[name]["measured"]["flops"]["prefill"]
    workload = Workload.prefill(phase["batch"], tokens_of(name, phase), source=source_of(name))
    spent, modules = flops(spec_of(name), workload), phase["attention"]
    assert_equal_flops(name, spent.projections, spent.scores_dense, modules)


# The output projection has one matrix per group of heads, a batched product that was measured with
# the scores.
BATCHED = ("default-deepseek_v4",)


def assert_equal_flops(
    name: str, projections: int, scores: int, modules: list[dict[str, Any]]
) -> None:
    """Compare the sums over all modules."""
    theirs = [sum(m["layers"] * m[key] for m in modules) for key in ("proj", "scores")]
    if name in BATCHED:
        assert projections + scores == sum(theirs)
    else:
        assert [projections, scores] == theirs


def is_mla(name: str) -> bool:
    """Return whether a decode step cannot be compared, because MLA's class expands its whole cache
    at each one.
    """
    return any(layers.attention.label == "MLA" for layers in spec_of(name).main.layers)


def has_phase(name: str, phase: str) -> bool:
    """Return whether a phase was measured, as it is computed here."""
    return bool(ORACLE[name]["measured"]["flops"].get(phase)) and not (
        phase == "decode" and is_mla(name)
    )


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@each("name", [n for n in measured("flops") if ORACLE[n]["measured"]["state_bytes"]])
def test_flops_of_one_layer_of_a_hybrid(name: str, phase: str) -> None:
    """Attention layers are compared as above, recurrent layers by their projections.

    transformers computes the rest of a recurrent layer in chunks, with other FLOPs. One layer of
    each recurrent kind was measured; the others are 0.
    """
    if not has_phase(name, phase):
        return
    measurement = ORACLE[name]["measured"]["flops"][phase]
    workload = (
        Workload.prefill(1, measurement["seq"])
        if phase == "prefill"
        else Workload.decode(1, measurement["cache_len"] + 1)
    )
    # Zaya's class also computes half of V for a token of zeros before the first one: 1 token of
    # 2,048 x 128
    zeros = 2 * 2048 * 128 if name == "default-zaya" and phase == "prefill" else 0
    attention, recurrent = set(), set()
    for group in flops(spec_of(name), workload).groups:
        per_layer = int(group.projections) // int(group.layers.count)
        if group.layers.attention.widths().n_heads:
            attention.add((per_layer, int(group.scores) // int(group.layers.count)))
            attention.add((per_layer, int(group.scores_dense) // int(group.layers.count)))
        else:
            recurrent.add(per_layer)
    for module in measurement["attention"]:
        if module["proj"]:
            assert (module["proj"] - zeros, module["scores"]) in attention or module[
                "proj"
            ] in recurrent


@each("name", [n for n in measured("flops") if not ORACLE[n]["measured"]["state_bytes"]])
def test_flops_of_a_decode_step(name: str) -> None:
    """Windows are exact: a decode step of a sliding layer reads its window."""
    if not has_phase(name, "decode"):
        return
    phase = ORACLE[name]["measured"]["flops"]["decode"]
    workload = Workload.decode(phase["batch"], phase["cache_len"] + 1, source=source_of(name))
    spent, modules = flops(spec_of(name), workload), phase["attention"]
    assert_equal_flops(name, spent.projections, spent.scores, modules)


@each("name", ORACLE.keys() - UNSUPPORTED)
def test_a_config_written_as_a_preset_gives_the_same_model(name: str) -> None:
    """All figures come from the ModelSpec, so that an equal one gives equal figures in every
    command.
    """
    document = parse_document(to_yaml(converted(name).data, name).encode(), f"{name}.yaml")
    check(document)
    assert build_model(document, name) == spec_of(name)
