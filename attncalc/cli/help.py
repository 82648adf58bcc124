"""The help of a command: the common options by default, all below headings, or those of a topic."""

import re
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import AttncalcError
from ..show.lists import wrapped
from ..units import truncate

_HELP = ("-h", "--help")
# The topic of all options.
_ALL = "all"
# A list of common options that is no longer has no headings: it is read at a glance.
_SHORT = 20


class Narrow:
    """A command whose help is as narrow as the terminal, and breaks no option: typer's has 50
    columns at least.
    """

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        from ..show.lists import screen_width

        formatter.width = min(formatter.width, screen_width(sys.stdout) - 1)
        super().format_usage(ctx, formatter)  # type: ignore[misc]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        # typer's would break it within '--weights-dtype'
        epilog = getattr(self, "epilog", None)
        if epilog:
            formatter.write("\n".join(["", *wrapped(f"  {epilog}", "  ", formatter.width), ""]))


def write_records(formatter: Any, records: Sequence[tuple[str, str]]) -> None:
    """Write names with their help beside them, or below them if there is little room."""
    width = formatter.width
    longest = max(len(names) for names, _ in records)
    has_room = width >= 64 or longest <= 8
    start = min(30, longest) + 4 if has_room else 6
    for names, text in records:
        if len(names) > width - 4:
            first, *opposite = re.split("(?<=/) ", names)
        else:
            first, *opposite = [names]
        lines = [
            line
            for part in (f"  {first}", *(f"    {part}" for part in opposite))
            for line in wrapped(part, "    ", width)
        ]
        beside = wrapped(" " * start + text, " " * start, width)
        if has_room and beside and len(names) <= start - 4:
            beside[0] = lines.pop().ljust(start) + beside[0].strip()
        formatter.write("".join(f"{line}\n" for line in (*lines, *beside)))


def _brief(param: Any) -> tuple[str, str]:
    """Return an option or argument in one line: its shortest names, and the first sentence of its
    help.
    """
    first_sentence = re.split(r"(?<! al)[.;] |\.$", re.sub(r" \([^()]*\)", "", param.help or ""))[0]
    start = first_sentence.partition(": ")[0]
    # 'Instead: measure time'
    if len(start.split()) > 3:
        first_sentence = start
    if param.param_type_name != "option":
        return param.metavar, first_sentence
    short, long = (
        [name for name in param.opts if name.startswith("--") == is_long][:1]
        for is_long in (False, True)
    )
    return f"{', '.join((*short, *long))} {param.metavar or ''}".rstrip(), first_sentence


def without_topic(args: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments without the topic after -h or --help, and the topic; '' without one.

    '--help=all' is '--help all'.
    """
    given = list(args)
    pasted = given.index("--") if "--" in given else len(given)
    words = [part for arg in given[:pasted] for part in _parted(arg)]
    end = len(words)
    words += given[pasted:]
    for i, word in enumerate(words[:end]):
        if word in _HELP and i + 1 < end and not words[i + 1].startswith("-"):
            return [*words[: i + 1], *words[i + 2 :]], words[i + 1]
    return words, ""


def _parted(arg: str) -> list[str]:
    """Return '--help' and the topic of '--help=all'; another argument as it is."""
    name, equals, topic = arg.partition("=")
    return [name, topic] if equals and name == "--help" else [arg]


def topics_of(command: Any, topic: str, path: str) -> frozenset[str] | None:
    """Return the headings that a topic names, as 'gpus' names 'GPUs and engine'; None without a
    topic. Raises AttncalcError for an unknown one.
    """
    if not topic:
        return None
    known = dict.fromkeys(_heading_of(command, param) for param in command.params)
    word = topic.lower()
    if word == _ALL:
        return frozenset(known)
    found = frozenset(heading for heading in known if word in _words_of(heading))
    if not found:
        raise AttncalcError(
            f"the help of '{path}' has no topic '{truncate(topic)}'",
            f"give one of {', '.join([_ALL, *map(_topic_of, known)])}",
        )
    return found


def _topic_of(heading: str) -> str:
    """Return the word that names a heading in one word: 'gpus-and-engine'."""
    return heading.lower().replace(" ", "-")


def _words_of(heading: str) -> set[str]:
    return {_topic_of(heading), *heading.lower().split()} - {"and"}


def _heading_of(command: Any, param: Any) -> str:
    if param.param_type_name == "argument":
        return "Arguments"
    heading: str = getattr(command.callback, "headings", {}).get(param.name or "", "Options")
    return heading


def write_options(command: Any, ctx: Any, formatter: Any, topics: frozenset[str] | None) -> None:
    """Write the options of these topics; without any the common ones, each in few words, and how
    the others are listed.
    """
    shown, left_out = _records(command, ctx, topics)
    if topics is None and len(shown) <= _SHORT:
        shown = [
            (heading if heading == "Arguments" else "Options", record) for heading, record in shown
        ]
    sections: dict[str, list[tuple[str, str]]] = {}
    for heading, record in shown:
        sections.setdefault(heading, []).append(record)
    for heading, records in sections.items():
        with formatter.section(heading):
            write_records(formatter, records)
    if left_out:
        known = dict.fromkeys(_heading_of(command, param) for param in command.params)
        known.pop("Arguments", None)
        text = f"--help all lists {left_out} more options."
        # a short list stays within a screen
        if len(known) > 1 and len(shown) > _SHORT:
            listed = ", ".join(map(_topic_of, known))
            text = f"{text} --help TOPIC lists those of a topic ({listed})."
        formatter.write("\n".join(["", *wrapped(text, "", formatter.width), ""]))


def _records(
    command: Any, ctx: Any, topics: frozenset[str] | None
) -> tuple[list[tuple[str, tuple[str, str]]], int]:
    """Return the heading, the names and the help of each option that is shown, and how many others
    there are.
    """
    rare = getattr(command.callback, "rare", ())
    shown = []
    left_out = 0
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is None:
            continue
        heading = _heading_of(command, param)
        if topics is not None:
            if heading in topics:
                shown.append((heading, record))
        elif param.name in rare:
            left_out += 1
        else:
            shown.append((heading, _brief(param)))
    return shown, left_out
