"""What a failed command line means: a question in words, a launch command, a message, a term; or its best tip."""

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any

from ..config.presets import hint, preset_of, presets
from ..config.user_files import piped_in
from ..errors import AttncalcError, BadValueError, MissingError, NoSuchModelError, NotUnderstoodError
from ..options import by_name
from ..report.glossary import is_term
from ..units import truncate
from ..vocabulary import NO_FIGURE
from .arithmetic import about_formula
from .gpu_words import instances_of
from .kinds import as_typed
from .pasted import launches, split_launch
from .pasted_message import about_message, asked_by_message
from .reading import ANY_MODEL, FOR_PROGRAMS, OF_WORDS, SEVERAL, Reading, numbers_given, readings_of
from .trial import printed_by, problem_of
from .words import FILES, OF_MODEL, Words

_OTHER_MODELS = "'attncalc presets' lists the built-in models; other models: 'attncalc kv org/name' or a config.json"
_MOST_TRIALS = 3
_CUT_PRICE = re.compile(r"(?i)(?<!\S)\.\d+ ?(?:/ ?h(?:r|our)?|per hour|an? hour|dollars?|usd)(?!\w)")
"""A price that lost its first digits: "$2.49/hr" is '.49/hr'."""
_TRAINERS = re.compile(r"(\S*/)?(torchrun|deepspeed|accelerate|axolotl|llamafactory-cli|tune|litgpt)\b")
"""What starts a training run."""


