"""Utilization: shares of the datasheet's rates, clocks, and which GPU a driver's name means."""

import json
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from asking import REPOSITORY

from attncalc.config.gpus import gpu_of_device
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402

from attncalc.check import Timing  # noqa: E402
from attncalc.questions.verify.record_command import with_datasheet  # noqa: E402
from attncalc.questions.verify.tables import time_facts  # noqa: E402
from attncalc.verify.record import machine  # noqa: E402

sys.path.append(str(REPOSITORY / "tools"))
record_page = import_module("record_page").record_page

GIB = 2**30
H100 = {"name": "cuda:0 (NVIDIA H100 80GB HBM3)", "memory": 80 * GIB}


def test_a_drivers_name_finds_the_datasheet() -> None:
    """The names are those that torch.cuda.get_device_name returns."""
    known = {
        ("NVIDIA H100 80GB HBM3", 80): "h100-80gb",
        ("NVIDIA H100 PCIe", 80): "h100-pcie",
        ("NVIDIA A100-SXM4-40GB", 40): "a100-40gb",
        ("NVIDIA A100 80GB PCIe", 80): "a100-80gb-pcie",
        ("Tesla T4", 15): "t4",
        ("Tesla V100-SXM2-16GB", 16): "v100-16gb",
        ("NVIDIA GeForce RTX 4090", 24): "rtx-4090",
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16): "rtx-4090-laptop",
        ("NVIDIA GeForce RTX 3080", 12): "rtx-3080-12gb",
        ("AMD Instinct MI300X", 192): "mi300x",
        ("Intel(R) Arc(TM) B580 Graphics", 12): "arc-b580",
        ("NVIDIA GeForce RTX 3080", 40): None,  # a card with more memory than was ever sold
        ("GPU", 80): None,
    }
    found = {key: gpu_of_device(key[0], key[1] * GIB) for key in known}
    assert {key: gpu and gpu.name for key, gpu in found.items()} == known


def test_shares_are_those_of_the_datasheet_in_the_dtype_of_the_run() -> None:
    """An H100 has 989.4 TFLOP/s in bf16, 67 in fp32 and 3.35 TB/s; the pass has a tenth of one
    second's work.
    """
    device = with_datasheet(H100)
    timing = Timing(
        "decoder", "prefill", "flash", 1000.0, 98_940 * 10**9, 335 * 10**9, 0.0, 1000.0, 1000.0
    )
    facts = time_facts(timing, device, "bf16")
    assert (facts["flop_share_datasheet"], facts["bytes_share_datasheet"]) == pytest.approx(
        (0.1, 0.1)
    )
    assert time_facts(timing, device, "fp32")["flop_share_datasheet"] == pytest.approx(98.94 / 67)
    for unknown in (
        with_datasheet({**H100, "memory": GIB}),
        with_datasheet({"name": "cpu (2 threads)"}),
    ):
        assert time_facts(timing, unknown, "bf16")["flop_share_datasheet"] is None


def test_the_page_of_a_gpu_has_its_clocks_and_shares_of_its_datasheet() -> None:
    record = json.loads(
        (REPOSITORY / "docs/measured/cpu-2-threads.json").read_text(encoding="utf-8")
    )
    explained = "## What the columns mean"
    assert "datasheet" not in record_page(record).partition(explained)[0]
    clocks = {
        "sm_mhz": 1980.0,
        "sm_max_mhz": 1980.0,
        "memory_max_mhz": None,
        "power_limit_w": 700.0,
    }
    record["device"] |= {
        "clocks": clocks,
        **{key: with_datasheet(H100)[key] for key in ("datasheet",)},
    }
    page = record_page(record)
    assert "| power limit | 700 W |" in page
    assert "highest memory clock" not in page
    header = next(line for line in page.splitlines() if "of the datasheet's FLOP/s" in line)
    rows = page.partition(header)[2].split("\n\n")[0].splitlines()[2:]
    assert {row.count("|") for row in rows} == {header.count("|")}


def test_clocks_are_null_where_nothing_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu: Any = SimpleNamespace(type="cuda", torch=torch.device("cuda", 0))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="abc")
    )

    def answer(text: str) -> None:
        done = subprocess.CompletedProcess([], 0, stdout=text)
        monkeypatch.setattr(
            subprocess, "run", lambda command, **_: done if "--id=GPU-abc" in command else None
        )

    answer("1980, 1980, [N/A], 700.00\n")
    assert machine._clocks(gpu) == {
        "sm_mhz": 1980, "sm_max_mhz": 1980, "memory_max_mhz": None, "power_limit_w": 700
    }  # fmt: skip

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("nvidia-smi")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda device: 1410)
    assert (machine._clocks(gpu) or {})["sm_mhz"] == 1410
    monkeypatch.setattr(torch.cuda, "clock_rate", refuse)
    assert machine._clocks(gpu) is None
    assert machine._clocks(SimpleNamespace(type="cpu")) is None  # type: ignore[arg-type]
