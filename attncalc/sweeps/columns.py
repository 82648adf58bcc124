"""The columns of a sweep: figures under the names that they have in JSON, and what computes each."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import AttncalcError, did_you_mean
from ..report.fit import WEIGHT_PARTS
from ..units import BYTES, FLOP, NO_UNIT, PARAMS, PER_SECOND, SECONDS, TOKENS, truncate
from .axes import AXES, is_number

ERROR = "error"
"""The last column: why a cell has no figures; None for a cell that has them."""
KV = {
    "kv_cache": BYTES,
    "kv_cache_per_sequence": BYTES,
    "kv_cache_per_token": BYTES,
    "kv_cache_per_token_max": BYTES,
    "kv_cache_if_mha": BYTES,
    "kv_cache_ratio_if_mha": NO_UNIT,
    "recurrent_state": BYTES,
    "cross_attention_cache": BYTES,
    "kv_cache_all_devices": BYTES,
    "weights_stored": BYTES,
}
"""Figures of `attncalc kv` with their units, as in all tables below."""
PARAMETERS = {
    "params_total": PARAMS,
    "params_active": PARAMS,
    "params_attention": PARAMS,
    "params_attention_weights": PARAMS,
    "params_attention_share": NO_UNIT,
    "params_mlp": PARAMS,
    "params_embedding": PARAMS,
    "params_head": PARAMS,
    "params_norm": PARAMS,
    "params_other": PARAMS,
}
"""Figures of `attncalc params`; a name that begins with 'params_' and is not here is a matrix that some models have."""
STEPS = {"flops_prefill": FLOP, "flops_decode": FLOP}
"""Figures of `attncalc compare`: a prefill of the whole context, and one decode step."""
PASS = {
    "flops_total": FLOP,
    "flops_total_dense": FLOP,
    "flops_attention_projections": FLOP,
    "flops_attention_scores": FLOP,
    "flops_attention_scores_dense": FLOP,
    "flops_attention_qk_dense": FLOP,
    "flops_mlp": FLOP,
    "flops_head": FLOP,
}
"""Figures of `attncalc flops`."""
MEMORY = {
    "score_matrix": BYTES,
    "score_matrix_per_head": BYTES,
    "score_elements": NO_UNIT,
    "peak_math": BYTES,
    "peak_flash": BYTES,
    "peak_efficient": BYTES,
    "peak_cudnn": BYTES,
}
"""Figures of `attncalc memory`."""
WEIGHTS = {"weights": BYTES}
"""A figure of `attncalc kv`, and in a sweep with --gpu or --kv-memory of `attncalc fit`."""
VERDICT: dict[str, str | None] = {"fits": None, "verdict": None}
"""What `attncalc fit` decides: columns that are not numbers."""
FIT = {
    "gpu_memory": BYTES,
    "usable_memory": BYTES,
    "reserve": BYTES,
    "kv_memory": BYTES,
    "kv_memory_low": BYTES,
    "kv_memory_high": BYTES,
    "kv_bytes_per_sequence": BYTES,
    "kv_needed": BYTES,
    "kv_bytes_per_block": BYTES,
    "kv_blocks": NO_UNIT,
    "kv_tokens": TOKENS,
    "concurrency": NO_UNIT,
    "max_batch": NO_UNIT,
    "max_context": TOKENS,
    "min_gpus": NO_UNIT,
    "compute_buffer": BYTES,
    "host_compute_buffer": BYTES,
    "model_buffer": BYTES,
    "max_n_gpu_layers": NO_UNIT,
    "min_n_cpu_moe": NO_UNIT,
    "replicas": NO_UNIT,
    "concurrency_all_replicas": NO_UNIT,
    "max_batch_all_replicas": NO_UNIT,
    "kv_tokens_all_replicas": TOKENS,
}
"""Figures of `attncalc fit`."""
BOUNDS = {
    "prefill_time_bound": SECONDS,
    "decode_time_bound": SECONDS,
    "decode_tokens_per_second_bound": PER_SECOND,
    "prefill_time_expected_experts": SECONDS,
    "decode_time_expected_experts": SECONDS,
    "decode_tokens_per_second_expected_experts": PER_SECOND,
    "prefill_flop_per_byte": NO_UNIT,
    "decode_flop_per_byte": NO_UNIT,
    "ridge_flop_per_byte": NO_UNIT,
    "decode_compute_bound_batch": NO_UNIT,
    "decode_flop_per_byte_limit": NO_UNIT,
}
"""Figures of the roofline of `attncalc fit`."""
LIMITS = ("decode_compute_bound_batch", "decode_flop_per_byte_limit")
"""Those of them that are searched for, so that they take long."""
USERS = {"concurrent_average": NO_UNIT, "concurrent_worst": NO_UNIT}
"""Figures of the users of `attncalc fit`, with --prompt and --output-len."""
COSTS = {**KV, **PARAMETERS, **STEPS, **PASS, **MEMORY}
OF_FIT: dict[str, str | None] = {**VERDICT, **FIT, **dict.fromkeys(WEIGHT_PARTS, BYTES), **BOUNDS, **USERS}
COST_DEFAULTS = ("kv_cache", "kv_cache_per_token", "params_total", "flops_prefill", "flops_decode")
FIT_DEFAULTS = (
    *COST_DEFAULTS,
    "fits",
    "verdict",
    "weights",
    "kv_memory",
    "kv_memory_low",
    "kv_memory_high",
    "kv_tokens",
    "concurrency",
    "max_batch",
    "max_context",
    "replicas",
    "concurrency_all_replicas",
    "max_batch_all_replicas",
    "kv_tokens_all_replicas",
    "prefill_time_bound",
    "decode_time_bound",
    "decode_tokens_per_second_bound",
)


def read_columns(names: str | Sequence[str] | None, *, with_fit: bool) -> tuple[str, ...]:
    """Return the columns: those named, or the default ones.

    Args:
        names: Names, as a list or as 'kv_cache,concurrency'; None for the default.
        with_fit: Whether the sweep has a GPU or a memory, and so the figures of `fit`.

    Raises AttncalcError if a name is unknown, or needs a GPU.
    """
    if names is None:
        return FIT_DEFAULTS if with_fit else COST_DEFAULTS
    given = names.split(",") if isinstance(names, str) else names
    columns = tuple(dict.fromkeys(name.strip() for name in given))
    for name in columns:
        if name in OF_FIT and not with_fit:
            raise AttncalcError(f"--columns {name} needs --gpu or --kv-memory", "give one of them: --gpu h100-80gb")
        if name not in {**COSTS, **WEIGHTS, **OF_FIT, **AXES} and not name.startswith("params_"):
            known = [*COSTS, *WEIGHTS, *(OF_FIT if with_fit else ())]
            hint = did_you_mean(name, known)
            tip = (
                f"{hint}the names in the JSON of kv, params, flops, memory and fit are known, as {', '.join(known[:3])}"
            )
            raise AttncalcError(f"--columns: there is no figure '{truncate(name)}'", tip)
    return columns


def unit_of(name: str) -> str | None:
    """Return the unit of a column, '' for none; None for a column of text."""
    units = {**COSTS, **WEIGHTS, **OF_FIT, ERROR: None}
    if name in units:
        return units[name]
    if name in AXES:
        return NO_UNIT if is_number(name) else None
    return PARAMS
