"""The report of `attncalc fit` for one engine: its figures, tables and notes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from ..cost.common import cache_dtype
from ..model import plural
from ..plot.chart import Chart, Picture
from ..serving.fit import FitRequest, FitResult, Verdict, fit, min_gpus
from ..serving.launch import launch_command
from ..serving.memory_budget import MemoryBudget
from ..serving.request import ResolvedRequest
from ..serving.roofline import Roofline
from ..serving.suggestions import Suggestion, suggestions
from ..serving.users import users
from ..units import BYTES, GIB, count, human
from .bar import Bar
from .charts.memory import memory_chart
from .charts.picture import picture
from .charts.roofline import batch_fact, roofline_chart
from .devices import devices_facts, devices_table, host_notes, is_divided
from .fit_figures import detail_figures, fit_figures, term_figures, totals
from .fit_parallel import latent_notes, parallel_notes
from .notes import WARNING, context_notes, device_notes, is_decisive, model_notes
from .report import LABEL, Column, Figure, Report, Table, heading, times, workload_facts
from .roofline import RooflineSection, roofline_section
from .text import WIDTH, render, wrapped
from .users import described, in_short, shared, user_figures, users_section

SHOWN_FROM = GIB // 200
"""Bytes from which a part of the weights has a line of its own on the screen; JSON has all of them."""
_WIDEST_CHANGE = 62
"""Columns of the options in the table of changes."""
ROWS = 23
"""Rows of the default screen: those of a terminal of 24, less one for the prompt."""
VERDICTS: dict[Verdict, str] = {"fits": "FITS", "may_not_fit": "MAY NOT FIT", "does_not_fit": "DOES NOT FIT"}


def fit_report(
    request: FitRequest, *, full: bool = False, roofline: bool = False, with_variants: bool = True
) -> Report:
    """Return what fits with one engine. Raises AttncalcError as `fit` does.

    Args:
        request: The request.
        full: Whether the screen also has blocks, limits, all notes and the lines that the engine logs.
        roofline: Whether the screen has the lower bounds of time. Other formats always have all figures and notes.
        with_variants: Whether JSON and --roofline have the lower bounds of attention variants.
    """
    result = fit(request)
    resolved = result.resolved
    changes = suggestions(result)
    figures = fit_figures(result, min_gpus(resolved))
    details = detail_figures(result, figures)
    bounds = roofline_section(resolved, with_variants=with_variants)
    per_user = users_section([resolved])
    notes = tuple(dict.fromkeys((*fit_notes(result), *per_user.notes)))
    tables = [*answer_tables(result, (*figures, *per_user.figures), changes)]
    if full or is_divided(resolved):
        tables += devices_table(result)
    if full:
        tables.append(lines_table(model_heading(result)))
        tables += aligned(budget_table(result, figures), pool_table(result, figures, details))
        tables += [limits_table(result, figures)] * (result.verdict != "fits")
        tables += per_user.tables
    report = Report(
        "fit",
        _heading(result),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.workload, resolved.engine.name),
        (*figures, *per_user.figures, *bounds.figures),
        ((engine_facts(result), (*figures, *per_user.figures, *details)),),
        (*tables, *(bounds.tables if roofline else ())),
        tuple(dict.fromkeys((*notes, *bounds.notes))),
        (*term_figures(result), *per_user.terms, *bounds.terms),
        {**fit_facts(result, verdict(result), changes), "users": per_user.extra, "roofline": bounds.extra},
        footer=log_table(result) if full else (),
        verdict=result.verdict,
        bar=memory_bar(result.budget, result.resolved.gpus),
        shown_notes=shown_notes(notes, bounds, full=full, roofline=roofline),
        picture=fit_picture(result, bounds.bounds),
    )
    return report if full or roofline else _in_rows(report, result, changes, notes, bounds)


def _in_rows(
    report: Report, result: FitResult, changes: tuple[Suggestion, ...], notes: tuple[str, ...], bounds: RooflineSection
) -> Report:
    """Return the report without the changes that make it longer than the screen; --full and JSON have all.

    The change with most options goes first. The first change stays, since its command is shown.
    """
    shown = list(changes)
    while len(shown) > 1 and len(render(report).splitlines()) > ROWS:
        shown.remove(max(reversed(shown[1:]), key=lambda change: len(change.flag)))
        left_out = plural(len(changes) - len(shown), "change")
        more = ("the budget", "blocks", "log lines", left_out)
        report = report._replace(
            tables=tuple(answer_tables(result, report.figures, tuple(shown))),
            shown_notes=shown_notes(notes, bounds, full=False, roofline=False, more=more),
        )
    return report


# The heading, the bar, and JSON's facts


def _heading(result: FitResult) -> tuple[str, ...]:
    """Return the verdict, then the model and where it runs."""
    resolved = result.resolved
    version = f" {result.layout.version}" if f"version {result.layout.version}" in result.layout.facts else ""
    split, experts, *_, cache = request_facts(resolved)
    split = ", ".join(filter(None, (split, experts)))
    copies = resolved.replicas // (resolved.dp * resolved.args.attn_dp)  # the split has the data-parallel ranks
    replicas = f"{count(copies)} replicas" if copies > 1 else ""
    where = f"{result.request.model.title} on {hardware(resolved)}"
    facts = (where, replicas, split, f"{resolved.engine.title}{version}", cache)
    assumed = f"ASSUMED: {resolved.model.assumed}" if resolved.model.assumed else ""
    lines = (verdict(result), ", ".join(fact for fact in facts if fact), assumed)
    return tuple(line for line in lines if line)


def fit_picture(result: FitResult, bounds: Roofline | None) -> Picture | None:
    """Return the memory of a GPU as a bar, and its roofline; None without a GPU."""
    bar, resolved = memory_bar(result.budget, result.resolved.gpus), result.resolved
    charts: list[Chart] = [*([memory_chart(bar)] if bar else []), *([roofline_chart(bounds)] if bounds else [])]
    *facts, cache = request_facts(resolved)
    weights = result.budget.weights
    return picture(
        f"{result.request.model.title} on {hardware(resolved)}",
        verdict(result),
        [", ".join(filter(None, facts)), batch_fact(bounds) if bounds else ""],
        charts,
        [chart.name for chart in charts],
        engine=f"{resolved.engine.title} {result.layout.version or ''}".strip(),
        dtypes=f"weights in {weights.dtype if weights else resolved.args.dtype.name}, {cache}",
    )


def model_heading(result: FitResult) -> tuple[str, ...]:
    """Return the model and its attention, then the engine, the request, and the engine's own settings."""
    resolved = result.resolved
    engine = f"{resolved.engine.title} on {hardware(resolved)}"
    lines = heading(result.request.model, engine, *request_facts(resolved))
    return (*lines, ", ".join(result.layout.facts)) if result.layout.facts else lines


