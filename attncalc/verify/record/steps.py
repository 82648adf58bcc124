"""The steps of a record, the most informative first. Each is one `attncalc verify` that a reader
can repeat.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from ...attention import Chunked, Cross, Grouped, Sliding
from ...attention.recurrent import Recurrent
from ...cost.params import params
from ...model import ModelSpec
from ...records import NamedTuple
from ..options import DEFAULT_CONTEXT, VerifyOptions

# The dtypes that one model is run in, if --dtype does not name one.
DTYPES = ("fp32", "fp16", "bf16")
# The longest context of the steps that double it.
MAX_CONTEXT = 2**20


class Target(NamedTuple):
    """What the steps depend on."""

    type: str  # the type of the device: 'cpu', 'cuda' or 'mps'
    dtype: str  # the dtype of most steps
    # the dtype that `verify` takes without --dtype; None for the model's own
    default_dtype: str | None = None


class Step(NamedTuple):
    """One run of `verify`."""

    model: str  # the model as the command line names it
    options: VerifyOptions
    # steps of the same series have rising contexts; after one that does not fit, the rest is left
    # out
    series: str = ""

    @property
    def arguments(self) -> str:
        """The arguments of `attncalc verify`, without --device."""
        options = self.options
        default = VerifyOptions()
        named = {
            "batch": options.batch,
            "context": options.context,
            "source-context": options.source,
            "dtype": options.dtype,
            "kernel": options.kernel,
            "seed": options.seed,
        }
        defaults = {**default._asdict(), "source-context": default.source}
        parts = [f"--{name} {value}" for name, value in named.items() if value != defaults[name]]
        return " ".join([self.model, *parts, *(["--scaling"] if options.scaling else [])])


def record_steps(
    models: Mapping[str, ModelSpec], base: VerifyOptions, target: Target
) -> list[Step]:
    """Return the steps, the most informative first, without duplicates.

    Args:
        models: the models by the name that the command line takes.
        base: the dtype, the kernel and the seed of every step; a dtype of None stands for several.
    """
    chosen = _Chosen(models)
    steps = _in_order(chosen, base, target)
    return list({step.arguments: step for step in steps}.values())


class _Chosen:
    """The models by their kinds of attention."""

    def __init__(self, models: Mapping[str, ModelSpec]) -> None:
        self.models = models
        self.kinds = {name: kinds_of(model) for name, model in models.items()}
        self.sizes = {
            name: sum(int(g.attention_per_layer) for g in params(m).groups)
            for name, m in models.items()
        }

    @property
    def by_kind(self) -> dict[str, str]:
        """One model per kind of attention. The kinds that most models have come first."""
        number = Counter(kind for kinds in self.kinds.values() for kind in kinds)
        kinds = sorted(number, key=lambda kind: (-number[kind], kind))
        simplest = {kind: self.simplest(kind) for kind in kinds}
        return {kind: model for kind, model in simplest.items() if model}

    @property
    def by_size(self) -> list[str]:
        """All models, the one with the fewest parameters in its layers first."""
        return sorted(self.models, key=lambda name: (self.sizes[name], name))

    @property
    def with_new_layers(self) -> list[str]:
        """The models by size, without those whose attention layers all equal those of models
        before.
        """
        seen: set[str] = set()
        new = []
        for name in self.by_size:
            model = self.models[name]
            layers = {f"{stack.d_model} {group.attentions}" for stack, group in model.groups()}
            if not layers <= seen:
                new.append(name)
            seen |= layers
        return new

    def simplest(self, kind: str) -> str | None:
        """Return the model of this kind which decodes, has the fewest other kinds, and is the
        smallest; or None.
        """
        having = [name for name, kinds in self.kinds.items() if kind in kinds]
        return min(having, key=self._simplicity, default=None)

    def _simplicity(self, name: str) -> tuple[bool, int, int, str]:
        return not self.models[name].main.has_cache, len(self.kinds[name]), self.sizes[name], name


def kinds_of(model: ModelSpec) -> frozenset[str]:
    """Return the kinds of attention of a model: 'MHA', 'MLA', 'cross', 'sliding', 'chunked',
    'sinks', 'recurrent'.
    """
    found = set[str]()
    for _, group in model.groups():
        for kind in group.attentions:
            found.update(_names(kind))
    return frozenset(found)


def _names(kind: object) -> Iterator[str]:
    if isinstance(kind, Recurrent):
        yield "recurrent"
        return
    if isinstance(kind, Cross):
        yield "cross"
        return
    yield getattr(kind, "tag", type(kind).__name__).partition("-")[0]  # GQA-8 is GQA
    span = getattr(kind, "span", None)
    if isinstance(span, Sliding):
        yield "sliding"
    if isinstance(span, Chunked):
        yield "chunked"
    if isinstance(kind, Grouped) and kind.sinks:
        yield "sinks"


def _in_order(chosen: _Chosen, base: VerifyOptions, target: Target) -> Iterator[Step]:
    main = base._replace(dtype=None if target.dtype == target.default_dtype else target.dtype)
    mha, gqa, mla = (chosen.simplest(kind) for kind in ("MHA", "GQA", "MLA"))
    if mha:
        yield Step(mha, main)
    if gqa:
        for dtype in DTYPES if base.dtype is None else ():
            yield Step(gqa, main if dtype == target.dtype else base._replace(dtype=dtype))
    yield from (Step(model, main) for model in chosen.by_kind.values())
    yield from _shapes(chosen, main, DEFAULT_CONTEXT["layers"][target.type])
    if mha:
        yield Step(mha, main._replace(scaling=True))
    yield from (Step(model, main) for model in chosen.with_new_layers)
    yield from (Step(model, main._replace(scaling=True)) for model in (gqa, mla) if model)
    yield from (Step(model, main) for model in chosen.by_size)
    # Last, since they take all the time that is left.
    context = 2 * DEFAULT_CONTEXT["layers"][target.type]
    while context <= MAX_CONTEXT:
        yield from (Step(m, main._replace(context=context), series=m) for m in (gqa, mla) if m)
        context *= 2


def _shapes(chosen: _Chosen, main: VerifyOptions, context: int) -> Iterator[Step]:
    """Yield several sequences, and lengths that are no multiple of 2: kernels pad them, and masks
    are cut.
    """
    odd = context * 3 // 4 + 1
    shapes = {"GQA": (4, None), "MHA": (3, None), "MLA": (2, None), "cross": (2, odd // 2 + 1)}
    for kind, (batch, source) in shapes.items():
        name = chosen.simplest(kind)
        if name:
            longest = chosen.models[name].max_context or odd + 1
            yield Step(
                name, main._replace(batch=batch, context=min(odd, longest - 1), source=source)
            )
    windows: dict[str, int] = {}
    for name, model in chosen.models.items():
        for _, group in model.groups():
            if isinstance(group.attention, Grouped) and isinstance(group.attention.span, Sliding):
                windows[name] = int(group.attention.span.window)
    if windows:
        narrowest = min(windows, key=lambda name: (windows[name], chosen.sizes[name], name))
        yield Step(narrowest, main._replace(batch=2, context=2 * windows[narrowest] + 45))
