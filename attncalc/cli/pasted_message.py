"""A pasted message of an engine as a question, with the model and the GPU beside it."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

from ..config.presets import preset_of
from ..errors import AttncalcError
from ..vocabulary import MESSAGES
from .command import SCREEN_FLAGS
from .kinds import Item
from .reading import Reading
from .words import Words

_EXCEPTION = r"\b\w+(Error|Exception): |^(INFO|WARNING|ERROR) \S"
_MESSAGE = (
    rf"{_EXCEPTION}|(?i:error:|failed to|unable to|exceeds?\b|(greater|larger) than|too large for|not enough"
    r"|out of (memory|resource)|(no available|insufficient|system) memory|insufficient system|runner has|malloc"
    r"|tried to allocate|allocation of"
    r"|cache size: [\d,]+ tok|\d reqs?\b|to serve at least|is full|retract|preempted|preemptions_|context length is"
    r"|exit (code|status))"
)
"""What a message may have that was pasted in the place of a question."""


def asked_by_message(text: str) -> list[str] | AttncalcError | None:
    """Return the arguments that answer a message of an engine, or why none do; None if the text has no message."""
    from ..engines.messages import UNKNOWN, find_message
    from ..engines.metrics import with_metrics
    from ..engines.startup_log import KILLED

    if find_message(text) or KILLED.search(text) or len(with_metrics([text])) > 1:
        return ["fit", "--log", "-"]
    if not re.search(_MESSAGE, text):
        return None
    if term := next((term for word, term in MESSAGES.items() if word in text.lower()), None):
        return ["explain", term]
    from ..engines.log_file import read_log

    is_error = re.search(_EXCEPTION, text)
    try:
        log = read_log(text.encode(), "the message")
    except AttncalcError as error:
        return error if is_error or "neither" not in error.message else None
    is_known = log.refusal is None or not (log.refusal.program == UNKNOWN or log.refusal.is_told)
    return ["fit", "--log", "-"] if is_known or is_error else None


def about_message(command: list[str], text: str, root: Any) -> tuple[list[str], list[str]]:
    """Return the command that answers a message, with the model and the GPU beside it; and its cache per request."""
    if command[0] != "fit":
        return command, []
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    items = Words(root, text.split()).items(text.split())
    named = {item.kind: item.text for item in items}
    counts = (item.value or "" for item in items if item.idea and "--batch" in item.idea.means)
    users = [int(text) for text in counts if re.fullmatch(r"[1-9]\d{0,8}", text)]
    if (tokens := re.search(r"KV cache size: ([\d,]+) tokens", text)) and users and "model" not in named:
        each = int(tokens[1].replace(",", "")) // users[0]
        return ["explain", "preemption"], [f"answer: {tokens[1]} tokens are {each:,} for each of {users[0]} requests"]
    if trains := [item for item in items if item.idea and dict(item.idea.votes(item.value)).get("train", 0) > 1]:
        sizes = re.findall(r"(?:capacity of |; )(\d+\.\d+) GiB", text) if "gpu" not in named else []
        sized = ("--context N", "--batch N")
        of_run = [
            one for one in items if one.kind in ("model", "gpu", "dtype") or (one.idea and one.idea.means in sized)
        ]
        reading = Reading("train", Words(root, []).options("train"), None, "", is_meant=True)
        for item in (*trains, *of_run, *(Item("size", f"{size}GiB", size) for size in sizes[:1])):
            reading.add(item)
        if not reading.finish().missing:
            return reading.args, reading.beside
    given = {item.text: item.value for item in items if item.value}
    gpu, model = given.get("--gpu") or named.get("gpu", "").removeprefix("1x"), named.get("model", "")
    dtype = given.get("--weights-dtype") or named.get("dtype")
    # neither a size nor the CPU of the message
    options = ["--gpu", gpu] if gpu and not re.match(r"(?i)[\d.]+-?[kmgt]i?b|cpu$", gpu) else []
    options += ["--weights-dtype", dtype] if dtype and model else []
    options += [word for word in text.split() if word in SCREEN_FLAGS]
    return ["fit", *filter(preset_of, [model]), *options, *command[1:]], []
