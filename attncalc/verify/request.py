"""The complete request for one model on one device, from the options of the command."""

import torch

from ..cost.common import compute_dtype
from ..errors import AttncalcError, did_you_mean
from ..model import ModelSpec
from ..records import NamedTuple
from ..units import count, dtype, truncate
from ..workload import Workload
from .devices import DTYPES, Device
from .extra_kernels import EXTRA_KERNELS, is_compiled, missing
from .kernels import BACKENDS
from .options import DEFAULT_CONTEXT, Program, VerifyOptions

# Decode steps that are run after a prefill.
DECODE_STEPS = 2
# The shortest context that has a prefill and those steps.
MIN_CONTEXT = DECODE_STEPS + 2


class VerifyRequest(NamedTuple):
    batch: int  # sequences
    context: int  # tokens of context
    source: int | None  # tokens on the encoder's side; None without an encoder
    dtype: str  # dtype of weights and activations: 'fp32', 'fp16' or 'bf16'
    kernels: tuple[str, ...]  # backends of torch's attention to try
    seed: int = 0  # of the random weights and tokens
    seconds: float | None = None  # seconds that the program may take; None for any time
    program: Program = "layers"  # what is run
    timed: bool = True  # whether to measure times too

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    def prefill(self, context: int | None = None) -> Workload:
        """Return the prefill of all tokens, or of the first `context`, for the cost functions."""
        return Workload.prefill(
            self.batch, context or self.context, source=self.source, dtype=self.dtype
        )

    def decode(self, context: int | None = None) -> Workload:
        """Return the decode step of the last token, or of the token number `context`, for the cost
        functions.
        """
        return Workload.decode(
            self.batch, context or self.context, source=self.source, dtype=self.dtype
        )


def resolve(model: ModelSpec, options: VerifyOptions, device: Device) -> VerifyRequest:
    """Return the complete request for one model on a device.

    The default context is the model's maximum, but at most DEFAULT_CONTEXT; the default dtype is
    the device's, or the model's own. Raises AttncalcError if the kernel or the dtype is unknown, or
    the context too short.
    """
    defaults = DEFAULT_CONTEXT[options.program]
    longest = model.max_context or defaults["cuda"]
    context = options.context or max(MIN_CONTEXT, min(longest, defaults[device.type]))
    if context < MIN_CONTEXT:
        raise AttncalcError(
            f"--context {count(context)} is too short: verify runs a prefill and {DECODE_STEPS} "
            "decode steps",
            f"give at least --context {MIN_CONTEXT}",
        )
    source = options.source
    if model.encoder and source is None:
        source = min(model.encoder.max_context or context, context)
    if options.dtype is None:
        name = default_dtype(model, device)
    else:
        name = parse_dtype(options.dtype)
    kernels = _parse_kernels(options.kernel, device)
    seconds = 60 * options.minutes
    return VerifyRequest(
        options.batch,
        context,
        source,
        name,
        kernels,
        options.seed,
        seconds,
        options.program,
        options.timed,
    )


def default_dtype(model: ModelSpec, device: Device | None = None) -> str:
    """Return the model's own dtype, bf16 if torch's layers cannot run in it; or what the device
    runs in its place.
    """
    released = compute_dtype(model, Workload.decode(1, 1)).name
    name = released if released in DTYPES else "bf16"
    if device is None:
        return name
    return device.dtype_for(name)


def parse_dtype(text: str) -> str:
    """Return the name of a dtype. Raises AttncalcError if torch's layers cannot run in it."""
    try:
        name = dtype(text, compute=True).name
    except AttncalcError:
        name = ""
    if name not in DTYPES:
        raise AttncalcError(
            f"verify cannot run layers in dtype '{truncate(text)}'", f"known: {', '.join(DTYPES)}"
        )
    return name


def _parse_kernels(text: str, device: Device) -> tuple[str, ...]:
    if text == "all":
        if not device.runs_extra_kernels:
            return device.kernels
        installed = [kernel for kernel in EXTRA_KERNELS if not missing(kernel)]
        return (*device.kernels, *(kernel for kernel in installed if not is_compiled(kernel)))
    known = (*BACKENDS, *EXTRA_KERNELS)
    if "," in text:
        raise AttncalcError(
            f"--kernel takes one kernel, and not '{truncate(text)}'",
            f"give one of them, or all; known: all, {', '.join(known)}",
        )
    if text not in known:
        hint = did_you_mean(text, known)
        raise AttncalcError(
            f"unknown kernel '{truncate(text)}'", f"{hint}known: all, {', '.join(known)}"
        )
    if text in EXTRA_KERNELS and not device.runs_extra_kernels:
        raise AttncalcError(
            f"--kernel {text} needs a GPU", f"this device runs {', '.join(device.kernels)}"
        )
    if missing(text):
        raise AttncalcError(
            f"--kernel {text} cannot run: {missing(text)}",
            "leave out --kernel to use what is installed",
        )
    return (text,)
