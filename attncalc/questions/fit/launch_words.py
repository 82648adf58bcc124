"""A pasted launch command as a question: `attncalc fit --gpu h100 -- vllm serve Qwen/Qwen3-8B -tp
2`.
"""

import contextlib
import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise, zip_longest
from math import prod
from typing import Any

from ...config import load
from ...config.gpus import gpus_of
from ...config.presets import of_ollama, of_other_machine, with_file_type
from ...engines import ENGINES, find_engine
from ...engines.arguments import COMPUTED, MAY_CHANGE, VALUE, VALUES, Argument, Arguments
from ...engines.pasted import (
    NOT_COMPUTED,
    NOT_USED,
    OF_EACH_GPU,
    OWN_CONTEXT,
    LaunchWords,
    Meaning,
    could_matter,
)
from ...errors import AttncalcError, nearest
from ...ggml import WIDE_TYPES
from ...model import ModelSpec, plural
from ...options import Option
from ...records import NamedTuple
from ...serving.weight_format import released_dtype
from ...show.lists import tell
from ...units import hyphens, parse_count, truncate
from ..pasted_words import MOST_WORDS, check_models, first_argument, is_option, value_of, words_of
from .launch_arguments import Given, read_arguments

# Digits of a number that is compared here: a longer one is left to its option, which has an error
# for it.
_MOST_DIGITS = 18
# Programs that run the launch command behind their own options.
_STARTERS = {"docker", "podman", "nerdctl", "sudo", "env", "nohup", "srun", "uv", "uvx"}
# A variable that is set before a command, or by an option of docker: 'A=1', '-e A=1', '--env=A=1'.
_VARIABLE = r"(?:-e|--env=)?([A-Z][A-Z0-9_]*)=(.*)"
# A value of --gpu that is a file: 'box.yaml', '2xbox.yaml:70GiB'.
_GPU_FILE = r"\.ya?ml\b"
# Options of attncalc that no engine has, beside those of the command line only, as --json.
_OWN = {
    "--gpu",
    "--gpus",
    "--users",
    "--price",
    "--weights-dtype",
    "--shared-prefix",
    "-o",
    "-h",
    "--help",
}
_DRAFT_MODEL = "--speculative-model"
_DRAFT_LAYERS = "--speculative-layers"
# Values of --quantization that convert the weights; that need a checkpoint of their own, by their
# beginning: 'awq_marlin'; and the dtypes of such checkpoints.
_CONVERTING = ("fp8", "bitsandbytes")
_OF_CHECKPOINTS = ("awq", "gptq")
_INTEGERS = ("int4", "int8")


class _Start(NamedTuple):
    """Where a command starts its engine."""

    engine: str  # by attncalc's name
    title: str
    words: LaunchWords
    version: str | None  # of the container's image
    first: int  # the index of its first argument


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def begins_launch(words: Sequence[str]) -> bool:
    """Return whether the words are a command that starts an engine, which may be one text, or run
    by another.
    """
    if words and " " in words[0]:
        words = words[0].split()
    if not words or _start(words) is None:
        return False
    return words[0] in _STARTERS or begin_of(words) == 0


def launches(words: Sequence[str]) -> bool:
    """Return whether the words start an engine that is known here."""
    return _start(words) is not None


def begin_of(args: Sequence[str]) -> int | None:
    """Return where a launch command begins among words; None without one."""
    start = _start(args)
    if start is None:
        return None
    begin = start.first - 1
    while begin and not start.words.program.fullmatch(" ".join(args[begin : start.first])):
        begin -= 1
    while begin and re.fullmatch(
        r"-m|(?:.*/)?python[\d.]*|uv|run|sudo|nohup|exec|\w+=\S*", args[begin - 1]
    ):
        begin -= 1
    return begin


