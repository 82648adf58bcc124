"""What this machine has: its memory."""

from __future__ import annotations

import os

from ..errors import AttncalcError


def machine_memory() -> int:
    """Return the bytes of this machine's memory. Raises AttncalcError if it does not say how many it has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        raise AttncalcError("this machine does not say how much memory it has", "give it, as --ram 32GB") from None
