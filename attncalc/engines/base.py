"""What an engine is told, and what it answers: the layout of a model's caches on one device.

An engine's `layout` takes what the layers keep, in the model's order, and its args. The layout then
says what a memory holds, and what memory a number of sequences needs. Both work on plain ints, for
searches, and on Quantities, for formulas.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ..errors import AttncalcError
from ..quantity import Quantity, Ratio
from ..units import DType

Bound = Literal["lower", "reserved"]
"""What an engine's bytes are: those that a later token needs at the least, or those it sets aside."""


@dataclass(frozen=True)
class EngineArgs:
    """What an engine is told, each field named as its own option; None where it takes its default.

    kv_dtype: of the cache, for K and V alike; kv_dtype_k, kv_dtype_v: where they differ (llama.cpp).
    dtype: of the model. mamba_ssm_cache_dtype: of recurrent states. tp, pp, dcp: tensor-, pipeline- and
    decode-context-parallel devices. block_size: tokens of a block (SGLang's page). max_num_batched_tokens,
    max_num_seqs: of one scheduler step (vLLM's). speculative_tokens, speculative_layers: of a drafter, whose
    layers are counted as the model's last attention layer. sequences, ubatch, kv_unified, swa_full: llama.cpp's
    -np, -ub, -kvu, --swa-full. disable_hybrid_swa_memory: SGLang's: windows are kept like full attention.
    source: tokens of an encoder's side. swap_space: bytes of host memory for blocks (vLLM's V0). device_memory,
    device: of one GPU and its name, which engines' defaults depend on. gpus: alike, over which llama.cpp
    spreads whole layers. n_kv_heads: of the whole model; model_type: as its config.json says; attentions: the
    labels of its layers' ('MLA', 'KDA'): where an engine decides by them.
    """

    kv_dtype: DType
    dtype: DType
    kv_dtype_k: DType | None = None
    kv_dtype_v: DType | None = None
    mamba_ssm_cache_dtype: DType | None = None
    engine_version: str | None = None
    tp: int = 1
    pp: int = 1
    dcp: int = 1
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_running_requests: int | None = None
    speculative_tokens: int = 0
    speculative_layers: int = 0
    prefix_caching: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    disable_hybrid_swa_memory: bool = False
    swa_full_tokens_ratio: str | None = None
    mamba_full_memory_ratio: str | None = None
    sequences: int | None = None
    ubatch: int | None = None
    kv_unified: bool = False
    swa_full: bool = False
    cache_implementation: str | None = None
    residual_length: int | None = None
    source: int | None = None
    swap_space: int | None = None
    device_memory: int | None = None
    device: str = ""
    n_kv_heads: int | None = None
    gpus: int = 1
    model_type: str | None = None
    attentions: frozenset[str] = frozenset()

    @property
    def given(self) -> frozenset[str]:
        """The optional fields that differ from their defaults."""
        optional = (f for f in dataclasses.fields(self) if f.default is not dataclasses.MISSING)
        return frozenset(f.name for f in optional if getattr(self, f.name) != f.default)

    def only(self, engine: str, understood: frozenset[str]) -> None:
        """AttncalcError: a setting was given that `engine` does not have.

        tp, the source, the device and the model are every engine's.
        """
        strange = sorted(self.given - understood - _FOUND)
        if strange:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in strange)
            raise AttncalcError(
                f"{options} {'have' if len(strange) > 1 else 'has'} no effect on engine {engine}",
                "leave it out, or choose the engine that has it with --engine",
            )


_FOUND = frozenset({"tp", "source", "device_memory", "device", "n_kv_heads", "model_type", "attentions"})
"""What every engine finds, and nobody tells it."""


class Detail(NamedTuple):
    """A figure on the way to an engine's answer: its name in JSON, its label, the figure and its unit."""

    name: str
    label: str
    quantity: Quantity | Ratio
    unit: str


class Pool(NamedTuple):
    """What a memory holds, for sequences of one context.

    blocks: of all layers together; None for an engine without blocks. tokens: as the engine counts and
    prints them. concurrency: how many such sequences, as the engine prints it. details: the figures on the
    way. log_lines: the lines of the engine's own log that say so.
    """

    blocks: Quantity | None
    tokens: Quantity
    concurrency: Ratio
    details: tuple[Detail, ...]
    log_lines: tuple[str, ...]


class CacheLayout(Protocol):
    """How an engine stores one model's caches on one device (of several, the one with the least room)."""

    @property
    def bound(self) -> Bound:
        """What its bytes are."""

    @property
    def version(self) -> str | None:
        """The engine's version that it is of; None for an engine without versions."""

    @property
    def facts(self) -> tuple[str, ...]:
        """The settings it uses, defaults too, in the engine's words: 'block size 16', 'version 0.33.0'."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: where it was not told and assumes, what it does not count."""

    @property
    def source(self) -> str:
        """The engine's files that its formulas are from."""

    @property
    def most(self) -> int | None:
        """Sequences that it runs at once at the most, whatever the memory; None where nothing says so."""

    @property
    def parts(self) -> Sequence[CacheLayout]:
        """The layout of each GPU, or each pipeline stage, with layers of its own; () where one stands for all."""

    def needed(self, batch: int, context: int) -> int:
        """Bytes in which `batch` sequences of `context` tokens each fit at once, on one device."""

    def pool(self, memory: int, context: int) -> Pool:
        """What `memory` bytes of one device hold, for sequences of `context` tokens."""
