"""Modules that peft trains whole beside adapters: their copies, gradients and moments."""

from typing import Any

from asking import Ask, refusal
from tables import each

from attncalc import load, train
from attncalc.cost.training.setup import Training
from attncalc.cost.training.states import States, states
from attncalc.cost.training.step import most_loaded
from attncalc.cost.training.work import work
from attncalc.questions.train.request import read_train_request

# Elements of Llama 3 8B's table of embeddings, and of its head.
TABLE = 128_256 * 4096
LORA: Any = {"context": 2048, "lora": "r=8,targets=q+v", "recompute": "full"}
KBIT: Any = {"weights_dtype": "nf4"}


def run_of(model: str = "llama3-8b", **options: Any) -> Training:
    given: Any = LORA | options
    return read_train_request(load(model), given).run


def states_of(run: Training) -> States:
    return states(run, run.stages[0])


def bytes_of(held: States) -> dict[str, int]:
    """Return the bytes of what modules that are trained whole add to."""
    return {
        "weights": int(held.weights),
        "gradients": int(held.gradients),
        "moments": int(held.moments),
        "frozen": int(held.frozen_weights),
    }


@each(
    ("options", "expected"),
    [
        # copies of two tables in bf16 beside adapters in fp32: 2 bytes of weights, 2 of gradients,
        # and torch.optim's two moments of 2
        ({}, {"weights": 2, "gradients": 2, "moments": 2 * 2, "frozen": 0}),
        # after prepare_model_for_kbit_training the frozen ones are in fp32, and so are the copies
        (KBIT, {"weights": 4, "gradients": 4, "moments": 2 * 4, "frozen": 0}),
        (
            {**KBIT, "no_kbit_upcast": True},
            {"weights": 2, "gradients": 2, "moments": 2 * 2, "frozen": 0},
        ),
        # DeepSpeed's fp32 weights have moments in fp32
        (
            {"param_dtype": "bf16", "master_weights": True},
            {"weights": 2, "gradients": 2, "moments": 2 * 4, "frozen": 0},
        ),
        # Lion has one moment
        ({"optimizer": "lion"}, {"weights": 2, "gradients": 2, "moments": 2, "frozen": 0}),
    ],
)
def test_copies_of_embedding_and_head_are_trained_beside_the_frozen_ones(
    options: dict[str, Any], expected: dict[str, int]
) -> None:
    plain = bytes_of(states_of(run_of(**options)))
    whole = bytes_of(states_of(run_of(**options, modules_to_save="embed_tokens+lm_head")))
    more = {name: (whole[name] - plain[name]) / (2 * TABLE) for name in plain}
    assert more == expected


@each(
    ("model", "modules", "elements"),
    [
        ("llama3-8b", "embedding", TABLE),
        ("llama3-8b", "lm_head", TABLE),
        # 2 norms of each of 32 layers, and the last one
        ("llama3-8b", "norm", (2 * 32 + 1) * 4096),
        # Qwen3 0.6B: 28 layers with norms of q and k too, of 128; peft takes all whose name ends
        # with norm
        ("qwen3-0.6b", "norm", (2 * 28 + 1) * 1024 + 2 * 28 * 128),
        # tied: peft copies the embedding and the head, so that there are two more tables
        ("qwen3-0.6b", "embedding", 151_936 * 1024),
        ("qwen3-0.6b", "lm_head", 151_936 * 1024),
        ("qwen3-0.6b", "lm_head+embedding", 2 * 151_936 * 1024),
    ],
)
def test_each_module_adds_its_parameters(model: str, modules: str, elements: int) -> None:
    plain = states_of(run_of(model))
    whole = states_of(run_of(model, modules_to_save=modules))
    assert int(whole.trained) - int(plain.trained) == elements
    assert int(whole.frozen) == int(plain.frozen)


