"""The figures and tables of what fits: the budget of one GPU, the engine's count, and how far it goes."""

from __future__ import annotations

from ..engines import engine_defaults
from ..engines.base import Detail
from ..model import plural
from ..quantity import Quantity, Ratio
from ..serving.fit import Fit
from ..serving.suggestions import Suggestion
from ..units import BYTES, NO_UNIT, TOKENS, count, human
from .report import LABEL, Column, Figure, Table, times

GIVEN = "as given"
ASSUMED = "an assumption: --reserve replaces it"


def fit_figures(found: Fit, fewest: Quantity | None, of: str = "") -> tuple[Figure, ...]:
    """The figures by the names that scripts rely on; those that there are not have no number."""
    budget, pool, source = found.budget, found.pool, found.layout.source
    details = {detail.name: detail for detail in pool.details}
    facts = budget.share.option.removeprefix("--") if budget.share else ""
    held = budget.weights
    batch, context = plural(found.request.batch, "sequence"), count(found.request.context)
    rows: list[tuple[str, str, Quantity | Ratio | None, str, str]] = [
        ("gpu_memory", "one GPU", budget.memory, BYTES, _memory_source(found)),
        ("usable_memory", f"what the engine takes, {facts}" if facts else "usable", budget.usable, BYTES, GIVEN),
        ("weights", f"weights in {held.dtype}" if held else "weights", held and held.total, BYTES, "its parameters"),
        ("reserve", reserve_label(found), budget.reserve and budget.reserve.total, BYTES, _reserve_source(found)),
        ("kv_memory", "KV memory", budget.kv_memory, BYTES, "what is left" if budget.memory else GIVEN),
        ("kv_bytes_per_sequence", f"one sequence of {context} tokens needs", _one_sequence(found), BYTES, source),
        ("kv_needed", f"{batch} of {context} tokens", found.needed, BYTES, source),
        ("kv_bytes_per_block", "one block", _detail(details, "kv_bytes_per_block"), BYTES, source),
        ("kv_blocks", "blocks", pool.blocks, NO_UNIT, source),
        ("kv_tokens", "tokens", pool.tokens, TOKENS, source),
        ("concurrency", "at once", pool.concurrency, NO_UNIT, source),
        ("max_context", f"longest context for {batch}", found.max_context, TOKENS, source),
        ("max_batch", f"most sequences of {context} tokens", found.max_batch, NO_UNIT, source),
        ("min_gpus", "fewest GPUs of this kind", fewest, NO_UNIT, source),
    ]
    return tuple(Figure(name, label, value, unit, where, of) for name, label, value, unit, where in rows)


def detail_figures(found: Fit, main: tuple[Figure, ...], of: str = "") -> tuple[Figure, ...]:
    """The engine's figures on the way, but for those that stand among the main ones."""
    known = {figure.name for figure in main}
    return tuple(
        Figure(d.name, d.label, d.quantity, d.unit, found.layout.source, of)
        for d in found.pool.details
        if d.name not in known
    )


def part_figures(found: Fit) -> tuple[Figure, ...]:
    """What the budget's formulas name, for an explanation."""
    budget = found.budget
    weights = budget.weights.parts if budget.weights else ()
    reserve = budget.reserve.parts if budget.reserve else ()
    return (
        *(Figure(name, label, part, BYTES if "bytes" in name else NO_UNIT, GIVEN) for name, label, part in weights),
        *(Figure(name, label, part, BYTES, ASSUMED) for name, label, part in reserve),
    )


def _memory_source(found: Fit) -> str:
    gpu = found.request.gpu
    return "; ".join(gpu.sources) if gpu else GIVEN


def _reserve_source(found: Fit) -> str:
    return ASSUMED if found.request.reserve is None else GIVEN


def _detail(details: dict[str, Detail], name: str) -> Quantity | Ratio | None:
    return details[name].quantity if name in details else None


def _one_sequence(found: Fit) -> Quantity | Ratio:
    """As the engine's own detail where it has one, else what one sequence needs."""
    details = {detail.name: detail.quantity for detail in found.pool.details}
    one = Quantity(int(found.layout.needed(1, found.request.context)))
    return details.get("kv_bytes_per_sequence", one if found.request.batch > 1 else found.needed)


def reserve_label(found: Fit) -> str:
    """'reserve, assumed'."""
    return "reserve" + (", assumed" if found.request.reserve is None and found.budget.reserve else "")


