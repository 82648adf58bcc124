"""What training costs: against published formulas, and as a command."""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

import pytest
from asking import Ask, refusal
from tables import each
from training_runs import options_of

from attncalc import (
    AttncalcError,
    Grouped,
    Head,
    Layers,
    Mlp,
    ModelSpec,
    Stack,
    Workload,
    load,
    preset_names,
    train,
)
from attncalc.attention.mamba import Mamba, Mamba2
from attncalc.attention.saved import Forward, SavedTensor
from attncalc.config.gpus import gpu
from attncalc.cost.params import params
from attncalc.cost.training.classes import class_math
from attncalc.cost.training.fits import (
    all_changes,
    changes,
    largest_batch,
    longest_context,
    number_of_changes,
    overhead,
    reserved,
    train_result,
)
from attncalc.cost.training.mlp import mlp_tensors
from attncalc.cost.training.optimizers import OPTIMIZERS, state_bytes
from attncalc.cost.training.param_tensor import ParamTensor
from attncalc.cost.training.setup import Lora, Training
from attncalc.cost.training.states import states
from attncalc.cost.training.step import most_loaded, stage_budget
from attncalc.cost.training.tensors import quantized_bytes, stage_tensors
from attncalc.cost.training.work import work
from attncalc.questions.train.options import TrainOptions
from attncalc.questions.train.request import read_train_request

GPT = Stack(
    "decoder",
    (
        Layers(
            "layers",
            96,
            attention=Grouped(96, 96, 128, bias=tuple("qkvo")),
            mlp=Mlp(4 * 12288, bias=True),
        ),
    ),
    12288,
    norm="layernorm",
)
# The 175B model of Korthikanti et al., Table 3: a = 96 heads, h = 12,288, L = 96, s = 2,048.
GPT3 = ModelSpec(
    "gpt3", "GPT-3", (GPT,), vocab_size=51200, head=Head("lm", tied=True), dtype="fp16"
)


def run_of(
    model: ModelSpec | str,
    batch: int = 1,
    context: int = 2048,
    recompute: str = "none",
    **fields: Any,
) -> Training:
    spec = load(model) if isinstance(model, str) else model
    options: dict[str, Any] = {"dtype": fields.pop("dtype", None), "recompute": recompute}
    return Training(spec, Workload.train(batch, context, **options), **fields)


def layer_bytes(run: Training) -> int:
    """Return what one layer keeps, without the statistics of norms, which the paper leaves out."""
    (layer,) = stage_budget(run, run.stages[0], plain=True).saved.layers
    return sum(int(tensor.size) for tensor in layer.kept if not tensor.is_statistic)


s, b, h, a = 2048, 2, 12288, 96


@each(
    ("recompute", "tp", "sequence_parallel", "expected"),
    [
        # Korthikanti et al. 2022, arXiv:2205.05198, equations 1 to 4 and Table 2
        ("none", 1, False, s * b * h * (34 + 5 * a * s / h)),
        ("none", 8, False, s * b * h * (10 + 24 / 8 + 5 * a * s / (h * 8))),
        ("none", 8, True, s * b * h / 8 * (34 + 5 * a * s / h)),
        ("selective", 8, False, s * b * h * (10 + 24 / 8)),
        ("selective", 8, True, s * b * h * 34 / 8),
        ("full", 1, False, s * b * h * 2),
    ],
)
def test_activations_of_a_layer_are_those_of_korthikanti(
    recompute: str, tp: int, sequence_parallel: bool, expected: float
) -> None:
    run = run_of(
        GPT3,
        b,
        s,
        recompute,
        gpus=tp,
        tp=tp,
        sequence_parallel=sequence_parallel,
        kernel="eager",
        upcasts=False,
        dropout=True,
    )
    assert layer_bytes(run) == expected


@each(
    ("zero", "expected"),
    # ZeRO, arXiv:1910.02054, Figure 1: N = 7.5 billion parameters on 64 GPUs: 120, 31.4, 16.6 and
    # 1.9 GB
    [(0, 16.0), (1, 4 + 12 / 64), (2, 2 + 14 / 64), (3, 16 / 64)],
)
def test_states_are_those_of_zero(zero: int, expected: float) -> None:
    run = run_of("llama2-7b", zero=zero, gpus=64, param_dtype="fp16", grad_dtype="fp16")
    held = states(run, run.stages[0])
    size = sum(map(int, (held.weights, held.master, held.moments, held.gradients)))
    assert size == pytest.approx(expected * int(params(run.model).total), rel=1e-6)


@each("model", [*preset_names(), dataclasses.replace(GPT3, head=Head("lm", bias=True))])
def test_tensors_have_all_parameters(model: ModelSpec | str) -> None:
    model = load(model) if isinstance(model, str) else model
    source = 1 if model.encoder or any(layers.cross for _, layers in model.groups()) else None
    run = Training(model, Workload.train(1, 1, source=source))
    tensors = stage_tensors(run, run.stages[0], model.plain())
    assert sum(tensor.total for tensor in tensors) == int(params(model).total)


def test_a_pipeline_has_all_parameters_and_layers_once() -> None:
    run = run_of("llama3-70b", gpus=4, pp=4, gradient_accumulation=8)
    total = sum(
        t.total for stage in run.stages for t in stage_tensors(run, stage, stage.model.plain())
    )
    assert total == int(params(run.model).total)
    assert [stage.in_flight[0] for stage in run.stages] == [4, 3, 2, 1]
    assert [stage.is_first for stage in run.stages] == [True, False, False, False]


@each(
    ("model", "options", "sizes"),
    [
        # Megatron-Bridge's layout of DeepSeek-V3: 15 x 4 + 1 = 61
        ("deepseek-v3", {"pp": 16}, (4,) * 15 + (1,)),
        # 7 x 8 + 5 = 61
        ("deepseek-v3", {"pp": 8}, (8,) * 7 + (5,)),
        # embedding and loss count as layers: (126 + 2) / 8 = 16
        ("llama3.1-405b", {"pp": 8}, (15, *(16,) * 6, 15)),
        ("llama3-8b", {"pp": 4}, (8, 8, 8, 8)),
        # 3 x 11 > 32 leaves the last stage none, so no smaller last stage: 32 = 8 x 3 + 4 x 2
        ("llama3-8b", {"pp": 12}, (3,) * 8 + (2,) * 4),
        # torchtitan: 32 + 2 = 9 + 9 + 8 + 8, less one in the first and the last
        ("llama3-8b", {"pp": 4, "fsdp": True}, (8, 9, 8, 7)),
        # 16 GPUs with 2 virtual stages: (126 + 2) / 32 = 4
        (
            "llama3.1-405b",
            {"pp": 16, "virtual_stages": 2, "gradient_accumulation": 16},
            (3, *(4,) * 30, 3),
        ),
    ],
)
def test_stages_have_the_layers_that_the_trainer_gives_them(
    model: str, options: TrainOptions, sizes: tuple[int, ...]
) -> None:
    run = read_train_request(model, options).run
    assert run.stage_layers.sizes == sizes
    held = [stage.model.main.n_layers for stage in run.stages]
    assert held == [sum(sizes[i :: run.pp]) for i in range(run.pp)]
    assert sum(held) == run.model.main.n_layers


def test_a_note_says_how_unequal_stages_are_cut(ask: Ask) -> None:
    screen = " ".join(ask("train", "llama3.1-405b", "--pp", "8").out.split())
    assert "Pipeline: 1 stage of 15 layers, 6 of 16, 1 of 15; so Megatron cuts with" in screen
    assert "Pipeline" not in ask("train", "llama3-8b", "--pp", "4", "--full").out


def test_an_apple_gpu_has_no_cuda_context_no_cublas_and_no_flash_kernel(ask: Ask) -> None:
    result = train("llama3.2-1b", gpu="m3 max 64gb")
    assert result.run.kernel == "math"  # SDPA on MPS, with gradients
    assert int(result.budget.workspaces) == 0
    assert result.low == result.budget.allocated  # nothing besides that is known
    assert overhead(result.run) == (0, 0, 0)
    flash = train("llama3.2-1b", gpu="m3 max 64gb", kernel="flash")
    on_cuda = train("llama3.2-1b", gpu="a100-80gb")
    # two workspaces of 4,096 KiB x 2 and 16 KiB x 8
    assert on_cuda.budget.allocated - flash.budget.allocated == 2 * (4096 * 2 + 16 * 8) * 1024
    screen = " ".join(ask("train", "llama3.2-1b", "--gpu", "m3 max 64gb").out.split())
    assert "cuBLAS workspaces" not in screen
    assert "allocator, CUDA context" not in screen
    assert "warning: No training on an Apple GPU has been measured." in screen


def test_no_change_on_an_apple_gpu_is_one_of_cuda_or_more_gpus() -> None:
    asked = read_train_request("llama3.1-8b", {"gpu": "m3 max 64gb"}).asked
    found = " ".join(change.flag for change in changes(asked))
    assert found
    for flag in ("--gpus", "--expandable-segments", "--kernel"):
        assert flag not in found


