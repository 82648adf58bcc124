"""Calls of one line: the same figures, defaults and errors as the command of that question."""

import functools
import html.parser
import itertools
import pickle
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pytest
import typer
from asking import Ask, refusal, results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import each

import attncalc
from attncalc import (
    AttncalcError,
    FitRequest,
    ModelSpec,
    Quantity,
    Workload,
    gpu,
    load,
    preset_names,
)
from attncalc.cli.declared import command_of
from attncalc.cost import cache, params
from attncalc.questions.arguments import in_python
from attncalc.questions.compare.options import CompareOptions
from attncalc.questions.fit.answer import FitResult, Roofline, Users
from attncalc.questions.fit.options import FitOptions
from attncalc.questions.flops.answer import Flops
from attncalc.questions.flops.options import FlopsOptions
from attncalc.questions.kv.answer import KVCache
from attncalc.questions.kv.options import KVCacheOptions
from attncalc.questions.memory.answer import Activations
from attncalc.questions.memory.options import ActivationsOptions
from attncalc.questions.options import ShardedModelOptions
from attncalc.questions.params.answer import Params
from attncalc.questions.question import declared
from attncalc.questions.results import Result
from attncalc.serving.fit import FitResult as CostFitResult

# {function: (its command, the function)}.
CALLS: dict[str, tuple[str, Callable[..., Result]]] = {
    "kv_cache": ("kv", attncalc.kv_cache),
    "params": ("params", attncalc.params),
    "flops": ("flops", attncalc.flops),
    "activations": ("memory", attncalc.activations),
}
MAMBA = {
    "model_type": "mamba2",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_heads": 4,
    "head_dim": 32,
}
# The package, for calls that type checkers reject.
UNTYPED: Any = attncalc


def as_options(arguments: Mapping[str, Any]) -> list[str]:
    """Return the options of a command with the names and values of a call: ['--kv-dtype', 'fp8',
    '--enforce-eager'].
    """
    options: list[str] = []
    for name, value in arguments.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        option = "--output-len" if name == "output" else f"--{name.replace('_', '-')}"
        options += [option, *([] if value is True else [text])]
    return options


def error_of(call: Callable[[], object]) -> str:
    """Return what the command line prints for the error of a call; '' without one."""
    try:
        call()
    except AttncalcError as error:
        return f"error: {error.message}\n  tip: {error.tip}\n"
    return ""


def as_arguments(printed: str) -> str:
    """Return what the command line prints for an error with the arguments of a call instead of
    options.
    """
    return "".join(map(in_python, printed.splitlines(keepends=True)))


# Figures


counts = st.one_of(
    st.integers(1, 10**6),
    st.sampled_from(["4096", "4K", "128k", "1_000", "0", "-1", "1.5", "many"]),
)
dtypes = st.sampled_from(["bf16", "float16", "fp8", "int4", "q8_0", "half", "fp7"])
model_options = {
    "attention": st.sampled_from(["mha", "mqa", "gqa:2", "mla:64", "gqa:0"]),
    "tp": st.sampled_from([2, "4"]),
}
sizes = {
    "batch": counts,
    "context": counts,
    "source_context": counts,
    "lengths": st.sampled_from(["300,20", "9", (300, 20, "1K"), "3,,4"]),
}
passes = {
    "phase": st.sampled_from(["prefill", "decode", "train", "decoding"]),
    "past": st.sampled_from([0, 10, "100"]),
    "mask": st.sampled_from(["causal", "bidirectional", "prefix:5"]),
}
options_of: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "kv_cache": {
        **model_options,
        **sizes,
        "dtype": dtypes,
        "kv_dtype": dtypes,
        "engine": st.sampled_from(["ideal", "transformers", "vllm"]),
    },
    "params": model_options,
    "flops": {**model_options, **sizes, **passes},
    "activations": {**model_options, **sizes, **passes, "dtype": dtypes},
}


@st.composite
def some_of(draw: st.DrawFn, options: Mapping[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    """Return at most three of the options with values: most combinations of more exclude each
    other.
    """
    names = draw(st.lists(st.sampled_from(sorted(options)), max_size=3, unique=True))
    return {name: draw(options[name]) for name in names}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), model=st.sampled_from([*preset_names(), "lama2", "qwen3-8B"]))
