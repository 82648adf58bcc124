"""What an engine's own launch command is made of, so that a pasted one can be read as options of
`attncalc fit`.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

from ..errors import AttncalcError
from ..records import NamedTuple
from ..units import truncate
from .arguments import Arguments

# What an option of an engine means: options of `attncalc fit`, AS_BY_DEFAULT, ADDS_NOTHING,
# NOT_USED or NOT_COMPUTED.
Meaning = Sequence[str] | None
# No option, since the value is what `attncalc fit` assumes.
AS_BY_DEFAULT: tuple[str, ...] = ()
# No option, since there is nothing to count: a lookup of n-grams has no layers.
ADDS_NOTHING: tuple[str, ...] = ()
# No figure includes it, and a note says so.
NOT_USED = None
# The same of a value that may change memory, which the note says too.
NOT_COMPUTED: tuple[str, ...] = ("not computed",)
# From the value of an engine's option to its meaning.
Reading = Callable[[str], Meaning]

# The value of --context that a reading returns for the model's own, which it does not know.
OWN_CONTEXT = "0"
# The end of a size that a reading returns: `attncalc fit` gets the sum.
OF_EACH_GPU = " GiB of each GPU"
# Keys of a config.json that change no memory.
_OF_POSITIONS = re.compile("rope_|max_position_embeddings$")
# Words in the names of options that may change memory, of an engine without a table of its
# arguments. An unknown option with none of them is left out.
_COULD_MATTER = (
    r"batch|cache|context|cp-size|cpu|ctx|dtype|draft|device|ep-size|expert|gpu|graph|kv|layer"
    r"|len\b|lora|mamba|mem"
    r"|mm-|mmproj|moe|num-(?!prompts)|offload|override|parallel|pool|quant|rope|seq|size|slots"
    r"|spec|split|swa"
    r"|token(?!izer)|tp|weight|window"
)


def not_used(value: str) -> Meaning:
    """The reading of an option that changes no memory."""
    return NOT_USED


def as_by_default(value: object) -> Sequence[str]:
    """The reading of an option that says nothing more."""
    return AS_BY_DEFAULT


def _as_written(words: Sequence[str]) -> Sequence[str]:
    return words


def check_only_positions(overrides: str) -> None:
    """Raise AttncalcError if a config's overrides have another key than those of rotary positions,
    which change no memory: YaRN.
    """
    others = [key for key in _overridden(overrides) if not _OF_POSITIONS.match(key)]
    if others:
        raise AttncalcError(
            f"'{truncate(others[0])}' overrides a value of the config.json, and may change memory",
            "leave it out to see the figures without it, or give a config.json with it",
        )


def _overridden(overrides: str) -> list[str]:
    """Return the keys of a config's overrides, with those of its text model: '{"text_config":
    {"rope_scaling": {}}}'.
    """
    try:
        found = json.loads(overrides)
        of_text = found.pop("text_config", {})
        return [*map(str, found), *map(str, {**of_text})]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return [overrides]


class LaunchWords(NamedTuple):
    """How the launch command of an engine is read."""

    example: str  # the command in its usual form, with the model last: 'vllm serve MODEL'
    # Matches a word, or two with a blank, that start the command, or its container's image: the
    # group `version` is the version of an image
    program: re.Pattern[str]
    # its names of the option for the model, which may also be the first word
    models: tuple[str, ...]
    # {its name of an option: that of `attncalc fit`, or a function of its value}; other names are
    # the same
    names: Mapping[str, str | Reading] = MappingProxyType({})
    # {its option without a value: its meaning}
    flags: Mapping[str, Meaning] = MappingProxyType({})
    # {such an option: options that the command has by default with it}
    defaults_with: Mapping[str, Sequence[str]] = MappingProxyType({})
    # its variables that may change memory, which no figure here includes; its options too, without
    # a table of its arguments
    unmodelled: tuple[str, ...] = ()
    # from a version of the engine to its arguments; None without a table of them
    arguments: Callable[[str | None], Arguments] | None = None
    has_others: bool = False  # whether there may be arguments that the table lacks
    # the words with the engine's own ways to write arguments: '--max_model_len'
    spelled: Callable[[Sequence[str]], Sequence[str]] = _as_written
    optional: tuple[str, ...] = ()  # its options whose value may be left out
    # {variable: the option of the command that it replaces, or a function of its value}
    environment: Mapping[str, str | Reading] = MappingProxyType({})
    # from the model's name to further options of `attncalc fit`, if the name decides any
    of_model: Callable[[str], Sequence[str]] = as_by_default
    # from the options of `attncalc fit` that a command means to those that it means without a word
    unsaid: Callable[[Collection[str]], Sequence[str]] = as_by_default
    # the same of the version of the container's image
    of_image: Callable[[str], Sequence[str]] = as_by_default
    # its options that differ between the nodes of one server; the value of those without one is ''
    of_node: tuple[str, ...] = ()
    placed: tuple[str, ...] = ()  # an option with the layers that it places on a GPU, and its value
    # From the bytes of a GPU's memory to the default tokens of context, if that decides them
    context: Callable[[int], int] | None = None
    # a program that starts the engine with defaults of its own, by its name for --engine
    runner: str = ""


def only_if_several(*options: str) -> Reading:
    """Return the reading of a number that stands for a flag: '--ep-size 8' is
    --enable-expert-parallel.
    """
    return lambda number: AS_BY_DEFAULT if number in ("0", "1") else options


def if_on(*options: str, otherwise: Meaning = AS_BY_DEFAULT) -> Reading:
    """Return the reading of a variable that stands for a flag: 'OLLAMA_FLASH_ATTENTION=1'."""
    return lambda value: (
        options if value.strip().lower() in ("1", "true", "on", "enabled") else otherwise
    )


def visible_gpus(devices: str) -> Meaning:
    """Return the number of GPUs that CUDA_VISIBLE_DEVICES names, for an engine that takes all it
    sees.
    """
    if devices.strip("-1 "):
        return ("--gpus", str(len(devices.split(","))))
    return NOT_USED


def could_matter(name: str) -> bool:
    """Return whether an option of that name may change the memory that an engine uses."""
    return re.search(_COULD_MATTER, name.lower()) is not None
