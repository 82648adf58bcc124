"""The Python API: a few lines to get a figure."""

from __future__ import annotations

import doctest

import pytest

import attncalc
import attncalc.quantity
from attncalc import AttncalcError, Workload, kv_cache, load


def test_a_few_lines_get_a_figure() -> None:
    cache = kv_cache(load("llama2-70b"), Workload.decode(batch=8, context=4096))
    assert cache.total == 10_737_418_240
    assert cache.total.formula.text == "L * B * T * 2 * n_kv_heads * d_head * bytes"
    assert cache.total.formula.substituted == "80 * 8 * 4096 * 2 * 8 * 128 * 2"


def test_a_workload_needs_a_context() -> None:
    with pytest.raises(AttncalcError, match="needs a context"):
        Workload.decode(batch=8)
    with pytest.raises(AttncalcError, match="context is 0, and must be at least 1"):
        Workload.prefill(context=0)


def test_every_public_name_exists() -> None:
    for name in attncalc.__all__:
        assert getattr(attncalc, name) is not None
        assert name in dir(attncalc)


def test_a_name_that_is_not_there_says_so() -> None:
    with pytest.raises(AttributeError, match="no attribute 'kv_cash'"):
        attncalc.kv_cash  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("module", [attncalc, attncalc.quantity])
def test_the_examples_in_docstrings_run(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.attempted
    assert not found.failed


def test_every_public_name_is_documented() -> None:
    for name in attncalc.__all__:
        words = (getattr(attncalc, name).__doc__ or "").strip()
        assert words
        assert not words.startswith(f"{name}(")  # what a dataclass or a named tuple without one gets
