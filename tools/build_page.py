"""Put the page together: `python tools/build_page.py -o FOLDER`, a static folder that any file
server can serve.

It needs node and npm: Pyodide is installed from docs/page/package.json, and compiles the modules.
The form is drawn from the options of the commands, which declare them once. With --wheel, that
wheel is used instead of a new one.
"""

import argparse
import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import typer.main  # noqa: E402
import yaml  # noqa: E402

from attncalc import __version__  # noqa: E402
from attncalc.cli.completion import VALUES  # noqa: E402
from attncalc.cli.declared import command_of  # noqa: E402
from attncalc.config.gpus import gpu, gpu_names  # noqa: E402
from attncalc.config.presets import preset_names  # noqa: E402
from attncalc.options import Option  # noqa: E402
from attncalc.questions import QUESTIONS  # noqa: E402
from attncalc.questions.question import declared  # noqa: E402
from attncalc.questions.schema.command import schemas  # noqa: E402
from attncalc.questions.schemas import schema  # noqa: E402

PAGE = ROOT / "docs" / "page"
# Where npm installs, outside of the pages that tests read.
NPM = ROOT / "build" / "page"
OWN = ("index.html", "style.css", "page.js", "worker.js", "unpack.js", "sw.js", "icon.svg")
# The options beside the model, up to MOST_FIRST of them. The rest is folded: these first, up to
# MOST_COMMON with the common ones of the command.
FIRST = (
    "gpu",
    "users",
    "context",
    "batch",
    "gpus",
    "prompt",
    "output-len",
    "kv-dtype",
    "weights-dtype",
)
MOST_FIRST = 2
MOST_COMMON = 6
# What the page calls commands and options, and its own help where that of the command line is about
# the command line.
WORDS = json.loads((PAGE / "words.json").read_text(encoding="utf-8"))
# Characters of a default that a field has room for.
LONGEST_DEFAULT = 22
PYODIDE = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm")
# The command line needs typer, verify torch, pictures matplotlib and the server its SDK. The page
# reads no log and no launch command, lists no terms, GPUs or presets, and writes no file.
NOT_IN_PAGE = (
    r"attncalc/(cli|mcp|skills|verify|logs|show/plot/picture)/"
    r"|attncalc/questions/\w+/(\w*command|pasted)\.py"
    r"|attncalc/questions/(verify|explain|gpus|presets|schema)/"
    r"|attncalc/questions/fit/(launch_\w+|log_report)\.py"
    r"|attncalc/questions/train/(launch|programs|recipes|toml|trainers)\."
    r"|attncalc/questions/sweep/(picture|parallel)\.py"
    r"|attncalc/questions/(log_content|pasted_words)\.py"
    r"|attncalc/show/(csv|draw|html|latex|markdown|parquet|terminal|tsv|xlsx)\.py"
    r"|attncalc-"
)
# Modules of Python that a page has no use for, and character sets beside Unicode: a third of the
# bytes.
NOT_IN_STDLIB = (
    r"(_pydatetime|_pydecimal|_pyio|_pyrepl|argparse|bdb|calendar|cmd|code|codeop|compileall"
    r"|configparser|ctypes|doctest"
    r"|email|filecmp|fileinput|ftplib|gettext|gzip|html|http|idlelib|imaplib|mailbox|mimetypes"
    r"|modulefinder"
    r"|multiprocessing|netrc|optparse|pdb|pickletools|plistlib|poplib|profile|pstats|pyclbr|pydoc"
    r"|runpy|smtplib"
    r"|socketserver|statistics|symtable|tabnanny|tarfile|timeit|tomllib|trace|tracemalloc|turtle"
    r"|unittest|uuid|wave"
    r"|wsgiref|xml|xmlrpc|zoneinfo)(/|\.py)"
    r"|encodings/(?!__init__|aliases|ascii|cp437|idna|latin_1|utf_)"
)


