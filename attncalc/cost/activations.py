"""Activation memory of one attention layer's forward pass: the score matrix, and the peak of each
kernel.
"""

from ..attention import Attention, check_mask
from ..errors import NotSupportedError
from ..model import Layers, ModelSpec, Stack
from ..quantity import Quantity, quantity, symbol
from ..records import NamedTuple
from ..workload import Run, Workload
from .common import check_pass, compute_dtype, group_name, symbolic
from .kernels import Machine, Moment, Shape, moments, peak


class LayerActivations(NamedTuple):
    """The activation memory of one layer of a group."""

    group: str  # the group's name
    layers: Layers  # the group
    attention: str  # 'self' or 'cross'
    # (B, n_heads, S, T), where T is the number of keys that the kernel reads
    score_shape: tuple[int, int, int, int]
    score_elements: Quantity  # elements of the score matrix
    score_matrix_per_head: Quantity  # bytes of one head's score matrix of one sequence
    score_matrix: Quantity  # bytes of the whole score matrix
    output_shape: tuple[int, int, int]  # (B, S, d_model)
    moments: dict[str, list[Moment]]  # the moments of a pass that may be its peak, by kernel

    @property
    def peaks(self) -> dict[str, Moment]:
        """Return the moment with the most bytes, by kernel."""
        return {kernel: peak(candidates) for kernel, candidates in self.moments.items()}

    @property
    def tensor_peaks(self) -> dict[str, Moment]:
        """Return the same without the buffers that kernels allocate inside."""
        peaks = {}
        for kernel, candidates in self.moments.items():
            peaks[kernel] = peak(moment.without_buffers for moment in candidates)
        return peaks

    @property
    def buffers(self) -> dict[str, int]:
        """Return the most bytes that each kernel allocates inside."""
        buffers = {}
        for kernel, candidates in self.moments.items():
            sizes = (moment.size - moment.without_buffers.size for moment in candidates)
            buffers[kernel] = max(sizes)
        return buffers

    @property
    def name(self) -> str:
        """Return a name that is unique in the model: 'decoder', 'decoder_cross'."""
        if self.attention == "cross":
            return f"{self.group}_cross"
        return self.group


def activations(
    model: ModelSpec, workload: Workload, machine: Machine | None = None
) -> tuple[LayerActivations, ...]:
    """Return the activation memory of one layer of each group, on one device.

    Without `machine`, the kernels' own buffers are not counted.

    Raises AttncalcError for a training step, a step that the model does not have, and a dtype that
    activations cannot have.
    """
    if workload.phase == "train":
        raise NotSupportedError(
            "memory does not support --phase train: it counts a forward pass without gradients",
            "'attncalc train MODEL' counts the memory of a training step; here give --phase "
            "prefill or decode",
        )
    check_pass(model, workload)
    symbols, workload = symbolic(model, workload)
    machine = machine or Machine()
    layer_activations = []
    for stack, layers in symbols.groups():
        if not stack.runs(workload):
            continue
        group = group_name(symbols, stack, layers)
        if layers.attention.widths().n_heads:  # a recurrent layer runs no attention kernel
            shape = _self_attention(symbols, stack, layers.attention, workload)
            layer_activations.append(_layer(group, layers, "self", shape, machine))
        if layers.cross:
            shape = _cross_attention(symbols, stack, layers.cross, workload)
            layer_activations.append(_layer(group, layers, "cross", shape, machine))
    return tuple(layer_activations)


def _layer(
    group: str, layers: Layers, attention: str, s: Shape, machine: Machine
) -> LayerActivations:
    return LayerActivations(
        group=group,
        layers=layers,
        attention=attention,
        score_shape=(int(s.B), int(s.n_heads), int(s.S), int(s.T)),
        score_elements=quantity(s.pairs),
        score_matrix_per_head=quantity(s.S * s.T * s.bytes),
        score_matrix=quantity(s.pairs * s.bytes),
        output_shape=(int(s.B), int(s.S), int(s.d_model)),
        moments=moments(s, machine),
    )


def _self_attention(
    model: ModelSpec, stack: Stack, attention: Attention, workload: Workload
) -> Shape:
    """Return the shape of self-attention, whose keys are the cached ones of the past and the new
    ones.
    """
    encoder = stack.input == "source"
    if encoder:
        new = workload.source or 0
        context = new
    else:
        new = workload.new
        context = workload.context
    mask = workload.mask if workload.mask and not encoder else stack.mask
    check_mask(Run(1, new, context), mask)
    span = attention.span
    padded = bool(workload.lengths) and not encoder
    if new == context:
        keys = context
    elif new == 1:
        keys = span.cached_tokens(context)
    else:
        keys = span.cached_tokens(context - new) + new
    # which check_mask allows only without a past
    all_visible = new == 1 or mask.kind == "bidirectional"
    is_narrowed = padded or span.visible_keys(context) < keys
    if new == context and mask.kind == "causal" and not is_narrowed and new > 1:
        kernel_mask = "causal"
    elif all_visible and not is_narrowed:
        kernel_mask = "none"
    else:
        kernel_mask = "matrix"
    return _shape(
        model,
        stack,
        attention,
        workload,
        Run(workload.batch, new, context),
        keys=keys,
        live_keys=new if new == context else 0,
        new_keys=new,
        mask=kernel_mask,
        masks=workload.batch if padded else 1,
    )


def _cross_attention(
    model: ModelSpec, stack: Stack, attention: Attention, workload: Workload
) -> Shape:
    """Return the shape of cross-attention, which sees the whole source and computes its K and V in
    the first pass.
    """
    source = workload.source or 0
    first = not workload.past and workload.phase != "decode"
    run = Run(workload.batch, workload.new, source)
    return _shape(
        model, stack, attention, workload, run, keys=source, live_keys=source if first else 0
    )


def _shape(
    model: ModelSpec,
    stack: Stack,
    attention: Attention,
    workload: Workload,
    run: Run,
    *,
    keys: int,
    live_keys: int,
    new_keys: int = 0,
    mask: str = "none",
    masks: int = 1,
) -> Shape:
    dtype = compute_dtype(model, workload)
    widths = attention.widths(run)
    cached_keys = 0
    if widths.fused:
        live_keys = live_keys or run.new
    elif not live_keys:
        cached_keys = new_keys
    return Shape(
        B=run.sequences,
        S=run.new,
        T=keys,
        live_keys=live_keys,
        cached_keys=cached_keys,
        n_heads=widths.n_heads,
        n_kv_heads=widths.n_kv_heads,
        d_qk=widths.d_qk,
        d_v=widths.d_v,
        extra=widths.extra,
        gate=widths.gate,
        d_model=stack.d_model,
        bytes=symbol("bytes", dtype.bits // 8, f"bytes of an element in {dtype.name}"),
        mask=mask,
        masks=masks,
    )
