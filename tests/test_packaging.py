"""The wheel, the sdist and a plain checkout find their data files."""

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
    """Return a folder with the wheel and the sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    return folder


def json_of(
    folder: Path, model: str = "llama2-70b", *, command: str = "kv", without: tuple[str, ...] = ()
) -> dict[str, object]:
    """Return the JSON of `attncalc kv MODEL` with the package in `folder`, and without the modules
    `without`.
    """
    arguments = ["attncalc", command, model, "--json"]
    hide = "".join(f"sys.modules[{module!r}] = None; " for module in without)
    code = f"import sys; {hide}sys.argv = {arguments!r}; import attncalc.__main__ as m; m.main()"
    data: dict[str, object] = json.loads(run(folder, code))
    return data


def run(folder: Path, code: str) -> str:
    """Return what Python prints for `code` with the package in `folder`."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of the wheel."""
    (wheel,) = built.glob("*.whl")
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_a_wheel_answers_without_a_yaml_parser(installed: Path) -> None:
    assert (installed / "attncalc/py.typed").exists()
    for model in ("llama2-70b", str(REPOSITORY / "docs/examples/qwen3-next-80b-a3b")):
        assert json_of(installed, model, without=("yaml",)) == json_of(REPOSITORY, model)
    assert json_of(installed, "h100", command="gpus", without=("yaml",)) == json_of(
        REPOSITORY, "h100", command="gpus"
    )


def test_fit_of_a_wheel_needs_no_yaml_parser_and_no_list_of_checkpoints(installed: Path) -> None:
    code = """
import sys
sys.modules["yaml"] = None
sys.argv = ["attncalc", "fit", "llama3.1-8b", "--gpu", "h100"]
from attncalc.cli import run
from attncalc.config import checkpoints
run()
print(checkpoints.checkpoints.cache_info().misses)
"""
    assert run(installed, code).split()[-1] == "0"


def test_the_library_of_a_wheel_works_without_any_dependency(installed: Path) -> None:
    code = f"""
import sys
sys.modules |= dict.fromkeys(("typer", "rich", "yaml"))
from attncalc import Workload, gpu, kv_cache, load
models = [load("llama2-70b"), load({str(REPOSITORY / "docs/examples/qwen3-next-80b-a3b")!r})]
print(int(kv_cache(models[0], Workload.decode(1, 4096)).total), models[1].main.n_layers, gpu("h100").name)
"""
    # 4,096 tokens * 80 layers * K and V of 8 heads * 128 in 2 bytes
    assert run(installed, code).split() == [str(4096 * 80 * 2 * 8 * 128 * 2), "48", "h100-80gb"]


@pytest.mark.parametrize(
    ("folder", "in_wheel"),
    [
        ("presets/gpus", "attncalc/presets/gpus"),
        ("attncalc/config/huggingface/families", "attncalc/config/huggingface/families"),
    ],
)
def test_a_wheel_has_each_yaml_file_and_the_same_data_as_json(
    installed: Path, folder: str, in_wheel: str
) -> None:
    source = {path.name: path.read_bytes() for path in (REPOSITORY / folder).iterdir()}
    assert {path.name: path.read_bytes() for path in (installed / in_wheel).iterdir()} == source
    compiled = json.loads((installed / f"{in_wheel}.json").read_bytes())
    assert compiled == {
        Path(name).stem: yaml.safe_load(content) for name, content in source.items()
    }


def test_a_wheel_has_each_model_as_yaml_and_as_json(installed: Path) -> None:
    source = {path.name: path.read_bytes() for path in (REPOSITORY / "presets/models").iterdir()}
    in_wheel = {
        path.name: path.read_bytes() for path in (installed / "attncalc/presets/models").iterdir()
    }
    assert {name: content for name, content in in_wheel.items() if name.endswith(".yaml")} == source
    compiled = {
        name.removesuffix(".json"): json.loads(in_wheel[name])
        for name in in_wheel
        if name.endswith(".json")
    }
    assert compiled == {
        name.removesuffix(".yaml"): yaml.safe_load(content) for name, content in source.items()
    }


def test_a_wheel_has_every_file_of_the_package_and_no_tests(installed: Path) -> None:
    """Data files such as classes.json have no test of their own; and `tests` would be a package of
    everybody's.
    """
    package = REPOSITORY / "attncalc"
    needed = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    present = {
        path.relative_to(installed / "attncalc").as_posix()
        for path in installed.rglob("attncalc/**/*")
    }
    assert {name for name in needed if "__pycache__" not in name} <= present
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"attncalc"}


def test_a_wheel_has_the_schemas(installed: Path) -> None:
    for schema in ("model.schema.json", "gpu.schema.json"):
        assert (installed / "attncalc/presets" / schema).read_text() == (
            REPOSITORY / "presets" / schema
        ).read_text()


def test_an_sdist_answers_like_a_checkout(built: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()
    assert json_of(root) == json_of(REPOSITORY)
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


def test_no_tracked_file_contains_a_path_of_a_machine() -> None:
    """A host of a package registry counts as such a path."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        if not (REPOSITORY / name).is_file():
            continue
        text = (REPOSITORY / name).read_text(errors="replace")
        for word in ("/wo" + "rk/", "/ro" + "ot/", "pypi." + "org", "python" + "hosted"):
            assert word not in text, f"{name} names {word}"
