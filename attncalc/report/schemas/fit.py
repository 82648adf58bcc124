"""The schema of `attncalc fit --json`."""

from __future__ import annotations

from ...units import BYTES, NO_UNIT, TOKENS
from ..fit_figures import DETAILS, FIGURES
from ..roofline import FIGURES as ROOFLINE
from ..roofline import NO_EXPERTS
from ..users import FIGURES as USERS
from .checks import check
from .parts import (
    Schema,
    choice,
    document,
    either,
    fields,
    figures,
    flag,
    listed,
    number,
    or_null,
    ref,
    text,
    texts,
    value_of,
    whole,
)

_VERDICTS = ("fits", "may_not_fit", "does_not_fit")
_NO_GPU = "without a GPU"
_NO_LIMIT = "without a limit"
_ENGINE = {**FIGURES, **USERS}
_BOUNDS = {
    name: row._replace(null_if=", and ".join(filter(None, (row.null_if, "without a roofline"))))
    for name, row in ROOFLINE.items()
}

_PART = {
    "name": text("name of the part"),
    "label": text("its name on screens"),
    "low": whole("the fewest bytes to expect"),
    "expected": whole("the bytes to expect"),
    "high": whole("the most bytes to expect"),
    "source": text("what the formula and the range rest on"),
    "in_share": flag("false for what lies outside the engine's share, which is not subtracted"),
}
_RUNTIME = listed("the parts of the runtime memory; [] if it was given", fields("a part", _PART))
_COMMAND = or_null(
    text("the command that starts the engine as requested"), "if the engine has no server or no name of the checkpoint"
)
_VERSION = or_null(text("the engine's version"), "for an engine without versions")
_BOUND = choice("whether bytes are what the engine reserves, or a lower bound", "reserved", "lower")
_LOG_LINES = texts("the lines that the engine will log")
_FITS = flag("false if the verdict is 'does_not_fit', else true")
_FREE_BATCH = or_null(whole("the most sequences of this context"), _NO_LIMIT)
_ANSWERED = fields(
    "an engine's answer",
    {
        "name": text("the engine"),
        "engine_version": _VERSION,
        "bound": _BOUND,
        "fits": _FITS,
        "verdict": choice("its verdict", *_VERDICTS),
        "runtime": _RUNTIME,
        "facts": texts("its settings"),
        "log_lines": _LOG_LINES,
        "launch_command": _COMMAND,
        "refused": {"description": "null: the engine has an answer", "type": "null"},
        "results": ref("engine_figures"),
    },
)
_NULL: Schema = {"type": "null"}
_EMPTY: Schema = {"type": "array", "maxItems": 0}
_REFUSED = fields(
    "an engine that does not support the request, with --engine all",
    {
        "name": text("the engine"),
        **dict.fromkeys(("engine_version", "bound", "fits", "verdict"), _NULL),
        **dict.fromkeys(("runtime", "facts", "log_lines"), _EMPTY),
        "launch_command": _NULL,
        "refused": text("why the engine has no answer"),
        "results": _EMPTY,
    },
)
_SUGGESTION = {
    "change": text("the change in words"),
    "flag": text("what to type"),
    "concurrency": number("concurrent requests after it"),
    "max_batch": _FREE_BATCH,
    "launch_command": _COMMAND,
}
_TOTALS = {
    "concurrency": number("concurrent requests"),
    "max_batch": _FREE_BATCH,
    "kv_tokens": or_null(whole("tokens that fit"), _NO_LIMIT),
}
_GIVEN = "if the reserve was given"
_DEVICE = {
    "name": text("CUDA0, CUDA1, ... or host"),
    "layers": whole("layers on it"),
    "model_buffer": whole("bytes of its weights"),
    "kv_buffer": whole("bytes of its cache"),
    "compute_buffer": or_null(whole("bytes of its compute buffer"), _GIVEN),
    "outside_buffers": or_null(whole("bytes outside the buffers"), f"{_GIVEN}, and on the host"),
    "total": whole("bytes of all of them"),
}
_ESTIMATE = {
    "name": text("its name"),
    "label": text("its name on screens"),
    "logged": {"description": "bytes as the log prints them", "type": "integer"},
    "low": whole("the fewest bytes to expect"),
    "expected": {"description": "the bytes to expect", "type": "integer"},
    "high": {"description": "the most bytes to expect", "type": "integer"},
    "inside": flag("whether the logged size is in the range"),
}
_REFUSAL = {
    "kind": choice("why the engine did not start", "too_small", "no_memory", "out_of_memory", "occupied"),
    "message": text("the engine's message"),
    "reason": text("the reason in words"),
    "missing": or_null(whole("bytes that are missing"), "if they are unknown"),
}
_USERS_FACTS = {
    "prompt": or_null(whole("tokens of a prompt"), "with --lengths"),
    "output": or_null(whole("tokens of an output"), "with --lengths"),
    "shared_prefix": whole("tokens that all prompts start with"),
    "lengths": listed("the lengths of the requests; [] without --lengths", {"type": "integer", "minimum": 1}),
    "tokens_average": whole("tokens of a request on average"),
    "tokens_worst": whole("tokens of a request at worst"),
    "shares_prefix": flag("whether the engine stores the shared prefix once"),
    "concurrent_average_all_replicas": or_null(whole("concurrent users of all replicas on average"), _NO_LIMIT),
    "concurrent_worst_all_replicas": or_null(whole("concurrent users of all replicas at worst"), _NO_LIMIT),
}
_BOUND_BY = choice("what bounds the time", "compute", "memory")
_BOUND_BY_EXPECTED = or_null(choice("what bounds the time with the expected experts", "compute", "memory"), NO_EXPERTS)
_ROOFLINE = {
    "gpu": text("the GPU"),
    "weights_dtype": text("dtype of the weights"),
    "math_dtype": text("dtype in which matrices are multiplied"),
    "prefill_bound_by": _BOUND_BY,
    "decode_bound_by": _BOUND_BY,
    "prefill_expected_experts_bound_by": _BOUND_BY_EXPECTED,
    "decode_expected_experts_bound_by": _BOUND_BY_EXPECTED,
}
_VARIANT = {
    "name": text("the variant: MHA, MQA, ..."),
    "released": flag("whether this is the model as released"),
    **_ROOFLINE,
    **{name: {"description": row.description, **value_of(row)} for name, row in ROOFLINE.items()},
}

