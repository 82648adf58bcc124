"""Rows as a Parquet file, in groups of rows; pyarrow writes it."""

from itertools import islice
from typing import IO, Any

from ..errors import AttncalcError, CannotCheckError
from ..units import PER_SECOND, SECONDS
from .formats import Rows

# Rows of a group, all of which are in memory.
GROUP = 10_000
_RATIOS = (
    "concurrency",
    "concurrency_all_replicas",
    "kv_cache_ratio_if_mha",
    "params_attention_share",
)


def write(rows: Rows, file: IO[bytes]) -> None:
    """Write the rows. Raises CannotCheckError without pyarrow, and AttncalcError for a number of
    more than 64 bits.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise CannotCheckError(
            "Parquet needs pyarrow, which is not installed", "pip install pyarrow"
        ) from None
    types = [_type(pyarrow, name, unit) for name, unit in zip(rows.names, rows.units, strict=True)]
    schema = pyarrow.schema(list(zip(rows.names, types, strict=True)))
    source = iter(rows.rows)
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:
        while group := list(islice(source, GROUP)):
            columns = zip(*group, strict=True)
            try:
                arrays = [
                    pyarrow.array(column, kind) for column, kind in zip(columns, types, strict=True)
                ]
            except (OverflowError, pyarrow.ArrowInvalid):
                raise AttncalcError(
                    "a figure is too large for Parquet's 64 bits",
                    "write .csv or .jsonl, which have no limit",
                ) from None
            writer.write_table(pyarrow.table(arrays, schema=schema))


def _type(pyarrow: Any, name: str, unit: str | None) -> Any:
    if unit is None:
        return pyarrow.string()
    is_ratio = name in _RATIOS or unit in (SECONDS, PER_SECOND) or name.endswith("flop_per_byte")
    if is_ratio:
        return pyarrow.float64()
    return pyarrow.int64()


def escape(text: str) -> str:
    """Return the text as it is: Parquet stores any."""
    return text
