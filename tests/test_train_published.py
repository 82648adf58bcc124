"""What training costs, against measured runs and other calculators' expressions."""

import dataclasses
import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from asking import Ask, refusal
from tables import each
from training_runs import (
    HELD_OUT,
    ON_A_GPU,
    PUBLISHED,
    Measured,
    fitcheck_runs,
    held_out_command,
    held_out_runs,
    least_memory,
    litgpt_runs,
    published_run,
    published_runs,
    runs_on_a_gpu,
)

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack, Workload, load, train
from attncalc.cost.params import params
from attncalc.cost.training.fits import reserved, train_result
from attncalc.cost.training.setup import Training
from attncalc.cost.training.states import states
from attncalc.cost.training.step import Cached, most_loaded, stage_budget
from attncalc.questions.train.request import read_train_request

_LORA: Any = {"recompute": "none", "batch": 4, "context": 2048, "lora": "r=16"}


def test_measured_lora_runs_are_within_1_percent_and_on_average_within_0_2() -> None:
    # nothing is fitted. The allocator's blocks, of which it splits off nothing below 1 MiB, are 0
    # to 23 MiB larger than the weights in them: fitcheck measured both. With them, 40 of 43 runs
    # are within 1 %
    runs = list(fitcheck_runs())
    errors = [abs(run.error_of_tensors) for run in runs]
    assert len(errors) == 43
    assert max(errors) < 0.01
    assert sum(errors) / len(errors) < 0.002
    assert sum(abs(run.error) < 0.01 for run in runs) == 40


def test_runs_on_an_h200_are_within_0_2_percent() -> None:
    # 160 runs, of which 13 are off by more, for the reasons in the data
    runs = [run for run in runs_on_a_gpu() if not run.why]
    assert len(runs) == 148
    assert {run.name: run.error for run in runs if abs(run.error) > 0.002} == {}


def test_a_run_that_is_off_has_its_reason() -> None:
    off = [run for run in runs_on_a_gpu() if run.why]
    assert len(off) == 12
    assert [run.name for run in off if abs(run.error) < 0.002] == []


def test_peft_before_quantized_training_keeps_norms_in_fp32_under_autocast() -> None:
    # prepare_model_for_kbit_training and the Trainer's bf16=True; before, two of these runs were
    # 3.4 and 4.7 % too low
    rows = [
        run
        for row, run in zip(ON_A_GPU["runs"], runs_on_a_gpu(), strict=True)
        if "kbit" in row.get("mode", "")
    ]
    assert len(rows) == 8
    assert max(abs(run.error) for run in rows) < 0.001


@each(
    ("options", "less"),
    [
        # inputs of A have 2 bytes less: of q, k, v, o, gate and up 896 elements each, of down 4,864
        ({}, 2 * (6 * 896 + 4864)),
        # beside quantized matrices they are what is passed on: one input of q, k and v, one of gate
        # and up, the output of attention (saved by it), the product
        (
            {"weights_dtype": "nf4", "no_kbit_upcast": True},
            4 * (6 * 896 + 4864) - 2 * (896 + 896 + 4864),
        ),
    ],
)
def test_autocast_keeps_16_bit_inputs_of_adapters_in_fp32(
    options: dict[str, Any], less: int
) -> None:
    # qwen2.5-0.5b: 24 layers, d = 896, k and v 128, f = 4,864; 8,192 tokens. Outputs of A, 7 x 16,
    # have 2 bytes less. Adapters, 16 x (in + out) elements each, are cast: q and o 1,792, k and v
    # 1,024, gate, up and down 5,760
    cast = 24 * 2 * 16 * (2 * 1792 + 2 * 1024 + 3 * 5760)
    plain, cheaper = (
        most_loaded(read_train_request(load("qwen2.5-0.5b"), given).run, plain=True).allocated
        for given in (_LORA | options, _LORA | options | {"autocast": True})
    )
    assert plain - cheaper == 24 * 8192 * (less + 2 * 7 * 16) - cast


def test_measured_lora_runs_under_autocast_are_predicted_with_the_option() -> None:
    # the last asked for 28,151,375,756 bytes, and keeps all activations: without --autocast it was
    # 14.5 % too high
    rows = [
        run
        for row, run in zip(ON_A_GPU["runs"], runs_on_a_gpu(), strict=True)
        if "--autocast" in row["options"]
    ]
    assert [round(100 * run.error, 2) for run in rows] == [-0.01, -0.01, 0.10]


