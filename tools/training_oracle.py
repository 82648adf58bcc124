"""Write tests/data/training/saved.json: what transformers' own classes save for the backward pass.

    python tools/training_oracle.py                   (one config per model_type, ten minutes of
    processor time) python tools/training_oracle.py mixtral           (prints what its layers save
    and the formulas do not count) python tools/training_oracle.py mixtral --eager   (with eager
    attention) python tools/training_oracle.py --only mixtral    (measures its row again)

Each class is trained for a step under torch's FakeTensorMode, at its true widths: with as few
layers as have all its kinds of layers. Its config is the first of its model_type in
tests/data/huggingface.json and real-configs.json, or the class's own defaults.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from attncalc import load
from attncalc.config.huggingface.fields import config_class
from attncalc.model import ModelSpec
from attncalc.verify import need_transformers

DATA = Path(__file__).parent.parent / "tests" / "data"
FILE = DATA / "training" / "saved.json"
RELEASED: dict[str, Any] = {
    **json.loads((DATA / "huggingface.json").read_text()),
    **{row["name"]: row for row in json.loads((DATA / "real-configs.json").read_text())},
}
BATCH = 2
TOKENS = 64
# Rows of one sequence, whose heads are not copied, of several blocks of lightning attention, and of
# other layers.
OF_OTHER_SIZES = (
    *(
        f"{name}, 1 x 64"
        for name in (
            "gpt2",
            "phi-3-mini-4k",
            "santacoder",
            "pythia-6.9b",
            "minicpm3-4b",
            "falcon-7b",
        )
    ),
    "recurrent_gemma, 1 x 16",
    "minimax-text-01, 1 x 300",
    "minimax-text-01, 2 x 600",
    "kaito__nemotron-3-nano-30b-a3b-config",
)
# Seconds of processor time for a class; recurrences that run token by token take longer.
LIMIT = 60


def spec_of(config: dict[str, Any]) -> ModelSpec:
    """Return the model that attncalc makes of a config."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        return load(path)


def config_of(name: str) -> dict[str, Any]:
    """Return the config of a row: one of a release, or the defaults of the class of a
    model_type.
    """
    name = name.partition(",")[0]
    released = RELEASED.get(name)
    if released:
        return dict(released["config"])
    known = config_class(name)
    return {"model_type": name, **(known.defaults if known else {})}


