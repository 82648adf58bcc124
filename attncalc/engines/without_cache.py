"""The layout of a model without a cache, as an encoder: a step computes whole texts, and keeps
nothing of them.
"""

from ..quantity import Quantity, minimum, quantity, ratio, symbol
from ..records import dataclass
from .base import NO_LIMIT, Bound, Pool


@dataclass(frozen=True)
class StepLayout:
    """The texts that one step computes. Fields and methods without a comment are those of
    CacheLayout.
    """

    max_num_seqs: int  # the most texts of one step
    max_tokens: int | None  # tokens of one step; None if it takes all tokens of its texts
    source: str
    version: str | None
    facts: tuple[str, ...]
    slots: int | None = None  # texts that the server is started for; None for max_num_seqs
    notes: tuple[str, ...] = ()
    bound: Bound = "reserved"
    parts: "tuple[StepLayout, ...]" = ()

    def needed(self, batch: int, context: int) -> int:
        return 0

    def with_shared_prefix(self, tokens: int) -> None:
        return None

    def tokens(self, batch: int, context: int) -> Quantity:
        """Return the tokens of a step, for a server that is started for `batch` texts of `context`
        tokens.
        """
        if self.max_tokens is not None:
            return quantity(symbol("N", self.max_tokens, "tokens of one step"))
        texts = symbol("B", batch, "texts")
        return quantity(texts * symbol("T", context, "tokens of each text"))

    def texts(self, length: int, tokens: int) -> Quantity:
        """Return how many texts of `length` tokens a step of `tokens` computes."""
        texts = tokens // symbol("length", length, "tokens of one text")
        most = self.slots or self.max_num_seqs
        return quantity(minimum(texts, symbol("max_num_seqs", most, "texts of one step")))

    def most_texts(self, length: int) -> Quantity:
        """Return the most texts of `length` tokens that one step computes, whatever the memory."""
        most = symbol("max_num_seqs", self.max_num_seqs, "texts of one step")
        if self.max_tokens is None:
            return quantity(most)
        tokens = symbol("N", self.max_tokens, "tokens of one step")
        texts = tokens // symbol("length", length, "tokens of one text")
        return quantity(minimum(texts, most))

    def pool(self, memory: int, context: int) -> Pool:
        """Return no tokens: nothing is kept. The concurrency is how many texts a step computes."""
        return Pool(None, NO_LIMIT, ratio(self.most_texts(context), 1), (), ())
