"""flex_attention and the flash_attn packages behind one call; the packages are replaced by
stubs.
"""

import sys
from types import ModuleType
from typing import Any

import pytest

from attncalc.cost.kernels import KERNELS
from attncalc.errors import AttncalcError
from attncalc.questions.verify.options import KERNELS as NAMED
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn.attention import flex_attention as torch_flex  # noqa: E402

from attncalc.verify import extra_kernels  # noqa: E402
from attncalc.verify.errors import CannotRunError  # noqa: E402
from attncalc.verify.extra_kernels import EXTRA_KERNELS, cost_kernel, missing  # noqa: E402
from attncalc.verify.kernels import reference, sdpa  # noqa: E402
from attncalc.verify.masks import NO_MASK, KernelMask  # noqa: E402
from attncalc.verify.request import _parse_kernels  # noqa: E402

CAUSAL = KernelMask(causal=True)
STUBS = [
    ("flash_attn2", "flash_attn.flash_attn_interface"),
    ("flash_attn3", "flash_attn_interface"),
]


def inputs(
    queries: int = 9, keys: int = 9, heads: tuple[int, int] = (4, 2)
) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    shapes = ((2, heads[0], queries, 16), (2, heads[1], keys, 16), (2, heads[1], keys, 16))
    q, k, v = (torch.randn(shape, generator=random) for shape in shapes)
    return q, k, v


def window(tokens: int, width: int) -> KernelMask:
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)[None, :]
    return KernelMask(matrix=(j <= i) & (i - j < width))


@pytest.mark.filterwarnings("ignore")  # flex_attention warns that it is not compiled
@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("form", ["none", "causal", "window", "padded", "decode"])
def test_flex_computes_the_definition(form: str, heads: tuple[int, int]) -> None:
    q, k, v = inputs(queries=1 if form == "decode" else 9, heads=heads)
    masks = {"causal": CAUSAL, "window": window(9, 3)}
    if form == "padded":
        real = torch.arange(9)[None, :] < torch.tensor((9, 4))[:, None]
        matrix = real[:, None, None, :] & torch.ones(9, 9, dtype=torch.bool).tril()
        masks["padded"] = KernelMask(matrix=matrix)
    mask = masks.get(form, NO_MASK)
    torch.testing.assert_close(sdpa("flex", q, k, v, mask, 0.3), reference(q, k, v, mask, 0.3))


@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 500])
def test_flexs_causal_blocks_are_those_that_torch_finds(tokens: int) -> None:
    q = torch.zeros(1, 1, tokens, 16)
    ours = extra_kernels._block_mask(CAUSAL, q, q)
    theirs = torch_flex.create_block_mask(
        lambda b, h, i, j: i >= j, None, None, tokens, tokens, device="cpu"
    )
    assert torch.equal(_seen(ours), _seen(theirs))


def _seen(mask: Any) -> Tensor:
    """Return which blocks are visited, (rows, columns), whether whole or in part."""
    rows, columns = mask.kv_indices.shape[-2:]
    seen = torch.zeros(rows, columns, dtype=torch.bool)
    for counts, indices in (
        (mask.kv_num_blocks, mask.kv_indices),
        (mask.full_kv_num_blocks, mask.full_kv_indices),
    ):
        for row in range(rows):
            seen[row, indices[0, 0, row, : counts[0, 0, row]].long()] = True
    return seen


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Install stubs of both packages, which record their calls and compute the definition."""
    made: list[dict[str, Any]] = []

    def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        made.append({"q": q.shape, "k": k.shape, **options})
        return q.new_empty(*q.shape[:-1], v.shape[-1])

    for _, name in STUBS:
        module = ModuleType(name)
        module.flash_attn_func = flash_attn_func  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(extra_kernels, "find_spec", lambda name: object())
    return made


@pytest.mark.parametrize("kernel", [name for name, _ in STUBS])
def test_flash_attn_takes_tokens_before_heads(kernel: str, calls: list[dict[str, Any]]) -> None:
    with FakeTensorMode():
        q, k = torch.empty(2, 4, 9, 16, device="cuda"), torch.empty(2, 2, 9, 16, device="cuda")
        out = sdpa(kernel, q, k, k, CAUSAL, 0.3)
    assert out.shape == (2, 4, 9, 16)
    assert calls == [{"q": (2, 9, 4, 16), "k": (2, 9, 2, 16), "softmax_scale": 0.3, "causal": True}]


@pytest.mark.parametrize("kernel", [name for name, _ in STUBS])
@pytest.mark.parametrize("mask", [window(9, 3), CAUSAL])
def test_flash_attn_refuses_masks_that_it_has_not(
    kernel: str, mask: KernelMask, calls: list[dict[str, Any]]
) -> None:
    """Neither a matrix nor, with fewer queries than keys, the causal flag, which it aligns
    differently.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        q, k = torch.empty(2, 4, 5, 16, device="cuda"), torch.empty(2, 4, 9, 16, device="cuda")
        with pytest.raises(CannotRunError):
            sdpa(kernel, q, k, k, mask, 0.3)
    assert calls == []


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, RuntimeError, ImportError])
def test_what_a_kernel_raises_means_not_supported(
    error: type[Exception], calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*tensors: Tensor, **options: Any) -> Tensor:
        raise error("FlashAttention only supports Ampere GPUs or newer.")

    monkeypatch.setattr(sys.modules["flash_attn_interface"], "flash_attn_func", refuse)
    with FakeTensorMode():
        q = torch.empty(2, 4, 9, 16, device="cuda")
        with pytest.raises(CannotRunError, match="only supports Ampere"):
            sdpa("flash_attn3", q, q, q, CAUSAL, 0.3)


