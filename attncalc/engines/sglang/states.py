"""SGLang's pool of recurrent states: how many slots a memory has, and what is left of it for tokens.

With a memory M and the ratio r the states get M * r / (1 + r), in whole slots and one more that is never
given out. Source: SGLang 0.5.23, _handle_max_mamba_cache (srt/mem_cache/kv_cache_configurator.py).
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

from ...quantity import Quantity, named, quantity


class States(NamedTuple):
    """slot: bytes of the states of all layers, once. per_sequence: slots that a sequence may take.

    ahead: tokens that a drafter proposes, each with a copy of the states for every running sequence, of
    which there are `most`. fixed: slots, where --max-running-requests says so and the ratio does not.
    """

    slot: int
    share: Fraction
    per_sequence: int
    ahead: int
    most: int | None
    fixed: int | None

    def slots(self, memory: int) -> Quantity:
        """Slots of a memory (max_mamba_cache_size), that of no sequence left out."""
        if self.fixed is not None:
            return quantity(self.fixed)
        times, by = self.share.numerator, self.share.numerator + self.share.denominator
        slot = self._slot
        if not self.ahead:
            found = memory * times // (by * slot) - 1
        else:
            one = by * slot * (1 + self.ahead)
            found = (memory * times - one) * self.per_sequence // (by * slot * (self.per_sequence + self.ahead))
        return quantity(found) if found > 0 else quantity(0)

    def rest(self, memory: int, slots: int) -> Quantity:
        """Bytes for tokens: 0 where the states need all there is, or there is no room for one."""
        if not slots:
            return quantity(0)
        left = memory - (slots + 1) * self._slot
        if self.ahead:
            left = left - (self._running(int(slots)) + 1) * self.ahead * self._slot
        return quantity(left) if left > 0 else quantity(0)

    def needed(self, tokens: int, sequences: int) -> int:
        """The least memory from which on there is room for `tokens` bytes of tokens and the sequences' states."""
        if self.fixed is not None:
            found: int = tokens + self._taken(self.fixed)
        else:
            found = self._least(int(tokens), int(sequences) * self.per_sequence)
        if isinstance(tokens, Quantity):
            return named(found, "kv_memory", "the least bytes whose shares hold the tokens and the states")
        return int(found)

    @property
    def _slot(self) -> int:
        return (
            named(self.slot, "state_bytes_per_slot", "bytes of a slot of states")
            if isinstance(self.slot, Quantity)
            else self.slot
        )

    def _least(self, tokens: int, slots: int) -> int:
        """A slot more takes its bytes from the tokens all at once, so that more memory can hold fewer.

        The least number of slots from which on there is always enough left for the tokens is found first;
        before its memory begins, the end of that of one slot less may do too.
        """
        few = self._bounded(tokens, slots)
        while few > slots and self._start(few - 1) - self._taken(few - 1) >= tokens:
            few -= 1
        if few == slots:
            return self._start(few)
        return min(self._start(few), max(self._start(few - 1), tokens + self._taken(few - 1)))

    def _bounded(self, tokens: int, slots: int) -> int:
        """Slots from which on there is surely enough left, a few too many where a drafter's copies are rounded."""
        slot, by = int(self.slot), 1 / self.share
        step = 1 + Fraction(self.ahead, self.per_sequence)
        few = (Fraction(tokens, slot) / by - 1 - self.ahead) / step
        if self.ahead and self.most is not None:
            # with no more than `most` copies at once, whatever the slots
            left = Fraction(tokens, slot) + 1 + self.ahead * (self.most + 1) - (1 + by) * (1 + self.ahead)
            few = min(few, left / ((1 + by) * step - 1))
        return max(slots, ceil(few))

    def _start(self, slots: int) -> int:
        """The least memory with so many slots."""
        step = 1 + Fraction(self.ahead, self.per_sequence)
        return ceil((1 + 1 / self.share) * int(self.slot) * (slots * step + 1 + self.ahead))

    def _taken(self, slots: int) -> int:
        """Bytes that the states take, with a drafter's copies."""
        copies = (self._running(slots) + 1) * self.ahead if self.ahead else 0
        return (slots + 1 + copies) * int(self.slot)

    def _running(self, slots: int) -> int:
        fit = slots // self.per_sequence
        return fit if self.most is None else min(self.most, fit)
