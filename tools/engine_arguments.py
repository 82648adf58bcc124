"""Write the arguments of an engine's command line (attncalc/engines/ENGINE/arguments.txt).

    python tools/engine_arguments.py vllm 0.33.0 PATH
    python tools/engine_arguments.py sglang 0.5.23 PATH
    python tools/engine_arguments.py llamacpp b11312 PATH

PATH is a checkout of that version, or the folder of an installed one: it has the folder `vllm`,
`sglang`, or `common` with llama.cpp's arg.cpp. Nothing of it is imported: the arguments are read
from its source, so that neither torch nor a GPU is needed. The version is added to the table, and
what differs from the version before is printed. An argument that is new there is `unclassified`
until a person writes what it does to the memory of a GPU: tests/test_engine_arguments.py names it.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from attncalc.engines import find_engine
from attncalc.engines.arguments import (
    FLAG,
    OPTIONAL,
    SWITCH,
    VALUE,
    VALUES,
    Argument,
    Table,
    number,
    read_table,
    table_file,
    with_version,
    write_table,
)
from attncalc.records import NamedTuple

# {engine: files with its arguments, as patterns below its package}.
_FILES = {
    "vllm": (
        "engine/arg_utils.py",
        "entrypoints/*/cli_args.py",
        "entrypoints/cli/serve.py",
        "scripts.py",
    ),
    "sglang": ("srt/server_args.py", "srt/arg_groups/**/*.py", "cli/serve.py"),
    "llamacpp": ("common/arg.cpp",),
}
# Files of subcommands, of which only the parser of `vllm serve` counts.
_SUBCOMMANDS = ("serve.py", "scripts.py")
# {engine: files with the classes whose fields are arguments}.
_CLASSES = {"vllm": ("config.py", "config/**/*.py", "engine/arg_utils.py")}
# An engine has more arguments.
_FEWEST = 50
# {action of argparse, or a class of the engine's: what the argument takes}.
_ACTIONS = {
    "store_true": FLAG,
    "store_false": FLAG,
    "append": VALUE,
    "version": FLAG,
    "BooleanOptionalAction": SWITCH,
    "StoreBoolean": OPTIONAL,
    "DeprecatedAction": FLAG,
    "DeprecatedStoreTrueAction": FLAG,
    "DeprecatedStoreConstAction": FLAG,
}
_NARGS = {"?": OPTIONAL, "+": VALUES, "*": VALUES}
# An argument of llama.cpp: its names, in another pair of braces those of its opposite, its help,
# and the parameters of the function that takes its values.
_OF_CPP = re.compile(
    r"add_opt\(common_arg\(\s*((?:\{[^{}]*\}\s*,\s*)+).*?\[[^\]]*\]\s*\(\s*common_params\s*&([^)]*)\)",
    re.DOTALL,
)
_CALL_OF_CPP = "add_opt(common_arg("
# What stands around a type, and says nothing about it.
_WRAPPERS = ("Annotated", "SkipValidation", "ClassVar", "Final", "InitVar")
_COLLECTIONS = ("list", "List", "tuple", "Tuple", "set", "Set", "Sequence")


class _UnreadableError(Exception):
    """A declaration that this tool does not understand."""


class _Class(NamedTuple):
    bases: tuple[str, ...]
    fields: dict[str, ast.expr]  # {name: its annotation}


def _name_of(node: ast.expr | None) -> str:
    """Return the last part of a dotted name, or a text; '' for another expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ""


def _types(annotation: ast.expr) -> Iterator[str]:
    """Yield the names of the types in a union: 'bool', 'list', 'None'."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        yield from _types(ast.parse(annotation.value, mode="eval").body)
    elif isinstance(annotation, ast.Constant):
        yield str(annotation.value)
    elif isinstance(annotation, ast.BinOp):
        yield from _types(annotation.left)
        yield from _types(annotation.right)
    elif isinstance(annotation, ast.Subscript):
        outer = _name_of(annotation.value)
        parts = [annotation.slice]
        if isinstance(annotation.slice, ast.Tuple):
            parts = annotation.slice.elts
        if outer in _WRAPPERS:
            yield from _types(parts[0])
        elif outer in ("Union", "Optional"):
            for part in parts:
                yield from _types(part)
        else:
            yield outer
    else:
        yield _name_of(annotation)


def _takes_of_type(annotation: ast.expr, boolean: str) -> str:
    """Return what an argument of a type takes: _compute_kwargs of vLLM, or
    add_cli_args_from_dataclass of SGLang.
    """
    types = {*_types(annotation)}
    if types == {"bool", "str", "None"}:
        return OPTIONAL
    if "bool" in types:
        return boolean
    if types.intersection(_COLLECTIONS) and "Literal" not in types:
        return VALUES
    return VALUE


def _classes(root: Path, patterns: Iterable[str]) -> dict[str, _Class]:
    found = {}
    for path in (path for pattern in patterns for path in sorted(root.glob(pattern))):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name] = _class_of(node)
    return found


def _class_of(node: ast.ClassDef) -> _Class:
    fields = {
        each.target.id: each.annotation
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    return _Class(tuple(map(_name_of, node.bases)), fields)


def _field(classes: dict[str, _Class], name: str, field: str) -> ast.expr:
    """Return the annotation of a class's field, or of one of its bases."""
    for each in (name, *classes[name].bases):
        if each in classes and field in classes[each].fields:
            return classes[each].fields[field]
    raise _UnreadableError(f"{name} has no field {field}")


