"""The ways to split a model over the GPUs of one replica that a plan tries."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ...engines import find_engine
from ...engines.engine import Engine
from ...model import ModelSpec
from ...records import NamedTuple
from ...serving.fit import tensor_parallel_sizes
from ...serving.request import FitRequest

# Nodes that one replica spans at most, unless --tp, --pp or --dp ask for more.
MOST_NODES = 8


class Space(NamedTuple):
    """What may be tried; None is the default, which `splits` describes."""

    tp: Sequence[int] | None = None  # tensor-parallel sizes
    pp: Sequence[int] | None = None  # pipeline stages
    dp: Sequence[int] | None = None  # data-parallel ranks of a mixture of experts (vLLM)
    attn_dp: Sequence[int] | None = None  # data-parallel ranks of attention (SGLang)
    expert_parallel: bool = False  # whether each GPU has whole experts in every split
    max_gpus: int | None = None  # the most GPUs of all replicas together; None without a limit

    @property
    def sizes(self) -> tuple[Sequence[int] | None, ...]:
        return self.tp, self.pp, self.dp, self.attn_dp


class Split(NamedTuple):
    """How the GPUs of one replica share a model."""

    gpus: int
    tp: int = 1
    pp: int = 1
    dp: int = 1
    attn_dp: int = 1
    expert_parallel: bool = False

    def of(self, request: FitRequest) -> FitRequest:
        """Return the request for one replica with this split."""
        return dataclasses.replace(
            request,
            gpus=self.gpus,
            tp=None if find_engine(request.engine).splits_by_layer else self.tp,
            pp=self.pp,
            dp=self.dp,
            attn_dp=self.attn_dp,
            enable_expert_parallel=self.expert_parallel,
        )

    @property
    def words(self) -> str:
        """The split as people write it: 'tp 8', 'tp 8, pp 2', 'dp 16, ep'; '1 GPU' without one."""
        sizes = {"tp": self.tp, "pp": self.pp, "dp": self.dp, "attn-dp": self.attn_dp}
        parts = [f"{name} {size}" for name, size in sizes.items() if size > 1]
        parts += ["ep"] if self.expert_parallel else []
        return ", ".join(parts) or ("1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs")


def splits(request: FitRequest, space: Space) -> list[list[Split]]:
    """Return the splits in groups; a group is tried if none before it has a split that fits.

    The first group are the splits within a node, and those over ranks that divide the experts of a
    mixture, which also span nodes: large mixtures run so. Each further group takes one node more,
    all of whose GPUs it uses. Sizes that are given are one group.
    """
    engine = find_engine(request.engine)
    model = request.model
    per_node = request.gpu.per_node if request.gpu else 1
    most = space.max_gpus or MOST_NODES * per_node
    if engine.splits_by_layer:
        return [
            [Split(gpus) for gpus in _doubled(min(per_node, most, engine.max_gpus or per_node))]
        ]
    tp_sizes = space.tp or list(tensor_parallel_sizes(model))
    if any(space.sizes):
        groups = [list(_given(engine, space, tp_sizes))]
    else:
        nodes = range(1, min(MOST_NODES, -(-most // per_node)) + 1)
        groups = [list(_over_nodes(engine, model, space, tp_sizes, per_node, n)) for n in nodes]
        groups[0] += _over_ranks(engine, model, tp_sizes, per_node)
    return [[split for split in dict.fromkeys(group) if split.gpus <= most] for group in groups]


def _given(engine: Engine[Any], space: Space, tp_sizes: Sequence[int]) -> Iterator[Split]:
    """Yield every product of the sizes that are given; those that are not are 1."""
    for tp in tp_sizes if space.tp or not engine.ranks_share_tp else space.attn_dp or tp_sizes:
        for pp in space.pp or [1]:
            for dp in space.dp or [1]:
                for attn_dp in space.attn_dp or [1]:
                    ep = space.expert_parallel or dp > 1
                    yield Split(tp * pp * dp, tp, pp, dp, attn_dp, ep)


def _over_nodes(
    engine: Engine[Any],
    model: ModelSpec,
    space: Space,
    tp_sizes: Sequence[int],
    per_node: int,
    nodes: int,
) -> Iterator[Split]:
    """Yield the splits by tensor and pipeline parallelism over a number of nodes.

    Within a node they use a part of it that divides it. Over several nodes they use all GPUs, with
    at most two stages per node.
    """
    gpus = nodes * per_node
    for tp in tp_sizes:
        if nodes > 1:
            stages = [gpus // tp] if gpus % tp == 0 and gpus // tp <= 2 * nodes else []
        else:
            stages = [pp for pp in _doubled(per_node) if per_node % (tp * pp) == 0]
        for pp in stages:
            if pp > 1 and ("pp" not in engine.splits or pp > model.main.n_layers or model.encoder):
                continue
            yield Split(tp * pp, tp, pp, expert_parallel=space.expert_parallel)
            if pp == 1 and tp > 1 and engine.ranks_share_tp and model.has_experts:
                yield Split(tp, tp, attn_dp=tp, expert_parallel=space.expert_parallel)


def _over_ranks(
    engine: Engine[Any], model: ModelSpec, tp_sizes: Sequence[int], per_node: int
) -> Iterator[Split]:
    """Yield the splits over ranks that divide the experts, with whole experts on each GPU.

    Over several nodes a rank has one GPU or one node.
    """
    if not engine.data_parallel or engine.ranks_share_tp or not model.has_experts:
        return
    for tp in tp_sizes:
        if per_node % tp:
            continue
        inside = [dp for dp in range(2, per_node // tp + 1) if per_node // tp % dp == 0]
        if tp in (1, per_node):
            outside = [nodes * per_node // tp for nodes in _doubled(MOST_NODES)[1:]]
        else:
            outside = []
        yield from (Split(tp * dp, tp, 1, dp, expert_parallel=True) for dp in (*inside, *outside))


def _doubled(most: int) -> list[int]:
    """Return the powers of two up to a number: 1, 2, 4, 8."""
    return [1 << i for i in range(most.bit_length())]
