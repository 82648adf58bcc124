"""`attncalc verify`: real torch layers on a device, measured and compared with the formulas."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from ..api.inputs import read_model, read_source
from ..api.options import ModelOptions, SizeOptions
from ..check import VerifyResult
from ..config import load, load_with_config
from ..config.gpus import gpu
from ..errors import AttncalcError, CannotCheckError, NotSupportedError, did_you_mean
from ..model import ModelSpec
from ..units import parse_count, parse_decimal, truncate
from . import COMMANDS
from . import options as o
from .catalogue import CATALOGUE
from .command import Options, command_app
from .plot_options import PlotOptions
from .verify_compare import compare

if TYPE_CHECKING:
    from ..report.verify import VerifiedModel
    from ..verify.devices import Device
    from ..verify.options import VerifyOptions


app = command_app()


class Verified(NamedTuple):
    """What was verified.

    Attributes:
        models: the models that were reached, in the order in which they were asked for.
        device: the device as plain data.
        unreached: the names of the others.
        ended: the interrupt or the error that ended it early.
    """

    models: list[VerifiedModel]
    device: dict[str, object]
    unreached: Sequence[str] = ()
    ended: KeyboardInterrupt | AttncalcError | None = None


INTERRUPTED = 130
"""The exit code after Ctrl-C."""
SMOKE_MODEL, SMOKE_CONTEXT, SMOKE_MINUTES = "gpt2", 64, 0.5
"""The preset that --smoke runs, its tokens, and its time."""
MAX_MINUTES = 366 * 24 * 60
"""The largest --minutes."""


class DeviceOptions(Options):
    """The device, and the dtype of the layers on it."""

    device: Annotated[str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1, xpu or mps.")] = (
        "auto"
    )
    simulate: Annotated[
        o.Text,
        o.option(
            "--simulate",
            metavar="GPU",
            help="Instead of a device: check shapes and memory on a GPU that is not there: cuda, or a GPU's name.",
        ),
    ] = None
    dtype: Annotated[
        o.Text, o.option("--dtype", metavar="DTYPE", help="fp32, fp16 or bf16. Default: as released; on a CPU fp32.")
    ] = None


class VerifySizeOptions(Options):
    """The number of sequences and of tokens. The default context depends on the device."""

    batch: Annotated[o.Text, o.declared(SizeOptions, "batch")] = None
    context: Annotated[
        o.Text,
        o.option(
            "--context",
            "-c",
            "--max-model-len",
            metavar="N",
            help="Tokens of context. Default: what the device runs quickly. Shortened if it does not fit.",
        ),
    ] = None
    source_context: Annotated[
        o.Text,
        o.option("--source-context", metavar="N", help="Tokens on the encoder's side. Default: the same as --context."),
    ] = None

    def batch_size(self) -> int | None:
        """Return --batch, or None. Raises AttncalcError if it is not a number."""
        return None if self.batch is None else parse_count(self.batch, "--batch")

    def tokens(self) -> int | None:
        """Return --context, or None. Raises AttncalcError if it is not a number."""
        return None if self.context is None else parse_count(self.context, "--context")

    def source_tokens(self, model: ModelSpec) -> int | None:
        """Return --source-context, or None. Raises AttncalcError if the model has no encoder."""
        return None if self.source_context is None else read_source(model, self.source_context)


class LayerOptions(Options):
    """The layers that are run, and the kernels."""

    kernel: Annotated[
        str,
        typer.Option(
            "--kernel",
            metavar="KERNEL",
            help="math, flash, efficient, cudnn, flex, flash_attn2, flash_attn3, or all that the device runs.",
        ),
    ] = "all"
    seed: Annotated[str, typer.Option("--seed", metavar="N", help="Seed of the random weights and tokens.")] = "0"
    attention: Annotated[o.Text, o.declared(ModelOptions, "attention")] = None

    def seed_number(self) -> int:
        """Return --seed. Raises AttncalcError if torch does not take it."""
        if self.seed.isascii() and self.seed.isdigit() and len(self.seed) < 20 and int(self.seed) < 2**63:
            return int(self.seed)
        raise AttncalcError(
            f"--seed: '{truncate(self.seed)}' is not a whole number from 0 to 2^63 - 1",
            "write a whole number, as --seed 7",
        )


class ProgramOptions(Options):
    """What is measured instead of single layers."""

    smoke: Annotated[
        bool,
        typer.Option(
            "--smoke", help="Instead: a check of 30 seconds on any device, with a line to paste into an issue."
        ),
    ] = False
    scaling: Annotated[
        bool, typer.Option("--scaling", help="Instead: measure time and peak memory over doubling contexts.")
    ] = False
    tp: Annotated[
        str,
        o.option(
            "--tp",
            "--tensor-parallel-size",
            metavar="N",
            help="Instead: split each layer over N GPUs, or processes on a CPU, and check what each rank holds.",
        ),
    ] = "1"
    against: Annotated[
        o.Text,
        o.option(
            "--against",
            metavar="LIBRARY",
            help="Instead: build the class of a config.json in LIBRARY (transformers), without weights, and compare.",
        ),
    ] = None

    minutes: Annotated[
        o.Text,
        o.option(
            "--minutes",
            metavar="N",
            help="Time that it may take: contexts are shortened. Default: 1; 10 without a model and for --record.",
        ),
    ] = None

    def minutes_or(self, default: float) -> float:
        """Return --minutes, or the default. Raises AttncalcError if it is not a number of at most a year."""
        if self.minutes is None:
            return default
        try:
            minutes, parts = parse_decimal(self.minutes, "--minutes", upper=MAX_MINUTES)
        except AttncalcError as error:
            raise AttncalcError(error.message, "write a number of minutes: 10, or 0.5 for 30 seconds") from None
        return minutes / parts

    def ranks(self) -> int:
        """Return --tp. Raises AttncalcError if it is not a number."""
        return parse_count(self.tp, "--tp")


class RecordOptions(Options):
    """The folder of a record, or two records to compare."""

    record: Annotated[
        Path | None,
        o.option(
            "--record",
            metavar="DIR",
            help="Instead: measure what the device can do in --minutes, and write a page and its JSON into DIR.",
        ),
    ] = None
    compare: Annotated[
        tuple[Path, Path] | None,
        o.option("--compare", metavar="A.json B.json", help="Instead: put two records side by side."),
    ] = None


class VerifyOutputOptions(o.OutputOptions):
    """Where the report goes, and how much of it is shown."""

    full: Annotated[bool, typer.Option("--full", help="Show every check, and every note on what was not checked.")] = (
        False
    )


EPILOG = f"Without a model: {len(CATALOGUE)} presets, one line each. For example: attncalc verify --preset llama2-70b"


@app.command(help=COMMANDS["verify"], epilog=EPILOG)
def verify(
    model: o.NamedModelOptions,
    device: DeviceOptions,
    size: VerifySizeOptions,
    layers: LayerOptions,
    program: ProgramOptions,
    record: RecordOptions,
    plot: PlotOptions,
    output: VerifyOutputOptions,
) -> None:
    plot.check(output, excludes={"--record": record.record is not None})
    if plot.plot is not None and not program.scaling:
        raise AttncalcError("--plot needs --scaling", "it draws measured points on predicted lines")
    from ..verify.options import CATALOGUE_MINUTES, DEFAULT_MINUTES, VerifyOptions
    from ..verify.ranks import check_torchrun, torchrun_rank

    check_torchrun(program.ranks())
    if record.compare is not None:
        tip = "--compare reads two records and runs nothing"
        _check_alone("--compare", {"compare"}, tip, (model, device, size, layers, program, record))
        raise typer.Exit(compare(record.compare, output, full=output.full))
    if program.smoke:
        _smoke(model, device, size, layers, program, record, output)
        return
    if record.record is not None:
        raise typer.Exit(_write_record(record.record, model, device, size, layers, program, output))

    ranks, batch, context = program.ranks(), size.batch_size(), size.tokens()
    if program.against is not None:
        _check_against(program.against, model, device, layers, program)
        verified = _compare_with_transformers(model.name(), size, device.dtype)
    else:
        _check_combinations(model, size, layers, program)
        _check_simulate(device, layers, program)
        if model.is_given:
            specs = [read_model(model.name(), {"attention": layers.attention})]
        else:
            specs = [load(name) for name in CATALOGUE]
        options = VerifyOptions(
            batch=batch or 1,
            context=context,
            source=size.source_tokens(specs[0]),
            dtype=device.dtype,
            kernel=layers.kernel,
            seed=layers.seed_number(),
            scaling=program.scaling,
            tp=ranks,
            timed=model.is_given,
            minutes=program.minutes_or(DEFAULT_MINUTES if model.is_given else CATALOGUE_MINUTES),
        )
        verified = _run(specs, options, _device(device))
        if (rank := torchrun_rank()) and rank.number:
            return  # rank 0 has the same result, writes it, and exits with its code

    from ..report.verify import catalogue_report, verify_report

    if model.is_given:
        plot.write(verify_report(verified.models[0], verified.device, ranks, full=output.full), output)
    else:
        output.show(catalogue_report(verified.models, verified.device, verified.unreached, full=output.full))
    _end(verified)


def _end(verified: Verified) -> None:
    """End with the exit code of what was verified, or with the error that ended it."""
    if verified.ended is not None:
        raise typer.Exit(INTERRUPTED) if isinstance(verified.ended, KeyboardInterrupt) else verified.ended
    if not all(check.ok for v in verified.models for check in v.result.checks):
        raise typer.Exit(1)
    if verified.unreached or not all(v.result.checks for v in verified.models):
        raise typer.Exit(CannotCheckError.code)


def _check_alone(program: str, allowed: Collection[str], tip: str, groups: Sequence[Options]) -> None:
    """Raise AttncalcError if an option of the groups that is not `allowed` has another value than its default.

    In the tip, {option} is the option.
    """
    for group in groups:
        for name in (parameter.name for parameter in group.parameters()):
            if name not in allowed and getattr(group, name) != getattr(type(group), name):
                option = "a model" if name in ("model", "preset") else f"--{name.replace('_', '-')}"
                raise AttncalcError(f"{program} cannot be combined with {option}", tip.format(option=option))


def _smoke(
    model: o.NamedModelOptions,
    device: DeviceOptions,
    size: VerifySizeOptions,
    layers: LayerOptions,
    program: ProgramOptions,
    record: RecordOptions,
    output: VerifyOutputOptions,
) -> None:
    """Check a small model soon, with a line to paste. Raises AttncalcError for an option that --smoke does not take."""
    tip = "it chooses the model and its size; it takes --device, --dtype, --kernel and --seed"
    allowed = {"smoke", "device", "dtype", "kernel", "seed"}
    _check_alone("--smoke", allowed, tip, (model, size, layers, program, device, record))
    from ..verify.options import VerifyOptions

    options = VerifyOptions(
        context=SMOKE_CONTEXT,
        dtype=device.dtype,
        kernel=layers.kernel,
        seed=layers.seed_number(),
        timed=False,
        minutes=SMOKE_MINUTES,
    )
    found = _device(device)
    from ..report.verify import smoke_line, verify_report
    from ..verify.record.machine import machine_facts, main_dtype

    verified = _run([load(SMOKE_MODEL)], options._replace(dtype=options.dtype or main_dtype(found)), found)
    line = smoke_line(verified.models[0], machine_facts(found))
    output.show(verify_report(verified.models[0], verified.device, full=output.full, to_paste=line))
    _end(verified)


def _write_record(
    folder: Path,
    model: o.NamedModelOptions,
    device: DeviceOptions,
    size: VerifySizeOptions,
    layers: LayerOptions,
    program: ProgramOptions,
    output: VerifyOutputOptions,
) -> int:
    """Write a record and return the exit code. Raises AttncalcError if an option cannot be combined with --record."""
    from ..verify.options import VerifyOptions
    from .verify_record import MINUTES, write_record

    tip = "--record chooses models and sizes itself; it takes --device, --dtype, --kernel, --seed and --minutes"
    allowed = {"device", "dtype", "kernel", "seed", "minutes", "force"}
    _check_alone("--record", allowed, tip, (model, size, layers, program, device, output))
    base = VerifyOptions(dtype=device.dtype, kernel=layers.kernel, seed=layers.seed_number())
    return write_record(folder, device.device, base, program.minutes_or(MINUTES), force=output.force)


def _device(chosen: DeviceOptions) -> Device:
    """Return the chosen device, or a simulated one. Raises CannotCheckError if this machine has none, or no torch."""
    from ..verify import need_torch

    need_torch()
    from ..verify.devices import find_device, simulated_device

    if chosen.simulate is None:
        return find_device(chosen.device)
    return simulated_device(None if chosen.simulate == "cuda" else gpu(chosen.simulate))


def _run(specs: list[ModelSpec], options: VerifyOptions, device: Device) -> Verified:
    """Verify each model on a device.

    Of several models, one that cannot be verified gets no checks and a note, and one that the time does not reach is
    left out. Raises CannotCheckError if a single model cannot be verified, or nothing was before the device failed.
    """
    from ..report.progress import progress
    from ..report.verify import VerifiedModel
    from ..verify.errors import DeviceFailedError
    from ..verify.programs.several import verify_several
    from ..verify.progress import Progress
    from ..verify.request import resolve
    from .verify_record import with_datasheet

    asked = [(spec, resolve(spec, options, device)) for spec in specs]
    results: dict[int, VerifyResult] = {}
    ended: KeyboardInterrupt | AttncalcError | None = None
    with progress() as show:
        try:
            for i, result in verify_several(asked, device, Progress(show)):
                results[i] = result
        except (KeyboardInterrupt, DeviceFailedError) as error:
            ended = error
    if ended is not None and not results:
        if isinstance(ended, KeyboardInterrupt):
            sys.stderr.write("interrupted: nothing was measured\n")
            raise typer.Exit(INTERRUPTED)
        raise ended
    verified = [
        VerifiedModel(spec, request.prefill(results[i].context), request.kernels, results[i])
        for i, (spec, request) in enumerate(asked)
        if i in results
    ]
    return Verified(
        verified, with_datasheet(device.facts()), [spec.name for i, spec in enumerate(specs) if i not in results], ended
    )


def _compare_with_transformers(name: str, size: VerifySizeOptions, dtype: str | None) -> Verified:
    """Compare the figures of a config.json with the transformers class of it. Raises AttncalcError for a preset."""
    spec, config = load_with_config(name)
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

    workload = resolve_workload(spec, size.batch_size(), size.tokens(), size.source_tokens(spec), dtype)
    with progress() as on_progress:
        comparison = compare_with_transformers(spec, config, workload, on_progress)
    return Verified([VerifiedModel(spec, comparison.workload, (), comparison.result)], comparison.device_facts)


def _check_against(
    library: str, model: o.NamedModelOptions, device: DeviceOptions, layers: LayerOptions, program: ProgramOptions
) -> None:
    """Raise AttncalcError if the library is unknown, the model is missing, or an option does not apply."""
    if library != "transformers":
        hint = did_you_mean(library, ["transformers"])
        raise NotSupportedError(f"--against {truncate(library)} is not supported", f"{hint}known: transformers")
    if not model.is_given:
        raise AttncalcError("--against needs a model", "give a config.json, or a folder that contains one")
    tip = "leave out {option}: the class is built as it is"
    _check_alone("--against", {"against", "dtype"}, tip, (program, layers, device))


def _check_simulate(device: DeviceOptions, layers: LayerOptions, program: ProgramOptions) -> None:
    """Raise AttncalcError if --simulate is given with an option that needs a device or values."""
    if device.simulate is None:
        return
    needs = {
        "--device": (device.device != "auto", "a simulation runs on no device"),
        "--tp": (program.ranks() > 1, "a simulation has one process"),
        "--seed": (layers.seed != "0", "a simulation has no values"),
    }
    for option, (used, reason) in needs.items():
        if used:
            raise AttncalcError(f"--simulate cannot be combined with {option}", f"leave out {option}: {reason}")


def _check_combinations(
    model: o.NamedModelOptions, size: VerifySizeOptions, layers: LayerOptions, program: ProgramOptions
) -> None:
    """Raise AttncalcError if both --scaling and --tp are given, or an option needs a model that is missing."""
    ranks = program.ranks()
    if program.scaling and ranks > 1:
        raise AttncalcError("--scaling cannot be combined with --tp", "give one of them")
    needs_model = {
        "--scaling": program.scaling,
        "--tp": ranks > 1,
        "--attention": layers.attention is not None,
        "--source-context": size.source_context is not None,
    }
    for option, used in needs_model.items():
        if used and not model.is_given:
            raise AttncalcError(f"{option} needs a model", "give one, as in 'attncalc verify llama2-70b --scaling'")
