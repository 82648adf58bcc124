"""The ideal engine: the tokens that a layer's span can reach, and nothing else.

No pages, no padding: min(T, W) tokens of a window or a chunk, true lengths in a ragged batch. Every
real engine keeps at least about this much (transformers' own cache one token less of a window).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..attention import Cached
from ..errors import AttncalcError
from ..quantity import named, quantity, ratio, symbol, total
from ..units import BYTES, DType, count, dtype
from ..workload import Workload
from .layout import Bound, Detail, Kept, Pool, Settings, gathered, stages, summed

NAME = "ideal"


@dataclass(frozen=True)
class Unpaged:
    """A memory that sequences share without pages: what one needs, as often as it goes in.

    stages: the layers of each pipeline stage, equal ones together. one: bytes that a layer keeps of
    something. source_tokens: of an encoder's side.
    """

    stages: tuple[tuple[Kept, ...], ...]
    kv_dtype: DType
    source_tokens: int | None
    one: Callable[[Cached, Workload, DType], int]
    source: str
    bound: Bound = "lower"
    facts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    most: int | None = None
    parts: tuple[Unpaged, ...] = ()

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

    def _stage(self, runs: Sequence[Kept], asked: Workload) -> int:
        return summed(
            runs,
            lambda run: sum(self.one(cached, asked, self.kv_dtype) for cached in run.cached),
            "kv_bytes",
            "bytes of a sequence",
        )


def layout(kept: Sequence[Kept], settings: Settings) -> Unpaged:
    """The least that those layers keep. AttncalcError: a setting of another engine, or they keep nothing."""
    settings.only(NAME, frozenset({"pp"}))
    check(kept, settings)
    runs = tuple(gathered(stage) for stage in stages(kept, settings.pp))
    return Unpaged(runs, settings.kv_dtype, settings.source, layer_bytes, "the tokens that a layer's span can reach")


def check(kept: Sequence[Kept], settings: Settings) -> None:
    """AttncalcError: the layers keep nothing, or something of a source whose tokens were not given."""
    everything = [cached for run in kept for cached in run.cached]
    if not everything:
        raise AttncalcError("this model keeps no cache", "an encoder sees all its tokens at once: ask for its memory")
    if settings.source is None and any(cached.grows == "source" for cached in everything):
        raise AttncalcError("this model keeps a cache of its source", "give the source's tokens: --source-context N")


def layer_bytes(cached: Cached, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one layer keeps of `cached` for the whole batch."""
    row = _token(cached, kv_dtype)
    if cached.grows == "never":
        return workload.batch * row
    if cached.grows == "source":
        return workload.batch * (workload.source or 0) * row
    kept = [run.sequences * cached.span.kept(run.context) for run in workload.runs]
    return (kept[0] if len(kept) == 1 else total(kept)) * row


def token_bytes(cached: Cached, workload: Workload, kv_dtype: DType) -> int:
    """Bytes that one more token of one sequence adds to what a layer keeps; 0 once its span is full."""
    now, then = int(workload.context), int(workload.context) + 1
    if cached.grows != "context" or cached.span.kept(then) <= cached.span.kept(now):
        return quantity(0)
    return _token(cached, kv_dtype)


def _token(cached: Cached, kv_dtype: DType) -> int:
    """Bytes of one token's rows, or of a state."""
    if cached.dtype:
        return cached.rows * dtype(cached.dtype).row_bytes(cached.width, "state_bytes")
    return cached.rows * kv_dtype.row_bytes(cached.width)
