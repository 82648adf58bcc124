"""What to tell people who type the words of other tools: for an option or a command that attncalc does not have."""

from __future__ import annotations

import difflib
import shlex
import sys
from collections.abc import Collection, Sequence

from ..errors import AttncalcError
from ..units import truncate

_SHAPES = (
    "a model of your own is a config.json or a .yaml, as 'attncalc presets show gpt2' prints one; --layers, --heads, "
    "--kv-heads and --head-dim change a known one"
)
_MEMORY = "--gpu takes a GPU's memory too: --gpu 24GB"
_USERS = "'attncalc plan MODEL --users 500 --prompt 4K --output-len 1K --gpu h100,h200' finds GPUs for users"
_TRAINING = (
    "the memory of training is not computed; 'attncalc flops MODEL --phase train' has a step's FLOPs, and "
    "'attncalc memory MODEL' the activations of a forward pass"
)
_PRICE = "prices are not built in; 'attncalc plan MODEL --users 500 ... --price h100=2.49,h200=3.79' takes yours"
_OPTIONS = {
    **dict.fromkeys(
        ("--concurrency", "--num-requests"), "--batch 32 asks for 32 requests at once; with --gpu, 'fit' counts them"
    ),
    **dict.fromkeys(
        ("--hidden", "--hidden-size", "--d-model", "--dmodel", "--n-layers", "--num-layers", "--n-heads"), _SHAPES
    ),
    **dict.fromkeys(
        ("--num-hidden-layers", "--num-attention-heads", "--num-key-value-heads", "--d-head", "--n-embd"), _SHAPES
    ),
    **dict.fromkeys(("--vram", "--max-vram", "--memory", "--gpu-memory", "--vram-gb"), _MEMORY),
    **dict.fromkeys(("--csv", "--tsv", "--markdown", "--html", "--table"), "--format csv, and likewise the others"),
    **dict.fromkeys(("--max-total-tokens",), "--kv-memory gives the memory of the cache instead"),
    **dict.fromkeys(
        ("--fail-if-not-fit", "--strict", "--check"), "'fit' exits with 1 if it does not fit; --quiet prints nothing"
    ),
    **dict.fromkeys(("--users", "--num-users", "--rps", "--rate", "--qps"), _USERS),
    **dict.fromkeys(
        ("--zero", "--optimizer", "--fsdp", "--deepspeed", "--grad-accum", "--lr", "--micro-batch"), _TRAINING
    ),
    **dict.fromkeys(("--train", "--training", "--backward"), "'attncalc flops MODEL --phase train' counts a step"),
    **dict.fromkeys(
        ("--awq", "--gptq", "--load-in-4bit", "--bnb", "--4bit"), "--weights-dtype int4 counts weights of 4 bits"
    ),
    **dict.fromkeys(("--price", "--cost", "--budget"), _PRICE),
    **dict.fromkeys(
        ("--lora", "--adapter", "--peft", "--lora-rank"), "vLLM's adapters are --enable-lora with --max-lora-rank 16"
    ),
    **dict.fromkeys(("--no-color", "--no-colour", "--color", "--colour"), "set NO_COLOR=1, or pipe the answer"),
    **dict.fromkeys(("--search", "--filter", "--find"), "'attncalc presets qwen' lists the models with 'qwen' in them"),
    **dict.fromkeys(("--all",), "'attncalc verify' alone checks every kind of model, and 'presets --full' lists all"),
    **dict.fromkeys(("--verbose", "--details"), "--explain shows the formulas, and 'fit --full' all figures"),
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
    **dict.fromkeys(
        ("what", "whats", "define", "glossary", "meaning", "why"), "'attncalc explain gqa' explains a term"
    ),
    **dict.fromkeys(("how", "can", "will", "does"), "'attncalc fit MODEL --gpu h100' shows what fits"),
    **dict.fromkeys(("run", "serve", "pull"), "ask about a launch command: attncalc fit --gpu GPU -- ollama run MODEL"),
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
    tip = _OPTIONS.get(name.replace("_", "-"))
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
