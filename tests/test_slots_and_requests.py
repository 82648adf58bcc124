"""llama.cpp's slots (-np): one request runs in each, and a start has as many as its requests."""

import pytest
from asking import Ask, results
from tables import each

from attncalc import AttncalcError, fit

QWEN = (
    "fit",
    "qwen3-8b",
    "--engine",
    "llamacpp",
    "--weights-dtype",
    "q4_k_m",
    "--gpu",
    "rtx-3060",
    "-c",
    "8192",
)


@each("more", [(), ("-kvu",), ("--engine-version", "ik")])
def test_more_requests_than_slots_are_an_error(ask: Ask, more: tuple[str, ...]) -> None:
    error = ask(*QWEN, "-b", "8", "-np", "4", *more).error
    assert error == (
        "error: -b 8 is more requests than -np 4 has slots for\n  tip: give -np 8, or -b 4\n"
    )
    assert ask(*QWEN, "-b", "4", "-np", "4", *more).code in (0, 1)


def test_more_requests_than_slots_are_an_error_in_python() -> None:
    with pytest.raises(
        AttncalcError, match="batch=3 is more requests than sequences=2 has slots for"
    ):
        fit("qwen3-8b", engine="llamacpp", gpu="l4", context=4096, batch=3, sequences=2)


@each("slots", ["1", "4"])
def test_a_search_over_batches_starts_as_many_slots_as_it_tries(ask: Ask, slots: str) -> None:
    """Of Qwen3.5-4B 65 requests of 8,192 tokens fit for sure, whether or not -np 1, the default, is
    given.
    """
    command = (
        "fit",
        "qwen3.5-4b",
        "--engine",
        "llamacpp",
        "--gpu",
        "rtx-4090",
        "--weights-dtype",
        "q4_k_m",
    )
    shared = (*command, "-c", "8192", "-kvu")
    default, given = ask(*shared, "--json"), ask(*shared, "-np", slots, "--json")
    assert results(default)["max_batch_low"] == results(given)["max_batch_low"] == 65
