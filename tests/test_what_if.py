"""A model with other sizes: --layers, --heads, --kv-heads, --head-dim, --window and --pattern."""

from typing import Any

import pytest
from asking import Ask, of_questions, results
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, compare, kv_cache, load, params, sweep
from attncalc.what_if import parse_pattern, what_if


@each(
    ("options", "cache"),
    [
        ({}, 32 * 2 * 8 * 128 * 2 * 8192),  # L * 2 * n_kv_heads * d_head * bytes * T
        ({"kv_heads": 4}, 32 * 2 * 4 * 128 * 2 * 8192),
        ({"layers": 16}, 16 * 2 * 8 * 128 * 2 * 8192),
        ({"layers": 40}, 40 * 2 * 8 * 128 * 2 * 8192),
        ({"head_dim": 64}, 32 * 2 * 8 * 64 * 2 * 8192),
        ({"heads": 16}, 32 * 2 * 8 * 128 * 2 * 8192),  # query heads are not cached
        ({"window": 1024}, 32 * 2 * 8 * 128 * 2 * 1024),
        # of each 4 layers 3 keep 1,024 tokens
        (
            {"window": 1024, "pattern": "3 local, 1 global"},
            2 * 8 * 128 * 2 * (24 * 1024 + 8 * 8192),
        ),
        (
            {"window": "1K", "pattern": "local, global", "layers": 3},
            2 * 8 * 128 * 2 * (2 * 1024 + 8192),
        ),
        ({"attention": "mqa", "layers": 2}, 2 * 2 * 1 * 128 * 2 * 8192),
    ],
)
def test_a_size_changes_the_cache_of_llama_3_1_8b(options: dict[str, Any], cache: int) -> None:
    assert int(kv_cache("llama3.1-8b", context=8192, **options).total) == cache


SIZES_OF_LLAMA_3_8B = ("--layers", 32, "--heads", 32, "--kv-heads", 8, "--d-model", 4096)


def test_sizes_alone_have_the_parameters_of_llama_3_8b(ask: Ask) -> None:
    words = map(str, (*SIZES_OF_LLAMA_3_8B, "--d-ff", 14336, "--vocab-size", 128256))
    answer = ask("params", *words, "--json")
    assert results(answer)["params_total"] == int(params("llama3-8b").total) == 8_030_261_248


def test_sizes_alone_have_the_parameters_of_mixtral(ask: Ask) -> None:
    # arXiv:2401.04088: 47B parameters, of which 13B are active
    words = map(str, (*SIZES_OF_LLAMA_3_8B, "--d-ff", 14336, "--vocab-size", 32000, "--experts", 8))
    answer = ask("params", *words, "--json")
    found = params("mixtral-8x7b")
    assert results(answer)["params_total"] == int(found.total) == 46_702_792_704
    assert results(answer)["params_active"] == int(found.active) == 12_879_925_248


def test_other_widths_change_a_model() -> None:
    # d_model 768 to 1024 and d_ff to 4096, 12 layers: 4 d^2 + 4 d and 2 d d_ff + d_ff + d each, and
    # 2 norms of 2 d
    d, d_ff, vocabulary, positions = 1024, 4096, 1000, 1024
    layer = (4 * d * d + 4 * d) + (2 * d * d_ff + d_ff + d) + 2 * 2 * d
    total = 12 * layer + 2 * d + (vocabulary + positions) * d  # a last norm, and both tables
    assert int(params("gpt2", d_model=d, heads=16, d_ff=d_ff, vocab_size=vocabulary).total) == total


@each(
    ("size", "total"),
    [
        # parameters of GPT-2's checkpoints on the Hub; d_ff is 4 d_model in each
        ({"layers": 24, "heads": 16, "d_model": 1024}, 354_823_168),
        ({"layers": 48, "heads": 25, "d_model": 1600}, 1_557_611_200),
    ],
)
def test_another_width_scales_d_ff(size: dict[str, Any], total: int) -> None:
    assert int(params("gpt2", **size).total) == total


def test_other_experts_change_a_mixture() -> None:
    # Mixtral 8x7B, 32 layers: 8 more experts of 3 * 4096 * 14336, and 8 more columns of the router
    before, after = params("mixtral-8x7b"), params("mixtral-8x7b", experts=16, experts_per_token=4)
    expert, router = 3 * 4096 * 14336, 4096
    assert int(after.total) - int(before.total) == 32 * 8 * (expert + router)
    assert int(after.active) - int(before.active) == 32 * (2 * expert + 8 * router)


