"""A sweep on a screen: a grid of one figure, contexts across and everything else down, or a table
of several.
"""

import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any, Literal

from ...engines import DEFAULT_ENGINE, find_engine
from ...errors import AttncalcError
from ...show.answer_rows import AnswerColumn, answer_table, text_column
from ...show.lists import WIDTH
from ...show.notes import WARNING
from ...show.report import Column, Report, Table, number
from ...show.text import table_lines
from ...units import BYTES, FLOP, PARAMS, SECONDS, count, days_text, quotient
from .axes import shown
from .columns import ERROR, NEED, unit_of
from .selection import ALL_ROWS
from .sweep import Row, Sweep

# Cells of a screen; a file may have more.
MAX_ROWS = 2_000
DEFAULT_FIGURE = "kv_cache"
DEFAULT_FIT_FIGURE = "concurrency"
# The figures of `fit` in a table, which is 80 columns wide.
FIT_TABLE = ("verdict", "kv_memory", "concurrency", "max_context", "decode_time_bound")
# Those of a table with users: their number, the GPUs and the price come after them.
FIT_TABLE_OF_USERS = ("verdict", "decode_time_bound")
# Different errors below a grid.
_ERRORS = 5
# Models that a warning names.
_MODELS = 3


def for_screen(sweep: Sweep) -> Sweep:
    """Return the sweep with the columns of a screen: one figure for a grid of two axes or more,
    else the main ones.
    """
    if len(sweep.varying) > 1 and sweep.selection == ALL_ROWS:
        return sweep.with_columns([default_figure(sweep)])
    if sweep.other is not None:
        return sweep.with_columns(sweep.other.screen_columns(sweep.columns))
    if not sweep.with_fit:
        return sweep
    need = [name for name in NEED if name in sweep.columns]
    names = [*FIT_TABLE_OF_USERS, *need] if need else [*FIT_TABLE]
    if sweep.need.fewest_gpus:
        names.insert(0, "gpus")
    return sweep.with_columns(names)


def default_figure(sweep: Sweep) -> str:
    """Return the figure of a grid or a picture."""
    if sweep.other is not None:
        return sweep.other.main_column
    if not sweep.with_fit:
        return DEFAULT_FIGURE
    return "gpus" if sweep.need.fewest_gpus else DEFAULT_FIT_FIGURE


def sweep_report(sweep: Sweep, rows: Iterable[Row]) -> Report:
    """Return the screen of a sweep: a grid if it has one figure and two axes or more, else a
    table.
    """
    cells = list(rows)
    varying = sweep.varying
    figures = [name for name in sweep.columns if name not in varying]
    is_grid = len(figures) == 1 and len(varying) > 1 and sweep.selection == ALL_ROWS
    fixed = []
    for axis in sweep.axes:
        if not axis.varies:
            fixed.append(f"{axis.name.replace('_', ' ')} {_label(shown(axis.values[0]))}")
    contexts: set[int] = set()
    if "context" in sweep.names and "context" not in varying:
        place = sweep.names.index("context")
        contexts = {row[place] for row in cells}
    if len(contexts) == 1:
        fixed.append(f"context {count(*contexts)}")
    elif contexts and is_grid:
        fixed.append("context: each model's own")
    if is_grid:
        across = _across(varying)
        tables = _grid(sweep, varying, figures[0], cells)
        in_unit = f" in {tables[0].unit}" if tables[0].unit else ""
        title = f"{figures[0]}{in_unit} by {across.replace('_', ' ')}"
    else:
        of_all = "" if len(cells) == len(sweep) else f" of {count(len(sweep))}"
        title = f"{count(len(cells))}{of_all} {'row' if len(sweep) == 1 else 'rows'}"
        without = ["context"] if len(contexts) == 1 else []
        tables = [_table(sweep, cells, without=without)]
    heading = (title, ", ".join(fixed)) if fixed else (title,)
    return Report("sweep", heading, {}, {}, (), tables=tuple(tables), notes=_notes(sweep, cells))


def check_screen(sweep: Sweep) -> None:
    """Raise AttncalcError if a sweep has more cells than a screen shows."""
    if len(sweep) > MAX_ROWS:
        raise AttncalcError(
            f"a screen shows at most {count(MAX_ROWS)} cells, and the sweep has "
            f"{count(len(sweep))}",
            "write a file: -o sweep.csv; or use a pipe",
        )


def _label(value: Any) -> str:
    if isinstance(value, int):
        return count(value)
    return str(value)


def _across(varying: Sequence[str]) -> str:
    if "context" in varying:
        return "context"
    return varying[-1]


