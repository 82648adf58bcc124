"""What continuous integration runs: every Python and system that the package names, with pinned tools."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it too

REPOSITORY = Path(__file__).parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load((REPOSITORY / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
PINS = [
    Requirement(line)
    for line in (REPOSITORY / ".ci/constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
_CLASSIFIER = "Programming Language :: Python :: 3."
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith(_CLASSIFIER)]


def test_the_workflow_runs_every_python_that_the_package_names_on_every_system() -> None:
    matrix = WORKFLOW["jobs"]["matrix"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert {system.partition("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}
    assert WORKFLOW["jobs"]["matrix"]["strategy"]["fail-fast"] is False


def test_the_oldest_python_is_the_one_that_the_package_and_the_linter_require() -> None:
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{PYTHONS[0].replace('.', '')}"
    minors = [int(version.partition(".")[2]) for version in PYTHONS]
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_the_workflow_may_only_read_and_its_actions_are_pinned() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for job in WORKFLOW["jobs"].values():
        assert "permissions" not in job
        for action in (step["uses"] for step in job["steps"] if "uses" in step):
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)


@pytest.mark.parametrize("python", PYTHONS)
def test_each_tool_has_one_pin_that_pyproject_allows(python: str) -> None:
    """PIP_CONSTRAINT names the pins, in .ci/run and in the workflow."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    pins: dict[str, SpecifierSet] = {}
    for pin in PINS:
        if pin.marker is None or pin.marker.evaluate(environment):
            assert pin.name not in pins
            pins[pin.name] = pin.specifier
    extras = {name: texts for name, texts in PROJECT["optional-dependencies"].items() if name != "transformers"}
    lists = (PROJECT["dependencies"], *extras.values())  # that extra needs Python 3.11, and `dev` has it from there on
    for requirement in (Requirement(text) for texts in lists for text in texts):
        if requirement.name == "attncalc" or (requirement.marker and not requirement.marker.evaluate(environment)):
            continue
        (pinned,) = pins[requirement.name.lower().replace("_", "-")]
        assert pinned.operator == "=="
        assert requirement.specifier.contains(pinned.version), f"{requirement} has the pin {pinned}"


def test_ci_and_the_workflow_read_the_same_pins() -> None:
    assert WORKFLOW["env"]["PIP_CONSTRAINT"] == ".ci/constraints.txt"
    assert 'PIP_CONSTRAINT="$PWD/.ci/constraints.txt"' in (REPOSITORY / ".ci/run").read_text(encoding="utf-8")


def test_the_hooks_run_the_tools_that_are_installed() -> None:
    """A hook with a repository of its own would have a version of its own."""
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in hooks["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks["repos"][0]["hooks"]} == {"system"}
