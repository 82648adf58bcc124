"""The options of `verify`."""

from typing import Annotated

from ...cost.kernels import KERNELS as TORCH_KERNELS
from ...errors import AttncalcError
from ...options import COUNT, TEXT, Count, Parser, With, options_of
from ...units import parse_decimal, truncate
from ..options import OTHER_CONTEXTS, TP, SizeOptions, WhatIfOptions

# Attention kernels that may run: torch's own, and those of other libraries.
KERNELS = (*TORCH_KERNELS, "flex", "flash_attn2", "flash_attn3")
# The largest --minutes.
MAX_MINUTES = 366 * 24 * 60


def _seed(text: str, name: str) -> int:
    """Return a seed. Raises AttncalcError if torch does not take it."""
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) < 2**63:
        return int(text)
    raise AttncalcError(
        f"{name}: '{truncate(text)}' is not a whole number from 0 to 2^63 - 1",
        "write a whole number, as --seed 7",
    )


def _minutes(text: str, name: str) -> float:
    """Return a number of minutes. Raises AttncalcError if it is not a number of at most a year."""
    try:
        minutes, parts = parse_decimal(text, name, upper=MAX_MINUTES)
    except AttncalcError as error:
        raise AttncalcError(
            error.message, "write a number of minutes: 10, or 0.5 for 30 seconds"
        ) from None
    return minutes / parts


class RunOptions(WhatIfOptions, total=False):
    """What is run, on which device, and how long it may take."""

    device: Annotated[
        str, "auto, cpu, cuda, cuda:1, xpu or mps. Default: auto.", With(metavar="DEVICE")
    ]
    simulate: Annotated[
        str,
        "Instead of a device: check shapes and memory on a GPU that is not there: cuda, or the "
        "name of one of NVIDIA's or an AMD Instinct.",
        With(metavar="GPU", also="--gpu"),
    ]
    tp: Annotated[
        Count,
        TP.but(
            help="With --simulate: tensor-parallel devices, of which one is simulated. Default: 1.",
            common=False,
        ),
    ]
    dtype: Annotated[
        str,
        "fp32, fp16 or bf16. Default: as released; on a CPU fp32.",
        With(also="--torch-dtype", metavar="DTYPE"),
    ]
    batch: Annotated[Count, options_of(SizeOptions)["batch"]]
    context: Annotated[
        Count,
        COUNT,
        "Tokens of context. Default: what the device runs quickly. Shortened if it does not fit.",
        With(names="--context -c --max-model-len", also=OTHER_CONTEXTS),
    ]
    source_context: Annotated[
        Count, COUNT, "Tokens on the encoder's side. Default: the same as --context."
    ]
    kernel: Annotated[
        str,
        TEXT._replace(metavar="KERNEL", known=KERNELS),
        f"{', '.join(KERNELS[:-1])} or {KERNELS[-1]}. Default: all that the device runs.",
    ]
    seed: Annotated[str, Parser(_seed, "N"), "Seed of the random weights and tokens. Default: 0."]
    smoke: Annotated[
        bool, "Instead: a check of 30 seconds on any device, with a line to paste into an issue."
    ]
    scaling: Annotated[bool, "Instead: measure time and peak memory over doubling contexts."]
    train: Annotated[
        bool,
        "Instead: train one layer of each kind, and check what it saves, its states and the peak.",
    ]
    against: Annotated[
        str,
        "Instead: build the model's own class of LIBRARY (transformers), without weights, and "
        "compare.",
        With(metavar="LIBRARY"),
    ]
    engine: Annotated[
        str,
        "Instead: start the installed ENGINE (vllm, sglang, llamacpp, transformers) with random "
        "weights, and compare it with 'attncalc fit'. Its own command may follow after --.",
        With(metavar="ENGINE"),
    ]
    save: Annotated[
        str,
        "With --engine on a GPU: add what this machine takes beyond the formulas to FILE, a .yaml "
        "for --gpu.",
        With(metavar="FILE"),
    ]
    minutes: Annotated[
        str,
        Parser(_minutes, "N"),
        "Time that it may take: contexts are shortened. Default: 1; 10 without a model (2 "
        "with --simulate), for --record and for --engine.",
    ]
    record: Annotated[
        str,
        "Instead: measure what the device can do in --minutes, and write it as JSON into DIR.",
        With(metavar="DIR"),
    ]
