"""How many nodes replicas take."""

from ...quantity import ceil_div
from .candidates import Candidate


def replicas_on_nodes(candidate: Candidate, needed: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes) as `placed` does, of which `needed` replicas serve all users.

    An instance is rented whole, so that all its GPUs serve.
    """
    split = candidate.split
    gpu = candidate.gpu
    replicas, nodes = placed(needed, split.gpus, gpu.per_node, spread=spread)
    if gpu.instance:
        replicas = max(replicas, nodes * (gpu.per_node // split.gpus))
    return replicas, nodes


def gpus_of_replicas(candidate: Candidate, replicas: int, nodes: int) -> int:
    """Return the number of GPUs of so many replicas, or of the instances, which are `nodes`, that
    have them.
    """
    if candidate.gpu.instance:
        return nodes * candidate.gpu.per_node
    return replicas * candidate.split.gpus


def placed(needed: int, gpus: int, per_node: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes): the fewest replicas, on as few nodes as possible.

    Args:
        needed: The replicas that serve all users.
        gpus: The GPUs of one replica.
        per_node: The GPUs of one node. A replica that has more takes whole nodes.
        spread: Whether `needed` replicas are left after any one node fails: of 10 replicas, 8 of
            which a node could have, 15 on 3 nodes leave 10.
    """
    nodes_of_one = ceil_div(gpus, per_node)
    if nodes_of_one > 1:  # a node that fails takes one replica
        replicas = needed + 1 if spread else needed
        return replicas, replicas * nodes_of_one
    most_on_node = per_node // gpus
    nodes = ceil_div(needed, most_on_node)
    if spread:
        nodes += 1
    replicas = needed
    while spread and replicas - ceil_div(replicas, nodes) < needed:
        replicas += 1
    return replicas, nodes
