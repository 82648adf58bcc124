"""Damaged inputs of every kind: arguments, model files, config.json, weights, logs, GPU files,
surroundings.

Every choice is drawn from a `random.Random`, which is quick; Hypothesis and atheris draw through
`st.randoms()`.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from .case import BROKEN, HUB, STREAM, Case
from .command_lines import (
    MODEL_COMMANDS,
    ODD,
    command_line,
    engine_options,
    gpu_word,
    models,
    options,
    output_words,
)
from .damage import damaged, damaged_bytes, text, value
from .gguf_bytes import architectures, gguf_bytes, small_model
from .same import same_answers

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data"
CHEAP = ("kv", "params", "flops", "memory")
# Commands that read a model's file; `compare` and `fit` take the longest.
READERS = (*CHEAP * 5, "compare", "fit")


def released_configs() -> dict[str, dict[str, Any]]:
    """Return config.json files by name: of measured and released models, and of vendors' own
    classes.
    """
    measured = json.loads((DATA / "huggingface.json").read_text(encoding="utf-8"))
    found = {name: entry["config"] for name, entry in measured.items()}
    real = json.loads((DATA / "real-configs.json").read_text(encoding="utf-8"))
    found |= {entry["name"]: entry["config"] for entry in real}
    found |= json.loads((DATA / "vendor-configs.json").read_text(encoding="utf-8"))
    return found


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Return many config.json by name: the released ones, and quantized ones."""
    found = released_configs()
    for folder in ("quantized", "engine-logs/models", "startups/models"):
        for path in sorted((DATA / folder).glob("*.json")):
            data = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(data, dict) and ("model_type" in data or "architectures" in data):
                found[path.stem] = data
    return found


@cache
def params_json() -> dict[str, dict[str, Any]]:
    """Return the params.json of Meta's and Mistral's releases by name."""
    from test_params_json import PRESETS, TOTALS

    return {**PRESETS, **{name: data for name, (data, _) in TOTALS.items()}}


