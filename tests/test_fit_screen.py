"""The default screen of `attncalc fit`: it starts with the answer, and fits a terminal of 24 rows
and 80 columns.
"""

import io
import re
import sys
from collections.abc import Iterator

import pytest
from asking import Ask, results, shell
from hypothesis import given
from hypothesis import strategies as st
from reports import one_per_structure
from tables import each

from attncalc import AttncalcError, Workload, load
from attncalc.config.gpus import gpu
from attncalc.engines import ENGINES
from attncalc.questions.fit.all_report import fit_all_report
from attncalc.questions.fit.report import fit_report
from attncalc.questions.verify.catalogue import CATALOGUE
from attncalc.serving.request import FitRequest
from attncalc.show import markdown, terminal, text
from attncalc.show.bar import Bar
from attncalc.show.report import Report
from attncalc.show.write import write
from attncalc.units import GIB

QWEN = ("fit", "qwen3-8b", "--gpu", "rtx-4090")
IN_VLLM = (*QWEN, "--engine", "vllm")
ROWS, COLUMNS = 24, 80
ANSWERS = ("FITS", "MAY NOT FIT", "DOES NOT FIT", "DOES NOT START", "STARTS", "MAY START")


def reports(turn: int, name: str) -> Iterator[Report]:
    """Yield the reports of two engines on a small GPU, with the longest lists of changes, and one
    on a large one.

    The engines take turns from model to model.
    """
    model = load(name)
    engines = [*ENGINES]
    two = [engines[(turn + step) % len(engines)] for step in (0, 2)]
    source = (model.encoder.max_context or 512) if model.encoder else None
    workload = Workload.decode(1, model.max_context or 512, source=source)
    on_large = [("vllm", "h100-80gb")] if turn % 2 else []
    for engine, device in (*((engine, "rtx-4090") for engine in two), *on_large):
        try:
            yield fit_report(FitRequest(model, workload, engine, gpu=gpu(device)))
        except AttncalcError:  # this engine does not support this model
            continue
    if model.main.has_cache and turn % 2 == 0:
        yield fit_all_report(FitRequest(model, workload, gpu=gpu("h100-80gb")))


FIT = FitRequest(load("qwen3-8b"), Workload.decode(1, 40_960), gpu=gpu("rtx-4090"))