SCHEMA = document(
    "fit",
    "Whether a model fits on GPUs: memory for the cache, concurrent requests, the longest context.",
    results=figures("the figures of the engine, and the bounds of time", {**_ENGINE, **_BOUNDS}),
    layers=either(_ANSWERED, _REFUSED),
    extra={
        "fits": _FITS,
        "verdict": choice("the verdict; with --engine all, the best of the engines", *_VERDICTS),
        "summary": text("the verdict as a sentence"),
        "runtime": _RUNTIME,
        "suggestions": listed("changes after which the verdict is 'fits'", fields("a change", _SUGGESTION)),
        "engine": text("the engine"),
        "engine_version": _VERSION,
        "bound": _BOUND,
        "log_lines": _LOG_LINES,
        "gpu": or_null(text("name of the GPU"), _NO_GPU),
        "gpus": whole("all GPUs, those of replicas among them", 1),
        "tp": whole("tensor-parallel GPUs", 1),
        "pp": whole("pipeline stages", 1),
        "dp": whole("data-parallel ranks", 1),
        "attn_dp": whole("data-parallel ranks of attention (SGLang)", 1),
        "expert_parallel": flag("whether experts are divided over the GPUs"),
        "agrees": or_null(flag("whether all figures of the cache agree with the log"), "without a log"),
        "checks": listed("the figures of the log's cache; [] without a log", check((BYTES, TOKENS, NO_UNIT))),
        "estimates": listed("other sizes that the log prints; [] without a log", fields("a size", _ESTIMATE)),
        "refusal": or_null(
            fields("why the engine did not start, by its log", _REFUSAL), "if it started, and without a log"
        ),
        "replicas": whole("copies of the model, data-parallel ranks among them", 1),
        "launch_command": _COMMAND,
        "devices": listed(
            "llama.cpp's memory on each GPU and on the host; [] for other engines", fields("a device", _DEVICE)
        ),
        "totals": fields("all replicas together", _TOTALS),
        "users": or_null(
            fields("the users' requests and how many run concurrently", _USERS_FACTS), "without --prompt and --lengths"
        ),
        "roofline": or_null(
            fields(
                "what bounds the times",
                {**_ROOFLINE, "variants": listed("a decode step with other attention", fields("a variant", _VARIANT))},
            ),
            "without a roofline",
        ),
    },
    definitions={"engine_figures": figures("the engine's figures", _ENGINE, *DETAILS.values())},
)
