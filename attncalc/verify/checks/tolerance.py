"""Errors of measured results, and the errors that checks tolerate."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


def relative_error(result: Tensor, expected: Tensor) -> float:
    """Return the largest difference, relative to the largest expected value; NaN if the shapes
    differ.
    """
    if result.shape != expected.shape:
        return math.nan
    return float((result - expected).abs().max() / expected.abs().max())


def largest(errors: list[float]) -> float:
    """Return the largest error; NaN if one of them is NaN."""
    return next((error for error in errors if math.isnan(error)), max(errors))


def furthest(values: Iterable[int], predicted: int) -> int:
    """Return the value that is furthest from the prediction, of several measurements that should
    all equal it.
    """
    return max(values, key=lambda value: abs(value - predicted))


def tolerance(dtype: torch.dtype) -> float:
    """Return the relative error that two ways to compute one thing may have: 1e-5 in fp32, 4
    roundings in half.
    """
    if dtype == torch.float32:
        return 1e-5
    return 4 * torch.finfo(dtype).eps
