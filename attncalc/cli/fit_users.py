"""The options of `attncalc fit` about users' requests, and --output, which is a file or a number of tokens."""

# typer reads the annotations when a command is registered. Without `from __future__ import annotations` they are
# objects already, and need not be evaluated from strings.

import re
from pathlib import Path
from typing import Annotated, Any

from ..api.fit_request import read_traffic
from ..errors import AttncalcError
from ..serving.traffic import Traffic
from ..units import truncate
from .command import Options
from .options import Explain, Force, Format, Json, ReportOptions, Text, option, output_file

_NUMBER = re.compile(r"\d[\d_,]*[kmgtKMGT]?")
"""What --output reads as a number of tokens: 1024, 1k or 1K."""


class UserOptions(Options):
    """The requests that users send."""

    prompt: Annotated[
        Text,
        option("--prompt", "--input-len", metavar="N", help="Users: tokens of a prompt, as 4K; with --output."),
    ] = None
    output_len: Annotated[
        Text,
        option("--output-len", metavar="N", help="Users: tokens of an output, as 1K; the same as --output 1K."),
    ] = None
    shared_prefix: Annotated[
        Text,
        option(
            "--shared-prefix",
            metavar="N",
            help="Users: tokens with which all prompts start, stored once with prefix caching.",
        ),
    ] = None
    lengths: Annotated[
        Text,
        option("--lengths", metavar="N,N,...", help="Users: tokens of requests, instead of --prompt and --output."),
    ] = None

    def traffic(self, output: Text) -> Traffic | None:
        """Return the users' requests; None if there are none.

        Args:
            output: A number of tokens that --output was given; None if it was a file, or left out.

        Raises AttncalcError if a text is not a number, or options are missing or exclude each other.
        """
        if output is not None and self.output_len is not None:
            raise AttncalcError(
                "--output-len is given twice", f"give it once; --output {truncate(output)} is the same option"
            )
        if output is not None and self.prompt is None and self.lengths is None:
            raise AttncalcError(
                f"--output {truncate(output)} needs --prompt",
                "give --prompt 4K --output 1K; for a file of that name use -o",
            )
        return read_traffic(
            {
                "prompt": self.prompt,
                "output": self.output_len if output is None else output,
                "shared_prefix": self.shared_prefix,
                "lengths": self.lengths,
            }
        )


class FitOutputOptions(ReportOptions):
    """Where the answer goes. `--output` is a file as in other commands, or a number of tokens.

    Attributes:
        output_tokens: The number that --output was given; None if it was a file, or left out.
    """

    explain: Explain = False
    format: Format = None
    json: Json = False
    output: Annotated[
        Path | None,
        option("-o", metavar="FILE", parser=output_file, help="Write to this file; its suffix selects the format."),
    ] = None
    output_text: Annotated[
        Text, option("--output", metavar="N|FILE", help="Tokens of an output, as 1K, with --prompt; or a file, as -o.")
    ] = None
    force: Force = False

    def __init__(self, **values: Any) -> None:
        """Raise AttncalcError if --output and -o name files, or as the other commands' options do."""
        text = values.pop("output_text")
        self.output_tokens: str | None = text if text is not None and _NUMBER.fullmatch(text.strip()) else None
        if text is not None and self.output_tokens is None:
            if values["output"] is not None:
                raise AttncalcError("-o is given twice", "give it once; -o and --output are the same option")
            values["output"] = output_file(text)
        super().__init__(**values)