@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_the_figures_or_the_error_of_its_command(
    ask: Ask, name: str, data: st.DataObject, model: str
) -> None:
    command, call = CALLS[name]
    arguments = data.draw(some_of(options_of[name]))
    answer = ask(command, model, *as_options(arguments), "--json")
    if answer.code == 0:
        assert call(model, **arguments).to_dict() == results(answer)
    else:
        error, *_ = error_of(lambda: call(model, **arguments).to_dict()).splitlines()
        # the tip of the command line may be the whole command
        assert error == as_arguments(answer.err).splitlines()[0]


fit_arguments = {
    "context": st.sampled_from([8192, "32K", "auto", "1000000000"]),
    "batch": st.sampled_from([1, "16"]),
    "kv_dtype": st.sampled_from(["fp8", "auto", "q8_0"]),
    "engine": st.sampled_from(["vllm", "sglang", "llamacpp", "transformers", "ideal", "vlm"]),
    "gpus": st.sampled_from([1, "4"]),
    "tp": st.sampled_from([2, 3]),
    "gpu_memory_utilization": st.sampled_from([0.8, "0.95", 2]),
    "weights_dtype": st.sampled_from(["fp8", "int4"]),
    "reserve": st.sampled_from([0, "2GiB"]),
    "block_size": st.sampled_from([32, "64"]),
    "enforce_eager": st.just(True),
    "enable_expert_parallel": st.just(True),
    "n_gpu_layers": st.sampled_from([20, "auto", "all"]),
    "tensor_split": st.sampled_from([(3, 1), "1,1"]),
    "shared_prefix": st.sampled_from([0, 500]),
}
places = [
    {"gpu": "h100"},
    {"gpu": "2xa100-40gb"},
    {"gpu": "24GB"},
    {"kv_memory": "40GiB"},
    {"kv_memory": 2**34},
]
traffics: list[dict[str, Any]] = [
    {},
    {"prompt": "4K", "output": 0},
    {"prompt": 500, "output": "1K"},
    {"prompt": "4K"},
]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.sampled_from([*places, {"gpu": "h1000"}]),
    traffic=st.sampled_from(traffics),
    options=some_of(fit_arguments),
    model=st.sampled_from(
        ["qwen3-8b", "llama2-70b", "gemma3-27b", "deepseek-v3", "gpt-oss-20b", "gpt2", "t5-base"]
    ),
)
def test_fit_gives_the_figures_or_the_error_of_its_command(
    ask: Ask, place: dict[str, Any], traffic: dict[str, Any], options: dict[str, Any], model: str
) -> None:
    arguments = {**place, **traffic, **options}
    answer = ask("fit", model, *as_options(arguments), "--json")
    if answer.code == 2:
        error, *_ = error_of(lambda: attncalc.fit(model, **arguments).to_dict()).splitlines()
        # the tip of the command line may be the whole command
        assert error == as_arguments(answer.err).splitlines()[0]
        return
    document, result = answer.document, attncalc.fit(model, **arguments)
    assert result.to_dict() == {
        "fits": document["fits"],
        "verdict": document["verdict"],
        **results(answer),
    }
    assert answer.code == (0 if result.fits else 1)
    assert result.report.extra["launch_command"] == document["launch_command"]
    if "prompt" in arguments:
        together = attncalc.users(model, **arguments)
        assert together.to_dict().items() <= result.to_dict().items()
    if "gpu" in arguments and document["roofline"]:
        assert attncalc.roofline(model, **arguments).to_dict().items() <= result.to_dict().items()


