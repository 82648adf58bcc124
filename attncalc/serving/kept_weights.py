"""A quantized checkpoint of a model as options tell it: the parts that it leaves in 16 bits, or the
size of its files.
"""

import dataclasses
from collections.abc import Sequence

from ..checkpoint import CheckpointWeights
from ..cost.params import params
from ..engines.multi_token import PREDICT_TOKENS, prediction_layers
from ..errors import AttncalcError
from ..model import ModelSpec
from ..quantity import Quantity
from ..quantization import LINEAR, PART, Quantization, Role, Scheme, StoredAs
from ..units import BYTES, DType, dtype, human
from .weight_format import as_weights, released_dtype

NONE = "none"
# {a part as --keep names it: the roles of its matrices}. Embedding, lm head, routers and norms are
# not among them, because they stay in 16 bits anyway.
PARTS: dict[str, tuple[Role, ...]] = {
    "attention": ("attention", "cross"),
    "linear-attention": ("linear",),
    "mlp": ("mlp",),
    "shared-experts": ("shared_experts",),
}
# Dtypes whose releases have lookup tables in fp8, with few scales, which are not counted.
_WITH_TABLES_IN_FP8 = ("fp8", "fp4")
_TABLES_IN_FP8 = Scheme("fp8", 8, block=0, scale_bits=0, targets=(f"{PART}lookup",))
# Bits from which weights are not quantized.
_WIDE = 16


def with_kept(model: ModelSpec, weights_dtype: str | None, kept: Sequence[str]) -> ModelSpec:
    """Return the model with its matrices in `weights_dtype`, and the kept parts in its own dtype.

    Raises AttncalcError without a quantized dtype, if the model's files or its release say what is
    quantized, if the model does not have a part, or if nothing would be quantized.
    """
    _check_dtype(model, weights_dtype)
    assert weights_dtype is not None
    roles = _roles(model)
    for part in kept:
        if not roles.intersection(PARTS[part]):
            having = [name for name, of_part in PARTS.items() if roles.intersection(of_part)]
            raise AttncalcError(
                f"--keep {part}: {model.title} has no {part.replace('-', ' ')}",
                f"give {NONE}, or of {', '.join(having)} what the checkpoint leaves in 16 bits",
            )
    kept_roles = {role for part in kept for role in PARTS[part]}
    if "experts" not in roles and not (roles & {"attention", "linear", "mlp"}) - kept_roles:
        raise AttncalcError(
            f"--keep {','.join(kept)} leaves nothing in {weights_dtype}",
            "leave --weights-dtype out: all matrices are then as released",
        )
    schemes = [_scheme_of(as_weights(weights_dtype))]
    if weights_dtype in _WITH_TABLES_IN_FP8:
        schemes.insert(0, _TABLES_IN_FP8)
    quantization = Quantization(
        "", tuple(schemes), ignored=tuple(f"{PART}{role}" for role in sorted(kept_roles))
    )
    return _quantized(model, weights_dtype, quantization)


def with_layout(model: ModelSpec, weights_dtype: str, layout: StoredAs) -> ModelSpec:
    """Return the model with its matrices as a known checkpoint stores them, and the dtype of the
    cache that it asks for.
    """
    quantized = _quantized(model, weights_dtype, layout.quantization)
    return dataclasses.replace(quantized, kv_dtype=layout.kv_dtype or model.kv_dtype)


def _quantized(model: ModelSpec, weights_dtype: str, quantization: Quantization) -> ModelSpec:
    """Return the model with a quantization, most of whose matrices are in `weights_dtype`."""
    # as of a checkpoint that was read: engines choose other kernels if only experts are quantized
    only_experts = model.has_experts and not _quantizes_attention(model, quantization)
    return dataclasses.replace(
        model,
        quantization=quantization,
        weights_dtype=None if only_experts else weights_dtype,
        experts_dtype=weights_dtype if only_experts else None,
        unread_quantization="",
    )


