"""`attncalc verify` on a GPU: every preset, every kernel, half precision, long contexts. Skipped
without one.
"""

import pytest
from asking import Ask

from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402

GPUS = torch.cuda.device_count()
pytestmark = pytest.mark.skipif(GPUS == 0, reason="torch sees no CUDA device")


def disagreeing(ask: Ask, arguments: str) -> list[str]:
    answer = ask("verify", *arguments.split(), "--device", "cuda", "--json")
    assert answer.code in (0, 1), answer.err
    checks = answer.document["checks"]
    assert checks
    return [
        f"{c['of']} {c['name']}: {c['predicted']} {c['measured']}" for c in checks if not c["ok"]
    ]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_preset_agrees(ask: Ask, dtype: str) -> None:
    assert disagreeing(ask, f"--dtype {dtype} --context 1024") == []


@pytest.mark.parametrize("kernel", ["math", "flash", "efficient", "cudnn"])
def test_every_kernel_agrees(ask: Ask, kernel: str) -> None:
    assert disagreeing(ask, f"llama3-8b --kernel {kernel} --context 2048 --batch 2") == []


@pytest.mark.parametrize("model", ["llama3-8b", "llama3.1-405b", "deepseek-v3"])
def test_long_contexts_agree(ask: Ask, model: str) -> None:
    assert disagreeing(ask, f"{model} --context 131072") == []


def test_scaling_agrees(ask: Ask) -> None:
    assert disagreeing(ask, "llama3-8b --scaling --context 32768") == []
