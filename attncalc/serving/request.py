"""The request to `fit`, and the one function that completes it.

Most fields of a `FitRequest` may be left out. `resolve` fills in the defaults of the engine, the
model and the GPU, and rejects combinations that exclude each other. No code after it looks up a
default.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..attention import Grouped
from ..cost.common import check_source
from ..cost.params import params
from ..engines import DEFAULT_ENGINE, ENGINES, find_engine
from ..engines.base import DraftModel, EngineArgs, Limits
from ..engines.engine import Engine, Refusal
from ..engines.launch import is_released
from ..errors import AttncalcError, Tip, clash, is_valid, known_tip
from ..ggml import FILE_TYPES, WIDE_TYPES
from ..hardware import Gpu, MeasuredStart
from ..model import ModelSpec
from ..quantity import ceil_div
from ..quantization import Role, StoredAs
from ..records import Keeper, NamedTuple, dataclass
from ..units import (
    BYTES,
    DType,
    cache_dtype_named,
    count,
    dtype,
    human,
    is_dtype,
    long_option,
    parse_decimal,
    truncate,
)
from ..workload import Workload
from .drafts import draft_model, predicting, without_prediction
from .kept_weights import with_kept, with_layout, with_size
from .traffic import Traffic
from .weight_format import released_dtype
from .weights import weights

# Arguments of engines that are about a cache alone.
_ARGS_OF_CACHE = (
    *("block_size", "kv_offloading_size", "kv_dtype_k", "kv_dtype_v", "no_kv_offload"),
    *("speculative_tokens", "speculative_layers", "swa_full", "kv_unified"),
    *("kv_transfer_config", "disable_hybrid_kv_cache_manager", "mamba_ssm_cache_dtype"),
)
# The part of a GPU's memory that weights can have: CUDA takes the rest.
_MOST_OF_GPU = 0.98


class Share(NamedTuple):
    """The share of a GPU's memory that an engine takes: numerator / denominator, exact."""

    option: str  # the engine's option that sets it
    text: str  # the share as text: '0.92'.
    numerator: int
    denominator: int

    def of(self, memory: int) -> int:
        """Return the bytes that the share is of a memory."""
        return memory * self.numerator // self.denominator


def parse_share(text: str, option: str) -> Share:
    """Return a share above 0 and up to 1, exactly: '0.92'. Raises AttncalcError if it is not
    one.
    """
    numerator, denominator = parse_decimal(text, option, upper=1)
    text = text.strip()
    # engines read decimals alone
    if not re.fullmatch(r"[\d.]+", text):
        text = f"{numerator / denominator:.10g}"
    return Share(option, text, numerator, denominator)


class LoggedExcess(NamedTuple):
    """What weights and reserve took beyond the estimate, as a start-up log shows."""

    size: int  # bytes on each GPU; negative if they took less
    devices: int  # the number of GPUs of that start: with as many, the runtime memory has no range
    estimated: int  # bytes of the runtime memory that was estimated of that start

    def of(self, estimated: int) -> int:
        """Return the bytes beyond another estimate.

        If a start took less than half of its estimate, its settings are others than assumed, and a
        smaller estimate frees nothing: the logged bytes stay. Otherwise at most the estimate is
        taken off.
        """
        logged = self.estimated + self.size
        if self.size >= 0 or estimated >= self.estimated:
            return self.size
        if 2 * logged < self.estimated:
            return logged - estimated
        return max(self.size, -estimated)


def _unknown_context(checkpoint: str) -> None:
    return None


