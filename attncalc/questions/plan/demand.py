"""What a plan has to serve: users or a rate, with targets of time, limits of GPUs, and prices."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from ...hardware import Gpu
from ...quantity import Ratio, ratio, symbol
from ...records import NamedTuple
from ...serving.load_bounds import NETWORK


class Demand(NamedTuple):
    """What the replicas must serve together, and what their GPUs cost.

    Without `requested` and `rate` it is what GPUs of a limited number serve.
    """

    requested: int | None  # concurrent requests that are asked for
    rate: Ratio | None = None  # requests per second, at the peak
    # the average load as a part of that; None if the load is always the same
    load_factor: Ratio | None = None
    ttft: float | None = None  # seconds to the first token at most; None without a target
    tpot: float | None = None  # seconds per output token at most; None without a target
    # whether `tpot` is the default, which holds where the speed is known
    has_usual_tpot: bool = False
    # the part of the best case that is reached; None for that of published runs
    efficiency: Ratio | None = None
    network: int = NETWORK  # bytes/s that one GPU sends to another node
    # {GPU: measured / planned tokens/s of a benchmark of one's own}
    scales: Mapping[str, float] = MappingProxyType({})
    calibrated: str = ""  # a sentence about that benchmark
    has_no_peak: bool = False  # whether the rate is that of a day or longer, without a load factor
    spread: bool = False  # whether the rest must serve them if one node fails
    max_gpus: int | None = None  # the most GPUs; None without a limit
    budget: Ratio | None = None  # the highest price of an hour; None without a limit
    # {GPU, or instance: price of a GPU for an hour}
    prices: Mapping[str, Ratio] = MappingProxyType({})
    # an API's prices of a million tokens of input and of output
    api_price: tuple[Ratio, Ratio] | None = None
    shows_power: bool = False  # whether the screen shows the power of the GPUs
    assumed: str = ""  # a sentence about options that were not given: 'Assumed: --prompt 4K.'

    @property
    def load(self) -> float:
        """The users, or the requests per second."""
        if self.requested is not None:
            return self.requested
        assert self.rate is not None
        return float(self.rate)

    def on_average(self, speed: Ratio | None) -> Ratio | None:
        """Return the part of a speed at the peak that is reached on average."""
        if speed is None or self.load_factor is None:
            return speed
        part = symbol(
            "load_factor",
            self.load_factor.numerator,
            f"load factor, times {self.load_factor.denominator}",
        )
        scale = symbol("scale", self.load_factor.denominator, "scale of the load factor")
        return ratio(speed.numerator * part, speed.denominator * scale)

    @property
    def is_open(self) -> bool:
        """Whether it asks how many users GPUs of a limited number serve."""
        return self.requested is None and self.rate is None

    def most_gpus(self, gpu: Gpu) -> int | None:
        """Return how many GPUs of a kind there may be, or of its whole instances; None without a
        limit.
        """
        limits = [] if self.max_gpus is None else [self.max_gpus]
        if self.budget is not None:
            limits.append(int(float(self.budget) / float(self.prices[gpu.rented]) + 1e-9))
        if limits:
            return min(limits) // gpu.rented_gpus * gpu.rented_gpus
        return None

    @property
    def has_times(self) -> bool:
        """Whether a target of time limits the replicas."""
        return self.ttft is not None or self.tpot is not None

    def times(self, factor: float) -> "Demand":
        """Return the demand of as many times the users, or the requests per second."""
        if self.rate is not None:
            return self._replace(
                rate=ratio(
                    round(self.rate.numerator * factor * 10**6), self.rate.denominator * 10**6
                )
            )
        assert self.requested is not None
        return self._replace(requested=math.ceil(self.requested * factor - 1e-9))
