"""Intel GPUs, with stubs of torch.xpu: what is measured, and what is said where torch lacks
something.
"""

from types import SimpleNamespace

import pytest
from asking import Ask

from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402

from attncalc.errors import CannotCheckError  # noqa: E402
from attncalc.verify.devices import find_device, xpu  # noqa: E402
from attncalc.verify.devices.base import PeakMemory  # noqa: E402
from attncalc.verify.devices.xpu import Xpu, missing_for_xpu  # noqa: E402

MIB = 2**20
STATISTICS = {
    "requested_bytes.all.current": 1000,
    "requested_bytes.all.peak": 1300,
    "allocated_bytes.all.current": 1024,
    "allocated_bytes.all.peak": 1536,
    "reserved_bytes.all.peak": 2 * MIB,
}


@pytest.fixture
def intel(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let torch see one Intel GPU of 80 MiB, of which torch has reserved 20, and a driver that
    calls all of it free.
    """
    stubs = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "get_device_name": lambda device: "Intel Arc B580",
        "get_device_properties": lambda device: SimpleNamespace(total_memory=80 * MIB),
        "memory_stats": lambda device=None: STATISTICS,
        "reset_peak_memory_stats": lambda device: None,
        "memory_reserved": lambda device: 20 * MIB,
        "mem_get_info": lambda device: (80 * MIB, 80 * MIB),
        "synchronize": lambda device: None,
    }
    for name, stub in stubs.items():
        monkeypatch.setattr(torch.xpu, name, stub)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    zeros = torch.zeros
    monkeypatch.setattr(
        torch,
        "zeros",
        lambda *sizes, **options: zeros(*sizes, **{k: v for k, v in options.items() if v != "xpu"}),
    )
    return monkeypatch


def test_auto_takes_an_intel_gpu_and_reports_its_allocators_increase(
    intel: pytest.MonkeyPatch,
) -> None:
    """1,000 bytes exist before the run, which requests 300 more in blocks of 512."""
    device = find_device("auto")
    assert isinstance(device, Xpu)
    assert device.peak(lambda: torch.empty(75)) == PeakMemory(
        300, allocated=512, reserved=2 * MIB, inside=()
    )
    assert device.free() == 60 * MIB
    assert device.facts()["memory"] == 80 * MIB


def test_a_driver_that_does_not_report_free_memory_is_no_error(intel: pytest.MonkeyPatch) -> None:
    def refuse(device: object) -> None:
        raise NotImplementedError("The device doesn't support querying the available free memory.")

    intel.setattr(torch.xpu, "mem_get_info", refuse)
    assert find_device("xpu:0").free() == 60 * MIB


def test_what_torch_lacks_is_named_and_auto_notes_it(intel: pytest.MonkeyPatch, ask: Ask) -> None:
    intel.setattr(xpu, "SDPBackend", SimpleNamespace())
    assert "cannot choose the attention kernel" in missing_for_xpu()
    intel.delattr(torch.xpu, "mem_get_info")
    with pytest.raises(CannotCheckError, match=r"has no torch\.xpu\.mem_get_info"):
        find_device("xpu")
    answer = ask("verify", "gpt2", "-c", "8", "--kernel", "math")
    assert answer.code == 0
    assert "The Intel GPU of this machine is not used: torch" in answer.out


def test_an_allocator_without_requested_bytes_and_a_second_gpu_are_named(
    intel: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(CannotCheckError, match="xpu:1 is not available: torch sees 1 of them"):
        find_device("xpu:1")
    intel.setattr(torch.xpu, "memory_stats", dict)
    assert missing_for_xpu() == "its allocator does not count requested bytes"