def names() -> list[str]:
    """Return the names of one row per model_type: released configs, then other causal models of
    transformers.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    found: dict[str, str] = {}
    for name, row in RELEASED.items():
        found.setdefault(str(row["config"].get("model_type")), name)
    return [
        *found.values(),
        *(name for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES if name not in found),
    ]


def print_tensors(config: dict[str, Any], *, eager: bool) -> None:
    """Print the tensors that each kind of layer saves and the formulas do not count (+), or the
    reverse (-).
    """
    import torch

    from attncalc.cost.training.activations import stage_saved
    from attncalc.verify.training.checks import size_on, training_run
    from attncalc.verify.transformers.training import layer_path, training_step
    from attncalc.verify.transformers.training_check import (
        few_layers,
        layer_groups,
        leading,
        shortened,
    )

    spec = spec_of(config)
    layers = few_layers(spec)
    step = training_step(
        shortened(config, layers), torch.bfloat16, spec.head, BATCH, TOKENS, peak=False, eager=eager
    )
    kernel: Any = "flash" if step.flash else "math" if step.attention == "sdpa" else "eager"
    short = leading(spec, layers)
    run = training_run(short, BATCH, TOKENS, "bf16", kernel)
    whole = stage_saved(run, run.stages[0], run.stages[0].model.plain())
    size = size_on("cpu", run)
    of_group = {s.group: [(t.name, int(size(t))) for t in s.kept] for s in whole.layers}
    expected = [of_group[group] for group in layer_groups(short)]
    sys.stdout.write(f"{step.name}, {step.attention}, formulas of {kernel}\n")
    shown: set[str] = set()
    for layer, path in enumerate(path for path in step.saved_by_layer() if path):
        left = list(expected[layer])
        lines = []
        for tensor in step.saved:
            if layer_path(tensor.path) != path:
                continue
            match = next((known for known in left if known[1] == tensor.bytes), None)
            if match:
                left.remove(match)
            else:
                lines.append(f"  + {tensor.bytes:,} {tensor.name.removeprefix(path)}")
        lines += [f"  - {known[1]:,} {known[0]}" for known in left]
        if (text := "\n".join(lines)) not in shown:
            sys.stdout.write(f"{path}: {whole.layers[0].group if not lines else ''}\n{text}\n")
        shown.add(text)


def measure(config: dict[str, Any], size: str = "") -> dict[str, Any]:
    """Return what each layer of a class saves, '' outside of layers. Raises any error of attncalc
    or of the class.
    """
    import torch

    from attncalc.verify.transformers.training import training_step
    from attncalc.verify.transformers.training_check import few_layers, layers_of_one, shortened

    spec = spec_of(config)
    layers = few_layers(spec)
    config = shortened(config, layers // layers_of_one(spec, config))
    batch, tokens = map(int, size.split(" x ")) if size else (BATCH, TOKENS)
    plain, recomputed, eager = (
        training_step(config, torch.bfloat16, spec.head, batch, tokens, peak=False, **way)
        for way in ({}, {"recompute": True}, {"eager": True})
    )
    row = {
        "class": plain.name,
        "layers": layers,
        "attention": plain.attention,
        "batch": batch,
        "tokens": tokens,
        "flash": sorted(plain.flash),
        "rope_tables": plain.rope_tables,
        "saved": plain.saved_by_layer(),
        "saved_recompute": recomputed.saved_by_layer(),
    }
    if plain.attention == "eager":
        return row
    return {**row, "saved_eager": eager.saved_by_layer()}


def measured_elsewhere(name: str) -> dict[str, Any] | str:
    """Return what a fork of this process measures, or why it does not: a class may take hours, or
    end its process.
    """
    import resource

    with tempfile.TemporaryFile("w+") as answer:
        process = os.fork()
        if process == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 1))
            try:
                found: dict[str, Any] | str = measure(config_of(name), name.partition(", ")[2])
            except Exception as error:
                message = (str(error).splitlines() or [""])[0].rpartition("config.json: ")[2]
                found = f"{type(error).__name__}: {message}"[:200]
            json.dump(found, answer)
            answer.flush()
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if code:
            if -code in (signal.SIGXCPU, signal.SIGKILL):
                return f"more than {LIMIT} s"
            return f"exit code {code}"
        answer.seek(0)
        row: dict[str, Any] | str = json.load(answer)
        return row


def main() -> None:
    """Compare one class with the formulas and print it, or measure all of them and write the
    file.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="a model_type, or the name of a config")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="the rows of the file to measure again"
    )
    arguments = parser.parse_args()
    need_transformers()
    if arguments.name:
        print_tensors(config_of(arguments.name), eager=arguments.eager)
        return
    import attncalc.verify.transformers.training  # noqa: F401 - imported once for all forks

    if arguments.only:
        before = json.loads(FILE.read_text())
    else:
        before = {"rows": {}, "refused": {}}
    found = {**before["refused"], **before["rows"]}
    found |= {
        name: measured_elsewhere(name) for name in arguments.only or (*names(), *OF_OTHER_SIZES)
    }
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(row)}"
        for name, row in found.items()
        if isinstance(row, dict)
    )
    refused = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    about = (
        "python tools/training_oracle.py: bytes saved by layer, '' outside of layers with RoPE's "
        "tables"
    )
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(
        f'{{"about": {json.dumps(about)},\n"refused": {json.dumps(refused)},\n"rows": {{\n'
        f"{rows}\n}}}}\n"
    )


if __name__ == "__main__":
    main()
