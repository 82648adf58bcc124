"""`attncalc fit`: whether a model fits on GPUs, in an engine's own terms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..config import load
from ..config.hub import MAIN, parse_repository
from ..config.presets import repository_of
from ..errors import AttncalcError
from ..serving.fit import with_longest_context
from ..serving.gpu_layers import with_auto_gpu_layers
from ..serving.request import FitRequest
from ..units import dtype, is_dtype, truncate
from . import COMMANDS
from . import fit_llamacpp as lc
from . import fit_options as f
from . import fit_users as u
from . import options as o
from .command import command_app
from .fit_log import gpu_in_log, model_in_log, options_in_log, read_log_option
from .plot_options import PlotOptions

if TYPE_CHECKING:
    from ..engines.startup_log import StartupLog
    from ..model import ModelSpec
    from ..report.report import Report

app = command_app()

EPILOG = "For example: attncalc fit llama2-70b --gpu h100-80gb --gpus 4"


@app.command(help=COMMANDS["fit"], epilog=EPILOG)
def fit(
    model: o.ModelOptions,
    serving: f.ServingOptions,
    workload: o.SizeOptions,
    users: u.UserOptions,
    dtypes: f.FitDtypeOptions,
    engine: f.EngineOptions,
    vllm: f.VllmOptions,
    sglang: f.SglangOptions,
    llamacpp: f.LlamacppOptions,
    offload: lc.OffloadOptions,
    transformers: f.TransformersOptions,
    screen: f.ScreenOptions,
    plot: PlotOptions,
    output: u.FitOutputOptions,
) -> None:
    plot.check(output, excludes={"--log": serving.log is not None})
    log = read_log_option(serving)
    texts = options_in_log(log) if log else {}
    spec = model_in_log(log, model) if log and not model.is_given else model.read()
    dtypes = _dtypes(dtypes.with_defaults(texts), spec, log)
    size = workload.with_defaults(texts)
    traffic = users.traffic(output.output_tokens)
    if traffic and log:
        raise _not_with_log(f"--{'lengths' if traffic.lengths else 'prompt'}")
    if traffic and size.context is None and not spec.max_context:
        size = o.SizeOptions(**{**vars(size), "context": str(int(traffic.worst_tokens))})
    longest = size.context in ("auto", "-1")
    if longest:
        size = o.SizeOptions(batch=size.batch, source_context=size.source_context)
    deployment = _deployment(serving, texts, log, _default_engine(spec))
    offload.check_gpu(deployment.get("gpu") or log)
    engine_args: dict[str, Any] = {}
    for group in (engine, vllm, sglang, llamacpp, offload, transformers):
        engine_args |= group.with_defaults(texts).parsed()
    if log:
        deployment["engine"] = log.engine
        deployment["gpu"] = gpu_in_log(log, deployment.get("gpu"))
        if log.engine == "llamacpp" and deployment["gpu"] and log.devices > 1:  # it distributes layers over all
            deployment["gpus"] = log.devices
        engine_args |= dict.fromkeys(log.flags, True)
    draft_name = engine_args.pop("speculative_model", None)
    draft = load(draft_name) if draft_name else None
    request = FitRequest(
        model=spec,
        draft=draft,
        served_draft=_served_model(draft_name, draft).get("served_model") if draft else None,
        workload=o.read_workload(spec, size, dtypes),
        engine_args=engine_args,
        **({"served_model": log.served} if log else _served_model(model.name(), spec)),
        traffic=traffic,
        **deployment,
    )
    request = with_auto_gpu_layers(request)
    if longest:
        if request.engine == "all":
            raise AttncalcError(
                "--context auto cannot be combined with --engine all",
                "name one engine: each has another longest context",
            )
        request = with_longest_context(request)
    if screen.roofline and request.gpu is None:
        raise AttncalcError("--roofline needs --gpu", "a roofline is computed from the FLOP/s and bandwidth of a GPU")
    report = _report(request, log, screen)
    plot.write(report, output, needs=("--gpu", "it draws how a GPU's memory is shared, and its roofline"))
    raise typer.Exit(0 if report.extra["agrees" if log else "fits"] else 1)


def _dtypes(given: f.FitDtypeOptions, spec: ModelSpec, log: StartupLog | None) -> f.FitDtypeOptions:
    """Return the dtypes without those that are the default: 'auto', and the model's own in a log."""
    cache = None if given.kv_dtype == "auto" else given.kv_dtype  # what engines call their default
    own = log and given.dtype and is_dtype(given.dtype) and dtype(given.dtype).name == spec.dtype
    return f.FitDtypeOptions(dtype=None if own else given.dtype, kv_dtype=cache)  # own: weights are as released


