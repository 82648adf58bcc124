"""The report of `attncalc fit` for one engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...model import plural
from ...serving.answer import Answer, bounds_of
from ...serving.devices import device_memory
from ...serving.fit import FitResult
from ...serving.launch import launch_command
from ...serving.memory_budget import MemoryBudget
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.suggestions import Suggestion, best_of_each_cost
from ...serving.users import users
from ...show.bar import Bar, gib, gib_range
from ...show.notes import WARNING, beyond, is_decisive
from ...show.report import Report, Section, Table, heading, workload_facts
from ...show.request import command_table, request_facts, share_of_replicas
from ...show.text import HEIGHT, height
from ...show.users import described, users_section
from ...show.verdicts import VERDICTS
from ...units import BYTES, count, human
from .facts import engine_facts, fit_facts
from .figures import answer_figures, detail_figures, term_figures
from .notes import fit_notes
from .tables import (
    Figures,
    cache_tables,
    capacity_table,
    change_rows,
    changes_tables,
    devices_table,
    limits_table,
    lines_table,
    log_table,
    span,
)
from .tiers import tiers_table

if TYPE_CHECKING:
    from ...show.plot.chart import Chart, Picture


def fit_report(
    request: FitRequest, *, full: bool = False, roofline: bool = False, with_bounds: bool = True
) -> Report:
    """Return what fits with one engine. Raises AttncalcError as `fit` does.

    `roofline` shows the lower bounds of time in place of what fits. `full` shows both, with blocks,
    limits, all notes and the lines that the engine logs. Other formats always have all figures and
    notes, but none of these bounds without `with_bounds`.
    """
    return answer_report(Answer.to(request), full=full, roofline=roofline, with_bounds=with_bounds)


def answer_report(
    answer: Answer,
    *,
    full: bool = False,
    roofline: bool = False,
    with_bounds: bool = True,
    with_variants: bool = True,
) -> Report:
    """Return the report of an answer, with options as in `fit_report`; the bounds may leave out
    other attention.
    """
    result = answer.result
    resolved = answer.resolved
    figures = answer_figures(answer)
    details = detail_figures(result, figures)
    bar = _memory_bar(result)
    bounds = _bounds(answer, with_variants) if with_bounds else Section(())
    per_user = users_section([answer])
    notes = tuple(dict.fromkeys((*fit_notes(answer), *per_user.notes)))
    in_verdict = [*beyond(resolved.model, resolved.workload)]
    on_screen = tuple(note for note in notes if note.removeprefix(WARNING) not in in_verdict)
    times = _times(answer, roofline)
    head, *facts = _heading(answer, with_speed=not times)
    report = Report(
        "fit",
        (*times, head, *facts) if result.fits else (head, *times, *facts),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.whole_workload, resolved.engine.name),
        (*figures.values(), *bounds.figures),
        ((engine_facts(result), (*figures.values(), *details)),),
        notes=tuple(dict.fromkeys((*notes, *bounds.notes))),
        terms=(*term_figures(result.budget), *per_user.terms, *bounds.terms),
        extra={
            **fit_facts(answer, verdict(answer)),
            "users": per_user.extra,
            "roofline": bounds.extra,
        },
        footer=log_table(result) if full else (),
        verdict="may_not_fit"
        if result.longest_request or (result.fits and _on_gpus(result))
        else result.verdict,
        bar=bar,
        draw=lambda: _picture(answer, bar),
    )
    of_roofline = bounds if roofline else None
    if not full:
        return _on_one_screen(report, answer, figures, on_screen, of_roofline)
    tables = [*_answer_tables(answer, figures, answer.changes), *devices_table(answer)]
    tables += [lines_table(model_heading(result)), *cache_tables(answer, figures, details)]
    tables += [limits_table(answer, figures)] if result.verdict != "fits" else []
    return report._replace(
        tables=(*(bounds.tables if roofline else ()), *tables, *per_user.tables),
        shown_notes=shown_notes(on_screen, answer, of_roofline, full=True),
    )


def _bounds(answer: Answer, with_variants: bool) -> Section:
    from .roofline import roofline_section  # 3 ms with what it imports

    return roofline_section(answer, with_variants=with_variants)


def _times(answer: Answer, roofline: bool) -> tuple[str, ...]:
    """Return the bounds of time in a sentence, if the screen has the roofline and the GPU has
    bounds.
    """
    from .roofline import bounds_text

    bounds, _ = answer.bounds if roofline else (None, "")
    most = answer.limits[0].max_batch or 0
    resolved = answer.resolved
    of_most = None
    if bounds and bounds.workload.batch == 1 < most and resolved.replicas == 1:
        of_most, _ = bounds_of(resolve(resolved.request.with_workload(batch=int(most))))
    if bounds is None:
        return ()
    text = bounds_text(bounds, of_most)
    return (
        f"If it fitted: {text[0].lower()}{text[1:]}"
        if answer.result.verdict == "does_not_fit"
        else text,
    )


def _answer_tables(
    answer: Answer, figures: Figures, changes: Sequence[Suggestion]
) -> tuple[Table, ...]:
    """Return what fits and the command that starts the engine so, or the changes that make it
    fit.
    """
    if answer.result.verdict != "fits":
        return tuple(changes_tables(answer, changes))
    capacity = (capacity_table(answer, figures), *tiers_table(answer))
    return (*capacity, *command_table(launch_command(answer.resolved)))


def _on_one_screen(
    report: Report, answer: Answer, figures: Figures, notes: tuple[str, ...], bounds: Section | None
) -> Report:
    """Return the report with the tables and the notes of the default screen, which has at most
    HEIGHT lines.

    If all changes take more, then only the best of each cost are shown, without the table of
    devices. With the bounds of time there is no table of what fits, which the verdict says.
    """
    changes = answer.changes
    times, *other_times = bounds.tables if bounds and bounds.tables else [None]
    is_placed = answer.resolved.engine.is_placed(answer.resolved.args)
    devices = devices_table(answer) if is_placed and times is None else ()
    fits = answer.result.verdict == "fits"
    in_full = ["budget", "blocks", "log lines"]
    if times and fits:
        in_full.insert(0, "what fits")
    if other_times:
        in_full.insert(0, "other attention")

    def with_changes(shown: Sequence[Suggestion], *more: Table) -> Report:
        if len(shown) < len(changes):
            left_out = [plural(len(changes) - len(shown), "change")]
        else:
            left_out = []
        tables = _answer_tables(answer, figures, shown)
        if times:
            tables = (times, *(table for table in tables if not (fits or table.code)))
        return report._replace(
            tables=(*tables, *more),
            shown_notes=shown_notes(notes, answer, bounds, more=(*in_full, *left_out)),
        )

    whole = with_changes(changes, *devices)
    if len(changes) < 2 or height(whole) <= HEIGHT:
        return whole
    lines = [len(change_rows(change)) for change in changes]
    room = HEIGHT - height(with_changes(changes[:1])) + lines[0]
    room = min(room, sum(lines) - 1)  # all changes would fit only without the table of devices
    shorter = with_changes(best_of_each_cost(changes, lines, room))
    if height(shorter) > HEIGHT:  # the notes take a line more
        shorter = with_changes(best_of_each_cost(changes, lines, room - 1))
    return shorter


def shown_notes(
    notes: tuple[str, ...],
    answer: Answer,
    bounds: Section | None = None,
    *,
    full: bool = False,
    more: tuple[str, ...] = ("budget", "blocks", "log lines"),
) -> tuple[str, ...]:
    """Return the notes of the screen: by default the decisive ones, and a last line about --full
    and --roofline.

    `bounds` is None if the screen has no roofline, of whose notes the first says what is assumed;
    `more` is what --full adds besides notes.
    """
    of_bounds = bounds.notes if bounds else ()
    decisive = [note for note in notes if full or is_decisive(note)] + [
        *of_bounds[: None if full else 1]
    ]
    left_out = len(notes) + len(of_bounds) - len(decisive)
    *parts, last = (*more, *([plural(left_out, "note")] if left_out else ())) or ("",)
    if last and not full:
        hints = [f"--full adds {', '.join(parts)}{' and ' if parts else ''}{last}"]
    else:
        hints = []
    if bounds is None and answer.has_bounds:
        hints.append("--roofline adds times")
    return (*decisive, *([f"{'; '.join(hints)}."] if hints else []))


# The heading, the bar and the picture


def _heading(answer: Answer, *, with_speed: bool = True) -> tuple[str, ...]:
    """Return the verdict, then the model and where it runs."""
    result = answer.result
    resolved = answer.resolved
    if f"version {result.layout.version}" in result.layout.facts:
        version = f" {result.layout.version}"
    else:
        version = ""
    split, experts, *_, weights, cache = request_facts(resolved)
    split = ", ".join(filter(None, (split, experts)))
    # the split has the data-parallel ranks
    copies = resolved.replicas // (resolved.dp * resolved.args.attn_dp)
    replicas = f"{count(copies)} replicas" if copies > 1 else ""
    facts = (place(resolved), replicas, split, f"{resolved.engine.title}{version}", weights, cache)
    assumed = [f"ASSUMED: {resolved.model.assumed}"] if resolved.model.assumed else []
    return (verdict(answer, with_speed=with_speed), ", ".join(filter(None, facts)), *assumed)


def model_heading(result: FitResult) -> tuple[str, ...]:
    """Return the model and its attention, then the engine, the request, and the engine's own
    settings.
    """
    resolved = result.resolved
    engine = f"{resolved.engine.title} on {hardware(resolved)}"
    lines = heading(result.request.model, engine, *request_facts(resolved))
    if result.layout.facts:
        return (*lines, ", ".join(result.layout.facts))
    return lines


def place(resolved: ResolvedRequest) -> str:
    """Return the model and its devices: 'Qwen3 8B on one NVIDIA L4'."""
    return f"{resolved.request.model.title} on {hardware(resolved)}"


def hardware(resolved: ResolvedRequest) -> str:
    """Return the devices in words: '4 x NVIDIA H100 80GB SXM', or 'one device' without a GPU."""
    gpu = resolved.gpu
    gpus = resolved.gpus
    if gpu and gpu.is_cpu:
        return gpu.title
    if gpu is None:
        if resolved.devices > 1:
            return f"{resolved.devices} devices"
        return "one device"
    if gpus > 1 and not gpu.vendor:
        return f"{count(gpus)} GPUs with {gpu.title.rpartition(' ')[2]} each"
    if gpus > 1:
        return f"{count(gpus)} x {gpu.title}"
    return f"one {gpu.title}"


def verdict(found: Answer, *, with_speed: bool = True) -> str:
    """Return the verdict, and whether the context is beyond the model's maximum."""
    sentence = _verdict(found, with_speed)
    longer = beyond(found.resolved.model, found.resolved.workload)
    return " ".join(
        [sentence, *(text[0].upper() + text[1:] for text in longer if text not in sentence)]
    )


