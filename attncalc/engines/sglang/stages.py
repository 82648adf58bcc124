"""The layers of each pipeline stage in SGLang."""

from __future__ import annotations

from ..pipeline import check_stages


def stage_sizes(layers: int, pp: int) -> list[int]:
    """Return how many layers each pipeline stage has; if they do not divide, the last stages get one more each.

    10 layers in 4 stages are 2, 2, 3, 3.

    Source: SGLang's get_pp_indices (distributed/utils.py). Raises AttncalcError if there are fewer layers than stages.
    """
    check_stages(layers, pp)
    return [(layers + stage) // pp for stage in range(pp)]
