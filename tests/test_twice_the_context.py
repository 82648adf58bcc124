"""`kv` and `memory` show what twice the context takes."""

from asking import Ask


def test_a_cache_that_just_doubles_has_no_line_of_twice_the_context(ask: Ask) -> None:
    assert "twice the context" not in ask("kv", "llama3-8b", "-c", "8192").out
    # 12 layers x 2 tensors x 768 x 4 B: 512 tokens of the target, then 1,024, and 512 of the
    # source: (1,024 + 512) / (512 + 512) = 1.5
    assert "twice the context 108 MiB 1.5 x as much" in " ".join(ask("kv", "t5-base").out.split())


def test_kv_names_the_context_at_which_the_cache_is_as_large_as_the_weights(ask: Ask) -> None:
    # 124,439,808 parameters x 4 B / (2 tensors x 12 layers x 768 x 4 B) = 6,751.3 tokens; in 8
    # sequences 843.9
    for batch, context in ((1, "6,752"), (8, "844")):
        shown = " ".join(ask("kv", "gpt2", "-b", batch).out.split())
        assert shown.endswith(
            f"weights in fp32, as released 474.70 MiB the cache at context {context}"
        )
    # every layer has a window
    assert "the cache at context" not in ask("kv", "mistral-7b-v0.1").out


def test_windows_that_are_full_do_not_grow(ask: Ask) -> None:
    # a window of 4,096 tokens in all layers: 2 x 32 x 8 x 128 x 2 B x 4,096 tokens
    line = next(
        line
        for line in ask("kv", "mistral-7b-v0.1", "-c", "8192").out.splitlines()
        if "twice" in line
    )
    assert line.split() == ["twice", "the", "context", "512", "MiB", "1.0", "x", "as", "much"]


def test_a_score_matrix_quadruples_with_the_context(ask: Ask) -> None:
    # 32 heads x 16,384 x 16,384 scores in 2 B = 16 GiB
    assert (
        "  at twice the context  16.00 GiB    4.0 x as much\n"
        in ask("memory", "llama3-8b", "-c", "8192").out
    )


def test_an_encoder_without_a_cache_has_no_such_line(ask: Ask) -> None:
    assert "twice the context" not in ask("kv", "bert-base").out