def test_running_out_of_memory_does_not_mean_not_supported(
    calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*tensors: Tensor, **options: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(sys.modules["flash_attn_interface"], "flash_attn_func", fail)
    with FakeTensorMode():
        q = torch.empty(2, 4, 9, 16, device="cuda")
        with pytest.raises(torch.OutOfMemoryError):
            sdpa("flash_attn3", q, q, q, CAUSAL, 0.3)


def test_extra_kernels_have_no_sinks() -> None:
    q, k, v = inputs()
    for kernel in EXTRA_KERNELS:
        with pytest.raises(CannotRunError, match="sinks"):
            sdpa(kernel, q, k, v, CAUSAL, 0.3, torch.zeros(4))


class Box:
    """A device whose kernels are asked for."""

    kernels = ("math", "flash", "efficient", "cudnn")

    def __init__(self, runs_extra_kernels: bool) -> None:
        self.runs_extra_kernels = runs_extra_kernels


def requested(text: str, *, gpu: bool = True) -> tuple[str, ...]:
    return _parse_kernels(text, Box(gpu))  # type: ignore[arg-type]


def test_all_kernels_are_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        extra_kernels, "find_spec", lambda name: None if name == "flash_attn" else object()
    )
    assert requested("all") == (*Box.kernels, "flash_attn3")  # flex is compiled for every shape
    assert requested("flex") == ("flex",)
    assert requested("all", gpu=False) == Box.kernels
    assert requested("flash_attn3") == ("flash_attn3",)


@pytest.mark.parametrize(
    ("text", "gpu", "message"),
    [
        ("flash_attn2", True, "flash_attn is not installed"),
        ("flex", False, "needs a GPU"),
        ("flash_attn", True, "unknown kernel"),
    ],
)
def test_a_kernel_that_cannot_run_is_an_error(
    text: str, gpu: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        extra_kernels, "find_spec", lambda name: None if name == "flash_attn" else object()
    )
    with pytest.raises(AttncalcError, match=message):
        requested(text, gpu=gpu)


def test_the_packages_hold_the_tensors_of_flash() -> None:
    assert {cost_kernel(kernel) for kernel in EXTRA_KERNELS} == {"flash"}
    assert [cost_kernel(kernel) for kernel in KERNELS] == list(KERNELS)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        extra_kernels, "find_spec", lambda name: None if name.startswith("flash_attn") else object()
    )
    assert missing("flash_attn2") == "flash_attn is not installed"
    assert missing("flash_attn3") == "flash_attn_interface is not installed"
    assert missing("flex") is missing("math") is None
    q, k, v = inputs()
    with pytest.raises(CannotRunError, match="flash_attn is not installed"):
        sdpa("flash_attn2", q, k, v, CAUSAL, 0.3)


def test_the_command_line_names_every_kernel() -> None:
    assert (*KERNELS, *EXTRA_KERNELS) == NAMED
