"""Model files with layers small enough to verify quickly, one per kind of attention."""

import re
from pathlib import Path

from attncalc import load
from attncalc.cost.params import params
from attncalc.questions.verify.catalogue import CATALOGUE
from attncalc.verify.cases import Case, cases

GROUPED = """\
title: Small
sources: ["a test"]
d_model: 32
n_layers: 3
vocab_size: 10
norm: rmsnorm
n_heads: 4
n_kv_heads: 2
mlp: gated
d_ff: 8
max_context: 64
dtype: bf16
"""
MHA = GROUPED.replace("n_kv_heads: 2\n", "")
FUSED = MHA + "fused: true\n"
OPTIONS = GROUPED + "gate: true\nqk_norm: head\nsinks: true\n"
WINDOW = GROUPED + "window: 5\n"
LATENT = GROUPED.replace(
    "n_heads: 4\nn_kv_heads: 2\n",
    "attention: latent\nn_heads: 4\nkv_lora_rank: 16\nd_nope: 8\nd_rope: 4\nd_v: 12\n",
)
ZOO = (
    MHA.replace("n_layers: 3", "n_layers: 8")
    + """\
pattern: [window, chunk, gate, full_norm, wide_values, latent, narrow_latent, mqa]
layer_kinds:
  window: { window: 7, n_kv_heads: 2, bias: true }
  chunk: { chunk: 6, n_kv_heads: 4, sinks: true }
  gate: { gate: true, n_kv_heads: 1, qk_norm: head }
  full_norm: { qk_norm: full, fused: true, bias: [q, k, v], n_kv_heads: 2 }
  wide_values: { d_head: 16, d_v: 40, n_kv_heads: 2 }
  latent: { attention: latent, kv_lora_rank: 32, d_nope: 16, d_rope: 8, d_v: 24 }
  narrow_latent: { attention: latent, kv_lora_rank: 32, q_lora_rank: 20, d_nope: 16, d_rope: 8, d_v: 16, window: 9 }
  mqa: { n_kv_heads: 1, d_head: 64, fused: true }
"""
)
MAMBA = "attention: mamba, d_inner: 48, d_state: 8, d_conv: 4, dt_rank: 3, conv_bias: true"
ENCODER = MHA.replace("sources:", "mask: bidirectional\nsources:")


def saved(text: str, folder: Path) -> str:
    """Write the model to a file and return its path."""
    path = folder / "model.yaml"
    path.write_text(text)
    return str(path)


def one_per_kind() -> tuple[str, ...]:
    """Return small presets of the catalogue that together have each kind of layer, with each of its
    options.
    """

    def kind_of(case: Case) -> tuple[str, ...]:
        kind = re.sub(r"\d+|0x\w+", "n", repr(case.kind))
        return case.kind.label, kind, case.mask.kind, case.stack.input

    models = {name: load(name) for name in CATALOGUE}
    kinds = {name: set(map(kind_of, cases(model))) for name, model in models.items()}
    sizes = {
        name: sum(g.attention_per_layer for g in params(model).groups)
        for name, model in models.items()
    }
    chosen = set[str]()
    missing = set[tuple[str, ...]]().union(*kinds.values())
    while missing:
        best = min(
            (n for n in CATALOGUE if kinds[n] & missing),
            key=lambda n: sizes[n] / len(kinds[n] & missing),
        )
        chosen.add(best)
        missing -= kinds[best]
    return tuple(name for name in CATALOGUE if name in chosen)
