"""What to tell people who type the words of other tools: for an option or a command that attncalc does not have."""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..engines.pasted import could_matter
from ..errors import AttncalcError
from ..units import is_dtype, truncate

_MEMORY = "--gpu takes a GPU's memory too: --gpu 24GB; a Mac is --gpu m3-max-36gb, and the host's memory --ram 32GB"
_USERS = "'attncalc plan MODEL --users 100 --prompt 4K --output-len 1K' finds the GPUs for so many users"
_FIT = "'attncalc fit MODEL --gpu h100' shows what fits"
_LONGEST = "'attncalc fit MODEL --gpu h100 -c auto' is the longest context that fits"
_TRAINING = "'attncalc train MODEL --gpu h100 --gpus 8' has the memory and FLOPs of a training step"
_PROMPT = "-c is the number of tokens, as -c 4096; 'attncalc fit' has --prompt with --output-len"
_LORA = "vLLM's adapters are --enable-lora with --max-lora-rank 16; 'attncalc train MODEL' has --lora"
_OPTIONS = (
    (r"(?:max-|gpu-)?(?:v?ram|mem|memory)(?:-gi?b|-size|-limit)?", _MEMORY),
    (r"concurrency|num-requests", "--batch 32 asks for 32 requests at once; with --gpu, 'fit' counts them"),
    (r"csv|tsv|markdown|html|table", "--format csv, and likewise the others"),
    (r"max-total-tokens", "--kv-memory gives the memory of the cache instead"),
    (
        r"fail.*|strict|check|exit-code|assert.*|.*threshold|(?:max|limit)-(?:kv|cache|mem|memory|params|flops).*",
        "'fit' exits with 1 if it does not fit; --fail-if 'kv_cache > 8GiB' checks a figure; --quiet prints nothing",
    ),
    (r"(?:num-)?users|rps|rate|qps|request-rate", _USERS),
    (
        r"prompt|(?:random-)?(?:input|output|prompt)-(?:len|length|tokens)|isl|osl"
        r"|max-(?:(?:new|output|completion)-)?tokens|n(?:um)?-predict",
        _PROMPT,
    ),
    (r"train|training|backward", f"{_TRAINING}; 'attncalc flops MODEL --phase train' has FLOPs alone"),
    (r".*lora.*|.*adapters?|peft|rank|r", _LORA),
    (
        r"(?:.*-)?(?:gradient|grad|activation)-.*|recompute.*|epochs|lr|learning-rate|deepspeed.*|fsdp.*"
        r"|.+-optim(?:izer)?|(?:num-train-|max-)(?:epochs|steps)|.*offload-(?:optimizer|param).*",
        _TRAINING,
    ),
    (r"(?:load-in-)?[48]-?bit|bnb.*|awq|gptq|nf4", "--weights-dtype int4 counts weights of 4 bits"),
    (r"(?:no-)?colou?r", "set NO_COLOR=1, or pipe the answer"),
    (r"search|filter|find", "'attncalc presets qwen' lists the models with 'qwen' in them"),
    (r"all", "'attncalc verify' alone checks every kind of model, and 'presets --full' lists all"),
    (r"v|verbose|debug|details?", "--explain shows the formulas, and 'fit --full' all figures"),
    (
        r"precision|quantize|dtypes",
        "--weights-dtype fp8 of 'attncalc fit MODEL --gpu h100' counts weights in another dtype",
    ),
    (
        r"cuda-?graph-.*",
        "it sizes SGLang's CUDA graphs, which attncalc estimates: --reserve 4GiB replaces the whole estimate",
    ),
    (
        r"metrics?|columns?|fields?|select|figures",
        "--json has every figure; 'attncalc sweep MODEL --columns kv_cache,params_total' chooses some",
    ),
    (r"forward(?:-only)?|inference", "that is the default; --phase train counts a training step"),
    (
        r"(?:n-|num-)?tokens",
        "-c is the number of tokens of a sequence; 'attncalc train MODEL' has --tokens for those to train on",
    ),
    (r"units?|in-gi?b|bytes-only", "figures are in KiB, MiB, GiB or TiB, and --json has bytes"),
    (r"num-gpu", "Ollama's num_gpu is -ngl of 'fit'; --gpus is the number of GPUs"),
    (
        r"generate|gen-(?:len|tokens)|new-tokens",
        "'attncalc flops MODEL --phase decode' is one step at the context; 'attncalc fit' has --output-len",
    ),
    (r"draft(?:er|-model)?|spec-model", "a draft model is --speculative-model MODEL"),
    (r"block-size", "in nanoGPT it is the context, -c 1024; 'attncalc fit' has vLLM's --block-size"),
    (
        r"max-num-seqs|max-running-requests|(?:n-|num-)?parallel|np",
        "--batch 64 counts 64 sequences at the context; how many fit is in 'attncalc fit MODEL --gpu h100'",
    ),
    (
        r"(?:gpu-)?(?:n-|num-)?(?:gpu-)?(?:layers-on-gpu|offload|offload-ratio)",
        "-ngl 20 of 'attncalc fit MODEL --gpu 12GB' puts 20 layers on the GPU; without it the answer has how many fit",
    ),
    (
        r"(?:(?:kv|cache|elem|element)-)*(?:n-)?(?:bytes|bits)(?:-per-.*)?",
        "--kv-dtype names the cache's type: fp8 has 1 byte per element, bf16 has 2, fp32 has 4",
    ),
    (r"(?:list|query|show|available)-?(?:gpus?|devices|hardware).*|gpu-list", "'attncalc gpus' lists the known GPUs"),
    (r"(?:list|show)(?:-(?:models|presets))?|models", "'attncalc presets' lists the built-in models"),
    (
        r"(?:n-|num-)?(?:params?|parameters)|model-size|size",
        "a number of parameters has no layers: name a model of that size, as 'attncalc presets 70b' lists them",
    ),
    (
        r"(?:gpu-)?(?:price|cost)-.+|cost|usd|dollars|hourly.*|budget",
        "--price 2.50 is the price of a GPU-hour, in 'attncalc plan MODEL' and 'attncalc train MODEL'",
    ),
    (r"days|weeks|hours|deadline", "'attncalc train MODEL --gpu h100 --gpus 64 --tokens 1T --mfu 0.4' has the days"),
    (r"nnodes|(?:num-|n-)?(?:nodes|hosts|machines)", "--gpus is the number of GPUs of all nodes: --gpus 16"),
)
"""(what an option is called by other tools, what to do instead); the first that matches."""
_IN_TRAINING = (
    (r"recompute-activations", "--recompute selective drops the scores of attention"),
    (r".*checkpointing.*|checkpoint-activations.*|ac-mode", "--recompute full is gradient checkpointing"),
    (
        r"d(?:ata-)?p(?:arallel)?(?:-(?:shard|replicate|size|rank)s?)?(?:-(?:degree|size))?",
        "--gpus is the number of all GPUs: those that --tp, --pp and --cp leave are data-parallel",
    ),
    (r".*virtual-pipeline.*", "--virtual-stages 2 gives each GPU two stages of an interleaved pipeline"),
    (r"(?:use-)?distributed-optimizer", "--zero 1 shards the optimizer's states, as the distributed optimizer does"),
    (r"deepspeed.*|ds-config|zero.*", "--zero 3 is DeepSpeed's stage; --offload optimizer moves states to the host"),
    (r"(?:use-)?fsdp.*|(?:fully-)?shard.*|hsdp", "--fsdp shards weights, gradients and states"),
    (r".*offload.*", "--offload optimizer,params moves these to the host's memory"),
    (
        r"(?:use-)?q?[ld]ora.*|.*adapter.*|peft.*|r|.*rank|target-.*|.*-alpha|(?:load-in-)?[48]-?bit|bnb.*|nf4|int4",
        "LoRA is --lora r=16 or --lora r=16,targets=q+v; QLoRA is --lora r=16 --weights-dtype nf4",
    ),
    (
        r"(?:global|total|effective|train)-batch.*|gbs|batch-tokens|tokens-per-batch",
        "the global batch is --batch times --gradient-accumulation times the data-parallel GPUs",
    ),
    (r"(?:use-)?(?:bf16|fp16|fp8|amp|mixed-precision|half)", "--dtype bf16 is the dtype of weights and activations"),
    (r".*(?:epochs|steps|iters)", "--tokens 10B --mfu 0.4 has the time of so many tokens"),
    (r"(?:use-)?fl?a?s?h?-?attn?.*|flash.*|xformers", "--kernel flash is the default"),
    (
        r"lr.*|learning-rate.*|weight-decay|warmup.*|seed|logg?.*|save.*|eval.*|data.*|output-dir|packing|wandb.*",
        "leave it out: it changes neither memory nor FLOPs here",
    ),
)
"""The same for `attncalc train`, before the others."""
_ABOUT = (
    ("kind kinds variant variants baseline attention", ("--attention",)),
    ("format print pretty json csv yaml", ("--format",)),
    ("cost costs price prices usd", ("--price",)),
    ("fraction frac share utilization util percent", ("--gpu-memory-utilization",)),
    ("ttft prefill", ("--ttft", "--roofline")),
    ("itl tpot latency speed tps slo sla time", ("--tpot", "--roofline")),
    ("trainable grad gradient optim lr epochs finetune", ("--optimizer",)),
    ("lora adapter rank", ("--lora", "--enable-lora")),
    ("strategy sharding ddp", ("--fsdp", "--zero")),
    ("checkpointing recompute recomputation remat", ("--recompute",)),
    ("expert experts moe ep", ("--ep", "--enable-expert-parallel", "--n-cpu-moe")),
    ("stage stages pipeline", ("--pp", "--pipeline-parallel-size")),
    ("shard shards tensor ways split", ("--tp",)),
    ("replicas replica copies", ("--gpus", "--data-parallel-size")),
    ("devices gpus world nproc workers accelerators cards", ("--gpus", "--max-gpus")),
    ("instance node vm machine device card accelerator hardware gpu chip", ("--gpu",)),
    ("kv cache", ("--kv-dtype",)),
    ("bpw bit bits quant quantization weight weights precision dtype", ("--weights-dtype", "--dtype")),
    ("output generate generated response", ("--output-len", "--context")),
    ("prompt input", ("--prompt", "--context")),
    ("len length context session position positions tokens seq sequence window", ("--context",)),
    ("batch sequences requests concurrent concurrency slots", ("--batch", "--users")),
    ("mem memory vram gb gib", ("--gpu",)),
    ("host cpu offload", ("--ram", "--offload", "--cpu-offload-gb")),
)
"""(words in an option's name, the options that are about the same); the first row that matches."""
_PATH = r"[\w.-]+/[\w.-]+|.*\.(?:gguf|json|yaml)"
_SAME_WORDS = {
    **dict.fromkeys(("seq", "sequence", "ctx", "cutoff"), "context"),
    **dict.fromkeys(("bs", "bsz"), "batch"),
    **dict.fromkeys(("quantization", "quantize", "quantized"), "quant"),
    "optim": "optimizer",
    **dict.fromkeys(("len", "length", "size", "max", "num", "n", "number", "total", "per", "of"), ""),
    **dict.fromkeys(("use", "enable", "default", "type", "count"), ""),
}
"""Words of options' names that mean the same, or nothing."""
_COMMANDS = (
    (r"ls|list|search|(?:list-)?models?", "'attncalc presets' lists the built-in models"),
    (
        r"train(?:ing|er)|fine-?tun(?:e|ing)|q?lora|sft|pretrain(?:ing)?"
        r"|(?:.*/)?(?:tune|axolotl|torchrun|deepspeed|trl|llamafactory-cli|litgpt|torchtitan|unsloth|swift)(?:\.py)?",
        _TRAINING,
    ),
    (
        r"(?:hf-)?mem|v?ram|size|estimate.*|accelerate|can-.*|fits|(?:model-)?memory-.*",
        f"{_FIT}, with the weights in their dtype (--weights-dtype int4); 'attncalc train MODEL' has training's memory",
    ),
    (
        r"lms|lm-?studio|gguf-parser|kobold.*|llama.*|jan|gpt4all",
        "'attncalc fit MODEL --gpu 12GB --engine llamacpp' shows what fits with llama.cpp",
    ),
    (
        r"check|assert|ci|gate|lint|validate",
        "'attncalc kv MODEL --fail-if \"kv_cache > 4GiB\"' exits with 1 beyond 4 GiB",
    ),
    (r"(?:max|longest)-.*|context|longest|maxlen", _LONGEST),
    (r"capacity|users|concurrency|throughput|bench(?:mark)?", _USERS),
    (
        r"costs?|price|pricing|budget|money",
        "'attncalc plan MODEL --users 100 --price 2.50' has the price of serving, 'attncalc train MODEL --gpu h100 "
        "--tokens 1T --mfu 0.4 --price 2.50' of training",
    ),
    (
        r"roofline|latency|speed|tps|tokens-per-second|time",
        "'attncalc fit MODEL --gpu h100 --roofline' bounds the time of a prefill and a step",
    ),
    (r"(?:kv-?)?cache(?:-size)?", "'attncalc kv MODEL' shows the KV cache"),
    (r"gpu|hardware|devices|(?:nvidia|rocm|amd)-smi", "'attncalc gpus' lists the known GPUs"),
    (r"parameters|count|weights", "'attncalc params MODEL' counts parameters"),
    (r"macs|flops?-.*|[tg]?flops?|compute", "'attncalc flops MODEL' counts FLOPs: a multiply-add is 2"),
    (
        r"summary|stats|describe|layers",
        "'attncalc params MODEL' counts parameters, 'attncalc presets show NAME' has all sizes",
    ),
    (r"diff|versus|vs", "'attncalc compare MODEL OTHER' shows models side by side"),
    (r"activations?|peak", "'attncalc memory MODEL' shows the activations of attention"),
    (r"v(?:ersion)?", "'attncalc --version' shows the version"),
    (r"plot|chart|graph|draw", "'attncalc sweep MODEL -c 1K:128K:x2 --plot' draws; most commands have --plot"),
    (r"glossary|terms", "'attncalc explain gqa' explains a term"),
    (r"show|info|inspect", "'attncalc presets show NAME' shows a built-in model"),
    (r"add|convert|import", "'attncalc presets add config.json' writes a model file"),
)
"""(what a command is called by others, what to do instead); the first that matches."""
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
_ASKING = ("how", "can", "will", "does", "is", "which", "what", "whats", "why")
_ABOUT_TERMS = ("what", "whats", "define", "why", "meaning")
_SMALL = ("in", "on", "with", "for", "and", "vram", "ram", "gpu", "memory", "context", "tokens", "gb", "gib")
_FILLING = frozenset({*_ABOUT_TERMS, "a", "an", "are", "does", "do", "is", "it", "mean", "of", "s", "the", *_SMALL})
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


