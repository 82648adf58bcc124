"""YAML text -> Document: no aliases, no key twice, every value with its line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from ..errors import AttncalcError
from ..units import truncate
from .document import Document, Path

DEEPEST = 20
"""Levels of a file at the most."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(content: bytes, file: str) -> Document:
    """The document in `content`. AttncalcError: not text, not YAML, empty, aliases, a key twice."""
    try:
        text = content.decode("utf-8-sig")
        _refuse_depth_and_aliases(text, file)
        root = yaml.compose(text, Loader=_Loader)
    except UnicodeDecodeError:
        raise AttncalcError(f"{file}: not a text file", "a model file is YAML in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{file}:{mark.line + 1}" if mark else file
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        raise AttncalcError(
            f"{where}: not YAML: {truncate(problem, 80)}", "compare with 'attncalc presets show gpt2'"
        ) from None
    if root is None:
        raise AttncalcError(f"{file}: empty", "'attncalc presets show gpt2' prints an example")
    if not isinstance(root, yaml.MappingNode):
        raise AttncalcError(
            f"{file}:1: not a mapping of keys to values", "'attncalc presets show gpt2' prints an example"
        )
    lines: dict[Path, int] = {}
    data = _plain(root, (), file, lines)
    return Document(file, data, lines)


def _refuse_depth_and_aliases(text: str, file: str) -> None:
    """Before anything is built: an alias is how a few lines grow to gigabytes, depth how a parser dies."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.AliasEvent):
            raise AttncalcError(f"{file}:{line}: an alias", "write the values out; a model file has no aliases")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise AttncalcError(f"{file}:{line}: nested more than {DEEPEST} deep", "a model file has three levels")


def _plain(node: yaml.Node, path: Path, file: str, lines: dict[Path, int]) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), file, lines) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node, file, line)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise AttncalcError(f"{file}:{key_line}: a key that is not a word", "write 'key: value'")
        key = key_node.value
        if key in found:
            raise AttncalcError(f"{file}:{key_line}: {truncate(key)}: given twice", "keep one of them")
        lines[(*path, key)] = key_line
        found[key] = _plain(value_node, (*path, key), file, lines)
    return found


def _scalar(node: yaml.Node, file: str, line: int) -> Any:
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError):
        value = None
    plain = node.value.removeprefix("-").isdecimal() and not node.value.removeprefix("-").startswith("0")
    # YAML 1.1 reads 0777 as 511 and 1:30 as 90: a number is decimal here, or refused.
    if (value is None and node.value) or (type(value) is int and value and not plain):
        raise AttncalcError(
            f"{file}:{line}: '{truncate(node.value)}' cannot be read as a value",
            "write a number, a word or true/false",
        )
    return value


def table(content: bytes) -> Any:
    """The data in one of attncalc's own tables, which needs no lines and no checks."""
    return yaml.load(content, Loader=_Loader)


def written(data: Mapping[str, Any], origin: str) -> str:
    """A model file's text: where it is from, its title, sources and notes first, no aliases."""
    first = {key: data[key] for key in ("title", "model_type", "assumed", "sources", "notes") if key in data}
    inline = {key: False if isinstance(value, (str, int)) or key in first else None for key, value in data.items()}
    parts = [
        yaml.dump({key: value}, default_flow_style=inline[key], **_STYLE) for key, value in {**first, **data}.items()
    ]
    return f"# From {origin}; 'attncalc presets schema' prints what the keys mean.\n" + "".join(parts)


class _Plain(yaml.SafeDumper):
    """Writes equal values out, since a model file has no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_STYLE: Any = {"Dumper": _Plain, "sort_keys": False, "allow_unicode": True, "width": 110}