def test_a_list_of_gpus_says_that_apples_have_math_attention(ask: Ask) -> None:
    screen = ask("train", "llama3.2-1b", "--gpu", "all").out
    assert "GPUs without bf16 are counted in fp16, with efficient attention." in screen
    assert "Apple GPUs are counted in bf16, with math attention." in screen


def test_several_apple_gpus_are_refused() -> None:
    error = refusal(train, "llama3.2-1b", gpu="m3 max 64gb", gpus=2)
    assert "how several Apple GPUs train together is not known" in str(error)


def test_an_interleaved_pipeline_keeps_the_papers_factor_more() -> None:
    # arXiv:2205.05198, appendix C: the first stage keeps L / p * p * (1 + (p - 1) / (p * m)) layers
    run = run_of("llama3-70b", gpus=4, pp=4, virtual_stages=5, gradient_accumulation=8)
    above, below = run.stages[0].in_flight
    assert above / below == 4 * (1 + 3 / (4 * 5))


def test_two_virtual_stages_keep_11_of_8_times_the_layers_that_4_stages_keep_of_one_micro_batch() -> (
    None
):
    split: dict[str, Any] = {"gpus": 4, "pp": 4}
    plain = run_of("llama3-70b", **split)
    interleaved = run_of("llama3-70b", **split, virtual_stages=2, gradient_accumulation=4)
    kept = stage_budget(plain, plain.stages[0]).activations  # of the same 20 layers
    assert stage_budget(interleaved, interleaved.stages[0]).activations == {
        part: -(-11 * size // 2) for part, size in kept.items()
    }


def test_stages_hold_the_hidden_states_that_they_receive_and_send() -> None:
    run = run_of("llama3-70b", gpus=2, pp=2, dtype="bf16")
    assert ("communication", 2 * 2048 * 8192 * 2) in held_at(
        run, "backward pass of the MLP's product in the last layer"
    )


def test_the_plain_and_the_symbolic_budget_are_equal() -> None:
    for options in (
        {},
        {"gpus": 8, "tp": 4, "sequence_parallel": True, "zero": 1},
        {"lora": Lora(8, ("W_q", "W_up"))},
    ):
        for name in ("llama3-8b", "gpt2", "mixtral-8x7b"):
            run = run_of(name, 2, 1024, param_dtype="fp32", master_weights=False, **options)
            plain, symbolic = (
                stage_budget(run, run.stages[0], plain=True),
                stage_budget(run, run.stages[0]),
            )
            assert plain.allocated == symbolic.allocated
            assert plain.activations == symbolic.activations


def test_frozen_weights_save_less_than_trained_ones() -> None:
    full = most_loaded(run_of("llama3-8b", dtype="bf16"))
    lora = most_loaded(
        run_of("llama3-8b", dtype="bf16", lora=Lora(8, ("W_q", "W_v")), param_dtype="bf16")
    )
    assert lora.allocated < full.allocated
    # q and v share the layer's input; both adapters keep r values per token; W_o and the MLP keep
    # no input
    kept = {tensor.name for tensor in lora.saved.layers[0].kept if tensor.part == "attention"}
    assert kept == {
        "input",
        "q",
        "k",
        "v",
        "output",
        "log-sum-exp",
        "output of W_q A",
        "output of W_v A",
    }
    assert "product" not in {tensor.name for tensor in lora.saved.layers[0].kept}


def test_gelu_in_one_kernel_keeps_its_input_only() -> None:
    # GPT-2: gelu_new keeps x, 0.5 x, the tanh and 1 + tanh; of 12 layers with f = 3,072
    kept = []
    for options in ({}, {"fused_gelu": True}):
        given: Any = {"context": 1024, "dtype": "bf16", **options}
        parts = train("gpt2", **given).budget.activations
        kept.append(int(parts["mlp"]))
    assert kept[0] - kept[1] == 12 * 3 * 1024 * 3072 * 2
    error = refusal(train, "llama3-8b", fused_gelu=True)
    assert "no effect on Llama 3 8B: its class has no gelu_new" in str(error)


NF4 = {"weights_dtype": "nf4", "no_kbit_upcast": True}


@each(
    ("options", "bytes_per_token"),
    [
        (NF4, 0),
        ({**NF4, "bitsandbytes": "0.43.2"}, 0),
        # the inputs of gate and up, and of W_down; that of q is kept for its adapter, and that of
        # W_o by the kernel
        ({**NF4, "bitsandbytes": "0.43.1"}, 2 * (4096 + 14336)),
        ({**NF4, "weights_dtype": "int8"}, 2 * (4096 + 14336)),
        # without dropout the adapters share one input; with it each has its own in 2 bytes, and a
        # mask in 1
        ({"lora": "r=8,targets=q+v,dropout=0.05"}, 2 * (2 + 1) * 4096 - 2 * 4096),
    ],
)
def test_a_layer_with_adapters_keeps_more_with_some_options(
    options: dict[str, Any], bytes_per_token: int
) -> None:
    base: Any = {
        "context": 2048,
        "dtype": "bf16",
        "param_dtype": "bf16",
        "lora": "r=8,targets=q+v",
        "recompute": "none",
    }
    with_options: Any = {**base, **options}
    more, less = (
        layer_bytes(read_train_request("llama3-8b", found).run) for found in (with_options, base)
    )
    assert more - less == 2048 * bytes_per_token


@each(
    ("compiled", "elements"),
    # the input, q, v, the kernel's output, and the outputs of gate and down, which a compiler drops
    [(False, 4096 + 4096 + 1024 + 4096 + 14336 + 4096), (True, 4096 + 4096 + 1024 + 4096 + 14336)],
)
def test_recomputation_of_ops_keeps_every_second_matmul(compiled: bool, elements: int) -> None:
    run = run_of("llama3-8b", 2, 1024, "op", dtype="bf16", compile=compiled)
    assert layer_bytes(run) == 2 * 1024 * 2 * elements
    tp = dataclasses.replace(run, gpus=2, tp=2, sequence_parallel=True)
    (layer,) = stage_budget(tp, tp.stages[0]).saved.layers
    scattered = [tensor for tensor in layer.kept if tensor.name == "output of the reduce-scatter"]
    assert len(scattered) == (1 if compiled else 2)
    assert most_loaded(run).allocated == most_loaded(run, plain=True).allocated


def test_a_compiled_loss_holds_logits_and_one_gradient_in_16_bits() -> None:
    full, compiled = (
        most_loaded(
            run_of("llama3-8b", 4, 8192, "full", dtype="bf16", loss=loss, master_weights=False),
            plain=True,
        )
        for loss in ("full", "compiled")
    )
    assert full.allocated - compiled.allocated == 4 * 8192 * 128256 * (3 * 4 - 2 * 2)


def test_fsdp_keeps_the_gathered_input_of_tensor_parallel_matrices() -> None:
    fields: dict[str, Any] = {
        "dtype": "bf16",
        "gpus": 4,
        "tp": 2,
        "sequence_parallel": True,
        "zero": 3,
    }
    torch, megatron = (
        layer_bytes(run_of("llama3-8b", 1, 1024, master_weights=master, **fields))
        for master in (False, True)
    )
    # half of the inputs of attention and MLP
    assert torch - megatron == 1024 * 2 * (4096 + 4096) // 2


@each(("sequence_parallel", "gradients"), [(True, 3), (False, 2)])
def test_loss_parallel_holds_the_probabilities_too(sequence_parallel: bool, gradients: int) -> None:
    fields: dict[str, Any] = {
        "gpus": 4,
        "tp": 2,
        "zero": 3,
        "master_weights": False,
        "dtype": "bf16",
    }
    run = run_of("llama3-8b", 1, 1024, sequence_parallel=sequence_parallel, **fields)
    loss = next(
        moment for moment in most_loaded(run).moments if moment.name == "backward pass of the loss"
    )
    (temporary,) = (int(held.size) for held in loss.held if held.name == "temporary")
    assert temporary == 1024 * 128256 // 2 * 4 * gradients


def test_megatrons_loss_is_computed_in_place() -> None:
    run = run_of("llama3-8b", 1, 1024, dtype="bf16", gpus=2, tp=2)
    loss = next(
        moment for moment in most_loaded(run).moments if moment.name == "backward pass of the loss"
    )
    held = sum(int(held.size) for held in loss.held if held.name in ("logits", "temporary"))
    assert held == 1024 * 128256 // 2 * (4 + 2)


def test_fsdp_and_freed_logits_take_memory_that_is_not_allocated_at_the_peak() -> None:
    run = run_of(
        "llama3-8b",
        1,
        8192,
        "full",
        dtype="bf16",
        gpus=8,
        zero=3,
        master_weights=False,
        grad_dtype="fp32",
    )
    budget = most_loaded(run, plain=True)
    assert budget.peak.name == "backward pass of the loss"
    assert budget.cached.logits == 8192 * 128256 * 2
    # gathered embedding, head and a layer, and the shards of all gradients
    gathered = 2 * 128256 * 4096 + (int(params(load("llama3-8b")).total) - 2 * 128256 * 4096) // 32
    assert budget.cached.streams == pytest.approx(
        2 * gathered + int(budget.states.gradients), rel=1e-4
    )
    low, expected, high = reserved(run, 10**9, 1, budget.cached)
    assert (low, expected, high) == (
        10**9,
        1.03e9 + sum(budget.cached),
        1.11e9 + budget.cached.streams,
    )


def test_varied_lengths_are_a_warning_if_they_may_not_fit(ask: Ask) -> None:
    # 68.4 GiB are allocated: 76.6 with the allocator's 11 % and CUDA, 92.3 with 34 %, of 79.1 GiB
    command = ["train", "llama3-8b", "--gpu", "h100", "--optimizer", "adam8bit", "-c", "5K"]
    assert "Varied lengths fragment the memory and need up to 34 % more" in " ".join(
        ask(*command).out.split()
    )
    for other in (["--expandable-segments"], ["-c", "512"]):
        assert "Varied lengths" not in ask(*command, *other, "--full").out


def test_selective_recomputation_without_scores_is_a_warning(ask: Ask) -> None:
    warning = "warning: flash attention keeps no scores that --recompute selective would drop"
    assert warning in " ".join(ask("train", "gpt2", "--recompute", "selective").out.split())
    assert (
        "would drop"
        not in ask("train", "gpt2", "--recompute", "selective", "--kernel", "eager").out
    )


def test_fsdp_gathers_packed_weights_and_leaves_their_scales_whole() -> None:
    fields: dict[str, Any] = {
        "dtype": "bf16",
        "lora": Lora(8, ("W_q",)),
        "master_weights": False,
        "weights_dtype": "nf4",
    }
    one, two = (
        most_loaded(run_of("llama3-8b", gpus=gpus, zero=3 if gpus > 1 else 0, **fields), plain=True)
        for gpus in (1, 2)
    )
    layers = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)  # elements of the matrices
    others = 2 * 128256 * 4096 + 65 * 4096
    scales = layers // 64 * 4 + 32 * 7 * 64
    assert int(one.states.frozen_weights) == layers // 2 + scales + 4 * others
    assert int(two.states.frozen_weights) == layers // 4 + scales + 2 * others
    # embedding and head in bf16, and a layer as packed, with the norms in bf16
    assert two.states.layer_bytes == layers // 64 + 65 * 4096 * 2 // 32
    assert two.held("communication") == 2 * 2 * 128256 * 4096 + two.states.layer_bytes