def no_such_option(name: str, command: str, known: Mapping[str, str], words: Sequence[str]) -> AttncalcError:
    """Return the error about an option that a command does not have.

    Args:
        name: The option as typed: '--price'.
        command: The command's name.
        known: {option of the command: its help, or '' if it is not a common one}.
        words: All arguments, of which the tip takes the model and the GPU.
    """
    message = f"no such option: {truncate(name)}"
    plain = name.lstrip("-").lower().replace("_", "-")
    tip = _meaning(_IN_TRAINING, plain) if command == "train" else None
    tip = tip or _of_value(name, words, known) or _meaning(_OPTIONS, plain) or _of_dtype(plain, known)
    if tip is None and command == "train":
        tip = _meaning(_IN_TRAINING, _value_of(name, words).lower())
    if tip == _MEMORY and command == "gpus":
        tip = "'attncalc gpus --sort memory' lists the GPUs with the most memory first"
    elif tip == _MEMORY and (
        size := re.fullmatch(r"(\d+(?:\.\d+)?) ?(GB|GiB|G)?", _value_of(name, words), re.IGNORECASE)
    ):
        tip = f"a GPU's memory is --gpu {size[1]}GB, and the host's --ram {size[1]}GB; a Mac is --gpu m3-max-36gb"
    if tip is None:
        if command == "compare" and (own := _what_if(plain)):
            sizes = truncate(_value_of(name, words)) if "," in _value_of(name, words) else "8,16,32"
            tip = f"'attncalc sweep MODEL {own} {sizes}' compares sizes, 'attncalc compare MODEL mha mla' kinds"
        elif close := _closest(name, known):
            tip = f"did you mean '{close}'? '{_command(command)} --help' lists all options"
        elif other := _command_with(name, command):
            tip = f"'attncalc {other} MODEL' has {name}; 'attncalc {command} --help' lists all options"
        else:
            tip = _about(plain, command, known)
    return AttncalcError(message, _filled(tip, words))


