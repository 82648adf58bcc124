"""The arithmetic intensity of a decode step, in one call: `decode_intensity("gpt2")`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from ...config import ModelLike
from ...cost import intensity as of_intensity
from ...show.report import number
from ...workload import Workload
from ..arguments import takes
from ..inputs import read_call
from ..results import Result, model_subject, workload_subject
from .options import IntensityOptions
from .report import compare_models

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Intensity(Result, of_intensity.Intensity):
    """The arithmetic intensity of a decode step, as `attncalc compare` prints it."""

    FIGURES: ClassVar[tuple[str, ...]] = ("decode_flop_per_byte", "decode_flop_per_cache_byte")

    def _answer(self) -> str:
        return f"{number(float(self.per_byte))} FLOP per byte"


@takes(IntensityOptions)
def decode_intensity(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[IntensityOptions],
) -> Intensity:
    """Return the FLOP per byte of a decode step, which reads weights and cache once.

    >>> decode_intensity("llama2-70b", batch=8, context=4096)
    Intensity(llama2-70b, batch 8, context 4,096: 8 FLOP per byte)

    It takes the options of `attncalc compare` of a decode step, or a Workload. Raises AttncalcError
    if one is not valid.
    """
    spec, size = read_call(model, workload, options)
    found = of_intensity.decode_intensity(spec, size)
    subject = f"{model_subject(spec)}, {workload_subject(size)}"
    return Intensity(*found).knowing(subject, partial(compare_models, (spec,), (size,)))