@cache
def documents(folder: str) -> dict[str, dict[str, Any]]:
    """Return the built-in files of `presets/FOLDER` as data, by name."""
    files = sorted((ROOT / "presets" / folder).glob("*.yaml"))
    return {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


@cache
def model_texts() -> tuple[bytes, ...]:
    """Return the built-in model files as they are written."""
    return tuple(path.read_bytes() for path in sorted((ROOT / "presets" / "models").glob("*.yaml")))


def dump(data: Any) -> bytes:
    """Return data as the bytes of a JSON file."""
    return json.dumps(data).encode()


def maybe_cut(random: Random, content: bytes) -> bytes:
    """Return the content, damaged once in five times."""
    return damaged_bytes(random, content) if random.randrange(5) == 0 else content


def arguments(random: Random) -> Case:
    """Return a command on a built-in model."""
    model = (
        random.choice(models())
        if random.randrange(10)
        else random.choice((*ODD, "no-such-model", "a/b:x", "hf://x/y"))
    )
    return Case(command_line(random, model))


# How a model is split.
PLACES: tuple[tuple[str, ...], ...] = (
    ("--tp", "2"),
    ("--tp", "8"),
    ("--gpus", "4"),
    ("--gpus", "8"),
    ("--tp", "2", "--pp", "2"),
    ("--pp", "4"),
    ("--dp", "2"),
    ("--tp", "2", "--dp", "4", "--enable-expert-parallel"),
    ("--dp", "8", "--enable-expert-parallel"),
    ("--tp", "4", "--dcp", "2"),
    ("--tp", "8", "--dp", "8", "--enable-dp-attention"),
    ("--tp", "8", "--attn-dp", "4"),
)
# The requests of users.
TRAFFIC: tuple[tuple[str, ...], ...] = (
    ("--prompt", "4K", "--output-len", "1K"),
    ("--prompt", "4K", "--output-len", "256", "--shared-prefix", "1K"),
    ("--lengths", "100,5000,30000"),
    ("--prompt", "1", "--output-len", "1"),
)


def deployments(random: Random) -> Case:
    """Return `fit` as a user may type it: an engine, GPUs, a split, traffic, and up to two more
    options.
    """
    engine = random.choice(
        ("vllm", "vllm", "sglang", "sglang", "llamacpp", "llamacpp", "transformers", "ideal", "all")
    )
    gpu = random.choice(("h100", "a100-80gb", "rtx-4090", "l4", "24GB", "h200", "b200", "mi300x"))
    words = ["fit", random.choice(models()), "--engine", engine, "--gpu", gpu]
    words += random.choice(PLACES) if random.randrange(2) else ()
    words += random.choice(TRAFFIC) if random.randrange(3) == 0 else ()
    known = [option for option in engine_options(engine) if not {*words} & {*option.names, "--log"}]
    for option in random.sample(known, random.choice((0, 1, 1, 2))):
        if option.metavar not in ("FILE", "N|FILE", "FORMAT", "REVISION"):
            words += option.words(random)
    return Case(
        (*words, *random.choice(((), ("--full",), ("--json",), ("--json",), ("--roofline",))))
    )


COLUMNS = (
    "kv_cache",
    "params_total",
    "flops_total",
    "flops_prefill",
    "kv_cache_per_token",
    "concurrency",
    "max_context",
    "peak_flash",
    "fits",
    "model",
    "kv_cache,params_total",
    "x",
    "kv_cache,kv_cache",
    ",",
    "min_gpus,max_batch",
)
SWEPT: dict[str, tuple[str, ...]] = {
    "-c": ("1K,2K", "1024", "1K..8K", "1K:8K:1K", "512,512", "8K,1K,x", ",", "1..1000000"),
    "-b": ("1,2,4", "1..8", "0,1", "1"),
    "--tp": ("1,2", "2,3", "1,2,4,8"),
    "--kv-dtype": ("bf16,fp8", "fp8,x", "auto"),
    "--dtype": ("fp32,bf16",),
    "--attention": ("mha,mqa,gqa:2,mla:512", "gqa:0,mqa"),
    "--gpu": ("h100,l4", "24GB", "x,h100", "2xh100"),
    "--gpus": ("1,2,4",),
    "--engine": ("vllm,sglang", "all", "ideal"),
    "--phase": ("prefill,decode", "train"),
    "--columns": COLUMNS,
    "--show": COLUMNS,
}
ROWS = ("csv", "json", "jsonl", "markdown", "latex", "html", "tsv", "table", "x")


def sweeps(random: Random) -> Case:
    """Return `sweep` over a few values of a few options."""
    names = [random.choice((*models(), "model")) for _ in range(random.choice((1, 1, 2)))]
    files = (
        {"model/config.json": dump(damaged(random, configs(), most=1))} if "model" in names else {}
    )
    words = ["sweep", *names]
    for option in random.sample(sorted(SWEPT), random.choice((0, 1, 2, 2, 3))):
        words += (
            option,
            random.choice(SWEPT[option]) if random.randrange(12) else random.choice(ODD),
        )
    if random.randrange(3) == 0:
        known = random.choice(options("sweep"))
        if (
            known.metavar not in ("FILE", "FORMAT")
            and "--jobs" not in known.names
            and not {*known.names} & {*words}
        ):
            words += known.words(random)
    words += random.choice(
        ((), ("--json",), ("--json",), ("--format", random.choice(ROWS)), ("-o", "rows.jsonl"))
    )
    return Case(tuple(words), files)


def comparisons(random: Random) -> Case:
    """Return `compare` with several models, or with a model's own variants."""
    names = [random.choice(models()) for _ in range(random.choice((1, 2, 2, 3)))]
    files = {}
    if random.randrange(3) == 0:
        files = {"model/config.json": dump(damaged(random, configs(), most=1))}
        names[random.randrange(len(names))] = "model"
    return Case(command_line(random, "", ("compare",), fixed=tuple(names)), files)


def lists(random: Random) -> Case:
    """Return a command that needs no model's figures: gpus, presets, help, verify, or none at
    all.
    """
    command = random.choice(
        ("gpus", "presets", "presets list", "presets show", "presets schema", "presets families")
    )
    if random.randrange(3) == 0:
        command = random.choice(("verify", "verify", "help", "top"))
    if command == "help":
        word = random.choice((*MODEL_COMMANDS, "gpus", "verify", *ODD))
        return Case(
            random.choice(
                (("help", word), (word, "--help"), ("--help",), ("--version",), (), (word, word))
            )
        )
    if command == "top":
        shell = random.choice(("bash", "zsh", "fish", *ODD))
        return Case(
            random.choice(
                (("--show-completion", shell), (random.choice(ODD), "x"), ("--x", "kv", "gpt2"))
            )
        )
    if command == "verify":
        model = random.choice((*models(), *ODD)) if random.randrange(5) else ""
        return Case(command_line(random, model, ("verify",)))
    word = (
        random.choice((*models(), "h100", "qwen", "32b", gpu_word(random), *ODD))
        if random.randrange(3)
        else ""
    )
    chosen = [
        known for known in options(command) if random.randrange(8) == 0 and known.metavar != "FILE"
    ]
    words = tuple(part for known in chosen for part in known.words(random))
    return Case((*command.split(), *((word,) if word else ()), *words))


def model_files(random: Random) -> Case:
    """Return a command on a damaged model file in YAML."""
    content = dump(damaged(random, documents("models")))
    if random.randrange(2):
        content = damaged_bytes(random, random.choice(model_texts()))
    return Case(command_line(random, "model.yaml", READERS), {"model.yaml": content})


def config_files(random: Random) -> Case:
    """Return a command on a damaged config.json, in a folder or on standard input."""
    content = maybe_cut(random, dump(damaged(random, configs())))
    if random.randrange(10) == 0:
        return Case(command_line(random, "-", READERS), {STREAM: content})
    if random.randrange(12) == 0:
        return Case(
            ("presets", "add", "model", *random.choice(((), ("--assume-grouped",)))),
            {"model/config.json": content},
        )
    return Case(command_line(random, "model", READERS), {"model/config.json": content})


def params_files(random: Random) -> Case:
    """Return a command on a damaged params.json of Meta's or Mistral's."""
    content = maybe_cut(random, dump(damaged(random, params_json())))
    return Case(command_line(random, "model", READERS), {"model/params.json": content})


@cache
def quantizations() -> dict[str, dict[str, Any]]:
    """Return the quantization_config of every kind that the tests have, by a name of its own."""
    from test_quantization import METHODS
    from test_quantized_releases import RELEASES

    found = {
        name: config["quantization_config"]
        for name, config in configs().items()
        if isinstance(config.get("quantization_config"), dict)
    }
    for release in RELEASES:
        config = release.get("config")
        quantization = config.get("quantization_config") if isinstance(config, dict) else None
        if isinstance(quantization, dict):
            found[str(release.get("name"))] = quantization
    for method in METHODS:
        found[f"{method} 4"] = {
            "quant_method": method,
            "bits": 4,
            "group_size": 128,
            "desc_act": True,
            "sym": False,
        }
        found[f"{method} load"] = {
            "quant_method": method,
            "load_in_4bit": True,
            "bnb_4bit_use_double_quant": True,
        }
        found[f"{method} w"] = {
            "quant_method": method,
            "weights": "int8",
            "modules_to_not_convert": ["lm_head"],
        }
        found[f"{method} block"] = {
            "quant_method": method,
            "weight_block_size": [128, 128],
            "ignore": ["re:.*gate"],
        }
        found[f"{method} algo"] = {
            "quant_method": method,
            "quant_algo": "NVFP4",
            "kv_cache_quant_algo": "FP8",
        }
    return found


# Fields of quantizations and values that their readers know, or nearly know.
QUANTIZATION_WORDS: dict[str, tuple[Any, ...]] = {
    "bits": (2, 3, 4, 8, 16, 0, 5, "4"),
    "group_size": (-1, 32, 64, 128, 0, 7, None),
    "quant_algo": ("FP8", "NVFP4", "W4A16_AWQ", "W4A8_AWQ", "MIXED_PRECISION", "x"),
    "kv_cache_quant_algo": ("FP8", "NVFP4", None, "x"),
    "weight_block_size": ([128, 128], [1, 32], [], None, [0, 0]),
    "modules_to_not_convert": (["lm_head"], ["model.layers.0"], [], None, ["re:.*"], [5]),
    "load_in_8bit": (True, False),
    "bnb_4bit_quant_type": ("nf4", "fp4", "x"),
    "bnb_4bit_quant_storage": ("uint8", "bfloat16", "x"),
    "zero_point": (True, False),
    "backend": ("autoawq", "x"),
    "weights": ("int8", "int4", "float8", "x"),
    "linear_class": ("autobitlinear", "bitlinear"),
    "quant_type": (
        "int4_weight_only",
        {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}},
        "x",
    ),
    "head_bits": (6, 8, 16),
    "mode": ("affine", "mxfp4", "nvfp4", "mxfp8"),
}