def _needed_cache(result: FitResult) -> str:
    """Return the bytes of the cache on one GPU: '1.25 GiB on each GPU', or that there is none."""
    resolved = result.resolved
    if result.needed and (resolved.devices > 1 or share_of_replicas(resolved)):
        return f"{human(result.needed, BYTES)} on each GPU"
    if result.needed:
        return human(result.needed, BYTES)
    if _on_gpus(result) or resolved.engine.cache_on_host(resolved.args):
        return "no KV cache on the GPU"
    return "no KV cache"


def _verdict(found: Answer, with_speed: bool) -> str:
    """Return the verdict as a sentence: 'FITS: ...', 'MAY NOT FIT: ...', 'DOES NOT FIT: ...' or
    'STARTS with ...'.
    """
    result = found.result
    resolved = found.resolved
    workload = found.resolved.workload
    budget = result.budget
    maximum = result.layout.max_num_seqs
    requests = resolved.request.workload.batch
    batch = f"{plural(requests, 'request')} of {count(workload.context)} tokens"
    per_replica = share_of_replicas(resolved)
    held = "" if budget.kv_memory_high else _held(budget, 0)
    if result.refusal:
        nor = f" Nor does it fit: it needs {held} without any cache." if held else ""
        return f"DOES NOT START: {result.refusal.reason}.{nor}"
    answer = VERDICTS[result.verdict]
    longest = result.longest_request
    on_gpus = _on_gpus(result)
    if longest:
        starts = "STARTS" if budget.kv_memory_low else "MAY START"
        about = "about " if budget.kv_memory_low < budget.kv_memory_high else ""
        answer = f"{starts} with requests up to {about}{count(longest)} tokens"
    if maximum is not None and workload.batch > maximum and not held:
        each = f"{per_replica}; each" if per_replica else f"; {resolved.engine.title}"
        return f"{answer}: {batch}{each} runs at most {count(maximum)}."
    if not held and (beside := _beside_the_cache(result)):
        return f"{answer}: {beside}."
    used = _used(result)
    speed = _speed(found, on_gpus) if with_speed else ""
    start = f"{answer}:"
    if on_gpus and result.verdict == "fits":
        where = "ON THE CPU" if on_gpus.startswith("0 of ") else "PARTLY ON THE CPU"
        start = f"RUNS {where}: {on_gpus}{speed};"
        on_gpus = ""
        speed = ""
    if used:
        uses = "needs" if result.verdict == "does_not_fit" else "uses"
        tokens = f"{count(workload.context)} tokens of context"
        return (
            f"{start} {uses} {used} with "
            f"{', '.join(filter(None, (tokens, on_gpus)))}{speed}.{_more(found)}"
        )
    more = _more(found)
    if result.verdict == "does_not_fit" and held:
        each = " on each GPU" if resolved.devices > 1 else ""
        return f"{start} needs {held}{each} without any cache.{more}"
    needed = _needed_cache(result)
    free = f"{_free(budget)} free"
    if result.needed > budget.kv_memory_high and human(result.needed, BYTES) == human(
        budget.kv_memory_high, BYTES
    ):
        # 1.002 and 1.001 GiB
        free = f"{human(result.needed - budget.kv_memory_high, BYTES)} more than are free"
    each = f"{per_replica}," if per_replica else ""
    if start == "FITS:" and (room := _room(found)):
        start = f"FITS: {room}."
    return f"{start} {batch}{each} {'needs' if requests == 1 else 'need'} {needed}, {free}.{more}"


