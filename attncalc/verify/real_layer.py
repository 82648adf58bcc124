"""A real torch layer of a case, with random weights and random tokens."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..attention import FULL, Grouped
from ..attention.recurrent import Recurrent
from .cases import Case
from .errors import CannotRunError
from .kernels import REFERENCE, reference, sdpa
from .layers import build
from .layers.base import Attend, AttentionLayer
from .layers.cache import Cache
from .layers.cross import CrossLayer
from .layers.grouped import GroupedLayer
from .layers.recurrent import RecurrentLayer, State, project
from .layers.split import keep_first_part
from .masks import NO_MASK, KernelMask, decode_mask, mask_matrix, prefill_mask
from .request import VerifyRequest

# Random values that a large matrix repeats: the largest prime below 2^20.
PERIOD = 1_048_573


class RealLayer:
    """One layer on a device, with the tokens to run it on."""

    def __init__(
        self,
        case: Case,
        request: VerifyRequest,
        device: torch.device,
        random: torch.Generator | None,
    ) -> None:
        self.case = case  # the attention layer that it implements
        self.request = request  # batch, context and dtype
        self.device = device
        self.random = random
        self.d_model = int(case.stack.d_model)
        kind = case.kind
        with torch.device("meta"):
            module = _build_part(case)
        self.module = materialised(module, device, request.torch_dtype)
        if random is not None:
            initialised(self.module, random)
        tokens = (request.source or 0) if case.stack.input == "source" else request.context
        # its input, (B, tokens, d_model)
        self.x = self.random_tokens(
            tokens, (kind.d_input if isinstance(kind, Grouped) else None) or self.d_model
        )
        if isinstance(kind, Grouped) and kind.shares_kv and isinstance(self.module, GroupedLayer):
            widths = (kind.d_head, kind.d_v or kind.d_head)
            k, v = (
                self.random_tokens(tokens, kind.n_kv_heads * n).unflatten(-1, (-1, n))
                for n in widths
            )
            self.module.earlier_kv = (k, v)
        # tokens on the encoder's side, (B, T_source, d_source), for cross-attention
        self.source = (
            self.random_tokens(request.source or 0, case.d_source) if case.crosses else None
        )

    def cached_bytes(self, tokens: int) -> int:
        """Return the bytes cached for `tokens` tokens of each sequence."""
        width = sum(c.rows * c.width for c in self.case.kind.cache())
        return self.request.batch * tokens * width * self.x.itemsize

    def random_tokens(self, tokens: int, width: int) -> Tensor:
        """Return (B, tokens, width) from a normal distribution, like the output of a norm."""
        shape = (self.request.batch, tokens, width)
        return torch.randn(
            shape, generator=self.random, device=self.device, dtype=self.request.torch_dtype
        )

    @property
    def is_recurrent(self) -> bool:
        """Whether it processes token after token by a recurrence, without an attention kernel."""
        return isinstance(self.module, RecurrentLayer)

    def new_cache(self, reserved: int = 0) -> Cache:
        """Return an empty KV cache, with room for `reserved` tokens."""
        return Cache(FULL if self.case.crosses else self.case.kind.span, reserved)

    def new_state(self) -> Cache | State:
        """Return an empty cache, or an empty state for a recurrent layer."""
        if self.is_recurrent:
            return State()
        return self.new_cache()

    def full_cache(self, tokens: int) -> Cache:
        """Return a cache that holds tokens - 1 random tokens and has room for the last; or K and V
        of the source.
        """
        cache = self.new_cache()
        self.prefill(1, attend_with(REFERENCE, NO_MASK), cache)
        if self.case.crosses:
            return cache
        full = self.new_cache(tokens)
        shapes = [(row.shape[0], tokens - 1, *row.shape[2:]) for row in cache.rows]
        full.extend(
            *(
                torch.randn(s, generator=self.random, device=self.device, dtype=self.x.dtype)
                for s in shapes
            )
        )
        return full

    def prefill_mask(self, tokens: int) -> KernelMask:
        if self.case.crosses:
            return NO_MASK
        return prefill_mask(
            self.case.kind.span, self.case.mask, torch.arange(tokens, device=self.device)
        )

    def decode_mask(self, cache: Cache | State) -> KernelMask:
        """Return the mask of the next token that `cache` takes in."""
        if self.case.crosses or isinstance(cache, State):
            return NO_MASK
        keys = cache.positions_after(1, self.device)
        return decode_mask(self.case.kind.span, self.case.mask, cache.tokens_seen, keys)

    def prefill(self, tokens: int, attend: Attend, cache: Cache | State | None = None) -> Tensor:
        """Run the first `tokens` tokens together: (B, tokens, d_model). A recurrent layer ignores
        `attend`.
        """
        if self.is_recurrent:
            return project(self.module, self.x[:, :tokens], cache or State())
        from_source = () if self.source is None else (self.source,)
        return project(self.module, self.x[:, :tokens], attend, cache, *from_source)

    def step(self, position: int, attend: Attend, cache: Cache | State) -> Tensor:
        """Run one decode step for the token at `position`: (B, 1, d_model)."""
        x = self.x[:, position : position + 1]
        if isinstance(cache, State):
            return project(self.module, x, cache)
        if isinstance(self.module, CrossLayer):
            return self.module.decode(x, attend, cache)
        return project(self.module, x, attend, cache)

    def decode(self, position: int, kernel: str, cache: Cache | State) -> Tensor:
        """Run `step` with this kernel and the mask that the token needs."""
        return self.step(position, attend_with(kernel, self.decode_mask(cache)), cache)

    def by_definition(self) -> Tensor:
        """Return the output of a prefill by the layer's definition: (B, S, d_model) in fp64 on the
        CPU.
        """
        assert isinstance(self.module, AttentionLayer)
        kind = self.case.kind
        weights = {
            name: parameter.detach().cpu().double()
            for name, parameter in self.module.named_parameters()
        }
        if isinstance(self.module, GroupedLayer) and self.module.shares_kv:
            weights |= {
                n: t.flatten(2).cpu().double()
                for n, t in zip("kv", self.module.earlier_kv, strict=True)
            }
        x = self.x.cpu().double()
        if self.source is not None:
            return self.module.definition(kind, weights, x, self.source.cpu().double(), None)
        positions = torch.arange(x.shape[1])
        return self.module.definition(
            kind, weights, x, x, mask_matrix(kind.span, self.case.mask, positions, positions)
        )


def _build_part(case: Case) -> nn.Module:
    """Return the layer of a case, as one of its tensor-parallel devices has it.

    It is split as a whole layer, and not built of the formula's part: both are compared. A
    recurrent layer is built of that part.
    """
    d_model = int(case.stack.d_model)
    if case.tp == 1 or isinstance(case.kind, Recurrent):
        return build(case.kind, d_model, case.d_source)
    module = build(case.whole, d_model, case.d_source)
    keep_first_part(module, case.whole, case.tp)
    return module


def attend_with(kernel: str, mask: KernelMask, *, with_sinks: bool = True) -> Attend:
    """Return a kernel, or the reference, with this mask; `with_sinks=False` ignores a layer's
    sinks.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
        used_sinks = sinks if with_sinks else None
        if kernel == REFERENCE:
            return reference(q, k, v, mask, scale, used_sinks)
        return sdpa(kernel, q, k, v, mask, scale, used_sinks)

    return attend


