"""The stand-in for CUDA behaves as torch.cuda does where `verify` relies on it."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from cuda_stand_in import H100, T4, Box, Gpus, environment  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel  # noqa: E402

OnBox = Callable[[Box], Gpus]
MIB = 2**20


def test_a_tensor_is_on_the_gpu_that_its_call_names(on_box: OnBox) -> None:
    on_box(Box((T4, H100)))
    x = torch.ones(2, device="cuda:1")
    assert (x + 1).device == torch.tensor([1], device=x.device).device == torch.device("cuda", 1)
    assert x.is_cuda
    assert torch.ones(2, device="cuda").device.index == 0
    assert x.cpu().device.type == x.to("cpu").device.type == "cpu"
    assert x.cpu().to("cuda").device.index == 0


def test_tensors_of_two_places_cannot_be_combined(on_box: OnBox) -> None:
    on_box(Box((T4, H100)))
    x = torch.ones(2, device="cuda:1")
    for other in (torch.ones(2), torch.ones(2, device="cuda:0")):
        with pytest.raises(RuntimeError, match="same device"):
            x + other
    assert float((x + torch.ones(())).sum()) == 4  # a number may be on the host


def test_the_allocator_counts_what_exists_and_keeps_what_was_freed(on_box: OnBox) -> None:
    """Two tensors of 1 MiB and 100 B, which is a block of 512."""
    on_box(Box((T4,)))
    free = torch.cuda.mem_get_info()[0]
    large, small = (
        torch.empty(MIB, dtype=torch.uint8, device="cuda"),
        torch.empty(100, dtype=torch.uint8, device="cuda"),
    )
    stats = torch.cuda.memory_stats()
    assert stats["requested_bytes.all.current"] == large.nbytes + small.nbytes
    assert torch.cuda.memory_allocated() == MIB + 512
    del large
    assert torch.cuda.memory_allocated() == 512
    assert torch.cuda.mem_get_info()[0] == free - MIB - 512
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == free - 512


def test_memory_that_others_use_cannot_be_allocated(on_box: OnBox) -> None:
    on_box(Box((T4.__class__("busy", (7, 5), 4 * MIB, 1, used=3 * MIB),)))
    torch.empty(MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")


def test_an_allocation_of_a_given_number_fails_once(on_box: OnBox) -> None:
    on_box(Box(out_of_memory_at=2))
    torch.ones(1, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(1, device="cuda")
    torch.ones(1, device="cuda")


def test_a_cuda_error_ends_the_operation_and_all_later_ones(on_box: OnBox) -> None:
    gpus = on_box(Box(error="CUDA error: an illegal memory access was encountered", error_at=2))
    x = torch.ones(1, device="cuda")
    assert gpus.operations == 1
    for _ in range(2):
        with pytest.raises(RuntimeError, match="illegal"):
            x + 1


@pytest.mark.parametrize(
    ("gpu", "dtype", "runs"),
    [
        (H100, torch.bfloat16, ["math", "flash", "efficient", "cudnn"]),
        (H100, torch.float32, ["math", "efficient"]),
        (T4, torch.float16, ["math", "efficient"]),
        (T4, torch.bfloat16, ["math"]),
    ],
)
def test_kernels_run_where_the_current_gpu_supports_them(
    on_box: OnBox, gpu: object, dtype: object, runs: list[str]
) -> None:
    from attncalc.verify.kernels import BACKENDS

    on_box(Box((gpu,)))  # type: ignore[arg-type]
    q = torch.ones(1, 2, 4, 8, dtype=dtype, device="cuda")  # type: ignore[call-overload]
    ran = []
    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                assert torch.equal(
                    nn.functional.scaled_dot_product_attention(q, q, q).cpu(), q.cpu()
                )
            ran.append(name)
        except RuntimeError:
            continue
    assert ran == runs


def test_a_kernel_refuses_many_queries_with_an_error_of_its_own(on_box: OnBox) -> None:
    on_box(Box(most_queries={"cudnn": 16}))
    few, many = (torch.ones(1, 2, n, 8, dtype=torch.bfloat16, device="cuda") for n in (16, 17))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        nn.functional.scaled_dot_product_attention(few, few, few)
        with pytest.raises(RuntimeError, match="No valid execution plans"):
            nn.functional.scaled_dot_product_attention(many, many, many)


def test_flash_splits_keys_inside_on_nvidia_gpus_only(on_box: OnBox) -> None:
    """One head of 64 and 4,096 keys: 16 blocks of 256 keys, of which 16 splits write 65 fp32
    numbers each.
    """
    on_box(Box())
    q, k = (torch.ones(1, 1, n, 64, dtype=torch.bfloat16, device="cuda") for n in (1, 4096))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        nn.functional.scaled_dot_product_attention(q, k, k)
    assert torch.cuda.memory_stats()["requested_bytes.all.peak"] - before >= 16 * 65 * 4


def test_old_versions_of_torch_lack_arguments_of_flex_attention(on_box: OnBox) -> None:
    counts = torch.ones(1, 1, 1, dtype=torch.int32)
    new: dict[str, Any] = {"seq_lengths": (16, 16), "compute_q_blocks": False}
    flex_attention.BlockMask.from_kv_blocks(counts, counts[..., None], **new)
    on_box(Box(torch="2.8.0+cu126"))
    assert str(torch.__version__).startswith("2.8")
    with pytest.raises(TypeError):
        flex_attention.BlockMask.from_kv_blocks(counts, counts[..., None], **new)


def test_a_command_runs_in_a_box_of_its_own() -> None:
    """torch.cuda of the process, and its end without an error."""
    code = (
        "import torch; print(torch.cuda.get_device_name(1), torch.ones(2, "
        "device='cuda').sum().item())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        env=environment(Box((T4, H100))),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (result.stdout, result.stderr) == (f"{H100.name} 2.0\n", "")
