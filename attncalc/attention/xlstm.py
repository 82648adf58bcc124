"""xLSTM's layer with a matrix memory (mLSTM)."""

from ..quantity import documented
from ..records import dataclass
from ..workload import Mask, Run
from .kind import CacheSpec, Matrix
from .recurrent import Recurrent, projection


@dataclass(frozen=True)
class MLstm(Recurrent):
    """n_heads memories of d_head x d_v, each with a normaliser of d_head and a largest exponent
    (mLSTM).

    The states have the model's dtype. Source: Beck et al. 2024, arXiv:2405.04517, 2.3; xLSTM-7B,
    arXiv:2503.13427; transformers' modeling_xlstm.py.
    """

    n_heads: int = documented("heads, each with a state")
    d_head: int = documented("width of a query and a key head")
    d_v: int = documented("width of a value head")

    name = "mLSTM"
    source = "Beck et al. 2024, arXiv:2405.04517 (xLSTM)"
    splits = (("n_heads", "heads"),)

    @property
    def headline(self) -> str:
        return f"mLSTM, {self.n_heads} memories of {self.d_head} x {self.d_v}"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        keys = self.n_heads * self.d_head
        values = self.n_heads * self.d_v
        return (
            projection("W_q", d_model, keys),
            projection("W_k", d_model, keys),
            projection("W_v", d_model, values),
            projection("W_gate", d_model, values),
            projection("W_input_gate", d_model, self.n_heads, bias=True),
            projection("W_forget_gate", d_model, self.n_heads, bias=True),
            Matrix("norm", values),
            projection("W_o", values, d_model),
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        # a key and its value are added to the memory; a query reads the memory and the normaliser
        return run.new * self.n_heads * (4 * self.d_head * self.d_v + 2 * self.d_head)

    def cache(self) -> tuple[CacheSpec, ...]:
        return (
            CacheSpec("memory", self.n_heads * self.d_head, self.d_v, per="sequence"),
            CacheSpec("normaliser", self.n_heads, self.d_head, per="sequence"),
            CacheSpec("largest exponent", self.n_heads, 1, per="sequence"),
        )
