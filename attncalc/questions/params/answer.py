"""The parameters of a model, in one call: `params("gpt3")`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...config import ModelLike
from ...cost import params as of_params
from ...units import PARAMS, human
from ..arguments import takes
from ..inputs import read_model
from ..options import ShardedModelOptions
from ..results import TotalResult, model_subject
from .report import params_report

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Params(TotalResult, of_params.Params):
    """The parameters, as `attncalc params` prints them."""

    def _answer(self) -> str:
        return human(self.total, PARAMS)


@takes(ShardedModelOptions)
def params(model: ModelLike | None = None, **options: Unpack[ShardedModelOptions]) -> Params:
    """Return the parameters of a model on one device.

    >>> params("gpt2")
    Params(gpt2: 124.44 million)

    The options are those of `attncalc params`.

    Raises AttncalcError if the model or an option is not valid.
    """
    spec = read_model(model, options)
    return Params(*of_params.params(spec)).knowing(
        model_subject(spec), partial(params_report, spec)
    )
