"""The report of `attncalc fit` for one engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...engines.engine import Refusal
from ...model import plural
from ...serving.answer import Answer, bounds_of
from ...serving.devices import device_memory
from ...serving.fit import FitResult, Verdict
from ...serving.launch import launch_command
from ...serving.memory_budget import MemoryBudget
from ...serving.request import FitRequest, ResolvedRequest, resolve
from ...serving.suggestions import Suggestion
from ...serving.users import users
from ...show.bar import Bar, gib, gib_range
from ...show.blocks import NOTE, Form, LeftOut, bar_block, note_blocks, on_one_screen
from ...show.notes import WARNING, beyond, is_decisive
from ...show.report import Report, Section, Table, heading, workload_facts
from ...show.request import command_table, request_facts, share_of_replicas
from ...show.users import described, users_section
from ...show.verdicts import VERDICTS
from ...units import BYTES, count, human
from .facts import engine_facts, fit_facts
from .figures import answer_figures, detail_figures, term_figures, text_length
from .notes import fit_notes
from .tables import (
    Figures,
    best_of_each_cost,
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
    bounds = Section(())
    if with_bounds:
        bounds = _bounds(answer, with_variants)
    per_user = users_section([answer])
    notes = tuple(dict.fromkeys((*fit_notes(answer), *per_user.notes)))
    report = Report(
        "fit",
        _heading(answer, roofline=roofline),
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
        verdict=_verdict_of_colour(result),
        bar=bar,
        draw=lambda: _picture(answer, bar),
        has_fail_if=True,
    )
    in_verdict = [*beyond(resolved.model, resolved.workload)]
    on_screen = tuple(note for note in notes if note.removeprefix(WARNING) not in in_verdict)
    of_roofline = bounds if roofline else None
    if not full:
        return _on_one_screen(report, answer, figures, on_screen, of_roofline)
    tables = [
        *_answer_tables(answer, figures),
        *devices_table(answer),
        lines_table(model_heading(result)),
        *cache_tables(answer, figures, details),
    ]
    if roofline:
        tables = [*bounds.tables, *tables]
    if result.verdict != "fits":
        tables.append(limits_table(answer, figures))
    return report._replace(
        tables=(*tables, *per_user.tables),
        shown_notes=shown_notes(on_screen, answer, of_roofline, full=True),
        footer=log_table(result),
    )


def _verdict_of_colour(result: FitResult) -> Verdict:
    """Return the verdict that a terminal colours: what runs in part only is no plain yes."""
    if result.longest_request:
        return "may_not_fit"
    if result.fits and _on_gpus(result):
        return "may_not_fit"
    return result.verdict


def _bounds(answer: Answer, with_variants: bool) -> Section:
    from .roofline import roofline_section  # 3 ms with what it imports

    return roofline_section(answer, with_variants=with_variants)


def _times(answer: Answer) -> tuple[str, ...]:
    """Return the bounds of time in a sentence, if the GPU has bounds."""
    from .roofline import bounds_text

    bounds, _ = answer.bounds
    if bounds is None:
        return ()
    most = answer.limits[0].max_batch or 0
    resolved = answer.resolved
    of_most = None
    if bounds.workload.batch == 1 < most and resolved.replicas == 1:
        of_most, _ = bounds_of(resolve(resolved.request.with_workload(batch=int(most))))
    text = bounds_text(bounds, of_most)
    if answer.result.verdict == "does_not_fit":
        return (f"If it fitted: {text[0].lower()}{text[1:]}",)
    return (text,)


def _answer_tables(answer: Answer, figures: Figures) -> tuple[Table, ...]:
    """Return what fits and the command that starts the engine so, or the changes that make it
    fit.
    """
    if answer.result.verdict != "fits":
        return tuple(changes_tables(answer, answer.changes))
    capacity = (capacity_table(answer, figures), *tiers_table(answer))
    return (*capacity, *command_table(launch_command(answer.resolved)))


# The default screen. What it loses first, if it has no room; warnings stay.

_DEVICES, _CHANGES, _BAR, _NOTES, _BOUNDS = range(5)


def _on_one_screen(
    report: Report, answer: Answer, figures: Figures, notes: tuple[str, ...], bounds: Section | None
) -> Report:
    """Return the report with the tables and the notes of the default screen.

    With the bounds of time there is no table of what fits, which the verdict says, and no command.
    """
    times = bounds.tables if bounds else ()
    fits = answer.result.verdict == "fits"
    blocks = [bar_block(_BAR), [Form(times[:1])]]
    if not fits:
        blocks.append(_changes_forms(answer, with_command=not times))
    elif not times:
        blocks.append([Form(_answer_tables(answer, figures))])
    if answer.resolved.engine.is_placed(answer.resolved.args) and not times:
        devices = Form(devices_table(answer))
        blocks.append([devices, Form(loss=_DEVICES, left_out={"devices": 1})])
    decisive = [note for note in notes if is_decisive(note)]
    n_notes = len(notes) - len(decisive)
    blocks += note_blocks(decisive, _NOTES)
    if bounds:  # without the first note the times would look like estimates
        blocks += note_blocks(bounds.notes[:1], _BOUNDS)
        n_notes += len(bounds.notes[1:])
    in_full = _parts_in_full(answer, has_times=bool(times), has_variants=len(times) > 1)

    def closing(left_out: LeftOut) -> tuple[str, ...]:
        parts = list(in_full)
        if "devices" in left_out:
            parts.append("devices")
        if "change" in left_out:
            parts.append(plural(left_out["change"], "change"))
        all_notes = n_notes + left_out.get(NOTE, 0)
        return _closing(answer, parts, all_notes, has_times=bounds is not None)

    return on_one_screen(report, blocks, closing)


def _parts_in_full(answer: Answer, *, has_times: bool, has_variants: bool) -> list[str]:
    """Return what --full adds to a screen that has the bounds of time, or has not."""
    parts = ["budget"]
    if answer.resolved.has_cache:
        parts += ["blocks", "log lines"]
    if has_times and answer.result.verdict == "fits":
        parts.insert(0, "what fits")
    if has_variants:
        parts.insert(0, "other attention")
    return parts


def _changes_forms(answer: Answer, *, with_command: bool) -> Iterator[Form]:
    """Yield the tables of all changes, then those of fewer, with the best of each cost."""
    changes = answer.changes
    yield Form(_tables_of_changes(answer, changes, with_command=with_command))
    lines = [len(change_rows(change)) for change in changes]
    shown = changes
    for room in range(sum(lines) - 1, sum(lines[:1]) - 1, -1):
        fewer = best_of_each_cost(changes, lines, room)
        if fewer != shown:
            shown = fewer
            yield Form(
                _tables_of_changes(answer, shown, with_command=with_command),
                loss=_CHANGES,
                left_out={"change": len(changes) - len(shown)},
            )


def _tables_of_changes(
    answer: Answer, changes: Sequence[Suggestion], *, with_command: bool
) -> tuple[Table, ...]:
    tables = changes_tables(answer, changes)
    if with_command:
        return tuple(tables)
    return tuple(table for table in tables if not table.code)


def shown_notes(
    notes: tuple[str, ...], answer: Answer, bounds: Section | None = None, *, full: bool = False
) -> tuple[str, ...]:
    """Return the notes of a screen: by default the decisive ones, and a last line about --full and
    --roofline.

    `bounds` is None if the screen has no roofline, of whose notes the first says what is assumed.
    """
    of_bounds = bounds.notes if bounds else ()
    has_times = bounds is not None
    if full:
        return (*notes, *of_bounds, *_closing(answer, [], 0, has_times=has_times))
    decisive = (*filter(is_decisive, notes), *of_bounds[:1])
    left_out = len(notes) + len(of_bounds) - len(decisive)
    return (*decisive, *_closing(answer, [], left_out, has_times=has_times))


def _closing(
    answer: Answer, parts: Sequence[str], n_notes: int, *, has_times: bool
) -> tuple[str, ...]:
    """Return a sentence about what --full adds, and about --roofline unless the screen has the
    times.
    """
    in_full = list(parts)
    if n_notes:
        in_full.append(plural(n_notes, "note"))
    asks_for_times = not has_times and answer.has_bounds
    if not in_full and asks_for_times:
        return ("--roofline adds times.",)
    if not in_full:
        return ()
    *first, last = in_full
    added = last
    if first:
        added = f"{', '.join(first)} and {last}"
    if asks_for_times:
        return (f"--full adds {added}; --roofline adds times.",)
    return (f"--full adds {added}.",)


# The heading, the bar and the picture


def _heading(answer: Answer, *, roofline: bool) -> tuple[str, ...]:
    """Return the verdict, then the model and where it runs.

    With `roofline` there are the bounds of time too: what fits is not worth more than how fast it
    is, but that it does not fit is.
    """
    times = _times(answer) if roofline else ()
    answered = verdict(answer, with_speed=not times)
    lines = [*times, answered]
    if not answer.result.fits:
        lines = [answered, *times]
    lines.append(_subject(answer))
    if answer.resolved.model.assumed:
        lines.append(f"ASSUMED: {answer.resolved.model.assumed}")
    return tuple(lines)


def _subject(answer: Answer) -> str:
    """Return the model, its GPUs, how it is split over them, the engine and the dtypes."""
    resolved = answer.resolved
    layout = answer.result.layout
    engine = resolved.engine.title
    if f"version {layout.version}" in layout.facts:
        engine = f"{engine} {layout.version}"
    split, experts, *_, weights, cache = request_facts(resolved)
    facts = [place(resolved)]
    # the split has the data-parallel ranks
    copies = resolved.replicas // (resolved.dp * resolved.args.attn_dp)
    if copies > 1:
        facts.append(f"{count(copies)} replicas")
    facts += [split, experts, engine, weights, cache]
    return ", ".join(filter(None, facts))


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
    sentences = [sentence]
    for text in beyond(found.resolved.model, found.resolved.workload):
        if text not in sentence:
            sentences.append(text[0].upper() + text[1:])
    return " ".join(sentences)


def _verdict(found: Answer, with_speed: bool) -> str:
    """Return the verdict as a sentence: 'FITS: ...', 'MAY NOT FIT: ...', 'DOES NOT FIT: ...' or
    'STARTS with ...'.
    """
    result = found.result
    if result.refusal:
        return _refused(result, result.refusal)
    if not found.resolved.has_cache:
        return _verdict_without_cache(found)
    held = _held_without_cache(result)
    if not held:
        limit = _limit_beside_memory(result)
        if limit:
            return f"{_answer_words(result)}: {limit}."
    start, rest = _start(found, with_speed)
    if held and result.verdict == "does_not_fit" and not result.resolved.is_alone:
        each = " on each GPU" if result.resolved.devices > 1 else ""
        return f"{start} needs {held}{each} without any cache.{_more(found)}"
    if start == "FITS:" and not _used(result):
        start = f"FITS:{_room(found)}"
    return f"{start} {_what_is_needed(result, rest)}.{_more(found)}"


def _verdict_without_cache(found: Answer) -> str:
    """Return the verdict on a model without a cache: 'FITS: a step of 2,048 tokens needs 0.3 to
    1.8 of 22.0 GiB, for 4 texts of 512 tokens.'
    """
    result = found.result
    tokens = result.step_tokens
    length = text_length(result)
    texts = result.step_texts(length)
    if tokens is None or texts is None:
        return VERDICTS[result.verdict]
    workload = result.resolved.workload
    batch = int(workload.batch)
    longest = result.longest_request
    if longest:
        return (
            f"STARTS with texts up to {count(longest)} tokens: one of "
            f"{count(int(workload.context))} is longer than a step, in which it is computed."
        )
    most = result.layout.max_num_seqs or batch
    if batch * int(workload.context) > tokens or batch > most:
        limit = f"{count(most)} texts" if batch > most else f"{count(tokens)} tokens"
        return (
            f"{VERDICTS[result.verdict]}: {plural(batch, 'text')} of "
            f"{count(int(workload.context))} tokens in one step, which has at most {limit}."
        )
    each = " on each GPU" if result.resolved.gpus > 1 else ""
    return (
        f"{VERDICTS[result.verdict]}: a step of {count(tokens)} tokens needs "
        f"{_held(result.budget, 0)}{each}, for {plural(int(texts), 'text')} of {count(length)} "
        "tokens."
    )


def _refused(result: FitResult, refusal: Refusal) -> str:
    """Return why the engine does not start, and whether there would be memory for it."""
    held = _held_without_cache(result)
    if held:
        more = f"Nor does it fit: it needs {held} without any cache."
        return f"DOES NOT START: {refusal.reason}. {more}"
    return f"DOES NOT START: {refusal.reason}."


def _held_without_cache(result: FitResult) -> str:
    """Return what is held of one device if there is no memory for a cache; '' if there is."""
    if result.budget.kv_memory_high:
        return ""
    return _held(result.budget, 0)


def _what_is_needed(result: FitResult, rest: str) -> str:
    """Return what one request alone uses, and `rest`, or what a server's requests need:
    'uses 5.6 to 6.0 of 7.6 GiB with 4,096 tokens of context, at most 67 tokens/s', or
    '8 requests of 4,096 tokens need 4.00 GiB, 4.1 to 4.6 GiB are free'.
    """
    resolved = result.resolved
    used = _used(result)
    if used:
        verb = "needs" if result.verdict == "does_not_fit" else "uses"
        tokens = count(resolved.workload.context)
        return f"{verb} {used} with {tokens} tokens of context{rest}"
    requests = _batch(resolved)
    share = share_of_replicas(resolved)
    if share:
        requests = f"{requests}{share},"
    need = "needs" if resolved.request.workload.batch == 1 else "need"
    return f"{requests} {need} {_needed_cache(result)}, {_free_of_needed(result)}"


def _answer_words(result: FitResult) -> str:
    """Return 'FITS', 'MAY NOT FIT' or 'DOES NOT FIT'; or up to which length requests run: 'STARTS
    with requests up to 17,628 tokens'.
    """
    longest = result.longest_request
    if not longest:
        return VERDICTS[result.verdict]
    low = result.budget.kv_memory_low
    starts = "STARTS" if low else "MAY START"
    if low < result.budget.kv_memory_high:
        return f"{starts} with requests up to about {count(longest)} tokens"
    return f"{starts} with requests up to {count(longest)} tokens"


def _batch(resolved: ResolvedRequest) -> str:
    """Return the requests: '8 requests of 4,096 tokens'."""
    requests = plural(resolved.request.workload.batch, "request")
    return f"{requests} of {count(resolved.workload.context)} tokens"


def _limit_beside_memory(result: FitResult) -> str:
    """Return what else than the memory for the cache is too small for the batch; '' if nothing
    is.
    """
    resolved = result.resolved
    maximum = result.layout.max_num_seqs
    if maximum is None or resolved.workload.batch <= maximum:
        return _beside_the_cache(result)
    share = share_of_replicas(resolved)
    if share:
        return f"{_batch(resolved)}{share}; each runs at most {count(maximum)}"
    return f"{_batch(resolved)}; {resolved.engine.title} runs at most {count(maximum)}"


def _start(found: Answer, with_speed: bool) -> tuple[str, str]:
    """Return the start of the verdict, and what is left to say of where it runs and how fast.

    Examples: ('FITS:', ', at most 67 tokens/s'), and ('RUNS PARTLY ON THE CPU: 43 of 80 layers on
    the GPU, 19.68 GiB on the host, at most 4.2 tokens/s;', '').
    """
    result = found.result
    on_gpus = _on_gpus(result)
    speed = ""
    if with_speed:
        speed = _speed(found, on_gpus)
    if not on_gpus:
        return f"{_answer_words(result)}:", speed
    if result.verdict != "fits":
        return f"{_answer_words(result)}:", f", {on_gpus}{speed}"
    if on_gpus.startswith("0 of "):
        return f"RUNS ON THE CPU: {on_gpus}{speed};", ""
    return f"RUNS PARTLY ON THE CPU: {on_gpus}{speed};", ""


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


def _free_of_needed(result: FitResult) -> str:
    """Return the memory for the cache: '4.1 to 4.6 GiB are free'. If that is as large as what is
    needed when rounded, the difference: 1.002 and 1.001 GiB.
    """
    high = result.budget.kv_memory_high
    if result.needed > high and human(result.needed, BYTES) == human(high, BYTES):
        return f"{human(result.needed - high, BYTES)} more than are free"
    return f"{_free(result.budget)} free"


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
    """Return how many requests, or users with theirs, run concurrently: ' 39 to 43 concurrent
    requests.'; '' if any number does.
    """
    resolved = answer.resolved
    on_average = users(resolved)
    at_most = users(resolved, "high")
    if on_average and at_most:
        least = on_average.average
        most = at_most.average
        if least is None or most is None:
            return ""
        in_all = span(least, most, resolved.replicas)
        traffic = described(on_average.traffic)
        if most * resolved.replicas > 1:
            return f" {in_all} users on average ({traffic})."
        return f" {in_all} user on average ({traffic})."
    low, high = answer.limits
    if low.max_batch is None or high.max_batch is None:
        return ""
    in_all = span(low.max_batch, high.max_batch, resolved.replicas)
    if high.max_batch * resolved.replicas > 1:
        return f" {in_all} concurrent requests."
    return f" {in_all} concurrent request."


def _speed(answer: Answer, on_gpus: str) -> str:
    """Return the bound of a lone request's tokens per second, or of one whose layers are partly on
    the host: ', at most 67 tokens/s'.

    It is that of an empty cache, and that of a full one if it is a tenth lower.
    """
    if not answer.result.fits or not (answer.resolved.is_alone or on_gpus):
        return ""
    bounds, _ = answer.bounds
    first_bounds = answer.first_bounds
    if bounds is None or first_bounds is None:
        return ""
    first = float(first_bounds.tokens_per_second or 0)
    full = float(bounds.tokens_per_second or 0)
    if not first or not full:
        return ""
    text = f", at most {_rate(first)} tokens/s"
    if bounds.host:
        text = f"{text} (host memory: {bounds.host.bandwidth / 10**9:.1f} GB/s)"
    if full < 0.9 * first:
        return f"{text}, {_rate(full)} when it is full"
    return text


def _rate(tokens_per_second: float) -> str:
    if tokens_per_second < 10:
        return f"{tokens_per_second:,.1f}"
    return f"{tokens_per_second:,.0f}"


def _beside_the_cache(result: FitResult) -> str:
    """Return what else than the memory for the cache is too small, and by how much; '' if nothing
    is.
    """
    of_host = _too_much_for_host(result)
    if of_host:
        return of_host
    resolved = result.resolved
    batch = resolved.workload.batch
    context = int(resolved.workload.context)
    if not resolved.engine.admits(result.layout, batch, context):
        requests = f"{plural(batch, 'request')} of {count(context)} tokens"
        return f"the pool has at most {count(result.pool.tokens)} tokens, for {requests}"
    budget = result.budget
    if result.needed > budget.kv_memory_low:
        return ""
    least = resolved.engine.least_blocks(result.layout)
    if least:
        blocks = int(result.layout.pool(budget.kv_memory_low, context).blocks or 0)
        if blocks < least:
            return (
                f"a step may have {count(least)} sequences, and the cache may have only "
                f"{count(blocks)} blocks of states"
            )
    if budget.reserve and budget.reserve.runtime.may_run_out:
        runtime = budget.reserve.runtime
        most = human(runtime.outside_high, BYTES)
        room = human(runtime.room_outside or 0, BYTES)
        return f"after the cache, CUDA graphs may need {most}, and {room} are left for them"
    return ""


def _too_much_for_host(result: FitResult) -> str:
    """Return what the host needs and has; '' if it has enough."""
    host = result.host
    needed = result.host_needed
    if host is None or needed is None or needed <= host.limit:
        return ""
    if not host.is_shared:
        return f"the host needs {human(needed, BYTES)} and has {human(host.limit, BYTES)}"
    workload = result.resolved.workload
    if host.device.has_room(workload.batch, int(workload.context), "high"):
        together = f"{gib(needed)} of the machine's {gib(host.limit)} GiB"
        return f"GPU and host together need {together}"
    return ""


def _used(result: FitResult) -> str:
    """Return what one request takes of each device that it has alone, as at a desk: '5.6 to 6.0 of
    7.6 GiB'.

    '' for other requests: a server's memory for the cache is for as many as it holds.
    """
    if not result.resolved.is_alone:
        return ""
    used = _held(result.budget, int(result.needed))
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
    host = sum(device.total for device in device_memory(resolved) if device.name == "host")
    if not host:
        return ""
    on_host = human(host, BYTES)
    if result.host and resolved.request.ram_is_given:
        on_host = f"{on_host} of {human(result.host.limit, BYTES)}"
    if placed == layers:
        return f"experts of {plural(experts, 'layer')}, {on_host} on the host"
    gpus = "the GPU" if resolved.gpus == 1 else "GPUs"
    return f"{placed} of {layers} layers on {gpus}, {on_host} on the host"


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
    if human(low, BYTES) != human(high, BYTES):
        return f"{gib_range(low, high)} GiB are"
    if low:
        return f"{human(low, BYTES)} are"
    return f"{human(low, BYTES)} is"


def _memory_bar(result: FitResult) -> Bar | None:
    """Return how weights, runtime memory and cache share one GPU's memory; None without a GPU."""
    budget = result.budget
    resolved = result.resolved
    if budget.share is None or budget.weights is None or budget.reserve is None:
        return None
    owner = "the GPU"
    if resolved.gpu and resolved.gpu.is_cpu:
        owner = "the CPU"
    elif resolved.gpus > 1:
        owner = "each GPU"
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
        owner=owner,
        has_cache=resolved.has_cache,
    )


def _picture(answer: Answer, bar: Bar | None) -> Picture | None:
    """Return the memory of a GPU as a bar, and its roofline; None without a GPU."""
    from ...show.picture import picture
    from .chart import batch_fact, memory_chart, roofline_chart

    result = answer.result
    resolved = answer.resolved
    *facts, _, cache = request_facts(resolved)
    lines = [", ".join(filter(None, facts))]
    charts: list[Chart] = []
    if bar:
        charts.append(memory_chart(bar))
    bounds, _ = answer.bounds
    if bounds:
        charts.append(roofline_chart(bounds))
        lines.append(batch_fact(bounds))
    dtype = resolved.args.dtype.name
    if result.budget.weights:
        dtype = result.budget.weights.dtype
    return picture(
        place(resolved),
        verdict(answer),
        lines,
        charts,
        [chart.name for chart in charts],
        engine=f"{resolved.engine.title} {result.layout.version or ''}".strip(),
        dtypes=f"weights in {dtype}, {cache}",
    )