def test_a_scaled_d_ff_is_said(ask: Ask) -> None:
    assert (
        "ASSUMED: d_ff 6,400, as many times d_model" in ask("kv", "gpt2", "--d-model", "1600").out
    )


@each(
    ("words", "says"),
    [
        ("kv --heads 4", "needs --layers"),
        ("kv --layers 4 --head-dim 64", "needs --heads"),
        ("kv --layers 4 --kv-heads 4", "needs --head-dim or --d-model"),
        ("fit --layers 4 --gpu h100", "needs --heads"),
        ("kv bert-base --vocab-size 100 --d-ff 0", "--d-ff"),
        ("params gpt2 --experts 4", "--experts: this model has no experts"),
        ("params mixtral-8x7b --experts-per-token 9", "9 is more than the 8 experts"),
        (
            "params gemma3-4b --d-model 100",
            "--d-model: this model has further matrices of its width",
        ),
    ],
)
def test_sizes_that_describe_no_model_are_an_error(words: str, says: str, ask: Ask) -> None:
    assert says in ask(*words.split()).error


def test_a_model_of_sizes_alone_says_what_is_assumed(ask: Ask) -> None:
    answer = ask("kv", "--layers", "2", "--kv-heads", "4", "--head-dim", "8", "-c", "16")
    assert "ASSUMED: RMSNorm, no biases; d_model 32 (heads x head_dim)" in answer.out
    assert f"{2 * 2 * 4 * 8 * 2 * 16:,} B" in answer.out  # L * 2 * n_kv_heads * d_head * bytes * T


def test_an_untied_head_is_a_second_matrix_of_the_vocabulary(ask: Ask) -> None:
    tied, untied = (int(params("gpt2", tie_word_embeddings=tied).total) for tied in (True, False))
    assert (tied, untied - tied) == (124_439_808, 50257 * 768)
    sizes = ("params", *map(str, SIZES_OF_LLAMA_3_8B), "--vocab-size", "100")
    assert "(--tie-word-embeddings)" in ask(*sizes).out
    assert "(--tie-word-embeddings)" not in ask(*sizes, "--tie-word-embeddings").out
    assert "this model has no lm head" in ask(*sizes[:-2], "--tie-word-embeddings").error


def test_mha_stays_mha_with_other_heads() -> None:
    assert load("llama2-7b").main.leading.label == "MHA"
    assert what_if(load("llama2-7b"), heads=16).main.leading.label == "MHA"


def test_further_layers_continue_the_order() -> None:
    # Gemma 3: of each 6 layers the last is global, and 62 layers end with 2 local ones
    longer = what_if(load("gemma3-27b"), layers=72).main.layers
    spans = [group.attention.span.label for group in longer for _ in range(group.count)]
    assert [i for i, span in enumerate(spans) if span == "full"] == list(range(5, 72, 6))
    # DeepSeek-V3: 3 dense layers, then mixtures of experts
    mixtures = [
        group
        for group in what_if(load("deepseek-v3"), layers=70).main.layers
        if group.mlp and group.mlp.n_experts
    ]
    assert sum(group.count for group in mixtures) == 70 - 3


@given(layers=st.integers(1, 300))
def test_the_parameters_of_equal_layers_are_linear_in_their_number(layers: int) -> None:
    one, two = (int(params("llama3.1-8b", layers=n).total) for n in (1, 2))
    assert int(params("llama3.1-8b", layers=layers).total) == one + (layers - 1) * (two - one)


def test_a_sweep_and_the_command_agree(ask: Ask) -> None:
    rows = sweep(
        "llama3.1-8b", layers="8,16", window=[512, 1024], context=4096, pattern="1 local, 1 global"
    )
    for row in rows:
        words = [
            "--layers",
            str(row["layers"]),
            "--window",
            str(row["window"]),
            "--pattern",
            "1 local, 1 global",
        ]
        assert (
            row["kv_cache"]
            == results(ask("kv", "llama3.1-8b", "-c", "4096", *words, "--json"))["kv_cache"]
        )