def memory_bar(budget: MemoryBudget, gpus: int = 1) -> Bar | None:
    """Return how weights, runtime memory and cache share one GPU's memory; None without a GPU."""
    if budget.share is None or budget.weights is None or budget.reserve is None:
        return None
    return Bar(
        memory=int(budget.memory or 0),
        usable=int(budget.usable or 0),
        share=budget.share.text,
        weights=int(budget.weights.total),
        runtime=(budget.reserve.low, budget.reserve.high),
        cache=(budget.kv_memory_low, budget.kv_memory_high),
        gpus=gpus,
    )


def hardware(resolved: ResolvedRequest) -> str:
    """Return the devices in words: '4 x NVIDIA H100 80GB SXM', or 'one device' without a GPU."""
    gpu, gpus = resolved.gpu, resolved.gpus
    if gpu is None:
        return f"{resolved.devices} devices" if resolved.devices > 1 else "one device"
    return f"{count(gpus)} x {gpu.title}" if gpus > 1 else f"one {gpu.title}"


def request_facts(resolved: ResolvedRequest) -> tuple[str, ...]:
    """Return how the model is split, the workload and the dtype of the cache, for a heading."""
    args, workload = resolved.args, resolved.workload
    parallel = {"tp": args.tp, "pp": args.pp, "dcp": args.dcp, "dp": resolved.dp, "attn-dp": args.attn_dp}
    stored = cache_dtype(resolved.request.model, workload)
    cache = f"cache in {stored.name}" + ("" if stored.group is None else f" ({stored.note})")
    if any(resolved.request.engine_args.get(name) for name in ("kv_dtype_k", "kv_dtype_v")):
        k, v = resolved.engine.cache_dtypes(args)
        cache = f"K in {k.name}, V in {v.name}"
    return (
        ", ".join(f"{name} {devices}" for name, devices in parallel.items() if devices > 1),
        f"ep {resolved.expert_devices}" if resolved.request.enable_expert_parallel else "",
        f"context {count(workload.context)}",
        f"source {count(workload.source)}" if workload.source else "",
        f"batch {count(workload.batch)}",
        cache,
    )