@dataclass(frozen=True)
class FitRequest(Keeper):
    """Does a workload fit? Give `gpu` or `kv_memory`; None means the default of the engine or the
    model.

    With both, the memory for the cache is as given, and the GPU sets the engine's defaults only.

    Attributes:
        model: The whole model, not one device's share.
        workload: Batch, context and dtypes. The batch is that of all replicas and data-parallel
            ranks together. A kv_dtype of None is the engine's default.
        engine: The name of one of ENGINES.
        gpu: The kind of GPU.
        gpus: Their number; by default as many as hold the model once.
        gpus_there: How many there are, if `gpus` uses fewer of them.
        kv_memory: Bytes for the cache on one device, as an engine reported them.
        has_started: Whether a log shows that the engine started with this memory for the cache.
        tp: Tensor-parallel devices; by default `gpus` divided by `pp`, and 1 without a GPU.
        pp: Pipeline stages.
        dcp: Decode-context-parallel devices.
        dp: Data-parallel ranks, each with a cache of its own. With vLLM they divide the routed
            experts; otherwise they are replicas.
        attn_dp: Data-parallel ranks of attention, each with a cache of its own; they divide the
            `tp` devices (SGLang).
        enable_expert_parallel: Whether the devices of all ranks have whole experts instead of a
            part of each.
        gpu_memory_utilization: The share of a GPU's memory that the engine takes, above 0 and up to
            1.
        reserve: Bytes per GPU for activations, CUDA graphs and the driver; by default an estimate.
        weights_dtype: The dtype of the matrices of attention and MLPs; by default as the model was
            released.
        keep: The parts of the model that stay in 16 bits although they are matrices of attention
            and MLPs, by the names of `kept_weights.PARTS`; () for none, and None if it is not
            known.
        weights_size: Bytes of the files of the weights; by default they are computed.
        engine_args: Further arguments of the engine, by the names of `EngineArgs`: {"block_size":
            32}.
        ram_is_given: Whether `ram` was given, or the memory of --gpu cpu; otherwise it is this
            machine's.
        logged_excess: What weights and reserve took beyond the estimate, as a start-up log shows;
            None without a log.
        draft: The draft model of speculative decoding.
        served_draft: The path or repository of the draft model, as `served_model`.
        served_model: The path or repository that the engine loads; by default the one in the
            preset's sources. For GGUF files a repository may be 'org/name:Q4_K_M' or
            'org/name:FILE'.
        ollama: The model's name in Ollama's library, if Ollama runs it; "LM Studio" if that does.
        checkpoint: The repository whose weights are in `weights_dtype`; None if the engine converts
            them.
        checkpoints: {dtype: what to load if the engine cannot convert the weights to it}:
            'Qwen/Qwen3-32B-AWQ' of int4.
        context_of: Returns the longest context of one of `checkpoints`, whose release may state a
            shorter one than the model; None if that is unknown.
        layouts: {dtype: how known checkpoints store the model in it, the most usual first}.
        revision: The repository's branch, tag or commit; None for the default branch.
        host_bandwidth: Bytes/s from host memory to one GPU, for a cache in host memory; by default
            25 GB/s.
        disk_size: Bytes on disk for the cache; None without a cache there.
        disk_bandwidth: Bytes/s of that disk; by default 5 GB/s.
        traffic: The requests that users send, whose concurrency `users` returns. Of a batch, their
            shared prefix is stored once; they do not change what fits otherwise.
        batch_is_given: Whether a batch of 1 was given. Otherwise times are those of as many users
            as fit on average.
    """

    model: ModelSpec
    workload: Workload
    engine: str = DEFAULT_ENGINE
    gpu: Gpu | None = None
    gpus: int | None = None
    gpus_there: int | None = None
    kv_memory: int | None = None
    has_started: bool = False
    tp: int | None = None
    pp: int = 1
    dcp: int = 1
    dp: int = 1
    attn_dp: int = 1
    enable_expert_parallel: bool = False
    gpu_memory_utilization: str | float | None = None
    reserve: int | None = None
    weights_dtype: str | None = None
    keep: tuple[str, ...] | None = None
    weights_size: int | None = None
    engine_args: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    ram_is_given: bool = True
    logged_excess: LoggedExcess | None = None
    served_model: str | None = None
    ollama: str | None = None
    checkpoint: str | None = None
    checkpoints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    context_of: Callable[[str], int | None] = _unknown_context
    layouts: Mapping[str, tuple[StoredAs, ...]] = dataclasses.field(default_factory=dict)
    draft: ModelSpec | None = None
    served_draft: str | None = None
    revision: str | None = None
    host_bandwidth: int | None = None
    disk_size: int | None = None
    disk_bandwidth: int | None = None
    traffic: Traffic | None = None
    batch_is_given: bool = False

    def with_engine_args(self, **changes: Any) -> "FitRequest":
        """Return the request with some of the engine's arguments changed; None is the engine's
        default.
        """
        return dataclasses.replace(self, engine_args={**self.engine_args, **changes})

    def with_workload(self, **changes: Any) -> "FitRequest":
        """Return the request with some fields of the workload changed."""
        return dataclasses.replace(self, workload=dataclasses.replace(self.workload, **changes))

    @property
    def shared_tokens(self) -> int:
        """Tokens at the start of every request that may be stored once; 0 without users'
        requests.
        """
        if self.traffic:
            return self.traffic.shared_tokens
        return 0


def _fp8_block(request: FitRequest, checkpoint: str | None, role: Role) -> int:
    """Return how many outputs share a scale in the FP8 weights that are loaded; 0 without such
    blocks.

    `checkpoint` is the repository that is loaded in place of the release.
    """
    served = checkpoint or request.served_model or ""
    if re.fullmatch(r"Qwen/.*-FP8", served) and request.model.quantization is None:
        return 128  # of a preset's release only the name is known
    is_as_released = request.weights_dtype in (None, released_dtype(request.model))
    stored = request.model.quantization if is_as_released else None
    if stored and stored.method == "fp8":
        scheme = stored.scheme_of(0, role, "W_up")
    else:
        scheme = None
    if scheme:
        return scheme.block
    return 0