@each(
    ("options", "message"),
    [
        ({"kv_heads": 5}, "kv_heads: 5 does not divide the 32 query heads"),
        ({"heads": 30}, "heads: the 8 KV heads do not divide 30"),
        ({"attention": "gqa:5"}, "gqa:5: 5 does not divide the 32 query heads"),
        ({"layers": 2001}, "layers=2001 is more than 2,000"),
        ({"pattern": "1 local"}, "pattern needs window"),
        ({"pattern": "1 round"}, "'1 round' is no kind of layer"),
        ({"pattern": "3000 local"}, "more than 2,000 layers"),
        ({"pattern": ""}, "'' is no kind of layer"),
        ({"pattern": "linear:0"}, "'linear:0' has no layer"),
        ({"pattern": "5:1"}, "write '5 local, 1 global' for windows, or '5 linear, 1 global'"),
        ({"pattern": "0:0"}, "'0:0' has no layer"),
        ({"pattern": "LLLF"}, "write '3 local, 1 global' for windows"),
        ({"heads": 0}, "heads: "),
        ({"pattern": "2 linear:3"}, "'2 linear:3' is no kind of layer"),
    ],
)
def test_a_size_that_is_not_possible_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AttncalcError, match=message):
        kv_cache("llama3.1-8b", **options)


def test_heads_need_attention_with_heads() -> None:
    with pytest.raises(AttncalcError, match="MLA has no such heads"):
        kv_cache("deepseek-v3", kv_heads=4)


@pytest.mark.parametrize("attention", ["mha", "gqa:8", "MQA"])
def test_a_kind_with_a_number_of_kv_heads_refuses_another(attention: str) -> None:
    with pytest.raises(AttncalcError, match="which has a number of KV heads") as refused:
        kv_cache("llama3.1-8b", attention=attention, kv_heads=4)
    assert "gqa:4" in str(refused.value)


def test_latent_attention_takes_the_heads_of_the_attention_that_it_replaces() -> None:
    # 2 bytes * (512 + 64) of each token, as DeepSeek-V3 has with 128 heads, too
    sizes: dict[str, Any] = {"layers": 60, "heads": 128, "head_dim": 128}
    assert kv_cache("llama3.1-8b", attention="mla:512", **sizes, context=1).total == 60 * 1152
    with pytest.raises(AttncalcError, match="kv_heads: MLA has no such heads"):
        kv_cache("llama3.1-8b", attention="mla:512", kv_heads=4)


def test_a_window_replaces_those_of_the_local_layers_only() -> None:
    # Gemma 3 27B: 52 local and 10 global layers of 16 KV heads x 128, K and V in bf16
    changed = kv_cache("gemma3-27b", context=131072, window=8192)
    assert int(changed.total) == 2 * 16 * 128 * 2 * (52 * 8192 + 10 * 131072)


def test_a_comparison_has_a_model_with_and_without_other_sizes() -> None:
    """2 of 8 KV heads: a quarter of the cache, and 6 heads fewer in W_k and W_v of 4,096 x 128 in
    32 layers.
    """
    released, changed = compare("llama3.1-8b", kv_heads=2, context=4096).rows
    assert (released["name"], changed["name"]) == ("llama3.1-8b", "--kv-heads 2")
    assert released["kv_cache"] == 4 * changed["kv_cache"]
    assert released["params_total"] - changed["params_total"] == 32 * 2 * 6 * 4096 * 128
    with pytest.raises(AttncalcError, match="kv_heads takes one model, not 2"):
        compare("llama3.1-8b", "gpt2", kv_heads=2)
    with pytest.raises(AttncalcError, match="attention cannot be combined with kv_heads"):
        compare("llama3.1-8b", attention="mla:512", kv_heads=2)


def test_a_model_without_windows_keeps_its_pattern_of_full_layers() -> None:
    assert parse_pattern("2 sliding, full", "--pattern") == ("local", "local", "global")
    model = load("llama3.1-8b")
    assert what_if(model, pattern=("global",)).main == model.main


def test_a_pattern_may_give_layers_another_attention() -> None:
    # of 32 layers 8 keep their cache: 8 * 2 * 8 heads * 128 * 2 B per token; 24 have states
    hybrid = kv_cache("llama3.1-8b", pattern="3 linear, 1 global", context=4096)
    assert hybrid.per_token == 8 * 2 * 8 * 128 * 2
    for same in (
        "linear:3,full:1",
        "3x linear_attention, full_attention",
        "linear:1,linear:2,swa:0,full",
    ):
        assert kv_cache("llama3.1-8b", pattern=same, context=4096).total == hybrid.total
    # 24 layers with a latent of 512 and a rotary key of half a head's 128
    latent = kv_cache("llama3.1-8b", pattern="3 mla:512, 1 gqa:4", context=1)
    assert latent.total == 24 * (512 + 64) * 2 + 8 * 2 * 4 * 128 * 2


