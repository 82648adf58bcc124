"""Write tests/data/training/saved.json: what transformers' own classes save for the backward pass.

    python tools/training_oracle.py              (all configs, about ten minutes)
    python tools/training_oracle.py gpt2 --full  (some of them, at their full number of layers, printed only)

Each class of tests/data/huggingface.json is trained for a step under torch's FakeTensorMode, at its true widths: with
as few layers as have all its kinds of layers, one config per model_type.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attncalc import load
from attncalc.model import ModelSpec
from attncalc.verify import need_transformers

DATA = Path(__file__).parent.parent / "tests" / "data"
FILE = DATA / "training" / "saved.json"
BATCH, TOKENS, RECURRENT_TOKENS = 2, 64, 4
LIMIT = 30
"""Seconds for a class; recurrences that run token by token take longer."""


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


def spec_of(config: dict[str, Any]) -> ModelSpec:
    """Return the model that attncalc makes of a config."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        return load(path)


def measure(config: dict[str, Any], *, full: bool) -> dict[str, Any]:
    """Return what a class saves and holds. Raises any error of attncalc or of the class."""
    import torch

    from attncalc.verify.training.layers import few_layers, shortened
    from attncalc.verify.transformers.check import is_recurrent
    from attncalc.verify.transformers.training import training_step

    spec = spec_of(config)
    layers = few_layers(spec)
    if not full:
        config = shortened(config, layers)
    tokens = RECURRENT_TOKENS if any(map(is_recurrent, spec.main.layers)) else TOKENS
    steps = {
        "": training_step(config, torch.bfloat16, spec.head, BATCH, tokens),
        "recompute": training_step(config, torch.bfloat16, spec.head, BATCH, tokens, recompute=True, peak=False),
        "eager": training_step(config, torch.bfloat16, spec.head, BATCH, tokens, eager=True, peak=False),
    }
    plain = steps[""]
    row: dict[str, Any] = {
        "class": plain.name,
        "layers": layers,
        "attention": plain.attention,
        "batch": BATCH,
        "tokens": tokens,
    }
    row["flash"] = sorted(plain.flash)
    for name, step in steps.items():
        if name != "eager" or plain.attention != "eager":
            row[f"saved_{name}" if name else "saved"] = step.saved_by_layer()
    held = {"parameters": plain.parameters, "gradients": plain.gradients, "states": plain.states, "peak": plain.peak}
    return {**row, **held}


def main() -> None:
    """Measure, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    need_transformers()
    signal.signal(signal.SIGALRM, _too_long)
    configs = {name: row["config"] for name, row in json.loads((DATA / "huggingface.json").read_text()).items()}
    families: dict[str, str] = {}
    for name, config in configs.items():
        families.setdefault(str(config.get("model_type")), name)
    rows: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name in arguments.names or families.values():
        started = time.monotonic()
        signal.alarm(0 if arguments.full else LIMIT)
        try:
            rows[name] = measure(configs[name], full=arguments.full)
        except Exception as error:  # the class may raise anything
            refused[name] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
        signal.alarm(0)
        outcome = refused.get(name) or rows[name]["saved"]
        sys.stderr.write(f"{name} {time.monotonic() - started:.1f} s {outcome}\n")
    about = (
        "python tools/training_oracle.py; bytes saved by layer ('' outside of layers), of gradients, AdamW's moments"
    )
    text = json.dumps({"about": about, "rows": rows, "refused": refused})
    if arguments.names:
        sys.stdout.write(text + "\n")
        return
    FILE.parent.mkdir(exist_ok=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    FILE.write_text(f'{{"about": {json.dumps(about)},\n"refused": {json.dumps(refused)},\n"rows": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
