"""The facts of the machine that a reader of a record needs: its driver, its system, its processor."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from ...units import truncate
from ..devices import Device

ROOT = Path("/")
"""The root of the file system; tests replace it."""


def machine_facts(device: Device) -> dict[str, Any]:
    """Return the device and the system it runs in as plain data; what is not known is None."""
    return {
        **device.facts(),
        "title": device_title(device),
        "driver": _driver(device.facts()),
        "system": truncate(f"{platform.system()}, {platform.machine()}"),
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": os.cpu_count(),
    }


def device_title(device: Device) -> str:
    """Return the name of the kind of device: 'NVIDIA H100 80GB HBM3' for 'cuda:0 (NVIDIA H100 80GB HBM3)'."""
    match = re.fullmatch(r"cuda:\d+ \((.+)\)", device.name)
    return truncate(match[1] if match else device.name, 80)


def file_stem(title: str) -> str:
    """Return the name of a device's files without a suffix: 'nvidia-h100-80gb-hbm3'."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "device"


def main_dtype(device: Device) -> str:
    """Return the dtype that most models run in on this device: bf16, or what the device runs in its place."""
    return device.dtype_for("bf16")


def _driver(facts: dict[str, object]) -> str | None:
    """Return the version of the GPU's driver, as nvidia-smi shows it; None without a GPU."""
    if facts["type"] != "cuda":
        return None
    if facts.get("rocm"):
        return _read("sys/module/amdgpu/version") or None
    match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _read("proc/driver/nvidia/version"))
    return match[1] if match else None


def _processor() -> str | None:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("proc/cpuinfo"), re.MULTILINE)
    name = match[1] if match else platform.processor()
    return truncate(name, 80) or None


def _read(path: str) -> str:
    try:
        return (ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
