"""Workloads: what fits together, and the runs of a padded batch."""

from typing import Any

import pytest
from tables import each

from attncalc.errors import AttncalcError
from attncalc.quantity import Quantity, quantity
from attncalc.workload import CAUSAL, Mask, Run, Workload

RAGGED = (300, 512, 300)


def test_a_padded_batch_is_runs_of_one_length_the_longest_first() -> None:
    runs = Workload.prefill(lengths=RAGGED).runs
    assert runs == (Run(1, 512, 512), Run(2, 300, 300))
    assert not any(isinstance(number, Quantity) for run in runs for number in run)
    assert Workload.decode(lengths=RAGGED).runs == (Run(1, 1, 512), Run(2, 1, 300))
    assert Workload.prefill(2, 9, past=4).runs == (Run(2, 5, 9),)


def test_the_runs_of_a_padded_batch_are_numbered_in_formulas() -> None:
    runs = Workload.prefill(lengths=RAGGED).symbolic().runs
    names = [tuple(quantity(number).formula.text for number in run) for run in runs]
    assert names == [("B_1", "T_1", "T_1"), ("B_2", "T_2", "T_2")]


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        (Workload.prefill(2, 9), ("T", "T")),  # all tokens are new
        (Workload.prefill(2, 9, past=4), ("S", "T")),
        (Workload.decode(2, 9), ("S", "T")),
        (Workload.decode(2, 1), ("S", "T")),
    ],
)
def test_new_tokens_have_a_symbol_of_their_own_unless_all_are_new(
    workload: Workload, names: tuple[str, str]
) -> None:
    symbols = workload.symbolic()
    assert (quantity(symbols.new).formula.text, quantity(symbols.context).formula.text) == names


def test_a_prefix_is_a_symbol_and_no_prefix_is_none() -> None:
    prefix = Workload.prefill(1, 9, mask=Mask("prefix", 1)).symbolic().mask
    assert prefix is not None
    assert quantity(prefix.prefix).formula.text == "prefix"
    assert Workload.prefill(1, 9, mask=CAUSAL).symbolic().mask == CAUSAL


@each(
    ("make", "keys", "error"),
    [
        (Workload.prefill, {"batch": 1, "context": 1}, ""),
        (Workload.prefill, {"batch": 0, "context": 1}, "batch is 0, and must be at least 1"),
        (Workload.prefill, {"batch": 1, "context": 0}, "context is 0, and must be at least 1"),
        (Workload.prefill, {"batch": 1}, "a workload needs a context"),
        (Workload.prefill, {"context": 5, "source": 1}, ""),
        (Workload.prefill, {"context": 5, "source": 0}, "source is 0, and must be at least 1"),
        (Workload.prefill, {"context": 5, "past": 4}, ""),
        (
            Workload.prefill,
            {"context": 5, "past": 5},
            "5 tokens in the past leave no new token in a context of 5",
        ),
        (Workload.prefill, {"context": 5, "past": -1}, "past is -1, and must not be negative"),
        (Workload.prefill, {"lengths": (5, 1)}, ""),
        (Workload.prefill, {"lengths": (5, 0)}, "every length must be at least 1"),
        (Workload.prefill, {"lengths": ()}, "every length must be at least 1"),
        (Workload.prefill, {"lengths": (5, 3), "past": 1}, "past cannot be combined with lengths"),
        (Workload.prefill, {"context": 5, "mask": Mask("prefix", 5)}, ""),
        (
            Workload.prefill,
            {"context": 5, "mask": Mask("prefix", 6)},
            "a prefix of 6 does not fit a context of 5",
        ),
        # the tokens of a prefix see each other: all are new, or all in the past
        (Workload.prefill, {"context": 5, "past": 3, "mask": Mask("prefix", 3)}, ""),
        (
            Workload.prefill,
            {"context": 5, "past": 2, "mask": Mask("prefix", 3)},
            "all of them must be new or all in",
        ),
        (
            Workload.prefill,
            {"context": 5, "past": 1, "mask": Mask("prefix", 3)},
            "all of them must be new or all in",
        ),
        (Workload.decode, {"context": 4, "mask": Mask("prefix", 3)}, ""),
        (
            Workload.decode,
            {"context": 4, "mask": Mask("prefix", 4)},
            "all of them must be new or all in",
        ),
    ],
)
def test_numbers_that_do_not_fit_together_are_errors(
    make: Any, keys: dict[str, Any], error: str
) -> None:
    if error:
        with pytest.raises(AttncalcError, match=error):
            make(**keys)
    else:
        make(**keys)


def test_new_tokens_are_a_part_of_the_context() -> None:
    assert Workload("prefill", 1, 5, 5).past == 0
    with pytest.raises(AttncalcError, match="6 new tokens do not fit in a context of 5"):
        Workload("prefill", 1, 6, 5)


@pytest.mark.parametrize(
    ("workload", "context", "new", "prefix"),
    [
        (Workload.prefill(1, 9, past=4), 12, 8, 0),
        (Workload.decode(1, 9), 12, 1, 0),
        (Workload.prefill(1, 9, mask=Mask("prefix", 5)), 4, 4, 4),
        (Workload.prefill(1, 9, mask=Mask("prefix", 5)), 5, 5, 5),
        (Workload.decode(1, 9, mask=Mask("prefix", 5)), 4, 1, 3),  # 3 tokens in the past
        (Workload.decode(1, 9, mask=Mask("prefix", 5)), 6, 1, 5),
        (Workload.decode(1, 9, mask=Mask("prefix", 5)), 1, 1, 1),
    ],
)
def test_a_workload_at_another_context_keeps_its_past(
    workload: Workload, context: int, new: int, prefix: int
) -> None:
    moved = workload.at(context)
    assert (moved.new, moved.context, moved.lengths) == (new, context, None)
    assert (moved.mask or CAUSAL).prefix == prefix


def test_doubling_keeps_the_past_and_doubles_each_length() -> None:
    doubled = Workload.prefill(1, 9, past=4).doubled()
    assert (doubled.new, doubled.context, doubled.lengths) == (14, 18, None)
    assert Workload.prefill(lengths=RAGGED).doubled().lengths == (600, 1024, 600)
