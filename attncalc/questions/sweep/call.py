"""The call of Python: `sweep(["llama3-8b", "qwen3-8b"], context="4K,8K", gpu="h100")`."""

from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO, StringIO
from typing import Any, get_args, get_origin

from ...config import ModelLike, load
from ...config.prices import read_prices
from ...errors import AttncalcError
from ...options import options_of, parsed
from ...show.formats import choose_row_format
from ..arguments import errors_in_python, without_metadata
from ..results import Rows, ShownReport
from .axes import FLAGS, TRAFFIC_AXES, Axis, SweepOptions, read_axes
from .columns import columns_of, read_columns, read_columns_of
from .fits import Need
from .grid import MAX_ROWS, check_screen, sweep_report
from .options import RowOptions
from .others import OTHERS
from .output import rows_of
from .selection import read_selection
from .sweep import LoadedModel, Sweep, has_fit

_KINDS = SweepOptions.__annotations__


class ShownSweep(Sweep, Rows):
    """A sweep that print() shows as the command does, and a notebook as a table."""

    def to(self, form: str) -> Any:
        chosen = choose_row_format(form, None, on_terminal=True)
        if chosen is None:
            return str(self)
        file: Any = BytesIO() if chosen.is_binary else StringIO()
        selected = self.selection.of(self.tuples(chosen.escape), self.names)
        chosen.write(rows_of(self, chosen, selected), file)
        return file.getvalue()

    @property
    def report(self) -> ShownReport:
        """The table that the command prints. Raises AttncalcError for more rows than a screen
        shows.
        """
        check_screen(self)
        return ShownReport(*sweep_report(self, self.selection.of(self.tuples(), self.names)))

    def __str__(self) -> str:
        return str(self.report)

    def _repr_html_(self) -> str | None:
        if len(self) <= MAX_ROWS:
            return self.report._repr_html_()
        return None


@errors_in_python()
def sweep(
    models: ModelLike | Sequence[ModelLike],
    *,
    columns: str | Sequence[str] | None = None,
    **options: Any,
) -> ShownSweep:
    """Return the rows of every combination of the values, as dicts that are computed while they are
    read.

    >>> rows = sweep(models=["llama2-7b", "llama2-70b"], context="2K,4K")
    >>> for row in rows:
    ...     print(row["model"], row["context"], row["kv_cache"])
    llama2-7b 2048 1073741824
    llama2-7b 4096 2147483648
    llama2-70b 2048 671088640
    llama2-70b 4096 1342177280

    `pandas.DataFrame(rows)` makes a table of them. A row has the axes that vary, then the figures
    under the names that they have in JSON, and `error`: None, or why this combination is not
    possible; then its figures are None.

    Args:
        models: Names, paths or ModelSpecs.
        columns: The names of the figures, as a list or as 'kv_cache,params_total'; by default the
            main ones.
        options: Other options. Each that takes one value in `kv`, `flops` or `fit` is an axis:
            context, batch, attention, dtype, kv_dtype, tp, gpu, gpus, engine, kv_memory, ... Its
            values are a value, a list, or a text as '8K,32K' or '1K:128K:x2'. An item of a list is
            one value, whatever is in it:
            pattern=["3 local, 1 global", "5 local, 1 global"] has two. The others hold for all
            rows, as enforce_eager=True. With `gpu` or `kv_memory`, rows have the figures of `fit`
            too; with `train=True` those of `train`, whose options are then the axes: zero,
            optimizer, recompute, ... `where`, `sort` and `top` keep some of the rows; `failures`
            names those of which `fail_if` is true.

    Raises AttncalcError if an axis is unknown, a value is not valid, or there are more than 10
    million combinations.
    """
    return _read_sweep(models, columns, options)