def test_zero_3_shards_the_copies() -> None:
    options: Any = {"gpus": 8, "zero": 3, "param_dtype": "bf16", "master_weights": True}
    plain = states_of(run_of(**options))
    whole = states_of(run_of(**options, modules_to_save="embedding+lm_head"))
    # 2 of weights, 2 of gradients, 4 of fp32 weights, 8 of moments
    more = sum(bytes_of(whole).values()) + int(whole.master)
    assert more - sum(bytes_of(plain).values()) - int(plain.master) == 16 * 2 * TABLE // 8


def test_a_step_that_accumulates_holds_the_gradients_of_the_copies_at_the_loss() -> None:
    # 2 bytes of the copies, 2 of their gradients, 4 of their moments: 8 of 2 tables; and the input
    # of the head, in bf16, for the gradient of its copy
    options: Any = {"gradient_accumulation": 8}
    plain = most_loaded(run_of(**options), plain=True)
    whole = most_loaded(run_of(**options, modules_to_save="embedding+lm_head"), plain=True)
    assert plain.peak.name == whole.peak.name == "backward pass of the loss"
    assert whole.allocated - plain.allocated == 8 * 2 * TABLE + 2048 * 4096 * 2


def test_the_copy_of_a_tied_embedding_gets_one_gradient() -> None:
    run = run_of("qwen3-0.6b", modules_to_save="embedding")
    moments = {moment.name: moment for moment in most_loaded(run, plain=True).moments}
    (more,) = (
        held
        for held in moments["backward pass of the embedding"].held
        if held.meaning == "gradients of the embedding and of its output"
    )
    assert int(more.size) == 2048 * 1024 * 2  # that of its output, in bf16


def test_a_foreach_step_has_one_more_tensor_per_copy() -> None:
    options: Any = {"optimizer_step": "foreach"}
    sizes = []
    for modules in ({}, {"modules_to_save": "embedding+lm_head"}):
        step = most_loaded(run_of(**options, **modules), plain=True).moments[-1]
        sizes.append(sum(int(h.size) for h in step.held if h.name == "temporary"))
    assert sizes[1] - sizes[0] == 2 * 2 * TABLE  # in bf16, as their moments


def test_the_gradient_of_the_heads_copy_has_its_flops() -> None:
    plain, whole = (
        work(run_of(**modules)) for modules in ({}, {"modules_to_save": "embedding+lm_head"})
    )
    assert int(whole.per_step) - int(plain.per_step) == 2 * 2048 * TABLE


def test_fsdp_holds_no_negative_gradients_beside_frozen_embeddings() -> None:
    # of 8 GPUs: the shard of the adapters' gradients, and not less the frozen embedding's
    run = run_of(gpus=8, fsdp=True)
    for moment in most_loaded(run, plain=True).moments:
        assert min(int(held.size) for held in moment.held) >= 0


@each(
    ("words", "error"),
    [
        ("--lora r=8 --modules-to-save score", "--modules-to-save cannot be 'score'"),
        ("--lora r=8 --modules-to-save +", "--modules-to-save has no modules"),
        (
            "--lora r=8,targets=lm_head --modules-to-save lm_head",
            "--modules-to-save lm_head cannot be combined with --lora targets=lm_head",
        ),
        ("--modules-to-save wte", "--modules-to-save needs --lora"),
    ],
)
def test_modules_that_cannot_be_trained_whole_are_refused(ask: Ask, words: str, error: str) -> None:
    assert error in ask("train", "llama3-8b", *words.split()).error


def test_an_encoder_has_no_head_to_be_trained_whole() -> None:
    options: Any = {"lora": "r=8", "modules_to_save": "lm_head", "context": 512}
    assert "has no lm_head" in str(refusal(train, "bert-base-uncased", **options))


def test_the_screen_names_what_is_trained_whole(ask: Ask) -> None:
    words = ["--lora", "r=8", "--modules-to-save", "wte+lm_head", "-c", "1K", "--full"]
    screen = " ".join(ask("train", "qwen3-0.6b", *words).out.split())
    assert "LoRA r=8, whole embedding and lm_head," in screen
    assert "the copies are in bf16, their moments in bf16." in screen
    assert "A copy of a tied table is a table of its own" in screen
