"""The command line: answers in every format, and their notes."""

import json
import os
import re
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask, of_questions, results, shell, started
from configs import LLAMA_3_8B
from tables import each

from attncalc import __version__
from attncalc.cli import run
from attncalc.questions import QUESTIONS
from attncalc.questions.schemas import schema_name


def test_the_first_command_of_the_readme(ask: Ask) -> None:
    answer = ask("kv", "--preset", "llama2-70b")
    assert answer.code == 0
    assert "1.25 GiB  1,342,177,280 B" in answer.out
    assert answer.err == ""


def test_json_has_the_names_that_scripts_rely_on(ask: Ask) -> None:
    answer = ask("kv", "llama2-70b", "-b", "8", "-c", "4096", "--json")
    document = answer.document
    assert document["schema"] == schema_name("kv")
    assert document["attncalc"] == __version__
    facts = {
        "d_model": 8192,
        "n_layers": 80,
        "vocab_size": 32_000,
        "max_context": 4096,
        "dtype": "fp16",
        "tp": 1,
    }
    assert facts.items() <= document["model"].items()
    assert results(answer)["kv_cache"] == 10_737_418_240
    assert results(answer)["kv_cache_per_token"] == 327_680
    assert results(answer)["kv_cache_if_mha"] == 8 * 10_737_418_240


@pytest.mark.parametrize("name", ["model", "name", "models", "words"])
def test_a_folder_may_have_the_name_of_a_parameter(
    ask: Ask, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "config.json").write_text('{"model_type": "llama", "hidden_size": 4096}')
    monkeypatch.chdir(tmp_path)
    for command in ("kv", "compare"):
        answer = ask(command, name, "--json")
        assert (answer.code, answer.err) == (0, "")


@each("command", ["kv", "params", "flops", "memory", "compare"])
@each("form", ["table", "json", "csv", "markdown"])
def test_every_command_answers_in_every_format(ask: Ask, command: str, form: str) -> None:
    for more in ((), ("--explain",), ("--attention", "mla:64")):
        answer = ask(command, "gpt2", "--format", form, *more)
        assert (answer.code, answer.err) == (0, "")
        assert answer.out.endswith("\n")
        if form == "json":
            assert answer.document


@pytest.mark.skipif(not hasattr(os, "pread"), reason="Windows has no pread")
def test_a_file_on_standard_input_stays_for_the_loop_around(tmp_path: Path) -> None:
    """`while read gpu; do attncalc fit --gpu $gpu; done < gpus.txt` reads all lines of the file."""
    (tmp_path / "gpus.txt").write_text("l4\nh100\n", encoding="utf-8")
    with open(tmp_path / "gpus.txt", encoding="utf-8") as file:
        with started("-m", "attncalc", "fit", "--gpu", "l4", stdin=file) as running:
            assert running.communicate()[0].startswith("FITS")
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 0


def test_standard_input_is_read_only_where_a_dash_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_3_8B), encoding="utf-8")
    assert shell(f"attncalc kv - < {tmp_path}/config.json").returncode == 0
    without = shell(f"attncalc kv < {tmp_path}/config.json")
    assert (without.returncode, without.stderr.splitlines()[0]) == (2, "error: a model is required")
    # the lines stay for the loop
    in_a_loop = shell(
        "printf 'gpt2\nqwen3-8b\n' | while read m; do attncalc fit $m; attncalc kv $m --nosuch; "
        "done"
    )
    assert (
        in_a_loop.stdout.count("NEEDS"),
        in_a_loop.stderr.count("no such option: --nosuch"),
    ) == (2, 2)


@pytest.mark.parametrize("command", ["kv", "params", "flops", "memory", "compare"])
def test_every_command_takes_a_model_by_argument_option_and_stdin(ask: Ask, command: str) -> None:
    text = (REPOSITORY / "presets/models/gpt2.yaml").read_text()
    by_argument, by_option = ask(command, "gpt2"), ask(command, "-p", "gpt2")
    assert by_argument == by_option
    if command != "compare":
        assert ask(command, "-", stdin=text).out == by_argument.out


@pytest.mark.parametrize(
    ("option", "same"),
    [
        ("--max-model-len", "--context"),
        ("--tensor-parallel-size", "--tp"),
        ("--kv-cache-dtype", "--kv-dtype"),
    ],
)
def test_options_have_the_engines_names_too(ask: Ask, option: str, same: str) -> None:
    value = "fp8" if "dtype" in option else "2"
    assert ask("kv", "gpt2", option, value) == ask("kv", "gpt2", same, value)


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("4_096", 4096), ("4k", 4000), ("4K", 4096), ("1M", 2**20)]
)
def test_a_context_may_have_separators_and_a_suffix(ask: Ask, text: str, tokens: int) -> None:
    assert ask("kv", "llama2-7b", "-c", text, "--json").document["workload"]["context"] == tokens


