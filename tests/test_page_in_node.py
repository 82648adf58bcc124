"""The page in Node, with the Pyodide that the browser has: its JSON is that of the command line."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from page_site import built_site

from attncalc import AttncalcError, compare, fit, kv_cache, preset_names
from attncalc.report.json import render

GPUS = ("h100-80gb", "rtx-4090", "mi300x")
EVERY = "ATTNCALC_PAGE_ALL" in os.environ
"""Whether all presets are asked about on all GPUs, and all configs, which takes two minutes; else a part of them."""
PART = 50
"""One of so many."""
DATA = Path(__file__).parent / "data"
CALLS: dict[str, Any] = {"fit": fit, "kv": kv_cache, "compare": compare}


def _configs() -> dict[str, str]:
    """Return {path: text} of released config.json files."""
    released = {each["name"]: each["config"] for each in json.loads((DATA / "real-configs.json").read_text("utf-8"))}
    releases = json.loads((DATA / "releases.json").read_text("utf-8"))
    released |= {name: each["config"] for name, each in releases.items()}
    released |= json.loads((DATA / "vendor-configs.json").read_text("utf-8"))
    released |= {path.stem: json.loads(path.read_text("utf-8")) for path in (DATA / "quantized").glob("*.json")}
    return {f"{name.replace('/', '_')}/config.json": json.dumps(config) for name, config in released.items()}


def _asked(command: str, model: str, options: dict[str, str]) -> str:
    try:
        return render(CALLS[command](model, **options).report)
    except AttncalcError as error:
        return str(error)


def test_json_is_that_of_the_command_line(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = built_site(tmp_path_factory)
    files = _configs()
    assert len(files) >= 100
    on_gpus = [("fit", name, {"gpu": gpu, "context": "8192"}) for name in preset_names() for gpu in GPUS]
    of_files = [("fit", path, {"gpu": "h100-80gb", "context": "4096"}) for path in files]
    if not EVERY:
        on_gpus, of_files = on_gpus[::PART], of_files[::PART]  # not a multiple of 3: the GPUs take turns
    asked: list[tuple[str, str, dict[str, str]]] = [
        *on_gpus,
        *of_files,
        ("kv", "deepseek-v3", {"kv_dtype": "fp8"}),
        ("compare", "llama2-70b", {}),
    ]
    questions = [{"command": command, "models": [model], "options": options} for command, model, options in asked]
    answered = subprocess.run(
        ["node", str(Path(__file__).parent / "page/documents.mjs"), str(site)],
        input=json.dumps({"files": files, "questions": questions}),
        capture_output=True,
        encoding="utf-8",
        check=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    monkeypatch.chdir(tmp_path)
    for path, text in files.items():
        Path(path).parent.mkdir()
        Path(path).write_text(text, encoding="utf-8")
    document = json.loads(answered.stdout)
    assert document["imported"] == []
    different = [each for each, answer in zip(asked, document["answers"], strict=True) if answer != _asked(*each)]
    assert different == []
