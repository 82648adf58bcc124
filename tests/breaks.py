"""What is made wrong on purpose, so that a check of `attncalc verify` must fail."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


def replaced(owner: Any, name: str, wrong: Any) -> Break:
    return lambda patch: patch.setattr(owner, name, wrong)


def wrapped(owner: Any, name: str, wrong: Callable[..., Any]) -> Break:
    """Replace a function of a class or module by `wrong`, which gets the true one before its
    arguments.
    """

    def make(patch: Patch) -> None:
        true = getattr(owner, name)
        patch.setattr(owner, name, lambda *given, **named: wrong(true, *given, **named))

    return make


def wider(kind: type, matrix: str) -> Break:
    """Count one column too many in the formula of this matrix."""

    def wrong(true: Any, *given: Any) -> Any:
        return tuple(m._replace(cols=m.cols + 1) if m.name == matrix else m for m in true(*given))

    return wrapped(kind, "matrices", wrong)


def wider_cache(kind: type, name: str | None = None) -> Break:
    """Count one column too many in the formula of this cached tensor, or of all."""

    def wrong(true: Any, self: Any) -> Any:
        return tuple(
            c._replace(width=c.width + 1) if name in (None, c.name) else c for c in true(self)
        )

    return wrapped(kind, "cache", wrong)


def scores(kind: type, wrong: Callable[[Any], Any]) -> Break:
    """Count other FLOPs between the projections."""
    return wrapped(kind, "score_flops", lambda true, *given: wrong(true(*given)))


def matrices_with(kind: type, **fields: Any) -> Break:
    """Count the matrices of a layer with other fields."""
    return wrapped(
        kind,
        "matrices",
        lambda true, self, *given: true(dataclasses.replace(self, **fields), *given),
    )


def with_a_parameter_more(layer: type) -> Break:
    def wrong(true: Any, self: Any, *given: Any, **named: Any) -> None:
        import torch

        true(self, *given, **named)
        self.more = torch.nn.Parameter(torch.zeros(3))

    return wrapped(layer, "__init__", wrong)
