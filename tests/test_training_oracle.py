"""The tensors that transformers' classes save for the backward pass (tools/training_oracle.py) equal the formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tables import each

from attncalc import load
from attncalc.cost.training.activations import stage_saved
from attncalc.quantity import total
from attncalc.verify import need_torch

need_torch()

from attncalc.verify.training.checks import size_on, training_run  # noqa: E402
from attncalc.verify.training.layers import leading  # noqa: E402

DATA = Path(__file__).parent / "data"
ROWS: dict[str, Any] = json.loads((DATA / "training" / "saved.json").read_text())["rows"]
CONFIGS: dict[str, Any] = json.loads((DATA / "huggingface.json").read_text())
EXACT = (
    *("llama-2-70b", "mistral-7b-v0.1", "qwen2.5-0.5b", "qwen3-0.6b", "starcoder2-7b", "seed-oss-36b", "cwm-32b"),
    *("minicpm3-4b", "default-hyperclovax", "default-iquestcoder", "default-jais2", "qwen2-vl-7b", "opt-125m", "phi-2"),
    *("gemma-7b", "gemma2-2b", "gemma3-1b", "gemma3-27b", "olmo2-7b", "olmo3-7b", "command-r7b", "stablelm-3b-4e1t"),
)
"""Families whose layers save exactly what the formulas say; others differ in a router, or in rare operations."""
EXACT_BUT_EAGER = ("gpt2", "pythia-6.9b", "santacoder", "phi-3-mini-4k", "default-phi4_multimodal")
"""Families whose eager attention has no fp32 copy of the probabilities, or shares K and V in another way."""
NEARLY = {
    "mixtral-8x7b": 544,
    "qwen3-30b-a3b": 512,
    "glm-4-9b-0414": 16384,
    "minitron-8b": 16384,
    "minimax-m2": 3072,
    "lfm2-1.2b": 2 * 2 * 2048 * 2,
}
"""Bytes that a layer may save more than the formulas say: indices of a router, cosines and sines of each layer; for
LFM2 the tokens that padding adds to the output of torch's convolution, 2 of each sequence."""
WAYS = [
    *((name, way) for name in EXACT for way in ("saved", "saved_recompute", "saved_eager") if way in ROWS[name]),
    *((name, way) for name in (*EXACT_BUT_EAGER, *NEARLY) for way in ("saved", "saved_recompute")),
]


@each(("name", "way"), WAYS)
def test_layers_of_a_class_save_what_the_formulas_say(tmp_path: Path, name: str, way: str) -> None:
    row = ROWS[name]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS[name]["config"]))
    model = leading(load(path), row["layers"])
    is_eager = way == "saved_eager" or row["attention"] == "eager"
    kernel: Any = "eager" if is_eager else "flash" if row["flash"] else "math"
    recompute = way == "saved_recompute"
    run = training_run(model, row["batch"], row["tokens"], "bf16", kernel, recompute=recompute)
    saved = stage_saved(run, run.stages[0], run.stages[0].model.plain())
    size = size_on("cpu", run)
    predicted = [int(total(map(size, s.kept))) for s in saved.layers for _ in range(int(s.layers.count))]
    missing = [size - p for p, size in zip(predicted, [s for layer, s in row[way].items() if layer], strict=True)]
    assert all(0 <= size <= (0 if recompute else NEARLY.get(name, 0)) for size in missing)