def quantized_files(random: Random) -> Case:
    """Return a command on a config whose quantization is of another model, damaged, or in a file
    beside it.
    """
    config = damaged(random, configs(), most=1)
    quantization = damaged(random, quantizations(), most=2)
    for key in random.sample(sorted(QUANTIZATION_WORDS), random.choice((0, 0, 1, 2, 3))):
        quantization[key] = random.choice(QUANTIZATION_WORDS[key])
    name = random.choice(("hf_quant_config.json", "quantize_config.json", "quant_config.json"))
    files = {}
    if random.randrange(3) == 0:
        config.pop("quantization_config", None)
        beside = {"quantization": quantization} if random.randrange(2) else quantization
        files[f"model/{name}"] = maybe_cut(random, dump(beside))
    else:
        config[
            random.choice(("quantization_config",) * 5 + ("compression_config", "quantization"))
        ] = quantization
    files["model/config.json"] = dump(config)
    return Case(command_line(random, "model", READERS), files)


def safetensors_files(random: Random) -> Case:
    """Return a command on a folder with damaged safetensors headers, and perhaps an index."""
    dtypes = ("F32", "BF16", "BF16", "F16", "F16", "I8", "U8", "F8_E4M3", "I32", "F4", "x", "")
    names = (
        ("model.safetensors",)
        if random.randrange(2)
        else ("model-1.safetensors", "model-2.safetensors")
    )
    files: dict[str, bytes] = {}
    placed: dict[str, Any] = {}
    for file in names:
        header: dict[str, Any] = {}
        end = 0
        for i in range(random.randint(0, 4)):
            shape = [
                random.choice((1, 8, 64, random.randint(0, 9))) for _ in range(random.randrange(4))
            ]
            dtype = random.choice(dtypes)
            size = {"F32": 4, "I32": 4, "BF16": 2, "F16": 2}.get(dtype, 1)
            for width in shape:
                size *= width
            tensor = (
                f"{file[:7]}.t{i}"
                if random.randrange(3)
                else f"model.layers.{i}.self_attn.q_proj.weight"
            )
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
            placed[tensor] = file
            end += size
        if random.randrange(3) == 0:
            header = damaged(
                random, {"x": header or {"a": 1}, "y": {"__metadata__": {"format": "pt"}}}
            )
        content = dump(header)
        content = len(content).to_bytes(8, "little") + content + bytes(min(end, 1 << 20))
        files[f"model/{file}"] = maybe_cut(random, content)
    if len(names) > 1 or random.randrange(3) == 0:
        index = {
            "metadata": {"total_size": random.choice((1000, value(random)))},
            "weight_map": placed,
        }
        if random.randrange(3) == 0:
            index = damaged(random, {"x": index})
        if random.randrange(4) == 0 and placed:
            placed[random.choice(list(placed))] = random.choice(
                ("../x", "", "model-3.safetensors", 5, "/etc/passwd")
            )
        files["model/model.safetensors.index.json"] = maybe_cut(random, dump(index))
    files["model/config.json"] = dump(
        configs()[random.choice(("gpt2", *configs()))] if random.randrange(2) else configs()["gpt2"]
    )
    return Case(command_line(random, "model", READERS), files)