def test_what_is_reserved_is_nearer_with_the_logits_that_are_freed() -> None:
    # the runs without a limit of memory: 6.1 % off on average without them
    with_logits, without = [], []
    for row, run in zip(ON_A_GPU["runs"], runs_on_a_gpu(), strict=True):
        if not run.why:
            with_logits.append(abs(run.reserved / row["reserved"] - 1))
            without.append(abs(1.03 * run.predicted / row["reserved"] - 1))
    assert sum(with_logits) / len(with_logits) < 0.043
    assert sum(without) / len(without) > 0.06


def test_the_least_memory_of_a_run_is_in_the_range_of_the_allocator() -> None:
    # set_per_process_memory_fraction limits what is reserved; the batches of three runs have varied
    # lengths
    found = list(least_memory())
    assert len(found) == 20
    assert [name for name, least, (low, _, high) in found if not low <= least <= high] == []


def test_a_large_tensor_or_expandable_segments_change_the_range() -> None:
    run = Training(load("llama2-7b"), Workload.train(1, 128))
    assert reserved(run, 1000, 10, Cached()) == (1000, 1030, 1110)
    assert reserved(run, 1000, 200, Cached()) == (1000, 1030, 1050 + 240)
    assert reserved(dataclasses.replace(run, expandable_segments=True), 1000, 200, Cached()) == (
        1000,
        1020,
        1090,
    )


def test_88_of_131_held_out_runs_on_an_h200_were_within_0_1_percent() -> None:
    # Of the first 35, seven were not: gradients that do not exist yet were counted of a mixture's
    # experts (3), of eager attention's first layer, of a recomputed layer and with
    # --optimizer-in-backward; and OLMo's norm saves more. Of 16 others, three: SDPA's efficient
    # kernel keeps the mask of windows. Adafactor's step had no temporaries (2 runs), and four runs
    # in nf4 did not cast the embedding to fp32. Of 74 more, 47 were:
    # tests/data/training/README.md has the others' causes.
    errors = [run.first / run.measured - 1 for run in runs_on_a_gpu() if run.first]
    assert len(errors) == 131
    assert sum(abs(error) < 0.001 for error in errors) == 88


@each("run", [run for run in published_runs() if run.within])
def test_published_runs_are_within_their_tolerance(run: Measured) -> None:
    assert abs(run.error) <= (run.within or 0)


def test_litgpts_runs_fit_and_its_failures_do_not() -> None:
    runs = list(litgpt_runs())
    assert {run.verdict for run in runs if run.measured} == {"fits"}
    failed = [run.verdict for run in runs if not run.measured]
    assert [failed.count(name) for name in ("does_not_fit", "may_not_fit", "fits")] == [5, 1, 0]


def test_falcon_40b_in_nf4_failed_since_an_older_bitsandbytes_keeps_inputs() -> None:
    rows = [
        row
        for row in PUBLISHED["litgpt"]["rows"]
        if row["model"] == "falcon-40b" and "bitsandbytes" in row["options"]
    ]
    assert len(rows) == 2
    for row in rows:
        newer = {**row, "options": {**row["options"], "bitsandbytes": "0.43.2"}}
        assert train_result(published_run(newer), plain=True).verdict == "fits"


def test_litgpts_fsdp_gathers_all_weights_when_it_loads(ask: Ask) -> None:
    n = int(params(load("falcon-40b")).total)
    # a copy of all weights in bf16 and the shard of one of 4 GPUs
    loading = 2 * n * 5 // 4
    options = "--gpu 4xa100-40gb --fsdp --lora r=8,targets=qkv --param-dtype bf16 -c 1079"
    command = ["train", "falcon-40b", *options.split(), "--recompute", "full"]
    step = json.loads(ask(*command, "--json").out)
    loaded = json.loads(ask(*command, "--load-full-state-dict", "--json").out)
    assert (step["verdict"], loaded["verdict"]) == ("fits", "does_not_fit")
    assert loaded["values"]["loading"] == loaded["values"]["allocated"] == loading
    assert step["values"]["loading"] is None
    assert loaded["peak"] == "loading of the checkpoint"
    assert loaded["moments"][0] == {"name": "loading of the checkpoint", "bytes": loading}
    assert loaded["moments"][1:] == step["moments"]
    screen = ask(*command, "--load-full-state-dict", "--full").out
    assert "full state dict and shard" in screen
    assert "96.17 GiB" in screen
    assert "Memory peaks during the loading of the checkpoint" in screen


