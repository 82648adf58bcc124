"""The notes of `attncalc train`: what is counted and assumed, and when more is needed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from ...attention.linear import GatedDeltaNet
from ...attention.mamba import Mamba, Mamba2
from ...attention.saved import KEEP_SCORES
from ...cost.training.activations import has_windows
from ...cost.training.classes import class_math, saves_more
from ...cost.training.fits import MOST_TOGETHER, SHORTEST_CONTEXT, SHORTEST_PART, VARIED
from ...cost.training.param_tensor import ParamTensor
from ...cost.training.selective import has_norm_of_its_own
from ...cost.training.setup import Training
from ...cost.training.states import States
from ...cost.training.step import LOADING
from ...model import plural
from ...units import BYTES, count, dtype, human
from .advice import in_keys
from .figures import Answer

# How the notes start that a default screen has, besides the first.
_DECISIVE = ("warning", "Fewest", "The reference", "A pair", "In host", "Paged", "Pipeline")
# Kinds with kernels of their own, the packages that have them, and how many times as much layers of
# 13 classes saved without them (transformers 5.17 on an H200, 2 x 512 tokens).
_WITHOUT_KERNELS = (
    (Mamba, "mamba-ssm and causal-conv1d", "9 to 24"),
    (Mamba2, "mamba-ssm and causal-conv1d", "4 to 12"),
    (GatedDeltaNet, "flash-linear-attention and causal-conv1d", "2 to 12"),
)


def train_notes(of: Answer) -> Iterator[str]:
    """Yield the notes; the first is about the peak, as in `peak_sentences`."""
    result = of.result
    run = of.result.run
    states = of.result.budget.states
    yield " ".join(peak_sentences(of))
    yield from _fewest_notes(of)
    yield from _states_notes(run, states)
    yield from _reference_notes(run)
    yield from _saved_modules_notes(run)
    if run.weights_dtype:
        yield from _quantized_notes(run, states)
    if of.auto and result.verdict != "fits":
        yield f"Not even the smallest {of.auto} is sure to fit."
    if of.asked and result.verdict in ("may_not_fit", "does_not_fit"):
        yield (
            f"At most {MOST_TOGETHER} changes are offered together. A context is offered down to "
            f"1/{SHORTEST_PART} of what is asked for, and to {count(SHORTEST_CONTEXT)} tokens."
        )
    yield from _work_notes(of)
    yield from _stage_notes(run)
    yield from _sharding_notes(run)
    if states.on_host:
        yield f"In host memory: {human(states.on_host, BYTES)} per GPU."
    if run.model.has_experts:
        yield "Tokens are assumed to be spread evenly over the experts."
        yield from _expert_warnings(run)
    yield (
        "Activations are those of transformers' classes: norms and the loss compute in fp32. "
        "--compile fuses element-wise operations and keeps less."
    )
    yield from _recurrent_warnings(run)
    yield from _kernel_notes(run)
    yield from _head_warnings(run)
    times = saves_more(run.model.model_type)
    if times > 1:
        yield f"warning: The layers of this class save about {times:g} x as much in transformers."
    yield from _device_notes(of)
    if result.needs_one_length:
        yield (
            "warning: The batches are assumed to have one length, padded or packed. Varied "
            f"lengths fragment the memory and need up to {VARIED - 100} % more than is allocated. "
            "--expandable-segments avoids most of that."
        )
    yield from run.workload.assumed
    yield from run.model.notes


def _device_notes(of: Answer) -> Iterator[str]:
    """Yield what is needed besides what is allocated, on which device it is measured, and what is
    not known.
    """
    run = of.result.run
    if run.is_mps:
        yield (
            "warning: No training on an Apple GPU has been measured. It has no CUDA context and no "
            "cuBLAS, so neither is counted. What Metal takes instead is not known: the range is "
            "that of CUDA's allocator. Whether bitsandbytes runs there has not been checked."
        )
        yield (
            "With gradients, SDPA on MPS keeps the scores of attention: --kernel math is its "
            "default."
        )
        return
    yield (
        "The allocator reserves more than is allocated, the more the larger one tensor is "
        "(measured on an H200); the CUDA context takes 0.14 to 0.75 GiB. --expandable-segments "
        "narrows the range. A run is sure to fit if the top of the range does, and likely to if "
        f"what is expected does: {human(of.result.expected, BYTES)}."
    )


def is_decisive(note: str) -> bool:
    """Return whether a default screen has the note."""
    return note.startswith(_DECISIVE)


def peak_sentences(of: Answer) -> list[str]:
    """Return when the memory peaks, on which stage, and what the optimizer's states are."""
    budget = of.result.budget
    run = of.result.run
    copies_gradients = (
        budget.peak.name == "optimizer step"
        and run.master_weights
        and dtype(run.grad_dtype).bits == 16
        and budget.held("temporary")
    )
    peak = f"Memory peaks during the {budget.peak.name}."
    if copies_gradients:
        peak = f"Memory peaks during the {budget.peak.name}, with fp32 copies of the gradients."
    sentences = [peak]
    if budget.peaks_at_loading:
        sentences = [
            f"Memory peaks during the {LOADING}: each GPU gathers all weights beside its shard, as "
            "litgpt's FSDP does.",
            f"A step peaks during the {budget.peak.name}.",
        ]
    if run.pp > 1:
        sentences.append(f"Stage {budget.stage.number} of {run.pp} is the most loaded.")
    master = int(budget.states.master)
    if master:
        per_weight = 4 * (master + int(budget.states.moments)) / master
        sentences.append(
            f"Optimizer states are {per_weight:.3g} B per parameter, including 4 B of fp32 master "
            "weights."
        )
    return sentences


