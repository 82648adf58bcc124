"""`verify --train`: what real layers save for the backward pass, gradients, optimizer states, and the step's peak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asking import Ask
from layers import GROUPED, LATENT, MHA, OPTIONS, WINDOW, saved
from tables import each

from attncalc.verify import need_torch

need_torch()


GROUPED, MHA, OPTIONS, WINDOW, LATENT = (
    text.replace("vocab_size: 10\n", "vocab_size: 2000\n") for text in (GROUPED, MHA, OPTIONS, WINDOW, LATENT)
)
GATED = OPTIONS.replace("sinks: true\n", "")
LAYERNORM = MHA.replace("rmsnorm", "layernorm").replace("mlp: gated", "mlp: plain")
EXPERTS = GROUPED + "n_experts: 4\nn_experts_per_token: 2\n"
TIED = GROUPED + "tied_embeddings: true\n"
MODELS = {
    "grouped": GROUPED,
    "mha": MHA,
    "gated": GATED,
    "layernorm": LAYERNORM,
    "window": WINDOW,
    "latent": LATENT,
    "experts": EXPERTS,
    "tied": TIED,
}


def train(ask: Ask, text: str, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the checks by name and group."""
    answer = ask("verify", saved(text, folder), "--train", "--device", "cpu", "-c", "24", "--json", *options)
    found = {c["name"] + (f" {c['of']}" if c["of"] else ""): c for c in json.loads(answer.out)["checks"]}
    assert answer.code == (0 if all(c["ok"] for c in found.values()) else 1)
    return found


def failing(ask: Ask, text: str, folder: Path, *options: str) -> dict[str, tuple[int, int]]:
    found = train(ask, text, folder, *options)
    return {name: (c["predicted"], c["measured"]) for name, c in found.items() if not c["ok"]}


@each("name", MODELS)
def test_what_real_layers_save_equals_the_formula_to_the_byte(ask: Ask, tmp_path: Path, name: str) -> None:
    assert failing(ask, MODELS[name], tmp_path) == {}
