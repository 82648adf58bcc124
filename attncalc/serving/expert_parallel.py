"""The routed experts of a mixture on one device, with data and expert parallelism as in vLLM.

Attention, dense MLPs and the rest are divided over `tp` devices, and each of `dp` ranks has them all. The routed
experts are divided over all tp * dp devices: whole experts with expert parallelism, else a part of each expert.

Source: vLLM, model_executor/layers/fused_moe/config.py (FusedMoEParallelConfig.make, flatten_tp_across_dp_and_pcp)
and layer.py (determine_expert_map); docs/serving/data_parallel_deployment.md.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from ..attention import Matrix
from ..cost.params import params
from ..errors import AttncalcError
from ..mlp import Mlp
from ..model import Layers, ModelSpec
from ..quantity import documented, exact_div


@dataclass(frozen=True)
class WholeExperts(Mlp):
    """A mixture of which one device has some experts as a whole, and the router of all.

    Attributes:
        n_routed: Experts of the layer on all devices; `n_experts` are those on this one.
        replicates_shared: Whether each tensor-parallel device has the shared experts as a whole.
    """

    n_experts: int | None = documented("experts of a layer on one device", default=None)
    n_routed: int = documented("experts of a layer on all devices", default=0)
    replicates_shared: bool = False

    def __post_init__(self) -> None:
        """A token may use more experts than one device has."""

    def router(self, d_model: int) -> tuple[Matrix, ...]:
        width = self.d_router or d_model
        return (Matrix("router", width, self.n_routed, self.n_routed if self.router_bias else 0, "queries"),)

    def shard(self, tp: int) -> WholeExperts:
        if not self.d_ff_shared or self.replicates_shared:
            return self
        if self.d_ff_shared % tp:
            raise AttncalcError(
                f"--tp {int(tp)} does not divide d_ff_shared {self.d_ff_shared}", "choose a number that does"
            )
        return dataclasses.replace(self, d_ff_shared=exact_div(self.d_ff_shared, tp))


def has_experts(model: ModelSpec) -> bool:
    """Return whether a layer of the model is a mixture of experts."""
    return any(layers.mlp and layers.mlp.n_experts for _, layers in model.groups())


def divide_experts(model: ModelSpec, tp: int, dp: int, *, expert_parallel: bool) -> ModelSpec:
    """Return the model that the `tp` devices of one data-parallel rank have, before it is divided over them.

    A model without experts is unchanged: data-parallel ranks are replicas of it.

    Raises AttncalcError if the experts cannot be divided so.
    """
    if not has_experts(model) or (dp == 1 and not expert_parallel):
        return model

    def divide(layers: Layers) -> Layers:
        if layers.mlp is None or not layers.mlp.n_experts:
            return layers
        mlp = _shared_apart(layers.mlp)
        mlp = _whole_experts(mlp, tp, dp) if expert_parallel else _parts_of_experts(mlp, tp, dp)
        return dataclasses.replace(layers, mlp=mlp)

    stacks = tuple(dataclasses.replace(stack, layers=tuple(map(divide, stack.layers))) for stack in model.stacks)
    divided = dataclasses.replace(model, stacks=stacks)
    if model.stored is None:
        return divided
    # the files' bytes are divided as the parameters are
    here, everywhere = int(params(divided).total), int(params(model).total)
    return dataclasses.replace(divided, stored=model.stored._replace(size=-(-model.stored.size * here // everywhere)))


def _shared_apart(mlp: Mlp) -> Mlp:
    """Return the mixture with its shared experts as one MLP of their joint width, which only `tp` divides."""
    if not mlp.n_shared_experts or mlp.d_ff_shared:
        return mlp
    return dataclasses.replace(mlp, n_shared_experts=None, d_ff_shared=mlp.n_shared_experts * mlp.d_ff)


def _whole_experts(mlp: Mlp, tp: int, dp: int) -> WholeExperts:
    """Return the experts of the devices that have the most: 257 experts on 8 devices are 33 on the first."""
    n_experts, devices = mlp.n_experts or 0, tp * dp
    if devices > n_experts:
        raise AttncalcError(
            f"--enable-expert-parallel: {devices} devices are more than the {n_experts} experts",
            f"use at most {n_experts} devices for --tp times --dp",
        )
    fields = {field.name: getattr(mlp, field.name) for field in dataclasses.fields(mlp)}
    fields["n_experts"] = -(-n_experts // devices)
    # sequence-parallel experts: ParallelConfig.use_sequence_parallel_moe
    return WholeExperts(**fields, n_routed=n_experts, replicates_shared=tp > 1 and dp > 1)


def _parts_of_experts(mlp: Mlp, tp: int, dp: int) -> Mlp:
    """Return the mixture with each expert's width divided over the data-parallel ranks; `shard` divides it by tp."""
    if mlp.d_ff % (tp * dp):
        raise AttncalcError(
            f"--tp {tp} times --dp {dp} does not divide the width of an expert, {mlp.d_ff}",
            "choose numbers that do, or add --enable-expert-parallel, which divides whole experts",
        )
    return dataclasses.replace(mlp, d_ff=mlp.d_ff // dp)
