"""Real attention layers on the device at hand, measured beside what the formulas predict.

The only package that imports torch. `run.verify_model` checks one model; `need_torch` comes before
anything else here is imported.
"""

from __future__ import annotations

import os
import warnings

from ..errors import CannotCheckError

INSTALL = "pip install torch"
INSTALL_BOTH = "pip install 'transformers>=5.23' torch"
OLDEST = (5, 23)
"""The transformers whose caches and classes the figures are held against."""


def need_torch() -> str:
    """The version of torch that is here. CannotCheckError: none is."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler writes its stages to standard error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that it finds no NumPy, which nothing here needs
            import torch
            import torch.utils.flop_counter
    except ImportError as error:
        missing = "torch is not here" if error.name == "torch" else f"torch cannot be imported: {error}"
        raise CannotCheckError(f"verify runs real torch layers, and {missing}", INSTALL) from None
    return str(torch.__version__)


def need_transformers() -> str:
    """The version of transformers that is here. CannotCheckError: none is, none that is new enough, or no torch."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # before it is imported: nothing is ever downloaded
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        need_torch()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
    except CannotCheckError as error:
        raise CannotCheckError(error.message, INSTALL_BOTH) from None
    except ImportError as error:
        missing = "is not here" if error.name == "transformers" else f"cannot be imported: {error}"
        raise CannotCheckError(f"--against transformers builds its classes, and it {missing}", INSTALL_BOTH) from None
    version = str(transformers.__version__)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise CannotCheckError(f"--against transformers needs {needed} or later, and {version} is here", INSTALL_BOTH)
    return version
