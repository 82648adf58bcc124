"""The glossary: its examples hold, and the words that students look for are terms."""

import re

import pytest
from asking import Ask
from evaluate import evaluate
from tables import each

from attncalc.questions.explain.glossary import TERMS, find_terms

# A line of an example that is a calculation: '3 * 5 = 15'.
_CALCULATION = re.compile(r"((?:[\d.+/() -]|(?<!\*)\*(?!\*))+) = ([\d.]+)")


def _as_quotient(decimal: re.Match[str]) -> str:
    """Return a decimal as a quotient of whole numbers: '(75 / 100)'."""
    return f"({int(decimal[1] + decimal[2])} / {10 ** len(decimal[2])})"


def test_the_calculations_of_examples_hold() -> None:
    held = 0
    for name, term in TERMS.items():
        for match in filter(None, map(_CALCULATION.fullmatch, term.example)):
            whole = re.sub(r"(\d+)\.(\d\d?)\b", _as_quotient, match[1])
            assert float(evaluate(whole)) == pytest.approx(float(match[2]), rel=0.005), (
                name,
                match[0],
            )
            held += 1
    assert held > 50


@each(
    ("words", "term"),
    [
        ("padding", "padding"),
        ("mask", "mask"),
        ("causal mask", "mask"),
        ("group", "group"),
        ("yarn", "yarn"),
        ("rope scaling", "yarn"),
    ],
)
def test_words_of_students_are_terms(words: str, term: str) -> None:
    assert find_terms(words.split()) == [term]


def test_a_token_attends_to_itself_and_heads_are_joined_by_w_o(ask: Ask) -> None:
    assert "itself among them" in TERMS["attention"].meaning
    assert "output = Concat(head_1, ..., head_h) W_O" in ask("explain", "mha").out
    assert "GQA-8 here has 8 KV heads" in " ".join(ask("explain", "gqa").out.split())


def test_the_name_of_a_model_is_no_term(ask: Ask) -> None:
    error = ask("explain", "transformer-big").error
    assert "a model is no term: 'attncalc presets show transformer-big'" in error