class Terminal(io.StringIO):
    """Standard output as a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def on_terminal(
    report: Report,
    patch: pytest.MonkeyPatch,
    *,
    plain: bool = False,
    encoding: str = "utf-8",
    **environment: str,
) -> str:
    """Return what a terminal of 80 columns shows, without its colours."""
    output = Terminal()
    output.encoding = encoding
    patch.delenv("NO_COLOR", raising=False)
    for name, value in {"COLUMNS": str(COLUMNS), "TERM": "xterm-256color", **environment}.items():
        patch.setenv(name, value)
    patch.setattr(sys, "stdout", output)
    write(report, form=None, explain=False, output=None, force=False, plain=plain)
    patch.undo()
    return re.sub(r"\x1b\[[\d;]*m", "", output.getvalue())


def test_a_screen_of_more_lines_than_the_terminal_ends_with_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for lines, ends in ((24, False), (16, True)):
        with monkeypatch.context() as patch:
            patch.setattr(terminal, "screen_rows", lambda _, lines=lines: lines)
            shown = on_terminal(fit_report(FIT), patch)
        verdict = " ".join(shown.split()).partition(". ")[0]
        assert shown.endswith(f"\n\n{verdict}.\n") == ends
    monkeypatch.setattr(terminal, "screen_rows", lambda _: 16)
    timed = on_terminal(fit_report(FIT, roofline=True), monkeypatch).splitlines()
    assert [line.split()[0] for line in timed[-4:] if line[:1].isalpha()] == ["At", "MAY"]


@each(("turn", "name"), enumerate(one_per_structure(CATALOGUE)))
def test_the_default_screen_leaves_a_row_for_the_prompt(
    turn: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for report in reports(turn, name):
        shown, plain = on_terminal(report, monkeypatch), text.render(report)
        without_bar = [
            line.rstrip() for line in on_terminal(report, monkeypatch, TERM="dumb").splitlines()
        ]
        assert without_bar == [line.rstrip() for line in plain.splitlines()]
        assert plain.startswith(ANSWERS)
        for screen in (shown, plain):
            assert len(screen.splitlines()) < ROWS, screen
            assert max(map(len, screen.splitlines())) <= COLUMNS, screen


def test_a_terminal_colours_the_verdict_and_the_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    output = Terminal()
    monkeypatch.setattr(sys, "stdout", output)
    terminal.print_report(fit_report(FIT))
    monkeypatch.undo()
    assert output.getvalue().startswith("\x1b[1;33mMAY NOT FIT\x1b[0m: ")
    assert "\x1b[33mwarning: " in output.getvalue()
    assert "\x1b[34m\u2588" in output.getvalue()


def test_the_screen_of_the_largest_table_of_changes_fits(ask: Ask) -> None:
    lines = ask(
        *IN_VLLM, "--batch", "4", "--context", "12000", "--engine-version", "0.19.0"
    ).out.splitlines()
    assert any(line.startswith("  --") for line in lines)
    assert len(lines) < ROWS


@pytest.mark.parametrize(
    "more", [(), ("--batch", "4", "--context", "11000"), ("--engine", "all"), ("--gpus", "8")]
)
def test_the_default_screen_with_users_leaves_a_row_for_the_prompt(
    ask: Ask, more: tuple[str, ...]
) -> None:
    lines = ask(
        *QWEN, *more, "--prompt", "4K", "--output-len", "1K", "--shared-prefix", "2K"
    ).out.splitlines()
    assert len(lines) < ROWS
    assert max(map(len, lines)) <= COLUMNS


@pytest.mark.parametrize(
    "command",
    [
        "gpt-oss-120b --gpu rtx-4090 --gpus 8 --tp 4 --prompt 400 --output-len 100",
        "gpt-oss-120b --gpu l4 --gpus 8 --tp 2 --pp 2",
        "gpt-oss-120b --gpu h100-80gb --gpus 8 --tp 2 --pp 2 --prompt 400 --output-len 100 -b 40 "
        "--max-num-seqs 64",
        "gemma3-27b --gpu rtx-4090 --gpus 4 --lengths 100,200,400",
        "mixtral-8x7b --gpu l4 --dp 2 --tp 2 --batch 64",
        "mixtral-8x7b --gpu h100-80gb --engine all --dp 2 --tp 2 --prompt 400 --output-len 100 "
        "--shared-prefix 64",
    ],
)
def test_the_default_screen_with_many_options_leaves_a_row_for_the_prompt(
    ask: Ask, command: str
) -> None:
    lines = ask("fit", *command.split()).out.splitlines()
    assert len(lines) < ROWS
    assert max(map(len, lines)) <= COLUMNS


def rows_of_changes(screen: str) -> list[str]:
    """Return the first row of each change: that with its numbers."""
    rows = screen.partition("change ")[2].partition("\n\n")[0].splitlines()
    return [row for row in rows if row.startswith("  --")]


def test_changes_that_do_not_fit_on_the_screen_are_in_full_and_json(ask: Ask) -> None:
    command = (
        "fit",
        "gpt-oss-120b",
        "--gpu",
        "8xrtx-4090",
        "--tp",
        "4",
        "-c",
        "131072",
        "--prompt=400",
        "--output-len=9",
    )
    screen, full = ask(*command).out, ask(*command, "--full").out
    flags = [change["flag"] for change in ask(*command, "--json").document["suggestions"]]
    shown = len(rows_of_changes(screen))
    assert shown < len(flags)
    assert f"{len(flags) - shown} change" in " ".join(screen.split())
    assert len(rows_of_changes(full)) == len(flags)
    # the command is that of the first change
    assert f"with {flags[0]}:" in screen


def test_users_are_beside_the_other_limits_and_the_changes(ask: Ask) -> None:
    users = ("--prompt", "4K", "--output-len", "1K", "-c", "40960")
    fits = ask("fit", "qwen3-8b", "--gpu", "h100", *users, "--shared-prefix", "2K")
    document = ask(
        "fit", "qwen3-8b", "--gpu", "h100", *users, "--shared-prefix", "2K", "--json"
    ).document
    by_name = {figure["name"]: figure["value"] for figure in document["results"]}
    rows = [" ".join(line.split()) for line in fits.out.splitlines()]
    shown = re.search(
        r"users on average, 4,096 \+ 1,024 tokens (\d+) to (\d+) 2,048 shared", " ".join(rows)
    )
    assert shown
    assert int(shown[1]) == by_name["concurrent_average"] < int(shown[2])
    assert any(re.fullmatch(r"users at worst \d+ to \d+", row) for row in rows)
    alone = next(
        row
        for row in ask("fit", "qwen3-8b", "--gpu", "h100", *users).out.splitlines()
        if "average," in row
    )
    assert f"users on average without a shared prefix {' '.join(alone.split()[-3:])}" in rows
    changes = ask(*IN_VLLM, *users).out
    changed = results(ask(*IN_VLLM, *users, "--kv-dtype", "fp8", "--json"))
    # all three numbers are those of the least memory, as the verdict is
    least = str(changed["kv_memory_low"])
    surely = results(
        ask("fit", "qwen3-8b", "--kv-memory", least, *users, "--kv-dtype", "fp8", "--json")
    )
    numbers = [surely[name] for name in ("max_batch", "concurrent_average", "concurrent_worst")]
    assert next(row for row in rows_of_changes(changes) if "--kv-dtype fp8 " in row).split()[
        -3:
    ] == [*map(str, numbers)]


def test_json_has_both_ends_of_the_ranges_on_the_screen(ask: Ask) -> None:
    llama = ("fit", "llama3.1-8b", "--gpu", "h100", "-c", "8192")
    figures, rows = (
        results(ask(*llama, "--json")),
        [line.split() for line in ask(*llama).out.splitlines()],
    )
    for end in ("low", "high"):  # 8,192 tokens of 2 * 32 * 8 * 128 * 2 B = 128 KiB are 1 GiB
        assert (
            figures[f"max_batch_{end}"]
            == figures[f"kv_memory_{end}"] // GIB
            == int(figures[f"concurrency_{end}"])
        )
        # in blocks of 16 tokens
        assert figures[f"kv_tokens_{end}"] == figures[f"kv_memory_{end}"] // 2**21 * 16
    ends = [
        [f"{figures[f'{name}_low']:,}", "to", f"{figures[f'{name}_high']:,}"]
        for name in ("max_batch", "kv_tokens")
    ]
    assert [
        row[-3:] for row in rows if row[-2:-1] == ["to"] and row[-4] in ("tokens", "cache")
    ] == ends


def test_the_longest_context_says_if_it_is_not_sure_to_fit(ask: Ask) -> None:
    asked = ("fit", "kimi-k2", "--gpu", "8xh200", "-c", "auto")
    context = ask(*asked, "--json").document["workload"]["context"]
    assert (
        f"\n--context {context:,} is the longest that may fit: none is sure to.\n"
        in ask(*asked).out
    )
    assert "is the longest" not in ask(*asked, "--kv-memory", "8GiB").out


def test_data_parallel_ranks_are_called_ranks(ask: Ask) -> None:
    mixtral = ("fit", "mixtral-8x7b", "--gpu", "16xrtx-4090", "--tp", "4")
    ranks, replicas = ask(*mixtral, "--dp", "2").out, ask(*mixtral).out
    assert "2 replicas, tp 4, dp 2," in ranks  # 16 GPUs / (4 x 2)
    assert re.search(r"per rank  all 4 ranks$", ranks, re.MULTILINE)
    assert "16 x NVIDIA GeForce RTX 4090, 4 replicas, tp 4," in replicas


def test_the_first_lines_are_the_verdict_the_place_and_the_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict, place, bar, legend, limits, empty, *_ = on_terminal(
        fit_report(FIT), monkeypatch
    ).splitlines()
    assert verdict.startswith("MAY NOT FIT: 1 request of 40,960 tokens needs 5.63 GiB, ")
    assert place == "Qwen3 8B on one NVIDIA GeForce RTX 4090, vLLM 0.33.0, cache in bf16"
    assert re.fullmatch(r"  \[█+▓*▒+░+\| +\]", bar)
    assert re.fullmatch(
        r"  █ weights 15\.\d   ▓?▒ runtime .* to .*   ░ KV cache .* to .*   GiB", legend
    )
    # 0.92 x 23.51 GiB = 21.63
    assert limits == "  vLLM takes 21.6 of the GPU's 23.5 GiB (--gpu-memory-utilization 0.92)"
    assert empty == ""


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        # 5.38 GiB hold 17,629 tokens of 320 KiB
        ("--engine sglang --context 17629", "FITS: 1 concurrent request. 1 request of 17,629"),
        (
            "--engine sglang --context 17630",
            "STARTS with requests up to 17,628 tokens: 1 request of 17,630 tokens needs",
        ),
        (
            "--engine sglang --context 17630 --batch 2",
            "STARTS with requests up to 17,628 tokens: 2 requests of 17,630",
        ),
        # both run, in turn
        ("--engine sglang --context 17629 --batch 2", "DOES NOT FIT: 2 requests of 17,629"),
        ("--engine vllm --context 17630", "DOES NOT FIT: 1 request of 17,630"),
    ],
)
def test_sglang_starts_with_a_pool_that_is_smaller_than_the_context(
    ask: Ask, options: str, answer: str
) -> None:
    command = (
        "fit",
        "llama2-70b",
        "--kv-memory",
        "5.38GiB",
        "--allow-long-max-model-len",
        *options.split(),
    )
    assert ask(*command).out.startswith(answer)
    facts = ask(*command, "--json")
    assert facts.document["verdict"] == ("fits" if answer.startswith("FITS") else "does_not_fit")
    assert facts.code == (0 if answer.startswith("FITS") else 1)


def test_a_lone_request_has_the_speed_of_an_empty_and_of_a_full_cache(ask: Ask) -> None:
    """A step reads 16.06e9 B of weights without the table of 1.05e9, and with 32,768 tokens 4.29e9
    B of cache.

    On an RTX 4090 that is 15.01 / 1,008 s, 67 tokens/s, and 19.30 / 1,008 s, 52. With 8,192 tokens
    it is 62.7, less than a tenth below.
    """
    command = (
        "fit",
        "llama3.1-8b",
        "--engine",
        "llamacpp",
        "--weights-dtype",
        "bf16",
        "--gpu",
        "rtx-4090",
    )
    full, short = (
        " ".join(ask(*command, "-c", tokens).out.split()) for tokens in ("32768", "8192")
    )
    assert "at most 67 tokens/s, 52 when it is full." in full
    assert "at most 67 tokens/s." in short


def test_of_several_engines_the_one_that_starts_with_shorter_requests_says_so(ask: Ask) -> None:
    screen = ask(
        "fit", "llama3.1-70b", "--kv-memory", "5.38GiB", "--engine", "all", "--context", "17630"
    ).out
    answer = "SGLang (starts with requests up to 17,628 tokens), llama.cpp"
    assert answer in " ".join(screen.partition("\nLlama")[0].split()), screen


def test_sglang_may_start_if_only_the_least_memory_holds_nothing(ask: Ask) -> None:
    """At 0.67 of an RTX 4090 the weights and the largest runtime memory leave nothing, the smallest
    something.
    """
    screens = [
        ask(
            "fit",
            "qwen3-8b",
            "--gpu",
            "rtx-4090",
            "--engine",
            "sglang",
            "--mem-fraction-static",
            share,
        ).out
        for share in ("0.6", "0.675", "0.7")
    ]
    starts = [screen.partition(" tokens")[0] for screen in screens]
    assert starts[0].startswith("DOES NOT FIT: needs ")
    assert starts[1].startswith("MAY START with requests up to about ")
    assert starts[2].startswith("STARTS with requests up to about ")


def test_full_and_roofline_add_to_the_screen(ask: Ask) -> None:
    default, full, roofline, both = (
        ask(*IN_VLLM, *more).out
        for more in ((), ("--full",), ("--roofline",), ("--roofline", "--full"))
    )
    assert "vLLM may not start" not in default
    assert "lower bound" not in default
    assert full.startswith(default.partition("\n\n")[0])
    assert set(default.partition("warning: ")[0].splitlines()) < set(full.splitlines())
    assert "blocks of one request" in full
    assert "vLLM may not start" in full
    assert "lower bound" not in full
    assert "lower bound" in roofline
    assert "MLA-512" not in roofline
    assert len(roofline.splitlines()) <= 23  # a terminal of 24, less one for the prompt
    assert "MLA-512" in both
    assert ask(*IN_VLLM, "--json") == ask(*IN_VLLM, "--json", "--full", "--roofline")


def test_the_default_screen_says_how_many_notes_full_has(ask: Ask) -> None:
    command = (*QWEN, "--engine", "llamacpp")
    left_out = re.search(
        r"--full adds .* and (\d+) notes?; --roofline adds times\.", ask(*command).out
    )
    assert left_out
    notes = ask(*command, "--full").out
    assert "llama.cpp's default for every model" not in ask(*command).out
    assert "llama.cpp's default for every model" in notes
    assert int(left_out[1]) >= 2


def test_warnings_and_assumed_limits_are_on_the_default_screen(ask: Ask) -> None:
    screen = " ".join(ask(*IN_VLLM).out.split())
    assert "--max-num-seqs 256 and --max-num-batched-tokens 2,048 are assumed" in screen
    assert "warning: " in screen
    beyond = ("--engine", "sglang", "-c", "41000", "--tp", "4", "--allow-long-max-model-len")
    assert "Context 41,000 is beyond" in " ".join(ask(*QWEN, *beyond).out.splitlines()[:3])


def test_a_full_screen_keeps_the_note_that_times_are_bounds(ask: Ask) -> None:
    """Other notes are left out before it, and are counted."""
    screen = ask("fit", "qwen3-14b", "--gpu", "t4", "--roofline").out
    assert len(screen.splitlines()) < ROWS
    assert "Bounds, not estimates:" in screen
    assert "are assumed." not in screen
    assert screen.endswith(" changes and 7 notes.\n")


def test_roofline_needs_a_gpu(ask: Ask) -> None:
    assert (
        "error: --roofline needs --gpu"
        in ask("fit", "gpt2", "--kv-memory", "1GiB", "--roofline").error
    )


# The bar


@given(
    st.integers(1, 200),
    st.integers(50, 100),
    st.integers(0, 400),
    st.integers(0, 60),
    st.integers(0, 30),
)
def test_a_bar_has_one_width_and_parts_in_proportion(
    memory: int, share: int, weights: int, low: int, more: int
) -> None:
    usable = memory * share * GIB // 100
    runtime = (low * GIB, (low + more) * GIB)
    bar = Bar(memory * GIB, usable, "vLLM", f"0.{share}", "--u", weights * GIB, runtime, (0, 0))
    line = "".join(piece.text for piece in bar.lines()[0])
    cells = line[1:-1].replace("|", "")
    assert len(cells) == 60
    assert ("|" in line) == (usable < max(memory, weights + low + more) * GIB)
    length = max(memory, weights + low + more)
    for mark, size in (("█", weights), ("▓", low), ("▒", more)):
        assert abs(cells.count(mark) - 60 * size / length) <= 1
    assert sorted(cells, key="█▓▒░ ".index) == list(cells)


def test_the_bar_is_ascii_where_the_encoding_has_no_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding in ("ascii", "cp1252"):
        screen = on_terminal(fit_report(FIT), monkeypatch, encoding=encoding)
        assert re.search(r"^  \[#+=*-+\.+\| +\]$", screen, re.MULTILINE)
        assert screen.isascii()


@each(
    ("plain", "environment"),
    [(True, {}), (False, {"NO_COLOR": "1"}), (False, {"TERM": "dumb"}), (False, {"COLUMNS": "79"})],
)
def test_words_replace_the_bar(plain: bool, environment: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        screen = on_terminal(fit_report(FIT), patch, plain=plain, **environment)
    assert not set(screen) & set("█▓▒░")
    assert (
        "\n  weights 15.3 GiB, runtime 0.9 to 2.9 GiB, 3.5 to 5.9 GiB for the KV cache\n" in screen
    )
    assert "\n  vLLM takes 21.6 of the GPU's 23.5 GiB (--gpu-memory-utilization 0.92)\n" in screen


def test_plain_prints_each_number_after_its_name_in_a_terminal_and_a_pipe(ask: Ask) -> None:
    with pytest.MonkeyPatch.context() as patch:
        screen = on_terminal(fit_report(FIT), patch, plain=True)
    assert screen == ask(*IN_VLLM, "--plain").out
    assert (
        "\n  change: --enforce-eager --gpu-memory-utilization 0.95; requests, at least: 1\n"
        in screen
    )
    assert (
        "\n  layers: gpt2: 12; bert-base: 12\n"
        in ask("compare", "gpt2", "bert-base", "--plain").out
    )


def test_markdown_has_the_bar_in_words_and_the_command_as_code() -> None:
    report = fit_report(FitRequest(load("gpt2"), Workload.decode(1, 1024), gpu=gpu("t4")))
    document = markdown.render(report)
    assert document.startswith("**FITS: ")
    assert "weights 0.2 GiB, runtime " in document
    assert "```sh\nvllm serve openai-community/gpt2 --max-model-len 1024" in document


def test_the_command_can_be_pasted(ask: Ask) -> None:
    command = (
        "fit",
        "llama2-70b",
        "--gpu",
        "h100-80gb",
        "--gpus",
        "8",
        "--tp",
        "4",
        "--enforce-eager",
        "-b",
        "3",
    )
    document = ask(*command).out
    lines = document[document.index("  vllm serve") :].partition("\n\n")[0]
    assert lines.count("\\\n") == 1
    pasted = shell(f"vllm() {{ printf '%s\\n' vllm \"$@\"; }}\n{lines}").stdout.splitlines()
    assert pasted == [
        "vllm",
        "serve",
        "meta-llama/Llama-2-70b-hf",
        "--max-model-len",
        "4096",
        "--tensor-parallel-size",
        "4",
        "--data-parallel-size",
        "2",
        "--enforce-eager",
    ]


def test_a_quoted_word_of_the_command_stays_on_one_line() -> None:
    path = "/models/a folder with a rather long name/and one more folder/Qwen3 8B"
    request = FitRequest(
        load("qwen3-8b"), Workload.decode(1, 4096), gpu=gpu("h100-80gb"), served_model=path
    )
    lines = [line for table in fit_report(request).tables if table.code for (line,) in table.rows]
    assert lines == ["vllm serve \\", f"    '{path}' \\", "    --max-model-len 4096"]


def test_a_longest_context_beyond_the_tokens_in_the_cache_is_explained(ask: Ask) -> None:
    words = (
        "fit",
        "gpt-oss-20b",
        "--kv-memory",
        "3GiB",
        "-c",
        "8192",
        "--max-num-batched-tokens",
        "2048",
    )
    assert re.search(r"tokens in the cache +[\d,]+  \+ 99\.38 MiB each\n", ask(*words).out)
    figures = results(ask(*words, "--json"))
    # 12 windowed layers take 265 blocks; the other 12 have K and V of 8 heads x 64 in bf16. One
    # block is null.
    fixed, per_token = 265 * figures["kv_bytes_per_block"], 12 * 2 * 8 * 64 * 2
    longest = ((figures["kv_blocks"] - 1) * figures["kv_bytes_per_block"] - fixed) // per_token
    assert figures["kv_tokens"] < figures["max_context"] == longest // 16 * 16
