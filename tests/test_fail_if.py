"""compare --fail-if: limits on figures, changes from a baseline, and what CI sees."""

import contextlib
import csv
import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from asking import Ask, of_questions
from configs import SMALL_LLAMA
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError
from attncalc.engines import ENGINES
from attncalc.quantity import quantity
from attncalc.show.fail_if import Outcome, parse_condition
from attncalc.show.report import Figure
from attncalc.units import BYTES, FLOP, MAX_COUNT, PARAMS, parse_amount

CONFIG = {**SMALL_LLAMA, "num_hidden_layers": 2, "num_attention_heads": 4}
PER_TOKEN = 2 * 2 * 2 * 16 * 2  # layers x (K and V) x KV heads x width x bytes
PER_TOKEN_MHA = 2 * PER_TOKEN  # with 4 KV heads


@pytest.fixture
def old_and_new(tmp_path: Path) -> list[str]:
    """Return two configs; the new one has 4 KV heads in place of 2."""
    files = []
    for name, heads in (("old", 2), ("new", 4)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG | {"num_key_value_heads": heads}))
        files.append(str(folder / "config.json"))
    return files


def figure(name: str, value: int, unit: str = BYTES, of: str = "") -> Figure:
    return Figure(name, name, quantity(value), unit, of=of)


def result(condition: str, value: int, baseline: int | None = None, unit: str = BYTES) -> Outcome:
    parsed = parse_condition(condition)
    before = None if baseline is None else figure(parsed.name, baseline, unit)
    return parsed.test(figure(parsed.name, value, unit), before)


@each(
    ("condition", "value", "fails"),
    [
        ("x > 8KiB", 8192, False),
        ("x > 8KiB", 8193, True),
        ("x >= 8K", 8192, True),
        ("x<8k", 7999, True),
        ("x <= 8_000", 8000, True),
        ("x == 8000", 8000, True),
        ("x != 8e3", 8000, False),
        ("x > 1.5e3", 1500, False),
        ("x > 0.5KiB", 512, False),
        ("x > .5KiB", 513, True),
        ("x > 15e-1", 2, True),
        ("x > 0", 0, False),
    ],
)
def test_a_limit_is_compared_exactly(condition: str, value: int, fails: bool) -> None:
    assert result(condition, value).passed is not fails


@each(
    ("condition", "unit", "most"),
    [
        ("x > 9B", PARAMS, 9 * 10**9),
        ("x > 1.5 b", PARAMS, 15 * 10**8),
        ("x > 7M", PARAMS, 7 * 10**6),
        ("x > 1T", FLOP, 10**12),
        ("x > 4K", BYTES, 2**12),
    ],
)
def test_a_suffix_of_parameters_and_flops_is_decimal(condition: str, unit: str, most: int) -> None:
    assert [result(condition, value, unit=unit).passed for value in (most, most + 1)] == [
        True,
        False,
    ]


@each(
    ("command", "condition"),
    [
        (("kv", "gpt2"), "kv > 1MiB"),
        (("kv", "gpt2"), "total > 1MiB"),
        (("params", "gpt2"), "params > 100M"),
        (("params", "gpt2"), "parameters > 0.1B"),
        (("flops", "gpt2"), "flops > 1G"),
        (("fit", "gpt2", "--gpu", "l4"), "kv_cache > 1MiB"),
    ],
)
def test_a_short_name_is_no_figure_of_the_command(
    command: tuple[str, ...], condition: str, ask: Ask
) -> None:
    name = condition.partition(" >")[0]
    error = ask(*command, "--fail-if", condition, "--quiet").error
    assert error.startswith(f"error: --fail-if: there is no figure '{name}'\n")


def test_a_label_is_the_figure_that_it_names(ask: Ask) -> None:
    err = ask("kv", "gpt2", "--fail-if", "KV cache>1MiB", "--quiet").err
    assert "failed: KV cache>1MiB: gpt2 has " in err


