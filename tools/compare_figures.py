"""Record the JSON of every command over many models, and compare two recordings.

A change that must not change a figure is checked like this:

    git worktree add /tmp/before main
    PYTHONPATH=/tmp/before python tools/compare_figures.py record before.jsonl CONFIGS...
    python tools/compare_figures.py record after.jsonl CONFIGS...
    python tools/compare_figures.py compare before.jsonl after.jsonl

CONFIGS are config.json files, or folders that contain them; the presets are always recorded.
`compare` looks at exit codes and at every number of the JSON. Words, formulas and sources may
differ.
"""

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Commands that are run for every model.
COMMANDS = [
    "kv",
    "kv -b 8 -c 4096",
    "kv -b 3 -c 5000 --engine transformers",
    "kv -c 4096 --tp 2",
    "kv -c 4096 --kv-dtype fp8",
    "kv -c 4096 --attention mha",
    "kv -c 4096 --attention mqa",
    "kv -c 4096 --attention mla:512",
    "kv --lengths 900,512,77",
    "params",
    "flops -c 4096",
    "flops -c 4096 -b 2 --phase decode",
    "flops -c 1024 --phase train",
    "flops -c 4096 --past 1024",
    "memory -c 2048",
    "memory -c 2048 --phase decode -b 2",
    "compare -c 4096",
    "compare -c 8192 -b 4 --attention mla:512",
    "compare llama2-70b -c 4096",
    "fit --gpu h100-80gb --gpus 8 -c 4096",
    "fit --gpu h200 --gpus 8 --tp 4 --pp 2 -c 8192 -b 4",
    "fit --gpu rtx-4090 -c 8192 --weights-dtype fp8 --kv-dtype fp8",
    "fit --gpu h100-80gb --gpus 2 -c 4096 --engine sglang",
    "fit --gpu h100-80gb --gpus 2 -c 4096 --engine llamacpp",
    "fit --gpu a100-40gb -c 4096 --engine transformers",
    "fit --kv-memory 40GiB -c 4096",
    "fit --kv-memory 40GiB -c 4096 --engine-version 0.11.0",
    "fit --kv-memory 40GiB -c 4096 --engine-version v0",
    "fit --kv-memory 7.5GiB -c 4096 -b 3 --engine sglang",
    "fit --kv-memory 7.5GiB -c 4096 -b 3 --engine llamacpp",
    "fit --kv-memory 7.5GiB -c 4096 -b 3 --engine transformers",
    "fit --kv-memory 40GiB --engine all",
]

WITHOUT_MODEL = ["gpus", "gpus h100", "presets", "presets families"]

# Names in JSON that changed on purpose: {before: after}.
RENAMED: dict[str, str] = {"fixes": "suggestions", "words": "log_lines"}

# Names that changed on purpose in the JSON of one command only.
RENAMED_IN: dict[str, dict[str, str]] = {
    "presets": {"kv_cache_per_token": "kv_cache_per_token_max"}
}

# Names of figures that only the later version has.
ADDED = frozenset({"kv_cache_per_token_max"})

# Keys of JSON that hold words; the numbers of `symbols` belong to a formula, whose spelling may
# change.
IGNORED = frozenset(
    {"notes", "formula", "substituted", "symbols", "source", "attncalc", "title", "label", "kind"}
)


def main() -> None:
    """Run `record` or `compare`; exit with 1 if two recordings differ."""
    match sys.argv[1:]:
        case ["record", output, *configs]:
            record(Path(output), [Path(config) for config in configs])
        case ["compare", before, after]:
            sys.exit(compare(Path(before), Path(after)))
        case _:
            sys.exit(__doc__)


def record(output: Path, configs: list[Path]) -> None:
    """Write one line of JSON per command to `output`."""
    from attncalc import preset_names

    files = [
        file
        for path in configs
        for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])
    ]
    models = [*preset_names(), *map(str, files)]
    lines = [*WITHOUT_MODEL, *(f"{model} {command}" for model in models for command in COMMANDS)]
    with ProcessPoolExecutor() as pool, output.open("w", encoding="utf-8") as file:
        for line in pool.map(run, lines, chunksize=32):
            file.write(json.dumps(line) + "\n")


def run(line: str) -> dict[str, Any]:
    """Return what one command prints as JSON, its exit code and its errors."""
    from attncalc.cli import run as attncalc

    words = line.split()
    if words[0] not in {words[0] for words in map(str.split, WITHOUT_MODEL)}:
        model, command, *options = words
        words = [command, model, *options]
    sys.argv = ["attncalc", *words, "--json"]
    out = io.StringIO()
    err = io.StringIO()
    out.buffer = io.BytesIO()  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = attncalc()
        except SystemExit as error:
            code = int(error.code or 0)
    text = out.getvalue() or out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    return {
        "command": line,
        "code": code,
        "error": err.getvalue(),
        "json": json.loads(text) if text else None,
    }


def compare(before: Path, after: Path) -> int:
    """Print what differs between two recordings, and return 1 if something does."""
    old = read(before)
    new = read(after)
    differences = [f"{command}: only in one recording" for command in old.keys() ^ new.keys()]
    errors = 0
    for command in old.keys() & new.keys():
        a = old[command]
        b = new[command]
        errors += a["code"] > 1
        if a["code"] != b["code"]:
            differences.append(
                f"{command}: exit code {a['code']} is now {b['code']}: {b['error'].strip()}"
            )
            continue
        renamed = {**RENAMED, **RENAMED_IN.get(command, {})}
        values_before = numbers(a["json"], renamed)
        values_after = numbers(b["json"], renamed)
        for name in sorted(values_before.keys() | values_after.keys()):
            if name not in values_before and ADDED.intersection(name.split("/")):
                continue
            a_value = values_before.get(name)
            b_value = values_after.get(name)
            if a_value != b_value:
                differences.append(f"{command}: {name}: {a_value} is now {b_value}")
    for difference in differences[:200]:
        print(difference)  # noqa: T201
    print(f"{len(old)} commands, {errors} of them errors, {len(differences)} differences")  # noqa: T201
    if differences:
        return 1
    return 0


def read(file: Path) -> dict[str, dict[str, Any]]:
    """Return {command: its line} of a recording."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {line["command"]: line for line in lines}


def numbers(data: object, renamed: dict[str, str]) -> dict[str, object]:
    """Return every number of the JSON under its path, by the later version's names."""
    return dict(walk(data, "", renamed))


def walk(data: object, path: str, renamed: dict[str, str]) -> Iterator[tuple[str, object]]:
    """Yield (path, number) pairs; the path of an item in a list has the item's `name`, or else its
    index.
    """
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in IGNORED:
                yield from walk(value, f"{path}/{renamed.get(key, key)}", renamed)
    elif isinstance(data, list):
        for i, value in enumerate(data):
            # groups of layers may be renamed
            by_name = isinstance(value, dict) and not path.endswith("/layers")
            name = value.get("name", i) if by_name else i
            yield from walk(value, f"{path}/{renamed.get(str(name), str(name))}", renamed)
    elif data is None or isinstance(data, (bool, int, float)):
        yield path, data


if __name__ == "__main__":
    main()
