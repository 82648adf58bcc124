"""Write tests/data/training/saved.json: what transformers' own classes save for the backward pass.

    python tools/training_oracle.py              (one config per model_type, about ten minutes)
    python tools/training_oracle.py gpt2 --full  (prints one of them, at its full number of layers)

Each class of tests/data/huggingface.json is trained for a step under torch's FakeTensorMode, at its true widths: with
as few layers as have all its kinds of layers, one config per model_type.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from attncalc import load
from attncalc.model import ModelSpec
from attncalc.verify import need_transformers

DATA = Path(__file__).parent.parent / "tests" / "data"
FILE = DATA / "training" / "saved.json"
BATCH, TOKENS, RECURRENT_TOKENS = 2, 64, 4
LIMIT = 60
"""Seconds for a class; recurrences that run token by token take longer."""


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
    held = {
        "parameters": plain.parameters,
        "gradients": plain.gradients,
        "states": plain.states,
        "rope": plain.rope_tables,
        "peak": plain.peak,
    }
    return {**row, **held}


def measured_elsewhere(name: str) -> dict[str, Any] | str:
    """Return what a process of its own measures, or why it did not: a class may take hours, or end its process."""
    try:
        run = subprocess.run(
            [sys.executable, __file__, name], capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return f"more than {LIMIT} s"
    if run.returncode:
        return (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1][:200]
    row: dict[str, Any] = json.loads(run.stdout)
    return row


def main() -> None:
    """Measure one class and print it, or measure all of them and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    need_transformers()
    configs = {name: row["config"] for name, row in json.loads((DATA / "huggingface.json").read_text()).items()}
    if arguments.name:
        sys.stdout.write(json.dumps(measure(configs[arguments.name], full=arguments.full)) + "\n")
        return
    families: dict[str, str] = {}
    for name, config in configs.items():
        families.setdefault(str(config.get("model_type")), name)
    found = {name: measured_elsewhere(name) for name in families.values()}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items() if isinstance(row, dict))
    refused = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    about = "python tools/training_oracle.py: bytes saved by layer ('' outside of layers), gradients, AdamW's moments"
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(f'{{"about": {json.dumps(about)},\n"refused": {json.dumps(refused)},\n"rows": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