def _about(plain: str, command: str, known: Mapping[str, str]) -> str:
    """Return the tip about an option by the words in its name; without any, the command's common options."""
    words = set(plain.split("-"))
    options = next((options for about, options in _ABOUT if words & {*about.split()}), ())
    for option in options:
        if option in known:
            return f"did you mean '{option}'? {known[option].partition('. ')[0]}".rstrip()
    for option in options:
        if other := _command_with(option, command):
            return f"'attncalc {other} MODEL' has {option}"
    if not could_matter(plain):
        return f"leave it out if nothing here depends on it; 'attncalc {command} --help' lists all options"
    common = ", ".join(option for option, text in known.items() if text and option.startswith("--"))
    return f"'attncalc {command}' has {common}; 'attncalc {command} --help' lists all"


def _value_of(name: str, words: Sequence[str]) -> str:
    """Return the value of an option, or '' if nothing follows it."""
    word = next(word for word in words if word.partition("=")[0] == name)
    return word.partition("=")[2] or next(iter(words[words.index(word) + 1 :]), "")


def _of_value(name: str, words: Sequence[str], known: Collection[str]) -> str | None:
    """Return what to type instead of an unknown option whose value is a model, or a GPU's name: '--device h200'."""
    value = _value_of(name, words)
    if re.fullmatch(_PATH, value) and _named_in([word for word in words if word != value])[0] is None:
        return "the model needs no option before it: attncalc kv MODEL"
    if Path(value).suffix in _suffixes() and "--output" in known:
        return f"did you mean '-o {truncate(value)}'?"
    is_name = re.match(r"[A-Za-z].*\d", value) is not None and _is_gpu(value)
    return f"did you mean '--gpu {truncate(value)}'?" if is_name and "--gpu" in known else None


