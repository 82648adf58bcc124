"""The part of a model on the devices of one data-parallel rank, with expert parallelism, as in vLLM
and in SGLang.

- vLLM (`divide_experts`): attention, dense MLPs and the rest are divided over the `tp` devices of a
  rank, and each of `dp` ranks has them all. The routed experts are divided over all tp * dp
  devices.
- SGLang with DP attention (`divide_for_attention`): attention and the embedding are divided over
  the devices of a rank. All MLPs and an lm head of its own are divided over the devices of all
  ranks.

With expert parallelism a device has whole experts, else a part of each expert.

Source: vLLM, model_executor/layers/fused_moe/config.py (FusedMoEParallelConfig.make,
flatten_tp_across_dp_and_pcp) and layer.py (determine_expert_map);
docs/serving/data_parallel_deployment.md. SGLang 0.5.23, srt/models/deepseek_v2.py and qwen3_moe.py
(attn_tp_size for attention, tp_size for DeepseekV2MLP and shared experts), get_embedding_tp_kwargs,
ParallelLMHead (use_attn_tp_group only with --enable-dp-lm-head), and
layers/moe/fused_moe_triton/layer.py.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

from ..attention import Matrix
from ..attention.kind import give_one_of, tps
from ..errors import AttncalcError
from ..mlp import Mlp
from ..model import ModelSpec
from ..quantity import documented, exact_div
from ..records import dataclass


@dataclass(frozen=True)
class MlpOfRanks(Mlp):
    """An MLP that computes the tokens of several data-parallel ranks, which all have as many."""

    # Ranks whose tokens pass the experts, or a dense MLP
    ranks: int = documented("data-parallel ranks with requests", default=1)
    # Ranks whose tokens pass the shared experts
    shared_ranks: int = documented(
        "data-parallel ranks whose tokens pass the shared experts", default=1
    )


@dataclass(frozen=True)
class SomeExperts(MlpOfRanks):
    """A mixture with some of its experts, which tensor parallelism divides, and the router of
    all.
    """

    n_experts: int | None = documented("experts of a layer on one device", default=None)
    # Experts of the layer on all devices and the host; `n_experts` are those on this one
    n_routed: int = documented("experts of a layer on all devices", default=0)

    def __post_init__(self) -> None:
        """A token may use more experts than one device has."""

    def router(self, d_model: int) -> tuple[Matrix, ...]:
        width = self.d_router or d_model
        return (
            Matrix(
                "router", width, self.n_routed, self.n_routed if self.router_bias else 0, "queries"
            ),
        )


@dataclass(frozen=True)
class WholeExperts(SomeExperts):
    """A mixture of which one device has some experts as a whole."""

    devices: int = documented("devices that divide the experts", default=1)  # these devices
    # Tensor-parallel devices that each have the shared experts as a whole, for a part of the tokens
    shared_copies: int = documented("devices that have whole shared experts", default=1)

    def shard(self, tp: int) -> "WholeExperts":
        width = self.d_ff_shared
        if not width or self.shared_copies > 1:
            return self
        if width % tp:
            raise AttncalcError(
                f"--tp {int(tp)} does not divide the width of the shared experts, {width}",
                give_one_of(tps(lambda n: width % n == 0)),
            )
        return dataclasses.replace(self, d_ff_shared=exact_div(width, tp))


def divide_experts(
    model: ModelSpec, tp: int, ranks: int, *, expert_parallel: bool, redundant: int = 0
) -> ModelSpec:
    """Return the model that the `tp` devices of one data-parallel rank have, before it is divided
    over them.

    A model without experts is unchanged: data-parallel ranks are replicas of it. A file's `stored`
    stays as it is. `redundant` are copies of experts on all devices together.

    Raises AttncalcError if the experts cannot be divided so.
    """
    if not model.has_experts:
        return model

    def divide(mlp: Mlp) -> Mlp:
        if not mlp.n_experts:
            return mlp
        mlp = _shared_apart(mlp)
        if expert_parallel:
            # sequence-parallel experts: ParallelConfig.use_sequence_parallel_moe
            copies = tp if ranks > 1 else 1
            return _whole_experts(mlp, tp * ranks, ranks, shared_copies=copies, redundant=redundant)
        return _parts_of_experts(mlp, tp, ranks)

    return _with_mlps(model, divide)


def divide_for_attention(
    model: ModelSpec,
    tp: int,
    ranks: int,
    *,
    expert_parallel: bool,
    redundant: int = 0,
    whole_shared: bool = False,
) -> ModelSpec:
    """Return the model that the tp / ranks devices of one rank of attention have, before it is
    divided over them.

    `tp` devices have all `ranks` of attention; with `expert_parallel` each has whole experts, of
    which all devices together have `redundant` copies, and with `whole_shared` whole shared experts
    too. Raises AttncalcError if the MLPs or the experts cannot be divided so.
    """

    def divide(mlp: Mlp) -> Mlp:
        if not mlp.n_experts:
            return _of_ranks(
                mlp, ranks, ranks, d_ff=_divided(mlp.d_ff, "the width of the MLP", tp, ranks)
            )
        mlp = _shared_apart(mlp)
        if mlp.d_ff_shared and not whole_shared:
            mlp = dataclasses.replace(
                mlp,
                d_ff_shared=_divided(mlp.d_ff_shared, "the width of the shared experts", tp, ranks),
            )
        if not expert_parallel:
            return _of_ranks(
                mlp, ranks, ranks, d_ff=_divided(mlp.d_ff, "the width of an expert", tp, ranks)
            )
        n_experts = (mlp.n_experts or 0) + redundant
        if n_experts % tp and not redundant:
            raise AttncalcError(
                f"--enable-expert-parallel: --tp {tp} does not divide the {mlp.n_experts} experts",
                give_one_of(tps(lambda n: n_experts % n == 0)),
            )
        copies = tp // ranks if whole_shared else 1
        shared_ranks = 1 if whole_shared else ranks
        return _whole_experts(
            mlp, tp, ranks, shared_ranks=shared_ranks, shared_copies=copies, redundant=redundant
        )

    if ranks == 1 and not model.has_experts:
        return model
    head = model.head
    if head and not head.tied:
        model = dataclasses.replace(model, head=head._replace(ranks=ranks))
    return _with_mlps(model, divide)


def _with_mlps(model: ModelSpec, divide: Callable[[Mlp], Mlp]) -> ModelSpec:
    """Return the model with `divide` applied to the MLP of every layer."""
    stacks = tuple(
        dataclasses.replace(
            stack,
            layers=tuple(
                dataclasses.replace(layers, mlp=divide(layers.mlp)) if layers.mlp else layers
                for layers in stack.layers
            ),
        )
        for stack in model.stacks
    )
    return dataclasses.replace(model, stacks=stacks)


def _shared_apart(mlp: Mlp) -> Mlp:
    """Return the mixture with its shared experts as one MLP of their joint width, which only `tp`
    divides.
    """
    if not mlp.n_shared_experts or mlp.d_ff_shared:
        return mlp
    return dataclasses.replace(
        mlp, n_shared_experts=None, d_ff_shared=mlp.n_shared_experts * mlp.d_ff
    )


def with_ranks(model: ModelSpec, ranks: int) -> ModelSpec:
    """Return one device's share when only so many data-parallel ranks have requests."""

    def of(mlp: Mlp) -> Mlp:
        if not isinstance(mlp, MlpOfRanks):
            return mlp
        return dataclasses.replace(mlp, ranks=ranks, shared_ranks=min(ranks, mlp.shared_ranks))

    mlps = [layers.mlp for _, layers in model.groups() if layers.mlp]
    if all(mlp.ranks in (1, ranks) and mlp.shared_ranks in (1, ranks) for mlp in mlps):
        return model
    return model.kept(("with_ranks", ranks), lambda: _with_mlps(model, of))


