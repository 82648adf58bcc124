"""Checks of counts, which must be equal: parameters, bytes of the cache, FLOPs, visible pairs."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ...attention import Matrix, pairs
from ...check import Check
from ...cost.kernels import FLASH_ALIGNMENT
from ...engines import per_layer_engine
from ...quantity import ceil_div, total
from ...records import NamedTuple
from ...units import BYTES, FLOP, NO_UNIT, PARAMS, dtype
from ...workload import Run, Workload
from ..cases import Case
from ..errors import CannotRunError
from ..kernels import sdpa
from ..layers.cache import Cache
from ..layers.recurrent import State
from ..masks import BLOCK, NO_MASK, mask_matrix
from ..passes import Pass
from ..plan import Plan
from ..real_layer import RealLayer, attend_with_first
from ..request import DECODE_STEPS
from .tolerance import largest, relative_error, tolerance

# Visible pairs are counted one by one up to this many tokens: the mask grows with their square.
MAX_COUNTED_TOKENS = 16_384


def parameters(layer: RealLayer, symbolic: Case) -> Iterator[Check]:
    """Check the elements of each parameter of the layer, and of all together."""
    elements: Counter[str] = Counter()
    for name, parameter in layer.module.named_parameters():
        elements[name.partition(".")[0]] += parameter.numel()
    matrices = {
        m.name: m for m in symbolic.kind.matrices(symbolic.stack.d_model, symbolic.d_source)
    }
    note = "elements of the layer's parameters of this name"
    failure = "the formula of this matrix does not match the layer"
    for name in {**matrices, **elements}:
        predicted = matrices.get(name, Matrix(name, 0)).params
        yield Check(
            "parameters",
            f"params_{name}",
            name,
            predicted,
            elements[name],
            0,
            PARAMS,
            note,
            failure,
        )
    note = "elements of all parameters of one layer"
    failure = (
        "the layer has a parameter that the formulas do not count, or lacks one that they count"
    )
    predicted = total(m.params for m in matrices.values())
    measured = elements.total()
    yield Check(
        "parameters",
        "params_layer",
        "all parameters",
        predicted,
        measured,
        0,
        PARAMS,
        note,
        failure,
    )


class Decoded(NamedTuple):
    """The last tokens of a context, decoded one by one after a prefill, and prefilled together with
    the others.
    """

    after_prefill: int  # bytes cached before the decode steps
    stepwise: Cache | State  # the cache after the decode steps
    together: Cache | State  # the cache after one prefill of all tokens
    outputs: Tensor  # the decoded outputs, (B, DECODE_STEPS, d_model)
    expected: Tensor  # the same outputs from the prefill


def decode_some(layer: RealLayer, plan: Plan) -> Decoded:
    """Run a prefill and decode steps, and one prefill of the same tokens.

    Sinks are left out, because only the math backend can compute them.
    """
    request = layer.request
    stepwise = layer.new_state()
    together = layer.new_state()
    before = request.context - DECODE_STEPS
    prefill_kernels = plan.leanest_kernels(layer.case, "prefill")
    decode_kernels = plan.leanest_kernels(layer.case, "decode")
    attend = attend_with_first(prefill_kernels, layer.prefill_mask(request.context))
    expected = layer.prefill(request.context, attend, together)[:, before:]
    layer.prefill(before, attend_with_first(prefill_kernels, layer.prefill_mask(before)), stepwise)
    after_prefill = stepwise.bytes
    steps = []
    for position in range(before, request.context):
        mask = layer.decode_mask(stepwise)
        # The last token of a chunk sees the whole cache, the ones before it do not, and flash takes
        # no mask. The math backend always does, and needs little memory for one token.
        attend = attend_with_first(decode_kernels if mask.matrix is None else ("math",), mask)
        steps.append(layer.step(position, attend, stepwise))
    return Decoded(after_prefill, stepwise, together, torch.cat(steps, 1), expected)


def cache_bytes(decoded: Decoded, layer: RealLayer, symbolic: Case) -> Iterator[Check]:
    """Check the bytes of the cache after a prefill and after decode steps."""
    context = layer.request.context
    before = context - DECODE_STEPS
    note = "bytes of the tensors that one layer caches"
    failure = "the cache has another number of rows, or rows of another width, than the formula"
    for phase, label, tokens, measured in (
        ("prefill", f"after {before:,} tokens", before, decoded.after_prefill),
        ("decode", f"after {DECODE_STEPS} decode steps", context, decoded.stepwise.bytes),
    ):
        predicted = predicted_bytes(symbolic, layer.request.decode(tokens))
        yield Check("cache", f"cache_{phase}", label, predicted, measured, 0, BYTES, note, failure)


def cache_contents(decoded: Decoded) -> Iterator[Check]:
    """Check that decode steps leave the cache of a prefill, and give its outputs."""
    section = "layer behaviour"
    limit = tolerance(decoded.expected.dtype)
    rows = zip(decoded.stepwise.rows, decoded.together.rows, strict=True)
    error = largest([relative_error(*pair) for pair in rows])
    note = (
        f"after a prefill and {DECODE_STEPS} decode steps, and after one prefill; largest "
        "relative difference"
    )
    failure = "the cache loses, mixes up or adds a token"
    yield Check(
        section, "cache_holds_every_token", "cache contents", 0, error, limit, "", note, failure
    )
    error = relative_error(decoded.outputs, decoded.expected)
    note = (
        f"outputs of the last {DECODE_STEPS} tokens, decoded and prefilled; largest relative "
        "difference"
    )
    failure += ", or decode computes another attention than prefill"
    yield Check(
        section, "decode_equals_prefill", "decode vs prefill", 0, error, limit, "", note, failure
    )


def predicted_bytes(symbolic: Case, workload: Workload) -> int:
    """Return the bytes that one layer caches, as the ideal engine stores them."""
    symbolic_workload = workload.symbolic()
    stored = dtype(workload.dtype or "")
    return total(
        per_layer_engine("ideal").layer_bytes(c, symbolic_workload, stored)
        for c in symbolic.kind.cache()
    )


def flops(layer_pass: Pass, layer: RealLayer, symbolic: Case) -> Check | None:
    """Check the FLOPs that torch counts in a pass; return None if it cannot count this kernel with
    these heads.
    """
    counts_kernel = kernel_is_counted(layer_pass, layer)
    if counts_kernel is None:
        return None
    phase = layer_pass.phase
    kernel = layer_pass.kernel
    projections, scores = _predicted_flops(layer_pass, layer, symbolic)
    note = "projections and dense scores: torch counts masked pairs too"
    if layer.is_recurrent:
        note = "projections, and products with the state, token by token"
    if not counts_kernel:
        note = "projections only: torch counts 0 FLOP for this kernel (pytorch#195460)"
    label = f"{phase}, {kernel}" + ("" if counts_kernel else " *")
    predicted = projections + scores if counts_kernel else projections
    measured = counted_flops(layer_pass.run)
    failure = "the layer multiplies other matrices than the formula"
    return Check(
        "FLOPs", f"flops_{phase}_{kernel}", label, predicted, measured, 0, FLOP, note, failure
    )


def _predicted_flops(layer_pass: Pass, layer: RealLayer, symbolic: Case) -> tuple[int, int]:
    """Return the FLOPs of the projections and of dense scores, as the pass's kernel computes
    them.
    """
    if layer_pass.phase == "decode":
        workload = layer.request.decode().symbolic()
        if symbolic.crosses:
            keys = workload.source or 0
        else:
            keys = symbolic.kind.span.cached_tokens(workload.context)
        projected_keys = 0 if symbolic.crosses else workload.batch
        tokens = workload.new
    else:
        workload = layer.request.prefill().symbolic()
        if symbolic.stack.input == "source":
            tokens = workload.source or 0
        else:
            tokens = workload.new
        keys = (workload.source or 0) if symbolic.crosses else tokens
        projected_keys = workload.batch * keys
    run = Run(1, tokens, keys)
    scores = workload.batch * symbolic.kind.score_flops(run, None)
    # torch pads its heads, and counts the padded ones: 88 for a d_head of 84
    if layer_pass.kernel == "flash":
        widths = symbolic.kind.widths(run)
        added = sum(
            ceil_div(d, FLASH_ALIGNMENT) * FLASH_ALIGNMENT - d for d in (widths.d_qk, widths.d_v)
        )
        if added:
            scores += workload.batch * 2 * widths.n_heads * tokens * keys * added
    return projection_flops(symbolic, workload.batch * tokens, projected_keys), scores


def projection_flops(case: Case, queries: int, keys: int) -> int:
    """Return the FLOPs of projecting this many tokens to queries, and this many to keys and
    values.
    """
    matrices = case.kind.matrices(case.stack.d_model, case.d_source)
    tokens = {"queries": queries, "keys": keys}
    return sum(2 * tokens[m.applied_to] * m.weights for m in matrices if m.applied_to)


def counted_flops(run: Callable[[], Tensor]) -> int:
    """Return the FLOPs of every matrix product and every kernel that torch can count."""
    with FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def kernel_is_counted(layer_pass: Pass, layer: RealLayer) -> bool | None:
    """Return whether torch counts the FLOPs of this kernel; None if its counter fails with these
    heads.

    It does not count fused attention on a CPU (pytorch#195460), and until 2026 failed for grouped
    heads in a fused kernel (pytorch#177188).
    """
    if layer.is_recurrent:
        return True
    widths = layer.case.kind.widths(Run(1, 1, 8) if layer_pass.phase == "decode" else None)
    # one group of heads is enough
    q = layer.x.new_zeros(1, widths.n_heads // widths.n_kv_heads, 8, widths.d_qk)
    k = layer.x.new_zeros(1, 1, 8, widths.d_qk)
    v = layer.x.new_zeros(1, 1, 8, widths.d_v)
    try:
        return counted_flops(partial(sdpa, layer_pass.kernel, q, k, v, NO_MASK, 1.0)) > 0
    except (AssertionError, CannotRunError):  # the counter's error reaches the kernel's caller
        return None


def visible_pairs(layer: RealLayer, symbolic: Case) -> Iterator[Check]:
    """Check the query-key pairs of the mask: the closed form against the mask counted entry by
    entry.
    """
    if symbolic.crosses or layer.is_recurrent:
        return
    tokens = min(layer.x.shape[1], MAX_COUNTED_TOKENS)
    run = Run(1, *[layer.request.prefill(tokens).symbolic().context] * 2)
    positions = torch.arange(tokens, device=layer.device)
    case = layer.case
    blocks = (
        mask_matrix(case.kind.span, case.mask, rows, positions) for rows in positions.split(BLOCK)
    )
    predicted = pairs(symbolic.kind.span, run, symbolic.stack.mask)
    measured = sum(int(b.sum()) for b in blocks)
    note = (
        f"true entries of the mask of {tokens:,} tokens: exact scores cost this many times one pair"
    )
    failure = "the closed form does not count the pairs of the mask"
    yield Check("FLOPs", "pairs", "visible pairs", predicted, measured, 0, NO_UNIT, note, failure)
