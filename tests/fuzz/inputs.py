"""Strategies for damaged inputs of every kind: arguments, model files, config.json, weights, logs, GPU files."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import gguf
import yaml
from gguf_files import SmallModel, write_gguf
from hypothesis import strategies as st
from typer.main import get_command

from attncalc.config.gguf.architectures import ARCHITECTURES

from .case import STREAM, Case

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parents[1] / "data"

NUMBERS: tuple[Any, ...] = (0, 1, -1, 2, 7, 64, 2**31, 2**63, 10**15, 10**30, 10**400, 0.5, 1.0, 1e308, -0.0)
OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    "",
    "x",
    "64",
    "٣",
    "a\nb",
    "\u202e",
    [],
    [1],
    [[]],
    {},
    {"x": {}},
    {"0": 5},
)
BOOLEANS: st.SearchStrategy[bool] = st.booleans()
VALUES = st.sampled_from(NUMBERS + OTHERS) | st.integers(0, 300) | st.text(max_size=8)
WORDS = st.sampled_from(
    ["0", "1", "-1", "4096", "128K", "1e3", "9" * 40, "", "x", "-", "nan", "٣", "512,300", "\u202e"]
)


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Return the config.json of each measured model, by name."""
    entries = json.loads((DATA / "huggingface.json").read_text(encoding="utf-8"))
    return {name: entry["config"] for name, entry in entries.items()}


