"""compressed-tensors (llm-compressor): groups of modules with a scheme each.

The bytes are those that the library itself writes for one linear layer (compressed-tensors 0.20,
`ModelCompressor`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ....quantization import LINEAR, Scheme
from .fields import Config, Read, UnreadError, block, integer, section, size

# NVFP4: an fp8 scale per 16 elements; one fp32 scale per matrix, and one for its input.
NVFP4 = Scheme("fp4", 4, group=16, scale_bits=8, fixed=8)
# MXFP4: an exponent of 8 bits per 32 elements.
MXFP4 = Scheme("mxfp4", 4, group=32, scale_bits=8)
# MXFP8: an exponent of 8 bits per 32 elements.
MXFP8 = Scheme("fp8", 8, group=32, scale_bits=8)

_GROUP_KEYS = ("weights", "input_activations", "output_activations", "targets", "format")
# The keys of compressed-tensors' QuantizationScheme and QuantizationArgs.
_ARGUMENTS = (
    "num_bits",
    "type",
    "symmetric",
    "group_size",
    "strategy",
    "block_structure",
    "dynamic",
    "actorder",
    "scale_dtype",
    "zp_dtype",
    "observer",
    "observer_kwargs",
)
# {class in targets: the module that it stands for}.
_CLASSES = {"Embedding": "embed_tokens"}


def compressed_tensors(found: Config) -> Read:
    """Return the schemes of config_groups, which cover an lm head too unless it is ignored."""
    sparsity = section(found, "sparsity_config").get("format")
    if sparsity not in (None, "dense"):
        raise UnreadError(f"sparsity format {sparsity}")
    return config_groups(found, heads=True), found.get("ignore")


def config_groups(found: Config, *, heads: bool) -> list[Scheme]:
    """Return the schemes of config_groups. A group that covers only single modules goes first.

    `heads` is whether 'Linear' covers the lm head. Raises UnreadError if there are no groups, or
    one of them is not known.
    """
    groups = found.get("config_groups")
    if not isinstance(groups, Mapping):
        raise UnreadError("config_groups is missing")
    schemes = []
    for group in groups.values():
        if not isinstance(group, Mapping):
            raise UnreadError("a group that is not an object")
        # only activations, or the output of attention, are quantized
        if group.get("weights") is None:
            continue
        _check_keys(group, _GROUP_KEYS)
        listed = group.get("targets") or [LINEAR]
        if not isinstance(listed, list):
            raise UnreadError("targets that are not a list")
        targets = [_CLASSES.get(str(target), str(target)) for target in listed]
        if heads and LINEAR in targets:
            targets.append("lm_head")
        form = str(group.get("format") or found.get("format") or "")
        inputs = section(group, "input_activations")
        schemes.append(_arguments(group["weights"], inputs, form)._replace(targets=tuple(targets)))
    return sorted(schemes, key=lambda scheme: LINEAR in scheme.targets)


def _arguments(weights: Any, inputs: Config, form: str) -> Scheme:
    """Return the scheme of a group's QuantizationArgs.

    Scales are in the model's dtype of 16 bits; those of nvfp4, mxfp4 and mxfp8 have 8.
    """
    if not isinstance(weights, Mapping):
        raise UnreadError("weights that are not an object")
    if form in ("marlin-24", "sparse-24-bitmask", "sparse-bitmask"):
        raise UnreadError(f"format {form}")
    _check_keys(weights, _ARGUMENTS)
    n_bits = size(weights, "num_bits")
    kind = weights.get("type", "int")
    has_exponents = "uint8" in str(weights.get("scale_dtype")) or form.startswith("mx")
    if (kind, n_bits) == ("float", 4):
        is_mxfp4 = has_exponents or weights.get("group_size") == 32
        nvfp4 = NVFP4 if inputs else NVFP4._replace(fixed=4)
        return (MXFP4 if is_mxfp4 else nvfp4)._replace(weight_only=not inputs)
    if (kind, n_bits) == ("float", 8):
        scheme = MXFP8 if has_exponents else Scheme("fp8", 8)
    elif kind == "int" and 2 <= n_bits <= 8:
        scheme = integer(n_bits)
    else:
        raise UnreadError(f"{n_bits}-bit {kind}")
    is_static = bool(inputs) and inputs.get("dynamic") is False
    scheme = _with_scales(scheme, weights)
    fixed = 0
    if "pack" in form:
        fixed += 16  # weight_shape, two int64
    if is_static:
        fixed += 2  # input_scale
        if inputs.get("symmetric") is False:
            fixed += 1  # input_zero_point
    return scheme._replace(
        weight_only=not inputs,
        fixed=fixed,
        zero_bits=n_bits if weights.get("symmetric") is False else 0,
        # weight_g_idx
        row_bits=0 if weights.get("actorder") in (None, False, "weight", "static") else 32,
    )


def _check_keys(found: Config, known: Sequence[str]) -> None:
    for key, value in found.items():
        if value and key not in known:
            raise UnreadError(f"the key {key}")


def _with_scales(scheme: Scheme, weights: Config) -> Scheme:
    """Return the scheme with the scales of a strategy: per tensor, channel, group or block."""
    strategy = weights.get("strategy")
    group = size(weights, "group_size", 0)
    if strategy == "block" or weights.get("block_structure"):
        outputs, inputs = block(weights.get("block_structure"))
        return scheme._replace(group=inputs, block=outputs)
    if strategy in ("group", "tensor_group") or (strategy is None and group > 0):
        return scheme._replace(group=max(group, 0))
    if strategy in ("tensor", None):
        return scheme._replace(block=0)
    if strategy != "channel":
        raise UnreadError(f"strategy {strategy}")
    return scheme
