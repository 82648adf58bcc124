"""Reports: every figure has a formula that gives its value, and screens fit 80 columns."""

import csv
import io
import json
import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from evaluate import text_of
from reports import all_reports, reports_of
from tables import each
from toy import Recurrent

from attncalc import AttncalcError, Grouped, Layers, ModelSpec, Stack, Workload, load
from attncalc.cost.cache import kv_cache
from attncalc.quantity import quantity, ratio
from attncalc.questions.compare.report import compare_models, compare_variants
from attncalc.questions.flops.report import flops_report
from attncalc.questions.kv.report import kv_report
from attncalc.questions.params.report import params_report
from attncalc.questions.presets.report import Listed, presets_report
from attncalc.questions.schemas import schema
from attncalc.show import csv as as_csv
from attncalc.show import json as as_json
from attncalc.show import markdown, text
from attncalc.show.figures import FigureRow, FigureRows, Given, ratio_row
from attncalc.show.formulas import align_formula, explain_figures
from attncalc.show.report import Figure, Report

# Parameters that only some kinds of layers have, besides matrices and norms.
PARTS = {
    f"params_{part}"
    for part in (
        "router",
        "sinks",
        "conv",
        "D",
        "A_log",
        "dt_A",
        "dt_A_D",
        "dt_b_c_norms",
        "vectors",
        "rel_table",
    )
} | {f"params_{stage}_positions" for stage in ("pool", "index", "index_pool")}


@cache
def reports() -> list[Report]:
    """Return a report of every command for every preset: made once, and not when the tests are
    collected.
    """
    return list(all_reports())


def test_every_printed_formula_of_every_preset_gives_its_figure() -> None:
    checked = 0
    for report in reports():
        for figure in report.all_figures:
            if figure.quantity is None:
                assert figure.value is None
                continue
            text_of(figure.quantity)
            numerator, denominator = figure.quantity.numerator, figure.quantity.denominator
            assert figure.value == (numerator if denominator == 1 else numerator / denominator)
            checked += 1
    assert checked > 4000


def test_screens_fit_80_columns() -> None:
    for report in reports():
        for line in text.render(report).splitlines():
            assert len(line) <= 80, line


def test_explanations_fit_80_columns() -> None:
    for report in reports():
        for line in text.render(report, explain=True).splitlines():
            assert len(line) <= 80, line


def test_json_has_one_shape_for_all_models_and_workloads() -> None:
    by_command: dict[str, set[tuple[str, ...]]] = {}
    for report in reports():
        document = json.loads(as_json.render(report))
        listed = ["rows"] * (report.rows is not None)
        shared = [
            "schema",
            "attncalc",
            "values",
            *listed,
            "model",
            "workload",
            "results",
            "layers",
            "notes",
        ]
        is_checked = "fail_if" in schema(report.command)["properties"]
        checked = ["fail_if"] if is_checked else []
        assert list(document) == [*shared, *checked, *report.extra]
        # only the parts of a layer (W_q, W_kv_a, conv, ...) differ between models
        names = [
            r["name"]
            for r in document["results"]
            if "_W_" not in r["name"] and not r["name"].endswith("_norm")
        ]
        names = [name for name in names if name not in PARTS]
        shape = (
            *document["model"],
            *document["workload"],
            *names,
            *(key for key in document["layers"][0]),
        )
        by_command.setdefault(document["schema"], set()).add(shape)
        for result in document["results"]:
            assert list(result) == [
                "name",
                "value",
                "unit",
                "formula",
                "substituted",
                "symbols",
                "source",
            ]
            quotient = result["unit"] in ("", "s", "tokens/s")
            assert result["value"] is None or isinstance(result["value"], int) or quotient
    assert {command: len(shapes) for command, shapes in by_command.items()} == dict.fromkeys(
        by_command, 1
    )


