"""The positions of a config.json: the tables of rotary positions that vLLM computes, and the
longest context.

Sources: vLLM's model_executor/layers/rotary_embedding (get_rope) and config/model.py
(_get_and_verify_max_len).
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tables import each

from attncalc import AttncalcError, load
from attncalc.config.huggingface.fields import UNKNOWN_CLASS, Fields
from attncalc.config.huggingface.rope import rope_tables, scaled_context
from attncalc.units import MAX_COUNT

# Heads of 256 / 4 = 64.
BASE: dict[str, Any] = {
    "rope_theta": 10000.0,
    "max_position_embeddings": 1000,
    "num_attention_heads": 4,
    "hidden_size": 256,
}


def tables(
    fields: dict[str, Any], *, model_type: str = "llama", own_field: bool = False
) -> list[tuple[str, int, int]]:
    """Return (name, rows, width) of each table; `own_field` for a class that has
    rope_parameters.
    """
    known = (
        UNKNOWN_CLASS._replace(defaults={"rope_parameters": None}) if own_field else UNKNOWN_CLASS
    )
    given = {name: value for name, value in fields.items() if value is not None}
    return [
        (table.name, table.rows, table.width)
        for table in rope_tables(model_type, Fields(given, known))
    ]


def scaled(**scaling: Any) -> dict[str, Any]:
    return {**BASE, "rope_scaling": scaling}


def kinds(**parameters: Any) -> dict[str, Any]:
    return {**BASE, "rope_parameters": parameters}


FULL = [("full", 1000, 64)]
# {case: (fields, the tables)}.
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, int, int]]]] = {
    "a base": (BASE, FULL),
    "rotary dimensions alone": (
        {**BASE, "rope_theta": None, "rotary_dim": 32},
        [("full", 1000, 32)],
    ),
    "neither": ({**BASE, "rope_theta": None}, []),
    "rotary positions by name": ({**BASE, "position_embedding_type": "rope"}, FULL),
    "rotary positions by another name": ({**BASE, "position_embedding_type": "rotary"}, FULL),
    "learned positions": ({**BASE, "position_embedding_type": "absolute"}, []),
    "no positions": ({**BASE, "max_position_embeddings": None}, []),
    "positions that are no number": ({**BASE, "max_position_embeddings": 1000.0}, []),
    "one position": ({**BASE, "max_position_embeddings": 1}, [("full", 1, 64)]),
    "positions below zero": ({**BASE, "max_position_embeddings": -1}, []),
    "zero positions": ({**BASE, "max_position_embeddings": 0}, []),
    "as many positions as a table may have": (
        {**BASE, "max_position_embeddings": 2**31},
        [("full", 2**31, 64)],
    ),
    "one position more": ({**BASE, "max_position_embeddings": 2**31 + 1}, []),
    # scaling
    "linear": (scaled(rope_type="linear", factor=2.5), [("full", 2500, 64)]),
    "linear in its older form": (scaled(type="linear", factor=2), [("full", 2000, 64)]),
    "linear down to no row": (scaled(type="linear", factor=0.0001), []),
    "yarn": (
        scaled(rope_type="yarn", factor=4.0, original_max_position_embeddings=300),
        [("full", 1200, 64)],
    ),
    "yarn without an original": (scaled(rope_type="yarn", factor=4.0), [("full", 4000, 64)]),
    "DeepSeek's yarn": (
        scaled(type="deepseek_yarn", factor=40, original_max_position_embeddings=100),
        [("full", 4000, 64)],
    ),
    "yarn with an original outside": (
        {**scaled(rope_type="yarn", factor=4.0), "original_max_position_embeddings": 200},
        [("full", 800, 64)],
    ),
    "two tables of longrope": (
        scaled(rope_type="longrope", original_max_position_embeddings=100),
        [("full", 1100, 64)],
    ),
    "two tables of su": (
        scaled(type="su", original_max_position_embeddings=100),
        [("full", 1100, 64)],
    ),
    "dynamic": (scaled(rope_type="dynamic", factor=9.0), FULL),
    "llama3": (scaled(rope_type="llama3", factor=8.0, original_max_position_embeddings=100), FULL),
    "no factor": (scaled(rope_type="linear"), FULL),
    "a factor of 0": (scaled(rope_type="linear", factor=0), []),
    "a factor of 0 that nothing multiplies": (scaled(rope_type="dynamic", factor=0), []),
    "a factor below 0": (scaled(rope_type="dynamic", factor=-1), []),
    "a factor of text": (scaled(rope_type="linear", factor="2"), []),
    "a factor without end": (scaled(rope_type="dynamic", factor=float("inf")), []),
    "the largest factor": (scaled(rope_type="dynamic", factor=2**31 - 1), FULL),
    "one factor more": (scaled(rope_type="dynamic", factor=2**31), []),
    "an original of text": (
        scaled(rope_type="yarn", factor=2, original_max_position_embeddings="9"),
        [],
    ),
    "positions of images": (scaled(type="mrope", mrope_section=[1, 2]), [("mrope", 1000, 64)]),
    "scaling that is no mapping": ({**BASE, "rope_scaling": "linear"}, FULL),
    # the width of a row
    "a width of heads": ({**BASE, "head_dim": 80}, [("full", 1000, 80)]),
    "a rotary part of latent attention": (
        {**BASE, "head_dim": 80, "qk_rope_head_dim": 16},
        [("full", 1000, 16)],
    ),
    "one rotary dimension": ({**BASE, "rotary_dim": 1}, [("full", 1000, 1)]),
    "rotary dimensions below zero": ({**BASE, "rotary_dim": -8}, []),
    "rotary dimensions of a head below zero": (
        {**BASE, "num_attention_heads": -4, "rotary_dim": 32},
        [],
    ),
    "rotary dimensions of the widest head that is read": (
        {**BASE, "head_dim": MAX_COUNT, "rotary_dim": 32},
        [("full", 1000, 32)],
    ),
    "rotary dimensions of a head that is wider": (
        {**BASE, "head_dim": MAX_COUNT + 1, "rotary_dim": 32},
        [],
    ),
    "rotary dimensions": ({**BASE, "head_dim": 80, "rotary_dim": 32}, [("full", 1000, 32)]),
    "a share": ({**BASE, "partial_rotary_factor": 0.5}, [("full", 1000, 32)]),
    "a share by another name": ({**BASE, "rotary_pct": 0.25}, [("full", 1000, 16)]),
    "a whole share before another": ({**BASE, "partial_rotary_factor": 1, "rotary_pct": 0.5}, FULL),
    "a whole share": ({**BASE, "rotary_pct": 1}, FULL),
    "a share above 1": ({**BASE, "rotary_pct": 1.5}, FULL),
    "a share of 0": ({**BASE, "partial_rotary_factor": 0, "rotary_pct": 0.5}, [("full", 1000, 32)]),
    "a share in the parameters": (
        {**scaled(rope_type="default", partial_rotary_factor=0.25), "partial_rotary_factor": 0.5},
        [("full", 1000, 16)],
    ),
    "a share below 0": (
        {**BASE, "partial_rotary_factor": -0.5, "rotary_pct": 0.5},
        [("full", 1000, 32)],
    ),
    "proportional positions": (scaled(rope_type="proportional", partial_rotary_factor=0.25), FULL),
    "no heads": ({**BASE, "num_attention_heads": 0}, []),
    "one head": ({**BASE, "num_attention_heads": 1}, [("full", 1000, 256)]),
    "heads per layer": ({**BASE, "num_attention_heads": [4, 4]}, []),
    "no hidden size": ({**BASE, "hidden_size": None}, []),
    "a head of text": ({**BASE, "head_dim": "x"}, []),
    "the widest head": ({**BASE, "head_dim": 2**16}, [("full", 1000, 2**16)]),
    "a head that is wider": ({**BASE, "head_dim": 2**16 + 1}, []),
    # parameters of each kind of layers
    "two kinds": (
        kinds(
            full_attention={"rope_type": "linear", "factor": 2.0},
            sliding_attention={"rope_type": "default"},
        ),
        [("full", 2000, 64), ("sliding", 1000, 64)],
    ),
    "two equal kinds": (
        kinds(full_attention={"rope_theta": 5.0}, sliding_attention={"rope_theta": 5.0}),
        FULL,
    ),
    "two of three equal": (
        kinds(a={"rope_theta": 5.0}, b={"rope_theta": 6.0}, c={"rope_theta": 5.0}),
        [("a", 1000, 64), ("b", 1000, 64)],
    ),
    "heads of full layers": (
        {
            **kinds(full_attention={"factor": 1}, sliding_attention={"factor": 1.0, "x": 1}),
            "global_head_dim": 128,
        },
        [("full", 1000, 128), ("sliding", 1000, 64)],
    ),
    "names of kinds": (
        kinds(
            **{"Linear-Attention": {"x": 1}, "5": {"x": 2}, "attention": {"x": 3}, "S2": {"x": 4}}
        ),
        [("linear", 1000, 64), ("layers_5", 1000, 64), ("attention", 1000, 64), ("s2", 1000, 64)],
    ),
    "kinds go before learned positions": (
        {**kinds(full_attention={}), "position_embedding_type": "absolute"},
        FULL,
    ),
}


@each("case", CASES)
def test_a_table_has_a_row_per_position_and_an_element_per_rotary_dimension(case: str) -> None:
    fields, expected = CASES[case]
    assert tables(fields) == expected


def test_a_class_with_rope_parameters_has_a_table_without_a_base() -> None:
    without = {**BASE, "rope_theta": None}
    assert tables(without) == []
    assert tables(without, own_field=True) == FULL


def test_gemma_3_has_a_second_table_without_scaling() -> None:
    given = scaled(rope_type="linear", factor=8.0)
    expected = [("full", 8000, 64), ("sliding", 1000, 64)]
    assert tables(given, model_type="gemma3_text") == tables(given, model_type="gemma3") == expected
    assert tables(given, model_type="gemma2") == expected[:1]


CONTEXTS: list[tuple[str, dict[str, Any], int]] = [
    ("llama", {}, 1000),
    ("llama", {"rope_scaling": "linear"}, 1000),
    ("llama", {"rope_scaling": {"type": "linear", "factor": 4.0}}, 4000),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 1.5}}, 1500),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 0.5}}, 1000),
    ("llama", {"rope_scaling": {"factor": 4.0}}, 1000),
    ("llama", {"rope_scaling": {"rope_type": "linear"}}, 1000),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": float("nan")}}, 1000),
    *(
        ("llama", {"rope_scaling": {"type": kind, "factor": 4.0}}, 1000)
        for kind in ("su", "longrope", "llama3", "mrope")
    ),
    # YaRN: the original times the factor, unless the maximum is larger
    (
        "llama",
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 500}},
        2000,
    ),
    (
        "llama",
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 100}},
        1000,
    ),
    (
        "llama",
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 0}},
        4000,
    ),
    ("llama", {"rope_scaling": {"type": "yarn", "factor": 4.0}}, 4000),
    # only YaRN has an original
    (
        "llama",
        {
            "rope_scaling": {
                "type": "linear",
                "factor": 4.0,
                "original_max_position_embeddings": 500,
            }
        },
        4000,
    ),
    ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 4000),
    (
        "llama",
        {
            "rope_parameters": {
                "full": {"rope_type": "linear", "factor": 4.0},
                "sliding": {"rope_type": "default"},
            }
        },
        4000,
    ),
    # kinds of layers without scaling do not hide a later one
    *(
        (
            "llama",
            {"rope_parameters": {"sliding": first, "full": {"rope_type": "linear", "factor": 4.0}}},
            4000,
        )
        for first in ({"rope_type": "default"}, {"rope_type": "linear", "factor": float("nan")})
    ),
    ("gemma3_text", {"rope_scaling": {"type": "linear", "factor": 8.0}}, 1000),
]


@each(("model_type", "given", "expected"), CONTEXTS)
def test_scaling_of_positions_multiplies_the_context(
    model_type: str, given: dict[str, Any], expected: int
) -> None:
    assert scaled_context(model_type, given, 1000) == expected


@pytest.mark.parametrize("factor", [1e308, 10**308, 10**400, 1e300, float("inf")])
def test_a_context_that_no_number_holds_is_an_error(tmp_path: Path, factor: float) -> None:
    # 10^4 * 10^308 is more than the largest double, 1.8 * 10^308
    scaling = {"rope_type": "linear", "factor": factor}
    config = {"model_type": "llama", "max_position_embeddings": 10_000, "rope_scaling": scaling}
    config |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        AttncalcError, match=r"max_context \(from max_position_embeddings\): .* is above"
    ):
        load(tmp_path)
