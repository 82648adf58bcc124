"""Shared by the cost functions: dtypes, names of layer groups, and totals that read as sums of
named parts.
"""

from collections.abc import Mapping, Sequence

from ..attention.span import no_decode_step
from ..errors import AttncalcError
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, named, total
from ..records import NamedTuple
from ..units import DType, cache_dtype_named, dtype
from ..workload import Workload


class Part(NamedTuple):
    """A figure of one layer group."""

    group: str  # the group's name
    value: Quantity  # the figure


def group_name(model: ModelSpec, stack: Stack, layers: Layers) -> str:
    """Return a name that is unique in the model and fits in a formula: 'local', 'encoder',
    'encoder_local'.
    """
    if layers.name == "layers":
        return stack.name
    if len(model.stacks) > 1:
        return f"{stack.name}_{layers.name}"
    return layers.name


def sum_over_groups(name: str, meaning: str, parts: Sequence[Part]) -> Quantity:
    """Return the sum of a figure over layer groups.

    With one part the formula is that of the part; with several it is a sum of names: `name`_local +
    `name`_global.
    """
    nonzero = [part for part in parts if part.value]
    if len(nonzero) == 1:
        return nonzero[0].value
    return total(
        named(p.value, f"{name}_{p.group}", f"{meaning}, {p.group.replace('_', ' ')}")
        for p in nonzero
    )


def sum_named(parts: Mapping[str, tuple[int, str]]) -> Quantity:
    """Return the sum of named figures, {name: (value, meaning)}; zeros are left out."""
    return total(named(value, name, meaning) for name, (value, meaning) in parts.items() if value)


def symbolic(model: ModelSpec, workload: Workload) -> tuple[ModelSpec, Workload]:
    """Return both with their numbers as symbols, as each cost function needs them.

    Raises AttncalcError if the workload does not fit the model.
    """
    check_source(model, workload.source)
    return model.symbolic(), workload.symbolic()


def check_pass(model: ModelSpec, workload: Workload) -> None:
    """Raise AttncalcError for a decode step with a bidirectional mask, also of the first token."""
    if workload.phase == "decode" and (workload.mask or model.main.mask).kind == "bidirectional":
        raise no_decode_step()


def check_source(model: ModelSpec, source: int | None) -> None:
    """Raise AttncalcError for source tokens without an encoder or cross-attention, and for these
    without them.
    """
    needs_source = any(stack.input == "source" or layers.cross for stack, layers in model.groups())
    if source is not None and not needs_source:
        raise AttncalcError(
            "--source-context has no effect: this model has no encoder", "leave it out"
        )
    if source is None and needs_source:
        raise AttncalcError(
            f"{model.title} has an encoder, and needs source tokens", "give source=512, for example"
        )


def compute_dtype(model: ModelSpec, workload: Workload) -> DType:
    """Return the dtype of weights and activations: the workload's, or by default the model's."""
    return dtype(workload.dtype or model.dtype, compute=True)


def cache_dtype(model: ModelSpec, workload: Workload) -> DType:
    """Return the dtype of the cache: the workload's kv_dtype, by default its dtype, by default the
    model's.
    """
    return cache_dtype_named(workload.kv_dtype or workload.dtype or model.dtype)
