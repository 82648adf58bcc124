"""`attncalc verify`: real torch layers on the device at hand, measured beside what is predicted."""

from __future__ import annotations

from typing import Annotated

import typer

from ..check import Verified
from ..config import load, preset_names
from ..errors import AttncalcError, CannotCheckError
from ..units import parse_count
from . import COMMANDS, command_app
from . import options as o

app = command_app()

Device = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 or mps.")]
Kernel = Annotated[
    str, typer.Option("--kernel", metavar="KERNEL", help="math, flash, efficient, cudnn, or all that run.")
]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="Of the random weights and tokens.", min=0, max=2**63 - 1)
]
Source = Annotated[
    str | None,
    typer.Option("--source-context", metavar="N", help="Tokens on the encoder's side. Default: as --context."),
]
Scaling = Annotated[
    bool, typer.Option("--scaling", help="Instead: time and memory over doubling contexts, up to --context.")
]
Tp = Annotated[
    str,
    typer.Option(
        "--tp",
        "--tensor-parallel-size",
        metavar="N",
        help="Instead: split each layer over N processes (a GPU each, or CPU), and check each one's part.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="DTYPE", help="fp32, fp16 or bf16. Default: as released, on a CPU fp32."),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        "-c",
        "--max-model-len",
        metavar="N",
        help="Tokens of context. Default: what the device does quickly; cut to what fits.",
    ),
]


EPILOG = "Without a model: every preset, one line each. For example: attncalc verify --preset llama2-70b"


@app.command(help=COMMANDS["verify"], epilog=EPILOG)
def verify(
    model: o.Model = None,
    preset: o.Preset = None,
    device: Device = "auto",
    dtype: Dtype = None,
    batch: o.Batch = None,
    context: Context = None,
    source_context: Source = None,
    kernel: Kernel = "all",
    seed: Seed = 0,
    attention: o.AttentionOption = None,
    scaling: Scaling = False,
    tp: Tp = "1",
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    ranks = parse_count(tp, "--tp")
    named = model is not None or preset is not None
    if scaling and ranks > 1:
        raise AttncalcError("--scaling with --tp", "ask for one of them")
    if not named and (scaling or ranks > 1 or attention or source_context):
        raise AttncalcError("no model", "name one, as in 'attncalc verify llama2-70b --scaling'")
    specs = [o.read_model(model, preset, attention=attention)] if named else [load(name) for name in preset_names()]

    from ..verify import need_torch

    need_torch()
    from ..report.progress import progress
    from ..report.verify import Run, catalogue_report, verify_report
    from ..verify.ask import Options, asked
    from ..verify.device import find
    from ..verify.parallel import verify_parallel
    from ..verify.run import verify_model
    from ..verify.scaling import verify_scaling

    options = Options(
        1 if batch is None else parse_count(batch, "--batch"),
        None if context is None else parse_count(context, "--context"),
        None if source_context is None else o.read_source(specs[0], source_context),
        dtype,
        kernel,
        seed,
    )
    here = find(device)
    way = "scaling" if scaling else "parallel" if ranks > 1 else "model"
    runs = []
    with progress() as tell:
        for spec in specs:
            question = asked(spec, options, here, way)
            try:
                if scaling:
                    found = verify_scaling(spec, question, here, tell=tell)
                elif ranks > 1:
                    found = verify_parallel(spec, ranks, question, here, tell=tell)
                else:
                    found = verify_model(spec, question, here, timed=named, tell=tell)
            except CannotCheckError as error:
                if named:
                    raise
                found = Verified((), skipped=(f"{error.message}.",), context=question.context)
            runs.append(Run(spec, question.workload(found.context), question.kernels, found))
    report = verify_report(runs[0], here.facts(), ranks) if named else catalogue_report(runs, here.facts())
    o.show(report, explain=explain, form=format, as_json=json, output=output, force=force)
    if not all(check.ok for run in runs for check in run.found.checks):
        raise typer.Exit(1)
    if not all(run.found.checks for run in runs):
        raise typer.Exit(CannotCheckError.code)