def _fewest_notes(of: Answer) -> Iterator[str]:
    """Yield with which changes the fewest GPUs are enough, for each way to tune; a screen has the
    first.
    """
    if not of.fewest:
        return
    _, ways = of.fewest[0]
    for i, way in enumerate(ways):
        flags = dict[str, None]()
        for _, by_way in of.fewest:
            change = by_way[way]
            if change:
                flags |= dict.fromkeys(filter(None, re.split(" (?=--?[a-z])", change.flag)))
        used = in_keys((flag for flag in flags if not flag.startswith("--gpus")), of.launcher)
        if used and i:
            yield f"For {way}: {used}."
        elif used:
            yield f"Fewest GPUs: {used}."
    yield (
        "Numbers of GPUs, up to 1,024, are enough by the top of the range, with the same tokens on "
        "each GPU and nothing in host memory."
    )


def _states_notes(run: Training, states: States) -> Iterator[str]:
    """Yield how weights are stored and updated, and which inputs are kept."""
    if run.updates_in_place and run.in_optimizer.in_place:
        yield (
            f"{run.in_optimizer.in_place} updates weights of 16 bits in place; --master-weights "
            "counts fp32 copies."
        )
    if states.transposes:
        yield (
            f"The range has {human(states.transposes, BYTES)} of transposed weights, which "
            "Transformer Engine keeps for weights that are created in fp8, but on a B200 or B300."
        )
    if run.optimizer.startswith("paged"):
        size = human(states.moments, BYTES)
        yield f"Paged: CUDA moves the optimizer's {size} to the host when the GPU is full."
    if run.keeps_quantized_inputs:
        yield (
            "Matmuls of quantized matrices keep their inputs, as bitsandbytes' in int8 and, "
            "before 0.43.2, in 4 bits."
        )


def _reference_notes(run: Training) -> Iterator[str]:
    """Yield how pairs of answers and the reference model are counted."""
    if run.pairs:
        yield (
            f"A pair of answers is two sequences, so -b {run.batch} is {run.workload.batch} "
            "sequences."
        )
    if run.references and run.lora:
        yield (
            "The reference model's forward pass is counted. With adapters it is the model without "
            "them, and no copy. The loss is counted as cross-entropy."
        )
    elif run.references:
        yield (
            "The reference model's forward pass is counted. The loss is counted as cross-entropy."
        )


