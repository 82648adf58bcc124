"""The content of a log: of a file, of standard input, or given as a text."""

import os
from pathlib import Path

from ..config.user_files import open_file, read_standard_input
from ..errors import AttncalcError
from ..units import truncate

# Bytes of a log that are read: 64 MiB, a thousand start-ups.
LIMIT = 1 << 26
_TIP = "give a file with what the engine printed when it started"


def content(log: str) -> bytes:
    """Return the bytes of a log: of a file, of standard input for '-', or of a message, which has
    blanks.

    Raises AttncalcError if it cannot be read, or is longer than LIMIT.
    """
    is_path = log.endswith((".log", ".txt")) and "\n" not in log
    if " " in log.strip() and not is_path and not os.path.isfile(log):
        return log.encode()
    name = "standard input" if log == "-" else truncate(log)
    try:
        if log == "-":
            data = read_standard_input(LIMIT + 1)
        else:
            with open_file(Path(log)) as file:
                data = file.read(LIMIT + 1)
    # ValueError: a name with a NUL, or a closed standard input
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "cannot be read"
        raise AttncalcError(f"{name}: {reason.lower()}", _TIP) from None
    if len(data) > LIMIT:
        raise AttncalcError(
            f"{name}: longer than {LIMIT:,} bytes", "give the lines of the start-up only"
        )
    if not data.strip(b"\0 \t\r\n"):
        raise AttncalcError(f"{name}: it is empty", _TIP)
    return data
