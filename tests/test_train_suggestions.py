"""What `train` promises is what it answers when the promise is typed: changes, rows of GPUs, and
ways to tune.
"""

import shlex
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from asking import Ask
from tables import each

from attncalc import preset_names
from attncalc.config.gpus import gpu as gpu_of
from attncalc.config.gpus import gpu_names
from attncalc.cost.training.fits import train_result
from attncalc.questions.train.answer import request_answer
from attncalc.questions.train.request import read_train_request

FIGURES = ("needed_low", "needed_high")


def words_of(command: str) -> list[list[str]]:
    """Return the options of a command, each with its value."""
    found: list[list[str]] = []
    for word in shlex.split(command):
        if word.startswith("-"):
            found.append([word])
        else:
            found[-1].append(word)
    return found


def with_options(command: str, more: str) -> list[str]:
    """Return a command's options with others, which replace those of the same name."""
    options = {
        words[0].replace("--no-", "--"): words for words in words_of(command) + words_of(more)
    }
    return [word for words in options.values() for word in words]


def promises(ask: Ask, model: str, command: str) -> list[dict[str, Any]]:
    """Return the suggestions of a command, each of which is checked: typed, it fits with the
    promised figures.
    """
    found: list[dict[str, Any]] = ask("train", model, *shlex.split(command), "--json").document[
        "suggestions"
    ]
    for one in found:
        typed = ask("train", model, *with_options(command, one["flag"]), "--json")
        assert typed.code == 0, (model, command, one, typed.err)
        values = typed.document["values"]
        assert [values[name] for name in FIGURES] == [one[name] for name in FIGURES], (
            model,
            command,
            one,
        )
        assert typed.document["verdict"] == "fits"
    return found


@each(
    "command",
    [
        # the copies in fp32 that only --zero adds to these optimizers
        "mixtral-8x7b -c 128 --gpu a100 --recompute full --optimizer adafactor",
        "llama3-70b --gpu h200 --optimizer paged_adamw_8bit",
        "mistral-small-24b -c 1000 --gpu h100 --optimizer adam8bit --reference-model",
        # gradients in fp32 with --tp, but not with --zero 3
        "qwen2.5-32b -c 1024 -b 8 --gpu b200 --gpus 8 --tp 2 --reference-model",
        # options that are errors beside others
        "mamba2-2.7b -c 65536 --gpu rtx-4090",
        "llama3-8b --gpu h100 --global-batch 7",
        "gemma-2b --gpu h100 -b 8 --global-batch 16",
        "glm-4.5 --gpu mi300x --param-dtype bf16",
        "llama3-70b --gpu h100 --gpus 8 --zero 1 --lora r=16",
        "llama3-70b --gpu 8xh100 --zero 3",
        "llama3-70b --gpu p5.48xlarge --zero 3",
        # dtypes that are given stay with adapters
        "llama3-8b --gpu rtx-4090 --param-dtype bf16",
        "llama3-8b --gpu h100 --grad-dtype bf16",
        # what is searched for is searched for again, and so are the GPUs that are enough for --days
        "llama3-8b --gpu h100 -c auto",
        "llama3-8b --gpu h100 -b auto",
        "llama3-70b --gpu h100 --tokens 1B --days 30",
        # both --zero 1 and --gpus 16 --zero 3 were parts of one change
        "glm-5.2 --gpu h200 --pp 2",
    ],
)
def test_a_suggestion_that_is_typed_has_the_promised_figures(ask: Ask, command: str) -> None:
    model, _, options = command.partition(" ")
    promises(ask, model, options)


def test_a_suggestion_names_no_option_that_the_command_has_no_place_for(ask: Ask) -> None:
    def flags(model: str, command: str) -> list[str]:
        return [one["flag"] for one in promises(ask, model, command)]

    assert not any("lora" in flag for flag in flags("mamba2-2.7b", "-c 65536 --gpu rtx-4090"))
    assert "-b 1" in flags("gemma-2b", "--gpu h100 -b 8 --global-batch 16")
    assert any(
        "--gpu 24xh100-80gb" in flag for flag in flags("llama3-70b", "--gpu 8xh100 --zero 3")
    )
    assert not any(
        "--fsdp" in flag for flag in flags("llama3-70b", "--gpu h100 --gpus 8 --zero 1 --lora r=16")
    )


