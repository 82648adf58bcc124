"""The tensors that an MLP, dense or a mixture of experts, saves for its backward pass."""

from collections.abc import Iterator

from ...attention.saved import (
    FP32,
    INT64,
    Forward,
    SavedTensor,
    l2_norm_tensors,
    matrix_input,
    norm_tensors,
)
from ...mlp import Mlp
from ...quantity import Constant

INT32 = Constant(4, "bytes of an offset")
BOOLEAN = Constant(1, "byte of an element of a mask")


def mlp_tensors(mlp: Mlp, f: Forward) -> Iterator[SavedTensor]:
    """Yield what the MLP saves: its input, both operands of SwiGLU's product and of SiLU, and the
    input of W_down.
    """
    up = ("W_gate", "W_up") if mlp.gated else ("W_up",)
    if mlp.n_experts is None:
        yield matrix_input(f, f.d_model, up, part="mlp")
        yield from _inside(mlp.gated, f, mlp.d_ff, "")
        return
    if mlp.d_ff_shared:
        shared = mlp.d_ff_shared
    elif mlp.n_shared_experts:
        shared = mlp.n_shared_experts * mlp.d_ff
    else:
        shared = 0
    router = f.math.router
    readers: tuple[str, ...] = up if shared else ()
    if not (router.in_fp32 and f.is_half) and not router.scales:
        readers = (*readers, "router")
    if readers:
        yield matrix_input(f, f.d_model, readers, part="mlp")
    yield from _router_tensors(mlp, f)
    yield from _expert_tensors(mlp, f, up)
    if shared:
        yield from _inside(mlp.gated, f, shared, "shared experts' ", clamps=False)


def _router_tensors(mlp: Mlp, f: Forward) -> Iterator[SavedTensor]:
    """Yield what the router saves: copies of its operands, scores, and indices and weights of the
    chosen experts.
    """
    router = f.math.router
    n_experts = mlp.n_experts or 0
    width = mlp.d_router or f.d_model
    if router.in_fp32 and f.is_half:
        size = FP32 * f.tokens * width
        yield SavedTensor(
            "input of the router in fp32",
            "its gradient",
            size,
            "mlp",
            ("router",),
            is_replicated=True,
        )
        if router.in_fp32 == "copied":
            yield SavedTensor(
                "router in fp32", "the gradient of its input", FP32 * n_experts * width, "mlp"
            )
    if router.scales:
        yield from l2_norm_tensors(f, f.tokens, width, "router norm", "mlp")
        yield matrix_input(f, width, ("router",), "normalized input of the router", "mlp")
        yield matrix_input(f, width, ("router",), "input of the router", "mlp")
    size = f.tokens * _routing_per_token(f, n_experts, mlp.n_experts_per_token or 0)
    yield SavedTensor(
        "routing", "softmax, top k, weights", size, "mlp", is_replicated=True, is_statistic=True
    )


def _routing_per_token(f: Forward, n_experts: int, n_chosen: int) -> int:
    router = f.math.router
    per_token = INT64 * n_chosen
    score = f.bytes if router.casts else FP32
    if router.scales:
        per_token += (FP32 + f.bytes) * n_chosen
    if router.scores in ("softmax", "sigmoid"):
        per_token += score * n_experts
    elif router.scores == "sparsemixer":
        per_token += n_chosen * ((f.bytes + BOOLEAN) * n_experts + INT64 + f.bytes)
    if f.math.is_dense:
        per_token += f.bytes * n_experts
    else:
        per_token += (FP32 if router.weights == "fp32" else f.bytes) * n_chosen
    if router.normalizes:
        per_token += score * (n_chosen + 1) + (FP32 if router.clamps_sum else 0)
    elif router.scores == "chosen":
        per_token += FP32 * n_chosen
    elif router.scores == "chosen, cast":
        per_token += f.bytes * n_chosen
    groups, chosen = router.groups
    if groups:
        per_token += INT64 * (2 * groups + chosen) + BOOLEAN * n_experts
    return per_token


def _expert_tensors(mlp: Mlp, f: Forward, up: tuple[str, ...]) -> Iterator[SavedTensor]:
    """Yield what the routed experts save.

    The tokens of each expert are sorted into one tensor, and the outputs are multiplied by the
    router's weights. Tokens are assumed to be spread evenly over the experts. In Llama 4, each
    expert multiplies all tokens by their weights.
    """
    n_experts = mlp.n_experts or 0
    width = mlp.d_latent or f.d_model
    rows = f._replace(S=f.S * (n_experts if f.math.is_dense else mlp.n_experts_per_token or 0))
    size = f.bytes * rows.tokens * width
    yield SavedTensor("input of the experts", "W_up", size, "mlp", up, is_dispatched=True)
    if f.math.is_dense:
        yield SavedTensor("input of the experts, repeated", "the router's weights", size, "mlp")
    yield from _inside(mlp.gated, rows, mlp.d_ff, "experts' ")
    if f.math.is_dense:
        return
    if not f.math.router.weighs_inside:
        yield SavedTensor(
            "output of the experts", "the router's weights", size, "mlp", is_dispatched=True
        )
    # the order of the tokens, its inverse, each one's token, and each one's bias
    indices = 4 if mlp.bias else 3
    order = INT64 * indices * rows.tokens + INT32 * n_experts
    yield SavedTensor(
        "order of the tokens", "sorting", order, "mlp", is_replicated=True, is_statistic=True
    )


# Tensors that an activation function saves besides its result: its input. 0.5 x (1 + tanh(...)) in
# single operations saves x, 0.5 x, the tanh and 1 + tanh; xIELU operands of both branches, besides
# a mask of them.
_OPERANDS = {"fused": 1, "relu": 0, "gelu_new": 4, "xielu": 4}


def _inside(
    gated: bool, f: Forward, width: int, of: str, *, clamps: bool = True
) -> Iterator[SavedTensor]:
    """Yield what is between the input of W_up and the output of W_down."""
    size = f.bytes * f.tokens * width
    if clamps and f.math.clamps:  # (up + 1) * gate * sigmoid(gate), with both clamped
        for name in ("gate", "up", "clamped gate", "sigmoid", "SiLU of the gate", "up + 1"):
            pointwise = name not in ("gate", "up")
            yield SavedTensor(
                f"{of}{name}", "the clamped product", size, "mlp", is_pointwise=pointwise
            )
        yield SavedTensor(f"{of}product", "the gradient of W_down", size, "mlp", ("W_down",))
        return
    before, function = ("gate", "SiLU of the gate") if gated else ("up", "activation")
    for i in range(_OPERANDS[f.math.activation]):
        if i == 0:
            name = f"{of}{before}"
        else:
            name = f"{of}{before}, operand {i + 1} of the activation"
        yield SavedTensor(name, "the activation", size, "mlp", is_pointwise=i > 0)
    if f.math.activation == "xielu":  # where x > 0; with four parameters of one element
        mask = BOOLEAN * f.tokens * width + 4 * f.bytes
        yield SavedTensor(f"{of}sign of {before}", "the activation", mask, "mlp", is_pointwise=True)
    if f.math.inner_norms:
        yield from norm_tensors(f, f.tokens, width, f"{of}inner norm", "mlp", is_replicated=False)
    if gated:
        yield SavedTensor(f"{of}{function}", "the product", size, "mlp", is_pointwise=True)
        yield SavedTensor(f"{of}up", "the product", size, "mlp")
        yield SavedTensor(f"{of}product", "the gradient of W_down", size, "mlp", ("W_down",))
    else:
        yield SavedTensor(f"{of}activation", "the gradient of W_down", size, "mlp", ("W_down",))
