"""llama.cpp's defaults: its micro-batch, the dtype of its cache, its slots."""

from __future__ import annotations

from ..defaults import EngineDefaults
from ..runtime import Limits
from .limits import DEFAULT_UBATCH, MAX_GPUS, MAX_SEQUENCES
from .runtime import llamacpp_runtime

DEFAULTS = EngineDefaults(
    "llama.cpp",
    lambda args: Limits(args.ubatch or DEFAULT_UBATCH, 1),
    llamacpp_runtime,
    cache_dtype="fp16",  # common/common.h: whatever dtype the model has
    narrower_cache_dtypes=("q8_0", "q4_0"),
    narrower_weight_dtypes=("q8_0", "q4_0"),
    max_slots=MAX_SEQUENCES,
    max_gpus=MAX_GPUS,
    splits_by_layer=True,
    reserves_context=lambda args: not args.kv_unified,
    runtime_grows=True,
    loads_towers=False,  # a file of its own, --mmproj
)
