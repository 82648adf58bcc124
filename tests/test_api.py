"""The Python API: a few lines to get a figure."""

import dataclasses
import doctest
from typing import Annotated, Any, Union

import pytest
from asking import Ask, results
from tables import each

import attncalc
import attncalc.quantity
from attncalc import AttncalcError, FitRequest, Workload, fit, gpu, kv_cache, load
from attncalc.questions.arguments import without_metadata


def test_a_model_and_a_workload_give_a_figure() -> None:
    cache = kv_cache(load("llama2-70b"), Workload.decode(batch=8, context=4096))
    assert cache.total == 10_737_418_240
    assert cache.total.formula.text == "L * B * T * 2 * n_kv_heads * d_head * bytes"
    assert cache.total.formula.substituted == "80 * 8 * 4096 * 2 * 8 * 128 * 2"


class LikeUnionOf314:
    """Since Python 3.14 `int | str` has an `__origin__` itself, typing.Union, and no metadata."""

    __origin__ = Union
    __args__ = (int, str)


def test_only_annotated_options_are_unwrapped() -> None:
    union = LikeUnionOf314()
    assert without_metadata(union) is union
    assert without_metadata(int | str) == int | str
    assert without_metadata(Annotated[int | str, "a parser"]) == int | str
    assert without_metadata(bool) is bool


def test_a_workload_needs_a_context() -> None:
    with pytest.raises(AttncalcError, match="needs a context"):
        Workload.decode(batch=8)
    with pytest.raises(AttncalcError, match="context is 0, and must be at least 1"):
        Workload.prefill(context=0)


def test_every_public_name_can_be_imported() -> None:
    for name in attncalc.__all__:
        assert getattr(attncalc, name) is not None
        assert name in dir(attncalc)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'kv_cash'"):
        attncalc.kv_cash  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("module", [attncalc, attncalc.quantity])
def test_the_examples_in_docstrings_run(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted
    assert not result.failed


def test_every_public_name_is_documented() -> None:
    for name in attncalc.__all__:
        words = (getattr(attncalc, name).__doc__ or "").strip()
        assert words
        # what a dataclass or a named tuple without one gets
        assert not words.startswith(f"{name}(")


ENGINES = ["vllm", "sglang", "llamacpp", "transformers", "ideal"]


@each("engine", ENGINES)
@each("place", ["gpu", "kv_memory"])
def test_fit_answers_as_the_command_does(ask: Ask, engine: str, place: str) -> None:
    # Qwen3 is in bf16, where llama.cpp's own default is f16; 4 GPUs without --tp are split as the
    # engine does it
    given: dict[str, Any] = (
        {"gpu": gpu("h100-80gb"), "gpus": 4} if place == "gpu" else {"kv_memory": 8 * 2**30}
    )
    result = fit(
        FitRequest(load("qwen3-8b"), Workload.decode(batch=3, context=5000), engine, **given)
    )
    options = ["--gpu", "h100-80gb", "--gpus", "4"] if place == "gpu" else ["--kv-memory", "8GiB"]
    answer = ask("fit", "qwen3-8b", "-b", "3", "-c", "5000", "--engine", engine, *options, "--json")
    figures, document = results(answer), answer.document
    assert figures["kv_memory"] == result.budget.kv_memory
    assert figures["kv_tokens"] == result.pool.tokens
    assert figures["kv_needed"] == result.needed
    assert (document["fits"], document["tp"]) == (result.fits, result.resolved.args.tp)
    assert document["log_lines"] == list(result.log_lines)
    assert document["workload"]["kv_dtype"] == result.resolved.args.kv_dtype.name
    assert result.resolved.args.kv_dtype.name == ("fp16" if engine == "llamacpp" else "bf16")


def test_fit_without_a_memory_is_an_error() -> None:
    with pytest.raises(AttncalcError, match="gpu or kv_memory is required"):
        fit(FitRequest(load("gpt2"), Workload.decode(1, 100)))
    with pytest.raises(AttncalcError, match="reserve cannot be combined with kv_memory"):
        fit(FitRequest(load("gpt2"), Workload.decode(1, 100), kv_memory=2**30, reserve=2**20))


def test_users_of_a_request_with_traffic() -> None:
    import attncalc

    # vLLM has 10,240 blocks of 16 tokens, one never used: (10,239 - 128) / (288 - 128) = 63.2
    traffic = attncalc.Traffic(4096, 1024, 2048)
    request = FitRequest(
        load("llama3-8b"), Workload.decode(1, 8192), kv_memory=20 * 2**30, traffic=traffic
    )
    together = attncalc.users(fit(request).resolved)
    assert together is not None
    assert together.average == (20 * 1024 // 2 - 1 - 2048 // 16) // (
        (4096 + 512) // 16 - 2048 // 16
    )
    assert attncalc.users(fit(dataclasses.replace(request, traffic=None)).resolved) is None
