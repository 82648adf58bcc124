"""The figures of `attncalc kv`."""

from ...attention import Variant
from ...cost.cache import KVCache
from ...model import ModelSpec
from ...quantity import named, quantity, ratio, symbol
from ...serving.weight_format import released_dtype
from ...serving.weights import AS_STORED, weights
from ...show.checkpoint import STORED, stored_weights
from ...show.figures import (
    KV_CACHE,
    PER_TOKEN,
    QUOTIENT,
    SUM,
    FigureRow,
    FigureRows,
    Given,
    ratio_row,
)
from ...show.layers import attention_source
from ...show.report import Figure
from ...units import BYTES
from ...workload import Workload

FIGURES = FigureRows(
    kv_cache=KV_CACHE,
    kv_cache_per_sequence=FigureRow(
        "per sequence", BYTES, "one sequence; with --lengths, the longest"
    ),
    **PER_TOKEN,
    kv_cache_if_mha=FigureRow(
        "if MHA",
        BYTES,
        "the cache if every query head had its own K and V",
        "if no layer has K and V heads",
    ),
    recurrent_state=FigureRow(
        "recurrent state", BYTES, "states that do not grow, part of kv_cache"
    ),
    cross_attention_cache=FigureRow(
        "cross-attention cache", BYTES, "keys and values of the source, part of kv_cache"
    ),
    kv_cache_all_devices=FigureRow(
        "on all devices",
        BYTES,
        "the sum over the --tp devices",
        source="what tensor parallelism replicates counts once per device",
    ),
    kv_cache_ratio_if_mha=ratio_row(
        "KV cache if MHA / KV cache",
        "kv_cache_if_mha / kv_cache",
        "if there is no cache to divide by",
        source=QUOTIENT,
    ),
    weights=FigureRow(
        "weights",
        BYTES,
        "the weights that 'fit --engine ideal' counts: the safetensors or GGUF files if they "
        "were read, else as "
        "released, with those that are not quantized in --dtype, and with vision and audio towers",
        "if their quantization is not read",
        source=SUM,
    ),
    **STORED,
)
OF_LAYERS = FigureRows(
    kv_cache=FigureRow("KV cache", BYTES, "the cache of all layers of this kind"),
    kv_cache_per_layer=FigureRow("KV cache per layer", BYTES, "the cache of one of them"),
    kv_cache_per_token_per_layer=FigureRow(
        "per token and layer, at this context",
        BYTES,
        "what the next token of one sequence adds to one of them",
    ),
)


def kv_figures(model: ModelSpec, workload: Workload, cache: KVCache) -> tuple[Figure, ...]:
    """Return the figures, whose names scripts rely on. A figure that does not apply has no
    number.
    """
    mha_heads = int(model.symbolic().with_variant(Variant("mha")).main.leading.widths().n_kv_heads)
    has_heads = any(
        Variant("mha").applies_to(kind)
        for _, layers in model.groups()
        for kind in layers.attentions
    )
    if_mha = cache.if_mha if has_heads else None
    tp = symbol("tp", model.tp, "tensor-parallel devices")
    all_devices = cache.total
    if model.tp > 1:
        all_devices = quantity(
            tp * named(cache.total, "kv_cache", "bytes of the cache on one device")
        )
    return FIGURES.filled(
        attention_source(model),
        kv_cache=cache.total,
        kv_cache_per_sequence=Given(
            cache.per_sequence, "longest sequence" if workload.lengths else ""
        ),
        kv_cache_per_token=cache.per_token,
        kv_cache_per_token_max=cache.per_token_without_windows,
        kv_cache_if_mha=Given(
            if_mha, f"if MHA ({mha_heads} KV heads{' per device' if model.tp > 1 else ''})"
        ),
        recurrent_state=cache.recurrent_state,
        cross_attention_cache=cache.cross_attention_cache,
        kv_cache_all_devices=Given(
            all_devices, f"on all {model.tp} devices" if model.tp > 1 else ""
        ),
        kv_cache_ratio_if_mha=None
        if if_mha is None
        else ratio(
            named(if_mha, "kv_cache_if_mha", "bytes with MHA"),
            named(cache.total, "kv_cache", "bytes of the cache"),
        ),
        weights=_weights(model, workload),
        weights_stored=stored_weights(model),
    )


def _weights(model: ModelSpec, workload: Workload) -> Given:
    """Return the weights that `fit --engine ideal` counts; no number if their quantization is not
    read.
    """
    if model.unread_quantization and model.stored is None:
        return Given(None)
    held = weights(model, in_dtype=workload.dtype, weights_dtype=released_dtype(model))
    if held.dtype == AS_STORED:
        label = "weights as stored"
    elif workload.dtype is None and not model.assumed:
        label = f"weights in {held.dtype}, as released"
    else:
        label = f"weights in {held.dtype}"
    return Given(held.total, label)