def _read_sweep(
    models: ModelLike | Sequence[ModelLike],
    columns: str | Sequence[str] | None,
    options: dict[str, Any],
) -> ShownSweep:
    """Return the sweep that the options describe; arguments and errors as of `sweep`."""
    assume_grouped = bool(options.pop("assume_grouped", False))
    of_rows = {name: options.pop(name) for name in options_of(RowOptions) if name in options}
    where = _conditions(of_rows.pop("where", None))
    fail_if = _conditions(of_rows.pop("fail_if", None))
    chosen = parsed(of_rows, RowOptions)
    question = _question_of(options)
    flags: dict[str, Any] = {}
    values: dict[str, Any] = {"model": models}
    for name, value in options.items():
        if _is_flag(name, value):
            flags[name] = value
        elif name not in FLAGS or value is not None:
            values[name] = value
    given = {axis.name: axis for axis in read_axes(values, question)}
    loaded = [_loaded(model, assume_grouped) for model in given["model"].values]
    axes = tuple({**given, "model": Axis("model", loaded)}.values())
    need = _need(chosen, of_rows.get("price"), given)
    figures: Iterable[str]
    if question:
        other = OTHERS[question]
        shown = read_columns_of(other, columns, given, has_price=bool(need.prices))
        figures = other.columns
    else:
        shown = _columns(columns, given, need)
        figures = columns_of(with_fit=has_fit(axes))
    known = (*figures, *(axis.name for axis in axes if axis.varies))
    selection = read_selection(where, fail_if, chosen.get("sort"), chosen.get("top"), known)
    return ShownSweep(axes, shown, flags, need, selection, question=question)


def _need(chosen: Mapping[str, Any], price: Any, given: Mapping[str, Axis]) -> Need:
    """Return what all GPUs together serve and cost. `chosen` are the options of rows.

    Raises AttncalcError if a price cannot be read, or --users has no requests.
    """
    prices = {}
    if chosen.get("price"):
        prices = read_prices(price, given["gpu"].values if "gpu" in given else ())
    users = chosen.get("users")
    if users and given.keys().isdisjoint(TRAFFIC_AXES):
        raise AttncalcError(
            "--users needs --prompt", "give the tokens of a request: --prompt 3K --output-len 500"
        )
    return Need(users, prices, bool(chosen.get("fewest_gpus")))


def _columns(
    named: str | Sequence[str] | None, given: Mapping[str, Axis], need: Need
) -> tuple[str, ...]:
    """Return the columns: those named, or the default ones with those that `need` has."""
    of_need = []
    if need.users:
        of_need.append("gpus_needed")
    if need.prices:
        of_need.append("price_per_hour")
    with_users = not given.keys().isdisjoint(TRAFFIC_AXES)
    with_fit = has_fit([*given.values()])
    found = read_columns(named, with_fit=with_fit, with_users=with_users, need=of_need)
    if need.fewest_gpus:
        return ("gpus", *found)
    return found


def _question_of(options: dict[str, Any]) -> str:
    """Take the flags of other questions from the options, and return the question whose rows are
    asked for; '' for those of a sweep itself.
    """
    asked = [name for name in OTHERS if options.pop(name, None)]
    if asked:
        return asked[0]
    return ""


def _loaded(model: ModelLike, assume_grouped: bool) -> LoadedModel:
    spec = load(model, assume_grouped=assume_grouped)
    return LoadedModel(model if isinstance(model, str) else spec.name, spec)


def _conditions(given: str | Sequence[str] | None) -> Sequence[str]:
    """Return the conditions of --where or --fail-if, which a text separates by commas."""
    if isinstance(given, str):
        return given.split(",")
    return given or ()


def _is_flag(name: str, value: Any) -> bool:
    """Return whether an option holds for all rows: it is no axis, and not a list with a value for
    each row.

    A list of numbers is one value of an option that takes such a list: tensor_split=(3, 1).
    """
    if name not in FLAGS or value is None:
        return False
    if not isinstance(value, list | tuple):
        return True
    kinds = get_args(without_metadata(_KINDS[name]))
    takes_list = any(get_origin(kind) is Sequence for kind in kinds)
    return takes_list and all(isinstance(item, int | float) for item in value)