@cache
def logs() -> tuple[tuple[bytes, ...], ...]:
    """Return the lines of the logs of tests/data, each log cut to its first 100 kB, and of those
    that tests quote.
    """
    from test_log_doctor import TOO_SMALL
    from test_log_fuzz import KNOWN
    from test_logs import HYBRID, LLAMACPP, RANKS, SGLANG, VLLM

    files = [path for path in sorted(DATA.rglob("*")) if path.suffix in (".log", ".txt")]
    texts = [path.read_bytes()[:100_000] for path in files]
    texts += [
        text.encode()
        for text in (SGLANG, LLAMACPP, HYBRID, RANKS, VLLM, TOO_SMALL, SGLANG, LLAMACPP)
        for _ in range(4)
    ]
    texts += ["\n".join(KNOWN).encode()] * 4
    return tuple(tuple(text.splitlines(keepends=True)) for text in texts)


LOG_NUMBERS = (
    b"0",
    b"-1",
    b"9" * 30,
    b"9" * 5000,
    b"1e9",
    b"NaN",
    b"",
    b"1.2.3",
    "٣".encode(),
    b"0.0000000000001",
)


def engine_logs(random: Random) -> Case:
    """Return `fit --log` of a log with lines missing, repeated, of another log, or with another
    number.
    """
    lines = list(random.choice(logs()))
    if random.randrange(2):
        start = random.randrange(len(lines))
        lines = lines[start : start + random.choice((1, 5, 30, 200))]
    for _ in range(random.choice((0, 0, 1, 2, 3))):
        lines.insert(random.randint(0, len(lines)), random.choice(random.choice(logs())))
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        at = random.randrange(len(lines))
        line = lines[at]
        digits = [i for i, byte in enumerate(line) if 48 <= byte <= 57]
        if digits:
            i = random.choice(digits)
            lines[at] = line[:i] + random.choice(LOG_NUMBERS) + line[i + 1 :]
    content = b"".join(lines)
    if random.randrange(4) == 0:
        content = damaged_bytes(random, content)
    if random.randrange(20) == 0:
        content = content.decode("utf-8", "replace").encode(
            random.choice(("utf-16", "utf-16-be", "utf-8-sig"))
        )
    model = random.choice(("qwen3-8b", "gpt2", "llama3-8b", "deepseek-v3", "gemma3-27b", "", ""))
    if random.randrange(3):
        form = output_words(random)
        return Case(
            ("fit", *((model,) if model else ()), "--log", "engine.log", *form),
            {"engine.log": content},
        )
    return Case(
        command_line(random, model, ("fit",), ("--log", "engine.log")), {"engine.log": content}
    )


