"""The tables of lines that engines print and of advice, and the grammar of their rows."""

import re

import pytest

from attncalc.logs import READERS, advice, find_reader
from attncalc.logs.lines import TYPES, _pattern, lines_of


@pytest.mark.parametrize("engine", READERS)
def test_every_row_of_a_table_is_a_pattern(engine: str) -> None:
    for names in lines_of(engine).values():
        for name, pattern in names.items():
            assert pattern.search("") is None, name
    assert find_reader(engine).SIGNS is lines_of(engine)["lines"]["sign"]


@pytest.mark.parametrize(
    ("row", "text", "found"),
    [
        ("line: size (<count> tokens)", "size (78,384 tokens)", "78,384"),
        ("line: took <GiB>", "took -3.12 GiB", "-3.12"),
        ("line: took <GiB>", "took 15.2683 GB", "15.2683"),
        ("line: {Model loading|Loading} took <GiB>", "Loading took 1 GiB", "1"),
        ("line: reserved[ exactly] <digits>", "reserved 12", "12"),
        ("line: Load end. ... mem=<GiB>", "Load end. type=A, mem=1.00 GB", "1.00"),
        ("line: Load end. ... mem=<GiB>", "Load end. [TP1] mem=1.00 GB", None),
        ("line: 3 \\[a\\] <word>", "3 [a] b", "b"),
        ("like: out of <=memory>", "OUT OF MEMORY", "MEMORY"),
        ("argument: max_num_seqs=<number>", "max_num_seqs=256)", "256"),
        ("argument: max_num_seqs=<number>", "'max_num_seqs': 256, \"x\"", "256"),
        ("argument: max_num_seqs=<number>", "other_max_num_seqs=256", None),
        ("argument: max_num_seqs=<number>", "max_num_seqs=25.6", None),
        ("argument: dtype=<float>", "dtype=torch.bfloat16", "bfloat16"),
        ("argument: dtype=<value>", "dtype=auto", None),
        ("option: tensor-parallel-size|tp <number>", "serve m -tp 4", "4"),
        ("option: tensor-parallel-size|tp <number>", "tensor_parallel_size=4", "4"),
        ("option: tensor-parallel-size|tp <number>", "tp 4", None),
    ],
)
def test_a_row_finds_its_value(row: str, text: str, found: str | None) -> None:
    kind, _, content = row.partition(": ")
    match = re.search(_pattern(kind, content), text)
    assert (match and match[1]) == found


@pytest.mark.parametrize("row", ["flag: enforce_eager", "call: capture|run"])
@pytest.mark.parametrize(
    "text", ["enforce_eager=True", "'enforce_eager': True", "--enforce-eager", ", in Model.run"]
)
def test_flags_and_calls_are_found_as_they_are_printed(row: str, text: str) -> None:
    kind, _, content = row.partition(": ")
    is_call = text.startswith(", in")
    assert bool(re.search(_pattern(kind, content), text)) == (is_call == (kind == "call"))


@pytest.mark.parametrize("engine", READERS)
def test_every_repetition_is_bounded(engine: str) -> None:
    """A hostile line takes no longer than its length."""
    patterns = {**TYPES}
    for section, names in lines_of(engine).items():
        patterns |= {f"{section}.{name}": found.pattern for name, found in names.items()}
    for name, pattern in patterns.items():
        without_sets = re.sub(r"\[[^\]]*\]", "", re.sub(r"\\.", "", pattern))
        assert not set("*+") & set(without_sets), name
        assert not re.search(r"\{\d*,\}", without_sets), name


def test_every_row_of_advice_is_known() -> None:
    """A name that other rows refer to is there, and has rows."""
    for engine, names in advice._table().items():
        assert engine in READERS
        for name, rows in names.items():
            assert rows, name
            for row in rows:
                assert row.kind != "rows" or advice.has_rows(engine, row.words), row