def form(source: str = "", docs: str = "") -> dict[str, Any]:
    """Return what the form has: its commands with their options, models, GPUs and links.

    Args:
        source: The address of the repository; '' for no link to it.
        docs: The address of the documentation; '' for no link to it.
    """
    places = {listed.on_page: name for name, listed in QUESTIONS.items() if listed.on_page}
    return {
        "version": __version__,
        "source": source,
        "docs": docs,
        # commands of the terminal only
        "others": [name for name, listed in QUESTIONS.items() if not listed.on_page],
        "commands": [_command(places[place]) for place in sorted(places)],
        "choices": {
            "MODEL": [[name, _title("models", name)] for name in preset_names()],
            "GPU": [
                [name, ", ".join((gpu(name).title, *gpu(name).aliases))] for name in gpu_names()
            ],
            **{
                metavar: [[name, ""] for name in VALUES[metavar]()]
                for metavar in ("DTYPE", "ENGINE")
            },
        },
    }


def _title(folder: str, name: str) -> str:
    """Return the title of a preset, whose whole model need not be built for it."""
    text = (ROOT / "presets" / folder / f"{name}.yaml").read_text(encoding="utf-8")
    line = next((line for line in text.splitlines() if line.startswith("title:")), f"title: {name}")
    return line.partition(":")[2].strip().strip("'\"")


def _command(name: str) -> dict[str, Any]:
    app = command_of(declared(name))
    callback = app.registered_commands[0].callback
    params = typer.main.get_command(app).params
    options = {parameter: _option(name, option) for parameter, option in callback.declared.items()}
    common = [each for parameter, each in options.items() if parameter not in callback.rare]
    common.sort(key=lambda each: FIRST.index(each["name"]) if each["name"] in FIRST else len(FIRST))
    shown = common[: MOST_FIRST + MOST_COMMON]
    groups: dict[str, list[dict[str, Any]]] = {"": shown[:MOST_FIRST], "Common": shown[MOST_FIRST:]}
    for parameter, each in options.items():
        if each not in shown:
            groups.setdefault(callback.headings.get(parameter, "Options"), []).append(each)
    return {
        "name": name,
        "label": WORDS["commands"].get(name, name),
        "help": QUESTIONS[name].help,
        "many": any(param.param_type_name == "argument" and param.nargs == -1 for param in params),
        "groups": [{"title": title, "options": listed} for title, listed in groups.items()],
    }


def _option(command: str, option: Option) -> dict[str, Any]:
    """Return an option as a field of the form, which shows a short default inside. Help ends with
    it.
    """
    name = option.name.lstrip("-")
    described = WORDS["help"].get(f"{command} {name}", option.help)
    text, _, default = described.partition(" Default: ")
    if len(default) > LONGEST_DEFAULT:
        text = described
        default = ""
    names = [part for each in (*option.names, *option.also) for part in each.split("/")]
    return {
        "name": name,
        "label": WORDS["labels"].get(name, name.replace("-", " ").capitalize()),
        "names": names,
        "help": text,
        "default": default.rstrip("."),
        "kind": "text" if option.metavar else "flag" if option.is_flag else "switch",
        "choices": _choices(option),
        "repeated": option.is_repeated,
    }


def _choices(option: Option) -> str:
    """Return the name of the list of an option's values; '' without one."""
    if option.name == "--gpu":  # of plan, it takes several
        return "GPU"
    if option.metavar in ("DTYPE", "ENGINE", "MODEL"):
        return option.metavar
    return ""


def build(target: Path, wheel: Path | None = None, *, source: str = "", docs: str = "") -> None:
    """Write the page into a folder, which it creates.

    Args:
        target: The folder.
        wheel: The wheel of attncalc; by default one is built.
        source: As in `form`.
        docs: As in `form`.

    Raises CalledProcessError if npm or node fails.
    """
    runtime = target / "pyodide"
    runtime.mkdir(parents=True, exist_ok=True)
    pyodide = installed() / "pyodide"
    for name in PYODIDE:
        shutil.copy(pyodide / name, runtime)
    with tempfile.TemporaryDirectory() as temporary:
        package = Path(temporary) / "package.zip"
        compiled = Path(temporary) / "compiled.zip"
        _gather(wheel or _built_wheel(Path(temporary)), package)
        stdlib = [pyodide / "python_stdlib.zip", runtime / "python_stdlib.zip", NOT_IN_STDLIB]
        zips = [package, compiled, NOT_IN_PAGE, *stdlib]
        subprocess.run(["node", PAGE / "compile.mjs", pyodide, *zips], check=True)
        (target / "attncalc.pack").write_bytes(_packed(compiled))
    lock = json.loads((pyodide / "pyodide-lock.json").read_text(encoding="utf-8"))
    (runtime / "pyodide-lock.json").write_text(
        json.dumps({**lock, "packages": {}}), encoding="utf-8"
    )
    for name in OWN:
        shutil.copy(PAGE / name, target)
    text = json.dumps(form(source, docs), separators=(",", ":"))
    (target / "form.json").write_text(text, encoding="utf-8")
    # The page itself does not need the schemas, so they are not kept for use without a network.
    shutil.rmtree(target / "schemas", ignore_errors=True)
    files = sorted(
        path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()
    )
    digest = hashlib.sha256(b"".join((target / name).read_bytes() for name in files)).hexdigest()[
        :16
    ]
    worker = target / "sw.js"
    text = worker.read_text(encoding="utf-8").replace('"VERSION"', json.dumps(digest))
    worker.write_text(
        text.replace('["FILES"]', json.dumps(["./", *(name for name in files if name != "sw.js")]))
    )
    write_schemas(target / "schemas")