def gpu_files(random: Random) -> Case:
    """Return a command with a damaged file of a GPU."""
    content = dump(damaged(random, documents("gpus")))
    if random.randrange(3) == 0:
        content = damaged_bytes(random, content)
    files = {"gpu.yaml": content}
    choice = random.randrange(3)
    if choice == 0:
        return Case(("gpus", "gpu.yaml", *output_words(random)), files)
    if choice == 1:
        return Case(
            ("fit", "gpt2", "--engine", "ideal", "--gpu", "gpu.yaml", *output_words(random)), files
        )
    return Case(
        command_line(random, random.choice(models()), ("fit",), ("--gpu", "gpu.yaml")), files
    )


def gguf_files(random: Random) -> Case:
    """Return a command on a GGUF file of an architecture with keys, shapes and types changed, then
    damaged bytes.
    """
    keys, shapes = map(dict, small_model(random.choice(architectures())))
    whole = random.randrange(3) == 0
    for _ in range(0 if whole else random.randint(0, 3)):
        name = random.choice(list(keys))
        choice = random.randrange(4)
        if choice == 0:
            keys.pop(name)
        elif choice == 1:
            keys[name] = random.choice(
                ([random.randint(0, 300) for _ in range(random.randint(1, 5))], text(random), 0.5)
            )
        else:
            keys[name] = random.choice(
                (0, 1, 2, 3, 7, 96, 2**31, 2**32 - 1, True, random.randint(0, 300))
            )
        if not keys:
            break
    for _ in range(0 if whole else random.randint(0, 2)):
        name = random.choice(list(shapes))
        choice = random.randrange(3)
        if choice == 0:
            shapes.pop(name)
        elif choice == 1:
            shapes[f"{text(random)}{name}"] = shapes.pop(name)
        else:
            shapes[name] = tuple(
                random.choice((1, 32, 96, random.randint(0, 60)))
                for _ in range(random.randint(0, 5))
            )
    kinds = random.choice(
        ((1,), (0,), (30,)) if whole else ((1,), (1,), (0,), (1, 30, 8), tuple(range(40)))
    )
    tensors = [(name, shape, random.choice(kinds)) for name, shape in shapes.items()]
    content = gguf_bytes(keys, tensors)
    if not whole and random.randrange(3) == 0:
        header = content.rstrip(b"\0")
        content = damaged_bytes(random, header) + bytes(len(content) - len(header))
    return Case(command_line(random, "m.gguf", READERS), {"m.gguf": content})


