"""How many users' requests run concurrently, on average and at worst.

The engine's blocks are counted exactly for requests of both lengths:

- average: each request holds its prompt and half of its output, since requests are at different
  points of their output;
- worst: all requests are at their last token.

With more requests than at worst, an engine may have to preempt some of them. With more than on
average, it has to.
"""

from ..quantity import Quantity, symbol
from ..records import NamedTuple
from .fit import Deployment, most_sequences
from .memory_budget import End
from .request import ResolvedRequest
from .traffic import Traffic


class Users(NamedTuple):
    """Concurrent requests of one replica."""

    traffic: Traffic  # the requests
    average_tokens: Quantity  # tokens that the engine stores for a request on average
    worst_tokens: Quantity  # tokens that it stores for a request at most
    average: Quantity | None  # concurrent requests on average; None without a limit
    worst: Quantity | None  # concurrent requests at worst; None without a limit
    # bytes of the cache that so many requests need on average; None without a limit
    average_bytes: Quantity | None
    # bytes of the cache that so many requests need at worst; None without a limit
    worst_bytes: Quantity | None
    shares_prefix: bool  # whether the engine stores the shared prefix once; False without one
    # whether the engine reserves the whole context for each request, so that both are equal
    reserves_context: bool


def users(
    resolved: ResolvedRequest, end: End = "low", deployment: Deployment | None = None
) -> Users | None:
    """Return how many of the request's users run concurrently; None if the request has no traffic.

    `end` is which of the memories for the cache they have: by default the least, so that all of
    them surely run. `deployment` is the request's, if it is known already.
    Raises AttncalcError as `fit` does.
    """
    traffic = resolved.request.traffic
    if traffic is None:
        return None
    reserves = resolved.engine.reserves_context(resolved.args)
    average = traffic.average_tokens
    worst = traffic.worst_tokens
    if reserves:
        average = worst = symbol("T", resolved.workload.context, "tokens of context")
    deployment = deployment or Deployment(resolved)
    on_average, at_worst = most_sequences(deployment, (average, worst), end)
    return Users(
        traffic,
        average,
        worst,
        on_average.sequences,
        at_worst.sequences,
        on_average.needed,
        at_worst.needed,
        deployment.shares_prefix,
        reserves,
    )
