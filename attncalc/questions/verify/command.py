"""`attncalc verify`: real torch layers on a device, measured and compared with the formulas."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ...check import VerifyResult
from ...cli import options as o
from ...cli.command import Options, command
from ...cli.plot_options import PlotOptions
from ...config import load, load_with_config
from ...config.gpus import gpu
from ...errors import AttncalcError, CannotCheckError, NotSupportedError, clash, known_tip
from ...model import ModelSpec
from ...options import parsed
from ...records import NamedTuple
from ...show.lists import tell
from ...units import long_option, truncate
from ..inputs import read_model, read_source
from ..options import ShardedModelOptions
from ..pasted_words import words_of
from .catalogue import CATALOGUE, QUICK
from .options import RunOptions

if TYPE_CHECKING:
    from ...verify.devices import Device
    from ...verify.options import VerifyOptions
    from .report import VerifiedModel


class Verified(NamedTuple):
    # the models that were reached, in the order in which they were asked for
    models: list["VerifiedModel"]
    device: dict[str, object]  # the device as plain data
    unreached: Sequence[str] = ()  # the names of the others
    # the interrupt or the error that ended it early
    ended: KeyboardInterrupt | AttncalcError | None = None


# The exit code after Ctrl-C.
INTERRUPTED = 130
# The preset that --smoke runs, its tokens, and its time.
SMOKE_MODEL = "gpt2"
SMOKE_CONTEXT = 64
SMOKE_MINUTES = 0.5
# Values of options that are as if the option were not given.
_DEFAULTS = {"device": "auto", "kernel": "all", "seed": "0"}


class FurtherModels(Options):
    """More models than one, which have a line each."""

    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL...]", help="Further models: then each has one line."),
    ] = None


class VerifyOutputOptions(o.OutputOptions):
    """Where the report goes, and how much of it is shown."""

    full: Annotated[
        bool,
        typer.Option("--full", help="Show every check, and every note on what was not checked."),
    ] = False


@command()
def verify(
    model: o.NamedModelOptions,
    further: FurtherModels,
    options: RunOptions,
    plot: PlotOptions,
    output: VerifyOutputOptions,
) -> None:
    asked = {name: value for name, value in options.items() if value != _DEFAULTS.get(name)}
    values = parsed(asked, RunOptions)
    has_model = model.describes(asked)
    plot.check(output, excludes={"--record": "record" in values})
    if plot.plot is not None and "scaling" not in values:
        raise AttncalcError("--plot needs --scaling", "it draws measured points on predicted lines")
    named = {**vars(model), **vars(further)}
    given = [*(name for name, value in named.items() if value is not None), *asked]
    has_one = has_model and not further.models
    if "smoke" in values:
        _smoke(values, given, output)
        return
    if "record" in values:
        _record(values, given, output)
    if "engine" in values or _starts_engine(model, further):
        _verify_engine(model, further, values, asked, output)
    if "save" in values:
        raise AttncalcError("--save needs --engine", "add the engine, as --engine vllm")
    if "against" in values:
        against = [*asked, "models"] if further.models else list(asked)
        _check_against(values["against"], model, against)
        verified = _compare_with_transformers(model.name(), values, plain=output.plain)
    else:
        _check_combinations(has_one, values)
        if "tp" in values:
            _check_tp(values, has_model=has_model)
        names = [model.name_or_sizes(asked), *(further.models or ())] if has_model else []
        specs = [read_model(name, asked, ShardedModelOptions) for name in names]
        device = _device(values)
        specs = specs or [load(name) for name in _catalogue(device, values)]
        settings = _settings(values, specs, has_one=has_one)
        verified = _run(specs, settings, device, plain=output.plain)

    from .report import catalogue_report, verify_report

    if has_one:
        plot.write(verify_report(verified.models[0], verified.device, full=output.full), output)
    else:
        output.show(
            catalogue_report(verified.models, verified.device, verified.unreached, full=output.full)
        )
    _end(verified)


def _starts_engine(model: o.NamedModelOptions, further: FurtherModels) -> bool:
    """Return whether MODEL and what follows it are a command that starts an engine."""
    words = _words(model, further)
    if len(words) < 2 and not any(" " in word for word in words):
        return False
    from ..fit.launch_words import launches

    return launches(words_of(words))


def _words(model: o.NamedModelOptions, further: FurtherModels) -> list[str]:
    first = [model.name()] if model.is_given else []
    return [*first, *(further.models or ())]


def _verify_engine(
    model: o.NamedModelOptions,
    further: FurtherModels,
    values: Mapping[str, Any],
    asked: Mapping[str, Any],
    output: VerifyOutputOptions,
) -> NoReturn:
    """Start an engine, compare its log, and exit with the code of the comparison."""
    from ...show.progress import progress
    from .class_run import verify_class
    from .engine_question import ALLOWED, read_question
    from .engine_report import engine_report
    from .engine_run import MINUTES, EngineEndedError, verify_engine
    from .machine import check_machine, save_start

    if values.get("engine") == "transformers":
        tip = "leave out {option}: the class takes --context, --dtype and other sizes"
    else:
        tip = (
            "leave out {option}: give the engine's own options after --, as in 'attncalc verify "
            "-- vllm serve MODEL -tp 2'"
        )
    _check_alone("--engine", ALLOWED, tip, asked)
    if output.explain:
        raise clash("--engine", "--explain", "'attncalc fit --explain' shows the formulas")
    words = _words(model, further)
    if not words:
        raise AttncalcError(
            "--engine needs a model", "give one, as in 'attncalc verify qwen3-8b --engine vllm'"
        )
    own = ("engine", "minutes", "save")
    options = {name: value for name, value in asked.items() if name not in own}
    question = read_question(values.get("engine"), words, options)
    if "save" in values:
        check_machine(values["save"], question)
    run = verify_class if question.engine == "transformers" else verify_engine
    try:
        with progress(plain=output.plain) as show:
            answer = run(question, values.get("minutes", MINUTES), show)
    except KeyboardInterrupt:
        tell("interrupted: the engine is stopped, and nothing was measured")
        raise typer.Exit(INTERRUPTED) from None
    except EngineEndedError as error:
        for line in error.lines:
            tell(f"  {line}", "    ")
        raise
    if "save" in values:
        answer = save_start(values["save"], answer)
    output.show(engine_report(answer, full=output.full))
    raise typer.Exit(0 if all(check.ok for check in answer.checks) else 1)


def _base(values: Mapping[str, Any]) -> "VerifyOptions":
    """Return the options that --smoke and --record take too."""
    from ...verify.options import VerifyOptions

    return VerifyOptions(
        dtype=values.get("dtype"), kernel=values.get("kernel", "all"), seed=values.get("seed", 0)
    )


def _settings(
    values: Mapping[str, Any], specs: Sequence[ModelSpec], *, has_one: bool
) -> "VerifyOptions":
    """Return the options of the layers that run on a device."""
    from ...verify.options import CATALOGUE_MINUTES, DEFAULT_MINUTES, SIMULATED_MINUTES

    if has_one:
        minutes = DEFAULT_MINUTES
    elif "simulate" in values:
        minutes = SIMULATED_MINUTES
    else:
        minutes = CATALOGUE_MINUTES
    source = None
    if "source_context" in values:
        source = read_source(specs[0], values["source_context"])
    return _base(values)._replace(
        batch=values.get("batch", 2 if "train" in values else 1),
        context=values.get("context"),
        source=source,
        scaling="scaling" in values,
        train="train" in values,
        timed=has_one,
        minutes=values.get("minutes", minutes),
    )


def _end(verified: Verified) -> None:
    """End with the exit code of what was verified, or with the error that ended it."""
    if isinstance(verified.ended, KeyboardInterrupt):
        raise typer.Exit(INTERRUPTED)
    if verified.ended is not None:
        raise verified.ended
    if not all(check.ok for v in verified.models for check in v.result.checks):
        raise typer.Exit(1)
    if verified.unreached or not all(v.result.checks for v in verified.models):
        raise typer.Exit(CannotCheckError.code)


def _check_alone(program: str, allowed: Collection[str], tip: str, given: Iterable[str]) -> None:
    """Raise AttncalcError if an option is given that is not `allowed`. In the tip, {option} is the
    option.
    """
    for name in given:
        if name not in allowed:
            models = {"model": "a model", "preset": "a model", "models": "further models"}
            option = models.get(name) or long_option(name)
            raise clash(program, option, tip.format(option=option))


def _smoke(values: Mapping[str, Any], given: Iterable[str], output: VerifyOutputOptions) -> None:
    """Check a small model soon, with a line to paste."""
    allowed = ("smoke", "device", "dtype", "kernel", "seed")
    tip = "it chooses the model and its size; it takes --device, --dtype, --kernel and --seed"
    _check_alone("--smoke", allowed, tip, given)
    device = _device(values)
    from ...verify.record.machine import machine_facts, main_dtype
    from .report import smoke_line, verify_report

    base = _base(values)
    options = base._replace(
        context=SMOKE_CONTEXT,
        dtype=base.dtype or main_dtype(device),
        timed=False,
        minutes=SMOKE_MINUTES,
    )
    verified = _run([load(SMOKE_MODEL)], options, device, plain=output.plain)
    line = smoke_line(verified.models[0], machine_facts(device))
    output.show(verify_report(verified.models[0], verified.device, full=output.full, to_paste=line))
    _end(verified)


def _record(
    values: Mapping[str, Any], given: Iterable[str], output: VerifyOutputOptions
) -> NoReturn:
    """Measure what the device can do, and exit with the code of the record."""
    from .record_command import MINUTES, write_record

    of_output = [option.name for option in output.parameters() if getattr(output, option.name)]
    allowed = ("record", "device", "dtype", "kernel", "seed", "minutes", "force")
    tip = (
        "--record chooses models and sizes itself; it takes --device, --dtype, --kernel, --seed "
        "and --minutes"
    )
    _check_alone("--record", allowed, tip, [*given, *of_output])
    folder = Path(values["record"])
    device = values.get("device", "auto")
    minutes = values.get("minutes", MINUTES)
    raise typer.Exit(write_record(folder, device, _base(values), minutes, force=output.force))


def _device(values: Mapping[str, Any]) -> "Device":
    """Return the chosen device, or a simulated one. Raises CannotCheckError if this machine has
    none, or no torch.
    """
    from ...verify import need_cuda, need_torch

    need_cuda(values.get("device", "auto"))
    need_torch()
    from ...verify.devices import find_device, simulated_device

    simulated = values.get("simulate")
    if simulated in (None, "local"):  # --gpu local
        return find_device(values.get("device", "auto"))
    return simulated_device(None if simulated == "cuda" else gpu(simulated))


def _catalogue(device: "Device", values: Mapping[str, Any]) -> Sequence[str]:
    """Return the presets to verify without a model. A CPU has a few of them, unless a time is
    given.
    """
    if device.type != "cpu" or "minutes" in values:
        return CATALOGUE
    tell(
        f"note: on a CPU {len(QUICK)} of {len(CATALOGUE)} presets are checked; with --minutes 10 "
        "all"
    )
    return QUICK


def _run(
    specs: list[ModelSpec], options: "VerifyOptions", device: "Device", *, plain: bool
) -> Verified:
    """Verify each model on a device.

    Of several models, one that cannot be verified gets no checks and a note, and one that the time
    does not reach is left out. Raises CannotCheckError if a single model cannot be verified, or
    nothing was before the device failed.
    """
    from ...show.progress import progress
    from ...verify.errors import DeviceFailedError
    from ...verify.programs.several import verify_several
    from ...verify.progress import Progress
    from ...verify.request import resolve
    from .record_command import with_datasheet
    from .report import VerifiedModel

    asked = [(spec, resolve(spec, options, device)) for spec in specs]
    results: dict[int, VerifyResult] = {}
    ended: KeyboardInterrupt | AttncalcError | None = None
    with progress(plain=plain) as show:
        try:
            for i, result in verify_several(asked, device, Progress(show)):
                results[i] = result
        except (KeyboardInterrupt, DeviceFailedError) as error:
            ended = error
    if ended is not None and not results:
        if isinstance(ended, KeyboardInterrupt):
            tell("interrupted: nothing was measured")
            raise typer.Exit(INTERRUPTED)
        raise ended
    verified = []
    for i, (spec, request) in enumerate(asked):
        if i in results:
            run = request.prefill(results[i].context)
            verified.append(VerifiedModel(spec, run, request.kernels, results[i], request.context))
    return Verified(
        verified,
        with_datasheet(device.facts()),
        [spec.name for i, spec in enumerate(specs) if i not in results],
        ended,
    )


def _compare_with_transformers(name: str, values: Mapping[str, Any], *, plain: bool) -> Verified:
    """Compare the figures of a config.json with the transformers class of it. Raises AttncalcError
    for a preset.
    """
    spec, config = load_with_config(name)
    if config is None:
        raise AttncalcError(
            f"--against transformers needs a config.json, and '{truncate(name)}' has none",
            "give the model's config.json, a folder that contains it, or org/name on the hub",
        )
    from ...verify import need_transformers

    need_transformers()
    from ...show.progress import progress
    from ...verify.transformers.check import compare_with_transformers, resolve_workload
    from ...verify.transformers.training_check import compare_training
    from .report import VerifiedModel

    if "source_context" in values:
        source = read_source(spec, values["source_context"])
    else:
        source = None
    workload = resolve_workload(
        spec, values.get("batch"), values.get("context"), source, values.get("dtype")
    )
    compared = compare_training if "train" in values else compare_with_transformers
    with progress(plain=plain) as on_progress:
        comparison = compared(spec, config, workload, on_progress)
    return Verified(
        [VerifiedModel(spec, comparison.workload, (), comparison.result)], comparison.device_facts
    )


def _check_against(library: str, model: o.NamedModelOptions, given: Iterable[str]) -> None:
    """Raise AttncalcError if the library is unknown, the model is missing, or an option does not
    apply.
    """
    if library != "transformers":
        raise NotSupportedError(
            f"--against {truncate(library)} is not supported", known_tip(library, ["transformers"])
        )
    if not model.is_given:
        raise AttncalcError(
            "--against needs a model",
            "give a built-in model, a config.json, or a folder that contains one",
        )
    allowed = ("against", "train", "dtype", "batch", "context", "source_context")
    _check_alone("--against", allowed, "leave out {option}: the class is built as it is", given)


def _check_tp(values: Mapping[str, Any], *, has_model: bool) -> None:
    """Raise AttncalcError without a model or a simulated GPU."""
    if values.get("simulate") in (None, "local"):
        raise AttncalcError(
            "--tp needs --simulate: a real device runs whole layers",
            "give a GPU too, as in 'attncalc verify llama3-8b --simulate h100 --tp 8'",
        )
    if not has_model:
        raise AttncalcError(
            "--tp needs a model",
            "give one, as in 'attncalc verify llama3-8b --simulate h100 --tp 8'",
        )


def _check_combinations(has_one: bool, given: Container[str]) -> None:
    """Raise AttncalcError for an option that needs one model, or that another one excludes."""
    if "train" in given and "scaling" in given:
        raise clash("--train", "--scaling", "give one of them")
    for name in ("scaling", "train", "attention", "source_context"):
        if name in given and not has_one:
            raise AttncalcError(
                f"{long_option(name)} needs one model",
                "give it, as in 'attncalc verify llama2-70b --scaling'",
            )
    simulated = {
        "device": "a simulation runs on no device",
        "seed": "a simulation has no values",
        "train": "a simulation has no backward pass; --against transformers --train needs no "
        "device either",
    }
    for name, reason in simulated.items():
        if "simulate" in given and name in given:
            raise clash("--simulate", f"--{name}", f"leave out --{name}: {reason}")