def options_of_launch(
    words: Sequence[str], options: Mapping[str, Option]
) -> tuple[list[str], dict[str, str]]:
    """Return the options of a command that starts an engine, without its model, and the variables
    that are set before it.

    A word after an option of the engine that is not known counts as its value.
    """
    start = _start(words)
    assert start is not None
    known = start.words
    variables = _variables(words[: start.first])
    found: list[str] = []
    has_model = any(word.partition("=")[0] in known.models for word in words[start.first :])
    rest = list(reversed(words[start.first :]))
    while rest:
        word = rest.pop()
        if not is_option(word):
            if has_model:
                found.append(word)
            has_model = True
            continue
        name, has_value, _ = word.partition("=")
        is_flag = _is_flag(known, hyphens(name), options)
        takes_next = not has_value and not is_flag and rest and not is_option(rest[-1])
        value = [rest.pop()] if takes_next else []
        if name not in known.models:
            found += [word, *value]
    return found, variables


def _is_flag(known: LaunchWords, name: str, options: Mapping[str, Option]) -> bool:
    """Return whether an option of a command takes no value."""
    argument = known.arguments(None).by_name.get(name) if known.arguments else None
    if argument or (known.arguments and not known.has_others):
        return argument is not None and not argument.takes_value
    option = options.get(name)
    return name in known.flags or (option is not None and not option.metavar)


def with_engine_json(words: Sequence[str], options: Mapping[str, Option]) -> list[str]:
    """Return the words with each JSON object in the place of an option's value as options of
    `attncalc fit`.

    An engine's option of that name takes it: '--speculative-config {...}' has a model and a number
    of tokens.
    """
    parted: list[str] = []
    for word in words:
        if re.match(r"--[\w-]+={", word):
            parted += word.split("=", 1)
        else:
            parted.append(word)
    found: list[str] = []
    for word in parted:
        option = options.get(found[-1]) if found and word.startswith("{") else None
        read = _read_json(option.name, word) if option else NOT_USED
        if read:
            found[-1:] = read
        else:
            found.append(word)
    return found


def _read_json(name: str, value: str) -> Meaning:
    """Return what the engine that has an option of that name makes of its value."""
    for engine in map(find_engine, ENGINES):
        for known in engine.commands:
            reading = known.names.get(name)
            if callable(reading):
                return reading(value)
    return NOT_USED


def expand(
    before: Sequence[str],
    command: Sequence[str],
    options: Mapping[str, Option],
    names: Mapping[str, Any],
) -> list[str]:
    """Return the arguments of `attncalc fit`, with a pasted command as options; a note names those
    that are not used.

    `before` has the arguments before the command, which replace the same options of it. The command
    is its words, or one text with all of them. `options` change figures; `names` has all of
    `attncalc fit`: --get too.

    Raises AttncalcError if it starts no known engine, or an unknown option may change memory.
    """
    words = _of_one_node(command) or words_of(command)
    start = _start(words[:MOST_WORDS])
    if start is None or len(words) > MOST_WORDS:
        raise _unknown_command(words)
    typed = (word.partition("=")[0] for word in before)
    given = {options[name].name for name in typed if name in options}
    reader = _Reader(start, options, given, names, _version(start, before, words[: start.first]))
    model = reader.read(words[start.first :])
    model = reader.read_variables(words[: start.first]) or model
    before = reader.read_starter(words[: start.first], before)
    if start.version:
        reader.add(("--engine-version", start.version, *start.words.of_image(start.version)))
    if value_of("--engine", words=before) in (None, start.engine):
        reader.add(start.words.unsaid({*given, *reader.found}))
    reader.choose_drafter(model)
    before = reader.only_used_gpus(before)
    reader.add_up_gpus(before)
    own = first_argument(before, names) or value_of("--preset", "-p", words=before)
    model = reader.not_replaced(model, own)
    named = own
    if model:
        named = reader.name_model(model)
    if not named and "--layers" not in before:
        raise AttncalcError(
            "a model is required", f"name it in the command, as {start.words.example}"
        )
    reader.add_default_context(named)
    reader.check_quantization(named)
    # another engine's command has no such keys
    if reader.has("--engine") and start.engine not in before:
        reader.found.pop("--speculative-config", None)
    reader.add(("--engine", start.words.runner or start.engine))
    reader.note()
    found = [word for words in reader.found.values() for word in words]
    if model and named:
        return [*before, named, *found]
    return [*before, *found]


def _variables(words: Sequence[str]) -> dict[str, str]:
    """Return the variables that are set before a command."""
    assigned = filter(None, (re.fullmatch(_VARIABLE, word) for word in words))
    return {match[1]: match[2] for match in assigned}


