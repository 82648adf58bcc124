"""The buffers of DeepSpeed's ZeRO, with the keys of its file."""

from typing import Any

from asking import Ask
from tables import each

from attncalc import load
from attncalc.cost.training.step import StageBudget, most_loaded
from attncalc.questions.train.request import read_train_request

LOSS = "backward pass of the loss"
STEP = "optimizer step"
N = 8_030_261_248  # parameters of Llama 3 8B


def budget_of(**options: Any) -> StageBudget:
    given: Any = {"context": 1024, "gpus": 8, **options}
    return most_loaded(read_train_request(load("llama3-8b"), given).run, plain=True)


def held_at(budget: StageBudget, moment: str, name: str) -> int:
    (found,) = (found for found in budget.moments if found.name == moment)
    return sum(int(held.size) for held in found.held if held.name == name)


@each(
    ("options", "at_loss", "at_step"),
    [
        # elements of 2 bytes: a bucket of 5e8 in the backward pass, two with overlap_comm
        ({"zero": 2}, 2 * 5 * 10**8, 0),
        ({"zero": 2, "overlap_comm": True}, 2 * 2 * 5 * 10**8, 0),
        ({"zero": 1, "reduce_bucket_size": "2e8"}, 2 * 2 * 10**8, 0),
        ({"zero": 2, "reduce_bucket_size": "auto"}, 2 * 4096**2, 0),
        # ZeRO 3: one bucket for the whole run, and 1e9 weights that are gathered
        ({"zero": 3}, 2 * (5 * 10**8 + 10**9), 2 * 5 * 10**8),
        (
            {"zero": 3, "reduce_bucket_size": "auto", "stage3_max_live_parameters": "3e8"},
            2 * (4096**2 + 3 * 10**8),
            2 * 4096**2,
        ),
        # no more is gathered than there is
        ({"zero": 3, "stage3_max_live_parameters": "1e12"}, 2 * (5 * 10**8 + N), 2 * 5 * 10**8),
        # one GPU has a bucket too, and gathers nothing
        ({"zero": 3, "gpus": 1}, 2 * 5 * 10**8, 2 * 5 * 10**8),
    ],
)
def test_buffers_have_the_sizes_of_deepspeeds_keys(
    options: dict[str, Any], at_loss: int, at_step: int
) -> None:
    budget = budget_of(**options)
    assert held_at(budget, LOSS, "communication") == at_loss
    assert held_at(budget, STEP, "communication") == at_step


def test_zero_3_keeps_its_shard_of_gradients_in_a_buffer() -> None:
    # 2 bytes of 8.03 billion on 8 GPUs, rounded up per tensor
    budget = budget_of(zero=3)
    assert held_at(budget, LOSS, "gradients") == int(budget.states.gradients) == 2 * N // 8
    assert held_at(budget_of(zero=2), LOSS, "gradients") == 0


def test_gradients_of_the_head_are_whole_until_zero_3_reduces_them() -> None:
    moment = "backward pass of the MLP's product in the last layer"
    for accumulation in (1, 8):
        budget = budget_of(zero=3, gradient_accumulation=accumulation)
        assert held_at(budget, moment, "gradients") == 2 * N // 8 + 2 * 128_256 * 4096


@each(
    ("size", "elements"),
    # the shard is 8.03 billion / 2; gradients of a part are copied flat in 2 bytes and in fp32
    [("1e9", 10**9), ("500000000.0", 5 * 10**8), ("1e12", N // 2)],
)
def test_a_step_of_zero_3_copies_one_sub_group_at_a_time(size: str, elements: int) -> None:
    budget = budget_of(zero=3, gpus=2, sub_group_size=size)
    assert held_at(budget, STEP, "temporary") == (2 + 4) * elements


@each(
    ("words", "error"),
    [
        ("--reduce-bucket-size 2e8", "--reduce-bucket-size needs --zero 1 or 2 or 3"),
        ("--zero 3 --overlap-comm", "--overlap-comm needs --zero 1 or 2"),
        ("--zero 2 --sub-group-size 1e9", "--sub-group-size needs --zero 3"),
        ("--fsdp --stage3-max-live-parameters 1e9", "needs --zero 3"),
        ("--zero 3 --sub-group-size auto", "--sub-group-size cannot be auto"),
        ("--zero 3 --sub-group-size 0", "--sub-group-size: '0' is not a whole number from 1"),
    ],
)
def test_a_buffer_that_the_run_does_not_have_is_refused(ask: Ask, words: str, error: str) -> None:
    assert error in ask("train", "llama3-8b", "--gpus", "8", *words.split()).error
