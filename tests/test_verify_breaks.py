"""Each check of `attncalc verify` can fail: a formula, a layer or a cache that is wrong on purpose
fails its checks.
"""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import Ask
from breaks import (
    Break,
    Patch,
    matrices_with,
    replaced,
    scores,
    wider,
    with_a_parameter_more,
    wrapped,
)
from layers import ENCODER, FUSED, GROUPED, LATENT, MHA, OPTIONS, WINDOW, saved
from tables import each

from attncalc import Grouped, Latent
from attncalc.attention import Full, Sliding
from attncalc.check import Check
from attncalc.engines import ideal
from attncalc.quantity import named, quantity
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

import attncalc.cost.kernels  # noqa: E402
from attncalc.verify import kernels, real_layer  # noqa: E402
from attncalc.verify.checks import behaviour, numerics  # noqa: E402
from attncalc.verify.errors import CannotRunError  # noqa: E402
from attncalc.verify.layers import base, cache, grouped  # noqa: E402
from attncalc.verify.layers.cache import Cache  # noqa: E402
from attncalc.verify.layers.grouped import GroupedLayer  # noqa: E402
from attncalc.verify.layers.latent import LatentLayer  # noqa: E402
from attncalc.verify.masks import NO_MASK  # noqa: E402
from attncalc.verify.programs import layers  # noqa: E402

pytestmark = pytest.mark.usefixtures("untimed")


def forgetting(true: Any, self: Cache, *new: Tensor) -> Any:
    rows = true(self, *new)
    if new[0].shape[1] == 1 and self.tokens_seen > 1:
        self._rows[0][:, 0] = 0
    return rows


def projecting_twice(
    true: Any, self: GroupedLayer, projected: Tensor, norm_name: str, width: int
) -> Any:
    if norm_name == "q_norm":
        self.W_o(projected)
    return true(self, projected, norm_name, width)


def holding_a_copy(true: Any, self: Any, x: Tensor, *given: Any) -> Any:
    copies = x.clone(), x.clone()
    out = true(self, x, *given)
    del copies
    return out


def with_a_negative_weight(true: Any, *given: Any) -> Any:
    """The weights still sum to 1."""
    output = true(*given)
    output[..., -1, :2] += torch.tensor([-2.0, 2.0])
    return output


def without_the_rotary_part(true: Any, self: LatentLayer, *given: Tensor) -> Any:
    queries = true(self, *given)
    queries[..., self.rank :] = 0
    return queries


def with_another_order(order: str, fused: bool) -> Break:
    """Mistake q, k and v of a layer for one another."""

    def wrong(true: Any, self: GroupedLayer, x: Tensor, source: Tensor) -> tuple[Tensor, ...]:
        found = dict(zip("qkv", true(self, x, source), strict=True))
        return tuple(found[name] for name in (order if fused <= self.fused else "qkv"))

    return wrapped(GroupedLayer, "heads", wrong)


def less_cache(true: Any, *given: Any) -> Any:
    figures = true(*given)
    figures.total = quantity(figures.total - 1)
    return figures


