"""The schema of `attncalc fit --json`."""

from __future__ import annotations

from ...engines.startup_log import REFUSALS
from ...serving.log_cause import CAUSES
from ...units import BYTES, NO_UNIT, TOKENS
from ..fit_figures import DETAILS, FIGURES
from ..roofline import FIGURES as ROOFLINE
from ..roofline import NO_EXPERTS
from ..users import FIGURES as USERS_FIGURES
from . import parts as p

_VERDICTS = ("fits", "may_not_fit", "does_not_fit")
_NO_GPU = "without a GPU"
_NO_LIMIT = "without a limit"
_ENGINE = {**FIGURES, **USERS_FIGURES}
_BOUNDS = {
    name: row._replace(null_if=", and ".join(filter(None, (row.null_if, "without a roofline"))))
    for name, row in ROOFLINE.items()
}

_PART = {
    "name": p.text("name of the part"),
    "label": p.text("its name on screens"),
    "low": p.integer("the fewest bytes to expect; negative if a host may free memory meanwhile"),
    "expected": p.whole("the bytes to expect"),
    "high": p.whole("the most bytes to expect"),
    "source": p.text("what the formula and the range rest on"),
    "in_share": p.flag("false for what lies outside the engine's share, which is not subtracted"),
}
_RUNTIME = p.listed("the parts of the runtime memory; [] if it was given", p.fields("a part", _PART))
_COMMAND = p.or_null(
    p.text("the command that starts the engine as requested"),
    "if the engine has no server or no name of the checkpoint",
)
VERSION = p.or_null(p.text("the engine's version"), "for an engine without versions")
_BOUND = p.choice("whether bytes are what the engine reserves, or a lower bound", "reserved", "lower")
_LOG_LINES = p.texts("the lines that the engine will log")
_FITS = p.flag("false if the verdict is 'does_not_fit', else true")
_FREE_BATCH = p.or_null(p.whole("the most sequences of this context"), _NO_LIMIT)
_ANSWERED = p.fields(
    "an engine's answer",
    {
        "name": p.text("the engine"),
        "engine_version": VERSION,
        "bound": _BOUND,
        "fits": _FITS,
        "verdict": p.choice("its verdict", *_VERDICTS),
        "runtime": _RUNTIME,
        "facts": p.texts("its settings"),
        "log_lines": _LOG_LINES,
        "launch_command": _COMMAND,
        "refused": {"description": "null: the engine has an answer", "type": "null"},
        "results": p.ref("engine_figures"),
    },
)
_NULL: p.Schema = {"type": "null"}
_EMPTY: p.Schema = {"type": "array", "maxItems": 0}
_REFUSED = p.fields(
    "an engine that does not support the request, with --engine all",
    {
        "name": p.text("the engine"),
        **dict.fromkeys(("engine_version", "bound", "fits", "verdict"), _NULL),
        **dict.fromkeys(("runtime", "facts", "log_lines"), _EMPTY),
        "launch_command": _NULL,
        "refused": p.text("why the engine has no answer"),
        "results": _EMPTY,
    },
)
_SUGGESTION = {
    "change": p.text("the change in words"),
    "flag": p.text("what to type"),
    "concurrency": p.number("concurrent requests after it"),
    "max_batch": _FREE_BATCH,
    "max_batch_low": p.or_null(
        p.whole("the most sequences of this context that surely fit"), f"{_NO_LIMIT}, and if none does"
    ),
    "launch_command": _COMMAND,
}
_TOTALS = {
    "concurrency": p.number("concurrent requests"),
    "max_batch": _FREE_BATCH,
    "kv_tokens": p.or_null(p.whole("tokens that fit"), _NO_LIMIT),
}
_GIVEN = "if the reserve was given"
_DEVICE = {
    "name": p.text("CUDA0, CUDA1, ... or host"),
    "layers": p.whole("layers on it"),
    "model_buffer": p.whole("bytes of its weights"),
    "kv_buffer": p.whole("bytes of its cache"),
    "compute_buffer": p.or_null(p.whole("bytes of its compute buffer"), _GIVEN),
    "outside_buffers": p.or_null(p.whole("bytes outside the buffers"), f"{_GIVEN}, and on the host"),
    "total": p.whole("bytes of all of them"),
}
_ESTIMATE = {
    "name": p.text("its name"),
    "label": p.text("its name on screens"),
    "logged": p.integer("bytes as the log prints them"),
    "low": p.whole("the fewest bytes to expect"),
    "expected": p.integer("the bytes to expect"),
    "high": p.integer("the most bytes to expect"),
    "inside": p.flag("whether the logged size is in the range"),
}
_ADVICE = {
    "change": p.text("the change in words"),
    "option": p.text("what to add to the command; '' for a change of what surrounds the engine"),
    "known": p.flag("whether the log's own figures show that the engine starts with it"),
}
REFUSAL = {
    "kind": p.choice("what the engine's message says", *REFUSALS),
    "cause": p.choice("why the engine did not start", *CAUSES),
    "message": p.text("the engine's message"),
    "reason": p.text("the cause in words"),
    "needed": p.or_null(p.whole("bytes per GPU that were needed"), "if they are unknown"),
    "available": p.or_null(
        p.integer("bytes per GPU that were available; below 0 if weights and runtime memory were too large"),
        "if they are unknown",
    ),
    "missing": p.or_null(p.whole("bytes that are missing"), "if they are unknown"),
    "advice": p.listed(
        "what the log alone suggests; [] if changes were computed, which are 'suggestions'",
        p.fields("a change", _ADVICE),
    ),
}
_LOAD = {
    "running": p.whole("requests that run"),
    "waiting": p.whole("requests that wait"),
    "usage": {**p.number("the part of the cache that is used"), "minimum": 0, "maximum": 1},
    "preempted": p.whole("lines that say that requests were preempted"),
    "tokens_per_request": p.whole("tokens that a running request holds on average"),
    "requests_that_fit": p.whole("such requests that the cache holds"),
    "suggestions": p.listed("changes with which the cache holds all; [] if it does", p.fields("a change", _SUGGESTION)),
}
_USERS = {
    "prompt": p.or_null(p.whole("tokens of a prompt"), "with --lengths"),
    "output": p.or_null(p.whole("tokens of an output"), "with --lengths"),
    "shared_prefix": p.whole("tokens that all prompts start with"),
    "lengths": p.listed("the lengths of the requests; [] without --lengths", {"type": "integer", "minimum": 1}),
    "tokens_average": p.whole("tokens of a request on average"),
    "tokens_worst": p.whole("tokens of a request at worst"),
    "shares_prefix": p.flag("whether the engine stores the shared prefix once"),
    "concurrent_average_all_replicas": p.or_null(p.whole("concurrent users of all replicas on average"), _NO_LIMIT),
    "concurrent_worst_all_replicas": p.or_null(p.whole("concurrent users of all replicas at worst"), _NO_LIMIT),
}
_BOUND_BY = p.choice("what bounds the time", "compute", "memory")
_BOUND_BY_EXPECTED = p.or_null(
    p.choice("what bounds the time with the expected experts", "compute", "memory"), NO_EXPERTS
)
_TIMES = {
    "gpu": p.text("the GPU"),
    "prefill_batch": p.whole("sequences of the prefill", 1),
    "prefill_context": p.whole("tokens of each of them", 1),
    "decode_batch": p.whole("sequences of a decode step", 1),
    "decode_context": p.whole("tokens of each of them, on average", 1),
    "weights_dtype": p.text("dtype of the weights"),
    "math_dtype": p.text("dtype in which matrices are multiplied"),
    "prefill_bound_by": _BOUND_BY,
    "decode_bound_by": _BOUND_BY,
    "prefill_expected_experts_bound_by": _BOUND_BY_EXPECTED,
    "decode_expected_experts_bound_by": _BOUND_BY_EXPECTED,
}
_VARIANT = {
    "name": p.text("the variant: MHA, MQA, ..."),
    "released": p.flag("whether this is the model as released"),
    **_TIMES,
    **{name: {"description": row.description, **p.value_of(row)} for name, row in ROOFLINE.items()},
}
_ROOFLINE = {**_TIMES, "variants": p.listed("a decode step with other attention", p.fields("a variant", _VARIANT))}
SCHEMA = p.document(
    "fit",
    "Whether a model fits on GPUs: memory for the cache, concurrent requests, the longest context.",
    results=p.figures("the figures of the engine, and the bounds of time", {**_ENGINE, **_BOUNDS}),
    layers=p.either(_ANSWERED, _REFUSED),
    extra={
        "fits": _FITS,
        "verdict": p.choice("the verdict; with --engine all, the best of the engines", *_VERDICTS),
        "summary": p.text("the verdict as a sentence"),
        "runtime": _RUNTIME,
        "suggestions": p.listed("changes after which the verdict is 'fits'", p.fields("a change", _SUGGESTION)),
        "engine": p.text("the engine"),
        "engine_version": VERSION,
        "bound": _BOUND,
        "log_lines": _LOG_LINES,
        "gpu": p.or_null(p.text("name of the GPU"), _NO_GPU),
        "gpus": p.whole("all GPUs, those of replicas among them", 1),
        "tp": p.whole("tensor-parallel GPUs", 1),
        "pp": p.whole("pipeline stages", 1),
        "dp": p.whole("data-parallel ranks", 1),
        "attn_dp": p.whole("data-parallel ranks of attention (SGLang)", 1),
        "expert_parallel": p.flag("whether experts are divided over the GPUs"),
        "agrees": p.or_null(p.flag("whether all figures of the cache agree with the log"), "without a log"),
        "checks": p.listed("the figures of the log's cache; [] without a log", p.check((BYTES, TOKENS, NO_UNIT))),
        "estimates": p.listed("other sizes that the log prints; [] without a log", p.fields("a size", _ESTIMATE)),
        "refusal": p.or_null(
            p.fields("why the engine did not start, by its log", REFUSAL), "if it started, and without a log"
        ),
        "load": p.or_null(
            p.fields("the load of the running server, by its log", _LOAD), "without such lines, and without a log"
        ),
        "replicas": p.whole("copies of the model, data-parallel ranks among them", 1),
        "batch_per_replica": p.whole("the requests of one replica, of those in workload.batch", 1),
        "launch_command": _COMMAND,
        "devices": p.listed(
            "llama.cpp's memory on each GPU and on the host; [] for other engines", p.fields("a device", _DEVICE)
        ),
        "totals": p.fields("all replicas together", _TOTALS),
        "users": p.or_null(
            p.fields("the users' requests and how many run concurrently", _USERS), "without --prompt and --lengths"
        ),
        "roofline": p.or_null(p.fields("what bounds the times", _ROOFLINE), "without a roofline"),
    },
    definitions={"engine_figures": p.figures("the engine's figures", _ENGINE, sometimes=DETAILS.values())},
)
