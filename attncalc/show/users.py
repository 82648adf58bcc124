"""How many users' requests run concurrently, as a section of the report of `attncalc fit`."""

from collections.abc import Sequence
from typing import Any

from ..model import plural
from ..quantity import Quantity
from ..serving.answer import Answer
from ..serving.fit import FitResult
from ..serving.request import ResolvedRequest
from ..serving.traffic import Traffic
from ..serving.users import Users
from ..units import BYTES, NO_UNIT, TOKENS, count
from .figures import FigureRow, FigureRows, Given
from .report import Column, Figure, Section, Table

_NO_USERS = "without --prompt and --lengths, and without a limit"
_BLOCKS = "the engine's blocks"

FIGURES = FigureRows(
    **{
        f"concurrent_{name}": FigureRow(
            f"concurrent users {words}",
            NO_UNIT,
            f"concurrent users of one rank, {words}, with the least memory; a replica without "
            "data parallelism is one",
            _NO_USERS,
        )
        for name, words in (("average", "on average"), ("worst", "at worst"))
    }
)


def users_section(answers: Sequence[Answer]) -> Section:
    """Return the section for one request, answered for each engine that supports it."""
    answered = [(answer.resolved, answer.users) for answer in answers if answer.users]
    limits = [_limit_note(answer.result, answer.users) for answer in answers if answer.users]
    if not answered:
        return Section(user_figures(None))
    resolved, first = answered[0]
    return Section(
        user_figures(first),
        (
            Figure(
                "tokens_average",
                "tokens of a request on average",
                first.average_tokens,
                TOKENS,
                "the requests",
            ),
            Figure(
                "tokens_worst",
                "tokens of a request at worst",
                first.worst_tokens,
                TOKENS,
                "the requests",
            ),
            Figure(
                "kv_needed_average",
                "bytes that these need, on average",
                first.average_bytes,
                BYTES,
                _BLOCKS,
            ),
            Figure(
                "kv_needed_worst",
                "bytes that these need, at worst",
                first.worst_bytes,
                BYTES,
                _BLOCKS,
            ),
        ),
        (_table(answered),),
        tuple(
            dict.fromkeys(
                filter(None, (*limits, *(note for of in answered for note in _notes(*of))))
            )
        ),
        _facts(resolved, first),
    )


def user_figures(answer: Users | None, of: str = "") -> tuple[Figure, ...]:
    """Return the figures, whose names scripts rely on. A figure that does not apply has no
    number.
    """
    average = answer and Given(
        answer.average, source="prompt + output / 2 tokens, in the engine's blocks"
    )
    worst = answer and Given(answer.worst, source="prompt + output tokens, in the engine's blocks")
    return FIGURES.filled("", of, concurrent_average=average, concurrent_worst=worst)


def described(traffic: Traffic) -> str:
    """Return the requests: '4,096 + 1,024 tokens', or '3 lengths' if these were given."""
    if traffic.lengths:
        return f"{count(len(traffic.lengths))} lengths"
    return f"{count(traffic.prompt)} + {count(traffic.output)} tokens"


def in_short(traffic: Traffic) -> str:
    """Return the requests in a few characters: '4K+1K', '500+100', or '3 lengths'."""
    if traffic.lengths:
        return described(traffic)
    return "+".join(
        f"{tokens // 1024}K" if tokens and tokens % 1024 == 0 else str(tokens)
        for tokens in (traffic.prompt, traffic.output)
    )


def shared(traffic: Traffic) -> str:
    """Return the shared prefix in words, '2,048 shared'; '' without one."""
    if traffic.shared_prefix:
        return f"{count(traffic.shared_prefix)} shared"
    return ""


def _table(answers: Sequence[tuple[ResolvedRequest, Users]]) -> Table:
    first = answers[0][1]
    several = len(answers) > 1
    requests = ", ".join(filter(None, (described(first.traffic), shared(first.traffic))))
    columns = (Column(f"users' requests: {requests}", "left"), Column("average"), Column("worst"))
    rows = []
    if not several:
        rows = [("tokens of one request", count(first.average_tokens), count(first.worst_tokens))]
    for resolved, answer in answers:
        if several:
            label = f"concurrent with {resolved.engine.title}"
        else:
            label = "concurrent requests"
        rows.append((label, _number(answer.average), _number(answer.worst)))
        if resolved.replicas > 1 and not several:
            average, worst = (
                _times(number, resolved.replicas) for number in (answer.average, answer.worst)
            )
            copies = plural(resolved.replicas, copy_name(resolved))
            rows.append((f"in {copies}", _number(average), _number(worst)))
    return Table(columns, tuple(rows))


def _number(number: int | None) -> str:
    if number is None:
        return "no limit"
    return count(number)


def _times(number: Quantity | None, copies: int) -> int | None:
    if number is None:
        return None
    return int(number) * copies


def copy_name(resolved: ResolvedRequest) -> str:
    """Return what has a cache and requests of its own: a data-parallel rank, or a replica."""
    if resolved.dp > 1 or resolved.ranks > 1:
        return "rank"
    return "replica"


def _facts(resolved: ResolvedRequest, answer: Users) -> dict[str, Any]:
    traffic = answer.traffic
    return {
        "prompt": None if traffic.lengths else traffic.prompt,
        "output": None if traffic.lengths else traffic.output,
        "shared_prefix": traffic.shared_prefix,
        "lengths": list(traffic.lengths),
        "tokens_average": int(answer.average_tokens),
        "tokens_worst": int(answer.worst_tokens),
        "shares_prefix": answer.shares_prefix,
        "users_per_replica": _times(answer.average, resolved.ranks),
        "users_per_replica_worst": _times(answer.worst, resolved.ranks),
        "concurrent_average_all_replicas": _times(answer.average, resolved.replicas),
        "concurrent_worst_all_replicas": _times(answer.worst, resolved.replicas),
    }


def _limit_note(result: FitResult, answer: Users) -> str:
    """Return that the engine runs no more requests than that, although the memory may hold more; ''
    if it does.
    """
    limit = result.layout.max_num_seqs
    option = result.resolved.engine.running_option
    if limit is None or answer.average != limit or result.verdict != "fits":
        return ""
    users = "the users" if answer.worst == limit else "the users on average"
    return f"{option} {count(limit)} limits {users}, not the memory."


def _notes(resolved: ResolvedRequest, answer: Users) -> list[str]:
    title = resolved.engine.title
    notes = []
    if answer.reserves_context:
        notes.append(
            f"{title} reserves the whole context for each request, so average and worst are equal: "
            f"--context {int(answer.traffic.worst_tokens)} is enough for these."
        )
    if answer.traffic.shared_prefix and not answer.shares_prefix:
        notes.append(unshared(resolved))
    return notes


def unshared(resolved: ResolvedRequest) -> str:
    """Return that each request has a shared prefix of its own."""
    title = resolved.engine.title
    if resolved.request.engine_args.get("prefix_caching") is False:
        return f"Prefix caching is off: {title} stores the shared prefix once per request."
    return f"{title} stores the shared prefix once per request: its prefix caching is not on here."