@pytest.mark.parametrize(
    ("command", "names"),
    [
        (
            "kv",
            "kv_cache kv_cache_per_sequence kv_cache_per_token kv_cache_if_mha recurrent_state "
            "cross_attention_cache",
        ),
        (
            "params",
            "params_total params_attention params_mlp params_embedding params_head params_norm "
            "params_active",
        ),
        (
            "flops",
            "flops_total flops_attention_projections flops_attention_scores "
            "flops_attention_scores_dense "
            "flops_mlp flops_head",
        ),
        ("memory", "score_matrix peak_math peak_flash peak_efficient"),
        (
            "fit",
            "kv_memory kv_blocks kv_tokens concurrency max_context max_batch weights min_gpus "
            "kv_bytes_per_block",
        ),
    ],
)
def test_json_keeps_the_names_that_scripts_rely_on(command: str, names: str) -> None:
    for report in reports():
        if report.command == command:
            figure_names = [f.name for f in report.figures]
            assert set(names.split()) <= set(figure_names)
            assert len(figure_names) == len(set(figure_names))


def test_csv_has_one_row_per_figure_or_per_row_of_a_list() -> None:
    for report in reports():
        rows = list(csv.DictReader(io.StringIO(as_csv.render(report))))
        if report.rows is not None:
            assert [row["name"] for row in rows] == [row["name"] for row in report.rows]
            continue
        assert [row["name"] for row in rows] == [f.name for f in report.all_figures]
        names = [(row["of"], row["name"]) for row in rows]
        assert len(names) == len(set(names))


def test_markdown_tables_have_as_many_cells_as_columns() -> None:
    for report in reports():
        lines = markdown.render(report).splitlines()
        tables = [line for line in lines if line.startswith("|")]
        assert tables
        for first, second in pairwise(lines):
            if first.startswith("|") and second.startswith("|"):
                assert len(re.findall(r"(?<!\\)\|", first)) == len(re.findall(r"(?<!\\)\|", second))


def test_reports_support_a_kind_that_they_do_not_know() -> None:
    layers = (
        Layers("toy", 3, attention=Recurrent(10)),
        Layers("own", 2, attention=Grouped(4, 4, 8)),
    )
    mixed = model_of(*layers)
    reports = list(reports_of(mixed))
    assert {f.name: f.value for f in reports[0].figures}["recurrent_state"] == 3 * 2 * 10 * 4
    alone = model_of(layers[0])
    with pytest.raises(AttncalcError, match="toy has no KV heads"):
        alone.with_attention("mqa")
    assert [
        facts["name"] for facts, _ in compare_variants(alone, Workload.decode(1, 64)).layers
    ] == ["toy"]
    assert "toy as released" in " ".join(mixed.with_attention("mqa").notes)


def model_of(*layers: Layers) -> ModelSpec:
    return ModelSpec("m", "m", (Stack("decoder", layers, 32),), vocab_size=9)


def notes(report: Report) -> str:
    return " ".join(report.notes)


@each(
    ("report", "words"),
    [
        (lambda: kv_report(load("gpt2"), Workload.decode(1, 4096)), "warning: context 4,096"),
        (
            lambda: kv_report(load("llama2-7b"), Workload.decode(1, 8192)),
            "beyond the model's maximum of 4,096",
        ),
        (
            lambda: kv_report(load("gemma3-27b"), Workload.decode(1, 131072)),
            "52 of 62 layers attend to a window",
        ),
        (
            lambda: kv_report(load("gemma3-27b"), Workload.decode(1, 4096)),
            "4,096, not d_model 5,376",
        ),
        (
            lambda: kv_report(load("llama2-70b").shard(16), Workload.decode(1, 4096)),
            "2 devices store each head",
        ),
        (
            lambda: kv_report(load("deepseek-v3").shard(8), Workload.decode(1, 4096)),
            "each of the 8 devices stores the whole latent",
        ),
        (
            lambda: kv_report(load("gpt2"), Workload.decode(1, 64, kv_dtype="int4")),
            "Scales are included",
        ),
    ],
)
def test_screens_have_notes_on_what_the_figures_leave_out(report: Any, words: str) -> None:
    assert words in notes(report())


def test_a_context_within_the_maximum_gives_no_warning() -> None:
    assert "warning" not in notes(kv_report(load("llama2-70b"), Workload.decode(1, 4096)))