@each(
    ("condition", "baseline", "value", "fails"),
    [
        ("x > +0%", 100, 100, False),
        ("x > +0%", 100, 101, True),
        ("x > +5%", 100, 105, False),
        ("x > +5%", 100, 106, True),
        ("x > + 5 %", 100, 106, True),
        ("x < -5%", 100, 95, False),
        ("x < -5%", 100, 94, True),
        ("x > +2.5%", 1000, 1025, False),
        ("x > +2.5%", 1000, 1026, True),
        ("x >= +2KiB", 1024, 3072, True),
        ("x > +2KiB", 1024, 3072, False),
        ("x < -1K", 1024, 0, False),
        ("x > +0%", 0, 1, True),
        ("x > +10%", 10**29, 10**29 + 10**28, False),
        ("x > +10%", 10**29, 10**29 + 10**28 + 1, True),
    ],
)
def test_a_change_is_measured_from_the_baseline(
    condition: str, baseline: int, value: int, fails: bool
) -> None:
    assert result(condition, value, baseline).passed is not fails


@given(st.integers(0, MAX_COUNT), st.integers(0, MAX_COUNT), st.integers(0, 1000))
def test_a_percentage_agrees_with_fractions(before: int, after: int, tenths: int) -> None:
    fails = Fraction(after) > Fraction(before) * (1 + Fraction(tenths, 1000))
    assert result(f"x > +{tenths // 10}.{tenths % 10}%", after, before).passed is not fails


@each(
    ("text", "number", "unit"),
    [
        ("7.5e9", 7_500_000_000, ""),
        ("7.5E+9", 7_500_000_000, ""),
        ("10k", 10_000, ""),
        ("10K", 10_240, ""),
        ("7.5g", 7_500_000_000, ""),
        ("2 GiB", 2 * 2**30, "B"),
        ("2gb", 2 * 10**9, "B"),
        ("7.5EiB", 15 * 2**59, "B"),
        ("512B", 512, "B"),
        ("1.5TFLOP", 1_500_000_000_000, "FLOP"),
        ("3FLOP", 3, "FLOP"),
        ("0.25", Fraction(1, 4), ""),
        ("25e-2", Fraction(1, 4), ""),
        ("1e30", 10**30, ""),
    ],
)
def test_an_amount_has_the_suffixes_of_other_options(
    text: str, number: int | Fraction, unit: str
) -> None:
    amount = parse_amount(text, "--fail-if")
    assert amount.unit == unit
    assert Fraction(amount.numerator, amount.denominator) == number


@each(
    ("condition", "error", "tip"),
    [
        ("", "'' is not a condition", "write NAME OP VALUE"),
        ("kv_cache", "is not a condition", "write NAME OP VALUE"),
        ("kv_cache = 3", "is not a condition", "write NAME OP VALUE"),
        ("kv > 3 and weights > 4", "is more than one condition", "give --fail-if for each"),
        ("kv_cache => 3", "is not a condition", "write NAME OP VALUE"),
        ("kv_cache >", "'' is not a number or a size", "write 7.5e9"),
        ("kv_cache > lots", "'lots' is not a number or a size", "write 7.5e9"),
        ("kv_cache > 5%", "a percentage is a change and needs a sign", "write +5%"),
        ("kv_cache > +5GiB%", "a percentage has no unit", "write +5% or +2GiB"),
        ("kv_cach > 5", "there is no figure 'kv_cach'", "did you mean 'kv_cache'?"),
        ("kv_cache > 5TFLOP", "kv_cache is not in FLOP", "write a size, as 8GiB"),
        (
            "params_total > 7.5GB",
            "params_total is not in B",
            "write a number without a unit, as 7.5e9",
        ),
        ("flops_prefill > 1GiB", "flops_prefill is not in B", "write FLOP, as 1.5TFLOP"),
        ("kv_cache > +5%", "needs two models", "name the model to compare with first"),
        ("kv_cache > -5", "needs two models", "write a limit without a sign"),
    ],
)
def test_a_wrong_condition_is_an_error_with_a_tip(
    ask: Ask, condition: str, error: str, tip: str
) -> None:
    first, second = ask("compare", "gpt2", "--fail-if", condition).error.splitlines()
    assert first.startswith("error: --fail-if")
    assert error in first
    assert tip in second


