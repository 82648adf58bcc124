"""Files that hold a launch command: a script, a unit of systemd, the YAML of docker compose or Kubernetes."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from ..config.user_files import open_file, piped_in, read_standard_input
from ..config.yaml import parse_document
from ..errors import AttncalcError
from .pasted import first_argument, launches, without_dashes

_LONGEST_QUESTION = 200
"""Words of a text on standard input that may be a question."""
_LIMIT = 1 << 16
"""Bytes of such a file."""
_MANIFEST = re.compile(r"(?m)^(?:apiVersion|services|kind):.*(?:\n(?:[ \t#-].*|\w+:.*|[ \t]*)$)*")
"""YAML of Kubernetes and docker compose, also between the lines of a question."""
_OF_A_LOG = re.compile(
    r"(?m)^.{0,80}\b(?:INFO|WARNING|ERROR)\b|^(?:llama_|load_tensors|print_info|ggml_)|\b\w{1,80}(?:Error|Exception): "
    r"|Killed process"
)
_ASSIGNED = re.compile(r"(?m)^\s*(?:export +)?([A-Za-z_]\w*)=[\"']?([^\s\"']+)")


def with_command(args: Sequence[str], options: Mapping[str, Any]) -> list[str] | None:
    """Return the arguments of `fit` with the first launch command of the file that is MODEL, after --, in its place;
    without MODEL, of standard input.

    None if no argument is such a file. `options` are those of `fit`.
    """
    before = dict(zip(args[1:], args, strict=False))
    files = (arg for arg in args if os.path.isfile(arg) and getattr(options.get(before.get(arg, "")), "is_flag", True))
    names_none = {"--", "-h", "--help", "--log"}.isdisjoint(args) and first_argument(args[1:], options) in (None, "-")
    file, found = next(files, "-" if names_none else ""), list[list[str]]()
    # a document of another kind may have anything under the same keys
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, AttncalcError):
        text = content(file).decode("utf-8", "replace")
        if file.endswith((".yaml", ".yml")) or _MANIFEST.search(text):
            found = [*_documents(text, file)]
        elif not _OF_A_LOG.search(text):
            found = [*_lines(text)]
        if found and _has_message(text):
            found = []
    command = next(filter(launches, found), None)
    if command is None:
        return None
    from .gpu_words import first_gpu_in  # reads the vocabulary, which other command lines do not need

    given = [arg for arg in args if arg not in ("fit", file)]
    if "--gpu" not in given and (gpu := first_gpu_in(text)):  # 'does this fit on 2x 3090?' beside it
        given += ["--gpu", gpu]
    return ["fit", *given, "--", *command]


def question_in(data: bytes) -> list[str]:
    """Return the words of a question on standard input; [] for a log, a document or a longer text.

    A table of nvidia-smi stands for the GPUs in it: '--gpu 2xrtx-4090'.
    """
    text = data.decode("utf-8", "replace")
    from .gpu_words import read_listing

    text, listed, _ = read_listing(text)
    words = [*text.split(), *listed]
    if not 0 < len(words) < _LONGEST_QUESTION or text.lstrip()[:1] in ("{", "[") or _OF_A_LOG.search(text):
        return []
    if _MANIFEST.search(text):  # of an engine whose commands are read as words: TGI
        with contextlib.suppress(ValueError, TypeError, KeyError, AttncalcError):
            return next(_documents(text, "-"), [])
    from ..engines.log_file import read_log
    from ..engines.messages import UNKNOWN

    with contextlib.suppress(AttncalcError):
        refusal = read_log(data, "").refusal
        if refusal is None or not (refusal.is_told or refusal.program == UNKNOWN):
            return []
    return words


def _has_message(text: str) -> bool:
    """Return whether a text asks what an engine's message means, beside the command that it was started with.

    'I get OOM with this' asks what the command needs.
    """
    from ..engines.log_file import read_log
    from ..engines.messages import UNKNOWN

    with contextlib.suppress(AttncalcError):
        refusal = read_log(text.encode(), "").refusal
        return (
            refusal is not None and not refusal.is_told and refusal.kind != "unfinished" and refusal.program != UNKNOWN
        )
    return False


def content(file: str) -> bytes:
    """Return the first bytes of a file; '-' is standard input, which stays to be read unless it is a manifest."""
    if file != "-":
        with open_file(Path(file)) as opened:
            return opened.read(_LIMIT)
    content = piped_in()
    return read_standard_input(_LIMIT) if _MANIFEST.search(content.decode("utf-8", "replace")) else content


def _lines(text: str) -> Iterator[list[str]]:
    """Yield the words of each line that is a launch command, with the script's own variables replaced."""
    values = dict(_ASSIGNED.findall(text))
    for line in text.replace("\\\n", " ").splitlines():
        with contextlib.suppress(ValueError):  # a quotation mark without its other
            words = shlex.split(Template(line.removeprefix("ExecStart=")).safe_substitute(values), comments=True)
            if without_dashes(words) is not None:
                end = next((i for i, word in enumerate(words) if re.match(r"\d?[>&|]", word)), len(words))
                yield words[:end]


def _documents(text: str, file: str) -> Iterator[list[str]]:
    """Yield the words of each container in the documents of a manifest."""
    manifest = _MANIFEST.search(text)
    for part in re.split(r"(?m)^---.*$", manifest[0] if manifest else text):
        yield from _containers(parse_document(part.encode(), file).data)


def _containers(value: Any) -> Iterator[list[str]]:
    """Yield the words of each container in a document: its variables, its image and its command."""
    if isinstance(value, dict) and "image" in value:
        variables = value.get("env") or value.get("environment") or []
        if isinstance(variables, dict):
            variables = [f"{name}={text}" for name, text in variables.items()]
        assigned = [one if isinstance(one, str) else f"{one['name']}={one.get('value', '')}" for one in variables]
        parts = [value.get(key) or [] for key in ("entrypoint", "command", "args")]
        texts = [str(text) for part in parts for text in ([part] if isinstance(part, str) else part)]
        # ['sh', '-c', TEXT] has a shell's text
        yield [*assigned, str(value["image"]), *(word for text in texts for word in shlex.split(text) or [text])]
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _containers(item)
