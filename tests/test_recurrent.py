"""Recurrent kinds: `verify` compares real layers with their formulas, and fails if one is wrong on
purpose.
"""

from pathlib import Path
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
    wider_cache,
    with_a_parameter_more,
    wrapped,
)
from layers import MAMBA, MHA, saved
from tables import each

from attncalc import AttncalcError, Workload, flops, kv_cache, load, params
from attncalc.attention import Grouped
from attncalc.attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from attncalc.attention.mamba import Mamba, Mamba2
from attncalc.attention.rglru import RgLru
from attncalc.attention.rwkv import Rwkv, Rwkv5
from attncalc.attention.xlstm import MLstm
from attncalc.cost import activations
from attncalc.verify import need_torch

need_torch()
from torch import Tensor  # noqa: E402

from attncalc.verify.layers.linear import LightningLayer  # noqa: E402
from attncalc.verify.layers.mamba import MambaLayer  # noqa: E402
from attncalc.verify.layers.recurrent import Convolution, State  # noqa: E402

pytestmark = pytest.mark.usefixtures("untimed")

KINDS = {
    "mamba": MAMBA,
    "mamba_norms": "attention: mamba, d_inner: 48, d_state: 8, d_conv: 2, dt_rank: 3, proj_bias: "
    "true, "
    "dt_norms: true",
    "mamba2": "attention: mamba2, n_heads: 6, d_head: 8, d_state: 16, d_conv: 4, n_groups: 2, "
    "inner_norm: true",
    "gdn": "attention: delta, n_heads: 4, n_k_heads: 2, d_head: 8, d_v: 12, d_conv: 4",
    "kda": "attention: delta, n_heads: 4, d_head: 8, d_v: 12, d_conv: 4, channel_decay: true, "
    "gate_rank: 5",
    "kda_full_gate": (
        "attention: delta, n_heads: 4, d_head: 8, d_v: 8, d_conv: 4, channel_decay: true, "
        "gate_rank: 5, full_gate: true"
    ),
    "lightning": "attention: lightning, n_heads: 4, d_head: 8",
    "short": "attention: short_convolution, d_inner: 40, d_conv: 3, conv_bias: true",
    "rglru": "attention: rglru, d_inner: 48, n_heads: 4, d_conv: 4",
    "rwkv": "attention: rwkv, d_inner: 32",
    "rwkv5": "attention: rwkv5, d_inner: 32, d_head: 8",
    "mlstm": "attention: mlstm, n_heads: 4, d_head: 8, d_v: 12",
    "shares": "n_heads: 4, n_kv_heads: 2, shares_kv: true, qk_norm: head, window: 7",
    "wide": "n_heads: 4, n_kv_heads: 2, d_input: 48, bias: true",
    "head_gate": "n_heads: 4, n_kv_heads: 1, gate: head",
    "v_from_k": "n_heads: 4, n_kv_heads: 2, v_from_k: true, qk_norm: head",
    "broad": "n_heads: 256, d_head: 16, n_kv_heads: 256",
    "mlp_alone": "attention: none",
}
RECURRENT = {
    name: keys
    for name, keys in KINDS.items()
    if keys.startswith("attention") and name != "mlp_alone"
}


def model(*names: str) -> str:
    """A model file with one layer of each of these kinds."""
    kinds = "".join(f"  {name}: {{ {KINDS[name]} }}\n" for name in names)
    text = MHA.replace("n_layers: 3", f"n_layers: {len(names)}").replace("n_heads: 4\n", "")
    return f"{text}pattern: [{', '.join(names)}]\nlayer_kinds:\n{kinds}"


def verified(ask: Ask, path: str, *options: str) -> dict[str, Any]:
    answer = ask("verify", path, "--device", "cpu", *options, "--json")
    result: dict[str, Any] = answer.document
    failed = {c["name"] for c in result["checks"] if not c["ok"]}
    assert answer.code == (1 if failed else 0)
    return {**result, "failed": failed}


