"""How a model is trained: the micro-batch, the dtypes, the optimizer, and how GPUs share the
work.
"""

import dataclasses
import math
from collections import Counter
from functools import cached_property
from typing import Literal

from ...attention.kind import give_one_of
from ...attention.saved import TrainingKernel
from ...engines.pipeline import cut
from ...engines.switches import Version, until
from ...errors import AttncalcError, NotSupportedError, clash
from ...hardware import Gpu
from ...model import Layers, ModelSpec, Stack
from ...records import NamedTuple, dataclass
from ...units import dtype
from ...workload import Workload
from .optimizers import OPTIMIZERS, Optimizer
from .param_tensor import ParamTensor
from .pipeline import StageLayers, most_stages, stage_layers

Loss = Literal["full", "compiled", "chunked", "fused"]
Stepping = Literal["fused", "foreach", "loop"]
WAYS = ("full", "LoRA", "QLoRA")
# How Megatron recomputes layers: in chunks of a number of them, or that number of them alone.
RecomputeMethod = Literal["uniform", "block"]
Fp8 = Literal["none", "inputs", "weights"]
# Chunks of the logits of --loss chunked: torchtune's CEWithChunkedOutputLoss(num_output_chunks=8).
CHUNKS = 8


class Bitsandbytes(Version):
    """A version of bitsandbytes."""

    keeps_4bit_inputs = until(
        (0, 43, 2), "autograd/_functions.py: MatMul4Bit had ctx.tensors = (A, B), now (None, B)"
    )


BITSANDBYTES = Bitsandbytes("0.50.1", (0, 50, 1))


class Lora(NamedTuple):
    """Adapters of two matrices, A (r x in) and B (out x r), beside frozen weights.

    Source: Hu et al. 2021, arXiv:2106.09685.
    """

    rank: int  # r
    targets: tuple[str, ...]  # names of the matrices that have them: 'W_q'; 'lm_head' is the head
    dropout: bool = False  # whether the input of A passes dropout


# The modules of Megatron-LM's --recompute-modules that layers of attention have
# (megatron/core/transformer/transformer_config.py).
RECOMPUTE_MODULES = (
    "core_attn",
    "layernorm",
    "mlp",
    "moe",
    "moe_act",
    "mla_up_proj",
    "shared_experts",
)
# Elements of DeepSpeed's reduce_bucket_size, stage3_max_live_parameters and sub_group_size
# (runtime/zero/config.py).
REDUCE_BUCKET = 500_000_000
MAX_LIVE = 10**9
SUB_GROUP = 10**9
# What --offload can move to host memory.
OFFLOADED = ("optimizer", "params", "activations")
# What --modules-to-save can name: the table of token embeddings, the head, and all norms.
SAVED_MODULES = ("embedding", "lm_head", "norm")


class TrainedDtypes(NamedTuple):
    """The dtypes of a trained tensor."""

    param: str  # of the tensor
    grad: str  # of its gradient
    moment: str  # of the optimizer's moments, if the optimizer does not fix it


