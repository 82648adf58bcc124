"""Sweeps: every row equals the single command, in the order of the axes."""

import functools
import itertools
import random
import re
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from asking import Ask, refusal, results
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import each

import attncalc
from attncalc import AttncalcError, Workload, load, params, sweep
from attncalc.cost.activations import activations
from attncalc.cost.cache import kv_cache
from attncalc.cost.flops import flops
from attncalc.questions.memory.figures import largest_layer
from attncalc.questions.sweep import fits
from attncalc.questions.sweep.columns import BOUNDS, FIT
from attncalc.serving.fit import Deployment
from attncalc.serving.request import ResolvedRequest

Answer = TypeVar("Answer")
K = 1024


def options(row: dict[str, Any]) -> list[str]:
    """Return the options of the single command for a row's axes."""
    names = (
        "attention",
        "tp",
        "kv_dtype",
        "batch",
        "context",
        "gpu",
        "gpus",
        "engine",
        "weights_dtype",
    )
    return [
        part
        for name in names
        if name in row
        for part in (f"--{name.replace('_', '-')}", str(row[name]))
    ]


def answer(call: Callable[[], Answer]) -> tuple[Answer | None, str | None]:
    """Return what the call returns, and the message of the error that it raises."""
    try:
        return call(), None
    except AttncalcError as error:
        return None, error.message


def test_rows_of_a_large_sweep_equal_kv_and_flops(ask: Ask) -> None:
    axes: dict[str, Any] = {
        "models": [
            "llama2-70b",
            "gemma3-27b",
            "deepseek-v3",
            "mistral-7b-v0.1",
            "qwen3-next-80b-a3b",
        ],
        "kv_dtype": "bf16,fp8",
        "tp": "1,2",
        "batch": "1:20:1",
        "context": "1K:100K:1K",
    }
    cells = sweep(**axes)
    assert len(cells) == 5 * 2 * 2 * 20 * 100 == 40_000
    picked = set(random.Random(16).sample(range(len(cells)), 30))
    rows = [row for i, row in enumerate(cells) if i in picked]
    assert len(rows) == 30
    for row in rows:
        kv = results(ask("kv", row["model"], *options(row), "--json"))
        assert {name: row[name] for name in ("kv_cache", "kv_cache_per_token")} == {
            name: kv[name] for name in ("kv_cache", "kv_cache_per_token")
        }
        of_pass = [
            part
            for part in options({**row, "kv_dtype": "bf16"})
            if part not in ("--kv-dtype", "bf16")
        ]
        for phase in ("prefill", "decode"):
            counted = results(ask("flops", row["model"], *of_pass, "--phase", phase, "--json"))
            # a server needs the logits of the last one
            tokens = row["context"] if phase == "prefill" else 1
            logits_left_out = counted["flops_head"] - counted["flops_head"] // tokens
            assert row[f"flops_{phase}"] == counted["flops_total"] - logits_left_out
        assert (
            row["params_total"]
            == results(ask("params", row["model"], "--tp", str(row["tp"]), "--json"))[
                "params_total"
            ]
        )
        assert row["error"] is None


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp", "transformers", "ideal"])
def test_rows_equal_fit(engine: str) -> None:
    quick = [
        name
        for name in (*FIT, *BOUNDS)
        if name not in ("min_gpus", "max_n_gpu_layers", "min_n_cpu_moe")
    ]
    cells = sweep(
        models=["gemma3-4b", "deepseek-v2-lite", "llama3-8b"],
        columns=[
            "verdict",
            "weights",
            *(n for n in quick if "all_replicas" not in n and n != "replicas"),
        ],
        engine=engine,
        gpu="h100-80gb,2xrtx-4090",
        batch="1,300",
        context="900,200_000",
    )
    rows = random.Random(16).sample(list(cells), 8)
    for row in rows:
        arguments = {name: row[name] for name in ("gpu", "batch", "context")}
        asked = functools.partial(attncalc.fit, row["model"], engine=engine, **arguments)
        expected, error = answer(lambda: asked().to_dict())  # noqa: B023
        assert row["error"] == error
        if expected is None:
            continue
        assert {name: row[name] for name in cells.columns} == {
            name: expected[name] for name in cells.columns
        }


def test_rows_have_the_figures_of_all_replicas() -> None:
    """8 GPUs with tp 2 are 4 replicas."""
    (row,) = sweep("llama3-8b", gpu="h100-80gb", gpus=8, tp=2, context=8192)
    assert row["replicas"] == 4
    for name in ("concurrency", "max_batch", "kv_tokens"):
        assert row[f"{name}_all_replicas"] == 4 * row[name]