def _quantizes_attention(model: ModelSpec, quantization: Quantization) -> bool:
    for stack, layers in model.groups():
        for role, _, matrix in layers.matrices_by_role(stack.d_model, model.d_source):
            if role == "attention" and quantization.scheme_of(0, role, matrix.name):
                return True
    return False


def _check_dtype(model: ModelSpec, weights_dtype: str | None) -> None:
    """Raise AttncalcError unless a dtype is given that says less than what the model's release
    does.
    """
    tip = "add the dtype of the other matrices, as --weights-dtype int4"
    if model.stored is not None:
        raise AttncalcError(
            f"--keep: the files of {model.title} say what is quantized", "leave --keep out"
        )
    if weights_dtype is None:
        raise AttncalcError("--keep needs --weights-dtype", tip)
    if as_weights(weights_dtype).bits >= _WIDE:
        raise AttncalcError(f"--keep has no effect on weights in {weights_dtype}", tip)
    if weights_dtype == released_dtype(model):
        raise AttncalcError(
            f"--keep: the release of {model.title} says what is in {weights_dtype}",
            "leave --keep out, or give another --weights-dtype",
        )


def _roles(model: ModelSpec) -> set[Role]:
    """Return the roles of the model's matrices."""
    return {
        role
        for stack, layers in model.groups()
        for role, _, _ in layers.matrices_by_role(stack.d_model, model.d_source)
    }


def _scheme_of(stored: DType) -> Scheme:
    """Return the scheme of matrices that are stored in a dtype of weights."""
    scale_bits = 0 if stored.group is None else 8 * stored.scale_bytes
    return Scheme(
        stored.name, stored.bits, group=stored.group or 0, scale_bits=scale_bits, targets=(LINEAR,)
    )


def with_size(model: ModelSpec, weights_dtype: str | None, size: int) -> ModelSpec:
    """Return the model with files of `size` bytes, whose matrices are in `weights_dtype`; None is
    the released dtype.

    Files of a model with layers for multi-token prediction have these too, in its own dtype. Raises
    AttncalcError if the model's files are known, or cannot be as small or as large.
    """
    if model.stored is not None:
        raise AttncalcError(
            f"--weights-size: the files of {model.title} are known", "leave --weights-size out"
        )
    name = weights_dtype and as_weights(weights_dtype).name
    stored_in = name or released_dtype(model) or model.dtype
    own_bits = dtype(model.dtype).bits
    language = int(params(model).total)
    towers = sum(tower.params for tower in model.towers)
    predicted = 0
    if model.model_type in PREDICT_TOKENS:
        layers = prediction_layers(model, 1)
        predicted = int(params(layers).total) if layers else 0
    least = language * as_weights(stored_in).bits // 8
    most = (language + towers + predicted) * own_bits // 8
    if not 0.9 * least <= size <= 1.2 * most:
        takes = human(Quantity(least), BYTES)
        if human(Quantity(most), BYTES) != takes:
            takes += f" to {human(Quantity(most), BYTES)}"
        raise AttncalcError(
            f"--weights-size {human(Quantity(size), BYTES)}: {model.title} in {stored_in} takes "
            f"{takes}",
            "give the size of all files together, and the dtype of most: --weights-dtype int4",
        )
    stored = CheckpointWeights(1, 0, (), size, kind="given", predicting=predicted * own_bits // 8)
    notes = model.notes
    if predicted:
        left_out = human(Quantity(stored.predicting), BYTES)
        notes += (
            f"Of --weights-size, {left_out} are taken for layers for multi-token prediction, which "
            "an engine loads as a drafter.",
        )
    model = dataclasses.replace(model, stored=stored, notes=notes)
    if name is None or name == released_dtype(model):
        return model
    return dataclasses.replace(
        model, weights_dtype=name, experts_dtype=None, quantization=None, unread_quantization=""
    )