def _more(found: Answer) -> str:
    """Return how much of what does not fit does, in tokens or requests, and which GPUs are enough;
    '' if it may fit.
    """
    result = found.result
    batch = found.resolved.request.workload.batch
    if result.verdict != "does_not_fit":
        return ""
    if batch == 1 and result.budget.kv_memory_high:
        longest = int(found.limits[0].max_context or 0)
        if longest:
            return f" {count(longest)} tokens fit."
        return ""
    text = ""
    if batch > 1:
        text = _fitting_requests(found, batch)
    enough = next((change for change in found.changes if change.needs_hardware), None)
    if enough:
        text += f" {enough.result.resolved.gpus} GPUs are enough: {enough.flag}."
    return text


def _fitting_requests(found: Answer, batch: int) -> str:
    """Return how many of the requests fit, after a blank; '' if none does."""
    replicas = found.resolved.replicas
    least, most = (replicas * (each.max_batch or 0) for each in found.limits)
    if most == 0:
        return ""
    if found.users and found.users.average and found.users.average * replicas >= batch:
        return f" {span(least, most)} fit at worst, all on average, as in 'plan'."
    return f" {span(least, most)} fit."


def _room(answer: Answer) -> str:
    """Return how many requests, or users with theirs, run concurrently: '39 to 43 concurrent
    requests'; '' if any.
    """
    resolved, (low, high) = answer.resolved, answer.limits
    least = low.max_batch
    most = high.max_batch
    what = "concurrent request"
    of = ""
    if (on_average := users(resolved)) and (at_most := users(resolved, "high")):
        least = on_average.average
        most = at_most.average
        what = "user"
        of = f" on average ({described(on_average.traffic)})"
    if least is None or most is None:
        return ""
    least = least * resolved.replicas
    most = most * resolved.replicas
    if most > 1:
        what = f"{what}s"
    return f"{span(least, most)} {what}{of}"


