"""A bar of text: how weights, runtime memory and cache share the memory of a GPU.

It is drawn with block characters; where an output's encoding has none, characters.py replaces them
by ASCII.
"""

from itertools import groupby
from typing import Literal

from ..records import NamedTuple
from ..units import GIB

# Columns of a bar, which only a terminal of 80 columns or more shows.
WIDTH = 60
Part = Literal["weights", "runtime", "range", "cache", "outside"]
# What a piece of text is, by which a terminal styles it.
Kind = Part | Literal["strong", "alert", "fits", "may_not_fit", "does_not_fit"]
MARKS: dict[Part, str] = {
    "weights": "█",
    "runtime": "▓",
    "range": "▒",
    "cache": "░",
    "outside": " ",
}


class Piece(NamedTuple):
    """Text of one kind; None for plain text."""

    text: str
    kind: Kind | None = None


Line = tuple[Piece, ...]


class Bar(NamedTuple):
    """The memory of one GPU, in bytes."""

    memory: int  # what software sees of the GPU's memory
    usable: int  # what the engine may use of it
    engine: str  # the name of the engine: 'vLLM'
    share: str  # that share as text: '0.92'
    option: str  # the engine's option that sets the share
    weights: int
    # the least and the most that the engine keeps besides weights and cache
    runtime: tuple[int, int]
    cache: tuple[int, int]  # the least and the most that is left for the cache
    has_others: bool = False  # whether the runtime has what other programs hold
    owner: str = "the GPU"  # what has the memory: 'the GPU', 'each GPU', 'the CPU'
    # whether a terminal shows its words only, which take a line less
    in_words: bool = False
    # whether the rest is for the cache; otherwise the model has none, and the rest is free
    has_cache: bool = True

    def parts(self) -> dict[str, str]:
        """Return {part: its size in words}, with both ends of a range: 'runtime 0.3 to 2.4 GiB'."""
        label = "runtime and other programs" if self.has_others else "runtime"
        parts = {"weights": f"weights {gib(self.weights)} GiB"}
        if self.runtime[1]:
            parts["runtime"] = f"{label} {gib_range(*self.runtime)} GiB"
        purpose = "for the KV cache" if self.has_cache else "free"
        parts["cache"] = f"{gib_range(*self.cache)} GiB {purpose}"
        return parts

    def limits(self) -> str:
        """Return how much of the memory the engine takes, as a sentence."""
        if self.usable == self.memory:
            return f"{self.owner} has {gib(self.memory)} GiB"
        share = f"({self.option} {self.share})"
        return (
            f"{self.engine} takes {gib(self.usable)} of {self.owner}'s {gib(self.memory)} GiB "
            f"{share}"
        )

    def words(self) -> tuple[str, str]:
        """Return what the bar shows in two sentences."""
        return ", ".join(self.parts().values()), self.limits()

    def lines(self) -> tuple[Line, ...]:
        """Return the bar, its legend and the memory that the engine takes."""
        low, high = self.runtime
        marks = ""
        if low > 0:
            marks += MARKS["runtime"]
        if high > low:
            marks += MARKS["range"]
        legend = [Piece(MARKS["weights"], "weights"), Piece(f" weights {gib(self.weights)}   ")]
        if marks:
            legend += [Piece(marks, "runtime"), Piece(f" runtime {gib_range(low, high)}   ")]
        rest = "KV cache" if self.has_cache else "free"
        legend += [Piece(MARKS["cache"], "cache"), Piece(f" {rest} {gib_range(*self.cache)}   GiB")]
        return ((Piece("["), *self._cells(), Piece("]")), tuple(legend), (Piece(self.limits()),))

    def _cells(self) -> Line:
        """Return the cells of the bar, with a '|' where the engine's share ends.

        A bar of weights that exceed the memory is as long as they are: [####|#######].
        """
        low, high = self.runtime
        ends: list[tuple[Part, int]] = [
            ("weights", self.weights),
            ("runtime", self.weights + low),
            ("range", self.weights + high),
            ("cache", self.usable),
        ]
        length = max(self.memory, self.weights + high)
        middles = [(2 * i + 1) * length for i in range(WIDTH)]  # of each cell, times 2 * WIDTH
        kinds: list[Part] = [
            next((kind for kind, end in ends if middle < 2 * WIDTH * end), "outside")
            for middle in middles
        ]
        limit = sum(middle < 2 * WIDTH * self.usable for middle in middles)
        parts = (kinds[:limit], kinds[limit:]) if self.usable < length else (kinds,)
        pieces = [
            [Piece(MARKS[kind] * len(list(cells)), kind) for kind, cells in groupby(part)]
            for part in parts
        ]
        if len(pieces) > 1:
            return (*pieces[0], Piece("|"), *pieces[1])
        return tuple(pieces[0])


def gib(size: int) -> str:
    """Return a size in GiB without its unit: '4.1', '1,024'."""
    return f"{size / GIB:,.{1 if size < 1000 * GIB else 0}f}"


def gib_range(low: int, high: int) -> str:
    """Return '4.1 to 4.6', or one figure if both ends print the same."""
    if gib(low) == gib(high):
        return gib(low)
    return f"{gib(low)} to {gib(high)}"
