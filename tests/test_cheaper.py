"""From which context one model is cheaper than another."""

import pytest
from asking import Ask
from tables import each

from attncalc import ModelSpec, Workload, flops, kv_cache, load
from attncalc.cost.cheaper import cheaper


def both(one: str, other: str) -> list[ModelSpec]:
    return [load(one), load(other)]


def sign_at(models: list[ModelSpec], figure: str, context: int) -> int:
    """Return the sign of the difference at one context, computed on its own."""
    step = Workload.decode(2, context)
    one, other = (
        int(kv_cache(model, step).total if figure == "kv_cache" else flops(model, step).total)
        for model in models
    )
    return (one > other) - (one < other)


PAIRS = (
    ("gemma3-27b", "llama2-70b"),
    ("mistral-7b-v0.1", "llama3.1-8b"),
    ("gpt2", "qwen3-next-80b-a3b"),
    ("deepseek-v3.2", "llama3.1-405b"),
    ("llama4-scout", "gemma2-27b"),
    ("deepseek-v4-flash", "llama3.1-8b"),
    ("qwen3-8b", "qwen3-8b"),
)


@each(("one", "other"), PAIRS)
def test_the_ranges_are_those_of_a_scan(one: str, other: str) -> None:
    models, limit = both(one, other), 2500
    for found in cheaper(models, [Workload.decode(2, 1)] * 2, limit):
        ends = [context for context, _ in found.ranges[1:]] + [limit + 1]
        expected = {
            context: sign
            for (first, sign), end in zip(found.ranges, ends, strict=True)
            for context in range(first, end, found.step)
        }
        some = [
            n
            for n in expected
            if n < 20 or n % 97 == 0 or any(abs(n - end) <= found.step for end in ends)
        ]
        assert [expected[n] for n in some] == [sign_at(models, found.figure, n) for n in some], (
            found
        )


@each(("one", "other"), PAIRS)
def test_long_contexts_have_the_sign_of_their_range(one: str, other: str) -> None:
    models = both(one, other)
    for found in cheaper(models, [Workload.decode(2, 1)] * 2, 10**6):
        for context in (8192, 5 * 8192, 100 * 8192):
            sign = [sign for first, sign in found.ranges if first <= context][-1]
            assert sign_at(models, found.figure, context) == sign, (found, context)


def test_an_encoder_has_no_crossover() -> None:
    assert cheaper(both("bert-base", "gpt2"), [Workload.decode(1, 1)] * 2, 512) == []


def test_the_screen_and_json_name_the_first_context(ask: Ask) -> None:
    # 327,680 B per token, against 10 layers of 8,192 B per token and 52 of 1,024 tokens:
    # 327,680 T > 81,920 T + 52 * 1,024 * 8,192 from T = 436,207,616 / 245,760 = 1,774.9
    models = ("llama2-70b", "gemma3-27b", "-c", "4096")
    note = "gemma3-27b against llama2-70b: its KV cache is smaller from a context of 1,775."
    assert note in ask("compare", *models).out.splitlines()
    kv, _ = ask("compare", *models, "--json").document["crossovers"]
    assert kv["ranges"] == [
        {"context": 1, "cheaper": "llama2-70b"},
        {"context": 1775, "cheaper": "gemma3-27b"},
    ]
    assert kv["limit"] == 4096


@pytest.mark.parametrize(("contexts", "limit"), [("1K", 32_768), ("64K", 65_536)])
def test_the_limit_is_the_shorter_maximum_or_the_context_asked_for(
    ask: Ask, contexts: str, limit: int
) -> None:
    answer = ask("compare", "mistral-7b-v0.1", "llama3.1-8b", "-c", contexts, "--json").document
    assert {found["limit"] for found in answer["crossovers"]} == {limit}


def test_a_kind_that_is_named_is_compared_with_the_released_one(ask: Ask) -> None:
    # a layer's states: 12 heads of 64 x 64 and 3 tokens of 3 * 768, as many values as 36.5 tokens
    # of 2 * 768
    found = ask("compare", "gpt2", "linear", "--json").document["crossovers"]
    assert found[0]["ranges"][-1] == {"context": 37, "cheaper": "linear"}
    assert (12 * 64 * 64 + 3 * 3 * 768) / (2 * 768) == 36.5
    of_step = next(one["context"] for one in found[1]["ranges"] if one["cheaper"] == "linear")
    linear = load("gpt2").with_attention("linear")
    assert [sign_at([load("gpt2"), linear], "flops_decode", of_step - i) for i in (0, 2)] == [1, -1]


def test_a_model_that_is_cheaper_at_every_context_has_no_sentence_above_the_table(ask: Ask) -> None:
    answer = ask("compare", "llama2-70b", "gpt2", "--json").document
    assert [one["ranges"][1:] for one in answer["crossovers"]] == [[], []]
    assert "gpt2 against llama2-70b" not in ask("compare", "llama2-70b", "gpt2").out


def test_one_model_has_no_crossovers(ask: Ask) -> None:
    assert ask("compare", "gpt2", "--json").document["crossovers"] == []


def test_the_screen_defines_flop_per_byte_and_has_no_second_ratio(ask: Ask) -> None:
    for models in (("gpt2",), ("gpt2", "llama2-70b")):
        screen = " ".join(ask("compare", *models).out.split())
        assert "decode FLOP/byte: the FLOPs of a decode step, divided by the bytes of" in screen
        assert "score FLOP" not in screen
