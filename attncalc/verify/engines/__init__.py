"""Real engines, started on this machine with random weights: `verify --engine`.

- guard.py: the process that runs an engine, and leaves nothing of it.
- start.py: that process as an object, and the log as it comes.
- checkpoint.py: a model's folder for an engine: a config.json, and no weights.
- gguf.py: a GGUF file for llama.cpp, whose weights are a hole.
- vllm.py, sglang.py, llamacpp.py, transformers.py: how each engine is found and started.
- llamacpp_library.py, transformers_class.py: programs that run a library in its own Python.

They do not need torch here: an engine is a program, with a Python of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from ...engines.base import EngineArgs, Limits
    from .start import Installed

# The engines that can be started: modules of this package.
STARTED = ("vllm", "sglang", "llamacpp", "transformers")


class Starter(Protocol):
    """The module of an engine."""

    INSTALL: str  # what installs it
    CONTEXT: str  # its option of the context
    DTYPE: str  # its option of the dtype of weights, which takes torch's names; '' without one
    PLAIN: Sequence[str]  # further options where none are given
    LOADS_GGUF: bool  # whether it loads a GGUF file, and no folder with a config.json
    SIZES_CACHE: bool  # whether it makes its cache as large as memory allows, not as asked
    COMPLETE: Sequence[str]  # figures of a log of which any completes it
    # (words in a log, what it is doing), of which the last in the log counts
    STEPS: Sequence[tuple[str, str]]
    CPU_SPACE: str  # the variable with the GiB of its cache on a CPU; '' for a device as any other
    CPU_FACTS: Mapping[str, Any]  # options of `fit` that hold there, whatever is given
    CPU_FLAGS: Sequence[str]  # arguments that are set there, by their names in Python

    def find(self) -> Installed:
        """Return what is installed. Raises CannotCheckError if nothing is."""

    def command(self, installed: Installed, model: Path, words: Sequence[str]) -> list[str]:
        """Return the command that starts it with a model and further options."""

    def environment(self, folder: Path, cache_gib: int | None) -> dict[str, str]:
        """Return its environment: its caches and temporary files are in `folder`.

        `cache_gib` is the memory of the cache on a CPU, if a variable sets it.
        """

    def cpu_defaults(self, args: EngineArgs, limits: Limits, *, has_states: bool) -> dict[str, str]:
        """Return {argument: value} for which it has other defaults on a CPU than on a GPU.

        `has_states` is whether the model has recurrent layers.
        """


def starter(engine: str) -> Starter:
    """Return the module of an engine. `engine` is one of STARTED."""
    return cast("Starter", import_module(f"{__name__}.{engine}"))
