"""The pool of recurrent states that SGLang allocates beside the tokens.

Source: SGLang 0.5.23, srt/mem_cache/kv_cache_configurator.py (_handle_max_mamba_cache).
"""

from fractions import Fraction
from math import ceil

from ...quantity import Quantity, quantity, renamed, symbol_like
from ...records import NamedTuple


class StatePool(NamedTuple):
    """The pool of recurrent states, in slots: a slot holds the states of all recurrent layers once.

    A running sequence takes `slots_per_sequence` slots: one for its own states, and with the radix
    cache more, for states from which a later request with the same prefix can go on. One further
    slot is never given to a sequence: `padding`.

    With a drafter, each running sequence also has a set of copies: its states after every drafted
    token, since some of these tokens are rejected. The padding has a set too.

    The ratio r is the memory for states over that for tokens, so the pool gets r / (1 + r) of the
    memory, in whole slots. The tokens get everything that the pool leaves. Example: slots of 10 B,
    ratio 1 and 59 B of memory. Half of it holds 2 slots, of which sequences get 1. They take 20 B,
    and 39 B are left for tokens.

    All methods count slots without the padding, and `n` is a number of them.
    """

    slot_bytes: int  # bytes of a slot
    ratio: Fraction  # --mamba-full-memory-ratio: memory for states / memory for tokens
    slots_per_sequence: int  # slots that a running sequence may take
    # Copies of its states that a running sequence has: one per token that the drafter proposes. 0
    # without a drafter, and for versions whose copies are in `slot_bytes` or `reserved_for_copies`
    drafted_tokens: int
    max_running_requests: int | None  # concurrent sequences; None without a limit
    fixed_slots: int | None  # the number of slots, if an option sets it instead of the ratio
    padding: int = 1  # slots that no sequence gets: 1, or 0 in versions without padding
    # bytes of the copies, for versions that take them from the memory before it is divided
    reserved_for_copies: int = 0

    # What a memory holds

    def slots_in(self, memory: int) -> Quantity:
        """Return how many slots a memory of so many bytes has (max_mamba_cache_size)."""
        if self.fixed_slots is not None:
            return quantity(self.fixed_slots)
        # The pool gets r / (1 + r) of the memory: 9 / 19 with the ratio 0.9. Memory and slots are
        # both multiplied by 19, so that all numbers are whole.
        numerator = self.ratio.numerator
        denominator = self.ratio.numerator + self.ratio.denominator
        pool = self._after_reserved(memory) * numerator
        slot = denominator * self._slot_symbol
        if self.drafted_tokens:
            # n slots are enough for n / slots_per_sequence sequences, which all have copies:
            # (n + n / slots_per_sequence * drafted_tokens) * slot = pool - padding
            without_padding = pool - slot * self._padding_with_copies
            per_slot = slot * (self.slots_per_sequence + self.drafted_tokens)
            n = without_padding * self.slots_per_sequence // per_slot
        else:
            n = pool // slot - self.padding
        return max(quantity(n), quantity(0))

    def token_memory(self, memory: int, slots: int) -> Quantity:
        """Return the bytes of a memory that so many slots leave for tokens: 0 without a slot, or if
        they need more than there is.
        """
        if not slots:
            return quantity(0)
        slot = self._slot_symbol
        left = self._after_reserved(memory) - (slots + self.padding) * slot
        left = left - self._copies(int(slots)) * slot
        return max(quantity(left), quantity(0))

    def _after_reserved(self, memory: int) -> int:
        if not self.reserved_for_copies:
            return memory
        return memory - renamed(
            self.reserved_for_copies, "state_copies", "bytes of the copies of states for a drafter"
        )

    @property
    def _slot_symbol(self) -> int:
        """Bytes of a slot, as one symbol in formulas."""
        return renamed(self.slot_bytes, "state_bytes_per_slot", "bytes of a slot of states")

    # What sequences need

    def needed(self, token_bytes: int, sequences: int) -> int:
        """Return the least bytes such that they and any larger memory hold the sequences.

        Args:
            token_bytes: Bytes that the tokens of the sequences need.
            sequences: Concurrent sequences.
        """
        if self.fixed_slots is not None:
            memory = int(token_bytes) + self._pool_bytes(self.fixed_slots)
        else:
            memory = self._least_memory(int(token_bytes), int(sequences) * self.slots_per_sequence)
        memory += int(self.reserved_for_copies)
        meaning = "the least memory that holds both the tokens and the states"
        return symbol_like(token_bytes, "kv_memory", memory, meaning)

    def _least_memory(self, token_bytes: int, slots: int) -> int:
        """Return the least memory such that it and any larger one have `slots` slots, and leave
        `token_bytes`.

        More memory can leave less for tokens, since a further slot takes all its bytes at once. In
        the example above (slots of 10 B, ratio 1), 59 B have 1 slot and leave 39 B. 60 B have 2
        slots and leave only 30 B.

        With n slots, the smallest memory that has them leaves the least for tokens. That least
        grows with n, so there is a first n from which on it is always enough. Example: for 35 B it
        is 3, since 80 B of memory have 3 slots and leave 40 B.

        The largest memories with one slot fewer may be enough too. In the example, 60 to 79 B have
        2 slots, whose pool takes 30 B. 65 B and more leave 35 B, so 65 B is the answer.
        """
        n = self._enough_slots(token_bytes, slots)
        while n > slots and self._least_left(n - 1) >= token_bytes:
            n -= 1
        if n == slots:
            return self._smallest_memory(n)
        return min(self._smallest_memory(n), self._pool_bytes(n - 1) + token_bytes)

    def _enough_slots(self, token_bytes: int, slots: int) -> int:
        """Return a number of slots, at least `slots`, from which on every memory leaves
        `token_bytes`: an upper bound of the first such number, and close to it.

        It solves `_least_left(n)` = token_bytes for n without rounding, in slots instead of bytes:

            smallest memory     (1 + 1 / r) * (n * k + p)
            pool                n * k + p           if all sequences have copies
                                n + p + m * d       if only m have
            tokens              smallest memory - pool

        with the ratio r, a slot with its part of the copies k, the padding with its copies p,
        max_running_requests m and drafted_tokens d.
        """
        tokens = Fraction(token_bytes, int(self.slot_bytes))
        k = self._slot_with_copies
        p = self._padding_with_copies
        enough = (tokens * self.ratio - p) / k
        if self.max_running_requests is not None:
            # the pool has the smaller of its two sizes, so the smaller n is enough
            copies = self.max_running_requests * self.drafted_tokens
            n_with_limit = (tokens + copies - p / self.ratio) / ((1 + 1 / self.ratio) * k - 1)
            enough = min(enough, n_with_limit)
        return max(slots, ceil(enough))

    def _least_left(self, n: int) -> int:
        """Return the least bytes for tokens that a memory with n slots leaves."""
        return self._smallest_memory(n) - self._pool_bytes(n)

    def _smallest_memory(self, n: int) -> int:
        """Return the bytes of the smallest memory that has n slots, as `slots_in` counts them."""
        pool = int(self.slot_bytes) * (n * self._slot_with_copies + self._padding_with_copies)
        return ceil((1 + 1 / self.ratio) * pool)

    def _pool_bytes(self, n: int) -> int:
        """Return the bytes of a pool of n slots, with its padding and its copies."""
        return (n + self.padding + self._copies(n)) * int(self.slot_bytes)

    # Copies of states, in slots

    @property
    def _slot_with_copies(self) -> Fraction:
        """A slot and its part of a sequence's copies: 5 / 3 with 3 slots per sequence and 2 drafted
        tokens.
        """
        return 1 + Fraction(self.drafted_tokens, self.slots_per_sequence)

    @property
    def _padding_with_copies(self) -> int:
        return self.padding * (1 + self.drafted_tokens)

    def _copies(self, n: int) -> int:
        """Return the copies of states of the sequences that n slots are enough for, and of the
        padding.
        """
        return (self._running(n) + self.padding) * self.drafted_tokens

    def _running(self, n: int) -> int:
        """Return how many sequences n slots are enough for, up to the limit."""
        sequences = n // self.slots_per_sequence
        if self.max_running_requests is None:
            return sequences
        return min(self.max_running_requests, sequences)