CACHE = {"cache_prefill", "cache_decode"}
FLOPS = {
    f"flops_{phase}_{kernel}" for phase in ("prefill", "decode") for kernel in ("math", "flash")
}
DEFINITION = {"equals_definition"}
# {what is wrong: the model, how it is made wrong, the checks that must fail}.
BREAKS: dict[str, tuple[str, Break, set[str]]] = {
    "formula of a matrix": (GROUPED, wider(Grouped, "W_v"), {"params_W_v", "params_layer"}),
    "layer with an extra parameter": (
        GROUPED,
        with_a_parameter_more(GroupedLayer),
        {"params_more", "params_layer"},
    ),
    "formula without the rotary key": (
        LATENT,
        matrices_with(Latent, d_rope=0),
        {"params_W_kv_a", "params_layer"},
    ),
    "ring with an extra row": (
        WINDOW,
        replaced(cache, "ring_size", lambda span: span.window + 1),
        CACHE,
    ),
    "formula of a window": (
        WINDOW,
        replaced(Sliding, "cached_tokens", lambda self, n: min(n, self.window - 1)),
        CACHE,
    ),
    "formula of the cache": (
        GROUPED,
        wrapped(ideal, "row_bytes", lambda true, *given: true(*given) // 2),
        CACHE,
    ),
    "cache that forgets": (
        GROUPED,
        wrapped(Cache, "extend", forgetting),
        {"cache_holds_every_token", "decode_equals_prefill", "token_by_token"},
    ),
    "ring that is too short": (
        WINDOW,
        replaced(cache, "ring_size", lambda span: span.window - 1),
        {"token_by_token"},
    ),
    "formula of the scores": (
        GROUPED,
        scores(Grouped, lambda flops: flops // 2),
        {"flops_prefill_math", "flops_decode_math"},
    ),
    "layer that projects twice": (
        GROUPED,
        wrapped(GroupedLayer, "_heads", projecting_twice),
        FLOPS,
    ),
    "formula of the triangle": (
        GROUPED,
        replaced(Full, "causal_pairs", lambda self, n: n * n // 2),
        {"pairs"},
    ),
    "layer that holds a copy": (
        GROUPED,
        wrapped(GroupedLayer, "attend_and_project", holding_a_copy),
        {"peak_prefill_math", "peak_prefill_flash", "peak_decode_flash"},
    ),
    "formula of the queries' memory": (
        GROUPED,
        wrapped(attncalc.cost.kernels, "_projected", lambda true, s: true(s)[1:]),
        {"peak_prefill_math", "peak_prefill_flash"},
    ),
    "kernel with another scale": (
        GROUPED,
        wrapped(
            numerics,
            "sdpa",
            lambda true, *given, **more: true(*given[:5], 1.1 * given[5], *given[6:], **more),
        ),
        {
            "math_equals_reference_fp32",
            "flash_equals_reference_fp16",
            "flash_equals_reference_bf16",
        },
    ),
    "kernel without its mask": (
        GROUPED,
        wrapped(
            real_layer,
            "sdpa",
            lambda true, *given, **more: true(*given[:4], NO_MASK, *given[5:], **more),
        ),
        {"math_masks", "flash_masks"},
    ),
    "padding that is visible": (
        GROUPED,
        replaced(
            numerics, "padded", lambda matrix, lengths: matrix.expand(len(lengths), 1, -1, -1)
        ),
        {"reference_masks"},
    ),
    "weights that sum to more": (
        GROUPED,
        wrapped(kernels, "weights", lambda true, *given: 1.001 * true(*given)),
        {"reference_weights_sum_to_1"},
    ),
    "weights with a negative one": (
        GROUPED,
        wrapped(real_layer, "sdpa", with_a_negative_weight),
        {"math_weights_sum_to_1"},
    ),
    "layer without its scale": (
        GROUPED,
        replaced(grouped, "math", SimpleNamespace(sqrt=lambda _: 1.0)),
        {"spread_scaled"},
    ),
    "latent layer without its scale": (
        LATENT,
        replaced(LatentLayer, "_scale", 1.0),
        {"spread_scaled"},
    ),
    "scores that are scaled twice": (
        GROUPED,
        wrapped(behaviour, "scores", lambda true, q, k, scale: true(q, k, 0.5 * scale)),
        {"spread_unscaled"},
    ),
    "layer that swaps queries and keys": (
        MHA,
        with_another_order("kqv", False),
        {"equals_torch_mha", *DEFINITION},
    ),
    "fused layer that splits in another order": (
        FUSED,
        with_another_order("vqk", True),
        {"equals_torch_mha", *DEFINITION},
    ),
    "norm that only scales": (
        OPTIONS,
        replaced(base.RMSNorm, "forward", lambda self, x: x * self.weight),
        DEFINITION,
    ),
    "gate of another shape": (
        OPTIONS,
        replaced(torch.Tensor, "sigmoid_", torch.Tensor.tanh_),
        DEFINITION,
    ),
    "sinks that are left out": (
        OPTIONS,
        wrapped(kernels, "weights", lambda true, *given: true(*given[:4])),
        DEFINITION,
    ),
    "latent layer that swaps keys and values": (
        LATENT,
        wrapped(LatentLayer, "_latent", lambda true, self, x: true(self, x).roll(1, -1)),
        DEFINITION,
    ),
    "layer that knows positions": (
        GROUPED,
        wrapped(
            GroupedLayer,
            "heads",
            lambda true, self, x, source: true(
                self, x + torch.arange(x.shape[1])[None, :, None], source
            ),
        ),
        {"shuffled"},
    ),
    "absorbed without its rotary part": (
        LATENT,
        wrapped(LatentLayer, "_absorbed_queries", without_the_rotary_part),
        {"absorbed_equals_expanded", "decode_equals_prefill"},
    ),
    "sum of the parameters": (
        GROUPED,
        wrapped(
            layers,
            "params",
            lambda true, of: (f := true(of))._replace(attention=quantity(f.attention + 1)),
        ),
        {"params_attention"},
    ),
    "sum of the cache": (GROUPED, wrapped(layers, "kv_cache", less_cache), {"kv_cache"}),
}


def failing(ask: Ask, *arguments: str) -> set[str]:
    """Return the names of the checks that disagree."""
    answer = ask("verify", *arguments, "--device", "cpu", "--json")
    failed = {c["name"] for c in answer.document["checks"] if not c["ok"]}
    assert answer.code == (1 if failed else 0)
    return failed


@each("name", BREAKS)
def test_a_mutation_fails_its_checks(
    ask: Ask, tmp_path: Path, monkeypatch: Patch, name: str
) -> None:
    model, make_wrong, names = BREAKS[name]
    make_wrong(monkeypatch)
    assert failing(ask, saved(model, tmp_path), "-c", "24") >= names


def test_without_a_mutation_every_check_agrees(ask: Ask, tmp_path: Path) -> None:
    for model in {model for model, _, _ in BREAKS.values()}:
        assert failing(ask, saved(model, tmp_path), "-c", "24") == set()


def test_a_lost_token_fails_in_half_precision(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    """One token of 60 changes an output by less than bf16's rounding, so its row in the cache is
    compared too.
    """
    wrapped(Cache, "extend", forgetting)(monkeypatch)
    assert "cache_holds_every_token" in failing(
        ask, saved(GROUPED, tmp_path), "-c", "60", "--dtype", "bf16"
    )


def test_masks_of_a_kernel_without_fp32_are_checked_in_fp16(
    ask: Ask, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Flash and cudnn on a GPU have no fp32."""
    true = kernels.sdpa

    def wrong(kernel: str, q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Tensor:
        if kernel == "flash" and q.dtype == torch.float32:
            raise CannotRunError(kernel)
        return true(kernel, q, k, v, NO_MASK if kernel == "flash" else given[0], *given[1:])

    monkeypatch.setattr(real_layer, "sdpa", wrong)
    failed = failing(
        ask, saved(ENCODER, tmp_path), "-c", "24", "--kernel", "flash", "--dtype", "fp16"
    )
    assert failed == {"flash_masks"}


def test_every_check_of_a_model_can_fail(ask: Ask, tmp_path: Path) -> None:
    """Except checks per matrix and per kernel, which come from one function each."""
    can_fail = {name for _, _, names in BREAKS.values() for name in names}
    all_names = set()
    for text in (GROUPED, MHA, WINDOW, LATENT):
        answer = ask("verify", saved(text, tmp_path), "-c", "24", "--device", "cpu", "--json")
        all_names |= {c["name"] for c in answer.document["checks"]}
    one_per_item = ("params_", "peak_", "math_", "flash_", "reference_")
    assert {name for name in all_names - can_fail if not name.startswith(one_per_item)} == set()
    for ending in (
        "equals_reference_fp32",
        "equals_reference_fp16",
        "equals_reference_bf16",
        "masks",
        "sum_to_1",
    ):
        assert any(name.endswith(ending) for name in can_fail)


def test_a_wrong_peak_fails_in_scaling(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    _, make_wrong, _ = BREAKS["formula of the queries' memory"]
    make_wrong(monkeypatch)
    assert "peak_prefill_24_flash" in failing(
        ask, saved(GROUPED, tmp_path), "-c", "24", "--scaling"
    )


@pytest.mark.parametrize("more", [(), ("--full",)])
def test_the_screen_shows_whole_what_disagrees(
    ask: Ask, tmp_path: Path, monkeypatch: Patch, more: tuple[str, ...]
) -> None:
    _, make_wrong, _ = BREAKS["formula of the triangle"]
    make_wrong(monkeypatch)
    answer = ask("verify", saved(GROUPED, tmp_path), "-c", "24", "--device", "cpu", *more)
    assert answer.code == 1
    # 24 * 25 / 2 = 300, not 24 * 24 / 2 = 288
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert "visible pairs 288 300 12 0 NO" in lines
    assert any(re.match(r"\d+ of \d+ checks DISAGREES? on cpu", line) for line in lines)
    assert (
        "warning: FLOPs (decoder, visible pairs) disagrees. Meaning: the closed form does not count"
        in " ".join(lines)
    )


def test_a_nan_never_agrees() -> None:
    wrong = Check("numerics", "x", "x", 0, float("nan"), tolerance=1e9)
    assert not wrong.ok
    assert (wrong.facts()["measured"], wrong.facts()["difference"]) == (None, None)
    assert Check("memory", "x", "x", named(100, "x", ""), 101, tolerance=1).ok
    assert not Check("memory", "x", "x", 100, 102, tolerance=1).ok
    assert not Check("memory", "x", "x", 100, 98, tolerance=1).ok