@pytest.mark.parametrize(
    ("name", "context", "at_context", "no_window_full"),
    [
        # 32 layers, 2 * 8 KV heads * 128 elements of 2 B; the window of 4,096 is full at 32,768
        # tokens
        ("mistral-7b-v0.1", 32_768, 0, 32 * 2 * 8 * 128 * 2),
        ("mistral-7b-v0.1", 4_095, 32 * 2 * 8 * 128 * 2, 32 * 2 * 8 * 128 * 2),
        # 10 global layers, and all 62 before the window of 1,024 is full: 2 * 16 KV heads * 128
        # elements of 2 B
        ("gemma3-27b", 131_072, 10 * 2 * 16 * 128 * 2, 62 * 2 * 16 * 128 * 2),
        ("llama2-70b", 4_096, 80 * 2 * 8 * 128 * 2, 80 * 2 * 8 * 128 * 2),
    ],
)
def test_cache_per_token_has_two_names_with_one_meaning_each(
    name: str, context: int, at_context: int, no_window_full: int
) -> None:
    workload = Workload.decode(1, context)
    expected = {"kv_cache_per_token": at_context, "kv_cache_per_token_max": no_window_full}
    for report in (kv_report(load(name), workload), compare_variants(load(name), workload)):
        assert expected.items() <= {f.name: f.value for f in report.figures}.items()
    of_presets = {f.name: f.value for f in presets_report([Listed(load(name), name)]).layers[0][1]}
    assert of_presets["kv_cache_per_token_max"] == no_window_full
    assert "kv_cache_per_token" not in of_presets  # a list of models has no context


def test_screens_name_the_cache_per_token_in_full_where_a_window_is_full() -> None:
    mistral, llama = load("mistral-7b-v0.1"), load("llama2-70b")
    workload = Workload.decode(1, 32_768)
    for report in (kv_report(mistral, workload), compare_models([mistral, llama], [workload] * 2)):
        screen = text.render(report)
        assert "  per token, at this context" in screen
        assert "  per token, no window full" in screen
    screen = text.render(kv_report(llama, workload))
    assert "  per token  " in screen
    assert "per token, " not in screen
    columns = [
        " ".join(column.header.split())
        for column in compare_variants(mistral, workload).tables[0].columns
    ]
    assert "KV per token, no window full KiB" in columns


def test_without_windows_a_model_caches_what_full_attention_does() -> None:
    model, workload = load("gemma3-27b"), Workload.decode(3, 10_000)
    for engine in ("ideal", "transformers"):
        full = kv_cache(model.with_full_attention(), workload, engine_name=engine)
        cache = kv_cache(model, workload, engine_name=engine)
        assert (cache.without_windows, cache.per_token_without_windows) == (
            full.total,
            full.per_token,
        )


def test_flops_names_the_table_that_it_reproduces() -> None:
    assert "one layer, as in Vaswani et al. 2017, Table 1" in " ".join(
        " ".join(column.header.split())
        for table in flops_report(load("gpt3"), Workload.prefill(1, 2048), full=True).tables
        for column in table.columns
    )


def test_an_explanation_aligns_symbols_over_numbers() -> None:
    figure = kv_report(load("llama2-70b"), Workload.decode(8, 4096)).figures[0]
    assert explain_figures([figure])[0][:3] == [
        "  KV cache = 10,737,418,240 B = 10.00 GiB",
        "    L  * B * T    * 2 * n_kv_heads * d_head * bytes",
        "    80 * 8 * 4096 * 2 * 8          * 128    * 2",
    ]


def test_an_explanation_in_words_has_the_meaning_of_a_number_after_it() -> None:
    """Of narrow screens and for a screen reader; the last line is the formula, which no columns
    align.
    """
    report = kv_report(load("llama2-70b"), Workload.decode(8, 4096))
    lines = [
        "  KV cache = 10,737,418,240 B = 10.00 GiB",
        "    = 80 (layers) * 8 (batch size, in sequences)",
        "      * 4,096 (tokens attended to (keys), with the new ones)",
        "      * 2 (tensors: keys and values) * 8 (key and value heads)",
        "      * 128 (width of a query and a key head) * 2 (bytes of an element in fp16)",
        "    formula: L * B * T * 2 * n_kv_heads * d_head * bytes",
    ]
    assert "\n".join(lines) in text.render(report, explain=True, plain=True)
    assert "\n    = 80 (layers)\n      * 8 (batch size, in sequences)\n" in text.render(
        report, explain=True, width=40
    )


