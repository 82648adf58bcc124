"""The options of the command, without the defaults of model and device. This module does not import
torch.
"""

from typing import Literal

from ..records import NamedTuple

Program = Literal["layers", "scaling", "training"]
# Tokens that a type of device verifies quickly, by program. A simulated one takes any number.
DEFAULT_CONTEXT: dict[Program, dict[str, int]] = {
    "layers": {"cpu": 128, "mps": 512, "cuda": 4096, "xpu": 4096, "simulated": 2**40},
    "scaling": {"cpu": 1024, "mps": 4096, "cuda": 16_384, "xpu": 16_384, "simulated": 2**40},
    "training": {"cpu": 64, "mps": 512, "cuda": 2048, "xpu": 2048, "simulated": 2048},
}

# Minutes that one model, or every preset together, may take by default.
DEFAULT_MINUTES = 1
CATALOGUE_MINUTES = 10
# The same on a simulated device, where only recurrent layers take time.
SIMULATED_MINUTES = 2


class VerifyOptions(NamedTuple):
    """The options of the command; None is the default of the model and the device."""

    batch: int = 1  # sequences
    context: int | None = None  # tokens of context
    source: int | None = None  # tokens on the encoder's side
    dtype: str | None = None  # dtype of weights and activations
    kernel: str = "all"  # a backend, or 'all' for every backend that runs
    seed: int = 0  # of the random weights and tokens
    scaling: bool = False  # whether to measure over doubling contexts instead
    train: bool = False  # whether to run training steps instead
    timed: bool = True  # whether to measure times too
    # minutes that one model may take; the context is shortened to keep to them
    minutes: float = DEFAULT_MINUTES

    @property
    def program(self) -> Program:
        """Which of the programs in `verify/programs` these options select."""
        if self.train:
            return "training"
        if self.scaling:
            return "scaling"
        return "layers"
