"""Which layers llama.cpp puts on which of several GPUs that are alike."""

from __future__ import annotations


def layers_of_gpus(layers: int, gpus: int) -> tuple[int, ...]:
    """How many of `layers` each of `gpus` GPUs has, in order, with all of them offloaded.

    The output counts as one layer more, the last, so that the last GPU may have a layer less, or none.
    Source: load_tensors (src/llama-model.cpp), --split-mode layer without --tensor-split, GPUs with as much
    free memory each: layer i goes to the first GPU whose share of all ends beyond i / (layers + 1).
    """
    counts = [0] * gpus
    for i in range(layers):
        counts[i * gpus // (layers + 1)] += 1
    return tuple(counts)
