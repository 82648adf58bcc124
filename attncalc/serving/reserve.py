"""The share of a GPU's memory that an engine takes, and the part of it that neither weights nor cache get."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..engines.base import EngineArgs
from ..engines.engine import Engine
from ..engines.runtime import RuntimeFacts, RuntimeMemory
from ..quantity import Quantity, named, quantity, symbol
from ..units import parse_decimal


class Share(NamedTuple):
    """The share of a GPU's memory that an engine takes: numerator / denominator, exact.

    Attributes:
        option: The engine's option that sets it.
        text: The share as text: '0.92'.
    """

    option: str
    text: str
    numerator: int
    denominator: int


class Reserve(NamedTuple):
    """The memory that is reserved on one GPU for everything but weights and cache.

    Attributes:
        total: Bytes, as given or as expected of the engine.
        low: The fewest bytes to expect; `total` if it was given.
        high: The most bytes to expect; `total` if it was given.
        runtime: The parts that add up to these; none if the total was given.
    """

    total: Quantity
    low: int
    high: int
    runtime: RuntimeMemory


def default_share(engine: Engine[Any], args: EngineArgs, devices: int) -> Share:
    """Return the share that `engine` takes by default, if `devices` hold the model once."""
    return parse_share(engine.share(args, devices), engine.share_option)


def parse_share(text: str, option: str) -> Share:
    """Return a share above 0 and up to 1, exactly: '0.92'. Raises AttncalcError if it is not one."""
    numerator, denominator = parse_decimal(text, option, upper=1)
    return Share(option, text.strip(), numerator, denominator)


def given_reserve(size: int) -> Reserve:
    """Return the runtime memory of that many bytes: nothing else is known of it."""
    return Reserve(symbol("reserve", size, "bytes reserved, as given"), size, size, RuntimeMemory())


def estimated_reserve(engine: Engine[Any], facts: RuntimeFacts[Any]) -> Reserve:
    """Return the runtime memory for what the engine keeps in its share besides weights and cache, with its range."""
    runtime = engine.runtime(facts)
    return Reserve(runtime.total, runtime.low, runtime.high, runtime)


def with_excess(reserve: Reserve, excess: int, *, exact: bool) -> Reserve:
    """Return the runtime memory with `excess` bytes that a log shows beyond the estimate; if exact, without a range."""
    total = quantity(
        named(reserve.total, "estimated", "bytes of the estimate") + symbol("excess", excess, "bytes logged")
    )
    if exact:
        return reserve._replace(total=total, low=int(total), high=int(total))
    return reserve._replace(total=total, low=reserve.low + excess, high=reserve.high + excess)