def _saved_modules_notes(run: Training) -> Iterator[str]:
    """Yield how modules that are trained whole beside adapters are counted."""
    if not run.modules_to_save:
        return
    dtypes = run.dtypes_of(ParamTensor("", "", 0, 0, 0, is_saved=True))
    yield (
        "peft copies the modules of --modules-to-save and keeps the frozen ones: the copies are in "
        f"{dtypes.param}, their moments in {dtypes.moment}."
    )
    head = run.model.head
    if head is not None and head.tied and {"embedding", "lm_head"} & {*run.modules_to_save}:
        yield "A copy of a tied table is a table of its own: embedding and head are trained apart."


def _quantized_notes(run: Training, states: States) -> Iterator[str]:
    """Yield what of a quantized model is not quantized."""
    if states.experts_left:
        yield (
            "warning: bitsandbytes does not quantize the experts that transformers 5 stacks: "
            f"they would take {human(states.experts_left, BYTES)} more. Unsloth quantizes them, "
            "as is counted."
        )
    if run.kbit_upcast:
        yield (
            "Embedding, head and norms are in fp32, as peft's prepare_model_for_kbit_training "
            "casts them, and so is the residual stream under autocast; --no-kbit-upcast leaves "
            "them in 16 bits, as Unsloth and torchtune do."
        )


def _work_notes(of: Answer) -> Iterator[str]:
    """Yield how the FLOPs compare with 6 N D, and with those of another dtype."""
    run = of.result.run
    if of.work.six_n_d is not None and not (run.lora or run.references):
        share = int(of.work.per_step) / int(of.work.six_n_d)
        yield (
            f"The exact FLOPs are {share:.2f} x 6 N D, which leaves out the scores of attention "
            "and counts the embedding as a matmul."
        )
    if of.time and run.gpu and run.dtype == "fp32":
        half = dict(run.gpu.flops).get("bf16", 0)
        if half > of.time.peak:
            yield (
                "warning: Autocast (--dtype bf16 --param-dtype fp32) has "
                f"{half / of.time.peak:.0f} x the FLOP/s of fp32."
            )


def _stage_notes(run: Training) -> Iterator[str]:
    """Yield how the layers are cut into stages, if not equally."""
    if run.pp == 1:
        return
    sizes, how = run.stage_layers
    if len(set(sizes)) == 1:
        return
    (first, equal), *others = [(size, len([*equal])) for size, equal in groupby(sizes)]
    words = [f"{plural(equal, 'stage')} of {plural(first, 'layer')}"]
    words += [f"{number} of {size}" for size, number in others]
    yield f"Pipeline: {', '.join(words)}; {how}."


def _sharding_notes(run: Training) -> Iterator[str]:
    """Yield that ZeRO or FSDP has nothing to shard."""
    if not run.zero or run.ranks > 1:
        return
    name = "--fsdp" if run.is_fsdp else f"--zero {run.zero}"
    if run.gpus > 1:
        yield f"warning: {name} shards nothing: tp and pp use all GPUs"
    else:
        yield f"warning: {name} shards nothing: there is one GPU"


def _expert_warnings(run: Training) -> Iterator[str]:
    """Yield that FSDP would give some ranks no expert."""
    all_experts = max(layers.mlp.n_experts or 0 for _, layers in run.model.groups() if layers.mlp)
    experts = all_experts // run.ep
    if run.is_fsdp and run.expert_ranks > experts:
        yield (
            "warning: transformers stacks a layer's experts, and FSDP divides them by their "
            f"number: each of {run.expert_ranks} ranks would hold one of {experts}. Counted is a "
            "part of each, as in torchtitan."
        )


