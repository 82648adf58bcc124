"""An Intel GPU, through torch.xpu, whose memory statistics have the names of torch.cuda's."""

import torch
from torch.nn.attention import SDPBackend

from ...units import truncate
from .allocator import REQUESTED, AllocatorDevice

NOT_MEASURED = (
    "No Intel GPU has been measured yet: the formulas of the math kernel are those of torch's "
    "code for every device. Please report what you see."
)
# What is needed of torch.xpu. Torch 2.5 has no mem_get_info.
FUNCTIONS = ("memory_stats", "reset_peak_memory_stats", "mem_get_info", "memory_reserved")


class Xpu(AllocatorDevice):
    """An Intel GPU. Only torch's math kernel has formulas here; its fused kernels are oneDNN's."""

    api = torch.xpu
    kernels = ("math",)

    def __init__(self, index: int) -> None:
        device = torch.device("xpu", index)
        super().__init__(device, f"{device} ({torch.xpu.get_device_name(device)})")
        self.notes += (NOT_MEASURED,)

    def free(self) -> int:
        """Return its free memory in bytes.

        Some drivers do not report it, or report that all memory is free (pytorch#161381), so it is
        at most what torch has not reserved.
        """
        unreserved = self._memory - int(torch.xpu.memory_reserved(self.torch))
        try:
            return min(super().free(), unreserved)
        except RuntimeError:
            return unreserved

    def _used(self) -> int | None:
        return None  # the driver's figure is not reliable

    @property
    def _memory(self) -> int:
        return int(torch.xpu.get_device_properties(self.torch).total_memory)

    def empty_cache(self) -> None:
        super().empty_cache()
        torch.xpu.empty_cache()

    def facts(self) -> dict[str, object]:
        return {**super().facts(), "memory": self._memory}


def has_xpu() -> bool:
    """Whether torch sees an Intel GPU."""
    return hasattr(torch, "xpu") and bool(torch.xpu.is_available())


def missing_for_xpu() -> str:
    """Return what this torch lacks to verify layers on an Intel GPU; '' if it lacks nothing."""
    if not has_xpu():
        return f"torch {torch.__version__} sees no Intel GPU"
    absent = [name for name in FUNCTIONS if not hasattr(torch.xpu, name)]
    if absent:
        return f"torch {torch.__version__} has no torch.xpu.{absent[0]}"
    if not hasattr(SDPBackend, "OVERRIDEABLE"):  # pytorch#156669 added both
        return f"torch {torch.__version__} cannot choose the attention kernel on an Intel GPU"
    try:
        held = torch.zeros(1, device="xpu")
        statistics = torch.xpu.memory_stats()
        del held
    except RuntimeError as error:
        return f"the Intel GPU cannot be used ({truncate(str(error).splitlines()[0], 100)})"
    if statistics.get(f"{REQUESTED}.peak"):
        return ""
    return "its allocator does not count requested bytes"
