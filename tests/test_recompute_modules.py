"""Megatron's selective recomputation: what each module drops, and what its experts save."""

from typing import Any

from asking import Ask
from tables import each

from attncalc import load, train
from attncalc.cost.training.fits import changes
from attncalc.cost.training.setup import Training
from attncalc.cost.training.step import most_loaded, stage_budget
from attncalc.cost.training.work import work
from attncalc.questions.train.request import read_train_request

TOKENS = 4096
MEGATRON: Any = {"context": TOKENS, "compile": True, "dtype": "bf16", "recompute": "selective"}


def run_of(model: str, modules: str, **options: Any) -> Training:
    given: Any = {**MEGATRON, "recompute_modules": modules, **options}
    return read_train_request(load(model), given).run


def kept_of(run: Training, group: int = -1) -> int:
    """Return the bytes that one layer of a group keeps."""
    layer = stage_budget(run, run.stages[0], plain=True).saved.layers[group]
    return sum(int(tensor.size) for tensor in layer.kept)


# DeepSeek-V3: d = 7,168, dense f = 18,432, experts f = 2,048, 8 of them per token and 1 shared; 128
# heads with q and k of 192 and v of 128, whose W_kv_b returns 128 x (128 + 128)
@each(
    ("module", "group", "elements"),
    [
        # the norm's output, which W_q_a and W_kv_a read; experts also read that of the second one
        ("layernorm", 0, 7168),
        ("layernorm", -1, 2 * 7168),
        # the output of the norm, which Transformer Engine computes with the first matrix, gate, up
        # and their product
        ("mlp", 0, 7168 + 3 * 18_432),
        ("mlp", -1, 0),
        # the product of each expert, which W_down reads
        ("moe_act", -1, 8 * 2048),
        ("moe_act", 0, 0),
        # gate, up and product of the shared expert
        ("shared_experts", -1, 3 * 2048),
        ("mla_up_proj", -1, 128 * (192 + 192 + 256)),
        ("mla_up_proj", 0, 128 * (192 + 192 + 256)),
    ],
)
def test_a_module_drops_what_it_computes_again(module: str, group: int, elements: int) -> None:
    # core_attn, the default, drops the log-sum-exp: 4 bytes of 128 heads; another module keeps it
    default, changed = (
        kept_of(run_of("deepseek-v3", modules), group)
        for modules in ("core_attn", f"core_attn+{module}")
    )
    assert default - changed == TOKENS * 2 * elements
    assert kept_of(run_of("deepseek-v3", module), group) - changed == TOKENS * 4 * 128


def test_moe_keeps_only_its_input() -> None:
    run = run_of("mixtral-8x7b", "moe")
    (layer,) = stage_budget(run, run.stages[0], plain=True).saved.layers
    assert [tensor.name for tensor in layer.kept if tensor.part == "mlp"] == ["input"]


def test_what_is_recomputed_exists_in_the_backward_pass_of_a_layer() -> None:
    # Llama 3 8B: the norm's output, gate, up and product
    again = TOKENS * 2 * (4096 + 3 * 14_336)
    sizes = []
    for modules in ("core_attn", "core_attn+mlp"):
        budget = most_loaded(run_of("llama3-8b", modules), plain=True)
        moments = {moment.name: moment.size for moment in budget.moments}
        sizes.append(moments["backward pass of the MLP's product in the first layer"])
    # of one layer, whether kept or computed again
    assert sizes[0] == sizes[1]
    kept = kept_of(run_of("llama3-8b", "core_attn")) - kept_of(run_of("llama3-8b", "mlp"))
    assert kept + TOKENS * 4 * 32 == again


@each(
    ("module", "flops"),
    [
        # 2 per weight and token: q of 1,536 x 128 x 192 and kv of 512 x 128 x 256, in 61 layers
        ("mla_up_proj", 2 * TOKENS * 61 * (1536 * 128 * 192 + 512 * 128 * 256)),
        # gate, up and down of three dense layers
        ("mlp", 2 * TOKENS * 3 * 3 * 7168 * 18_432),
        # one shared expert in 58 layers
        ("shared_experts", 2 * TOKENS * 58 * 3 * 7168 * 2048),
        # router, 8 experts and the shared one; with it nothing is computed twice
        ("moe", 2 * TOKENS * 58 * (256 + 9 * 3 * 2048) * 7168),
        ("moe+shared_experts", 2 * TOKENS * 58 * (256 + 9 * 3 * 2048) * 7168),
        ("layernorm+moe_act", 0),
    ],
)
def test_hardware_flops_have_a_forward_pass_of_the_modules(module: str, flops: int) -> None:
    counted = work(run_of("deepseek-v3", module))
    assert int(counted.hardware) - int(counted.per_step) == flops