def engine_facts(result: FitResult) -> dict[str, Any]:
    """Return the keys of an engine in JSON, besides its figures."""
    return {
        "name": result.resolved.engine.name,
        "engine_version": result.layout.version,
        "bound": result.layout.bound,
        "fits": result.fits,
        "verdict": result.verdict,
        "runtime": runtime_facts(result),
        "facts": list(result.layout.facts),
        "log_lines": list(result.log_lines),
        "launch_command": launch_command(result.resolved),
        "refused": None,
    }


def runtime_facts(result: FitResult) -> list[dict[str, Any]]:
    """Return the parts of the runtime memory for JSON, in bytes; none if the whole was given."""
    if result.budget.reserve is None:
        return []
    runtime = result.budget.reserve.runtime
    parts = [(part, True) for part in runtime.parts] + [(part, False) for part in runtime.outside]
    return [
        {
            "name": part.name,
            "label": part.label,
            "low": part.low,
            "expected": int(part.expected),
            "high": part.high,
            "source": part.source,
            "in_share": in_share,
        }
        for part, in_share in parts
    ]


def fit_facts(result: FitResult, summary: str, changes: tuple[Suggestion, ...]) -> dict[str, Any]:
    """Return the keys of JSON that only this command has; `summary` is the verdict as a sentence."""
    resolved = result.resolved
    return {
        "fits": result.fits,
        "verdict": result.verdict,
        "summary": summary,
        "runtime": runtime_facts(result),
        "suggestions": [
            {
                "change": suggestion.change,
                "flag": suggestion.flag,
                "concurrency": float(suggestion.result.pool.concurrency),
                "max_batch": None if suggestion.result.max_batch is None else int(suggestion.result.max_batch),
                "launch_command": launch_command(suggestion.result.resolved),
            }
            for suggestion in changes
        ],
        "engine": resolved.engine.name,
        "engine_version": result.layout.version,
        "bound": result.layout.bound,
        "log_lines": list(result.log_lines),
        "gpu": resolved.gpu.name if resolved.gpu else None,
        "gpus": resolved.gpus if resolved.gpu else resolved.devices,
        "tp": resolved.args.tp,
        "pp": resolved.args.pp,
        "dp": resolved.dp,
        "attn_dp": resolved.args.attn_dp,
        "expert_parallel": resolved.request.enable_expert_parallel,
        "agrees": None,
        "checks": [],
        "estimates": [],
        "refusal": None,
        "replicas": resolved.replicas,
        "launch_command": launch_command(resolved),
        "devices": devices_facts(result),
        "totals": totals(result),
    }


# Tables


