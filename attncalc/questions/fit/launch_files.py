"""Files that hold a launch command: a script, a unit of systemd, the YAML of docker compose or
Kubernetes.
"""

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Any

from ...config.user_files import open_file, piped_in
from ...errors import AttncalcError
from .launch_words import launches

# Bytes of such a file.
_LIMIT = 1 << 16
# YAML of Kubernetes and docker compose.
_MANIFEST = re.compile(r"(?m)^(?:apiVersion|services|kind):.*(?:\n(?:[ \t#-].*|\w+:.*|[ \t]*)$)*")
_OF_A_LOG = re.compile(
    r"(?m)^.{0,80}\b(?:INFO|WARNING|ERROR)\b|^(?:llama_|load_tensors|print_info|ggml_)"
    r"|\b\w{1,80}(?:Error|Exception): "
    r"|Killed process"
)
_ASSIGNED = re.compile(r"(?m)^\s*(?:export +)?([A-Za-z_]\w*)=[\"']?([^\s\"']+)")


def command_in(file: str) -> list[str] | None:
    """Return the words of the first launch command in a file; '-' is standard input. None if it has
    none.

    Standard input stays to be read.
    """
    found: list[list[str]] = []
    # a document of another kind may have anything under the same keys
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttncalcError):
        text = content(file).decode("utf-8", "replace")
        if file.endswith((".yaml", ".yml")) or _MANIFEST.search(text):
            found = [*_documents(text, file)]
        elif not _OF_A_LOG.search(text):
            found = [*_lines(text)]
    return next(filter(launches, found), None)


def content(file: str) -> bytes:
    """Return the first bytes of a file; '-' is standard input."""
    if file == "-":
        return piped_in()
    with open_file(Path(file)) as opened:
        return opened.read(_LIMIT)


def _lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each line that is a launch command, with the script's own variables
    replaced.
    """
    values = dict(_ASSIGNED.findall(text))
    for line in text.replace("\\\n", " ").splitlines():
        with contextlib.suppress(ValueError):  # a quotation mark without its other
            words = shlex.split(
                Template(line.removeprefix("ExecStart=")).safe_substitute(values), comments=True
            )
            if launches(words):
                end = next(
                    (i for i, word in enumerate(words) if re.match(r"\d?[>&|]", word)), len(words)
                )
                yield words[:end]


def _documents(text: str, file: str) -> Iterator[list[str]]:
    """Yield the words of each container in the documents of a manifest."""
    # loads a parser of YAML, which a typed command does not need
    from ...config.yaml import parse_document

    manifest = _MANIFEST.search(text)
    for part in re.split(r"(?m)^---.*$", manifest[0] if manifest else text):
        yield from _containers(parse_document(part.encode(), file).data)


def _containers(value: Any) -> Iterator[list[str]]:
    """Yield the words of each container in a document: its variables, its image and its command."""
    if isinstance(value, dict) and "image" in value:
        variables = value.get("env") or value.get("environment") or []
        if isinstance(variables, dict):
            variables = [f"{name}={text}" for name, text in variables.items()]
        assigned = [
            one if isinstance(one, str) else f"{one['name']}={one.get('value', '')}"
            for one in variables
        ]
        parts = [value.get(key) or [] for key in ("entrypoint", "command", "args")]
        texts = [
            str(text) for part in parts for text in ([part] if isinstance(part, str) else part)
        ]
        # ['sh', '-c', TEXT] has a shell's text
        yield [
            *assigned,
            str(value["image"]),
            *(word for text in texts for word in shlex.split(text) or [text]),
        ]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)