def _suffixes() -> set[str]:
    from ..report.formats import FORMATS

    return {suffix for known in FORMATS.values() for suffix in known.suffixes} - {"", ".json", ".yaml"}


def _of_dtype(plain: str, known: Collection[str]) -> str | None:
    """Return the options that take a dtype whose name is typed as an option: '--int8'."""
    if not is_dtype(plain):
        return None
    names = ["--weights-dtype", "--kv-dtype", *(["--dtype"] if "f" in plain else [])]
    options = [f"'{option} {plain}'" for option in names if option in known]
    return f"did you mean {' or '.join(options)}?" if options else None


def _closest(name: str, known: Collection[str]) -> str | None:
    """Return the option that a name means: with nearly the same letters, or with most of its words."""
    words = _name_words(name)
    alike = sorted(option for option in known if option[:3] == name[:3])  # --ep-size is not --tp-size
    close = difflib.get_close_matches(name, alike, n=1, cutoff=0.8)
    by_words = [(_common(words, other), option) for option in known if (other := _name_words(option))]
    share, option = max(by_words, default=(0.0, ""), key=lambda found: (found[0], -len(found[1])))
    return close[0] if close else option if words and share > 0.5 else None


def _common(words: set[str], others: set[str]) -> float:
    """Return the share of the words of two names that are in both, whole or as a start: 'frac' of 'fraction'."""
    same = sum(any(other.startswith(word) for other in others) for word in words if len(word) > 2 or word in others)
    return same / (len(words) + len(others) - same)


