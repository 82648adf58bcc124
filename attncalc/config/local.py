"""What this machine has: its GPUs, as the vendors' programs name them, and its memory."""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache

from ..records import NamedTuple

# Time that a program has to answer.
_SECONDS = 10
# Bytes of a GPU that is worth asking about: those inside AMD's CPUs report less.
_SMALLEST = 2**31


class NamedGpu(NamedTuple):
    """A GPU as a program names it."""

    title: str
    memory: int  # bytes; 0 if the program does not know, as nvidia-smi of a GB10
    vendor: str


def machine_memory() -> int | None:
    """Return the bytes of this machine's memory; None if it does not say how many it has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return None


@cache
def named_gpus() -> tuple[NamedGpu, ...]:
    """Return this machine's GPUs, as the first program names them that names any; () if none
    does.
    """
    return next(filter(None, (tuple(ask()) for ask in (_nvidia, _amd, _apple))), ())


def _nvidia() -> Iterator[NamedGpu]:
    """Yield NVIDIA's GPUs: 'NVIDIA GeForce RTX 4090, 24564', in MiB. CUDA_VISIBLE_DEVICES may name
    some by number.
    """
    answer = _answer("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    for i, line in enumerate(answer.splitlines()):
        if all(map(str.isdecimal, visible)) and str(i) not in visible:
            continue
        title, comma, memory = map(str.strip, line.rpartition(","))
        if comma and title:
            yield NamedGpu(title, int(memory) << 20 if memory.isdecimal() else 0, "NVIDIA")


def _amd() -> Iterator[NamedGpu]:
    """Yield AMD's GPUs: {"card0": {"Card Series": "Radeon RX 7900 XTX", "VRAM Total Memory (B)":
    "25753026560"}}.
    """
    answer = _answer("rocm-smi", "--showproductname", "--showmeminfo", "vram", "--json")
    try:
        cards = json.loads(answer[answer.index("{") :])  # warnings may be before it
    except (ValueError, RecursionError):
        return
    for card in cards.values():
        if isinstance(card, dict):
            title = str(card.get("Card Series") or card.get("Card series") or "AMD GPU").strip()
            memory = str(card.get("VRAM Total Memory (B)", ""))
            if memory.isdecimal() and int(memory) >= _SMALLEST:
                yield NamedGpu(title, int(memory), "AMD")


def _apple() -> Iterator[NamedGpu]:
    """Yield a Mac's GPU, which is its chip: 'Apple M3 Max' and the bytes of its memory."""
    title, _, memory = _answer("sysctl", "-n", "machdep.cpu.brand_string", "hw.memsize").partition(
        "\n"
    )
    if title.startswith("Apple ") and memory.strip().isdecimal():
        yield NamedGpu(title.strip(), int(memory), "Apple")


def _answer(*command: str) -> str:
    """Return what a program prints; '' if there is none, it fails, or it takes too long."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
