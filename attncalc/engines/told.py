"""Out-of-memory failures that a person describes in words, without lines of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .startup_log import LogRefusal

_FAILED = re.compile(
    r"(?i)(?<!no )(?<!not an )(?<!without )(?<!avoid )(?<!prevent )"
    r"(?:\b(?:cuda |gpu )?out[- ]of[- ](?:\w+ )?(?:memory|vram)"
    r"|\bOOM(?:s|ed|ing|'s)?\b|OutOfMemory(?:Error)?\b|malloc (?:fail|error)"
    r"|alloc\w* (?:of .{1,40} )?fail|fail\w* to allocate"
    r"|(?:not enough|insufficient|too little) (?:\w+ )?(?:memory|vram))"
)
_NOT_TOLD = re.compile(
    r"(?i)^\s*# |^\W{0,3}(?:will|would|does|do|can|could|should|is|are|how)\b|\bif (?:you|it|that|there|one)\b"
    r"|\b(?:never|no longer|(?:do|does|did)(?: not|n't)|fixe[ds]|solved|against)"
    r"(?: (?!start|fit|load)\w+){0,2} (?:OOM|out of)"
)
"""Beginnings of comments in scripts, questions and conditions, and words that say the opposite."""
_STAGES = (
    (r"graph", "graphs"),
    (r"\bRAM\b|(?:system|host|cpu) memory", "host"),
    (r"warm-?up", "compute"),
    (r"load(?:s|ing)?\b|weights", "weights"),
    (r"request|inference|generat|prefill|prompt|after (?:a while|\d)|hours?\b", "serving"),
)
"""{words beside it: what was allocated}: the first that is found."""
_AROUND = 80
"""Characters that are shown before the words of a failure, and twice as many as after them."""


def told_failure(lines: Iterable[str]) -> LogRefusal | None:
    """Return the failure of the first sentence that tells of one; None if none does."""
    uncommented = (re.sub(r"\s# .*", "", line) for line in lines)
    sentences = (one for line in uncommented for one in re.split(r"(?<=[.!?]) ", line) if not _NOT_TOLD.search(one))
    match = next(filter(None, map(_FAILED.search, sentences)), None)
    if match is None:
        return None
    begin, end = match.string.rfind(" ", 0, max(0, match.start() - _AROUND)), match.end() + _AROUND // 2
    line = match.string[begin + 1 : end].rpartition(" ")[0] if end < len(match.string) else match.string[begin + 1 :]
    where = next((where for words, where in _STAGES if re.search(words, line, re.IGNORECASE)), "")
    return LogRefusal("out_of_memory", line, where=where, is_told=True)