@pytest.mark.parametrize(
    ("batch", "context", "dtype"),
    [("1", "4", "fp32"), ("2", "20", "fp32"), ("3", "17", "fp16"), ("2", "13", "bf16")],
)
def test_every_recurrent_layer_agrees(
    ask: Ask, tmp_path: Path, batch: str, context: str, dtype: str
) -> None:
    result = verified(
        ask, saved(model(*KINDS), tmp_path), "-b", batch, "-c", context, "--dtype", dtype
    )
    assert result["failed"] == set()
    exact = [
        c for c in result["checks"] if c["section"] in ("parameters", "cache", "FLOPs", "model")
    ]
    assert all(c["difference"] == 0 and c["tolerance"] == 0 for c in exact)
    for name in RECURRENT:
        assert {c["name"] for c in result["checks"] if c["of"] == name} >= {
            "params_layer",
            "cache_prefill",
            "cache_decode",
            "cache_holds_every_token",
            "decode_equals_prefill",
            "token_by_token",
            "flops_prefill_recurrence",
            "flops_decode_recurrence",
        }


def test_skipped_checks_are_listed(ask: Ask, tmp_path: Path) -> None:
    path = saved(model("mamba", "shares", "mlp_alone"), tmp_path)
    lines = " ".join(ask("verify", path, "--device", "cpu", "-c", "24", "--full").out.split())
    assert (
        "mamba: Mamba is a recurrence, run here token by token; no attention kernel runs" in lines
    )
    assert "shares: K and V are those of an earlier layer" in lines
    assert "mlp_alone: these layers have no attention to check" in lines
    folded = " ".join(ask("verify", path, "--device", "cpu", "-c", "24").out.split())
    assert (
        "--full shows every check, the times (not checked) and 3 notes on what was not checked."
        in folded
    )
    assert "mamba: Mamba runs no attention kernel" in " ".join(
        ask("verify", path, "--device", "cpu", "-c", "32", "--scaling").out.split()
    )


def without_the_past(true: Any, self: Any, x: Tensor, state: State) -> Tensor:
    state.tensors.pop("convolution", None)
    result: Tensor = true(self, x, state)
    return result


def projecting_twice(true: Any, self: Any, x: Tensor, state: State) -> Tensor:
    self.W_gate(x)
    result: Tensor = true(self, x, state)
    return result