def _head_warnings(run: Training) -> Iterator[str]:
    """Yield what another head than the released model's would add."""
    model = run.model
    if model.vocab_size and (model.head is None or model.head.kind == "pooler"):
        size = human(12 * run.workload.batch * run.workload.context * model.vocab_size, BYTES)
        yield (
            "warning: No loss is counted. Logits of masked-language modelling would add up to "
            f"{size}."
        )


def _recurrent_warnings(run: Training) -> Iterator[str]:
    """Yield which kernels are assumed: SDPA's flash kernel, and those of recurrent layers."""
    if run.gpu and not run.gpu.has_bf16 and run.dtype == "fp16":
        yield (
            f"warning: {run.gpu.title} has no bf16, and SDPA's flash kernel does not run on it: "
            "fp16 is counted."
        )
    for kind, packages, times in _WITHOUT_KERNELS:
        if any(isinstance(layers.attention, kind) for _, layers in run.model.groups()):
            yield (
                f"warning: Without {packages} transformers computes recurrent layers in single "
                f"operations, which save {times} x as much (measured)."
            )


def _score_notes(run: Training) -> Iterator[str]:
    """Yield what eager attention keeps per score, where papers count less."""
    if run.kernel != "eager" or run.workload.recompute != "none" or run.dtype == "fp32":
        return
    if class_math(run.model.model_type).softmax not in ("fp32", "gated"):
        return
    kept, fused = (9, 5) if run.dropout else (6, 2)
    yield (
        f"transformers' eager attention keeps {kept} B per score: its softmax is in fp32. "
        f"Megatron's fused softmax keeps {fused} B, as in arXiv:2205.05198 (--kernel eager-fused)."
    )


def _module_notes(run: Training) -> Iterator[str]:
    """Yield which modules are recomputed without an effect, and how Megatron's experts differ."""
    layers = [layers for _, layers in run.model.groups()]
    norms = [has_norm_of_its_own(of, part) for of in layers for part in ("attention", "mlp")]
    if "layernorm" in run.recompute_modules and not any(norms):
        yield (
            "warning: The module layernorm saves nothing here: Transformer Engine computes these "
            "norms with the next matrix. Megatron has norms of their own before MLA and experts."
        )
    if run.is_megatron and run.model.has_experts:
        yield (
            "Experts are Megatron's: the router's weights multiply inside them, so that their "
            "outputs are not kept."
        )


def _kernel_notes(run: Training) -> Iterator[str]:
    """Yield what else than is counted transformers would keep, and with which kernel."""
    has_fp32_adapters = run.lora and run.param_dtype == "fp32" != run.dtype
    casts = run.autocasts_adapters or run.autocast
    if has_fp32_adapters and not casts and run.workload.recompute == "none":
        yield (
            "Adapters in fp32 keep fp32 inputs. --autocast counts those of 16 bits, as with the "
            "Trainer's bf16=True."
        )
    keeps_scores = run.kernel in KEEP_SCORES
    only_scores = run.recomputed_modules == ("core_attn",) and run.fp8 == "none"
    if only_scores and not keeps_scores:
        yield (
            f"warning: {run.kernel} attention keeps no scores that --recompute selective would "
            "drop. torchtitan's selective is --recompute op."
        )
    yield from _module_notes(run)
    yield from _score_notes(run)
    math = class_math(run.model.model_type)
    if not math.has_sdpa:
        yield (
            "warning: transformers runs this class without SDPA: eager attention is its default. "
            "--kernel flash counts a flash kernel for it, with soft caps or sinks."
        )
    elif run.kernel in ("flash", "efficient", "cudnn") and math.broadcasts_kv:
        yield (
            "warning: SDPA in this class runs its math kernel (--kernel math); flash_attention_2 "
            "is as counted."
        )
    elif run.kernel == "flash" and has_windows(run):
        yield (
            "warning: SDPA has no flash kernel with windows: its efficient one keeps a mask per "
            "layer (--kernel efficient). flash_attention_2 is as counted."
        )
