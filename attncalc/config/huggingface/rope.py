"""The rotary positions of a config: the longest context, and the tables that vLLM computes.

RoPE scaling multiplies the longest context. Source: vLLM's _get_and_verify_max_len
(config/model.py), which SGLang follows.

Layers with equal positions share a table. Source: vLLM 0.33,
model_executor/layers/rotary_embedding: `get_rope` keeps one table per set of arguments, and each
class has its own number of rows (`_compute_cos_sin_cache`).
"""

from collections.abc import Iterator, Mapping
from math import isnan
from typing import Any

from ...model import RopeTable
from ...units import MAX_COUNT
from .fields import Fields

# rope_types whose max_position_embeddings is the scaled context, or that do not scale.
_SCALED_ALREADY = frozenset({"default", "su", "longrope", "llama3", "mrope"})

# Above the longest context of a model file, 10^15.
_TOO_LARGE = 10**18
_MAX_ROWS = 2**31
_MAX_WIDTH = 2**16


def scaled_context(model_type: str, given: Mapping[str, Any], maximum: int) -> int:
    """Return the longest context: `maximum` (max_position_embeddings) times the factor of RoPE
    scaling.

    YaRN multiplies its original_max_position_embeddings; a `maximum` that is larger was scaled
    already. Gemma 3's is.
    """
    if "gemma3" in model_type:
        return maximum
    given_scaling = given.get("rope_scaling") or given.get("rope_parameters")
    scaling_of_all = given_scaling if isinstance(given_scaling, Mapping) else {}
    nested = [scaling for scaling in scaling_of_all.values() if isinstance(scaling, Mapping)]
    for scaling in nested or [scaling_of_all]:  # one per type of layer, or one for all layers
        kind = str(scaling.get("rope_type", scaling.get("type", "default")))
        factor = scaling.get("factor")
        if kind in _SCALED_ALREADY or not isinstance(factor, (int, float)) or isnan(factor):
            continue
        if "yarn" in kind:
            original = scaling.get("original_max_position_embeddings")
        else:
            original = None
        scaled = _bounded(
            original if isinstance(original, int) and original else maximum
        ) * _bounded(factor)
        maximum = max(maximum, int(scaled))
    return maximum


def _bounded(number: float) -> float:
    """Return a number, or one that is too large for a context: the product of two of them is
    finite, and an error.
    """
    return max(-_TOO_LARGE, min(number, _TOO_LARGE))


def rope_tables(model_type: str, fields: Fields) -> Iterator[RopeTable]:
    """Yield the tables of a language model; none if it has no rotary positions, or its fields are
    not known.
    """
    for name, parameters in _parameters(model_type, fields):
        rows = _rows(parameters, fields)
        width = _width(name, parameters, fields)
        if 0 < rows <= _MAX_ROWS and 0 < width <= _MAX_WIDTH:
            # vLLM makes such a table longer, because positions of a video may exceed the tokens.
            yield RopeTable("mrope" if "mrope_section" in parameters else name, rows, width)


def _parameters(model_type: str, fields: Fields) -> list[tuple[str, Mapping[str, Any]]]:
    """Return [(name of the table, its rope_parameters)]; kinds of layers with equal parameters
    share one table.
    """
    given = fields["rope_parameters"] or fields["rope_scaling"]
    parameters = given if isinstance(given, Mapping) else {}
    nested = {kind: inner for kind, inner in parameters.items() if isinstance(inner, Mapping)}
    if nested:
        tables: list[tuple[str, Mapping[str, Any]]] = []
        for name, inner in {_name(kind): inner for kind, inner in nested.items()}.items():
            if all(inner != other for _, other in tables):
                tables.append((name, inner))
        return tables
    has_base = any(fields[name] is not None for name in ("rope_theta", "rotary_dim"))
    if not (has_base or fields.is_of_class("rope_parameters")):
        return []
    if fields.given.get("position_embedding_type") not in (None, "rope", "rotary"):
        return []
    # Gemma 3's sliding layers have their own base, and no scaling (gemma3.py).
    if model_type.startswith("gemma3"):
        return [("full", parameters), ("sliding", {})]
    return [("full", parameters)]


def _name(kind: str) -> str:
    """Return the name of a kind of layers in a model file: 'full' for 'full_attention'."""
    name = "".join(char if char.isalnum() else "_" for char in kind.lower()).removesuffix(
        "_attention"
    )
    if name[:1].isalpha():
        return name
    return f"layers_{name}"


def _rows(parameters: Mapping[str, Any], fields: Fields) -> int:
    """Return the positions of a table; 0 if they are not known."""
    most = fields["max_position_embeddings"]
    if type(most) is not int:
        return 0
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    factor = parameters.get("factor", 1)
    original = (
        parameters.get("original_max_position_embeddings")
        or fields["original_max_position_embeddings"]
        or most
    )
    if (
        not isinstance(factor, (int, float))
        or type(original) is not int
        or not 0 < factor < _MAX_ROWS
    ):
        return 0
    if kind in ("yarn", "deepseek_yarn"):
        rows = int(original * factor)
    elif kind == "linear":
        rows = int(most * factor)
    elif kind in ("longrope", "su"):  # one table for short contexts, one for long ones
        rows = original + most
    else:  # default, llama3, dynamic, proportional
        rows = most
    return rows


def _width(name: str, parameters: Mapping[str, Any], fields: Fields) -> int:
    """Return the elements of a row, one per rotary dimension of a head; 0 if they are not known."""
    if type(fields["qk_rope_head_dim"]) is int:
        return int(fields["qk_rope_head_dim"])
    heads = fields["num_attention_heads"]
    head_dim = fields["global_head_dim"] if name == "full" else None
    head_dim = head_dim or fields["head_dim"]
    if head_dim is None and type(heads) is int and heads > 0 and type(fields["hidden_size"]) is int:
        head_dim = fields["hidden_size"] // heads
    # an int of 400 digits times a share would overflow
    if type(head_dim) is not int or head_dim > MAX_COUNT:
        return 0
    if type(fields["rotary_dim"]) is int:
        return int(fields["rotary_dim"])
    # Gemma 4's proportional positions have the full width: the dimensions that do not rotate are
    # stored too.
    if parameters.get("rope_type") == "proportional":
        return head_dim
    shares = (
        parameters.get("partial_rotary_factor"),
        fields["partial_rotary_factor"],
        fields["rotary_pct"],
    )
    for share in shares:
        if isinstance(share, (int, float)) and 0 < share <= 1:
            return int(head_dim * share)
    return head_dim