@given(st.one_of(st.text(), st.from_regex(r"\w+ ?[<>=!]=? ?[+-]?[\d.,_e]* ?\w*%?", fullmatch=True)))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    with contextlib.suppress(AttncalcError):
        condition = parse_condition(text)
        assert Fraction(condition.amount.numerator, condition.amount.denominator) <= MAX_COUNT


def test_a_condition_is_read_before_the_models(ask: Ask) -> None:
    assert "is not a condition" in ask("compare", "no-such-model", "--fail-if", "x").err


def test_a_figure_that_does_not_apply_is_an_error(ask: Ask) -> None:
    """An encoder has no decode step."""
    error = ask("compare", "gpt2", "bert-base", "-c", "128", "--fail-if", "flops_decode > 1").error
    assert error.startswith(
        "error: --fail-if 'flops_decode > 1': flops_decode does not apply to bert-base\n"
    )
    error = ask(
        "compare", "bert-base", "gpt2", "-c", "128", "--fail-if", "flops_decode > 1e30"
    ).error
    assert "flops_decode does not apply to bert-base" in error
    assert (
        ask("compare", "bert-base", "gpt2", "-c", "128", "--fail-if", "flops_decode > +1%").code
        == 2
    )


def test_a_failed_check_exits_with_1_and_names_figure_values_and_limit(
    ask: Ask, old_and_new: list[str]
) -> None:
    answer = ask("compare", *old_and_new, "-c", "64", "--fail-if", "kv_cache_per_token > +0%")
    assert answer.code == 1
    assert "\nFAILS: 1 of 1 check.\n" in answer.out
    sentence = f"new has {PER_TOKEN_MHA} B, the limit is {PER_TOKEN} B; old has {PER_TOKEN} B."
    assert f"failed: kv_cache_per_token > +0%: {sentence}" in " ".join(answer.out.split())
    assert answer.err == ""


def test_quiet_prints_the_limits_that_fail_alone(ask: Ask, old_and_new: list[str]) -> None:
    conditions = ("--fail-if", "kv_cache_per_token > +0%", "--fail-if", "kv_cache > 1TiB")
    for command in (
        ["compare", *old_and_new],
        ["kv", old_and_new[1], "--fail-if", "kv_cache_per_token > 1"],
    ):
        answer = ask(*command, *(conditions if command[0] == "compare" else ()), "--quiet")
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("failed: kv_cache_per_token > ")
        assert answer.err.count("\n") == 1


def test_quiet_json_is_printed_and_may_not_fit_names_its_condition(ask: Ask) -> None:
    answer = ask("fit", "llama3.1-8b", "--gpu", "l4", "-c", "32K", "--json", "--quiet")
    # 128 KiB per token
    assert (answer.code, answer.document["values"]["kv_bytes_per_sequence"]) == (0, 4 * 2**30)
    assert answer.err.startswith(
        "note: MAY NOT FIT exits with 0; --fail-if 'verdict != FITS' makes it 1\n"
    )


def test_checks_that_pass_exit_with_0(ask: Ask, old_and_new: list[str]) -> None:
    conditions = ("--fail-if", "kv_cache_per_token > +100%", "--fail-if", "params_total > 7.5B")
    answer = ask("compare", *old_and_new, "-c", "64", *conditions)
    assert answer.code == 0
    assert "\nPASSES: 3 checks.\n" in answer.out
    assert "failed" not in answer.out


@pytest.mark.parametrize("form", ["json", "csv", "tsv"])
def test_a_failed_check_is_named_on_standard_error_beside_data(
    ask: Ask, old_and_new: list[str], form: str
) -> None:
    answer = ask(
        "compare", *old_and_new, "-c", "64", "--fail-if", "kv_cache > +0%", "--format", form
    )
    assert answer.code == 1
    assert answer.err.startswith("failed: kv_cache > +0%: new has ")