def verdict(result: FitResult) -> str:
    """Return the verdict as a sentence: 'FITS: ...', 'MAY NOT FIT: ...' or 'DOES NOT FIT: ...'."""
    workload, budget, maximum = result.resolved.workload, result.budget, result.layout.max_sequences
    batch = f"{plural(workload.batch, 'request')} of {count(workload.context)} tokens"
    if result.refusal:
        return f"DOES NOT START: {result.refusal.reason}."
    answer = VERDICTS[result.verdict]
    if maximum is not None and workload.batch > maximum:
        return f"{answer}: {batch}; {result.resolved.engine.title} runs at most {count(maximum)}."
    if result.verdict == "does_not_fit" and not budget.kv_memory_high:
        short = human(-budget.room("high"), BYTES)
        return f"{answer}: weights and runtime memory need {short} more than is usable."
    needed = f"{batch} need{'s'[: workload.batch == 1]} {human(result.needed, BYTES)}"
    return f"{answer}: {needed}, {_free(result)} free."


def _free(result: FitResult) -> str:
    """Return the memory for the cache with its range: '4.1 to 4.6 are', and its unit if the need has another."""
    low, high = result.budget.kv_memory_low, result.budget.kv_memory_high
    if human(low, BYTES) == human(high, BYTES):
        return f"{human(low, BYTES)} {'are' if low else 'is'}"
    unit = "" if human(result.needed, BYTES).endswith(" GiB") else " GiB"
    ends = dict.fromkeys((f"{low / GIB:.1f}", f"{high / GIB:.1f}"))
    return f"{' to '.join(ends)}{unit} are"


def memory_range(budget: MemoryBudget) -> str:
    """Return the memory for the cache with its range: '4.10 to 4.60 GiB', or one figure without a range."""
    low, high = budget.kv_memory_low, budget.kv_memory_high
    return human(low, BYTES) if low == high else gib_range(low, high)


def gib_range(low: int, high: int) -> str:
    """Return a range of bytes in GiB: '4.10 to 4.60 GiB', or '' if both are equal."""
    return f"{low / GIB:.2f} to {high / GIB:.2f} GiB" if low != high else ""


def lines_table(texts: Iterable[str], *, strong: bool = False) -> Table:
    """Return sentences as a table of one column, a sentence in one line or more if it is long."""
    lines = [line for text in texts for line in wrapped(text, "  ", WIDTH - 2)]
    return Table((LABEL,), tuple((line,) for line in lines), strong=frozenset(range(len(lines)) if strong else ()))


def answer_tables(result: FitResult, figures: tuple[Figure, ...], changes: tuple[Suggestion, ...]) -> Iterator[Table]:
    """Yield what fits, or the changes that make it fit; then the command that starts the engine so."""
    if result.verdict == "fits":
        yield capacity_table(result, figures)
        yield from command_table(launch_command(result.resolved))
        return
    yield changes_table(result, changes)
    for change in changes:
        command = launch_command(change.result.resolved)
        if command:
            yield from command_table(command, f"with {change.flag}:")
            return


def capacity_table(result: FitResult, figures: tuple[Figure, ...]) -> Table:
    """Return what fits: requests of this context, the longest context, and tokens; also in all replicas together."""
    by_name, resolved = {figure.name: figure for figure in figures}, result.resolved
    context, replicas, traffic = count(resolved.workload.context), resolved.replicas, resolved.request.traffic
    batch, tokens, fewest = (by_name[name] for name in ("max_batch", "kv_tokens", "min_gpus"))
    average, worst = by_name["concurrent_average"], by_name["concurrent_worst"]
    rows = [
        (f"concurrent requests of {context} tokens", limit(batch), _total(batch, replicas)),
        ("tokens in the cache", limit(tokens), _total(tokens, replicas)),
    ]
    if traffic:
        rows += [
            (f"average users, {described(traffic)}", limit(average), _total(average, replicas)),
            ("users at worst", limit(worst), _total(worst, replicas)),
        ]
    if replicas > 1:
        copy = _copy(resolved)
        columns = (LABEL, Column(f"per {copy}"), Column(f"all {plural(replicas, copy)}"))
        return Table(columns, (*rows, (by_name["max_context"].label, limit(by_name["max_context"]), "")))
    maximum = result.request.model.max_context
    own = f"the model's own: {count(maximum)}" if maximum else ""
    cells = [(label, cell, "") for label, cell, _ in rows]
    if traffic and traffic.shared_prefix:
        cells[-2] = (*cells[-2][:2], shared(traffic))
    cells.append((by_name["max_context"].label, limit(by_name["max_context"]), own))
    if resolved.share:
        cells.append((fewest.label, fewest.human, _fewest_split(resolved, fewest)))
    return Table((LABEL, Column(), LABEL), tuple(cells))


