"""What is built and installed finds its presets: the wheel, the sdist, a plain checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    return folder


def answers(
    folder: Path, model: str = "llama2-70b", *, command: str = "kv", without_yaml: bool = False
) -> dict[str, object]:
    """What `attncalc kv MODEL --json` (or `gpus GPU`) says where the package is in `folder`."""
    hide = "import sys; sys.modules['yaml'] = None; " if without_yaml else ""
    asked = ["attncalc", command, model, "--json"]
    code = f"{hide}import sys; sys.argv = {asked!r}; import attncalc.__main__ as m; m.main()"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, object] = json.loads(answer.stdout)
    return found


def test_a_wheel_answers_from_its_own_presets_without_a_yaml_parser(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    names = {path.name for path in (tmp_path / "attncalc/presets/models").iterdir()}
    assert names == {path.name for path in (REPOSITORY / "presets/models").iterdir()}
    assert (tmp_path / "attncalc/py.typed").exists()
    for model in ("llama2-70b", str(REPOSITORY / "docs/examples/qwen3-next-80b-a3b")):
        assert answers(tmp_path, model, without_yaml=True) == answers(REPOSITORY, model)
    assert answers(tmp_path, "h100", command="gpus", without_yaml=True) == answers(REPOSITORY, "h100", command="gpus")


def test_a_wheels_compiled_presets_are_its_yaml(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        compiled = json.loads(archive.read("attncalc/presets/models.json"))
    written = {p.stem: yaml.safe_load(p.read_text()) for p in (REPOSITORY / "presets/models").glob("*.yaml")}
    assert compiled == written


def test_a_wheels_compiled_gpus_are_its_yaml(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        compiled = json.loads(archive.read("attncalc/presets/gpus.json"))
        assert "attncalc/presets/gpu.schema.json" in archive.namelist()
    written = {p.stem: yaml.safe_load(p.read_text()) for p in (REPOSITORY / "presets/gpus").glob("*.yaml")}
    assert compiled == written


def test_a_wheels_compiled_families_are_its_yaml(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        compiled = json.loads(archive.read("attncalc/config/huggingface/families.json"))
    tables = sorted((REPOSITORY / "attncalc/config/huggingface").glob("*.yaml"))
    assert compiled == {k: v for table in tables for k, v in yaml.safe_load(table.read_text()).items()}


def test_an_sdist_is_a_checkout(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert answers(root) == answers(REPOSITORY)
    for needed in (
        "LICENSE",
        "README.md",
        "hatch_build.py",
        "attncalc/config/huggingface/classes.json",
        "docs/examples/qwen3-next-80b-a3b/config.json",
        "tools/config_classes.py",
        "tests/test_packaging.py",
        "presets/model.schema.json",
        "presets/gpu.schema.json",
        "presets/gpus/h100-80gb.yaml",
    ):
        assert (root / needed).exists()


def test_no_machine_is_named_in_a_tracked_file() -> None:
    """No path of one machine, no registry's host."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        if not (REPOSITORY / name).is_file():
            continue
        text = (REPOSITORY / name).read_text(errors="replace")
        for word in ("/wo" + "rk/", "/ro" + "ot/", "pypi." + "org", "python" + "hosted"):
            assert word not in text, f"{name} names {word}"
