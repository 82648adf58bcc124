"""The architecture: which part may import which, and what a quick command never loads."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "attncalc"
BASE = {"errors", "quantity", "ranges", "records", "search", "units", "workload"}
MODEL = BASE | {"attention", "mlp", "ggml", "checkpoint", "quantization", "model", "what_if"}
# What each part of the package may import. Imports go one way.
MAY_IMPORT = {
    "errors": set[str](),
    "quantity": {"records"},
    "records": set[str](),
    "ranges": {"errors", "units"},
    "search": set[str](),
    "tracing": {"errors", "quantity", "records"},
    "units": {"errors", "quantity", "records"},
    "options": {"errors", "ggml", "quantity", "records", "units"},
    "workload": {"errors", "quantity", "records", "units"},
    "attention": BASE,
    "mlp": BASE | {"attention"},
    "ggml": {"records"},
    "checkpoint": {"ggml", "records"},
    "quantization": BASE,
    "model": BASE | {"attention", "mlp", "checkpoint", "quantization"},
    "what_if": MODEL,
    "hardware": BASE,
    "engines": MODEL | {"hardware", "options"},
    "cost": MODEL | {"engines", "hardware", "check", "tracing"},
    "serving": MODEL | {"engines", "hardware", "cost"},
    "logs": MODEL | {"engines", "hardware", "cost", "serving", "check"},
    "config": MODEL | {"hardware"},
    "check": {"records"},
    "show": MODEL | {"engines", "hardware", "cost", "serving", "config", "check"},
    "questions": MODEL
    | {"hardware", "engines", "cost", "serving", "config", "check", "show", "logs"}
    | {"verify"}
    | {"options", "tracing"},
    "verify": MODEL | {"hardware", "engines", "cost", "check"},
    "cli": BASE
    | {"model", "ggml", "what_if", "hardware", "engines", "cost", "serving", "config", "logs"}
    | {"check", "show", "questions", "options"},
    "__main__": {"cli"},
    "mcp": {"cli", "errors", "options", "questions", "records", "units"},
}
# Only these files of a question know the command line, and only the command line imports them.
COMMANDS = "questions/*/*command.py"
# The only places that may import each library.
HOMES = {
    "typer": ("cli/", "questions/*command.py", "mcp/command.py"),
    "mcp": ("mcp/server.py",),
    "mcp_types": ("mcp/server.py",),
    "anyio": ("mcp/server.py",),
    "rich": ("show/terminal.py", "show/progress.py"),
    "yaml": ("config/yaml.py",),
    "torch": ("verify/",),
    "transformers": ("verify/",),
    "matplotlib": ("show/plot/picture/",),
    "numpy": (),
    "huggingface_hub": (),
    "urllib": ("config/hub.py", "config/remote.py", "config/download.py"),
    "http": ("config/download.py",),
    "ssl": ("config/download.py",),
    "socket": ("config/download.py",),
    "pyarrow": ("show/parquet.py",),
    "xlsxwriter": ("show/xlsx.py",),
    "hatchling": (),
}


def files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return the import statements of a file, also inside functions."""
    return [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (level, module) of every import in a file, also inside functions; level 0 is
    absolute.
    """
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((node.level, name) for name in names)


def imported_parts(path: Path) -> set[str]:
    """Return the top-level parts of the package that a file imports from."""
    folder = path.relative_to(PACKAGE).parts[:-1]
    parts = set()
    for level, module in imports(path):
        if level and level > len(folder):
            parts.add(module.split(".")[0])
        elif level == 0 and module.split(".")[0] == "attncalc":
            parts.add(module.split(".")[1])
    return parts - {"__version__"}


def test_imports_go_one_way() -> None:
    upwards = {}
    for path in files():
        part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        allowed = MAY_IMPORT[part] | {part}
        if path.match(COMMANDS):
            allowed |= {"cli"}
        upwards[str(path.relative_to(PACKAGE))] = imported_parts(path) - allowed
    assert {where: parts for where, parts in upwards.items() if parts} == {}


def test_a_question_uses_another_but_not_its_report() -> None:
    """What two questions print alike is in show/. A figure is no report: a sweep has columns of
    all.
    """
    used = {}
    for path in (PACKAGE / "questions").glob("*/*.py"):
        others = {
            name
            for name in imported_modules(path, modules_of_package())
            if re.fullmatch(r"questions\.\w+\.(\w+_)?(report|tables|chart)", name)
            and name.split(".")[1] != path.parent.name
        }
        if others:
            used[str(path.relative_to(PACKAGE))] = others
    assert used == {}


def imported_modules(path: Path, modules: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a file imports, also inside functions and for
    annotations only.
    """
    package = ["attncalc", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom):
            start = (
                [*package[: len(package) + 1 - node.level], *filter(None, [node.module])]
                if node.level
                else []
            )
            whole = (
                ".".join(start or [node.module or ""]).removeprefix("attncalc").removeprefix(".")
            )
            for alias in node.names:
                part = f"{whole}.{alias.name}".removeprefix(".")
                found.add(part if part in modules else whole)
    return found & modules.keys()


def circles(imports_of: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules in which each one imports every other, directly or through
    others.
    """

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = imports_of[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    from_each = {module: reached(module) for module in imports_of}
    found: list[set[str]] = []
    for module, others in from_each.items():
        if module in others and not any(module in circle for circle in found):
            found.append({other for other in others if module in from_each[other]})
    return found


def modules_of_package() -> dict[str, Path]:
    """Return {dotted name below the package: its file}."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in files()
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    modules = modules_of_package()
    imports_of = {name: imported_modules(path, modules) for name, path in modules.items()}
    assert circles(imports_of) == []


def test_libraries_are_imported_only_in_their_place() -> None:
    """typer contains a click of its own, so nothing imports click."""
    misplaced = []
    for path in files():
        where = str(path.relative_to(PACKAGE))
        for level, module in imports(path):
            home = HOMES.get(module.split(".")[0]) if level == 0 else None
            is_home = home is None or any(fnmatch(where, f"{place}*") for place in home)
            if module == "click" or not is_home:
                misplaced.append(f"{where} imports {module}")
    assert misplaced == []


def test_engines_are_named_only_in_their_own_packages() -> None:
    """An engine answers for itself, its reader in logs/ for what it prints, and verify/engines
    starts it.
    """
    names = re.compile(r"""["'](?:vllm|sglang|llamacpp)["']""")
    named = [
        f"{path.relative_to(PACKAGE)}: {line.strip()}"
        for path in files()
        if path.relative_to(PACKAGE).parts[0] not in ("engines", "logs")
        and not path.is_relative_to(PACKAGE / "verify/engines")
        for line in path.read_text().splitlines()
        if names.search(line)
    ]
    assert named == []


NETWORK = ("urllib.request", "http.client", "ssl", "socket")
NEVER = (
    "torch",
    "rich",
    "matplotlib",
    "pydantic",
    "importlib.metadata",
    "importlib.resources",
    *NETWORK,
)


def loaded_by(command: str, before: str = "") -> set[str]:
    """Return the modules of NEVER that a command has loaded when it ends."""
    script = f"""
import sys
{before}
sys.argv = ["attncalc", *{command.split()!r}]
from attncalc.cli import run
code = run()
sys.stderr.write("loaded:" + ",".join(name for name in {NEVER!r} if name in sys.modules))
raise SystemExit(code)
"""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    return set(answer.stderr.rpartition("loaded:")[2].split(",")) - {""}


@pytest.mark.parametrize(
    "command",
    [
        "kv llama2-70b --json",
        "kv gemma3-27b",
        "flops gpt2 --explain",
        "compare gpt2",
        "gpus",
        "fit gpt2 --gpu h100-80gb",
        "verify --help",
    ],
)
def test_a_command_loads_nothing_heavy(command: str) -> None:
    assert loaded_by(command) == set()


def test_the_guard_can_fail() -> None:
    assert loaded_by("kv gpt2 --json", before="import rich") >= {"rich"}