@pytest.mark.parametrize(
    "model", ["llama2-70b", "gemma3-27b", "nemotron-h-56b", "t5-base", "bert-base"]
)
def test_growth_crossover_and_intensity_are_those_of_their_commands(ask: Ask, model: str) -> None:
    of_flops = results(ask("flops", model, "--batch", "3", "--context", "500", "--json"))
    grown = attncalc.growth(model, batch=3, context=500)
    assert grown.to_dict().items() <= of_flops.items()
    assert attncalc.crossover(model, batch=3, context=500) == of_flops["scores_overtake_context"]
    if load(model).main.has_cache:
        of_compare = results(ask("compare", model, "--batch", "3", "--context", "500", "--json"))
        intensity = attncalc.decode_intensity(model, batch=3, context=500)
        assert intensity.to_dict().items() <= of_compare.items()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    models=st.lists(
        st.sampled_from(["llama2-70b", "gemma3-27b", "deepseek-v3", "t5-base", "bert-base"]),
        max_size=3,
    ),
    arguments=st.fixed_dictionaries(
        {},
        optional={
            "context": st.sampled_from([4096, "1K:4K:x2", (512, "1K"), "many"]),
            "batch": st.sampled_from([3, "0"]),
            "attention": st.sampled_from(["mla:512", "mla"]),
            "tp": st.sampled_from([4, 7]),
            "source_context": st.just(300),
            "kv_dtype": st.sampled_from(["fp8", "fp9"]),
        },
    ),
)
def test_compare_gives_the_rows_or_the_error_of_its_command(
    ask: Ask, models: list[str], arguments: dict[str, Any]
) -> None:
    answer = ask("compare", *models, *as_options(arguments), "--json")
    if answer.code:
        message, printed = (
            error_of(lambda: attncalc.compare(*models, **arguments)),
            as_arguments(answer.err),
        )
        assert message.splitlines()[0] == printed.splitlines()[0]
        assert not models or message.splitlines()[-1] == printed.splitlines()[-1]
        return
    comparison = attncalc.compare(*models, **arguments)
    assert comparison.to_dict() == results(answer)
    assert list(comparison) == list(comparison.rows) == answer.document["rows"]
    assert len(comparison) == len(answer.document["layers"])


def test_compare_gives_the_source_to_models_with_an_encoder_only() -> None:
    rows = attncalc.compare("t5-base", "gpt2", context=512, source_context=300).rows
    # t5-base: 12 layers cache K and V of 12 heads * 64, of 512 tokens and of a source of 300, in 4
    # bytes
    assert rows[0]["kv_cache"] == 12 * 2 * 12 * 64 * (512 + 300) * 4


def test_a_call_takes_numbers_texts_and_the_types_of_other_libraries() -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    expected = attncalc.kv_cache("gpt2", batch=2, context=1024, dtype="bf16", lengths=None)
    for batch, context, dtype in (
        ("2", "1K", "bfloat16"),
        (numpy.int64(2), numpy.int32(1024), torch.bfloat16),
    ):
        assert (
            attncalc.kv_cache("gpt2", batch=batch, context=context, dtype=dtype).to_dict()
            == expected.to_dict()
        )
    in_fp16 = UNTYPED.fit("gpt2", gpu="l4", weights_dtype=torch.float16, kv_dtype=torch.float16)
    assert (
        in_fp16.to_dict()
        == attncalc.fit("gpt2", gpu="l4", weights_dtype="fp16", kv_dtype="fp16").to_dict()
    )


def test_auto_is_the_dtype_of_the_cache_by_default() -> None:
    as_given = attncalc.fit("qwen3-8b", gpu="h100", kv_dtype="auto", context=4096)
    assert as_given.to_dict() == attncalc.fit("qwen3-8b", gpu="h100", context=4096).to_dict()


def test_the_context_of_a_model_without_a_maximum_is_that_of_the_longest_request() -> None:
    unlimited = {
        "model_type": "bloom",
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 8,
        "vocab_size": 100,
    }
    assert load(unlimited).max_context is None
    assert (
        attncalc.fit(unlimited, gpu="l4", prompt=700, output=300).resolved.workload.context == 1000
    )


def test_a_gpu_may_be_an_object() -> None:
    by_name, by_object = (
        attncalc.fit("qwen3-8b", gpu=device, gpus=2) for device in ("2xh100", gpu("h100-80gb"))
    )
    assert by_name.to_dict() == by_object.to_dict()


def test_the_launch_command_of_a_config_without_a_name_has_model_in_its_place() -> None:
    fields = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
    }
    command = attncalc.fit(
        {**fields, "vocab_size": 100, "intermediate_size": 64}, gpu="l4", context=512
    ).report.extra
    assert "vllm serve MODEL " in command["launch_command"]


# The explicit API


def test_a_model_and_a_workload_give_the_same_as_options() -> None:
    workload = Workload.decode(batch=8, context=4096, kv_dtype="bf16")
    by_options = attncalc.kv_cache(
        "llama2-70b", batch=8, context=4096, kv_dtype="bf16", tp=4, engine="transformers"
    )
    by_workload = attncalc.kv_cache(load("llama2-70b"), workload, tp=4, engine="transformers")
    assert by_workload.to_dict() == by_options.to_dict()
    assert by_workload.total == by_options.total == by_options.to_dict()["kv_cache"]
    assert attncalc.flops(load("gpt2").shard(2), Workload.train(2, 64)) == attncalc.flops(
        "gpt2", phase="train", batch=2, context=64, tp=2
    )


