"""Real attention layers on a device, measured and compared with the formulas. The only package that
imports torch.

- options.py, request.py: the options of the command, and the complete request.
- devices/: the devices, real and simulated, with their free memory and the peak memory of a run.
- simulate/: `--simulate`, what torch does on CUDA, for its fake tensors.
- cases.py, real_layer.py: the distinct layers of a model; one of them as a torch layer with random
  weights.
- layers/: the torch layers, one class per attention kind.
- kernels.py, masks.py: torch's attention backends, and their masks.
- plan.py, passes.py: the kernels and the context that fit in memory; the ways to run a layer.
- checks/, timing.py: the comparisons; times.
- training/: a model to train, the tensors that autograd saves, and their checks.
- programs/: what the command runs: each layer, `--scaling`, `--train`.
- record/: `--record`, the steps of a record.
- transformers/: `--against transformers`.
- engines/: `--engine`, which needs no torch.

Call `need_torch` before importing any of these.
"""

import contextlib
import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version

from ..errors import CannotCheckError

INSTALL = "pip install torch"
WITHOUT_GPU = "--device cpu runs everywhere; --simulate cuda checks CUDA's memory without a GPU"
INSTALL_BOTH = "pip install 'transformers>=5.23' torch"
# The oldest transformers whose classes and caches the figures were compared with.
MIN_TRANSFORMERS = (5, 23)


def need_torch() -> str:
    """Return the version of torch. Raises CannotCheckError if torch is not installed."""
    # torch's profiler would write its stages to standard error
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    # and its C++ code what it expects a training program to mend
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        with warnings.catch_warnings():
            # torch warns if NumPy is missing, which is not needed here
            warnings.simplefilter("ignore")
            import torch
            import torch.utils.flop_counter
    except ImportError as error:
        if error.name == "torch":
            reason = "torch is not installed"
        else:
            reason = f"torch cannot be imported: {error}"
        raise CannotCheckError(f"verify runs real torch layers, and {reason}", INSTALL) from None
    return str(torch.__version__)


def need_cuda(device: str) -> None:
    """Raise CannotCheckError for a GPU if torch is built for CPUs only, without the seconds that
    its import takes.
    """
    with contextlib.suppress(PackageNotFoundError):
        if not device.startswith("cuda") or "torch" in sys.modules:
            return
        built = version("torch")
        if built.endswith("+cpu"):
            raise CannotCheckError(
                f"--device {device} is not available: torch {built} is built for CPUs", WITHOUT_GPU
            )


def need_transformers() -> str:
    """Return the version of transformers. Raises CannotCheckError if it or torch is not installed,
    or it is too old.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # before the import, so that nothing is downloaded
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        need_torch()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
    except CannotCheckError as error:
        raise CannotCheckError(error.message, INSTALL_BOTH) from None
    except ImportError as error:
        if error.name == "transformers":
            reason = "is not installed"
        else:
            reason = f"cannot be imported: {error}"
        raise CannotCheckError(
            f"--against transformers needs transformers, which {reason}", INSTALL_BOTH
        ) from None
    version = str(transformers.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < MIN_TRANSFORMERS:
        needed = ".".join(map(str, MIN_TRANSFORMERS))
        raise CannotCheckError(
            f"--against transformers needs transformers {needed} or later; {version} is installed",
            INSTALL_BOTH,
        )
    return version
