"""The arguments of an engine, and what it returns: the layout of a model's caches on one device.

`Engine.layout(specs, args)` takes what the model's layers cache, in order, and the engine's
arguments. The layout that it returns answers two questions:

- `pool`: how many blocks, tokens and sequences fit in a number of bytes?
- `needed`: how many bytes do a number of sequences need?

From plain ints it computes plain ints, which searches use; from Quantities it computes Quantities
with formulas.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from ..model import ModelSpec
from ..quantity import Quantity, Ratio, symbol
from ..records import NamedTuple, dataclass
from ..units import DType
from .pipeline import LayerCacheSpec

# Whether an engine's bytes are a lower bound, or the bytes that it reserves.
Bound = Literal["lower", "reserved"]
NO_LIMIT = symbol(
    "no_limit", 2**60, "no limit: this device has no cache that grows with the context"
)


class DraftModel(NamedTuple):
    """A drafter on one device: an EAGLE head, a smaller model, or the model's layers for
    multi-token prediction.
    """

    title: str
    weights: int  # bytes of its weights
    layers: tuple[LayerCacheSpec, ...]  # what its layers cache
    model: ModelSpec | None = None  # its layers as a model; None if only their caches are known

    @property
    def is_dflash(self) -> bool:
        """Whether it is DFlash, which drafts a block of tokens from hidden states of the model."""
        return self.model is not None and any(
            matrix.name == "hidden_norm" for matrix in self.model.extra
        )

    @property
    def states_read(self) -> int:
        """How many of the model's layers it reads hidden states of: 3 for EAGLE-3, more for DFlash,
        0 for others.
        """
        if self.model:
            names = {matrix.name: matrix for matrix in self.model.extra}
        else:
            names = {}
        if "fc" not in names or not (self.is_dflash or "lm_head" in names):
            return 0
        return int(names["fc"].rows) // int(names["fc"].cols)

    @property
    def shared_tables(self) -> int:
        """How many of embedding and lm head are the model's: EAGLE-3 has a head of its own, DFlash
        needs neither.
        """
        if self.model is None or self.model.vocab_size is not None or self.is_dflash:
            return 0
        if any(matrix.name == "lm_head" for matrix in self.model.extra):
            return 1
        return 2


class Limits(NamedTuple):
    """The limits of one forward pass, under vLLM's names."""

    max_num_batched_tokens: int  # tokens of one pass
    max_num_seqs: int  # sequences whose logits one pass computes


@dataclass(frozen=True, eq=False, repr=False)
class EngineArgs:
    """What an engine is started with, and the facts of the model and the device on which its
    defaults depend.

    Each engine derives a class from it, whose fields are its own options. None means the engine's
    default.
    """

    kv_dtype: DType  # dtype of the cache, for K and V
    dtype: DType
    # whether no dtype of the cache is given, and the checkpoint names it
    kv_dtype_of_checkpoint: bool = False
    # version of the engine, "v0" for vLLM's old engine, "ik" for ik_llama.cpp
    engine_version: str | None = None
    tp: int = 1  # tensor-parallel devices
    pp: int = 1  # pipeline stages
    dcp: int = 1  # decode-context-parallel devices, which are among the tensor-parallel ones (vLLM)
    # data-parallel ranks of attention, which are among the tensor-parallel devices (SGLang)
    attn_dp: int = 1
    dp: int = 1  # data-parallel ranks, each with `tp` devices of its own
    # whether the devices of all ranks have whole experts instead of a part of each
    enable_expert_parallel: bool = False
    per_node: int = 8  # GPUs that are linked in one node
    gpus: int = 1  # identical GPUs over which llama.cpp distributes whole layers
    source: int | None = None  # source tokens of the encoder
    max_model_len: int | None = None  # tokens of the requested context
    device_memory: int | None = None  # bytes of one GPU
    device: str = ""
    # of the GPU, as NVIDIA numbers them: (9, 0); None for GPUs of other vendors, or if unknown
    compute_capability: tuple[int, int] | None = None
    on_cpu: bool = False  # whether the device is the host: there are no GPUs
    n_kv_heads: int | None = None  # KV heads of the whole model, before tensor parallelism
    model_type: str | None = None  # the model_type of the model's config.json
    # labels of the model's kinds of attention ("MLA", "KDA")
    attentions: frozenset[str] = frozenset()
    # llama.cpp's layers in a GGUF file, with those of multi-token prediction; None without a file
    blocks: int | None = None
    sinks: bool = False  # whether a head has a learned logit beside those of the keys
    image_mask: bool = False  # whether the tokens of one image see each other
    # whether no layer has a cache, since all tokens of a text see each other: an encoder
    without_cache: bool = False
    vision_params: int = 0  # parameters of the layers of the model's vision tower
    vision_width: int = 0  # width of the vision tower; 0 if unknown
    speculative_tokens: int = 0  # tokens that a drafter proposes per step
    # layers for multi-token prediction, or of a drafter that is not known otherwise
    speculative_layers: int = 0
    speculative_model: DraftModel | None = None

    @property
    def backend(self) -> str:
        """How llama.cpp names the GPUs, before their numbers."""
        return {"Apple": "MTL", "AMD": "ROCm"}.get(self.device.partition(" ")[0], "CUDA")

    @property
    def split_of_experts(self) -> tuple[Any, ...]:
        """What decides which experts a device has, beside the number of devices."""
        return (self.enable_expert_parallel,)

    @property
    def changes_weights(self) -> bool:
        """Whether an option adds to the weights on a GPU, or moves some of them to the host."""
        return False

    @property
    def token_shares(self) -> int:
        """How many times smaller `dcp` makes a device's share of the cache."""
        return self.dcp

    @property
    def lookups_on_host(self) -> bool:
        """Whether tables of which a token reads a few rows are in host memory, if that is not the
        GPU's too.
        """
        return False

    @property
    def caches_on_host(self) -> bool:
        """Whether blocks of the cache are copied to host memory, from where they are loaded
        again.
        """
        return False