def write_schemas(folder: Path) -> None:
    """Write the schema of each answer into a folder, which it creates: attncalc.kv.1.json."""
    folder.mkdir()
    for name in schemas():
        document = schema(name)
        file = folder / f"{document['title'].replace('/', '.')}.json"
        file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def installed() -> Path:
    """Return the folder with the packages of docs/page/package.json, which npm installs once."""
    NPM.mkdir(parents=True, exist_ok=True)
    stale = [
        name
        for name in ("package.json", "package-lock.json")
        if not _is_same(PAGE / name, NPM / name)
    ]
    if stale or not (NPM / "node_modules").is_dir():
        for name in stale:
            shutil.copy(PAGE / name, NPM)
        subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], cwd=NPM, check=True)
    return NPM / "node_modules"


def _is_same(one: Path, other: Path) -> bool:
    return other.is_file() and one.read_bytes() == other.read_bytes()


def _built_wheel(folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
    ]
    subprocess.run([*command, str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


def _gather(wheel: Path, target: Path) -> None:
    """Write the wheel's files, the page's own modules, and PyYAML for the reader's model files.

    A YAML file whose JSON copy is there only keeps its name, except a model: its text has the names
    of repositories.
    """
    with zipfile.ZipFile(wheel) as given, zipfile.ZipFile(target, "w") as packed:
        names = set(given.namelist())
        for name in sorted(names):
            stem = Path(name)
            is_copied = name.endswith(".yaml") and f"{stem.parent.as_posix()}.json" in names
            packed.writestr(name, b"" if is_copied else given.read(name))
        for path in sorted(PAGE.glob("*.py")):
            packed.write(path, path.name)
        for path in sorted(Path(yaml.__file__).parent.glob("*.py")):
            packed.write(path, f"yaml/{path.name}")


def _packed(source: Path) -> bytes:
    """Return the files of a zip in one gzip, for unpack.js. Files of a kind are neighbours, which
    makes it smaller.
    """
    with zipfile.ZipFile(source) as given:
        names = sorted(given.namelist(), key=lambda name: (Path(name).suffix, name))
        files = {name: given.read(name) for name in names}
    index = json.dumps([[name, len(content)] for name, content in files.items()])
    return gzip.compress(b"".join([index.encode(), b"\n", *files.values()]), mtime=0)


def wire_bytes(target: Path) -> dict[str, int]:
    """Return {file of the page: its bytes as a server sends them}: compressed where that makes it
    smaller. The page does not load the schemas.
    """
    sizes = {}
    for path in sorted(target.rglob("*")):
        if not path.is_file() or path.parent.name == "schemas":
            continue
        content = path.read_bytes()
        sizes[path.relative_to(target).as_posix()] = min(
            len(content), len(gzip.compress(content, 6))
        )
    return sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="The folder, which is created."
    )
    parser.add_argument("--wheel", type=Path, help="A wheel of attncalc; by default one is built.")
    parser.add_argument(
        "--source", default="", help="The address of the repository, which the page then links."
    )
    parser.add_argument(
        "--docs", default="", help="The address of the documentation, which the page then links."
    )
    options = parser.parse_args()
    build(options.output, options.wheel, source=options.source, docs=options.docs)
    sizes = wire_bytes(options.output)
    for name, size in sizes.items():
        sys.stdout.write(f"{size:>10,}  {name}\n")
    sys.stdout.write(f"{sum(sizes.values()):>10,}  bytes over the wire\n")


if __name__ == "__main__":
    main()
