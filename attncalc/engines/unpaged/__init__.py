"""A memory without pages: what one sequence needs, as often as it goes in. The ideal's, and transformers' own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...attention import CacheSpec
from ...errors import AttncalcError
from ...quantity import named, quantity, ratio, symbol
from ...units import BYTES, DType, count
from ...workload import Workload
from ..base import Bound, Detail, EngineArgs, Pool
from ..pipeline import LayerCacheSpec, summed


@dataclass(frozen=True)
class Unpaged:
    """A memory that sequences share without pages: what one needs, as often as it goes in.

    stages: the layers of each pipeline stage, equal ones together. one: bytes that a layer keeps of
    something. source_tokens: of an encoder's side.
    """

    stages: tuple[tuple[LayerCacheSpec, ...], ...]
    kv_dtype: DType
    source_tokens: int | None
    one: Callable[[CacheSpec, Workload, DType], int]
    source: str
    bound: Bound = "lower"
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    most: int | None = None
    version: str | None = None

    @property
    def parts(self) -> tuple[Unpaged, ...]:
        """Each pipeline stage by itself."""
        if len(self.stages) == 1:
            return ()
        return tuple(dataclasses.replace(self, stages=(stage,)) for stage in self.stages)

    def needed(self, batch: int, context: int) -> int:
        """Bytes of the stage that keeps most."""
        return self._most(Workload.decode(batch, context, source=self.source_tokens))

    def pool(self, memory: int, context: int) -> Pool:
        """What the memory holds. Tokens are its sequences, in fractions too, times their context."""
        memory = symbol("kv_memory", memory, "bytes for the cache")
        tokens = symbol("T", context, "tokens of a sequence")
        source = self.source_tokens and symbol("T_source", self.source_tokens, "source tokens, on the encoder's side")
        one = self._most(Workload.decode(1, tokens, source=source))
        each = named(one, "kv_bytes_per_sequence", "bytes of a sequence")
        detail = Detail("kv_bytes_per_sequence", f"one sequence of {count(context)} tokens", quantity(one), BYTES)
        return Pool(None, quantity(memory * tokens // each), ratio(memory, each), (detail,), ())

    def _most(self, asked: Workload) -> int:
        return max((self._stage(runs, asked) for runs in self.stages), key=int)

    def _stage(self, runs: Sequence[LayerCacheSpec], asked: Workload) -> int:
        return summed(
            runs,
            lambda run: sum(self.one(cached, asked, self.kv_dtype) for cached in run.cached),
            "kv_bytes",
            "bytes of a sequence",
        )


def check(kept: Sequence[LayerCacheSpec], args: EngineArgs) -> None:
    """AttncalcError: the layers keep nothing, or something of a source whose tokens were not given."""
    everything = [cached for run in kept for cached in run.cached]
    if not everything:
        raise AttncalcError("this model keeps no cache", "an encoder sees all its tokens at once: ask for its memory")
    if args.source is None and any(cached.scales_with == "source" for cached in everything):
        raise AttncalcError("this model keeps a cache of its source", "give the source's tokens: --source-context N")