def attend_with_first(kernels: Sequence[str], mask: KernelMask) -> Attend:
    """Return the first of these kernels that runs the inputs it is given, with this mask and
    without sinks.
    """

    def attend(q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
        for kernel in kernels[:-1]:
            try:
                return sdpa(kernel, q, k, v, mask, scale)
            except CannotRunError:
                continue
        return sdpa(kernels[-1], q, k, v, mask, scale)

    return attend


def materialised(module: nn.Module, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Replace the module's parameters, which have no memory, by uninitialised ones on the device,
    and return it.

    nn.Module.to_empty does the same, except that it fails for fake tensors.
    """
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            empty = torch.empty(parameter.shape, dtype=dtype, device=device)
            setattr(part, name, nn.Parameter(empty, requires_grad=False))
    return module


def initialised(module: nn.Module, random: torch.Generator) -> nn.Module:
    """Fill the module's parameters with random values and return it.

    Matrices have variance 1 / fan_in, so that a token keeps its spread; gains are near 1, biases
    and sinks near 0.
    """
    for name, parameter in module.named_parameters():
        if parameter.dim() > 1:
            _fill(parameter, (3 / parameter.shape[-1]) ** 0.5, random)
        else:
            parameter.uniform_(-0.5, 0.5, generator=random)
            if name.endswith("norm.weight"):
                parameter.add_(1)
    return module


def _fill(matrix: Tensor, bound: float, random: torch.Generator) -> None:
    """Fill a matrix with random values between -bound and bound.

    A CPU draws random numbers ten times more slowly than it copies them, so a large matrix repeats
    PERIOD of them. The period is prime, so that each row starts at another of them and no two rows
    are equal.
    """
    values = matrix.view(-1)
    drawn = min(PERIOD, matrix.numel())
    values[:drawn].uniform_(-bound, bound, generator=random)
    whole = values.numel() // drawn
    values[drawn : whole * drawn].view(-1, drawn).copy_(values[:drawn])
    values[whole * drawn :].copy_(values[: values.numel() - whole * drawn])
