"""Prices of GPUs per hour, which the user gives: none are built in, since they age."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttncalcError
from ..hardware import Gpu
from ..quantity import Ratio, ratio
from ..units import parse_price, truncate
from .gpus import LIMIT, gpu

_EXAMPLE = "write --price h100=2.49,h200=3.79, or a .yaml file with a line per GPU, as 'h100: 2.49'"


def read_prices(given: float | str | Mapping[str, Any], gpus: Sequence[Gpu | str]) -> dict[str, Ratio]:
    """Return {name of a GPU: price of an hour} of 'h100=2.49,h200=3.79', of a YAML file, or of a mapping.

    Prices without names are those of `gpus` in their order. Raises AttncalcError if a GPU is unknown or given twice, a
    price is no number above 0, or the file is no mapping.
    """
    pairs = list(given.items()) if isinstance(given, Mapping) else _pairs(str(given), gpus)
    prices: dict[str, Ratio] = {}
    for name, price in pairs:
        known = name.name if isinstance(name, Gpu) else gpu(str(name).strip()).name
        if known in prices:
            raise AttncalcError(f"--price: {known} has two prices", "give one of them")
        prices[known] = ratio(*parse_price(str(price), f"--price {truncate(known)}"))
    if not prices:
        raise AttncalcError("--price has no prices", _EXAMPLE)
    return prices


def _pairs(text: str, gpus: Sequence[Gpu | str]) -> list[tuple[Gpu | str, Any]]:
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        return _pairs_of_file(path)
    parts = text.split(",")
    if "=" not in text and len(parts) == len(gpus) and "all" not in gpus:
        return list(zip(gpus, parts, strict=True))
    pairs: list[tuple[Gpu | str, Any]] = []
    for part in parts:
        name, equals, price = part.partition("=")
        if not equals:
            raise AttncalcError(f"--price: '{truncate(part)}' is not a GPU with its price", _EXAMPLE)
        pairs.append((name, price))
    return pairs


def _pairs_of_file(path: Path) -> list[tuple[Gpu | str, Any]]:
    from .yaml import parse_document

    name = truncate(path, 200)
    try:
        with path.open("rb") as file:
            content = file.read(LIMIT + 1)
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        raise AttncalcError(f"--price: {name}: {reason}", _EXAMPLE) from None
    if len(content) > LIMIT:
        raise AttncalcError(f"{name}: longer than {LIMIT:,} bytes", _EXAMPLE)
    try:
        return list(parse_document(content, name).data.items())
    except AttncalcError as error:
        raise AttncalcError(error.message, _EXAMPLE) from None
