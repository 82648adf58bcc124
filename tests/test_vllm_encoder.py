"""Images and videos in vLLM's profile: how many items it encodes, and the memory that they take."""

import dataclasses
from typing import Any

import pytest
from tables import each

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack
from attncalc.engines.base import Limits
from attncalc.engines.runtime import RuntimeFacts, RuntimePart, Term
from attncalc.engines.vllm.encoder import divides_tower, encoder, with_limits_of_profile
from attncalc.engines.vllm.options import VllmArgs
from attncalc.engines.vllm.runtime import runtime
from attncalc.hardware import Gpu
from attncalc.model import Tower, TowerAttention, TowerItem
from attncalc.quantity import Quantity
from attncalc.units import GIB, dtype

D, WIDTH = 128, 2
IMAGE = TowerItem(tokens=100, positions=400, values=588, d_model=1000, d_inside=6000, d_output=D)
# A video may be as large as 8 images.
VIDEO = IMAGE._replace(repeats=8)
TOWER = Tower("vision", 10**6, 10**5, IMAGE)
# The language model's own pass: 1.1, 2.2 and 3.3 MB.
PASSES = (
    RuntimePart("activations", "", 1_000_000, Quantity(2_000_000), 3_000_000, ""),
    RuntimePart("experts", "", 100_000, Quantity(200_000), 300_000, ""),
)


def facts(
    *towers: Tower,
    tokens: int = 250,
    sequences: int = 8,
    context: int = 1000,
    first: bool = True,
    batched: int | None = None,
    tp: int = 1,
    version: str | None = None,
) -> RuntimeFacts[Any]:
    stack = Stack("decoder", (Layers("layers", 2, attention=Grouped(8, 8, 16), mlp=Mlp(64)),), D)
    model = ModelSpec("toy", "toy", (stack,), vocab_size=100, head=Head("lm"), towers=towers)
    args = VllmArgs(
        dtype("bf16"), dtype("bf16"), tp=tp, max_num_batched_tokens=batched, engine_version=version
    )
    gpu = Gpu("toy", "Toy", "NVIDIA", 80, 80 * GIB, 10**12, (("bf16", 10**14),))
    limits = Limits(tokens, sequences)
    return RuntimeFacts(
        model, model, args, limits, gpu, (9, 10), 1, context, 10**9, "bf16", first=first
    )


def items(*towers: Tower, version: str = "0.33.0", **given: Any) -> float | None:
    """Return how many items of IMAGE's size are encoded, by the tensors at the encoder's peak."""
    found = encoder(facts(*towers, version=version, **given), ())
    of_one = 400 * (588 + 4 * 1000 + 6000) * WIDTH
    return found and sum(size for name, _, size in found[1] if name == "encoder_bytes") / of_one


def test_only_the_first_stage_of_a_model_with_towers_encodes() -> None:
    assert items(TOWER) == 2
    assert items(TOWER, first=False) is None
    assert items() is None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        # a step's 250 tokens have 2 images of 100; at least one is encoded, even if a step has too
        # few tokens
        ({}, 2),
        ({"tokens": 299}, 2),
        ({"tokens": 300}, 3),
        ({"tokens": 99}, 1),
        ({"tokens": 100}, 1),
        # a context has 10 images, so that 2 sequences have 20
        ({"tokens": 5000, "sequences": 2}, 20),
        ({"tokens": 5000, "sequences": 2, "context": 999}, 18),
        ({"tokens": 5000, "sequences": 3, "context": 99}, 3),
        ({"tokens": 5000, "sequences": 8}, 50),
    ],
)
def test_a_step_encodes_as_many_images_as_its_tokens_and_sequences_allow(
    given: dict[str, Any], expected: int
) -> None:
    assert items(TOWER, **given) == expected


