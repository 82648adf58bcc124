"""What PyTorch says if an allocation fails: its size, what was free, and what processes use."""

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from ..units import GIB
from .lines import lines_of
from .startup_log import MIB, READY, InUse, LogRefusal, Printed, stage_of

_TABLE = lines_of("any_engine")
OUT_OF_MEMORY = _TABLE["lines"]["out_of_memory"]
# Process ids that differ by less are of processes that were started together.
_NEAR = 300
# Bytes that CUDA, its libraries and NCCL take at most of a GPU for one process.
_OF_CONTEXTS = 2 * GIB
_UNITS = {"G": GIB, "M": MIB, "K": 1024, None: 1}


def torch_out_of_memory(
    text: str, where: str, stages: Mapping[str, re.Pattern[str]] = MappingProxyType({})
) -> LogRefusal | None:
    """Return what PyTorch says when an allocation fails; None if none did.

    `stages` are patterns of what was allocated, by the names of `LogRefusal.where`: `where` if none
    matches.
    """
    match = OUT_OF_MEMORY.search(text)
    if match is None:
        return None
    if READY.search(text, 0, match.start()):
        where = "serving"
    elif stage_of(text, stages):
        where = stage_of(text, stages)
    elif not where and "allocated in private pools" in text:
        where = "rest"  # with graphs in pools of their own, the cache was allocated
    return LogRefusal(
        "out_of_memory",
        match[0],
        tried=_amount("tried", text),
        free=_amount("free", text),
        where=where,
        use=_in_use(text),
        unused=_amount("reserved", text),
    )


def _in_use(text: str) -> InUse:
    """Return what processes use of the GPU.

    In a container PyTorch lists its own process by a number: it is the one that uses little more
    than PyTorch has. If the message has not what that is, it may be any, and the others use at
    least what all but the largest use.
    """
    first = _TABLE["pytorch"]["in_use"].search(text)
    if first is None and "has 0 bytes memory in use" in text:
        return _in_hidden_list(text)
    if first is None:
        return _in_old_list(text)
    message = text[first.start() : first.start() + 4000].partition("Of the allocated memory")[0]
    listed: dict[str | None, int] = {}
    for match in _TABLE["pytorch"]["in_use"].finditer(message):
        used = int(Fraction(match[2]) * _UNITS[match[3]])
        if used:
            listed[match[1]] = used
        else:
            listed.pop(match[1], None)
    of_pytorch = 0
    for name in ("allocated", "reserved"):
        amount = _amount(name, text)
        if amount:
            of_pytorch += amount.bytes
    is_named = None in listed  # 'this process'
    own = _own_process(listed, of_pytorch)
    if own not in listed:
        return InUse(taken=sum(listed.values()), processes=len(listed))
    used = listed[own]
    together = 0
    for process, size in listed.items():
        if process and own and process != own and abs(int(process) - int(own)) < _NEAR:
            together += size
    return InUse(
        own=used if of_pytorch or is_named else 0,
        taken=sum(listed.values()) - used - together,
        processes=len(listed) - 1 if is_named else len(listed),
        together=together + used if together else 0,
    )


def _own_process(listed: Mapping[str | None, int], of_pytorch: int) -> str | None:
    """Return the engine's own process: 'this process' (None), or one that uses at least the bytes
    that PyTorch has; the largest if these are not known, '' if there is none.
    """
    if None in listed:
        return None
    enough = [name for name, size in listed.items() if size >= of_pytorch]
    if not enough:
        return ""
    likely = min if of_pytorch else max
    return likely(enough, key=lambda name: listed[name])


def _in_hidden_list(text: str) -> InUse:
    """Return the same of a message in a container whose driver hides what processes use: '0 bytes
    memory in use'.

    What is neither free nor PyTorch's is that of others, but for the contexts of CUDA.
    """
    total = _amount("total", text)
    free = _amount("free", text)
    allocated = _amount("allocated", text)
    reserved = _amount("reserved", text)
    if not (total and free and allocated):
        return InUse()
    own = allocated.bytes
    if reserved:
        own += reserved.bytes
    processes = {match[1] for match in _TABLE["pytorch"]["hidden"].finditer(text)}
    return InUse(own, _beside(total.bytes - free.bytes - own), len(processes))


def _in_old_list(text: str) -> InUse:
    """Return the same of a message without processes: the others use what is neither PyTorch's nor
    free.
    """
    found = _TABLE["pytorch"]["old_list"].search(text)
    if found is None:
        return InUse()
    total = int(Fraction(found["total"]) * GIB)
    own = int(Fraction(found["reserved"] or found["allocated"]) * GIB)
    free = int(Fraction(found["free"]) * _UNITS[found["unit"]])
    return InUse(own, _beside(total - own - free))


def _beside(size: int) -> int:
    """Return what other processes use of a size that is neither free nor PyTorch's; 0 if it may be
    CUDA's contexts.
    """
    if size > _OF_CONTEXTS:
        return size
    return 0


def _amount(name: str, text: str) -> Printed | None:
    """Return the size of that name in PyTorch's message."""
    match = _TABLE["pytorch"][name].search(text)
    if match:
        return Printed(match[1], match[0], _UNITS[match[2]])
    return None