@dataclass(frozen=True)
class Training:
    model: ModelSpec  # the whole model
    workload: Workload  # a step of one micro-batch: `Workload.train`
    gpu: Gpu | None = None  # the GPU; None if only bytes are asked for
    gpus: int = 1  # how many of them
    tp: int = 1  # tensor-parallel GPUs
    pp: int = 1  # pipeline stages
    virtual_stages: int = 1  # stages of the model that each GPU of a pipeline has; 1 is plain 1F1B
    cp: int = 1  # context-parallel GPUs
    ep: int = 1  # expert-parallel GPUs
    # tensor-parallel GPUs divide what each of them would hold whole
    sequence_parallel: bool = False
    # ZeRO's stage: 0 shards nothing, 1 optimizer states, 2 also gradients, 3 also weights
    zero: int = 0
    # How layers are recomputed, and how many at once or per stage; None for one at a time
    recompute_method: RecomputeMethod | None = None
    recompute_num_layers: int = 1
    reduce_bucket_size: int = REDUCE_BUCKET  # elements of DeepSpeed's buffer of gradients
    overlap_comm: bool = False  # whether ZeRO 1 and 2 have two such buffers
    # elements of weights that DeepSpeed's ZeRO 3 gathers at once
    stage3_max_live_parameters: int = MAX_LIVE
    sub_group_size: int = SUB_GROUP  # elements of a part of DeepSpeed's optimizer step
    # whether each GPU gathers the full state dict beside its shard when a checkpoint is loaded
    load_full_state_dict: bool = False
    gradient_accumulation: int = 1  # micro-batches of a step
    kernel: TrainingKernel = "flash"  # the attention kernel
    # Megatron's modules that selective recomputation computes again; () for the default
    recompute_modules: tuple[str, ...] = ()
    compile: bool = False  # element-wise operations are fused, and their results recomputed
    # GELU is one kernel where the class of the model computes it in single operations
    fused_gelu: bool = False
    loss: Loss = "full"  # how logits become a loss
    param_dtype: str = "bf16"  # dtype of the trained weights between steps
    grad_dtype: str = "bf16"  # dtype of the gradients
    # dtype of the optimizer's moments, if the optimizer does not fix it
    optimizer_dtype: str = "fp32"
    master_weights: bool = True  # whether the optimizer keeps an fp32 copy of the weights
    # what Transformer Engine keeps in fp8 for layers' matmuls: 'inputs', or also 'weights'
    fp8: Fp8 = "none"
    optimizer: str = "adamw"
    optimizer_step: Stepping = "fused"  # how the optimizer's step is implemented
    # the optimizer's step of a weight follows its gradient, which is then freed
    optimizer_in_backward: bool = False
    offload: frozenset[str] = frozenset()  # what is in host memory: some of OFFLOADED
    lora: Lora | None = None  # adapters; None if the weights themselves are trained
    # Modules that are trained whole beside adapters, in copies: some of SAVED_MODULES
    modules_to_save: tuple[str, ...] = ()
    # dtype of frozen matrices: 'nf4', 'int8'; None for the dtype of the activations
    weights_dtype: str | None = None
    double_quant: bool = False  # whether the scales of nf4 are quantized too
    bitsandbytes: Bitsandbytes = BITSANDBYTES  # the version of bitsandbytes, which quantizes
    references: int = 0  # reference models (DPO, GRPO): frozen copies, but none with adapters
    pairs: bool = False  # whether an example is a pair of answers, of which each is a sequence
    dropout: bool = False  # whether dropout is active
    # Whether the allocator's segments grow: PYTORCH_ALLOC_CONF=expandable_segments:True
    expandable_segments: bool = False
    # Whether what is not quantized beside quantized matrices is in fp32, as peft's
    # prepare_model_for_kbit_training casts it
    kbit_upcast: bool = True
    # whether adapters in fp32 compute in the activations' dtype, as under torch.autocast
    autocast: bool = False
    # whether the loop holds the model's output until the end of the step: `out = model(...)`
    hold_logits: bool = False
    # whether norms, eager softmax and loss compute in fp32 as transformers' classes do
    upcasts: bool = True

    def __post_init__(self) -> None:
        size = self.tp * self.pp * self.cp
        if self.gpus % size:
            degrees = {"tp": self.tp, "pp": self.pp, "cp": self.cp}
            split = ", ".join(f"--{name} {n}" for name, n in degrees.items() if n > 1)
            fewer = self.gpus // size * size
            more = fewer + size
            raise AttncalcError(
                f"--gpus {self.gpus} is not a multiple of {size}, the GPUs of one copy ({split})",
                give_one_of([fewer, more] if fewer else [more], "--gpus"),
            )
        self._check_device()
        if self.zero >= 2 and self.pp > 1 and not self.is_fsdp:
            why = "a pipeline accumulates whole gradients"
            problem = f"--zero {self.zero} cannot be combined with --pp {self.pp}: {why}"
            raise NotSupportedError(problem, "give --zero 1, or --fsdp")
        if self.load_full_state_dict:
            self._check_loading()
        if self.sequence_parallel and self.tp == 1:
            raise AttncalcError("--sequence-parallel needs --tp", "give --tp 2 or more")
        context = self.workload.context
        parts = self.cp * (self.tp if self.sequence_parallel else 1)
        if context % parts:
            split = f"--cp {self.cp}"
            if parts > self.cp:
                split += f" x --tp {self.tp} of --sequence-parallel"
            raise AttncalcError(
                f"{split} does not divide {context} tokens",
                f"give -c {-(-context // parts) * parts}",
            )
        if self.ep > 1:
            self._check_experts()
        if self.optimizer_in_backward and self.gradient_accumulation > 1:
            tip = "each micro-batch would make a step of its own: leave one of them out"
            raise clash("--optimizer-in-backward", "--gradient-accumulation", tip)
        self._check_virtual_stages()
        if "activations" in self.offload:
            self._check_offloaded_activations()
        self.model.shard(self.tp)
        self.stages  # noqa: B018 - raises the error of a pipeline with too many stages

    def _check_device(self) -> None:
        if self.is_mps and self.gpus > 1:
            raise NotSupportedError(
                f"--gpus {self.gpus}: how several Apple GPUs train together is not known",
                "give one GPU",
            )
        if self.is_mps and self.offload:
            raise AttncalcError(
                "--offload has no effect on an Apple GPU, which shares the host's memory",
                "leave it out",
            )

    def _check_virtual_stages(self) -> None:
        if self.virtual_stages > 1 and self.pp == 1:
            raise AttncalcError("--virtual-stages needs --pp", "give --pp 2 or more")
        if self.virtual_stages > 1 and self.gradient_accumulation % self.pp:
            n = self.gradient_accumulation
            problem = f"--virtual-stages: {n} micro-batches are not a multiple of --pp {self.pp}"
            raise AttncalcError(
                problem, f"give --gradient-accumulation {-(-n // self.pp) * self.pp}"
            )

    def _check_offloaded_activations(self) -> None:
        if self.workload.recompute != "full":
            problem = "--offload activations needs --recompute full"
            tip = "give both: so torchtune requires it, and others are not known"
            raise NotSupportedError(problem, tip)
        if self.pp > 1:
            tip = "how stages of a pipeline offload activations is not known"
            raise clash("--offload activations", f"--pp {self.pp}", tip)

    def _check_loading(self) -> None:
        if not self.is_fsdp:
            raise AttncalcError(
                "--load-full-state-dict needs --fsdp", "give --fsdp, or leave it out"
            )
        for name in ("tp", "pp", "cp", "ep"):
            if getattr(self, name) > 1:
                raise clash("--load-full-state-dict", f"--{name}", "litgpt has FSDP alone")
        if self.weights_dtype:
            tip = "litgpt quantizes on one GPU only"
            raise clash("--load-full-state-dict", "--weights-dtype", tip)
        if "params" in self.offload:
            tip = "how shards in host memory are loaded is not known"
            raise clash("--load-full-state-dict", "--offload params", tip)

    def _check_experts(self) -> None:
        if not self.model.has_experts:
            raise AttncalcError(
                f"--ep {self.ep} has no effect: the model has no experts", "leave it out"
            )
        gpus = self.dp * self.cp * self.tp
        experts = math.gcd(
            *(layers.mlp.n_experts or 0 for _, layers in self.model.groups() if layers.mlp)
        )
        for n, what in ((gpus, "GPUs of a stage"), (experts, "experts")):
            if n % self.ep:
                tip = give_one_of(_divisors(math.gcd(gpus, experts)), "--ep")
                raise AttncalcError(f"--ep {self.ep} does not divide the {n} {what}", tip)

    @property
    def is_mps(self) -> bool:
        """Return whether the run is on an Apple GPU, through torch's MPS backend."""
        return self.gpu is not None and self.gpu.vendor == "Apple"

    @property
    def is_fsdp(self) -> bool:
        """Return whether fp32 weights are sharded and gathered in the dtype of the activations, as
        FSDP does.
        """
        return self.zero == 3 and not self.master_weights

    @property
    def is_megatron(self) -> bool:
        """Return whether the run is Megatron's: a tensor-parallel one, a pipeline, or one with its
        options of recomputation, without ZeRO 2 and 3, which Megatron does not have.
        """
        is_split = self.tp > 1 or self.pp > 1
        names_layers = bool(self.recompute_modules or self.recompute_method)
        return self.zero <= 1 and (is_split or names_layers)

    @property
    def is_deepspeed(self) -> bool:
        """Return whether the run is DeepSpeed's ZeRO, which has buffers with one GPU too."""
        return self.zero > 0 and not self.is_fsdp and not self.is_megatron

    @property
    def recomputed_modules(self) -> tuple[str, ...]:
        """Return the modules that --recompute selective computes again: Megatron's core_attn by
        default.
        """
        if self.workload.recompute != "selective":
            return ()
        return self.recompute_modules or ("core_attn",)

    @property
    def keeps_quantized_inputs(self) -> bool:
        """Return whether matmuls of frozen quantized matrices keep their inputs, which no gradient
        needs.

        Those in int8 do (`ctx.tensors = (CAt, subA, A)` of MatMul8bitLt in
        bitsandbytes/autograd/_functions.py).
        """
        return self.weights_dtype == "int8" or (
            self.weights_dtype == "nf4" and self.bitsandbytes.keeps_4bit_inputs
        )

    @property
    def updates_in_place(self) -> bool:
        """Return whether the optimizer updates trained weights of 16 bits that have no fp32
        copy.
        """
        return self.lora is None and not self.master_weights and dtype(self.param_dtype).bits == 16

    @property
    def autocasts(self) -> bool:
        """Return whether fp32 weights are cast for each matmul, as torch.autocast does."""
        is_half = dtype(self.dtype).bits == 16
        return self.param_dtype == "fp32" and is_half and self.lora is None and not self.is_fsdp

    @property
    def autocasts_adapters(self) -> bool:
        """Return whether norms and the residual stream are in fp32 beside matmuls in 16 bits.

        So they are after peft's prepare_model_for_kbit_training under autocast, which is the
        Trainer's bf16=True.
        """
        return (
            bool(self.weights_dtype)
            and self.kbit_upcast
            and self.upcasts
            and dtype(self.dtype).bits == 16
        )

    def dtypes_of(self, tensor: ParamTensor) -> TrainedDtypes:
        """Return the dtypes of a trained tensor.

        peft's copy of a module (ModulesToSaveWrapper in peft/utils/other.py: copy.deepcopy) has the
        dtype of the frozen one: only adapters are cast to fp32 (cast_adapter_dtype in
        tuners/tuners_utils.py). Without fp32 weights of its own, an optimizer's moments have no
        more bits than the weight (torch/optim/adamw.py: zeros_like).
        """
        if not tensor.is_saved:
            return TrainedDtypes(self.param_dtype, self.grad_dtype, self.optimizer_dtype)
        copied = "fp32" if self.autocasts_adapters else self.dtype
        moment = self.optimizer_dtype
        if not self.master_weights and dtype(copied).bits < dtype(moment).bits:
            moment = copied
        return TrainedDtypes(copied, copied, moment)

    @property
    def way(self) -> str:
        """Return how the model is tuned: full, LoRA or QLoRA."""
        full, lora, qlora = WAYS
        if self.lora is None:
            return full
        return qlora if self.weights_dtype else lora

    @property
    def dp(self) -> int:
        """Return the data-parallel ranks."""
        return self.gpus // (self.tp * self.pp * self.cp)

    @property
    def ranks(self) -> int:
        """Return the ranks that shard states: data-parallel and context-parallel ones."""
        return self.dp * self.cp

    @property
    def expert_tp(self) -> int:
        """Return the tensor-parallel GPUs of an expert: those of --tp, or 1 if experts are divided
        over them too.
        """
        if self.ranks % self.ep == 0:
            return self.tp
        return 1

    @property
    def expert_ranks(self) -> int:
        """Return the ranks that hold the same experts."""
        return self.ranks * self.tp // (self.ep * self.expert_tp)

    @property
    def in_optimizer(self) -> Optimizer:
        return OPTIMIZERS[self.optimizer]

    @property
    def dtype(self) -> str:
        """Return the dtype of the activations."""
        return dtype(self.workload.dtype or self.model.dtype, compute=True).name

    @property
    def batch(self) -> int:
        """Return the examples of a micro-batch."""
        return self.workload.batch // (1 + self.pairs)

    @property
    def sequences(self) -> int:
        """Return the sequences of a step: micro-batches of all data-parallel ranks."""
        return self.workload.batch * self.dp * self.gradient_accumulation

    @property
    def tokens(self) -> int:
        return self.sequences * self.workload.context

    @cached_property
    def stages(self) -> "tuple[Stage, ...]":
        """Return the stages of the pipeline; one if there is none."""
        return stages(self)

    @property
    def stage_layers(self) -> StageLayers:
        """Return the layers of each stage, with --virtual-stages of each virtual one.

        Raises AttncalcError if there are fewer layers than stages.
        """
        layers = self.model.main.n_layers
        most = most_stages(layers, is_fsdp=self.is_fsdp) // self.virtual_stages
        tip = f"give --pp {most} or less" if most > 1 else "give fewer --virtual-stages"
        parts = self.pp * self.virtual_stages
        return stage_layers(layers, parts, tip, is_fsdp=self.is_fsdp)

    def with_workload(self, **changes: int | str) -> "Training":
        """Return the run with another micro-batch, of so many examples, or another context or
        recomputation.
        """
        workload = self.workload
        if "batch" in changes:
            changes["batch"] = int(changes["batch"]) * (1 + self.pairs)
        if "context" in changes:
            workload = workload.at(int(changes.pop("context")))
        changed = dataclasses.replace(workload, **changes)  # type: ignore[arg-type]
        return dataclasses.replace(self, workload=changed)


