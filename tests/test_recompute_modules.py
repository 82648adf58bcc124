"""Megatron's selective recomputation: what each module drops, and what its experts save."""

from typing import Any

from asking import Ask
from tables import each

from attncalc import load
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


LLAMA: Any = {"context": TOKENS, "dtype": "bf16", "compile": True, "recompute": "full", "tp": 2}
# An input of a layer, and what a layer of Llama 3 8B saves without recomputation.
INPUT = TOKENS * 4096 * 2


def method_of(method: str, number: int, **options: Any) -> Training:
    given: Any = {**LLAMA, "recompute_method": method, "recompute_num_layers": number, **options}
    return read_train_request(load("llama3-8b"), given).run


def kept_in_layers(run: Training, stage: int = 0) -> int:
    activations = stage_budget(run, run.stages[stage], plain=True).activations
    return sum(int(activations.get(part, 0)) for part in ("attention", "mlp", "norms"))


def of_one_layer() -> int:
    """Return the bytes that one of 32 layers saves."""
    given: Any = {**LLAMA, "recompute": "none"}
    return kept_in_layers(read_train_request(load("llama3-8b"), given).run) // 32


@each(
    ("method", "number", "inputs", "whole"),
    [
        ("uniform", 1, 32, 0),
        ("uniform", 8, 4, 0),
        # 32 = 6 x 5 + 2: seven chunks
        ("uniform", 5, 7, 0),
        ("uniform", 99, 1, 0),
        ("block", 8, 8, 24),
        ("block", 99, 32, 0),
    ],
)
def test_a_method_keeps_inputs_of_layers_and_layers_that_are_not_recomputed(
    method: str, number: int, inputs: int, whole: int
) -> None:
    assert kept_in_layers(method_of(method, number)) == inputs * INPUT + whole * of_one_layer()


def test_a_block_is_of_each_stage() -> None:
    # two stages of 16 layers, of which 4 are recomputed; the first has two micro-batches in flight
    run = method_of("block", 4, tp=1, pp=2, gradient_accumulation=8)
    plain: Any = {**LLAMA, "recompute": "none", "tp": 1}
    whole = read_train_request(load("llama3-8b"), plain).run
    of_one = kept_in_layers(whole) // 32
    assert kept_in_layers(run, 0) == 2 * (4 * INPUT + 12 * of_one)
    assert kept_in_layers(run, 1) == 4 * INPUT + 12 * of_one


def test_layers_of_several_groups_are_recomputed_in_their_order() -> None:
    # DeepSeek-V3 has 3 dense layers first, then 58 with experts: 4 of them are in the block
    run = run_of("deepseek-v3", "core_attn")
    full: Any = {"context": TOKENS, "recompute": "full", "recompute_method": "block"}
    full["recompute_num_layers"] = 7
    block = read_train_request(load("deepseek-v3"), full).run
    saved = stage_budget(block, block.stages[0], plain=True).saved
    counts = [(layer.group, int(layer.layers.count), layer.is_whole) for layer in saved.layers]
    assert run.model.main.n_layers == 61
    assert [count for _, count, _ in counts] == [3, 4, 54]
    assert [is_whole for _, _, is_whole in counts] == [False, False, True]


def test_a_chunk_is_recomputed_at_once() -> None:
    name = "backward pass of the MLP's product in the last layer"
    sizes = []
    for number in (1, 4):
        budget = most_loaded(method_of("uniform", number), plain=True)
        (moment,) = (moment for moment in budget.moments if moment.name == name)
        sizes.append(sum(int(h.size) for h in moment.held if h.name == "temporary"))
    assert sizes[1] - sizes[0] == 3 * of_one_layer()


def test_whole_layers_are_gone_when_a_block_is_recomputed() -> None:
    run = method_of("block", 8)
    (moment,) = (
        moment
        for moment in most_loaded(run, plain=True).moments
        if moment.name.startswith("backward pass of the MLP's product in the last layer (")
        and moment.name.endswith("recomputed)")
    )
    kept = sum(int(h.size) for h in moment.held if h.name == "activations")
    # beside the inputs of the 8 layers the last norm's input and the head's, and the token ids
    assert kept - 8 * INPUT < 3 * INPUT


@each(
    ("method", "number", "share"),
    [("uniform", 4, (1, 1)), ("block", 8, (8, 32)), ("block", 99, (1, 1))],
)
def test_hardware_flops_have_the_layers_that_are_recomputed(
    method: str, number: int, share: tuple[int, int]
) -> None:
    given: Any = LLAMA
    full = work(read_train_request(load("llama3-8b"), given).run)
    counted = work(method_of(method, number))
    more, whole = (int(of.hardware) - int(of.per_step) for of in (counted, full))
    assert more == whole * share[0] // share[1]


@each(
    ("words", "error"),
    [
        ("--recompute-method block --recompute-num-layers 4", "needs --recompute full"),
        ("--recompute full --recompute-method block", "alone does not say what is recomputed"),
        ("--recompute full --recompute-num-layers 4", "alone does not say what is recomputed"),
        (
            "--recompute full --recompute-method block --recompute-num-layers 4 --pp 2 --ga 8 "
            "--virtual-stages 2",
            "--recompute-method cannot be combined with --virtual-stages",
        ),
    ],
)
def test_a_method_that_says_too_little_is_refused(ask: Ask, words: str, error: str) -> None:
    assert error in ask("train", "llama3-8b", *words.split()).error
