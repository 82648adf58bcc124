"""The schema of `attncalc verify --json`."""

from __future__ import annotations

from ...units import BYTES, FLOP, NO_UNIT, PARAMS
from ..figures import FigureRow
from . import parts as p

UNITS = (PARAMS, BYTES, FLOP, NO_UNIT)
_MODEL_FIGURES = (
    FigureRow(
        "", PARAMS, "parameters of a matrix, of a layer, of a rank or of the model", name="^params_[A-Za-z0-9_.]+$"
    ),
    FigureRow(
        "",
        BYTES,
        "the cache of a layer, of a rank or of the model",
        name="^(kv_cache|cross_attention_cache|cache|recurrent_state)(_[a-z0-9_]+)?$",
    ),
    FigureRow("", BYTES, "with --train: saved by a layer, or outside of layers", name="^saved_[a-z0-9_]+$"),
    FigureRow("", BYTES, "peak memory of a pass or of a training step", name="^peak_[a-z0-9_]+$"),
)
_STATES = FigureRow("", BYTES, "with --train: parameters, gradients, optimizer states", name="^train_[a-z_]+$")
_LAYER_FIGURES = (
    *_MODEL_FIGURES,
    FigureRow("", FLOP, "FLOP of a pass", name="^flops_[a-z0-9_]+$"),
    FigureRow("", NO_UNIT, "pairs of a query and a key", name="^pairs$"),
)
_CATALOGUE = p.fields("the models, without MODEL", {"name": {"const": "catalogue"}, "models": p.texts("their names")})
_KIND = p.fields(
    "a kind of layer", {"name": p.text("its name"), "results": p.figures("its predicted figures", *_LAYER_FIGURES)}
)
_VERIFIED = p.fields(
    "a model, without MODEL",
    {
        "name": p.text("its name"),
        "ok": p.flag("whether all checks agree"),
        "checks": p.whole("number of checks"),
        "results": {"type": "array", "maxItems": 0},
    },
)
_LARGEST = {
    "name": p.text("its name"),
    "of": p.text("the kind of layer; '' for the whole model"),
    "section": p.text("the heading that it is listed under on screens"),
    "difference": p.number("measured minus predicted"),
    "relative_difference": p.number("the difference as a share of the prediction"),
}
_SUMMARY = {
    "ok": p.flag("whether something was checked and all checks agree"),
    "checks": p.whole("number of checks"),
    "failed": p.whole("number of checks that disagree"),
    "largest_difference": p.or_null(
        p.fields("the predicted figure with the largest relative difference", _LARGEST), "if all figures are equal"
    ),
}
REPORTED = {
    "name": p.text("its name"),
    "of": p.text("the kind of layer; '' for the whole model or the device"),
    "section": p.text("the heading that it is listed under on screens"),
    "predicted": p.or_null(p.number("the figure of a formula"), "without one"),
    "measured": p.or_null(p.number("the measured figure"), "if it is only predicted"),
    "unit": p.choice("unit of both", *UNITS),
    "note": p.text("what it is"),
}
DEVICE = {
    "type": p.choice("kind of device; 'meta' with --against", "cpu", "cuda", "xpu", "mps", "simulated", "meta"),
    "name": p.text("its name"),
    "torch": p.text("the version of torch"),
}
MACHINE = {
    "threads": p.whole("threads of the CPU"),
    "multiprocessors": p.whole("multiprocessors of the GPU; 0 for a CPU"),
}
GPU = {
    "memory": p.whole("memory in bytes"),
    "compute_capability": p.text("compute capability"),
    "cuda": p.or_null(p.text("the version of CUDA"), "with ROCm"),
    "rocm": p.or_null(p.text("the version of ROCm"), "with CUDA"),
    "cudnn": p.or_null(p.whole("the version of cuDNN"), "without it"),
    "datasheet": p.or_null(
        p.fields(
            "the published rates of the GPU",
            {
                "gpu": p.text("its name for --gpu"),
                "flop_per_s": p.named_values("dense FLOP per second by dtype", {"type": "integer"}),
                "bytes_per_s": p.whole("bytes per second of its memory"),
            },
        ),
        "of a GPU that attncalc gpus does not list",
    ),
}
TIME: dict[str, p.Schema] = {
    "of": p.text("the kind of layer"),
    "phase": p.choice("the pass", "prefill", "decode"),
    "kernel": p.text("the attention kernel"),
    "ms": p.number("measured milliseconds, the median"),
    "ms_min": p.number("measured milliseconds, the least"),
    "ms_p90": p.number("measured milliseconds, the 90th percentile"),
    "flop": p.whole("FLOP of the pass, of visible pairs only"),
    "bytes": p.whole("bytes that the pass must move"),
    "flop_per_s": p.number("FLOP per second"),
    "flop_share": p.number("FLOP per second as a share of the device's own matmul"),
    "bytes_per_s": p.number("bytes per second"),
    "bytes_share": p.number("bytes per second as a share of the device's own copy"),
    "least_ms": p.number("lower bound of the milliseconds, from the device's own matmul and copy"),
    **{
        f"{name.lower()}_share_datasheet": p.or_null(
            p.number(f"{name} per second as a share of the datasheet's"), "without a datasheet"
        )
        for name in ("FLOP", "bytes")
    },
}
SCALING: dict[str, p.Schema] = {
    "of": p.text("the kind of layer"),
    "kernel": p.text("the attention kernel"),
    "context": p.whole("tokens", 1),
    "ms": p.or_null(p.number("measured milliseconds"), "if it is simulated"),
    "flop": p.whole("FLOP of the pass, of visible pairs only"),
    "peak": p.or_null(p.whole("measured peak memory in bytes"), "if the device does not report it"),
    "peak_predicted": p.whole("predicted peak memory in bytes"),
}
SCHEMA = p.document(
    "verify",
    "Real torch layers, measured and compared with the formulas.",
    model=p.either(p.MODEL, _CATALOGUE),
    results=p.figures("the predicted figures of the whole model", *_MODEL_FIGURES, _STATES),
    layers=p.either(_KIND, _VERIFIED),
    extra={
        "verdict": p.text("the verdict in words"),
        "summary": p.fields("the verdict as data", _SUMMARY),
        "simulated": p.flag("whether torch's fake tensors stood in for the device"),
        "checks": p.listed("every comparison", p.check(UNITS)),
        "reported": p.listed(
            "figures that were measured for information and never count as agreement", p.fields("a figure", REPORTED)
        ),
        "device": p.fields("the device; a GPU has all keys", DEVICE, {**MACHINE, **GPU}),
        "times": p.listed("the times of each pass; not checked", p.fields("a time", TIME)),
        "scaling": p.listed("rows of --scaling", p.fields("a prefill at one context", SCALING)),
    },
)
