"""How many nodes replicas take."""

from .candidates import Candidate


def replicas_on_nodes(candidate: Candidate, needed: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes) as `placed` does. An instance is rented whole, so that all its GPUs
    serve.
    """
    split = candidate.split
    gpu = candidate.gpu
    replicas, nodes = placed(needed, split.gpus, gpu.per_node, spread=spread)
    if gpu.instance:
        replicas = max(replicas, nodes * (gpu.per_node // split.gpus))
    return replicas, nodes


def gpus_of_replicas(candidate: Candidate, replicas: int, nodes: int) -> int:
    """Return the GPUs of so many replicas, or those of all instances that have them."""
    if candidate.gpu.instance:
        return nodes * candidate.gpu.per_node
    return replicas * candidate.split.gpus


def placed(needed: int, gpus: int, per_node: int, *, spread: bool) -> tuple[int, int]:
    """Return (replicas, nodes) of which `needed` replicas serve all users, on as few nodes as
    possible.

    With `spread`, these are left after any one node fails: of 10 replicas, 8 of which a node could
    have, 15 on 3 nodes leave 10. No more than these are needed.
    """
    of_one = -(-gpus // per_node)
    if of_one > 1:  # a node that fails takes one replica
        replicas = needed + 1 if spread else needed
        return replicas, replicas * of_one
    each = per_node // gpus
    nodes = -(-needed // each)
    if spread:
        nodes += 1
    replicas = needed
    while spread and replicas - -(-replicas // nodes) < needed:
        replicas += 1
    return replicas, nodes
