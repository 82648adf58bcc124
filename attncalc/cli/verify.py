"""`attncalc verify`: real torch layers on a device, measured and compared with the formulas."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..check import VerifyResult
from ..config import LIMIT, config_of, load, preset_names
from ..errors import AttncalcError, CannotCheckError, did_you_mean
from ..model import ModelSpec
from ..units import parse_count, truncate
from . import COMMANDS, command_app
from . import options as o

if TYPE_CHECKING:
    from ..report.verify import VerifiedModel
    from ..verify.options import VerifyOptions

    Verified = tuple[list[VerifiedModel], dict[str, object]]

app = command_app()

DeviceOption = Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 or mps.")]
Kernel = Annotated[
    str,
    typer.Option("--kernel", metavar="KERNEL", help="math, flash, efficient, cudnn, or all that the device runs."),
]
Seed = Annotated[str, typer.Option("--seed", metavar="N", help="Seed of the random weights and tokens.")]
Source = Annotated[
    str | None,
    typer.Option("--source-context", metavar="N", help="Tokens on the encoder's side. Default: the same as --context."),
]
Scaling = Annotated[
    bool, typer.Option("--scaling", help="Instead: measure time and peak memory over doubling contexts.")
]
Tp = Annotated[
    str,
    typer.Option(
        "--tp",
        "--tensor-parallel-size",
        metavar="N",
        help="Instead: split each layer over N GPUs, or processes on a CPU, and check what each rank holds.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="LIBRARY",
        help="Instead: build the class of a config.json in LIBRARY (transformers), without weights, and compare.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="DTYPE", help="fp32, fp16 or bf16. Default: as released; on a CPU fp32."),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        "-c",
        "--max-model-len",
        metavar="N",
        help="Tokens of context. Default: what the device runs quickly. Shortened if it does not fit.",
    ),
]


EPILOG = "Without a model: every preset, one line each. For example: attncalc verify --preset llama2-70b"


@app.command(help=COMMANDS["verify"], epilog=EPILOG)
def verify(
    model: o.Model = None,
    preset: o.Preset = None,
    device: DeviceOption = "auto",
    dtype: Dtype = None,
    batch: o.Batch = None,
    context: Context = None,
    source_context: Source = None,
    kernel: Kernel = "all",
    seed: Seed = "0",
    attention: o.AttentionOption = None,
    scaling: Scaling = False,
    tp: Tp = "1",
    against: Against = None,
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    from ..verify.options import VerifyOptions

    named = model is not None or preset is not None
    ranks = parse_count(tp, "--tp")
    sequences = None if batch is None else parse_count(batch, "--batch")
    tokens = None if context is None else parse_count(context, "--context")
    seed_number = _parse_seed(seed)
    if against is not None:
        changes = {"--attention": attention, "--kernel": kernel != "all", "--device": device != "auto"}
        _reject_with_against(
            against, named, {"--scaling": scaling, "--tp": ranks > 1, **changes, "--seed": seed_number}
        )
        verified, device_facts = _compare_with_transformers(model, preset, sequences, tokens, source_context, dtype)
    else:
        _reject_combinations(named, scaling, ranks, attention, source_context)
        specs = [o.read_model(model, preset, attention=attention)] if named else [load(n) for n in preset_names()]
        source = None if source_context is None else o.read_source(specs[0], source_context)
        options = VerifyOptions(
            batch=sequences or 1,
            context=tokens,
            source=source,
            dtype=dtype,
            kernel=kernel,
            seed=seed_number,
            scaling=scaling,
            tp=ranks,
            timed=named,
        )
        verified, device_facts = _verify_on_device(specs, options, device)

    from ..report.verify import catalogue_report, verify_report

    report = verify_report(verified[0], device_facts, ranks) if named else catalogue_report(verified, device_facts)
    o.show(report, explain=explain, form=format, as_json=json, output=output, force=force)
    if not all(check.ok for v in verified for check in v.result.checks):
        raise typer.Exit(1)
    if not all(v.result.checks for v in verified):
        raise typer.Exit(CannotCheckError.code)


def _parse_seed(text: str) -> int:
    """Return the seed. Raises AttncalcError if it is not one that torch takes."""
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    raise AttncalcError(
        f"--seed: '{truncate(text)}' is not a whole number from 0 to 2^63 - 1", "write a whole number, as --seed 7"
    )


def _verify_on_device(specs: list[ModelSpec], options: VerifyOptions, name: str) -> Verified:
    """Verify each model on the device called `name`.

    Of several models, one that cannot be verified gets no checks and a note. Raises CannotCheckError if a single model
    cannot be verified.
    """
    from ..verify import need_torch

    need_torch()
    from ..report.progress import progress
    from ..report.verify import VerifiedModel
    from ..verify.device import find_device
    from ..verify.programs import verify as run_program
    from ..verify.request import resolve

    device = find_device(name)
    verified = []
    with progress() as on_progress:
        for spec in specs:
            request = resolve(spec, options, device)
            try:
                result = run_program(spec, options, request, device, on_progress)
            except CannotCheckError as error:
                if len(specs) == 1:
                    raise
                result = VerifyResult((), skipped=(f"{error.message}.",), context=request.context)
            verified.append(VerifiedModel(spec, request.prefill(result.context), request.kernels, result))
    return verified, device.facts()


def _compare_with_transformers(
    model: str | None,
    preset: str | None,
    batch: int | None,
    context: int | None,
    source_context: str | None,
    dtype: str | None,
) -> Verified:
    """Compare a config.json's figures with the transformers class of it. Raises AttncalcError for a preset."""
    name = model or preset or ""
    if name == "-" and sys.stdin is not None:  # it is read twice: as a model, and for transformers
        sys.stdin = io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read(LIMIT + 1)))
    spec = o.read_model(model, preset)
    if name == "-":
        sys.stdin.buffer.seek(0)
    config = config_of(name)
    if config is None:
        raise AttncalcError(
            f"--against transformers needs a config.json, and '{truncate(name)}' has none",
            "give the model's config.json, a folder that contains it, or org/name on the hub",
        )
    from ..verify import need_transformers

    need_transformers()
    from ..report.progress import progress
    from ..report.verify import VerifiedModel
    from ..verify.transformers.check import compare_with_transformers, resolve_workload

    source = None if source_context is None else o.read_source(spec, source_context)
    workload = resolve_workload(spec, batch, context, source, dtype)
    with progress() as on_progress:
        comparison = compare_with_transformers(spec, config, workload, on_progress)
    return [VerifiedModel(spec, comparison.workload, (), comparison.result)], comparison.device_facts


def _reject_with_against(library: str, named: bool, others: dict[str, object]) -> None:
    """Raise AttncalcError if the library is unknown, the model is missing, or an option does not apply."""
    if library != "transformers":
        hint = did_you_mean(library, ["transformers"])
        raise AttncalcError(f"--against {truncate(library)} is not supported", f"{hint}known: transformers")
    if not named:
        raise AttncalcError("--against needs a model", "give a config.json, or a folder that contains one")
    for option, value in others.items():
        if value:
            raise AttncalcError(
                f"--against cannot be combined with {option}", f"leave out {option}: the class is built as it is"
            )


def _reject_combinations(
    named: bool, scaling: bool, ranks: int, attention: str | None, source_context: str | None
) -> None:
    """Raise AttncalcError if two programs are selected, or an option needs a model that is missing."""
    if scaling and ranks > 1:
        raise AttncalcError("--scaling cannot be combined with --tp", "give one of them")
    needs_model = {
        "--scaling": scaling,
        "--tp": ranks > 1,
        "--attention": attention,
        "--source-context": source_context,
    }
    for option, value in needs_model.items():
        if value and not named:
            raise AttncalcError(f"{option} needs a model", "give one, as in 'attncalc verify llama2-70b --scaling'")
