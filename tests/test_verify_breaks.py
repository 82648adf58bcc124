"""Each check of `attncalc verify` can fail: a formula, a layer or a cache that is wrong on purpose fails its checks."""

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import Ask
from layers import ENCODER, FUSED, GROUPED, LATENT, MHA, OPTIONS, WINDOW, saved
from tables import each

from attncalc import Grouped, Latent, kv_cache, load, params
from attncalc.attention import Full, Sliding
from attncalc.check import Check
from attncalc.engines import ideal
from attncalc.quantity import named, quantity
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import attncalc.cost.kernels  # noqa: E402
from attncalc.verify import kernels, real_layer  # noqa: E402
from attncalc.verify.cases import cases  # noqa: E402
from attncalc.verify.checks import behaviour, numerics  # noqa: E402
from attncalc.verify.errors import CannotRunError  # noqa: E402
from attncalc.verify.layers import base, cache, grouped  # noqa: E402
from attncalc.verify.layers.cache import Cache  # noqa: E402
from attncalc.verify.layers.grouped import GroupedLayer  # noqa: E402
from attncalc.verify.layers.latent import LatentLayer  # noqa: E402
from attncalc.verify.masks import NO_MASK  # noqa: E402
from attncalc.verify.programs import layers, tensor_parallel  # noqa: E402
from attncalc.verify.request import VerifyRequest  # noqa: E402

pytestmark = pytest.mark.usefixtures("untimed")

Patch = pytest.MonkeyPatch
BREAKS: dict[str, tuple[str, Callable[[Patch], None], tuple[str, ...]]] = {}
"""Mutations by name: the model, a function that makes something wrong, the checks that must fail."""


