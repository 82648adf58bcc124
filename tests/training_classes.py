"""What transformers' classes save for the backward pass, measured, beside the formulas; for tests
and accuracy.py.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from attncalc.cost.training.activations import stage_saved
from attncalc.errors import NotSupportedError
from attncalc.quantity import total

sys.path.append(str(Path(__file__).parent.parent / "tools"))
from training_oracle import FILE, config_of, spec_of

ROWS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))["rows"]
WAYS = ("saved", "saved_eager", "saved_recompute")
# Classes that save something else than the formulas count, by the cause.
OTHERS = {
    "the class cannot be cut to a few layers": ("default-hrm_text", "llava-1.5-7b", "zamba2-7b"),
    "the first decoder layer saves the encoder's output for all, and on a CPU each layer a mask": (
        "bart-base",
        "mbart",
        "pegasus",
        "mvp",
        "blenderbot",
        "blenderbot-small",
        "default-t5gemma",
    ),
    "the mask of all positions, a buffer of each layer": ("gpt_neo",),
    "cosines and sines of each layer, of a part of each head": ("gptj", "codegen"),
    "a mask of each layer": ("default-biogpt",),
    "norms inside of attention or the MLP": ("persimmon-8b", "doge", "modernbert-decoder"),
    "further streams between layers": ("gemma3n-e4b", "beam", "flint", "minimax_m3_vl_text"),
    "compressed convolutional attention": ("default-zaya",),
    "a sum of chosen weights less, or a gate in fp32": ("kolibri1", "laguna"),
    "logits are scaled, and norms of other widths": ("cohere2_moe",),
}
# Bytes that the first layer saves besides, which are counted outside of layers: position ids of a
# recomputed layer, the mask, or the inputs of all layers. Fewer if its own input is counted there,
# or is in 16 bits and that of others in fp32.
FIRST_LAYER = {
    "recurrent_gemma": (512,),
    "recurrent_gemma, 1 x 16": (128,),
    "gemma4_text": (393216, 393216 - 2 * 2 * 64 * 2304),
    "xglm": (2 * 2 * 64 * 64,),
    "mamba-130m": (-2 * 2 * 64 * 768,),
    "falcon-mamba-7b": (-2 * 2 * 64 * 4096,),
    "mamba-codestral-7b": (-2 * 2 * 64 * 4096,),
}


class ClassRow(NamedTuple):
    """The layers of a class."""

    name: str  # the row's name
    way: str  # 'saved', 'saved_eager' or 'saved_recompute'
    measured: list[int]  # bytes that each layer saves
    predicted: list[int]  # bytes that the formulas count
    empty: list[str]  # tensors of the formulas without bytes, which a test could not miss

    @property
    def is_exact(self) -> bool:
        """Whether all layers are equal, the first one but for FIRST_LAYER."""
        first, *others = self.measured
        return self.predicted in [
            [first - more, *others] for more in (0, *FIRST_LAYER.get(self.name, ()))
        ]


def class_rows(name: str) -> Iterator[ClassRow]:
    """Yield the measured ways of a class beside the formulas. Raises NotSupportedError if a kind is
    not known.
    """
    from attncalc.verify.training.checks import size_on, training_run
    from attncalc.verify.transformers.training_check import layer_groups, layers_of_one, leading

    row, config = ROWS[name], config_of(name)
    whole = spec_of(config)
    of_one = layers_of_one(whole, config)
    model = leading(whole, row["layers"])
    for way in WAYS:
        if way not in row:
            continue
        is_eager = way == "saved_eager" or row["attention"] == "eager"
        kernel: Any = "eager" if is_eager else "flash" if row["flash"] else "math"
        recompute = way == "saved_recompute"
        run = training_run(model, row["batch"], row["tokens"], "bf16", kernel, recompute=recompute)
        saved = stage_saved(run, run.stages[0], run.stages[0].model.plain())
        size = size_on("cpu", run)
        of_group = {s.group: int(total(map(size, s.kept))) for s in saved.layers}
        layers = [of_group[group] for group in layer_groups(model)]
        predicted = [sum(layers[i : i + of_one]) for i in range(0, len(layers), of_one)]
        empty = [tensor.name for s in saved.layers for tensor in s.kept if not int(tensor.size)]
        measured = [size for layer, size in row[way].items() if layer and "rotary" not in layer]
        yield ClassRow(name, way, measured, predicted, empty)


def cause_of(name: str) -> str:
    """Return why a class is not exact; '' if it must be."""
    try:
        next(class_rows(name))
    except NotSupportedError as error:
        return str(error).splitlines()[0]
    return next((cause for cause, names in OTHERS.items() if name in names), "")