def test_10_to_the_18_tokens_are_exact(ask: Ask) -> None:
    answer = ask("kv", "llama2-70b", "-c", str(10**18), "--json")
    assert results(answer)["kv_cache"] == 327_680 * 10**18
    assert ask("flops", "llama2-70b", "-c", str(10**18)).code == 0


def test_attention_can_be_replaced_by_another_kind(ask: Ask) -> None:
    base, mqa = (
        results(ask("kv", "llama2-70b", "--attention", kind, "--json"))["kv_cache"]
        for kind in ("gqa:8", "mqa")
    )
    assert base == 8 * mqa
    assert "MLA" in ask("compare", "llama2-70b", "--attention", "mla:512").out


def test_compare_marks_the_released_variant(ask: Ask) -> None:
    answer = ask("compare", "llama2-70b")
    assert "GQA-8 *" in answer.out
    document = ask("compare", "llama2-70b", "--json").document
    assert [row["name"] for row in document["layers"]] == [
        "MHA",
        "GQA-32",
        "GQA-16",
        "GQA-8",
        "GQA-4",
        "GQA-2",
        "MQA",
    ]
    assert [row["name"] for row in document["layers"] if row["released"]] == ["GQA-8"]


def test_a_prefix_of_any_length_has_exact_scores(ask: Ask) -> None:
    answer = ask("flops", "gpt2", "--mask", "prefix:300", "-c", "512", "--json")
    assert answer.code == 0
    # causal pairs and the upper triangle of the first 300; 12 layers of 12 heads * 64, QK and PV
    assert results(answer)["flops_attention_scores"] == 12 * 4 * 12 * 64 * (
        512 * 513 // 2 + 300 * 299 // 2
    )


def test_assumptions_are_in_the_notes(ask: Ask) -> None:
    assert "--context 512 is assumed: the model has no maximum." in ask(
        "kv", "transformer-base"
    ).out.replace("\n  ", " ")
    assert "Context 448: the longest that all" in ask("compare", "gpt2", "whisper-large-v3").out
    assert (
        "a rotary key of 64 beside the latent"
        in ask("kv", "llama2-7b", "--attention", "mla:512").out
    )


def test_compare_warns_of_every_model_with_a_shorter_context(ask: Ask) -> None:
    answer = ask("compare", "gpt2", "whisper-large-v3", "-c", "5000").out.replace("\n  ", " ")
    assert "warning: GPT-2 (124M): context 5,000" in answer
    assert "warning: Whisper large-v3: context 5,000" in answer


def test_compare_puts_models_side_by_side(ask: Ask) -> None:
    answer = ask("compare", "llama2-70b", "gemma3-27b", "deepseek-v3")
    assert answer.code == 0
    assert "llama2-70b gemma3-27b deepseek-v3" in " ".join(answer.out.split())
    assert "context 4,096" in answer.out
    both = (
        ask("compare", *names, "--json").document["layers"][0]
        for names in (["gpt2"], ["gpt2", "gpt3"])
    )
    one, other = both
    assert set(one) == set(other)


def test_help_lists_every_command(ask: Ask) -> None:
    for arguments in ((), ("-h",), ("--help",)):
        answer = ask(*arguments)
        assert answer.code == 0
        assert all(command in answer.out for command in QUESTIONS)
    for command in QUESTIONS:
        answer = ask(command, "-h")
        assert answer.code == 0
        assert max(map(len, answer.out.splitlines())) <= 80
    assert ask("-V").out == f"attncalc {__version__}\n"


def test_a_context_beyond_the_positions_is_a_warning(ask: Ask) -> None:
    answer = ask("kv", "gpt2", "-c", "4096", "--json")
    assert answer.code == 0
    assert answer.err.startswith(
        "warning: context 4,096 is beyond the learned position table of 1,024"
    )
    assert answer.document["notes"][0].startswith("warning: ")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("fit", "gpt2", "--gpu", "h100", "--gpu", "h200"), "--gpu"),
        (("kv", "gpt2", "-c", "1k", "-c", "2k"), "--context"),
        (("kv", "gpt2", "-c", "1k", "--max-model-len", "1k"), "--context"),
        (("kv", "gpt2", "-p", "gpt2", "--preset", "gpt3"), "--preset"),
        (("verify", "gpt2", "--seed", "1", "--seed", "2"), "--seed"),
        (("presets", "--format", "csv", "--format", "json"), "--format"),
        (("presets", "show", "gpt2", "-o", "a.yaml", "--output", "b.yaml"), "--output"),
        (
            ("fit", "gpt2", "--kv-memory", "1GiB", "--prefix-caching", "--no-prefix-caching"),
            "--prefix-caching",
        ),
        (
            ("fit", "gpt2", "--kv-memory", "1GiB", "--prefix-caching", "--enable-prefix-caching"),
            "--prefix-caching",
        ),
    ],
    ids=" ".join,
)
def test_an_option_that_takes_one_value_is_given_once(
    ask: Ask, command: tuple[str, ...], option: str
) -> None:
    error = ask(*command).error
    assert f"error: {option} is given twice" in error
    assert "tip: give it once" in error


