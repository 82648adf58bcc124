"""`attncalc presets`: the list, its filter, and models that are found by a repository in a preset's
sources.
"""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import REPOSITORY, Ask, refusal, shell
from tables import each

from attncalc import ModelSpec, load, preset_names
from attncalc.attention import KINDS, Attention, Cross
from attncalc.config import load_with_config
from attncalc.config.presets import Preset, _by_size, _described, preset_of, presets
from attncalc.questions.verify.catalogue import CATALOGUE

ROWS, COLUMNS = 24, 80
MODELS = REPOSITORY / "presets/models"


def test_the_list_leaves_a_row_for_the_prompt(ask: Ask) -> None:
    lines = ask("presets").out.splitlines()
    assert len(lines) < ROWS
    assert max(map(len, lines)) <= COLUMNS
    assert (
        lines[0]
        == f"{len(preset_names())} built-in models  'attncalc presets qwen' shows figures, and "
        "further models"
    )


def test_a_pipe_has_one_name_per_line() -> None:
    found = shell("attncalc presets | grep llama3").stdout.split("\n")
    assert sorted(line.strip() for line in found[:-1]) == [
        name for name in preset_names() if name.startswith("llama3")
    ]


def test_the_list_has_every_name_as_it_is_typed(ask: Ask) -> None:
    assert sorted(ask("presets").out.partition("\n\n")[2].split()) == sorted(preset_names())


@each(
    ("word", "names"),
    [
        ("MLA", {"deepseek-v3", "kimi-linear-48b"}),
        ("hybrid", {"jamba-1.5-mini", "qwen3-next-80b-a3b"}),
        ("window", {"gemma3-27b", "gpt-oss-20b"}),
    ],
)
def test_a_word_finds_models_by_their_attention(ask: Ask, word: str, names: set[str]) -> None:
    found = {layer["name"] for layer in ask("presets", word, "--json").document["layers"]}
    assert names < found
    assert not found & {"llama3-8b", "gpt2"}


def test_a_word_filters_by_name_title_and_repository(ask: Ask) -> None:
    def found(*words: str) -> list[str]:
        return [layer["name"] for layer in ask("presets", *words, "--json").document["layers"]]

    qwen = [f"qwen2.5-{size}b" for size in ("0.5", "1.5", "3", "7", "14", "32", "72")]
    assert [name for name in found("QWEN2.5") if name in preset_names()] == qwen
    assert found("qwen3", "32b") == ["qwen3-32b", "qwen3-vl-32b"]
    # the distills have Llama's sizes
    assert found("R1-Distill-Llama") == ["llama3.1-8b", "llama3.1-70b"]
    assert found("LLaMA-2 70B") == ["llama2-70b"]  # its title
    assert set(found()) == set(preset_names())


def test_a_filtered_list_has_figures(ask: Ask) -> None:
    screen = ask("presets", "deepseek-v3").out
    assert screen.startswith(
        "2 built-in models with 'deepseek-v3'  'attncalc presets show NAME' prints one\n"
    )
    # 61 layers of 512 + 64 in 2 bytes: 68.63 KiB; V3.2 adds an indexer's key of 128
    rows = [line.split() for line in screen.splitlines() if line.startswith("  deepseek")]
    assert [(row[0], row[-1]) for row in rows] == [
        ("deepseek-v3", "68.63"),
        ("deepseek-v3.2", "83.88"),
    ]


def test_full_shows_the_figures_of_all_in_80_columns(ask: Ask) -> None:
    lines = ask("presets", "--full").out.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= set(preset_names())


def test_further_models_are_found_by_name_and_not_listed(ask: Ask, tmp_path: Path) -> None:
    names = [preset.name for preset in presets()]
    assert len({*names}) == len(names)
    assert "pythia-1.4b" in ask("presets", "pythia").out
    assert "pythia-1.4b" not in ask("presets", "--full").out
    (tmp_path / "model.yaml").write_text(ask("presets", "show", "EleutherAI/pythia-1.4b").out)
    assert load(tmp_path / "model.yaml").main == load("Pythia 1.4B").main
    # tags of Ollama's library are among the sources
    assert [preset_of(name) for name in ("vicuna:13b", "QwQ", "phi3:14b")] == [
        "llama2-13b",
        "qwen2.5-32b",
        "phi-3-medium-128k",
    ]