def test_experts_that_bitsandbytes_leaves_in_16_bits_are_a_warning(ask: Ask) -> None:
    # 48 layers of 128 experts with 3 matrices of 2,048 x 768: 2 bytes per element instead of a half
    # and 4 / 64
    n = 48 * 128 * 3 * 2048 * 768
    command = ["train", "qwen3-30b-a3b", "--lora", "r=16", "--weights-dtype", "nf4"]
    gib = (2 * n - n / 2 - n / 16) / 2**30
    assert f"they would take {gib:.2f} GiB more" in " ".join(ask(*command).out.split())
    assert "experts that transformers" not in ask("train", "llama3-8b", *command[2:], "--full").out


def test_the_copies_of_an_optimizers_step_are_named(ask: Ask) -> None:
    text = "optimizer step, with fp32 copies of the gradients"
    assert text in ask("train", "llama2-7b", "--gpu", "h100").out
    assert text not in ask("train", "llama2-7b", "--gpu", "h100", "--grad-dtype", "fp32").out


def test_int8_weights_have_an_fp32_scale_per_row() -> None:
    assert (
        quantized_bytes(ParamTensor("W", "mlp", 100, 64, 1), "int8", double_quant=False)
        == 100 * 64 + 4 * 100
    )


def test_auto_is_the_most_that_fits() -> None:
    run = read_train_request("llama3-8b", {"gpu": "h100", "lora": "r=16", "recompute": "full"}).run
    context, batch = longest_context(run), largest_batch(run)
    assert context
    assert batch
    assert train_result(run.with_workload(batch=batch)).verdict == "fits"
    assert train_result(run.with_workload(batch=batch + 1)).verdict != "fits"
    if context < 8192:
        assert train_result(run.with_workload(context=context + 128)).verdict != "fits"


def test_each_change_makes_it_fit() -> None:
    found = changes(
        read_train_request("llama3-8b", {"gpu": "h100", "gpus": 4, "context": "8K"}).asked
    )
    assert found
    assert all(train_result(change.run).verdict == "fits" for change in found)
    for change in found:  # the options are those of the run
        again = read_train_request(
            "llama3-8b", options_of(f"--gpu h100 --gpus 4 -c 8K {change.flag}")
        ).run
        assert train_result(again).low == train_result(change.run).low, change.flag


@each(
    ("options", "message"),
    [
        ({"tp": 3}, "tp=3 does not divide 32 query heads"),
        ({"pp": 33}, "33 stages of 32 layers: a stage would have no layer"),
        ({"gpus": 6, "tp": 4}, "gpus=6 is not a multiple of 4"),
        ({"gpus": 8, "zero": 2, "pp": 2}, "zero=2 cannot be combined with pp=2"),
        ({"lora": "r=8,targets=q+x"}, "has no matrix 'x'"),
        ({"lora": "targets=q"}, "lora needs a rank"),
        ({"lora": "r=8,targets=q,targets=v"}, "lora has targets twice"),
        ({"lora": "r=8,targets="}, "lora has no targets"),
        ({"lora": "r=8,dropout=1"}, "lora: dropout cannot be '1'"),
        ({"lora": "r=8", "bitsandbytes": "0.41"}, "bitsandbytes needs weights_dtype='nf4'"),
        (
            {"lora": "r=8", "weights_dtype": "nf4", "bitsandbytes": "new"},
            "bitsandbytes cannot be 'new'",
        ),
        ({"weights_dtype": "nf4"}, "weights_dtype needs lora"),
        ({"autocast": True}, "autocast needs lora"),
        (
            {"lora": "r=8", "param_dtype": "bf16", "autocast": True},
            "adapters have the dtype of the activations",
        ),
        (
            {"lora": "r=8", "weights_dtype": "nf4", "autocast": True},
            "weights_dtype is counted with it",
        ),
        ({"optimizer": "adamx"}, "optimizer cannot be 'adamx'"),
        ({"zero": 4}, "zero cannot be 4"),
        ({"context": "auto"}, "context='auto' needs gpu"),
        ({"tokens": "15T"}, "tokens needs gpu"),
        ({"tokens": "15T", "gpu": "all"}, "tokens cannot be combined with gpu='all'"),
        ({"mfu": 0.4}, "mfu needs tokens"),
        ({"days": "3 moons"}, "days: '3 moons' is no number of days"),
        ({"epochs": 3}, "epochs needs tokens"),
        ({"samples": "10K"}, "samples needs gpu"),
        ({"tokens": "1B", "samples": 10}, "tokens cannot be combined with samples"),
        ({"sequence_parallel": True}, "sequence_parallel needs tp"),
        ({"ep": 2, "gpus": 2}, "ep=2 has no effect"),
        ({"cp": 3, "context": 4096}, "cp=3 does not divide 4096 tokens"),
        ({"virtual_stages": 2}, "virtual_stages needs pp"),
        (
            {"virtual_stages": 2, "pp": 2, "gradient_accumulation": 3},
            "3 micro-batches are not a multiple of pp=2",
        ),
        ({"fsdp": True, "zero": 1}, "fsdp cannot be combined with zero=1"),
        (
            {"global_batch": 12, "gpus": 8},
            "global_batch=12 is no multiple of batch=1 on 8 data-parallel GPUs",
        ),
        (
            {"global_batch": 8, "gradient_accumulation": 2},
            "global_batch cannot be combined with gradient",
        ),
        (
            {"global_batch": 8, "batch": "auto", "gpu": "h100"},
            "global_batch cannot be combined with batch='auto'",
        ),
        ({"offload": "weights"}, "offload cannot be 'weights'"),
        ({"dtype": "fp8"}, "activations cannot be in fp8"),
        ({"grad_dtype": "fp8"}, "grad_dtype cannot be fp8"),
        ({"dtype": "bf16", "gpu": "t4"}, "bf16 needs a GPU with compute capability 8.0 or more"),
    ],
)
def test_what_is_not_possible_is_one_line_and_a_tip(options: dict[str, Any], message: str) -> None:
    error = refusal(train, "llama3-8b", **options)
    assert message in error.message
    assert error.tip


def test_a_global_batch_is_divided_over_the_data_parallel_gpus_and_their_micro_batches() -> None:
    # 64 / (8 * 4) = 2 data-parallel GPUs, each with 2 sequences
    request = read_train_request(
        "llama3-70b", {"gpus": 64, "tp": 8, "pp": 4, "batch": 2, "global_batch": 1024}
    )
    assert request.run.gradient_accumulation == 1024 // (2 * 2)


