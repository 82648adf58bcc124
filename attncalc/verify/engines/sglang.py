"""How SGLang is found and started, with random weights. No machine of attncalc's tests runs it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ...engines.base import EngineArgs, Limits
from ...errors import CannotCheckError
from .checkpoint import python_of
from .start import Installed, engine_environment, without_options

INSTALL = "pip install 'sglang[all]'"
CONTEXT = "--context-length"
DTYPE = "--dtype"
PLAIN = ()
LOADS_GGUF = False
SIZES_CACHE = True
COMPLETE = ("kv_tokens", "full_kv_tokens")
STEPS = (
    ("server_args", "starts its processes"),
    ("Load weight begin", "makes random weights"),
    ("Load weight end", "makes its pools"),
)
CPU_SPACE = ""
CPU_FLAGS = ()
CPU_FACTS: dict[str, bool] = {}
# Random weights, no tokenizer, and a port that is hardly used; SGLang counts further ports from it.
OPTIONS = (
    "--load-format",
    "dummy",
    "--skip-tokenizer-init",
    "--host",
    "127.0.0.1",
    "--skip-server-warmup",
)
# Options of a pasted command that the start has its own values for, with the words that follow.
OWN = {
    "--load-format": 1,
    "--skip-tokenizer-init": 0,
    "--host": 1,
    "--port": 1,
    "--tokenizer-path": 1,
    "--tokenizer-mode": 1,
    "--revision": 1,
    "--served-model-name": 1,
    "--api-key": 1,
    "--skip-server-warmup": 0,
}
FOLDERS = ("HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "SGLANG_CACHE_DIR")
# Ports are chosen from here on, by the number of the process.
_FIRST_PORT = 31_000
_PORTS = 20_000


def find() -> Installed:
    """Return the installed SGLang: its program, or the Python of this process if it has the
    module.

    Raises CannotCheckError if there is none.
    """
    found = shutil.which("sglang")
    if found is not None:
        return Installed(Path(found), python_of(Path(found)))
    from importlib.util import find_spec

    if find_spec("sglang") is None:
        raise CannotCheckError("SGLang is not installed: there is no program sglang", INSTALL)
    return Installed(Path(sys.executable), Path(sys.executable))


def command(installed: Installed, model: Path, words: Sequence[str]) -> list[str]:
    """Return the command that serves the model of a folder with further options."""
    own = without_options(words, OWN)
    port = str(_FIRST_PORT + os.getpid() % _PORTS)
    start = [os.fspath(installed.python), "-m", "sglang.launch_server"]
    return [*start, "--model-path", os.fspath(model), *own, *OPTIONS, "--port", port]


def environment(folder: Path, cache_gib: int | None) -> dict[str, str]:
    """Return the environment of the engine, whose caches and temporary files are in `folder`."""
    return engine_environment(folder, {}, FOLDERS)


def cpu_defaults(args: EngineArgs, limits: Limits, *, has_states: bool) -> dict[str, str]:
    """Return {}: a CPU has no defaults of its own."""
    return {}
