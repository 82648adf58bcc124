"""Write a report to standard output, or to a file."""

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from io import UnsupportedOperation
from pathlib import Path
from typing import IO, Any

from ..errors import AttncalcError
from ..units import truncate
from .characters import printable
from .formats import choose_format, descriptor_of, goes_to_file, is_stream
from .lists import screen_rows, screen_width, tell
from .notes import ALERTS
from .report import Report

IS_WINDOWS = os.name == "nt"


def write(
    report: Report,
    *,
    form: str | None,
    explain: bool,
    output: Path | None,
    force: bool,
    plain: bool = False,
) -> None:
    """Render the report and print it, or save it to `output`.

    Args:
        form: Name of a format; None takes the format of the suffix of `output`, or else a table.
        explain: Show the formula of every figure in place of the tables.
        output: The file to write; None and '-' are standard output.
        plain: Print no colours, no bar, and tables as lists.

    Raises AttncalcError if the format is unknown, or if the file exists (without force) or cannot
    be written.
    """
    chosen = choose_format(form, output)
    to_screen = output is None and not force
    if to_screen and chosen.name == "table" and sys.stdout.isatty() and not plain:
        from .terminal import print_report

        print_report(report, explain=explain)
        return
    if chosen.name == "table":
        from .text import render

        if to_screen:
            size = {"width": screen_width(sys.stdout), "rows": screen_rows(sys.stdout)}
        else:
            size = {}
        content: Any = render(report, explain=explain, plain=plain, **size)
    else:
        chosen.check(output)
        content = chosen.render(report, explain=explain)
    if chosen.is_binary and not goes_to_file(output):
        sys.stdout.buffer.write(content)
        return
    deliver(content, output, force=force, tabs=chosen.has_tabs)
    if output is not None or chosen.name in ("json", "jsonl", "csv", "tsv"):
        tell_alerts(report)


def tell_alerts(report: Report) -> None:
    """Print warnings and conditions that failed on standard error: among data they are easily
    overlooked.
    """
    for note in report.notes:
        if note.startswith(ALERTS):
            tell(note)


def tell_written(file: Path) -> None:
    """Name a file that was written, and no pipe, to a person at a terminal; a script's standard
    error stays empty.
    """
    if sys.stderr is not None and sys.stderr.isatty() and os.path.isfile(file):
        tell(f"wrote {truncate(file)}")


def deliver(text: str | bytes, output: Path | None, *, force: bool, tabs: bool = False) -> None:
    """Print `text`, or save it to `output`; '-' is standard output too. Tabs are escaped unless
    `tabs` is true.

    Raises AttncalcError if `force` comes without a file, or if the file cannot be saved.
    """
    if goes_to_file(output):
        with suppress(BrokenPipeError):  # its reader has read enough
            save(text, output, force=force, tabs=tabs)
        tell_written(output)
    elif force:
        raise AttncalcError("--force needs --output", "name the file to overwrite with -o FILE")
    else:
        try:
            assert isinstance(text, str)
            sys.stdout.write(printable(text, sys.stdout.encoding, tabs=tabs))
            sys.stdout.flush()
        except OSError as error:
            if not is_closed_pipe(error):
                raise
            drop_output()


def is_closed_pipe(error: OSError) -> bool:
    """Return whether the reader closed the pipe, as `head` does; on Windows that is an invalid
    argument.
    """
    return isinstance(error, BrokenPipeError) or (IS_WINDOWS and error.errno == errno.EINVAL)


def drop_output() -> None:
    """Discard the rest of the buffer, which Python would try to write again at exit; a closed
    output has none.
    """
    with suppress(UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def save(content: str | bytes, output: Path, *, force: bool, tabs: bool = False) -> None:
    """Write text, as UTF-8, or bytes to `output` atomically: the whole file, or nothing.

    Tabs in a text are escaped unless `tabs` is true. Raises AttncalcError if the file exists and
    `force` is false, or if it cannot be written.
    """
    with saved(content, output, force=force, tabs=tabs):
        pass


@contextmanager
def saved(content: str | bytes, output: Path, *, force: bool, tabs: bool = False) -> Iterator[None]:
    """As `save`, but the file gets its name when the block ends: an error in the block, which
    writes another file, leaves none.
    """
    is_binary = isinstance(content, bytes)
    with new_file(output, force=force, is_binary=is_binary) as file:
        file.write(
            content if isinstance(content, bytes) else printable(content, "utf-8", tabs=tabs)
        )
        file.flush()  # a full disk is an error before the block
        yield


def is_same_file(one: Path, other: Path) -> bool:
    """Return whether two paths lead to the same file, also through links, which need not exist
    yet.
    """
    try:
        return os.path.realpath(one) == os.path.realpath(other) or os.path.samefile(one, other)
    except (OSError, ValueError):  # one of them does not exist, or is no path
        return False


@contextmanager
def new_file(output: Path, *, force: bool, is_binary: bool = False) -> Iterator[IO[Any]]:
    """Yield a file that gets the name `output` when the block ends; if the block raises an error,
    there is no file.

    What is written to a pipe or a device is there at once. Raises AttncalcError if the file exists
    and `force` is false, or if it cannot be written; BrokenPipeError if the pipe's reader is gone.
    """
    text: dict[str, Any] = {} if is_binary else {"encoding": "utf-8", "newline": "\n"}
    try:
        if is_stream(output):
            number = descriptor_of(output)
            with open(
                output if number is None else os.dup(number), "wb" if is_binary else "w", **text
            ) as file:
                yield file
        else:
            with _whole_file(output, force, "xb" if is_binary else "x", text) as file:
                yield file
    except FileExistsError:
        raise AttncalcError(
            f"{truncate(output)}: already exists", "--force overwrites it"
        ) from None
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be written").lower()
        raise AttncalcError(
            f"{truncate(output)}: {reason}", "name a file in a folder you can write to"
        ) from None


@contextmanager
def _whole_file(
    output: Path, force: bool, opened: str, text: Mapping[str, Any]
) -> Iterator[IO[Any]]:
    """Yield a file that gets its name when the block ends, as `new_file`; `opened` is the mode of
    `open`.

    Raises OSError if it exists and `force` is false, or if it cannot be written.
    """
    target = Path(os.path.realpath(output))
    if target.exists() and not target.is_file():
        raise AttncalcError(
            f"{truncate(output)}: not a file that can be written", "name a new file after -o"
        )
    # before the work; the link below fails if it appears meanwhile
    if target.exists() and not force:
        raise FileExistsError
    mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
    # The name is known before the file exists, so that a signal in between leaves nothing.
    temporary = target.parent / f".{target.name[:50]}.{os.urandom(6).hex()}"
    try:
        # Until it is complete, only its owner may read it.
        private = partial(os.open, mode=0o600)
        with open(temporary, opened, opener=private, **text) as file:
            yield file
        os.chmod(temporary, mode)
        if force:
            os.replace(temporary, target)
        else:
            _rename_to_new(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _rename_to_new(temporary: Path, target: Path) -> None:
    """Rename a file. Raises FileExistsError if `target` exists, which os.rename overwrites except
    on Windows.
    """
    if IS_WINDOWS:
        os.rename(temporary, target)
        return
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # FAT and some network drives have no links: an empty file takes the name first
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.replace(temporary, target)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