def test_a_step_that_needs_more_than_loading_stays_the_peak() -> None:
    row = PUBLISHED["litgpt"]["rows"][-2]
    assert row["options"]["load_full_state_dict"]
    assert train_result(published_run(row)).budget.peaks_at_loading
    # logits in fp32 of 32 x 4,096 tokens and 32,000 words are 16.8 GB, and loss and gradient more:
    # loading needs 2 x 13.0 GB x 5 / 4 = 32.5 GB
    options = {**row["options"], "context": 4096, "batch": 32}
    longer = train_result(published_run({**row, "options": options}))
    assert not longer.budget.peaks_at_loading
    del options["load_full_state_dict"]
    step = train_result(published_run({**row, "options": options}))
    assert (longer.low, longer.expected, longer.high) == (step.low, step.expected, step.high)


@each(
    ("options", "message"),
    [
        ({}, "load_full_state_dict needs fsdp"),
        ({"zero": 3}, "load_full_state_dict needs fsdp"),
        ({"fsdp": True, "tp": 2}, "load_full_state_dict cannot be combined with tp"),
        (
            {"fsdp": True, "lora": "r=8", "weights_dtype": "nf4"},
            "load_full_state_dict cannot be combined with weights_dtype",
        ),
        (
            {"fsdp": True, "offload": "params"},
            "load_full_state_dict cannot be combined with offload='params'",
        ),
    ],
)
def test_a_full_state_dict_needs_fsdp_alone(options: dict[str, Any], message: str) -> None:
    assert message in str(refusal(train, "llama3-8b", gpus=4, load_full_state_dict=True, **options))


def test_litgpts_steps_on_one_gpu_allocate_3_to_9_percent_more_than_predicted() -> None:
    errors = [
        run.allocated / run.measured - 1
        for run in litgpt_runs()
        if run.measured and "GPUs" not in run.name
    ]
    assert len(errors) == 6
    assert all(-0.092 < error < -0.03 for error in errors)


def held(run: Training) -> int:
    found = states(run, run.stages[0])
    return sum(map(int, (found.weights, found.master, found.moments, found.gradients)))


def run_of(model: ModelSpec, batch: int = 1, **options: object) -> Training:
    return Training(model, Workload.train(batch, 2048, recompute="selective"), **options)  # type: ignore[arg-type]


@each(
    ("dp", "zero", "expected"),
    # num_bytes_per_parameter in Megatron-LM's megatron/training/theoretical_memory_usage.py
    [(1, 0, 18), (8, 0, 18), (8, 1, 6 + 12 / 8), (64, 1, 6 + 12 / 64)],
)
def test_states_are_those_of_megatrons_report(dp: int, zero: int, expected: float) -> None:
    model = load("llama2-7b")
    run = run_of(model, gpus=dp, zero=zero, grad_dtype="fp32")
    assert held(run) == pytest.approx(expected * int(params(model).total), rel=1e-9)


@each(
    ("d_ff", "tp", "pp", "interleaved", "micro_batches"),
    [
        (2 * 1024, 1, 1, 1, 1),
        (4 * 1024, 4, 1, 1, 1),
        (3 * 1024, 2, 4, 1, 8),
        (4096, 2, 4, 1, 2),
        (4096, 8, 4, 2, 8),
    ],
)
def test_activations_are_those_of_megatrons_report(
    d_ff: int, tp: int, pp: int, interleaved: int, micro_batches: int
) -> None:
    h, n_layers, s, b = 1024, 8, 2048, 2
    layers = Layers(
        "layers",
        n_layers,
        attention=Grouped(8, 8, 128, bias=tuple("qkvo")),
        mlp=Mlp(d_ff, bias=True),
    )
    stack = Stack("decoder", (layers,), h, norm="layernorm")
    model = ModelSpec(
        "m", "m", (stack,), vocab_size=51200, head=Head("lm", tied=True), dtype="fp16"
    )
    run = run_of(
        model,
        b,
        gpus=tp * pp,
        tp=tp,
        pp=pp,
        virtual_stages=interleaved,
        sequence_parallel=tp > 1,
        gradient_accumulation=micro_batches,
        kernel="eager",
        upcasts=False,
        dropout=True,
    )
    expected = s * b * h * (18 + 4 * (d_ff / h)) * n_layers / tp  # compute_activation_memory
    if interleaved > 1:
        expected *= 1 + (pp - 1) / (pp * interleaved)
    else:
        expected *= min(1, micro_batches / pp)
    budget = stage_budget(run, run.stages[0], plain=True)
    above, below = run.stages[0].in_flight
    of_layers = sum(
        int(layer.layers.count) * int(t.size)
        for layer in budget.saved.layers
        for t in layer.kept
        if not t.is_statistic
    )
    assert above * of_layers / below == pytest.approx(expected, rel=1e-12)


