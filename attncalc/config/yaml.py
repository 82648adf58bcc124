"""YAML text -> Document, without aliases and duplicate keys and with the line of every value; and
back.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from ..errors import AttncalcError, NotSupportedError
from ..units import truncate
from .document import Document, KeyPath

# Levels of nesting that a file may have.
MAX_DEPTH = 20
# Keys, values, starts and ends of lists that a file may have: one with 2,000 layers, each of its
# own, has 100,000. A million take half a GiB of memory.
MAX_VALUES = 200_000

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_EXAMPLE = "'attncalc presets show gpt2' prints an example"


def parse_document(content: bytes, file: str, *, is_strict: bool = True) -> Document:
    """Return the document in `content`; `file` is what errors call it.

    Unless it `is_strict`, a value may be null and a number 500_000, as in trainers' files. In a
    model file they are mistakes.

    Raises AttncalcError if it is not UTF-8, not YAML, empty or not a mapping, or has an alias, a
    duplicate key, or too many levels or values.
    """
    try:
        text = content.decode("utf-8-sig")
        _check_structure(text, file)
        root = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError:
        tip = "give a config.json, a GGUF file or a YAML model file in UTF-8"
        raise AttncalcError(f"{file}: not a text file", tip) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}:{mark.line + 1}" if mark else file
        problem = (
            getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        )
        raise AttncalcError(f"{place}: not YAML: {truncate(problem, 80)}", _EXAMPLE) from None
    if root is None:
        raise AttncalcError(f"{file}: the file is empty", _EXAMPLE)
    if not isinstance(root, yaml.MappingNode):
        raise AttncalcError(f"{file}:1: not a mapping of keys to values", _EXAMPLE)
    lines: dict[KeyPath, int] = {}
    data = _value(root, (), file, lines, is_strict=is_strict)
    return Document(file, data, lines)


def parse_trusted(content: bytes) -> Any:
    """Return the data of one of attncalc's own files, which needs neither lines nor checks."""
    return yaml.load(content, Loader=_Loader)


def _check_structure(text: str, file: str) -> None:
    """Raise AttncalcError for an alias, or too many levels or values, before anything is built.

    With aliases a few lines can expand to gigabytes, and deep nesting overflows the parser's stack.
    """
    depth = 0
    for number, event in enumerate(yaml.parse(text, Loader=_Loader)):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if number > MAX_VALUES:
            raise AttncalcError(f"{file}: YAML with more than {MAX_VALUES:,} values", _EXAMPLE)
        if isinstance(event, yaml.AliasEvent):
            raise NotSupportedError(
                f"{file}:{line}: aliases are not supported", "write the values out"
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise AttncalcError(
                f"{file}:{line}: nested more than {MAX_DEPTH} levels deep",
                "a model file has three levels",
            )


def _value(
    node: yaml.Node, path: KeyPath, file: str, lines: dict[KeyPath, int], *, is_strict: bool
) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(item, (*path, i), file, lines, is_strict=is_strict)
            for i, item in enumerate(node.value)
        ]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, file, line, is_strict=is_strict)
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise AttncalcError(f"{file}:{key_line}: a key must be a word", "write 'key: value'")
        key = key_node.value
        if key in data:
            raise AttncalcError(
                f"{file}:{key_line}: {truncate(key)}: given twice", "keep one of the two"
            )
        lines[(*path, key)] = key_line
        data[key] = _value(value_node, (*path, key), file, lines, is_strict=is_strict)
    return data


def _scalar(node: yaml.Node, file: str, line: int, *, is_strict: bool) -> Any:
    """Return a scalar's value. Raises AttncalcError for a number that is not decimal.

    YAML 1.1 reads 0777 as 511 and 1:30 as 90, which nobody means in a model file.
    """
    if not is_strict and node.value in ("null", "~"):
        return None
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError, KeyError):  # KeyError: '!!bool x'
        value = None
    digits = node.value.removeprefix("-")
    if not is_strict:
        digits = digits.replace("_", "")
    is_decimal = digits.isdecimal() and not digits.startswith("0")
    if (value is None and node.value) or (type(value) is int and value and not is_decimal):
        raise AttncalcError(
            f"{file}:{line}: '{truncate(node.value)}' cannot be read as a value",
            "write a number, a word or true/false",
        )
    return value


def to_yaml(data: Mapping[str, Any], origin: str) -> str:
    """Return the YAML text of a model file, without aliases; a comment names its `origin`."""
    first = {
        key: data[key]
        for key in ("title", "model_type", "assumed", "sources", "notes")
        if key in data
    }
    style = {
        key: False if isinstance(value, (str, int)) or key in first else None
        for key, value in data.items()
    }
    parts = [
        yaml.dump({key: value}, default_flow_style=style[key], **_DUMP)
        for key, value in {**first, **data}.items()
    ]
    return f"# From {origin}; 'attncalc presets schema' prints what the keys mean.\n" + "".join(
        parts
    )


def rows_of_yaml(data: Mapping[str, Any]) -> str:
    """Return the YAML text of some data, one value per line."""
    text: str = yaml.dump(data, default_flow_style=False, **_DUMP)
    return text


class _DumperWithoutAliases(yaml.SafeDumper):
    """Writes equal values out each time, because a model file has no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_DUMP: Any = {
    "Dumper": _DumperWithoutAliases,
    "sort_keys": False,
    "allow_unicode": True,
    "width": 110,
}
