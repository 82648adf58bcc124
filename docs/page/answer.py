"""Answers of the page: a question of the form becomes a call of attncalc, and its report plain data
for the page.

It runs in the browser, in a worker, with the wheel beside it. Each function takes and returns JSON.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hub import AsksHubError, allow

from attncalc.config import ModelLike
from attncalc.errors import AttncalcError, BadValueError, NoSuchModelError, Tip
from attncalc.model import plural
from attncalc.options import options_of, parsed
from attncalc.questions.arguments import UnknownArgumentError, takes
from attncalc.questions.inputs import read_model
from attncalc.questions.options import WhatIfOptions
from attncalc.questions.question import Answered, HasReport, declared
from attncalc.questions.question import Question as Declared
from attncalc.show.bar import gib_range
from attncalc.show.notes import ALERTS, is_decisive
from attncalc.show.report import Figure, Report, Table
from attncalc.units import BYTES, human, long_option
from attncalc.what_if import SIZES, model_of_sizes


class Question(NamedTuple):
    """A question of the form, which its address has too.

    Attributes:
        command: The command: 'fit'.
        models: Names of models, or of files that were dropped on the page.
        options: {an option's name without dashes: its text, its texts if it is repeated, or whether
            it is set}.
        hub: The repositories that the reader allowed to ask the hub for.
    """

    command: str
    models: Sequence[str]
    options: Mapping[str, Any]
    hub: Sequence[str] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """The options as arguments in Python."""
        return {name.replace("-", "_"): value for name, value in self.options.items()}

    @property
    def command_line(self) -> str:
        """The command line that gives the same answer."""
        words = ["attncalc", self.command, *self.models]
        for name, value in self.options.items():
            if isinstance(value, bool):
                words.append(f"--{name}" if value else f"--no-{name}")
                continue
            for each in value if isinstance(value, list) else [value]:
                if not each.startswith("-"):
                    words += [f"--{name}", each]
                else:
                    words += [f"--{name}={each}"]
        return shlex.join(words)

    @property
    def given(self) -> list[ModelLike]:
        """The models; without a name, the one of the sizes in the options. Raises AttncalcError if
        they are wrong.
        """
        names: list[ModelLike] = [name for name in self.models if name]
        if names or SIZES.isdisjoint(options_of(declared(self.command).options)):
            return names
        sizes = parsed(self.arguments, WhatIfOptions)
        if SIZES & sizes.keys():
            return [model_of_sizes(sizes)]
        return []

    def result(self, *, is_screen: bool = False) -> HasReport:
        """Return the result of the call in Python, which has the report of the command.

        Args:
            is_screen: Leave out what only JSON has, which takes longer than all the rest.

        Raises AttncalcError as the command does.
        """
        allow(self.hub)
        models = self.given
        options = self.arguments
        _check_machine(options)
        question = declared(self.command)
        if not models and not (question.lists_models and "gpu" in options):
            raise NoSuchModelError(
                "a model is required", "type a name, as llama3.1-8b, or drop a config.json here"
            )
        if len(models) > 1 and not question.takes_models:
            raise AttncalcError(
                f"{self.command} takes one model, not {len(models)}",
                f"'attncalc compare {shlex.join(self.models)}' takes several",
            )
        if question.on_page is not None:
            return question.on_page(models, options, is_screen=is_screen)
        return _about_one_model(question, models[0], options)


def _check_machine(options: Mapping[str, Any]) -> None:
    """Raise AttncalcError if the question is about the reader's machine, which a page does not
    see.
    """
    gpus = str(options.get("gpu", "")).lower().split(",")
    if "local" in gpus:
        raise BadValueError(
            "--gpu local: a page cannot see the GPU of this machine",
            "give its name or its memory, as rtx-4090 or 12GB",
        )
    if "cpu" in gpus and "ram" not in options:
        raise BadValueError(
            "--gpu cpu: a page cannot see the memory of this machine", "give it as --ram 32GB"
        )


def _about_one_model(asked: Declared, model: ModelLike, options: Mapping[str, Any]) -> HasReport:
    """Return what the command of a question about one model answers."""

    @takes(asked.options)
    def answer(model: ModelLike, **options: Any) -> HasReport:
        return Answered(asked.answer(read_model(model, options), options))

    answered: HasReport = answer(model, **options)
    return answered


class Reply:
    """The reply to a question.

    Attributes:
        question: The question.
        result: The result of its call.
        report: What the page shows.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.result: Any = question.result(is_screen=True)
        self.report: Report = self.result.report