def test_a_fit_request_gives_the_same_as_options() -> None:
    request = FitRequest(load("qwen3-8b"), Workload.decode(1, 8192), gpu=gpu("h100-80gb"))
    by_options = attncalc.fit("qwen3-8b", gpu="h100", context=8192)
    assert attncalc.fit(request).to_dict() == by_options.to_dict()
    resolved = by_options.resolved
    explicit = attncalc.roofline(resolved.model, resolved.workload, gpu("h100-80gb"))
    assert explicit.to_dict() == attncalc.roofline("qwen3-8b", gpu="h100", context=8192).to_dict()
    assert attncalc.users(resolved) is None


def test_results_are_those_of_the_cost_functions() -> None:
    assert isinstance(attncalc.kv_cache("gpt2"), cache.KVCache)
    assert attncalc.params("gpt2") == params.params(load("gpt2"))
    assert isinstance(attncalc.fit("gpt2", gpu="l4"), CostFitResult)
    (layer,) = attncalc.activations("llama2-70b", context=4096)
    assert layer.score_matrix == 2**31  # 64 heads * 4096 * 4096 scores in 2 bytes


def test_each_figure_of_a_result_is_an_attribute_that_completion_lists() -> None:
    result = attncalc.fit("gpt2", gpu="l4")
    figures = result.to_dict()
    assert {name: getattr(result, name) for name in figures} == figures
    assert {*figures, "launch_command"} <= {*dir(result)}
    assert result.launch_command == "vllm serve openai-community/gpt2 --max-model-len 1024"
    with pytest.raises(AttributeError, match=r"no attribute 'layers'; facts\(\) has its sizes"):
        _ = UNTYPED.load("gpt2").layers
    with pytest.raises(
        AttributeError, match=r"no attribute 'kv_token'; did you mean 'kv_tokens'.*concurrency"
    ):
        _ = UNTYPED.fit("gpt2", gpu="l4").kv_token


def test_a_size_is_also_in_gib_and_int_gives_the_total() -> None:
    # 2 * 80 * 8 * 128 * 2 B of 4,096 tokens: 1.25 GiB
    cache = UNTYPED.kv_cache("llama2-70b", context=4096)
    assert int(cache) == 5 * 2**28
    assert cache.gib == cache.kv_cache_gib == 1.25
    assert int(UNTYPED.params("llama2-70b")) == UNTYPED.params("llama2-70b").params_total
    with pytest.raises(AttributeError, match="no attribute 'concurrency_gib'"):  # it is no size
        _ = UNTYPED.fit("gpt2", gpu="l4").concurrency_gib


def test_what_json_has_beside_the_figures_is_an_attribute() -> None:
    changes = UNTYPED.fit("llama3.1-70b", gpu="h100", context=8192).suggestions
    assert {"flag", "launch_command"} <= changes[0].keys()


def test_several_gpus_are_rows_of_a_sweep() -> None:
    with pytest.raises(AttncalcError, match=r"sweep\(\.\.\., gpu=\[\.\.\.\]\) has a row of each"):
        UNTYPED.fit("gpt2", gpu=["h100", "l4"])
    assert [row["gpu"] for row in UNTYPED.sweep("gpt2", gpu=["h100", "l4"]).rows] == ["h100", "l4"]


def test_type_checkers_know_what_a_call_takes_and_returns() -> None:
    """Mypy checks this function: a `type: ignore` that is not needed is an error there."""
    by_options: KVCache = attncalc.kv_cache("gpt2", context="1K", kv_dtype="fp8", engine="ideal")
    by_workload: KVCache = attncalc.kv_cache(load("gpt2"), Workload.decode(1, 1024, kv_dtype="fp8"))
    total: Quantity = by_options.total
    assert total == by_workload.total
    counted: tuple[Params, Flops, Activations] = (
        attncalc.params("gpt2"),
        attncalc.flops("gpt2", phase="decode"),
        attncalc.activations("gpt2"),
    )
    result: FitResult = attncalc.fit("gpt2", gpu="l4", prompt=500, output=100)
    together: Users = attncalc.users("gpt2", gpu="l4", prompt=500, output=100)
    bounds: Roofline = attncalc.roofline("gpt2", gpu="l4")
    assert all((counted, result, together, bounds))
    with pytest.raises(TypeError):
        attncalc.kv_cache("gpt2", contxt=4096)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        attncalc.params("gpt2", context=4096)  # type: ignore[call-arg]
    with pytest.raises(AttncalcError):
        attncalc.kv_cache("gpt2", Workload.decode(1, 8), context=4096)
    with pytest.raises(AttncalcError):
        attncalc.fit("gpt2", gpu=3.5)  # type: ignore[arg-type]


