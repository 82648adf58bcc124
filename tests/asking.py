"""Asking the command line: what a question is answered with, and a shell to ask in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parent.parent


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Answer]


def shell(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `attncalc` is this checkout's."""
    line = command.replace("attncalc ", f"{sys.executable} -m attncalc ")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **env}
    environment.pop("PYTHONUNBUFFERED", None)  # it would hide what is written only at the end
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def results(answer: Answer) -> dict[str, int]:
    """The figures of a JSON answer by name."""
    return {r["name"]: r["value"] for r in json.loads(answer.out)["results"]}