class Detail(NamedTuple):
    """An intermediate figure of an engine's answer."""

    name: str  # its name in JSON
    label: str  # its label on screens
    quantity: Quantity | Ratio  # the figure with its formula
    unit: str  # its unit, as in units.py


class Pool(NamedTuple):
    """What fits in the memory for the cache, for sequences of one context length."""

    # how many blocks fit, each shared by all layers; None for an engine without blocks
    blocks: Quantity | None
    tokens: Quantity  # how many tokens fit, as the engine counts and logs them
    concurrency: Ratio  # how many sequences of that context length fit, as the engine logs it
    details: tuple[Detail, ...]  # intermediate figures
    log_lines: tuple[str, ...]  # the lines that the engine would print in its own log

    def figure(self, name: str) -> int | float:
        """Return a figure by its name in logs; 0 if there is none."""
        if name == "concurrency":
            return float(self.concurrency)
        totals = {"kv_tokens": self.tokens, "kv_blocks": self.blocks or 0}
        figures = {detail.name: detail.quantity for detail in self.details} | totals
        return int(figures.get(name, 0))


class CacheLayout(Protocol):
    """How an engine stores one model's caches on one device. If devices differ, it is the one where
    least fits.
    """

    @property
    def bound(self) -> Bound:
        """Whether its bytes are a lower bound, or the bytes that the engine reserves."""

    @property
    def version(self) -> str | None:
        """The version of the engine; None for an engine without versions."""

    @property
    def facts(self) -> tuple[str, ...]:
        """The settings in use, with defaults, as the engine calls them: 'block size 16', 'version
        0.33.0'.
        """

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, and what is not counted: one sentence each."""

    @property
    def source(self) -> str:
        """The files of the engine's source that the formulas come from."""

    @property
    def max_num_seqs(self) -> int | None:
        """The most sequences that the engine runs concurrently, whatever the memory; None without
        such a limit.
        """

    @property
    def parts(self) -> "Sequence[CacheLayout]":
        """The layout of each GPU or pipeline stage if they hold different layers; () if one layout
        is for all.
        """

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that `batch` concurrent sequences of `context` tokens need on one
        device.
        """

    def with_shared_prefix(self, tokens: int) -> "CacheLayout | None":
        """Return the layout of sequences that all start with the same tokens, which `needed` counts
        once.

        Only tokens that the engine finds in its cache of prefixes count: whole blocks. None if the
        engine does not cache prefixes, or it is switched off.
        """

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits in `memory` bytes of one device, for sequences of `context` tokens."""