def _speed(answer: Answer, on_gpus: str) -> str:
    """Return the bound of a lone request's tokens per second, or of one whose layers are partly on
    the host.

    It is that of an empty cache, and that of a full one if it is a tenth lower.
    """
    if not answer.result.fits or not (answer.resolved.is_alone or on_gpus):
        return ""
    bounds, _ = answer.bounds
    first, full = (
        float(each.tokens_per_second or 0) if each else 0.0
        for each in (answer.first_bounds, bounds)
    )
    if not (bounds and first and full):
        return ""
    if bounds.host:
        host = f" (host memory: {bounds.host.bandwidth / 10**9:.1f} GB/s)"
    else:
        host = ""
    texts = [f"{speed:,.{1 if speed < 10 else 0}f}" for speed in (first, full)]
    when_full = f", {texts[1]} when it is full" if full < 0.9 * first else ""
    return f", at most {texts[0]} tokens/s{host}{when_full}"


def _beside_the_cache(result: FitResult) -> str:
    """Return what else than the memory for the cache is too small, and by how much; '' if nothing
    is.
    """
    host = result.host
    batch = result.resolved.workload.batch
    context = int(result.resolved.workload.context)
    if host and result.host_needed is not None and result.host_needed > host.limit:
        if not host.is_shared:
            return (
                f"the host needs {human(result.host_needed, BYTES)} and has "
                f"{human(host.limit, BYTES)}"
            )
        if host.device.has_room(batch, context, "high"):
            return (
                f"GPU and host together need {gib(result.host_needed)} of the machine's "
                f"{gib(host.limit)} GiB"
            )
    budget = result.budget
    least = result.resolved.engine.least_blocks(result.layout)
    if not result.resolved.engine.admits(result.layout, batch, context):
        more = f"{plural(batch, 'request')} of {count(context)} tokens"
        return f"the pool has at most {count(result.pool.tokens)} tokens, for {more}"
    blocks = least and int(result.layout.pool(budget.kv_memory_low, context).blocks or 0)
    if result.needed <= budget.kv_memory_low and blocks < least:
        return (
            f"a step may have {count(least)} sequences, and the cache may have only "
            f"{count(blocks)} blocks of states"
        )
    if (
        result.needed <= budget.kv_memory_low
        and budget.reserve
        and budget.reserve.runtime.may_run_out
    ):
        runtime = budget.reserve.runtime
        most = human(runtime.outside_high, BYTES)
        room = human(runtime.room_outside or 0, BYTES)
        return f"after the cache, CUDA graphs may need {most}, and {room} are left for them"
    return ""


