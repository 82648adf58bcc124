"""How cost grows with the context: the growth when it doubles, and where scores overtake
projections.
"""

from collections.abc import Callable, Sequence
from math import lcm

from ..attention import Chunked
from ..model import ModelSpec
from ..quantity import Quantity, Ratio, least, named, ratio
from ..records import NamedTuple
from ..search import first_true
from ..workload import Workload
from .common import check_source
from .flops import flops, mlp_flops, projections, scores

# The longest context that the search for a crossover considers.
MAX_CONTEXT = 2**62


class Growth(NamedTuple):
    """The cost at twice the context divided by the cost at this one."""

    total: Ratio  # of all FLOPs
    scores: Ratio  # of the exact scores


def growth(model: ModelSpec, workload: Workload) -> Growth:
    """Return how much all FLOPs and the exact scores grow when the context doubles."""
    now = flops(model, workload)
    doubled = flops(model, workload.doubled())

    def growth_of(name: str, before: Quantity, after: Quantity) -> Ratio:
        return ratio(
            named(after, f"{name}_at_2T", "FLOP at twice the context"),
            named(before, name, "FLOP at this context"),
        )

    return Growth(
        growth_of("flops_total", now.total, doubled.total),
        growth_of("flops_attention_scores", now.scores, doubled.scores),
    )


def crossover(
    model: ModelSpec, workload: Workload, than: Sequence[str] = ("attention_projections",)
) -> Quantity | None:
    """Return the shortest context at which exact scores cost more than attention's projections,
    'mlp' or both.

    All sequences have that length, and the tokens in the past are those of `workload`. Returns None
    if the scores never cost more: every layer has a window or a chunk.
    """
    check_source(model, workload.source)
    plain = model.plain()

    def scores_cost_more(context: int) -> bool:
        score_flops, other_flops = _scores_and_others(plain, workload.at(context), than)
        return score_flops > other_flops

    past = 0 if workload.phase == "decode" else workload.past
    spans = [layers.attention.span for layers in model.main.layers]
    chunks = {int(span.chunk) for span in spans if isinstance(span, Chunked)}
    context = _first_context(scores_cost_more, past, chunks)
    if context is None:
        return None
    if len(list(model.groups())) == 1:
        sides = _scores_and_others(model.symbolic(), workload.at(context).symbolic(), than)
        return least("T", context, "tokens of context", *sides)
    score_flops, other_flops = _scores_and_others(plain, workload.at(context), than)
    return least(
        "T",
        context,
        "tokens of context",
        named(score_flops, "flops_attention_scores_at_T", "FLOP of the scores at that context"),
        named(
            other_flops,
            f"flops_{'_'.join(than)}_at_T",
            f"FLOP of {' and '.join(than)} at that context",
        ),
    )


def _scores_and_others(
    model: ModelSpec, workload: Workload, than: Sequence[str]
) -> tuple[int, int]:
    """Return the FLOPs of exact scores and of the parts that they are compared with, in all
    layers.
    """
    of_scores = of_others = 0
    for stack, layers in model.groups():
        of_scores += layers.count * scores(stack, layers, workload)
        if "attention_projections" in than:
            of_others += layers.count * projections(model, stack, layers, workload)
        if "mlp" in than:
            of_others += layers.count * mlp_flops(stack, layers, workload)
    return of_scores, of_others


def _first_context(
    scores_cost_more: Callable[[int], bool], past: int, chunks: set[int]
) -> int | None:
    """Return the first context above `past` at which the scores cost more, or None if there is none
    up to MAX_CONTEXT.

    With chunks the scores may fall behind again, since a new chunk starts with few keys: with a
    chunk of 8,000, a decode step at context 8,000 sees 8,000 keys, and the next one sees one key.
    Three facts make the search short:

    - Consider only contexts that are a multiple of every chunk size (without chunks: all contexts).
      Once the scores cost more at one of these, they cost more at all later ones.
    - Before such a multiple the scores can cost more only if they do so at the multiple, too. The
      first multiple above `past` is an exception: with 7,900 of 8,000 tokens in the past, the first
      new tokens see a nearly full chunk.
    - Between two ends of chunks, the difference of scores and projections is convex in the context.
      So if the scores cost more anywhere between them, they do so from some context up to the
      second end.
    """
    period = lcm(*chunks)
    origin = past
    if past % period:
        origin = past - past % period + period
        context = _first_between(scores_cost_more, past, origin, chunks)
        if context is not None:
            return context
    end = _first_multiple(scores_cost_more, origin, period)
    if end is None:
        return None
    return _first_between(scores_cost_more, end - period, end, chunks)


def _first_multiple(predicate: Callable[[int], bool], origin: int, period: int) -> int | None:
    """Return the first of origin + period, origin + 2 * period, ... for which `predicate` is true.

    Returns None if there is none up to MAX_CONTEXT.
    """
    high = 1
    while not predicate(origin + high * period):
        high *= 2
        if high * period > MAX_CONTEXT:
            return None
    return origin + period * first_true(lambda k: predicate(origin + k * period), high // 2, high)


def _first_between(
    scores_cost_more: Callable[[int], bool], start: int, end: int, chunks: set[int]
) -> int | None:
    """Return the first context above `start` and up to `end` at which the scores cost more, or
    None.
    """
    ends: set[int] = set()
    for chunk in chunks:
        ends.update(range(start - start % chunk + chunk, end, chunk))
    for chunk_end in [*sorted(ends), end]:
        if scores_cost_more(chunk_end):
            return first_true(scores_cost_more, start, chunk_end)
        start = chunk_end
    return None