def _of_ranks(mlp: Mlp, ranks: int, shared_ranks: int, **changes: int) -> MlpOfRanks:
    fields = {field.name: getattr(mlp, field.name) for field in dataclasses.fields(mlp)} | changes
    return MlpOfRanks(**fields, ranks=ranks, shared_ranks=shared_ranks)


def _whole_experts(
    mlp: Mlp,
    devices: int,
    ranks: int,
    *,
    shared_ranks: int = 1,
    shared_copies: int = 1,
    redundant: int = 0,
) -> WholeExperts:
    """Return the experts of the devices that have the most: 257 experts on 8 devices are 33 on the
    first. With redundant experts all devices must have as many.
    """
    n_experts = (mlp.n_experts or 0) + redundant
    if redundant and n_experts % devices:
        more = devices - n_experts % devices
        raise AttncalcError(
            f"--num-redundant-experts {redundant}: {devices} devices do not divide the {n_experts} "
            "experts with their copies",
            f"give --num-redundant-experts {redundant + more}",
        )
    if devices > n_experts:
        raise AttncalcError(
            f"--enable-expert-parallel: {devices} devices are more than the {n_experts} experts",
            f"use at most {n_experts} devices for --tp times --dp",
        )
    here = _with_experts(WholeExperts, mlp, -(-n_experts // devices))
    return dataclasses.replace(
        here, devices=devices, ranks=ranks, shared_ranks=shared_ranks, shared_copies=shared_copies
    )


def without_routed(mlp: Mlp) -> WholeExperts:
    """Return a mixture on a device that has none of the routed experts: the router, and the shared
    ones.
    """
    return _with_experts(WholeExperts, _shared_apart(mlp), 0)


def with_experts(model: ModelSpec, most: int) -> ModelSpec:
    """Return the model without files, with at most so many of each layer's routed experts."""

    def held(mlp: Mlp) -> Mlp:
        if not mlp.n_experts or mlp.n_experts <= most:
            return mlp
        mlp = _shared_apart(mlp)
        return _with_experts(
            WholeExperts if isinstance(mlp, WholeExperts) else SomeExperts, mlp, most
        )

    return dataclasses.replace(_with_mlps(model, held), stored=None)


_Some = TypeVar("_Some", bound=SomeExperts)


def _with_experts(kind: type[_Some], mlp: Mlp, n_experts: int) -> _Some:
    """Return the mixture with so many of its experts."""
    fields = {field.name: getattr(mlp, field.name) for field in dataclasses.fields(mlp)}
    return kind(**fields | {"n_experts": n_experts, "n_routed": mlp.n_routed})


def _divided(width: int, name: str, tp: int, ranks: int) -> int:
    """Return the width that a rank has. Raises AttncalcError if not all devices get the same
    part.
    """
    if width % tp:
        raise AttncalcError(
            f"--tp {tp} does not divide {name}, {width}", give_one_of(tps(lambda n: width % n == 0))
        )
    return exact_div(width, ranks)


def _parts_of_experts(mlp: Mlp, tp: int, dp: int) -> Mlp:
    """Return the mixture with each expert's width divided over the data-parallel ranks; `shard`
    divides it by tp.
    """
    if mlp.d_ff % (tp * dp):
        possible = give_one_of(tps(lambda n: mlp.d_ff % (n * dp) == 0) or [1])
        raise AttncalcError(
            f"--tp {tp} times --dp {dp} does not divide the width of an expert, {mlp.d_ff}",
            f"{possible}, or add --enable-expert-parallel: it divides whole experts",
        )
    return _of_ranks(mlp, dp, 1, d_ff=exact_div(mlp.d_ff, dp))
