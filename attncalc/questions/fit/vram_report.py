"""The report of `attncalc fit` without a GPU: the memory that a model needs, and which GPUs have
it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ...model import plural
from ...quantity import Quantity
from ...serving.fit import Deployment
from ...serving.vram import Need, UsualGpu, Vram
from ...show.answer_rows import AnswerColumn, answer_table, text_column, transposed
from ...show.bar import gib, gib_range
from ...show.blocks import Form, on_one_screen
from ...show.figures import SUM, FigureRow, FigureRows, Given
from ...show.report import Figure, Report, Table, workload_facts
from ...show.request import request_facts
from ...show.users import unshared
from ...units import BYTES, GIB, count, human
from .figures import FIGURES as FIT_FIGURES
from .figures import term_figures

FIGURES = FigureRows(
    weights=FIT_FIGURES["weights"]._replace(null_if=""),
    kv_needed=FIT_FIGURES["kv_needed"],
    reserve=FIT_FIGURES["reserve"]._replace(null_if=""),
    reserve_low=FigureRow("runtime at least", BYTES, "the least runtime memory"),
    reserve_high=FigureRow("runtime at most", BYTES, "the most runtime memory"),
    needed=FigureRow("needed", BYTES, "weights, cache and runtime memory on one GPU", source=SUM),
    needed_low=FigureRow("needed, at least", BYTES, "the same with the least runtime memory"),
    needed_high=FigureRow("needed, at most", BYTES, "the same with the most runtime memory"),
    gpu_memory=FigureRow(
        "one GPU",
        BYTES,
        "memory of a GPU; of the whole answer, the least that is sure to be enough",
    ),
)


def vram_report(found: Vram, *, full: bool = False) -> Report:
    """Return the memory that is needed, for several contexts, and the GPUs that have it."""
    asked = found.asked
    resolved = asked.resolved
    model = resolved.request.model
    answer = _answer(asked)
    heading = [answer, subject(asked, resolved.engine.title)]
    if model.assumed:
        heading.append(f"ASSUMED: {model.assumed}")
    notes = tuple(_notes(found))
    report = Report(
        "vram",
        tuple(heading),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.whole_workload, resolved.engine.name),
        needed_figures(asked),
        tuple(_of_gpu(found, gpu) for gpu in found.gpus),
        notes=notes,
        terms=term_figures(asked.budget),
        extra={
            "answer": answer,
            "engine": resolved.engine.name,
            "gpus": resolved.gpus,
            "contexts": [_context_facts(one) for one in found.needs],
            "quants": _quants_facts(found),
            "quant_contexts": [
                {"weights_dtype": quant, "gpu_gb": gb, "context": context or None}
                for quant, contexts in found.quant_contexts
                for (gb, _), context in zip(found.quants, contexts, strict=True)
            ],
        },
        shown_notes=notes,
    )
    if found.quant_contexts:
        return report._replace(tables=(_table(found, ()), _quant_contexts_table(found)))
    quants = [_quants_table(found)] if any(quant for _, quant in found.quants) else []
    if full:
        return report._replace(tables=(_table(found, found.gpus), *quants))
    # GPUs with little memory leave a screen first
    forms = (Form((_table(found, found.gpus[n:]), *quants)) for n in range(max(1, len(found.gpus))))
    return on_one_screen(report, [forms, [Form(notes=notes)]])


def _answer(of: Need) -> str:
    each = f" on each of {of.resolved.gpus} GPUs" if of.resolved.gpus > 1 else ""
    cache = f"KV cache {_size(int(of.cache))}, " if of.cache else ""
    runtime = gib_range(of.reserve.low, of.reserve.high)
    total = gib_range(of.low, of.high)
    return (
        f"NEEDS {total} GiB{each}: weights {_size(int(of.weights.total))}, {cache}runtime "
        f"{runtime} GiB."
    )


def _size(size: int) -> str:
    if size >= GIB:
        return f"{gib(size)} GiB"
    return human(size, BYTES)


def subject(need: Need, engine: str, of: str = "", *, with_weights: bool = True) -> str:
    """Return what is asked and the request: 'Qwen3 8B, 1 request of 8,192 tokens, vLLM, cache in
    bf16'.

    Args:
        need: The request.
        engine: The engine's title; '' to leave it out.
        of: What is asked about, instead of the model.
        with_weights: Whether all that is asked about has these weights.
    """
    resolved = need.resolved
    workload = resolved.whole_workload
    split, experts, _, source, _, weights, cache = request_facts(resolved)
    requests = f"{plural(workload.batch, 'request')} of {count(workload.context)} tokens"
    if of:  # the others are each model's own, or each GPU's
        is_given = resolved.request.weights_dtype is not None and of == resolved.request.model.title
        weights = weights if is_given and with_weights else ""
        source = ""
        cache = cache if resolved.request.workload.kv_dtype else ""
    facts = (
        of or resolved.request.model.title,
        requests,
        source,
        split,
        experts,
        engine,
        weights,
        cache,
    )
    return ", ".join(filter(None, facts))


_TOO_LARGE = "does not fit"
_OF_CONTEXTS = (
    AnswerColumn("context", "", lambda tokens: f"{count(tokens)}\ntokens"),
    AnswerColumn("kv_needed", "KV cache, GiB", lambda size: f"{size / GIB:.2f}"),
    AnswerColumn("needed_high", "needed at most, GiB", gib),
    AnswerColumn("gpu_memory", "GPU that is enough, GiB", gib),
)


def _gpus(number: int) -> str:
    return plural(number, "GPU")


def _table(found: Vram, gpus: Sequence[UsualGpu]) -> Table:
    """Return a column per context: what it needs, and the fewest GPUs of each kind."""
    rows = []
    for i, one in enumerate(found.needs):
        rows.append({**_context_facts(one), **{gpu.name: gpu.fewest[i] for gpu in gpus}})
    columns = [*_OF_CONTEXTS]
    if not found.asked.resolved.has_cache:
        columns = [column for column in columns if column.name != "kv_needed"]
    for gpu in gpus:
        columns.append(AnswerColumn(gpu.name, f"{gpu.name}, {gib(gpu.need.memory)} GiB", _gpus))
    return transposed(answer_table(rows, columns))._replace(missing=_TOO_LARGE)


def _quants_table(found: Vram) -> Table:
    """Return a column per size of GPU: the largest type of GGUF files that it holds."""
    asked = f"llama.cpp, {count(found.contexts[0])} tokens"
    columns = (
        AnswerColumn("gpu_gb", asked, lambda size: f"{size} GB"),
        text_column("weights_dtype", "largest type of GGUF files"),
    )
    return transposed(answer_table(_quants_facts(found), columns))._replace(missing=_TOO_LARGE)


def _quant_contexts_table(found: Vram) -> Table:
    """Return a row per type of GGUF files: the longest context on each size of GPU."""
    sizes = [f"{size} GB" for size, _ in found.quants]
    rows = []
    for name, contexts in found.quant_contexts:
        longest = dict(zip(sizes, contexts, strict=True))
        rows.append({"name": name, **{size: n or None for size, n in longest.items()}})
    columns = (
        text_column("name", "longest context\nwith llama.cpp"),
        *(AnswerColumn(size, f"\n{size}") for size in sizes),
    )
    return answer_table(rows, columns)._replace(missing=_TOO_LARGE)


def _notes(found: Vram) -> Iterator[str]:
    resolved = found.asked.resolved
    tokens = found.contexts[0]
    yield from resolved.workload.assumed
    if found.assumes_context:
        yield f"{count(tokens)} tokens are assumed: -c sets another context, -b several requests."
    if resolved.request.shared_tokens and not Deployment(resolved).shares_prefix:
        yield unshared(resolved)
    share = found.asked.budget.share
    if share and share.numerator != share.denominator:
        yield f"{resolved.engine.title} takes {share.text} of a GPU's memory ({share.option})."
    gpu = _detailed_gpu(found)
    # --gpu takes the model's own context
    asked = f"-c {tokens} --gpu" if found.assumes_context else "--gpu"
    yield f"{asked} {gpu} shows that GPU in detail, --gpu all every known GPU."


def _detailed_gpu(found: Vram) -> str:
    """Return the kind of which the fewest GPUs are enough, as --gpu takes it: '2xh100-80gb'."""
    # on a desktop's GPU the engine and the weights are others by default
    servers = []
    for one in found.gpus:
        gpu = one.need.resolved.gpu
        if gpu and not gpu.runs_files:
            servers.append(one)
    best = min(servers or found.gpus, key=lambda gpu: gpu.need.resolved.gpus, default=None)
    if best is None:
        return "h100-80gb"
    gpus = best.need.resolved.gpus
    if gpus == 1:
        return best.name
    return f"{gpus}x{best.name}"


def needed_figures(of: Need) -> tuple[Figure, ...]:
    if of.resolved.request.reserve is None:
        source = "an estimate: --reserve replaces it"
    else:
        source = "as given"
    return FIGURES.filled(
        of.resolved.engine.title,
        weights=Given(of.weights.total, f"weights in {of.weights.dtype}"),
        kv_needed=of.cache,
        reserve=Given(of.reserve.total, source=source),
        reserve_low=Given(Quantity(of.reserve.low), source=source),
        reserve_high=Given(Quantity(of.reserve.high), source=source),
        needed=of.total,
        needed_low=Quantity(of.low),
        needed_high=Quantity(of.high),
        gpu_memory=of.budget.memory,
    )


def _of_gpu(found: Vram, gpu: UsualGpu) -> tuple[dict[str, Any], tuple[Figure, ...]]:
    """Return what a GPU is, as plain data, and its figures."""
    need = gpu.need
    fewest = zip(found.contexts, gpu.fewest, strict=True)
    numbers = [{"context": context, "gpus": number} for context, number in fewest]
    facts = {
        "gpu": need.gpu_name,
        "gpus": need.resolved.gpus,
        "verdict": need.verdict,
        "fewest_gpus": numbers,
    }
    return facts, tuple(figure.without_formula(need.gpu_name) for figure in needed_figures(need))


def _context_facts(of: Need) -> dict[str, int]:
    return {
        "context": int(of.resolved.workload.context),
        "kv_needed": int(of.cache),
        "needed_low": of.low,
        "needed": int(of.total),
        "needed_high": of.high,
        "gpu_memory": of.memory,
    }


def _quants_facts(found: Vram) -> list[dict[str, int | str | None]]:
    return [{"gpu_gb": size, "weights_dtype": quant} for size, quant in found.quants]
