"""One block of a GGUF file: its tensors, of which readers take those that they know."""

import re
from collections.abc import Mapping
from typing import Any

from ...errors import AttncalcError
from ...records import NamedTuple
from ...units import count, truncate
from .header import GgufTensor
from .keys import Keys

# The keys of a layer, as in a model file.
LayerKeys = dict[str, Any]
# Tensors that multiply every token and have no key of their own (Gemma 3n, Nemotron-H, the linear
# layers of Deci, DeepSeek-V4's mixers of streams).
_MATRICES = frozenset(
    {
        "inp_gate",
        "proj",
        "laurel_l",
        "laurel_r",
        "altup_router",
        "altup_correct_coef",
        "altup_predict_coef",
        "ffn_latent_down",
        "ffn_latent_up",
        "attn_output",
        "hc_attn_fn",
        "hc_ffn_fn",
    }
)
# Tensors that multiply nothing and have no key of their own: scales, rotary factors, biases of some
# matrices, a table of the tokens' experts.
_VECTORS = re.compile(
    r"(.+\.(scale|scales|input_scale)|layer_output_scale\.weight|rope_freqs\.weight"
    r"|rope_factors_(long|short)\.weight"
    r"|attn_rot_embd\.weight|altup_correct_scale\.weight|ffn_gate_inp_shexp\.weight|ffn_(gate|up"
    r"|down)(_shexp)?\.bias"
    r"|ffn_latent_(down|up)\.bias|hc_(attn|ffn)_(base|scale)\.weight|ffn_gate_tid2eid\.weight)"
)
_NORM = re.compile(r".*norm.*?(\.(weight|bias))?")


class BlockFacts(NamedTuple):
    """What the keys of the file say about one block."""

    n_heads: int  # query heads
    n_kv_heads: int  # KV heads; 0 in a block without attention
    window: int | None  # tokens of its sliding window, or of its chunk; None for full attention
    chunked: bool  # whether `window` is a chunk
    shares_kv: bool  # whether it reads the cache of an earlier block
    experts_used: int  # experts that a token is routed to


class Block:
    def __init__(
        self,
        number: int,
        tensors: Mapping[str, GgufTensor],
        keys: Keys,
        d_model: int,
        facts: BlockFacts,
    ) -> None:
        self.number = number
        self.keys = keys
        self.d_model = d_model
        self.facts = facts
        self._left = dict(tensors)
        self.norms = self.norm_biases = 0

    def has(self, *names: str) -> bool:
        """Return whether the block has one of these tensors, and no reader took it yet."""
        return any(name in self._left for name in names)

    def take(self, name: str, *dimensions: int | None) -> tuple[int, ...]:
        """Return the shape of a tensor, which is counted then.

        Its name is without 'blk.N.', its `dimensions` are any if None, and those of 1 at the end
        may be left out. Raises AttncalcError if it is missing or has another shape.
        """
        tensor = self._left.pop(name, None)
        if tensor is None:
            raise self.error(f"has no tensor {name}")
        shape = tensor.shape
        while len(shape) > len(dimensions) and shape[-1] == 1:
            shape = shape[:-1]
        while len(shape) < len(dimensions):
            shape = (*shape, 1)
        fits = len(shape) == len(dimensions) and all(
            expected in (None, size) for size, expected in zip(shape, dimensions, strict=True)
        )
        if not fits:
            expected = " x ".join("any" if size is None else count(size) for size in dimensions)
            raise self.error(
                f"has {name} of {' x '.join(map(count, tensor.shape))}, and not of {expected}"
            )
        return shape

    def elements(self, name: str) -> int:
        """Return the elements of a tensor, which is counted then; 0 if the block does not have
        it.
        """
        tensor = self._left.pop(name, None)
        if tensor:
            return tensor.elements
        return 0

    def error(self, problem: str) -> AttncalcError:
        return self.keys.error(f"block {count(self.number)} {problem}")

    def divide(self, width: int, heads: int, what: str) -> int:
        """Return the width of a head. Raises AttncalcError if the heads do not divide the width."""
        if heads < 1 or width % heads:
            raise self.error(
                f"has {what} of width {count(width)}, which {count(heads)} heads do not divide"
            )
        return width // heads

    def check_keys(self, prefix: str, **widths: int) -> None:
        """Raise AttncalcError if the file has one of those keys, after the prefix, with another
        number.
        """
        for name, width in widths.items():
            value = self.keys.number(prefix + name)
            if value not in (None, width):
                raise self.error(
                    f"has tensors for {prefix}{name} {count(width)}, but the key says "
                    f"{count(value or 0)}"
                )

    def take_norms(self) -> int:
        """Take all norms of the model's width that are left; return the elements of norms of
        another width.
        """
        others = 0
        for name in [name for name in self._left if _NORM.fullmatch(name)]:
            tensor = self._left.pop(name)
            if tensor.elements != self.d_model:
                others += tensor.elements
            elif name.endswith(".bias"):
                self.norm_biases += 1
            else:
                self.norms += 1
        return others

    def extra(self) -> dict[str, dict[str, list[int]]]:
        """Return the keys of all tensors that are left. Raises AttncalcError for one that is not
        known.
        """
        extra: dict[str, dict[str, list[int]]] = {}
        for name, tensor in self._left.items():
            if name.removesuffix(".weight") in _MATRICES and len(tensor.shape) == 2:
                extra.setdefault("extra_matrices", {})[as_key(name)] = list(tensor.shape)
            elif _VECTORS.fullmatch(name):
                extra.setdefault("extra_vectors_per_layer", {})[as_key(name)] = [tensor.elements]
            else:
                raise self.error(
                    f"has the tensor {truncate(name, 80)}, which is not known for "
                    f"{self.keys.architecture}"
                )
        self._left.clear()
        return extra


def as_key(name: str) -> str:
    """Return a tensor's name as a key of a model file: 'laurel_l' for 'laurel_l.weight'."""
    return re.sub(r"[^a-z0-9_]", "_", name.removesuffix(".weight").lower())


def without_defaults(keys: LayerKeys) -> LayerKeys:
    """Return the keys without those that equal their default: null, false, 0 or an empty list."""
    return {key: value for key, value in keys.items() if value}
