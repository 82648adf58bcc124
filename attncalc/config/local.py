"""What this machine has: its GPUs, as the vendors' programs name them, and its memory."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from ..errors import AttncalcError
from ..hardware import UNIFIED_MEMORY_SHARE, Gpu
from .gpus import gpu, gpu_of_device

_SECONDS = 10
"""Time that a program has to answer."""
_SMALLEST = 2**31
"""Bytes of a GPU that is worth asking about: those inside AMD's CPUs report less."""
_TIP = "give its name or its memory, as --gpu rtx-4090 or --gpu 12GB; --gpu cpu computes without a GPU"


class _Found(NamedTuple):
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
def local_gpus() -> tuple[int, Gpu]:
    """Return the number of this machine's GPUs and their kind.

    A GPU that is not known by its name has the memory that the program reports, and no roofline.

    Raises AttncalcError if no program names a GPU, or there are several kinds.
    """
    found = next(filter(None, (list(ask()) for ask in (_nvidia, _amd, _apple))), [])
    if not found:
        raise AttncalcError("--gpu local: nvidia-smi, rocm-smi and sysctl name no GPU of this machine", _TIP)
    titles = dict.fromkeys(one.title for one in found)
    if len(titles) > 1:
        raise AttncalcError(
            f"--gpu local: this machine has different GPUs: {', '.join(titles)}", "give one kind with --gpu, as 2x4090"
        )
    return len(found), dataclasses.replace(_known(found[0]) or _unknown(found[0]), is_local=True)


def _known(found: _Found) -> Gpu | None:
    """Return the GPU of that name, if it is a known one."""
    if (found.vendor == "NVIDIA" and found.memory) or found.vendor == "AMD":
        return gpu_of_device(found.title, found.memory)
    try:
        memory = f" {found.memory >> 30}GB" if found.memory else ""
        return gpu(f"{found.title}{memory}")
    except AttncalcError:
        return None


def _unknown(found: _Found) -> Gpu:
    """Return a GPU with the memory that the vendor prints on it. Raises AttncalcError if it is not known either."""
    if not found.memory:
        raise AttncalcError(f"--gpu local: {found.title} is not known, nor is its memory", _TIP)
    gb, unified = round(found.memory / 2**30), found.vendor == "Apple"
    numerator, denominator = UNIFIED_MEMORY_SHARE
    return Gpu(
        name="local",
        title=found.title,
        vendor=found.vendor,
        memory_gb=gb,
        memory=found.memory * numerator // denominator if unified else min(found.memory, gb * 10**9),
        bandwidth=0,
        flops=(),
        measured=False,
        unified=unified,
        sources=("as this machine names it",),
    )


def _nvidia() -> Iterator[_Found]:
    """Yield NVIDIA's GPUs: 'NVIDIA GeForce RTX 4090, 24564', in MiB."""
    answer = _answer("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    for line in answer.splitlines():
        title, comma, memory = map(str.strip, line.rpartition(","))
        if comma and title:
            yield _Found(title, int(memory) << 20 if memory.isdecimal() else 0, "NVIDIA")


def _amd() -> Iterator[_Found]:
    """Yield AMD's GPUs: {"card0": {"Card Series": "Radeon RX 7900 XTX", "VRAM Total Memory (B)": "25753026560"}}."""
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
                yield _Found(title, int(memory), "AMD")


def _apple() -> Iterator[_Found]:
    """Yield a Mac's GPU, which is its chip: 'Apple M3 Max' and the bytes of its memory."""
    title, _, memory = _answer("sysctl", "-n", "machdep.cpu.brand_string", "hw.memsize").partition("\n")
    if title.startswith("Apple ") and memory.strip().isdecimal():
        yield _Found(title.strip(), int(memory), "Apple")


def _answer(*command: str) -> str:
    """Return what a program prints; '' if there is none, it fails, or it takes too long."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return ""
