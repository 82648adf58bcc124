"""The report of `attncalc fit --quants`: a model's types of GGUF files, or the files of a folder,
by what they hold.
"""

from collections.abc import Sequence

from ...records import NamedTuple
from ...serving.answer import Answer
from ...serving.fit import USEFUL_CONTEXT, Verdict, sure_limits
from ...serving.launch import launch_command
from ...serving.request import FitRequest
from ...show.answer_rows import AnswerColumn, answer_table, text_column
from ...show.report import Report, Table, workload_facts
from ...show.request import command_table
from ...show.users import users_section
from ...units import BYTES, count
from .facts import engine_facts, fit_facts
from .figures import answer_figures
from .report import hardware
from .roofline import roofline_section
from .tables import Figures

# Types that few publish: K-quants of the same size lose less.
_RARE = ("q5_1", "q5_0", "q4_1", "q4_0")


class _Quant(NamedTuple):
    name: str  # its type, or its file
    answer: Answer
    figures: Figures
    longest: int  # tokens of one request that fit for sure


def fit_quants_report(requests: Sequence[tuple[str, FitRequest]], *, context: int | None) -> Report:
    """Return what each quant holds, the largest first, and the command for the largest that holds
    the context.

    `requests` are (name of the quant, its request). Without `context`, it is a useful one, or the
    model's own if that is shorter. Raises AttncalcError as `fit` does.
    """
    own = max(request.model.max_context or USEFUL_CONTEXT for _, request in requests)
    wanted = context or min(USEFUL_CONTEXT, own)
    quants = sorted((_quant(name, request) for name, request in requests), key=_largest_first)
    holding = [one for one in quants if one.longest >= wanted]
    fits = bool(holding)
    if fits:
        usual = [one for one in holding if one.name not in _RARE]
        chosen = (usual or holding)[0]
        tokens = context or chosen.longest
    else:
        chosen = max(quants, key=lambda one: one.longest)
        tokens = chosen.longest
    resolved = chosen.answer.resolved
    bounds = roofline_section(chosen.answer, with_variants=False)
    summary = _summary(chosen, holding, wanted)
    on_gpu = "" if resolved.args.on_cpu else "Weights are those on the GPU. "
    verdict: Verdict = "fits" if fits else "does_not_fit"
    return Report(
        "fit",
        (
            summary,
            f"{resolved.request.model.title} on {hardware(resolved)}, {resolved.engine.title}",
        ),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.workload, resolved.engine.name),
        (*chosen.figures.values(), *bounds.figures),
        tuple(
            ({**engine_facts(one.answer.result), "name": one.name}, tuple(one.figures.values()))
            for one in quants
        ),
        (_table(quants, wanted), *_command(chosen, tokens)),
        (f"{on_gpu}The contexts of one request are sure to fit.",),
        extra={
            **fit_facts(chosen.answer, summary),
            "fits": fits,
            "verdict": verdict,
            "users": users_section([chosen.answer]).extra,
            "roofline": bounds.extra,
        },
        verdict=verdict,
        has_fail_if=True,
    )


def _quant(name: str, request: FitRequest) -> _Quant:
    answer = Answer.to(request)
    longest, _ = sure_limits(answer.resolved)
    return _Quant(name, answer, answer_figures(answer), longest)


def _largest_first(quant: _Quant) -> tuple[int, bool]:
    return -quant.figures["weights"].whole, quant.name in _RARE


def _summary(chosen: _Quant, holding: Sequence[_Quant], wanted: int) -> str:
    if holding and chosen is holding[0]:
        return f"FITS: {chosen.name} is the largest that holds {count(wanted)} tokens."
    if holding:
        return f"FITS: {chosen.name} is the largest usual one that holds {count(wanted)} tokens."
    if chosen.longest:
        return (
            f"DOES NOT FIT: {chosen.name} holds {count(chosen.longest)} tokens, and none "
            f"{count(wanted)}."
        )
    return "DOES NOT FIT: the weights of every quant are larger than the memory."


def _table(quants: Sequence[_Quant], wanted: int) -> Table:
    rows = []
    for one in quants:
        rows.append(
            {
                "name": one.name,
                "weights": one.figures["weights"].value,
                "longest": one.longest or None,
                "holds": "yes" if one.longest >= wanted else "no",
            }
        )
    columns = (
        text_column("name", "quant"),
        AnswerColumn("weights", "weights", unit=BYTES),
        AnswerColumn("longest", "longest\ncontext"),
        AnswerColumn("holds", f"holds\n{count(wanted)}", str),
    )
    return answer_table(rows, columns)._replace(missing="does not fit")


def _command(chosen: _Quant, tokens: int) -> tuple[Table, ...]:
    """Return the command that starts the engine with so many tokens; () if none fit."""
    if not chosen.longest:
        return ()
    request = chosen.answer.resolved.request.with_workload(context=tokens)
    return command_table(launch_command(Answer.to(request).resolved))
