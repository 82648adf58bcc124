"""Which fields of a tower's config the formulas of towers may compute with, and which layers the
projector reads.
"""

from typing import Any

import pytest
from tables import each

import attncalc.config.huggingface.towers
from attncalc.config.huggingface import convert_config
from attncalc.config.huggingface.fields import UNKNOWN_CLASS, Fields
from attncalc.config.huggingface.towers import _item, _safe, _side, _used_layers, towers
from attncalc.model import Tower, TowerItem

TEXT = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
CLIP: dict[str, Any] = {
    "model_type": "clip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}


@pytest.mark.parametrize("value", [0, 1, -(10**6), 10**6, True, False])
def test_numbers_up_to_a_million_are_computed_with(value: Any) -> None:
    assert _safe({"x": value}) == {"x": value}


@pytest.mark.parametrize("value", [10**6 + 1, -(10**6) - 1, 1.5, "x", [1], {}])
def test_other_values_are_as_if_they_were_null(value: Any) -> None:
    assert _safe({"x": value}) == {"x": None}
    assert _safe({"x": None}) == {}


@pytest.mark.parametrize("name", ["deepstack_visual_indexes", "vision_feature_layer"])
def test_lists_of_numbers_have_at_most_1000(name: str) -> None:
    for value in ([], [1, 10**6], [1] * 1000):
        assert _safe({name: value}) == {name: value}
    for other in ([1] * 1001, [10**6 + 1], ["x"], [1, True]):
        assert _safe({name: other}) == {}
    assert _safe({name: -2}) == {name: -2}
    assert _safe({name: "x"}) == {name: None}


@pytest.mark.parametrize("name", ["image_grid_pinpoints", "supported_aspect_ratios"])
def test_lists_of_pairs_have_at_most_1000(name: str) -> None:
    for value in ([], [[1, 2]], [[1, 2]] * 1000):
        assert _safe({name: value}) == {name: value}
    for other in ([[1, 2]] * 1001, [[1]], [[1, 2, 3]], [1], [[1, "x"]], [(1, 2)]):
        assert _safe({name: other}) == {}


def test_a_quantization_is_there_or_not() -> None:
    assert _safe({"quantization_config": {"bits": 4}}) == {"quantization_config": True}
    assert _safe({"quantization_config": {}}) == {"quantization_config": False}
    assert _safe({"model_type": "x", "norm_type": "y"}) == {"model_type": "x", "norm_type": "y"}


@pytest.mark.parametrize("name", ["image_size", "patch_size"])
def test_equal_sides_are_one_number(name: str) -> None:
    assert _safe({name: [14, 14]}) == {name: 14}
    for value in ([14, 16], [16, 14], [14], [14, 14, 14], ["x", "x"], [1.5, 1.5]):
        assert _side(value) == value
        assert _safe({name: value}) == {name: None}
    assert _safe({"stride": [14, 14]}) == {"stride": None}


@pytest.mark.parametrize(
    ("reads", "layers"),
    [
        (-1, 24),
        (-2, 23),
        (-24, 1),
        (0, 0),
        (1, 1),
        (5, 5),
        ([-2, 3], 23),
        ([2, 3], 3),
        ([-20, 7, -30], 7),
    ],
)
def test_vllm_loads_the_layers_up_to_the_last_one_that_is_read(reads: Any, layers: int) -> None:
    assert _used_layers(reads, 24) == layers


def llava(vision: dict[str, Any], **outer: Any) -> dict[str, list[int]]:
    config = {
        "model_type": "llava",
        "text_config": TEXT,
        "vision_config": {**CLIP, **vision},
        **outer,
    }
    found: dict[str, list[int]] = convert_config(config, "c").data.get("towers", {})
    return found


def test_clip_and_its_projector_have_the_parameters_of_their_matrices() -> None:
    # a layer: 4 matrices and biases of attention, 2 norms, an MLP of two matrices and biases
    layer = 4 * (32 * 32 + 32) + 2 * 2 * 32 + 2 * 32 * 48 + 48 + 32
    # 4 patches and a class; the convolution has no bias; a norm before the layers
    outside = 3 * 14 * 14 * 32 + 32 + 5 * 32 + 2 * 32
    projector = 32 * 64 + 64 + 64 * 64 + 64
    # LLaVA reads the last layer but one: 3 of 4 layers
    assert llava({})["vision"][0] == 3 * layer + outside + projector
    assert (
        llava({}, vision_feature_layer=-1)["vision"][0] == 4 * layer + outside + 2 * 32 + projector
    )


@pytest.mark.parametrize(
    "vision", [{"hidden_size": "x"}, {"model_type": "none"}, {"hidden_size": 10**6 + 1}]
)
def test_a_tower_with_other_fields_is_not_counted(vision: dict[str, Any]) -> None:
    assert llava(vision) == {}


@each(
    ("split", "whole", "is_counted"),
    [
        (3, 4, True),
        (0, 1, True),
        (1, 0, True),
        (0, 0, False),
        (-1, 5, False),
        (5, -1, False),
        (10**12 - 2, 1, True),
        (10**12 - 1, 1, False),
        (10**12, 1, False),
        (1.5, 1, False),
        (1, 1.5, False),
    ],
)
def test_a_tower_has_parameters_of_which_some_are_divided(
    monkeypatch: pytest.MonkeyPatch, split: float, whole: float, is_counted: bool
) -> None:
    table = {"towers": {"t": {"split": split, "whole": whole}}, "projectors": {"m": {"tower": "t"}}}
    monkeypatch.setattr(attncalc.config.huggingface.towers, "_table", lambda: table)
    outer = Fields({"model_type": "m", "vision_config": {"num_hidden_layers": 1}}, UNKNOWN_CLASS)
    found = list(towers(Fields({"hidden_size": 8}, UNKNOWN_CLASS, outer)))
    assert found == ([Tower("vision", int(split + whole), int(split), None)] if is_counted else [])


def test_a_tower_has_the_defaults_of_its_class_if_the_whole_model_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Gemma4VisionConfig's hidden_size is 768."""
    table = {
        "towers": {"gemma4_vision": {"split": 0, "whole": "=hidden_size"}},
        "projectors": {"m": {}},
    }
    monkeypatch.setattr(attncalc.config.huggingface.towers, "_table", lambda: table)
    outer = Fields(
        {"model_type": "m", "vision_config": {"model_type": "gemma4_vision"}}, UNKNOWN_CLASS
    )
    assert list(towers(Fields({"hidden_size": 8}, UNKNOWN_CLASS, outer))) == [
        Tower("vision", 768, 0, None)
    ]


def test_a_tower_that_is_left_out_is_not_counted_if_the_width_is_no_number() -> None:
    """Gemma 4's formula compares the width with 2560."""
    outer = Fields({"model_type": "gemma4"}, UNKNOWN_CLASS)
    assert len(list(towers(Fields({"hidden_size": 2560}, UNKNOWN_CLASS, outer)))) > 0
    assert list(towers(Fields({"hidden_size": "wide"}, UNKNOWN_CLASS, outer))) == []


@pytest.mark.parametrize("sides", [[28, 28], 28])
def test_a_square_image_may_be_two_sides(sides: Any) -> None:
    assert llava({"image_size": sides}) == llava({})


ITEM = {"tokens": "=n", "positions": 4, "values": 3, "d_model": 2, "d_inside": 0}


@pytest.mark.parametrize(
    ("n", "is_known"),
    [(1, True), (10**12 - 1, True), (0, False), (-1, False), (10**12, False), (2**60, False)],
)
def test_a_largest_item_has_tokens(n: int, is_known: bool) -> None:
    item = _item({"item": ITEM}, {}, Fields({"n": n}, UNKNOWN_CLASS), {"text": {"hidden_size": 5}})
    assert item == (TowerItem(n, 4, 3, 2, 0, 5) if is_known else None)


@pytest.mark.parametrize(
    ("size", "is_known"),
    [(0, True), (1, True), (-1, False), (1.0, False), (10**12, False), (2**60, False)],
)
def test_no_size_of_an_item_is_below_0(size: Any, is_known: bool) -> None:
    text = {"text": {"hidden_size": 5}}
    item = _item({"item": {**ITEM, "d_inside": size}}, {}, Fields({"n": 7}, UNKNOWN_CLASS), text)
    assert (item is not None) is is_known
    assert _item(
        {"item": ITEM}, {"item": {"tokens": 9}}, Fields({}, UNKNOWN_CLASS), text
    ) == TowerItem(9, 4, 3, 2, 0, 5)
    assert _item({}, {"item": ITEM}, Fields({"n": 7}, UNKNOWN_CLASS), text) is None
    assert _item({"item": ITEM}, {}, Fields({}, UNKNOWN_CLASS), text) is None
    assert (
        _item({"item": {**ITEM, "tokens": "=n + 1"}}, {}, Fields({}, UNKNOWN_CLASS), text) is None
    )
