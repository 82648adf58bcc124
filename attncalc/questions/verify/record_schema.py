"""The lists of a run in the JSON file of `attncalc verify --record`: rows without the names of
their columns.
"""

from ...check import COLUMNS
from ...show.schemas.reading import Schema, properties

_GROUPS = {"checks": "check", "reported": "reported", "times": "time", "scaling": "scaling"}
_KEYS = {name: properties({f"+{group}": None}) for name, group in _GROUPS.items()}
_KEYS["checks"] |= properties(
    {"tolerance": "number? the largest difference that still agrees; null if it is not a number"}
)
# How many of the last columns the first records lack.
_ADDED = {"times": 2}


def _rows(name: str) -> Schema:
    values = [_KEYS[name][column] for column in COLUMNS[name]]
    row = {
        "type": "array",
        "prefixItems": values,
        "items": False,
        "minItems": len(values) - _ADDED.get(name, 0),
    }
    return {"description": f"rows whose columns are columns.{name}", "type": "array", "items": row}


def _columns(name: str) -> Schema:
    columns = list(COLUMNS[name])
    if name in _ADDED:
        return {"enum": [columns, columns[: -_ADDED[name]]]}
    return {"const": columns}


# {a list of a run: the schema of its rows}, and of the names of its columns.
ROWS, NAMES = ({name: of(name) for name in COLUMNS} for of in (_rows, _columns))
