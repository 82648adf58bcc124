"""`attncalc verify`: real torch layers on the device at hand, measured beside what is predicted."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..check import Verified
from ..config import LIMIT, config_of, load, preset_names
from ..errors import AttncalcError, CannotCheckError, did_you_mean
from ..model import ModelSpec
from ..units import parse_count, truncate
from . import COMMANDS, command_app
from . import options as o

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..report.report import Report
    from ..verify.device import Device as Place
    from ..verify.subject import Asked

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
AgainstOption = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="LIBRARY",
        help="Instead: transformers, whose own class of a config.json is built without weights and compared.",
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
    against: AgainstOption = None,
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    ranks = parse_count(tp, "--tp")
    named = model is not None or preset is not None
    sizes = (
        None if batch is None else parse_count(batch, "--batch"),
        None if context is None else parse_count(context, "--context"),
    )
    if against is not None:
        changed = {"--attention": attention, "--kernel": kernel != "all", "--device": device != "auto", "--seed": seed}
        others = {"--scaling": scaling, "--tp": ranks > 1, **changed}
        _refuse(against, named, [option for option, given in others.items() if given])
        held = _held_against(model, preset, *sizes, source_context, dtype)
        o.show(held, explain=explain, form=format, as_json=json, output=output, force=force)
        raise typer.Exit(0 if all(check.ok for check in held.checks) else 1)
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

    source = None if source_context is None else o.read_source(specs[0], source_context)
    options = Options(sizes[0] or 1, sizes[1], source, dtype, kernel, seed)
    here = find(device)
    way = "scaling" if scaling else "parallel" if ranks > 1 else "model"
    runs = []
    with progress() as tell:
        for spec in specs:
            question = asked(spec, options, here, way)
            try:
                found = _found(spec, question, here, ranks, scaling=scaling, timed=named, tell=tell)
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


def _found(
    spec: ModelSpec,
    question: Asked,
    here: Place,
    ranks: int,
    *,
    scaling: bool,
    timed: bool,
    tell: Callable[[str], None],
) -> Verified:
    """One model verified in the way asked for."""
    from ..verify.parallel import verify_parallel
    from ..verify.run import verify_model
    from ..verify.scaling import verify_scaling

    if scaling:
        return verify_scaling(spec, question, here, tell=tell)
    if ranks > 1:
        return verify_parallel(spec, ranks, question, here, tell=tell)
    return verify_model(spec, question, here, timed=timed, tell=tell)


def _refuse(against: str, named: bool, others: list[str]) -> None:
    """AttncalcError: no such library to hold figures against, no model, or an option that changes the model."""
    if against != "transformers":
        hint = did_you_mean(against, ["transformers"])
        raise AttncalcError(
            f"--against {truncate(against)}: there is no such library here", f"{hint}known: transformers"
        )
    if not named:
        raise AttncalcError("--against without a model", "name a config.json, or a folder that holds one")
    if others:
        raise AttncalcError(f"--against with {others[0]}", "the class is built as it is, on no device: ask for one")


def _held_against(
    model: str | None,
    preset: str | None,
    batch: int | None,
    context: int | None,
    source: str | None,
    dtype: str | None,
) -> Report:
    """The figures of a config.json's model beside those of transformers' own class. AttncalcError: it is a preset."""
    name = model or preset or ""
    if name == "-" and sys.stdin is not None:  # it is read twice: as a model, and as what transformers takes
        sys.stdin = io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read(LIMIT + 1)))
    spec = o.read_model(model, preset)
    if name == "-":
        sys.stdin.buffer.seek(0)
    config = config_of(name)
    if config is None:
        raise AttncalcError(
            f"--against transformers: '{truncate(name)}' has no config.json to build a class from",
            "give the model's config.json, a folder that holds it, or org/name on the hub",
        )
    from ..verify import need_transformers

    need_transformers()
    from ..report.progress import progress
    from ..report.verify import Run, verify_report
    from ..verify.against import asked_of, verify_against

    read = None if source is None else o.read_source(spec, source)
    asked = asked_of(spec, batch, context, read, dtype)
    with progress() as tell:
        held = verify_against(spec, config, asked, tell)
    return verify_report(Run(spec, held.workload, (), held.found), held.facts)
