"""The errors that a library can tell apart, and what belongs to each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import refusal
from tables import each

import attncalc
from attncalc import AttncalcError, BadValueError, NetworkError, NoSuchModelError, NotSupportedError
from attncalc.errors import did_you_mean


@each(
    ("word", "meant"),
    [
        ("flops", "flops_total"),
        ("flash3", "flash_attn3"),
        ("peak", "peak_flash"),
        ("flash_atn2", "flash_attn2"),
        ("mlp_flops", "flops_mlp"),
    ],
)
def test_a_wrong_word_is_the_begin_of_a_name_or_has_its_number(word: str, meant: str) -> None:
    known = [
        "flash",
        "flash_attn2",
        "flash_attn3",
        "flops_mlp",
        "flops_total",
        "peak_flash",
        "peak_math",
    ]
    assert did_you_mean(word, known) == f"did you mean '{meant}'? "


@each(
    ("kind", "call"),
    [
        (NoSuchModelError, lambda: attncalc.load("llama9")),
        (NotSupportedError, lambda: attncalc.load({"model_type": "csm"})),
        (NotSupportedError, lambda: attncalc.activations("gpt2", context=8, phase="train")),
        (BadValueError, lambda: attncalc.kv_cache("gpt2", context="x")),
        (BadValueError, lambda: attncalc.kv_cache("gpt2", batch=-1)),
        (BadValueError, lambda: attncalc.kv_cache("gpt2", kv_dtype="fp7")),
        (BadValueError, lambda: attncalc.fit("gpt2", gpu="h1000")),
        (BadValueError, lambda: attncalc.fit("gpt2", gpu="h100", engine="x")),
    ],
)
def test_an_error_is_of_the_class_of_its_cause(
    kind: type[AttncalcError], call: Callable[[], Any]
) -> None:
    error = refusal(call)
    assert type(error).__mro__[:2] in ((kind, AttncalcError), (type(error), kind))


def test_a_hub_that_cannot_be_reached_is_a_network_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nothing listens there
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with pytest.raises(NetworkError):
        attncalc.load("some/model-of-nobody")


def test_a_preset_is_read_once() -> None:
    assert attncalc.load("gpt2") is attncalc.load("gpt2")
