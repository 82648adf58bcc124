"""The lines that an engine prints, as rows of a table: the file NAME.txt beside this one.

    == budget
    weights
      line: {Model loading|Loading model weights} took <GiB>
      line: model weights take <GiB>

A section has names, and a name has the rows of which any may be in a log:

    line: the text as it is printed
    like: the same with capital letters or without
    argument: NAME=<type>, as arguments are printed: name=value or 'name': value
    option: NAME|NAME <type>, of a command that was pasted with the log
    flag: a name that is set: name=True, 'name': True or --name
    call: the names of functions, of a line of a traceback that is in one of them
    pattern: a regular expression, for what the others cannot say

In the text `<type>` is a value of TYPES, `<name:type>` one with a name, `<=word>` that word, `[a
part that may be missing]`, `{one|of several}`, `...` up to 300 characters of the same line and `..`
up to 40. A backslash is before a sign that means itself. Every repetition is bounded, so that a
hostile line takes no longer than its length.
"""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from ..units import long_option

# {the type of a value: a pattern of it}.
TYPES = {
    "number": r"\d{1,15}(?!\w|\.\d)",
    "digits": r"\d{1,18}",
    "positive": r"[1-9]\d{0,9}(?!\d)",
    "count": r"\d[\d,_]{0,29}",
    "decimal": r"\d{1,12}(?:\.\d{1,9})?",
    "share": r"[01]?\.\d{1,12}",
    "ratio": r"\d{0,6}\.?\d{1,9}",
    "GiB": r"-?\d{1,9}(?:\.\d{1,9})?",
    "MiB": r"\d{1,12}(?:\.\d{1,9})?",
    "version": r"\d{1,6}(?:\.\d{1,6}){1,4}(?:\.dev0(?!\d))?",
    "word": r"\w{1,40}",
    "value": r"[\w.]{0,40}\w",
    "float": r"(?:b?float16|float(?:32)?|half|[bf]p?16|fp32)\b",
    # not the code of a traceback: kv_cache_dtype=self.kv_cache_dtype
    "cache_dtype": r"(?!self|\w{0,40}dtype)(?:fp8(?=_ds_mla)|\w{1,40})",
    "object": r"\{(?:[^{}]|\{[^{}]{0,200}\}){1,400}\}",
    "yes": r"True|False",
    "on": r"on|off",
    "quoted": r"[^']{1,4096}",
    "path": r"[^\s<'`-][^\s<'`]{0,4095}",
}
# {the type of a size: what follows the number}. What SGLang and vLLM's V0 print as GB are GiB too.
_UNITS = {"GiB": " ?Gi?B", "MiB": " ?MiB"}
_PARTS = re.compile(r"\\.|<=?[^<>]{1,80}>|\.{2,3}|[^\\<\[\]{}|.]+|.", re.DOTALL)
_SIGNS = {
    "[": "(?:",
    "]": ")?",
    "{": "(?:",
    "|": "|",
    "}": ")",
    "...": r"[^\[]{0,300}?",
    "..": ".{0,40}?",
}
# An option, also without its hyphens if its name has several words: 'I tried max_num_seqs 8'.
_OPTION = r"(?<![\w-])(?:--?(?:{names})|(?:{words}))[ =]['\"]?(?!None|auto)"
_ARGUMENT = r"(?<!\w)'?{names}'?[=:] ?'?(?:torch\.)?(?!None|auto)"

Section = Mapping[str, re.Pattern[str]]


@cache
def lines_of(table: str) -> Mapping[str, Section]:
    """Return the patterns of a table: {section: {name: a pattern of any of its rows}}."""
    text = (Path(__file__).parent / f"{table}.txt").read_text(encoding="utf-8")
    rows: dict[str, dict[str, list[str]]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        kind, _, content = line.strip().partition(": ")
        if line.startswith("== "):
            section = rows.setdefault(line.removeprefix("== "), {})
        elif not line.startswith(" "):
            patterns = section.setdefault(line, [])
        else:
            patterns.append(_pattern(kind, content))
    return {
        section: {name: re.compile("|".join(patterns)) for name, patterns in names.items()}
        for section, names in rows.items()
    }


def either(*patterns: re.Pattern[str]) -> re.Pattern[str]:
    """Return a pattern of what any of the patterns matches."""
    return re.compile("|".join(pattern.pattern for pattern in patterns))


def _pattern(kind: str, content: str) -> str:
    """Return the source of the pattern of one row."""
    if kind == "pattern":
        return content
    if kind == "argument":
        names, _, value = content.partition("=")
        return _ARGUMENT.format(names=_text(names)) + _text(value)
    if kind == "option":
        names, _, value = content.partition(" ")
        spelled = names.replace("-", "[-_]")
        words = [name for name in spelled.split("|") if "[-_]" in name]
        return _OPTION.format(names=spelled, words="|".join(words) or "(?!)") + _text(value)
    forms = {
        "line": _text(content),
        "like": f"(?i:{_text(content)})",
        "flag": rf"{content}'?[=:] ?True|{long_option(content)}\b",
        "call": rf", in (?:\w{{1,80}}\.)?(?:{content})\b",
    }
    return forms[kind]


def _text(text: str) -> str:
    found = ""
    for part in _PARTS.findall(text):
        if part in _SIGNS:
            found += _SIGNS[part]
        elif part.startswith("<="):
            found += f"({re.escape(part[2:-1])})"
        elif part.startswith("<") and len(part) > 1:
            name, _, kind = part[1:-1].rpartition(":")
            group = f"?P<{name}>" if name else ""
            found += f"({group}{TYPES[kind]}){_UNITS.get(kind, '')}"
        else:
            found += re.escape(part.removeprefix("\\"))
    return found
