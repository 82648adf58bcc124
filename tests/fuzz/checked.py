"""The check of one case: its answer, and for some of them how it relates to the answers of other
cases.
"""

import zlib
from collections.abc import Sequence

from .case import Case, run_case
from .oracles import check_result
from .relations import RELATIONS, Relation, check_relations
from .same import RELATIONS as SAME

# One of so many answers is compared with another one: that takes as long as several cases.
SHARE = 12


def check(case: Case, relations: Sequence[Relation] | None = None) -> int:
    """Run the case and return its exit code. Raises AssertionError, or the bug's own exception, if
    it fails.

    Args:
        case: The case.
        relations: The relations that are checked. By default those of the case, or one for every
            `SHARE`th case, always the same one, so that a case fails again if it failed once.
    """
    result = run_case(case)
    check_result(case, result)
    if relations is None and case.relations:
        known = {relation.__name__: relation for relation in (*RELATIONS, *SAME)}
        relations = [known[name] for name in case.relations]
    number = zlib.crc32(repr(case.arguments).encode("utf-8", "replace"))
    if relations is None and number % SHARE == 0:
        relations = [RELATIONS[number // SHARE % len(RELATIONS)]]
    if relations is not None:
        check_relations(case, result, relations)
    return result.code
