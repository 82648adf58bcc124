"""Where the command starts and ends: `attncalc`, or `python -m attncalc`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.disable()  # a command lives for a moment: collecting while it starts and ends costs a tenth of it
    try:
        from .cli import run

        code = run()
    except KeyboardInterrupt:
        code = 130
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