def test_the_tip_lists_all_names_of_a_repeated_option(ask: Ask) -> None:
    err = ask("kv", "gpt2", "-c", "1", "-c", "2", "-c", "3").err
    assert "--context is given 3 times" in err
    assert "--context, -c, --max-model-len are the same option" in err


def test_flags_and_kinds_may_be_repeated(ask: Ask) -> None:
    assert ask("kv", "gpt2", "--json", "--json") == ask("kv", "gpt2", "--json")
    rows = ask("compare", "llama2-70b", "--attention", "mla:256", "--attention", "mla:512").out
    assert "MLA-256" in rows
    assert "MLA-512" in rows


def test_help_is_a_command_too(ask: Ask) -> None:
    assert ask("help") == ask()
    assert ask("help", "fit") == ask("fit", "-h")
    assert ask("help", "presets", "show") == ask("presets", "show", "-h")
    assert "did you mean 'attncalc fit'?" in ask("help", "fitt").error


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_completion_script_calls_attncalc(ask: Ask, name: str) -> None:
    answer = ask("--show-completion", name)
    assert (answer.code, answer.err) == (0, "")
    assert "_ATTNCALC_COMPLETE" in answer.out
    assert ask("--show-completion", "tcsh").code == 2


@pytest.mark.parametrize(
    ("words", "expected"), [("attncalc ", {*QUESTIONS}), ("attncalc fit --kv-m", {"--kv-memory"})]
)
def test_the_shell_completes_commands_and_options(words: str, expected: set[str]) -> None:
    position = str(len(words.split(" ")) - 1)
    answer = shell(
        "attncalc ", COMP_WORDS=words, COMP_CWORD=position, _ATTNCALC_COMPLETE="complete_bash"
    )
    assert answer.stderr == ""
    assert set(answer.stdout.split()) >= expected


@each(
    ("words", "expected"),
    of_questions(
        [
            ("kv llama2-", "llama2-70b llama2-7b"),
            ("compare gpt2 gpt-oss-1", "gpt-oss-120b"),
            ("fit gpt2 --gpu h200", "h200"),
            ("fit gpt2 --gpu h100 --kv-dtype bf", "bf16"),
            ("sweep gpt2 --kv-dtype bf16,fp8,mx", "bf16,fp8,mxfp4"),
            ("fit gpt2 --engine sg", "sglang"),
            ("kv gpt2 --format la", "latex"),
            ("sweep gpt2 --columns params_total,max_c", "params_total,max_context"),
            ("plan gpt2 --gpu h100-80gb,h2", "h100-80gb,h200"),
            ("fit gpt2 --weights-dtype q4_k", "q4_k_m q4_k_s"),
            ("train gpt2 --optimizer ada", "adamw adafactor"),
            ("plan gpt2 --sort price", "price price-per-token"),
            ("explain roof", "roofline"),
            ("train gpt2 --zero ", "0 1 2 3"),
            ("train gpt2 --offload optimizer,p", "optimizer,params"),
            ("verify gpt2 --kernel flash", "flash flash_attn2 flash_attn3"),
            ("sweep gpt2 --sort kv_c", "kv_cache"),
            ("gpus --sort m", "memory"),
            ("kv gpt2 --get kv_cache,weights_s", "kv_cache,weights_stored"),
            ("presets list --get par", "params_total"),
            ("fit gpt2 --fail-if verd", "verdict"),
            ("presets show llama2-", "llama2-70b llama2-7b"),
            ("schema v", "vram verify"),
            ("fit gpt2 --gpu al", "all"),
        ]
    ),
)
def test_bash_completes_values(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, expected: str
) -> None:
    given = {"COMP_WORDS": f"attncalc {words}", "COMP_CWORD": str(len(f"{words}.".split()))}
    for name, value in {"_ATTNCALC_COMPLETE": "complete_bash", **given}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        run()
    assert {*capsys.readouterr().out.split()} >= {*expected.split()}


def test_zsh_and_fish_complete_values() -> None:
    given = {"_TYPER_COMPLETE_ARGS": "attncalc compare gpt2 gpt-oss-1"}
    for name in ("zsh", "fish"):
        assert "gpt-oss-120b" in completed(name, **given, _TYPER_COMPLETE_FISH_ACTION="get-args"), (
            name
        )


def completed(shell_name: str, **environment: str) -> set[str]:
    """Return the words of what is printed for a shell's completion."""
    answer = shell("attncalc ", _ATTNCALC_COMPLETE=f"complete_{shell_name}", **environment)
    assert answer.stderr == ""
    return set(re.findall(r"[\w.,-]+", answer.stdout))
