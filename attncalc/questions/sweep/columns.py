"""The columns of a sweep: figures under the names that they have in JSON, and what computes
each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import AttncalcError, did_you_mean
from ...show import users
from ...show.figures import FigureRow, FigureRows
from ...units import NO_UNIT, PARAMS, truncate
from ..compare import figures as compare_rows
from ..fit import figures as fit_figures
from ..fit import roofline
from ..flops import figures as flops
from ..kv import figures as kv
from ..memory import figures as memory
from ..params import figures as params
from ..swept import SweptRows
from .axes import AXES, is_number
from .others import OTHERS

# The last column: why a cell has no figures; None for a cell that has them.
ERROR = "error"


def _units(rows: FigureRows) -> dict[str, str]:
    return {row.name: row.unit for row in rows.values()}


# Figures of `attncalc kv` with their units, as in all tables below.
KV = _units(kv.FIGURES)
# A figure of `attncalc kv`, and in a sweep with --gpu or --kv-memory of `attncalc fit`.
WEIGHTS = {"weights": KV.pop("weights")}
# Figures of `attncalc params`; a name that begins with 'params_' and is not here is a matrix that
# some models have.
PARAMETERS = _units(params.FIGURES)
# Figures of `attncalc compare`: a prefill of the whole context, and one decode step.
STEPS = _units(compare_rows.STEPS)
_COMPARED = _units(compare_rows.FIGURES)
# Further figures of `attncalc compare`.
COMPARED = {
    "n_kv_heads": _COMPARED["n_kv_heads"],
    "decode_flop_per_cache_byte": _COMPARED["decode_flop_per_cache_byte"],
}
# A figure of `attncalc compare`, and in a sweep with --gpu or --kv-memory of `attncalc fit`.
PER_BYTE = {"decode_flop_per_byte": NO_UNIT}
# Figures of `attncalc flops`.
PASS = _units(flops.FIGURES)
# Figures of `attncalc memory`.
MEMORY = _units(memory.FIGURES)
# What `attncalc fit` decides, a column that is no number: 'fits', 'may_not_fit' or 'does_not_fit'.
VERDICT: dict[str, str | None] = {"verdict": None}
# Figures of `attncalc fit`; the last ones are of all replicas together.
FIT = {
    **{name: unit for name, unit in _units(fit_figures.FIGURES).items() if name not in WEIGHTS},
    "replicas": NO_UNIT,
    **{f"{name}_all_replicas": fit_figures.FIGURES[name].unit for name in fit_figures.TOTALS},
}
# Figures of the roofline of `attncalc fit`.
BOUNDS = _units(roofline.FIGURES)
# Those of them that are searched for, so that they take long.
LIMITS = ("decode_compute_bound_batch", "decode_flop_per_byte_limit")
# Figures of the users of `attncalc fit`, with --prompt and --output-len.
USERS = _units(users.FIGURES)
# What `attncalc plan` answers too: the users of all replicas, and the GPUs and their price for
# --users.
NEED = {"users_all_replicas": NO_UNIT, "gpus_needed": NO_UNIT, "price_per_hour": NO_UNIT}
# Figures of other questions.
OF_OTHERS = {name: unit for other in OTHERS.values() for name, unit in other.columns.items()}
COSTS = {**KV, **PARAMETERS, **STEPS, **COMPARED, **PASS, **MEMORY}
OF_FIT: dict[str, str | None] = {**VERDICT, **FIT, **BOUNDS, **USERS, **NEED}
COST_DEFAULTS = ("kv_cache", "kv_cache_per_token", "params_total", "flops_prefill", "flops_decode")
FIT_DEFAULTS = (
    *COST_DEFAULTS,
    "verdict",
    "weights",
    "kv_memory",
    "kv_memory_low",
    "kv_memory_high",
    "kv_tokens",
    "concurrency",
    "max_batch",
    "max_context",
    "replicas",
    "concurrency_all_replicas",
    "max_batch_all_replicas",
    "kv_tokens_all_replicas",
    "prefill_time_bound",
    "decode_time_bound",
    "decode_tokens_per_second_bound",
)
# Figures that the GPU or the user gives, which no misspelt name means.
_OF_HARDWARE = {"gpu_memory", "kv_memory", "host_memory"}


def read_columns_of(
    other: SweptRows,
    names: str | Sequence[str] | None,
    options: Mapping[str, Any],
    *,
    has_price: bool,
) -> tuple[str, ...]:
    """Return the columns of another question's rows: those named, or the default ones.

    `options` are the axes that are given. Raises AttncalcError if a name is unknown.
    """
    if names is None:
        return other.default_columns(options, has_price)
    columns = _names(names)
    for name in columns:
        if name not in {**other.columns, **AXES}:
            tip = (
                f"{hint(name, other.columns)}with --{other.name} the names in the JSON of "
                f"{other.name} are known, as {other.known_column}"
            )
            raise AttncalcError(f"--columns: there is no figure '{truncate(name)}'", tip)
    return columns


def hint(name: str, known: Iterable[str]) -> str:
    """Return the beginning of a tip: which known column an unknown name may mean."""
    if name in ("fits", "fit"):
        return "did you mean 'verdict'? "
    return did_you_mean(name, set(known) - _OF_HARDWARE)


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    given = names.split(",") if isinstance(names, str) else names
    return tuple(dict.fromkeys(map(str.strip, given)))


def read_columns(
    names: str | Sequence[str] | None,
    *,
    with_fit: bool,
    with_users: bool = False,
    need: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the columns: those named, or the default ones.

    `with_fit` is whether the sweep has a GPU or a memory, `with_users` whether users' requests;
    `need` are further default columns. Raises AttncalcError if a name is unknown, or needs a GPU.
    """
    if names is None:
        of_users = (*USERS, "users_all_replicas") if with_users else ()
        if with_fit:
            return (*FIT_DEFAULTS, *of_users, *need)
        return COST_DEFAULTS
    columns = _names(names)
    for name in columns:
        if name in OF_FIT and name not in PER_BYTE and not with_fit:
            raise AttncalcError(
                f"--columns {name} needs --gpu or --kv-memory", "give one of them: --gpu h100-80gb"
            )
        if name not in {**COSTS, **WEIGHTS, **OF_FIT, **AXES} and not name.startswith("params_"):
            known = columns_of(with_fit=with_fit)
            commands = "kv, params, flops, memory, compare and fit"
            tip = (
                f"{hint(name, known)}most figures in the JSON of {commands} are known, as "
                f"{', '.join(known[:3])}"
            )
            raise AttncalcError(f"--columns: there is no figure '{truncate(name)}'", tip)
    return columns


def columns_of(*, with_fit: bool) -> tuple[str, ...]:
    """Return the names of all figures; a matrix of `params` is not among them."""
    return (*COSTS, *WEIGHTS, *PER_BYTE, *(OF_FIT if with_fit else ()))


def title_of(name: str) -> str:
    """Return the title of a column, in a chart and in a paper."""
    # a figure in several tables has the title of the last
    row = FigureRow("", NO_UNIT, "", name=name)
    of_others = [other.rows for other in OTHERS.values()]
    own = (compare_rows, params, flops, fit_figures, roofline)
    for rows in (*of_others, *(table.FIGURES for table in own)):
        row = rows.get(name, row)
    return row.chart_title


def unit_of(name: str) -> str | None:
    """Return the unit of a column, '' for none; None for a column of text."""
    units = {**OF_OTHERS, **COSTS, **WEIGHTS, **OF_FIT, ERROR: None}
    if name in units:
        return units[name]
    if name in AXES:
        if is_number(name):
            return NO_UNIT
        return None
    return PARAMS
