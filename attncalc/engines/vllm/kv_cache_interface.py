"""The kinds of cache that vLLM has, a class each, as in its v1/kv_cache_interface.py.

A spec describes the cache of one layer. It is stored in pages, of some tokens or of one state, and
answers how large a page is (`page_size_bytes`), and how many a request needs at most
(`max_admission_blocks_per_request`). Classes and properties have vLLM's names.
"""

from typing import ClassVar, Literal

from ...quantity import ceil_div, maximum, minimum, symbol_like
from ...records import dataclass
from .options import VllmArgs

Kind = Literal["full", "mla", "sliding", "chunked", "cross", "mamba"]
# Titles of specs: of compressed attention, of averaged keys, and of a convolution beside the mixer.
POOLS = "pools"
WINDOWS = "windows"
UNPOOLED = "tokens to pool"
CONVOLUTION = "short convolution"


@dataclass(frozen=True)
class KVCacheSpec:
    """The cache of one layer.

    Attributes:
        block_size: Tokens per block.
        shape: (rows, width) of each tensor, which tells layers of equal bytes apart.
        page_size_padded: Bytes that the page is padded to; None without padding.
        title: What it stores, for people; "" if the kind says it.
        alignment: Bytes of which a block of all layers is a multiple.
    """

    kind: ClassVar[Kind]
    # whether requests that start with the same tokens share the blocks of those
    shares_prefixes: ClassVar[bool] = True

    block_size: int
    shape: tuple[tuple[int, int], ...] = ()
    page_size_padded: int | None = None
    title: str = ""
    alignment: int = 1

    @property
    def page_size_bytes(self) -> int:
        """Bytes of one block of one layer, with padding."""
        if self.page_size_padded:
            return self.page_size_padded
        return self.real_page_size_bytes

    @property
    def real_page_size_bytes(self) -> int:
        """Bytes of one block of one layer, without padding."""
        raise NotImplementedError

    def max_admission_blocks_per_request(self, context: int, args: VllmArgs) -> int:
        """Return the blocks that a request of `context` tokens needs at most."""
        raise NotImplementedError

    @property
    def window(self) -> int | None:
        """Tokens of the sliding window or the chunk; None without one."""
        return None

    def first_token(self, context: int) -> int:
        """Return the first token that a request of `context` tokens still needs: 0 without a
        window.
        """
        return 0

    @property
    def label(self) -> str:
        """'full', 'sliding 1,024'."""
        if self.title:
            return self.title
        if self.window is None:
            return self.kind
        return f"{self.kind} {int(self.window):,}"

    @property
    def grouping_key(self) -> tuple[object, ...]:
        """Equal for layers that vLLM can put in one group; of plain ints, because formulas do not
        matter here.
        """
        return (
            self.kind,
            int(self.block_size),
            int(self.page_size_bytes),
            self.shape,
            self.window and int(self.window),
        )


@dataclass(frozen=True, kw_only=True)
class AttentionSpec(KVCacheSpec):
    """The cache of tokens. `token_bytes` are the bytes of one token."""

    token_bytes: int

    @property
    def real_page_size_bytes(self) -> int:
        return self.block_size * self.token_bytes


@dataclass(frozen=True)
class FullAttentionSpec(AttentionSpec):
    """K and V of every token. vLLM treats layers of this class as one type, whatever their
    widths.
    """

    kind: ClassVar[Kind] = "full"

    def max_admission_blocks_per_request(self, context: int, args: VllmArgs) -> int:
        tokens = context
        if args.dcp > 1:
            tokens = ceil_div(context, args.dcp)
        return ceil_div(tokens, self.block_size)


@dataclass(frozen=True, kw_only=True)
class MLAAttentionSpec(FullAttentionSpec):
    """A latent, an indexer's key, or with `compress_ratio` tokens per row a pool of them.

    `token_bytes` are those of a row.
    """

    kind = "mla"

    compress_ratio: int = 1

    @property
    def real_page_size_bytes(self) -> int:
        if self.compress_ratio == 1:
            return self.block_size * self.token_bytes
        return self.block_size // self.compress_ratio * self.token_bytes


@dataclass(frozen=True, kw_only=True)
class SlidingWindowSpec(AttentionSpec):
    """The last `sliding_window` tokens. Also vLLM's SlidingWindowMLASpec."""

    kind = "sliding"

    sliding_window: int

    @property
    def window(self) -> int:
        return self.sliding_window

    def first_token(self, context: int) -> int:
        return max(0, context - int(self.sliding_window) + 1)

    def max_admission_blocks_per_request(self, context: int, args: VllmArgs) -> int:
        # - 1 because the query's own token is among the tokens in flight
        tokens = minimum(self.sliding_window - 1 + _in_flight(self, args), context)
        # + 1 because the window may start in the middle of a block: with block size 4 and a window
        # of 4, tokens 3..6 touch two blocks
        return ceil_div(tokens, self.block_size) + 1


@dataclass(frozen=True, kw_only=True)
class ChunkedLocalAttentionSpec(AttentionSpec):
    """The tokens of the current chunk of `attention_chunk_size`."""

    kind = "chunked"

    attention_chunk_size: int

    @property
    def window(self) -> int:
        return self.attention_chunk_size

    def first_token(self, context: int) -> int:
        chunk = int(self.attention_chunk_size)
        return context // chunk * chunk

    def max_admission_blocks_per_request(self, context: int, args: VllmArgs) -> int:
        tokens = minimum(self.attention_chunk_size + _in_flight(self, args), context)
        return ceil_div(tokens, self.block_size)


@dataclass(frozen=True)
class CrossAttentionSpec(AttentionSpec):
    """K and V of the source, of which each request has its own."""

    kind = "cross"
    shares_prefixes = False

    def max_admission_blocks_per_request(self, context: int, args: VllmArgs) -> int:
        meaning = "source tokens, on the encoder's side"
        tokens = symbol_like(self.token_bytes, "T_source", args.source or 1, meaning)
        # max_num_encoder_input_tokens is max_num_batched_tokens (config/scheduler.py)
        if not args.version.cross_blocks_by_source:
            tokens = maximum(args.limits.max_num_batched_tokens, tokens)
        return ceil_div(tokens, self.block_size)


@dataclass(frozen=True, kw_only=True)
class MambaSpec(KVCacheSpec):
    """A recurrent state, whatever the context; each request has its own.

    Attributes:
        state_bytes: Bytes of the whole state of one layer.
        state_blocks: Blocks of a request: one for its state, and others as `StateBlocks` says.
    """

    kind = "mamba"
    shares_prefixes = False

    state_bytes: int
    state_blocks: int = 1

    @property
    def real_page_size_bytes(self) -> int:
        return self.state_bytes

    def max_admission_blocks_per_request(self, context: int, args: VllmArgs) -> int:
        meaning = "blocks of a request in a group of states"
        return symbol_like(self.state_bytes, "state_blocks", self.state_blocks, meaning)


def _in_flight(spec: AttentionSpec, args: VllmArgs) -> int:
    """Return the tokens of steps that run, whose blocks cannot be freed yet."""
    steps = 1
    if args.version.two_steps_in_flight:
        steps = args.pp + 1
        if args.async_scheduling is False:
            steps = args.pp
    meaning = "tokens that are scheduled and not yet processed"
    tokens = args.limits.max_num_batched_tokens * steps
    return symbol_like(spec.token_bytes, "in_flight", tokens, meaning)