def test_deepspeeds_step_has_a_shard_of_gradients_three_times_and_its_backward_pass_a_bucket() -> (
    None
):
    # N = 6.7 billion on 2 GPUs: 2 N of weights, 12 N / 2 of states, and of the gradients a shard of
    # 2 N / 2, its copy in one tensor and that in fp32 (stage_1_and_2.py, step); with more GPUs the
    # peak is in the backward pass
    model = load("llama2-7b")
    n = int(params(model).total)
    at_step, in_backward = (
        stage_budget(run, run.stages[0], plain=True)
        for gpus in (2, 64)
        for run in [Training(model, Workload.train(1, 128), gpus=gpus, zero=2)]
    )
    assert at_step.peak.name == "optimizer step"
    assert at_step.allocated - int(at_step.workspaces) == 2 * n + 12 * n // 2 + (2 + 2 + 4) * n // 2
    assert in_backward.held("communication") == 500_000_000 * 2  # reduce_bucket_size in 16 bits


def test_deepspeeds_estimates_are_our_states_and_its_fp32_gradients() -> None:
    # deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero2_model_states_mem_needs: 4 N + 16 N /
    # GPUs. Its docs:
    # 2851M parameters on 8 GPUs need 15.93 GiB per GPU. It counts whole 16-bit gradients, and fp32
    # ones for the step.
    model, gpus = load("llama2-7b"), 8
    n = int(params(model).total)
    run = run_of(model, gpus=gpus, zero=2)
    ours = held(run)  # 2 N of weights, and 2 N + 12 N of one of 8 shards
    assert ours + 2 * n + (4 - 2) * n / gpus == pytest.approx(4 * n + 16 * n / gpus, rel=1e-9)
    assert (4 + 16 / gpus) * 2851e6 / 2**30 == pytest.approx(15.93, abs=0.005)
    # stage3.py: 4 largest_layer + 18 N / GPUs; 2783M parameters, the largest layer of 65M: 6.08 GiB
    assert held(run_of(model, gpus=gpus, zero=3)) + 2 * n / gpus == pytest.approx(
        18 * n / gpus, rel=1e-8
    )
    assert (4 * 65e6 + 18 * 2783e6 / gpus) / 2**30 == pytest.approx(6.08, abs=0.01)


def test_the_first_predictions_of_held_out_runs() -> None:
    """The aim is a median error of 3 % per publisher: IBM and Answer.AI are within it, and litgpt
    is not. Of 22 runs that ran out of memory 17 DO NOT FIT.
    """
    runs = held_out_runs()
    errors = defaultdict(list)
    for run in runs:
        if run.measured and not run.contradiction:
            errors[run.publisher].append(abs(run.error))
    within = {publisher for publisher, sizes in errors.items() if median(sizes) < 0.03}
    assert within == {"IBM fms-acceleration", "Answer.AI"}
    failed = Counter(run.verdict for run in runs if run.measured is None)
    assert failed == {"does_not_fit": 17, "fits": 4, "may_not_fit": 1}


def test_held_out_runs_are_predicted_as_well_today(ask: Ask, tmp_path: Path) -> None:
    """A later formula may be nearer. It may not be further off by 1 % in the median."""
    now, first = [], []
    for row in HELD_OUT["runs"]:
        if not row["ran"] or "contradiction" in row:
            continue
        answer = ask(*held_out_command(row, tmp_path), "--json")
        allocated = json.loads(answer.out)["values"]["allocated"]
        now.append(abs(allocated / row["allocated"] - 1))
        first.append(abs(row["predicted"]["allocated"] / row["allocated"] - 1))
    assert median(now) < median(first) + 0.01
