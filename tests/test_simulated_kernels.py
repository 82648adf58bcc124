"""torch's kernels on a fake CUDA device: which calls they support, what they return and which
tensors they make.
"""

import math
import weakref
from itertools import product
from typing import Any

import pytest
from tables import each

from attncalc.cost.kernels import Machine, Shape, moments, peak
from attncalc.verify import need_torch
from attncalc.verify.simulate.support import AttentionCall, supports

need_torch()
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from attncalc.verify.kernels import reference  # noqa: E402
from attncalc.verify.masks import KernelMask  # noqa: E402
from attncalc.verify.simulate.sdpa import ABSENT_OUTPUTS, fused_sdpa  # noqa: E402

T4, A100, A10, L4, H100, B200, RTX5090 = (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def refused(
    kernel: str, capability: tuple[int, int] = H100, dtype: str = "bf16", **changed: Any
) -> bool:
    call: dict[str, Any] = {
        "n_heads": 8,
        "n_kv_heads": 2,
        "d_qk": 128,
        "d_v": 128,
        "mask": "causal",
    } | changed
    return supports(kernel, AttentionCall(dtype=dtype, capability=capability, **call)) is not None


@pytest.mark.parametrize(
    ("kernel", "runs", "does_not"),
    [
        ("math", [T4, A100, A10, L4, H100, B200, RTX5090], []),
        ("flash", [A100, A10, L4, H100, B200, RTX5090], [T4]),
        ("efficient", [A100, A10, L4, H100, B200, RTX5090], [(3, 5)]),
        ("cudnn", [A100, A10, L4, H100, B200, RTX5090], [T4]),
    ],
)
def test_kernels_need_a_compute_capability(
    kernel: str, runs: list[tuple[int, int]], does_not: list[tuple[int, int]]
) -> None:
    assert [c for c in runs if refused(kernel, c)] == []
    assert [c for c in does_not if not refused(kernel, c)] == []


def test_only_math_and_efficient_run_in_fp32() -> None:
    assert [k for k in ("math", "flash", "efficient", "cudnn") if not refused(k, dtype="fp32")] == [
        "math",
        "efficient",
    ]


def test_efficient_runs_on_turing_in_fp16_and_fp32_only() -> None:
    assert [d for d in DTYPES if not refused("efficient", T4, d)] == ["fp32", "fp16"]


def test_only_flash_has_no_mask_matrix() -> None:
    assert [k for k in ("math", "flash", "efficient", "cudnn") if refused(k, mask="matrix")] == [
        "flash"
    ]


@pytest.mark.parametrize(
    ("widths", "kernels"),
    [
        ((128, 128), "math flash efficient cudnn"),
        ((192, 128), "math efficient cudnn"),  # MLA's prefill
        ((576, 512), "math efficient"),  # MLA's decode step, whose keys hold the values
        ((256, 256), "math flash efficient cudnn"),
        ((264, 264), "math efficient"),
        ((84, 84), "math flash"),  # flash pads to 88; 84 is no multiple of 8
        ((512, 512), "math efficient"),
    ],
)
def test_kernels_on_an_h100_have_head_widths(widths: tuple[int, int], kernels: str) -> None:
    names = ("math", "flash", "efficient", "cudnn")
    assert [k for k in names if not refused(k, d_qk=widths[0], d_v=widths[1])] == kernels.split()


def test_cudnn_runs_wider_heads_on_fewer_gpus() -> None:
    gpus = {"A100": A100, "L4": L4, "H100": H100, "B200": B200, "RTX 5090": RTX5090}
    assert [g for g, c in gpus.items() if not refused("cudnn", c, d_qk=192, d_v=128)] == [
        "H100",
        "B200",
    ]
    assert [g for g, c in gpus.items() if not refused("cudnn", c, d_qk=256, d_v=256)] == ["H100"]


def test_efficient_needs_narrower_alignment_in_fp32() -> None:
    assert not refused("efficient", dtype="fp32", d_qk=84, d_v=84)
    assert refused("efficient", dtype="fp32", d_qk=86, d_v=86)
    assert not refused("efficient", T4, dtype="fp32", d_qk=85, d_v=85)


def test_cudnn_does_not_run_with_one_key() -> None:
    assert refused("cudnn", keys=1)


def test_query_heads_are_a_multiple_of_kv_heads() -> None:
    assert all(refused(k, n_heads=6, n_kv_heads=4) for k in ("math", "flash", "efficient", "cudnn"))


class Allocations(TorchDispatchMode):
    """Records the storages that operations make, and the largest sum of those that live at a
    time.
    """

    def __init__(self, *inputs: Tensor | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.inputs = {t.untyped_storage()._cdata for t in inputs if t is not None}
        self.live: dict[int, int] = {}
        self.made: list[tuple[str, int]] = []
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        outputs = result if isinstance(result, (tuple, list)) else [result]
        for i, output in enumerate(outputs):
            if isinstance(output, Tensor) and i not in ABSENT_OUTPUTS.get(func, ()):
                self._add(func.overloadpacket.__name__, output)
        return result

    def _add(self, name: str, output: Tensor) -> None:
        storage = output.untyped_storage()
        key = storage._cdata
        if key not in self.live and key not in self.inputs:
            self.live[key] = storage.nbytes()
            self.made.append((name, storage.nbytes()))
            weakref.finalize(storage, self.live.pop, key)
            self.peak = max(self.peak, sum(self.live.values()))


def allocated(
    kernel: str,
    *,
    heads: tuple[int, int] = (8, 8),
    widths: tuple[int, int] = (64, 64),
    dtype: str = "fp16",
    mask: str = "causal",
    shape: tuple[int, int, int] = (2, 32, 32),
) -> Allocations:
    """Run a kernel on a fake GPU; (B, tokens, heads, width) is the layout that projections give."""
    (n_heads, n_kv_heads), (B, S, T) = heads, shape
    with FakeTensorMode(), torch.no_grad():

        def made(tokens: int, n: int, width: int) -> Tensor:
            return torch.empty(B, tokens, n, width, dtype=DTYPES[dtype], device="cuda").transpose(
                1, 2
            )

        q, k, v = (
            made(S, n_heads, widths[0]),
            made(T, n_kv_heads, widths[0]),
            made(T, n_kv_heads, widths[1]),
        )
        matrix = torch.ones(S, T, dtype=torch.bool, device="cuda") if mask == "matrix" else None
        allocations = Allocations(q, k, v, matrix)
        with allocations:
            out = fused_sdpa(kernel, q, k, v, matrix, mask == "causal", None, n_heads != n_kv_heads)
        assert out.shape == (B, n_heads, S, widths[1])
        assert (out.dtype, out.device.type) == (DTYPES[dtype], "cuda")
        del out
    assert allocations.live == {}, "a tensor outlives the call"
    return allocations


# Bytes of the random numbers' seed and offset, which predictions leave out.
SEEDS = {"math": 0, "flash": 16 + 8, "efficient": 8 + 8, "cudnn": 8 + 8}


@each("kernel", ["math", "flash", "efficient", "cudnn"])
@each("dtype", ["fp32", "bf16"])
@each("widths", [(64, 64), (84, 84), (192, 128), (576, 512)])
def test_a_kernels_tensors_have_the_predicted_size(
    kernel: str, dtype: str, widths: tuple[int, int]
) -> None:
    """`attncalc memory` and torch agree to the byte on what torch's dispatcher sees of a kernel."""
    masks, heads = ("none", "causal", "matrix"), ((8, 8), (8, 2), (1, 1))
    shapes = ((1, 40, 40), (3, 37, 37), (1, 37, 40), (3, 1, 40), (1, 1, 37))
    for mask, (n, n_kv), (B, S, T) in product(masks, heads, shapes):
        call = {"n_heads": n, "n_kv_heads": n_kv, "d_qk": widths[0], "d_v": widths[1], "mask": mask}
        if refused(kernel, H100, dtype, **call) or (mask == "causal" and S != T):
            continue
        n_run = n if kernel == "efficient" else n_kv  # verify repeats shared heads for it
        run = allocated(
            kernel, heads=(n, n_run), widths=widths, dtype=dtype, mask=mask, shape=(B, S, T)
        )
        size = DTYPES[dtype].itemsize
        shape = Shape(B, S, T, T, 0, n, n_kv, *widths, 0, False, 0, size, mask, 1)
        moment = peak(m.without_buffers for m in moments(shape, Machine())[kernel])
        assert moment.name not in ("the output projection", "the projections")
        inputs = {"q", "k", "v", "mask", *(["kv_repeated"] if kernel == "efficient" else [])}
        made = sum(int(t.size) for t in moment.tensors if t.name not in inputs)
        seeds = 0 if moment.name == "padding the bias" else SEEDS[kernel]
        assert run.peak == made + seeds, (call, B, S, T, moment)


def test_flash_makes_its_output_the_logsumexp_and_the_seeds() -> None:
    # 2 sequences of 33 tokens, 8 heads of 64: fp16 output, fp32 logsumexp, a seed of 2 and an
    # offset of 8 bytes each
    made = allocated("flash", heads=(8, 2), shape=(2, 33, 33)).made
    assert [size for _, size in made if size] == [2 * 33 * 8 * 64 * 2, 2 * 8 * 33 * 4, 16, 8]


def test_flash_pads_narrow_heads_to_a_multiple_of_8() -> None:
    made = allocated("flash", widths=(84, 84)).made
    tokens = 2 * 32 * 8
    assert [size for name, size in made if name == "constant_pad_nd"] == [tokens * 88 * 2] * 3
    # the output is a view of its first 84
    assert ("_scaled_dot_product_flash_attention", tokens * 88 * 2) in made


def test_efficient_keeps_no_logsumexp_without_gradients() -> None:
    made = allocated("efficient").made
    assert sorted(size for _, size in made) == [0, 8, 8, 2 * 32 * 8 * 64 * 2]


@pytest.mark.parametrize(("keys", "columns"), [(32, None), (33, 40), (39, 40)])
def test_efficient_pads_the_rows_of_its_bias(keys: int, columns: int | None) -> None:
    made = dict(allocated("efficient", mask="matrix", shape=(2, 32, keys)).made)
    assert made["where"] == 32 * keys * 2
    assert made.get("constant_pad_nd") == (32 * columns * 2 if columns else None)


def test_cudnn_keeps_no_logsumexp_without_gradients() -> None:
    sizes = [size for _, size in allocated("cudnn", heads=(8, 2)).made]
    assert sorted(sizes) == [8, 8, 2 * 32 * 8 * 64 * 2]


def test_math_holds_scores_and_softmax_in_fp32() -> None:
    # (4 + 4 + 1) bytes of each pair; q scaled, and q, k and v in fp32; the mask of one head; 1 byte
    # per row, a scalar
    pairs, rows = 2 * 8 * 320 * 320, 2 * 320 * 8 * 64
    expected = 9 * pairs + 4 * 4 * rows + 4 * 320 * 320 + 2 * 8 * 320 + 4
    assert allocated("math", shape=(2, 320, 320)).peak == expected


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("mask", ["none", "causal", "matrix"])
def test_the_transcribed_math_kernel_computes_what_torch_does(dtype: str, mask: str) -> None:
    """The transcription runs on real tensors too, where torch's own kernel is its oracle."""
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, n, 7, 16, generator=random).to(DTYPES[dtype]) for n in (4, 2, 2))
    matrix = torch.rand(7, 7, generator=random) > 0.3 if mask == "matrix" else None
    out = fused_sdpa("math", q, k, v, matrix, mask == "causal", 0.2, True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=matrix, is_causal=mask == "causal", scale=0.2, enable_gqa=True
        )
    assert torch.equal(out, expected)
    if mask != "matrix":  # a row of the random matrix may hide every key
        by_definition = reference(
            q.float(), k.float(), v.float(), KernelMask(mask == "causal"), 0.2
        )
        assert math.isclose(float((out.float() - by_definition).abs().max()), 0, abs_tol=2e-2)