# The last reply, whose figures may be explained, and whose curve may be drawn.
_last: dict[str, Reply] = {}


def ask(question: str) -> str:
    """Return the answer to a question, or its error."""
    asked = Question(**json.loads(question))
    try:
        reply = _last["reply"] = Reply(asked)
    except Exception as error:
        return json.dumps(
            {"errors": [_error(each) for each in (error, *getattr(error, "further", ()))]}
        )
    return json.dumps({**_answer(reply), "command_line": asked.command_line})


def document(question: str) -> str:
    """Return what `--json` prints."""
    from attncalc.show.json import render

    return render(Question(**json.loads(question)).result().report)


def explain(index: int, width: int = 80) -> str:
    """Return the lines that explain a figure of the last answer, in so many columns."""
    from attncalc.show.formulas import explain_figures

    (lines,) = explain_figures([_figures(_last["reply"].report)[index]], width)
    return json.dumps("\n".join(line.removeprefix("  ") for line in lines))


def curve() -> str:
    """Return the curve of the last answer as a chart, or null if it has none."""
    from curve import curve_of

    reply = _last["reply"]
    asked = reply.question
    try:
        return json.dumps(
            curve_of(asked.command, asked.given, asked.arguments, reply.result, reply.report)
        )
    except AttncalcError:  # an option that a row of a sweep does not have
        return "null"


def _error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, UnknownArgumentError):
        return {
            "error": f"no such option: {long_option(error.name)}",
            "tip": "the form has all options of this command",
        }
    if isinstance(error, AttncalcError):
        message, tip = error.printed or (error.message, error.tip)
        if isinstance(tip, Tip):
            tip = tip.page
        is_model = isinstance(error, NoSuchModelError)
        return {"error": message, "tip": _with_few_names(tip), "is_model": is_model}
    if isinstance(error, AsksHubError):
        return {
            "error": f"{error} is not a built-in model",
            "tip": "read it from the hub, or drop its config.json",
            "hub": str(error),
        }
    if isinstance(error, ModuleNotFoundError):
        return {
            "error": f"this page has no {error.name}, which this question or file needs",
            "tip": "ask attncalc in a terminal",
        }
    return {
        "error": f"this is a bug in attncalc: {type(error).__name__}: {error}"[:200],
        "tip": "please report it with the address of this page",
    }


# Names that a tip lists; the field's own list has all of them.
MOST_NAMES = 6


def _with_few_names(tip: str) -> str:
    """Return a tip with the first names of a long list: 'which one: a, b and 25 more?'."""
    found = re.search(r"which one: ([^?]+)\?", tip)
    names = found[1].split(", ") if found else []
    if len(names) <= MOST_NAMES:
        return tip
    few = f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return tip.replace(", ".join(names), few)


def _answer(reply: Reply) -> dict[str, Any]:
    report = reply.report
    head, _, rest = report.heading[0].partition("  ")
    first = next((figure for figure in report.figures if figure.quantity is not None), None)
    is_first_row = first and report.tables and report.tables[0].rows[0][0] == first.label
    answer = report.answer
    if not answer and first and is_first_row and not report.verdict:
        answer = f"{first.label} {first.human}"
    facts = [", ".join(filter(None, (head if answer else "", rest))), *report.heading[1:]]
    if report.command == "compare":  # its answer is several sentences
        of_models = [head] if rest == "side by side" else [f"{head}, {rest}"]
        facts = [*answer.splitlines(), *of_models, *report.heading[1:]]
        answer = _compared(reply.result.rows)
    return {
        "verdict": report.verdict,
        "headline": _headline(answer or head),
        "facts": facts,
        "bar": _bar(report) or _training_bar(report),
        "tables": [
            _table(table) for table in report.tables if not table.code and not _lists_changes(table)
        ],
        "changes": _changes(report),
        "commands": [_command(table) for table in report.tables if table.code],
        "figures": [
            {
                "label": ", ".join(filter(None, (figure.label.strip(), figure.of))),
                "human": figure.human,
                "exact": figure.exact,
            }
            for figure in _figures(report)
        ],
        **_notes(report),
    }


def _notes(report: Report) -> dict[str, list[str]]:
    """Return the notes: warnings, the legend of the tables, and the others, the most important
    first.
    """
    warnings = []
    legend = []
    others = []
    for note in report.notes:
        if note.startswith(ALERTS):
            warnings.append(note)
        elif _is_legend(note, report):
            legend.append(note)
        else:
            others.append(note)
    others.sort(key=lambda note: not is_decisive(note))
    return {"warnings": warnings, "legend": legend, "notes": others}


