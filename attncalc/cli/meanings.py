"""What to tell people who type the words of other tools: for an option or a command that attncalc does not have."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Collection, Sequence

from ..errors import AttncalcError
from ..units import truncate

_USERS = "--prompt 4K --output-len 1K show how many users' requests fit"
_TRAINING = (
    "the memory of training is not computed; 'attncalc flops MODEL --phase train' has a step's FLOPs, and "
    "'attncalc memory MODEL --phase train' its activations"
)
_PRICE = "prices are not built in; 'attncalc sweep MODEL --gpu h100,h200 --gpus 1,2,4,8' lists what fits"
_OPTIONS = {
    **dict.fromkeys(("--users", "--num-users", "--concurrency", "--rps", "--rate", "--qps"), _USERS),
    **dict.fromkeys(
        ("--zero", "--optimizer", "--fsdp", "--deepspeed", "--grad-accum", "--lr", "--micro-batch"), _TRAINING
    ),
    **dict.fromkeys(
        ("--train", "--training", "--backward"), "'attncalc flops' and 'attncalc memory' have --phase train"
    ),
    **dict.fromkeys(("--price", "--cost", "--budget"), _PRICE),
    **dict.fromkeys(
        ("--lora", "--adapter", "--peft", "--lora-rank"), "vLLM's adapters are --enable-lora with --max-lora-rank 16"
    ),
    **dict.fromkeys(("--no-color", "--no-colour", "--color", "--colour"), "set NO_COLOR=1, or pipe the answer"),
    **dict.fromkeys(("--search", "--filter", "--find"), "'attncalc presets qwen' lists the models with 'qwen' in them"),
    **dict.fromkeys(("--verbose", "--details", "--all"), "--explain shows the formulas, and 'fit --full' all figures"),
}
"""{option: what to do instead}."""
_COMMANDS = {
    **dict.fromkeys(("list", "ls", "models", "model", "search"), "'attncalc presets' lists the built-in models"),
    **dict.fromkeys(("train", "training", "finetune"), _TRAINING),
    **dict.fromkeys(
        ("plan", "size", "capacity", "vram", "estimate", "estimate-memory"),
        "'attncalc fit MODEL --gpu h100' shows what fits",
    ),
    **dict.fromkeys(("cache", "kvcache", "kv-cache"), "'attncalc kv MODEL' shows the KV cache"),
    **dict.fromkeys(("gpu", "hardware", "devices"), "'attncalc gpus' lists the known GPUs"),
    **dict.fromkeys(("parameters", "count"), "'attncalc params MODEL' counts parameters"),
    **dict.fromkeys(("show", "info", "inspect"), "'attncalc presets show NAME' shows a built-in model"),
}
"""{command: what to do instead}."""


def no_such_option(name: str, command: str, known: Collection[str]) -> AttncalcError:
    """Return the error about an option that a command does not have.

    Args:
        name: The option as typed: '--price'.
        command: The command's name.
        known: The command's options.
    """
    message = f"no such option: {truncate(name)}"
    tip = _OPTIONS.get(name)
    if tip is None:
        close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
        tip = f"did you mean '{close[0]}'? " if close else ""
        if not close and command != "fit" and name in _options_of_fit():
            tip = f"'attncalc fit' has {name}; "
        tip += f"'attncalc {command} --help' lists all options"
    return AttncalcError(message, tip)


def extra_arguments(words: Sequence[str], command: str) -> AttncalcError:
    """Return the error about arguments that a command does not take: parts of a model's name, most often.

    Args:
        words: The arguments beyond those that the command takes.
        command: The command as typed: 'attncalc kv'.
    """
    from ..config.presets import preset_of

    typed = [word for word in sys.argv[1:] if not word.startswith("-")]
    joined = " ".join(typed[1 : 1 + typed[1:].index(words[-1]) + 1]) if words[-1] in typed[1:] else ""
    preset = preset_of(joined)
    tip = f"did you mean '{preset}'?" if preset else f"'{command} --help' lists all options"
    return AttncalcError(f"unexpected argument: {truncate(' '.join(words), 100)}", tip)


def _options_of_fit() -> set[str]:
    from ..api.fit_options import FitOptions
    from ..options import options_of

    return {name for option in options_of(FitOptions).values() for name in (*option.names, *option.also)}


def no_such_command(words: Sequence[str], known: Collection[str]) -> AttncalcError:
    """Return the error about a command that attncalc does not have.

    Args:
        words: The arguments, of which the first is the command's name.
        known: The commands.
    """
    from .pasted import launches

    message = f"there is no command '{truncate(words[0])}'"
    if launches(words):
        return AttncalcError(message, f"ask about it: attncalc fit --gpu GPU -- {truncate(shlex.join(words), 200)}")
    if words[0].lower() in _COMMANDS:
        return AttncalcError(message, _COMMANDS[words[0].lower()])
    close = difflib.get_close_matches(words[0].lower(), sorted(known), n=1, cutoff=0.6)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return AttncalcError(message, f"{hint}known: {', '.join(known)}")
