"""The check of one case: its answer, and how that relates to the answers of other cases."""

from __future__ import annotations

from .case import Case, run_case
from .oracles import check_result


def check(case: Case) -> int:
    """Run the case and return its exit code. Raises AssertionError, or the bug's own exception, if it fails."""
    result = run_case(case)
    check_result(case, result)
    return result.code
