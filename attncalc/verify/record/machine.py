"""The facts of the machine that a reader of a record needs: its driver, its system, its
processor.
"""

import math
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

from ...units import truncate
from ..devices import Device

# The root of the file system; tests replace it.
ROOT = Path("/")


def machine_facts(device: Device) -> dict[str, Any]:
    """Return the device and the system it runs in as plain data; what is not known is None."""
    return {
        **device.facts(),
        "title": device_title(device),
        "driver": _driver(device.facts()),
        "clocks": _clocks(device),
        "system": truncate(f"{platform.system()}, {platform.machine()}"),
        "python": platform.python_version(),
        "processor": _processor(),
        "processors": os.cpu_count(),
    }


def device_title(device: Device) -> str:
    """Return the name of the kind of device: 'NVIDIA H100 80GB HBM3' for 'cuda:0 (NVIDIA H100 80GB
    HBM3)'.
    """
    match = re.fullmatch(r"(?:cuda|xpu):\d+ \((.+)\)", device.name)
    return truncate(match[1] if match else device.name, 80)


def file_stem(title: str) -> str:
    """Return the name of a device's files without a suffix: 'nvidia-h100-80gb-hbm3'."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "device"


def main_dtype(device: Device) -> str:
    """Return the dtype that most models run in on this device: bf16, or what the device runs in its
    place.
    """
    return device.dtype_for("bf16")


def _driver(facts: dict[str, object]) -> str | None:
    """Return the version of the GPU's driver, as nvidia-smi shows it; None without a GPU."""
    if facts["type"] != "cuda":
        return None
    if facts.get("rocm"):
        return _read("sys/module/amdgpu/version") or None
    match = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", _read("proc/driver/nvidia/version"))
    if match:
        return match[1]
    return None


def _clocks(device: Device) -> dict[str, float | None] | None:
    """Return the clocks and the power limit of an NVIDIA GPU; None if neither nvidia-smi nor torch
    can tell them.
    """
    if device.type != "cuda":
        return None
    fields = {
        "sm_mhz": "clocks.sm",
        "sm_max_mhz": "clocks.max.sm",
        "memory_max_mhz": "clocks.max.mem",
        "power_limit_w": "power.limit",
    }
    known: dict[str, float | None] = dict.fromkeys(fields)
    uuid = getattr(torch.cuda.get_device_properties(device.torch), "uuid", None)
    query = [
        "nvidia-smi",
        f"--id=GPU-{uuid}",
        f"--query-gpu={','.join(fields.values())}",
        "--format=csv,noheader,nounits",
    ]
    try:
        if uuid:
            answer = subprocess.run(
                query, capture_output=True, text=True, timeout=10, check=True
            ).stdout
        else:
            answer = ""
        known |= dict(zip(fields, map(_number, answer.split(",")), strict=False))
    except (OSError, ValueError, subprocess.SubprocessError):
        pass
    if known["sm_mhz"] is None:
        try:
            known["sm_mhz"] = float(torch.cuda.clock_rate(device.torch))  # needs the package pynvml
        except Exception:  # it is missing, or of another version
            if not any(known.values()):
                return None
            return known
    return known


def _number(text: str) -> float | None:
    """Return the number that nvidia-smi printed; None for '[N/A]'."""
    try:
        value = float(text)
    except ValueError:
        return None
    if math.isfinite(value):
        return value
    return None


def _processor() -> str | None:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("proc/cpuinfo"), re.MULTILINE)
    name = match[1] if match else platform.processor()
    return truncate(name, 80) or None


def _read(path: str) -> str:
    try:
        return (ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
