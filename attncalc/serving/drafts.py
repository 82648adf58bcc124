"""The drafter beside a model on one device: a draft model, or the model's layers for multi-token
prediction.
"""

import dataclasses
from typing import Any

from ..cost.cache import layer_cache_specs
from ..cost.params import params
from ..engines.base import DraftModel, EngineArgs
from ..engines.engine import Engine
from ..engines.multi_token import PREDICT_TOKENS, prediction_layers
from ..errors import AttncalcError
from ..model import MAX_LAYERS, ModelSpec
from ..quantity import ceil_div
from ..units import count
from .weight_format import released_dtype
from .weights import weights


def draft_model(draft: ModelSpec, model: ModelSpec, of: Engine[Any], tp: int) -> DraftModel:
    """Return the draft model beside a model on one device, split as the model is.

    vLLM's draft_tensor_parallel_size is --tensor-parallel-size by default, and SGLang has one
    --tp-size. The head of an EAGLE draft is split over the vocabulary; its `fc` is not. Raises
    AttncalcError if it does not divide, or it is not a decoder.
    """
    if draft.encoder or not draft.main.has_cache:
        what = "is an encoder-decoder" if draft.encoder else "has no cache"
        raise AttncalcError(
            f"--speculative-model: {draft.title} {what}", "a draft model is a decoder"
        )
    if draft.vocab_size is None:  # its files may have a copy of what it shares with the model
        draft = dataclasses.replace(draft, stored=None)
    held = of.held_of_draft(draft, model)
    head = tuple(
        m._replace(cols=ceil_div(m.cols, tp)) if m.name == "lm_head" else m for m in held.extra
    )
    part = dataclasses.replace(held, extra=head).shard(tp)
    size = int(
        weights(
            part, weights_dtype=released_dtype(draft), part=part if of.splits_by_layer else None
        ).total
    )
    return DraftModel(draft.title, size, layer_cache_specs(part.plain()), part)


def predicting(model: ModelSpec, args: EngineArgs, weights_dtype: str | None) -> DraftModel | None:
    """Return the layers for multi-token prediction on one device; None without any, or if their
    sizes are unknown.

    A checkpoint in fp8 has them in fp8 too, and most of those in 4 bits in 16 bits. A GGUF file has
    their bytes; in one that was computed from the model they have as many bits as the other
    weights. `model` is one device's share; without `weights_dtype` matrices have that of the model
    or of its files.
    """
    if (args.speculative_layers or 0) > MAX_LAYERS:
        raise AttncalcError(
            f"--speculative-layers: {count(args.speculative_layers or 0)} is more than "
            f"{count(MAX_LAYERS)}",
            "a drafter for multi-token prediction has one layer, or a few",
        )
    layers = prediction_layers(model, args.speculative_layers)
    stored = model.stored
    if (
        stored
        and stored.contents
        and not stored.file_type
        and args.speculative_layers
        and not stored.predicting
    ):
        raise AttncalcError(
            "the GGUF file has no layers for multi-token prediction",
            "leave --speculative-layers out, or name another file",
        )
    if layers is None:
        return None
    if stored and stored.contents:
        of_file = stored.size * int(params(layers).total) // int(params(model).total)
        return DraftModel(
            layers.title, stored.predicting or of_file, layer_cache_specs(layers.plain()), layers
        )
    given = weights_dtype or model.weights_dtype or model.experts_dtype
    # DeepSeek-V4's has experts in mxfp4
    is_fp8 = "fp8" in (given, model.quantization and model.quantization.method)
    if not is_fp8:
        layers = dataclasses.replace(
            layers, weights_dtype=None, experts_dtype=None, quantization=None
        )
    size = int(weights(layers, weights_dtype=given if is_fp8 else None).total)
    return DraftModel(layers.title, size, layer_cache_specs(layers.plain()), layers)


def without_prediction(model: ModelSpec) -> ModelSpec:
    """Return the model without its files' tensors of multi-token prediction, which engines load as
    a drafter only.

    A GGUF file keeps them: llama.cpp's GPUs have the tensors of their layers.
    """
    stored = model.stored
    if (
        stored is None
        or not stored.predicting
        or stored.contents
        or model.model_type not in PREDICT_TOKENS
    ):
        return model
    return dataclasses.replace(
        model, stored=stored._replace(size=stored.size - stored.predicting, predicting=0)
    )
