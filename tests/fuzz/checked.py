"""The check of one case: its answer, and for some of them how it relates to the answers of other cases."""

import zlib

from .case import Case, run_case
from .oracles import check_result
from .relations import check_relations

SHARE = 12
"""One of so many answers is compared with another one: that takes as long as several cases."""


def check(case: Case, *, with_all_relations: bool = False) -> int:
    """Run the case and return its exit code. Raises AssertionError, or the bug's own exception, if it fails.

    A case is always compared with the same other cases, so that it fails again if it failed once.
    """
    result = run_case(case)
    check_result(case, result)
    number = zlib.crc32(repr(case.arguments).encode("utf-8", "replace"))
    if with_all_relations:
        check_relations(case, result)
    elif number % SHARE == 0:
        check_relations(case, result, number // SHARE)
    return result.code
