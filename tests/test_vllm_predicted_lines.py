"""The lines that attncalc predicts of vLLM's log are read back: they agree with their own
prediction.
"""

from asking import Ask
from tables import each

from attncalc import fit

# Lengths that are no whole blocks, and models whose groups of layers have windows.
ASKED = [
    ("qwen3-8b", "h100", 1000),
    ("gpt-oss-20b", "h100", 32 * 1024),
    ("gemma3-270m", "mi300x", 4096),
    ("mistral-7b-v0.1", "b200", 32 * 1024),
]


@each(("model", "gpu", "context"), ASKED)
def test_the_predicted_lines_agree_with_their_own_prediction(
    ask: Ask, model: str, gpu: str, context: int
) -> None:
    lines = "\n".join(fit(model, gpu=gpu, context=context).pool.log_lines)
    answer = ask("fit", model, "-c", str(context), "--log", "-", "--json", stdin=lines)
    assert "GPU KV cache size" in lines
    assert answer.document["agrees"], answer.document["checks"]
    assert answer.code == 0