def test_rows_of_replicas_equal_fit() -> None:
    """The column is the batch that was asked for, of which each of the 4 replicas has a quarter,
    rounded up.
    """
    names = ["verdict", "kv_needed", "max_context", "max_batch", "min_gpus", "decode_time_bound"]
    cells = sweep(
        "qwen3-8b",
        gpu="h100-80gb",
        gpus=4,
        tp=1,
        batch="1,372,373,500",
        context="1K,4K",
        columns=names,
    )
    for row in cells:
        batch, context = row["batch"], row["context"]
        expected = attncalc.fit(
            "qwen3-8b", gpu="h100-80gb", gpus=4, tp=1, batch=batch, context=context
        ).to_dict()
        assert {name: row[name] for name in names} == {name: expected[name] for name in names}
        alone = attncalc.fit(
            "qwen3-8b", gpu="h100-80gb", batch=-(-batch // 4), context=context
        ).to_dict()
        assert {name: row[name] for name in names} == {name: alone[name] for name in names}


@each("engine", ["vllm", "ideal"])
def test_cells_of_one_setting_share_a_memory_budget(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes most of the time of a cell, and depends on neither the batch nor the context."""
    deployments: list[Deployment] = []

    def deployment(resolved: ResolvedRequest) -> Deployment:
        deployments.append(Deployment(resolved))
        return deployments[-1]

    monkeypatch.setattr(fits, "Deployment", deployment)
    rows = sweep(
        "llama3.1-70b", gpu="h100-80gb", gpus=4, engine=engine, context="4K:64K:4K", batch="1,8,64"
    )
    assert (len({(row["concurrency"], row["max_context"]) for row in rows}), len(deployments)) == (
        48,
        1,
    )


def test_searched_figures_are_computed_if_they_are_asked_for() -> None:
    (row,) = sweep("llama3-70b", gpu="h100-80gb", tp=2, context=4096, columns="min_gpus,verdict")
    assert row == {"min_gpus": 4, "verdict": "does_not_fit", "error": None} or row["min_gpus"] in (
        2,
        4,
    )
    expected = attncalc.fit("llama3-70b", gpu="h100-80gb", tp=2, context=4096).to_dict()
    assert row["min_gpus"] == expected["min_gpus"]


def test_users_are_axes_too() -> None:
    cells = sweep(
        "llama3-8b",
        gpu="h100-80gb",
        context=8192,
        prompt="1K,4K",
        output="100,1K",
        columns="concurrent_average,concurrent_worst",
    )
    for row in cells:
        users = attncalc.users(
            "llama3-8b", gpu="h100-80gb", context=8192, prompt=row["prompt"], output=row["output"]
        )
        assert row["concurrent_average"] == users.average
        assert row["concurrent_worst"] == users.worst
    assert len(list(cells)) == 4


MODELS = st.lists(
    st.sampled_from(["gpt2", "mistral-7b-v0.1", "t5-base", "llama4-scout"]),
    min_size=1,
    max_size=2,
    unique=True,
)
SIZES = st.lists(st.integers(1, 20_000), min_size=1, max_size=4, unique=True)
DTYPES = st.lists(st.sampled_from(["fp16", "fp8", "int4"]), min_size=1, max_size=2, unique=True)


@settings(max_examples=25)
@given(
    MODELS,
    SIZES,
    SIZES,
    DTYPES,
    st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=2, unique=True),
)
def test_a_sweep_has_a_row_per_combination_in_order(
    models: list[str], batches: list[int], contexts: list[int], dtypes: list[str], tps: list[int]
) -> None:
    cells = sweep(
        models,
        context=contexts,
        batch=batches,
        kv_dtype=dtypes,
        tp=tps,
        columns="kv_cache,model,tp,kv_dtype,batch,context",
    )
    rows = list(cells)
    combinations = list(itertools.product(models, tps, dtypes, batches, contexts))
    assert len(cells) == len(rows) == len(combinations)
    assert [
        tuple(row[name] for name in ("model", "tp", "kv_dtype", "batch", "context")) for row in rows
    ] == combinations
    for row in rows:
        model, error = answer(lambda: load(row["model"]).shard(row["tp"]))  # noqa: B023
        if model is None:
            assert (row["error"], row["kv_cache"]) == (error, None)
            continue
        source = (model.encoder.max_context or 512) if model.encoder else None
        workload = Workload.decode(
            row["batch"], row["context"], source=source, kv_dtype=row["kv_dtype"]
        )
        assert (row["kv_cache"], row["error"]) == (int(kv_cache(model, workload).total), None)


def test_only_axes_that_vary_are_columns() -> None:
    (first, *_) = sweep("llama2-70b", context="1K:4K:x2", batch=8)
    assert list(first) == [
        "context",
        "kv_cache",
        "kv_cache_per_token",
        "params_total",
        "flops_prefill",
        "flops_decode",
        "error",
    ]
    (first, *_) = sweep(
        "llama2-70b", context="1K:4K:x2", batch=8, columns=["batch", "model", "kv_cache"]
    )
    assert first == {
        "context": K,
        "batch": 8,
        "model": "llama2-70b",
        "kv_cache": 8 * K * 327_680,
        "error": None,
    }


def test_the_default_context_is_that_of_the_model() -> None:
    rows = list(sweep(["llama2-70b", "llama3-70b"], columns="context,kv_cache"))
    assert [row["context"] for row in rows] == [4096, 8192]


def test_a_combination_that_is_not_possible_is_a_row_with_its_error() -> None:
    rows = list(sweep("llama2-70b", tp="1,3,8", attention="gqa:8,gqa:7", context="1K,2K"))
    assert len(rows) == 12
    assert [row["error"] is None for row in rows] == [True, True, False, False, True, True] + [
        False
    ] * 6
    assert rows[2]["error"] == "--tp 3 does not divide 64 query heads"
    assert rows[6]["error"] == "gqa:7: 7 does not divide the 64 query heads"
    assert {row["kv_cache"] for row in rows[6:]} == {None}


def test_an_error_of_one_context_leaves_the_others() -> None:
    rows = list(sweep("gpt2", past=300, context="200,300,400", columns="flops_total"))
    assert [row["error"] is None for row in rows] == [False, False, True]
    assert rows[2]["flops_total"] == flops_of("gpt2", Workload.prefill(1, 400, past=300))


def flops_of(name: str, workload: Workload) -> int:
    return int(flops(load(name), workload).total)


def test_figures_of_a_pass_follow_its_options() -> None:
    phases, makers = "prefill,decode,train", (Workload.prefill, Workload.decode, Workload.train)
    rows = list(sweep("gpt2", phase=phases, context=128, batch=3, columns="flops_total"))
    assert [row["flops_total"] for row in rows] == [
        flops_of("gpt2", make(3, 128)) for make in makers
    ]
    rows = list(sweep("gpt2", phase=phases, context=128, batch=3, columns="peak_flash"))
    model = load("gpt2")
    peaks = [
        largest_layer(model, activations(model, make(3, 128))).peaks["flash"].size
        for make in makers[:2]
    ]
    assert [row["peak_flash"] for row in rows] == [*peaks, None]
    assert "memory does not support --phase train" in rows[2]["error"]


def test_a_sweep_is_lazy() -> None:
    """Ten million rows are not computed before the first one is read."""
    cells = sweep("llama2-70b", context="1:10000:1", batch="1:1000:1")
    assert len(cells) == 10_000_000
    first = list(itertools.islice(cells, 3))
    assert [row["context"] for row in first] == [1, 2, 3]
    assert list(itertools.islice(cells, 3)) == first


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"models": []}, "MODEL has no values"),
        ({"models": "llama9-x"}, "llama9-x"),
        (
            {"context": "1:10001:1", "batch": "1:1000:1"},
            "the sweep has 10,001,000 cells, and may have 10,000,000",
        ),
        ({"context": "1:1000000:1"}, "is more than 100,000 numbers"),
        ({"context": "8K:1K:x2"}, "ends below its start"),
        ({"context": "1K:8K"}, "is not a range"),
        ({"context": 0}, "is not a whole number"),
        ({"context": "131,072"}, "has a comma within a number"),
        ({"kv_dtype": "bf61"}, "there is no dtype 'bf61'"),
        ({"kv_dtype": "bf16,,fp8"}, "has an empty value"),
        ({"attention": "gpa:8"}, "unknown kind 'gpa:8'"),
        ({"gpu": "h1000"}, "no GPU named 'h1000'"),
        ({"engine": "all"}, "is not one engine"),
        ({"gpus": 8}, "gpus needs gpu or kv_memory"),
        ({"enforce_eager": True}, "enforce_eager needs gpu or kv_memory"),
        ({"prefix_caching": False, "enforce_eager": False, "gpu": "h1000"}, "no GPU named 'h1000'"),
        ({"phase": "decode"}, "phase changes no column"),
        ({"gpu": "h100", "prompt": 5, "columns": "concurrency"}, "prompt changes no column"),
        ({"columns": "kv_cash"}, "there is no figure 'kv_cash'"),
        ({"columns": "concurrency"}, "columns='concurrency' needs gpu or kv_memory"),
        ({"kontext": 5}, "a sweep has no axis 'kontext'"),
    ],
)
def test_a_value_that_is_never_possible_is_an_error_at_once(
    arguments: dict[str, Any], error: str
) -> None:
    given_arguments = {"models": "llama2-70b", **arguments}
    assert error in refusal(sweep, **given_arguments).message


def test_values_are_lists_texts_or_numbers() -> None:
    for contexts in ("1K,2K,4K", ["1K", "2K", 4096], "1K:4K:x2", range(1024, 4097, 1024)):
        found = [row["context"] for row in sweep("gpt2", context=contexts)]
        assert found in ([K, 2 * K, 4 * K], [K, 2 * K, 3 * K, 4 * K])
    assert [row["gpu"] for row in sweep("gpt2", gpu=[attncalc.gpu("h100-80gb"), "t4"])] == [
        "h100-80gb",
        "t4",
    ]
    assert [row["model"] for row in sweep([load("gpt2"), "gpt3"])] == ["gpt2", "gpt3"]


def test_options_without_a_value_hold_for_all_rows() -> None:
    graphs, eager = (
        [
            row["kv_memory"]
            for row in sweep(
                "llama3-8b", gpu="h100-80gb,h200", context=4096, enforce_eager=is_eager
            )
        ]
        for is_eager in (False, True)
    )
    assert all(more > less for less, more in zip(graphs, eager, strict=True))


def test_pandas_makes_a_table_of_a_sweep() -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(sweep(["gpt2", "gpt3"], context="1K,2K"))
    assert list(table["context"]) == [K, 2 * K] * 2
    assert table["kv_cache"].sum() == sum(
        row["kv_cache"] for row in sweep(["gpt2", "gpt3"], context="1K,2K")
    )


def test_a_part_of_a_model_is_checked_again_after_its_attention_changed() -> None:
    """12 query heads on 4 devices are fine with 12 KV heads, and not with 6."""
    part = load("gpt2").shard(4)
    with pytest.raises(AttncalcError, match="--tp 4 does not divide 6 KV heads"):
        part.with_attention("gqa:6").shard(4)


@each("model", ["gpt2", "mixtral-8x7b", "gemma3-27b", "bert-base"])
def test_the_figures_of_compare_are_columns_without_a_gpu(ask: Ask, model: str) -> None:
    columns = (
        "n_kv_heads",
        "decode_flop_per_byte",
        "decode_flop_per_cache_byte",
        "flops_prefill",
        "flops_decode",
    )
    for row in sweep(model, batch="1,8", context="512,2000", columns=columns):
        compared = results(
            ask(
                "compare",
                model,
                model,
                "-b",
                str(row["batch"]),
                "-c",
                str(row["context"]),
                "--json",
            )
        )
        assert {name: row[name] for name in columns} == {name: compared[name] for name in columns}


def test_an_item_of_a_list_is_one_value_whatever_is_in_it() -> None:
    patterns = ["3 local, 1 global", "5 local, 1 global"]
    rows = [*sweep("llama3.1-8b", pattern=patterns, window=1024, context=8192, columns="kv_cache")]
    assert [row["pattern"] for row in rows] == patterns
    for row in rows:
        alone = attncalc.kv_cache("llama3.1-8b", pattern=row["pattern"], window=1024, context=8192)
        assert row["kv_cache"] == int(alone.total)


@each(
    ("axis", "item", "message"),
    [
        ("context", "4K,8K", "context: '4K,8K' is not a whole number"),
        ("context", "4K:16K:x2", "context: '4K:16K:x2' is not a whole number"),
        ("batch", "1..8", "batch: '1..8' is not a whole number"),
        ("kv_dtype", "bf16,fp8", "there is no dtype 'bf16,fp8'"),
        ("attention", "mha,mqa", "unknown kind 'mha,mqa'"),
        ("gpu", "h100,l4", "no GPU named 'h100,l4'"),
        ("gpu", "all", "no GPU named 'all'"),
        ("models", "gpt2,bert-base", "no preset named 'gpt2,bert-base'"),
    ],
)
def test_an_item_of_a_list_is_no_list_of_its_own(axis: str, item: str, message: str) -> None:
    with pytest.raises(AttncalcError, match=re.escape(message)):
        sweep(**{"models": "gpt2", axis: [item], "columns": "kv_cache"})


def test_an_option_whose_text_has_commas_varies_in_a_list() -> None:
    """A list of numbers is one value of --tensor-split, and a list of such lists has several."""
    options: dict[str, Any] = {
        "gpu": "2xl4",
        "engine": "llamacpp",
        "columns": "max_context,verdict",
    }
    for splits in ([(3, 1), (1, 1)], ["3,1", "1,1"]):
        rows = [*sweep("llama3.1-8b", tensor_split=splits, **options)]
        assert [row["tensor_split"] for row in rows] == ["3,1", "1,1"]
    assert len([*sweep("llama3.1-8b", tensor_split=(3, 1), **options)]) == 1


def test_a_flag_with_an_opposite_may_be_off() -> None:
    rows = [*sweep("gpt2", tie_word_embeddings=[True, False], columns="params_total")]
    assert [row["params_total"] for row in rows] == [
        int(params("gpt2", tie_word_embeddings=tied).total) for tied in (True, False)
    ]