def breaks(model: str, *names: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def register(mutate: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BREAKS[mutate.__name__] = (model, mutate, names)
        return mutate

    return register


@breaks(GROUPED, "params_W_v", "params_layer")
def formula_of_a_matrix(patch: Patch) -> None:
    true = Grouped.matrices

    def wrong(self: Grouped, d_model: int, d_source: int) -> Any:
        return tuple(m._replace(cols=m.cols + 1) if m.name == "W_v" else m for m in true(self, d_model, d_source))

    patch.setattr(Grouped, "matrices", wrong)


@breaks(GROUPED, "params_more", "params_layer")
def layer_with_an_extra_parameter(patch: Patch) -> None:
    true = GroupedLayer.__init__

    def wrong(self: Any, *given: Any, **named_: Any) -> None:
        true(self, *given, **named_)
        self.more = nn.Parameter(torch.zeros(3))

    patch.setattr(GroupedLayer, "__init__", wrong)


@breaks(LATENT, "params_W_kv_a", "params_layer")
def formula_without_the_rotary_key(patch: Patch) -> None:
    true = Latent.matrices

    def wrong(self: Latent, d_model: int, d_source: int) -> Any:
        return true(dataclasses.replace(self, d_rope=0), d_model, d_source)

    patch.setattr(Latent, "matrices", wrong)


@breaks(WINDOW, "cache_prefill", "cache_decode")
def ring_with_an_extra_row(patch: Patch) -> None:
    patch.setattr(cache, "ring_size", lambda span: span.window + 1)


@breaks(WINDOW, "cache_prefill", "cache_decode")
def formula_of_a_window(patch: Patch) -> None:
    patch.setattr(Sliding, "cached_tokens", lambda self, n: min(n, self.window - 1))


@breaks(GROUPED, "cache_prefill", "cache_decode")
def formula_of_the_cache(patch: Patch) -> None:
    true = ideal._row_bytes
    patch.setattr(ideal, "_row_bytes", lambda cached, stored: true(cached, stored) // 2)


@breaks(GROUPED, "cache_holds_every_token", "decode_equals_prefill", "token_by_token")
def cache_that_forgets(patch: Patch) -> None:
    true = Cache.extend

    def wrong(self: Cache, *new: Tensor) -> tuple[Tensor, ...]:
        rows = true(self, *new)
        if new[0].shape[1] == 1 and self.tokens_seen > 1:
            self._rows[0][:, 0] = 0
        return rows

    patch.setattr(Cache, "extend", wrong)


@breaks(WINDOW, "token_by_token")
def ring_that_is_too_short(patch: Patch) -> None:
    patch.setattr(cache, "ring_size", lambda span: span.window - 1)


@breaks(GROUPED, "flops_prefill_math", "flops_decode_math")
def formula_of_the_scores(patch: Patch) -> None:
    true = Grouped.score_flops
    patch.setattr(Grouped, "score_flops", lambda self, run, mask: true(self, run, mask) // 2)


@breaks(GROUPED, "flops_prefill_math", "flops_prefill_flash", "flops_decode_math", "flops_decode_flash")
def layer_that_projects_twice(patch: Patch) -> None:
    true = GroupedLayer._heads

    def wrong(self: GroupedLayer, projected: Tensor, norm_name: str, width: int) -> Tensor:
        if norm_name == "q_norm":
            self.W_o(projected)
        return true(self, projected, norm_name, width)

    patch.setattr(GroupedLayer, "_heads", wrong)


@breaks(GROUPED, "pairs")
def formula_of_the_triangle(patch: Patch) -> None:
    patch.setattr(Full, "causal_pairs", lambda self, n: n * n // 2)


@breaks(GROUPED, "peak_prefill_math", "peak_prefill_flash", "peak_decode_flash")
def layer_that_holds_a_copy(patch: Patch) -> None:
    true = GroupedLayer.attend_and_project

    def wrong(self: Any, x: Tensor, *given: Any) -> Tensor:
        copies = x.clone(), x.clone()
        out = true(self, x, *given)
        del copies
        return out

    patch.setattr(GroupedLayer, "attend_and_project", wrong)


@breaks(GROUPED, "peak_prefill_math", "peak_prefill_flash")
def formula_of_the_queries_memory(patch: Patch) -> None:
    true = attncalc.cost.kernels._projected
    patch.setattr(attncalc.cost.kernels, "_projected", lambda s: true(s)[1:])


@breaks(GROUPED, "math_equals_reference_fp32", "flash_equals_reference_fp16", "flash_equals_reference_bf16")
def kernel_with_another_scale(patch: Patch) -> None:
    true = kernels.sdpa
    wrong = lambda kernel, q, k, v, mask, scale, sinks=None: true(kernel, q, k, v, mask, 1.1 * scale, sinks)  # noqa: E731
    patch.setattr(numerics, "sdpa", wrong)


@breaks(GROUPED, "math_masks", "flash_masks")
def kernel_without_its_mask(patch: Patch) -> None:
    true = kernels.sdpa
    wrong = lambda kernel, q, k, v, mask, scale, sinks=None: true(kernel, q, k, v, NO_MASK, scale, sinks)  # noqa: E731
    patch.setattr(real_layer, "sdpa", wrong)


@breaks(GROUPED, "reference_masks")
def padding_that_is_visible(patch: Patch) -> None:
    patch.setattr(numerics, "padded", lambda matrix, lengths: matrix.expand(len(lengths), 1, -1, -1))


@breaks(GROUPED, "reference_weights_sum_to_1")
def weights_that_sum_to_more(patch: Patch) -> None:
    true = kernels.weights
    patch.setattr(kernels, "weights", lambda *given: 1.001 * true(*given))


@breaks(GROUPED, "math_weights_sum_to_1")
def weights_with_a_negative_one(patch: Patch) -> None:
    """The weights still sum to 1."""
    true = kernels.sdpa

    def wrong(*given: Any) -> Tensor:
        output = true(*given)
        output[..., -1, :2] += torch.tensor([-2.0, 2.0])
        return output

    patch.setattr(real_layer, "sdpa", wrong)


@breaks(GROUPED, "spread_scaled")
def layer_without_its_scale(patch: Patch) -> None:
    patch.setattr(grouped, "math", SimpleNamespace(sqrt=lambda _: 1.0))


@breaks(LATENT, "spread_scaled")
def latent_layer_without_its_scale(patch: Patch) -> None:
    patch.setattr(LatentLayer, "_scale", 1.0)


@breaks(GROUPED, "spread_unscaled")
def scores_that_are_scaled_twice(patch: Patch) -> None:
    true = kernels.scores
    patch.setattr(behaviour, "scores", lambda q, k, scale: true(q, k, 0.5 * scale))


@breaks(MHA, "equals_torch_mha", "equals_definition")
def layer_that_swaps_queries_and_keys(patch: Patch) -> None:
    true = GroupedLayer.heads

    def wrong(self: GroupedLayer, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = true(self, x, source)
        return k, q, v

    patch.setattr(GroupedLayer, "heads", wrong)


@breaks(FUSED, "equals_torch_mha", "equals_definition")
def fused_layer_that_splits_in_another_order(patch: Patch) -> None:
    true = GroupedLayer.heads

    def wrong(self: GroupedLayer, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = true(self, x, source)
        return (v, q, k) if self.fused else (q, k, v)

    patch.setattr(GroupedLayer, "heads", wrong)


@breaks(OPTIONS, "equals_definition")
def norm_that_only_scales(patch: Patch) -> None:
    patch.setattr(base.RMSNorm, "forward", lambda self, x: x * self.weight)


@breaks(OPTIONS, "equals_definition")
def gate_of_another_shape(patch: Patch) -> None:
    patch.setattr(torch.Tensor, "sigmoid_", torch.Tensor.tanh_)


@breaks(OPTIONS, "equals_definition")
def sinks_that_are_left_out(patch: Patch) -> None:
    true = kernels.weights
    patch.setattr(kernels, "weights", lambda *given: true(*given[:4]))


@breaks(LATENT, "equals_definition")
def latent_layer_that_swaps_keys_and_values(patch: Patch) -> None:
    true = LatentLayer._latent
    patch.setattr(LatentLayer, "_latent", lambda self, x: true(self, x).roll(1, -1))


@breaks(GROUPED, "shuffled")
def layer_that_knows_positions(patch: Patch) -> None:
    true = GroupedLayer.heads

    def wrong(self: GroupedLayer, x: Tensor, source: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return true(self, x + torch.arange(x.shape[1])[None, :, None], source)

    patch.setattr(GroupedLayer, "heads", wrong)


@breaks(LATENT, "absorbed_equals_expanded", "decode_equals_prefill")
def absorbed_without_its_rotary_part(patch: Patch) -> None:
    true = LatentLayer._absorbed_queries

    def wrong(self: LatentLayer, q: Tensor, w_k: Tensor) -> Tensor:
        queries = true(self, q, w_k)
        queries[..., self.rank :] = 0
        return queries

    patch.setattr(LatentLayer, "_absorbed_queries", wrong)


@breaks(GROUPED, "params_attention")
def sum_of_the_parameters(patch: Patch) -> None:
    true = params

    def wrong(model: Any) -> Any:
        figures = true(model)
        return figures._replace(attention=quantity(figures.attention + 1))

    patch.setattr(layers, "params", wrong)


@breaks(GROUPED, "kv_cache")
def sum_of_the_cache(patch: Patch) -> None:
    true = kv_cache

    def wrong(model: Any, workload: Any) -> Any:
        figures = true(model, workload)
        figures.total = quantity(figures.total - 1)
        return figures

    patch.setattr(layers, "kv_cache", wrong)


def failing(ask: Ask, *arguments: str) -> set[str]:
    """Return the names of the checks that disagree."""
    answer = ask("verify", *arguments, "--device", "cpu", "--json")
    failed = {c["name"] for c in json.loads(answer.out)["checks"] if not c["ok"]}
    assert answer.code == (1 if failed else 0)
    return failed


@each("name", BREAKS)
def test_a_mutation_fails_its_checks(ask: Ask, tmp_path: Path, monkeypatch: Patch, name: str) -> None:
    model, mutate, names = BREAKS[name]
    mutate(monkeypatch)
    assert failing(ask, saved(model, tmp_path), "-c", "24") >= set(names)


def test_without_a_mutation_every_check_agrees(ask: Ask, tmp_path: Path) -> None:
    for model in {model for model, _, _ in BREAKS.values()}:
        assert failing(ask, saved(model, tmp_path), "-c", "24") == set()


def test_a_lost_token_fails_in_half_precision(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    """One token of 60 changes an output by less than bf16's rounding, so its row in the cache is compared too."""
    cache_that_forgets(monkeypatch)
    assert "cache_holds_every_token" in failing(ask, saved(GROUPED, tmp_path), "-c", "60", "--dtype", "bf16")


def test_masks_of_a_kernel_without_fp32_are_checked_in_fp16(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    """Flash and cudnn on a GPU have no fp32."""
    true = kernels.sdpa

    def wrong(kernel: str, q: Tensor, k: Tensor, v: Tensor, *given: Any) -> Tensor:
        if kernel == "flash" and q.dtype == torch.float32:
            raise CannotRunError(kernel)
        return true(kernel, q, k, v, NO_MASK if kernel == "flash" else given[0], *given[1:])

    monkeypatch.setattr(real_layer, "sdpa", wrong)
    failed = failing(ask, saved(ENCODER, tmp_path), "-c", "24", "--kernel", "flash", "--dtype", "fp16")
    assert failed == {"flash_masks"}


def test_every_check_of_a_model_can_fail(ask: Ask, tmp_path: Path) -> None:
    """Except checks per matrix and per kernel, which come from one function each."""
    can_fail = {name for _, _, names in BREAKS.values() for name in names}
    all_names = set()
    for text in (GROUPED, MHA, WINDOW, LATENT):
        answer = ask("verify", saved(text, tmp_path), "-c", "24", "--device", "cpu", "--json")
        all_names |= {c["name"] for c in json.loads(answer.out)["checks"]}
    one_per_item = ("params_", "peak_", "math_", "flash_", "reference_")
    assert {name for name in all_names - can_fail if not name.startswith(one_per_item)} == set()
    for ending in ("equals_reference_fp32", "equals_reference_fp16", "equals_reference_bf16", "masks", "sum_to_1"):
        assert any(name.endswith(ending) for name in can_fail)


def test_a_wrong_peak_fails_in_scaling(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    formula_of_the_queries_memory(monkeypatch)
    assert "peak_prefill_24_flash" in failing(ask, saved(GROUPED, tmp_path), "-c", "24", "--scaling")


def failing_per_rank(tmp_path: Path, error: float = 0.0) -> set[str]:
    """Return the checks that disagree if each of 4 ranks holds one query head of 8, and one of two KV heads."""
    symbolic = cases(load(saved(GROUPED, tmp_path)).symbolic())[0]
    params = dict.fromkeys(("W_q", "W_k", "W_v", "W_o"), 32 * 8)
    ranks = [{"params": params, "cache": 12 * 2 * 8 * 4, "error": e} for e in (0.0, 0.0, error, 0.0)]
    request = VerifyRequest(1, 12, None, "fp32", ("math",), tp=4)
    return {check.name for check in tensor_parallel._checks(symbolic, request, ranks) if not check.ok}


def test_a_wrong_split_fails_per_rank(tmp_path: Path, monkeypatch: Patch) -> None:
    """A formula that does not replicate KV heads: 2 heads over 4 ranks."""

    def wrong(self: Grouped, tp: int) -> Grouped:
        return dataclasses.replace(self, n_heads=self.n_heads // tp * 2, n_kv_heads=2)

    assert failing_per_rank(tmp_path) == set()
    monkeypatch.setattr(Grouped, "shard", wrong)
    assert failing_per_rank(tmp_path) >= {
        "params_W_q_per_rank",
        "params_W_k_per_rank",
        "params_per_rank",
        "cache_per_rank",
    }


def test_a_rank_with_a_wrong_output_fails(tmp_path: Path) -> None:
    assert failing_per_rank(tmp_path, float("nan")) == {"sharded_equals_whole"}


@pytest.mark.parametrize("more", [(), ("--full",)])
def test_the_screen_shows_whole_what_disagrees(
    ask: Ask, tmp_path: Path, monkeypatch: Patch, more: tuple[str, ...]
) -> None:
    formula_of_the_triangle(monkeypatch)
    answer = ask("verify", saved(GROUPED, tmp_path), "-c", "24", "--device", "cpu", *more)
    assert answer.code == 1
    # 24 * 25 / 2 = 300, not 24 * 24 / 2 = 288
    lines = [" ".join(line.split()) for line in answer.out.splitlines()]
    assert "visible pairs 288 300 12 0 NO" in lines
    assert any(re.match(r"\d+ of \d+ checks DISAGREES? on cpu", line) for line in lines)
    assert "warning: FLOPs (decoder, visible pairs) disagrees. Meaning: the closed form does not count" in " ".join(
        lines
    )


def test_a_nan_never_agrees() -> None:
    wrong = Check("numerics", "x", "x", 0, float("nan"), tolerance=1e9)
    assert not wrong.ok
    assert (wrong.facts()["measured"], wrong.facts()["difference"]) == (None, None)
    assert Check("memory", "x", "x", named(100, "x", ""), 101, tolerance=1).ok
    assert not Check("memory", "x", "x", 100, 102, tolerance=1).ok
    assert not Check("memory", "x", "x", 100, 98, tolerance=1).ok
