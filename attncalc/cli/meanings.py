"""What to tell people who type the words of other tools: for an option or a command that attncalc does not have."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..errors import AttncalcError
from ..units import truncate

_SHAPES = (
    "--layers, --heads, --kv-heads and --head-dim change a known model; one of your own is a config.json or a .yaml, "
    "as 'attncalc presets show gpt2' prints one"
)
_MEMORY = "--gpu takes a GPU's memory too: --gpu 24GB; a Mac is --gpu m3-max-36gb, and the host's memory --ram 32GB"
_USERS = "'attncalc plan MODEL --users 100 --prompt 4K --output-len 1K' finds the GPUs for so many users"
_FIT = "'attncalc fit MODEL --gpu h100' shows what fits"
_LONGEST = "'attncalc fit MODEL --gpu h100 -c auto' is the longest context that fits"
_TRAINING = "'attncalc train MODEL --gpu h100 --gpus 8' has the memory and FLOPs of a training step"
_PROMPT = "-c is the number of tokens, as -c 4096; 'attncalc fit' has --prompt with --output-len"
_LORA = "vLLM's adapters are --enable-lora with --max-lora-rank 16; 'attncalc train MODEL' has --lora"
_DRAFT = "a draft model is --speculative-model MODEL"
_OPTIONS: dict[str, tuple[str, ...]] = {
    "--batch 32 asks for 32 requests at once; with --gpu, 'fit' counts them": ("--concurrency", "--num-requests"),
    _SHAPES: (
        *("--hidden", "--hidden-size", "--d-model", "--dmodel", "--n-embd", "--n-embed", "--embedding-dim", "--d-ff"),
        *("--intermediate-size", "--ffn-hidden-size", "--n-inner", "--vocab-size", "--padded-vocab-size"),
    ),
    _MEMORY: ("--vram", "--max-vram", "--memory", "--gpu-memory", "--vram-gb", "--mem"),
    "--format csv, and likewise the others": ("--csv", "--tsv", "--markdown", "--html", "--table"),
    "--kv-memory gives the memory of the cache instead": ("--max-total-tokens",),
    "'fit' exits with 1 if it does not fit; --quiet prints nothing": ("--fail-if-not-fit", "--strict", "--check"),
    _USERS: ("--users", "--num-users", "--rps", "--rate", "--qps", "--request-rate"),
    _PROMPT: ("--prompt", "--input-len", "--prompt-len", "--input-tokens", "--isl", "--output-len", "--osl"),
    _TRAINING: ("--deepspeed", "--lr", "--learning-rate", "--epochs", "--gradient-checkpointing"),
    f"{_TRAINING}; 'attncalc flops MODEL --phase train' has FLOPs alone": ("--train", "--training", "--backward"),
    "--weights-dtype int4 counts weights of 4 bits": ("--awq", "--gptq", "--load-in-4bit", "--bnb", "--4bit"),
    _LORA: ("--lora", "--adapter", "--peft", "--lora-rank"),
    "set NO_COLOR=1, or pipe the answer": ("--no-color", "--no-colour", "--color", "--colour"),
    "'attncalc presets qwen' lists the models with 'qwen' in them": ("--search", "--filter", "--find"),
    "'attncalc verify' alone checks every kind of model, and 'presets --full' lists all": ("--all",),
    "--explain shows the formulas, and 'fit --full' all figures": ("--verbose", "--details"),
    "--weights-dtype fp8 of 'attncalc fit MODEL --gpu h100' counts weights in another dtype": (
        "--precision",
        "--quantize",
    ),
    "it sizes SGLang's CUDA graphs, which attncalc estimates: --reserve 4GiB replaces the whole estimate": (
        *("--cuda-graph-max-bs", "--cuda-graph-bs", "--cuda-graph-sizes", "--cudagraph-capture-sizes"),
    ),
    _DRAFT: ("--draft", "--draft-model", "--drafter", "--spec-model"),
    "in nanoGPT it is the context, -c 1024; 'attncalc fit' has vLLM's --block-size": ("--block-size",),
}
"""{what to do instead: the options as people type them}."""
_COMMANDS: dict[str, tuple[str, ...]] = {
    "'attncalc presets' lists the built-in models": ("list", "ls", "models", "model", "search"),
    _TRAINING: ("training", "finetune", "fine-tune", "lora", "sft"),
    _FIT: ("size", "vram", "estimate", "estimate-memory", "can-run", "check", "mem", "gguf-parser", "hf-mem"),
    _LONGEST: ("max-context", "max-ctx", "max-len", "context", "longest", "longest-context", "maxlen"),
    _USERS: ("capacity", "users", "concurrency", "throughput", "bench"),
    "'attncalc fit MODEL --gpu h100 --roofline' bounds the time of a prefill and a step": (
        *("roofline", "latency", "speed", "tps", "tokens-per-second"),
    ),
    "'attncalc kv MODEL' shows the KV cache": ("cache", "kvcache", "kv-cache"),
    "'attncalc gpus' lists the known GPUs": ("gpu", "hardware", "devices", "nvidia-smi", "rocm-smi"),
    "'attncalc params MODEL' counts parameters": ("parameters", "count", "weights"),
    "'attncalc memory MODEL' shows the activations of attention": ("activations", "activation", "peak"),
    "'attncalc explain gqa' explains a term": ("glossary", "terms"),
    "'attncalc presets show NAME' shows a built-in model": ("show", "info", "inspect"),
    "'attncalc presets add config.json' writes a model file": ("add", "convert", "import"),
}
"""{what to do instead: the commands as people type them}."""
_PROGRAMS = ("run", "pull", "serve", "launch", "deploy")
"""Words of engines' commands, typed without the program: 'serve qwen3-8b'."""
_QUESTIONS = (
    (r"per.?token|kv|cache", "'attncalc kv MODEL' shows the KV cache: total, per sequence and per token"),
    (r"param|how big|how large", "'attncalc params MODEL' counts parameters"),
    (r"flop|compute", "'attncalc flops MODEL' counts FLOPs"),
    (r"concurren|users?\b|requests?\b", _USERS),
    (r"longest|context|max.*(?:len|token)", _LONGEST),
    (r"", _FIT),
)
"""What a question is about, the first that matches: 'how much kv cache per token for llama3-8b'."""
_VALUES = {"--context": " With 'fit', -c auto is the longest that fits."}
_ABOUT_TERMS = ("what", "whats", "define", "why", "meaning")
_FILLING = frozenset({*_ABOUT_TERMS, "a", "an", "are", "does", "do", "is", "it", "mean", "of", "s", "the"})
_KINDS = {
    "mha": "gpt2",
    "gqa": "llama3-8b",
    "mqa": "gemma-2b",
    "mla": "deepseek-v3",
    "swa": "mistral-7b",
    "linear": "qwen3-next-80b-a3b",
    "mamba": "jamba-1.5-mini",
}
"""Kinds of attention, which are no models, each with a model that has it."""