# Arguments


def names(command: str) -> set[str]:
    """Return the options of a command in Python's spelling, without those of its screen."""
    parameters = {
        str(parameter.name)
        for parameter in typer.main.get_command(command_of(declared(command))).params
    }
    screen = {
        "explain",
        "format",
        "json",
        "output",
        "force",
        "fail_if",
        "quiet",
        "plain",
        "get",
        "unit",
        "plot",
        "show",
        "title",
        "size",
        "full",
    }
    return parameters - screen - {"model", "models", "preset"}


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("kv", KVCacheOptions),
        ("params", ShardedModelOptions),
        ("flops", FlopsOptions),
        ("memory", ActivationsOptions),
        ("compare", CompareOptions),
    ],
)
def test_a_call_has_the_options_of_its_command(command: str, kind: Any) -> None:
    assert set(kind.__annotations__) == names(command)


def test_fit_has_the_options_of_its_command() -> None:
    spellings = {"output_text", "output_len", "enable_prefix_caching", "offline_inference"}
    screens = {"log", "full", "quants", "roofline"}
    assert set(FitOptions.__annotations__) == names("fit") - spellings - screens | {
        "output",
        "offline",
    }


@pytest.mark.parametrize(
    "name", ["kv_cache", "params", "flops", "activations", "growth", "crossover", "compare", "fit"]
)
def test_help_and_completion_list_the_options(name: str) -> None:
    import inspect

    function = getattr(attncalc, name)
    parameters = inspect.signature(function).parameters
    assert "attention" in parameters
    assert "options" not in parameters
    assert function.__doc__


@each(
    ("call", "message", "tip"),
    [
        (
            lambda: UNTYPED.kv_cache("gpt2", contxt=1),
            "kv_cache has no argument 'contxt'",
            "did you mean 'context'?",
        ),
        (
            lambda: UNTYPED.fit("gpt2", gpuss=1),
            "fit has no argument 'gpuss'",
            "did you mean 'gpus'?",
        ),
        (
            lambda: UNTYPED.kv_cache("gpt2", 4096),
            "a workload cannot be given as '4096'",
            "context=4096",
        ),
        (
            lambda: UNTYPED.kv_cache(4096),
            "a model cannot be given as '4096', of class int",
            "PretrainedConfig",
        ),
        (
            lambda: UNTYPED.kv_cache({"hidden_size": 3}),
            "config: model_type is missing",
            "attncalc presets families",
        ),
        (lambda: UNTYPED.kv_cache("gpt2", attention=3), "attention: '3' is not a text", "quotes"),
        (
            lambda: UNTYPED.fit("gpt2", gpu="l4", enforce_eager="no"),
            "enforce_eager: 'no' is not True or F",
            "one",
        ),
        (
            lambda: UNTYPED.users("gpt2", gpu="l4"),
            "users needs prompt and output",
            "tokens of a request",
        ),
        (
            lambda: UNTYPED.roofline("gpt2", kv_memory="1GiB"),
            "roofline needs gpu",
            "as gpu='h100-80gb'",
        ),
        (
            lambda: UNTYPED.fit(FitRequest(load("gpt2"), Workload.decode(1, 9), kv_memory=9), tp=2),
            "tp cannot be combined with a FitRequest",
            "field",
        ),
        (
            lambda: UNTYPED.kv_cache(load("gpt2"), revision="main"),
            "revision needs org/name on the hub",
            "leave",
        ),
        (
            lambda: UNTYPED.fit("gpt2", gpu="l4", tp=5),
            "tp=5 does not divide 12 query",
            "give tp=1, 2, 3, 4, 6 or 12",
        ),
        (
            lambda: UNTYPED.fit("gpt2", "h100"),
            "fit takes 1 value without a name: model",
            "name the others",
        ),
        (lambda: UNTYPED.sweep("gpt2", context=-1), "context: '-1' is not a whole", "digits"),
        (
            lambda: UNTYPED.what_fits("l4"),
            "what_fits takes a model with gpu='all'",
            "fit(model, gpu=GPU)",
        ),
    ],
)
def test_a_wrong_argument_is_an_error_with_a_tip(
    call: Callable[[], object], message: str, tip: str
) -> None:
    error = refusal(call)
    assert error.message.startswith(message)
    assert tip in error.tip
    assert str(error) == f"{error.message}\n  tip: {error.tip}"