def test_options_stand_before_or_after_the_word(ask: Ask) -> None:
    assert (
        ask("presets", "--json", "gemma")
        == ask("presets", "gemma", "--json")
        == ask("presets", "list", "gemma", "--json")
    )
    assert ask("presets", "list") == ask("presets")


def test_an_unknown_word_is_an_error_with_a_near_name(ask: Ask) -> None:
    error = ask("presets", "qwn").error
    assert (
        error
        == "error: no preset with 'qwn'\n  tip: did you mean 'qwen'? 'attncalc presets' lists "
        "them all\n"
    )
    assert "no preset with 'qwen' and 'mamba'" in ask("presets", "qwen", "mamba").err
    assert ask("presets", "--json", "show", "gpt2").err.startswith(
        "error: options cannot come before 'show'"
    )


def test_a_preset_is_shown_by_its_name_or_a_repository(ask: Ask) -> None:
    text = (MODELS / "gpt2.yaml").read_text()
    assert (
        ask("presets", "show", "gpt2").out
        == ask("presets", "show", "openai-community/gpt2").out
        == text
    )


@each(
    ("name", "preset"),
    [
        ("Qwen/Qwen3-32B", "qwen3-32b"),
        ("qwen/qwen3-32b", "qwen3-32b"),
        ("Qwen3-32B", "qwen3-32b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1-70b"),
        ("Qwen/Qwen3-32", None),
        ("Qwen/Qwen3-32B-AWQ", None),
        ("Qwen/Qwen3-32B@main", None),
        ("somebody/qwen3-32b", None),
        ("", None),
    ],
)
def test_a_repository_leads_to_the_preset_whose_sources_name_it(
    name: str, preset: str | None
) -> None:
    assert preset_of(name) == preset
    if preset:
        assert load(name) == load(preset)


def test_a_file_hides_a_repository_but_not_a_presets_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("Qwen/Qwen3-32B"), Path("gpt3")):
        folder.mkdir(parents=True)
        (folder / "m.yaml").write_text((MODELS / "gpt2.yaml").read_text())
    assert load("Qwen/Qwen3-32B").main.n_layers == 12
    assert load("gpt3").main.n_layers == 96


def test_a_repository_belongs_to_one_preset_and_is_a_model() -> None:
    owners: dict[str, str] = {}
    for preset in presets():
        for repository in preset.repositories:
            part = repository.lower().partition("/")[2]
            assert owners.setdefault(repository.lower(), preset.name) == preset.name
            assert owners.setdefault(part, preset.name) == preset.name, (
                f"{part} would lead to two presets"
            )
            assert repository.partition("/")[0] not in (
                "docs",
                "papers",
                "datasets",
                "spaces",
                "blog",
            )
            assert part not in preset_names() or part == preset.name, (
                f"{part} is the name of another preset"
            )


def test_every_released_preset_names_a_repository() -> None:
    without = {preset.name for preset in presets() if not preset.repositories}
    assert without == {"gpt3", "transformer-base", "transformer-big"}


def test_the_family_is_the_letters_that_a_name_starts_with() -> None:
    families = {preset.name: preset.family for preset in presets()}
    assert (families["qwen2.5-7b"], families["gpt-oss-20b"], families["t5-base"]) == (
        "qwen",
        "gpt",
        "t5",
    )
    assert Preset("7b", "7B", ()).family == "7b"


def test_sizes_are_in_order() -> None:
    names = [preset.name for preset in presets()]
    assert names.index("llama2-7b") < names.index("llama2-70b") < names.index("llama3-8b")
    assert names.index("qwen3-4b") < names.index("qwen3-14b") < names.index("qwen3-235b-a22b")


def test_numbers_in_names_are_compared_as_numbers() -> None:
    names = ["m-14b", "m-4b", "m10", "m-2.5b", "m2.5-7b", "m2", "m-0.5b"]
    assert sorted(names, key=_by_size) == [
        "m2",
        "m2.5-7b",
        "m10",
        "m-0.5b",
        "m-2.5b",
        "m-4b",
        "m-14b",
    ]


