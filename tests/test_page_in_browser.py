"""The page in a real browser: questions, links, files, the hub, errors, and without a network; its
accessibility, and the time that it takes.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from page_site import built_site


def llama_70b_header(path: Path) -> Path:
    """Write the header of a Llama 2 70B in Q4_K, followed by a hole of 39 GB."""
    from gguf import GGMLQuantizationType as Type
    from gguf_files import write_gguf

    d, kv, ffn, vocabulary, layers = 8192, 1024, 28672, 32000, 80
    matrices = {
        "token_embd.weight": (d, vocabulary),
        "output.weight": (d, vocabulary),
        **{
            f"blk.{i}.{name}.weight": shape
            for i in range(layers)
            for name, shape in {
                "attn_q": (d, d),
                "attn_k": (d, kv),
                "attn_v": (d, kv),
                "attn_output": (d, d),
                "ffn_gate": (d, ffn),
                "ffn_up": (d, ffn),
                "ffn_down": (ffn, d),
            }.items()
        },
    }
    norms = {
        f"blk.{i}.{name}.weight": (d,) for i in range(layers) for name in ("attn_norm", "ffn_norm")
    }
    keys = {
        "context_length": 4096,
        "embedding_length": d,
        "feed_forward_length": ffn,
        "block_count": layers,
        "attention.head_count": 64,
        "attention.head_count_kv": 8,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": 128,
    }
    types = {**dict.fromkeys(matrices, Type.Q4_K), **dict.fromkeys(norms, Type.F32)}
    shapes = {**matrices, **norms, "output_norm.weight": (d,)}
    return write_gguf(
        path, "llama", keys, shapes, {**types, "output_norm.weight": Type.F32}, tokens=vocabulary
    )


# Budgets, in milliseconds: from nothing to the first answer, and of an answer while typing.
FIRST_ANSWER = 2500
TYPING = 80
# What the loop of budget.mjs takes on two quiet cores, in milliseconds. A machine that takes longer
# gets as much more time.
LOOP = 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that runs a script of tests/page with the built page in Chromium, and
    returns what it prints.
    """
    browsers = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    browser = next(filter(None, browsers), None)
    if browser is None:
        pytest.skip("there is no Chromium: Debian's package is chromium")
    site = built_site(tmp_path_factory)
    driver = import_module("build_page").installed() / "playwright-core/index.js"

    def run(script: str, *further: str) -> Any:
        path = Path(__file__).parent / "page" / script
        done = subprocess.run(
            ["node", str(path), str(site), str(driver), browser, *further],
            capture_output=True,
            encoding="utf-8",
            check=True,
            timeout=400,
        )
        return json.loads(done.stdout)

    return run


def test_page_in_a_browser(
    run: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    gguf = llama_70b_header(tmp_path_factory.mktemp("gguf") / "llama-70b.gguf")
    assert gguf.stat().st_size > 38e9
    found = run("browser.mjs", str(gguf))
    wrong = {name: problem for name, problem in found.items() if problem}
    assert wrong == {}


def test_axe_finds_nothing_at_three_widths_light_and_dark(run: Callable[..., Any]) -> None:
    axe = import_module("build_page").installed() / "axe-core/axe.min.js"
    assert run("accessible.mjs", str(axe)) == []


def test_first_answer_and_typing_are_within_their_budget(run: Callable[..., Any]) -> None:
    took = run("budget.mjs")
    assert took["first"] <= FIRST_ANSWER * max(1, took["loop"] / LOOP), took
    assert took["typing"] <= TYPING * max(1, took["typing_loop"] / LOOP), took
