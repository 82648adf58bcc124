"""What trainers take without being told, by release: the defaults of trainers.txt."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from ...records import NamedTuple
from .recipes import OF_ADAPTERS, meanings, same_meaning

_TEXT = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
_LINES = [line.partition(" = ") for line in _TEXT.splitlines() if line[:1] not in ("", "#")]
# The value of a key that the data or the machine has.
OPEN = "?"


class Defaults(NamedTuple):
    """What a trainer takes without these keys."""

    trainer: str
    release: str
    keys: dict[str, str]  # {key: its value by default}, of those that the command leaves open
    open: list[str]  # keys whose value the data or the machine has


def _by_name(kind: str) -> dict[tuple[str, str], tuple[str, dict[str, str]]]:
    """Return {(trainer, name): (its release, {key: value})} of the lines of one kind."""
    found: dict[tuple[str, str], tuple[str, dict[str, str]]] = {}
    for head, _, text in _LINES:
        if head.startswith(f"{kind} "):
            _, trainer, release, *names = head.split()
            pairs = dict(pair.split() for pair in text.split(","))
            found |= {(trainer, name): (release, pairs) for name in names}
    return found


_DEFAULTS = _by_name("DEFAULTS")
_SEVERAL = _by_name("SEVERAL")
# [(trainer, subcommand, beginnings of keys that its files have)], the more specific first.
_FILES = [
    (head.split()[1], head.split()[2], tuple(text.split()))
    for head, _, text in _LINES
    if head.startswith("FILE ")
]
# {name of a model in a trainer's configuration: a model of attncalc, or options}.
MODELS = {head.split()[1]: text for head, _, text in _LINES if head.startswith("MODEL ")}
# {trainer: {option of `attncalc train`, with its value or *: its keys}}.
ADVICE = {
    head.split()[1]: dict(part.split(": ", 1) for part in text.split(" | "))
    for head, _, text in _LINES
    if head.startswith("ADVICE ")
}
# Organizations that copy the repositories of others under the same names, some quantized.
_COPIES = r"(?:unsloth|NousResearch)/(.+?)(-unsloth)?(-bnb-4bit)?"


def trainer_of_file(keys: Collection[str]) -> tuple[str, str]:
    """Return the trainer whose file has these keys, and its subcommand; '' and '' of others."""
    for trainer, subcommand, marks in _FILES:
        if any(key.startswith(marks) for key in keys):
            return trainer, subcommand
    return "", ""


def is_configuration(trainer: str, name: str) -> bool:
    """Return whether the trainer comes with a configuration of that name."""
    return (trainer, name) in _DEFAULTS


def configuration(trainer: str, name: str) -> tuple[str, dict[str, str]]:
    """Return the release and the keys of a configuration that `is_configuration`."""
    return _DEFAULTS[trainer, name]


def configurations(trainer: str) -> list[str]:
    """Return the names of the trainer's subcommands and configurations."""
    return [name for of, name in _DEFAULTS if of == trainer]


def model_of_name(name: str) -> str:
    """Return the model of attncalc that a trainer's name of one means, or options with its sizes,
    '--layers 6'; the name itself if none is known.
    """
    if name in MODELS:
        return MODELS[name]
    if re.fullmatch(r"[a-z]+\d\w*/\d+\.\dB", name):  # presets have torchtune's 'qwen2_5/0_5B'
        return name.replace(".", "_")
    return name


def original(name: str) -> tuple[str, bool]:
    """Return the name of the repository that `name` is a copy of, and whether the copy is in
    4 bits; '' and False of another.
    """
    copy = re.fullmatch(_COPIES, name)
    if copy is None:
        return "", False
    return copy[1], copy[3] is not None


def defaults_of(
    trainer: str,
    names: Collection[str],
    keys: Mapping[str, Any],
    options: Collection[str],
    *,
    on_several: bool,
) -> Defaults:
    """Return what a trainer takes without being told.

    A default is left out if another key, or one of the `options` that are given, has its meaning.

    Args:
        trainer: The trainer.
        names: Its subcommand, and configurations that come with it.
        keys: The keys of files and of the command.
        options: The options of `attncalc train` that are given.
        on_several: Whether the run has several GPUs.
    """
    release = ""
    defaults: dict[str, str] = {}
    for name in names:
        for kind in (_DEFAULTS, _SEVERAL) if on_several else (_DEFAULTS,):
            if (trainer, name) in kind:
                release, found = kind[trainer, name]
                defaults |= found
    left = dict(_left(defaults, keys, options))
    given = {key: value for key, value in left.items() if value != OPEN}
    return Defaults(trainer, release, given, [key for key in left if key not in given])


def _left(
    defaults: Mapping[str, str], keys: Mapping[str, Any], options: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield the defaults whose meaning no key and no option has."""
    given = {key for key, value in keys.items() if value is not None}
    has_adapters = not any(
        same_meaning(key, "adapter") and str(keys[key]).lower() in ("full", "none") for key in given
    )
    meant = {*options}
    for key in given:
        meant |= {option for option, _ in meanings(key, str(keys[key]))}
    for key, value in defaults.items():
        same = {other for other in given if same_meaning(other, key)}
        if key == "bf16":  # it is true unless fp16 is
            same |= given & {"fp16"}
        means = {option for option, _ in meanings(key, value)}
        is_of_adapters = bool(means) and means <= OF_ADAPTERS
        if not same and means.isdisjoint(meant) and (has_adapters or not is_of_adapters):
            yield key, value
