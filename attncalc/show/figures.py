"""The figures of a command, each declared once: its name, label, unit and meaning, and when it is
null.

A report gives values by name. JSON Schemas, the columns of sweeps and the tables of docs/output.md
read the same rows.
"""

from __future__ import annotations

from typing import TypeAlias

from ..quantity import Quantity, Ratio
from ..records import NamedTuple
from ..units import BYTES, NO_UNIT, PARAMS
from .report import Figure

SUM = "the sum of its parts"
# Sources of figures that are computed of others.
QUOTIENT = "the first figure divided by the second"
# A value; None if the figure does not apply.
Number: TypeAlias = "Quantity | Ratio | None"


# Words of names that people write in another way.
_WORDS = {
    "kv": "KV",
    "mlp": "MLP",
    "mha": "MHA",
    "qk": "QK",
    "gpu": "GPU",
    "gpus": "GPUs",
    "flop": "FLOP",
    "6nd": "6 N D",
    "n": "",
    "tp": "TP",
    "pp": "PP",
    "dp": "DP",
    "cp": "CP",
    "ep": "EP",
    "dcp": "DCP",
    "mla": "MLA",
    "moe": "MoE",
    "lora": "LoRA",
    "gib": "GiB",
}


def in_words(name: str) -> str:
    """Return a name of JSON as people write it: 'n_kv_heads' is 'KV heads'. d_model is a name of
    the field.
    """
    if name.startswith("d_"):
        return name
    words = [_WORDS.get(word, word) for word in name.split("_")]
    return " ".join(filter(None, words))


class FigureRow(NamedTuple):
    """What is known of a figure before it is computed."""

    label: str  # its name on screens; a report may give another for one answer
    unit: str  # its base unit; NO_UNIT for a ratio or a count
    # what it is, in a schema and in the docs; what is to be typed is in 'single quotes'
    meaning: str
    null_if: str = ""  # when it has no value; "" if it always has one
    # the paper or the code that its formula is from, if it is the same for every model
    source: str = ""
    ratio: bool = False  # whether it is a quotient, and not a whole number
    title: str = ""  # the title of its chart, if that is not its name in words
    # Its name in JSON, CSV and sweeps, which FigureRows gives it; or a pattern of names, which
    # starts with '^'
    name: str = ""

    @property
    def description(self) -> str:
        """Its meaning, and when it is null."""
        if self.null_if:
            return f"{self.meaning}; null {self.null_if}"
        return self.meaning

    @property
    def chart_title(self) -> str:
        """The title of its chart: 'FLOPs of a prefill', or its name in words: 'KV memory low'."""
        if self.title:
            return self.title
        words = in_words(self.name)
        for prefix, text in (("flops ", "FLOPs: "), ("params ", "Parameters: ")):
            if words.startswith(prefix):
                words = text + words.removeprefix(prefix)
        return words[:1].upper() + words[1:]

    def one(self, part: str, label: str) -> FigureRow:
        """Return the row of one of a pattern's figures: part 'bf16' of '^peak_[a-z0-9]+$' is
        'peak_bf16'.
        """
        return self._replace(name=self.name[1:].partition("[")[0] + part, label=label)

    def figure(self, value: Number, label: str = "", source: str = "", of: str = "") -> Figure:
        """Return the figure with its value; a label or a source replaces the row's own."""
        return Figure(self.name, label or self.label, value, self.unit, source or self.source, of)


def ratio_row(
    label: str,
    meaning: str,
    null_if: str = "",
    source: str = "",
    unit: str = NO_UNIT,
    title: str = "",
) -> FigureRow:
    """Return the row of a quotient."""
    return FigureRow(label, unit, meaning, null_if, source, True, title)


class Given(NamedTuple):
    """A value whose label or source is only known with it; "" for that of the others."""

    value: Number
    label: str = ""
    source: str = ""


class FigureRows(dict[str, FigureRow]):
    """The rows of a list of figures, by name and in order."""

    def __init__(self, **rows: FigureRow) -> None:
        super().__init__({name: row._replace(name=name) for name, row in rows.items()})

    def filled(
        self, source: str = "", of: str = "", /, **values: Number | Given
    ) -> tuple[Figure, ...]:
        """Return the figures in the order of the rows, each with its value.

        Args:
            source: The source of those that have none of their own.
            of: The layer group or variant that they belong to; "" for the whole model.
            values: A value for every row, by its name.

        Raises TypeError if a value has no row, or a row has no value.
        """
        if unknown := values.keys() ^ self.keys():
            raise TypeError(
                f"figures without a row, or rows without a value: {', '.join(sorted(unknown))}"
            )
        given = [
            value if isinstance(value, Given) else (value, "", "")
            for value in (values[name] for name in self)
        ]
        return tuple(
            row.figure(value, label, own_source or row.source or source, of)
            for row, (value, label, own_source) in zip(self.values(), given, strict=True)
        )


# Figures of several commands

PARAMS_TOTAL = FigureRow("parameters", PARAMS, "all parameters", source=SUM, title="Parameters")
PARAMS_ATTENTION = FigureRow(
    "attention",
    PARAMS,
    "attention, with biases and norms of its own",
    title="Parameters of attention",
)
KV_CACHE = FigureRow("KV cache", BYTES, "the whole cache on one device", title="KV cache")
# The two differ in models with windows. Mistral 7B v0.1 has a window of 4,096 tokens in all 32
# layers: each of the first 4,096 tokens adds 128 KiB. At a context of 32,768 all windows are full:
# the next token replaces the oldest, and adds 0 B.
PER_TOKEN = FigureRows(
    kv_cache_per_token=FigureRow(
        "per token, at this context",
        BYTES,
        "what the next token of one sequence adds at this context",
    ),
    kv_cache_per_token_max=FigureRow(
        "per token, no window full", BYTES, "what it adds while no window is full"
    ),
)
AT_CONTEXT, NO_WINDOW_FULL = PER_TOKEN
