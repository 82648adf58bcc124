"""The words of a verdict."""

from ..serving.fit import Verdict

VERDICTS: dict[Verdict, str] = {
    "fits": "FITS",
    "may_not_fit": "MAY NOT FIT",
    "does_not_fit": "DOES NOT FIT",
}
