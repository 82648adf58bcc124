"""The schema of `attncalc verify --json`."""

from __future__ import annotations

from ...units import BYTES, FLOP, NO_UNIT, PARAMS
from ..figures import FigureRow
from .checks import check
from .parts import (
    MODEL,
    Schema,
    choice,
    document,
    either,
    fields,
    figures,
    flag,
    listed,
    named_values,
    number,
    or_null,
    text,
    texts,
    whole,
)

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
)
_LAYER_FIGURES = (
    *_MODEL_FIGURES,
    FigureRow("", FLOP, "FLOP of a pass", name="^flops_[a-z0-9_]+$"),
    FigureRow("", BYTES, "peak memory of a pass", name="^peak_[a-z0-9_]+$"),
    FigureRow("", NO_UNIT, "pairs of a query and a key", name="^pairs$"),
)
_CATALOGUE = fields(
    "the models, without MODEL",
    {"name": {"const": "catalogue"}, "models": texts("their names")},
)
_KIND = fields(
    "a kind of layer", {"name": text("its name"), "results": figures("its predicted figures", {}, *_LAYER_FIGURES)}
)
_VERIFIED = fields(
    "a model, without MODEL",
    {
        "name": text("its name"),
        "ok": flag("whether all checks agree"),
        "checks": whole("number of checks"),
        "results": {"type": "array", "maxItems": 0},
    },
)
_LARGEST = {
    "name": text("its name"),
    "of": text("the kind of layer; '' for the whole model"),
    "section": text("the heading that it is listed under on screens"),
    "difference": number("measured minus predicted"),
    "relative_difference": number("the difference as a share of the prediction"),
}
_SUMMARY = {
    "ok": flag("whether something was checked and all checks agree"),
    "checks": whole("number of checks"),
    "failed": whole("number of checks that disagree"),
    "largest_difference": or_null(
        fields("the predicted figure with the largest relative difference", _LARGEST), "if all figures are equal"
    ),
}
_REPORTED = {
    "name": text("its name"),
    "of": text("the kind of layer; '' for the whole model or the device"),
    "section": text("the heading that it is listed under on screens"),
    "predicted": or_null(number("the figure of a formula"), "without one"),
    "measured": or_null(number("the measured figure"), "if it is only predicted"),
    "unit": choice("unit of both", *UNITS),
    "note": text("what it is"),
}
DEVICE = {
    "type": choice("kind of device; 'meta' with --against", "cpu", "cuda", "xpu", "mps", "simulated", "meta"),
    "name": text("its name"),
    "torch": text("the version of torch"),
}
MACHINE = {
    "threads": whole("threads of the CPU"),
    "multiprocessors": whole("multiprocessors of the GPU; 0 for a CPU"),
}
GPU = {
    "memory": whole("memory in bytes"),
    "compute_capability": text("compute capability"),
    "cuda": or_null(text("the version of CUDA"), "with ROCm"),
    "rocm": or_null(text("the version of ROCm"), "with CUDA"),
    "cudnn": or_null(whole("the version of cuDNN"), "without it"),
    "datasheet": or_null(
        fields(
            "the published rates of the GPU",
            {
                "gpu": text("its name for --gpu"),
                "flop_per_s": named_values("dense FLOP per second by dtype", {"type": "integer"}),
                "bytes_per_s": whole("bytes per second of its memory"),
            },
        ),
        "of a GPU that attncalc gpus does not list",
    ),
}
TIME: dict[str, Schema] = {
    "of": text("the kind of layer"),
    "phase": choice("the pass", "prefill", "decode"),
    "kernel": text("the attention kernel"),
    "ms": number("measured milliseconds, the median"),
    "ms_min": number("measured milliseconds, the least"),
    "ms_p90": number("measured milliseconds, the 90th percentile"),
    "flop": whole("FLOP of the pass, of visible pairs only"),
    "bytes": whole("bytes that the pass must move"),
    "flop_per_s": number("FLOP per second"),
    "flop_share": number("FLOP per second as a share of the device's own matmul"),
    "bytes_per_s": number("bytes per second"),
    "bytes_share": number("bytes per second as a share of the device's own copy"),
    "least_ms": number("lower bound of the milliseconds, from the device's own matmul and copy"),
    "flop_share_datasheet": or_null(number("FLOP per second as a share of the datasheet's"), "without a datasheet"),
    "bytes_share_datasheet": or_null(number("bytes per second as a share of the datasheet's"), "without a datasheet"),
}
SCALING: dict[str, Schema] = {
    "of": text("the kind of layer"),
    "kernel": text("the attention kernel"),
    "context": whole("tokens", 1),
    "ms": or_null(number("measured milliseconds"), "if it is simulated"),
    "flop": whole("FLOP of the pass, of visible pairs only"),
    "peak": or_null(whole("measured peak memory in bytes"), "if the device does not report it"),
    "peak_predicted": whole("predicted peak memory in bytes"),
}
SCHEMA = document(
    "verify",
    "Real torch layers, measured and compared with the formulas.",
    model=either(MODEL, _CATALOGUE),
    results=figures("the predicted figures of the whole model", {}, *_MODEL_FIGURES),
    layers=either(_KIND, _VERIFIED),
    extra={
        "verdict": text("the verdict in words"),
        "summary": fields("the verdict as data", _SUMMARY),
        "simulated": flag("whether torch's fake tensors stood in for the device"),
        "checks": listed("every comparison", check(UNITS)),
        "reported": listed(
            "figures that were measured for information and never count as agreement", fields("a figure", _REPORTED)
        ),
        "device": fields("the device; a GPU has all keys", DEVICE, {**MACHINE, **GPU}),
        "times": listed("the times of each pass; not checked", fields("a time", TIME)),
        "scaling": listed("rows of --scaling", fields("a prefill at one context", SCALING)),
    },
)
