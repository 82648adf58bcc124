"""Published and measured memory of training runs, each with its prediction; for tests and
tools/accuracy.py.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from attncalc import ModelSpec, Workload, load, preset_names
from attncalc.cost.training.fits import VARIED, reserved, train_result
from attncalc.cost.training.setup import Lora, Training
from attncalc.cost.training.step import most_loaded, stage_budget
from attncalc.questions.train.request import read_train_request

sys.path.append(str(Path(__file__).parent.parent / "tools"))
from measure_training import config_of

DATA = Path(__file__).parent / "data" / "training"
FITCHECK: dict[str, Any] = json.loads((DATA / "fitcheck.json").read_text(encoding="utf-8"))
ON_A_GPU: dict[str, Any] = json.loads((DATA / "h200.json").read_text(encoding="utf-8"))
HELD_OUT: dict[str, Any] = json.loads((DATA / "held_out.json").read_text(encoding="utf-8"))
PUBLISHED: dict[str, Any] = json.loads((DATA / "published.json").read_text(encoding="utf-8"))
FLAGS = (
    "--hold-logits",
    "--optimizer-in-backward",
    "--no-kbit-upcast",
    "--double-quant",
    "--compile",
    "--expandable-segments",
    "--autocast",
)
UNITS = {"GiB": 2**30, "GB": 10**9, "MiB": 2**20}


class Measured(NamedTuple):
    """A run."""

    name: str  # the run in words
    predicted: int  # allocated bytes that train predicts
    measured: float  # measured bytes
    within: float | None = None  # the error that is allowed; None if the row is not comparable
    why: str = ""  # why it is not
    # Allocated bytes that were predicted before a held-out run was measured; None if it was not
    # held out
    first: int | None = None
    reserved: int = 0  # bytes that the allocator is expected to reserve
    blocks: float = 0  # measured bytes of blocks beyond the weights in them, when they are loaded

    @property
    def error_of_tensors(self) -> float:
        """The relative error without the blocks."""
        return self.predicted / (self.measured - self.blocks) - 1

    @property
    def error(self) -> float:
        """The relative error of the prediction."""
        return self.predicted / self.measured - 1


@cache
def model_of(name: str) -> ModelSpec:
    """Return a preset, or a model that has its sizes in the data."""
    if name in preset_names():
        return load(name)
    config = {"max_position_embeddings": 8192, **(FITCHECK["models"] | PUBLISHED["models"])[name]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps({"torch_dtype": "float16", **config}))
        return load(path)


def published_run(row: dict[str, Any]) -> Training:
    """Return the run of a row of published.json."""
    return read_train_request(model_of(row["model"]), row["options"]).run


def lora_on_a_t4(row: dict[str, Any]) -> Training:
    """Return a run of fitcheck-llm: its loop holds the model's output, and peft upcasts what nf4
    leaves out.
    """
    is_nf4 = row["weights"] == "nf4"
    return Training(
        model_of(row["model"]),
        Workload.train(
            row["batch"], row["tokens"], dtype="fp32" if is_nf4 else "fp16", recompute="full"
        ),
        kernel=row["kernel"],
        param_dtype="fp32",
        grad_dtype="fp32",
        master_weights=False,
        lora=Lora(row["rank"], ("W_q", "W_k", "W_v", "W_o")),
        weights_dtype="nf4" if is_nf4 else None,
        hold_logits=True,
    )


def fitcheck_runs() -> Iterator[Measured]:
    """Yield the measured LoRA and QLoRA runs."""
    for row in FITCHECK["rows"]:
        size = f"{row['batch']} x {row['tokens']:,}"
        name = (
            f"{row['model']}, {size}, {row['kernel']}, "
            f"{'nf4' if row['weights'] == 'nf4' else 'fp16'}"
        )
        allocated = most_loaded(lora_on_a_t4(row), plain=True).allocated
        blocks = row["blocks_mib"] * UNITS["MiB"]
        yield Measured(name, allocated, row["allocated_mib"] * UNITS["MiB"], blocks=blocks)


def published_runs() -> Iterator[Measured]:
    """Yield the runs of torchtune, torchtitan and Megatron-Bridge."""
    for row in PUBLISHED["runs"]:
        run = published_run(row)
        is_last = row.get("statistic") == "last stage"  # the rank that logs
        budget = (
            stage_budget(run, run.stages[-1], plain=True)
            if is_last
            else most_loaded(run, plain=True)
        )
        predicted = budget.allocated
        if row.get("statistic") == "reserved":
            _, predicted, _ = reserved(run, budget.allocated, budget.largest, budget.cached)
        yield Measured(
            row["run"], predicted, row["measured"] * UNITS[row["unit"]], row["within"], row["why"]
        )


class HeldOut(NamedTuple):
    """A published run that was predicted before its outcome was read.

    Attributes:
        name: the name of its row.
        publisher: who published it.
        measured: bytes that were allocated at the peak, or None if it ran out of memory.
        first: bytes that were predicted before the outcome was read.
        verdict: the verdict of that prediction.
        contradiction: why the row is not compared, or an empty text.
    """

    name: str
    publisher: str
    measured: int | None
    first: int
    verdict: str
    contradiction: str

    @property
    def error(self) -> float:
        """The relative error of the first prediction, of a run that did not run out of memory."""
        assert self.measured is not None
        return self.first / self.measured - 1


def held_out_runs() -> list[HeldOut]:
    """Return the published runs that were predicted before their outcome was read."""
    return [
        HeldOut(
            row["id"],
            row["publisher"],
            row.get("allocated"),
            row["predicted"]["allocated"],
            row["predicted"]["verdict"],
            row.get("contradiction", ""),
        )
        for row in HELD_OUT["runs"]
    ]


def held_out_command(row: dict[str, Any], folder: Path) -> list[str]:
    """Return the arguments of `attncalc train` for a row of held_out.json, with a config.json in
    the folder if the model is no preset.
    """
    model, *options = f"{row['arguments']} {row.get('now', '')}".split()
    if model in HELD_OUT["models"]:
        path = folder / model
        path.write_text(json.dumps(HELD_OUT["models"][model]), encoding="utf-8")
        model = str(path)
    return ["train", model, *options]


class Answered(NamedTuple):
    """A run that litgpt lists, and whether it fits."""

    name: str  # the run in words
    measured: float | None  # allocated bytes; None if it ran out of memory
    allocated: int  # predicted bytes, of a step or, with several GPUs, while the weights are loaded
    verdict: str  # the answer for the GPU


def litgpt_runs() -> Iterator[Answered]:
    """Yield litgpt's runs."""
    for row in PUBLISHED["litgpt"]["rows"]:
        run = published_run(row)
        result = train_result(run, plain=True)
        allocated, verdict = result.budget.allocated, str(result.verdict)
        options = row["options"]
        words = [
            f"{options['batch']} x {options['context']:,}",
            options.get("weights_dtype", "bf16"),
        ]
        words += ["double quantisation"] if "double_quant" in options else []
        words += [f"{run.gpus} GPUs"] if run.gpus > 1 else []
        gb = row["measured_gb"]
        yield Answered(
            ", ".join([row["model"], *words]), gb and gb * UNITS["GB"], allocated, verdict
        )