def answer(args: Sequence[str], root: Any, error: AttncalcError) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the arguments that those of a failed command mean, with what to say beside them; or the error with the
    best tip.

    Only a command that works is returned or named in a tip. If none does, the error has the reason as a further one.
    Raises AttncalcError for a price that lost digits.
    """
    typed, args, is_unknown = [*args], _in_order(args, root, error), isinstance(error, NotUnderstoodError)
    if " " in typed[0] and args[0] in root.list_commands(None) and problem_of(root, args) is None:
        return [*args], []  # a command line in quotation marks
    if is_unknown or args[:1] == ["explain"]:
        text = " ".join(args)
        asks_for_it = args[:1] == ["explain"] or "-" in args  # other commands leave it to the loop that they are in
        piped = piped_in().decode("utf-8", "replace") if asks_for_it else ""
        for whole in (text, *[f"{text}\n{piped}"] * bool(piped)):  # the command of a start, and what it printed
            of_message = asked_by_message(whole)
            if isinstance(of_message, AttncalcError):
                return of_message
            if of_message:
                return about_message(of_message, whole, typed, root)
    if is_unknown and launches(args):
        return _about_launch(args, root)
    if cut := _CUT_PRICE.search(" ".join(args)):
        tip = "put the question between single quotes, or write '2.5 dollars'"
        raise AttncalcError(f"'{cut[0]}' is no price: a shell leaves out $2 between double quotes", tip)
    words = Words(root, args[args[:1] == ["help"] :])
    is_settled = ("--" in args and not is_unknown) or (words.command in OF_WORDS and error.tip)
    special = _about_terms(words, args, root, error) if is_unknown or words.command == "explain" else None
    if special or not is_settled:
        return special or _about_words(words, args, root, error)
    return error if error.tip else AttncalcError(error.message, f"known: {', '.join(words.commands)}")


def _in_order(args: Sequence[str], root: Any, error: AttncalcError) -> Sequence[str]:
    """Return the words of a question in quotation marks, and the arguments with the command first: '--json kv gpt2'."""
    args = [word for before, arg in zip(["", *args], args, strict=False) for word in _unquoted(arg, before)]
    if not isinstance(error, NotUnderstoodError):
        return args
    args = (args[0].split() or args) if len(args) == 1 else args
    if "--" in args and not launches(args):  # 'fit qwen3-8b --gpu h100 -- torchrun ...', '-- what about 128k'
        place = args.index("--")
        of_trainer = _TRAINERS.match(" ".join(args[place + 1 :])) is not None
        args = [*args[of_trainer:place], *args[place + 1 :]]
    lead = next((i for i, word in enumerate(args) if not word.startswith("-")), 0)
    is_late = lead and args[lead] in root.list_commands(None)
    return [args[lead], *args[:lead], *args[lead + 1 :]] if is_late else args


def _unquoted(arg: str, before: str) -> list[str]:
    """Return the words of a sentence or a launch command in quotation marks, and another argument as it is."""
    words = arg.split() if " " in arg else []
    is_sentence = len(words) > 3 and "\n" not in arg and not (arg.startswith("-") or before.startswith("-"))
    return words if is_sentence or launches(words) else [arg]


def _about_terms(
    words: Words, args: Sequence[str], root: Any, error: AttncalcError
) -> tuple[list[str], list[str]] | AttncalcError | None:
    """Return the answer to a product of numbers, to 'help gqa', and to words after `explain`; None for other words."""
    typed, *asked = args
    if found := about_formula(
        " ".join(args), words.symbol, numbers_given(words.items(args)), is_measured=words.command is None
    ):
        return found
    if typed == "help":
        if is_term(" ".join(asked)):
            return ["explain", *asked], []
        meant = next(readings_of(words, [*asked, "gpt2"]))  # a model, as a command has one
        return AttncalcError(error.message, f"did you mean 'attncalc help {meant.args[0]}'?")
    if words.command != "explain":
        return None
    sized = (one for one in words.items(asked) if one.value and one.idea and OF_MODEL & {*one.idea.means.split()})
    if any(sized) or any(item.kind == "model" for item in words.items(asked)):
        args = [*asked, "--explain"]  # 'explain params gpt2', 'explain kv 32 layers' ask for that model's formulas
        return _about_words(Words(root, args), args, root, NotUnderstoodError(error.message, error.tip))
    reading = Reading("explain", words.options("explain"), None, "", is_meant=True)
    for item in words.items(" ".join(asked).split()):
        reading.add(item)
    reading.finish()
    is_some = len(reading.args) > 1 and not any(word.startswith("-") for word in asked)
    return (reading.args, reading.beside) if is_some and isinstance(error, BadValueError) else None


def _about_words(
    words: Words, args: Sequence[str], root: Any, error: AttncalcError
) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the command line that words mean, or the error with the best tip."""
    readings = readings_of(words, args)
    found, is_unknown = next(readings), isinstance(error, NotUnderstoodError)
    # '-c 8 K' is '-c 8K', 'sweep gpt2 -c 1k 2k', 'fit qwen3-32b-awq'
    found.is_new |= isinstance(error, NotUnderstoodError | NoSuchModelError | MissingError) and found.args != [*args]
    lacks = isinstance(error, MissingError) and "MODEL" not in found.missing
    names = instances_of(args) if is_unknown else []
    if names and (instance := _instance_for(words, args, root, names)):
        return instance.args, instance.beside
    if names and "--gpu all" in " ".join(found.args):
        found.args[found.args.index("all")] = ",".join(names)
        found.assumed = [*(one for one in found.assumed if one != "--gpu all"), "the instances of that cloud"]
    if not (is_unknown or ((found.is_new or lacks) and not found.unread)):
        return error
    if found.is_computed and FOR_PROGRAMS - {"--quiet", "-q"} & {*found.args}:
        lines = "; ".join(line for line in found.beside if line.startswith("answer: "))
        return AttncalcError(
            "the answer is that of a formula, which JSON and files lack", f"{lines}; --quiet prints it"
        )
    is_open = is_unknown and (found.unread or not found.is_meant)
    whole = (one for one in chain([found], readings) if is_open or not one.unread)
    return _tried(islice(whole, _MOST_TRIALS), words, args, root, error)


def _instance_for(words: Words, args: Sequence[str], root: Any, names: Sequence[str]) -> Reading | None:
    """Return the reading with the smallest instance on which the model fits: 'which aws instance'."""
    if not re.search(r"(?i)\b(instance|machine|vm|node|server)s?\b", " ".join(args)):
        return None
    found = next(one for one in readings_of(words, args) if one.args[0] == "fit")
    is_open = found.is_sure and "--gpu" not in found.options and preset_of(found.args[1])
    for name in names if is_open else ():
        if printed_by(root, [*found.args, "--gpu", name]).startswith("FITS"):
            found.args += ["--gpu", name]
            found.assumed.append(f"--gpu {name}, the instance with the least GPU memory on which it fits")
            return found
    return None


