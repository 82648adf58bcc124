"""The options of `attncalc train`."""

import os
import re
from decimal import Decimal
from typing import Annotated, Any, TypedDict, get_args

from ...attention.saved import TrainingKernel
from ...cost.training.optimizers import ALIASES, OPTIMIZERS
from ...cost.training.setup import (
    OFFLOADED,
    RECOMPUTE_MODULES,
    SAVED_MODULES,
    Bitsandbytes,
    Fp8,
    Loss,
    RecomputeMethod,
    Stepping,
)
from ...errors import AttncalcError, BadValueError
from ...hardware import Gpu
from ...options import (
    COUNT,
    COUNT_OR_ZERO,
    MONEY,
    SHARE,
    TEXT,
    Count,
    Parser,
    With,
    choice,
    options_of,
)
from ...ranges import split_list
from ...units import PERIODS, dtype, is_auto, parse_count, parse_decimal, period, truncate
from ..options import OTHER_CONTEXTS, DtypeOptions, ModelOptions, SizeOptions, TrainingOptions

QUANTIZED = ("nf4", "int8")
# Dtypes of weights, gradients, moments and activations; matmuls in fp8 keep activations in 16 bits.
TRAINED = ("fp32", "bf16", "fp16")


def _dtype(text: str, name: str) -> str:
    given = dtype(text, compute=True).name
    if given not in TRAINED:
        raise AttncalcError(f"{name} cannot be {given}", f"known: {', '.join(TRAINED)}")
    return given


def _version(text: str, name: str) -> Bitsandbytes:
    if not re.fullmatch(r"(?a)\d{1,4}(\.\d{1,4})*", text):
        raise BadValueError(f"{name} cannot be '{truncate(text)}'", "give a version, as 0.43.2")
    return Bitsandbytes(text, tuple(map(int, text.split("."))))


def _tokens(text: str, name: str) -> int:
    """Return a number of tokens; here T, B and M are powers of ten, as people say '15T tokens'."""
    match = re.fullmatch(
        r"(?a)(\d{1,9}(?:\.\d{1,9})?)([kmbt]?)", text.strip().replace("_", ""), re.IGNORECASE
    )
    powers = {"": 0, "k": 3, "m": 6, "b": 9, "t": 12}
    number = int(Decimal(match[1]).scaleb(powers[match[2].lower()])) if match else 0
    return number or parse_count(text, name)


def _elements(text: str, name: str) -> int | str:
    """Return a number of elements as DeepSpeed's files have it, '5e8' or '2.0e8', or 'auto'."""
    if is_auto(text):
        return "auto"
    if re.fullmatch(r"(?a)\d{1,15}(\.\d{1,6})?(e\+?\d{1,2})?", text.strip().lower()):
        number = Decimal(text.strip())
        if number == int(number) > 0:
            return int(number)
    return parse_count(text, name)


ELEMENTS = Parser(_elements, "N")


def _days(text: str, name: str) -> float:
    """Return the seconds of '30', '6 weeks' or 'a month'."""
    match = re.fullmatch(r"([\d.]*|an?|one)[ -]?([a-z]*)", text.strip().lower())
    unit = period(match[2] or "day") if match else None
    if match is None or unit is None:
        raise BadValueError(
            f"{name}: '{truncate(text)}' is no number of days", "write 30, or 6 weeks"
        )
    numerator, denominator = parse_decimal(match[1] if match[1][:1].isdigit() else "1", name)
    return PERIODS[unit] * numerator / denominator


# Names of these modules in transformers' classes.
_MODULE = choice(
    *SAVED_MODULES,
    embed_tokens="embedding",
    embed_in="embedding",
    wte="embedding",
    word_embeddings="embedding",
    tok_embeddings="embedding",
    head="lm_head",
    embed_out="lm_head",
    output="lm_head",
    norms="norm",
)


def _names(parser: Parser, known: tuple[str, ...]) -> Parser:
    """Return the parser of names that are joined with a plus, a comma or a space: each once, and in
    the order of `known`.
    """

    def parse(text: str, name: str) -> tuple[str, ...]:
        parts = filter(None, re.split(r"[+,;\s]+", text))
        named = {parser.parse(part, name) for part in parts}
        if not named:
            raise BadValueError(f"{name} has no modules", f"known: {', '.join(known)}")
        return tuple(module for module in known if module in named)

    return Parser(parse, known=known)


DAYS = Parser(_days, "N")
_PART = choice(*OFFLOADED)
_AUTO = "or auto: the most that fits"


