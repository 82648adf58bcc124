"""Activation memory of one attention layer's forward pass: the score matrix, and the peak by kernel."""

from __future__ import annotations

from typing import NamedTuple

from ..attention import Attention, refuse_past
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, symbol
from ..workload import Run, Workload
from .common import compute_dtype, group_name
from .kernels import Machine, Moment, Shape, peaks


class LayerActivations(NamedTuple):
    """One layer of a group: its score matrix, and the moment of its peak for each kernel, in bytes.

    attention: 'self' or 'cross'. score_shape: (B, n_heads, S, T).
    """

    group: str
    layers: Layers
    attention: str
    score_shape: tuple[int, int, int, int]
    score_elements: Quantity
    score_matrix_per_head: Quantity
    score_matrix: Quantity
    output_shape: tuple[int, int, int]
    peaks: dict[str, Moment]

    @property
    def name(self) -> str:
        """'decoder', 'decoder_cross': unique in the model."""
        return f"{self.group}_cross" if self.attention == "cross" else self.group


def activations(model: ModelSpec, workload: Workload, machine: Machine | None = None) -> tuple[LayerActivations, ...]:
    """The activation memory of one layer of each group, on one device.

    machine: where it runs, for the buffers that a kernel has of its own; None leaves them out.
    AttncalcError: for a dtype that activations cannot have.
    """
    symbols, asked = model.symbolic(), workload.symbolic()
    where = machine or Machine()
    found = []
    for stack, layers in symbols.groups():
        if not stack.runs(asked):
            continue
        group = group_name(symbols, stack, layers)
        if layers.attention.widths().n_heads:  # a recurrent layer runs no attention kernel
            found.append(_layer(group, layers, "self", _own(symbols, stack, layers.attention, asked), where))
        if layers.cross:
            found.append(_layer(group, layers, "cross", _across(symbols, stack, layers.cross, asked), where))
    return tuple(found)


def _layer(group: str, layers: Layers, attention: str, s: Shape, machine: Machine) -> LayerActivations:
    return LayerActivations(
        group=group,
        layers=layers,
        attention=attention,
        score_shape=(int(s.B), int(s.n_heads), int(s.S), int(s.T)),
        score_elements=quantity(s.pairs),
        score_matrix_per_head=quantity(s.S * s.T * s.bytes),
        score_matrix=quantity(s.pairs * s.bytes),
        output_shape=(int(s.B), int(s.S), int(s.d_model)),
        peaks=peaks(s, machine),
    )


def _own(model: ModelSpec, stack: Stack, attention: Attention, workload: Workload) -> Shape:
    """The shape of self-attention; it reads what the cache keeps of the past, and what is new."""
    encoder = stack.input == "source"
    new, context = (workload.source or 0,) * 2 if encoder else (workload.new, workload.context)
    mask = workload.mask if workload.mask and not encoder else stack.mask
    refuse_past(Run(1, new, context), mask)
    span, padded = attention.span, bool(workload.lengths) and not encoder
    if new == context:
        keys, whole = context, mask.kind == "bidirectional"
    elif new == 1:
        keys, whole = span.cached_tokens(context), True
    else:
        keys, whole = span.cached_tokens(context - new) + new, False
    narrowed = padded or span.visible(context) < keys
    flag = new == context and mask.kind == "causal" and not narrowed and new > 1
    return _shape(
        model,
        stack,
        attention,
        workload,
        Run(workload.batch, new, context),
        keys=keys,
        held=new if new == context else 0,
        made=new,
        mask="causal" if flag else "none" if (whole or new == 1) and not narrowed else "matrix",
        masks=workload.batch if padded else 1,
    )


def _across(model: ModelSpec, stack: Stack, attention: Attention, workload: Workload) -> Shape:
    """The shape of cross-attention, which sees all of the source; its K and V are made in the first pass."""
    source = workload.source or 0
    first = not workload.past and workload.phase != "decode"
    run = Run(workload.batch, workload.new, source)
    return _shape(model, stack, attention, workload, run, keys=source, held=source if first else 0)


def _shape(
    model: ModelSpec,
    stack: Stack,
    attention: Attention,
    workload: Workload,
    run: Run,
    *,
    keys: int,
    held: int,
    made: int = 0,
    mask: str = "none",
    masks: int = 1,
) -> Shape:
    in_dtype = compute_dtype(model, workload)
    around = attention.widths(run)
    return Shape(
        B=run.sequences,
        S=run.new,
        T=keys,
        held_keys=run.new if around.together and not held else held,
        new_keys=made if not (held or around.together) else 0,
        n_heads=around.n_heads,
        n_kv_heads=around.n_kv_heads,
        d_qk=around.d_qk,
        d_v=around.d_v,
        extra=around.extra,
        gate=around.gate,
        d_model=stack.d_model,
        bytes=symbol("bytes", in_dtype.bits // 8, f"bytes of an element in {in_dtype.name}"),
        mask=mask,
        masks=masks,
    )
