"""The experts that a step reads.

Their number depends on the router. If all tokens pick the same ones, a layer reads k of its E
experts, which is the lower bound. If each of B tokens picks k at random, it reads E (1 - (1 - k /
E)^B) on average: 163 of 256 for 32 tokens that pick 8. A real router is less even, so that it reads
fewer on average.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from ..mlp import Mlp
from ..quantity import Formula, ceil_div, derived, symbol
from ..records import NamedTuple

# The routed experts that a step reads: k, the expected number, or all.
Routing = Literal["fewest", "expected", "all"]
_MILLION = 10**6


def experts_read(size: int, mlp: Mlp, tokens: int, routing: Routing) -> int:
    """Return the size of the experts of one layer that `tokens` tokens use, shared ones included.

    `size` is the parameters, or bytes, of one expert; or of a dense MLP, which is read whole.
    """
    if mlp.n_experts is None:
        return size
    routed = routed_read(size, mlp, tokens, routing)
    if mlp.n_shared_experts:
        return routed + mlp.n_shared_experts * size
    return routed


def routed_read(size: int, mlp: Mlp, tokens: int, routing: Routing) -> int:
    """Return the size of the routed experts of one layer that `tokens` tokens use, as in
    `experts_read`.
    """
    if not mlp.n_experts or not mlp.n_experts_per_token:
        return 0
    if routing == "all":
        return mlp.n_experts * size
    if routing == "fewest":
        picked = mlp.n_experts_per_token
        return (ceil_div(picked, mlp.devices) if mlp.devices > 1 else picked) * size
    if mlp.ranks > 1:
        tokens = tokens * mlp.ranks
    share = _Share(
        int(mlp.n_experts), int(mlp.n_routed), int(mlp.n_experts_per_token), int(mlp.devices)
    )
    millionths = _expected_experts(share)
    meaning = (
        "millionths of n_experts * (1 - (1 - n_experts_per_token / n_experts)^B), the expected "
        "routed experts"
    )
    if mlp.ranks > 1 or mlp.devices > 1:
        meaning = (
            "millionths of n_experts * (1 - (1 - n_experts_per_token / n_routed)^tokens), the "
            "expected routed experts "
            "on a device for the tokens of all ranks; at least those of one token on the device "
            "that has most of them"
        )

    def formula() -> Formula:
        return symbol("experts_read_e6", millionths(int(tokens), _MILLION), meaning).formula

    return derived(millionths, (formula,), tokens, _MILLION) * size // _MILLION


class _Share(NamedTuple):
    """The routed experts of one device."""

    here: int  # experts of a layer on the device
    routed: int  # experts of a layer on all devices
    per_token: int  # experts that a token picks
    devices: int  # devices over which the experts are divided


@lru_cache(maxsize=1024)
def _expected_experts(share: _Share) -> Callable[[int, int], int]:
    """Return a function of (tokens, scale): the expected number of distinct experts, times `scale`
    and rounded.
    """
    here, n, k, devices = share

    def scaled(tokens: int, scale: int) -> int:
        missed = math.exp(tokens * math.log1p(-k / n)) if k < n else 0.0
        return max(
            round(scale * here * (1 - missed)), scale * -(-k // devices) if devices > 1 else 0
        )

    return scaled
