"""Prices of GPUs per hour, which the user gives: none are built in, since they age."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttncalcError
from ..hardware import Gpu
from ..quantity import Ratio, ratio
from ..units import parse_price, truncate
from .gpus import LIMIT, gpus_of

_EXAMPLE = "write --price h100=2.49,h200=3.79, or a .yaml file with a line per GPU, as 'h100: 2.49'"


def read_prices(
    given: float | str | Mapping[str, Any], gpus: Sequence[Gpu | str]
) -> dict[str, Ratio]:
    """Return {name of a GPU or an instance: price of a GPU for an hour}.

    `given` is 'h100=2.49,p5.48xlarge=98,8xh200=30', a YAML file, or a mapping. The price of several
    is divided by them. Prices without names are those of `gpus` in their order. Raises
    AttncalcError if a GPU is unknown or given twice, a price is no number above 0, or the file is
    no mapping.
    """
    pairs = list(given.items()) if isinstance(given, Mapping) else _pairs(str(given), gpus)
    prices: dict[str, Ratio] = {}
    for name, price in pairs:
        number: int | None
        if isinstance(name, Gpu):
            number = name.rented_gpus
            known = name
        else:
            number, known = gpus_of(str(name).strip())
        if known.rented in prices:
            raise AttncalcError(f"--price: {known.rented} has two prices", "give one of them")
        numerator, denominator = parse_price(str(price), f"--price {truncate(known.rented)}")
        if number:
            denominator *= number
        prices[known.rented] = ratio(numerator, denominator)
    if not prices:
        raise AttncalcError("--price has no prices", _EXAMPLE)
    return prices


def _pairs(text: str, gpus: Sequence[Gpu | str]) -> list[tuple[Gpu | str, Any]]:
    path = Path(text)
    if path.suffix in (".yaml", ".yml"):
        return _pairs_of_file(path)
    parts = text.split(",")
    if not {"=", ":"} & {*text} and len(parts) == len(gpus) and "all" not in gpus:
        return [
            (one if isinstance(one, Gpu) else gpus_of(one)[1], price)
            for one, price in zip(gpus, parts, strict=True)
        ]
    pairs: list[tuple[Gpu | str, Any]] = []
    for part in parts:
        if "=" in part:
            name, equals, price = part.partition("=")
        else:
            name, equals, price = part.rpartition(":")
        if not equals:
            raise AttncalcError(
                f"--price: '{truncate(part)}' is not a GPU with its price", _EXAMPLE
            )
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
