"""What transformers' classes save for the backward pass, measured, beside the formulas; for tests and accuracy.py."""

from __future__ import annotations

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
KERNELS_OF_A_GPU = "fused kernels are counted, and without a GPU the class runs single operations"
OTHERS = {
    KERNELS_OF_A_GPU: (
        *("mamba-130m", "falcon-mamba-7b", "mamba-codestral-7b", "qwen3-next-80b-a3b", "default-qwen3_5_text"),
        *("qwen3_5_moe_text", "olmo_hybrid", "granite-4.0-h-tiny", "zamba2-7b", "nemotron-h-8b", "default-falcon_h1"),
        *("bamba", "lfm3", "default-kimi_linear"),
    ),
    "the class cannot be cut to a few layers": (
        *("default-hrm_text", "llava-1.5-7b", "granite_swa", "granitemoe_swa"),
    ),
    "the first decoder layer saves the encoder's output for all, and on a CPU each layer a mask": (
        *("bart-base", "mbart", "pegasus", "mvp", "blenderbot", "blenderbot-small", "default-t5gemma"),
    ),
    "queries and keys in fp32 in eager attention": ("gptj", "codegen", "gpt_neo"),
    "a mask of each layer": ("default-biogpt", "xglm"),
    "norms inside of attention or the MLP": ("persimmon-8b", "bitnet", "doge", "nanochat", "modernbert-decoder"),
    "inputs of each layer, which the first layer saves for all": ("gemma4_text",),
    "further streams between layers": ("gemma3n-e4b", "beam", "flint", "minimax_m3_vl_text"),
    "an activation function in single operations": ("apertus",),
    "compressed convolutional attention": ("default-zaya",),
    "a router in fp32, or one that divides twice": ("ernie4_5_moe", "mistral4", "kolibri1", "laguna"),
    "logits are scaled, and norms of other widths": ("cohere2_moe",),
}
"""Classes that save something else than the formulas count, by the cause."""
MISSING = {"lfm2-1.2b": 16384, "recurrent_gemma": 32, "recurrent_gemma, 1 x 16": 128}
"""Bytes that a layer saves and the formulas leave out: for LFM2 the tokens that padding adds to the output of torch's
convolution, 2 of each sequence; position ids of a recomputed layer."""


class ClassRow(NamedTuple):
    """The layers of a class.

    Attributes:
        name: the row's name.
        way: 'saved', 'saved_eager' or 'saved_recompute'.
        measured: bytes that each layer saves.
        predicted: bytes that the formulas count.
        empty: tensors of the formulas without bytes, which a test could not miss.
    """

    name: str
    way: str
    measured: list[int]
    predicted: list[int]
    empty: list[str]

    @property
    def is_exact(self) -> bool:
        """Whether all layers are equal, but for what MISSING allows."""
        most = MISSING.get(self.name, 0)
        return len(self.measured) == len(self.predicted) and all(
            0 <= m - p <= most for m, p in zip(self.measured, self.predicted, strict=True)
        )


def class_rows(name: str) -> Iterator[ClassRow]:
    """Yield the measured ways of a class beside the formulas. Raises NotSupportedError if a kind is not known."""
    from attncalc.verify.training.checks import size_on, training_run
    from attncalc.verify.training.layers import leading

    row = ROWS[name]
    model = leading(spec_of(config_of(name)), row["layers"])
    for way in WAYS:
        if way not in row:
            continue
        is_eager = way == "saved_eager" or row["attention"] == "eager"
        kernel: Any = "eager" if is_eager else "flash" if row["flash"] else "math"
        recompute = way == "saved_recompute"
        run = training_run(model, row["batch"], row["tokens"], "bf16", kernel, recompute=recompute)
        saved = stage_saved(run, run.stages[0], run.stages[0].model.plain())
        size = size_on("cpu", run)
        predicted = [int(total(map(size, s.kept))) for s in saved.layers for _ in range(int(s.layers.count))]
        empty = [tensor.name for s in saved.layers for tensor in s.kept if not int(tensor.size)]
        yield ClassRow(name, way, [size for layer, size in row[way].items() if layer], predicted, empty)


def cause_of(name: str) -> str:
    """Return why a class is not exact; '' if it must be."""
    try:
        next(class_rows(name))
    except NotSupportedError as error:
        return str(error).splitlines()[0]
    return next((cause for cause, names in OTHERS.items() if name in names), "")
