"""What a page asks: `fit` in each of its modes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arguments import takes
from ..question import Answered, HasReport
from .options import FitOptions
from .request import fit_question, read_fit_request, requests_of_engines

if TYPE_CHECKING:
    from typing_extensions import Unpack


@takes(FitOptions)
def fit(model: Any = None, *, is_screen: bool, **options: Unpack[FitOptions]) -> HasReport:
    """Return what `attncalc fit` answers: the memory that is needed, what fits where, or the answer
    of an engine.

    Raises AttncalcError as the command does.
    """
    asked = fit_question(options, has_model=model is not None)
    if asked == "what_fits":
        from .what_fits import what_fits_report_of

        return Answered(what_fits_report_of(model, options, full=False, is_screen=is_screen))
    if asked == "vram":
        from .vram import vram

        return vram(model, **options)
    if asked == "all":
        from .all_report import fit_all_report

        request = read_fit_request(model, options)
        return Answered(fit_all_report(request, requests_of_engines(model, options, request)))
    from .answer import fit as fit_of
    from .report import answer_report

    result = fit_of(model, **options)
    if not is_screen:
        return result
    from ...serving.answer import Answer

    return Answered(answer_report(Answer(result), with_bounds=False))
