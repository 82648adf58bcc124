"""Command lines of every command: each of its options with usual values, and now and then with an
odd one.
"""

from functools import cache
from random import Random
from typing import Any

from typer.main import get_command

from attncalc.cli.declared import command_of
from attncalc.config.gpus import gpu_names
from attncalc.config.presets import preset_names
from attncalc.engines import ENGINES, find_engine
from attncalc.options import options_of
from attncalc.questions.fit.options import EngineOptions
from attncalc.questions.question import declared
from attncalc.show.formats import FORMATS
from attncalc.units import DTYPES

_TEXT_FORMATS = tuple(name for name, known in FORMATS.items() if not known.is_binary)
# Values that some option may not expect.
ODD = (
    "0",
    "1",
    "-1",
    "4096",
    "128K",
    "1e3",
    "9" * 40,
    "9" * 400,
    "",
    " ",
    "x",
    "-",
    "--",
    "nan",
    "inf",
    "٣",
    "512,300",
    "\u202e",
    "a\nb",
    "\x1b[31m",
    "1_000",
    "1,000",
    "0x10",
    "1.5",
    "+3",
    "a/b",
    ".",
    "/",
    "\udcff",
    "é",
)
SMALL = ("1", "2", "3", "4", "8", "16", "64")
TOKENS = ("1", "7", "16", "512", "1000", "4096", "8192", "32K", "128k", "200000", "1M")
SIZES = ("1GiB", "0", "5.38GiB", "500MiB", "80GB", "10", "3TiB", "9999999GiB")
VERSIONS = (
    "0.6.3",
    "0.8.5",
    "0.9.2",
    "0.10.0",
    "0.11.2",
    "0.15",
    "0.20.0",
    "0.33.0",
    "b4000",
    "b6000",
    "b9999",
    "0.5.3",
)
KINDS = ("mha", "mqa", "gqa:2", "gqa:8", "gqa:3", "gqa:0", "mla:512", "mla:x", "gqa", ":")
DTYPE = (*DTYPES, "auto")
# {option: its usual values}; an option that is not here has those of its metavar.
NAMED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("--tp", "--pp", "--dp", "--dcp", "--attn-dp", "--gpus", "--batch", "--sequences"), SMALL
    ),
    **dict.fromkeys(("--block-size", "--ubatch", "--max-num-seqs"), (*SMALL, "128", "256", "1024")),
    **dict.fromkeys(
        ("--speculative-tokens", "--speculative-layers", "--n-cpu-moe"), ("0", "1", "2", "3", "20")
    ),
    "--n-gpu-layers": ("0", "1", "5", "20", "33", "99", "auto", "all"),
    "--lengths": ("512,300", "1", "7,7,7", "4096,1,30000", "1,2,3,4,5,6,7,8", "0,1", ","),
    "--tensor-split": ("1", "1,1", "3,1", "0,1", "1,2,3,4", "0,0", "1,,2"),
    "--seed": ("0", "7"),
    "--minutes": ("1", "10", "600000"),
    "--log": ("engine.log", "-", "no-such.log", "."),
    "--context": (*TOKENS, "auto", "-1", "1K,4096", "512:2K:512", "1K:32K:x2", "4K:1K:1"),
    "--fail-if": (
        "kv_cache > 1GiB",
        "kv_cache>+0%",
        "params_total >= 7.5e9",
        "flops_decode < -5%",
        "n_kv_heads == 8",
    ),
    "--past": ("0", "1", "100", "4096", "4095"),
    "--record": ("record",),
}
# {metavar: usual values}.
METAVARS: dict[str, tuple[str, ...]] = {
    "N": TOKENS,
    "N|FILE": ("256", "1K", "answer.json"),
    "DTYPE": DTYPE,
    "KIND": KINDS,
    "SIZE": SIZES,
    "GIB": ("0", "4", "0.5", "4GiB"),
    "SHARE": ("0.9", "1", "0.5", "0.95", "0", "1.5", "0.0000001", "1e-3"),
    "RATIO": ("0.8", "1", "0.5", "2", "0"),
    "VERSION": VERSIONS,
    "MODE": ("on", "off", "auto"),
    "NAME": ("dynamic", "static", "quantized"),
    "PHASE": ("prefill", "decode", "train"),
    "MASK": ("causal", "bidirectional", "prefix:16", "prefix:0", "prefix:x"),
    "REVISION": ("main", "v2", "refs/pr/1"),
    "DEVICE": ("auto", "cpu", "cuda", "cuda:1", "xpu", "mps"),
    "KERNEL": ("all", "math", "flash", "efficient", "cudnn", "flex", "flash_attn2"),
    "LIBRARY": ("transformers",),
    "DIR": ("record",),
    "FILE": (
        "answer.json",
        "answer.csv",
        "answer.md",
        "answer.txt",
        "answer.html",
        "answer.tex",
        "answer",
    ),
    "FORMAT": _TEXT_FORMATS,
}
# Names after -o; those in a folder that is not there are errors.
FILES = (
    "answer.json",
    "a.csv",
    "sub/a.md",
    "../a.txt",
    "=1.json",
    "a b.json",
    "é.json",
    "x\ny.json",
    "-",
    ".json",
    "a.",
)
MODEL_COMMANDS = (
    "kv",
    "kv",
    "params",
    "params",
    "flops",
    "flops",
    "memory",
    "compare",
    "fit",
    "fit",
    "train",
)
FORMATTING = frozenset({"--json", "--format", "--output", "-o", "--force", "--explain"})