def _default_engine(spec: ModelSpec) -> str:
    return "llamacpp" if spec.stored and spec.stored.kind == "GGUF" else "vllm"


def _deployment(
    serving: f.ServingOptions, texts: dict[str, str], log: StartupLog | None, engine: str
) -> dict[str, Any]:
    """Return where the model runs, as fields of FitRequest; `engine` is the default."""
    deployment = {"engine": engine, **serving.with_defaults(texts).parsed()}
    deployment.pop("log", None)
    if texts.get("enable_expert_parallel"):
        deployment["enable_expert_parallel"] = True
    if deployment.pop("enable_dp_attention", False):
        deployment |= _ranks_of_attention(deployment)
    if serving.gpu is not None:
        deployment |= _gpus(serving.gpu, deployment.get("gpus"), log)
    return deployment


def _ranks_of_attention(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return --dp as --attn-dp, as SGLang does with --enable-dp-attention. Raises AttncalcError without --dp."""
    if deployment.get("engine") not in ("sglang", "all"):
        raise AttncalcError(
            f"--enable-dp-attention has no effect on engine {truncate(deployment.get('engine'))}",
            "leave it out, or use --engine sglang",
        )
    if deployment.get("attn_dp"):
        return {}
    if not deployment.get("dp"):
        raise AttncalcError("--enable-dp-attention needs --dp", "add --dp N, the number of ranks; or use --attn-dp N")
    return {"attn_dp": deployment["dp"], "dp": 1}


def _not_with_log(option: str) -> AttncalcError:
    return AttncalcError(
        f"{option} cannot be combined with --log",
        "leave one of them out: with a log, fit compares the log's own figures",
    )


def _gpus(text: str, gpus: int | None, log: StartupLog | None) -> dict[str, Any]:
    """Return the GPU, and its number if the text has one, as in '2xh100'.

    Raises AttncalcError if the GPU is unknown, or the number is given twice or with a log.
    """
    from ..config.gpus import gpus_of

    number, device = gpus_of(text)
    if number is None:
        return {"gpu": device}
    if log:
        raise _not_with_log(f"--gpu {truncate(text)}")
    if gpus not in (None, number):
        raise AttncalcError(
            f"--gpu {truncate(text)} cannot be combined with --gpus {gpus}", "give the number of GPUs once"
        )
    return {"gpu": device, "gpus": number}


def _served_model(name: str, spec: ModelSpec) -> dict[str, Any]:
    """Return what the engine loads, as fields of FitRequest: a folder, a file, or org/name on the hub.

    There are none for a preset or a model file in YAML. Engines load a folder with a config.json: for a config under
    another name, or from standard input, the command has MODEL in its place.
    """
    path = Path(name)
    if name == spec.name or path.suffix in (".yaml", ".yml"):
        return {}
    repository = None if path.exists() else parse_repository(name)
    is_gguf = spec.stored is not None and spec.stored.kind == "GGUF"
    if is_gguf and repository is None:
        from ..config.gguf import local_gguf

        file = str(local_gguf(name) or name)  # 'blobs/sha256-01' looks like a repository; './blobs/sha256-01' does not
        return {"served_model": file if file.lower().endswith(".gguf") else os.path.join(".", file)}
    if repository:
        quantization = f":{repository.file}" if is_gguf and repository.file else ""
        revision = None if repository.revision == MAIN else repository.revision
        return {"served_model": f"{repository.name}{quantization}", "revision": revision}
    if not path.exists() and (found := repository_of(name)):  # 'qwen3-32B' is Qwen/Qwen3-32B
        return {"served_model": found}
    if path.name in ("config.json", "params.json"):
        name = str(path.parent)
    elif name == "-" or path.is_file():
        name = "MODEL"
    return {"served_model": name}


def _report(request: FitRequest, log: StartupLog | None, screen: f.ScreenOptions) -> Report:
    if log:
        from ..report.log import log_report

        return log_report(request, log)
    if request.engine == "all":
        from ..report.fit_all import fit_all_report

        return fit_all_report(request, full=screen.full, roofline=screen.roofline)
    from ..report.fit import fit_report

    return fit_report(request, full=screen.full, roofline=screen.roofline)
