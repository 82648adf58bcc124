"""The page in Node, with the Pyodide that the browser has: its JSON is that of the command line."""

import ast
import json
import os
import re
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY
from page_site import built_site

from attncalc import AttncalcError, compare, fit, kv_cache, preset_names
from attncalc.config.presets import preset_of, preset_text, presets
from attncalc.questions import QUESTIONS
from attncalc.questions.question import declared
from attncalc.show.json import render

GPUS = ("h100-80gb", "rtx-4090", "mi300x")
# Whether all presets are asked about on all GPUs, and all configs, which takes two minutes; else a
# part of them.
EVERY = "ATTNCALC_PAGE_ALL" in os.environ
# One of so many.
PART = 50
DATA = Path(__file__).parent / "data"
# A model file in JSON.
OWN = {
    "title": "Own",
    "d_model": 64,
    "n_layers": 2,
    "norm": "rmsnorm",
    "n_heads": 4,
    "mlp": "gated",
    "d_ff": 128,
}


def _has_command(name: str) -> bool:
    """Return whether the page has a question's folder, and the command line its own command."""
    folder = f"attncalc/questions/{name}/__init__.py"
    is_there = re.match(import_module("build_page").NOT_IN_PAGE, folder) is None
    return is_there and bool(declared(name).command)


# What the package imports and the page lacks: other formats of files, the hub's sockets, a
# terminal, several processes for a sweep, and the keys of trainers.
NOT_ON_PAGE = {
    "attncalc.cli",
    *(f"attncalc.questions.{name}.command" for name in QUESTIONS if _has_command(name)),
    "attncalc.questions.sweep.parallel",
    "attncalc.questions.train.trainers",
    "attncalc.show.html",
    "attncalc.show.terminal",
    "html",
    "http.client",
    "rich.console",
    "rich.progress",
    "ssl",
    "typing_extensions",
}
# Bytes over the wire that the page may have.
MOST_BYTES = 6_500_000
CALLS: dict[str, Any] = {"fit": fit, "kv": kv_cache, "compare": compare}


def _configs() -> dict[str, str]:
    """Return {path: text} of released config.json files."""
    released = {
        each["name"]: each["config"]
        for each in json.loads((DATA / "real-configs.json").read_text("utf-8"))
    }
    releases = json.loads((DATA / "releases.json").read_text("utf-8"))
    released |= {name: each["config"] for name, each in releases.items()}
    released |= json.loads((DATA / "vendor-configs.json").read_text("utf-8"))
    released |= {
        path.stem: json.loads(path.read_text("utf-8"))
        for path in (DATA / "quantized").glob("*.json")
    }
    return {
        f"{name.replace('/', '_')}/config.json": json.dumps(config)
        for name, config in released.items()
    }


def _asked(command: str, model: str, options: dict[str, str]) -> str:
    try:
        return render(CALLS[command](model, **options).report)
    except AttncalcError as error:
        return str(error)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Return a function that asks Python of the page, and returns what documents.mjs prints."""
    site = built_site(tmp_path_factory)

    def run(**asked: Any) -> Any:
        asked = {"files": {}, "questions": [], "names": [], "modules": [], **asked}
        done = subprocess.run(
            ["node", str(Path(__file__).parent / "page/documents.mjs"), str(site)],
            input=json.dumps(asked),
            capture_output=True,
            encoding="utf-8",
            check=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        return json.loads(done.stdout)

    return run


def test_page_is_within_its_budget_of_bytes(tmp_path_factory: pytest.TempPathFactory) -> None:
    sizes = import_module("build_page").wire_bytes(built_site(tmp_path_factory))
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_json_is_that_of_the_command_line(
    answered: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = _configs()
    assert len(files) >= 100
    files |= {
        "own/model.yaml": preset_text("gpt2"),
        "own/wrong.json": json.dumps({**OWN, "wndow": 5}),
    }
    on_gpus = [
        ("fit", name, {"gpu": gpu, "context": "8192"}) for name in preset_names() for gpu in GPUS
    ]
    of_files = [("fit", path, {"gpu": "h100-80gb", "context": "4096"}) for path in files]
    if not EVERY:
        # not a multiple of 3: the GPUs take turns
        on_gpus, of_files = on_gpus[::PART], of_files[::PART]
    asked: list[tuple[str, str, dict[str, str]]] = [
        *on_gpus,
        *of_files,
        ("kv", "deepseek-v3", {"kv_dtype": "fp8"}),
        ("kv", "Qwen/Qwen3-8B", {}),
        ("kv", "https://huggingface.co/meta-llama/Llama-3.1-8B", {}),
        ("kv", "own/model.yaml", {}),
        ("kv", "own/wrong.json", {}),
        ("compare", "llama2-70b", {}),
    ]
    questions = [
        {"command": command, "models": [model], "options": options}
        for command, model, options in asked
    ]
    document = answered(files=files, questions=questions)
    monkeypatch.chdir(tmp_path)
    for path, text in files.items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    assert document["imported"] == []
    different = [
        each
        for each, answer in zip(asked, document["answers"], strict=True)
        if answer != _asked(*each)
    ]
    assert different == []


def test_page_knows_each_name_of_a_preset_and_has_each_module(answered: Callable[..., Any]) -> None:
    repositories = [repository for one in presets() for repository in one.repositories]
    tags = [tag for one in presets() for tag in one.tags]
    assert len(repositories) >= 242
    document = answered(names=[*repositories, *tags], modules=_imported())
    assert {name: one for name, one in document["presets"].items() if one != preset_of(name)} == {}
    assert {*document["lacking"]} == NOT_ON_PAGE


def _imported() -> list[str]:
    """Return the modules that the package imports, also inside of functions, without the parts that
    the page lacks.
    """
    found = set[str]()
    for path in sorted(REPOSITORY.glob("attncalc/**/*.py")):
        name = path.relative_to(REPOSITORY).as_posix()
        if re.match(import_module("build_page").NOT_IN_PAGE, name):
            continue
        package = name.split("/")[:-1]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                parents = package[: len(package) - node.level + 1] if node.level else []
                found.add(".".join([*parents, *filter(None, [node.module])]))
    return sorted(found)
