"""Plain words: phrases that a newcomer would have to translate do not come back."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
PLACES = (
    "*.md",
    "docs/**/*.md",
    "attncalc/**/*.py",
    "attncalc/**/*.yaml",
    "presets/**/*",
    "tests/*.py",
    "tools/*.py",
)
# {phrase in lower case: what to write instead}.
PLAIN: dict[str, str] = {
    r"where nobody has said|where nobody says": "by default",
    r"\bat the (least|most)\b": "at least, at most; lower bound, upper bound",
    r"\ba (row|line|file|column) a "
    r"(figure|row|line|group|command|format|dtype|model|kind|field)\b": "one ... per ...",
    r"\bthat there (is|are) not\b": "that does not apply; no such ...",
    r"\b(is|are) refused by name\b": "is an error",
    r"\bfor scale\b": "for comparison",
    r"\bwhat (it|that|those|they) (keeps?|stands?|says?) ": "name the thing",
    r"\bone more token\b": "per token",
    r"\balive at the peak\b": "held at the peak",
    r"\bnot bound by memory from\b": "compute-bound from batch",
    r"\bis there already\b": "already exists",
    r"\b(models|gpus|figures) that are here\b": "built-in models, known GPUs",
    r"\bcannot make anything of\b": "... is missing",
    r"\bno layout of \w+ is known here\b": "... needs ...",
    r"\bbelongs? to another kind\b": "does not apply to",
    r"\bthat stands? beside\b": "shown, beside",
    r"\bwhat would fit\b": "suggestions",
    r"\b(hold|held) (it|them) to\b": "compare with, check against",
    r"\bin (the engine's words|an engine's own words)\b": "as the engine logs it",
}


def files() -> list[Path]:
    found = {path for place in PLACES for path in REPOSITORY.glob(place) if path.is_file()}
    return sorted(found - {Path(__file__)})


def phrases(text: str) -> list[str]:
    """Return each phrase of PLAIN in the text, with what to write instead."""
    joined = re.sub(r'" *\n *f?"', "", text)  # a string that goes on in the next line
    folded = " ".join(re.sub(r"(?m)^\s*#:? ?", " ", joined).split()).lower()
    # without a \b in front, a search is for letters first, which takes a tenth of the time
    likely = (
        (pattern, plain)
        for pattern, plain in PLAIN.items()
        if re.search(pattern.removeprefix(r"\b"), folded)
    )
    matches = ((re.search(pattern, folded), plain) for pattern, plain in likely)
    return [f"'{match[0].strip()}': write '{plain}'" for match, plain in matches if match]


def test_every_file_is_in_plain_words() -> None:
    found = [
        f"{path}: {phrase}"
        for path in files()
        for phrase in phrases(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_a_phrase_is_found_across_lines() -> None:
    assert phrases("the dtype that is taken where nobody\n    has said one") != []
    assert phrases('note = (\n    "the dtype where nobody "\n    f"has said one"\n)') != []
