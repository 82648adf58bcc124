"""Pictures drawn with matplotlib, as SVG, PNG or PDF. The only package that imports it.

Neither the user's settings of matplotlib nor the time changes a byte: the same picture gives the
same file.
"""

import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ....errors import CannotCheckError
from ..chart import Picture

INSTALL = "pip install matplotlib"
# What a file says about itself: neither a date nor a version of matplotlib.
_METADATA: Mapping[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "attncalc"},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": "attncalc", "Producer": None},
}


def need_matplotlib() -> None:
    """Import matplotlib. Raises CannotCheckError if it is not installed."""
    import logging

    # it warns if it has no folder for a cache
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        with _default_environment(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import matplotlib.figure  # noqa: F401
    except ImportError as error:
        missing = (error.name or "").split(".")[0] == "matplotlib"
        reason = "is not installed" if missing else f"cannot be imported: {error}"
        raise CannotCheckError(f"--plot draws with matplotlib, which {reason}", INSTALL) from None


@contextmanager
def _default_environment() -> Iterator[None]:
    """Hide the variables that could make the import of matplotlib fail."""
    hidden = {}
    for name in ("MPLBACKEND", "MATPLOTLIBRC"):
        if name in os.environ:
            hidden[name] = os.environ.pop(name)
    os.environ["MATPLOTLIBRC"] = os.devnull
    try:
        yield
    finally:
        del os.environ["MATPLOTLIBRC"]
        os.environ.update(hidden)


def render(
    picture: Picture,
    names: tuple[str, ...],
    suffix: str,
    size: tuple[float, float | None] | None = None,
) -> bytes:
    """Return the picture of the charts with these names, as the bytes of a file with this suffix.

    `size` is its width and its height in inches; a height of None is what the charts need.

    Raises CannotCheckError if matplotlib is not installed, and AttncalcError if the charts do not
    fit the size.
    """
    need_matplotlib()
    import matplotlib

    from .layout import lay_out
    from .style import PNG_DPI, SETTINGS

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a title may have characters that the font lacks
        matplotlib.rcdefaults()
        for name, value in SETTINGS.items():
            matplotlib.rcParams[name] = value
        file = io.BytesIO()
        lay_out(picture, names, size).figure.savefig(
            file,
            format=suffix.removeprefix("."),
            dpi=PNG_DPI if suffix == ".png" else 72,
            metadata={**_METADATA[suffix], "Title": picture.title},
        )
    return file.getvalue()
