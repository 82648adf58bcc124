"""How transformers is found, and how it runs a model's own class with random weights."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ...engines.base import EngineArgs, Limits
from ...errors import CannotCheckError
from ...records import NamedTuple
from .. import INSTALL_BOTH
from .start import Installed, engine_environment

INSTALL = INSTALL_BOTH
CONTEXT = "--context"
DTYPE = "--dtype"
PLAIN = ()
LOADS_GGUF = False
SIZES_CACHE = False
COMPLETE = ()
STEPS = (
    ("class: ", "makes random weights"),
    ("weights: ", "runs the prefill"),
    ("cache: ", "runs a decode step"),
)
CPU_SPACE = ""
CPU_FLAGS = ()
CPU_FACTS: dict[str, bool] = {}
FOLDERS = ("HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
# Seconds that a Python has to say which packages it has.
_SECONDS = 30
_HAS_BOTH = (
    "from importlib.util import find_spec; "
    "raise SystemExit(not (find_spec('torch') and find_spec('transformers')))"
)
# The lines of transformers_class.py.
_CLASS = re.compile(
    r"^class: transformers (\S{1,40}), torch \S{1,40}, on (cuda|cpu)$", re.MULTILINE
)
_WEIGHTS = re.compile(
    r"^weights: (\d{1,18}) bytes of (\w{1,100}), (\d{1,18}) in buffers, (\d{1,18}) of fp32$",
    re.MULTILINE,
)
_CACHE = re.compile(
    r"^cache: (\d{1,12}) tokens, (\d{1,18}) bytes, (\d{1,18}) held, (.{0,200})$", re.MULTILINE
)
# What torch raises if a GPU, or the host, has not the memory.
_OUT_OF_MEMORY = re.compile(
    r"^.{0,40}OutOfMemoryError: .{1,400}|^.{0,80}DefaultCPUAllocator: can't allocate .{1,300}",
    re.MULTILINE,
)


class MeasuredCache(NamedTuple):
    """The cache after a pass."""

    tokens: int  # tokens of the sequence in it
    size: int  # bytes of its tensors' elements
    held: int  # bytes of the memory that they hold, if they are views of larger tensors
    classes: str  # the names of its classes


class ClassRun(NamedTuple):
    """What a run of a class has printed so far."""

    version: str  # of transformers
    device: str  # 'cuda' or 'cpu'
    name: str = ""  # the class; '' before its weights are made
    weights: int = 0  # bytes of its weights
    buffers: int = 0  # bytes of them in buffers, such as a router's biases
    wider: int = 0  # bytes of them that parameters in fp32 have more than in the dtype asked for
    caches: tuple[MeasuredCache, ...] = ()  # after the prefill, and after the decode step
    out_of_memory: str = ""  # the line that says that memory ran out

    @property
    def is_complete(self) -> bool:
        """Whether it has all figures: of the weights, the prefill and the decode step."""
        return bool(self.name) and len(self.caches) > 1


def find() -> Installed:
    """Return the Python that has transformers and torch: this one, or one on PATH.

    Raises CannotCheckError if there is none.
    """
    for name in (sys.executable, "python3", "python"):
        python = shutil.which(name)
        if python and _has_both(python):
            return Installed(Path(python), Path(python))
    raise CannotCheckError(
        "transformers is not installed: no Python here has it with torch", INSTALL
    )


def _has_both(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _HAS_BOTH],
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def command(installed: Installed, model: Path, words: Sequence[str]) -> list[str]:
    """Return the command that runs the class of a folder with further options."""
    program = Path(__file__).with_name("transformers_class.py")
    return [os.fspath(installed.program), "-I", os.fspath(program), os.fspath(model), *words]


def environment(folder: Path, cache_gib: int | None) -> dict[str, str]:
    """Return the environment of the class, whose caches and temporary files are in `folder`."""
    return engine_environment(folder, {"TRANSFORMERS_VERBOSITY": "error"}, FOLDERS)


def cpu_defaults(args: EngineArgs, limits: Limits, *, has_states: bool) -> dict[str, str]:
    """Return {}: a CPU has no defaults of its own."""
    return {}


def read_run(log: bytes) -> ClassRun | None:
    """Return what a run has printed; None before its first line."""
    text = log.decode("utf-8", "replace")
    started = _CLASS.search(text)
    if started is None:
        return None
    run = ClassRun(started[1], started[2])
    made = _WEIGHTS.search(text)
    if made:
        size, name, buffers, wider = made.groups()
        run = run._replace(weights=int(size), name=name, buffers=int(buffers), wider=int(wider))
    caches = [
        MeasuredCache(int(found[1]), int(found[2]), int(found[3]), found[4])
        for found in _CACHE.finditer(text)
    ]
    failed = _OUT_OF_MEMORY.search(text)
    return run._replace(caches=tuple(caches), out_of_memory=failed[0].strip() if failed else "")