def _used(result: FitResult) -> str:
    """Return what one request takes of each device that it has alone, as at a desk: '5.6 to 6.0 of
    7.6 GiB'.

    '' for other requests: a server's memory for the cache is for as many as it holds.
    """
    used = _held(result.budget, int(result.needed)) if result.resolved.is_alone else ""
    if used and result.resolved.gpus > 1:
        return f"{used} on the fullest GPU"
    return used


def _on_gpus(result: FitResult) -> str:
    """Return what is on the host if layers or experts are: '42 of 80 layers on the GPU, 20.7 GiB on
    the host'.
    """
    resolved = result.resolved
    layers = result.resolved.model.main.n_layers
    placed = sum(
        part.main.n_layers for part in resolved.engine.parts(resolved.model, resolved.args)
    )
    experts = min(resolved.request.engine_args.get("n_cpu_moe") or 0, layers)
    if placed == layers and not experts:
        return ""
    where = f"experts of {plural(experts, 'layer')}"
    if placed < layers:
        where = f"{placed} of {layers} layers on {'the GPU' if resolved.gpus == 1 else 'GPUs'}"
    host = sum(device.total for device in device_memory(resolved) if device.name == "host")
    if result.host and resolved.request.ram_is_given:
        of = f" of {human(result.host.limit, BYTES)}"
    else:
        of = ""
    if host:
        return f"{where}, {human(host, BYTES)}{of} on the host"
    return ""


