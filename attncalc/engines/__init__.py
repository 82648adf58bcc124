"""How each serving engine stores what a model's layers cache.

An engine is a package of this one with a module `engine.py`, which has the class (an `Engine`) as
ENGINE, and one line in ENGINES. The packages have the same files: `options.py`, `versions.py`,
`layout.py`, `runtime.py` and `launch.py`, as far as the engine has such things.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import AttncalcError, BadValueError, known_tip
from ..units import truncate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .engine import Engine, PerLayerEngine

# The engines by name, each with its module, which is imported on first use.
ENGINES = {
    "vllm": ".vllm.engine",
    "sglang": ".sglang.engine",
    "llamacpp": ".llamacpp.engine",
    "transformers": ".transformers.engine",
    "ideal": ".ideal",
}
DEFAULT_ENGINE = "vllm"
# {program that starts an engine with defaults of its own: the engine}.
RUNNERS = {"ollama": "llamacpp", "lmstudio": "llamacpp"}
# Words of the commands that start engines, by which one is recognised before its engine is
# imported.
PROGRAMS = {
    "vllm",
    "vllm.entrypoints.openai.api_server",
    "sglang",
    "sglang.launch_server",
    "llama-server",
    "llama-cli",
    "llama-bench",
    "ollama",
}


def find_engine(name: str) -> Engine[Any]:
    """Return the engine of that name, as people write it too: 'llama.cpp'. Raises AttncalcError if
    there is none.
    """
    name = _plain(name)
    if name not in ENGINES:
        raise _unknown(name, (*ENGINES, *RUNNERS))
    return _engine_at(ENGINES[name])


@cache
def _engine_at(module: str) -> Engine[Any]:
    """Return the engine of a module. `import_module` takes 20 us, and a plan asks 10,000 times."""
    found: Engine[Any] = import_module(module, __name__).ENGINE
    return found


def per_layer_engine(name: str) -> PerLayerEngine[Any]:
    """Return the engine of that name, if its bytes can be computed layer by layer.

    Raises AttncalcError if there is no such engine, or if it allocates memory for all layers
    together.
    """
    from .engine import PerLayerEngine

    name = _plain(name)
    if name not in ENGINES:
        raise _unknown(
            name, [known for known in ENGINES if isinstance(find_engine(known), PerLayerEngine)]
        )
    found = find_engine(name)
    if not isinstance(found, PerLayerEngine):
        raise AttncalcError(
            f"engine {name} allocates memory for all layers together, so it has no bytes per layer",
            f"use 'attncalc fit MODEL --gpu h100 --engine {name}'",
        )
    return found


def is_runner(name: object) -> bool:
    """Return whether it is a program that starts an engine with defaults of its own, as Ollama."""
    return "".join(filter(str.isalnum, str(name).lower())) in RUNNERS


def _plain(name: str) -> str:
    plain = "".join(filter(str.isalnum, name.lower()))
    return RUNNERS.get(plain, plain)


def _unknown(name: str, known: Iterable[str]) -> AttncalcError:
    return BadValueError(f"there is no engine '{truncate(name)}'", known_tip(name, known))
