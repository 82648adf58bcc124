"""A peak that disagrees names the largest block that its prediction does not have, from a snapshot
of the allocator.
"""

from collections.abc import Callable
from typing import Any

import pytest
from asking import Ask

from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from cuda_stand_in import A100, Box, Gpus  # noqa: E402

from attncalc.verify.devices.cuda import Cuda  # noqa: E402
from attncalc.verify.layers.grouped import GroupedLayer  # noqa: E402

OnBox = Callable[[Box], Gpus]
FRAMES = [
    {"filename": "/site-packages/torch/nn/functional.py", "line": 5, "name": "linear"},
    {
        "filename": "/home/a/site-packages/attncalc/verify/layers/grouped.py",
        "line": 88,
        "name": "attend",
    },
    {
        "filename": "/home/a/site-packages/attncalc/questions/verify/command.py",
        "line": 9,
        "name": "verify",
    },
]
# Bytes of q, k, v, out or y of gpt2 in fp16 at 64 tokens.
TOKENS = 64 * 768 * 2


def event(action: str, address: int, size: int, frames: Any = ()) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames}


def failures(ask: Ask) -> list[str]:
    """Return what each peak that disagrees means."""
    options = ("--kernel", "flash", "-c", "64", "--dtype", "fp16", "--device", "cuda", "--json")
    checks = ask("verify", "gpt2", *options).document["checks"]
    return [c["failure"] for c in checks if not c["ok"] and c["name"] == "peak_prefill_flash"]


def test_a_peak_that_disagrees_names_the_largest_unpredicted_block(
    on_box: OnBox, monkeypatch: pytest.MonkeyPatch, ask: Ask
) -> None:
    on_box(Box((A100,)))
    monkeypatch.setattr(Cuda, "matrix_size", 64)  # a CPU multiplies
    monkeypatch.setattr(Cuda, "copied_bytes", 2**20)
    true = GroupedLayer.attend_and_project

    def wrong(self: Any, x: torch.Tensor, *given: Any) -> torch.Tensor:
        copies = x.clone(), x.clone()
        out = true(self, x, *given)
        del copies
        return out

    monkeypatch.setattr(GroupedLayer, "attend_and_project", wrong)
    # before the peak a block that is freed; at the peak q, k, v, out and y, a small one, and one
    # that nobody expects
    trace = [
        event("alloc", 1, 9 * TOKENS, FRAMES),
        event("free_requested", 1, 9 * TOKENS),
        *(event("alloc", address, TOKENS) for address in range(10, 15)),
        event("segment_alloc", 90, 100 * TOKENS),
        event("alloc", 20, 5, FRAMES),
        event("alloc", 21, 8 * TOKENS, FRAMES),
        event("free_completed", 10, TOKENS),
    ]
    recorded: list[object] = []
    monkeypatch.setattr(
        torch.cuda.memory, "_record_memory_history", lambda enabled, **_: recorded.append(enabled)
    )
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda device: {"device_traces": [trace]})
    # 8 * 64 * 768 * 2 B = 768 KiB
    assert failures(ask) == [
        "a tensor is held that the formula does not count, or one that it counts is not held; "
        "the largest block that is not predicted has 768 KiB, made in attend "
        "(verify/layers/grouped.py:88)"
    ]
    assert recorded[:2] == ["all", None]

    # the format of another version
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda device: {})
    assert failures(ask) == [
        "a tensor is held that the formula does not count, or one that it counts is not held"
    ]
