"""A GGUF file without `-c`: the answer is the longest context that fits, with the command that has
it.
"""

from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each
from test_llamacpp_offload import file_of

pytestmark = pytest.mark.usefixtures("headers_only")
OWN = 32768  # Mistral 7B's own context


def answer(ask: Ask, path: Path, *options: str) -> dict[str, Any]:
    document: dict[str, Any] = ask("fit", str(path), *options, "--json").document
    return document


@pytest.fixture
def mistral(tmp_path: Path) -> Path:
    return file_of(tmp_path, "mistral-7b-v0.1", "Q4_K_M")


def test_the_longest_context_that_is_sure_to_fit_is_in_the_command(ask: Ask, mistral: Path) -> None:
    found = answer(ask, mistral, "--gpu", "8GB")
    context = found["workload"]["context"]
    assert (found["verdict"], found["suggestions"]) == ("fits", [])
    assert f" -c {context} -np 1 -ngl 999" in found["launch_command"]
    assert answer(ask, mistral, "--gpu", "8GB", "-c", str(context))["verdict"] == "fits"
    assert answer(ask, mistral, "--gpu", "8GB", "-c", str(context + 256))["verdict"] != "fits"
    screen = " ".join(ask("fit", str(mistral), "--gpu", "8GB").out.split())
    assert (
        f"--context {context:,} is the longest that is sure to fit; the model's own is 32,768."
        in screen
    )


def test_the_context_is_at_most_the_models_own(ask: Ask, mistral: Path) -> None:
    assert answer(ask, mistral, "--gpu", "h100")["workload"]["context"] == OWN
    assert "--context" not in ask("fit", str(mistral), "--gpu", "h100").out


def test_if_no_context_fits_changes_are_for_a_useful_one(ask: Ask, mistral: Path) -> None:
    found = answer(ask, mistral, "--gpu", "t4:4GiB")  # at a desk layers would be on the host
    assert (found["verdict"], found["workload"]["context"]) == ("does_not_fit", 8192)
    assert any("--n-gpu-layers" in change["flag"] for change in found["suggestions"])
    assert (
        "--context 8,192 is assumed: no context fits."
        in ask("fit", str(mistral), "--gpu", "t4:4GiB").out
    )


def test_slots_share_the_longest_context(ask: Ask, mistral: Path) -> None:
    command = ("llama-server", "-m", str(mistral), "-np", "2", "-ngl", "99")
    found = ask("fit", "--gpu", "8GB", "--json", "--", *command).document
    assert (found["workload"]["batch"], found["verdict"]) == (2, "fits")
    assert f" -c {2 * found['workload']['context']} -np 2 " in found["launch_command"]


@each(
    "options",
    [["--gpu", "8GB", "-c", "32768"], ["--kv-memory", "1GiB"], ["--gpu", "8GB", "--engine", "all"]],
)
def test_another_question_keeps_its_context(ask: Ask, mistral: Path, options: list[str]) -> None:
    assert answer(ask, mistral, *options)["workload"]["context"] == OWN
