"""Real engines that are installed: started, read, compared and stopped by `verify --engine`.

A start of vLLM takes a minute, and that of transformers ten seconds. CONTRIBUTING.md says how to install them.
"""

import pytest
from asking import NOT_TESTED, Ask
from schemas import check_answer

from attncalc.errors import CannotCheckError
from attncalc.verify.engines import STARTED, starter

RUNS = {
    "vllm": "qwen3-8b --layers 2 --d-model 256 --context 4K",
    "llamacpp": "qwen3-8b --context 8K",
    "sglang": "qwen3-8b --layers 2 --d-model 256 --context 4K",
    "transformers": "gemma3-1b --layers 6 --d-model 64 --vocab-size 100 --window 16",
}


def missing() -> list[str]:
    """Return the engines that are not installed."""
    found = []
    for engine in STARTED:
        try:
            starter(engine).find()
        except CannotCheckError:
            found.append(engine)
    return found


@pytest.mark.parametrize("engine", STARTED)
def test_a_real_engine_has_the_cache_that_fit_predicts(ask: Ask, engine: str) -> None:
    if engine in missing():
        pytest.skip(f"{NOT_TESTED}{engine}")
    answer = ask("verify", *RUNS[engine].split(), "--engine", engine, "--json")
    assert answer.code in (0, 1), answer.err
    checks = check_answer(answer.out)["checks"]
    of_cache = [check for check in checks if check["section"] == "cache"]
    assert of_cache
    assert [check["name"] for check in of_cache if not check["ok"]] == []
