"""The page in a real browser: questions, links, files, the hub, errors, and without a network."""

import json
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

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


def test_page_in_a_browser(tmp_path_factory: pytest.TempPathFactory) -> None:
    browser = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if browser is None:
        pytest.skip("there is no Chromium: Debian's package is chromium")
    site = built_site(tmp_path_factory)
    gguf = llama_70b_header(tmp_path_factory.mktemp("gguf") / "llama-70b.gguf")
    assert gguf.stat().st_size > 38e9
    driver = import_module("build_page").installed() / "playwright-core/index.js"
    answered = subprocess.run(
        [
            "node",
            str(Path(__file__).parent / "page/browser.mjs"),
            str(site),
            str(driver),
            browser,
            str(gguf),
        ],
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=300,
    )
    wrong = {name: problem for name, problem in json.loads(answered.stdout).items() if problem}
    assert wrong == {}
