"""A formula with the numbers of a question: '12*n_layers*d_model^2 with n_layers=12 d_model=768'."""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import ceil, isqrt

from ..errors import BadValueError
from ..report.glossary import TERMS
from ..units import human, parse_count, truncate

_NUMBER = r"\d[\d_]*(?:\.\d+)?(?:[eE]\d{1,2})?[kKmMbBtT]?\b"
_FACTOR = rf"(?:{_NUMBER}|[A-Za-z]\w*)"
_WORDS = r"(?: [A-Za-z]+){0,3}"
"""What is counted, after a number: '80 layers'."""
_PRODUCT = re.compile(rf"{_FACTOR}(?:{_WORDS} ?(?:\*\*|[*^\u00d7/]) ?{_FACTOR})+")
_POWERS = {one: parse_count(f"1{one}", "") for one in "kK"} | {"m": 10**6, "b": 10**9, "t": 10**12}
_TERMS = dict.fromkeys(("fine-tun", "finetun", "gradient", "adam"), "training-memory") | {
    "N": "6nd",
    "n_kv_heads": "kv-cache",
    "heads": "kv-cache",
    "d_model": "parameters",
}
"""{symbol or word of a product: the term that it belongs to}."""
SYMBOL_OF = {
    "--layers": "L",
    "--d-model": "d_model",
    "--heads": "n_heads",
    "--kv-heads": "n_kv_heads",
    "--head-dim": "d_head",
    "--context": "T",
    "--batch": "B",
    "--tokens": "D",
    "--price": "price",
    "--flop-budget": "C",
    "--measured-rate": "tokens_per_second",
    "--rate-per-gpu": "tokens_per_second_per_GPU",
}
"""{option: its symbol in the formulas of the glossary}."""
_LONGEST, _LARGEST = 40, 10**30
"""Characters of a number, and the largest result."""


def number(text: str) -> Fraction | None:
    """Return the number of '7e9', '7B' or '4096'; None if it is none."""
    if len(text) > _LONGEST or not re.fullmatch(_NUMBER, text):
        return None
    factor = _POWERS.get(text[-1]) or _POWERS.get(text[-1].lower(), 1)
    return Fraction(text.replace("_", "") if factor == 1 else text[:-1].replace("_", "")) * factor


def product_in(text: str) -> str | None:
    """Return the first product in a text, without what its numbers count: '2 * 80 * 8' of '2 * 80 layers * 8 heads'.

    Raises BadValueError if it is a part of a formula: '2 * 3 * 4 + 1', '2 * 3 * (4 + 1)'.
    """
    found = _PRODUCT.search(text)
    if found is None or not re.search(r"[*^\u00d7]", found[0]):
        return None
    before, after = text[: found.start()], text[found.end() :]
    product = re.sub(rf"({_NUMBER}){_WORDS}(?= ?[*^\u00d7/])", r"\1", found[0])
    is_part = re.search(r"[-+(*/^\u00d7] ?$|[.,]$", before) or re.match(rf"{_WORDS} ?[-+*/^\u00d7)]", after)
    if is_part and len(re.findall(r"[*^\u00d7]", text)) > 1:  # '2*3090 + 64 GB RAM' is no formula
        raise BadValueError(
            "only one product is computed, without sums and brackets", f"type one: '{truncate(product)}'"
        )
    return product


def computed(formula: str, given: Mapping[str, Fraction]) -> tuple[str, Fraction] | None:
    """Return a product, or its root, with the numbers of its symbols, and its value; None if a symbol has none."""
    if formula.startswith("sqrt("):
        inner = computed(formula[5:-1], given)
        return (f"sqrt({inner[0]})", Fraction(isqrt(int(inner[1])))) if inner else None
    factors = re.split(r" ?(\*\*|[*^\u00d7/]) ?", formula.strip())
    numbers = [number(one) or given.get(one) for one in factors[::2]]
    value, base = Fraction(1), Fraction(0)
    for operator, one in zip(["*", *factors[1::2]], numbers, strict=True):
        is_power = operator in ("^", "**")
        if one is None or (operator == "/" and one == 0) or (is_power and not (base and one in (1, 2, 3))):
            return None
        if is_power:
            value, base = value * base ** (int(one) - 1), Fraction(0)  # no power of a power
        else:
            base = 1 / one if operator == "/" else one
            value *= base
        if value > _LARGEST:
            return None
    shown = zip(map(_written, numbers), [*factors[1::2], ""], strict=True)
    return "".join(f"{one} {operator} " if operator else str(one) for one, operator in shown), value


