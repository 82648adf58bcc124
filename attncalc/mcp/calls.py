"""How a call is answered: the command runs in a process of its own.

So ten calls at once do not mix, a call that is cancelled or takes too long is killed, and an answer
is what the command line prints. The process prints one JSON object: the answer as --json has it,
the screen, and the exit code (`python -m attncalc.mcp.worker`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AttncalcError
from ..questions.pasted_words import words_of as words_of_text
from ..records import NamedTuple
from ..units import truncate
from .tools import Tool, words_of

# Seconds of a call, and between two messages about its progress.
SECONDS = 120
STEP = 2
# Calls that are computed at once; others wait.
_AT_ONCE = asyncio.Semaphore(os.cpu_count() or 1)
# Bytes of an answer. A sweep of some thousand rows has as many.
_LARGEST = 4 << 20
# What may be between two paths in an argument: '--gpu h100,box.yaml', 'gpu=box.yaml'.
_BETWEEN = re.compile(r"[\s,=]+")


class Answer(NamedTuple):
    """The answer of a call.

    Attributes:
        data: What the command prints with --json; None for an error.
        text: The notes, the screen and the command line; for an error its line and its tip.
    """

    data: dict[str, Any] | None
    text: str


async def answer(
    tool: Tool,
    arguments: Mapping[str, Any],
    root: Path,
    *,
    has_network: bool,
    tell: Callable[[float], Awaitable[None]],
) -> Answer:
    """Return the answer of a call.

    Args:
        tool: The question.
        arguments: Its arguments, by name.
        root: The folder below which files may be read.
        has_network: Whether models may be fetched from the hub.
        tell: Is told every other second how long the call has taken.
    """
    try:
        words = words_of(tool, arguments)
        check_paths(words, root)
    except AttncalcError as error:
        return Answer(None, f"error: {error.message}\n  tip: {error.tip}")
    further = {} if has_network else {"HF_HUB_OFFLINE": "1"}
    async with _AT_ONCE:
        process = await _start("attncalc.mcp.worker", words, root, further)
        try:
            content = await _content(process, tell)
        except BaseException:  # it is cancelled
            process.kill()
            raise
        if content is None:
            process.kill()
        await process.wait()
    return _answer(words, content)


async def screen_of(words: Sequence[str]) -> str:
    """Return what a command prints, as the list of presets."""
    process = await _start("attncalc", words, Path.cwd(), {})
    content, _ = await process.communicate()
    return content.decode("utf-8", "replace")


async def _start(
    module: str, words: Sequence[str], folder: Path, further: Mapping[str, str]
) -> asyncio.subprocess.Process:
    """Start `python -m MODULE WORDS` in a folder, with further variables of the environment."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "NO_COLOR": "1", "PYTHONUTF8": "1", **further},
    )


async def _content(
    process: asyncio.subprocess.Process, tell: Callable[[float], Awaitable[None]]
) -> bytes | None:
    """Return what the process prints; None if it takes too long or prints too much."""
    assert process.stdout is not None
    reading = asyncio.ensure_future(process.stdout.read(_LARGEST + 1))
    parts = bytearray()
    seconds = 0
    try:
        while seconds < SECONDS:
            done, _ = await asyncio.wait({reading}, timeout=STEP)
            if not done:
                seconds += STEP
                await tell(seconds)
                continue
            part = reading.result()
            if not part:
                return bytes(parts)
            parts += part
            if len(parts) > _LARGEST:
                return None
            reading = asyncio.ensure_future(process.stdout.read(_LARGEST + 1))
    finally:
        reading.cancel()
    return None


def _answer(words: Sequence[str], content: bytes | None) -> Answer:
    """Return the answer that a process printed."""
    command = shlex.join(["attncalc", *words])
    if content is None:
        return Answer(
            None,
            f"error: {command} takes more than {SECONDS} s, or its answer has more than "
            f"{_LARGEST >> 20} MiB\n  tip: ask for fewer rows, models or GPUs",
        )
    try:
        found = json.loads(content)
    except ValueError:
        return Answer(
            None,
            f"error: {command} ended without an answer\n  tip: please report it with this command",
        )
    if found["data"] is None:
        return Answer(None, found["error"].rstrip())
    return Answer(found["data"], f"{found['notes']}{found['screen'].rstrip()}\n\n$ {command}\n")


def check_paths(words: Sequence[str], root: Path) -> None:
    """Raise AttncalcError if a word is a file or folder outside `root`, or standard input."""
    # those of a pasted command are read without their quotation marks
    inner = words_of_text(words[-1:]) if "--" in words else []
    for word in (*words, *inner):
        for part in {word, *_BETWEEN.split(word)}:
            if part == "-":
                raise AttncalcError("there is no standard input", "give a file's name")
            if _is_outside(part, root):
                raise AttncalcError(
                    f"{truncate(part)}: outside the folder of the server, {root}",
                    "files are read below that folder alone",
                )


def _is_outside(text: str, root: Path) -> bool:
    """Return whether a text is the path of a file or folder that exists outside `root`."""
    try:
        path = (root / Path(text).expanduser()).resolve()
        return path.exists() and not path.is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):
        return False