def random_options(random: Random) -> Iterator[str]:
    """Yield options of a run that often does not fit."""

    def some(share: float, *texts: str) -> Iterator[str]:
        if random.random() < share:
            yield random.choice(texts)

    yield f"-c {random.choice((128, 1000, 1024, 4096, 8192))}"
    yield (
        "--gpu "
        f"{random.choice(('h100', 'a100', 'rtx-4090', '24GB', 't4', 'mi300x', 'h200', '2xb200', '8xl40s'))}"
    )
    yield from some(0.5, "-b 2", "-b 4", "-b 8")
    yield from some(
        0.3,
        "--gpus 2",
        "--gpus 2 --zero 1",
        "--gpus 2 --zero 2",
        "--gpus 2 --fsdp",
        "--gpus 2 --tp 2",
    )
    yield from some(
        0.3, "--optimizer adam8bit", "--optimizer adafactor", "--optimizer lion", "--optimizer muon"
    )
    yield from some(0.3, "--lora r=8", "--lora r=8,targets=q+v", "--lora r=8 --weights-dtype nf4")
    yield from some(0.2, "--gradient-accumulation 2", "--global-batch 16", "--global-batch 7")
    yield from some(
        0.2, "--param-dtype bf16", "--param-dtype fp32", "--grad-dtype bf16", "--no-master-weights"
    )
    yield from some(0.2, "--recompute none", "--recompute full", "--recompute op")
    yield from some(
        0.2, "--kernel math", "--kernel eager", "--loss fused", "--loss compiled", "--dtype fp16"
    )
    yield from some(
        0.2,
        "--reference-model",
        "--pairs",
        "--offload optimizer",
        "--compile",
        "--optimizer-in-backward",
    )


@pytest.mark.parametrize("seed", range(6))
def test_every_suggestion_of_a_random_run_holds(ask: Ask, seed: int) -> None:
    random, names = Random(seed), sorted(preset_names())
    for _ in range(4):
        model = random.choice((*random.sample(names, 3), "llama3-8b", "qwen3-32b", "mixtral-8x7b"))
        command = " ".join(random_options(random))
        # not every combination is possible
        if ask("train", model, *command.split()).code in (0, 1):
            promises(ask, model, command)


@each(
    "options",
    [
        # a Quadro RTX 6000 has no bf16, and so fp16 and the efficient kernel
        {"model": "qwen3-0.6b", "context": 1024, "recompute": "full", "loss": "fused", "batch": 77},
        {"model": "llama3-8b", "lora": "r=16", "weights_dtype": "nf4", "context": "auto"},
        {"model": "gemma2-9b", "gpus": 8, "zero": 3},
    ],
)
def test_a_row_of_all_gpus_is_the_answer_for_that_gpu(ask: Ask, options: dict[str, Any]) -> None:
    words = [options["model"]]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", str(value)] if name != "model" else []
    rows = {
        row["gpu"]: row for row in ask("train", *words, "--gpu", "all", "--json").document["layers"]
    }
    # several Apple GPUs are an error
    excluded = {
        name for name in gpu_names() if "gpus" in options and gpu_of(name).vendor == "Apple"
    }
    assert rows.keys() == {*gpu_names()} - excluded
    for name in ("quadro-rtx-6000", *Random(1).sample(sorted(rows), 4)):
        typed = ask("train", *words, "--gpu", name, "--json").document
        figures = {figure["name"]: figure["value"] for figure in rows[name]["results"]}
        assert figures == {figure["name"]: figure["value"] for figure in typed["results"]}, name
        assert rows[name]["verdict"] == typed["verdict"]


@each("model", ["llama3-8b", "mixtral-8x7b", "qwen3-30b-a3b", "mamba2-2.7b"])
@each(
    "options",
    [{}, {"param_dtype": "bf16"}, {"recompute": "none"}, {"optimizer": "adafactor", "batch": 4}],
)
def test_without_a_gpu_the_ways_to_tune_are_those_of_their_options(
    model: str, options: Any
) -> None:
    found = request_answer(read_train_request(model, options)).by_way
    ways: dict[str, Any] = {
        "full": {},
        "LoRA": {"lora": "r=16"},
        "QLoRA": {"lora": "r=16", "weights_dtype": "nf4"},
    }
    if model == "mamba2-2.7b":  # has none of the matrices that adapters are for by default
        assert found.keys() == {"full"}
    for way, one in found.items():
        as_typed: Any = {**options, **ways[way]}
        typed = train_result(read_train_request(model, as_typed).run, plain=True)
        assert (one.low, one.high) == (typed.low, typed.high)


