"""How each serving engine stores what a model's layers keep. A new engine is a file and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from ..attention import CacheSpec
from ..errors import AttncalcError, did_you_mean
from ..units import DType, truncate
from ..workload import Workload
from . import ideal, transformers

if TYPE_CHECKING:
    from .base import CacheLayout, EngineArgs
    from .defaults import EngineDefaults
    from .pipeline import LayerCacheSpec


class Engine(Protocol):
    """A module that turns what a layer keeps into bytes."""

    NAME: str

    def layer_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Bytes that one layer keeps of `cached` for the whole batch."""

    def token_bytes(self, cached: CacheSpec, workload: Workload, kv_dtype: DType) -> int:
        """Bytes that one more token of one sequence adds to what a layer keeps."""


ENGINES: dict[str, Engine] = {"ideal": ideal, "transformers": transformers}


def engine(name: str) -> Engine:
    """The engine of that name. AttncalcError: for a name that is not one."""
    if name in SERVING and name not in ENGINES:
        raise AttncalcError(
            f"{name} sets memory aside by its own rules, not by layer", f"'attncalc fit --engine {name}' says what"
        )
    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES)
        raise AttncalcError(f"there is no engine '{truncate(name)}' here", f"{hint}known: {', '.join(ENGINES)}")
    return ENGINES[name]


SERVING = {
    "vllm": ".vllm",
    "sglang": ".sglang",
    "llamacpp": ".llamacpp",
    "transformers": ".unpaged.transformers",
    "ideal": ".unpaged.ideal",
}
"""The engines that say what fits, each a module with `layout` and `DEFAULTS`, imported when it is asked."""


def layout(name: str, kept: Sequence[LayerCacheSpec], args: EngineArgs) -> CacheLayout:
    """How the engine of that name stores those layers. AttncalcError: there is none, or it cannot store them."""
    made: CacheLayout = _serving(name).layout(kept, args)
    return made


def engine_defaults(name: str) -> EngineDefaults:
    """What the engine of that name does where nobody has said. AttncalcError: there is none."""
    found: EngineDefaults = _serving(name).DEFAULTS
    return found


def _serving(name: str) -> Any:
    if name not in SERVING:
        hint = did_you_mean(name, SERVING)
        raise AttncalcError(f"there is no engine '{truncate(name)}' here", f"{hint}known: {', '.join(SERVING)}")
    return import_module(SERVING[name], __name__)
