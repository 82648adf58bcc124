"""The defaults of an engine: its share of a GPU's memory, tokens per pass, dtypes, layers per pipeline stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..quantity import Quantity
from ..units import GIB, DType
from .pipeline import stage_sizes
from .refusal import Refusal, no_refusal

if TYPE_CHECKING:
    from ..model import ModelSpec
    from ..quantization import Role
    from .base import EngineArgs
    from .runtime import Limits, RuntimeFacts, RuntimeMemory


class ExtraWeights(NamedTuple):
    """Memory that an engine holds with the weights beside those of the language model.

    Attributes:
        name: its name in formulas and JSON: 'weights_rope_tables'.
        label: what it is, in words.
        size: bytes.
    """

    name: str
    label: str
    size: Quantity


class HeldWeights(NamedTuple):
    """How the weights are stored of which an engine computes its extra ones.

    Attributes:
        dtype: the dtype of weights that are not quantized.
        experts_dtype: the name of the dtype of routed experts.
        bits: returns the bits of a matrix' elements, without scales: (layer, role, name of the matrix) -> bits.
    """

    dtype: DType
    experts_dtype: str
    bits: Callable[[int, Role, str], int]


def grows_by_token(args: EngineArgs) -> bool:
    """Return False: a sequence's memory grows with its tokens."""
    return False


def whole_memory(args: EngineArgs, devices: int) -> str:
    """Return the share of an engine that uses the whole GPU: '1'."""
    return "1"


def by_device_memory(memory: int | None, steps: tuple[tuple[int, int], ...], largest: int) -> int:
    """Return the value of the first step (GiB, value) whose GiB are more than `memory` bytes, else `largest`.

    With steps (20, 2048), (60, 4096): 2048 below 20 GiB, 4096 below 60 GiB. An unknown memory gives `largest`.
    """
    return next((value for gib, value in steps if memory is not None and memory < gib * GIB), largest)


class EngineDefaults(NamedTuple):
    """The defaults of one engine.

    Attributes:
        title: the engine's name as people write it.
        limits: returns the limits of one forward pass.
        runtime: returns what the engine keeps on a GPU besides weights and cache.
        share: returns the share of a GPU's memory that the engine uses, a decimal as text; its second argument is
            the number of devices that hold the model once.
        share_option: the engine's option for that share.
        cache_dtype: default dtype of the cache, if it is not the model's.
        narrower_cache_dtypes: cache dtypes to suggest if the model does not fit, the widest first.
        narrower_weight_dtypes: weight dtypes to suggest if the model does not fit, the widest first.
        larger_shares: shares of a GPU's memory to suggest if the model does not fit.
        fewer_sequences: values of --max-num-seqs to suggest if the model does not fit, the largest first.
        runtime_grows: whether `runtime` depends on the batch and the context.
        max_slots: the most slots that its server can have; None for an engine without slots.
        max_gpus: GPUs that one server supports; None without a limit.
        splits_by_layer: whether each GPU gets whole layers (llama.cpp's --split-mode layer) instead of a part of each.
        stage_sizes: returns the layers of each pipeline stage, for a number of layers and a number of stages.
        refusal: returns why the engine does not start with a model and arguments, whatever the memory.
        must_fit_one: whether the engine does not start unless one request of the whole context fits.
        checks_all_layers: whether the engine starts only if one request fits on each pipeline stage with the layers of
            all stages.
        whole_prompts: whether one forward pass takes all tokens of all sequences, so that it has no limits.
        dtype_of_fp32: the dtype to which the engine casts a model in fp32 unless --dtype is given; a GPU without units
            for bf16 gets fp16. None if the engine does not cast.
        checkpoint_cache_dtype: returns the dtype of the cache that a version of the engine takes from the checkpoint's
            quantization (kv_cache_scheme), or None for the model's dtype.
        loads_quantization: returns whether a version of the engine loads checkpoints with a quant_method.
        loads_towers: whether vision and audio towers are loaded with the language model.
        pads_tower_heads: whether a tower's heads are padded if tensor parallelism does not divide them. Otherwise each
            device has them whole, or the engine does not start.
        extra_weights: returns what the engine holds beside the weights and towers of a model's part, if it is known.
        reserves_context: returns whether each sequence has memory for its whole context from its start.
    """

    title: str
    limits: Callable[[EngineArgs], Limits]
    runtime: Callable[[RuntimeFacts], RuntimeMemory]
    share: Callable[[EngineArgs, int], str] = whole_memory
    share_option: str = "--gpu-memory-utilization"
    cache_dtype: str | None = None
    narrower_cache_dtypes: tuple[str, ...] = ("fp8",)
    narrower_weight_dtypes: tuple[str, ...] = ("fp8", "int4")
    larger_shares: tuple[str, ...] = ()
    fewer_sequences: tuple[int, ...] = ()
    runtime_grows: bool = False
    max_slots: int | None = None
    max_gpus: int | None = None
    splits_by_layer: bool = False
    stage_sizes: Callable[[int, int], Sequence[int]] = stage_sizes
    refusal: Callable[[ModelSpec, EngineArgs], Refusal | None] = no_refusal
    must_fit_one: bool = False
    checks_all_layers: Callable[[EngineArgs], bool] = lambda args: False
    whole_prompts: bool = False
    dtype_of_fp32: str | None = None
    checkpoint_cache_dtype: Callable[[ModelSpec, str | None], str | None] = lambda model, engine_version: None
    loads_quantization: Callable[[str, str | None], bool] = lambda method, engine_version: True
    loads_towers: bool = True
    pads_tower_heads: bool = False
    extra_weights: Callable[[ModelSpec, EngineArgs, HeldWeights], Sequence[ExtraWeights]] | None = None
    reserves_context: Callable[[EngineArgs], bool] = grows_by_token
