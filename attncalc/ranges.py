"""Lists and ranges of numbers on the command line: '1,16,64', '4K:32K:4K', '1K:128K:x2'."""

import re
from collections.abc import Callable, Iterator
from itertools import islice

from .errors import BadValueError
from .units import comma_tip, count, parse_count, parse_decimal, truncate

# The most numbers that one option takes.
MAX_NUMBERS = 1000
# Numbers of a range that needs no step.
_FEW = 64
_FORMS = (
    "write 4K,32K,128K, or a range as 4K:32K:4K (in steps) or 4K:128K:x2 (each twice the one "
    "before)"
)


def parse_counts(
    text: str,
    option: str,
    *,
    limit: int = MAX_NUMBERS,
    parse: Callable[[str, str], int] = parse_count,
) -> list[int]:
    """Return the numbers of a list, in its order; the error names `option`.

    '8K:32K:8K' is 8K, 16K, 24K, 32K. '1K:6K:x2' is 1K, 2K, 4K. A factor may be a decimal, and each
    number is rounded down. A number is written as `parse` reads it, without commas: '4,096' would
    be 4 and 96.

    Raises AttncalcError for a part that is no number or range, a number that is in the list twice,
    and for more than `limit` numbers.
    """
    numbers: dict[int, None] = {}
    for part in split_list(text, option):
        for number in islice(_part(part, option, parse), limit + 1):
            if number in numbers:
                raise BadValueError(
                    f"{option}: {count(number)} is in '{truncate(text)}' twice", "give it once"
                )
            numbers[number] = None
        if len(numbers) > limit:
            raise BadValueError(
                f"{option}: '{truncate(text)}' is more than {count(limit)} numbers",
                "give fewer, or larger steps",
            )
    return list(numbers)


def split_list(text: str, option: str) -> list[str]:
    """Return the parts of a list: '512' and '300' of '512,300'.

    Raises AttncalcError, which names `option`, for a comma within a number: '4,096' would be 4 and
    96.
    """
    parts = [part.strip() for part in text.split(",")]
    if any(re.match(r"0\d", part) for part in parts[1:]):
        raise BadValueError(
            f"{option}: '{truncate(text)}' has a comma within a number",
            comma_tip(text) or "write 4096, and not 4,096",
        )
    return parts


def _part(part: str, option: str, parse: Callable[[str, str], int]) -> Iterator[int]:
    """Yield the numbers of one part of a list. A long range is not computed before it is asked
    for.
    """
    ends = part.replace("..", ":").split(":")
    if len(ends) == 1:
        yield parse(part, option)
        return
    if len(ends) == 2 and all(ends) and parse(ends[1], option) - parse(ends[0], option) < _FEW:
        ends.append("1")  # 1:16 can only mean each of them
    if len(ends) == 2 and all(ends):
        ask = (
            f"write {truncate(f'{ends[0]}:{ends[1]}:x2')} (each twice the one before) or "
            f"{truncate(':'.join(ends))}:1"
        )
        raise BadValueError(f"{option}: '{truncate(part)}' is not a range: it has no step", ask)
    if len(ends) != 3:
        raise BadValueError(f"{option}: '{truncate(part)}' is not a range", _FORMS)
    first = parse(ends[0], option)
    last = parse(ends[1], option)
    if first > last:
        raise BadValueError(f"{option}: the range '{truncate(part)}' ends below its start", _FORMS)
    factor = re.fullmatch(r"[x*](.*)|(.*)x", ends[2].strip())  # 2x is x2
    if factor is None:
        yield from range(first, last + 1, parse(ends[2], option) or 1)
        return
    numerator, denominator = parse_decimal(factor[1] or factor[2] or "", option)
    number = first
    while number <= last:
        yield number
        following = number * numerator // denominator
        if following <= number:
            raise BadValueError(
                f"{option}: the factor of '{truncate(part)}' gives no larger number", _FORMS
            )
        number = following
