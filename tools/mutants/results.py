"""Keep what became of each mutant, and print the shares and the survivors."""

from __future__ import annotations

import collections
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forks import Outcome
from mutations import Mutant
from reach import sha

Key = tuple[Any, ...]
ACCEPTED = Path(__file__).with_name("accepted.txt")
"""Survivors that stay, one per line: file, function, change and reason, with tabs between them. With `*` as its file
and its function, a line's change is a regular expression."""


class Results:
    """The outcomes in .mutants/results.jsonl: one line per run of a mutant, of which the last counts."""

    def __init__(self, path: Path, root: Path) -> None:
        self.path = path
        self.root = root
        self._shas: dict[str, str] = {}
        self.outcomes: dict[Key, Outcome] = {}
        self.read()

    def read(self) -> None:
        """Read the outcomes again, which another process may have written."""
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                key, outcome = json.loads(line)
                self.outcomes[tuple(key)] = Outcome(*outcome)

    def add(self, mutant: Mutant, outcome: Outcome) -> None:
        """Keep one outcome."""
        key = self._key(mutant)
        self.outcomes[key] = outcome
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, outcome]) + "\n")

    def survived(self, mutant: Mutant) -> bool:
        """Return whether a mutant has a result, and no test killed it."""
        outcome = self.outcomes.get(self._key(mutant))
        return outcome is not None and not killed(outcome)

    def wanted(self, mutant: Mutant, *, survivors: bool, again: bool) -> bool:
        """Return whether to run a mutant: by default one that has no result for the file as it is."""
        if survivors:
            return self.survived(mutant)
        return again or self._key(mutant) not in self.outcomes

    def report(self, chosen: Iterable[Mutant]) -> int:
        """Print the share per file and package and the survivors, and return 1 if one is not accepted."""
        accepted = _accepted()
        by_file: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        left = []
        sources: dict[str, str] = {}
        for mutant in chosen:
            outcome = self.outcomes.get(self._key(mutant))
            if outcome is None:
                continue
            by_file[mutant.path][outcome.outcome] += 1
            if killed(outcome):
                continue
            source = sources.setdefault(mutant.path, (self.root / mutant.path).read_text(encoding="utf-8"))
            shown = mutant.shown(source)
            reason = _reason(accepted, mutant, shown)
            by_file[mutant.path]["accepted"] += reason is not None
            left.append((mutant, shown, outcome, reason))
        lines = []
        for mutant, shown, outcome, reason in left:
            tests = f"{outcome.ran} of {outcome.of} tests" if outcome.of else "no test"
            lines.append(f"{mutant.path}:{mutant.line}  {mutant.within}  [{tests}]\n    {shown}")
            if reason:
                lines.append(f"    accepted: {reason}")
        lines.append("")
        packages: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for path, counts in sorted(by_file.items()):
            packages["/".join(path.split("/")[:2])].update(counts)
            lines.append(_share(path, counts))
        lines.append("")
        for package, counts in packages.items():
            lines.append(_share(package, counts))
        sys.stdout.write("\n".join(lines) + "\n")
        return int(any(reason is None for *_, reason in left))

    def _key(self, mutant: Mutant) -> Key:
        if mutant.path not in self._shas:
            self._shas[mutant.path] = sha(self.root / mutant.path)
        return mutant.path, self._shas[mutant.path], mutant.start, mutant.end, mutant.text


def killed(outcome: Outcome) -> bool:
    """Return whether a mutant was noticed."""
    return outcome.outcome in {"killed", "timeout"}


def _share(name: str, counts: collections.Counter[str]) -> str:
    total = sum(counts.values()) - counts["accepted"]
    noticed = counts["killed"] + counts["timeout"]
    return (
        f"{name:<55} {noticed / total:7.1%} killed of {total:5,}; survived {counts['survived']}, "
        f"no test {counts['no test']}, accepted {counts['accepted']}"
    )


def _accepted() -> dict[tuple[str, ...], str]:
    if not ACCEPTED.exists():
        return {}
    lines = (line.split("\t") for line in ACCEPTED.read_text(encoding="utf-8").splitlines() if "\t" in line)
    return {(path, within, change): reason for path, within, change, reason in lines}


def _reason(accepted: dict[tuple[str, ...], str], mutant: Mutant, shown: str) -> str | None:
    """Return why a survivor stays, or None if nobody has looked at it."""
    for (path, within, change), reason in accepted.items():
        if (path, within, change) == (mutant.path, mutant.within, shown) or (
            path == "*" and re.fullmatch(change, shown)
        ):
            return reason
    return None