def runs_on_a_gpu() -> Iterator[Measured]:
    """Yield the runs of tools/measure_training.py, with the reason if it is off."""
    for row in ON_A_GPU["runs"]:
        run = read_train_request(
            _model_of_config(row["model"]), options_of(row["options"] + " --gpu h200")
        ).run
        budget = most_loaded(run, plain=True)
        _, expected, _ = reserved(run, budget.allocated, budget.largest, budget.cached)
        name = f"{row['model']}: `{row['options']}`"
        first, why = row.get("predicted_first"), row.get("why", "")
        yield Measured(
            name, budget.allocated, row["requested"], why=why, first=first, reserved=expected
        )


def least_memory() -> Iterator[tuple[str, int, tuple[int, int, int]]]:
    """Yield runs with the least bytes that the allocator needed under a limit, and the range that
    is predicted.
    """
    for row in ON_A_GPU["least"]:
        run = read_train_request(
            _model_of_config(row["model"]), options_of(row["options"] + " --gpu h200")
        ).run
        budget = most_loaded(run, plain=True)
        found = reserved(run, budget.allocated, budget.largest, budget.cached)
        if "mode" in row and not run.expandable_segments:
            found = (*found[:2], budget.allocated * VARIED // 100)
        yield f"{row['model']}: {row['options']}", row["reserved"], found


@cache
def _model_of_config(name: str) -> ModelSpec:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config_of(name)))
        return load(path)


def options_of(words: str) -> Any:
    """Return options of the command line as those of Python: '-b 2 --no-master-weights'."""
    found: dict[str, Any] = {}
    name = ""
    for word in words.split():
        if word == "--no-master-weights":
            found["master_weights"] = False
        elif word in FLAGS:
            found[word[2:].replace("-", "_")] = True
        elif word.startswith("-"):
            name = {"-b": "batch", "-c": "context"}.get(word, word[2:].replace("-", "_"))
        else:
            found[name] = word
    return found
