"""The real-gated linear recurrent unit of Griffin and RecurrentGemma."""

from ..quantity import documented, exact_div
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix
from .recurrent import Recurrent, convolution, projection
from .saved import FP32, MASK, Forward, SavedTensor, matrix_input


@dataclass(frozen=True)
class RgLru(Recurrent):
    """d_inner channels with a state of one element each, gated by block-diagonal matrices of
    n_heads blocks (RG-LRU).

    The state is fp32. The convolution caches the d_conv - 1 columns that the next token needs.
    Source: De et al. 2024, arXiv:2402.19427, 2.4; transformers' modeling_recurrent_gemma.py.
    """

    d_inner: int = documented("channels of the recurrent layer")
    n_heads: int = documented("blocks of a gate's matrix")
    d_conv: int = documented("width of the convolution")

    name = "RG-LRU"
    description = "RG-LRU layers"
    source = "De et al. 2024, arXiv:2402.19427 (Griffin)"
    splits = (("d_inner", "channels"), ("n_heads", "blocks"))

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        width = exact_div(self.d_inner, self.n_heads)
        return (
            projection("W_x", d_model, self.d_inner, bias=True),
            projection("W_y", d_model, self.d_inner, bias=True),
            convolution(self.d_inner, self.d_conv, bias=True),
            Matrix("W_input_gate", self.d_inner, width, self.d_inner, "queries"),
            Matrix("W_recurrent_gate", self.d_inner, width, self.d_inner, "queries"),
            Matrix("decay", self.d_inner),
            projection("W_out", self.d_inner, d_model, bias=True),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0 * run.new  # the state is updated and read element-wise

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec("convolution", self.d_inner, self.d_conv - 1, per="sequence"),
            CacheSpec("state", self.d_inner, 1, per="sequence", dtype="fp32"),
        )

    def saved_tensors(self, forward: Forward) -> tuple[SavedTensor, ...]:
        """Return what RecurrentGemmaRecurrentBlock saves, which runs token by token, and has no
        fused kernel.
        """
        f = forward
        inside = f.bytes * f.tokens * self.d_inner
        operands = {
            "output of W_y": "GELU",
            "output of W_x": "the convolution",
            "sigmoid of the input gate": "sigmoid and the product",
            "sigmoid of the recurrent gate": "sigmoid",
            "recurrent gate times -8": "its product with the decay",
            "decay": "exp and the recurrence",
            "square of the decay": "exp",
            "1 - square of the decay": "its square root",
            "gated input": "its product with the square root",
            "square root": "its product with the gated input",
            "output of the recurrence": "its product with the output of GELU",
            "GELU of the output of W_y": "its product with the recurrence",
        }
        padded = f.bytes * f.B * (f.S + self.d_conv - 1) * self.d_inner
        steps = FP32 * f.B * self.d_inner
        return (
            matrix_input(f, f.d_model, ("W_x", "W_y")),
            *(
                SavedTensor(name, meaning, inside, is_pointwise=True)
                for name, meaning in operands.items()
            ),
            SavedTensor(
                "output of the convolution, padded", "its product with the input gate", padded
            ),
            # heads of one sequence are a view of the convolution's output
            *([] if f.B == 1 else [SavedTensor("input of the gates", "their gradients", inside)]),
            SavedTensor(
                "softplus of the decay's parameter",
                "its product",
                f.bytes * self.d_inner,
                is_statistic=True,
            ),
            SavedTensor("masks of first tokens", "products", 2 * MASK * f.S, is_statistic=True),
            SavedTensor("states of all tokens", "the next state", steps * f.S),
            SavedTensor("decays of all tokens in fp32", "the next state", steps * (f.S - 1)),
            SavedTensor("output", "the gradient of W_out", inside, input_of=("W_out",)),
        )
