"""How llama.cpp is found and started: llama-server, or else the library of the Python package
llama-cpp-py-sync.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ...engines.base import EngineArgs, Limits
from ...errors import CannotCheckError
from .start import Installed, engine_environment, without_options

INSTALL = "put llama-server on PATH, or pip install llama-cpp-py-sync, which only plans"
CONTEXT = "-c"
DTYPE = ""
PLAIN = ("-np", "1")  # one slot, whose context is that of -c
LOADS_GGUF = True
SIZES_CACHE = False
COMPLETE = ("compute_buffer", "cpu_compute_buffer")
STEPS = (("llama_model_loader", "reads the file"), ("llama_context", "makes its buffers"))
CPU_SPACE = ""
CPU_FLAGS = ()
CPU_FACTS: dict[str, bool] = {}
_PROGRAM = "llama-server"
# Options of the start itself: the warm-up reads weights, which are a hole.
OPTIONS = ("--no-warmup", "--host", "127.0.0.1")
# Options of a pasted command that the start has its own values for, with the words that follow.
OWN = {
    "--host": 1,
    "--port": 1,
    "--api-key": 1,
    "--no-warmup": 0,
    "--jinja": 0,
    "--chat-template": 1,
    "-a": 1,
    "--alias": 1,
}
_FIRST_PORT = 31_000
_PORTS = 20_000
# Seconds that a Python has to say whether it has the package.
_SECONDS = 30


def find() -> Installed:
    """Return llama-server, or a Python that has the library.

    Raises CannotCheckError if neither is there.
    """
    server = shutil.which(_PROGRAM)
    if server is not None:
        return Installed(Path(server), Path())
    for name in ("python3", "python"):
        python = shutil.which(name)
        if python and _has_library(python):
            return Installed(Path(python), Path(python), is_library=True)
    raise CannotCheckError(
        "llama.cpp is not installed: there is no llama-server on PATH, and no Python with "
        "llama_cpp_py_sync",
        INSTALL,
    )


def _has_library(python: str) -> bool:
    command = [python, "-I", "-c", "import llama_cpp_py_sync._cffi_bindings"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def command(installed: Installed, model: Path, words: Sequence[str]) -> list[str]:
    """Return the command that loads a file with further options."""
    own = without_options(words, OWN)
    if not installed.is_library:
        port = str(_FIRST_PORT + os.getpid() % _PORTS)
        start = [os.fspath(installed.program), "-m", os.fspath(model)]
        return [*start, *own, *OPTIONS, "--port", port]
    program = Path(__file__).with_name("llamacpp_library.py")
    return [os.fspath(installed.python), "-I", os.fspath(program), os.fspath(model), *own]


def environment(folder: Path, cache_gib: int | None) -> dict[str, str]:
    """Return the environment of the engine, whose temporary files are in `folder`."""
    return engine_environment(folder, {}, ("LLAMA_CACHE",))


def cpu_defaults(args: EngineArgs, limits: Limits, *, has_states: bool) -> dict[str, str]:
    """Return {}: a CPU has no defaults of its own."""
    return {}
