"""The arguments of an engine's command line, by version, as a table: `arguments.txt` in the folder
of the engine, which tools/engine_arguments.py writes from the engine's source.

    --tensor-parallel-size,-tp      value   0.5.0-          computed
    --swap-space                    value   0.5.0-0.18.0    computed
    --moe-backend                   value   0.17.0-         may

A row has the argument's names, what it takes, the first version with it and the first without it
again, of the versions that the head of the table lists, and what it does to the memory of a GPU.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from ..errors import AttncalcError, nearest
from ..records import NamedTuple
from ..units import truncate
from .switches import Number, Version

# What an argument takes: a value, several, a value or nothing, nothing, or nothing with an opposite
# (--no-enable-prefix-caching).
VALUE = "value"
VALUES = "values"
OPTIONAL = "optional"
FLAG = "flag"
SWITCH = "switch"
# What an argument does to a GPU's memory: `attncalc fit` has an option for it, it may change the
# memory and no figure includes it, it changes nothing, or nobody has said.
COMPUTED = "computed"
MAY_CHANGE = "may"
NOTHING = "nothing"
UNCLASSIFIED = "unclassified"

_NO = "--no-"
# Names of an ambiguous abbreviation in an error.
_MOST_NAMES = 6
_HEAD = """\
# The arguments of {engine}: their names, what they take, their versions, and what they do to the
# memory of a GPU: computed, may (change it, and no figure includes it) or nothing.
# tools/engine_arguments.py adds a version; a person writes the last column of what is new.
# versions: {versions}
"""


class Argument(NamedTuple):
    """An argument in the versions that have it with these names."""

    names: tuple[str, ...]
    takes: str
    first: str = ""  # the first version with it
    end: str = ""  # the first version without it again; '' if the newest has it
    memory: str = UNCLASSIFIED

    @property
    def takes_value(self) -> bool:
        return self.takes in (VALUE, VALUES, OPTIONAL)

    def is_in(self, version: Number) -> bool:
        """Return whether a version has it."""
        return number(self.first) <= version and not (self.end and number(self.end) <= version)


class Table(NamedTuple):
    versions: tuple[str, ...]  # those whose source was read, the oldest first
    rows: tuple[Argument, ...]


class Arguments(NamedTuple):
    """The arguments of one version of an engine."""

    title: str  # the engine and its version: 'vLLM 0.33.0'
    number: Number
    table: Table
    by_name: dict[str, Argument]

    def begins(self, name: str) -> list[str]:
        """Return the names that a word is the beginning of."""
        if not name.startswith("--"):
            return []
        return sorted(known for known in self.by_name if known.startswith(name))

    def find(self, name: str) -> tuple[str, Argument]:
        """Return an argument and its whole name: the beginning of a name is enough, as in Python's
        argparse.

        Raises AttncalcError if this version has none of that name, or several.
        """
        if name in self.by_name:
            return name, self.by_name[name]
        found = self.begins(name)
        arguments = {self.by_name[known] for known in found}
        if not found or (len(arguments) > 1 and self._other_version(name)):
            raise self._unknown(name)
        if len(arguments) > 1:
            shown = [*found[:_MOST_NAMES], "..."] if len(found) > _MOST_NAMES else found
            raise AttncalcError(
                f"{truncate(name)} of the command is ambiguous",
                f"{self.title} has {', '.join(shown)}",
            )
        return found[0], self.by_name[found[0]]

    def _unknown(self, name: str) -> AttncalcError:
        message = f"{self.title} has no argument {truncate(name)}"
        other = self._other_version(name)
        engine = self.title.partition(" ")[0]
        if other:
            tip = f"{engine} {other} has it: give --engine-version {other}, or leave it out"
        else:
            # without hyphens, which make any two names alike
            whole = {known.lstrip("-"): known for known in self.by_name if known[:2] == "--"}
            close = nearest(name.lstrip("-"), whole)
            tip = f"did you mean '{whole[close]}'?" if close else "leave it out"
            joined = re.fullmatch(r"(-[a-z]+)(\d+)", name)  # Python's argparse splits '-r1' alone
            if joined and joined[1] in self.by_name:
                tip = f"write {joined[1]} {joined[2]}"
        return AttncalcError(message, tip)

    def _other_version(self, name: str) -> str | None:
        """Return the next version that has an argument of that name, or else the last one; None if
        none has.
        """
        rows = [row for row in self.table.rows if name in names_of(row)]
        having = [
            version
            for version in self.table.versions
            if any(row.is_in(number(version)) for row in rows)
        ]
        later = (version for version in having if number(version) > self.number)
        return next(later, having[-1] if having else None)


def names_of(argument: Argument) -> Iterator[str]:
    """Yield the names of an argument, and those of its opposite."""
    yield from argument.names
    if argument.takes == SWITCH:
        yield from (_NO + name[2:] for name in argument.names if name.startswith("--"))


def number(version: str) -> Number:
    """Return the numbers of a version: (0, 5, 10, 1) of '0.5.10.post1'."""
    return tuple(map(int, re.findall(r"\d+", version)))


def arguments_of(engine: str, title: str, version: Version | None) -> Arguments:
    """Return the arguments of a version of an engine; None stands for all versions.

    A version before the oldest whose source was read has those of all versions.
    """
    table = read_table(table_file(engine))
    if version is None or version.number < number(table.versions[0]):
        rows = table.rows
    else:
        rows = tuple(row for row in table.rows if row.is_in(version.number))
    by_name: dict[str, Argument] = {}
    for row in rows:
        by_name |= dict.fromkeys(names_of(row), row)
    if version is None:
        return Arguments(title, (), table, by_name)
    return Arguments(f"{title} {version.name}", version.number, table, by_name)


def table_file(engine: str) -> Path:
    return Path(__file__).parent / engine / "arguments.txt"


@cache
def read_table(file: Path) -> Table:
    """Return the table in a file; an empty one if there is none."""
    versions: tuple[str, ...] = ()
    rows = []
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    for line in lines:
        if line.startswith("# versions:"):
            versions = tuple(line.removeprefix("# versions:").split())
        elif not line.startswith("#"):
            names, takes, during, memory = line.split()
            first, _, end = during.partition("-")
            rows.append(Argument(tuple(names.split(",")), takes, first, end, memory))
    return Table(versions, tuple(rows))


def write_table(engine: str, title: str, table: Table) -> None:
    """Write the table of an engine."""
    rows = sorted(table.rows, key=lambda row: (row.names[0], number(row.first)))
    lines = [
        f"{','.join(row.names):<48} {row.takes:<8} {f'{row.first}-{row.end}':<28} {row.memory}"
        for row in rows
    ]
    head = _HEAD.format(engine=title, versions=" ".join(table.versions))
    table_file(engine).write_text(head + "\n".join(lines) + "\n", encoding="utf-8")


def with_version(table: Table, version: str, declared: Iterable[Argument]) -> Table:
    """Return the table with a newer version, which declares these arguments.

    An argument that changed its names or what it takes gets a row of its own, and does to the
    memory what its earlier row does.
    """
    kept = {(frozenset(row.names), row.takes): row for row in table.rows if not row.end}
    classes = {name: row.memory for row in table.rows for name in row.names}
    rows = [row for row in table.rows if row.end]
    for argument in declared:
        row = kept.pop((frozenset(argument.names), argument.takes), None)
        memory = next((classes[name] for name in argument.names if name in classes), UNCLASSIFIED)
        rows.append(row or argument._replace(first=version, memory=memory))
    rows += [row._replace(end=version) for row in kept.values()]
    return Table((*table.versions, version), tuple(rows))
