"""tools/mutants: the changes are those of cosmic-ray, what has no effect is left out, and a swap changes live code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("cosmic_ray")
TOOL = Path(__file__).parent.parent / "tools" / "mutants"

SOURCE = '''"""A docstring with 1 < 2."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 7


class Shape(Protocol):
    @property
    def sides(self) -> int | None: ...


# A comment above.
@cache  # and one beside
def clamp(value: int | None = None) -> int:
    if value is None:
        return LIMIT
    return value if value < 10 else 9 * 2
'''


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOL))
    for name in ("mutations", "swap"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("mutations")


def _changes(tool: ModuleType, folder: Path) -> list[str]:
    path = folder / "shapes.py"
    path.write_text(SOURCE)
    return [mutant.shown(SOURCE) for mutant in tool.mutants(path, folder)]


def test_every_operator_number_and_condition_is_changed(tool: ModuleType, tmp_path: Path) -> None:
    last = "return value if value < 10 else 9 * 2"
    assert _changes(tool, tmp_path) == [
        "LIMIT = 7  ->  LIMIT = 8",
        "LIMIT = 7  ->  LIMIT = 6",
        "if value is None:  ->  if not value is None:",
        *(
            f"{last}  ->  {changed}"
            for changed in (
                "return value if not value < 10 else 9 * 2",
                "return value if value >= 10 else 9 * 2",
                "return value if value <= 10 else 9 * 2",
                "return value if value != 10 else 9 * 2",
                "return value if value < 11 else 9 * 2",
                "return value if value < 9 else 9 * 2",
                "return value if value < 10 else 10 * 2",
                "return value if value < 10 else 8 * 2",
                "return value if value < 10 else 9 + 2",
                "return value if value < 10 else 9 // 2",
                "return value if value < 10 else 9 * 3",
                "return value if value < 10 else 9 * 1",
            )
        ),
    ]


def test_each_change_is_what_cosmic_ray_writes(tool: ModuleType, tmp_path: Path) -> None:
    ast = importlib.import_module("cosmic_ray.ast")
    mutate_code = importlib.import_module("cosmic_ray.mutating").mutate_code
    path = tmp_path / "shapes.py"
    path.write_text(SOURCE)
    theirs = {
        mutate_code(SOURCE, operator, i)
        for operator in tool._operators().values()
        for i in range(sum(len(list(operator.mutation_positions(n))) for n in ast.ast_nodes(ast.get_ast(SOURCE))))
    }
    ours = {mutant.apply(SOURCE) for mutant in tool.mutants(path, tmp_path)}
    assert {" ".join(text.split()) for text in ours} <= {" ".join(text.split()) for text in theirs}


def test_a_swap_changes_a_function_that_is_already_imported(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "attncalc"
    package.mkdir()
    before = "def double(x):\n    return [x * 2 for _ in (1,)][0]\n"
    (package / "doubled.py").write_text(before)
    spec = importlib.util.spec_from_file_location("doubled", package / "doubled.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    double = module.double
    functions = importlib.import_module("swap").Functions(tmp_path)
    functions.swap("attncalc/doubled.py", before, before.replace("x * 2", "x + 2"))
    assert double(5) == 7


METHODS = """
class Circle:
    @property
    def name(self):
        return "circle"

    @classmethod
    def unit(cls):
        return cls()

    @property
    def radius(self):
        return self._radius

    @radius.setter
    def radius(self, value):
        self._radius = value
"""


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (3, (5, 5)),  # @property
        (7, (9, 9)),  # @classmethod
        (4, None),  # def
        (15, None),  # @radius.setter makes no property of a plain function
    ],
)
def test_a_removed_property_is_run_against_the_tests_of_its_body(
    tool: ModuleType, line: int, body: tuple[int, int] | None
) -> None:
    assert importlib.import_module("swap").undecorated_body(METHODS, line) == body


def test_a_removed_property_leaves_a_method(tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("circles")
    exec(METHODS, vars(module))
    monkeypatch.setitem(sys.modules, "circles", module)
    remove_decorator = importlib.import_module("swap").remove_decorator
    circle = module.Circle()
    assert circle.name == "circle"
    remove_decorator("circles", "Circle.name")
    assert circle.name() == "circle"
    assert module.Circle.unit()
    remove_decorator("circles", "Circle.unit")
    with pytest.raises(TypeError):
        module.Circle.unit()


@pytest.mark.parametrize(
    ("after", "inside"),
    [
        ("N = 1\ndef f(x=2):\n    return x + 1\n", True),
        ("N = 2\ndef f(x=2):\n    return x\n", False),
        ("N = 1\ndef f(x=3):\n    return x\n", False),
    ],
)
def test_a_changed_constant_or_default_needs_an_import(tool: ModuleType, after: str, inside: bool) -> None:
    before = "N = 1\ndef f(x=2):\n    return x\n"
    assert importlib.import_module("swap").only_in_functions(before, after) is inside
