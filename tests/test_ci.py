"""What continuous integration runs: every Python and system that the package names, with pinned
tools; the Action.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from asking import REPOSITORY
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest needs it too

PYPROJECT: dict[str, Any] = tomllib.loads(
    (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
)
PROJECT = PYPROJECT["project"]
WORKFLOW: dict[str, Any] = yaml.safe_load(
    (REPOSITORY / ".github/workflows/ci.yml").read_text(encoding="utf-8")
)
ACTION: dict[str, Any] = yaml.safe_load((REPOSITORY / "action.yml").read_text(encoding="utf-8"))
PINS = [
    Requirement(line)
    for line in (REPOSITORY / ".ci/constraints.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]
_CLASSIFIER = "Programming Language :: Python :: 3."
PYTHONS = [
    name.rpartition(" ")[2] for name in PROJECT["classifiers"] if name.startswith(_CLASSIFIER)
]


def test_the_workflow_runs_every_python_that_the_package_names_on_every_system() -> None:
    matrix = WORKFLOW["jobs"]["matrix"]["strategy"]["matrix"]
    assert matrix["python"] == PYTHONS
    assert {system.partition("-")[0] for system in matrix["system"]} == {
        "ubuntu",
        "macos",
        "windows",
    }
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
    extras = {
        name: texts
        for name, texts in PROJECT["optional-dependencies"].items()
        if name not in ("transformers", "mcp", "engines")
    }
    # `dev` has the first two from Python 3.11 on; the last has a torch of its own
    lists = (PROJECT["dependencies"], *extras.values())
    for requirement in (Requirement(text) for texts in lists for text in texts):
        if requirement.name == "attncalc" or (
            requirement.marker and not requirement.marker.evaluate(environment)
        ):
            continue
        (pinned,) = pins[requirement.name.lower().replace("_", "-")]
        assert pinned.operator == "=="
        assert requirement.specifier.contains(pinned.version), f"{requirement} has the pin {pinned}"


def test_ci_and_the_workflow_read_the_same_pins() -> None:
    assert WORKFLOW["env"]["PIP_CONSTRAINT"] == ".ci/constraints.txt"
    assert 'PIP_CONSTRAINT="$PWD/.ci/constraints.txt"' in (REPOSITORY / ".ci/run").read_text(
        encoding="utf-8"
    )


def test_ci_runs_what_the_workflow_runs_and_has_a_browser() -> None:
    own = (REPOSITORY / ".ci/run").read_text(encoding="utf-8")
    steps = WORKFLOW["jobs"]["matrix"]["steps"]
    first = next(step["run"] for step in steps if "run" in step)
    assert first == "python .ci/wheel.py"
    assert "python3 .ci/wheel.py" in own
    assert "apt-get install -y --no-install-recommends chromium" in own


def test_the_hooks_run_the_tools_that_are_installed() -> None:
    """A hook with a repository of its own would have a version of its own."""
    hooks = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in hooks["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks["repos"][0]["hooks"]} == {"system"}


@pytest.mark.skipif(os.name == "nt", reason="the step is for bash")
@pytest.mark.parametrize(
    ("arguments", "fail_if", "code", "out", "error"),
    [
        # 12 layers * 1024 tokens * 2 * 12 heads * 64 * 2 B
        ("kv gpt2 -c 1K --get kv_cache", "", 0, "75497472\n", ""),
        (
            "kv gpt2 -c 1K --get kv_cache",
            "\nkv_cache > 1MiB\n",
            1,
            "75497472\n",
            "failed: kv_cache > 1MiB",
        ),
        ("'kv' \"gpt2\" -c 1K --quiet", "kv_cache > 1TiB", 0, "", ""),
        ("kv 'gpt2", "", 2, "", "error: arguments: a quotation mark is not closed\n  tip: "),
        ("", "", 2, "", "error: arguments: there are none\n  tip: "),
        (" \n", "kv_cache > 1MiB", 2, "", "error: arguments: there are none\n  tip: "),
        ("kv", "", 2, "", "error: a model is required\n"),
        ("kv $(exit) `exit` ; exit", "", 2, "", "error: "),
    ],
)
def test_the_action_has_the_exit_code_of_its_command(
    arguments: str, fail_if: str, code: int, out: str, error: str, tmp_path: Path
) -> None:
    programs = tmp_path / "attncalc/bin"
    programs.mkdir(parents=True)
    lines = {
        "python": f'exec {sys.executable} "$@"',
        "attncalc": f'exec {sys.executable} -m attncalc "$@"',
    }
    for name, line in lines.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    (step,) = (step for step in ACTION["runs"]["steps"] if step["name"] == "Run attncalc")
    given = {
        "ARGUMENTS": arguments,
        "FAIL_IF": fail_if,
        "RUNNER_TEMP": str(tmp_path),
        "PYTHONPATH": str(REPOSITORY),
    }
    done = subprocess.run(
        # as a runner's "shell: bash"
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={**os.environ, **given},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(error)