def lines_of(formulas: Sequence[str], given: Mapping[str, Fraction]) -> list[str]:
    """Return the formulas of a term, as 'D = 20 * N', with their results, as far as the numbers given suffice."""
    known, lines = dict(given), []
    for formula in formulas:
        name, _, rest = formula.partition(" = ")
        if re.search(r"[A-Za-z]", rest) and name not in known and (found := computed(rest, known)):
            known[name] = Fraction(ceil(found[1])) if name == "GPUs" else found[1]
            whole = "" if known[name] == found[1] else f", rounded up to {_written(known[name])}"
            lines.append(f"answer: {name} = {found[0]} = {_written(found[1])}{whole}")
    return lines


def about_formula(
    text: str, symbol: Callable[[str], str], given: Mapping[str, Fraction], *, is_measured: bool
) -> tuple[list[str], list[str]] | None:
    """Return the command that explains a formula of a question, and the lines with its results; None without one.

    `symbol` and `given` are those of `about_product`. With `is_measured` the formula may be one of a throughput.
    """
    for term in ("price-per-token", "mfu") if is_measured else ():
        if lines := lines_of(TERMS[term].formula, {"GPUs": Fraction(1), **given}):
            return ["explain", term], lines
    if (found := about_product(text, symbol, given)) is None:
        return None
    term, line = found
    further = lines_of(TERMS[term].formula, given) if term else []
    is_same = any(f"{int(value):,}" in line for value in given.values())  # the product has these numbers
    return ["explain", term] if term else [], [line, *([] if is_same else further)]


def about_product(text: str, symbol: Callable[[str], str], given: Mapping[str, Fraction]) -> tuple[str, str] | None:
    """Return the term that a product in a text is about ('' if none) and the line with its result; or None.

    `symbol` gives the symbol of a name that was typed, as L of 'n_layers', and `given` the numbers of symbols.
    """
    text = re.sub(r"\bO\([^)]*\)", "", re.sub(r"(?<!\w)6 ?ND\b", "6 * N * D", text))  # O(n^2) is no product
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = re.sub(r"\d[\d.]*(?: ?x ?\d[\d.]*)+(?= ?=)", lambda one: one[0].replace("x", "*"), text)  # 7 x 4 x 4 = 112
    product = product_in(text)
    if product is None:
        return None
    names = {name: symbol(name) for name in re.findall(r"[A-Za-z]\w*", re.sub(_NUMBER, "", product))}
    typed = re.findall(rf"\b([A-Za-z]\w*) ?(?:=|:| is) ?({_NUMBER})", text)
    known = {symbol(name): one for name, value in typed if (one := number(value)) is not None}
    found = computed(re.sub(r"[A-Za-z]\w*", lambda one: names.get(one[0], one[0]), product), {**given, **known})
    is_stated = (
        re.search(rf"{re.escape(product)} ?= ?\d", text) is not None
    )  # '13 * 16 = 208 GB', but '2*3090' is two GPUs
    if found is None or not (names or is_stated or len(re.findall(r"[*^\u00d7/]", product)) > 1):
        return None
    term = next((term for name, term in _TERMS.items() if name in names.values() or name in text), "")
    term = term or "flop" * ("flop" in text.lower())
    size = f" (bytes: {human(int(found[1]), 'B')})" if term == "kv-cache" else ""
    return term, f"answer: {found[0]} = {_written(found[1])}{size}"


def _written(value: Fraction | None) -> str:
    value = value or Fraction(0)
    if value >= 10**16:
        return f"{float(value):.3g}"
    return f"{round(value):,}" if value.denominator == 1 or value >= 1000 else f"{float(value):,.4g}"