def _name_words(name: str) -> set[str]:
    """Return the words of an option's name that distinguish it: {'lora', 'rank'} of '--max_lora_rank'."""
    words = re.findall(r"[a-z]+|\d+", name.lower())
    return {_SAME_WORDS.get(word, word.removesuffix("s")) for word in words} - {""}


def option_before_command(words: Sequence[str], commands: Collection[str]) -> str:
    """Return the tip about options where a command is expected."""
    plain = words[0].partition("=")[0].lstrip("-").lower().replace("_", "-") if words else ""
    model, gpu = _named_in(words)
    command = next((word for word in words if word in commands), "fit" if gpu else "kv")
    if model or command in words:
        return f"a command comes first: {_command(command, *(word for word in words if word != command))}"
    return _meaning(_OPTIONS, plain) or (
        "options come after a command: 'attncalc kv MODEL', 'attncalc fit MODEL --gpu h100'"
    )


def lacks_value(name: str, params: Sequence[Any]) -> AttncalcError:
    """Return the error about an option without its value, with what the option means."""
    found = [param for param in params if name in param.opts]
    tip = f"{found[0].metavar}: {found[0].help}" if found else ""
    return AttncalcError(f"{name} needs a value", tip + _VALUES.get(name, ""))


def extra_arguments(words: Sequence[str], command: str) -> AttncalcError:
    """Return the error about arguments that a command does not take: parts of a model's name, most often.

    Args:
        words: The arguments beyond those that the command takes.
        command: The command as typed: 'attncalc kv'.
    """
    typed = sys.argv[2:]
    first = next((i for i, word in enumerate(typed) if not word.startswith("-")), 0)
    positional = [typed[first], *words] if typed else [*words]
    others = [word for i, word in enumerate(typed) if i != first and word not in words]
    model, rest = _model_in(positional)
    found, left = _options_in([word for word in rest if word.lower() not in _FILLING])
    name = command.removeprefix("attncalc ")
    before = typed[: typed.index(words[0])][-2:] if words[0] in typed else []
    if len(before) == 2 and before[0].startswith("-") and re.fullmatch(r"\d+ [kKmM]", f"{before[1]} {words[-1]}"):
        return AttncalcError(f"unexpected argument: {words[0]}", f"did you mean '{before[0]} {before[1]}{words[-1]}'?")
    if len(before) == 2 and before[0].startswith("-") and not before[1].startswith("-") and not left and model:
        values = ",".join((before[1], *words))
        return AttncalcError(
            f"unexpected argument: {truncate(' '.join(words), 100)}",
            f"'{_command('sweep', model, before[0], values)}' has a row for each; '{command}' takes one",
        )
    tip = f"'{command} --help' lists all options"
    if not left and model and not {option for option, _ in found} & {*others}:
        if len(found) - len(dict(found)) and {option for option, _ in found} == {"-c"}:
            name, found = "sweep", [("-c", ",".join(value for _, value in found))]
        elif name in ("kv", "flops", "memory", "params") and {"--gpu", "--weights-dtype"} & dict(found).keys():
            name = "fit"
        tip = f"did you mean '{_command(name, model, *(word for pair in found for word in pair), *others)}'?"
    elif model and model not in positional[:1] and not found:
        tip = f"did you mean '{_command(name, model, *others)}'?"
    elif model and (several := [word for word in left if _model_in([word])[0]]):
        tip = f"'{command}' takes one model: '{_command('compare', model, *several)}' shows both"
    return AttncalcError(f"unexpected argument: {truncate(' '.join(words), 100)}", tip)