def _copy(resolved: ResolvedRequest) -> str:
    """Return what each copy of the model is called: a data-parallel rank, or a replica."""
    return "rank" if resolved.dp > 1 or resolved.ranks > 1 else "replica"


def _total(figure: Figure, replicas: int) -> str:
    """Return the figure of all replicas together, or 'no limit'."""
    return "no limit" if figure.quantity is None else count(figure.whole * replicas)


def changes_table(result: FitResult, changes: tuple[Suggestion, ...]) -> Table:
    """Return the changes that make it fit: the options to type, and the concurrent requests that they allow."""
    if not changes:
        return Table((LABEL,), (("No change of GPUs, dtypes, context or batch makes it fit.",),))
    replicas = any(change.result.resolved.replicas > 1 for change in changes)
    header = f"requests\nper {_copy(result.resolved)}" if replicas else "concurrent\nrequests"
    columns = [Column("change", "left"), Column(header)]
    if result.request.traffic:
        columns += [Column(f"users at\n{in_short(result.request.traffic)}"), Column("at\nworst")]
    rows = []
    for change in changes:
        numbers = [times(change.result.pool.concurrency, 2)]
        figures = user_figures(users(change.result.resolved)) if result.request.traffic else ()
        numbers += [limit(figure) for figure in figures]
        flags, *more = _option_lines(change.flag, _WIDEST_CHANGE - 10 * len(figures))
        rows.append((flags, *numbers))
        rows += [(f"  {line}", *("" for _ in numbers)) for line in more]
    return Table(tuple(columns), tuple(rows))


def _option_lines(command: str, width: int) -> list[str]:
    """Return a command in lines of at most `width` columns, unless a word is longer.

    An option stays beside its value, and a quoted word is not divided.
    """
    groups: list[str] = []
    for word in shlex.split(command):
        has_option = groups and groups[-1].startswith("-") and " " not in groups[-1]
        if has_option and not word.startswith("-"):
            groups[-1] += f" {shlex.quote(word)}"
        else:
            groups.append(shlex.quote(word))
    lines = [groups[0]]
    for group in groups[1:]:
        if len(lines[-1]) + 1 + len(group) > width:
            lines.append(group)
        else:
            lines[-1] += f" {group}"
    return lines


def command_table(command: str | None, header: str = "") -> tuple[Table, ...]:
    """Return a command as a table: its lines end with a backslash, so that they can be pasted. None without one."""
    if command is None:
        return ()
    first, *others = _option_lines(command, WIDTH - 8)
    lines = [first, *(f"    {line}" for line in others)]
    header = "\n".join(wrapped(header, "    ", WIDTH - 2))
    rows = tuple((f"{line} \\",) for line in lines[:-1])
    return (Table((LABEL._replace(header=header),), (*rows, (lines[-1],)), code=True),)


