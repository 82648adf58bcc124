"""Attention to keys that an indexer picks, and to pools of keys: formulas against counting one by
one.
"""

import dataclasses
from typing import Any

import pytest

from attncalc import AttncalcError, Latent, Workload, flops, kv_cache
from attncalc.attention import KINDS, Matrix
from attncalc.attention.compressed import Compressed, WindowAndPools
from attncalc.attention.picked import Blocks, Pools, Selected
from attncalc.attention.span import Sliding, Span, pairs
from attncalc.model import Layers, ModelSpec, Stack
from attncalc.workload import CAUSAL, Run

D_MODEL = 32
GIVEN = {"n_heads": 4, "kv_lora_rank": 16, "d_nope": 6, "d_rope": 2, "d_v": 5, "q_lora_rank": 12}
INDEXER = {"index_topk": 8, "index_n_heads": 3, "index_head_dim": 10}


def latent(**keys: Any) -> Latent:
    kind = KINDS["latent"].from_keys({**GIVEN, **keys}, D_MODEL, Latent.span)
    assert isinstance(kind, Latent)
    return kind


def compressed(**keys: Any) -> Compressed:
    given = {"n_heads": 4, "d_head": 6, "q_lora_rank": 12, "o_groups": 2, "o_lora_rank": 5, **keys}
    return Compressed.from_keys(given, D_MODEL, Sliding(7))


def of(attention: Any) -> ModelSpec:
    layers = Layers("layers", 3, attention=attention)
    return ModelSpec("tiny", "tiny", (Stack("decoder", (layers,), D_MODEL),), dtype="bf16")


def seen(span: Span, n: int) -> int:
    """Return the keys that the n-th token attends to, without a closed form."""
    if isinstance(span, Selected):
        tail = n % span.pool if span.pool else 0
        return min(n - tail, span.topk) + tail
    if isinstance(span, Blocks):
        blocks = [min(span.block, n - start) for start in range(0, n, span.block)]
        return sum(blocks[-span.topk :])
    if isinstance(span, Pools):
        whole = len(range(span.size, n + 1, span.size))
        return whole if span.topk is None else min(whole, span.topk)
    assert isinstance(span, WindowAndPools)
    return min(n, span.window.reach or n) + seen(span.pools, n)


SPANS = [
    Selected(8),
    Selected(8, pool=4),
    Blocks(4, 3),
    Pools(4),
    Pools(4, 3),
    WindowAndPools(Sliding(7), Pools(4)),
    WindowAndPools(Sliding(7), Pools(4, 3)),
]


@pytest.mark.parametrize("span", SPANS, ids=str)
def test_pairs_equal_a_count_one_by_one(span: Span) -> None:
    total = 0
    for n in range(1, 60):
        total += seen(span, n)
        assert (span.visible_keys(n), span.causal_pairs(n)) == (seen(span, n), total)


@pytest.mark.parametrize("span", SPANS[:3], ids=str)
def test_a_cache_holds_all_tokens_that_can_be_picked(span: Span) -> None:
    assert span.cached_tokens(50) == 50
    assert span.reach is None


def test_an_indexer_scores_every_key_and_attention_only_the_picked_ones() -> None:
    plain, sparse = latent(), latent(**INDEXER)
    run = Run(1, 30, 30)
    every, picked = pairs(plain.span, run, CAUSAL), pairs(sparse.span, run, CAUSAL)
    assert (every, picked) == (465, sum(min(n, 8) for n in range(1, 31)))
    attention = 2 * 4 * (6 + 2 + 5)
    # each of 3 heads multiplies 10 elements, and is weighted
    indexer = 2 * 3 * (10 + 1)
    assert plain.score_flops(run, CAUSAL) == attention * every
    assert sparse.score_flops(run, CAUSAL) == attention * picked + indexer * every
    assert sparse.score_flops(run, None) == (attention + indexer) * 30 * 30


def test_a_decode_step_reads_only_the_picked_latents() -> None:
    absorbed = 2 * 4 * (2 * 16 + 2)
    assert latent(**INDEXER).score_flops(Run(1, 1, 30), CAUSAL) == absorbed * 8 + 2 * 3 * 11 * 30