@pytest.mark.parametrize(
    ("text", "title", "repositories"),
    [
        ("title: M 7B\nd_model: 4", "M 7B", ()),
        ("d_model: 4\ntitle:   'M 7B'\n", "M 7B", ()),
        ('title: "M 7B"', "M 7B", ()),
        ("d_model: 4", "m", ()),
        ("# title: M 7B", "m", ()),
        (
            "title: M\nsources:\n- https://huggingface.co/b/M-7B/blob/main/x, huggingface.co/a/M",
            "M",
            ("b/M-7B", "a/M"),
        ),
        (
            "title: M\nsources: [https://huggingface.co/a/M, https://huggingface.co/a/M]",
            "M",
            ("a/M",),
        ),
    ],
)
def test_a_preset_is_found_by_its_title_and_the_repositories_in_its_sources(
    text: str, title: str, repositories: tuple[str, ...]
) -> None:
    assert _described("m", text) == Preset("m", title, repositories)


def test_a_preset_is_read_without_the_others() -> None:
    """Of the files in presets/models, `kv --preset llama2-70b` opens its own."""
    code = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
from attncalc.cli import run
sys.argv = ["attncalc", "kv", "--preset", "llama2-70b", "--json"]
run()
print(*(file for file in opened if file.endswith(".yaml")), sep="\\n", file=sys.stderr)
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    models = [Path(line) for line in done.stderr.splitlines() if Path(line).parent.name == "models"]
    assert [path.name for path in models] == ["llama2-70b.yaml"]


def test_a_misspelt_name_has_a_tip() -> None:
    assert "did you mean 'qwen3-32b'?" in refusal(load, "qwen3-33b").tip


def test_sources_and_notes_are_sentences_of_text() -> None:
    for name in preset_names():
        data = yaml.safe_load((MODELS / f"{name}.yaml").read_text())
        assert all(isinstance(text, str) for text in (*data["sources"], *data.get("notes", ())))
        assert all(note.endswith(".") for note in data.get("notes", ())), name


def test_the_catalogue_of_verify_has_every_kind_that_verify_has_a_layer_for() -> None:
    layers = pytest.importorskip("attncalc.verify.layers")

    def kinds(names: tuple[str, ...] | list[str]) -> set[tuple[str, str]]:
        attentions = [
            kind for name in names for _, group in load(name).groups() for kind in group.attentions
        ]
        known = [kind for kind in attentions if has_layer(kind)]
        return {(type(kind).__name__, type(getattr(kind, "span", None)).__name__) for kind in known}

    def has_layer(kind: Attention) -> bool:
        layer = layers.find_layer(type(kind))
        return layer is not None and not any(
            getattr(kind, field) for field in layer.not_implemented
        )

    assert kinds(CATALOGUE) == kinds(preset_names())


def test_every_layer_of_verify_is_found_by_its_kind() -> None:
    layers = pytest.importorskip("attncalc.verify.layers")
    found = {
        layer.__name__ for kind in (Cross, *KINDS.values()) if (layer := layers.find_layer(kind))
    }
    text = "".join(file.read_text() for file in Path(layers.__file__).parent.glob("*.py"))
    assert found == {*re.findall(r"^class (\w+Layer)\b", text, re.M)} - {
        "AttentionLayer",
        "RecurrentLayer",
    }


def test_the_config_of_a_preset_is_read_as_its_model() -> None:
    def layers(model: ModelSpec) -> list[Any]:
        every = [
            (stack, group)
            for stack in model.stacks
            for group in stack.layers
            for _ in range(group.count)
        ]
        equal = [
            (stack.d_model, dataclasses.replace(group, name="", count=1)) for stack, group in every
        ]
        return [equal, model.vocab_size, model.d_embedding, model.head, model.extra]

    without = []
    for name in preset_names():
        model, config = load_with_config(name)
        if config is None:
            without.append(name)
        elif name != "deepseek-v3":  # whose preset counts the biases of its routers
            assert layers(load(config)) == layers(model), name
    assert without == [
        "gpt3",
        "qwen3-omni-30b-a3b",
        "transformer-base",
        "transformer-big",
        "whisper-large-v3",
    ]