def budget_table(result: FitResult, figures: tuple[Figure, ...]) -> Table:
    """Return the table that subtracts weights and runtime memory from one GPU's memory. The rest is for the cache."""
    by_name, budget, resolved = {figure.name: figure for figure in figures}, result.budget, result.resolved
    rows = []
    if budget.share and resolved.gpu:
        option = budget.share.option.removeprefix("--")
        rows = [(f"one {resolved.gpu.title}", "gpu_memory")]
        if budget.share.numerator != budget.share.denominator:
            rows.append((f"x {budget.share.text} {option}", "usable_memory"))
        n_layers = ""
        if budget.layers is not None and resolved.gpus > 1:
            n_layers = f", {count(budget.layers)} of {plural(result.request.model.main.n_layers, 'layer')}"
        rows.append((f"- {by_name['weights'].label}{n_layers}", "weights"))
        extra = budget.weights.extra if budget.weights else ()
        rows += [(f"    {part.label}", part.name) for part in extra if part.size >= SHOWN_FROM]
        if by_name["reserve"].whole:
            rows.append((f"- {by_name['reserve'].label}", "reserve"))
    equal = "= " if rows else ""
    device_note = " of one device" if resolved.devices > 1 and not rows else ""
    rows.append((f"{equal}KV memory{device_note}", "kv_memory"))
    cells = [(label, by_name[name].human, by_name[name].exact) for label, name in rows]
    reserve = budget.reserve
    if reserve and reserve.low != reserve.high:
        at_reserve = next(i for i, (_, name) in enumerate(rows) if name == "reserve")
        cells[at_reserve] = (*cells[at_reserve][:2], gib_range(reserve.low, reserve.high))
        cells[-1] = (*cells[-1][:2], memory_range(budget))
        cells[at_reserve + 1 : at_reserve + 1] = [
            (f"    {part.label}", f"{part.expected / GIB:.2f} GiB", gib_range(part.low, part.high))
            for part in reserve.runtime.parts
        ]
    return Table((LABEL, Column(), Column()), tuple(cells), strong=frozenset({len(cells) - 1}))


def pool_table(result: FitResult, figures: tuple[Figure, ...], details: tuple[Figure, ...]) -> Table:
    """Return the table that divides the memory for the cache into the engine's blocks and tokens."""
    by_name = {figure.name: figure for figure in (*figures, *details)}
    labels = {detail.name: detail.label for detail in result.pool.details}
    rows = []
    for name in dict.fromkeys([*labels, "kv_bytes_per_sequence", "kv_blocks", "kv_tokens"]):
        figure = by_name[name]
        if figure.quantity is not None:
            label = labels.get(name, figure.label)
            rows.append((label, figure.human, figure.exact if figure.unit == BYTES else ""))
    rows.append((by_name["concurrency"].label, times(result.pool.concurrency, 2), ""))
    return Table((LABEL, Column(), Column()), tuple(rows))


def aligned(*tables: Table) -> tuple[Table, ...]:
    """Return tables of a label and two numbers with equal column widths."""
    widths = [max(len(row[i]) for table in tables for row in table.rows) for i in range(3)]
    return tuple(
        table._replace(
            rows=tuple((a.ljust(widths[0]), b.rjust(widths[1]), c.rjust(widths[2])) for a, b, c in table.rows)
        )
        for table in tables
    )


def limits_table(result: FitResult, figures: tuple[Figure, ...]) -> Table:
    """Return the longest context, the largest batch and the fewest GPUs."""
    by_name = {figure.name: figure for figure in figures}
    maximum = result.request.model.max_context
    rows = [
        (
            by_name["max_context"].label,
            limit(by_name["max_context"]),
            f"the model's own: {count(maximum)}" if maximum else "",
        ),
        (by_name["max_batch"].label, limit(by_name["max_batch"]), ""),
    ]
    if result.resolved.share:
        fewest = by_name["min_gpus"]
        rows.append((fewest.label, fewest.human, _fewest_split(result.resolved, fewest)))
    return Table((LABEL, Column(), LABEL), tuple(rows))


def _fewest_split(resolved: ResolvedRequest, fewest: Figure) -> str:
    """Return the options that split the model over the fewest GPUs: '--tp 4 --pp 2'."""
    if resolved.whole_layers:
        return ""
    if fewest.quantity is None:
        return "no --tp is enough"
    pp, dp, attn_dp = resolved.args.pp, resolved.dp, resolved.args.attn_dp
    split = f"--tp {fewest.whole // (pp * dp)}" + (f" --pp {pp}" if pp > 1 else "")
    return split + (f" --dp {dp}" if dp > 1 else "") + (f" --attn-dp {attn_dp}" if attn_dp > 1 else "")


def limit(figure: Figure) -> str:
    """Return the figure, or 'no limit'."""
    return "no limit" if figure.quantity is None else figure.human