def test_pools_are_scored_once_for_all_their_tokens() -> None:
    kind = latent(**INDEXER, index_kpool=4)
    scored = sum(n // 4 for n in range(1, 31))
    picked = sum(min(n - n % 4, 8) + n % 4 for n in range(1, 31))
    assert kind.score_flops(Run(1, 30, 30), CAUSAL) == 2 * 4 * 13 * picked + 2 * 3 * 11 * scored
    assert kind.score_flops(Run(1, 30, 30), None) == 2 * 4 * 13 * 900 + 2 * 3 * 11 * 30 * (30 // 4)


def elements(kind: Latent) -> dict[str, int]:
    return {m.name: m.params for m in kind.matrices(D_MODEL, D_MODEL)}


def test_the_indexers_parameters() -> None:
    indexer = {
        name: n for name, n in elements(latent(**INDEXER)).items() if name.startswith("index")
    }
    assert indexer == {
        "index_W_q": 12 * 3 * 10,
        "index_W_k": 32 * 10,
        "index_k_norm": 2 * 10,
        "index_W_weights": 32 * 3,
    }
    assert elements(latent(**INDEXER, q_lora_rank=None))["index_W_q"] == 32 * 3 * 10
    pooled = elements(latent(**INDEXER, index_kpool=4))
    assert (pooled["index_W_pool"], pooled["index_pool_positions"]) == (32 * 10, 4 * 10)
    assert not any(name.startswith("index") for name in elements(latent(index_topk=8)))


def cached(kind: Any, tokens: int = 30, engine: str = "ideal") -> int:
    """Bytes of the cache of one sequence in three layers, in bf16."""
    return int(kv_cache(of(kind), Workload.decode(1, tokens), engine=engine).total)


@pytest.mark.parametrize("engine", ["ideal", "transformers"])
def test_the_indexers_keys_are_cached_beside_the_latents(engine: str) -> None:
    assert cached(latent(**INDEXER), engine=engine) == 3 * 30 * 2 * (16 + 2 + 10)
    assert cached(latent(**INDEXER, index_dtype="fp32"), engine=engine) == 3 * 30 * (
        2 * 18 + 4 * 10
    )
    assert cached(latent(**INDEXER, index_kpool=4), engine=engine) == 3 * 30 * 2 * (18 + 21)
    assert cached(latent(index_topk=8), engine=engine) == 3 * 30 * 2 * 18
    assert cached(latent(**INDEXER, shares_kv=True), engine=engine) == 3 * 30 * 2 * 10


def test_a_layer_that_shares_latents_has_no_w_kv_a() -> None:
    lost = elements(latent()).items() - elements(latent(shares_kv=True)).items()
    assert lost == {("W_kv_a", 32 * 18), ("kv_a_norm", 16)}


@pytest.mark.parametrize(("gate", "width"), [(True, 4 * 5), ("head", 4)])
def test_a_gate_has_the_outputs_width_or_one_value_per_head(gate: object, width: int) -> None:
    assert elements(latent(gate=gate))["W_gate"] == 32 * width


@pytest.mark.parametrize(
    ("keys", "wrong"),
    [
        ({"index_topk": 8, "index_n_heads": 3}, "index_n_heads"),
        ({"index_topk": 8, "index_dtype": "fp32"}, "index_n_heads"),
        ({"index_n_heads": 3, "index_head_dim": 10}, "index_topk"),
        ({"index_kpool": 4}, "index_topk"),
        ({**INDEXER, "index_kpool": 3}, "index_kpool"),
    ],
    ids=str,
)
def test_an_incomplete_indexer_is_an_error(keys: dict[str, Any], wrong: str) -> None:
    with pytest.raises(AttncalcError, match=f"^{wrong}: "):
        latent(**keys)


def test_a_window_with_an_indexer_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="index_topk"):
        KINDS["latent"].from_keys({**GIVEN, **INDEXER}, D_MODEL, Sliding(4))


BLOCK_SPARSE = {
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_head": 6,
    "index_n_heads": 3,
    "index_head_dim": 10,
    "index_block_size": 4,
    "index_topk_blocks": 2,
}


def test_block_sparse_flops_cache_and_parameters() -> None:
    kind = KINDS["block_sparse"].from_keys(BLOCK_SPARSE, D_MODEL, Latent.span)
    picked = sum(seen(Blocks(4, 2), n) for n in range(1, 31))
    assert kind.score_flops(Run(1, 30, 30), CAUSAL) == 2 * 4 * 12 * picked + 2 * 3 * 10 * 465
    assert kind.score_flops(Run(1, 30, 30), None) == (2 * 4 * 12 + 2 * 3 * 10) * 900
    assert cached(kind) == cached(kind, engine="transformers") == 3 * 30 * 2 * (2 * 2 * 6 + 10)
    indexer_params = sum(
        m.params for m in kind.matrices(D_MODEL, D_MODEL) if m.name.startswith("index")
    )
    assert indexer_params == 32 * 3 * 10 + 32 * 10 + 2 * 10
    averaged = KINDS["block_sparse"].from_keys(
        {**BLOCK_SPARSE, "index_averages": True}, D_MODEL, Latent.span
    )
    # whole blocks are scored by their average; the tokens after the last one are seen beside the
    # two picked blocks
    scored, seen_tokens = (
        sum(n // 4 for n in range(1, 31)),
        sum(min(n - n % 4, 8) + n % 4 for n in range(1, 31)),
    )
    assert (
        averaged.score_flops(Run(1, 30, 30), CAUSAL)
        == 2 * 4 * 12 * seen_tokens + 2 * 3 * 10 * scored
    )
    assert cached(averaged) == cached(kind)
    with pytest.raises(AttncalcError, match="index_block_size"):
        KINDS["block_sparse"].from_keys(BLOCK_SPARSE, D_MODEL, Sliding(4))


POOLS = {"compress_rate": 4}
PICKED_POOLS = {**POOLS, "index_topk": 3, "index_n_heads": 3, "index_head_dim": 10}


@pytest.mark.parametrize(
    ("keys", "least"), [({}, 0), (POOLS, 99), (PICKED_POOLS, 3)], ids=["window", "pools", "picked"]
)
def test_scores_of_a_window_and_pools(keys: dict[str, int], least: int) -> None:
    kind, run = compressed(**keys), Run(1, 30, 30)
    window = sum(min(n, 7) for n in range(1, 31))
    pools = sum(min(n // 4, least) for n in range(1, 31))
    indexer_flops = 2 * 3 * 10 if least == 3 else 0
    assert kind.score_flops(run, CAUSAL) == 2 * 4 * 12 * (window + pools) + indexer_flops * sum(
        n // 4 for n in range(1, 31)
    )
    dense = 30 * (30 // 4) if keys else 0
    assert kind.score_flops(run, None) == 2 * 4 * 12 * (900 + dense) + indexer_flops * dense


def test_the_cache_of_a_window_and_pools() -> None:
    """7 pools of 4 tokens, and 2 of which 2 vectors wait; with an indexer 4, and those of the last
    pool again.
    """
    assert cached(compressed()) == 3 * 2 * 7 * 6
    assert cached(compressed(), engine="transformers") == 3 * 2 * 6 * 6 * 2  # as K and as V
    assert cached(compressed(**POOLS)) == 3 * 2 * 6 * (7 + 7 + 2 * 2)
    both = 6 * (7 + 7 + 2 * 4 + 4 * 2) + 10 * (7 + 2 * 4 + 4 * 2)
    assert cached(compressed(**PICKED_POOLS)) == 3 * 2 * both
    assert cached(compressed(**PICKED_POOLS), tokens=3) == 3 * 2 * (6 * (3 + 3 * 4) + 10 * 3 * 4)


def test_the_parameters_of_a_window_and_pools() -> None:
    def of_parts(*prefixes: str, **keys: int) -> int:
        matrices: tuple[Matrix, ...] = compressed(**keys).matrices(D_MODEL, D_MODEL)
        return sum(m.params for m in matrices if m.name.startswith(prefixes))

    plain = 32 * 12 + 12 + 12 * 24 + 32 * 6 + 6 + 12 * 10 + 10 * 32 + 4
    assert of_parts("") == plain
    assert of_parts("pool", **POOLS) == 2 * 32 * 6 + 4 * 6 + 6
    # with an indexer, pools overlap: two parts
    assert of_parts("pool", **PICKED_POOLS) == 2 * 32 * 12 + 4 * 12 + 6
    assert of_parts("index", **PICKED_POOLS) == 2 * 32 * 20 + 4 * 20 + 10 + 12 * 30 + 32 * 3


def test_heads_are_split_and_indexers_are_replicated() -> None:
    whole, half = latent(**INDEXER, gate=True), latent(**INDEXER, gate=True).shard(2)
    assert dataclasses.replace(half, n_heads=4) == whole
    assert elements(half)["W_gate"] * 2 == elements(whole)["W_gate"]
    assert compressed(**POOLS).shard(2).o_groups == 1
    with pytest.raises(AttncalcError, match="groups"):
        compressed(**POOLS).shard(4)


def test_the_formula_names_index_topk() -> None:
    model_flops = flops(of(latent(**INDEXER)), Workload.prefill(1, 30))
    assert "index_topk" in model_flops.scores.formula.text
    assert int(model_flops.scores) == 3 * latent(**INDEXER).score_flops(Run(1, 30, 30), CAUSAL)


def test_the_formula_of_mlas_decode_step_has_no_minimum() -> None:
    """One query is always absorbed; several after a past take the cheaper of absorbed and
    expanded.
    """
    one = flops(of(latent()), Workload.decode(1, 30)).scores.formula.text
    several = flops(of(latent()), Workload.prefill(1, 30, past=7)).scores.formula.text
    assert ("min(" in one, "min(" in several) == (False, True)
