"""What vLLM refuses before it looks at the memory."""

from __future__ import annotations

from ...model import ModelSpec
from ...units import count
from ..engine import Refusal
from .options import VllmArgs

_PADDING = 64
"""Rows to which the vocabulary is padded (DEFAULT_VOCAB_PADDING_SIZE in vocab_parallel_embedding.py)."""


def refusal(model: ModelSpec, args: VllmArgs) -> Refusal | None:
    """Return why vLLM does not start with this model and these arguments; None if it does.

    Args:
        model: The whole model, not one device's share.
        args: The arguments; `max_model_len` is the context.
    """
    context, maximum = args.max_model_len or 0, model.max_context
    if maximum and context > maximum and not args.allow_long_max_model_len:
        return Refusal(
            f"context {count(context)} is beyond the model's maximum of {count(maximum)}",
            f"Use --context {maximum} or less. With VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 (--allow-long-max-model-len here) "
            "vLLM starts, but positions beyond the maximum may give wrong results.",
        )
    rows = -(-(model.vocab_size or 0) // _PADDING) * _PADDING
    if rows % args.tp:
        sizes = [str(tp) for tp in range(1, args.tp) if rows % tp == 0]
        return Refusal(
            f"--tp {args.tp} does not divide the padded vocabulary of {count(rows)}",
            f"Use a --tp that does: {', '.join(sizes[-4:])}.",
        )
    return None
