"""vLLM's own plans of its cache equal attncalc's: vllm_plans.py has what a row is."""

import json
import sys
from typing import Any

import pytest
from asking import REPOSITORY
from vllm_plans import EXCEPTIONS, NOT_PLANNED, VERSIONS, difference, is_planned, rows

sys.path.append(str(REPOSITORY / "tools"))
import accuracy


def settings_of(row: dict[str, Any]) -> str:
    return json.dumps(row["settings"])


ASKED = sorted({(version, settings_of(row)) for version in VERSIONS for row in rows(version)})


@pytest.mark.parametrize(("version", "settings"), ASKED)
def test_plans_equal_those_of_vllm(version: str, settings: str) -> None:
    asked = [row for row in rows(version) if settings_of(row) == settings and is_planned(row)]
    assert [found for row in asked if (found := difference(row))] == []


def test_each_reason_for_a_row_that_is_left_out_is_used() -> None:
    all_rows = [row for version in VERSIONS for row in rows(version)]
    errors = [row.get("error", "") for row in all_rows]
    assert [part for part in NOT_PLANNED if not any(part in error for error in errors)] == []
    assert {row["model"] for row in all_rows}.issuperset(EXCEPTIONS)


def test_the_pages_have_the_numbers_of_plans() -> None:
    page = accuracy.PAGE.read_text(encoding="utf-8")
    assert "\n".join(accuracy.plans_of_vllm()) in page, "run python tools/accuracy.py"
    plans = "\n".join(accuracy.plans_of_vllm()).split()[1]
    readme = (accuracy.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[all {plans} plans that were compared]" in readme
