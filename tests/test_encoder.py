"""What images and sounds take while vLLM measures its memory, by its rule. Whole start-ups are in
test_startups.py.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from attncalc import AttncalcError, ModelSpec, Workload, load
from attncalc.checkpoint import CheckpointWeights, StoredDtype
from attncalc.config.gpus import gpu
from attncalc.engines.runtime import RuntimePart
from attncalc.model import Tower, TowerItem
from attncalc.serving.fit import fit
from attncalc.serving.request import FitRequest

ITEM = TowerItem(
    tokens=1000, positions=4000, values=500, d_model=1024, d_inside=8192, d_output=4096
)


def with_items(*items: TowerItem | None, split: int = 1) -> ModelSpec:
    names = ("vision", "audio")
    towers = tuple(
        Tower(name, 10**8, split, item) for name, item in zip(names, items, strict=False)
    )
    return dataclasses.replace(load("qwen3-8b"), towers=towers)


def parts(
    model: ModelSpec, *, version: str = "0.19.0", context: int = 8192, tp: int = 1, **args: Any
) -> Any:
    """Return {name: part} of what vLLM keeps on an H100."""
    options = {
        "engine_version": version,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        **args,
    }
    workload = Workload.decode(1, context)
    result = fit(
        FitRequest(model, workload, gpu=gpu("h100-80gb"), gpus=tp, tp=tp, engine_args=options)
    )
    assert result.budget.reserve is not None
    return {part.name: part for part in result.budget.reserve.runtime.parts}


def encoder(model: ModelSpec, **options: Any) -> RuntimePart | None:
    part: RuntimePart | None = parts(model, **options).get("encoder")
    return part


def weights_of(model: ModelSpec, **args: Any) -> int:
    """Return the bytes of the weights on an H100."""
    result = fit(
        FitRequest(model, Workload.decode(1, 4096), gpu=gpu("h100-80gb"), engine_args=args)
    )
    assert result.budget.weights is not None
    return int(result.budget.weights.total)


def test_a_text_model_has_no_encoder() -> None:
    assert encoder(with_items()) is None


def test_v0_samples_for_as_few_sequences_as_have_items() -> None:
    few = parts(with_items(ITEM), version="0.7.3", max_num_batched_tokens=8192)
    text = parts(with_items(), version="0.7.3", max_num_batched_tokens=8192)
    assert few["activations"].expected < text["activations"].expected


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            "audio: {tokens: 1, positions: 1, values: 1, d_model: 1, d_inside: 1, d_output: 1}",
            "belongs to no tower",
        ),
        (
            "vision: {tokens: 0, positions: 1, values: 1, d_model: 1, d_inside: 1, d_output: 1}",
            "tokens",
        ),
        ("vision: {tokens: 1, positions: 1, values: 1, d_model: 1, d_inside: 1}", "d_output"),
        (
            "vision: {tokens: 1, positions: 1, values: 1, d_model: 1, d_inside: 1, d_output: 1, "
            "repeats: 0}",
            "repeats",
        ),
    ],
)
def test_an_item_of_a_model_file_is_checked(tmp_path: Path, item: str, message: str) -> None:
    file = tmp_path / "a.yaml"
    preset = Path(__file__).parent.parent / "presets" / "models" / "qwen3-8b.yaml"
    file.write_text(
        f"{preset.read_text()}\ntowers: {{vision: [1000, 0]}}\ntower_items: {{{item}}}\n"
    )
    with pytest.raises(AttncalcError, match=message):
        load(str(file))


def test_a_tower_without_items_is_neither_profiled_nor_loaded() -> None:
    """10^8 parameters of a tower take 2 x 10^8 bytes in bf16; 8 items of a step are not
    profiled.
    """
    image, film = with_items(ITEM), with_items(ITEM._replace(repeats=4))
    for model, options in (
        (image, {"language_model_only": True}),
        (film, {"language_model_only": True}),
        (image, {"limit_mm_per_prompt": '{"image": 0}'}),
        (film, {"limit_mm_per_prompt": '{"image": 0, "video": 0}'}),
    ):
        assert encoder(model, **options) is None
        assert weights_of(model) - weights_of(model, **options) == 2 * 10**8
    # a tower that reads videos is still needed without images; audio has a tower of its own
    assert encoder(film, limit_mm_per_prompt='{"image": 0}') is not None
    assert encoder(image, limit_mm_per_prompt='{"audio": 0}') is not None
    both = with_items(ITEM, ITEM)
    assert weights_of(both) - weights_of(both, limit_mm_per_prompt='{"audio": 0}') == 2 * 10**8


def test_without_a_profile_of_items_the_towers_stay() -> None:
    model = with_items(ITEM)
    assert encoder(model, skip_mm_profiling=True) is None
    assert weights_of(model, skip_mm_profiling=True) == weights_of(model)


def test_files_without_their_tower_are_smaller_by_its_parameters() -> None:
    """20 GB of files with a tower of 10^8 parameters in bf16 are 20 - 0.2 GB without it."""
    stored = CheckpointWeights(1, 9, (StoredDtype("BF16", 10**10, 20 * 10**9),), 20 * 10**9)
    model = dataclasses.replace(with_items(ITEM), stored=stored)
    assert weights_of(model) - weights_of(model, language_model_only=True) == 2 * 10**8


@pytest.mark.parametrize(
    ("limits", "items"),
    [
        ('{"image": 1}', 1),  # one prompt has one image, although its context has room for 8
        ('{"image": 3}', 3),
        ('{"image": 99}', 8),
        ('{"video": 2}', 8),
    ],
)
def test_a_prompt_has_as_many_items_as_its_limit_allows(limits: str, items: int) -> None:
    part = encoder(
        with_items(ITEM._replace(positions=400)), max_num_seqs=1, limit_mm_per_prompt=limits
    )
    assert part is not None
    assert part.expected == items * (400 * 500 * 2 + 1000 * 4096 * 2)


def test_without_videos_an_image_is_the_largest_item() -> None:
    """A video of 4 images takes 4,000 tokens: two of them are 8 items of a step of 8,192, and one
    with a limit of 1.
    """
    film = with_items(ITEM._replace(positions=400, repeats=4))
    held = 400 * 500 * 2 + 1000 * 4096 * 2
    for limits, items in (('{"video": 1}', 4), ('{"video": 0, "image": 1}', 1), ("{}", 8)):
        part = encoder(film, max_num_seqs=1, limit_mm_per_prompt=limits)
        assert part is not None
        assert part.expected == items * held