def _grid(sweep: Sweep, varying: Sequence[str], figure: str, cells: Sequence[Row]) -> list[Table]:
    """Return the grid, in as many tables as its width needs."""
    place = {name: i for i, name in enumerate(sweep.names)}
    across = _across(varying)
    down = [name for name in varying if name != across]
    values = [row[place[figure]] for row in cells]
    unit, texts = _column(figure, "", values).cells(values)
    headers: dict[Any, int] = {}  # {value of the axis across: width of its column}
    lines: dict[tuple[Any, ...], dict[Any, str]] = {}
    for row, text in zip(cells, texts, strict=True):
        header = row[place[across]]
        shown_text = "error" if row[-1] is not None else text
        key = tuple(row[place[name]] for name in down)
        lines.setdefault(key, {})[header] = shown_text
        widest = max(len(_label(header)), len(shown_text)) + 2
        headers[header] = max(widest, headers.get(header, 0))
    labels = _without_repeats([[*map(_label, key)] for key in lines])
    label_columns = tuple(Column(name, "left") for name in down)
    label_lines = table_lines(Table(label_columns, tuple(map(tuple, labels))))
    label_width = max(map(len, label_lines))
    widths = list(headers.values())
    tables = []
    start = 0
    while start < len(headers):
        end = start + 1
        width = label_width + widths[start]
        while end < len(headers) and width + widths[end] <= WIDTH:
            width += widths[end]
            end += 1
        part = list(headers)[start:end]
        columns = (*label_columns, *(Column(_label(header)) for header in part))
        rows = []
        for label, line in zip(labels, lines.values(), strict=True):
            rows.append((*label, *(line.get(header, "") for header in part)))
        tables.append(Table(columns, tuple(rows), above=across.replace("_", " "), unit=unit))
        start = end
    return tables


def _without_repeats(labels: Sequence[list[str]]) -> list[list[str]]:
    """Return the labels of each line, without those that the line above has too."""
    found = []
    above: list[str] = []
    for line in labels:
        same = 0
        while same < len(line) - 1 and line[: same + 1] == above[: same + 1]:
            same += 1
        found.append([*("" for _ in range(same)), *line[same:]])
        above = line
    return found


def _table(sweep: Sweep, cells: Sequence[Row], *, without: Collection[str]) -> Table:
    rows = [dict(zip(sweep.names, row, strict=True)) for row in cells]
    columns = []
    for name in sweep.names:
        if name == ERROR:
            if any(row[ERROR] for row in rows):
                columns.append(text_column(ERROR, ERROR)._replace(missing=""))
        elif name not in without:
            header = "\n".join(textwrap.wrap(name.replace("_", " "), 9, break_long_words=False))
            columns.append(_column(name, header, [row[name] for row in rows]))
    return answer_table(rows, columns)


def _column(name: str, header: str, values: Sequence[Any]) -> AnswerColumn:
    """Return the column of a figure or an axis with these values."""
    unit = unit_of(name)
    has_ratio = any(isinstance(value, float) for value in values)
    if unit in (BYTES, FLOP, PARAMS) and not has_ratio:
        return AnswerColumn(name, header, unit=unit)
    align: Literal["left", "right"] = "left" if unit is None else "right"
    return AnswerColumn(name, header, _time if unit == SECONDS else _text, align=align)


def _time(value: float) -> str:
    if isinstance(value, float):
        return quotient(value, SECONDS)
    return days_text(value)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return count(value)
    if value in ("may_not_fit", "does_not_fit"):
        return str(value).replace("_", " ")
    return str(value)


def context_warning(sweep: Sweep) -> str:
    """Return a warning about contexts beyond the maximum of models, which only a few are named of;
    '' without one.
    """
    beyond = [f"{name} ({count(most)})" for name, most in sweep.beyond_maximum.items()]
    if not beyond:
        return ""
    return f"{WARNING}contexts go beyond the model's maximum: {_few(beyond)}"


def _notes(sweep: Sweep, cells: Sequence[Row]) -> tuple[str, ...]:
    """Return a warning about long contexts, and the errors of the cells, each once."""
    errors = Counter(row[-1] for row in cells if row[-1] is not None)
    notes = []
    for text, n in list(errors.items())[:_ERRORS]:
        notes.append(f"error in {count(n)} of {count(len(cells))} cells: {text}")
    if len(errors) > _ERRORS:
        notes.append(f"and {count(len(errors) - _ERRORS)} other errors: --format csv lists them")
    if sweep.need.fewest_gpus:
        notes.append(
            "gpus: the fewest that hold the model and the batch; all figures are with as many."
        )
    elif sweep.can_have_fewest_gpus and any("does_not_fit" in row for row in cells):
        notes.append("Each row has one GPU: --fewest-gpus gives each as many as it needs.")
    first = [context_warning(sweep)]
    for name, spec in sweep.models[:_MODELS]:
        if spec.assumed:
            first.append(f"ASSUMED of {name}: {spec.assumed}")
    return tuple(filter(None, [*first, *notes, _default_deployments(sweep)]))


def _default_deployments(sweep: Sweep) -> str:
    """Return each GPU's engine and dtype of weights, if no axis gives them and some are not vLLM as
    released; or ''.
    """
    given = sweep.by_name.keys()
    of_gpus = sweep.deployments
    has_usual = {*chain(*of_gpus.values())} <= {(DEFAULT_ENGINE, None)}
    if has_usual or {"engine", "weights_dtype"} <= given:
        return ""
    groups: dict[str, list[str]] = {}
    for gpu, found in of_gpus.items():
        texts = []
        for engine, weights in found:
            texts.append(f"{find_engine(engine).title}, weights {weights or 'as released'}")
        groups.setdefault(" or ".join(texts), []).append(gpu)
    parts = [f"{_few(gpus)}: {text}" for text, gpus in groups.items()]
    return f"Engines by default: {'; '.join(parts)}."


def _few(names: Sequence[str]) -> str:
    more = f" and {count(len(names) - _MODELS)} others" if len(names) > _MODELS else ""
    return f"{', '.join(names[:_MODELS])}{more}"