def _held(budget: MemoryBudget, cache: int) -> str:
    """Return what weights, runtime memory and a cache take of one device: '5.6 to 6.0 of 7.6 GiB';
    '' if unknown.
    """
    if not (budget.weights and budget.reserve and budget.usable):  # as with the memory of a log
        return ""
    held = int(budget.weights.total) + cache
    return (
        f"{gib_range(held + budget.reserve.low, held + budget.reserve.high)} of "
        f"{gib(int(budget.usable))} GiB"
    )


def _free(budget: MemoryBudget) -> str:
    """Return the memory for the cache with a verb: '4.1 to 4.6 GiB are'."""
    low = budget.kv_memory_low
    high = budget.kv_memory_high
    if human(low, BYTES) == human(high, BYTES):
        return f"{human(low, BYTES)} {'are' if low else 'is'}"
    return f"{gib_range(low, high)} GiB are"


def _memory_bar(result: FitResult) -> Bar | None:
    """Return how weights, runtime memory and cache share one GPU's memory; None without a GPU."""
    budget = result.budget
    resolved = result.resolved
    if budget.share is None or budget.weights is None or budget.reserve is None:
        return None
    return Bar(
        memory=int(budget.memory or 0),
        usable=int(budget.usable or 0),
        engine=resolved.engine.title,
        share=budget.share.text,
        option=budget.share.option,
        weights=int(budget.weights.total),
        runtime=(max(0, budget.reserve.low), budget.reserve.high),
        cache=(budget.kv_memory_low, budget.kv_memory_high),
        has_others=any(part.name == "other_memory" for part in budget.reserve.runtime.parts),
        owner="the CPU"
        if resolved.gpu and resolved.gpu.is_cpu
        else "each GPU"
        if resolved.gpus > 1
        else "the GPU",
    )


def _picture(answer: Answer, bar: Bar | None) -> Picture | None:
    """Return the memory of a GPU as a bar, and its roofline; None without a GPU."""
    from ...show.picture import picture
    from .chart import batch_fact, memory_chart, roofline_chart

    result, resolved, (bounds, _) = answer.result, answer.resolved, answer.bounds
    charts: list[Chart] = [
        *([memory_chart(bar)] if bar else []),
        *([roofline_chart(bounds)] if bounds else []),
    ]
    *facts, _, cache = request_facts(resolved)
    weights = result.budget.weights
    return picture(
        place(resolved),
        verdict(answer),
        [", ".join(filter(None, facts)), batch_fact(bounds) if bounds else ""],
        charts,
        [chart.name for chart in charts],
        engine=f"{resolved.engine.title} {result.layout.version or ''}".strip(),
        dtypes=f"weights in {weights.dtype if weights else resolved.args.dtype.name}, {cache}",
    )
