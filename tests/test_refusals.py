"""The command line: a wrong question gets one clear line, a tip and exit code 2."""

from __future__ import annotations

import pytest
from asking import Ask

WRONG = {
    "no model": ("kv",),
    "two models": ("kv", "gpt2", "-p", "gpt3"),
    "an unknown preset": ("kv", "lama2-70b"),
    "an unknown command": ("kb",),
    "an unknown option": ("kv", "gpt2", "--contxt", "3"),
    "an option without its value": ("kv", "gpt2", "-b"),
    "too many words": ("kv", "gpt2", "gpt3"),
    "a batch of zero": ("kv", "gpt2", "-b", "0"),
    "a negative context": ("kv", "gpt2", "-c", "-5"),
    "a float": ("kv", "gpt2", "-c", "1e6"),
    "an empty number": ("kv", "gpt2", "-c", ""),
    "a dtype that is not one": ("kv", "gpt2", "--kv-dtype", "fp17"),
    "activations with scales": ("memory", "gpt2", "--dtype", "int4"),
    "an attention that is not one": ("kv", "gpt2", "--attention", "gqa"),
    "KV heads that do not divide": ("kv", "gpt2", "--attention", "gqa:5"),
    "devices that do not divide": ("kv", "llama2-70b", "--tp", "3"),
    "an engine that is not one": ("kv", "gpt2", "--engine", "vlm"),
    "a phase that is not one": ("flops", "gpt2", "--phase", "inference"),
    "a mask that is not one": ("flops", "gpt2", "--mask", "prefix"),
    "a prefix beyond the context": ("flops", "gpt2", "--mask", "prefix:2000", "-c", "10"),
    "a past as long as the context": ("flops", "gpt2", "-c", "10", "--past", "10"),
    "a past of a decode step": ("flops", "gpt2", "--phase", "decode", "--past", "10"),
    "an encoder's decode step": ("flops", "bert-base", "--phase", "decode"),
    "a source without an encoder": ("kv", "gpt2", "--source-context", "5"),
    "lengths that are none": ("kv", "gpt2", "--lengths", "5,x"),
    "lengths and a batch": ("kv", "gpt2", "--lengths", "5,3", "-b", "2"),
    "a format that is not one": ("kv", "gpt2", "--format", "xml"),
    "two formats": ("kv", "gpt2", "--json", "--format", "csv"),
    "a preset to show that is not": ("presets", "show", "gpt9"),
    "variants of several models": ("compare", "gpt2", "gpt3", "--attention", "mqa"),
    "a folder": ("kv", "/"),
    "a file in a folder that is not": ("kv", "gpt2", "-o", "/no/such/folder/x.json"),
    "a folder to write": ("kv", "gpt2", "-o", "/"),
    "memory of training": ("memory", "gpt2", "--phase", "train"),
    "an encoder's memory of a decode step": ("memory", "bert-base", "--phase", "decode"),
    "an encoder's memory after a past": ("memory", "bert-base", "-c", "20", "--past", "10"),
    "options before a subcommand": ("presets", "--json", "show", "gpt2"),
    "an empty dtype": ("kv", "gpt2", "--kv-dtype", ""),
    "a context of a thousand digits": ("flops", "gpt2", "-c", "9" * 1000),
    "force without a file": ("kv", "gpt2", "--force"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_question_gets_one_line_a_tip_and_code_2(ask: Ask, what: str) -> None:
    answer = ask(*WRONG[what])
    assert answer.code == 2
    assert answer.out == ""
    error, tip, *rest = answer.err.splitlines()
    assert error.startswith("error: ")
    assert tip.startswith("  tip: ")
    assert not rest