def _about_launch(args: Sequence[str], root: Any) -> tuple[list[str], list[str]] | AttncalcError:
    """Return `attncalc fit` of a pasted launch command with the words beside it; or why it does not work."""
    declared = root.get_command(None, "fit").callback.declared.values()
    command, words = split_launch(args, by_name(declared))
    question = ["fit", *words]
    of_question = Words(root, question)
    found = next(one for one in readings_of(of_question, question) if one.args[0] == "fit")
    lacking = (*found.missing, *found.assumed)
    output = [one for one in lacking if one.startswith("--output-len") and "--prompt" in found.options]
    # the command has a context
    found.assumed = [*(one for one in found.assumed if one.split()[0] in found.options), *output]
    own = [one for one in found.args[1:2] if "--" in args and one in words and not one.startswith("-")]  # MODEL
    unknown = [] if "--gpu" not in words or "--gpu" in found.options else words[words.index("--gpu") :][:2]
    meant = ["fit", *own, *found.options, *" ".join(output).split(), *unknown, "--", *command]
    if any(item.idea and "--rate" in item.idea.means for item in of_question.items(words)):
        model = next(filter(preset_of, command), "MODEL")
        plan = next(one for one in readings_of(Words(root, []), ["plan", model, *words]) if one.args[0] == "plan")
        tip = f"'{plan.command}' finds the GPUs for a rate"
    else:
        tip = f"did you mean 'attncalc {shlex.join(meant)}'?"
    problem = problem_of(root, meant)
    gaps = found.gaps if "--" in args else [one for one in found.unread if re.search(r"\d", one)]
    if gaps and problem is None:  # '--max-power 300W -- vllm serve', 'vllm serve MODEL 100 rps'
        return AttncalcError(f"not understood: {truncate(', '.join(gaps))}", tip)
    return problem or (meant, found.beside)


def _tried(
    readings: Iterable[Reading], words: Words, args: Sequence[str], root: Any, error: AttncalcError
) -> tuple[list[str], list[str]] | AttncalcError:
    """Return the arguments of the first reading that works, or the error with the best tip.

    It is run if nothing in it is a guess. A program's answer also has the command that was typed, and all words.
    """
    any_words = ("gpus", *OF_WORDS)
    trials = (
        (one, problem_of(root, [ANY_MODEL if each == "MODEL" else each for each in one.whole]))
        for i, one in enumerate(readings)
        if i == 0 or not (one.args[0] in any_words or one.is_one_row)
    )
    first = next(trials)
    found, problem = first if first[1] is None else next((trial for trial in trials if trial[1] is None), first)
    is_same = words.command in (None, found.args[0])
    dropped = [word for word in found.left_out if NO_FIGURE not in word]
    # '--csv' beside a list can only mean rows of `sweep`
    is_list = (found.args[0] == "sweep" and not found.is_one_row) or (
        found.args[0] == "compare" and "csv" in found.args
    )
    is_moved = isinstance(error, BadValueError) or not (is_same or is_list)
    is_doubtful = dropped or found.assumed or found.lacks or is_moved
    is_strict = is_doubtful and FOR_PROGRAMS & {*found.args} and not {"table", "latex", "markdown"} & {*found.args}
    is_said = not any(arg.startswith("-") for arg in args)  # 'in one sentence' is no option of a program
    is_strict = is_strict and not (found.is_computed or is_said)
    if problem and words.command is None and not found.doubts:
        return AttncalcError(problem.message, f"{problem.tip} (read as {truncate(shlex.join(found.whole), 200)})")
    # 'memory gpt2 --dtype int4' is no question of `fit`, but 'kv gpt2 -c 1K,2K' is one of `sweep`
    is_other = isinstance(error, BadValueError) and found.args[0] not in SEVERAL
    is_other = not is_same and (is_other or words.command == "verify")  # which alone measures
    if found.is_sure and found.is_new and not is_strict and not is_other and (is_same or problem is None):
        return problem or (found.args, [*found.checked(root), *found.beside])
    if not isinstance(error, NotUnderstoodError):
        if problem or ("MODEL" in found.missing and (found.unread or found.left_out)):  # 'kv no-such-model'
            return error
        if found.missing and is_same and isinstance(error, MissingError):
            return error if "MODEL" in found.missing else AttncalcError(error.message, f"for example: {found.command}")
    files = (word for word in found.gaps if re.search(r"[^\d]/(?!s$)", word) or word.endswith(FILES))
    if absent := next((word for word in files if not os.path.exists(word)), None):
        tip = "check the path; a config.json, a .yaml or a .gguf stands where MODEL does"
        return AttncalcError(f"no such file or folder: {truncate(absent)}", tip)
    tip = _tip(found, words, args, works=problem is None)
    whole = AttncalcError(_message(found, words, args, error), tip)
    whole.further = (problem,) if problem and (is_same or found.args[0] == "sweep") else ()
    return whole