def test_a_pair_is_two_sequences_of_batches_and_samples(ask: Ask) -> None:
    options: TrainOptions = {"gpu": "8xh200", "context": 1024, "pairs": True, "samples": "3K"}
    request = read_train_request("qwen2.5-0.5b", {**options, "batch": 4, "global_batch": 64})
    assert (request.run.workload.batch, request.run.gradient_accumulation) == (4 * 2, 64 // (4 * 8))
    assert request.tokens == 3000 * 2 * 1024
    found = read_train_request("qwen2.5-0.5b", {**options, "batch": "auto"})
    most = found.run
    single = read_train_request("qwen2.5-0.5b", {**options, "batch": "auto", "pairs": False}).run
    assert most.workload.batch == single.workload.batch // 2 * 2
    smaller = next(
        change
        for change in changes(found.asked.changed(batch=512))
        if change.flag.startswith("-b ")
    )
    assert smaller.run.workload.batch == 2 * int(smaller.flag.split()[1])
    rows = [
        ask("sweep", "gpt2", "--train", "--format", "csv", *more.split()).out
        for more in ("-b 2 --pairs", "-b 4")
    ]
    assert rows[0].replace("\n2,", "\n4,") == rows[1]


@each(
    ("name", "kind"),
    [
        ("deepseek-v4-flash", "attention with one head whose keys are also the values"),
        ("llama3.2-11b-vision", "cross-attention to images"),
    ],
)
def test_a_kind_whose_saved_tensors_are_unknown_is_an_error_that_names_it(
    name: str, kind: str
) -> None:
    with pytest.raises(AttncalcError, match=f"needs of {kind} are not known"):
        train(name)


@each(
    ("model", "options", "tip"),
    [
        ("llama3-8b", {"gpus": 8, "tp": 3}, "give gpus=6 or 9"),
        ("llama3-8b", {"gpus": 2, "tp": 4}, "give gpus=4"),
        ("llama3-8b", {"cp": 3, "context": 4096}, "give -c 4098"),
        (
            "llama3-8b",
            {"tp": 8, "cp": 2, "sequence_parallel": True, "context": 4100},
            "give -c 4112",
        ),
        ("llama3-8b", {"pp": 33}, "give pp=32 or less"),
        # (32 + 2) / 2: torchtitan's embedding and head take the places of a layer each
        ("llama3-8b", {"pp": 18, "fsdp": True}, "give pp=17 or less"),
        (
            "llama3-8b",
            {"pp": 5, "virtual_stages": 8, "gradient_accumulation": 5},
            "give pp=4 or less",
        ),
        ("mixtral-8x7b", {"gpus": 6, "ep": 4}, "give ep=1 or 2"),
        ("mixtral-8x7b", {"gpus": 32, "ep": 16}, "give ep=1, 2, 4 or 8"),
    ],
)
def test_the_tip_names_numbers_that_divide(model: str, options: dict[str, Any], tip: str) -> None:
    assert refusal(train, model, **options).tip == tip


@each(
    ("arguments", "warning"),
    [
        ("jamba-1.5-mini", "in single operations, which save 9 to 24 x as much"),
        ("granite4-h-tiny", "in single operations, which save 4 to 12 x as much"),
        ("qwen3-next-80b-a3b", "Without flash-linear-attention and causal-conv1d transformers"),
    ],
)
def test_more_memory_than_is_counted_is_a_warning(ask: Ask, arguments: str, warning: str) -> None:
    assert warning in " ".join(ask("train", *arguments.split()).out.split())


@each(
    ("options", "warning"),
    [
        (["--fsdp"], "--fsdp shards nothing: there is one GPU"),
        (
            ["--zero", "1", "--gpus", "4", "--tp", "2", "--pp", "2"],
            "--zero 1 shards nothing: tp and pp use all GPUs",
        ),
    ],
)
def test_a_warning_says_that_one_rank_shards_nothing(
    ask: Ask, options: list[str], warning: str
) -> None:
    assert f"warning: {warning}" in " ".join(ask("train", "llama3-8b", *options).out.split())


@each(
    ("optimizer", "zero", "copies"),
    # bitsandbytes and transformers' Adafactor update weights of 16 bits in place; DeepSpeed gives
    # them fp32 copies
    [
        ("adamw", 0, 4),
        ("adam8bit", 0, 0),
        ("adafactor", 0, 0),
        ("lion", 0, 4),
        ("adam8bit", 2, 4 / 8),
    ],
)
def test_only_some_optimizers_keep_fp32_copies_of_the_weights(
    optimizer: str, zero: int, copies: float
) -> None:
    run = read_train_request(
        "llama3-8b", {"optimizer": optimizer, "zero": zero, "gpus": 8 if zero else 1}
    ).run
    n = int(params(load("llama3-8b")).total)
    assert int(most_loaded(run, plain=True).states.master) == pytest.approx(copies * n, rel=1e-6)


def test_the_screen_says_that_weights_have_no_fp32_copies(ask: Ask) -> None:
    command = ["train", "llama3-8b", "--optimizer", "adam8bit"]
    assert "8-bit AdamW without fp32 weights" in " ".join(ask(*command).out.split())
    assert "without fp32 weights" not in ask(*command, "--master-weights").out
    found = changes(read_train_request("llama3-8b", {"gpu": "a100-80gb"}).asked)
    assert found[0].flag == "--optimizer adam8bit --no-master-weights"


def test_a_class_with_a_tower_computes_as_the_class_of_its_text_part() -> None:
    assert class_math("kimi_k25") == class_math("kimi_k2") != class_math("llama")
    assert class_math("minicpmv4_6") == class_math("qwen3_5_text") != class_math("llama")


def test_classes_without_sdpa_have_eager_attention_by_default(ask: Ask) -> None:
    for model, kernel in (("gpt-oss-20b", "eager"), ("gemma2-9b", "eager"), ("llama3-8b", "flash")):
        assert read_train_request(model, {}).run.kernel == kernel
    for options in ([], ["--kernel", "flash"]):
        out = " ".join(ask("train", "gpt-oss-20b", *options).out.split())
        assert "transformers runs this class without SDPA" in out
        assert ("bf16, eager attention" in out) == (not options)


def test_experts_that_fsdp_cannot_divide_by_their_number_are_a_warning(ask: Ask) -> None:
    command = ["train", "mixtral-8x7b", "--gpu", "h100", "--fsdp", "--gpus"]
    assert "each of 64 ranks would hold one of 8" in " ".join(ask(*command, "64").out.split())
    assert "would hold one" not in ask(*command, "8").out


def test_mamba_2_saves_the_tensors_of_its_fused_function() -> None:
    # MambaSplitConv1dScanCombinedFn: zxbcdt (two of d_inner, B and C of each group, dt of each
    # head) and its output; and -exp(A_log) of each head, of which exp saves its own result
    layer = Mamba2(n_heads=8, d_head=64, d_state=128, d_conv=4, n_groups=2, inner_norm=True)
    saved = layer.saved_tensors(Forward(3, 500, 500, 256, 2))
    per_token = 2 * (256 + (2 * 512 + 2 * 2 * 128 + 8) + 512) + 4 * 2  # and 1 / RMS of each group
    assert sum(int(tensor.size) for tensor in saved) == 3 * 500 * per_token + 2 * 8 * 4


def test_mamba_saves_the_tensors_of_its_fused_function() -> None:
    # MambaInnerFn with checkpoint_lvl 1: xz, x_dbl, B, C, out, and a product and a state per
    # channel and 2,048 tokens; A twice as above, D and the bias of dt in fp32
    layer = Mamba(d_inner=512, d_state=16, d_conv=4, dt_rank=8)
    saved = layer.saved_tensors(Forward(3, 2049, 2049, 256, 2))
    per_token = 2 * (256 + 2 * 512 + (8 + 2 * 16) + 2 * 16 + 512)
    vectors = 4 * 512 * (2 * 16 + 2)
    assert (
        sum(int(tensor.size) for tensor in saved)
        == 3 * (2049 * per_token + 4 * 512 * 2 * 2 * 16) + vectors
    )


def test_the_commands_of_the_page_fit_on_a_screen(ask: Ask) -> None:
    for command in (
        "llama2-7b --gpu a100-80gb --gpus 8 --zero 3 -b 4 -c 4096 --recompute full --optimizer "
        "adamw",
        "llama3-70b --gpu h100-80gb --gpus 64 --tp 8 --pp 2 --sequence-parallel -b 1 "
        "--gradient-accumulation 16",
        "qwen3-8b --gpu rtx-4090 --lora r=16 --weights-dtype nf4 -c 2048",
        "llama3-8b --gpu all --lora r=16 --weights-dtype nf4 --context auto",
        "llama3-8b -c 8192",
    ):
        lines = ask("train", *command.split()).out.splitlines()
        assert len(lines) <= 23, command
        assert max(map(len, lines)) <= 80, command


def sizes_on_screen(screen: str) -> list[tuple[str, int]]:
    """Return the label and the bytes of the rows that are no parts of another row."""
    rows = re.findall(r"(?m)^  (\w.*?)  +[\d,.]+ [KMG]iB +([\d,]+) B$", screen)
    return [(label, int(size.replace(",", ""))) for label, size in rows]


def test_the_rows_above_what_is_allocated_add_up_to_it(ask: Ask) -> None:
    for command in ("llama3-8b -c 8192", "mixtral-8x7b --gpu 8xh200 --fsdp --reference-model"):
        screen = ask("train", *command.split(), "--full").out
        sizes = sizes_on_screen(screen)
        place = next(i for i, (label, _) in enumerate(sizes) if label == "allocated at the peak")
        assert sum(size for _, size in sizes[:place]) == sizes[place][1]
        parts = re.findall(r"(?m)^    \w.*?  +[\d,.]+ [KMG]iB +([\d,]+) B$", screen)
        assert sum(int(size.replace(",", "")) for size in parts) in (0, dict(sizes)["activations"])


@pytest.mark.parametrize(
    "command",
    [
        "train gpt2",
        "train llama3.1-70b --gpu 8xh100 --zero 3",
        "train llama3.1-8b --gpu 24GB --lora r=16 --weights-dtype nf4 --recompute full",
        "train llama3.2-1b --gpu m3-max-64gb",
    ],
)
def test_tensors_and_what_is_outside_of_them_add_up_to_what_is_needed(
    ask: Ask, command: str
) -> None:
    """Each of the two ends, in GiB of two decimals."""
    screen = ask(*command.split()).out
    tensors = sum(size for _, size in sizes_on_screen(screen)) / 2**30
    outside, needed = (
        [float(end) for end in re.findall(r"([\d.,]+) GiB", line.replace(",", ""))]
        for line in screen.splitlines()
        if line.startswith(("  outside the tensors", "  needed  "))
    )
    for low_or_high in (0, 1):
        assert tensors + outside[low_or_high] == pytest.approx(needed[low_or_high], abs=0.02)
    assert "cuBLAS workspaces" not in screen


def test_huge_numbers_are_answered_at_once(ask: Ask) -> None:
    for options in (
        "-b 1000000000000000000",
        "--gpus 1000000000000000000 --fsdp",
        "-c 100T --recompute full",
    ):
        answer = ask("train", "llama3-8b", "--gpu", "h100", *options.split())
        assert answer.code in (0, 1)


def test_the_exit_code_guards_a_run(ask: Ask) -> None:
    assert ask("train", "gpt2", "--gpu", "h100").code == 0
    assert ask("train", "llama3-70b", "--gpu", "h100").code == 1


def test_days_follow_from_flops_and_mfu(ask: Ask) -> None:
    command = (
        "llama3-8b --gpu h100-80gb --gpus 8 --zero 3 --recompute full --tokens 1B --mfu 0.5 "
        "--price 2 --json"
    )
    document = ask("train", *command.split()).document
    values = {figure["name"]: figure["value"] for figure in document["results"]}
    seconds = 10**9 * values["flops_per_step"] / values["step_tokens"] / (8 * 0.5 * 989.4e12)
    assert values["training_seconds"] == pytest.approx(seconds, rel=1e-3)
    assert document["price"] == pytest.approx(2 * 8 * seconds / 3600)
    assert values["flops_hardware"] > values["flops_per_step"]


@each(("gpus", "enough", "first"), [
    ("--gpu h100", 48, "48 x NVIDIA H100 80GB SXM are enough for 30 days.\n"),
    ("--gpu 32xh100", 48, "48 x NVIDIA H100 80GB SXM are enough for 30 days, 32 are not.\n"),
    ("--gpu h100 --tp 8 --pp 2", 48, "48 x NVIDIA H100 80GB SXM are enough"),
    ("--gpu h100 --tp 8 --pp 4", 64, "64 x NVIDIA H100 80GB SXM are enough"),  # 2 copies of 32
])  # fmt: skip
def test_days_ask_for_the_fewest_gpus(ask: Ask, gpus: str, enough: int, first: str) -> None:
    """33,866 GPU-hours / (30 x 24 h) are 47.04, so that 47 take a few minutes more."""
    words = f"train llama3.1-8b --tokens 1T --days 30 {gpus}".split()
    assert ask(*words).out.startswith(first)
    document = ask(*words, "--json").document
    assert (document["gpus_enough"], document["gpus"]) == (enough, 32 if "32x" in gpus else enough)


@each(("text", "days"), [("2 weeks", 14), ("a month", 30.42), ("1-day", 1)])
def test_days_may_have_a_unit(ask: Ask, text: str, days: float) -> None:
    """A month has 730 hours."""
    assert (
        f"enough for {days:.3g} day"
        in ask("train", "gpt2", "--tokens", "1B", "--gpu", "h100", "--days", text).out
    )


def test_without_mfu_40_percent_are_assumed_in_the_first_lines_and_small_sums_have_two_digits(
    ask: Ask,
) -> None:
    # 10,000,000 tokens of 32,166,641,664 FLOP at 0.4 x 165.2 TFLOP/s: 4,868 s = 1.352 hours, at 0.4
    # an hour 0.54
    command = [
        "train",
        "llama3.1-8b",
        "--lora",
        "r=16",
        "--weights-dtype",
        "nf4",
        "--gpu",
        "rtx-4090",
    ]
    command += ["--tokens", "10M", "--price", "0.4"]
    first = " ".join(ask(*command).out.split("\n\n")[0].split())
    assert (
        "10 million tokens, 321.67 PFLOP, take 1.4 hours: 1.35 GPU-hours, price 0.54, at 40 % "
        "MFU of 165.20 TFLOP/s "
        "(assumed; --mfu sets it)." in first
    )
    document = ask(*command, "--json").document
    assert (document["mfu"], document["mfu_assumed"]) == (0.4, True)


def test_samples_and_epochs_are_tokens_and_paged_states_are_named(ask: Ask) -> None:
    command = [
        "train",
        "gpt2",
        "--gpu",
        "a100",
        "-c",
        "512",
        "--optimizer",
        "paged_adamw_8bit",
        "--samples",
        "2K",
    ]
    # 2,000 x 512 x 3
    assert "3,072,000 tokens " in " ".join(ask(*command, "--epochs", "3").out.split())
    # 124,439,808 parameters with 2 + 8 / 256 bytes, but 121,344 of vectors with 8: 253,492,000 B
    assert "Paged: CUDA moves the optimizer's 241.75 MiB to the host" in ask(*command).out


def test_a_gpu_without_bf16_trains_in_fp16_and_without_sdpas_flash_kernel(ask: Ask) -> None:
    # a T4 has 65 TFLOP/s in fp16
    answer = ask("train", "qwen2.5-0.5b", "--gpu", "t4", "--tokens", "1B").out
    assert "at 40 % MFU of 65.00 TFLOP/s" in " ".join(answer.split())
    assert "AdamW, fp16, efficient attention" in " ".join(answer.split())
    assert "warning: NVIDIA T4 has no bf16" in answer
    assert "no bf16" not in ask("train", "gpt2", "--gpu", "t4").out  # released in fp32


def test_a_time_in_fp32_names_the_faster_dtype(ask: Ask) -> None:
    # an A100 has 19.5 TFLOP/s in fp32 and 312 in bf16
    answer = ask("train", "gpt2", "--gpu", "8xa100", "--tokens", "10B").out
    assert (
        "warning: Autocast (--dtype bf16 --param-dtype fp32) has 16 x the FLOP/s of fp32."
        in " ".join(answer.split())
    )
    assert (
        "Autocast"
        not in ask("train", "gpt2", "--gpu", "8xa100", "--tokens", "10B", "--dtype", "bf16").out
    )


def test_a_gpu_alone_lists_the_largest_models_of_each_way_to_tune(ask: Ask) -> None:
    answer = ask("train", "--gpu", "rtx-4090", "-c", "2K")
    assert answer.out.startswith("FITS: up to qwen3.6-35b-a3b (QLoRA), ")
    rows = [line.split() for line in answer.out.split("\n\n")[1].splitlines()[1:]]
    # as many of each way as a terminal of 24 rows has room for
    assert [row[1] for row in rows] == 4 * ["QLoRA"] + 4 * ["LoRA"] + 4 * ["full"]
    assert answer.out.count("\n") <= 23
    model, _, low, _, high = rows[5]
    flags = [
        "--lora",
        "r=16",
        "--recompute",
        "full",
        "--loss",
        "fused",
        "--expandable-segments",
        "-c",
        "2K",
    ]
    assert (
        f"needs {low} to {high} of 23.5 GiB" in ask("train", model, "--gpu", "rtx-4090", *flags).out
    )
    document = ask("train", "--gpu", "rtx-4090", "-c", "2K", "--json").document
    assert {row["tuned"] for row in document["layers"]} == {"full", "LoRA", "QLoRA"}
    assert ask("train", "--gpu", "rtx-4090", "-c", "auto").err.startswith(
        "error: a model is required"
    )
    assert ask("train", "--gpu", "rtx-4090", "--zero", "7").err.startswith(
        "error: --zero cannot be 7"
    )
    assert ask("train", "--gpu", "0.3GiB").err.startswith("error: no built-in model is sure to fit")


def test_an_out_of_memory_error_is_explained_and_has_the_gpu(ask: Ask) -> None:
    log = (
        "step 1\nCUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total capacity of "
        "23.64 GiB of which 1.21 "
        "GiB is free. Process 7 has 22.42 GiB memory in use. Of the allocated memory 19.99 GiB "
        "is allocated by "
        "PyTorch, and 1.04 GiB is reserved by PyTorch but unallocated."
    )
    answer = ask("train", "llama3-8b", "--lora", "r=16", "--log", "-", stdin=log)
    assert answer.out.startswith("DOES NOT FIT: needs 57.6 to 64.5 of 23.6 GiB.")
    assert answer.err == (  # 23.64 - 1.21 - 19.99 - 1.04 = 1.40; 1.21 + 1.04 > 1.96
        "note: 1.96 GiB asked for, of 23.64 GiB 1.21 GiB free; tensors held 19.99 GiB, PyTorch "
        "1.04 GiB besides, "
        "others 1.40 GiB; --expandable-segments is enough\n"
    )
    others = ask("train", "llama3-8b", "--log", "-", stdin=log.replace("1.04 GiB", "0 bytes")).err
    assert others.endswith("PyTorch 0 B besides, others 2.44 GiB; nvidia-smi lists the others\n")
    older = (
        "Tried to allocate 1.96 GiB (GPU 0; 23.64 GiB total capacity; 19.99 GiB already "
        "allocated; 1.21 GiB free; "
        "21.03 GiB reserved in total by PyTorch)"  # 19.99 + 1.04
    )
    assert ask("train", "llama3-8b", "--lora", "r=16", "--log", "-", stdin=older).err == answer.err
    assert ask("train", "llama3-8b", "--log", "-", stdin="step 1").err.startswith(
        "error: - has no out-of-memory error"
    )


def test_lora_without_a_value_has_rank_16(ask: Ask) -> None:
    assert "LoRA r=16" in ask("train", "gpt2", "--lora", "--gpu", "24GB").out
    # 28 layers of 64 * (in + out): q and o of 3,072 + 3,072, k and v of 3,072 + 1,024, 3 of the MLP
    # of 3,072 + 8,192
    lora = ask("train", "llama3.2-3b", "--lora", "r=64").out.split()
    assert lora[lora.index("trained") + 2 :][:2] == [
        f"{28 * 64 * (2 * 6144 + 2 * 4096 + 3 * 11_264):,}",
        "2.94",
    ]


def test_dataclasses_of_a_run_are_replaced_with_checks() -> None:
    run = run_of("llama3-8b", gpus=2, tp=2)
    with pytest.raises(AttncalcError, match="not a multiple"):
        dataclasses.replace(run, gpus=3)


def test_what_no_change_alone_makes_fit_is_offered_with_adapters_the_host_or_more_gpus() -> None:
    """16 B of each of 70.55 billion parameters are 131 GiB on each of 8 GPUs of 79.1, and 65.7 on
    each of 16.

    72.3 with AdamW's temporaries and buffers are not sure to fit on 16, since the allocator
    reserves up to 11 % more. On 24, the next number of whole machines, they are 43.8.
    """
    found = changes(read_train_request("llama3-70b", {"gpu": "h100", "gpus": 8, "zero": 3}).asked)
    flags = [change.flag for change in found]
    assert flags == [
        "--recompute full --lora r=16 --weights-dtype nf4",
        "--recompute full --offload optimizer",
        "--recompute full --gpus 24",
    ]
    assert all(change.result.verdict == "fits" for change in found)


def test_without_a_gpu_the_fewest_are_those_that_fit_where_half_as_many_do_not(ask: Ask) -> None:
    document = ask("train", "llama3-8b", "--json").document
    full = {row["gpu"]: row["gpus"] for row in document["fewest_gpus"] if row["tuned"] == "full"}
    # as the screen says
    flags = ["--recompute", "full", "--loss", "fused", "--expandable-segments"]
    for name, number in full.items():
        several = ["--gpus", str(number), "--zero", "3"]
        assert ask("train", "llama3-8b", "--gpu", name, *several, *flags).out.startswith("FITS")
        half = ["--gpus", str(number // 2), *(["--zero", "3"] if number > 2 else [])]
        assert not ask("train", "llama3-8b", "--gpu", name, *half, *flags).out.startswith("FITS")
    (last,) = (
        line
        for line in ask("train", "deepseek-v3").out.splitlines()
        if line.startswith("  rtx-4090")
    )
    assert last.split()[-3:] == ["-", "-", "-"]


def test_how_many_gpus_are_enough_stays_on_a_screen_without_room_for_all_changes(ask: Ask) -> None:
    shown = ask("train", *["qwen3-14b", "--gpu", "8xh100", "--zero", "3"]).out
    assert "--gpu 16xh100-80gb" in shown
    assert "--offload" not in shown  # dropped: --full shows it


def test_a_smaller_micro_batch_has_as_many_sequences_in_a_step() -> None:
    options: Any = {
        "gpu": "h100",
        "lora": "r=16",
        "context": 2048,
        "batch": 4,
        "gradient_accumulation": 8,
    }
    found = changes(read_train_request("qwen3-8b", options).asked)
    assert "-b 2 --gradient-accumulation 16" in [change.flag for change in found]


def test_qlora_of_70b_fits_two_gpus_of_24_gb_with_changes_together() -> None:
    """FSDP with QLoRA trains 70B on two GPUs of 24 GB if the weights are on the host (answer.ai,
    2024-03-06).
    """
    asked = read_train_request(
        "llama3.1-70b", options_of("--gpu 2xrtx-4090 --lora r=16 --weights-dtype nf4")
    ).asked
    assert changes(asked) == ()  # no two of them are enough
    enough = all_changes(asked)
    assert (
        enough.flag
        == "--loss fused --no-kbit-upcast --autocast --double-quant --fsdp --offload params"
    )
    assert enough.result.verdict == "fits"


def test_scales_of_nf4_stay_on_the_gpu_when_parameters_are_offloaded() -> None:
    # an fp32 scale per 64 elements, and for each of 32 x 7 matrices a table of 16 values
    elements = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    options = options_of("--gpu 2xh100 --lora r=16 --weights-dtype nf4 --offload params --zero 3")
    held = most_loaded(read_train_request("llama3-8b", options).run, plain=True).states
    assert (int(held.weights), int(held.frozen_weights)) == (0, elements // 64 * 4 + 32 * 7 * 64)


def test_if_no_change_is_enough_the_screen_has_what_all_of_them_need(ask: Ask) -> None:
    out = " ".join(ask("train", "llama3.1-405b", "--gpu", "8GB").out.split())
    assert (
        "No change is sure to make it fit. All together, it needs 21.9 to 35.8 GiB: --gpus 1024"
        in out
    )


def test_if_no_two_changes_are_enough_the_screen_has_those_that_are(ask: Ask) -> None:
    command = "llama3.1-70b --gpu 2xrtx-4090 --lora r=16 --weights-dtype nf4"
    out = " ".join(ask("train", *command.split()).out.split())
    assert (
        "No two changes are enough. With these it needs 13.8 to 22.6 GiB: --loss fused "
        "--no-kbit-upcast --autocast --double-quant --fsdp --offload params" in out
    )


@each(("options", "recompute"), [("", "full"), ("--recompute none", "none")])
def test_quantized_weights_imply_gradient_checkpointing(options: str, recompute: str) -> None:
    # peft: prepare_model_for_kbit_training(model, use_gradient_checkpointing=True)
    run = read_train_request(
        "llama3.1-8b", options_of(f"--lora r=16 --weights-dtype nf4 {options}")
    ).run
    assert run.workload.recompute == recompute


@each(
    ("command", "answer"),
    [
        # 24 GPUs are the fewest: see the test of 70B above
        (
            "llama3.1-70b --gpu h100",
            "DOES NOT FIT on one GPU. 24 are enough, by the top of the range, for 1 x 4,096 tokens "
            "on each without offload: --recompute full --gpus 24 --zero 3 needs",
        ),
        (
            "llama3.1-8b --gpu rtx-4090 --lora r=16",
            " With --loss chunked --recompute full it needs 18.4 to 21.1.",
        ),
        # 8.03 billion parameters take 16 B on each GPU, and 2 with shards on 8. At the loss there
        # are 15.0 GiB of these, 2.8 of DeepSpeed's buffers, 23.8 of activations and 5.9 of logits,
        # with CUDA's context 48.6
        ("llama3.1-8b --gpu 8xh100", "Nothing is sharded: with --zero 3 it needs 48.6 to 56.5."),
        ("llama3.1-8b --gpu 8xh100 --lora r=64 -c 16K", "Nothing is sharded: with --fsdp it needs"),
    ],
)
def test_the_first_lines_have_the_number_of_gpus_or_what_shards_need(
    ask: Ask, command: str, answer: str
) -> None:
    assert answer in " ".join(ask("train", *command.split()).out.split()[:40])


def test_changes_that_keep_the_result_are_combined_before_sequences_get_shorter() -> None:
    # none of them suffices alone
    options = options_of(
        "--gpu rtx-4090 --lora r=16 --weights-dtype nf4 --recompute none -c 4096 -b 4"
    )
    found = changes(read_train_request("llama3-8b", options).asked)
    assert found[0].flag == "-b 1 --gradient-accumulation 4 --recompute full"


@each(
    ("model", "options"),
    [
        ("llama3-8b", "--gpu rtx-4090"),
        ("llama3-70b", "--gpu h100 --gpus 8 --fsdp -b 4"),
        ("qwen3-8b", "--gpu rtx-4090 -c 8192 -b 2"),
        ("mixtral-8x7b", "--gpu h100 -b 8 -c 2048"),
    ],
)
def test_at_most_two_changes_are_offered_together(model: str, options: str) -> None:
    asked = read_train_request(model, options_of(options)).asked
    assert {number_of_changes(change.options) for change in changes(asked)} <= {1, 2}


@each(("context", "shortest"), [(16_384, 4096), (4096, 1024), (1024, None)])
def test_no_context_is_offered_that_is_too_short_to_be_useful(
    context: int, shortest: int | None
) -> None:
    # a quarter of what is asked for, and 1,024 tokens at least
    for memory in range(8, 80, 4):
        options = options_of(f"--gpu {memory}GB --recompute full -c {context}")
        found = changes(read_train_request("qwen3-0.6b", options).asked)
        shorter = [change.options["context"] for change in found if "context" in change.options]
        assert all(shortest is not None and shortest <= one < context for one in shorter)


def held_at(run: Training, moment: str) -> list[tuple[str, int]]:
    """Return what is held at a moment besides the states: names and bytes."""
    moments = stage_budget(run, run.stages[0], plain=True).moments
    (found,) = (m.held for m in moments if m.name == moment)
    return [(held.name, int(held.size)) for held in found]


def test_a_pipelines_first_stage_keeps_a_micro_batch_per_stage() -> None:
    one, four = (
        stage_budget(run, run.stages[0])
        for run in (run_of("llama3-70b", gpus=4, pp=4, gradient_accumulation=n) for n in (1, 4))
    )
    assert four.activations == {part: 4 * size for part, size in one.activations.items()}


def test_a_fused_loss_has_the_logits_of_one_chunk() -> None:
    # Liger-Kernel: 128,256 / 4,096 = 31.3, so 32 chunks; 4,096 / 32 = 128 tokens, a power of two
    held = held_at(run_of("llama3-8b", context=4096, loss="fused"), "backward pass of the loss")
    assert ("logits", 4096 * 4096 * 2) in held
    assert ("temporary", 128 * 128256 * (2 + 4)) in held
    chunked = held_at(
        run_of("llama3-8b", context=4096, loss="chunked"), "backward pass of the loss"
    )
    # log-probabilities and two gradients of an eighth
    assert ("temporary", 4096 * 128256 * 4 * 3 // 8) in chunked


def test_the_loss_of_bert_is_in_the_dtype_of_its_logits() -> None:
    # BertForMaskedLM: loss_fct(prediction_scores.view(-1, vocab_size), labels); log-probabilities
    # and two gradients
    bert, gpt2 = (
        held_at(
            run_of(dataclasses.replace(load("gpt2"), model_type=name), context=1024, dtype="bf16"),
            "backward pass of the loss",
        )
        for name in ("bert", "gpt2")
    )
    assert ("logits", 1024 * 50257 * 2) in bert
    assert ("temporary", 1024 * 50257 * 2 * 2) in bert
    assert ("logits", 1024 * 50257 * 4) in gpt2


def test_a_loop_over_tensors_has_two_of_the_largest() -> None:
    run = run_of("llama3-8b", optimizer_step="loop", optimizer_dtype="bf16", master_weights=False)
    assert ("temporary", 2 * 128256 * 4096 * 2) in held_at(run, "optimizer step")


@each(
    ("options", "bytes_per_parameter"),
    [
        ({}, 4),  # a fp32 copy of gradients in 16 bits
        ({"grad_dtype": "fp32"}, 0),
        ({"gpus": 8, "tp": 4}, 4 / 4),
        ({"gpus": 8, "tp": 4, "zero": 1}, 4 / 8),
        ({"gpus": 8, "zero": 1}, (4 + 2) / 8),  # DeepSpeed joins them before
        ({"fp8": "weights"}, 4 + 2),  # and weights in 16 bits before they become fp8
    ],
)
def test_a_step_with_fp32_weights_copies_gradients(
    options: dict[str, Any], bytes_per_parameter: float
) -> None:
    held = dict(held_at(run_of("llama3-8b", dtype="bf16", **options), "optimizer step"))
    assert held.get("temporary", 0) == pytest.approx(bytes_per_parameter * 8_030_261_248, rel=1e-3)


def test_megatron_reduces_gradients_in_place() -> None:
    def buffers(**options: Any) -> int:
        budget = most_loaded(run_of("llama3-8b", gpus=8, dtype="bf16", **options), plain=True)
        return max(
            sum(int(h.size) for h in moment.held if h.name == "communication")
            for moment in budget.moments
        )

    assert buffers() == 2 * 8_030_261_248
    assert buffers(zero=1) == 2 * 500_000_000
    assert buffers(tp=4) == buffers(tp=4, zero=1) == 0


@each(
    ("recompute", "elements", "bytes_of_inputs"),
    # the inputs of q, k and v, of gate and up, of W_o and of W_down; W_o's is the output of
    # attention in bf16 too
    [("none", 4096, 3 * 4096 + 14336), ("selective", 0, 3 * 4096 + 14336)],
)
def test_transformer_engine_keeps_inputs_in_fp8(
    recompute: str, elements: int, bytes_of_inputs: int
) -> None:
    wide, narrow = (
        layer_bytes(run_of("llama3-8b", 1, 1024, recompute, dtype="bf16", fp8=fp8))
        for fp8 in ("none", "inputs")
    )
    assert narrow == wide - 1024 * 2 * (3 * 4096 + 14336) + 1024 * (2 * elements + bytes_of_inputs)


def test_weights_in_fp8_take_a_byte_but_not_those_of_embedding_head_and_norms() -> None:
    run = run_of("llama3-8b", dtype="bf16", fp8="weights")
    layers = 32 * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)
    assert states(run, run.stages[0]).weights == 2 * 8_030_261_248 - layers
    for name, transposes in (
        ("h100-80gb", layers),
        ("b200", 0),
    ):  # Transformer Engine: nvte_is_non_tn_fp8_gemm_supported
        result = train_result(dataclasses.replace(run, gpu=gpu(name)), plain=True)
        cached = result.budget.cached._replace(transposes=0)
        without = reserved(result.run, result.budget.allocated, result.budget.largest, cached)
        assert result.high == without[2] + overhead(run)[2] + transposes


@each("option", ["--fsdp", "--lora r=16", "--no-master-weights", "--param-dtype fp32"])
def test_fp8_needs_16_bit_weights_with_an_fp32_copy(ask: Ask, option: str) -> None:
    error = ask("train", "llama3-8b", "--fp8", "weights", *option.split()).error
    assert "--fp8 weights needs 16-bit weights with an fp32 copy" in error


def test_zero_2_keeps_a_share_of_the_last_layers_gradients() -> None:
    # the product of the MLP is differentiated: W_down and its norms have gradients, in bf16, on 8
    # ranks
    run = run_of("llama3-8b", gpus=8, zero=2)
    held = held_at(run, "backward pass of the MLP's product in the last layer")
    assert ("gradients", (14336 * 4096 + 2 * 4096) // 8 * 2) in held
    moments = stage_budget(run, run.stages[0], plain=True).moments
    # the embedding's gradient is reduced as the others are
    assert "sum of the embedding's gradients" not in [moment.name for moment in moments]


def test_fsdp_gathers_two_layers_and_has_shards_of_later_gradients() -> None:
    # a layer has 4 x 4096 x (4096 + 1024) / 2 + 3 x 4096 x 14336 + 2 x 4096 parameters, two tables
    # 128256 x 4096 each
    layer, tables = 41_943_040 + 176_160_768 + 8_192, 2 * 128256 * 4096
    run = run_of(
        "llama3-8b", gpus=8, zero=3, param_dtype="fp32", grad_dtype="fp32", master_weights=False
    )
    mlp = "backward pass of the MLP's product in the"
    moments = ("backward pass of the loss", f"{mlp} last layer", f"{mlp} last layer but one")
    loss, last, before = (dict(held_at(run, moment))["communication"] for moment in moments)
    assert last - loss == pytest.approx(2 * layer, rel=1e-5)  # of the next layer, in bf16
    assert before - last == pytest.approx(4 * layer, rel=1e-5)  # gradients that are reduced in fp32
    assert ("gradients", (8_030_261_248 - tables - layer) // 8 * 4) in held_at(
        run, f"{mlp} first layer"
    )


@each(
    ("optimizer", "rows", "columns", "expected"),
    [
        ("adam8bit", 1, 4095, 8 * 4095),  # two moments in fp32
        ("adam8bit", 256, 300, 2 * 76800 + 2 * 4 * 300),  # a scale per 256 elements
        ("adafactor", 300, 200, 4 * (300 + 200)),
        ("adafactor", 1, 200, 4 * 200),
    ],
)
def test_moments_of_a_tensor(optimizer: str, rows: int, columns: int, expected: int) -> None:
    assert (
        state_bytes([ParamTensor("W", "mlp", rows, columns, 1)], OPTIMIZERS[optimizer], 4)
        == expected
    )


def test_experts_are_sharded_over_the_ranks_that_hold_the_same_ones() -> None:
    experts = 32 * 8 * 3 * 4096 * 14336
    # an expert per layer on a GPU, the same on 2 GPUs
    run = run_of("mixtral-8x7b", gpus=16, ep=8, zero=1)
    others = int(params(run.model).total) - experts
    assert states(run, run.stages[0]).moments == 8 * (others // 16 + experts // 8 // 2)
    fields: dict[str, Any] = {
        "lora": Lora(8, ("W_q",)),
        "weights_dtype": "nf4",
        "param_dtype": "fp32",
        "zero": 3,
    }
    runs = (run_of("mixtral-8x7b", gpus=gpus, master_weights=False, **fields) for gpus in (1, 8))
    one, eight = (states(run, run.stages[0]).experts_left for run in runs)
    assert 0 < eight < one // 8  # scales, which are whole on each GPU, are subtracted


def test_fsdp_on_two_gpus_has_whole_gradients_until_they_are_reduced() -> None:
    run = run_of(
        "llama3-8b",
        gpus=2,
        zero=3,
        dtype="bf16",
        param_dtype="fp32",
        grad_dtype="fp32",
        master_weights=False,
    )
    head = ("gradients", 2 * 128256 * 4096)
    assert head in held_at(run, "backward pass of the MLP's product in the last layer")


def test_the_longest_context_is_at_most_the_models() -> None:
    assert longest_context(run_of("gpt2", gpu=gpu("h200"))) == 1024


def test_the_least_sharding_that_fits_two_gpus_is_a_change() -> None:
    asked = read_train_request("llama3.2-1b", options_of("--gpu rtx-3090 --gpus 2 -c 512")).asked
    assert "--zero 1" in [change.flag for change in changes(asked)]


def test_a_cuda_context_and_nccl_are_outside_of_the_allocator() -> None:
    # cuBLAS's two workspaces are inside: :4096:2:16:8 in KiB, as CUBLAS_WORKSPACE_CONFIG writes it
    assert most_loaded(run_of("gpt2")).workspaces == 2 * (4096 * 2 + 16 * 8) * 1024
    one, two = (overhead(run_of("gpt2", gpus=gpus)) for gpus in (1, 2))
    assert [round(size / 2**30, 2) for size in one] == [0.14, 0.45, 0.75]
    assert [round((size - alone) / 2**30, 2) for size, alone in zip(two, one, strict=True)] == [
        0.1,
        1,
        2.1,
    ]


def test_nf4_scales_are_quantized_too_by_blocks_of_256() -> None:
    # half a byte per element, a byte per 64, fp32 per 64 x 256 of these, a table of 256, an offset,
    # a table of 16
    expected = 4096 * 4096 // 2 + 262_144 + 4 * 1024 + 4 * 256 + 4 + 4 * 16
    assert (
        quantized_bytes(ParamTensor("W", "mlp", 4096, 4096, 1), "nf4", double_quant=True)
        == expected
    )


def test_copies_and_shards_of_the_states_are_whole_models_and_shares() -> None:
    def held(**options: Any) -> Any:
        run = run_of("llama3-8b", **options)
        return states(run, run.stages[0])

    assert held(references=2).references == 2 * 8_030_261_248 * 2  # in bf16
    # the model with its adapters switched off
    assert held(references=1, lora=Lora(16, ("W_q",))).references == 0
    assert held().trained == 8_030_261_248
    assert held(gpus=8, zero=3, references=1).references == pytest.approx(
        held(references=1).references / 8, rel=1e-6
    )
    one, shard = (int(held(gpus=8, zero=zero, optimizer="adafactor").moments) for zero in (0, 1))
    assert shard == -(-one // 8)


def test_a_step_has_the_flops_of_all_micro_batches_and_two_thirds_with_frozen_weights() -> None:
    one = int(work(run_of("llama3-8b")).per_step)
    assert int(work(run_of("llama3-8b", gpus=8, gradient_accumulation=4)).per_step) == 8 * 4 * one
    assert int(work(run_of("llama3-8b", lora=Lora(8, ("W_q",)))).per_step) == one * 2 // 3
    # a reference model's forward pass: 4 of 3, and 2 + 1 with adapters
    assert int(work(run_of("llama3-8b", references=1)).per_step) == one * 4 // 3
    assert int(work(run_of("llama3-8b", references=1, lora=Lora(8, ("W_q",)))).per_step) == one
    assert work(run_of("llama3-8b", gpus=8)).six_n_d == 8 * 6 * 8_030_261_248 * 2048


def sizes_of(tensors: Iterable[SavedTensor]) -> dict[str, int]:
    return {tensor.name: int(tensor.size) for tensor in tensors}


def test_a_mixture_saves_its_routing_and_the_order_of_its_tokens() -> None:
    """Batch 3 of 5 tokens, 11 experts of which a token uses 2, in 16 bits."""
    saved = sizes_of(
        mlp_tensors(
            Mlp(d_ff=24, gated=True, n_experts=11, n_experts_per_token=2), Forward(3, 5, 5, 32, 2)
        )
    )
    # per token: 2 indices of 8 B, 11 scores of the softmax in fp32, 2 weights of 2 B, and in fp32
    # the 2 chosen scores and their sum
    assert saved["routing"] == 3 * 5 * (2 * 8 + 11 * 4 + 2 * 2 + (2 + 1) * 4)
    # 3 indices of 8 B per chosen expert of a token, and an offset of 4 B per expert
    assert saved["order of the tokens"] == 3 * 8 * (3 * 5 * 2) + 4 * 11
    biased = Mlp(d_ff=24, gated=True, bias=True, n_experts=11, n_experts_per_token=2)
    # and the index of each one's bias
    assert (
        sizes_of(mlp_tensors(biased, Forward(3, 5, 5, 32, 2)))["order of the tokens"]
        == 4 * 8 * (3 * 5 * 2) + 4 * 11
    )


@each(("d_v", "values"), [(None, 16), (24, 24)])
def test_a_fused_projection_saves_its_whole_output(d_v: int | None, values: int) -> None:
    """Of 8 query and 2 KV heads of 16, of which a value may have another width, batch 3 of 5 tokens
    in 16 bits.
    """
    layer = Grouped(8, 2, 16, d_v, fused=True)
    saved = sizes_of(layer.saved_tensors(Forward(3, 5, 5, 32, 2, rotary=False)))
    assert saved["output of W_qkv"] == 2 * 3 * 5 * (8 * 16 + 2 * (16 + values))
    assert not {"q", "k", "v"} & saved.keys()  # views of it


def test_offload_is_refused_on_an_apple_gpu_which_shares_the_hosts_memory(ask: Ask) -> None:
    line = ["train", "llama3-8b", "--gpu", "m4-max"]
    assert "shares the host's memory" in ask(*line, "--offload", "optimizer").error
    # nor is it offered
    assert "offload" not in ask(*line, "--full").out


def test_expandable_segments_narrow_no_range_of_metal(ask: Ask) -> None:
    line = ["train", "qwen3-0.6b", "--gpu", "m4-max", "--get", "needed_low,needed,needed_high"]
    assert ask(*line, "--expandable-segments").out == ask(*line).out


def test_what_is_expected_is_within_the_range(ask: Ask) -> None:
    options = "--gpu h100 --lora r=8 --recompute full -c 8192 --expandable-segments"
    values = ask("train", "qwen3-0.6b", *options.split(), "--json").document["values"]
    # logits in 16 bits, which expandable segments give back, are more than 9 % of what is allocated
    assert values["allocated"] * 9 < 2 * 8192 * 151_936 * 100
    assert values["needed_low"] < values["needed"] < values["needed_high"]


def test_a_reference_model_is_in_the_dtype_in_which_the_model_is_loaded(ask: Ask) -> None:
    n = int(params(load("gpt2")).total)
    line = ["train", "gpt2", "--reference-model", "--dtype", "bf16", "--get", "references"]
    # autocast leaves weights in fp32, of 4 B
    assert ask(*line, "--param-dtype", "fp32").out == f"{4 * n}\n"
    assert ask(*line).out == f"{2 * n}\n"
    zero = ["--gpus", "2", "--zero", "2", "--param-dtype", "fp32"]
    assert ask(*line, *zero).out == f"{2 * n}\n"
