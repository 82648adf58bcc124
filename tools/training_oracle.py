"""Write tests/data/training/saved.json: what transformers' own classes save for the backward pass.

    python tools/training_oracle.py              (one config per model_type, four minutes of processor time)
    python tools/training_oracle.py gpt2 --full  (prints one of them, at its full number of layers)

Each class of tests/data/huggingface.json is trained for a step under torch's FakeTensorMode, at its true widths: with
as few layers as have all its kinds of layers, one config per model_type.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
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
"""Seconds of processor time for a class; recurrences that run token by token take longer."""


def spec_of(config: dict[str, Any]) -> ModelSpec:
    """Return the model that attncalc makes of a config."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        return load(path)


def measure(config: dict[str, Any], *, full: bool) -> dict[str, Any]:
    """Return what each layer of a class saves, '' outside of layers. Raises any error of attncalc or of the class."""
    import torch

    from attncalc.verify.training.layers import few_layers, shortened
    from attncalc.verify.transformers.check import is_recurrent
    from attncalc.verify.transformers.training import training_step

    spec = spec_of(config)
    layers = few_layers(spec)
    if not full:
        config = shortened(config, layers)
    tokens = RECURRENT_TOKENS if any(map(is_recurrent, spec.main.layers)) else TOKENS
    plain, recomputed, eager = (
        training_step(config, torch.bfloat16, spec.head, BATCH, tokens, peak=False, **way)
        for way in ({}, {"recompute": True}, {"eager": True})
    )
    row = {
        "class": plain.name,
        "layers": layers,
        "attention": plain.attention,
        "batch": BATCH,
        "tokens": tokens,
        "flash": sorted(plain.flash),
        "saved": plain.saved_by_layer(),
        "saved_recompute": recomputed.saved_by_layer(),
    }
    return row if plain.attention == "eager" else {**row, "saved_eager": eager.saved_by_layer()}


def measured_elsewhere(config: dict[str, Any]) -> dict[str, Any] | str:
    """Return what a fork of this process measures, or why it does not: a class may take hours, or end its process."""
    import resource

    with tempfile.TemporaryFile("w+") as answer:
        process = os.fork()
        if process == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
            try:
                found: dict[str, Any] | str = measure(config, full=False)
            except Exception as error:
                message = (str(error).splitlines() or [""])[0].rpartition("config.json: ")[2]
                found = f"{type(error).__name__}: {message}"[:200]
            json.dump(found, answer)
            answer.flush()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code:
            return f"more than {LIMIT} s" if -code in (signal.SIGXCPU, signal.SIGKILL) else f"exit code {code}"
        answer.seek(0)
        row: dict[str, Any] | str = json.load(answer)
        return row


def main() -> None:
    """Measure one class and print it, or measure all of them and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    need_transformers()
    configs = {name: row["config"] for name, row in json.loads((DATA / "huggingface.json").read_text()).items()}
    if arguments.name:
        sys.stdout.write(json.dumps(measure(configs[arguments.name], full=arguments.full)) + "\n")
        return
    import attncalc.verify.transformers.training  # noqa: F401 - imported once for all forks

    families: dict[str, str] = {}
    for name, config in configs.items():
        families.setdefault(str(config.get("model_type")), name)
    found = {name: measured_elsewhere(configs[name]) for name in families.values()}
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items() if isinstance(row, dict))
    refused = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    about = "python tools/training_oracle.py: bytes saved by layer, '' outside of layers with RoPE's tables"
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(f'{{"about": {json.dumps(about)},\n"refused": {json.dumps(refused)},\n"rows": {{\n{rows}\n}}}}\n')


if __name__ == "__main__":
    main()