@each("model", ["mixtral-8x7b", "qwen3-8b"])
def test_the_fewest_gpus_are_enough_with_the_changes_that_are_counted(ask: Ask, model: str) -> None:
    answer = request_answer(read_train_request(model, {"optimizer": "adafactor"}))
    ways = {"full": "", "LoRA": "--lora r=16", "QLoRA": "--lora r=16 --weights-dtype nf4"}
    for gpu, by_way in answer.fewest:
        for way, change in by_way.items():
            assert change
            typed = with_options(f"--optimizer adafactor {ways[way]} --gpu {gpu.name}", change.flag)
            assert ask("train", model, *typed).out.startswith("FITS: needs"), (gpu.name, way, typed)


def test_the_command_below_the_models_of_a_gpu_gives_their_first_row(ask: Ask) -> None:
    first = ask("train", "--gpu", "rtx-4090", "-c", "2048").out
    row = next(line for line in first.splitlines() if "QLoRA  " in line)
    command = " ".join(first.split()).partition("other options: attncalc ")[2]
    assert f"needs {' '.join(row.split()[-3:])} of" in ask(*command.split(), "-c", "2048").out
    for option in ("--kernel flash", "--recompute full", "--loss fused"):
        assert (
            option in " ".join(first.split()).partition("Counted with ")[2].partition(", where")[0]
        )


def test_an_automatic_context_says_its_steps(ask: Ask) -> None:
    command = "gemma3-4b -b 8 --lora r=8 --weights-dtype nf4 -c auto --gpu rtx-4090"
    assert ask("train", *command.split()).out.startswith(
        "FITS up to context 384, in steps of 128: needs"
    )


@each(
    "options",
    [
        "-b 1,2,4 --gpus 2 --global-batch 16",
        "-c 1K,2K --samples 52K",
        "-b 1,2 --epochs 2 --samples 1K",
    ],
)
def test_a_row_of_a_sweep_is_the_answer_for_its_batch_and_context(ask: Ask, options: str) -> None:
    first, *others = words_of(options)
    command = ["qwen3-0.6b", "--gpu", "h100", *(word for words in others for word in words)]
    names = ["step_tokens", "training_seconds", "needed_high"]
    swept = ask(
        "sweep", *command, "--train", *first, "--columns", ",".join(names), "--json"
    ).document["rows"]
    for size, row in zip(first[1].split(","), swept, strict=True):
        values = ask("train", *command, first[0], size, "--json").document["values"]
        assert [row[name] for name in names] == [values[name] for name in names], size


@each(
    ("options", "sentence", "likelihoods"),
    [
        ("-c 1024", "", ("sure", "sure")),
        # the top is 11 % above what is allocated, 9 % with expandable segments
        (
            "-c 1920",
            "Likely to fit without expandable segments, sure to with them.",
            ("likely", "sure"),
        ),
        ("-c 1920 --expandable-segments", "", ("sure", "sure")),
        ("-c 2048", "Likely to fit, with expandable segments too.", ("likely", "likely")),
        ("-c 2048 --expandable-segments", "Likely to fit. With", ("likely", "likely")),
        ("-c 2176", "Unlikely to fit, with expandable segments too.", ("unlikely", "unlikely")),
        ("-c 4096", "", ("no", "no")),
    ],
)
def test_sure_and_likely_are_told_apart(
    options: str, sentence: str, likelihoods: tuple[str, str], ask: Ask
) -> None:
    command = ["llama3-8b", "--gpu", "a100-40gb", "--lora", "r=16", *options.split()]
    document = ask("train", *command, "--json").document
    names = ("likelihood", "likelihood_with_expandable_segments")
    assert tuple(document[name] for name in names) == likelihoods
    assert sentence in document["answer"]
    is_open = document["verdict"] == "may_not_fit"
    assert (" to fit" in document["answer"]) == is_open
    # the answer has no further sentence about it
    assert (likelihoods[0] in ("likely", "unlikely")) == is_open


def test_several_gpus_have_no_likelihood_of_their_own(ask: Ask) -> None:
    document = ask("train", "llama3-8b", "--gpu", "all", "--json").document
    assert document["likelihood"] is None