def test_a_failed_check_is_named_on_standard_error_beside_a_file(
    ask: Ask, old_and_new: list[str], tmp_path: Path
) -> None:
    answer = ask(
        "compare",
        *old_and_new,
        "-c",
        "64",
        "--fail-if",
        "kv_cache > 1",
        "-o",
        str(tmp_path / "x.html"),
    )
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("failed: kv_cache > 1: ")
    assert "FAILS: 2 of 2 checks." in (tmp_path / "x.html").read_text()


def test_a_name_on_standard_error_is_escaped(ask: Ask, tmp_path: Path) -> None:
    folder = tmp_path / "x\x1b[31m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    answer = ask("compare", str(folder), "-c", "64", "--fail-if", "kv_cache > 1", "--json")
    assert answer.code == 1
    assert "\x1b" not in answer.err
    assert "[31m as GQA-2 has 16,384 B" in answer.err


def checks(ask: Ask, *arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = ask("compare", *arguments, "--json").document["fail_if"]
    return listed


@each(
    "command",
    of_questions(
        ["kv gpt2", "params gpt2", "flops gpt2", "memory gpt2", "fit gpt2 --gpu h100", "train gpt2"]
    ),
)
def test_every_command_has_its_checks_in_json(ask: Ask, command: str) -> None:
    first = ask(*command.split(), "--json").document
    figure = next(result for result in first["results"] if result["value"])
    answer = ask(*command.split(), "--json", "--fail-if", f"{figure['name']} > 0")
    (check,) = answer.document["fail_if"]
    assert (answer.code, check["name"], check["value"]) == (1, figure["name"], figure["value"])
    assert (first["fail_if"], check["passed"]) == ([], False)


def test_json_has_every_check(ask: Ask, old_and_new: list[str]) -> None:
    conditions = ("--fail-if", "kv_cache_per_token >  +0%", "--fail-if", "kv_cache_ratio > 2.5")
    assert checks(ask, *old_and_new, "-c", "64", *conditions) == [
        {
            "model": "old",
            "context": 64,
            "of": "old",
            "condition": "kv_cache_ratio > 2.5",
            "name": "kv_cache_ratio",
            "value": 1,
            "baseline": None,
            "operator": ">",
            "limit": 2.5,
            "unit": "",
            "passed": True,
        },
        {
            "model": "new",
            "context": 64,
            "of": "new",
            "condition": "kv_cache_per_token > +0%",
            "name": "kv_cache_per_token",
            "value": PER_TOKEN_MHA,
            "baseline": PER_TOKEN,
            "operator": ">",
            "limit": PER_TOKEN,
            "unit": "B",
            "passed": False,
        },
        {
            "model": "new",
            "context": 64,
            "of": "new",
            "condition": "kv_cache_ratio > 2.5",
            "name": "kv_cache_ratio",
            "value": 2,
            "baseline": None,
            "operator": ">",
            "limit": 2.5,
            "unit": "",
            "passed": True,
        },
    ]
    assert checks(ask, "gpt2") == []


def test_each_model_after_the_first_is_checked_at_each_context(
    ask: Ask, old_and_new: list[str]
) -> None:
    old, new = old_and_new
    found = checks(ask, old, new, old, "-c", "32,64", "--fail-if", "kv_cache > +0%")
    assert [(check["model"], check["context"], check["passed"]) for check in found] == [
        ("new", 32, False),
        ("new", 64, False),
        ("old", 32, True),
        ("old", 64, True),
    ]
    assert [check["baseline"] for check in found] == [32 * PER_TOKEN, 64 * PER_TOKEN] * 2


def test_a_limit_is_tested_on_every_variant(ask: Ask) -> None:
    """LLaMA-2 70B has 8 KV heads, with MHA 64; MLA has one latent for all heads."""
    found = checks(ask, "llama2-70b", "--attention", "mla:512", "--fail-if", "n_kv_heads > 32")
    assert [(check["of"], check["value"], check["passed"]) for check in found] == [
        ("MHA", 64, False),
        *(
            (name, int(name.partition("-")[2]), True)
            for name in ("GQA-32", "GQA-16", "GQA-8", "GQA-4", "GQA-2")
        ),
        ("MQA", 1, True),
        ("MLA-512", 1, True),
    ]
    assert {(check["model"], check["baseline"]) for check in found} == {("llama2-70b", None)}


def test_a_limit_is_tested_on_the_first_model_too(ask: Ask, old_and_new: list[str]) -> None:
    """In either order the same model fails; a change is from the first, which is not tested on
    it.
    """
    for models in (old_and_new, old_and_new[::-1]):
        found = checks(ask, *models, "-c", "64", "--fail-if", f"kv_cache_per_token > {PER_TOKEN}")
        assert {check["model"]: check["passed"] for check in found} == {"old": True, "new": False}
        changes = checks(ask, *models, "-c", "64", "--fail-if", "kv_cache_per_token > +0%")
        assert len(changes) == 1


def test_a_limit_is_tested_on_a_model_with_and_without_other_sizes(
    ask: Ask, old_and_new: list[str]
) -> None:
    _, new = old_and_new
    limits = ("--fail-if", "kv_cache_per_token > 0", "--fail-if", "kv_cache_per_token > +0%")
    found = checks(ask, new, "--kv-heads", "2", "-c", "64", *limits)
    assert [(check["of"], check["passed"]) for check in found] == [
        ("new", False),
        ("--kv-heads 2", False),
        ("--kv-heads 2", True),
    ]


def test_a_limit_is_tested_on_every_engine(ask: Ask) -> None:
    answer = ask(
        "fit",
        "llama3-8b",
        "--gpu",
        "h100",
        "--engine",
        "all",
        "--json",
        "--fail-if",
        "max_batch < 1",
    )
    assert [check["of"] for check in answer.document["fail_if"]] == list(ENGINES)


def test_a_failed_check_names_the_context_if_there_are_several(ask: Ask) -> None:
    """GPT-2 caches 36,864 B per token: 12 layers x (K and V) x 768 x 2 bytes."""
    out = ask(
        "compare", "gpt2", "-c", "1K,512", "--dtype", "fp16", "--fail-if", "kv_cache > 18MiB"
    ).out
    failed = [line for line in out.splitlines() if line.startswith("failed")]
    assert (
        failed[0]
        == "failed: kv_cache > 18MiB: gpt2 as MHA at context 1024 has 37,748,736 B (36 MiB),"
    )
    assert not any("context 512" in line for line in failed)


def test_a_model_does_not_change_from_itself(ask: Ask, old_and_new: list[str]) -> None:
    """The second is compared with the first although both have one name."""
    old, _ = old_and_new
    (check,) = checks(ask, old, old, "-c", "64", "--fail-if", "params_total != +0%")
    assert check["passed"]


def test_a_sentence_shows_a_limit_between_whole_numbers() -> None:
    assert "the limit is 1.5;" in result("x > +50%", 3, 1, PARAMS).sentence("new")
    assert "the limit is 2,501 (2.50 thousand);" in result("x > +0.1%", 3, 2499, PARAMS).sentence(
        "new"
    )
    assert "the limit is -1;" in result("x > -2", 3, 1, PARAMS).sentence("new")


def test_figures_of_csv_do_not_depend_on_checks(ask: Ask, old_and_new: list[str]) -> None:
    plain = ask("compare", *old_and_new, "-c", "64", "--format", "csv").out
    checked = ask(
        "compare", *old_and_new, "-c", "64", "--format", "csv", "--fail-if", "kv_cache > 1"
    ).out
    assert plain == checked
    assert len(list(csv.DictReader(io.StringIO(plain)))) == 2
