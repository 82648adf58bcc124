"""`attncalc fit --quants`: which type of GGUF files of a model to take on a GPU."""

import json
from pathlib import Path
from typing import Any

from asking import Ask
from configs import SMALL_LLAMA
from gguf import GGMLQuantizationType
from gguf_files import write_gguf
from tables import each
from test_gguf import LLAMA_KEYS, LLAMA_SHAPES

from attncalc.ggml import FILE_TYPES


def quants(ask: Ask, *words: str) -> dict[str, Any]:
    answer = ask("fit", *words, "--quants", "--json")
    assert answer.code in (0, 1), answer.err
    found: dict[str, Any] = answer.document
    return found


def test_the_largest_that_holds_the_context_is_chosen(ask: Ask) -> None:
    answer = quants(ask, "qwen3-14b", "--gpu", "12GB", "-c", "16K")
    assert answer["summary"] == "FITS: q4_k_m is the largest that holds 16,384 tokens."
    assert (
        answer["launch_command"] == "llama-server -m Qwen3-14B-Q4_K_M.gguf -c 16384 -np 1 -ngl 999"
    )
    names = [layer["name"] for layer in answer["layers"]]
    assert {"q8_0", "q4_k_m", "iq4_xs", "iq3_m", "iq2_xxs"} < {*names} < {*FILE_TYPES}
    assert len(names) == 13  # without types that are as large as others of the same quality
    # each quant has the figures of fit with it alone
    alone = ask(
        "fit", "qwen3-14b", "--gpu", "12GB", "-c", "16K", "--weights-dtype", "q6_k", "--json"
    ).document
    same = next(layer for layer in answer["layers"] if layer["name"] == "q6_k")
    weights = [
        next(f["value"] for f in one["results"] if f["name"] == "weights") for one in (alone, same)
    ]
    assert weights[0] == weights[1]


@each(
    ("words", "code", "start"),
    [
        (
            ["llama3.1-8b", "--gpu", "12GB"],
            0,
            "FITS: q8_0 is the largest that holds 8,192 tokens.\n",
        ),
        (
            ["qwen3-32b", "--gpu", "24GB", "-c", "64K"],
            1,
            "DOES NOT FIT: iq3_xxs holds 40,960 tokens, and none 65,536.",
        ),
        (
            ["qwen3-32b", "--gpu", "8GB"],
            1,
            "DOES NOT FIT: the weights of every quant are larger than the memory.\n",
        ),
    ],
)
def test_the_answer_comes_first_and_within_24_rows(
    ask: Ask, words: list[str], code: int, start: str
) -> None:
    answer = ask("fit", *words, "--quants")
    assert (answer.code, answer.out.startswith(start)) == (code, True), answer.out
    assert answer.out.count("\n") <= 23


def test_the_files_of_a_folder_are_ranked(ask: Ask, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny-F16.gguf", "llama", LLAMA_KEYS, LLAMA_SHAPES)
    narrow = dict.fromkeys(LLAMA_SHAPES, GGMLQuantizationType.Q8_0)
    write_gguf(tmp_path / "tiny-Q8_0.gguf", "llama", LLAMA_KEYS, LLAMA_SHAPES, narrow)
    (tmp_path / "mmproj-tiny.gguf").write_bytes(b"GGUF")
    answer = quants(ask, str(tmp_path), "--gpu", "8GB", "-c", "32")
    assert [layer["name"] for layer in answer["layers"]] == ["tiny-F16", "tiny-Q8_0"]
    assert answer["launch_command"].startswith(f"llama-server -m {tmp_path}/tiny-F16.gguf -c 32")
    asked = ["fit", str(tmp_path), "--gpu", "8GB", "-c", "32"]
    assert ask(*asked) == ask(*asked, "--quants")
    (tmp_path / "config.json").write_text(json.dumps(SMALL_LLAMA))
    assert ask(*asked) != ask(*asked, "--quants")  # the config is the model
    (tmp_path / "config.json").unlink()
    assert "rank them: attncalc fit FOLDER --gpu 12GB" in ask("kv", str(tmp_path)).err


@each(
    ("words", "message"),
    [
        (["qwen3-8b", "--engine", "sglang"], "--quants without --gpu needs a model for llama.cpp"),
        (["qwen3-8b", "--gpu", "all"], "--quants needs a model and one GPU"),
        (
            ["qwen3-8b", "--gpu", "8GB", "--weights-dtype", "q8_0"],
            "--quants cannot be combined with --weights-dtype",
        ),
        (["qwen3-8b", "--gpu", "8GB", "--full"], "--quants cannot be combined with --full"),
        (["gpt2", "--gpu", "8GB", "-c", "x"], "-c: 'x'"),
        (["t5-base", "--gpu", "8GB"], "llama.cpp"),
    ],
)
def test_what_quants_cannot_answer_is_an_error(ask: Ask, words: list[str], message: str) -> None:
    assert message in ask("fit", *words, "--quants").error
