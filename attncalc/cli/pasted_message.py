"""A pasted message of an engine as a question, with the model and the GPU beside it."""

import contextlib
import io
import re
import sys
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from ..engines.log_file import is_log, read_log
from ..errors import AttncalcError
from ..options import by_name
from ..vocabulary import MESSAGES
from .kinds import Item
from .pasted import launches, split_launch
from .reading import Reading
from .words import Words

_OF_LLAMACPP = r"\b(llama_\w+|ggml_\w+|load_tensors|print_info|sched_reserve): "
_EXCEPTION = rf"{_OF_LLAMACPP}|\b\w+(Error|Exception): |^(INFO|WARNING|ERROR) \S"
_MESSAGE = (
    rf"{_EXCEPTION}|(?i:error:|failed to|unable to|exceeds?\b|(greater|larger) than|too large for|not enough"
    r"|out of (memory|resource)|(no available|insufficient|system) memory|insufficient system|runner has|malloc"
    r"|tried to allocate|allocation of"
    r"|cache size: [\d,]+ tok|\d reqs?\b|to serve at least|less than desired|is full|retract|preempted|preemptions_"
    r"|context length is|maximum concurrency for|ErrorOutOfMemory|exit (code|status)|buffer size += |Load weight end"
    r"|KV cache (memory: |is allocated))"
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
    is_error = re.search(_EXCEPTION, text)
    try:
        log = read_log(text.encode(), "the message")
    except AttncalcError as error:
        return error if is_error or "neither" not in error.message else None
    is_known = log.refusal is None or not (log.refusal.program == UNKNOWN or log.refusal.is_told)
    return ["fit", "--log", "-"] if is_known or is_error else None


def about_message(command: list[str], text: str, typed: Sequence[str], root: Any) -> tuple[list[str], list[str]]:
    """Return the command that answers a message, with the words of the person around it; and its cache per request."""
    if command[0] != "fit":
        return command, []
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    items = Words(root, text.split()).items(text.split())
    trains = [item for item in items if item.idea and dict(item.idea.votes(item.value)).get("train", 0) > 1]
    if trains and not re.search(_OF_LLAMACPP, text):
        names_gpu = any(item.kind == "gpu" for item in items)
        sizes = [] if names_gpu else re.findall(r"(?:capacity of |; )(\d+\.\d+) GiB", text)
        sized = ("--context N", "--batch N")
        of_run = [
            one for one in items if one.kind in ("model", "gpu", "dtype") or (one.idea and one.idea.means in sized)
        ]
        reading = Reading("train", Words(root, []).options("train"), None, "", is_meant=True)
        for item in (*trains, *of_run, *(Item("size", f"{size}GiB", size) for size in sizes[:1])):
            reading.add(item)
        if not reading.finish().missing:
            return reading.args, reading.beside
    reading = Reading("fit", Words(root, []).options("fit"), None, "gpu", is_meant=True)
    # without messages and lines of a log in quotation marks
    around = [arg for arg in typed if " " not in arg or not (asked_by_message(arg) or is_log(arg.encode()))]
    words_around = _around_message(text) if around in ([], [*typed]) else [" ".join(around).split()]
    declared = by_name(root.get_command(None, "fit").callback.declared.values())
    for some in words_around:
        words = split_launch(some, declared)[1] if launches(some) else some  # the reader of logs reads a command
        for item in Words(root, words).items(words):
            if item.idea and item.idea.means.split()[:1] == ["--gpus"]:  # of the machine: the log decides
                reading.left_out.append(f"{item.value or ''} {item.typed}".strip())
            elif "mib" not in item.text.lower() and (  # of the log: 'V (f16): 576.00 MiB'
                item.kind in ("model", "gpu", "dtype", "size")
                or item.value
                or re.fullmatch(r"\d+[kK]", item.text)  # and no time of day
                or (item.typed.startswith("-") and not item.takes)
            ):
                reading.add(item)
    reading.add(Item("option", "--log", "--log", value="-"))
    return reading.finish().args, reading.beside


def _around_message(text: str) -> tuple[list[str], list[str]]:
    """Return the words before and after a message: those without which it says the same."""
    words = text.split()

    def says(begin: int, end: int) -> Any:
        with contextlib.suppress(AttncalcError):
            log = read_log(" ".join(words[begin:end]).encode(), "")
            refusal = log.refusal and log.refusal._replace(line="")
            return log.engine, refusal, log.logged, log.budget, log.available, log.load
        return None

    whole, every = says(0, len(words)), range(len(words))
    end = bisect_left(every, True, key=lambda end: says(0, end) == whole)
    begin = bisect_left(every, True, key=lambda begin: says(begin, end) != whole) - 1
    sign = re.search(_MESSAGE, text)  # 'To serve at least one request', before what counts
    after = re.sub(r"\([^)]*\)?", "", " ".join(words[end:]))  # '(after 512 MiB of overhead)'
    return words[: min(begin, len(text[: sign.start()].split())) if sign else begin], after.split()
