"""The schema of `attncalc fit --json`."""

from __future__ import annotations

from ...units import BYTES, NO_UNIT, PER_SECOND, SECONDS, TOKENS
from .checks import check
from .parts import (
    Figures,
    Schema,
    amount,
    choice,
    document,
    either,
    fields,
    figures,
    flag,
    listed,
    number,
    or_null,
    ratio,
    ref,
    size,
    text,
    texts,
    whole,
)

_VERDICTS = ("fits", "may_not_fit", "does_not_fit")
_NO_GPU = "without a GPU"
_NOT_HELD = "if the engine holds none"
_NO_BLOCKS = "for an engine without blocks"
_NO_LIMIT = "without a limit"
_LLAMACPP = "for other engines than llama.cpp"
_NO_USERS = "without --prompt and --lengths, and without a limit"
_BUDGET = {
    "gpu_memory": size(BYTES, "memory of one GPU as software sees it", _NO_GPU),
    "usable_memory": size(BYTES, "the share of it that the engine uses", _NO_GPU),
    "weights": size(BYTES, "the weights on one GPU", _NO_GPU),
    "reserve": size(BYTES, "the runtime memory", _NO_GPU),
    "kv_memory": size(BYTES, "what is left for the cache"),
    "kv_memory_low": size(BYTES, "kv_memory if the runtime memory is largest"),
    "kv_memory_high": size(BYTES, "kv_memory if the runtime memory is smallest"),
    "kv_bytes_per_sequence": size(BYTES, "the cache of one sequence"),
    "kv_needed": size(BYTES, "the cache of the whole batch"),
    "kv_bytes_per_block": size(BYTES, "one block", _NO_BLOCKS),
    "kv_blocks": amount("blocks that fit", _NO_BLOCKS),
    "kv_tokens": size(TOKENS, "tokens that fit, as the engine counts them", "if the cache is in host memory"),
    "concurrency": ratio("concurrent requests of this context, as the engine prints it"),
    "max_context": size(TOKENS, "the longest context of the batch that fits", _NO_LIMIT),
    "max_batch": amount("the most sequences of this context that fit", _NO_LIMIT),
    "min_gpus": amount("the fewest GPUs of this kind that are enough", "if no number is"),
    "compute_buffer": size(BYTES, "llama.cpp's compute buffer on a GPU", _LLAMACPP),
    "host_compute_buffer": size(BYTES, "llama.cpp's compute buffer in host memory", _LLAMACPP),
    "model_buffer": size(BYTES, "llama.cpp's model buffer", _LLAMACPP),
    "max_n_gpu_layers": amount("llama.cpp's largest -ngl with which it fits", f"{_LLAMACPP}, and if nothing fits"),
    "min_n_cpu_moe": amount(
        "llama.cpp's smallest --n-cpu-moe with which it fits",
        f"{_LLAMACPP}, if nothing fits, and for models without experts",
    ),
    "weights_model": size(BYTES, "of the weights: those of the language model, as the checkpoint stores them", _NO_GPU),
    "weights_vision_tower": size(BYTES, "of the weights: the vision tower with its projector", _NOT_HELD),
    "weights_audio_tower": size(BYTES, "of the weights: the audio tower with its projector", _NOT_HELD),
    "weights_draft": size(BYTES, "of the weights: the draft model", _NOT_HELD),
    "weights_rope_tables": size(BYTES, "of the weights: tables of rotary positions", _NOT_HELD),
    "weights_absorbed_kv_b": size(BYTES, "of the weights: copies of MLA's kv_b_proj", _NOT_HELD),
    "weights_absorbed_products": size(
        BYTES, "of the weights: products of MLA's matrices that vLLM 0.7 keeps", _NOT_HELD
    ),
    "weights_mla_workspace": size(BYTES, "of the weights: a buffer of FlashInfer for MLA", _NOT_HELD),
    "weights_expert_padding": size(BYTES, "of the weights: padding of MXFP4 experts", _NOT_HELD),
    "weights_layer_inputs": size(BYTES, "of the weights: a buffer of Gemma 3n's and 4's inputs per layer", _NOT_HELD),
    "weights_vocab_padding": size(BYTES, "of the weights: padding of the vocabulary", _NOT_HELD),
    "weights_allocator": size(BYTES, "of the weights: what PyTorch's allocator adds to large tensors", _NOT_HELD),
}
_USERS = {
    "concurrent_average": amount("concurrent users of one replica, on average", _NO_USERS),
    "concurrent_worst": amount("concurrent users of one replica, at worst", _NO_USERS),
}
_NO_EXPERTS = "without experts"
_TIMES: Figures = {
    "prefill_time_bound": ratio("the shortest possible time of a prefill", unit=SECONDS),
    "decode_time_bound": ratio("the shortest possible time of a decode step", unit=SECONDS),
    "decode_tokens_per_second_bound": ratio(
        "the highest possible rate of the batch", "with drafted tokens", unit=PER_SECOND
    ),
    "prefill_time_expected_experts": ratio(
        "the time of a prefill with the expected experts, which is no bound", _NO_EXPERTS, unit=SECONDS
    ),
    "decode_time_expected_experts": ratio(
        "the time of a decode step with the expected experts, which is no bound", _NO_EXPERTS, unit=SECONDS
    ),
    "decode_tokens_per_second_expected_experts": ratio(
        "the rate of the batch with the expected experts", f"{_NO_EXPERTS}, with drafted tokens", unit=PER_SECOND
    ),
    "decode_compute_bound_batch": amount(
        "the batch from which decode is compute-bound, with the expected experts", "if it never is"
    ),
    "ridge_flop_per_byte": ratio("the FLOP per byte from which a step is compute-bound on this GPU"),
    "prefill_flop_per_byte": ratio("FLOP per byte of the prefill, with the expected experts"),
    "decode_flop_per_byte": ratio("FLOP per byte of a decode step, with the expected experts"),
    "decode_flop_per_byte_limit": ratio("what decode_flop_per_byte approaches in growing batches"),
}
_BOUNDS: Figures = {
    name: figure._replace(null=", and ".join(filter(None, (figure.null, "without a roofline"))))
    for name, figure in _TIMES.items()
}
_DETAILS: Figures = {
    "kv_block_size": size(TOKENS, "tokens per block"),
    "kv_groups": amount("groups of layers that share blocks"),
    "kv_blocks_per_request": amount("blocks of one request of this context"),
    "kv_bytes_per_token": size(BYTES, "one token in all layers"),
    "kv_bytes_per_token_per_layer": size(BYTES, "one token in one layer"),
    "cpu_blocks": amount("blocks in host memory"),
    "state_bytes_per_layer": size(BYTES, "one layer's state"),
    "state_bytes_per_slot": size(BYTES, "one slot of recurrent states"),
    "state_slots": amount("slots of recurrent states"),
    "state_bytes_per_sequence": size(BYTES, "one sequence's recurrent states"),
    "kv_cells": amount("llama.cpp's cells of one sequence"),
    "swa_cells": amount("llama.cpp's cells of its sliding windows"),
    "kv_bytes_per_cell": size(BYTES, "one cell"),
    "swa_bytes_per_cell": size(BYTES, "one cell of sliding windows"),
    "indexer_bytes_per_cell": size(BYTES, "one cell of an indexer's keys"),
    "full_bytes_per_token": size(BYTES, "one token in the layers with full attention"),
    "swa_bytes_per_token": size(BYTES, "one token in the layers with sliding windows"),
    "swa_tokens": size(TOKENS, "tokens that fit in the pool of sliding windows"),
}
_ENGINE = {**_BUDGET, **_USERS}

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
_BOUND_BY_EXPECTED = or_null(choice("what bounds the time with the expected experts", "compute", "memory"), _NO_EXPERTS)
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
    **{name: bound.plain for name, bound in _TIMES.items()},
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
    definitions={"engine_figures": figures("the engine's figures", _ENGINE, _DETAILS)},
)