def _version(start: _Start, before: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the version of the command's engine: that before the command, of a variable, of its
    image, or of starts that were measured on the GPU; None for the newest.
    """
    of_command = start.version
    for name, value in _variables(words).items():
        reading = start.words.environment.get(name)
        meaning = reading(value) if callable(reading) else None
        of_command = value_of("--engine-version", words=meaning or ()) or of_command
    engine = value_of("--engine", words=before)
    if engine in (None, start.engine):
        of_command = value_of("--engine-version", words=before) or of_command
    return of_command or _measured_version(start, before)


def _measured_version(start: _Start, before: Sequence[str]) -> str | None:
    """Return the version of the command's engine that a GPU file has; None without one."""
    name = value_of("--gpu", words=before)
    if name is None or not re.search(_GPU_FILE, name):
        return None
    with contextlib.suppress(AttncalcError):  # which fit explains
        return gpus_of(name)[1].measured_version(start.engine)
    return None


def _of_one_node(command: Sequence[str]) -> list[str]:
    """Return the words of the first of several commands, one per line, that start a server on
    several nodes; [] for anything else.

    Raises AttncalcError if they differ in more than the node.
    """
    lines = command[0].replace("\\\n", " ").splitlines() if len(command) == 1 else []
    commands = [words for words in map(_words_of_line, lines) if begins_launch(words)]
    if len(commands) < 2:
        return []
    first, *others = (_without_node(words) for words in commands)
    for other in others:
        if other != first:
            pairs = zip_longest(first, other, fillvalue="")
            one, two = next(pair for pair in pairs if pair[0] != pair[1])
            raise AttncalcError(
                f"the commands of several lines start different servers: '{truncate(one)}' and "
                f"'{truncate(two)}'",
                "give one of them",
            )
    return commands[0]


def _words_of_line(line: str) -> list[str]:
    """Return the words of a line of a shell, without its comment."""
    with contextlib.suppress(ValueError):  # a quotation mark without its other
        return shlex.split(line, comments=True)
    return line.split()


def _without_node(words: Sequence[str]) -> list[str]:
    """Return the words without the options that differ between the nodes of one server."""
    start = _start(words)
    assert start is not None
    left: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        name = hyphens(word.partition("=")[0])
        if name not in start.words.of_node:
            left.append(word)
        elif "=" not in word and name not in start.words.flags and rest:
            rest.pop()
    return left


def _unknown_command(words: Sequence[str]) -> AttncalcError:
    examples = [
        f"'{known.example}'" for engine in map(find_engine, ENGINES) for known in engine.commands
    ]
    return AttncalcError(
        f"'{truncate(' '.join(words), 60)}' starts no engine that is known here",
        f"after -- comes {', '.join(examples[:-1])} or {examples[-1]}",
    )


def _start(words: Sequence[str]) -> _Start | None:
    """Return where the words start an engine, at the last such place: an image may be followed by a
    program.
    """
    found = None
    version = None
    for engine in map(find_engine, ENGINES):
        for known in engine.commands:
            for i, word in enumerate(words):
                for length, text in ((1, word), (2, " ".join(words[i : i + 2]))):
                    if match := known.program.fullmatch(text):
                        version = match.groupdict().get("version") or version
                        found = _Start(engine.name, engine.title, known, version, i + length)
    return found


def _load(model: str) -> ModelSpec | None:
    """Return the model of that name; None if it is not known yet."""
    with contextlib.suppress(OSError, ValueError, AttncalcError):  # which fit explains
        return load(with_file_type(model)[0])
    return None


class _Reader:
    """Reads the arguments of an engine's command."""

    def __init__(
        self,
        start: _Start,
        options: Mapping[str, Option],
        given: set[str],
        names: Collection[str] = (),
        version: str | None = None,
    ) -> None:
        self.found: dict[str, tuple[str, ...]] = {}  # {option of `attncalc fit`: its words}
        self._start = start
        self._options = options
        self._given = given
        self._names = names
        self._version = version
        # arguments of an engine that may have others
        self._others: Mapping[str, Argument] = {}
        if start.words.has_others and start.words.arguments:
            self._others = start.words.arguments(None).by_name
        self._unused: list[str] = []
        self._not_computed: list[str] = []
        self._quantization = ""  # the value of an engine's --quantization
        self._is_command_read = False

    def add(self, words: Sequence[str]) -> None:
        """Add options with their values, without those that are given already."""
        rest = tuple(words)
        while rest:
            option = self._options[rest[0]]
            length = 2 if option.metavar else 1
            if not self.has(option.name):
                self.found[option.name] = rest[:length]
            rest = rest[length:]

    def has(self, name: str) -> bool:
        """Return whether an option is given, before the command or in it."""
        return name in self._given or name in self.found

    def choose_drafter(self, model: str | None) -> None:
        """Keep a draft model or a number of layers. A command has both: '--speculative-algorithm
        EAGLE3' with a path.

        A draft model that is the model itself is its multi-token prediction.
        """
        drafter = self.found.get(_DRAFT_MODEL)
        if drafter and (drafter[1] == model or _DRAFT_LAYERS in self._given):
            del self.found[_DRAFT_MODEL]
        elif drafter or _DRAFT_MODEL in self._given:
            self.found.pop(_DRAFT_LAYERS, None)
        if _DRAFT_MODEL in self.found:
            name, file_type = of_other_machine(self.found[_DRAFT_MODEL][1])
            if file_type in WIDE_TYPES and released_dtype(load(name)) is None:
                file_type = None  # as released
            self.found[_DRAFT_MODEL] = (_DRAFT_MODEL, f"{name}:{file_type}" if file_type else name)

    def name_model(self, model: str) -> str:
        """Return the name by which the command's model is known here; its weights have the type in
        the name of its file.
        """
        asked = of_ollama(model) if self._start.words.runner else model
        named, file_type = of_other_machine(asked)
        if model != named:
            self.add(("--served-model", model))
            tell(f"note: {truncate(model)} is not here, and is read as {named}, by its name")
        if file_type:
            self.add(("--weights-dtype", file_type))
        return named

    def add_default_context(self, model: str | None) -> None:
        """Add the model's own context, which engines take without an option, unless one is given,
        or a GPU or a program such as Ollama decides.
        """
        asked = self.found.get("--context", ())
        must_be_own = asked[1:] == (OWN_CONTEXT,)
        if must_be_own:
            del self.found["--context"]
        if model is None:
            return
        if self._start.words.runner or any(map(self.has, ("--context", "--prompt"))):
            return
        if self.has("--gpu") and not must_be_own:
            return
        loaded = _load(model)
        if loaded and loaded.max_context:
            self.add(("--context", str(loaded.max_context)))
            tell(f"note: --context {loaded.max_context} is the command's default")

    def check_quantization(self, model: str | None) -> None:
        """Raise AttncalcError if --quantization is another method than that of a known checkpoint,
        which vLLM and SGLang refuse: 'vllm serve Qwen/Qwen3-32B-AWQ --quantization fp8'.

        Source: _verify_quantization in vLLM's config/model.py and SGLang's
        configs/model_config.py; get_quant_config, for a checkpoint without a method.
        """
        method = self._quantization
        if not model or not method:
            return
        loaded = _load(model)
        if loaded is None or loaded.stored:
            return
        own = released_dtype(loaded)
        start = f"{self._start.title} does not start with --quantization {method}"
        if own in _INTEGERS and method in _CONVERTING:
            raise AttncalcError(
                f"{start}, since {model} has weights in {own}",
                "leave --quantization out: the checkpoint says what it is",
            )
        is_plain = own is None and not loaded.unread_quantization
        if is_plain and "--weights-dtype" not in self.found and method.startswith(_OF_CHECKPOINTS):
            raise AttncalcError(
                f"{start}, since {model} has no quantized weights",
                "name a quantized checkpoint of it, as 'org/name-AWQ'",
            )

    def not_replaced(self, model: str | None, own: str | None) -> str | None:
        """Return the command's model; None if MODEL says what it is, and then the launch command
        still loads it.

        Raises AttncalcError if the command's model is known, and another one than MODEL.
        """
        check_models(own, model)
        if model and own:
            self.add(("--served-model", model))
        if own:
            return None
        return model

    def only_used_gpus(self, before: Sequence[str]) -> list[str]:
        """Return the arguments before the command with as many GPUs as it uses; a note names the
        others.

        vLLM and SGLang use one GPU unless an option divides the model or the requests; llama.cpp
        uses all.
        """
        named = {
            self._options[name].name: value
            for name, value in pairwise(before)
            if name in self._options
        }
        values = {name: words[-1] for name, words in self.found.items()} | named
        if find_engine(self._start.engine).splits_by_layer or "--gpu" not in named:
            return list(before)
        with contextlib.suppress(ValueError):  # a number that fit explains
            there = int(named.get("--gpus") or gpus_of(named["--gpu"])[0] or 1)
            used = prod(int(values.get(option, 1)) for option in ("--tp", "--pp", "--dp"))
            if used < there:
                all_of_them = there // used * int(values.get("--tp", 1))
                if not {"--tp", "--pp", "--dp"} & named.keys():
                    note = f"the command uses {plural(used, 'GPU')} of {there}"
                    if there % used == 0:
                        note += f"; with -tp {all_of_them} it uses all"
                    tell(f"note: {note}")
                rest = [
                    word
                    for i, word in enumerate(before)
                    if "--gpus" not in (word, before[i - 1] if i else "")
                ]
                return [*rest, "--gpus", f"{used}"]
        return list(before)

    def add_up_gpus(self, before: Sequence[str]) -> None:
        """Replace the sizes of each GPU by those of all GPUs."""
        values = {name: words[-1] for name, words in self.found.items()} | dict(pairwise(before))
        sizes = {name: int(text) for name, text in values.items() if _is_number(text)}
        number = re.match(r"(\d+) ?x", values.get("--gpu", ""))
        gpus = sizes.get("--gpus", int(number[1]) if number else 1)
        if "--tp" in sizes:  # otherwise each GPU has a part of the model
            gpus = sizes["--tp"] * sizes.get("--pp", 1)
        for name, (option, *value) in self.found.items():
            if value and value[0].endswith(OF_EACH_GPU):
                with contextlib.suppress(ValueError):
                    self.found[name] = (
                        option,
                        f"{float(value[0].removesuffix(OF_EACH_GPU)) * gpus:g}GiB",
                    )

    def read(self, words: Sequence[str]) -> str | None:
        """Add the options of the words, and return the model; None if they name none.

        Raises AttncalcError for an option that the engine does not have; without a table of all its
        options, for one that is not known and may change memory.
        """
        known = self._start.words
        if known.arguments and not known.has_others:
            return self._read_arguments(words)
        return self._read_words(words)

    def _read_words(self, words: Sequence[str]) -> str | None:
        """Read the words of an engine without a table of all its arguments."""
        known = self._start.words
        words = known.spelled(words)
        model = None
        swallowed = []
        bare = list[int]()
        read: dict[object, str] = {}  # {what an option is: its name in the command}
        defaults: list[str] = []
        rest = list(reversed(words))
        while rest:
            word = rest.pop()
            if not is_option(word):
                bare.append(len(words) - len(rest) - 1)
                continue
            name, has_value, value = word.partition("=")
            name = hyphens(name)
            self._check_name(name, read)
            if self._use_without_option(name, rest):
                defaults += known.defaults_with.get(name, ())
                continue
            option = self._option(name)
            if name not in known.names and option and not option.metavar:
                self.add((name if "/" in option.names[0] else option.name,))
                continue
            if not has_value:
                value = self._next_value(name, rest)
            if name in known.models:
                model = value
            elif not self._use_value(name, value):
                self._leave_out(name)
                swallowed.append(value)
        self.add(defaults)
        if model is None and bare:
            model = words[bare.pop(0)]
        for i in bare:
            self._leave_out_bare(words, i)
        # 'lms load --new-flag org/name': the flag has no value, and the model follows
        return model or next(filter(_is_repository, swallowed), None)

    def _read_arguments(self, words: Sequence[str]) -> str | None:
        """Read the words of an engine whose arguments are known."""
        known = self._start.words
        assert known.arguments
        arguments = known.arguments(self._version)
        spelled = known.spelled(words)
        for word in spelled:
            name = word.partition("=")[0]
            if is_option(word) and name not in arguments.by_name:
                self._check_own(name)
                self._check_other_name(name, arguments)
        bare, found = read_arguments(spelled, arguments)
        model = None
        read: dict[object, str] = {}
        for given in found:
            if set(given.argument.names).intersection(known.models):
                self._check_twice(given.name, known.models, read)
                model = given.values[0]
            elif given.argument.memory == COMPUTED:
                self._use_argument(given, read)
            elif given.argument.memory == MAY_CHANGE:
                self._not_computed.append(given.name)
            else:
                self._unused.append(given.name)
        if model is None and bare:
            model = bare.pop(0)
        if bare:
            raise AttncalcError(
                f"unexpected word in the command: {truncate(bare[0])}",
                f"the command is as '{known.example}'",
            )
        return model

    def _use_argument(self, given: Given, read: dict[object, str]) -> None:
        """Add what an argument means that figures include."""
        known = self._start.words
        if given.whole in known.flags:
            self.use(given.name, known.flags[given.whole])
            return
        named = [name for name in given.argument.names if name in known.names]
        name = next(iter([*named, *filter(self._options.get, given.argument.names)]), given.whole)
        option = self._options.get(name)
        if given.argument.takes_value:
            meaning = known.names.get(name, option)
            if callable(meaning):  # which other arguments may have too
                meaning = given.argument.names[0]
            self._check_twice(given.name, meaning, read)
            if "--quantization" in given.argument.names:
                self._quantization = given.values[0]
            self._use_value(name, " ".join(given.values), given.name)
        elif given.whole in self._options:
            assert option
            self.add((given.whole if "/" in option.names[0] else option.name,))
        elif option:  # --no-enforce-eager is the default, unless it stands after --enforce-eager
            self.found.pop(option.name, None)

    def _option(self, name: str) -> Option | None:
        """Return the option of `attncalc fit` of that name, which may be another engine's."""
        if name in self._start.words.unmodelled:
            return None
        return self._options.get(name)

    def _use_value(self, name: str, value: str, written: str = "") -> bool:
        """Add what an option with this value means, and return whether the option is known."""
        reading = self._start.words.names.get(name)
        if callable(reading):
            self._check_set(name, reading(value))
            self.use(written or name, reading(value))
            return True
        option = self._option(name)
        own = option.name if option else reading
        if own is None:
            return False
        if value != "auto":
            self.add((own, value))
        return True

    def _check_name(self, name: str, read: dict[object, str]) -> None:
        """Raise AttncalcError for an option that attncalc alone has, or that the command has
        already.

        `read` are {what an option is: its name in the command}, to which this one is added.
        """
        known = self._start.words
        reading = known.names.get(name)
        option = self._options.get(name)
        if reading is None and name not in (*known.flags, *known.models, *known.unmodelled):
            self._check_own(name)
        meaning = reading or option or (known.models if name in known.models else None)
        # which may be repeated
        is_flag = reading is None and option is not None and not option.metavar
        if meaning is None or is_flag or name in known.flags:
            return
        self._check_twice(name, meaning, read)

    def _check_own(self, name: str) -> None:
        """Raise AttncalcError for an option that attncalc alone has."""
        is_of_screen = name in self._names and name not in self._options and name[:2] == "--"
        if name in _OWN or is_of_screen:
            raise AttncalcError(
                f"{name} is an option of attncalc",
                f"give it before the command: attncalc fit {name} ... -- COMMAND",
            )

    def _check_other_name(self, name: str, arguments: Arguments) -> None:
        """Raise AttncalcError for an option that this engine has under another name: '--tp' is
        vLLM's -tp.
        """
        option = self._options.get(name)
        if option is None or arguments.begins(name):
            return
        names = [part for each in (*option.names, *option.also) for part in each.split("/")]
        own = next((each for each in names if each in arguments.by_name), None)
        if own:
            raise AttncalcError(
                f"{arguments.title} has no argument {name}", f"write {own}, which is the same"
            )

    def _check_twice(self, name: str, meaning: object, read: dict[object, str]) -> None:
        """Raise AttncalcError if the command has an option of that meaning already; add it to
        `read` otherwise.
        """
        if callable(meaning):  # several options may share a function
            meaning = name
        key = meaning if isinstance(meaning, str) else id(meaning)
        if key in read:
            other = f", with {read[key]}" if read[key] != name else ""
            raise AttncalcError(f"{name} is given twice in the command{other}", "give it once")
        read[key] = name

    def _check_set(self, name: str, meaning: Meaning) -> None:
        """Raise AttncalcError if the command has set an option of `fit` to another value: '-c 8192
        --ctx-size 4096'.

        Tests of llama-bench have a context each.
        """
        is_bench = "bench" in self._start.words.example
        if self._is_command_read or is_bench:
            return
        if not meaning or meaning is NOT_COMPUTED:
            return
        option, *value = meaning
        before = self.found.get(option)
        if option not in ("--context", "--batch", "--kv-dtype") or before is None:
            return
        if before[1:] != tuple(value):
            raise AttncalcError(
                f"{name} {truncate(value[0])} contradicts {truncate(before[1])}", "give one of them"
            )

    def _next_value(self, name: str, rest: list[str]) -> str:
        """Return the word after an option, taken from `rest`; '' if it has none.

        Raises AttncalcError if it needs one. '-fa' of llama.cpp may stand alone.
        """
        if rest and not is_option(rest[-1]):
            return rest.pop()
        known = self._start.words
        is_used = name in (*known.names, *known.models) or (
            name in self._options and name not in known.unmodelled
        )
        if is_used and name not in known.optional:
            raise AttncalcError(f"{name} needs a value", f"the command is as '{known.example}'")
        return ""

    def _use_without_option(self, name: str, rest: list[str]) -> bool:
        """Add what a flag means, or note an argument that no figure includes, whose values are
        taken from `rest`; return whether it is one of them.
        """
        known = self._start.words
        if name in known.flags:
            self.use(name, known.flags[name])
            return True
        argument = self._others.get(name)
        is_read = name in known.names or name in known.unmodelled
        if argument is None or argument.memory == COMPUTED or is_read:
            return False
        if argument.memory == MAY_CHANGE:
            self._not_computed.append(name)
        else:
            self._unused.append(name)
        number = {VALUE: 1, VALUES: 2}.get(argument.takes, 0)
        while number and rest and not is_option(rest[-1]):
            rest.pop()
            number -= 1
        return True

    def _leave_out_bare(self, words: Sequence[str], i: int) -> None:
        """Note a word that is neither the model nor of an option: a prompt, or a further value of
        an unused option.

        Raises AttncalcError for any other, which the engine would refuse: 'vllm serve MODEL on
        h100'.
        """
        before = [word for word in words[:i] if is_option(word)]
        option = hyphens(before[-1].partition("=")[0]) if before else ""
        known = self._start.words
        is_used = option in known.names or option in self._options or option in known.models
        is_of_list = bool(option) and not (is_used and option not in self._unused)
        if not (is_of_list or known.runner):
            raise AttncalcError(
                f"unexpected word in the command: {truncate(words[i])}",
                f"the command is as '{known.example}'",
            )
        self._unused.append(words[i])

    def read_variables(self, words: Sequence[str]) -> str | None:
        """Add the options that environment variables before the command, or else around attncalc,
        stand for.

        Return the model that one names.
        """
        typed = _variables(words)
        known = self._start.words.environment
        known_in_full = self._start.words.arguments and not self._start.words.has_others
        model = None
        self._is_command_read = True  # whose options replace the variables
        around = {name: os.environ[name] for name in known if name in os.environ}
        for name in typed:
            around.pop(name, None)
        for name, value in (typed | around).items():
            before = dict(self.found)
            reading = known.get(name)
            if isinstance(reading, str) and known_in_full:
                self.add((reading, value))  # which the version may lack as an argument
            elif isinstance(reading, str):
                model = self.read([reading, value]) or model
            elif reading:
                self.use(name, reading(value))
            else:
                self._leave_out(name, may_matter=False)
            if name in around and self.found != before:
                tell(f"note: {name}={truncate(value)} of the environment is used")
        return model

    def read_starter(self, words: Sequence[str], before: Sequence[str]) -> list[str]:
        """Return the arguments before the command, with the number of GPUs that a container sees:
        'docker run --gpus 2'. The other options of the program that starts it are noted as not
        used.

        Raises AttncalcError if the number is another than that of the arguments.
        """
        seen = None
        for i, word in enumerate(words):
            name, has_value, value = word.partition("=")
            sets_variable = word in ("-e", "--env") or re.fullmatch(_VARIABLE, word)
            names_module = word == "-m" and i == len(words) - 2  # python -m
            if sets_variable or names_module or not is_option(word):
                continue
            if not has_value and i + 1 < len(words):
                value = words[i + 1]
            if name == "--gpus" and value == "all":
                continue
            number = _gpus_of_container(value) if name == "--gpus" else None
            if number is None:
                self._unused.append(truncate(name))
            else:
                seen = number
        if seen is None:
            return list(before)
        if "--gpu" not in before:
            self._unused.append("--gpus")
            return list(before)
        return _with_gpus_of_container(before, seen)

    def note(self) -> None:
        """Name the options that are not used, and those of them that may change memory."""
        if self._unused:
            tell(f"note: not used: {', '.join(dict.fromkeys(self._unused))}")
        if self._not_computed:
            names = ", ".join(dict.fromkeys(self._not_computed))
            tell(f"note: not computed, and may change memory: {names}")

    def use(self, name: str, meaning: Meaning) -> None:
        """Add what an option or a variable means; a note names it if it is not used.

        Of several contexts it is the longest: each test of llama-bench has its own.
        """
        if meaning is NOT_USED:
            self._unused.append(name)
            return
        if meaning is NOT_COMPUTED:
            self._not_computed.append(name)
            return
        if "--context" in self.found and meaning[:1] == ("--context",):
            before = self.found["--context"][1]
            if _is_number(before) and _is_number(meaning[1]) and int(before) < int(meaning[1]):
                del self.found["--context"]
        self.add(meaning)

    def _leave_out(self, name: str, *, may_matter: bool = True) -> None:
        """Note a word that is not known. Raises AttncalcError if it is an option that may change
        memory.
        """
        name = truncate(name)
        if name in self._start.words.unmodelled:
            self._not_computed.append(name)
            return
        if may_matter and could_matter(name):
            # without hyphens, which make any two names alike
            close = nearest(name.lstrip("-"), [known.lstrip("-") for known in self._others])
            hint = f"did you mean '--{close}'? Otherwise " if close else ""
            raise AttncalcError(
                f"{name} of {self._start.title} is not known here, and may change memory",
                f"{hint}leave it out to see the figures without it",
            )
        self._unused.append(name)


def _gpus_of_container(value: str) -> int | None:
    """Return how many GPUs a value of docker's --gpus is: 2 for '2', 'count=2' and
    '"device=0,1"'; None for another.

    Raises AttncalcError for no GPU.
    """
    text = value.strip("'\"")
    devices = re.fullmatch(r"device=([\w-]+(?:,[\w-]+)*)", text)
    if devices:
        return len(devices[1].split(","))
    number = text.removeprefix("count=")
    if not _is_number(number):
        return None
    if int(number) == 0:
        raise AttncalcError(
            f"the container sees no GPU (--gpus {truncate(value)} of the command)",
            "give --gpus all in the command, or the number of GPUs",
        )
    return int(number)


def _is_repository(word: str) -> bool:
    return re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", word) is not None


def _with_gpus_of_container(before: Sequence[str], seen: int) -> list[str]:
    """Return the arguments before the command with the number of GPUs that a container sees.

    Raises AttncalcError if they have another number.
    """
    values = dict(pairwise(before))
    given = values.get("--gpus")
    there = gpus_of(values["--gpu"])[0] if given is None else parse_count(given, "--gpus")
    if there is None:
        return [*before, "--gpus", f"{seen}"]
    if there != seen:
        raise AttncalcError(
            f"the container sees {plural(seen, 'GPU')} (--gpus of the command), and attncalc is "
            f"given {there}",
            "give both the same number",
        )
    return list(before)
