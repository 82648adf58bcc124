"""Real attention layers on the device at hand, measured beside what the formulas predict.

The only package that imports torch. `run.verify_model` checks one model; `need_torch` comes before
anything else here is imported.
"""

from __future__ import annotations

import os
import warnings

from ..errors import CannotCheckError

INSTALL = "pip install torch"


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