class Known:
    """An option of a command: its name, metavar, and whether it takes no value."""

    def __init__(self, parameter: Any) -> None:
        self.name: str = (
            max(parameter.opts, key=len) if len(parameter.opts[0]) < 3 else parameter.opts[0]
        )
        self.names: tuple[str, ...] = (*parameter.opts, *parameter.secondary_opts)
        self.is_flag: bool = parameter.is_flag
        self.metavar: str = parameter.metavar or ""

    def words(self, random: Random) -> tuple[str, ...]:
        """Return one of the option's names, and a value if it takes one."""
        name = random.choice(self.names)
        if self.is_flag:
            return (name,)
        return (name, self.value(random))

    def value(self, random: Random) -> str:
        """Return a usual value; once in twelve times an odd one."""
        if random.randrange(12) == 0:
            return random.choice(ODD)
        if self.metavar == "GPU":
            return gpu_word(random)
        if self.metavar == "ENGINE":
            return random.choice((*ENGINES, "all"))
        if self.metavar == "MODEL":
            return random.choice(models())
        return random.choice(NAMED.get(self.name) or METAVARS.get(self.metavar) or ODD)


@cache
def options(command: str) -> tuple[Known, ...]:
    """Return the options of a command, or of a subcommand as 'presets add'."""
    name, _, subcommand = command.partition(" ")
    found = get_command(command_of(declared(name)))
    if subcommand:
        found = found.commands[subcommand]  # type: ignore[attr-defined]
    return tuple(
        Known(parameter) for parameter in found.params if parameter.param_type_name == "option"
    )


@cache
def models() -> tuple[str, ...]:
    """Return the names of the built-in models."""
    return tuple(sorted(preset_names()))


@cache
def engine_options(engine: str) -> tuple[Known, ...]:
    """Return the options of `fit` that belong to the engine or to all engines."""
    of_engines = {option.name for option in options_of(EngineOptions).values()}
    engines = ENGINES if engine == "all" else (engine,)
    groups = [group for name in engines for group in find_engine(name).options]
    own = {option.name for group in groups for option in options_of(group).values()}
    return tuple(
        option
        for option in options("fit")
        if option.names[0] in own or option.names[0] not in of_engines
    )


def gpu_word(random: Random) -> str:
    """Return a GPU as --gpu takes it."""
    if random.randrange(3):
        return random.choice(
            ("h100", "a100-80gb", "rtx-4090", "l4", "t4", "24GB", "2xh100", "8xa100-40gb", "h200")
        )
    return random.choice((*gpu_names(), "0GB", "9" * 30 + "GB", "x", "0xh100", "1e9GB"))


def command_line(
    random: Random,
    model: str,
    commands: tuple[str, ...] = MODEL_COMMANDS,
    fixed: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """Return a command of `model` with up to six options besides `fixed`, and a choice of
    output.
    """
    command = random.choice(commands)
    known = options(command)
    words: list[str] = []
    if command == "fit":
        engine = random.choice(
            ("vllm",) * 5 + ("sglang",) * 3 + ("llamacpp",) * 4 + ("transformers", "ideal", "all")
        )
        known = engine_options(engine) if random.randrange(20) else known
        words += () if engine == "vllm" else ("--engine", engine)
        if "--log" not in fixed and "--gpu" not in fixed:
            place = random.randrange(8)
            if place < 4:
                words += ("--gpu", gpu_word(random))
            elif place < 7:
                words += ("--kv-memory", random.choice(SIZES))
    taken = {*fixed, *words}
    chosen = [
        option
        for option in random.sample(
            known, min(len(known), random.choice((0, 0, 1, 1, 1, 2, 2, 3, 4, 6)))
        )
        if not taken.intersection(option.names) and not FORMATTING.intersection(option.names)
    ]
    for option in chosen:
        words += option.words(random)
    return (command, *((model,) if model else ()), *fixed, *words, *output_words(random))


def output_words(random: Random) -> tuple[str, ...]:
    """Return a choice of output: JSON half of the time."""
    choice = random.randrange(20)
    if choice < 10:
        return ("--json",)
    if choice < 14:
        return ()
    if choice < 16:
        return ("--explain",)
    if choice < 19:
        return ("--format", random.choice((*_TEXT_FORMATS, "x")))
    return ("-o", random.choice(FILES), *random.choice(((), ("--force",), ("--json",))))
