"""Answer a command in both forms, as JSON for `calls.py`: `python -m attncalc.mcp.worker kv gpt2`.

It prints {"data": what --json prints, or null; "screen": what the command prints; "notes": what it
prints on standard error beside it; "error": the line and the tip of an error}.
"""

import contextlib
import io
import json
import sys
from collections.abc import Sequence

from ..cli import run

# Exit codes of an answer: 0 is yes, and 1 no. Others are errors.
_ANSWERS = (0, 1)


def printed(words: Sequence[str]) -> tuple[int, str, str]:
    """Return the exit code of a command, and what it prints on both streams."""
    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = ["attncalc", *words]
        code = run()
    return code, out.getvalue(), err.getvalue()


def main() -> None:
    """Answer the command in the arguments."""
    words = sys.argv[1:]
    # before -- and a pasted command
    code, text, error = printed([*words[:1], "--json", *words[1:]])
    data = None
    screen = notes = ""
    if code in _ANSWERS:
        data = json.loads(text)
        _, screen, notes = printed(words)
    sys.stdout.write(json.dumps({"data": data, "screen": screen, "notes": notes, "error": error}))


if __name__ == "__main__":
    main()
