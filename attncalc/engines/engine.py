"""What an engine answers. `serving/` asks it, and knows no engine's name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ..errors import AttncalcError
from ..options import DTYPE_OR_AUTO, Option, options_of
from ..quantity import Quantity, symbol
from ..records import NamedTuple
from ..units import DType, count, long_option
from .arguments import arguments_of
from .pipeline import split_into_stages, stage_sizes
from .without_cache import StepLayout

if TYPE_CHECKING:
    from ..attention import CacheSpec
    from ..hardware import Gpu
    from ..model import ModelSpec
    from ..quantization import Role
    from ..workload import Workload
    from .base import CacheLayout, EngineArgs, Limits, Pool
    from .launch import LaunchFacts
    from .pasted import LaunchWords
    from .pipeline import LayerCacheSpec
    from .runtime import DeviceMemory, RuntimeFacts, RuntimeMemory

Args = TypeVar("Args", bound="EngineArgs")
# The value of one of `Engine.offload_options` that leaves as little on the host as fits.
AUTO = "auto"


class ExtraWeights(NamedTuple):
    """Memory that an engine holds with the weights beside those of the language model."""

    name: str  # its name in formulas and JSON: 'weights_rope_tables'
    label: str  # what it is, in words
    size: Quantity  # bytes


class HeldWeights(NamedTuple):
    """How the weights are stored of which an engine computes its extra ones."""

    dtype: DType  # the dtype of weights that are not quantized
    experts_dtype: str  # the name of the dtype of routed experts
    # Returns the bits of a matrix' elements, without scales: (layer, role, name of the matrix) ->
    # bits
    bits: Callable[[int, Role, str], int]

    @property
    def element_bytes(self) -> Quantity:
        """Bytes of an element of `dtype`."""
        return symbol("bytes", self.dtype.bits // 8, f"bytes of an element in {self.dtype.name}")


class HostCache(NamedTuple):
    """The memory of the host, or of a disk, that an engine takes for blocks of the cache."""

    per_device: Quantity  # bytes for the cache of one GPU
    copies: int  # GPUs that have as much of their own: 1 if all of them load the same bytes


class SmallerStep(NamedTuple):
    """A lower limit of one forward pass."""

    words: str  # '256 tokens per pass'
    flag: str  # the options to type: '-ub 256'
    args: dict[str, Any]  # the arguments that they become


class Refusal(NamedTuple):
    """Why an engine does not start, whatever the memory."""

    reason: str  # what it refuses, as a sentence without its period
    tip: str  # what to do instead, as sentences

    @property
    def tip_of_error(self) -> str:
        """The tip as an error has it: it begins in lower case and has no period at its end."""
        return self.tip[:1].lower() + self.tip[1:].removesuffix(".")


class AttentionSplit(NamedTuple):
    """A split of the GPUs with which each has attention of its own: DP attention."""

    flags: str  # the options to type: '--tp 8 --attn-dp 8'
    fields: dict[str, Any]  # fields of a FitRequest with their values


class Engine(Generic[Args]):
    """An engine: its options, its defaults, and how it stores a model's caches.

    A subclass sets `name`, `title` and `args`, and defines `layout`. Everything else has a default.
    """

    name: str  # on the command line
    title: str  # as people write it
    options: tuple[Any, ...] = ()  # the TypedDicts of its options
    # fields of EngineArgs that split a model over GPUs, besides `tp`
    splits: frozenset[str] = frozenset()
    share_option: str = "--gpu-memory-utilization"  # for the share of a GPU's memory that it takes
    # whether that is a share of what is free, and not of the whole memory
    share_is_of_free: bool = False
    cache_dtype: str | None = None  # default dtype of the cache, if it is not the model's
    # The dtype to which it casts a model in fp32 unless --dtype is given; a GPU without units for
    # bf16 gets fp16.
    dtype_of_fp32: str | None = None
    # whether it has data-parallel ranks, which divide the experts of a mixture
    data_parallel: bool = False
    # whether these are among the tensor-parallel GPUs (SGLang's DP attention)
    ranks_share_tp: bool = False
    # whether fp8_ds_mla is a format of its own; the others store their fp8 so
    stores_formats: bool = False
    # whether each GPU gets whole layers, not a part of each (llama.cpp)
    splits_by_layer: bool = False
    max_gpus: int | None = None  # GPUs that one server supports; None without a limit
    # NVIDIA's GPUs that it runs on have this compute capability or a later one; None for all
    least_compute_capability: tuple[int, int] | None = None
    runs_on_cpu: bool = False  # whether its memory without GPUs is known
    # whether it does not start unless one request of the whole context fits
    must_fit_one: bool = False
    whole_prompts: bool = False  # whether one forward pass takes all tokens of all sequences
    runtime_grows: bool = False  # whether `runtime` depends on the batch and the context
    loads_towers: bool = True  # whether vision and audio towers are loaded with the language model
    # Whether a tower's heads are padded if tensor parallelism does not divide them. Otherwise each
    # device has them whole, or the engine does not start.
    pads_tower_heads: bool = False
    # whether its files have a type of their own, which neither model nor repository names
    typed_files: bool = False
    # The dtype to which it converts weights as it loads them; None if it loads no checkpoints, or
    # never converts them
    converts_to: str | None = None
    has_extra_weights: bool = False  # whether `extra_weights` is known
    # the variable that allows a context beyond the model's maximum; "" if none is needed
    long_context_variable = ""

    # that of a convolution and of a recurrent state; None for that of the cache
    state_dtype: str | None = None
    # roles of caches that each device stores for all tokens despite `dcp`
    whole_with_dcp: frozenset[str] = frozenset()
    # its option that copies blocks of the cache to host memory; '' without one
    host_cache_option: str = ""
    disk_tip: str = ""  # how it copies them to a disk, in words

    # Its options that leave layers on the host, each with its change of a suggestion, for a number
    # of layers
    offload_options: Mapping[str, str] = MappingProxyType({})

    # What to suggest if the model does not fit: the widest dtypes and the most sequences first
    narrower_cache_dtypes: tuple[str, ...] = ("fp8",)
    narrower_weight_dtypes: tuple[str, ...] = ("fp8", "int4")
    # if no other change is enough: of about 2 bits and less
    narrowest_weight_dtypes: tuple[str, ...] = ()
    larger_shares: tuple[str, ...] = ()
    # The share with which it starts on a GPU that uses the host's memory; None if that is its
    # default
    share_of_unified: str | None = None
    fewer_sequences: tuple[int, ...] = ()
    # Tokens of a step that people set, for a log without them
    step_sizes: tuple[int, ...] = ()
    without_graphs: str | None = None  # its option that captures no CUDA graphs
    running_option: str = ""  # its option that limits the requests that run concurrently
    # its argument for the tokens of a step, and the option; None if it runs no encoders
    step_option: tuple[str, str] | None = None

    commands: tuple[LaunchWords, ...] = ()  # how the commands that start it are read
    releases: tuple[str, ...] = ()  # that a log without a version may come from, the newest first

    # Arguments

    @property
    def args(self) -> type[Any]:
        raise NotImplementedError

    @property
    def dtype_arguments(self) -> Sequence[str]:
        """The names of its arguments that are dtypes."""
        declared: dict[str, Option] = {}
        for kind in self.options:
            declared |= options_of(kind)
        return [name for name, option in declared.items() if option.parser == DTYPE_OR_AUTO]

    def half_of_fp32(self, *, pools: bool) -> str | None:
        """Return the dtype to which a model in fp32 is cast; `pools` is whether it embeds or ranks
        texts. None without casts.
        """
        return self.dtype_of_fp32

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raise AttncalcError if an option was given that the engine does not have."""
        known = {name for group in self.options for name in group.__annotations__}
        known &= {field.name for field in dataclasses.fields(self.args)}
        unknown = []
        for name, value in options.items():
            is_given = bool(value) or value is False
            if is_given and name not in known:
                unknown.append(name)
        if unknown:
            self.reject(*unknown)

    def check_split(self, args: Args) -> None:
        """Raise AttncalcError if the model is split in a way that the engine does not have."""
        splits = [name for name in ("pp", "dcp", "attn_dp") if getattr(args, name) > 1]
        unknown = [name for name in splits if name not in self.splits]
        if unknown:
            self.reject(*unknown)

    def reject(self, *fields: str) -> NoReturn:
        """Raise AttncalcError: these options have no effect on this engine, or only in itself."""
        known = arguments_of(self.name, self.title, None).by_name
        names = [long_option(field) for field in sorted(fields)]
        of_engine = [name for name in names if name in known]
        if of_engine:
            raise AttncalcError(
                f"{of_engine[0]} of {self.title} is not computed: it may change the memory",
                "leave it out, or paste the command that has it after --",
            )
        options = ", ".join(names)
        raise AttncalcError(
            f"{options} {'have' if len(fields) > 1 else 'has'} no effect on engine {self.name}",
            "leave it out, or choose an engine that has it with --engine",
        )

    def for_batch(self, args: Args, batch: int | None) -> Args:
        """Return the arguments of a server with a slot for each of `batch` sequences; None leaves
        the slots open.
        """
        return args

    def cache_dtypes(self, args: Args) -> tuple[DType, DType]:
        return args.kv_dtype, args.kv_dtype

    def sizes(self, size: Mapping[str, Any], args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the batch and the context of each request, as the engine means the options that
        were given.

        `size` has `batch` and `context` as far as they are given, as text or numbers. Raises
        AttncalcError if they contradict.
        """
        return size

    # The devices

    def divide(self, model: ModelSpec, args: Args) -> ModelSpec:
        """Return the part of a model that the devices of one data-parallel rank have together.

        It is asked if there are several ranks, or whole experts. Raises AttncalcError if the model
        cannot be divided so.
        """
        return model

    def spreads_experts(self, given: Mapping[str, Any]) -> bool:
        """Return whether an argument that was given implies --enable-expert-parallel."""
        return False

    def loaded(self, model: ModelSpec, args: Args) -> ModelSpec:
        """Return the part of the model that is loaded: options may leave towers out."""
        return model

    def held_of_draft(self, draft: ModelSpec, model: ModelSpec) -> ModelSpec:
        """Return the part of a draft model that it holds beside `model`, in GPU memory and before
        it is divided.
        """
        return draft

    def loads_drafter_first(self, args: Args) -> bool:
        """Return whether the drafter's weights leave less memory for the cache."""
        return True

    def parts(self, model: ModelSpec, args: Args) -> Sequence[ModelSpec]:
        """Return the layers of each pipeline stage as models; of each GPU, if it splits by layer.

        Raises AttncalcError if the model cannot be cut so.
        """
        return split_into_stages(model, args.pp, self.stage_sizes)

    def held(self, part: ModelSpec, args: Args) -> ModelSpec:
        """Return the layers of which a part's GPU has the weights: it may leave some of them on the
        host.
        """
        return part

    def on_host(self, model: ModelSpec, args: Args) -> ModelSpec:
        """Return the layers and tables in host memory, if it splits by layer."""
        raise NotImplementedError

    def host_layout(self, specs: Sequence[LayerCacheSpec], args: Args) -> CacheLayout | None:
        """Return how it stores the caches in host memory; None if all are on GPUs."""
        return None

    def host_limit(self, args: Args) -> int | None:
        """Return the bytes of host memory for what is not on GPUs; None if nothing is known to
        limit it.
        """
        return None

    def is_placed(self, args: Args) -> bool:
        """Return whether options say which layers or caches go to which device."""
        return False

    def host_bandwidth(self, args: Args) -> int | None:
        """Return the bytes/s of host memory, if an option gives them."""
        return None

    def cache_on_host(self, args: Args) -> bool:
        """Return whether the whole cache is in host memory."""
        return False

    def host_notes(self, args: Args) -> Iterator[str]:
        """Yield what is in host memory, which no GPU's figures include."""
        return iter(())

    def offload_values(self, option: str, model: ModelSpec, args: Args) -> range:
        """Return the values of one of `offload_options`, from nothing on the host on; () if it has
        no effect.
        """
        raise NotImplementedError

    def smaller_steps(self, args: Args, batch: int) -> Iterator[SmallerStep]:
        """Yield limits of a pass with which it takes less runtime memory, the largest first.

        A pass must still have `batch` concurrent sequences.
        """
        return iter(())

    # The cache

    def layout(self, specs: Sequence[LayerCacheSpec], args: Args) -> CacheLayout:
        """Return how the engine stores those layers. Raises AttncalcError if it does not support
        them or `args`.
        """
        raise NotImplementedError

    def stage_sizes(self, layers: int, pp: int) -> Sequence[int]:
        """Return the layers of each pipeline stage. Raises AttncalcError if there are fewer layers
        than stages.
        """
        return stage_sizes(layers, pp)

    def reserves_context(self, args: Args) -> bool:
        """Return whether each sequence has memory for its whole context from its start."""
        return False

    def host_cache(self, args: Args, layout: CacheLayout, kv_memory: Quantity) -> HostCache | None:
        """Return the host memory to which it copies blocks; None if there is none.

        `kv_memory` is the bytes for the cache on one GPU.
        """
        return None

    def checkpoint_cache_dtype(
        self, model: ModelSpec, version: str | None, device: str = ""
    ) -> str | None:
        """Return the dtype of the cache that a version takes from the checkpoint's quantization
        (kv_cache_scheme).

        So do models whose cache has one dtype by default, whatever the checkpoint's. None for the
        model's dtype.
        """
        return None

    # The rest of the memory

    def share(self, args: Args, devices: int) -> str:
        """Return the share of a GPU's memory that it takes, a decimal, if `devices` hold the model
        once.
        """
        return "1"

    def counts_others(self, args: Args) -> bool:
        """Return whether other programs' memory leaves less for the cache.

        Otherwise the engine takes its share of the whole memory, and does not start unless it is
        free.
        """
        return True

    def admits(self, layout: CacheLayout, batch: int, context: int) -> bool:
        """Return whether options and the engine's own limits allow so many sequences, whatever the
        memory.
        """
        if isinstance(layout, StepLayout):
            return batch <= layout.most_texts(context)
        return layout.max_num_seqs is None or batch <= layout.max_num_seqs

    def least_blocks(self, layout: CacheLayout) -> int:
        """Return the blocks of the cache without which it does not start, even if a request has
        room; 0 if any do.
        """
        return 0

    def limits(self, args: Args) -> Limits:
        """Return the limits of one forward pass."""
        from .base import Limits

        return Limits(1, 1)

    def text_only(self, args: Args) -> str | None:
        """Return the argument that loads no towers, for users who send text."""
        return None

    def fewer_requests(self, args: Args) -> Sequence[int]:
        """Return smaller --max-running-requests that leave more of the memory for tokens, the
        largest first.
        """
        return ()

    def runtime(self, facts: RuntimeFacts[Args]) -> RuntimeMemory:
        """Return the memory that it takes on a GPU besides weights and cache."""
        from .runtime import RuntimeMemory

        return RuntimeMemory()

    def conversion_peak(self, args: Args) -> float:
        """Return what a GPU holds while weights are converted, in sizes of the weights as
        released.
        """
        return 1

    def loads_quantization(self, method: str, version: str | None) -> bool:
        """Return whether a version loads checkpoints with a quant_method."""
        return True

    def quantized(self, model: ModelSpec, weights_dtype: str) -> ModelSpec | None:
        """Return the model with the tensors of its file of that type; None if the dtype is not a
        type of files.
        """
        return None

    def extra_weights(
        self, model: ModelSpec, args: Args, held: HeldWeights
    ) -> Sequence[ExtraWeights]:
        """Return what it holds beside the weights and towers of a model's part."""
        return ()

    # The start

    def refusal(self, model: ModelSpec, args: Args) -> Refusal | None:
        """Return why it does not start with a model and arguments, whatever the memory; None if it
        does.
        """
        if model.draft:
            return Refusal(
                "a draft model proposes tokens, and serves none by itself",
                "Ask about the model that checks them, with --speculative-model for this one.",
            )
        context = args.max_model_len or 0
        maximum = model.max_context
        variable = self.long_context_variable
        if (
            not variable
            or not maximum
            or context <= maximum
            or getattr(args, "allow_long_max_model_len", True)
        ):
            return None
        return Refusal(
            f"context {count(context)} is beyond the model's maximum of {count(maximum)}",
            f"Use --context {maximum} or less. With {variable}=1 (--allow-long-max-model-len "
            f"here) {self.title} starts, but positions beyond the maximum may give wrong results.",
        )

    def longest_request(self, pool: Pool) -> int | None:
        """Return the tokens of the longest request of a server whose context needs more than
        `pool`.

        None if it does not start then.
        """
        return None

    def checks_all_layers(self, args: Args) -> bool:
        """Return whether it starts only if one request fits on each pipeline stage with the layers
        of all stages.
        """
        return False

    def launch(self, facts: LaunchFacts) -> Iterator[str | int] | None:
        """Return the words of the command that starts it; None if it has no server.

        Reading them raises NoCommandError if it has no option for something in `facts`.
        """
        return None

    def attention_ranks(self, args: Args, dp: int) -> AttentionSplit | None:
        """Return the split with which each GPU has attention of its own; None if the engine has no
        data-parallel ranks.
        """
        return None

    # Its log

    def memory_lines(self, rows: Sequence[DeviceMemory], gpu: Gpu) -> Iterator[str]:
        """Yield the lines of its log with the memory of each device, if it splits by layer."""
        return iter(())

    def too_small_message(self, args: Args, pool: Pool, memory: int, context: int) -> str:
        """Return the message of an engine with `must_fit_one` that ends, since one request of the
        context needs more than the bytes of memory for the cache.
        """
        raise NotImplementedError


class PerLayerEngine(Engine[Args]):
    """An engine whose bytes can be computed layer by layer, as `attncalc kv` does."""

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that one layer stores of `cached` for the whole batch."""
        raise NotImplementedError

    def check_cache_dtype(self, kv_dtype: DType) -> None:
        """Raise AttncalcError if it cannot store a model's own cache in this dtype."""

    def storage_notes(self, cached: Sequence[CacheSpec]) -> Iterator[str]:
        """Yield how its cache differs from what the layers need."""
        return iter(())

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that the next token of one sequence adds to one layer."""
        raise NotImplementedError
