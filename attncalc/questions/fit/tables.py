"""The tables of `attncalc fit`: what fits, what would make it fit, and those that --full adds."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ...model import plural
from ...quantity import Ratio
from ...serving.answer import Answer
from ...serving.fit import (
    FitResult,
    on_fewest_gpus,
    possible_verdict,
    sure_sequences,
    with_other_gpus,
)
from ...serving.launch import launch_command
from ...serving.request import ResolvedRequest
from ...serving.suggestions import Suggestion, tried_in_words
from ...serving.users import users
from ...show.lists import option_lines
from ...show.report import LABEL, Column, Figure, Table, times
from ...show.request import command_table
from ...show.users import copy_name, described, in_short, shared
from ...units import BYTES, GIB, column, count, human, typed_bytes
from .figures import text_length

# The figures of one engine, by name.
Figures = Mapping[str, Figure]
# Bytes from which a part of the weights has a line of its own on the screen; JSON has all of them.
_SHOWN_FROM = GIB // 200
# Columns of the options in the table of changes.
_WIDEST_CHANGE = 62


def lines_table(texts: Iterable[str]) -> Table:
    """Return sentences as a table of one column."""
    return Table((LABEL,), tuple((text,) for text in texts))


def limit(figure: Figure) -> str:
    if figure.quantity is None:
        return "no limit"
    return figure.human


def precise_range(low: int, high: int) -> str:
    """Return a range of bytes in GiB: '4.10 to 4.60 GiB', or '' if both are equal."""
    if low != high:
        return f"{low / GIB:.2f} to {high / GIB:.2f} GiB"
    return ""


# What fits


def capacity_table(answer: Answer, figures: Figures) -> Table:
    """Return what fits: requests of this context, the longest context, and tokens; also in all
    replicas together.

    Each with the least and with the most memory for the cache; in replicas with the least, as in
    the changes. At a desk the longest context says all.
    """
    if not answer.resolved.has_cache:
        return step_table(answer, figures)
    if answer.resolved.is_alone and not answer.resolved.request.traffic:
        return Table((LABEL, Column(), LABEL), (_longest_context(answer, figures),))
    resolved = answer.resolved
    traffic = answer.resolved.request.traffic
    low, high = answer.limits
    rows: list[tuple[str, int | None, int | None]] = [
        (
            f"concurrent requests of {count(resolved.workload.context)} tokens",
            low.max_batch,
            high.max_batch,
        ),
        ("tokens in the cache", low.kv_tokens, high.kv_tokens),
    ]
    fewest = users(resolved)
    most = users(resolved, "high")
    if traffic and fewest and most:
        rows.append((f"users on average, {described(traffic)}", fewest.average, most.average))
        rows.append(("users at worst", fewest.worst, most.worst))
        if fewest.shares_prefix:
            request = dataclasses.replace(
                resolved.request, traffic=traffic._replace(shared_prefix=0)
            )
            ends = (users(resolved._replace(request=request), end) for end in ("low", "high"))
            low_average, high_average = (found and found.average for found in ends)
            rows.append(("users on average without a shared prefix", low_average, high_average))
    if resolved.replicas > 1:
        copy = copy_name(resolved)
        longest = _longest_context(answer, figures)
        header = LABEL._replace(header="at least")
        columns = (header, Column(f"per {copy}"), Column(f"all {plural(resolved.replicas, copy)}"))
        in_all = [
            (label, span(least, least), span(least, least, resolved.replicas))
            for label, least, _ in rows
        ]
        return Table(columns, (*in_all, (*longest[:2], "")))
    cells = [(label, span(least, largest), "") for label, least, largest in rows]
    cells[1] = (*cells[1][:2], _about_tokens(answer, figures))
    if traffic:
        cells[2] = (*cells[2][:2], shared(traffic))
    if low.kv_tokens is None:  # the caches that grow are in host memory
        del cells[1]
    rows_below = (_longest_context(answer, figures), *_fewest_gpus(answer, figures))
    return Table((LABEL, Column(), LABEL), (*cells, *rows_below))


def step_table(answer: Answer, figures: Figures) -> Table:
    """Return what one step of a model without a cache computes: tokens, texts of the usual length,
    and texts of the context if that is another.
    """
    resolved = answer.resolved
    low, high = answer.limits
    each = f" on each of {plural(resolved.replicas, 'replica')}" if resolved.replicas > 1 else ""
    names = ("tokens_per_step", "texts_per_step")
    rows = [(figures[name].label, figures[name].human, each.strip()) for name in names]
    context = int(resolved.workload.context)
    if context != text_length(answer.result):
        label = f"texts of {count(context)} tokens in one step, at most"
        rows.append((label, span(low.max_batch, high.max_batch), ""))
    return Table((LABEL, Column(), LABEL), tuple(rows))


def _about_tokens(answer: Answer, figures: Figures) -> str:
    """Return what --dcp gains in tokens, or what each request takes whatever its length: '+ 99.38
    MiB each'.

    So vLLM, whose tokens are concurrency times length, has fewer of them for a shorter length, and
    fewer than the longest context: several requests have several windows, and one long request has
    one.
    """
    if answer.without_dcp:
        before = figures["kv_tokens_without_dcp"].whole
        if before:
            return f"{figures['kv_tokens'].whole / before:.2f} x by --dcp"
        return ""
    pool = answer.result.pool
    grows = pool.figure("kv_blocks_of_pools")
    request = pool.figure("kv_blocks_per_request")
    if grows:
        return f"{1 - grows / request:.0%} of a request is fixed"
    longest = figures["max_context"]
    fixed = pool.figure("kv_fixed_bytes_per_sequence")
    more = fixed and longest.quantity and longest.whole > figures["kv_tokens"].whole
    if more:
        return f"+ {human(int(fixed), BYTES)} each"
    return ""


def limits_table(answer: Answer, figures: Figures) -> Table:
    """Return the longest context, the largest batch and the fewest GPUs."""
    batch = figures["max_batch"]
    rows = (
        _longest_context(answer, figures),
        (batch.label, limit(batch), ""),
        *_fewest_gpus(answer, figures),
    )
    return Table((LABEL, Column(), LABEL), rows)


def span(low: int | None, high: int | None, replicas: int = 1) -> str:
    """Return a range, one number, or 'no limit'; in all replicas."""
    if low is None or high is None:
        return "no limit"
    return " to ".join(dict.fromkeys((count(low * replicas), count(high * replicas))))


def _longest_context(answer: Answer, figures: Figures) -> tuple[str, str, str]:
    maximum = answer.resolved.request.model.max_context
    low, high = answer.limits
    label = figures["max_context"].label
    if maximum and low.max_context == maximum:
        return label, count(maximum), "the model's own"
    longest = span(low.max_context, high.max_context)
    return label, longest, f"of its {count(maximum)}" if maximum else ""


def _fewest_gpus(answer: Answer, figures: Figures) -> Iterator[tuple[str, str, str]]:
    """Yield the fewest GPUs, with the options that split the model over them: '--tp 4 --pp 2'."""
    resolved = answer.resolved
    fewest = figures["min_gpus"]
    is_trivial = resolved.gpus == 1 == fewest.whole
    if (
        is_trivial
        or resolved.share is None
        or (resolved.gpu and (resolved.gpu.is_cpu or resolved.gpu.is_alone))
    ):
        return
    dp = resolved.dp
    request = on_fewest_gpus(resolved)
    split = "no --tp is enough"
    if request:
        others = {"pp": request.pp, "dp": request.dp, "attn-dp": request.attn_dp}
        several = [f"--{name} {size}" for name, size in others.items() if size > 1]
        split = " ".join([f"--tp {request.tp or 1}", *several])
    fewer = (
        one.gpus or 1 for one in with_other_gpus(resolved) if possible_verdict(one) == "may_not_fit"
    )
    split += "".join(
        f"; maybe {least}" for least in islice(fewer, 1) if least < (fewest.whole or 0)
    )
    if resolved.gpus > resolved.devices * dp:
        label = "fewest GPUs per replica"
    else:
        label = fewest.label
    yield label, fewest.human, "" if resolved.whole_layers else split


# What would make it fit


def best_of_each_cost(
    changes: Sequence[Suggestion], lines: Sequence[int], room: int
) -> tuple[Suggestion, ...]:
    """Return the changes that a screen has room for: the first of each cost, then the second of
    each, and so on.

    The first change is never left out. Of the second of each cost, those that take fewer lines come
    first. `lines` are how many each of them takes, and `room` how many there are for all.
    """
    costs = [change.cost for change in changes]

    def worth(i: int) -> tuple[int, int, int]:
        earlier = costs[:i].count(costs[i])
        return earlier, lines[i] if earlier else 0, i

    kept = [0]
    for i in sorted(range(1, len(changes)), key=worth):
        if sum(lines[j] for j in (*kept, i)) <= room:
            kept.append(i)
    return tuple(changes[i] for i in sorted(kept))


def change_rows(change: Suggestion) -> list[tuple[str, ...]]:
    """Return the rows of one change: the options to type, which may take several, and what they
    allow.
    """
    resolved = change.result.resolved
    sequences = sure_sequences(resolved)
    slots = resolved.request.engine_args.get("sequences")
    if slots:  # the command of the change has as many
        sequences = min(sequences, slots) if sequences else 0
    requests = [sequences or None]
    if users_then := users(resolved):
        requests += [users_then.average, users_then.worst]
    numbers = [span(number, number, resolved.replicas) for number in requests]
    options, *more = option_lines(change.flag, _WIDEST_CHANGE - 10 * (len(numbers) - 1))
    return [(options, *numbers), *((f"  {line}", *("" for _ in numbers)) for line in more)]


def _smaller_models(resolved: ResolvedRequest) -> Iterator[str]:
    """Yield the command that lists the models that fit on the GPUs."""
    if resolved.gpu:
        gpus = resolved.gpu.name
        if resolved.gpus > 1:
            gpus = f"{resolved.gpus}x{gpus}"
        command = f"attncalc fit --gpu {gpus}"
        if resolved.gpu.is_cpu:
            command += f" --ram {typed_bytes(resolved.gpu.memory)}"
        yield f"Models that fit: {command}"


def changes_tables(answer: Answer, changes: Sequence[Suggestion]) -> Iterator[Table]:
    """Yield the changes that make it fit, and the command with the first one that has a command.

    If none does, it is said what was tried, unless the engine does not start whatever the memory.
    """
    if not changes and answer.result.refusal:
        return  # a note says what to do
    if not changes:
        yield lines_table(
            [
                f"No change makes it fit, alone or combined: {tried_in_words(answer.resolved)}.",
                *_smaller_models(answer.resolved),
            ]
        )
        return
    columns = [Column("change", "left"), Column("requests,\nat least")]
    traffic = answer.resolved.request.traffic
    if traffic:
        columns += [Column(f"users at\n{in_short(traffic)}"), Column("at\nworst")]
    yield Table(tuple(columns), tuple(row for change in changes for row in change_rows(change)))
    gpu = answer.resolved.gpu
    if gpu and gpu.runs_files and changes[0].result.resolved.gpus > 2 * answer.resolved.gpus:
        yield lines_table(_smaller_models(answer.resolved))
    for change in changes:
        command = launch_command(change.result.resolved)
        if command:
            yield from command_table(command, f"with {change.flag}:")
            return


# What --full adds


def cache_tables(answer: Answer, figures: Figures, details: Sequence[Figure]) -> tuple[Table, ...]:
    """Return the memory that is left for the cache, and the blocks and tokens that it holds, with
    equal columns.
    """
    tables = [_budget_table(answer.result, figures)]
    if answer.resolved.has_cache:
        tables.append(_pool_table(answer.result, figures, details))
    widths = [max(len(row[i]) for table in tables for row in table.rows) for i in range(3)]
    return tuple(
        table._replace(
            rows=tuple(
                (a.ljust(widths[0]), b.rjust(widths[1]), c.rjust(widths[2]))
                for a, b, c in table.rows
            )
        )
        for table in tables
    )


def _budget_table(result: FitResult, figures: Figures) -> Table:
    """Return the table that subtracts weights and runtime memory from one GPU's memory. The rest is
    for the cache.
    """
    budget = result.budget
    resolved = result.resolved
    rows = []

    def add(label: str, name: str) -> None:
        rows.append((label, figures[name].human, figures[name].exact))

    if budget.share and resolved.gpu:
        add(f"one {resolved.gpu.title}", "gpu_memory")
        if budget.share.numerator != budget.share.denominator:
            add(f"x {budget.share.text} {budget.share.option.removeprefix('--')}", "usable_memory")
        n_layers = ""
        if budget.layers is not None and resolved.gpus > 1:
            n_layers = (
                f", {count(budget.layers)} of {plural(result.request.model.main.n_layers, 'layer')}"
            )
        add(f"- {figures['weights'].label}{n_layers}", "weights")
        for part in budget.weights.extra if budget.weights else ():
            if abs(part.size) >= _SHOWN_FROM:
                add(f"    {part.label}", part.name)
        if figures["reserve"].whole:
            add(f"- {figures['reserve'].label}", "reserve")
    device_note = " of one device" if resolved.devices > 1 and not rows else ""
    if resolved.has_cache:
        add(f"{'= ' if rows else ''}KV memory{device_note}", "kv_memory")
    else:
        free = budget.kv_memory
        rows.append(("= free", human(free, BYTES), f"{count(int(free))} B"))
    reserve = budget.reserve
    if reserve and reserve.low != reserve.high:
        *others, (label, expected, _), (kv_label, kv_memory, _) = rows
        parts = [
            (
                f"    {part.label}",
                f"{part.expected / GIB:.2f} GiB",
                precise_range(part.low, part.high),
            )
            for part in reserve.runtime.parts
        ]
        runtime = (label, expected, precise_range(reserve.low, reserve.high))
        memory = precise_range(budget.kv_memory_low, budget.kv_memory_high) or human(
            budget.kv_memory_low, BYTES
        )
        rows = [*others, runtime, *parts, (kv_label, kv_memory, memory)]
    return Table((LABEL, Column(), Column()), tuple(rows), strong=frozenset({len(rows) - 1}))


def _pool_table(result: FitResult, figures: Figures, details: Sequence[Figure]) -> Table:
    """Return the table that divides the memory for the cache into the engine's blocks and
    tokens.
    """
    by_name = {**figures, **{figure.name: figure for figure in details}}
    labels = {detail.name: detail.label for detail in result.pool.details}
    rows = []
    for name in dict.fromkeys([*labels, "kv_bytes_per_sequence", "kv_blocks", "kv_tokens"]):
        figure = by_name[name]
        if figure.quantity is not None:
            label = labels.get(name, figure.label)
            is_whole = figure.unit == BYTES and not isinstance(figure.quantity, Ratio)
            rows.append((label, figure.human, figure.exact if is_whole else ""))
    rows.append((figures["concurrency"].label, times(result.pool.concurrency, 2), ""))
    return Table((LABEL, Column(), Column()), tuple(rows))


def devices_table(answer: Answer) -> tuple[Table, ...]:
    """Return one row per GPU of llama.cpp and one of the host, with the buffers of each; none for
    other engines.
    """
    if not answer.devices:
        return ()
    parts = ("model_buffer", "kv_buffer", "compute_buffer", "outside_buffers", "total")
    sizes = [getattr(row, part) for row in answer.devices for part in parts]
    unit, texts = column([size or 0 for size in sizes], BYTES)
    cells = ["" if size is None else text for size, text in zip(sizes, texts, strict=True)]
    columns = (
        Column("device", "left"),
        Column("layers"),
        *(
            Column(f"{name}\n{unit}")
            for name in ("model", "KV cache", "compute", "outside", "total")
        ),
    )
    rows = (
        (row.name, count(row.layers), *cells[5 * i : 5 * i + 5])
        for i, row in enumerate(answer.devices)
    )
    return (Table(columns, tuple(rows)),)


def log_table(result: FitResult) -> tuple[Table, ...]:
    """Return the lines that the engine will log."""
    if not result.log_lines:
        return ()
    engine = result.resolved.engine
    header = f"{engine.title} will log:"
    if result.ends_without_a_cache and result.fits:
        header = f"{engine.title} may not start, since one request may not fit. It then logs:"
    elif result.ends_without_a_cache:
        header = f"{engine.title} will not start, since not one request fits. It will log:"
    return (Table((LABEL._replace(header=header),), tuple((line,) for line in result.log_lines)),)
