"""Terms of the field, each on one screen: what it means, its formula, and an example to redo by hand."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import BadValueError, did_you_mean, is_valid
from ..quantity import Quantity
from ..records import NamedTuple
from ..units import NO_UNIT, truncate
from .figures import FigureRow, FigureRows
from .report import Column, Report, Table


class Term(NamedTuple):
    title: str  # its name in words
    also: tuple[str, ...]  # other names by which people ask for it
    meaning: str  # what it is, in short sentences
    formula: tuple[str, ...]  # the formula, and what its symbols are; () for none
    example: tuple[str, ...]  # a calculation with tiny numbers; a line 'X = N' holds as written
    command: str  # the command that computes it for a model
    source: str = ""  # the paper


FIGURES = FigureRows(terms_total=FigureRow("terms", NO_UNIT, "the number of terms"))


def _term(text: str) -> tuple[str, Term]:
    """Return the name and the term of a part of glossary.txt."""
    name, *lines = text.splitlines()
    fields: dict[str, Any] = dict.fromkeys(Term._fields, "") | dict(line.strip().split(": ", 1) for line in lines)
    several = {field: tuple(filter(None, fields[field].split(" | "))) for field in ("also", "formula", "example")}
    return name, Term(**(fields | several))


TERMS = dict(map(_term, Path(__file__).with_name("glossary.txt").read_text("utf-8").strip().split("\n\n")[1:]))
"""{name: term}."""
_ASKING = re.findall(
    r"\w+",
    "vs versus and or why what which how is are does do the a an between from difference differ explain work so big",
)
"""Words of a question beside its terms."""
_ENOUGH = 15
"""The score of a term that a question is about: one rare word of its names, and one of its meaning."""


def find_terms(words: str) -> list[str]:
    """Return the names of the terms in a question: ['mha', 'mqa'] for 'MHA vs MQA' or 'how does MHA differ from MQA'.

    Raises AttncalcError if there is no term, or another word that is none.
    """
    asked = re.sub(r"[\s_]+", "-", words.strip().lower().rstrip("?"))
    names = {other.replace("_", "-"): name for name, term in TERMS.items() for other in (name, *term.also)}
    known = "|".join(re.escape(name) for name in sorted((*names, *_ASKING), key=len, reverse=True))
    found: list[str] = []
    if re.fullmatch(rf"({known})(-({known}))*", asked):
        found = [names[name] for name in re.findall(rf"(?<![a-z])({known})(?![a-z])", asked) if name in names]
    if not found:
        raise BadValueError(
            f"no explanation of '{truncate(words)}'", f"{did_you_mean(asked, names)}'attncalc explain' lists all terms"
        )
    return list(dict.fromkeys(found))


def terms_of_question(question: str, named: Sequence[str]) -> list[str]:
    """Return the terms that a question is about, the likeliest first: of those that it names, or else another.

    Rare words count most, and those of a term's names twice as much as those of its meaning.
    """
    asked = _stems(question)
    scores = {
        name: sum((2 * (one in names) + (one in said)) * weight for one, weight in _weights().items() if one in asked)
        for name, (names, said) in _words_of_terms().items()
    }
    best = max(scores, key=lambda name: scores[name])
    most = max((scores[name] for name in named), default=0)
    if scores[best] > max(_ENOUGH, 5 * most):
        return [best]
    return sorted((name for name in named if 2 * scores[name] >= most), key=lambda name: -scores[name])


@cache
def _words_of_terms() -> dict[str, tuple[set[str], set[str]]]:
    return {
        name: (_stems(" ".join((name, term.title, *term.also))), _stems(term.meaning)) for name, term in TERMS.items()
    }


@cache
def _weights() -> dict[str, float]:
    number = Counter(word for named, said in _words_of_terms().values() for word in named | said)
    return {word: math.log(1 + len(TERMS) / terms) ** 1.5 for word, terms in number.items()}


def _stems(text: str) -> set[str]:
    """Return the words of a text without their endings: 'gener' of 'generating' and 'generation'."""
    words = {word for word in re.findall(r"[a-z][a-z']+", text.lower().replace("-", " ")) if word not in _ASKING}
    return {re.sub(r"(?<=...)(?:at)?(?:ions?|ing|ings|ed|es|s|e|ly|er|ers)$", "", word) for word in words}


def terms_in(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are terms of the glossary, the longest first, and the others."""
    terms: list[str] = []
    others: list[str] = []
    while words:
        length = next((n for n in range(len(words), 0, -1) if is_term(" ".join(words[:n]))), 0)
        (terms if length else others).extend(words[: length or 1])
        words = words[length or 1 :]
    return terms, others


def is_term(words: str) -> bool:
    return is_valid(find_terms, words)


def term_report(name: str) -> Report:
    term = TERMS[name]
    lines = [["formula"], *([f"  {line}"] for line in term.formula), [""]] if term.formula else []
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
    joined = [{key: "; ".join(v) if isinstance(v, tuple) else v for key, v in term.items()} for term in terms]
    figures = FIGURES.filled(terms_total=Quantity(len(terms)))
    return Report("explain", (heading,), {}, {}, figures, (), (table,), extra={"terms": terms}, rows=tuple(joined))