class _Calls:
    """The calls of add_argument in a module."""

    def __init__(self, module: ast.Module, classes: dict[str, _Class]) -> None:
        self._module = module
        self._classes = classes
        # {variable: the expression that it stands for}
        self._variables = {
            node.targets[0].id: node.value
            for node in ast.walk(module)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    def arguments(self, *, of_serve: bool) -> Iterator[Argument]:
        """Yield the arguments that have a name as text; with `of_serve` those of serve_parser."""
        for node in ast.walk(self._module):
            if not isinstance(node, ast.Call) or _name_of(node.func) != "add_argument":
                continue
            names = tuple(
                name.value
                for name in node.args
                if isinstance(name, ast.Constant) and isinstance(name.value, str)
            )
            is_option = bool(names) and names[0].startswith("-")
            assert isinstance(node.func, ast.Attribute)
            if of_serve and _name_of(node.func.value) != "serve_parser":
                continue
            takes = self._takes(node) if is_option else ""
            if takes:
                yield Argument(names, takes)

    def _takes(self, call: ast.Call) -> str:
        """Return what the argument of a call takes; '' for one with which the engine stops."""
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        if "error_message" in given or self._stops(_name_of(given.get("action"))):
            return ""
        if "action" in given and _name_of(given["action"]) in _ACTIONS:
            is_value = "nargs" in given and isinstance(given["nargs"], ast.Constant)
            if is_value and given["nargs"].value is None:  # type: ignore[attr-defined]
                return VALUE
            return _ACTIONS[_name_of(given["action"])]
        if "nargs" in given:
            nargs = given["nargs"]
            assert isinstance(nargs, ast.Constant)
            return _NARGS.get(str(nargs.value), VALUES)
        if None in given:  # **model_kwargs["dtype"]
            return self._takes_of_field(given[None])
        return VALUE

    def _stops(self, action: str) -> bool:
        """Return whether an action raises an error: SGLang's DeprecatedAction up to 0.5.4."""
        return action == "DeprecatedAction" and any(
            isinstance(each, ast.Raise)
            for node in ast.walk(self._module)
            if isinstance(node, ast.ClassDef) and node.name == action
            for each in ast.walk(node)
        )

    def _takes_of_field(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name):  # moe_backend_kwargs = kernel_kwargs["moe_backend"]
            node = self._variables[node.id]
        if isinstance(node, ast.Dict):  # {**scheduler_kwargs["max_num_seqs"], "default": None}
            node = node.values[0]
        if not isinstance(node, ast.Subscript):
            raise _UnreadableError(ast.unparse(node))
        source = node.value
        if isinstance(source, ast.Name):  # model_kwargs = get_kwargs(ModelConfig)
            source = self._variables[source.id]
        if not isinstance(source, ast.Call) or _name_of(source.func) != "get_kwargs":
            raise _UnreadableError(ast.unparse(source))
        field = _field(self._classes, _name_of(source.args[0]), _name_of(node.slice))
        return _takes_of_type(field, SWITCH)


def _of_frontend(module: ast.Module) -> Iterator[Argument]:
    """Yield the fields of vLLM's FrontendArgs, each of which is an argument."""
    single = {  # del frontend_kwargs["allowed_origins"]["nargs"]: one JSON
        _name_of(target.value.slice)
        for node in ast.walk(module)
        if isinstance(node, ast.Delete)
        for target in node.targets
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Subscript)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
            for field, annotation in _class_of(node).fields.items():
                takes = VALUE if field in single else _takes_of_type(annotation, SWITCH)
                yield Argument((_option(field),), takes)


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _of_annotations(module: ast.Module) -> Iterator[Argument]:
    """Yield SGLang's fields with the annotation A[type, Arg(...)], each of which is an argument."""
    for node in ast.walk(module):
        if not isinstance(node, ast.ClassDef):
            continue
        for field, annotation in _class_of(node).fields.items():
            if isinstance(annotation, ast.Subscript) and _name_of(annotation.value) in (
                "A",
                "Annotated",
            ):
                assert isinstance(annotation.slice, ast.Tuple)
                yield from _annotated(field, *annotation.slice.elts)


def _compared(module: ast.Module) -> Iterator[Argument]:
    """Yield the arguments that `sglang serve` takes out by hand: --model-type."""
    names = {
        _name_of(each)
        for node in ast.walk(module)
        if isinstance(node, ast.Compare)
        for each in node.comparators
    }
    for name in sorted(names):
        if name.startswith("--model"):
            yield Argument((name,), VALUE)


def _annotated(field: str, of_type: ast.expr, *others: ast.expr) -> Iterator[Argument]:
    # a text is the help, as in Arg(help=...); a field with neither is no argument
    texts = [each for each in others if not isinstance(each, ast.Call)]
    calls = [each for each in others if isinstance(each, ast.Call) and _name_of(each.func) == "Arg"]
    given: dict[str | None, ast.expr] = {}
    if calls:
        given = {keyword.arg: keyword.value for keyword in calls[0].keywords}
    if "no_cli" in given or not (texts or calls):
        return
    aliases = getattr(given.get("aliases"), "elts", [])
    names = (_name_of(given.get("cli_name")) or _option(field), *map(_name_of, aliases))
    takes = _takes_of_type(of_type, FLAG)
    if takes == VALUES and "type_parser" in given:  # the whole value as one text
        takes = VALUE
    if "nargs" in given:
        takes = _NARGS.get(_name_of(given["nargs"]), VALUES)
    if "action" in given:
        takes = _ACTIONS.get(_name_of(given["action"]), takes)
    yield Argument(names, takes)


def _of_cpp(text: str) -> Iterator[Argument]:
    """Yield the arguments in llama.cpp's arg.cpp, each opposite of a switch as one of its own.

    Raises _UnreadableError if a call has another form.
    """
    text = re.sub("(?m)^ *//.*", "", text)
    found = [*_OF_CPP.finditer(text)]
    if len(found) < text.count(_CALL_OF_CPP):
        raise _UnreadableError(f"{len(found)} of {text.count(_CALL_OF_CPP)} calls are read")
    for match in found:
        takes = (FLAG, VALUE, VALUES)[match[2].count(",")]
        if "bool" in match[2]:
            takes = FLAG
        for names in re.findall(r"\{([^{}]*)\}", match[1]):
            yield Argument(tuple(re.findall('"([^"]+)"', names)), takes)


def arguments_of(engine: str, root: Path) -> list[Argument]:
    """Return the arguments that the source of an engine declares, without versions.

    Raises:
        SystemExit: if there is no such source, or a declaration is not understood.
    """
    packages = (
        root / "python" / engine,
        root / engine,
        root,
    )  # the first is of SGLang's repository
    package = next(filter(Path.is_dir, packages))
    classes = _classes(package, _CLASSES.get(engine, ()))
    found: dict[tuple[str, ...], Argument] = {}
    for pattern in _FILES[engine]:
        for path in sorted(package.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            try:
                for argument in _declared(engine, path, text, classes):
                    found.setdefault(argument.names, argument)
            except (_UnreadableError, KeyError) as error:
                raise SystemExit(f"{path}: not understood: {error}") from None
    if len(found) < _FEWEST:
        raise SystemExit(f"{root} has {len(found)} arguments: it is no source of {engine}")
    return [*found.values()]


def _declared(engine: str, path: Path, text: str, classes: dict[str, _Class]) -> Iterator[Argument]:
    """Yield the arguments in a file of an engine."""
    if engine == "llamacpp":
        yield from _of_cpp(text)
        return
    module = ast.parse(text)
    calls = _Calls(module, classes)
    if engine == "vllm":
        yield from calls.arguments(of_serve=path.name in _SUBCOMMANDS)
        yield from _of_frontend(module)
    elif path.name == "serve.py":
        yield from _compared(module)
    else:
        yield from calls.arguments(of_serve=False)
        yield from _of_annotations(module)


def differences(old: Table, new: Table) -> Iterator[str]:
    """Yield a line for each row that the newest version of a table adds or ends."""
    version = new.versions[-1]
    for row in new.rows:
        if row.end == version:
            yield f"gone: {','.join(row.names)} ({row.takes})"
        elif row.first == version:
            yield f"new: {','.join(row.names)} ({row.takes}), {row.memory}"


def main() -> None:
    """Add a version to the table of an engine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("engine", choices=[*_FILES])
    parser.add_argument("version", help="the version of the source, as 0.33.0")
    parser.add_argument("path", type=Path, help="the folder with the engine's package")
    args = parser.parse_args()
    old = read_table(table_file(args.engine))
    if old.versions and number(args.version) <= number(old.versions[-1]):
        raise SystemExit(f"the table has {old.versions[-1]}: add a newer version")
    new = with_version(old, args.version, arguments_of(args.engine, args.path))
    write_table(args.engine, find_engine(args.engine).title, new)
    for line in differences(old, new):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