CACHE = {"cache_prefill", "cache_decode"}
RECURRENCE = {"flops_prefill_recurrence", "flops_decode_recurrence"}
MATRICES = (
    ("mamba", Mamba, "W_x"),
    ("mamba_norms", Mamba, "dt_b_c_norms"),
    ("mamba2", Mamba2, "dt_A_D"),
    ("gdn", GatedDeltaNet, "conv"),
    ("kda", GatedDeltaNet, "W_decay_a"),
    ("kda_full_gate", GatedDeltaNet, "W_gate"),
    ("lightning", Lightning, "W_gate"),
    ("rglru", RgLru, "W_input_gate"),
    ("rwkv", Rwkv, "time_mix"),
    ("rwkv5", Rwkv5, "norm"),
    ("mlstm", MLstm, "W_forget_gate"),
)
STATES = (
    ("mamba", Mamba, "state"),
    ("gdn", GatedDeltaNet, "convolution"),
    ("rglru", RgLru, "convolution"),  # the whole convolution
    ("rwkv", Rwkv, "last token"),
    ("mlstm", MLstm, "normaliser"),
)
# {what is wrong: the kind, how it is made wrong, the checks that must fail}.
BREAKS: dict[str, tuple[str, Break, set[str]]] = {
    **{
        f"{name} of {kind}": (kind, wider(of, name), {f"params_{name}", "params_layer"})
        for kind, of, name in MATRICES
    },
    **{
        f"{name} of {kind}, cached": (kind, wider_cache(of, name), CACHE)
        for kind, of, name in STATES
    },
    "formula without the wide input": (
        "wide",
        matrices_with(Grouped, d_input=None),
        {"params_W_q", "params_W_k", "params_W_v"},
    ),
    "formula with the shared keys": (
        "shares",
        matrices_with(Grouped, shares_kv=False),
        {"params_W_k", "params_W_v", "params_k_norm"},
    ),
    "formula with values that are keys": (
        "v_from_k",
        matrices_with(Grouped, v_from_k=False),
        {"params_W_v"},
    ),
    "formula of a gate of every element": (
        "head_gate",
        matrices_with(Grouped, gate=True),
        {"params_W_gate"},
    ),
    # K and V of all heads are wider than d_model, so the peak is before they are in the cache
    "formula of the memory of broad heads": (
        "broad",
        wrapped(activations, "Shape", lambda true, **sizes: true(**{**sizes, "cached_keys": 0})),
        {"peak_decode_flash"},
    ),
    "formula without the outer product": (
        "rwkv5",
        scores(Rwkv5, lambda flops: flops // 2),
        RECURRENCE,
    ),
    "formula of the state's products": (
        "mamba2",
        scores(Mamba2, lambda flops: 2 * flops),
        RECURRENCE,
    ),
    "formula of the delta rule that reads no key": (
        "gdn",
        scores(GatedDeltaNet, lambda flops: flops * 2 // 3),
        RECURRENCE,
    ),
    "formula that counts a convolution as a product": (
        "short",
        wrapped(
            ShortConvolution,
            "score_flops",
            lambda true, self, run, mask: true(self, run, mask) + 2 * run.new,
        ),
        RECURRENCE,
    ),
    "layer with a parameter more": (
        "mamba",
        with_a_parameter_more(MambaLayer),
        {"params_more", "params_layer"},
    ),
    "state that is forgotten": (
        "mamba",
        replaced(
            State,
            "get",
            lambda self, name, like, *shape, dtype=None: like.new_zeros(shape, dtype=dtype),
        ),
        {"cache_holds_every_token", "decode_equals_prefill", "token_by_token"},
    ),
    "convolution that sees no past": (
        "short",
        wrapped(Convolution, "forward", without_the_past),
        {"decode_equals_prefill", "token_by_token"},
    ),
    "layer that projects twice": (
        "lightning",
        wrapped(LightningLayer, "forward", projecting_twice),
        RECURRENCE,
    ),
}


@each("name", BREAKS)
def test_a_broken_layer_or_formula_fails_its_check(
    ask: Ask, tmp_path: Path, monkeypatch: Patch, name: str
) -> None:
    kind, make, names = BREAKS[name]
    path = saved(model(kind), tmp_path)
    make(monkeypatch)
    assert verified(ask, path, "-c", "24")["failed"] >= names


def test_a_state_in_the_wrong_dtype_fails(ask: Ask, tmp_path: Path, monkeypatch: Patch) -> None:
    """Mamba's state is fp32 whatever the model's dtype."""
    true = Mamba.cache
    monkeypatch.setattr(
        Mamba, "cache", lambda self: tuple(c._replace(dtype=None) for c in true(self))
    )
    result = verified(ask, saved(model("mamba"), tmp_path), "-c", "24", "--dtype", "bf16")
    assert result["failed"] >= {"cache_prefill", "cache_decode", "kv_cache"}


def test_every_kind_is_broken_at_least_once() -> None:
    broken = {kind for kind, _, _ in BREAKS.values()}
    assert set(KINDS) - broken == {"mlp_alone"}


def test_weights_that_layers_share_are_summed_once(ask: Ask, tmp_path: Path) -> None:
    text = (
        model("wide", "mamba")
        .replace("[wide, mamba]", "[wide, mamba, again, again]")
        .replace("layers: 2", "layers: 4")
    )
    result = verified(
        ask,
        saved(f"{text}  again: {{ {KINDS['wide']}, shares_weights: true }}\n", tmp_path),
        "-c",
        "24",
    )
    assert result["failed"] == set()
    assert {"wide and again", "mamba"} <= {c["of"] for c in result["checks"]}


def test_a_layer_with_extra_states_cannot_be_verified(ask: Ask, tmp_path: Path) -> None:
    text = model("wide", "mamba").replace("d_input: 48", "extra_states: { delayed: [1, 8] }")
    answer = ask("verify", saved(text, tmp_path), "--device", "cpu", "-c", "24")
    assert (answer.code, answer.out) == (3, "")
    assert "no torch layer of GQA with extra_states" in answer.err


def test_bytes_of_recurrent_states(tmp_path: Path) -> None:
    """batch 3 of Mamba 48 x 8: 48 * 3 columns in bf16 and 48 * 8 in fp32.

    The next token needs 3 of the 4 columns of a convolution. transformers keeps all 4, but for
    RG-LRU.
    """
    workload = Workload.decode(3, 100, dtype="bf16")
    models = {name: load(saved(model(name), tmp_path)) for name in RECURRENT}
    caches = {name: kv_cache(one, workload) for name, one in models.items()}
    assert int(caches["mamba"].total) == 3 * (48 * 3 * 2 + 48 * 8 * 4)
    assert int(caches["mamba2"].total) == 3 * ((48 + 2 * 2 * 16) * 3 * 2 + 48 * 16 * 4)
    assert int(caches["gdn"].total) == 3 * ((2 * 2 * 8 + 4 * 12) * 3 * 2 + 4 * 8 * 12 * 4)
    assert int(caches["rglru"].total) == 3 * (48 * 3 * 2 + 48 * 4)
    assert int(caches["rwkv"].total) == 3 * (2 * 32 * 2 + 3 * 32 * 4)
    assert int(caches["rwkv5"].total) == 3 * (2 * 32 * 2 + 32 * 8 * 4)
    assert int(caches["mlstm"].total) == 3 * 4 * (8 * 12 + 8 + 1) * 2
    assert {int(cache.per_token) for cache in caches.values()} == {0}
    stored = {
        name: int(kv_cache(one, workload, engine="transformers").total)
        for name, one in models.items()
    }
    assert stored["mamba"] == 3 * (48 * 4 * 2 + 48 * 8 * 4)
    assert stored["mamba2"] == 3 * ((48 + 2 * 2 * 16) * 4 * 2 + 48 * 16 * 4)
    assert stored["gdn"] == 3 * ((2 * 2 * 8 + 4 * 12) * 4 * 2 + 4 * 8 * 12 * 4)
    assert stored["rglru"] == int(caches["rglru"].total)


def test_rwkv_needs_d_inner_equal_to_d_model(tmp_path: Path) -> None:
    text = model("rwkv").replace("d_inner: 32", "d_inner: 48")
    with pytest.raises(AttncalcError, match=r"d_inner: 48 is not d_model 32"):
        load(saved(text, tmp_path))


def test_states_are_split_over_devices(tmp_path: Path) -> None:
    whole, split = (load(saved(model("rglru"), tmp_path)).shard(tp) for tp in (1, 2))
    workload = Workload.decode(1, 100, dtype="bf16")
    assert int(kv_cache(split, workload).total) * 2 == int(kv_cache(whole, workload).total)
    with pytest.raises(AttncalcError, match="does not divide 48 channels"):
        load(saved(model("rglru"), tmp_path)).shard(5)


def test_experts_and_router_with_their_own_input_width(tmp_path: Path) -> None:
    """2 matrices of 8 x 16 per expert and a router of 4 x 16 values, not of d_model's 32."""
    text = MHA.replace(
        "mlp: gated\n",
        "mlp: plain\nn_experts: 4\nn_experts_per_token: 2\nd_latent: 16\nd_router: 16\n",
    )
    layer = params(load(saved(text, tmp_path))).groups[0]
    assert int(layer.mlp) == 3 * (4 * 2 * 8 * 16 + 4 * 16)
    assert int(layer.mlp_active) == 3 * (2 * 2 * 8 * 16 + 4 * 16)


def test_memory_leaves_out_recurrent_layers(ask: Ask, tmp_path: Path) -> None:
    assert (
        "Mamba layers run no attention kernel"
        in ask("memory", saved(model("mamba"), tmp_path)).error
    )
    beside = ask("memory", saved(model("mamba", "wide"), tmp_path))
    assert "Mamba layers run no attention kernel: they are not counted here." in beside.out
    assert "token by token" not in beside.out


def test_a_recurrent_model_takes_one_sequential_step_per_token(ask: Ask, tmp_path: Path) -> None:
    answer = ask("flops", saved(model("mamba"), tmp_path), "-c", "48", "--full")
    rows = [line.split() for line in answer.out.splitlines()]
    assert next(row[-2:] for row in rows if row[:3] == ["this", "model's", "scores"]) == [
        "48",
        "48",
    ]
    assert "a recurrent state has a fixed size" in answer.out
    assert "MLP in this model" not in answer.out


@each("name", RECURRENT)
def test_flops_of_a_recurrence_grow_with_the_tokens(tmp_path: Path, name: str) -> None:
    spec = load(saved(model(name), tmp_path))
    tokens_64, tokens_128 = (flops(spec, Workload.prefill(1, n)) for n in (64, 128))
    assert (int(tokens_128.projections), int(tokens_128.scores)) == (
        2 * int(tokens_64.projections),
        2 * int(tokens_64.scores),
    )
