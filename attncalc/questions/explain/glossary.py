"""Terms of the field, each on one screen: what it means, its formula, and an example to redo by
hand.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...config.presets import preset_of
from ...errors import AttncalcError, did_you_mean
from ...quantity import Quantity
from ...records import NamedTuple
from ...show.figures import FigureRow, FigureRows
from ...show.report import Column, Report, Table
from ...units import NO_UNIT, truncate


class Term(NamedTuple):
    title: str  # its name in words
    also: tuple[str, ...]  # its other names
    meaning: str  # what it is, in short sentences
    formula: tuple[str, ...]  # the formula, and what its symbols are; () for none
    example: tuple[str, ...]  # a calculation with tiny numbers; a line 'X = N' holds as written
    command: str  # the command that computes it for a model
    source: str = ""  # the paper


FIGURES = FigureRows(terms_total=FigureRow("terms", NO_UNIT, "the number of terms"))


def _term(text: str) -> tuple[str, Term]:
    """Return the name and the term of a part of glossary.txt."""
    name, *lines = text.splitlines()
    fields: dict[str, Any] = dict.fromkeys(Term._fields, "") | dict(
        line.strip().split(": ", 1) for line in lines
    )
    several = {
        field: tuple(filter(None, fields[field].split(" | ")))
        for field in ("also", "formula", "example")
    }
    return name, Term(**(fields | several))


# {name: term}.
TERMS = dict(
    map(
        _term, Path(__file__).with_name("glossary.txt").read_text("utf-8").strip().split("\n\n")[1:]
    )
)


def find_terms(words: Sequence[str]) -> list[str]:
    """Return the names of the terms: ['mha', 'mqa'] for 'mha mqa', ['kv-cache'] for 'kv cache'.

    Raises AttncalcError for a word that is no term.
    """
    names = {
        other.replace("_", "-"): name
        for name, term in TERMS.items()
        for other in (name, *term.also)
    }
    whole = _slug(" ".join(words))
    if whole in names:
        return [names[whole]]
    found = []
    for word in words:
        if _slug(word) not in names:
            hint = did_you_mean(whole, names) or did_you_mean(_slug(word), names)
            preset = preset_of(_slug(word))
            if preset:
                hint = f"a model is no term: 'attncalc presets show {preset}'; "
            raise AttncalcError(
                f"no explanation of '{truncate(word)}'", f"{hint}'attncalc explain' lists all terms"
            )
        found.append(names[_slug(word)])
    return list(dict.fromkeys(found))


def _slug(words: str) -> str:
    """Return words as the name of a term: 'kv-cache' of 'KV cache'."""
    return "-".join(words.lower().replace("_", " ").split())


def term_report(name: str) -> Report:
    term = TERMS[name]
    if term.formula:
        lines = [["formula"], *([f"  {line}"] for line in term.formula), [""]]
    else:
        lines = []
    example = [["example"], *([f"  {text}"] for text in term.example)]
    table = Table((Column(align="left"),), (*map(tuple, lines), *map(tuple, example)))
    notes = (f"For a model: {term.command}", *([f"Source: {term.source}"] if term.source else []))
    return _report(term.title, (name,), table)._replace(notes=notes, answer=term.meaning)


def terms_report(names: Sequence[str]) -> Report:
    rows = tuple((name, TERMS[name].title) for name in names)
    table = Table((Column(align="left"), Column(align="left")), rows)
    return _report(f"{len(names)} terms  'attncalc explain kv-cache' explains one", names, table)


def _report(heading: str, names: Sequence[str], table: Table) -> Report:
    terms = [{"name": name, **TERMS[name]._asdict()} for name in names]
    joined = [
        {key: "; ".join(v) if isinstance(v, tuple) else v for key, v in term.items()}
        for term in terms
    ]
    figures = FIGURES.filled(terms_total=Quantity(len(terms)))
    return Report(
        "explain",
        (heading,),
        {},
        {},
        figures,
        (),
        (table,),
        extra={"terms": terms},
        rows=tuple(joined),
    )
