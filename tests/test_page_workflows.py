"""The workflows that publish: the page only after its tests, and a release with its notes."""

import importlib.util
import re
from typing import Any

import pytest
import yaml
from asking import REPOSITORY

GITHUB = REPOSITORY / ".github"
NAMES = ("page", "release")


def workflow(name: str) -> dict[str, Any]:
    text = (GITHUB / f"workflows/{name}.yml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.safe_load(text)
    return read


def test_the_page_is_published_after_its_tests_in_a_browser() -> None:
    jobs = workflow("page")["jobs"]
    assert jobs["publish"]["needs"] == "build"
    steps = jobs["build"]["steps"]
    tested = next(
        i for i, step in enumerate(steps) if "test_page_in_browser" in step.get("run", "")
    )
    uploaded = next(i for i, step in enumerate(steps) if "upload-pages" in step.get("uses", ""))
    assert tested < uploaded
    assert steps[tested]["env"] == {"ATTNCALC_PAGE_SITE": steps[uploaded]["with"]["path"]}


@pytest.mark.parametrize("name", NAMES)
def test_actions_are_pinned_and_only_the_last_job_may_write(name: str) -> None:
    read = workflow(name)
    assert read["permissions"] == {"contents": "read"}
    *first, last = read["jobs"].values()
    assert all("permissions" not in job for job in first)
    assert last["needs"]
    for job in (*first, last):
        for action in (step["uses"] for step in job["steps"] if "uses" in step):
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", action)


def test_hashes_of_actions_and_of_the_page_are_kept_current() -> None:
    read = yaml.safe_load((GITHUB / "dependabot.yml").read_text(encoding="utf-8"))
    kept = {(each["package-ecosystem"], each["directory"]) for each in read["updates"]}
    assert kept == {("github-actions", "/"), ("npm", "/docs/page")}


def test_no_file_of_a_workflow_names_a_host() -> None:
    for path in sorted(GITHUB.rglob("*.*")):
        assert "://" not in path.read_text(encoding="utf-8"), path


def test_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    spec = importlib.util.spec_from_file_location("release_notes", GITHUB / "release_notes.py")
    assert spec is not None
    assert spec.loader is not None
    release_notes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release_notes)
    changelog = (
        "# Changelog\n\n## [Unreleased]\n\n- c\n\n## [0.2.0] - 2026\n\n- b\n\n## [0.1.0]\n- a\n"
    )
    assert release_notes.notes(changelog, "0.2.0") == "- b"
    assert release_notes.notes(changelog, "0.3.0") == ""
    assert re.fullmatch(r"\d+\.\d+\.\d+", release_notes.version())