@each(
    "command",
    of_questions(
        [
            "fit --layers 32 --heads 32 --head-dim 128 --gpu h100 -c 4K",
            "plan --layers 32 --heads 32 --head-dim 128 --gpu h100 --users 9 --prompt 1K "
            "--output-len 100",
            "fit llama3.1-8b --layers 3 --gpu h100 -c 4K",
            "plan llama3.1-8b --layers 3 --gpu h100 --users 9 --prompt 1K --output-len 100",
        ]
    ),
)
def test_a_model_that_no_engine_could_load_has_no_name_in_the_command(
    ask: Ask, command: str
) -> None:
    out = ask(*command.split()).out
    assert "vllm serve MODEL --max-model-len" in out
    assert (
        "Llama 3.1 8B with --layers 3" if "llama3.1-8b" in command else "A model of these sizes"
    ) in out


@each(
    "model",
    [
        "transformer-base",
        "t5-small",
        "whisper-tiny",
        "bart-base",
        "llama2-70b",
        "qwen3-next-80b-a3b",
    ],
)
@each(("kv_heads", "attention"), [(1, "mqa"), (2, "gqa:2")])
def test_kv_heads_are_those_of_another_attention(model: str, kv_heads: int, attention: str) -> None:
    """In an encoder-decoder: of the encoder, of the decoder, and of cross-attention."""
    sizes: list[dict[str, Any]] = [{"kv_heads": kv_heads}, {"attention": attention}]
    parameters = [params(model, **size).to_dict() for size in sizes]
    caches = [int(kv_cache(model, context=64, **size).total) for size in sizes]
    assert parameters[0] == parameters[1]
    assert caches[0] == caches[1]


def test_heads_layers_and_widths_change_encoder_and_decoder() -> None:
    # d_model 512, heads of 64: W_q and W_o have 2 * 512 * 16 * 64, W_k and W_v as many.
    # 12 layers of the encoder have one attention, 12 of the decoder two. Matrices of an MLP have
    # 512 * 100.
    changed = params("transformer-base", heads=16, layers=12, d_ff=100)
    attention, mlp = 4 * 512 * 16 * 64, 2 * 512 * 100 + 512 + 100
    assert int(changed.attention) == (12 + 12 * 2) * attention
    assert int(changed.mlp) == (12 + 12) * mlp


def test_a_window_changes_encoder_and_decoder() -> None:
    model = what_if(load("t5-small"), window=32)
    assert [group.attention.span.reach for _, group in model.groups()] == [32, 32]


def test_a_window_beside_pools_is_that_of_tokens() -> None:
    """All layers of DeepSeek-V4 have a window, and most of them pools beside it."""
    model = what_if(load("deepseek-v4-flash"), window=512)
    windows = {
        spec.span.reach for _, group in model.groups() for spec in group.attention.cache()[:1]
    }
    assert windows == {512}


@each("model", ["deepseek-v3.2", "glm-5", "minimax-m3"])
def test_an_indexer_picks_keys_of_the_whole_context(model: str) -> None:
    released = load(model)
    with pytest.raises(AttncalcError, match="--window: this model has an indexer"):
        what_if(released, window=512)
    with pytest.raises(AttncalcError, match="--window: this model has an indexer"):
        what_if(released, window=512, pattern=parse_pattern("1 local, 1 global", "--pattern"))
    mixed = what_if(released, pattern=parse_pattern("1 linear, 1 global", "--pattern"))
    kept = {group.attention.span for _, group in mixed.groups()} & {
        g.attention.span for _, g in released.groups()
    }
    assert any(
        span.reach is None and span.label.startswith(("top", "blocks", "block")) for span in kept
    )


def test_the_screen_says_what_other_heads_keep(ask: Ask) -> None:
    changed = ask("kv", "gpt2", "--heads", "6").out
    assert "--heads 6: each head keeps its width of 64; --head-dim sets it." in changed
    assert "keeps its width" not in ask("kv", "gpt2", "--heads", "6", "--head-dim", "128").out
    # 768 / 6 = 128
    bare = ask("kv", "--layers", "12", "--heads", "6", "--d-model", "768").out
    assert "heads of 128 (--d-model / --heads)" in " ".join(bare.split())


def test_a_preset_has_its_former_name_too() -> None:
    assert load("transformer-large") == load("transformer-big")
