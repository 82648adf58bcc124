"""How a log ends that has neither a cache nor a message about memory, or after its cache."""

import re
from collections.abc import Iterable, Mapping, Sequence

from .lines import lines_of
from .startup_log import READY, Load, LogRefusal, Printed, StartupLog, stage_of

_LINES = lines_of("any_engine")["lines"]
# Lines at the end of a log in which its end is searched.
_LAST = 200


def without_a_start(
    load: Load | None,
    lines: Sequence[str],
    start: re.Pattern[str],
    stages: Mapping[str, re.Pattern[str]],
) -> LogRefusal | None:
    """Return how a server copes, or how it ended, of a log without its start; None without a load
    or a line of one.

    `stages` are patterns of what was allocated, as in `torch_out_of_memory`: of an error whose
    message is missing.
    """
    last = lines[-_LAST:]
    ended = unfinished(lines, start)
    if ended and ended.where == "error":
        ended = ended._replace(stage=stage_of(" ".join(last), stages))
    if load is None:
        return ended
    if ended and is_end(ended, last) and not (load.waiting or load.preempted):
        return ended
    return LogRefusal(
        "overloaded", f"{load.running} running, {load.waiting} waiting, {load.usage:.1%} used"
    )


def unfinished(lines: Iterable[str], start: re.Pattern[str]) -> LogRefusal | None:
    """Return where a log ends that has neither a cache nor a message about memory; None without a
    line of a start.
    """
    found: dict[str, re.Match[str]] = {}
    step = None
    for line in lines:
        for name in ("killed", "resident", "message"):
            match = _LINES[name].search(line) if name not in found else None
            if match:
                found[name] = match
        step = _LINES["step"].search(line) or start.search(line) or step
    reached = step.groupdict() if step else {}
    message = found.get("message")
    killed = found.get("killed")
    # what a shell says after an error: the engine killed its own processes
    order = [*found]
    is_after = message is None or (
        killed is not None and order.index("killed") > order.index("message")
    )
    follows = killed is not None and killed.string == "Killed" and is_after
    if killed and not (follows and reached.get("error")):
        resident = found.get("resident")
        held = Printed(resident[1], resident[0], 1024) if resident else None
        return LogRefusal("out_of_memory", killed.string, held, where="killed")
    if step is None:
        return None
    if reached.get("error") and message:
        return LogRefusal("unfinished", message[0], where="other")
    if reached.get("error"):
        return LogRefusal("unfinished", step.string, where="error")
    loaded = None
    files = None
    if reached.get("loaded"):
        loaded = Printed(reached["loaded"], step[0])
        files = Printed(reached["files"], step[0])
    where = "loading" if reached.get("loading") else ""
    return LogRefusal("unfinished", step.string, loaded, files, where)


def with_end(log: StartupLog, lines: Sequence[str]) -> StartupLog:
    """Return a log of a cache with its size, with why the process ended after that, if its last
    lines say it.
    """
    last = after_the_cache(log, lines)
    end = unfinished(last, _LINES["step"])
    if end and is_end(end, last):
        return log._replace(refusal=end)
    return log


def is_end(end: LogRefusal, last: Sequence[str]) -> bool:
    """Return whether the last lines say that the process ended, and not only that something failed
    in it.
    """
    return end.where == "killed" or (
        end.where == "other" and any(map(_LINES["fatal"].search, last))
    )


def after_the_cache(log: StartupLog, lines: Sequence[str]) -> list[str]:
    """Return the last lines, of those after the sizes of the cache and the start."""
    sizes = [figure.line for figure in log.logged.values()]
    last = [*lines[-_LAST:]]
    after = 0
    for i, line in enumerate(last):
        if READY.search(line) or any(size in line for size in sizes):
            after = i + 1
    return last[after:]