# Moonlight's layout of Megatron-Bridge with DeepSeek-V3's sizes: 8 GPUs, experts on all of them
SPLIT: Any = {"gpus": 8, "tp": 2, "ep": 8, "sequence_parallel": True, "zero": 1}


def test_tokens_that_are_sent_to_whole_experts_are_divided_by_tp() -> None:
    run = run_of("deepseek-v3", "core_attn", **SPLIT)
    layer = stage_budget(run, run.stages[0], plain=True).saved.layers[-1]
    sizes = {tensor.name: int(tensor.size) for tensor in layer.tensors}
    # 8 experts per token, of the tokens of all 8 GPUs: 4 x 4,096 x 8 / 8
    assert sizes["input of the experts"] == TOKENS // 2 * 8 * 7168 * 2
    # gate: the same tokens x 2,048
    assert sizes["experts' gate"] == TOKENS // 2 * 8 * 2048 * 2


def test_megatron_keeps_no_outputs_of_experts_and_no_fp32_copies_of_its_router() -> None:
    run = run_of("deepseek-v3", "core_attn", **SPLIT)
    layer = stage_budget(run, run.stages[0], plain=True).saved.layers[-1]
    names = {tensor.name for tensor in layer.tensors if tensor.part == "mlp"}
    assert not {"output of the experts", "input of the router in fp32", "router in fp32"} & names
    assert "input" in names


def test_megatrons_gradients_stay_in_their_buffer_with_one_micro_batch() -> None:
    run = read_train_request(load("llama3-8b"), {"context": TOKENS, "gpus": 8, "tp": 8}).run
    budget = most_loaded(run, plain=True)
    for moment in budget.moments:
        if moment.name == "backward pass of the loss":
            gradients = sum(int(h.size) for h in moment.held if h.name == "gradients")
            assert gradients == int(budget.states.gradients) > 0


@each(
    ("words", "error"),
    [
        ("llama3-8b --recompute-modules mlp", "--recompute-modules needs --recompute selective"),
        ("llama3-8b --recompute full --recompute-modules mlp", "needs --recompute selective"),
        (
            "llama3-8b --recompute selective --recompute-modules mhc",
            "--recompute-modules cannot be 'mhc'",
        ),
        (
            "llama3-8b --recompute selective --recompute-modules core_attn+moe",
            "--recompute-modules moe has no effect on Llama 3 8B",
        ),
        (
            "mixtral-8x7b --recompute selective --recompute-modules mlp",
            "--recompute-modules mlp has no effect",
        ),
        (
            "mixtral-8x7b --recompute selective --recompute-modules shared_experts",
            "--recompute-modules shared_experts has no effect",
        ),
    ],
)
def test_modules_that_would_have_no_effect_are_refused(ask: Ask, words: str, error: str) -> None:
    assert error in ask("train", *words.split()).error


def test_full_recomputation_is_suggested_instead_of_modules() -> None:
    options: Any = {**MEGATRON, "recompute_modules": "mlp", "gpu": "a100-40gb", "gpus": 8, "tp": 8}
    options["batch"] = 8
    asked = read_train_request(load("llama3-8b"), options).asked
    assert "--recompute full" in [change.flag for change in changes(asked)]


def test_a_warning_says_that_norms_of_dense_layers_are_part_of_the_next_matrix(ask: Ask) -> None:
    words = ["--recompute", "selective", "-c", "4K", "--full", "--recompute-modules"]
    screen = " ".join(ask("train", "llama3-8b", *words, "core_attn,layernorm").out.split())
    assert "warning: The module layernorm saves nothing here" in screen
    assert "recompute core_attn and layernorm" in screen
    screen = " ".join(ask("train", "mixtral-8x7b", *words, "layernorm").out.split())
    assert "The module layernorm saves nothing" not in screen


def test_moonlights_published_peak_is_predicted_within_2_percent() -> None:
    # Megatron-Bridge's page on recomputation: 36.618 GB allocated after iteration 2; its recipe has
    # gradients and moments in bf16
    sizes: Any = {
        "model_type": "deepseek_v3",
        "hidden_size": 2048,
        "intermediate_size": 11_264,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "vocab_size": 163_840,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_group": 1,
        "topk_group": 1,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    options: Any = {**MEGATRON, **SPLIT, "grad_dtype": "bf16", "optimizer_dtype": "bf16"}
    result = train(sizes, **options)
    assert abs(result.budget.allocated / 36.618e9 - 1) < 0.02
