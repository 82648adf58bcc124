"""The command line: invalid input gets one line of error, a tip and exit code 2."""

from __future__ import annotations

import pytest
from asking import Ask

INVALID = {
    "no model": ("kv",),
    "two models": ("kv", "gpt2", "-p", "gpt3"),
    "an unknown preset": ("kv", "lama2-70b"),
    "an unknown command": ("kb",),
    "an unknown option": ("kv", "gpt2", "--contxt", "3"),
    "an option without its value": ("kv", "gpt2", "-b"),
    "too many arguments": ("kv", "gpt2", "gpt3"),
    "a batch of zero": ("kv", "gpt2", "-b", "0"),
    "a negative context": ("kv", "gpt2", "-c", "-5"),
    "a float": ("kv", "gpt2", "-c", "1e6"),
    "an empty number": ("kv", "gpt2", "-c", ""),
    "an unknown dtype": ("kv", "gpt2", "--kv-dtype", "fp17"),
    "activations in a dtype with scales": ("memory", "gpt2", "--dtype", "int4"),
    "an incomplete attention": ("kv", "gpt2", "--attention", "gqa"),
    "KV heads that do not divide": ("kv", "gpt2", "--attention", "gqa:5"),
    "a number of devices that does not divide the heads": ("kv", "llama2-70b", "--tp", "3"),
    "an unknown engine": ("kv", "gpt2", "--engine", "vlm"),
    "an unknown phase": ("flops", "gpt2", "--phase", "inference"),
    "an unknown mask": ("flops", "gpt2", "--mask", "prefix"),
    "a prefix longer than the context": ("flops", "gpt2", "--mask", "prefix:2000", "-c", "10"),
    "a past as long as the context": ("flops", "gpt2", "-c", "10", "--past", "10"),
    "a past of a decode step": ("flops", "gpt2", "--phase", "decode", "--past", "10"),
    "an encoder's decode step": ("flops", "bert-base", "--phase", "decode"),
    "a past of a padded batch": ("flops", "gpt2", "--lengths", "5,3", "--past", "2"),
    "a seed that is no number": ("verify", "gpt2", "--seed", "x"),
    "a source without an encoder": ("kv", "gpt2", "--source-context", "5"),
    "lengths that are not numbers": ("kv", "gpt2", "--lengths", "5,x"),
    "both lengths and a batch": ("kv", "gpt2", "--lengths", "5,3", "-b", "2"),
    "an unknown format": ("kv", "gpt2", "--format", "xml"),
    "two formats": ("kv", "gpt2", "--json", "--format", "csv"),
    "an unknown preset to show": ("presets", "show", "gpt9"),
    "variants of several models": ("compare", "gpt2", "gpt3", "--attention", "mqa"),
    "a folder": ("kv", "/"),
    "an output file in a missing folder": ("kv", "gpt2", "-o", "/no/such/folder/x.json"),
    "an output file that is a folder": ("kv", "gpt2", "-o", "/"),
    "memory of training": ("memory", "gpt2", "--phase", "train"),
    "an encoder's memory of a decode step": ("memory", "bert-base", "--phase", "decode"),
    "an encoder's memory after a past": ("memory", "bert-base", "-c", "20", "--past", "10"),
    "options before a subcommand": ("presets", "--json", "show", "gpt2"),
    "an empty dtype": ("kv", "gpt2", "--kv-dtype", ""),
    "a context of a thousand digits": ("flops", "gpt2", "-c", "9" * 1000),
    "force without a file": ("kv", "gpt2", "--force"),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_input_is_an_error_with_a_tip_and_exit_code_2(ask: Ask, case: str) -> None:
    answer = ask(*INVALID[case])
    assert answer.code == 2
    assert answer.out == ""
    error, tip, *rest = answer.err.splitlines()
    assert error.startswith("error: ")
    assert tip.startswith("  tip: ")
    assert not rest


@pytest.mark.parametrize("arguments", [("kv", "gpt2", "-b"), ("kv", "gpt2", "--json=1"), ("kv", "gpt2", "gpt3")])
def test_the_tip_names_the_help_of_the_command(ask: Ask, arguments: tuple[str, ...]) -> None:
    assert ask(*arguments).err.endswith("tip: 'attncalc kv --help' lists all options\n")