def budget_table(found: Fit, figures: tuple[Figure, ...]) -> Table:
    """One GPU down to the memory for the cache."""
    by_name, budget = {figure.name: figure for figure in figures}, found.budget
    rows = []
    if budget.share and found.request.gpu:
        option = budget.share.option.removeprefix("--")
        rows = [(f"one {found.request.gpu.title}", "gpu_memory")]
        if budget.share.numerator != budget.share.denominator:
            rows.append((f"x {budget.share.text} {option}", "usable_memory"))
        own = budget.layers is not None and found.request.gpus > 1
        of = f", {count(budget.layers or 0)} of {plural(found.request.model.main.n_layers, 'layer')}" if own else ""
        rows.append((f"- {by_name['weights'].label}{of}", "weights"))
        if by_name["reserve"].whole:
            rows.append((f"- {by_name['reserve'].label}", "reserve"))
    equal = "= " if rows else ""
    several = " of one device" if found.request.devices > 1 and not rows else ""
    rows.append((f"{equal}KV memory{several}", "kv_memory"))
    return Table(
        (LABEL, Column(), Column()),
        tuple((label, by_name[name].human, by_name[name].exact) for label, name in rows),
        strong=frozenset({len(rows) - 1}),
    )


def aligned(*tables: Table) -> tuple[Table, ...]:
    """Tables of a label and two numbers, one under the other as if they were one."""
    widths = [max(len(row[i]) for table in tables for row in table.rows) for i in range(3)]
    return tuple(
        table._replace(
            rows=tuple((a.ljust(widths[0]), b.rjust(widths[1]), c.rjust(widths[2])) for a, b, c in table.rows)
        )
        for table in tables
    )


def pool_table(found: Fit, figures: tuple[Figure, ...], details: tuple[Figure, ...]) -> Table:
    """What the engine makes of that memory, in its own units."""
    by_name = {figure.name: figure for figure in figures}
    names = [detail.name for detail in found.pool.details]
    shown = {figure.name: figure for figure in (*figures, *details)}
    rows = []
    for name in dict.fromkeys([*names, "kv_bytes_per_sequence", "kv_blocks", "kv_tokens"]):
        figure = shown[name]
        if figure.quantity is not None:
            label = next((d.label for d in found.pool.details if d.name == name), figure.label)
            rows.append((label, figure.human, figure.exact if figure.unit == BYTES else ""))
    at_once = by_name["concurrency"].quantity
    rows.append(("at once", times(at_once, 2) if isinstance(at_once, Ratio) else "-", ""))
    return Table((LABEL, Column(), Column()), tuple(rows))


def verdict(found: Fit) -> str:
    """'FITS: ...' or 'DOES NOT FIT: ...', in one line."""
    request, budget = found.request, found.budget
    what = f"{plural(request.batch, 'sequence')} of {count(request.context)} tokens"
    if found.fits:
        most = "no limit" if found.max_batch is None else f"{count(found.max_batch)} at once at most"
        return f"FITS: {what}; {most}."
    most_at_once = found.layout.max_sequences
    if most_at_once is not None and request.batch > most_at_once:
        return f"DOES NOT FIT: {what}; {engine_defaults(request.engine).title} runs {count(most_at_once)} at most."
    if budget.short:
        return f"DOES NOT FIT: weights and reserve take {human(budget.short, BYTES)} more than there is."
    need, have = human(found.needed, BYTES), human(budget.kv_memory, BYTES)
    return f"DOES NOT FIT: {what} need{'s'[: request.batch == 1]} {need} of {have}."


def verdict_tables(found: Fit, figures: tuple[Figure, ...]) -> tuple[Table, ...]:
    """The verdict, and how far it goes."""
    by_name, own = {figure.name: figure for figure in figures}, found.request.model.max_context
    rows = [
        (by_name["max_context"].label, limit(by_name["max_context"]), f"the model's own: {count(own)}" if own else ""),
        (by_name["max_batch"].label, limit(by_name["max_batch"]), ""),
    ]
    if found.request.gpu:
        rows.append((by_name["min_gpus"].label, by_name["min_gpus"].human, _split(found, by_name["min_gpus"].quantity)))
    said = Table((LABEL,), ((verdict(found),),), strong=frozenset({0}))
    return said, Table((LABEL, Column(), LABEL), tuple(rows))


def _split(found: Fit, fewest: Quantity | Ratio | None) -> str:
    """How the model is over the fewest GPUs: stages stay as many as were requested for."""
    if found.request.spread:
        return ""
    if fewest is None:
        return "no --tp is enough"
    pp = found.request.args.pp
    return f"--tp {int(float(fewest)) // pp}" + (f" --pp {pp}" if pp > 1 else "")


def limit(figure: Figure) -> str:
    """The figure, or that there is no limit."""
    return "no limit" if figure.quantity is None else figure.human


def suggestions_table(found: Fit, changes: tuple[Suggestion, ...]) -> tuple[Table, ...]:
    """What to type for it to fit, a change a row; or that nothing does."""
    if found.fits:
        return ()
    if not changes:
        return (Table((LABEL,), (("Nothing makes it fit: GPUs, dtypes, context and batch were tried.",),)),)
    columns = (Column("what would fit", "left"), LABEL, Column("at once"))
    rows = ((fix.flag, fix.change, times(fix.fit.pool.concurrency, 2)) for fix in changes)
    return (Table(columns, tuple(rows)),)