def test_a_symbol_of_an_explanation_in_words_is_explained_once_per_formula_and_a_constant_by_its_place() -> (
    None
):
    """Of the pairs of a causal mask half are computed, which is another 2 than that of a
    multiply-add.
    """
    (lines,) = (
        " ".join(lines).split()
        for lines in explain_figures(
            flops_report(load("gpt3"), Workload.prefill(1, 2048)).figures_to_explain, in_words=True
        )
        if lines[0].startswith("  attention scores, exact")
    )
    shown = " ".join(lines)
    assert (
        "(2,048 (T, tokens attended to (keys), with the new ones) * (2,048 (T) + 1) / 2 (half of "
        "all pairs" in shown
    )
    assert "= 96 (layers) * 1 (batch size, in sequences) * 2 (FLOP per multiply-add)" in shown


def test_a_symbol_is_explained_again_only_if_its_value_changes() -> None:
    lines = text.render(
        kv_report(load("gemma3-27b"), Workload.decode(1, 4096)), explain=True
    ).splitlines()
    layers = [line.split()[1] for line in lines if line.startswith("    L  ") and "layers" in line]
    # per token at this context, of the local layers, of the global ones
    assert layers == ["10", "52", "10"]
    assert sum("source: Vaswani" in line for line in lines) == 1


def test_a_long_formula_is_folded_in_pairs_of_lines() -> None:
    cells = [
        ("alpha", "1", ""),
        ("+", "+", ""),
        ("beta", "22222", ""),
        ("+", "+", ""),
        ("c", "3", ""),
    ]
    assert align_formula(cells, 16, "") == ["alpha + beta  +", "1     + 22222 +", "  c", "  3"]


def test_every_explained_figure_names_its_source() -> None:
    for report in reports():
        assert all(figure.source for figure in report.figures_to_explain), report.command


def test_figures_of_attention_name_their_paper() -> None:
    for report in reports_of(load("deepseek-v3")):
        for figure in report.figures:
            if figure.name in (
                "kv_cache",
                "params_attention",
                "flops_attention_scores",
                "score_matrix",
            ):
                assert "arXiv" in figure.source


ROWS = FigureRows(
    size=FigureRow("size", "B", "bytes", source="the paper"),
    share=ratio_row("share", "size / whole", "without a whole"),
)


def test_figures_have_the_order_of_the_rows_with_their_names_labels_and_units() -> None:
    half = ratio(1, 2)
    assert ROWS.filled("the config", "a layer", share=half, size=quantity(8)) == (
        Figure("size", "size", quantity(8), "B", "the paper", "a layer"),
        Figure("share", "share", half, "", "the config", "a layer"),
    )


def test_a_value_may_have_a_label_and_a_source_of_its_own() -> None:
    size, share = ROWS.filled(
        "the config", size=Given(quantity(8), source="a file"), share=Given(None, "the share")
    )
    assert (size.label, size.source) == ("size", "a file")
    assert (share.label, share.source, share.value) == ("the share", "the config", None)


def test_a_value_without_a_row_and_a_row_without_a_value_are_errors() -> None:
    for values in ({"size": None}, {"size": None, "share": None, "sizes": None}):
        with pytest.raises(TypeError, match=r"share$|sizes$"):
            ROWS.filled(**values)


def test_each_layer_group_has_its_own_figures() -> None:
    model = load("gemma3-27b")
    workload = Workload.decode(1, 4096)
    for made in (kv_report(model, workload), flops_report(model, workload), params_report(model)):
        assert len(made.layers) == 2
        assert all(
            figure.of == facts["name"] for facts, figures in made.layers for figure in figures
        )