@each(
    ("given", "expected"),
    [
        # a video is as large as 8 images if the context has room for it, else as many as fit
        ({"tokens": 800}, 8),
        ({"tokens": 1599}, 8),
        ({"tokens": 1600}, 16),
        ({"tokens": 100}, 8),
        ({"tokens": 100, "context": 750}, 7),
        ({"tokens": 100, "context": 799}, 7),
        ({"tokens": 100, "context": 800}, 8),
        ({"tokens": 100, "context": 99}, 1),
        ({"tokens": 5000, "sequences": 2}, 2 * 8),
        # up to 0.10.1 a video leaves the tokens of an image free
        ({"tokens": 100, "context": 750, "version": "0.10.1"}, 6),
        ({"tokens": 100, "context": 750, "version": "0.10.2"}, 7),
        ({"tokens": 100, "context": 899, "version": "0.10.1.1"}, 7),
        ({"tokens": 100, "context": 900, "version": "0.10.1"}, 8),
    ],
)
def test_a_video_is_as_long_as_the_context_allows(given: dict[str, Any], expected: int) -> None:
    assert items(TOWER._replace(item=VIDEO), **given) == expected


@pytest.mark.parametrize(
    ("item", "tokens", "expected"),
    [
        (IMAGE, 250, 2),
        (IMAGE, 99, None),
        (IMAGE, 100, 1),
        # an image and a video as large in each sequence
        (VIDEO, 250, 2),
        (VIDEO, 199, None),
        (VIDEO, 200, 2),
        (VIDEO, 450, 4),
        (VIDEO._replace(repeats=2), 450, 4),
    ],
)
def test_v0_encodes_whole_items_of_a_step(
    item: TowerItem, tokens: int, expected: int | None
) -> None:
    assert items(TOWER._replace(item=item), tokens=tokens, version="0.7.3") == expected


def test_the_item_with_the_most_tokens_is_encoded() -> None:
    unknown, small = (
        TOWER._replace(item=None),
        TOWER._replace(item=IMAGE._replace(tokens=99, positions=10**6)),
    )
    for towers in ((unknown, small, TOWER), (TOWER, small, unknown)):
        assert items(*towers) == 2


def memory(**given: Any) -> tuple[tuple[RuntimePart, tuple[Term, ...]], int, int]:
    """Return what two images take; the bytes that are held, and those at the peak."""
    passes = given.pop("passes", PASSES)
    item = given.pop("item", IMAGE)
    found = encoder(facts(TOWER._replace(item=item), **given), passes)
    assert found is not None
    held = 2 * (item.positions * item.values + 100 * item.d_output) * WIDTH
    return found, held, 2 * item.positions * (item.values + 4 * 1000 + item.d_inside) * WIDTH


