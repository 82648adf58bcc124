"""The feed-forward part of a layer, dense or a mixture of experts."""

import dataclasses

from .attention import Matrix
from .attention.kind import tp_share
from .errors import AttncalcError
from .quantity import documented
from .records import dataclass


@dataclass(frozen=True)
class Mlp:
    """An up and a down projection of width d_ff, and a third projection if it is gated (SwiGLU,
    GeGLU).

    With n_experts it is a mixture of experts: a router, n_experts such MLPs of which a token uses
    n_experts_per_token, and n_shared_experts that every token uses. `router_bias` adds one value
    per expert: a bias, or DeepSeek's score correction.

    Source: Shazeer 2020, arXiv:2002.05202 (gated); Jiang et al. 2024, arXiv:2401.04088 (mixture);
    Dai et al. 2024, arXiv:2401.06066 (shared experts).
    """

    d_ff: int = documented("width of the MLP, or of one expert")
    gated: bool = False
    bias: bool = False
    n_experts: int | None = documented("experts of a layer", default=None)
    n_experts_per_token: int | None = documented("experts that a token is routed to", default=None)
    n_shared_experts: int | None = documented("experts that every token uses", default=None)
    d_ff_shared: int | None = documented(
        "width of the shared experts together", left_out="n_shared_experts * d_ff", default=None
    )
    d_router: int | None = documented(
        "width of the router's input", left_out="d_model", default=None
    )
    d_latent: int | None = documented(
        "width of the routed experts' input and output", left_out="d_model", default=None
    )
    router_bias: bool = False

    # data-parallel ranks whose tokens pass the experts, or a dense MLP: see
    # engines/expert_parallel.py
    ranks = 1
    devices = 1  # devices that divide the experts, each of which has whole ones
    shared_ranks = 1  # data-parallel ranks whose tokens pass the shared experts
    # tensor-parallel devices that each have the shared experts as a whole, for a part of the tokens
    shared_copies = 1

    @property
    def n_routed(self) -> int:
        """Return the routed experts of a layer on all devices; 0 for a dense MLP."""
        return self.n_experts or 0

    def __post_init__(self) -> None:
        if (self.n_experts is None) != (self.n_experts_per_token is None):
            raise AttncalcError(
                "n_experts and n_experts_per_token must be given together", "give both, or neither"
            )
        if (
            self.n_experts
            and self.n_experts_per_token
            and self.n_experts_per_token > self.n_experts
        ):
            raise AttncalcError(
                f"n_experts_per_token: {self.n_experts_per_token} is more than the "
                f"{self.n_experts} experts",
                f"give at most {self.n_experts}",
            )

    def expert(self, d_model: int) -> tuple[Matrix, ...]:
        """Return the matrices of one expert, or of the whole MLP if it is dense."""
        d_model = self.d_latent or d_model
        up_bias = self.d_ff if self.bias else 0
        names = ("W_gate", "W_up") if self.gated else ("W_up",)
        return (
            *(Matrix(name, d_model, self.d_ff, up_bias, "queries") for name in names),
            Matrix("W_down", self.d_ff, d_model, d_model if self.bias else 0, "queries"),
        )

    def shared(self, d_model: int) -> tuple[Matrix, ...]:
        """Return the matrices of the shared experts if they have their own width, d_ff_shared."""
        if not self.d_ff_shared:
            return ()
        return dataclasses.replace(self, d_ff=self.d_ff_shared, d_latent=None).expert(d_model)

    def router(self, d_model: int) -> tuple[Matrix, ...]:
        """Return the router's matrix; () for a dense MLP."""
        if self.n_experts is None:
            return ()
        bias = self.n_experts if self.router_bias else 0
        return (Matrix("router", self.d_router or d_model, self.n_experts, bias, "queries"),)

    @property
    def experts_stored(self) -> int:
        """Return the experts that a layer has; 1 for a dense MLP."""
        if self.n_experts is None:
            return 1
        shared = self.n_shared_experts or 0
        return self.n_experts + shared

    @property
    def experts_used(self) -> int:
        """Return the experts that a token uses; 1 for a dense MLP."""
        if self.n_experts_per_token is None:
            return 1
        shared = self.n_shared_experts or 0
        return self.n_experts_per_token + shared

    @property
    def headline(self) -> str:
        """Return the MLP in words: 'gated MLP 28,672', '8 experts of 14,336, 2 used'."""
        shape = "gated MLP" if self.gated else "MLP"
        if self.n_experts is None:
            return f"{shape} {self.d_ff:,}"
        shared = f" and {self.n_shared_experts} shared" if self.n_shared_experts else ""
        return f"{self.n_experts} experts of {self.d_ff:,}, {self.n_experts_per_token}{shared} used"

    def shard(self, tp: int) -> "Mlp":
        """Return the part on one of `tp` devices: every expert's width is split, the router is
        replicated.

        Raises AttncalcError if `tp` does not divide a width.
        """
        d_ff = tp_share(self.d_ff, tp, f"the width of the MLP, {self.d_ff}")
        shared = self.d_ff_shared
        if shared:
            shared = tp_share(shared, tp, f"the width of the shared experts, {shared}")
        return dataclasses.replace(self, d_ff=d_ff, d_ff_shared=shared)
