"""`attncalc fit`: what fits, in an engine's own words."""

from __future__ import annotations

import typer

from ..engines import engine_defaults
from ..engines.base import EngineArgs
from ..errors import AttncalcError
from ..serving.fit import FitRequest
from ..units import dtype as dtype_of
from ..units import truncate
from . import COMMANDS, command_app
from . import options as o
from . import serving as s

app = command_app()

EPILOG = "For example: attncalc fit llama2-70b --gpu h100-80gb --gpus 4"


@app.command(help=COMMANDS["fit"], epilog=EPILOG)
def fit(
    model: o.Model = None,
    preset: o.Preset = None,
    engine: s.Engine = "vllm",
    engine_version: s.Version = None,
    kv_memory: s.KvMemory = None,
    vllm_log: s.VllmLog = None,
    gpu: s.GpuName = None,
    gpus: s.Gpus = None,
    tp: s.Tp = None,
    pp: s.Pp = None,
    dcp: s.Dcp = None,
    batch: o.Batch = None,
    context: o.Context = None,
    source_context: o.Source = None,
    dtype: o.DtypeOption = None,
    kv_dtype: o.KvDtype = None,
    kv_dtype_k: s.KvDtypeK = None,
    kv_dtype_v: s.KvDtypeV = None,
    weights_dtype: s.WeightsDtype = None,
    gpu_memory_utilization: s.Utilization = None,
    reserve: s.Reserve = None,
    block_size: s.BlockSize = None,
    max_num_batched_tokens: s.BatchedTokens = None,
    max_num_seqs: s.NumSeqs = None,
    prefix_caching: s.PrefixCaching = None,
    enable_prefix_caching: s.EnablePrefixCaching = None,
    speculative_tokens: s.SpeculativeTokens = None,
    speculative_layers: s.SpeculativeLayers = None,
    mamba_ssm_cache_dtype: s.SsmDtype = None,
    disable_hybrid_kv_cache_manager: s.NoHybrid = False,
    swap_space: s.SwapSpace = None,
    disable_hybrid_swa_memory: s.NoHybridSwa = False,
    swa_full_tokens_ratio: s.SwaRatio = None,
    mamba_full_memory_ratio: s.MambaRatio = None,
    max_running_requests: s.RunningRequests = None,
    sequences: s.Sequences = None,
    ubatch: s.Ubatch = None,
    kv_unified: s.KvUnified = False,
    swa_full: s.SwaFull = False,
    cache_implementation: s.CacheImplementation = None,
    residual_length: s.ResidualLength = None,
    attention: o.AttentionOption = None,
    assume_grouped: o.AssumeGrouped = False,
    explain: o.Explain = False,
    format: o.Format = None,
    json: o.Json = False,
    output: o.Output = None,
    force: o.Force = False,
) -> None:
    log = s.read_vllm_log(vllm_log)
    told = s.LogOverrides(log)  # an option goes before what the log says
    if log and engine != "vllm":
        raise AttncalcError(f"--engine {truncate(engine)} with --vllm-log", "the log is vLLM's: leave the engine out")
    logged = log.model if log and not preset else None
    spec = o.read_model(model or logged, preset, attention=attention, assume_grouped=assume_grouped)
    only_gpu = {"--weights-dtype": weights_dtype}
    tp, pp = told("tp", tp), told("pp", pp)
    if log:
        only_gpu |= {"--gpus": gpus, "--gpu-memory-utilization": gpu_memory_utilization, "--reserve": reserve}
        place = s.place_of_log(tp, pp, {"--kv-memory": kv_memory, "--gpu": gpu, **only_gpu})
    else:
        spread = engine != "all" and engine_defaults(engine).spreads
        place = s.read_place(kv_memory, gpu, gpus, tp, pp, gpu_memory_utilization, reserve, only_gpu, spread=spread)
    dtype, context = told("dtype", dtype), told("context", context)
    kept = s.cache_dtype(told("kv_dtype", kv_dtype))
    asked = o.read_workload(
        spec, batch=batch, context=context, source=source_context, in_dtype=dtype, kv_dtype=kept and kept.name
    )
    own = dtype_of(asked.dtype or spec.dtype, compute=True)
    args = EngineArgs(
        kv_dtype=kept or own,
        dtype=own,
        kv_dtype_k=s.cache_dtype(kv_dtype_k),
        kv_dtype_v=s.cache_dtype(kv_dtype_v),
        mamba_ssm_cache_dtype=s.cache_dtype(told("mamba_ssm_cache_dtype", mamba_ssm_cache_dtype)),
        engine_version=log.version if log and engine_version is None else engine_version,
        tp=place.tp,
        pp=place.pp,
        dcp=s.number(told("dcp", dcp), "--dcp") or 1,
        block_size=s.number(told("block_size", block_size), "--block-size"),
        max_num_batched_tokens=s.number(
            told("max_num_batched_tokens", max_num_batched_tokens), "--max-num-batched-tokens"
        ),
        max_num_seqs=s.number(max_num_seqs, "--max-num-seqs"),
        max_running_requests=s.number(max_running_requests, "--max-running-requests"),
        speculative_tokens=s.count_or_zero(told("speculative_tokens", speculative_tokens), "--speculative-tokens"),
        speculative_layers=s.count_or_zero(told("speculative_layers", speculative_layers), "--speculative-layers"),
        prefix_caching=s.first(prefix_caching, enable_prefix_caching, s.yes(told("prefix_caching", None))),
        disable_hybrid_kv_cache_manager=disable_hybrid_kv_cache_manager,
        disable_hybrid_swa_memory=disable_hybrid_swa_memory,
        swa_full_tokens_ratio=s.ratio(swa_full_tokens_ratio, "--swa-full-tokens-ratio"),
        mamba_full_memory_ratio=s.ratio(mamba_full_memory_ratio, "--mamba-full-memory-ratio"),
        sequences=s.number(sequences, "--sequences"),
        ubatch=s.number(ubatch, "--ubatch"),
        kv_unified=kv_unified,
        swa_full=swa_full,
        cache_implementation=cache_implementation,
        residual_length=s.number(residual_length, "--residual-length"),
        source=asked.source,
        swap_space=s.gibibytes(told("swap_space", swap_space), "--swap-space"),
    )
    question = FitRequest(
        model=spec,
        engine=engine,
        args=args,
        batch=asked.batch,
        context=asked.context,
        kv_memory=place.kv_memory,
        gpu=place.gpu,
        gpus=place.gpus,
        share=place.share,
        reserve=place.reserve,
        weights_dtype=None if weights_dtype is None else dtype_of(weights_dtype).name,
        dtype=asked.dtype,
        kv_default=kept is None,
    )
    if log:
        from ..report.vllm_log import log_report

        report = log_report(question, log, asked.assumed)
    elif engine == "all":
        from ..report.fit_all import fit_all_report

        report = fit_all_report(question, asked.assumed)
    else:
        from ..report.fit import fit_report

        report = fit_report(question, asked.assumed)
    o.show(report, explain=explain, form=format, as_json=json, output=output, force=force)
    raise typer.Exit(0 if report.extra["agrees" if log else "fits"] else 1)