JUNK: list[Any] = [
    3,
    -1,
    2.5,
    True,
    False,
    "x",
    "",
    b"x",
    [],
    [1],
    (1, 2),
    {"a": 1},
    {1, 2},
    range(3),
    object(),
]


@pytest.mark.parametrize(
    ("call", "kind", "others"),
    [
        (UNTYPED.kv_cache, KVCacheOptions, {}),
        (UNTYPED.flops, FlopsOptions, {}),
        (UNTYPED.activations, ActivationsOptions, {}),
        (UNTYPED.compare, CompareOptions, {}),
        (UNTYPED.fit, FitOptions, {"gpu": "l4"}),
    ],
)
def test_a_value_of_any_type_is_an_answer_or_an_error_with_a_tip(
    call: Any, kind: Any, others: dict[str, Any]
) -> None:
    for name, value in itertools.product(kind.__annotations__, [*JUNK, 10**40, "9" * 5000]):
        text = error_of(functools.partial(call, "gpt2", **{**others, name: value}))
        assert not text or "\n  tip: " in text, (name, value)
        assert len(text) < 500, (name, value)


# What a notebook shows


class Cells(html.parser.HTMLParser):
    """Collects the texts of a page's cells, and its tags that are still open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: object) -> None:
        if tag != "br":
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += text


def test_a_notebook_shows_the_tables_of_the_command() -> None:
    cache = attncalc.kv_cache("llama2-70b", batch=8, context=4096)
    for shown in (cache, cache.report):
        page = Cells(shown._repr_html_())
        assert not page.open
        assert page.cells[:3] == ["KV cache", "10.00 GiB", f"{80 * 8 * 4096 * 2 * 8 * 128 * 2:,} B"]
    assert "2.00 GiB" in Cells(attncalc.activations("llama2-70b", context=4096)._repr_html_()).cells
    fitting = attncalc.fit("qwen3-8b", gpu="h100", context=8192)
    low, high = map(int, Cells(fitting._repr_html_()).cells[1].split(" to "))
    assert low <= int(fitting.max_batch or 0) <= high


def test_a_notebook_shows_a_model_as_a_table_and_escapes_its_title() -> None:
    page = Cells(load("llama2-70b")._repr_html_())
    assert not page.open
    assert page.cells[:4] == [
        "attention",
        "grouped-query attention, 64 query and 8 KV heads x 128, 80 layers",
        "d_model",
        "8,192",
    ]
    spec = load("gpt2")
    renamed = ModelSpec(spec.name, "<script>", spec.stacks)
    assert "<script>" not in renamed._repr_html_()
    assert "<script>" not in attncalc.params(renamed)._repr_html_()


@each(
    ("value", "text"),
    [
        # 80 layers * 8 sequences * 4,096 tokens * K and V * 8 heads * 128 * 2 bytes = 10 * 2^30
        (
            lambda: attncalc.kv_cache("llama2-70b", batch=8, context=4096),
            "KVCache(llama2-70b, batch 8, context 4,096: 10.00 GiB)",
        ),
        (
            lambda: attncalc.kv_cache(
                "llama2-70b", batch=8, context=4096, kv_dtype="bf16", tp=8, engine="transformers"
            ),
            "KVCache(llama2-70b on one of 8 devices, batch 8, context 4,096, bf16 as "
            "transformers stores it: 1.25 GiB)",
        ),
        (
            lambda: attncalc.kv_cache("gpt2", lengths=(9, 7)),
            "KVCache(gpt2, lengths 9, 7: 1.13 MiB)",
        ),
        (lambda: attncalc.params("gpt2"), "Params(gpt2: 124.44 million)"),
        (
            lambda: load("llama2-70b"),
            "ModelSpec(llama2-70b: LLaMA-2 70B, grouped-query attention, 64 query and 8 KV heads "
            "x 128, 80 layers)",
        ),
        (
            lambda: attncalc.kv_cache("gpt2").report,
            "Report(kv: GPT-2 (124M)  multi-head attention, 12 query and 12",
        ),
        (
            lambda: attncalc.kv_cache("gpt2").total.formula,
            "Formula('L * B * T * 2 * n_kv_heads * d_head * bytes')",
        ),
        (lambda: attncalc.decode_intensity("gpt2", context=512).per_cache_byte, "Ratio("),
        (
            lambda: attncalc.activations(MAMBA, context=9),
            "Activations(mamba2, prefill, batch 1, context 9: no attent",
        ),
        (
            lambda: attncalc.roofline("qwen3-8b", gpu="2xh100"),
            "Roofline(qwen3-8b on one of 2 devices on NVIDIA H100",
        ),
        (
            lambda: attncalc.fit("qwen3-8b", gpu="h100"),
            "FitResult(qwen3-8b on one NVIDIA H100 80GB SXM, vLLM, batch 1",
        ),
        (
            lambda: attncalc.users("llama3-8b", kv_memory="20GiB", prompt=4096, output=1024),
            "Users(llama3-8b on one device, vLLM, batch 1, context 5,120, bf16: 35 on average, "
            "31 at worst)",
        ),
    ],
)
def test_a_repr_is_one_short_line(value: Callable[[], object], text: str) -> None:
    assert repr(value()).startswith(text)
    assert len(repr(value())) < 160


def test_a_report_prints_as_the_command_does(ask: Ask) -> None:
    assert (
        str(attncalc.kv_cache("gpt2", context=512).report)
        == ask("kv", "gpt2", "--context", "512").out
    )


def test_a_sweep_is_shown_as_a_table_and_equals_the_same_question() -> None:
    rows = attncalc.sweep(["gpt2", "llama3-8b"], context="512,1K", columns="kv_cache")
    # 12 layers * 2 * 768 * 4 B, and 32 * 2 * 8 * 128 * 2 B per token
    assert str(rows).splitlines()[2:] == [
        "  model      512  1,024",
        "  gpt2        36     72",
        "  llama3-8b   64    128",
    ]
    assert "72" in Cells(rows._repr_html_() or "").cells
    assert rows == attncalc.sweep(["gpt2", "llama3-8b"], context=[512, 1024], columns=["kv_cache"])
    assert rows != attncalc.sweep("gpt2", context="512,1K", columns="kv_cache")


def test_an_answer_of_yes_or_no_is_true_or_false() -> None:
    assert attncalc.fit("gpt2", gpu="l4")
    assert not attncalc.fit("llama3-70b", gpu="l4")


def test_several_models_may_be_given_by_name() -> None:
    assert UNTYPED.compare(models=["gpt2", "llama3-8b"], context=512) == attncalc.compare(
        "gpt2", "llama3-8b", context=512
    )
    assert UNTYPED.compare(model="gpt2", context=512) == attncalc.compare("gpt2", context=512)


def test_results_can_be_sent_to_another_process() -> None:
    calls = [
        call("gpt2", context=512)
        for call in (attncalc.kv_cache, attncalc.flops, attncalc.activations)
    ]
    fitted: dict[str, Any] = {"gpu": "l4", "prompt": 100, "output": 9}
    fits = [call("gpt2", **fitted) for call in (attncalc.fit, attncalc.users, attncalc.roofline)]
    for result in (
        *calls,
        *fits,
        attncalc.what_fits(gpu="2GB"),
        attncalc.params("gpt2"),
        attncalc.compare("gpt2", context=512),
    ):
        figures = result.to_dict()
        again = pickle.loads(pickle.dumps(result))
        assert again.to_dict() == figures
        assert repr(again) == repr(result)


def test_a_model_that_was_used_can_be_sent_to_another_process() -> None:
    model = attncalc.load("llama3-8b")
    attncalc.fit(model, gpu="h100")
    assert pickle.loads(pickle.dumps(model)) == model


def test_an_answer_is_written_in_the_formats_of_its_command(ask: Ask) -> None:
    swept = attncalc.sweep(models := ["gpt2", "gpt3"], context=[512, 1024])
    compared = attncalc.compare(*models, context=512)
    for form in ("csv", "json", "latex", "markdown"):
        written = [
            getattr(answer, f"to_{form}")() for answer in (swept, compared, attncalc.params("gpt2"))
        ]
        asked = [
            ("sweep", *models, "-c", "512,1024"),
            ("compare", *models, "-c", "512"),
            ("params", "gpt2"),
        ]
        assert written == [ask(*words, "--format", form).out for words in asked]
    assert (swept[1], swept[-1], compared[1]["name"]) == ([*swept][1], [*swept][3], "gpt3")


def test_sizes_describe_a_model() -> None:
    # 2 layers * 1,000 tokens * K and V * 4 heads * 64 * 2 B
    sizes: dict[str, Any] = {"layers": 2, "heads": 8.0, "kv_heads": 4, "head_dim": 64}
    assert attncalc.kv_cache(**sizes, context=1000).total == 2 * 1000 * 2 * 4 * 64 * 2
    for call in (UNTYPED.kv_cache, UNTYPED.fit, UNTYPED.vram, UNTYPED.users):
        assert "a model is required" in refusal(call).message


@each(
    ("call", "command", "options"),
    [
        (UNTYPED.fit, "fit", {"gpu": "h100"}),
        (UNTYPED.fit, "fit", {"kv_memory": "2GiB", "prompt": "1K", "output": "100"}),
        (UNTYPED.vram, "fit", {"context": "1K"}),
    ],
)
def test_sizes_are_a_model_in_each_call(
    call: Any, command: str, options: dict[str, str], ask: Ask
) -> None:
    sizes = {"layers": "2", "heads": "8", "kv_heads": "4", "head_dim": "64"}
    names = {"output": "output-len"}
    given = [
        (names.get(name, name.replace("_", "-")), value)
        for name, value in (sizes | options).items()
    ]
    words = [word for name, value in given for word in (f"--{name}", value)]
    assert call(**sizes, **options).to("json") == ask(command, *words, "--json").out


def test_pandas_makes_a_table_of_results() -> None:
    pandas = pytest.importorskip("pandas")
    models = ["llama2-70b", "qwen3-8b", "bert-base"]
    table = pandas.DataFrame(
        {name: attncalc.kv_cache(name, context=4096).to_dict() for name in models}
    ).T
    assert table.loc["llama2-70b", "kv_cache"] == 80 * 4096 * 2 * 8 * 128 * 2
    assert list(table.index) == models
    rows = attncalc.compare(*models, context=["4K", "8K"]).frame()
    assert list(rows["context"]) == [4096, 8192] * 3
    assert rows["kv_cache"][0] == table.loc["llama2-70b", "kv_cache"]


@pytest.mark.parametrize(
    "place",
    [
        "compare.answer",
        "compare.intensity",
        "fit.answer",
        "flops.answer",
        "kv.answer",
        "memory.answer",
        "params.answer",
    ],
)
def test_the_examples_in_docstrings_run(place: str) -> None:
    import doctest

    module = import_module(f"attncalc.questions.{place}")
    checker, finder = doctest.DocTestRunner(), doctest.DocTestFinder()
    for name in module.__dict__:
        function = getattr(attncalc, name, None)
        if callable(function) and getattr(function, "__module__", "") == module.__name__:
            for test in finder.find(function, name, globs=vars(attncalc) | {name: function}):
                checker.run(test)
    assert checker.summarize().attempted
    assert not checker.summarize().failed


@each(
    "call",
    [
        lambda: attncalc.kv_cache("gpt2", lengths=["9,7"]),
        lambda: attncalc.compare("gpt2", context=["1K,512"]),
        lambda: attncalc.fit("llama3.1-8b", gpu="2xl4", engine="llamacpp", tensor_split=["3,1"]),  # type: ignore[list-item]
    ],
)
def test_an_item_of_a_list_has_no_comma(call: Any) -> None:
    with pytest.raises(
        AttncalcError, match="is an item of a list, which is one value and has no comma"
    ):
        call()


def test_an_item_of_a_list_is_one_kind_of_attention() -> None:
    with pytest.raises(AttncalcError, match="'512,gqa:2' is not a whole number"):
        attncalc.compare("llama2-70b", attention=["mla:512,gqa:2"])
