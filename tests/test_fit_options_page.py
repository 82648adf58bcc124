"""docs/fit-options.md lists the options of `fit`. `python tests/test_fit_options_page.py` writes it
anew.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # to be run as a script

from asking import REPOSITORY

from attncalc.cli import built
from attncalc.engines import ENGINES, find_engine
from attncalc.engines.engine import Engine
from attncalc.options import Option, options_of
from attncalc.questions.fit.options import GROUPS

PAGE = REPOSITORY / "docs/fit-options.md"
HEAD = """# Options of fit

Every option of [`attncalc fit`](fit.md), by topic. `attncalc fit --help all` has the same texts. The options of an engine
have the engine's own names, so that they can be pasted from a launch command. An option that the engine does not have is
an error. Names of other tools, such as `--ctx-size` and `--num-gpus`, are read too.

The options below "Model" and "Workload" mean the same in every command. `plan` takes all options of an engine, and
`sweep` takes a list for most of them.

This page is made from the declared options by `tests/test_fit_options_page.py`."""
# What is declared with the command itself.
REST = "Log and output"
ALL = "all"
_NOT_LISTED = ("model", "help")


def page() -> str:
    """Return the text of the page, from the options of the command and of each engine."""
    lines = [HEAD]
    named: set[str] = set()
    for heading, kinds in GROUPS.items():
        options = [pair for kind in kinds for pair in options_of(kind).items()]
        lines.extend(_table(heading, [_row(*pair) for pair in options]))
        named |= {option.parameter for _, option in options}
    command = built("fit")
    rest = [param for param in command.params if param.name not in (*named, *_NOT_LISTED)]
    lines.extend(_table(REST, [_row_of_command(param) for param in rest]))
    return "\n".join(lines) + "\n"


def _table(heading: str, rows: list[str]) -> Iterator[str]:
    yield from ("", f"## {heading}", "", "| option | meaning | engines |", "|---|---|---|")
    yield from rows


def _row(field: str, option: Option) -> str:
    names = [name.replace("/", " / ") for name in option.names]
    return _cells(names, option.metavar, option.help, _engines_with(field))


def _row_of_command(param: Any) -> str:
    names = [*param.opts, *param.secondary_opts]
    value = "" if param.is_flag else param.metavar
    return _cells(names, value or "", param.help, ALL)


def _cells(names: list[str], value: str, meaning: str, engines: str) -> str:
    first, *others = sorted(names, key=lambda name: not name.startswith("--"))
    typed = f"{first} {value}".strip()
    parts = [f"`{typed}`", *(f"`{name}`" for name in others)]
    text = meaning.replace("|", "\\|").replace("*", "\\*").replace("<", "\\<")
    return f"| {', '.join(parts)} | {text} | {engines} |"


def _engines_with(field: str) -> str:
    """Return the titles of the engines that have an option, separated by commas; 'all' if every
    engine has it.
    """
    engines = [find_engine(name) for name in ENGINES]
    titles = [engine.title for engine in engines if _has(engine, field)]
    if len(titles) == len(engines):
        return ALL
    return ", ".join(titles)


def _has(engine: Engine[Any], field: str) -> bool:
    declared = [kind for kind in _KINDS if field in kind.__annotations__]
    if declared:
        return any(kind in engine.options for kind in declared)
    if field in ("pp", "dcp"):
        return field in engine.splits
    if field in ("attn_dp", "enable_dp_attention"):
        return engine.ranks_share_tp
    if field in ("dp", "enable_expert_parallel"):
        return engine.data_parallel
    if field in ("host_bandwidth", "disk_size", "disk_bandwidth"):
        return bool(engine.host_cache_option)
    return True


# The declarations of options that only some engines have.
_KINDS = tuple({kind for name in ENGINES for kind in find_engine(name).options})


def test_the_page_has_the_options_of_fit() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "'python tests/test_fit_options_page.py' writes it anew"
    )


def test_an_option_of_one_engine_names_that_engine() -> None:
    lines = page().splitlines()
    (ubatch,) = [line for line in lines if line.startswith("| `--ubatch")]
    assert ubatch.endswith("| llama.cpp |")
    (blocks,) = [line for line in lines if line.startswith("| `--block-size")]
    assert blocks.endswith("| vLLM, SGLang |")
    (batch,) = [line for line in lines if line.startswith("| `--batch ")]
    assert batch.endswith("| all |")


def test_the_page_has_every_option_that_the_command_takes() -> None:
    text = page()
    for param in built("fit").params:
        if param.name not in _NOT_LISTED:
            assert f"`{param.opts[0]}" in text, param.opts


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