def _command(*words: str) -> str:
    return truncate(f"attncalc {shlex.join(words)}", 200)


def _meaning(table: Sequence[tuple[str, str]], word: str) -> str | None:
    """Return what to do instead of a word; None if no pattern of the table matches it."""
    return next((tip for pattern, tip in table if re.fullmatch(pattern, word)), None)


def _is_gpu(word: str) -> bool:
    from ..config.gpus import gpus_of

    try:
        return bool(gpus_of(word))
    except AttncalcError:
        return False


def _model_in(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the first built-in model that some adjoining words name, as 'llama 3 8b' does, and the other words."""
    from ..config.presets import preset_of, with_file_type

    for length in (4, 3, 2, 1):
        for i in range(len(words) - length + 1):
            name = " ".join(words[i : i + length])
            preset = preset_of(with_file_type(name)[0])
            if preset and (length > 1 or i == 0 or re.search(r"\d|/", name) or name == preset):
                return (preset if length > 1 else name), [*words[:i], *words[i + length :]]
    return None, [*words]


def _options_in(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options whose values the words are, with those, and the words that are no values.

    'q4_k_m', 'rtx', '4090' are --weights-dtype q4_k_m and --gpu rtx-4090.
    """
    from ..options import WEIGHTS_DTYPE

    found: list[tuple[str, str]] = []
    left: list[str] = []
    rest = [*words]
    while rest:
        length = next((n for n in (3, 2, 1) if _is_gpu(gpu := " ".join(rest[:n])) and re.search(r"\d", gpu)), 0)
        word = " ".join(rest[: length or 1])
        if re.fullmatch(r"[\d_,]+[kK]?", word) and not (length and re.fullmatch(r"\d{4}", word)):
            found.append(("-c", word.replace(",", "")))
        elif length:
            found.append(("--gpu", word.replace(" ", "-")))
        else:
            try:
                WEIGHTS_DTYPE.parse(word, "")
                found.append(("--weights-dtype", word))
            except AttncalcError:
                left.append(word)
        rest = rest[length or 1 :]
    return found, left


def _named_in(words: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the first model and the first GPU that the words name."""
    model, rest = _model_in(words)
    model = model or next((word for word in words if re.fullmatch(_PATH, word)), None)
    named = (word for word in rest if word != model and any(map(str.isdigit, word)) and _is_gpu(word))
    return model, next(named, None)


def _filled(tip: str, words: Sequence[str]) -> str:
    """Return a tip with the model and the GPU that the words name."""
    model, gpu = _named_in(words)
    tip = tip.replace("MODEL", truncate(model, 80)) if model else tip
    return tip.replace("--gpu h100", f"--gpu {truncate(gpu)}") if gpu else tip


def _what_if(plain: str) -> str | None:
    """Return the option of a model's size that has this name."""
    from ..api.options import WhatIfOptions
    from ..options import options_of

    return next(
        (option.name for option in options_of(WhatIfOptions).values() if f"--{plain}" in (*option.names, *option.also)),
        None,
    )


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
    first, text = words[0].lower(), " ".join(words)
    if first in _PROGRAMS:
        command = f"{_program(first, words)} {shlex.join(words[1:])}".rstrip()
        return AttncalcError(message, f"ask about a launch command: attncalc fit --gpu GPU -- {truncate(command, 200)}")
    model, rest = _model_in(words)
    if model and words[0] not in rest:
        command = next((word for word in rest if word in known), "fit" if _named_in(rest)[1] else "kv")
        found = _command(command, model, *(word for word in rest if word != command))
        return AttncalcError(message, f"a command comes first: {found}")
    tip = _meaning(_COMMANDS, first)
    if tip is None and re.search(r"(?i)launch|serve|chat|generat|build|run\b", " ".join(words[:2])):
        tip = f"{_FIT}; a command of vLLM, SGLang, llama.cpp or Ollama may follow it after --"
    if tip is None and first not in _ASKING and (command := next((word for word in words if word in known), "")):
        tip = f"'attncalc {command} MODEL'; 'attncalc {command} --help' lists its options"
    close = difflib.get_close_matches(first, sorted(known), n=1, cutoff=0.6)
    if tip is None and " " in text and not close:
        tip = _answer_to(text)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return AttncalcError(message, _filled(tip, text.split()) if tip else f"{hint}known: {', '.join(known)}")


def _answer_to(question: str) -> str:
    """Return the command that answers a question: about a term if it names no model, or by what it is about."""
    words = re.findall(r"[\w.:/-]+", question.lower())
    if words and words[0] in _ABOUT_TERMS and _named_in(words) == (None, None):
        return f"'attncalc explain {truncate(' '.join(word for word in words if word not in _FILLING))}' explains it"
    return next(tip for pattern, tip in _QUESTIONS if re.search(pattern, question.lower()))


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
