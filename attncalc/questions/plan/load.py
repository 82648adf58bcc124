"""The requests of a plan: as numbers, as ranges, or as a CSV with the tokens of each."""

import csv
import itertools
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import AttncalcError, clash, did_you_mean
from ...serving.traffic import USUAL, Traffic, usual_lengths
from ...units import long_option, parse_count, truncate

# Requests that a CSV may have.
MOST_REQUESTS = 1_000_000
_PROMPTS = (
    "prompt",
    "prompt_tokens",
    "prompt_len",
    "input",
    "input_tokens",
    "input_len",
    "input_length",
    "isl",
    "contexttokens",
    "context_tokens",
    "num_prompt_tokens",
    "request_tokens",
    "request tokens",
)
# Names of columns, in small letters; those of Azure's and BurstGPT's traces are among them.
_OUTPUTS = (
    "output",
    "output_tokens",
    "output_len",
    "output_length",
    "osl",
    "completion_tokens",
    "generatedtokens",
    "generated_tokens",
    "num_output_tokens",
    "response_tokens",
    "response tokens",
)


def usual_requests(options: Mapping[str, Any], context: int | None, longest: int) -> dict[str, str]:
    """Return the usual prompt and output, as `usual_lengths` does, if the options of LoadOptions,
    parsed, lack them.
    """
    if options.get("lengths") is not None:
        return {}
    given = {
        name: _range(options[name], flag)[1] if name in options else None
        for name, flag in (("prompt", "--prompt"), ("output", "--output-len"))
    }
    lengths = usual_lengths(given["prompt"], given["output"], context, longest)
    found = dict(zip(given, lengths, strict=True))
    return {
        name: USUAL.get(tokens, str(tokens))
        for name, tokens in found.items()
        if name not in options
    }


def read_traffic(options: Mapping[str, Any]) -> Traffic:
    """Return the requests that the options of LoadOptions, parsed, describe.

    Raises AttncalcError if options exclude each other, or the file has no such requests.
    """
    path, prompt, output = (options.get(name) for name in ("lengths", "prompt", "output"))
    if path is not None:
        if prompt is not None or output is not None:
            raise clash("--lengths", "--prompt", "the file has prompts and outputs")
        pairs = _read_csv(Path(os.fspath(path)), options.get("length_columns"))
        traffic = _mixture(pairs, options.get("percentile"))
    else:
        for name in ("length_columns", "percentile"):
            if options.get(name) is not None:
                raise AttncalcError(
                    f"{long_option(name)} needs --lengths", "give the CSV of the requests"
                )
        traffic = _between(_range(str(prompt), "--prompt"), _range(str(output), "--output-len"))
    return traffic._replace(shared_prefix=_shared(options, traffic))


def _shared(options: Mapping[str, Any], traffic: Traffic) -> int:
    prefix = options.get("shared_prefix")
    rate = options.get("prefix_hit_rate")
    if prefix is not None and rate is not None:
        raise clash("--shared-prefix", "--prefix-hit-rate", "give one of them")
    if rate is not None:
        return int(traffic.prompt * rate.numerator // rate.denominator)
    return int(prefix or 0)


def _range(text: str, name: str) -> tuple[int, int]:
    """Return the fewest and the most tokens of '4K' or '1K:8K'."""
    first, colon, last = text.partition(":")
    least = parse_count(first, name)
    most = parse_count(last, name) if colon else least
    if most < least:
        raise AttncalcError(
            f"{name}: the range '{truncate(text)}' ends below its start", "write 1K:8K"
        )
    return least, most


def _between(prompts: tuple[int, int], outputs: tuple[int, int]) -> Traffic:
    """Return requests of which every length in the ranges is equally frequent."""
    if prompts[0] == prompts[1] and outputs[0] == outputs[1]:
        return Traffic(prompts[0], outputs[0])
    low, high = outputs
    steps = (high - low + 1) * (low + high)  # twice the sum of all outputs
    squares = (high * (high + 1) * (2 * high + 1) - (low - 1) * low * (2 * low - 1)) // 6
    # a request with a long output is there longer: its tokens count as often as it has steps
    held = -(-(sum(prompts) * steps + 2 * squares) // (2 * steps))
    return Traffic(
        -(-sum(prompts) // 2), -(-sum(outputs) // 2), average=held, longest=prompts[1] + high
    )


def _mixture(pairs: Sequence[tuple[int, int]], percentile: float | None) -> Traffic:
    """Return the requests of a file; each counts for as many steps as its output has tokens."""
    prompts, outputs = (sum(pair[i] for pair in pairs) for i in (0, 1))
    held = sum(output * (2 * prompt + output) for prompt, output in pairs)
    totals = sorted(map(sum, pairs))
    if percentile is None:
        longest = totals[-1]
    else:
        longest = totals[max(0, math.ceil(percentile / 100 * len(totals)) - 1)]
    return Traffic(
        prompt=-(-prompts // len(pairs)),
        output=-(-outputs // len(pairs)),
        average=-(-held // (2 * outputs)),
        longest=longest,
    )


def _read_csv(path: Path, columns: str | None) -> list[tuple[int, int]]:
    """Return (prompt, output) of each request. Raises AttncalcError if the file lacks them."""
    name = truncate(path, 100)
    tip = "a CSV with a line per request: prompt,output"
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            places = _places(header, columns, name)
            pairs = [
                _pair(row, places, f"{name}:{i}")
                for i, row in enumerate(itertools.islice(reader, MOST_REQUESTS + 1), 2)
                if row
            ]
    except (OSError, ValueError, csv.Error) as error:
        reason = (getattr(error, "strerror", None) or "not a CSV").lower()
        raise AttncalcError(f"--lengths: {name}: {reason}", tip) from None
    if not pairs or len(pairs) > MOST_REQUESTS:
        raise AttncalcError(
            f"--lengths: {name} has {'no' if not pairs else 'more than a million'} requests", tip
        )
    return pairs


def _places(header: Sequence[str], columns: str | None, name: str) -> tuple[int, int]:
    given = columns.split(",") if columns else []
    if columns and len(given) != 2:
        raise AttncalcError(
            f"--length-columns: '{truncate(columns)}' are not two names", "write prompt,output"
        )
    known = [title.strip().lower() for title in header]
    found: list[int] = []
    for what, names in (("prompt", _PROMPTS), ("output", _OUTPUTS)):
        wanted = (given[len(found)].strip().lower(),) if given else names
        place = next((known.index(title) for title in wanted if title in known), None)
        if place is None:
            missing = given[len(found)].strip() if given else what
            raise AttncalcError(
                f"--lengths: {name} has no column '{truncate(missing)}'",
                f"{did_you_mean(missing, header)}--length-columns PROMPT,OUTPUT names them, of: "
                f"{truncate(', '.join(header), 100)}",
            )
        found.append(place)
    return found[0], found[1]


def _pair(row: Sequence[str], places: tuple[int, int], place: str) -> tuple[int, int]:
    """Return the tokens of one request; one whose output is empty has one token, as engines compute
    one.
    """
    cells = [row[i].strip() if i < len(row) else "" for i in places]
    if not all(cell.isdecimal() and len(cell) < 10 for cell in cells) or not int(cells[0]):
        raise AttncalcError(
            f"--lengths: {place}: '{truncate(','.join(cells))}' are no tokens",
            "write whole numbers: 3072,500",
        )
    return int(cells[0]), max(1, int(cells[1]))