class TrainSizeOptions(TypedDict, total=False):
    """The micro-batch on one GPU."""

    batch: Annotated[
        Count | None,
        TEXT,
        f"Sequences of a micro-batch on one GPU, {_AUTO}. Default: 1.",
        With(
            names="--batch -b",
            also="--micro-batch-size --batch-size --bs --bsz --mbs --per-device-train-batch-size "
            "--train-micro-batch-size-per-gpu --local-batch-size",
            metavar="N",
            common=True,
        ),
    ]
    context: Annotated[
        Count | None,
        TEXT,
        f"Tokens of a sequence, as 8K, {_AUTO}, in steps of 128. Default: the model's maximum, "
        "at most 4096.",
        With(
            names="--context -c", also=f"{OTHER_CONTEXTS} --max-model-len", metavar="N", common=True
        ),
    ]
    source_context: Annotated[Count | None, options_of(SizeOptions)["source_context"]]


class AccumulationOptions(TypedDict, total=False):
    """The micro-batches of a step."""

    gradient_accumulation: Annotated[
        Count | None,
        COUNT,
        "Micro-batches of a step. Default: 1.",
        With(
            also="--gradient-accumulation-steps --grad-accum --accumulation --ga --gas", common=True
        ),
    ]
    global_batch: Annotated[
        Count | None,
        COUNT,
        "Sequences of a step on all GPUs, instead of --gradient-accumulation.",
        With(also="--global-batch-size --gbs --train-batch-size"),
    ]
    pairs: Annotated[
        bool,
        "An example is a pair of answers, two sequences (DPO, ORPO, reward models): --batch, "
        "--global-batch and --samples count pairs.",
    ]


class GpuOptions(TypedDict, total=False):
    """The GPUs, and how they share a model."""

    gpu: Annotated[
        str | os.PathLike[str] | Gpu | None,
        "GPU, as h100-80gb ('attncalc gpus' lists them), 24GB or local; all for one row each.",
        With(also="--gpu-type --gpu-name --hardware", metavar="GPU", common=True),
    ]
    gpus: Annotated[
        Count | None,
        COUNT,
        "Number of GPUs. Default: those of one copy, tp * pp * cp.",
        With(
            also="--num-gpus --n-gpus --ngpus --nproc-per-node --num-processes --world-size",
            common=True,
        ),
    ]
    tp: Annotated[
        Count | None,
        COUNT,
        "Tensor-parallel GPUs. Default: 1.",
        With(
            names="--tp --tensor-parallel-size",
            also="-tp --tp-size --tensor-model-parallel-size --tensor-parallel-degree",
            common=True,
        ),
    ]
    pp: Annotated[
        Count | None,
        COUNT,
        "Pipeline stages, with the 1F1B schedule. Default: 1.",
        With(
            also="--pipeline-parallel-size -pp --pp-size --pipeline-model-parallel-size "
            "--pipeline-parallel-degree"
        ),
    ]


class ShardingOptions(TypedDict, total=False):
    """What else the GPUs of a training run share."""

    zero: Annotated[
        Count | None,
        COUNT_OR_ZERO._replace(known=("0", "1", "2", "3")),
        "ZeRO's stage: 0 shards nothing, 1 optimizer states, 2 also gradients, 3 also weights. "
        "Default: 0.",
        With(also="--zero-stage", common=True),
    ]
    fsdp: Annotated[
        bool, "Shard everything as FSDP: fp32 weights, gathered in --dtype.", With(common=True)
    ]
    reduce_bucket_size: Annotated[
        Count | None,
        ELEMENTS,
        "Elements of DeepSpeed's bucket of gradients, as 2e8, or auto: hidden size squared. "
        "Default: 5e8.",
        With(axis=False),
    ]
    overlap_comm: Annotated[bool, "DeepSpeed's ZeRO 1 and 2 have two buckets of gradients."]
    stage3_max_live_parameters: Annotated[
        Count | None,
        ELEMENTS,
        "Elements of weights that --zero 3 gathers at once. Default: 1e9.",
        With(axis=False),
    ]
    sub_group_size: Annotated[
        Count | None,
        ELEMENTS,
        "Elements that a part of the step of --zero 3 updates. Default: 1e9.",
        With(axis=False),
    ]
    load_full_state_dict: Annotated[
        bool, "Each GPU gathers all weights when a checkpoint is loaded, as litgpt's FSDP does."
    ]
    sequence_parallel: Annotated[
        bool, "Divide by --tp what each of its GPUs holds whole.", With(also="--sp")
    ]
    virtual_stages: Annotated[
        Count | None,
        COUNT,
        "Stages per GPU of an interleaved pipeline. Default: 1.",
        With(also="--vpp --virtual-pipeline-model-parallel-size"),
    ]
    cp: Annotated[
        Count | None,
        COUNT,
        "Context-parallel GPUs. Default: 1.",
        With(also="-cp --context-parallel-size --context-parallel-degree"),
    ]
    ep: Annotated[
        Count | None,
        COUNT,
        "Expert-parallel GPUs. Default: 1.",
        With(
            also="--expert-parallel-size -ep --expert-model-parallel-size --expert-parallel-degree"
        ),
    ]


