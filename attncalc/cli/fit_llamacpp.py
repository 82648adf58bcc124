"""The options of `attncalc fit` that divide a model between GPUs and host memory, as llama.cpp does."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

from typing import Annotated

import typer

from .command import Options
from .options import Text, option


class OffloadOptions(Options):
    """Which layers and caches llama.cpp puts on GPUs."""

    n_gpu_layers: Annotated[
        Text,
        option(
            "--n-gpu-layers",
            "--gpu-layers",
            "-ngl",
            metavar="N",
            help="llama.cpp: layers on GPUs; the output layer counts as one. auto: the most that fit. Default: all.",
        ),
    ] = None
    n_cpu_moe: Annotated[
        Text,
        option(
            "--n-cpu-moe",
            "-ncmoe",
            metavar="N",
            help="llama.cpp: the routed experts of the first N layers on the host.",
        ),
    ] = None
    cpu_moe: Annotated[bool, typer.Option("--cpu-moe", "-cmoe", help="llama.cpp: all experts on the host.")] = False
    tensor_split: Annotated[
        Text,
        option("--tensor-split", "-ts", metavar="N,N,...", help="llama.cpp: share of the layers on each GPU, as 3,1."),
    ] = None
    no_kv_offload: Annotated[
        bool, typer.Option("--no-kv-offload", "-nkvo", help="llama.cpp: the cache in host memory.")
    ] = False
