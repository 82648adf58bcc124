"""An engine is one class: what serving, the commands and Python ask of it."""

import csv

import pytest
from asking import Ask, results
from tables import each

from attncalc import fit
from attncalc.engines import ENGINES, find_engine
from attncalc.engines.engine import Engine
from attncalc.errors import AttncalcError


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the engine of toy_engine.py: its file, and one line."""
    monkeypatch.setitem(ENGINES, "toy", "toy_engine")


@pytest.mark.usefixtures("toy")
def test_an_engine_is_one_file_and_one_line(ask: Ask) -> None:
    # half of 80 GiB less 15.3 GiB of weights; Qwen3-8B has 36 layers * 2 * 8 heads * 128 * 2 B =
    # 147,456 B per token
    answer = ask(
        "fit",
        "qwen3-8b",
        "--gpu",
        "80GiB",
        "--reserve",
        "0",
        "--engine",
        "toy",
        "-c",
        "4096",
        "--json",
    )
    figures = results(answer)
    left = 40 * 2**30 - figures["weights"]
    assert figures["kv_memory"] == left
    assert figures["kv_tokens"] == left // 147_456
    assert answer.document["launch_command"] is None

    every = ask(
        "fit", "qwen3-8b", "--gpu", "80GB", "--engine", "all", "-c", "4096", "--json"
    ).document
    assert [layer["name"] for layer in every["layers"]][-1] == "toy"
    rows = ask(
        "sweep",
        "qwen3-8b",
        "--gpu",
        "80GB",
        "--engine",
        "toy,ideal",
        "-c",
        "4096",
        "--columns",
        "kv_tokens",
    )
    assert [row["engine"] for row in csv.DictReader(rows.out.splitlines())] == ["toy", "ideal"]
    assert fit("qwen3-8b", gpu="80GB", engine="toy", context=4096).resolved.engine.title == "Toy"


QUESTIONS = [
    "mixtral-8x7b --gpu h100 -c 4096 --dp 2",
    "deepseek-v3 --gpu h200 -c 4096 --tp 2 --dp 4 --enable-expert-parallel",
    "qwen3-8b --gpu h100 -c 4096 --pp 4",
    "qwen3-8b --gpu h100 -c 4096 --tp 8",
    "qwen3-8b --gpu 2xh100 -c 4096 -b 4",
    "gpt-oss-20b --gpu a10 -c 8K",
    "qwen3-8b --gpu gb10 -c 4096",
    "qwen3-8b --gpu h100 -c 8192 -np 4",
    "llama3.1-8b --gpu h100 --prompt 2000 --output-len 100",
    "llama3-8b --kv-memory 10GiB -c 4096 --tp 2",
]


@each("question", QUESTIONS)
def test_the_row_of_an_engine_is_the_answer_of_that_engine(ask: Ask, question: str) -> None:
    """SGLang's --dp 2 is two whole copies of Mixtral, and the row of --engine all is of the same
    two.
    """
    every = ask("fit", *question.split(), "--engine", "all", "--json").document
    for row in every["layers"]:
        answer = ask("fit", *question.split(), "--engine", row["name"], "--json")
        if row["refused"]:
            # an answer names the option as it was typed
            assert (
                answer.error.partition(" ")[2]
                .partition(" ")[2]
                .startswith(row["refused"].partition(" ")[2] + "\n")
            )
            continue
        assert (row["verdict"], row["launch_command"]) == tuple(
            answer.document[name] for name in ("verdict", "launch_command")
        )
        of_engine = {figure["name"]: figure["value"] for figure in row["results"]}
        alone = results(answer)
        assert {name: alone[name] for name in of_engine if name in alone} == {
            name: value for name, value in of_engine.items() if name in alone
        }


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-num-seqs", "4"), "--max-num-seqs has no effect on engine toy"),
        (
            ("--block-size", "4", "--swa-full"),
            "--block-size, --swa-full have no effect on engine toy",
        ),
        (("--no-prefix-caching",), "--prefix-caching has no effect on engine toy"),
        (("--pp", "2"), "--pp has no effect on engine toy"),
        (("--dcp", "2"), "--dcp has no effect on engine toy"),
        (("--dp", "2"), "--dp has no effect on engine toy"),
        (("--attn-dp", "2"), "--attn-dp has no effect on engine toy"),
        (("--speculative-model", "gpt2"), "--speculative-model has no effect on engine toy"),
    ],
    ids=" ".join,
)
def test_options_that_an_engine_does_not_declare_are_errors(
    ask: Ask, options: tuple[str, ...], message: str
) -> None:
    error = ask("fit", "qwen3-8b", "--gpu", "2xh100", "--engine", "toy", *options).error
    assert error.startswith(f"error: {message}\n  tip: ")


def test_an_engine_has_the_options_that_it_declares() -> None:
    """An option that has its default has no effect, and is no error: a sweep over engines can give
    it.
    """
    sglang = find_engine("sglang")
    sglang.check_options({"block_size": 4, "max_running_requests": 8, "prefix_caching": False})
    sglang.check_options({"max_num_seqs": None, "speculative_tokens": 0})
    for name, value in (("sequences", 4), ("max_num_seqs", 4), ("enforce_eager", True)):
        with pytest.raises(AttncalcError, match="has no effect on engine sglang"):
            sglang.check_options({name: value})


@pytest.mark.parametrize("name", ENGINES)
def test_the_name_of_an_engine_is_the_one_by_which_it_is_found(name: str) -> None:
    engine = find_engine(name)
    assert isinstance(engine, Engine)
    assert engine.name == name