class MemoryOptions(TrainingOptions, total=False):
    """What a step keeps, and where."""

    recompute_modules: Annotated[
        str | None,
        _names(choice(*RECOMPUTE_MODULES), RECOMPUTE_MODULES),
        f"Modules of --recompute selective, as Megatron's: {', '.join(RECOMPUTE_MODULES)}. "
        "Default: core_attn.",
        With(metavar="NAME[+NAME]", axis=False),
    ]
    recompute_method: Annotated[
        str | None,
        choice(*get_args(RecomputeMethod)),
        "Megatron's way of --recompute full: uniform chunks, or a block of layers of each stage.",
    ]
    recompute_num_layers: Annotated[
        Count | None,
        COUNT,
        "Layers of a chunk, or of the block, of --recompute-method.",
        With(axis=False),
    ]
    kernel: Annotated[
        str | None,
        choice(
            *get_args(TrainingKernel),
            metavar="KERNEL",
            sdpa="flash",
            flash_attention_2="flash",
            fa2="flash",
            fa3="flash",
        ),
        f"Attention kernel: {', '.join(get_args(TrainingKernel))} (Megatron's softmax). Default: "
        "flash; without bf16 efficient; on an Apple GPU math; without SDPA eager.",
        With(also="--attn-implementation --attn-impl"),
    ]
    compile: Annotated[
        bool, "Element-wise operations are fused and recomputed.", With(also="--torch-compile")
    ]
    fused_gelu: Annotated[
        bool,
        "GELU is one kernel, as in litgpt: torch's F.gelu. transformers' gelu_new is several "
        "operations.",
    ]
    loss: Annotated[
        str | None,
        choice(*get_args(Loss), liger="fused", cce="fused"),
        "Cross-entropy: full, compiled, chunked (8 chunks) or fused with the head. Default: full.",
    ]
    hold_logits: Annotated[
        bool, "The loop holds the model's output: out = model(...); out.loss.backward()."
    ]
    dropout: Annotated[bool, "Dropout is active: its masks are kept."]
    expandable_segments: Annotated[
        bool, "The allocator has PYTORCH_ALLOC_CONF=expandable_segments:True."
    ]
    offload: Annotated[
        str | None,
        Parser(
            lambda text, name: frozenset(
                _PART.parse(part, name) for part in split_list(text, name)
            ),
            known=OFFLOADED,
        ),
        f"Parts in host memory: {', '.join(OFFLOADED)}.",
        With(metavar="PARTS", axis=False),
    ]
    reference_model: Annotated[
        bool,
        "A reference model's forward pass (DPO, KTO, GRPO), and without --lora its weights: a "
        "frozen copy.",
        With(also="--ref-model"),
    ]


class OptimizerOptions(DtypeOptions, total=False):
    optimizer: Annotated[
        str | None,
        choice(*OPTIMIZERS, metavar="NAME", **ALIASES),
        f"{', '.join(OPTIMIZERS)}. Default: adamw.",
        With(also="--optim", common=True),
    ]
    optimizer_step: Annotated[
        str | None,
        choice(*get_args(Stepping)),
        "Implementation of the step: fused, foreach or loop. Default: fused.",
    ]
    optimizer_in_backward: Annotated[
        bool,
        "Step each weight as soon as its gradient is there, and free the gradient.",
        With(also="--optimizer-in-bwd"),
    ]
    param_dtype: Annotated[
        str | None,
        Parser(_dtype, "DTYPE"),
        "Dtype of trained weights. Default: --dtype; fp32 with --fsdp.",
    ]
    master_weights: Annotated[
        bool | None,
        "Keep an fp32 copy of 16-bit weights. Default: yes; but not with LoRA, nor without "
        "--zero with "
        f"{' or '.join(name for name, optimizer in OPTIMIZERS.items() if optimizer.in_place)}.",
        With(names="--master-weights/--no-master-weights"),
    ]
    fp8: Annotated[
        str | None,
        choice(*get_args(Fp8)),
        "What Transformer Engine keeps in fp8: inputs of layers' matrices, or weights too. "
        "Default: none.",
    ]
    grad_dtype: Annotated[
        str | None,
        Parser(_dtype, "DTYPE"),
        "Dtype of gradients. Default: --param-dtype; with --tp, --pp or --recompute-modules, and "
        "ZeRO 0 or 1, Megatron's fp32.",
    ]
    optimizer_dtype: Annotated[
        str | None, Parser(_dtype, "DTYPE"), "Dtype of moments. Default: fp32."
    ]


