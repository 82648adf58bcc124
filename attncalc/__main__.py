"""Where the command starts and ends: `attncalc`, or `python -m attncalc`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    gc.disable()  # a command lives for a moment: collecting while it starts and ends costs a tenth of it
    from .cli import run

    code = run()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    main()