def check_model(word: str) -> None:
    """Raise AttncalcError for a word in the place of a model that is a kind of attention, or several models."""
    from ..config.presets import preset_of

    several = word.split(",")
    if len(several) > 1 and all(map(preset_of, several)):
        raise AttncalcError(
            f"'{truncate(word)}': one model is expected", f"several have blanks between: compare {' '.join(several)}"
        )
    model = _KINDS.get(word.lower().partition(":")[0])
    if model is not None:
        raise AttncalcError(
            f"'{truncate(word)}' is a kind of attention, not a model",
            f"{model} has it; 'attncalc compare {model} mla' shows a model with each kind",
        )


def no_such_option(name: str, command: str, known: Collection[str], words: Sequence[str]) -> AttncalcError:
    """Return the error about an option that a command does not have.

    Args:
        name: The option as typed: '--price'.
        command: The command's name.
        known: The command's options.
        words: All arguments, of which the tip takes the model and the GPU.
    """
    message = f"no such option: {truncate(name)}"
    tip = _meaning(_OPTIONS, name.replace("_", "-"))
    if tip == _MEMORY and command == "gpus":
        tip = "'attncalc gpus --sort memory' lists the GPUs with the most memory first"
    if tip is None:
        close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75)
        tip = f"did you mean '{close[0]}'? " if close else ""
        if not close and (other := _command_with(name, command)):
            tip = f"'attncalc {other} MODEL' has {name}; "
        tip += f"'attncalc {command} --help' lists all options"
    return AttncalcError(message, _filled(tip, words))


def lacks_value(name: str, context: Any) -> AttncalcError:
    """Return the error about an option without its value, with what the option means."""
    found = [param for param in context.command.params if name in param.opts] if context else []
    tip = f"{found[0].metavar}: {found[0].help}" if found else ""
    return AttncalcError(f"{name} needs a value", tip + _VALUES.get(name, ""))