def cached_repositories(random: Random) -> Case:
    """Return a command on a repository in huggingface_hub's cache."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = f"hub/models--org--name/snapshots/{commit}"
    content = dump(damaged(random, configs(), most=1))
    files = {
        f"{folder}/{random.choice(('config.json', 'config.json', 'params.json', 'x-Q4_K_M.gguf'))}": content,
        "hub/models--org--name/refs/main": damaged_bytes(
            random, commit.encode(), most=random.randrange(2)
        ),
    }
    name = random.choice(
        ("org/name", "org/name@main", f"org/name@{commit}", "https://huggingface.co/org/name")
    )
    if random.randrange(3) == 0:
        name = random.choice(
            (
                "org/name@v2",
                "org/name:Q4_K_M",
                "org/name:config.json",
                "hf://org/name/tree/main",
                "org/x",
            )
        )
    if random.randrange(6) == 0:
        name += text(random)
    variable = random.choice(("HF_HUB_CACHE", "HF_HOME"))
    environment = {variable: "hub" if variable == "HF_HUB_CACHE" else "."}
    return Case(command_line(random, name, READERS), files, environment)


def hub_repositories(random: Random) -> Case:
    """Return a command on a repository of a hub, which may answer a request with an error."""
    case = random.choice(
        (config_files, params_files, quantized_files, safetensors_files, gguf_files)
    )(random)
    model = next((word for word in ("model", "m.gguf") if word in case.arguments), "")
    if not model:
        return case
    files = {
        f"{HUB}org/name/{name.removeprefix('model/')}": content
        for name, content in case.files.items()
    }
    if random.randrange(5) == 0:
        end = random.choice(
            ("revision/main", "config.json", ".safetensors", ".index.json", ".gguf")
        )
        files[f"{BROKEN}{end}"] = random.choice(
            (b"401", b"403", b"404", b"429", b"500", b"302", b"204", b"416")
        )
    name = random.choice(
        (
            "org/name",
            "org/name",
            "org/name@main",
            "org/name@v2",
            "hf://org/name",
            "org/name:config.json",
        )
    )
    return Case(tuple(name if word == model else word for word in case.arguments), files)


def folders(random: Random) -> Case:
    """Return a command on a folder with several or odd files, or on an odd path."""
    names = (
        "config.json",
        "params.json",
        "model.yaml",
        "other.yml",
        "model.safetensors",
        "model.gguf",
        "config.json/",
        "model.safetensors/",
        "a\nb.yaml",
        "é.yaml",
        "=x.yaml",
        "\u202e.json",
        "quant_config.json",
        "model_index.json",
    )
    contents = (
        dump(random.choice(list(configs().values()))),
        b"",
        b"{}",
        b"[]",
        b"null",
        b"GGUF",
        b"\0" * 100,
        b"a: b: c",
        random.choice(model_texts()),
        dump(random.choice(list(params_json().values()))),
        b"version https://git-lfs\n",
    )
    chosen = random.sample(names, random.choice((1, 1, 2, 3)))
    chosen = [name for name in chosen if f"{name}/" not in chosen]
    files = {
        f"folder/{name}": b"" if name.endswith("/") else random.choice(contents) for name in chosen
    }
    path = random.choice(
        (
            "folder",
            "folder/",
            "./folder",
            f"folder/{chosen[0]}",
            f"folder/{chosen[-1]}",
            "folder/../folder",
        )
    )
    if random.randrange(8) == 0:
        return Case(("presets", "add", path), files)
    return Case(command_line(random, path, READERS), files)


def named_files(random: Random) -> Case:
    """Return a command on a folder or a repository with numbered files, mostly empty, some with
    damaged names.
    """
    suffix = random.choice((".safetensors", ".gguf"))
    keys, shapes = small_model(random.choice(architectures()))
    gguf = gguf_bytes(keys, [(name, shape, 1) for name, shape in shapes.items()])
    whole = gguf if suffix == ".gguf" else b"\2" + bytes(7) + b"{}"
    names: set[str] = set()
    stems = (
        "model",
        "model",
        "adapter",
        "m-Q4_K_M",
        "mmproj",
        "_Q4" * 9,
        "-1-of-2" * 9,
        "x{}",
        "x{}",
        "x{}",
    )
    same = random.choice((None, random.choice(stems)))
    for i in range(random.choice((1, 2, 3, 60))):
        files = 99_999 if same == "x{}" else random.choice((0, 1, 2, 3, 3, 9, 1000, 99_999, 10**9))
        number, width = (
            random.choice((0, 1, 1, 2, 3, files, files + 1)),
            random.choice((1, 5, 5, 5, 9)),
        )
        parts = [
            (same or random.choice(stems)).format(i),
            "-",
            f"{number:0{width}}",
            "-of-",
            f"{files:0{width}}",
            suffix,
        ]
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            at = random.randrange(len(parts))
            parts[at] = random.choice(
                ("", text(random), parts[at].upper(), parts[at] * 2, "-00001-of-00002", "\u0663")
            )
        name = "".join(letter for letter in "".join(parts) if letter not in "/\0\ud800").lstrip(".")
        names.add(name or "x")
    place, path = random.choice(
        (("folder/", "folder"), ("folder/", f"folder/{min(names)}"), (f"{HUB}org/name/", ""))
    )
    contents = {f"{place}{name}": random.choice((b"", b"", whole)) for name in names}
    if suffix == ".safetensors":
        contents[f"{place}config.json"] = dump(configs()["gpt2"])
    path = path or random.choice(("org/name", "org/name:Q4_K_M", "org/name:x"))
    return Case(command_line(random, path, READERS), contents)


def surroundings(random: Random) -> Case:
    """Return a case of another kind in odd surroundings: a terminal, its width, colours, the
    output's encoding.
    """
    case = random.choice((arguments, arguments, comparisons, lists, folders, model_files))(random)
    variables: Mapping[str, tuple[str, ...]] = {
        "COLUMNS": ("0", "1", "10", "40", "80", "200", "99999", "-5", "x", ""),
        "LINES": ("0", "24", "x"),
        "NO_COLOR": ("", "1"),
        "FORCE_COLOR": ("", "1"),
        "TERM": ("dumb", "xterm-256color", "unknown", "", "linux"),
        "COLORTERM": ("truecolor", ""),
        "LANG": ("C", "de_DE.UTF-8", "tr_TR.UTF-8", "x"),
        "LC_ALL": ("C", "C.UTF-8", "POSIX", ""),
        "PYTHONIOENCODING": ("ascii", "cp1252", "latin-1", "utf-8", "cp437"),
        "HF_HOME": ("", "/dev/null", "~"),
        "HOME": ("", "/nonexistent"),
        "COMP_WORDS": ("attncalc kv",),
    }
    chosen = random.sample(sorted(variables), random.choice((1, 2, 3, 5)))
    environment = {name: random.choice(variables[name]) for name in chosen}
    arguments_ = case.arguments
    is_terminal = random.randrange(2) == 0
    if is_terminal and random.randrange(2):
        arguments_ = tuple(word for word in arguments_ if word != "--json")
    return Case(arguments_, case.files, {**case.environment, **environment}, is_terminal)


Generator = Callable[[Random], Case]
# Every kind of input by name.
KINDS: dict[str, Generator] = {
    "arguments": arguments,
    "same_answers": same_answers,
    "comparisons": comparisons,
    "deployments": deployments,
    "sweeps": sweeps,
    "lists": lists,
    "model_files": model_files,
    "configs": config_files,
    "params_json": params_files,
    "quantized": quantized_files,
    "safetensors": safetensors_files,
    "logs": engine_logs,
    "gpu_files": gpu_files,
    "gguf": gguf_files,
    "cached": cached_repositories,
    "hub": hub_repositories,
    "folders": folders,
    "names": named_files,
    "surroundings": surroundings,
}
