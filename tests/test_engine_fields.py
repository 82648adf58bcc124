"""The class that an engine computes with has a field for each option that the engine declares.

`python tests/test_engine_fields.py` writes the fields of a new or changed option. A type checker
cannot make them of the declaration: the option takes `4096` or '4k', and its field is an int.
"""

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # to be run as a script

from asking import REPOSITORY

from attncalc.engines.llamacpp.options import LlamacppArgs, LlamacppOptions
from attncalc.engines.options import ExpertOptions, LoraOptions, PagedArgs, PagedOptions
from attncalc.engines.sglang.options import SglangArgs, SglangOptions
from attncalc.engines.transformers.options import TransformersArgs, TransformersOptions
from attncalc.engines.vllm.options import VllmArgs, VllmOptions
from attncalc.options import COUNT, Option, options_of

# {class that an engine computes with: the declarations whose options are its fields}.
DECLARED: dict[type[Any], tuple[Any, ...]] = {
    PagedArgs: (PagedOptions, LoraOptions, ExpertOptions),
    VllmArgs: (VllmOptions,),
    SglangArgs: (SglangOptions,),
    LlamacppArgs: (LlamacppOptions,),
    TransformersArgs: (TransformersOptions,),
}
START = "    # Fields of {}, written by tests/test_engine_fields.py.\n"


def field_of(name: str, option: Option) -> str:
    """Return the line that declares an option's field, or '' if the option has none."""
    if option.field is None:
        return ""
    declared = option.field
    if not declared and option.is_flag:
        declared = "bool = False"
    elif not declared:
        result = option.parser.result if option.parser else "str"
        declared = f"{result} | None = None"
    return f"    {name}: {declared}\n"


def fields_of(declarations: tuple[Any, ...]) -> str:
    """Return the lines that declare the fields of all options of these declarations."""
    lines = [
        field_of(name, option)
        for declaration in declarations
        for name, option in options_of(declaration).items()
    ]
    return START.format(", ".join(kind.__name__ for kind in declarations)) + "".join(lines)


def with_fields(source: str) -> str:
    """Return the source of a module with the fields of each such class that it has."""
    for declarations in DECLARED.values():
        written = fields_of(declarations)
        start = re.escape(written.partition("\n")[0])
        before = re.search(rf"{start}\n(?: {{4}}\w+: .*\n)*", source)
        if before:
            source = source.replace(before[0], written)
    return source


def file_of(args: type[Any]) -> Path:
    return REPOSITORY.joinpath(*args.__module__.split(".")).with_suffix(".py")


@pytest.mark.parametrize("args", DECLARED, ids=lambda args: args.__name__)
def test_each_option_is_a_field_of_the_class_that_the_engine_computes_with(args: type[Any]) -> None:
    source = file_of(args).read_text()
    assert fields_of(DECLARED[args]) in source, "run python tests/test_engine_fields.py"


@pytest.mark.parametrize("args", DECLARED, ids=lambda args: args.__name__)
def test_fields_have_the_order_of_their_options(args: type[Any]) -> None:
    own = [field.name for field in dataclasses.fields(args) if field.name in args.__annotations__]
    options = {name: option for kind in DECLARED[args] for name, option in options_of(kind).items()}
    with_field = [name for name, option in options.items() if option.field is not None]
    assert own[: len(with_field)] == with_field


def test_writing_adds_the_field_of_a_new_option() -> None:
    source = file_of(TransformersArgs).read_text()
    removed = source.replace("    residual_length: int | None = None\n", "")
    assert removed != source
    assert with_fields(removed) == source


def test_a_field_follows_from_the_parser_unless_the_option_says_it() -> None:
    assert field_of("n", Option("--n", help="", parse=COUNT)) == "    n: int | None = None\n"
    assert field_of("on", Option("--on", help="")) == "    on: bool = False\n"
    assert field_of("n", Option("--n", help="", parse=COUNT, field="int = 0")) == "    n: int = 0\n"
    assert not field_of("n", Option("--n", help="", field=None))


if __name__ == "__main__":
    for path in dict.fromkeys(map(file_of, DECLARED)):
        path.write_text(with_fields(path.read_text()))