def test_the_encoders_peak_counts_beyond_the_language_models_pass() -> None:
    """16.9 MB at the peak, 2.2 in the pass."""
    found, held, peak = memory()
    assert (held, peak) == (992_000, 16_940_800)
    part = found[0]
    assert (part.label, int(part.expected)) == (
        "encoder, beyond the language model",
        peak - 2_200_000,
    )
    assert (part.low, part.high) == (peak * 3 // 4 - 2_200_000, peak * 13 // 10 - 2_200_000)
    assert part.low < part.expected < part.high
    assert found[1] == (("encoder_bytes", "tensors of the encoder", peak),)
    found, _, peak = memory(item=IMAGE._replace(positions=401))
    assert peak * 13 % 10 == 6
    assert found[0].high == peak * 13 // 10 - 2_200_000
    assert type(found[0].low) is type(found[0].high) is int


def test_0_11_rotates_the_images_of_qwen_in_fp32() -> None:
    """15 widths of 1,000 inside a layer, and not 6,000. The profile of Qwen2.5-VL-32B took 3.3 GiB,
    and not 2.2.
    """
    inside = {}
    for version, kind in (
        ("0.10.2", "qwen2_5_vl"),
        ("0.11.0", "qwen2_5_vl"),
        ("0.12.0", "qwen2_5_vl"),
        ("0.11.0", ""),
    ):
        given = facts(TOWER, version=version)
        whole = dataclasses.replace(given.whole, model_type=kind)
        found = encoder(dataclasses.replace(given, whole=whole), ())
        assert found
        inside[version, kind] = int(found[1][0][2]) // (2 * 400 * WIDTH) - 588 - 4 * 1000
    assert list(inside.values()) == [6000, 15_000, 6000, 6000]


def test_input_and_output_are_held_even_if_the_language_model_needs_more() -> None:
    found, held, peak = memory(
        passes=(PASSES[0]._replace(low=10**8, expected=Quantity(2 * 10**8), high=3 * 10**8),)
    )
    part = found[0]
    assert (part.label, int(part.expected)) == ("images and their encoder's output", held)
    assert (part.low, part.high) == (held // 4, 2 * held)
    assert peak < 10**8


def test_the_range_of_what_is_held_includes_the_peak() -> None:
    """The peak is as far above the pass as the bytes that are held."""
    _, held, peak = memory()
    same = PASSES[0]._replace(low=peak - held, expected=Quantity(peak - held), high=peak - held)
    part = memory(passes=(same,))[0][0]
    assert (part.label, int(part.expected)) == ("images and their encoder's output", held)
    # 13/10 of the peak beyond the pass is more than twice what is held
    assert (part.low, part.high) == (held // 4, peak * 13 // 10 - (peak - held))
    one_less = same._replace(expected=Quantity(peak - held - 1))
    assert memory(passes=(one_less,))[0][0].label == "encoder, beyond the language model"


def test_tensor_parallelism_divides_the_inside_of_a_layer_of_a_tower_that_is_split() -> None:
    for split, inside in ((10**5, 6000 // 4), (0, 6000)):
        found = encoder(facts(TOWER._replace(split=split), tp=4), PASSES)
        assert found is not None
        assert found[1][0][2] == 2 * 400 * (588 + 4000 + inside) * WIDTH


@pytest.mark.parametrize(
    ("d_inside", "split", "tp", "divided"),
    [
        (3 * 3420, 10**5, 4, True),  # Qwen2.5-VL-3B and 7B
        (3 * 3420, 10**5, 8, False),
        (3 * 3420, 0, 8, True),  # on each device as a whole
        (2 * 4304, 10**5, 16, True),  # Qwen3-VL
        (2 * 4304, 10**5, 64, False),
    ],
)
def test_a_tower_that_tensor_parallelism_does_not_divide_is_a_warning(
    d_inside: int, split: int, tp: int, divided: bool
) -> None:
    tower = TOWER._replace(split=split, item=IMAGE._replace(d_inside=d_inside))
    assert divides_tower(tp, tower) is divided
    assert divides_tower(tp, tower._replace(item=None))  # not known
    notes = runtime(facts(tower, tp=tp)).notes
    warning = f"warning: --tp {tp} does not divide the layers of the vision tower."
    assert any(note.startswith(warning) for note in notes) is not divided


@pytest.mark.parametrize(
    ("heads", "whole", "tp", "divided"),
    [
        (20, 0, 4, True),  # Voxtral
        (20, 0, 8, False),  # 20 heads, though its MLP's 5,120 elements can be divided by 8
        (25, 1000, 8, True),  # InternViT-6B has its attention whole on each GPU
    ],
)
def test_heads_that_tensor_parallelism_does_not_divide_are_a_warning(
    heads: int, whole: int, tp: int, divided: bool
) -> None:
    tower = TOWER._replace(attention=TowerAttention(heads, whole))
    assert divides_tower(tp, tower) is divided
    assert divides_tower(tp, tower._replace(item=None)) is divided
    assert divides_tower(tp, tower._replace(split=0))  # on each device as a whole


def test_the_inside_of_a_layer_with_whole_attention_is_not_divided() -> None:
    # InternViT's attention is larger than its divided MLP, so the widest tensors are nearly those
    # of one device
    for tp, inside in ((5, 6000 // 5), (4, 6000)):
        tower = TOWER._replace(attention=TowerAttention(25, 1000))
        found = encoder(facts(tower, tp=tp), PASSES)
        assert found is not None
        assert found[1][0][2] == 2 * 400 * (588 + 4000 + inside) * WIDTH


def test_whole_attention_of_a_tower_is_a_note() -> None:
    tower = TOWER._replace(attention=TowerAttention(25, 1000))
    note = (
        "--tp 4 does not divide the 25 heads of the vision tower: each GPU has its attention whole."
    )
    assert note in runtime(facts(tower, tp=4)).notes
    assert note not in runtime(facts(tower, tp=5)).notes
    assert not any("tower" in each for each in runtime(facts(tower, tp=1)).notes)


def test_an_inside_that_tensor_parallelism_does_not_divide_is_rounded_up() -> None:
    """Qwen3-VL-235B's tower has 2 * 4304 values inside a layer: on 64 devices 134.5."""
    found = encoder(facts(TOWER._replace(item=IMAGE._replace(d_inside=8608)), tp=64), PASSES)
    assert found is not None
    assert found[1][0][2] == 2 * 400 * (588 + 4000 + 135) * WIDTH


def test_an_unknown_item_is_a_step_of_images_of_28_by_28_pixels_per_token() -> None:
    """250 tokens, as wide as the model and as 28 x 28 x 3 pixels. No log has an encoder of more
    than 4 GiB.
    """
    found = encoder(facts(TOWER._replace(item=None)), PASSES)
    assert found is not None
    size = 250 * (D + 28 * 28 * 3) * WIDTH
    part = found[0]
    assert (part.low, int(part.expected), part.high) == (size // 4, size, 4 * GIB - 2_200_000)
    assert type(part.low) is int
    assert found[1] == ()
    large = encoder(facts(TOWER._replace(item=None), tokens=10**6), PASSES)
    assert large is not None
    assert large[0].high == 2 * int(large[0].expected)


@pytest.mark.parametrize(
    ("item", "tokens", "batched", "sequences", "expected"),
    [
        # at least 5,120 tokens unless they are given: 51 images of 100 tokens, or as many sequences
        # as there are
        (IMAGE, 2048, None, 8, (5120, 8)),
        (IMAGE, 2048, None, 100, (5120, 51)),
        (IMAGE, 8192, None, 100, (8192, 81)),
        (IMAGE, 2048, 2048, 100, (2048, 20)),
        # a video beside each image
        (VIDEO, 2048, 2048, 100, (2048, 10)),
        (VIDEO._replace(repeats=2), 2048, 2048, 100, (2048, 10)),
        # one sequence of text if no item fits
        (IMAGE, 99, 99, 100, (99, 1)),
        (None, 2048, None, 8, (2048, 8)),
    ],
)
def test_v0_profiles_as_many_sequences_as_have_an_item(
    item: TowerItem | None,
    tokens: int,
    batched: int | None,
    sequences: int,
    expected: tuple[int, int],
) -> None:
    limits: dict[str, Any] = {"tokens": tokens, "batched": batched, "sequences": sequences}
    given = facts(TOWER._replace(item=item), **limits, version="v0")
    later = facts(TOWER._replace(item=item), **limits, version="0.8.5")
    assert with_limits_of_profile(given).limits == expected
    assert with_limits_of_profile(later) == later
    text = dataclasses.replace(given, whole=facts().whole)
    assert with_limits_of_profile(text) == text


def test_v0_counts_the_largest_item() -> None:
    towers = (TOWER, TOWER._replace(item=None), TOWER._replace(item=VIDEO))
    given = facts(*towers, tokens=2048, batched=2048, sequences=99, version="v0")
    assert with_limits_of_profile(given).limits == (2048, 10)


@pytest.mark.parametrize(
    ("version", "limits", "has_places"),
    [
        ("0.12.0", None, True),
        ("0.12.0", '{"image": 0}', True),
        ("0.12.0", '{"video": 0}', False),
        ("0.13.0", None, False),
    ],
)
def test_the_profiled_video_of_qwen3_vl_has_a_row_for_each_place_before_0_13(
    version: str, limits: str | None, *, has_places: bool
) -> None:
    of_toy = facts(TOWER, version=version)
    args = dataclasses.replace(of_toy.args, limit_mm_per_prompt=limits)
    whole = dataclasses.replace(of_toy.whole, model_type="qwen3_vl")
    found = encoder(dataclasses.replace(of_toy, whole=whole, args=args), PASSES)
    assert found
    # 12,288 tokens: 4 patches of 588 values, and 12.5 rows of 128, each; in 16 bits
    video = 12_288 * (4 * 588 + 12.5 * D) * WIDTH
    assert (found[0].expected >= video) is has_places