class Stage(NamedTuple):
    """A stage of a pipeline, or the whole model."""

    number: int  # its number, from 0
    model: ModelSpec  # the part of the model on one GPU
    is_first: bool  # whether it has the embedding
    is_last: bool  # whether it has the head and the loss
    # Micro-batches whose activations it holds at once, as a fraction for interleaved stages
    in_flight: tuple[int, int] = (1, 1)


def stages(run: Training) -> tuple[Stage, ...]:
    """Return the stages of a run's pipeline.

    With 1F1B, stage s of p holds the activations of p - s micro-batches, at most those of a step
    (arXiv:2104.04473, 2.2). Interleaved with v stages per GPU, the first holds 1 + (p - 1) / (p v)
    times those of its layers for p micro-batches (arXiv:2205.05198, appendix C; Megatron-LM's
    theoretical_memory_usage.py).

    Raises AttncalcError if there are fewer layers than stages.
    """
    model = run.model.shard(run.tp)
    if run.pp == 1:
        return (Stage(0, model, True, True),)
    if len(model.stacks) > 1:
        raise NotSupportedError("--pp does not support a model with an encoder", "leave out --pp")
    main = model.main
    of_stages = cut(main.each_layer(), run.stage_layers.sizes)
    found = []
    for index in range(run.pp):
        held: list[Layers] = []
        for v in range(run.virtual_stages):
            held += of_stages[v * run.pp + index]
        groups = tuple(dataclasses.replace(layer, count=n) for layer, n in Counter(held).items())
        stack: Stack = dataclasses.replace(main, layers=groups)
        in_flight = (min(run.gradient_accumulation, run.pp - index), 1)
        if run.virtual_stages > 1:
            in_flight = (run.pp * run.virtual_stages + run.pp - 1 - 2 * index, run.virtual_stages)
        part = dataclasses.replace(model, stacks=(stack,))
        found.append(Stage(index, part, index == 0, index == run.pp - 1, in_flight))
    return tuple(found)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