def extra_arguments(words: Sequence[str], command: str) -> AttncalcError:
    """Return the error about arguments that a command does not take: parts of a model's name, most often.

    Args:
        words: The arguments beyond those that the command takes.
        command: The command as typed: 'attncalc kv'.
    """
    from ..config.presets import preset_of

    typed = [word for word in sys.argv[1:] if not word.startswith("-")]
    joined = " ".join(typed[1 : 1 + typed[1:].index(words[-1]) + 1]) if words[-1] in typed[1:] else ""
    model, gpu = _named_in(typed[1:])
    tip = f"'{command} --help' lists all options"
    if preset := preset_of(joined):
        tip = f"did you mean '{preset}'?"
    elif gpu in words:
        tip = f"did you mean '{command} {model or 'MODEL'} --gpu {gpu}'?"
    elif words[0].replace(",", "").isdigit():
        tip = f"did you mean '{command} {model or 'MODEL'} -c {words[0]}'?"
    elif model in words:
        tip = f"did you mean '{command} {model}'? '{command}' takes one model: 'attncalc compare' takes several"
    return AttncalcError(f"unexpected argument: {truncate(' '.join(words), 100)}", tip)


def _meaning(table: Mapping[str, Collection[str]], word: str) -> str | None:
    """Return what to do instead of a word; None if the table does not have it."""
    return next((tip for tip, words in table.items() if word in words), None)


def _named_in(words: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the first model and the first GPU that the words name."""
    from ..config.gpus import gpus_of
    from ..config.presets import preset_of, with_file_type

    def is_gpu(word: str) -> bool:
        try:
            return bool(gpus_of(word))
        except AttncalcError:
            return False

    model = next((word for word in words if "/" in word or preset_of(with_file_type(word)[0])), None)
    named = (word for word in words if word != model and any(map(str.isdigit, word)) and is_gpu(word))
    return model, next(named, None)


def _filled(tip: str, words: Sequence[str]) -> str:
    """Return a tip with the model and the GPU that the words name."""
    model, gpu = _named_in(words)
    tip = tip.replace("MODEL", truncate(model, 80)) if model else tip
    return tip.replace("--gpu h100", f"--gpu {truncate(gpu)}") if gpu else tip


def _command_with(name: str, command: str) -> str | None:
    """Return another command that has an option, of those with the most; None if none has."""
    from ..api.fit_options import FitOptions
    from ..api.plan_options import PlanOptions
    from ..api.train_options import TrainOptions
    from ..options import options_of

    name = name.replace("_", "-")
    for other, kind in {"fit": FitOptions, "plan": PlanOptions, "train": TrainOptions}.items():
        if other != command and any(name in (*option.names, *option.also) for option in options_of(kind).values()):
            return other
    return None


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
    first, text = words[0].lower(), " ".join(words).lower()
    if first in _PROGRAMS:
        command = f"{_program(first, words)} {shlex.join(words[1:])}".rstrip()
        return AttncalcError(message, f"ask about a launch command: attncalc fit --gpu GPU -- {truncate(command, 200)}")
    tip = _meaning(_COMMANDS, first)
    if tip is None and _named_in(words[:1])[0]:
        command = "fit" if any(word.startswith("--gpu") for word in words) else "kv"
        return AttncalcError(message, f"a command comes first: attncalc {command} {truncate(shlex.join(words), 200)}")
    close = difflib.get_close_matches(first, sorted(known), n=1, cutoff=0.6)
    if tip is None and " " in text and not close:
        tip = _answer_to(text)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return AttncalcError(message, _filled(tip, text.split()) if tip else f"{hint}known: {', '.join(known)}")


def _answer_to(question: str) -> str:
    """Return the command that answers a question: about a term if it names no model, or by what it is about."""
    words = re.findall(r"[\w.:/-]+", question)
    if words[0] in _ABOUT_TERMS and _named_in(words) == (None, None):
        return f"'attncalc explain {truncate(' '.join(word for word in words if word not in _FILLING))}' explains it"
    return next(tip for pattern, tip in _QUESTIONS if re.search(pattern, question))


def _program(first: str, words: Sequence[str]) -> str:
    """Return the start of the command whose program was left out: by options that one engine has, or the usual one."""
    from ..api.engine_choice import engine_of_options
    from ..api.fit_options import FitOptions
    from ..engines import DEFAULT_ENGINE, ENGINES, find_engine
    from ..options import options_of

    names = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("-")}
    given = {
        field: True
        for field, option in options_of(FitOptions).items()
        if names & {part for name in (*option.names, *option.also) for part in name.split("/")}
    }
    choice = engine_of_options(given)
    engines = [choice.engine] if choice else [DEFAULT_ENGINE, *ENGINES]
    commands = [known for name in engines for known in find_engine(name).commands]
    known = next((known for known in commands if first in known.example.split()), commands[0])
    return known.example.rpartition(" ")[0]