@cache
def documents(folder: str) -> dict[str, dict[str, Any]]:
    """Return the built-in files of `presets/FOLDER` as data, by name."""
    files = sorted((ROOT / "presets" / folder).glob("*.yaml"))
    return {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


@st.composite
def damaged(draw: st.DrawFn, sources: Callable[[], dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return one of `sources` with up to four of its fields changed, removed, renamed or taken from another."""
    known = sources()
    data = copy.deepcopy(known[draw(st.sampled_from(sorted(known)))])
    for _ in range(draw(st.integers(0, 4))):
        part = data
        inner = [key for key, value in data.items() if isinstance(value, dict)]
        if draw(BOOLEANS) and inner:
            part = data[draw(st.sampled_from(inner))]
        if not part:
            continue
        key = draw(st.sampled_from(sorted(part, key=str)))
        other = known[draw(st.sampled_from(sorted(known)))]
        match draw(st.sampled_from(["change", "change", "remove", "rename", "borrow", "nest"])):
            case "change":
                part[key] = copy.deepcopy(draw(VALUES))
            case "remove":
                del part[key]
            case "rename":
                part[draw(st.sampled_from(sorted(other)))] = part.pop(key)
            case "borrow":
                borrowed = draw(st.sampled_from(sorted(other)))
                part[borrowed] = copy.deepcopy(other[borrowed])
            case "nest":
                part[key] = {key: part[key]}
    return data


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Return `content` with up to three slices removed, repeated or replaced."""
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(content)))
        end = min(len(content), start + draw(st.integers(0, 40)))
        piece = draw(st.binary(max_size=12) | st.sampled_from([content[start:end] * 2, b"\xff\xfe", b"\0" * 9]))
        content = content[:start] + piece + content[end:]
    return content


@cache
def known_options(command: str) -> frozenset[str]:
    """Return every name of an option of the command."""
    module = import_module(f"attncalc.cli.{command}")
    return frozenset(name for option in get_command(module.app).params for name in option.opts)


_FLAG = st.just("")
_SMALL = WORDS | st.integers(1, 9).map(str)
_DTYPE = st.sampled_from(["fp32", "bf16", "fp8", "int4", "fp4", "float16", "auto", "x", ""])
_COMMON = {
    "-b": _SMALL,
    "-c": WORDS | st.integers(1, 200_000).map(str),
    "--kv-dtype": _DTYPE,
    "--dtype": _DTYPE,
    "--tp": _SMALL,
    "--lengths": WORDS,
    "--attention": st.sampled_from(["mha", "mqa", "gqa:2", "gqa:0", "mla:512", "mla:x", "gqa", ":", "x"]),
    "--source-context": WORDS,
    "--assume-grouped": _FLAG,
    "--explain": _FLAG,
    "--format": st.sampled_from(["csv", "markdown", "table", "json", "x"]),
}
_FIT = {
    **_COMMON,
    "--gpu": st.sampled_from(["h100", "t4", "24GB", "2xh100", "0GB", "rtx-4090", "9" * 30 + "GB", "x", ""]),
    "--gpus": _SMALL,
    "--pp": _SMALL,
    "--dp": _SMALL,
    "--engine": st.sampled_from(["vllm", "sglang", "llamacpp", "transformers", "ideal", "all", "x"]),
    "--engine-version": st.sampled_from(["0.9.2", "0.15", "0.6.3", "b4000", "b9999999", "x", "0.33.0", "0.5.3"]),
    "--gpu-memory-utilization": st.sampled_from(["0.9", "1", "0", "1.5", "0.0000001", "nan", "x", "1e-3"]),
    "--reserve": st.sampled_from(["1GiB", "0", "9999999GiB", "x"]),
    "--kv-memory": st.sampled_from(["5.38GiB", "1", "0", "9" * 40, "x"]),
    "--weights-dtype": _DTYPE,
    "--prompt": WORDS,
    "--output-len": WORDS,
    "--max-num-seqs": _SMALL,
    "--max-num-batched-tokens": WORDS,
    "--block-size": _SMALL,
    "--speculative-tokens": _SMALL,
    "--full": _FLAG,
    "--roofline": _FLAG,
    "--enable-expert-parallel": _FLAG,
    "--enforce-eager": _FLAG,
    "-ngl": WORDS | st.integers(0, 100).map(str) | st.sampled_from(["auto", "all"]),
    "--n-cpu-moe": _SMALL,
    "--cpu-moe": _FLAG,
    "--tensor-split": st.sampled_from(["1", "1,1", "3,1", "0", "0,0", "1,,2", "x", "9" * 40, ""]),
    "--no-kv-offload": _FLAG,
}
COMMANDS = ("kv", "params", "flops", "memory", "compare", "fit")


@st.composite
def command_lines(
    draw: st.DrawFn, model: str, commands: tuple[str, ...] = COMMANDS, fixed: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return a command of `model` with up to four options besides the fixed ones; JSON half of the time."""
    command = draw(st.sampled_from(commands))
    table = _FIT if command == "fit" else _COMMON
    names = sorted(known_options(command) & set(table) - set(fixed))
    gpu = ("--gpu", "h100") if command == "fit" and "--gpu" not in fixed else ()
    chosen = draw(st.lists(st.sampled_from(names), max_size=4, unique=True))
    words = [word for name in chosen for word in (name, *((draw(table[name]),) if table[name] is not _FLAG else ()))]
    if "--gpu" in chosen:
        gpu = ()
    form = ("--json",) if draw(BOOLEANS) and "--format" not in chosen else ()
    return (command, model, *fixed, *gpu, *words, *form)


@st.composite
def _arguments(draw: st.DrawFn) -> Case:
    model = draw(st.sampled_from([*sorted(documents("models")), "no-such-model", "", "a/b", "-", "\u202e"]))
    return Case(draw(command_lines(model)), {})


@st.composite
def _model_files(draw: st.DrawFn) -> Case:
    content = json.dumps(draw(damaged(lambda: documents("models")))).encode()
    if draw(BOOLEANS):
        name = draw(st.sampled_from(sorted(documents("models"))))
        content = draw(damaged_bytes((ROOT / "presets" / "models" / f"{name}.yaml").read_bytes()))
    return Case(draw(command_lines("model.yaml")), {"model.yaml": content})


@st.composite
def _configs(draw: st.DrawFn) -> Case:
    content = json.dumps(draw(damaged(configs))).encode()
    if draw(st.integers(0, 4)) == 0:
        content = draw(damaged_bytes(content))
    if draw(st.integers(0, 9)) == 0:
        return Case(draw(command_lines("-")), {STREAM: content})
    return Case(draw(command_lines("model")), {"model/config.json": content})


@st.composite
def _safetensors(draw: st.DrawFn) -> Case:
    dtypes = st.sampled_from(["F32", "BF16", "F16", "I8", "U8", "F8_E4M3", "I32", "F4", "x", ""])
    shapes = st.lists(st.sampled_from([0, 1, 8, 64, 2**63, -1, 10**30]) | st.integers(0, 9), max_size=3)
    header: dict[str, Any] = {}
    end = 0
    for i in range(draw(st.integers(0, 4))):
        shape, dtype = draw(shapes), draw(dtypes)
        size = 1
        for width in shape:
            size = min(size * abs(width), 64) * 2
        header[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    if draw(BOOLEANS):
        header = draw(damaged(lambda: {"x": header or {"a": 1}}))
    text = json.dumps(header).encode()
    file = len(text).to_bytes(8, "little") + text + b"\0" * end
    index = {
        "metadata": {"total_size": draw(VALUES)},
        "weight_map": {"t0": draw(st.sampled_from(["model.safetensors", "../x", ""]))},
    }
    files = {"model/config.json": json.dumps(configs()["gpt2"]).encode()}
    files["model/model.safetensors"] = draw(damaged_bytes(file))
    if draw(BOOLEANS):
        files["model/model.safetensors.index.json"] = draw(damaged_bytes(json.dumps(index).encode()))
    return Case(draw(command_lines("model", ("params", "kv", "fit"))), files)


@cache
def logs() -> list[bytes]:
    """Return the logs of tests/data, each cut to its first 200 kB."""
    files = [path for path in sorted(DATA.rglob("*")) if path.suffix in (".log", ".txt")]
    return [path.read_bytes()[:200_000] for path in files]


@st.composite
def _logs(draw: st.DrawFn) -> Case:
    content = draw(st.sampled_from(logs()))
    lines = content.splitlines(keepends=True)
    kept = draw(st.lists(st.integers(0, max(0, len(lines) - 1)), max_size=30))
    content = draw(damaged_bytes(b"".join(lines[i] for i in kept) if draw(BOOLEANS) and kept else content))
    model = draw(st.sampled_from([("qwen3-8b",), ("gpt2",), ()]))
    json_option = ("--json",) if draw(BOOLEANS) else ()
    return Case(("fit", *model, "--log", "engine.log", *json_option), {"engine.log": content})


@st.composite
def _gpu_files(draw: st.DrawFn) -> Case:
    content = json.dumps(draw(damaged(lambda: documents("gpus")))).encode()
    return Case(draw(command_lines("llama2-70b", ("fit",), ("--gpu", "gpu.yaml"))), {"gpu.yaml": content})


@st.composite
def _gguf(draw: st.DrawFn) -> Case:
    """Return a small file of an architecture with up to three keys and shapes changed, then up to three slices."""
    small = SmallModel(draw(st.sampled_from(sorted(gguf_architectures()))))
    keys, shapes = small.keys(), small.shapes()
    numbers = st.sampled_from([0, 1, 2, 3, 7, 96, 2**31, 2**32 - 1]) | st.integers(0, 300)
    lists = st.lists(st.integers(0, 300) | st.just(2**31 - 1), min_size=1, max_size=5)
    values = numbers | BOOLEANS | st.text(max_size=8) | lists | st.floats(width=32)
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(sorted(keys)))
        if draw(BOOLEANS):
            keys[name] = draw(values)
        else:
            keys.pop(name)
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(sorted(shapes)))
        if draw(BOOLEANS):
            shapes.pop(name)
        else:
            shapes[name] = tuple(draw(st.lists(st.integers(1, 60), min_size=1, max_size=3)))
    with tempfile.TemporaryDirectory() as folder:
        content = write_gguf(Path(folder, "m.gguf"), small.name, keys, shapes).read_bytes()
    header, data = content[:20_000], content[20_000:]
    file = draw(damaged_bytes(header)) + data
    return Case(draw(command_lines("m.gguf")), {"m.gguf": file})


@cache
def gguf_architectures() -> tuple[str, ...]:
    """Return the architectures that attncalc and the gguf package know."""
    return tuple(name for name in ARCHITECTURES if name in gguf.MODEL_ARCH_NAMES.values())


TARGETS: dict[str, st.SearchStrategy[Case]] = {
    "arguments": _arguments(),
    "model_files": _model_files(),
    "configs": _configs(),
    "safetensors": _safetensors(),
    "logs": _logs(),
    "gpu_files": _gpu_files(),
    "gguf": _gguf(),
}
"""Every kind of input by name."""