class FrozenOptions(TypedDict, total=False):
    """How frozen weights are stored."""

    weights_dtype: Annotated[
        str | None,
        choice(
            *QUANTIZED,
            "auto",
            metavar="DTYPE",
            fp4="nf4",
            int4="nf4",
            **{"4bit": "nf4", "8bit": "int8"},
        ),
        "Frozen matrices in nf4 (QLoRA) or int8. Default: auto, the same as --dtype.",
        With(also="--quantization", common=True),
    ]


class LoraTrainOptions(TypedDict, total=False):
    """Adapters beside frozen weights."""

    lora: Annotated[
        int | str | None,
        TEXT,
        "Train adapters only: r=16 (default), or r=8,targets=q+v,dropout=0.05. Default targets: "
        "all linear layers.",
        With(metavar="[r=N,...]", axis=False, common=True),
    ]
    modules_to_save: Annotated[
        str | None,
        _names(_MODULE, SAVED_MODULES),
        "Modules trained whole beside --lora, in copies as peft's: "
        f"{'+'.join(SAVED_MODULES)} or some of them.",
        With(also="--lora-modules-to-save", metavar="NAME[+NAME]", axis=False),
    ]
    no_kbit_upcast: Annotated[
        bool,
        "Leave what is not quantized in --dtype, as Unsloth and torchtune do; peft casts it to "
        "fp32.",
    ]
    autocast: Annotated[
        bool, "Adapters in fp32 keep 16-bit inputs, as with bf16=True of transformers' Trainer."
    ]
    double_quant: Annotated[bool, "Quantize the scales of nf4 too."]
    bitsandbytes: Annotated[
        str | None,
        Parser(_version, "VERSION"),
        "Its version. Before 0.43.2, matmuls in nf4 keep their inputs, as in int8. Default: a "
        "newer one.",
        With(metavar="VERSION", axis=False),
    ]


class DurationOptions(TypedDict, total=False):
    """How long it takes."""

    tokens: Annotated[
        Count | None, Parser(_tokens, "N"), "Tokens to train on, as 15T or 300B.", With(common=True)
    ]
    samples: Annotated[
        Count | None,
        Parser(_tokens, "N"),
        "Sequences to train on, each of --context tokens, instead of --tokens.",
        With(also="--num-samples --dataset-size --examples"),
    ]
    epochs: Annotated[
        Count | None, COUNT, "Passes over these. Default: 1.", With(also="--num-train-epochs")
    ]
    mfu: Annotated[
        float | str | None,
        SHARE,
        "Share of the GPUs' peak FLOP/s. Default: 0.4, assumed.",
        With(axis=False, common=True),
    ]


class LimitOptions(TypedDict, total=False):
    """The days that it may take, and what a GPU costs."""

    days: Annotated[
        float | str | None,
        DAYS,
        "Days within which the tokens must be done, as 30 or '6 weeks': the GPUs that are "
        "enough, or as many as given.",
        With(axis=False),
    ]
    price: Annotated[
        float | str | None,
        MONEY,
        "Price of a GPU-hour, or of an instance per hour.",
        With(axis=False),
    ]


class StepOptions(
    AccumulationOptions,
    ShardingOptions,
    MemoryOptions,
    OptimizerOptions,
    LoraTrainOptions,
    DurationOptions,
    total=False,
):
    """The options of a training step that no other command has, and --dtype and --recompute."""


class TrainOptions(
    ModelOptions,
    TrainSizeOptions,
    GpuOptions,
    StepOptions,
    FrozenOptions,
    LimitOptions,
    total=False,
):
    """The options of `attncalc train`."""


# The headings of `attncalc train --help`, with the options below each.
GROUPS: dict[str, tuple[Any, ...]] = {
    "Model": (ModelOptions,),
    "Micro-batch": (TrainSizeOptions, AccumulationOptions),
    "GPUs": (GpuOptions, ShardingOptions),
    "Memory": (MemoryOptions,),
    "Optimizer": (OptimizerOptions,),
    "LoRA": (LoraTrainOptions, FrozenOptions),
    "Time and money": (DurationOptions, LimitOptions),
}
