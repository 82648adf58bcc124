"""The line of `attncalc verify --smoke` that people paste into an issue: the device, and what agrees on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import __version__
from .verify import VerifiedModel
from .verify_verdict import full_name


def smoke_line(verified: VerifiedModel, machine: Mapping[str, Any]) -> str:
    """Return one line: versions, the GPU and its driver, the checks that agree, the kernels that ran."""
    checks = verified.result.checks
    failed = [full_name(check) for check in checks if not check.ok]
    names = {name for check in checks for name in check.name.split("_")}
    ran = [kernel for kernel in verified.kernels if set(kernel.split("_")) <= names]
    left_out = [kernel for kernel in verified.kernels if kernel not in ran]
    versions = {
        "compute capability": machine.get("compute_capability"),
        "driver": machine.get("driver"),
        "CUDA": machine.get("cuda"),
        "ROCm": machine.get("rocm"),
        "torch": machine["torch"],
        "attncalc": __version__,
    }
    facts = [machine["title"], *(f"{name} {version}" for name, version in versions.items() if version)]
    agree = f"{len(checks) - len(failed)} of {len(checks)} checks agree"
    if failed:
        agree += f", not {'; '.join(failed)}"
    without = f", not {', '.join(left_out)}" if left_out else ""
    return f"{', '.join(facts)}: {agree}, in {verified.workload.dtype}; {', '.join(ran)} ran{without}."
