"""The layout of the engines without pages, ideal and transformers: each sequence takes the bytes of
its tokens.
"""

import dataclasses
from collections.abc import Callable, Sequence

from ..attention import CacheSpec
from ..errors import AttncalcError
from ..quantity import named, quantity, ratio, symbol
from ..records import dataclass
from ..units import BYTES, DType, count
from ..workload import Workload
from .base import NO_LIMIT, Bound, Detail, EngineArgs, Pool
from .pipeline import NO_CACHE, LayerCacheSpec, sum_over_layers


@dataclass(frozen=True)
class UnpagedLayout:
    """A cache without pages: memory / (bytes of one sequence) sequences fit."""

    # the layers of each pipeline stage, equal ones merged
    stages: tuple[tuple[LayerCacheSpec, ...], ...]
    kv_dtype: DType
    source_tokens: int | None  # source tokens of the encoder; None without an encoder
    # returns the bytes that one layer stores of one CacheSpec
    layer_bytes: Callable[[CacheSpec, Workload, DType], int]
    source: str  # see CacheLayout for this and all further fields
    bound: Bound = "lower"
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    max_num_seqs: int | None = None
    version: str | None = None

    @property
    def parts(self) -> "tuple[UnpagedLayout, ...]":
        """The layout of each pipeline stage, if there are several."""
        if len(self.stages) == 1:
            return ()
        return tuple(dataclasses.replace(self, stages=(stage,)) for stage in self.stages)

    def needed(self, batch: int, context: int) -> int:
        """Return the bytes that the sequences need on the stage that needs the most."""
        return self._largest_stage(Workload.decode(batch, context, source=self.source_tokens))

    def with_shared_prefix(self, tokens: int) -> None:
        return None

    def pool(self, memory: int, context: int) -> Pool:
        """Return what fits. Its tokens are sequences * context, where the number of sequences may
        be a fraction.
        """
        memory = symbol("kv_memory", memory, "bytes for the cache")
        tokens = symbol("T", context, "tokens of a sequence")
        source = self.source_tokens and symbol(
            "T_source", self.source_tokens, "source tokens, on the encoder's side"
        )
        sequence_bytes = self._largest_stage(Workload.decode(1, tokens, source=source))
        label = f"one sequence of {count(context)} tokens"
        details = (Detail("kv_bytes_per_sequence", label, quantity(sequence_bytes), BYTES),)
        # a pipeline stage whose layers all share the caches of earlier layers
        if not sequence_bytes:
            return Pool(None, NO_LIMIT, ratio(NO_LIMIT, 1), details, ())
        divisor = named(sequence_bytes, "kv_bytes_per_sequence", "bytes of a sequence")
        return Pool(None, quantity(memory * tokens // divisor), ratio(memory, divisor), details, ())

    def _largest_stage(self, workload: Workload) -> int:
        def in_layer(spec: LayerCacheSpec) -> int:
            return sum(self.layer_bytes(cached, workload, self.kv_dtype) for cached in spec.cached)

        sizes = (
            sum_over_layers(specs, in_layer, "kv_bytes", "bytes of a sequence")
            for specs in self.stages
        )
        return max(sizes, key=int)


def check_specs(specs: Sequence[LayerCacheSpec], args: EngineArgs) -> None:
    """Raise AttncalcError if no layer has a cache, or if the source's length is missing."""
    cache_specs = [cached for spec in specs for cached in spec.cached]
    if not cache_specs:
        raise AttncalcError(*NO_CACHE)
    if args.source is None and any(cached.per == "source token" for cached in cache_specs):
        raise AttncalcError(
            "this model caches its source", "give the length of the source: --source-context N"
        )
