"""The distinct attention layers of a model, each of which is verified once."""

from ..attention import Attention, Cross
from ..attention.recurrent import NoAttention
from ..cost.common import group_name
from ..model import ModelSpec, Stack
from ..records import NamedTuple
from ..workload import Mask


class Case(NamedTuple):
    """One distinct attention layer of a model: the self- or cross-attention of one or more layer
    groups.
    """

    groups: tuple[str, ...]  # names of the layer groups that have this attention
    stack: Stack  # the stack that they belong to
    kind: Attention  # the attention kind; with tensor parallelism the part of one device
    whole: Attention  # the attention kind of all devices together
    tp: int  # tensor-parallel devices
    d_source: int  # width of the tokens that keys and values are made from
    layers: int  # layers that have this attention, in all groups
    layers_with_weights: int  # layers among them that have their own weights

    @property
    def group(self) -> str:
        """Name of the first layer group. Its costs are those of the other groups too."""
        return self.groups[0]

    @property
    def name(self) -> str:
        """Name that is unique in the model: 'decoder', 'decoder_cross', 'dense and moe'."""
        return " and ".join(f"{group}_cross" if self.crosses else group for group in self.groups)

    @property
    def cost_name(self) -> str:
        """Name that the cost functions use for this attention of the first layer group."""
        if self.crosses:
            return f"{self.group}_cross"
        return self.group

    @property
    def crosses(self) -> bool:
        """Whether keys and values come from a source."""
        return isinstance(self.kind, Cross)

    @property
    def mask(self) -> Mask:
        if self.crosses:
            return Mask("bidirectional")
        return self.stack.mask

    @property
    def decodes(self) -> bool:
        """Whether it decodes token by token and caches something for later tokens."""
        return self.stack.has_cache and bool(self.kind.cache())


def cases(model: ModelSpec, *, symbolic: bool = False) -> tuple[Case, ...]:
    """Return every distinct attention layer of a model, as one tensor-parallel device has it.

    Symbolic cases have the same order.
    """
    part = model.symbolic() if symbolic else model.plain()
    by_key: dict[object, Case] = {}
    for (stack, layers), (_, whole_layers) in zip(part.groups(), model.groups(), strict=True):
        group = group_name(model, stack, layers)
        for kind, whole in zip(layers.attentions, whole_layers.attentions, strict=True):
            if isinstance(kind, NoAttention):
                continue
            d_source = part.d_source if kind is layers.cross else stack.d_model
            key = (whole, stack.name, d_source)
            case = by_key.get(key) or Case((), stack, kind, whole, model.tp, d_source, 0, 0)
            by_key[key] = case._replace(
                groups=(*case.groups, group),
                layers=case.layers + int(layers.count),
                layers_with_weights=case.layers_with_weights
                + (0 if layers.shares_weights else int(layers.count)),
            )
    return tuple(by_key.values())
