"""Replaces a layer's attention by another kind: the same queries, with other keys and values."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ..errors import AttncalcError
from ..records import NamedTuple
from ..units import parse_count, truncate
from .cross import Cross
from .grouped import Grouped, kv_heads_tip
from .kind import Attention

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from .latent import Latent
    from .linear import GatedDeltaNet

# The variants, each with its number if none is given: KV heads as LLaMA has, a latent as DeepSeek
# has.
_USUAL = {"mha": 0, "mqa": 0, "gqa": 8, "mla": 512, "linear": 0}
# Tokens of the convolution of linear attention, as in Qwen3-Next and Kimi Linear.
_CONVOLVED = 4


class Variant(NamedTuple):
    """The kind of attention that replaces a layer's own (--attention)."""

    name: str  # 'mha', 'mqa', 'gqa', 'mla' or 'linear'
    number: int = 0  # KV heads of 'gqa', or kv_lora_rank of 'mla'
    rope: int = 0  # qk_rope_head_dim of 'mla'; 0 for half of a head

    @classmethod
    def parse(cls, text: str) -> Variant:
        """Return the variant for 'mha', 'mqa', 'gqa:4', 'mla:512', 'mla:512+64' or 'linear'; 'mla'
        is mla:512.

        Its title is read too: 'GQA-4'. Raises AttncalcError for any other text.
        """
        name, colon, number = text.lower().replace("-", ":").partition(":")
        if name in _USUAL and not colon:
            return cls(name, _USUAL[name])
        number, plus, rope = number.partition("+")
        if _USUAL.get(name) and number and (name == "mla" or not plus):
            size = parse_count(number, f"--attention {name}")
            if plus:
                return cls(name, size, parse_count(rope, f"--attention {name}"))
            return cls(name, size)
        raise AttncalcError(
            f"--attention: unknown kind '{truncate(text)}'",
            "known: mha, mqa, gqa:N (N KV heads), mla:R (a latent of width R), linear; for "
            "example gqa:8, mla:512, or "
            "mla:512+64 with a rotary key of 64; a model file has further kinds, as mamba2: "
            "'attncalc presets show nemotron-h-56b'",
        )

    @classmethod
    def is_named(cls, text: str) -> bool:
        """Return whether a text names a variant, whatever its number."""
        return text.lower().replace("-", ":").partition(":")[0] in _USUAL

    @property
    def title(self) -> str:
        """Its name in a table: 'MHA', 'MLA-512', 'linear'."""
        if self.name == "linear":
            return self.name
        title = self.name.upper()
        if self.number:
            title += f"-{self.number}"
        if self.rope:
            title += f"+{self.rope}"
        return title

    def applies_to(self, kind: Attention) -> bool:
        """Return whether `kind` has KV heads that this variant can replace."""
        return isinstance(kind, Grouped) or _is_latent(kind)

    def apply(self, kind: Attention) -> Attention:
        """Return `kind` as this variant; a kind without KV heads is returned unchanged.

        Raises AttncalcError if the number of KV heads does not divide the query heads.
        """
        if self.name in ("mla", "linear") and _is_cross(kind):
            return kind  # no released model caches a latent, or a state, of a source
        if isinstance(kind, Cross):
            return Cross(self._grouped(kind.heads))
        if isinstance(kind, Grouped) or _is_latent(kind):
            if self.name == "linear":
                return _linear(kind)
            if self.name == "mla":
                return self._latent(kind)
            return self._grouped(kind)
        return kind

    def assumption(self, kind: Attention) -> str:
        """Return what had to be assumed to make `kind` this variant, in words; '' for nothing."""
        if _is_cross(kind):
            return "cross-attention as released" if self.name in ("mla", "linear") else ""
        if self.name == "linear" and (isinstance(kind, Grouped) or _is_latent(kind)):
            delta = _linear(kind)
            state = f"a state of {delta.d_head} x {delta.d_v} per query head"
            return f"a gated delta net with {state} and a convolution over {delta.d_conv} tokens"
        if _is_latent(kind) and self.name != "mla":
            return "queries are not compressed, and every head has its own rotary part"
        if isinstance(kind, Grouped) and self.name == "mla":
            rope = (
                ""
                if self.rope
                else f"a rotary key of {self._latent(kind).d_rope} beside the latent; "
            )
            return f"{rope}queries not compressed; no biases, norms or sinks"
        return "" if self.applies_to(kind) or not kind.cache() else f"{kind.label} as released"

    def _grouped(self, kind: Grouped | Latent) -> Grouped:
        n_kv_heads = {"mha": kind.n_heads, "mqa": 1}.get(self.name, self.number)
        if kind.n_heads % n_kv_heads:
            raise AttncalcError(
                f"{self.name}:{self.number}: {n_kv_heads} does not divide the {kind.n_heads} query "
                "heads",
                kv_heads_tip(kind.n_heads),
            )
        if isinstance(kind, Grouped):
            return dataclasses.replace(kind, n_kv_heads=n_kv_heads)
        return Grouped(
            kind.n_heads, n_kv_heads, kind.d_nope + kind.d_rope, kind.d_v, span=kind.span
        )

    def _latent(self, kind: Grouped | Latent) -> Latent:
        if not isinstance(kind, Grouped):
            return dataclasses.replace(
                kind, kv_lora_rank=self.number, d_rope=self.rope or kind.d_rope
            )
        from .latent import Latent

        # As in DeepSeek-V2 (arXiv:2405.04434, 3.1.2), the rotary key is half as wide as a head.
        widths = kind.widths()
        rope = self.rope or max(1, int(widths.d_qk) // 2)
        return Latent(kind.n_heads, self.number, widths.d_qk, rope, widths.d_v, span=kind.span)


def _linear(kind: Grouped | Latent) -> GatedDeltaNet:
    """Return linear attention with a state per query head, of the widths of a key and a value."""
    from .linear import GatedDeltaNet

    widths = kind.widths()
    return GatedDeltaNet(
        kind.n_heads, d_head=int(widths.d_qk), d_v=int(widths.d_v), d_conv=_CONVOLVED
    )


def _is_cross(kind: Attention) -> bool:
    """Return whether `kind` is cross-attention: to an encoder's tokens, or to an image's, which
    text runs without.
    """
    return isinstance(kind, Cross) or (isinstance(kind, Grouped) and not kind.widths().n_heads)


def _is_latent(kind: Attention) -> TypeIs[Latent]:
    """Return whether `kind` is MLA, whose module is not imported for models with other kinds."""
    if isinstance(kind, Grouped | Cross):
        return False
    from .latent import Latent

    return isinstance(kind, Latent)
