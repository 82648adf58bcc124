"""The options of `attncalc fit` that divide a model between GPUs and host memory, as llama.cpp does."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

from typing import Annotated, Any

import typer

from ..errors import AttncalcError
from ..serving.gpu_layers import AUTO
from ..units import parse_decimal, truncate
from .command import Options
from .fit_options import count_or_zero
from .options import Text, option

ALL_LAYERS = 10**6
"""More layers than any model has: the value of --n-cpu-moe for --cpu-moe."""


def gpu_layers(text: str, name: str) -> int | str | None:
    """Return a number of layers, 'auto', or None for 'all'. Raises AttncalcError for another text."""
    if text in (AUTO, "all"):
        return None if text == "all" else AUTO
    try:
        return count_or_zero(text, name)
    except AttncalcError:
        raise AttncalcError(
            f"{name}: '{truncate(text)}' is not a number of layers", "give a number, auto or all"
        ) from None


def shares(text: str, name: str) -> tuple[float, ...]:
    """Return the share of each GPU, from '3,1'. Raises AttncalcError if one is not a number from 0 on."""
    numbers = []
    for part in text.replace("/", ",").split(","):
        if part.strip() in ("0", "0.0"):
            numbers.append(0.0)
            continue
        numerator, denominator = parse_decimal(part, name, upper=10**6)
        numbers.append(numerator / denominator)
    if not any(numbers):
        raise AttncalcError(f"{name}: all shares are 0", "give one share per GPU, as 3,1")
    return tuple(numbers)


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
        gpu_layers,
    ] = None
    n_cpu_moe: Annotated[
        Text,
        option(
            "--n-cpu-moe",
            "-ncmoe",
            metavar="N",
            help="llama.cpp: the routed experts of the first N layers on the host.",
        ),
        count_or_zero,
    ] = None
    cpu_moe: Annotated[bool, typer.Option("--cpu-moe", "-cmoe", help="llama.cpp: all experts on the host.")] = False
    tensor_split: Annotated[
        Text,
        option("--tensor-split", "-ts", metavar="N,N,...", help="llama.cpp: share of the layers on each GPU, as 3,1."),
        shares,
    ] = None
    no_kv_offload: Annotated[
        bool, typer.Option("--no-kv-offload", "-nkvo", help="llama.cpp: the cache in host memory.")
    ] = False

    def parsed(self) -> dict[str, Any]:
        """Return {argument: value}; --cpu-moe is --n-cpu-moe of all layers. Raises AttncalcError if both are given."""
        values = super().parsed()
        if not values["no_kv_offload"]:
            values.pop("no_kv_offload")
        if values.pop("cpu_moe"):
            if "n_cpu_moe" in values:
                raise AttncalcError("--cpu-moe cannot be combined with --n-cpu-moe", "give one of them")
            values["n_cpu_moe"] = ALL_LAYERS
        return values

    def check_gpu(self, gpu: Any) -> None:
        """Raise AttncalcError if an option was given, and no GPU that it could divide the model with."""
        for name in self.parsed() if gpu is None else ():
            raise AttncalcError(f"--{name.replace('_', '-')} needs --gpu", "give the GPU, as --gpu rtx-4090")
