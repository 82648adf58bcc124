"""The report of `attncalc fit --quants`: a model's types of GGUF files, or the files of a folder,
by what they hold.
"""

from collections.abc import Sequence

from ...records import NamedTuple
from ...serving.answer import Answer
from ...serving.fit import USEFUL_CONTEXT, sure_limits
from ...serving.launch import launch_command
from ...serving.request import FitRequest
from ...show.report import Column, Report, Table, column_table, unit_column, workload_facts
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
    model's own if that is shorter. Raises AttncalcError as
    `fit` does.
    """
    own = max(request.model.max_context or USEFUL_CONTEXT for _, request in requests)
    wanted = context or min(USEFUL_CONTEXT, own)
    answers = [(name, Answer.to(request)) for name, request in requests]
    found = [
        _Quant(name, one, answer_figures(one), sure_limits(one.resolved)[0])
        for name, one in answers
    ]
    quants = sorted(found, key=lambda one: (-one.figures["weights"].whole, one.name in _RARE))
    holding = [one for one in quants if one.longest >= wanted]
    best = next((one for one in holding if one.name not in _RARE), next(iter(holding), None))
    which = "the largest" if best in holding[:1] else "the largest usual one"
    chosen = best or max(quants, key=lambda one: one.longest)
    answer = chosen.answer
    fits = best is not None
    resolved = answer.resolved
    weights = unit_column("weights", [one.figures["weights"].whole for one in quants], BYTES)
    columns = (
        (Column("quant", "left"), [one.name for one in quants]),
        weights,
        (
            Column("longest\ncontext"),
            [count(one.longest) if one.longest else "-" for one in quants],
        ),
        (
            Column(f"holds\n{count(wanted)}"),
            ["yes" if one.longest >= wanted else "no" for one in quants],
        ),
    )
    command: tuple[Table, ...] = ()
    if chosen.longest:
        tokens = context if fits and context else chosen.longest
        command = command_table(
            launch_command(Answer.to(resolved.request.with_workload(context=tokens)).resolved)
        )
    bounds = roofline_section(answer, with_variants=False)
    verdict = _verdict(chosen, wanted, which if fits else "")
    on_gpu = "" if resolved.args.on_cpu else "Weights are those on the GPU. "
    return Report(
        "fit",
        (
            verdict,
            f"{resolved.request.model.title} on {hardware(resolved)}, {resolved.engine.title}",
        ),
        resolved.model.facts(),
        workload_facts(resolved.model, resolved.workload, resolved.engine.name),
        (*chosen.figures.values(), *bounds.figures),
        tuple(
            ({**engine_facts(one.answer.result), "name": one.name}, tuple(one.figures.values()))
            for one in quants
        ),
        (column_table(columns)._replace(missing="does not fit"), *command),
        (f"{on_gpu}The contexts of one request are sure to fit.",),
        extra={
            **fit_facts(answer, verdict),
            "fits": fits,
            "verdict": "fits" if fits else "does_not_fit",
            "users": users_section([answer]).extra,
            "roofline": bounds.extra,
        },
        verdict="fits" if fits else "does_not_fit",
    )


def _verdict(chosen: _Quant, wanted: int, which: str) -> str:
    if which:
        return f"FITS: {chosen.name} is {which} that holds {count(wanted)} tokens."
    if chosen.longest:
        return (
            f"DOES NOT FIT: {chosen.name} holds {count(chosen.longest)} tokens, and none "
            f"{count(wanted)}."
        )
    return "DOES NOT FIT: the weights of every quant are larger than the memory."
