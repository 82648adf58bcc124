"""Query-key pairs: the closed forms equal a count over a boolean mask."""

import pytest
from asking import Ask, results
from evaluate import evaluate
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError, Chunked, Full, Mask, Sliding, Workload
from attncalc.attention import Span, pairs
from attncalc.quantity import quantity, symbol
from attncalc.workload import Run

SPANS = st.one_of(
    st.just(Full()), st.builds(Sliding, st.integers(1, 12)), st.builds(Chunked, st.integers(1, 12))
)
LENGTHS = st.integers(1, 24)


def in_span(span: Span, i: int, j: int) -> bool:
    """Return whether the span lets positions i and j (from 0) see each other."""
    if isinstance(span, Sliding):
        return abs(i - j) < span.window
    return not isinstance(span, Chunked) or i // span.chunk == j // span.chunk


def counted(span: Span, mask: Mask, new: int, context: int) -> int:
    """Count the True entries of the boolean mask one by one."""

    def seen(i: int, j: int) -> bool:
        together = i < mask.prefix and j < mask.prefix
        return in_span(span, i, j) and (j <= i or together or mask.kind == "bidirectional")

    return sum(seen(i, j) for i in range(context - new, context) for j in range(context))


@given(SPANS, LENGTHS, st.data())
def test_causal_pairs_are_exact_for_every_span_and_past(
    span: Span, context: int, data: st.DataObject
) -> None:
    new = data.draw(st.integers(1, context))
    assert pairs(span, Run(1, new, context), Mask()) == counted(span, Mask(), new, context)


@given(SPANS, LENGTHS)
def test_bidirectional_pairs_are_exact_for_every_span(span: Span, context: int) -> None:
    mask = Mask("bidirectional")
    assert pairs(span, Run(1, context, context), mask) == counted(span, mask, context, context)


@given(SPANS, LENGTHS, st.data())
def test_prefix_pairs_are_exact_for_every_span(
    span: Span, context: int, data: st.DataObject
) -> None:
    mask = Mask("prefix", data.draw(st.integers(1, context)))
    assert pairs(span, Run(1, context, context), mask) == counted(span, mask, context, context)


@given(SPANS, LENGTHS, st.data())
def test_new_tokens_after_a_prefix_are_causal(
    span: Span, context: int, data: st.DataObject
) -> None:
    new = data.draw(st.integers(1, context))
    prefix = data.draw(st.integers(1, context))
    if new < context and prefix > context - new:
        with pytest.raises(AttncalcError, match="must be new or all in the past"):
            Workload.prefill(1, context, past=context - new, mask=Mask("prefix", prefix))
    else:
        mask = Mask("prefix", prefix)
        assert pairs(span, Run(1, new, context), mask) == counted(span, mask, new, context)


@given(SPANS, LENGTHS, st.data())
def test_the_formula_of_the_pairs_gives_their_number(
    span: Span, context: int, data: st.DataObject
) -> None:
    new = data.draw(st.integers(1, context))
    run = Run(1, symbol("S", new, ""), symbol("T", context, ""))
    counted_pairs = quantity(pairs(span, run, Mask()))
    assert evaluate(counted_pairs.formula.substituted) == int(counted_pairs)


def test_the_formula_of_one_query_has_no_difference() -> None:
    """A prefill sees T * (T + 1) / 2 pairs, a decode step T, and several tokens after a past the
    difference of two.
    """
    context = symbol("T", 30, "")
    new = {1: 1, 7: symbol("S", 7, ""), 30: context}
    texts = {
        n: quantity(pairs(Full(), Run(1, s, context), Mask())).formula.text for n, s in new.items()
    }
    assert texts[1] == "T"
    assert "-" in texts[7]
    assert "-" not in texts[30]


def test_without_a_mask_all_pairs_count() -> None:
    assert pairs(Sliding(2), Run(1, 5, 7), None) == 35


def test_a_bidirectional_mask_has_no_decode_step() -> None:
    with pytest.raises(AttncalcError, match="no decode step"):
        pairs(Full(), Run(1, 1, 7), Mask("bidirectional"))


MASKS = st.sampled_from([Mask(), Mask("bidirectional"), Mask("prefix", 3), Mask("prefix", 10)])


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), SPANS, MASKS)
def test_a_padded_batch_leaves_out_padding(lengths: list[int], span: Span, mask: Mask) -> None:
    if mask.prefix > max(lengths):
        return
    workload = Workload.prefill(lengths=tuple(lengths), mask=mask)
    visible_pairs = sum(run.sequences * pairs(span, run, mask) for run in workload.runs)
    assert visible_pairs == sum(counted(span, mask, length, length) for length in lengths)
    assert (workload.batch, workload.context) == (len(lengths), max(lengths))


@pytest.mark.parametrize("text", ["causal", "bidirectional", "prefix:12"])
def test_masks_parse_their_own_text(text: str) -> None:
    assert str(Mask.parse(text)) == text


@pytest.mark.parametrize("text", ["", "prefix", "prefix:0", "prefix:x", "full", "causal:3"])
def test_an_unknown_mask_is_an_error(text: str) -> None:
    with pytest.raises(AttncalcError):
        Mask.parse(text)


def test_a_decode_step_after_a_prefix_has_flops_at_every_context(ask: Ask) -> None:
    """The prefix is in the past of the step, so it changes no figure; the crossover is searched
    from a context of 1.
    """
    plain, prefix = (
        ask("flops", "gpt2", "--phase", "decode", "--mask", mask, "--json")
        for mask in ("causal", "prefix:5")
    )
    assert prefix.code == 0
    assert results(prefix) == results(plain)
