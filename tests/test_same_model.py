"""One model has one answer: as a preset, its model file, its config.json, with options or with the
keys of a file.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from asking import Ask
from fuzz.checked import check
from fuzz.command_lines import options
from fuzz.inputs import released_configs
from fuzz.model_files import OPTIONS, repeats_its_order, with_option, written_out
from fuzz.same import KINDS, same_answers
from fuzz.same import VALUES as KNOWN_VALUES
from tables import each

from attncalc import AttncalcError, ModelSpec, fit, kv_cache, load
from attncalc.config.presets import preset_names, preset_of, presets
from attncalc.what_if import what_if

NAMES = [preset.name for preset in presets()]
VALUES: dict[str, tuple[Any, ...]] = {
    "kv_heads": (1, 2),
    "heads": (16, 24),
    "head_dim": (96,),
    "d_model": (2048,),
    "d_ff": (1000,),
    "experts": (32,),
    "experts_per_token": (3,),
    "vocab_size": (1000,),
    "tie_word_embeddings": (True, False),
    "window": (512,),
    "layers": (2, 150),
}
# Errors of options that this model does not have; a model file has no such key, or it is without
# effect.
NOT_APPLICABLE = (
    "has no such heads",
    "this model has no ",
    "can have a window",
    "has further matrices of its width",
)


def compared(model: ModelSpec) -> ModelSpec:
    """Return what figures depend on: equal layers of a stack together, without names and notes."""
    stacks = []
    for stack in model.stacks:
        layers = tuple(dataclasses.replace(group, name="") for group in stack.layers)
        stacks.append(
            dataclasses.replace(stack, layers=dataclasses.replace(stack, layers=layers).distinct())
        )
    return dataclasses.replace(
        model,
        stacks=tuple(stacks),
        name="",
        title="",
        sources=(),
        notes=(),
        assumed="",
        stored=None,
    )


def read(make: Callable[[], ModelSpec]) -> ModelSpec | str:
    """Return the model, or the message of the error."""
    try:
        return compared(make())
    except AttncalcError as error:
        return error.message


def test_a_preset_is_the_file_that_presets_show_prints() -> None:
    different = [
        name for name in NAMES if compared(load(written_out(name))) != compared(load(name))
    ]
    assert different == []


@each("command", ["kv", "params", "flops", "memory"])
def test_a_file_of_presets_show_has_the_answer_of_its_name(
    command: str, ask: Ask, tmp_path: Path
) -> None:
    for name in (
        "gpt2",
        "gemma3-27b",
        "deepseek-v3.2",
        "qwen3-next-80b-a3b",
        "whisper-large-v3",
        "pythia-1.4b",
    ):
        file = tmp_path / f"{name}.yaml"
        file.write_text(ask("presets", "show", name).out, encoding="utf-8")
        options = [] if command == "params" else ["-c", "128"]
        answers = [ask(command, one, *options, "--json").document for one in (name, str(file))]
        names: dict[str, Any] = {"model": {}, "notes": []}
        assert answers[0] | names == answers[1] | names
        assert answers[0]["model"]["assumed"] == answers[1]["model"]["assumed"] == ""


@each("option", OPTIONS)
def test_options_are_the_model_file_with_these_keys(option: str) -> None:
    cases = [(name, value) for name in NAMES for value in VALUES[option]]
    assert [case for case in cases if not is_the_file_with_the_key(option, *case)] == []


def is_the_file_with_the_key(option: str, name: str, value: Any) -> bool:
    data = written_out(name)
    if (
        option == "layers"
        and "layer_kinds" in str(data)
        and (value < 150 or not repeats_its_order(data))
    ):
        return True  # a pattern may not be longer than n_layers
    options, changed = {option: value}, with_option(data, option, value)
    if option == "d_model":  # an MLP has as many times its width, and a file the same d_ff
        options, changed = {**options, "d_ff": 1000}, with_option(changed, "d_ff", 1000)
    by_option, by_file = read(lambda: what_if(load(name), **options)), read(lambda: load(changed))
    if isinstance(by_option, str):
        return isinstance(by_file, str) or any(text in by_option for text in NOT_APPLICABLE)
    return by_option == by_file


def configs() -> dict[str, dict[str, Any]]:
    """Return config.json files of models that are presets."""
    return {
        name: config
        for name, config in released_configs().items()
        if preset_of(name) in preset_names()
    }


# {name of a config.json: what it is instead of the preset's own}.
NOT_ITS_OWN = {
    "command-r7b": "its max_position_embeddings, where the preset has the model's own context",
    "transformer-base-2017": "a Marian model of these sizes",
    "qwen3.8-flash-next": "a part of its config.json",
    "llama-2-70b": "in bf16, where the release is in fp16",
}


@each("name", [name for name in configs() if name not in NOT_ITS_OWN])
def test_a_preset_is_its_config_json(name: str) -> None:
    """A config.json that names no dtype or no quantization does not have the release's."""
    config = configs()[name]
    preset, released = compared(load(str(preset_of(name)))), compared(load(config))
    text = json.dumps(config)
    fields = {"weights_dtype", "experts_dtype", "quantization", "kv_dtype", "extra"}
    if "quantization_config" not in text:
        preset = dataclasses.replace(
            preset, **{one: getattr(released, one) for one in fields - {"extra"}}
        )
    if "dtype" not in text:
        preset = dataclasses.replace(preset, dtype=released.dtype)
    assert sum(int(m.params) for m in preset.extra) == sum(int(m.params) for m in released.extra)
    preset = dataclasses.replace(preset, extra=released.extra)
    assert preset == released


@each("engine", ["ideal", "transformers"])
def test_kv_has_the_bytes_that_fit_needs_without_pages(engine: str) -> None:
    different = []
    for name in NAMES[engine == "ideal" :: 2]:
        if not load(name).main.has_cache:
            continue
        options: dict[str, Any] = {"context": 4096, "batch": 3, "engine": engine}
        needed = fit(name, kv_memory="99TiB", **options).to_dict()["kv_needed"]
        if needed != int(kv_cache(name, **options).total):
            different.append(name)
    assert different == []


# The first questions of a fixed sequence: hypothesis varied 800 of them from each other, and asked
# about fewer models. `python tools/fuzz.py --kind same_answers` asks as many as there is time for.
QUESTIONS = [same_answers(Random(f"one answer/{number}")) for number in range(400)]


@each("number", range(len(QUESTIONS)))
def test_a_question_has_one_answer_however_it_is_asked(number: int) -> None:
    check(QUESTIONS[number])


def test_each_option_of_each_command_is_among_these_questions() -> None:
    asked = {
        (case.arguments[0], word)
        for case in QUESTIONS
        for word in case.arguments[2:-1]
        if word.startswith("--")
    }
    known = {
        (command, name)
        for command in KINDS
        for option in options(command)
        for name in option.names
        if name in KNOWN_VALUES or "--tie" in name or "--no-tie" in name
    }
    assert asked == known
    assert len({case.arguments[1] for case in QUESTIONS}) > 200
