"""torchtune's activation offloading, and its chunked loss when compiled."""

from typing import Any

from asking import Ask
from tables import each

from attncalc import load
from attncalc.cost.training.setup import Training
from attncalc.cost.training.step import StageBudget, most_loaded
from attncalc.questions.train.request import read_train_request

# Llama 3 8B with one sequence of 2,048 tokens in bf16: a layer's input, and the logits.
INPUT = 2048 * 4096 * 2
LOGITS = 2048 * 128_256 * 2
HEAD = 128_256 * 4096 * 2
OPTIONS: Any = {"context": 2048, "recompute": "full", "master_weights": False}
OFFLOADED: Any = {**OPTIONS, "offload": "activations"}


def run_of(options: dict[str, Any]) -> Training:
    given: Any = options
    return read_train_request(load("llama3-8b"), given).run


def held_at(budget: StageBudget, moment: str, name: str) -> int:
    (found,) = (found for found in budget.moments if found.name == moment)
    return sum(int(held.size) for held in found.held if held.name == name)


LOSS = "backward pass of the loss"
LAST = "backward pass of the MLP's product in the last layer"
FIRST = "backward pass of the MLP's product in the first layer"


def test_five_saved_tensors_and_the_heads_input_stay_on_the_gpu_until_the_loss() -> None:
    budget = most_loaded(run_of(OFFLOADED), plain=True)
    # the inputs of the last two layers; of the last norm a copy in fp32, its result and 4 bytes of
    # 1 / RMS per token; and the input of the head, which is not offloaded
    assert held_at(budget, LOSS, "activations") == (2 + 2 + 1 + 1) * INPUT + 2048 * 4


def test_a_layers_input_and_that_of_the_layer_before_are_back_in_its_backward_pass() -> None:
    budget = most_loaded(run_of(OFFLOADED), plain=True)
    assert held_at(budget, LAST, "activations") == 2 * INPUT
    assert held_at(budget, FIRST, "activations") == 2 * INPUT


def test_what_is_saved_besides_the_heads_input_is_in_host_memory() -> None:
    budget = most_loaded(run_of(OFFLOADED))
    # token ids of 8 bytes, 32 inputs of layers, and what the last norm saves
    on_host = 2048 * 8 + 32 * INPUT + 3 * INPUT + 2048 * 4
    assert int(budget.states.on_host) == on_host
    both = most_loaded(run_of({**OPTIONS, "offload": "optimizer,activations"}))
    # AdamW's moments in fp32
    assert int(both.states.on_host) == on_host + 2 * 4 * int(both.states.trained)


@each(
    ("lora", "accumulation", "above"),
    [
        # three tensors like the head while autograd sums its gradients, and 7 of 8 chunks of logits
        ({}, 1, 3 * HEAD + LOGITS * 7 // 8),
        # those of earlier micro-batches too
        ({}, 2, 3 * HEAD + LOGITS * 7 // 8),
        # a frozen head has none: the logits and the gradient of one chunk
        ({"lora": "r=8"}, 1, LOGITS + LOGITS // 8),
    ],
)
def test_a_compiled_chunked_loss_holds_logits_and_the_sum_of_the_heads_gradients(
    lora: dict[str, Any], accumulation: int, above: int
) -> None:
    options = {**OPTIONS, "loss": "chunked", "compile": True, **lora}
    run = run_of({**options, "gradient_accumulation": accumulation})
    budget = most_loaded(run, plain=True)
    (loss,) = (found for found in budget.moments if found.name == LOSS)
    of_step = int(budget.states.gradients) if accumulation > 1 else 0
    kept = held_at(budget, LOSS, "activations")
    assert loss.size - of_step - kept == above


@each(
    ("words", "error"),
    [
        ("--offload activations", "--offload activations needs --recompute full"),
        (
            "--offload activations --recompute full --pp 2",
            "--offload activations cannot be combined with --pp 2",
        ),
        ("--offload gradients", "--offload cannot be 'gradients'"),
    ],
)
def test_offloading_that_no_trainer_has_is_refused(ask: Ask, words: str, error: str) -> None:
    assert error in ask("train", "llama3-8b", *words.split()).error
