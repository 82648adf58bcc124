"""How each serving engine stores what a model's layers cache.

An engine is one module (or package) of this package, and one line in ENGINES. Its module has:

- NAME, its name on the command line, and DEFAULTS, an `EngineDefaults`;
- layout(specs, args), which returns a `CacheLayout` and answers what fits (`attncalc fit`);
- layer_bytes and token_bytes, only if its bytes can be computed layer by layer (`attncalc kv`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ..attention import CacheSpec
from ..errors import AttncalcError, did_you_mean
from ..units import DType, truncate
from ..workload import Workload

if TYPE_CHECKING:
    from .base import CacheLayout, EngineArgs
    from .defaults import EngineDefaults
    from .pipeline import LayerCacheSpec

ENGINES = {
    "vllm": ".vllm",
    "sglang": ".sglang",
    "llamacpp": ".llamacpp",
    "transformers": ".transformers",
    "ideal": ".ideal",
}
"""The engines by name, each with its module, which is imported on first use."""


class Engine(Protocol):
    """An engine whose bytes can be computed layer by layer."""

    NAME: str

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that one layer stores of `cached` for the whole batch."""

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Return the bytes that the next token of one sequence adds to one layer."""


def per_layer_engine(name: str) -> Engine:
    """Return the engine of that name, if its bytes can be computed layer by layer.

    Raises AttncalcError if there is no such engine, or if it allocates memory for all layers together.
    """
    if name not in ENGINES:
        raise _unknown(name, [known for known in ENGINES if hasattr(_module(known), "layer_bytes")])
    module = _module(name)
    if not hasattr(module, "layer_bytes"):
        raise AttncalcError(
            f"engine {name} allocates memory for all layers together, so it has no bytes per layer",
            f"use 'attncalc fit --engine {name}'",
        )
    engine: Engine = module
    return engine


def layout(name: str, specs: Sequence[LayerCacheSpec], args: EngineArgs) -> CacheLayout:
    """Return how the engine of that name stores those layers.

    Raises AttncalcError if there is no such engine, or if it does not support these layers or arguments.
    """
    cache_layout: CacheLayout = _module(name).layout(specs, args)
    return cache_layout


def engine_defaults(name: str) -> EngineDefaults:
    """Return the defaults of the engine of that name. Raises AttncalcError if there is no such engine."""
    defaults: EngineDefaults = _module(name).DEFAULTS
    return defaults


def _module(name: str) -> Any:
    if name not in ENGINES:
        raise _unknown(name, ENGINES)
    return import_module(ENGINES[name], __name__)


def _unknown(name: str, known: Iterable[str]) -> AttncalcError:
    known = list(known)
    return AttncalcError(
        f"there is no engine '{truncate(name)}' here", f"{did_you_mean(name, known)}known: {', '.join(known)}"
    )