class ResolvedRequest(NamedTuple):
    """A complete request: nothing in it is left to a default."""

    request: FitRequest  # the request before it was completed
    model: ModelSpec  # one tensor-parallel device's share of the model
    engine: Engine[Any]
    # The engine's arguments, with the facts of the model and the GPU; for llama.cpp, one slot per
    # sequence.
    args: EngineArgs
    # the drafter on one device; None without one, or if its weights are unknown
    draft: DraftModel | None
    # a decode step of one replica, with its part of the batch and the dtype of the cache
    workload: Workload
    gpus: int  # all GPUs, those of replicas included; 1 without a GPU
    # The share of a GPU's memory that the engine takes; None without a GPU, and with a given
    # kv_memory
    share: Share | None
    # the dtype of weight matrices; None for that of the model or of its files
    weights_dtype: str | None

    @property
    def gpu(self) -> Gpu | None:
        """The GPU; None if only the memory for the cache was given."""
        return self.request.gpu

    @property
    def whole_workload(self) -> Workload:
        """The workload with the batch of all replicas."""
        return dataclasses.replace(self.workload, batch=self.request.workload.batch)

    @property
    def devices(self) -> int:
        """Devices that hold the model once, by tensor and pipeline parallelism."""
        return self.args.tp * self.args.pp

    @property
    def dp(self) -> int:
        """Data-parallel ranks, which `devices` does not include."""
        return self.request.dp

    @property
    def has_cache(self) -> bool:
        """Whether the model has a cache: an encoder has none."""
        return not self.args.without_cache

    @property
    def ranks(self) -> int:
        """Data-parallel ranks of one copy of the model, each with a cache of its own; 1 if ranks
        are copies.
        """
        if self.engine.ranks_share_tp:
            return self.args.attn_dp
        if self.request.model.has_experts:
            return self.dp
        return 1

    @property
    def expert_devices(self) -> int:
        """Devices of all ranks of a stage, over which the routed experts are divided."""
        if self.engine.ranks_share_tp:
            return self.args.tp
        return self.args.tp * self.ranks

    @property
    def data_ranks(self) -> int:
        """Data-parallel ranks as the engine counts them: of attention in SGLang."""
        if self.engine.ranks_share_tp:
            return int(self.args.attn_dp)
        return self.dp

    @property
    def measured_starts(self) -> tuple[MeasuredStart, ...]:
        """The starts of this engine, split as here, that were measured on this machine."""
        version = self.args.engine_version
        if self.gpu is None or version is None:
            return ()
        return self.gpu.measured_starts(
            self.engine.name, version, tp=self.args.tp, pp=self.args.pp, dp=self.data_ranks
        )

    @property
    def divides_experts(self) -> bool:
        """Whether the routed experts are divided over data-parallel ranks, or whole experts over
        devices.

        One device has all of them, with --enable-expert-parallel too.
        """
        has_whole_experts = self.request.enable_expert_parallel and self.expert_devices > 1
        return self.request.model.has_experts and (self.ranks > 1 or has_whole_experts)

    @property
    def whole_layers(self) -> bool:
        """Whether each GPU has whole layers of its own, as in llama.cpp."""
        return self.engine.splits_by_layer and self.gpu is not None and not self.gpu.is_cpu

    @property
    def is_alone(self) -> bool:
        """Whether one request has all devices for itself, as at a desk, with an engine that leaves
        the rest unused.
        """
        slots = self.request.engine_args.get("sequences") or 1
        return (
            self.engine.splits_by_layer
            and self.gpu is not None
            and self.workload.batch * slots == 1
        )

    @property
    def replicas(self) -> int:
        """Groups of GPUs with requests of their own: copies of the model, or data-parallel
        ranks.
        """
        if self.whole_layers:
            return 1
        return (self.gpus // self.devices if self.gpu else self.dp) * self.args.attn_dp

    @property
    def copies(self) -> int:
        """Copies of the model that share nothing: replicas, of which data-parallel ranks of one
        copy are one.
        """
        return self.replicas // self.ranks

    def per_replica(self, batch: int) -> int:
        """Return how many of `batch` requests one replica has, if they are divided evenly: 10 on 4
        replicas are 3.
        """
        if self.replicas > 1:
            return ceil_div(batch, self.replicas)
        return batch

    def requests_of_rank(self, requests: int) -> tuple[int, int]:
        """Return the requests of the busiest data-parallel rank of a copy, and how many ranks at
        most have as many.

        9 requests on 8 ranks are 2 on the busiest, and at most 4 ranks have 2; 3 requests are 1 on
        each of 3 ranks.
        """
        if self.ranks == 1:
            return requests, 1
        on_busiest = int(ceil_div(requests, self.ranks))
        return on_busiest, int(requests) // on_busiest

    @property
    def checkpoint(self) -> str | None:
        """The repository that is loaded because its weights are in the dtype that was given; None
        for the release.
        """
        request = self.request
        if request.checkpoint or self.loads_weights:
            return request.checkpoint
        return request.checkpoints.get(str(request.weights_dtype))

    @property
    def loads_weights(self) -> bool:
        """Whether the engine loads the released weights, as they are or converted; True if it has
        its own files.
        """
        model = self.request.model
        to = self.engine.converts_to
        if to is None or is_released(model, self.request.weights_dtype, self.args.dtype):
            return True
        if self.weights_dtype != to or model.weights_dtype or model.experts_dtype:
            return False
        return self.engine.conversion_peak(self.args) * self._released_part <= _MOST_OF_GPU

    @property
    def _released_part(self) -> float:
        """The part of a GPU's memory that the weights as released take; 0 if it is unknown."""
        gpu = self.gpu
        model = self.request.model
        if gpu is None or model.unread_quantization:
            return 0.0
        return int(weights(self.model, weights_dtype=released_dtype(model)).total) / gpu.memory

    @property
    def refusal(self) -> Refusal | None:
        """Why the engine does not start, whatever the memory; None if it does."""
        return self.refusal_with(self.args)

    def refusal_with(self, args: EngineArgs) -> Refusal | None:
        """Return why the engine does not start with these arguments, whatever the memory; None if
        it does.
        """
        return (
            self._too_old_gpu(args)
            or self.engine.refusal(self.request.model, args)
            or self._cut_blocks(args)
            or self._share_not_free()
        )

    def _too_old_gpu(self, args: EngineArgs) -> Refusal | None:
        """Return that the GPU is older than those that the engine runs on."""
        least = self.engine.least_compute_capability
        own = args.compute_capability
        if least is None or own is None or own >= least or self.gpu is None:
            return None
        return Refusal(
            f"{self.engine.title} needs a GPU of compute capability {least[0]}.{least[1]} or more: "
            "this one is older",
            "Use --engine llamacpp or --engine transformers.",
        )

    def _cut_blocks(self, args: EngineArgs) -> Refusal | None:
        """Return that --tp cuts FP8 blocks: 1,536 / 8 = 192 is no multiple of 128
        (vllm-project/vllm issue 17569).

        vLLM and SGLang check it as they load (create_weights in layers/quantization/fp8.py). Whole
        experts are not cut.
        """
        for _, layers in self.request.model.groups() if args.tp > 1 else ():
            mlp = layers.mlp
            role: Role = "experts" if mlp and mlp.n_experts else "mlp"
            block = _fp8_block(self.request, self.checkpoint, role)
            is_whole = role == "experts" and self.request.enable_expert_parallel
            if mlp is None or not block or is_whole or mlp.d_ff % (args.tp * block) == 0:
                continue
            sizes = [
                str(tp) for tp in range(1, args.tp) if args.tp % tp == mlp.d_ff % (tp * block) == 0
            ]
            smaller = sizes[-1] if sizes else 1
            tip = f"Use --tp {smaller}."
            if role == "experts":
                tip = f"Use --tp {smaller}, or --enable-expert-parallel."
            return Refusal(
                f"--tp {args.tp} leaves {count(mlp.d_ff // args.tp)} of {count(mlp.d_ff)} "
                f"outputs of {role}, which are not whole FP8 blocks of {block}",
                tip,
            )
        return None

    def _share_not_free(self) -> Refusal | None:
        """Return that other programs leave less than the share, if the engine needs all of it
        free.
        """
        free = self.free_share
        gpu = self.gpu
        share = self.share_at_start
        if not (free and gpu and share):
            return None
        wanted, other = (
            human(size, BYTES) for size in (share.of(gpu.memory), gpu.other_memory or 0)
        )
        memory = human(gpu.memory, BYTES)
        reason = (
            f"{self.engine.title} wants {wanted} of {memory}, of which other programs hold {other}"
        )
        return Refusal(reason, f"Use {share.option} {free} or less.")

    @property
    def free_share(self) -> str:
        """The share that other programs leave free, if the engine needs its whole share free and it
        is not; else ''.
        """
        share = self.share_at_start
        if self.gpu is None or share is None or self.engine.counts_others(self.args):
            return ""
        return self.gpu.free_share(share.numerator / share.denominator)

    @property
    def share_at_start(self) -> Share | None:
        """The share, which vLLM wants to be free even if the memory for the cache was given
        (request_memory).
        """
        if self.share and self.has_cache:
            return self.share
        return _share(dataclasses.replace(self.request, kv_memory=None), self.engine, self.args)

    @property
    def args_without_slots(self) -> EngineArgs:
        """The arguments for any number of sequences: slots only if they were given.

        A search over batches starts the server with as many slots as it tries sequences.
        """
        args: EngineArgs = self.engine.for_batch(self.args, None)
        return args

    def limits(self, batch: int, context: int) -> Limits:
        """Return the most tokens and sequences of one forward pass on a GPU.

        Raises AttncalcError if the engine does not support an argument.
        """
        if self.engine.whole_prompts:
            return Limits(batch * context, batch)
        return self.engine.limits(self.args_without_slots)


def resolve(request: FitRequest) -> ResolvedRequest:
    """Return the complete request: every default of the engine, the model and the GPU filled in.

    Raises AttncalcError if a value is not possible, or two of them exclude each other.
    """
    of = find_engine(request.engine)
    request = _on_machine(request)
    if request.model.has_experts and of.spreads_experts(request.engine_args):
        request = dataclasses.replace(request, enable_expert_parallel=True)
    _check_weights(request)
    model, weights_dtype = weights_of(request)
    _check_without_cache(request)
    _check_parallelism(request, of)
    _check_cpu(request, of)
    _check_projector(request)
    gpus, tp = _split(request, whole_layers=of.splits_by_layer)
    if of.max_gpus and gpus > of.max_gpus:
        raise AttncalcError(
            f"{count(gpus)} GPUs are more than the {of.max_gpus} that one server supports",
            f"give --gpus {of.max_gpus}: a second server of {of.title} can use other GPUs",
        )
    workload = request.workload
    check_source(model, workload.source)
    if request.traffic:
        request.traffic.check(workload.context)
    loaded_dtype = _loaded_dtype(request, of)
    model_dtype = dtype(loaded_dtype or model.dtype, compute=True)
    args = _complete_args(request, of, model, model_dtype, gpus=gpus, tp=tp)
    of.check_split(args)
    _check_tiers(request, of, args)
    released = _loaded(request, of, request.model, args)
    model = _loaded(request, of, model, args)
    if not file_type(model):  # another change of the weights starts from the model without a file
        request = dataclasses.replace(request, model=released)
    part = _on_one_device(request, model, of, args)
    resolved = ResolvedRequest(
        request=request,
        model=part,
        engine=of,
        args=args,
        draft=args.speculative_model or predicting(part, args, weights_dtype),
        workload=dataclasses.replace(
            workload,
            phase="decode",
            new=1,
            dtype=loaded_dtype and model_dtype.name,
            kv_dtype=args.kv_dtype.name,
        ),
        gpus=gpus,
        share=_share_of_memory(request, of, args),
        weights_dtype=weights_dtype,
    )
    has_others = request.gpu is not None and request.gpu.other_memory
    if request.kv_memory is not None and has_others and of.counts_others(args):
        raise AttncalcError(
            f"--other-memory has no effect on {of.title} with --kv-memory",
            "leave one of them out, or use --engine vllm",
        )
    if resolved.free_share and request.gpu_memory_utilization is None and request.kv_memory is None:
        return resolve(dataclasses.replace(request, gpu_memory_utilization=resolved.free_share))
    batch = resolved.per_replica(workload.batch)
    return resolved._replace(
        args=of.for_batch(args, batch), workload=dataclasses.replace(resolved.workload, batch=batch)
    )


def _on_machine(request: FitRequest) -> FitRequest:
    """Return the request with the version of the engine that was measured on this machine, unless
    one was given.
    """
    if request.gpu is None or request.engine_args.get("engine_version") is not None:
        return request
    version = request.gpu.measured_version(request.engine)
    if version is None:
        return request
    return request.with_engine_args(engine_version=version)


def _loaded_dtype(request: FitRequest, of: Engine[Any]) -> str | None:
    """Return the dtype of the weights that are not quantized; None for the model's.

    A file of llama.cpp is as its type says, whatever --dtype is: F32 is the embedding's type too.
    """
    is_file = of.typed_files and request.weights_dtype is not None
    if is_file and request.weights_dtype in WIDE_TYPES:
        return request.weights_dtype
    if request.workload.dtype and not is_file:
        return request.workload.dtype
    half = half_dtype(request, of)
    if half != dtype(request.model.dtype).name:
        return half
    return None


def _complete_args(
    request: FitRequest,
    of: Engine[Any],
    model: ModelSpec,
    model_dtype: DType,
    *,
    gpus: int,
    tp: int,
) -> EngineArgs:
    """Return the engine's arguments as given, with the facts of the model and the GPU.

    Raises AttncalcError as `_engine_args` and `draft_model` do, and if a dtype is unknown.
    """
    workload = request.workload
    given = _engine_args(of, request)
    device = ""
    if request.gpu:
        if request.gpu.vendor:
            device = request.gpu.title
        given["device_memory"] = request.gpu.memory
        given["device"] = device
        given["compute_capability"] = request.gpu.compute_capability
        given["per_node"] = request.gpu.per_node
        given["gpus"] = gpus if of.splits_by_layer else 1
        given["on_cpu"] = request.gpu.is_cpu
    released_kv = of.checkpoint_cache_dtype(model, given.get("engine_version"), device)
    kv_name = workload.kv_dtype or of.cache_dtype or released_kv or model_dtype.name
    kv_dtype = cache_dtype_named(kv_name) if of.stores_formats else dtype(kv_name)
    # K and V in one dtype are a cache in that dtype
    of_k = given.get("kv_dtype_k")
    if of_k is not None and of_k == given.get("kv_dtype_v"):
        kv_dtype = of_k
        given["kv_dtype_k"] = None
        given["kv_dtype_v"] = None
    if request.draft:
        given["speculative_model"] = draft_model(request.draft, request.model, of, tp)
    args: EngineArgs = of.args(
        **given,
        kv_dtype=kv_dtype,
        kv_dtype_of_checkpoint=workload.kv_dtype is None and released_kv is not None,
        dtype=model_dtype,
        tp=tp,
        pp=request.pp,
        dcp=request.dcp,
        attn_dp=request.attn_dp,
        dp=request.dp,
        enable_expert_parallel=request.enable_expert_parallel,
        source=workload.source,
        max_model_len=workload.context,
        **_facts_of_model(model),
    )
    return args


def _facts_of_model(model: ModelSpec) -> dict[str, Any]:
    """Return the arguments of an engine that are facts of the model."""
    attentions = [kind for _, layers in model.groups() for kind in layers.attentions]
    vision = [tower for tower in model.towers if tower.name == "vision"]
    blocks = None
    if model.stored and not model.stored.file_type:
        blocks = model.stored.blocks
    return {
        "model_type": model.model_type,
        "attentions": frozenset(kind.label for kind in attentions),
        "sinks": any(isinstance(kind, Grouped) and kind.sinks for kind in attentions),
        "image_mask": model.image_mask,
        "without_cache": not model.main.has_cache,
        "vision_params": sum(tower.size_of_layers for tower in vision),
        "vision_width": max((tower.item.d_model for tower in vision if tower.item), default=0),
        "n_kv_heads": int(model.main.leading.widths().n_kv_heads) or None,
        "blocks": blocks,
    }


def _loaded(request: FitRequest, of: Engine[Any], model: ModelSpec, args: EngineArgs) -> ModelSpec:
    """Return the part of the model that is loaded, without lookup tables that are in host memory.

    If that is the GPU's memory too, they count, and a note says so.
    """
    model = without_prediction(of.loaded(model, args))
    is_unified = request.gpu is not None and request.gpu.unified
    if args.lookups_on_host and not is_unified:
        return model.without_lookups()
    has_lookups = any(layers.lookups for _, layers in model.groups())
    if not (is_unified and has_lookups) or of.splits_by_layer:
        return model
    note = (
        "Lookup tables count, since the host's memory is the GPU's. If they are a mapped file, "
        "less is needed."
    )
    return dataclasses.replace(model, notes=(*model.notes, note))


def weights_of(request: FitRequest) -> tuple[ModelSpec, str | None]:
    """Return the model, with its file if the weights are a type of files, and otherwise the dtype
    of its matrices.

    Raises AttncalcError if the engine does not load such files, or there is no such dtype.
    """
    of = find_engine(request.engine)
    model = request.model
    name = request.weights_dtype
    # a GGUF file in 16 bits has experts in MXFP4 too
    of_files = {"--keep": request.keep, "--weights-size": request.weights_size}
    for option, given in of_files.items():
        if of.typed_files and given is not None:
            raise AttncalcError(
                f"{option} has no effect on {of.title}: the type of a GGUF file decides",
                "give --weights-dtype, as iq3_m, name the .gguf file as MODEL, "
                "or give --engine vllm",
            )
    if request.weights_size is not None:
        return with_size(model, name, request.weights_size), None
    if request.keep is not None:
        name = name and dtype(name).name
        return with_kept(model, name, request.keep), name
    if name is None or (
        of.typed_files and name in ("bf16", "fp16") and model.experts_dtype == "mxfp4"
    ):
        return model, released_dtype(model)
    quantized = of.quantized(model, name)
    if quantized:
        return quantized, None
    usual = usual_layouts(request)
    if usual:
        return with_layout(model, dtype(name).name, usual[0]), dtype(name).name
    if name in FILE_TYPES and not is_dtype(name):
        raise AttncalcError(
            f"{of.title} cannot load {model.title} in {name}, a type of GGUF files",
            "give --engine llamacpp, which loads decoders in it, or another dtype: "
            "--weights-dtype int4",
        )
    return model, dtype(name).name


def usual_layouts(request: FitRequest) -> tuple[StoredAs, ...]:
    """Return how known checkpoints store the weights in the dtype that is given, the most usual
    first; () if no checkpoint is loaded, or options tell how it stores them.
    """
    of = find_engine(request.engine)
    name = request.weights_dtype
    is_told = request.keep is not None or request.weights_size is not None
    if name is None or is_told or of.typed_files or request.model.stored is not None:
        return ()
    if not is_dtype(name):
        return ()
    name = dtype(name).name
    if name == of.converts_to or name == released_dtype(request.model):
        return ()
    return request.layouts.get(name, ())


def file_type(model: ModelSpec) -> str:
    """Return the type of the file that was computed for the model: 'q4_k_m'; '' if none was."""
    if model.stored:
        return model.stored.file_type
    return ""


def _on_one_device(
    request: FitRequest, model: ModelSpec, of: Engine[Any], args: EngineArgs
) -> ModelSpec:
    """Return one device's part of the model. Raises AttncalcError if something in it does not
    divide.
    """
    stored = model.stored
    tp = args.tp
    if tp % request.attn_dp:
        raise AttncalcError(
            f"--attn-dp {request.attn_dp} does not divide --tp {tp}",
            f"give --tp {request.attn_dp}, for example: SGLang's --tp-size counts the GPUs of "
            "all ranks",
        )
    ranks = request.attn_dp if of.ranks_share_tp else request.dp
    part = model
    if ranks > 1 or args.enable_expert_parallel:
        key = ("divided", of.name, tp, ranks, *args.split_of_experts)
        part = model.kept(key, lambda: of.divide(model, args))
    # the files' bytes are divided as the parameters are
    if stored is not None and part is not model:
        here = int(params(part).total)
        everywhere = int(params(model).total)
        part = dataclasses.replace(
            part, stored=stored._replace(size=-(-stored.size * here // everywhere))
        )
    try:
        return part.shard(tp // request.attn_dp)
    except AttncalcError as error:
        tip = error.tip
        if request.pp == 1 and tp <= model.main.n_layers:
            tip += f"; --pp {tp} splits the layers instead"
        raise AttncalcError(error.message, tip) from None


def half_dtype(request: FitRequest, of: Engine[Any]) -> str | None:
    """Return the 16-bit dtype to compute in: the released one, or that of the engine's casts; None
    without casts.
    """
    pools = not request.model.main.has_cache or request.engine_args.get("runner") == "pooling"
    half = of.half_of_fp32(pools=pools)
    if half is None:
        return None
    released = dtype(request.model.dtype).name
    if released != "fp32":
        half = released
    if request.gpu:
        return request.gpu.math_dtype(None, half)
    return half


def _engine_args(of: Engine[Any], request: FitRequest) -> dict[str, Any]:
    """Return the engine's arguments, without those that are None. Names of dtypes become dtypes.

    Raises AttncalcError if no engine has an argument, or this one has not, a dtype is unknown, or
    two exclude each other.
    """
    given = {name: value for name, value in request.engine_args.items() if value is not None}
    try:
        of.check_options({**given, "speculative_model": request.draft})
    except AttncalcError:
        known: set[str] = set()
        for engine in map(find_engine, ENGINES):
            for kind in engine.options:
                known.update(kind.__annotations__)
        for name in given:
            if name not in known:
                what = f"engine_args: there is no argument '{truncate(name)}'"
                raise AttncalcError(what, known_tip(name, sorted(known))) from None
        raise
    if request.draft and given.get("speculative_layers"):
        raise clash(
            "--speculative-model",
            "--speculative-layers",
            "leave --speculative-layers out: the draft model has its own layers",
        )
    own = {field.name for field in dataclasses.fields(of.args)}
    args = {name: value for name, value in given.items() if name in own}
    for name in of.dtype_arguments:
        if isinstance(args.get(name), str):
            args[name] = dtype(args[name])
    return args


def _share(request: FitRequest, of: Engine[Any], args: EngineArgs) -> Share | None:
    """Return the share of a GPU's memory that the engine takes, under the engine's own name.

    None without a GPU, and if the memory for the cache was given.
    """
    if request.gpu is None or request.kv_memory is not None:
        return None
    if request.gpu_memory_utilization is None:
        return parse_share(of.share(args, args.tp * args.pp), of.share_option)
    given = parse_share(str(request.gpu_memory_utilization), Engine.share_option)
    return given._replace(option=of.share_option)


def _share_of_memory(request: FitRequest, of: Engine[Any], args: EngineArgs) -> Share | None:
    """Return the share of a GPU's memory that the engine may take: all of it for a model without a
    cache, which no share limits.
    """
    if args.without_cache and request.gpu is not None:
        return parse_share("1", of.share_option)
    return _share(request, of, args)


def _check_without_cache(request: FitRequest) -> None:
    """Raise AttncalcError if the model has no cache, and an option is about one."""
    if request.model.main.has_cache:
        return
    if request.traffic is not None:
        raise AttncalcError(
            "the length of a prompt has no effect on a model without a cache, as "
            f"{request.model.title} is",
            "leave --prompt, --output-len, --shared-prefix and --lengths out: --context is the "
            "longest text",
        )
    of_cache = {
        "--kv-memory": request.kv_memory is not None,
        "--kv-dtype": request.workload.kv_dtype is not None,
        "--speculative-model": request.draft is not None,
        "--dcp": request.dcp > 1,
        "--disk-size": request.disk_size is not None,
    }
    options = [option for option, is_given in of_cache.items() if is_given]
    for name in _ARGS_OF_CACHE:
        if request.engine_args.get(name):
            options.append(long_option(name))
    if options:
        raise AttncalcError(
            f"{options[0]} has no effect on a model without a cache, as {request.model.title} is",
            f"leave {options[0]} out",
        )


def _check_parallelism(request: FitRequest, of: Engine[Any]) -> None:
    """Raise AttncalcError if the engine or the model does not have data or expert parallelism."""
    if not of.data_parallel:
        for name, given in (
            ("dp", request.dp > 1),
            ("enable-expert-parallel", request.enable_expert_parallel),
        ):
            if given:
                raise AttncalcError(
                    f"--{name} has no effect on engine {request.engine}",
                    "leave it out, or use --engine vllm; --gpus runs replicas",
                )
    if not of.ranks_share_tp and request.attn_dp > 1:
        tip = "leave it out, or use --engine sglang"
        if of.data_parallel:
            tip = "with vLLM, --dp N is the number of ranks, and --tp N the GPUs of each"
        raise AttncalcError(f"--attn-dp has no effect on engine {request.engine}", tip)
    if request.enable_expert_parallel and not request.model.has_experts:
        raise AttncalcError(
            "--enable-expert-parallel needs a mixture of experts, which this model is not",
            "leave it out: --dp runs replicas of this model",
        )
    copies = request.engine_args.get("num_redundant_experts")
    if copies and not request.enable_expert_parallel:
        of.check_options({"num_redundant_experts": copies})
        if not request.model.has_experts:
            raise AttncalcError(
                "--num-redundant-experts needs a mixture of experts, which this model is not",
                "leave it out",
            )
        raise AttncalcError(
            "--num-redundant-experts needs --enable-expert-parallel",
            "add it: only whole experts have copies",
        )
    if request.attn_dp > 1 and request.dp > 1:
        raise clash("--attn-dp", "--dp", "SGLang has either ranks of attention or replicas")


def _check_projector(request: FitRequest) -> None:
    """Raise AttncalcError if a reserve replaces the runtime memory that the projector is a part
    of.
    """
    projector = request.engine_args.get("mmproj")
    if projector and request.reserve is not None:
        raise clash(
            "--mmproj",
            "--reserve",
            f"leave --mmproj out, and add its {human(projector.weights, BYTES)} to --reserve",
        )


def _check_cpu(request: FitRequest, of: Engine[Any]) -> None:
    """Raise AttncalcError if the device is the host, and the engine's memory there is not known, or
    it is not one.
    """
    if not (request.gpu and request.gpu.is_cpu):
        return
    if not of.runs_on_cpu:
        raise AttncalcError(
            f"--gpu cpu has no figures for engine {of.name}",
            "leave --engine out: llama.cpp runs without a GPU",
        )
    if request.gpus and request.gpus > 1:
        raise clash(f"--gpus {request.gpus}", "--gpu cpu", "leave --gpus out")


def _check_tiers(request: FitRequest, of: Engine[Any], args: EngineArgs) -> None:
    """Raise AttncalcError if an option of a cache in host memory or on disk is given without that
    cache.
    """
    given = [
        name
        for name in ("host_bandwidth", "disk_size", "disk_bandwidth")
        if getattr(request, name) is not None
    ]
    if given and not of.host_cache_option:
        of.reject(*given)
    if request.host_bandwidth is not None and not args.caches_on_host:
        raise AttncalcError(
            "--host-bandwidth needs a cache in host memory",
            f"add {of.host_cache_option} 64, for example",
        )
    if request.disk_bandwidth is not None and request.disk_size is None:
        raise AttncalcError(
            "--disk-bandwidth needs --disk-size",
            "give the size of the cache on disk: --disk-size 1TB",
        )


def _check_weights(request: FitRequest) -> None:
    """Raise AttncalcError if both the parts in 16 bits and the size of all weights are given."""
    if request.keep is not None and request.weights_size is not None:
        raise clash("--keep", "--weights-size", "give one of them: the size alone is exact")


def _check_devices(request: FitRequest) -> None:
    """Raise AttncalcError unless there is either a GPU or a memory, and every number is at least
    1.
    """
    for name in ("gpus", "tp", "pp", "dcp", "dp", "attn_dp"):
        number = getattr(request, name)
        if number is not None and number < 1:
            raise AttncalcError(
                f"--{name} is {number}, and must be at least 1", f"give --{name} 1 or more"
            )
    if request.kv_memory is None and request.gpu is None:
        raise AttncalcError(
            "--gpu or --kv-memory is required",
            Tip(
                "give one of them, as --gpu h100-80gb",
                python="give one of them, as --gpu h100-80gb; attncalc.vram(model) returns the "
                "memory that is needed",
            ),
        )
    if request.kv_memory is None:
        return
    excluded = ["gpu_memory_utilization", "reserve"]
    tip = "leave one of them out"
    if request.gpu is None:
        excluded += ["weights_dtype", "keep", "weights_size", "gpus"]
        tip = "leave it out, or give --gpu instead"
    elif request.gpu.other_memory is not None:  # the share must be free then
        excluded.remove("gpu_memory_utilization")
    for name in excluded:
        if getattr(request, name) is not None:
            raise clash(long_option(name), "--kv-memory", tip)


def _check_heads(request: FitRequest, tp: int) -> int:
    """Return --tp as it follows from --gpus. Raises AttncalcError if it does not divide the model's
    heads.
    """
    try:
        request.model.shard(tp)
    except AttncalcError as error:
        smaller = tp - 1
        while tp % smaller or not is_valid(request.model.shard, smaller):
            smaller -= 1
        if request.dp > 1 or request.pp > 1 or smaller == 1:
            return tp  # no smaller number helps: the error comes when the model is divided
        tip = (
            f"give --tp {smaller} for {tp // smaller} replicas, or --tp {smaller} --pp "
            f"{tp // smaller}"
        )
        raise AttncalcError(f"--gpus {tp}: {error.message}", tip) from None
    return tp


def _tensor_parallel(request: FitRequest, gpus: int) -> int:
    """Return --tp as it follows from the number of GPUs, --pp and --dp.

    Raises AttncalcError if they do not divide it, or it does not divide the model's heads.
    """
    pp = request.pp
    dp = request.dp
    if gpus % (pp * dp) == 0:
        return _check_heads(request, gpus // (pp * dp))
    if dp == 1:
        of = f"--pp {pp}"
        what = "pipeline stage"
    else:
        of = f"--dp {dp}" if pp == 1 else f"--pp {pp} times --dp {dp}"
        what = "rank"
    raise AttncalcError(
        f"--gpus {gpus} is not a multiple of {of}",
        f"give a multiple of {pp * dp}: every {what} has as many GPUs",
    )


def _split(request: FitRequest, *, whole_layers: bool) -> tuple[int, int]:
    """Return (GPUs, tensor-parallel devices). With `whole_layers`, tp is 1 by default, because no
    layer is split.

    Raises AttncalcError if the GPUs cannot be split so, or `_check_devices` does.
    """
    _check_devices(request)
    gpus = request.gpus
    tp = request.tp
    pp = request.pp
    dp = request.dp
    if request.gpu is None:
        return 1, tp or 1
    if tp is None and whole_layers:
        return gpus or 1, 1
    if tp is None:
        gpus = gpus or pp * dp
        return gpus, _tensor_parallel(request, gpus)
    needed = tp * pp * dp
    gpus = gpus or needed
    if gpus < needed:
        of = f"--tp {tp} with --pp {pp}"
        if dp > 1:
            of += f" and --dp {dp}"
        raise AttncalcError(
            f"{of} needs {needed} GPUs, but --gpus is {gpus}", f"give --gpus {needed}"
        )
    if gpus % needed:
        of = f"--tp {tp} times --pp {pp}"
        if dp > 1:
            of += f" times --dp {dp}"
        raise AttncalcError(
            f"--gpus {gpus} is not a multiple of {of}",
            f"give a multiple of {needed}: every replica has as many GPUs",
        )
    return gpus, tp
