"""From options in words to what is asked of a device."""

from __future__ import annotations

from typing import NamedTuple

from ..cost.common import compute_dtype
from ..errors import AttncalcError, did_you_mean
from ..model import ModelSpec
from ..units import count, dtype, truncate
from ..workload import Workload
from .device import DTYPES, Device
from .kernels import BACKENDS
from .plan import LEAST
from .subject import Asked

KERNELS = {"cpu": ("math", "flash"), "mps": ("math",), "cuda": tuple(BACKENDS)}
"""Backends of torch's attention that a kind of device may have."""


DEFAULT_CONTEXT = {
    "model": {"cpu": 128, "mps": 512, "cuda": 4096},
    "scaling": {"cpu": 1024, "mps": 4096, "cuda": 16_384},
    "parallel": {"cpu": 128, "mps": 128, "cuda": 128},
}
"""Tokens that a kind of device does quickly, by the way to verify."""


class Options(NamedTuple):
    """What the command line gave; None for what it left open."""

    batch: int = 1
    context: int | None = None
    source: int | None = None
    dtype: str | None = None
    kernel: str = "all"
    seed: int = 0


def asked(model: ModelSpec, options: Options, device: Device, way: str = "model") -> Asked:
    """The question for one model. AttncalcError: a kernel or a dtype that there is not, a context that is too short.

    Left open, the context is the model's own longest, but no more than DEFAULT_CONTEXT for this way to verify
    and kind of device; the dtype the model's own, on a CPU fp32.
    """
    most = DEFAULT_CONTEXT[way][device.kind]
    context = options.context or max(LEAST, min(model.max_context or most, most))
    if context < LEAST:
        raise AttncalcError(
            f"--context {count(context)} is too short: a prefill and a few decode steps are run",
            f"give at least {LEAST}",
        )
    source = options.source
    if model.encoder and source is None:
        source = min(model.encoder.max_context or context, context)
    return Asked(
        options.batch,
        context,
        source,
        _dtype(model, options.dtype, device),
        _kernels(options.kernel, device),
        options.seed,
    )


def _dtype(model: ModelSpec, given: str | None, device: Device) -> str:
    return known_dtype(given) if given is not None else "fp32" if device.kind == "cpu" else own_dtype(model)


def own_dtype(model: ModelSpec) -> str:
    """The model's dtype, or bf16 where no layer runs in it."""
    own = compute_dtype(model, Workload.decode(1, 1)).name
    return own if own in DTYPES else "bf16"


def known_dtype(given: str) -> str:
    """The dtype of that name. AttncalcError: no layer runs in it."""
    try:
        name = dtype(given, compute=True).name
    except AttncalcError:
        name = ""
    if name not in DTYPES:
        raise AttncalcError(f"no layer runs in '{truncate(given)}'", f"known: {', '.join(DTYPES)}")
    return name


def _kernels(given: str, device: Device) -> tuple[str, ...]:
    if given == "all":
        return KERNELS[device.kind]
    if given not in BACKENDS:
        hint = did_you_mean(given, BACKENDS)
        raise AttncalcError(f"there is no kernel '{truncate(given)}'", f"{hint}known: all, {', '.join(BACKENDS)}")
    return (given,)
