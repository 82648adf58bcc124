"""The free memory of a GPU as NVIDIA's driver reports it.

torch.cuda.mem_get_info opens a context on the GPU that it is asked about, of some hundred MiB, which stays open.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

LIBRARY = "libnvidia-ml.so.1"


def free_memory(index: int) -> int | None:
    """Return the free bytes of cuda:`index`; None if the driver cannot be asked, as with ROCm or on Windows."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    if uuid is None or nvml.nvmlInit_v2():
        return None
    try:
        return _free(nvml, f"GPU-{uuid}")
    finally:
        nvml.nvmlShutdown()


def _free(nvml: Any, uuid: str) -> int | None:
    device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # nvmlMemory_t: total, free, used
    if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
        return None
    if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
        return None
    return int(memory[1])