def _is_legend(note: str, report: Report) -> bool:
    """Return whether a note begins with a sign or a column of a table: '* as released', 'TTFT
    (first token) ...'.
    """
    headers = {
        re.sub(r"\s", "", column.header) for table in report.tables for column in table.columns
    }
    name = re.split(r"[:,] | \(", note)[0]
    return note.startswith("* ") or name.replace(" ", "") in headers


def _headline(text: str) -> str:
    """Return a headline with changes in words: '2 GPUs are enough: tensor parallelism 2.' for
    '2 GPUs are enough: --gpus 2 --tp 2.'
    """
    words = _CHANGES_IN_TEXT.sub(lambda found: change_in_words(found[0]), text)
    words = re.sub(r"(\d+ GPUs) are enough: \1\.", r"\1 are enough.", words)
    return re.sub(r"(\d+ GPUs) are enough: \1, ", r"\1 are enough: ", words)


def _compared(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the caches of a comparison in one line: of the kind as released and of the largest
    other one, or the smallest and the largest of several models. It is '' if none has a cache.
    """
    sizes = {row["name"]: row["kv_cache"] for row in rows if row["context"] == rows[0]["context"]}
    if not any(sizes.values()):
        return ""
    released = [row["name"] for row in rows if row["released"]]
    if len(sizes) > 1 and not all(row["released"] for row in rows):
        others = {name: size for name, size in sizes.items() if name != released[0]}
        other = max(others, key=lambda name: others[name])
        return f"KV cache {human(sizes[released[0]], BYTES)}, {_size(sizes, other)}"
    ends = sorted(sizes, key=lambda name: sizes[name])
    if len(sizes) > 2:
        return f"KV cache from {_size(sizes, ends[0])} to {_size(sizes, ends[-1])}"
    return f"KV cache {', '.join(_size(sizes, name) for name in sizes)}"


def _size(sizes: Mapping[str, int], name: str) -> str:
    return f"{human(sizes[name], BYTES)} with {name}"


def _figures(report: Report) -> list[Figure]:
    return [figure for figure in report.figures_to_explain if figure.quantity is not None]


def _lists_changes(table: Table) -> bool:
    """Return whether a table lists the changes that would make it fit, which the page shows as
    buttons.
    """
    return table.columns[0].header == "change"


# {an option of a change, or an option with its value: what the change does}.
_CHANGES = {
    "--autocast": "autocast",
    "-b": "batch {}",
    "-c": "context {}",
    "--double-quant": "double quantization",
    "--expandable-segments": "expandable segments of the allocator",
    "--fsdp": "FSDP",
    "--gpus": "{} GPUs",
    "--gradient-accumulation": "{} micro-batches per step",
    "--kernel flash": "flash attention",
    "--lora r=16": "LoRA with rank 16",
    "--loss chunked": "loss in chunks",
    "--loss fused": "loss fused with the head",
    "--no-kbit-upcast": "embedding and head in 16 bits",
    "--no-master-weights": "no fp32 master weights",
    "--offload optimizer": "optimizer states in host memory",
    "--offload optimizer,params": "optimizer states and weights in host memory",
    "--offload params": "weights in host memory",
    "--optimizer adam8bit": "8-bit Adam",
    "--pp": "{} pipeline stages",
    "--recompute full": "recompute activations",
    "--tp": "tensor parallelism {}",
    "--weights-dtype": "weights in {}",
    "--zero": "ZeRO {}",
}


def _changes_in_text() -> re.Pattern[str]:
    """Return the pattern of changes in a sentence, one behind the other: '--gpus 4 --zero 3' of
    '4 are enough: --gpus 4 --zero 3 needs 60 GiB'.
    """
    options = []
    for option in sorted(_CHANGES, key=len, reverse=True):
        value = r" [\w.,=]*\w" if "{}" in _CHANGES[option] else r"(?![\w-])"
        options.append(re.escape(option) + value)
    one = f"(?:{'|'.join(options)})"
    return re.compile(rf"(?<![\w-]){one}(?: {one})*")


_CHANGES_IN_TEXT = _changes_in_text()


def change_in_words(flag: str) -> str:
    """Return a change of `train` in words: '4 GPUs, ZeRO 3' for '--gpus 4 --zero 3'. An option
    without words is as typed.
    """
    words: list[str] = []
    for option in re.split(r" (?=-)", flag):
        name, _, value = option.partition(" ")
        known = _CHANGES.get(option) or _CHANGES.get(name) or option
        words.append(known.replace("{}", value))
    return ", ".join(words)


def _changes(report: Report) -> list[dict[str, str]]:
    """Return the changes that would make it fit, each as a button with what it gives beside it."""
    requests = _requests_of_changes(report)
    return [
        _change(change, requests.get(change["flag"], ""))
        for change in report.extra.get("suggestions") or ()
    ]


def _requests_of_changes(report: Report) -> dict[str, str]:
    """Return {options of a change: the requests of all replicas}, as the terminal's table has them.
    JSON has those of one replica.
    """
    requests: dict[str, str] = {}
    flag = ""
    for table in filter(_lists_changes, report.tables):
        for name, most, *_ in table.rows:
            if name.startswith(" "):  # the rest of a long flag
                of_flag = requests.pop(flag)
                flag = f"{flag} {name.strip()}"
                requests[flag] = of_flag
            else:
                flag = name
                requests[flag] = most
    return requests


def _change(change: dict[str, Any], requests: str) -> dict[str, str]:
    """Return a change as a button. `train` names the cost of a change, not the change."""
    words = change["change"]
    flag = change["flag"]
    if "needed_high" in change:
        needed = gib_range(change["needed_low"], change["needed_high"])
        gives = f"{words}, needs {needed} GiB"
        return {"words": change_in_words(flag), "flag": flag, "gives": gives}
    number = requests.replace(",", "")
    gives = plural(int(number), "request") if number.isdigit() else ""
    return {"words": words, "flag": flag, "gives": gives}


def _command(table: Table) -> list[str]:
    """Return the title and the text of a command that starts an engine, in one line."""
    header = table.columns[0].header.rstrip(":")
    lines = [line.removesuffix("\\").strip() for (line,) in table.rows]
    return [f"Start the engine{header and f': {header}'}", " ".join(lines)]


def _table(table: Table) -> dict[str, Any]:
    return {
        "columns": [  # a name that a narrow column divides, as repli-cas
            {**column._asdict(), "header": column.header.replace("-\n", "")}
            for column in table.columns
        ],
        "rows": table.rows,
        "strong": sorted(table.strong),
    }


def _bar(report: Report) -> dict[str, Any] | None:
    """Return the bar of `fit`: weights, runtime memory with its range, and the cache."""
    bar = report.bar
    if bar is None:
        return None
    low, high = bar.runtime
    rest = max(0, bar.usable - bar.weights - high)
    sizes = {"weights": bar.weights, "runtime": low, "range": high - low, "cache": rest}
    return _shares(sizes, bar.memory, bar.parts(), bar.limits())


def _training_bar(report: Report) -> dict[str, Any] | None:
    """Return the bar of `train`: what a GPU holds at the peak; None without a GPU."""
    figures = {figure.name: figure for figure in report.figures}
    if report.command != "train" or not figures["gpu_memory"].value:
        return None
    kinds = {
        "weights": "weights",
        "states": "optimizer_states",
        "gradients": "gradients_at_peak",
        "activations": "activations_at_peak",
    }
    sizes = {kind: int(figures[name].value or 0) for kind, name in kinds.items()}
    allocated, high, memory = (
        int(figures[name].value or 0) for name in ("allocated", "needed_high", "gpu_memory")
    )
    sizes |= {"other": max(0, allocated - sum(sizes.values())), "range": high - allocated}
    labels = {
        **{kind: figures[name].label for kind, name in kinds.items()},
        "other": "other tensors",
    }
    labels["range"] = "allocator, CUDA context: up to"
    legend = {kind: f"{labels[kind]} {human(size, BYTES)}" for kind, size in sizes.items() if size}
    return _shares(sizes, memory, legend, f"One GPU has {human(memory, BYTES)}.")


def _shares(
    sizes: Mapping[str, int], memory: int, legend: Mapping[str, str], caption: str
) -> dict[str, Any]:
    """Return a bar as long as the memory, or what is needed if that is more. Sizes are in bytes."""
    length = max(memory, sum(sizes.values()))
    return {
        "pieces": [
            {"kind": kind, "share": size / length} for kind, size in sizes.items() if size > 0
        ],
        "memory": memory / length,
        "legend": [{"kind": kind, "text": text} for kind, text in legend.items()],
        "caption": caption,
    }
