"""Help: headings, and the common options within a screen."""

import re

import pytest
from asking import Ask
from tables import each

from attncalc.options import Option, options_of
from attncalc.questions import QUESTIONS
from attncalc.questions.fit.options import GROUPS, FitOptions
from attncalc.questions.sweep.others import OTHERS


def test_help_of_a_subcommand_takes_a_topic_too(ask: Ask) -> None:
    whole = ask("presets", "show", "--help", "all")
    assert ask("help", "presets", "show", "all") == whole
    assert "Write to this file." in whole.out  # the common options have no full stop
    wrong = ask("help", "presets", "show", "foo")
    assert "the help of 'attncalc presets show' has no topic 'foo'" in wrong.err


@pytest.mark.parametrize("command", ["fit", "sweep"])
def test_help_has_a_heading_for_each_group_of_options(ask: Ask, command: str) -> None:
    headings = re.findall(r"^(\S.*):$", ask(command, "--help", "all").out, re.MULTILINE)
    further = [*(other.heading for other in OTHERS.values()), "Rows"] if command == "sweep" else []
    assert headings[2:-1] == [*GROUPS, *further]
    assert (headings[0], headings[-1]) == ("Arguments", "Output")


def test_brief_help_lists_the_common_options_and_the_long_one_all(ask: Ask) -> None:
    brief, whole = ask("fit", "--help").out, ask("fit", "--help", "all").out
    assert ask("fit", "-h").out == brief
    for option in options_of(FitOptions).values():
        assert option.name in whole
        assert (re.search(rf"{option.name}\b(?!-)", brief) is not None) == option.is_common, (
            option.name
        )
    left_out = re.search(r"--help all lists (\d+) more options", brief)
    assert left_out
    assert len(brief.splitlines()) <= 59
    assert "more options" not in whole


def test_a_line_of_brief_help_has_the_first_sentence_without_what_is_in_brackets(ask: Ask) -> None:
    lines = " ".join(ask("sweep", "-h").out.split())
    assert "-c, --context N Tokens of context, as 4096, 128k or 128K " in lines
    assert "--phase PHASE prefill, decode or train " in lines


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("command", QUESTIONS)
def test_help_has_no_line_wider_than_the_screen_and_no_divided_word(
    command: str, width: int, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = ask(command, "--help", "all").out
    monkeypatch.setenv("COLUMNS", str(width))
    narrow = ask(command, "--help", "all").out
    assert [
        line for line in narrow.splitlines() if len(line) > width and len(line.split()) > 1
    ] == []
    assert sorted(narrow.split()) == sorted(wide.split())


def test_names_of_options_are_above_their_help_on_a_narrow_screen(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert (
        "\n  --vocab-size N\n      What if its vocabulary had N\n      tokens.\n"
        in ask("kv", "--help", "all").out
    )
    assert (
        "\n  kv       KV cache: total, per\n           sequence and per token.\n"
        in ask("--help").out
    )


@each("command", ["kv", "memory", "flops"])
def test_help_of_a_question_about_one_model_is_one_short_list(ask: Ask, command: str) -> None:
    brief = ask(command, "--help").out
    assert re.findall(r"^(\S.*):$", brief, re.MULTILINE) == ["Arguments", "Options"]
    # within 24 rows with the prompt; flops has three more options
    assert len(brief.splitlines()) <= (25 if command == "flops" else 23)
    whole = ask(command, "--help", "all").out
    headings = re.findall(r"^(\S.*):$", whole, re.MULTILINE)
    assert headings == ["Arguments", "Options", "Model", "Workload", "Output"]


@each("topic", ["vllm", "vLLM"])
def test_help_of_a_topic_lists_its_options_alone(ask: Ask, topic: str) -> None:
    listed = ask("fit", "--gpu", "h100", "--help", topic).out
    assert re.findall(r"^(\S.*):$", listed, re.MULTILINE) == ["vLLM"]
    assert "--max-num-batched-tokens N" in listed
    assert "more options" not in listed
    assert ask("help", "fit", topic).out == listed
    assert ask("fit", f"--help={topic}").out == listed


def test_a_word_of_a_heading_is_a_topic(ask: Ask) -> None:
    listed = ask("fit", "--help", "gpus").out
    assert re.findall(r"^(\S.*):$", listed, re.MULTILINE) == ["GPUs and engine"]


def test_an_unknown_topic_is_an_error_that_names_the_known_ones(ask: Ask) -> None:
    assert ask("kv", "--help", "gpt2").error == (
        "error: the help of 'attncalc kv' has no topic 'gpt2'\n"
        "  tip: give one of all, arguments, options, model, workload, output\n"
    )


def test_every_option_of_fit_is_below_one_heading() -> None:
    below = [name for kinds in GROUPS.values() for kind in kinds for name in options_of(kind)]
    assert sorted(below) == sorted(options_of(FitOptions))


def test_the_name_of_an_option_in_errors_is_its_first() -> None:
    flag = Option("--x/--no-x", "--enable-x/--no-enable-x", help="")
    assert (flag.name, flag.parameter, flag.is_flag, flag.is_axis) == ("--x", "x", False, False)
    value = Option("--kv-dtype", "-k", metavar="DTYPE", help="")
    assert (value.name, value.parameter, value.is_flag, value.is_axis) == (
        "--kv-dtype",
        "kv_dtype",
        False,
        True,
    )


@each("option", ["--help", "-h", "--version", "-V"])
def test_words_after_help_or_version_are_an_error(ask: Ask, option: str) -> None:
    assert ask(option, "fit").error == (
        f"error: unexpected after {option}: fit\n"
        "  tip: 'attncalc fit --help' shows the options of fit\n"
    )
