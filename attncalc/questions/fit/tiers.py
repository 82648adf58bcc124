"""The cache in host memory and on disk, in the report of `attncalc fit`."""

from collections.abc import Iterator

from ...serving.answer import Answer
from ...serving.tiers import Tier, prefill_of
from ...show.figures import QUOTIENT, FigureRow, FigureRows, Given, ratio_row
from ...show.report import Column, Table
from ...units import BYTES, BYTES_PER_SECOND, SECONDS, TOKENS, count, human, quotient, short

_GIVEN = "as given"
_NO_TIERS = "without a cache in host memory or on disk"
_NULL = {"host": "without a cache in host memory", "disk": "without a cache on disk"}
_NEVER = "if it never is, and without a GPU"
_TITLES = {"gpu": "GPU memory", "host": "host memory", "disk": "disk"}
_SHARED = {"host": "to each GPU", "disk": "to all GPUs together"}
_WORDS = {"host": "in host memory", "disk": "on disk"}


def _rows_of(name: str) -> dict[str, FigureRow]:
    where = _WORDS[name]
    null = _NULL[name]
    return {
        f"{name}_kv_memory": FigureRow(
            f"cache {where}", BYTES, f"the cache {where}, of all GPUs", null
        ),
        f"{name}_kv_tokens": FigureRow(f"tokens {where}", TOKENS, f"tokens that fit {where}", null),
        f"{name}_tokens_per_gib": ratio_row(
            f"tokens per GiB {where}", f"tokens in a GiB {where}", null, unit=TOKENS
        ),
        f"{name}_load_time": ratio_row(
            f"loading one request from {_TITLES[name]}",
            f"the time to load the cache of one request, {where}, to the GPUs",
            null,
            unit=SECONDS,
        ),
        f"{name}_faster_from": FigureRow(
            f"loading from {_TITLES[name]} beats prefilling from",
            TOKENS,
            f"the tokens of a prompt from which loading its cache, {where}, beats a prefill at "
            "the GPU's peak",
            f"{null}, {_NEVER}",
        ),
    }


ROWS = FigureRows(
    gpu_tokens_per_gib=ratio_row(
        "tokens per GiB of GPU memory",
        "tokens in a GiB of the GPUs' memory for the cache",
        _NO_TIERS,
        unit=TOKENS,
    ),
    **_rows_of("host"),
    **_rows_of("disk"),
)


def tier_values(answer: Answer) -> dict[str, Given | None]:
    """Return the values of ROWS; those that `Answer.tiers` does not have are None."""
    values: dict[str, Given | None] = dict.fromkeys(ROWS)
    for tier in answer.tiers:
        if tier.bandwidth:
            speed = f"{short(tier.bandwidth, BYTES_PER_SECOND)} {_SHARED[tier.name]}"
        else:
            speed = ""
        found = {
            "kv_memory": Given(tier.memory, source=_GIVEN),
            "kv_tokens": Given(tier.tokens, source=answer.result.layout.source),
            "tokens_per_gib": Given(tier.tokens_per_gib, source=QUOTIENT),
            "load_time": Given(tier.load, source=speed),
            "faster_from": Given(tier.faster_from, source=f"{speed}, and the GPU's peak"),
        }
        values |= {
            f"{tier.name}_{name}": value
            for name, value in found.items()
            if f"{tier.name}_{name}" in ROWS
        }
    return values


def tiers_table(answer: Answer) -> tuple[Table, ...]:
    """Return one row per memory that holds the cache, and one for prefilling again; none without a
    lower tier.
    """
    if not answer.tiers:
        return ()
    columns = (
        Column("cache in", "left"),
        Column("size"),
        Column("tokens"),
        Column("tokens\nper GiB"),
        Column(f"loads {count(answer.resolved.workload.context)}\ntokens in"),
        Column("beats\nprefill from"),
    )
    step = prefill_of(answer.resolved, answer.resolved.workload.context)
    rows = [_row(tier, has_prefill=step is not None) for tier in answer.tiers]
    if step:
        rows.append(
            ("prefilling again", "", "", "", f"{quotient(step.by_compute, SECONDS)} or more", "")
        )
    return (Table(columns, tuple(rows)),)


def _row(tier: Tier, *, has_prefill: bool) -> tuple[str, ...]:
    load = quotient(tier.load, SECONDS) if tier.load else ""
    start = ""
    if tier.load and has_prefill:
        if tier.faster_from is None:
            start = "never"
        elif tier.faster_from == 1:
            start = "always"
        else:
            start = count(tier.faster_from)
    per_gib = f"{float(tier.tokens_per_gib):,.0f}"
    return (_TITLES[tier.name], human(tier.memory, BYTES), count(tier.tokens), per_gib, load, start)


def tier_notes(answer: Answer) -> Iterator[str]:
    """Yield the bandwidths that were assumed, and what the times are."""
    request = answer.resolved.request
    given = {"host": request.host_bandwidth, "disk": request.disk_bandwidth}
    with_time = [tier for tier in answer.tiers if tier.bandwidth]
    assumed = [tier for tier in with_time if given[tier.name] is None]
    if assumed:
        speeds = (
            f"--{tier.name}-bandwidth {short(tier.bandwidth or 0, BYTES_PER_SECOND)} "
            f"{_SHARED[tier.name]}"
            for tier in assumed
        )
        yield f"{' and '.join(speeds)} {'are' if len(assumed) > 1 else 'is'} assumed."
    if not answer.tiers:
        return
    yield (
        "Loading and prefilling are lower bounds: the bytes of the cache at the bandwidth, and "
        "the FLOPs of the prompt "
        "at the GPU's peak. A real prefill is slower, so loading may be worth it for fewer tokens."
    )
    if any(tier.name == "disk" for tier in answer.tiers):
        yield f"The command has no cache on disk: {answer.resolved.engine.disk_tip}."