def log_table(result: FitResult) -> tuple[Table, ...]:
    """Return the lines that the engine will log."""
    if not result.log_lines:
        return ()
    lines = [part for line in result.log_lines for part in wrapped(line, "    ", WIDTH - 2)]
    defaults = result.resolved.engine
    header = f"{defaults.title} will log:"
    if defaults.must_fit_one and result.max_batch == 0:
        header = f"{defaults.title} will not start, since not one request fits. It would log:"
    return (Table((LABEL._replace(header=header),), tuple((line,) for line in lines)),)


# Notes


def shown_notes(
    notes: tuple[str, ...],
    bounds: RooflineSection,
    *,
    full: bool,
    roofline: bool,
    more: tuple[str, ...] = ("the budget", "blocks", "log lines"),
) -> tuple[str, ...]:
    """Return the notes of the screen: by default the decisive ones, and a last line about --full and --roofline.

    Args:
        notes: All notes but those on the roofline.
        bounds: The roofline.
        full: Whether the screen has all notes.
        roofline: Whether the screen has the roofline.
        more: What --full adds besides notes.
    """
    decisive = [note for note in notes if full or is_decisive(note)]
    left_out = len(notes) - len(decisive)
    *parts, last = (*more, *([plural(left_out, "note")] if left_out else ())) or ("",)
    hints = [f"--full adds {', '.join(parts)}{' and ' if parts else ''}{last}"] if last and not full else []
    if not roofline and bounds.tables:
        hints.append("--roofline adds times")
    return (*decisive, *(bounds.notes if roofline else ()), *([f"{'; '.join(hints)}."] if hints else []))


def _warnings(result: FitResult) -> list[str]:
    """Return why the engine does not start, or that the verdict depends on an estimate."""
    if result.refusal:
        return [f"{WARNING}{result.resolved.engine.title} does not start. {result.refusal.tip}"]
    if result.verdict == "may_not_fit":
        return [f"{WARNING}the runtime memory is an estimate, and whether this fits depends on it."]
    return []


def fit_notes(result: FitResult) -> tuple[str, ...]:
    """Return the notes, the engine's own last."""
    resolved, budget = result.resolved, result.budget
    model, args, title = resolved.model, resolved.args, resolved.engine.title
    stated = f"{WARNING}{result.refusal.reason}." if result.refusal else ""  # the verdict, on the first line
    notes = [note for note in context_notes(model, resolved.workload) if note != stated]
    if resolved.divides_experts:
        notes += parallel_notes(result)
    elif resolved.replicas > 1:
        notes.append(
            f"{count(resolved.replicas)} replicas of {plural(resolved.devices, 'GPU')}: all figures and the batch are "
            "per replica."
        )
    if budget.weights:
        notes += budget.weights.notes
    notes += _warnings(result)
    if budget.reserve:
        notes += budget.reserve.runtime.notes
    if resolved.engine.whole_prompts and budget.reserve and budget.reserve.runtime.parts:
        notes.append(
            "A forward pass takes the whole batch, so a larger batch leaves less memory for the cache; "
            "'concurrent requests' is computed for the memory shown."
        )
    if result.request.workload.kv_dtype is None and args.kv_dtype.name != args.dtype.name:
        reason = f"{title}'s default for every model" if resolved.engine.cache_dtype else "as the checkpoint asks"
        notes.append(
            f"The cache is in {args.kv_dtype.name}, {reason}; --kv-dtype {args.dtype.name} is the model's own dtype."
        )
    notes += host_notes(resolved)
    if resolved.gpu and resolved.share and not resolved.gpu.measured:
        notes.append(
            f"{resolved.gpu.title}: no log shows how much memory software sees, so a conservative figure is used."
        )
    if result.layout.bound == "lower":
        notes.append("Bytes are a lower bound: the tokens themselves, without pages and fragmentation.")
    # An engine that gives each GPU whole layers replicates no KV heads.
    devices = [] if resolved.engine.splits_by_layer else device_notes(model)
    latent = latent_notes(result)
    return tuple(dict.fromkeys((*notes, *latent, *result.layout.notes, *devices, *model_notes(model))))
