"""Megatron's fused softmax: Korthikanti's activations with the options of the command line."""

from typing import Any

from asking import Ask
from tables import each

from attncalc import Grouped, Head, Layers, Mlp, ModelSpec, Stack, train

GIANTS = {
    # arXiv:2205.05198, table 3: layers, heads and width; 2,048 tokens, a vocabulary of 51,200
    "22B": (48, 64, 6144),
    "175B (GPT-3)": (96, 96, 12_288),
    "530B (MT-NLG)": (105, 128, 20_480),
    "1T": (128, 160, 25_600),
}


def gpt(layers: int, heads: int, width: int) -> ModelSpec:
    attention = Grouped(heads, heads, width // heads, bias=tuple("qkvo"))
    group = Layers("layers", layers, attention=attention, mlp=Mlp(4 * width, bias=True))
    stack = Stack("decoder", (group,), width, norm="layernorm")
    head = Head("lm", tied=True)
    return ModelSpec("gpt", "GPT", (stack,), vocab_size=51_200, head=head, dtype="bf16")


@each("name", GIANTS)
def test_activations_of_layers_are_those_of_korthikanti_within_0_1_percent(name: str) -> None:
    layers, a, h = GIANTS[name]
    s, t = 2048, 8
    options: Any = {"context": s, "dropout": True, "kernel": "eager-fused"}
    result = train(gpt(layers, a, h), tp=t, sequence_parallel=True, **options)
    parts = result.budget.activations
    of_layers = sum(int(parts[part]) for part in ("attention", "mlp", "norms"))
    # equation 4: s b h / t x (34 + 5 a s / h) per layer
    expected = layers * s * h / t * (34 + 5 * a * s / h)
    assert abs(of_layers / expected - 1) < 0.001


def test_transformers_eager_attention_keeps_178_where_the_paper_has_114() -> None:
    options: Any = {"context": 2048, "dropout": True, "tp": 8, "sequence_parallel": True}
    layers, heads, width = GIANTS["175B (GPT-3)"]
    per_sbh = []
    for kernel in ("eager-fused", "eager"):
        parts = train(gpt(layers, heads, width), kernel=kernel, **options).budget.activations
        of_layers = sum(int(parts[part]) for part in ("attention", "mlp", "norms"))
        per_sbh.append(round(of_layers / (layers * 2048 * width / 8)))
    # a s / h = 96 x 2,048 / 12,288 = 16: 34 + 5 x 16, and 34 + (4 + 2 + 1 + 2) x 16
    assert per_sbh == [114, 178]


@each(
    ("dropout", "scores"),
    # the gradient of the softmax is written over that of its output; dropout has one more, and the
    # tensors that are computed again: 2 bytes of probabilities; with dropout 1 of a mask, 2 after it
    [(False, 2 + 2), (True, 2 * 2 + 2 + 1 + 2)],
)
def test_the_gradient_of_the_fused_softmax_is_in_place(dropout: bool, scores: int) -> None:
    options: Any = {"context": 2048, "kernel": "eager-fused", "recompute": "selective"}
    if dropout:
        options["dropout"] = True
    budget = train(gpt(2, 16, 2048), **options).budget
    (moment,) = (
        m for m in budget.moments if m.name == "backward pass of the attention in the last layer"
    )
    temporary = sum(int(h.size) for h in moment.held if h.name == "temporary")
    # beside the scores the tensors that are saved after the kernel, which are computed again too
    pairs = 16 * 2048 * 2048
    assert temporary == scores * pairs


@each(
    ("words", "error"),
    [
        ("gpt2 --dtype fp32 --kernel eager-fused", "--kernel eager-fused cannot compute in fp32"),
        ("gpt-oss-20b --kernel eager-fused", "has neither sinks nor soft caps"),
        ("gemma2-9b --kernel eager-fused", "has neither sinks nor soft caps"),
    ],
)
def test_models_that_megatrons_softmax_cannot_compute_are_refused(
    ask: Ask, words: str, error: str
) -> None:
    assert error in ask("train", *words.split()).error


def test_a_note_says_what_eager_attention_keeps_per_score(ask: Ask) -> None:
    words = ["train", "llama3-8b", "--kernel", "eager", "-c", "1K", "--full"]
    assert "keeps 6 B per score" in " ".join(ask(*words).out.split())
    assert "keeps 9 B per score" in " ".join(ask(*words, "--dropout").out.split())
    assert "B per score" not in ask(*words, "--recompute", "full").out
    # GPT-2's softmax is in the dtype of the activations
    assert "B per score" not in ask("train", "gpt2", *words[2:]).out