def _message(found: Reading, words: Words, args: Sequence[str], error: AttncalcError) -> str:
    """Return the message of an error. Without a command it is about what is not understood: 'qwen3-8b --vram 8GB'."""
    if words.command or len(args) == 1:
        return error.message
    if gaps := found.blocking or found.gaps:
        return f"not understood: {truncate(', '.join(as_typed(one, args) for one in dict.fromkeys(gaps)), 80)}"
    missing = " and ".join(example.split()[0].replace("MODEL", "a model") for example in found.missing)
    return f"the question lacks {missing}" if missing else error.message


def _tip(found: Reading, words: Words, args: Sequence[str], *, works: bool) -> str:
    """Return the command that the arguments mean if it works, and what else to know."""
    command = found.args[0]
    dropped = (
        f"leave out {', '.join(as_typed(one, args) for one in named)}: {note}" for note, named in found.dropped.items()
    )
    all_notes = dict.fromkeys((*found.notes, *dropped, *found.lacks))
    notes = [note for note in all_notes if f"'attncalc {command} " not in note]
    unread, unknown = [*found.unread, *(word for word in found.left_out if " (" not in word)], list[str]()
    if len(unread) >= len(args):
        names_model = re.fullmatch(r"(?=.*\d)[A-Za-z][\w.]*[-:.\d][\w.:-]*", args[0])
        return f"{hint(args[0])}{_OTHER_MODELS}" if names_model else f"known: {', '.join(words.commands)}"
    if words.command is None and "MODEL" in found.missing and len(found.unread + found.left_out) > 2:
        return "'attncalc help' has the commands with examples, and 'attncalc explain' the terms that it explains"
    for word in map(truncate, unread):
        is_name = re.fullmatch(r"\d+(\.\d+)?[bB]|[a-z]{3,}", word) and any(one.matches(word) for one in presets())
        models = hint(word).rstrip("?; ") if re.search("[A-Za-z]", word) else ""
        models = models or (f"'attncalc presets {word}' lists models" if is_name else "")
        models = models if "MODEL" in found.missing or models.startswith("which one") else ""
        (notes if models else unknown).append(models or word)
    unknown = [word for word in unknown if words.command or word not in found.blocking]  # which the error names
    notes += [f"not understood: {', '.join(unknown)}"] if unknown else []
    others = [name.partition("=")[0] for name in args if name.startswith("-") and not words.has(name)]
    other = next((name for name in (*found.replaced, *others) if words.has(name, command)), None)
    if other and words.command not in (None, command):
        text = f"'{command}' has {truncate(other)}" + f": {found.command}" * works
    elif not works:
        text = f"'attncalc {command} --help' lists its options"
    else:
        text = f"for example: {found.command}" if "MODEL" in found.missing else f"did you mean '{found.command}'?"
    model = found.args[1] if len(found.args) > 1 and not found.args[1].startswith("-") else ANY_MODEL
    return "; ".join((text, *notes)).replace("?;", "?").replace("MODEL", model)
