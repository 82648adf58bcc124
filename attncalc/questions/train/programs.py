"""Python programs and notebooks that train: the arguments that they write out, without running
them.
"""

import ast
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...config.source import LIMIT
from ...errors import AttncalcError
from ...units import truncate
from .recipes import RecipeFile, changes_no_memory, is_key

PROGRAMS = (".py", ".ipynb")
# {class or method that sets up a run: the subcommand of TRL that has its defaults}.
_CALLS = {
    "from_pretrained": "",
    "get_peft_model": "",
    "LoraConfig": "",
    "BitsAndBytesConfig": "",
    "TrainingArguments": "",
    "SFTConfig": "sft",
    "DPOConfig": "dpo",
    "KTOConfig": "kto",
    "RewardConfig": "reward",
    "GRPOConfig": "grpo",
}
_MODELS_OF_UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel")
_MODEL = "model_name"
# The value of an argument that the program computes.
_COMPUTED = object()
_TIP = "give the settings as options: --lora r=16 --weights-dtype nf4 -b 2 -c 2048"


def read_program(path: str) -> tuple[RecipeFile, str, str] | None:
    """Return the settings of a program, the trainer that it calls and the name of its defaults;
    None of a file that is no program, or trains nothing.

    Raises AttncalcError if it is not Python, a setting that changes memory is computed, or two
    calls have different values of it.
    """
    file = Path(path)
    if file.suffix not in PROGRAMS or not file.is_file() or file.stat().st_size > LIMIT:
        return None
    try:
        tree = ast.parse(_code(file))
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise AttncalcError(f"{truncate(path)} cannot be read as Python", _TIP) from None
    names = _constants(tree)
    keys: dict[str, Any] = {}
    unread: list[str] = []
    called: list[tuple[str, str]] = []
    for of, call, node in _calls(tree):
        called.append((of, call))
        for key, expression in _arguments(call, node):
            value = _value(expression, names)
            where = f"{truncate(path)}:{expression.lineno}: {key}"
            if value is _COMPUTED and is_key(key):
                raise AttncalcError(f"{where} is computed, and no program is run", _TIP)
            if (is_key(key) or key == _MODEL) and value is not _COMPUTED:
                if keys.setdefault(key, value) != value:
                    raise AttncalcError(f"{where} has two values", _TIP)
            elif key == _MODEL or not changes_no_memory(key):
                unread.append(key)
    if not called:
        return None
    model = keys.pop(_MODEL, None)
    known = {key: value for key, value in keys.items() if value is not None}
    trainer, name = _trainer(called)
    return RecipeFile(model, known, list(dict.fromkeys(unread))), trainer, name


def _arguments(call: str, node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of a call with their names; '**kwargs' of those that a mapping has."""
    if call == "from_pretrained" and node.args:
        yield _MODEL, node.args[0]
    for word in node.keywords:
        yield word.arg or f"**{ast.unparse(word.value)}", word.value


def _trainer(called: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the trainer whose classes are called, and the name of its defaults."""
    calls = [call for _, call in called]
    if any(of in _MODELS_OF_UNSLOTH for of, _ in called):
        return "unsloth", "script" if "get_peft_model" in calls else "full_script"
    for call in calls:
        if _CALLS[call]:
            return "trl", _CALLS[call]
    return "", ""


def _code(file: Path) -> str:
    """Return the code of a program, or of a notebook's cells without their shell commands.

    Raises ValueError if it is neither.
    """
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return text
    notebook = json.loads(text)
    cells = notebook.get("cells") if isinstance(notebook, Mapping) else None
    if not isinstance(cells, list):
        raise ValueError("no cells")
    lines = []
    for cell in cells:
        if isinstance(cell, Mapping) and cell.get("cell_type") == "code":
            lines += "".join(map(str, cell.get("source") or ())).splitlines()
    return "\n".join(line if line.lstrip()[:1] not in ("%", "!") else "pass" for line in lines)


def _calls(tree: ast.AST) -> Iterator[tuple[str, str, ast.Call]]:
    """Yield (object, name, call) of the calls that set up a run, in the order of the program."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        of = ""
        name = ""
        if isinstance(node.func, ast.Name):
            name = node.func.id
        elif isinstance(node.func, ast.Attribute):
            name = node.func.attr
            of = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        if name in _CALLS and not of.endswith(("Tokenizer", "Processor")):
            yield of, name, node


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return {variable: its expression} of variables that are set once in the whole program, and
    outside functions.
    """
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
    variables = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    times = Counter(node.id for node in variables if isinstance(node.ctx, ast.Store))
    return {name: value for name, value in found.items() if times[name] == 1}


def _value(node: ast.expr, names: Mapping[str, ast.expr]) -> Any:
    """Return a value as trainers' files have it; _COMPUTED if it is not written out.

    A list of words is 'q_proj+v_proj', torch.bfloat16 'bfloat16'. is_bfloat16_supported() is None.
    """
    if isinstance(node, ast.Name) and isinstance(names.get(node.id), ast.Constant):
        node = names[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List) and all(isinstance(one, ast.Constant) for one in node.elts):
        return "+".join(str(one.value) for one in node.elts if isinstance(one, ast.Constant))
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch."):
        return node.attr
    text = ast.unparse(node)
    if text.endswith(("is_bfloat16_supported()", "is_bf16_supported()")):
        return None  # as the GPU has it
    return _COMPUTED
