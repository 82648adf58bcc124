"""A word of 20,000 characters is one short error, wherever it is typed."""

import pytest
from asking import Ask, of_questions

MODEL = ("llama3.1-8b",)
KV, FIT = ("kv", *MODEL), ("fit", *MODEL, "--gpu", "h100")
PLAN, SWEEP = ("plan", *MODEL, "--gpu", "h100", "--users", "5"), ("sweep", *MODEL, "-c", "1k,2k")
DESKTOP = ("fit", *MODEL, "--gpu", "3090", "--engine", "llamacpp")
VLLM, LLAMACPP = (
    ("fit", "--gpu", "h100", "--"),
    ("fit", "--gpu", "3090", "--", "llama-server", "-m"),
)
# "9,999,..." is left out: it is a list of contexts or batches
WORDS = {
    "letters": "a" * 20_000,
    "digits": "1" * 20_000,
    "groups": "1" + "_000" * 5_000,
    "parentheses": "(" * 20_000,
    "colons": "x:y:z:" * 3_333,
    "hyphens": "a-b-c-" * 3_333,
    "slashes": "/" * 20_000,
    "products": "1x" * 10_000 + "1",
}
BEFORE = {
    "model of kv": ("kv",),
    "model of fit": ("fit", "--gpu", "h100"),
    "second model": ("compare", *MODEL),
    **{
        f"kv {name}": (*KV, name)
        for name in ("--context", "--batch", "--kv-dtype", "--attention", "--pattern")
    },
    **{
        f"kv {name}": (*KV, name)
        for name in ("--window", "--layers", "--fail-if", "--get", "-o", "--plot")
    },
    **{
        f"fit {name}": (*FIT, name)
        for name in ("--kv-memory", "--weights-dtype", "--ttft", "--tp", "--engine")
    },
    **{
        f"fit {name}": (*FIT, name)
        for name in ("--speculative-config", "--lora", "--engine-version", "--prompt")
    },
    **{f"plan {name}": (*PLAN, name) for name in ("--price", "--growth", "--lengths", "--rate")},
    **{f"sweep {name}": (*SWEEP, name) for name in ("--columns", "--where")},
    "fit --gpu": ("fit", *MODEL, "--gpu"),
    "fit --log": ("fit", "--log"),
    "fit --tensor-split": (*DESKTOP, "--tensor-split"),
    "fit -ot": (*DESKTOP, "-ot"),
    "vllm serve": (*VLLM, "vllm", "serve"),
    "program": VLLM,
    "vllm's context": (*VLLM, "vllm", "serve", *MODEL, "--max-model-len"),
    "vllm's tp": (*VLLM, "vllm", "serve", *MODEL, "-tp"),
    "llama-server's file": LLAMACPP,
    "llama-server's context": (*LLAMACPP, "qwen3-14b-q4_k_m.gguf", "-c"),
    "command": (),
}


# without lines of a question that is not here
BEFORE = {name: line for name, line in BEFORE.items() if not line or of_questions([line])}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_a_long_word_is_one_short_error(ask: Ask, before: tuple[str, ...]) -> None:
    for kind, word in WORDS.items():
        error = ask(*before, word).error  # a note about the model's file may come before it
        assert error.count("error: ") == 1, kind
        assert len(error.partition("\n  tip: ")[0]) < 400, kind
        assert "bug in attncalc" not in error, kind


@pytest.mark.parametrize("hyphens", ["-", "--"])
def test_a_long_option_is_one_short_error(ask: Ask, hyphens: str) -> None:
    for word in WORDS.values():
        error = ask(*KV, hyphens + word).error
        assert len(error.partition("\n  tip: ")[0]) < 400


def test_a_command_of_100_kilobytes_starts_no_engine(ask: Ask) -> None:
    """Linux passes no word of more than 128 KiB."""
    assert "starts no engine" in ask(*VLLM, "a" * 100_000).error
