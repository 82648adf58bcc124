"""Messages that state their cause, and what to change: of engines, and of other programs that run
models.

The messages are in messages.txt. A text has one of them if its words and numbers follow each other:
what is between them does not matter, so that quotation marks, escapes and line breaks of a paste
change nothing.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import gcd
from pathlib import Path
from typing import Any

from ..engines import RUNNERS
from ..records import NamedTuple
from ..units import BYTES, count, human, long_option, truncate
from .startup_log import Advice, LogRefusal

UNKNOWN = "Unknown program"
PYTORCH = "PyTorch"
LONG_REQUEST = "request_too_long"
# Causes of messages that follow from others, or say nothing beside one that does.
_FOLLOWS = ("log_ends", "no_failure")
# Causes of messages that a server survives.
_OF_RUNNING = (LONG_REQUEST, "request_refused", "cache_full", "requests_limited", *_FOLLOWS)
# {a program: the engine in it}.
_ENGINES = (
    {name: name for name in ("vllm", "sglang", "llamacpp")}
    | RUNNERS
    | {"llama-cpp-python": "llamacpp"}
)
# {cause: the kind of refusal}, if it is not 'stated'.
_KINDS = {"context_too_long": "too_long", "too_many_sequences": "too_many_sequences"}
_PARTS = re.compile(r" ?\.{2,3} ?|<\w+>|\[[^]]+\]|\{[^}]+\}|\w+|[^\w.<\[{]+|.")
_FIGURE = re.compile(r"\{(?P<name>\w+)(?::(?P<change>\w+))?\}")
_NUMBER = r"\d[\d,_]{0,29}(?:\.\d{1,9})?"
_WORDS = r"[^\n()\"]{1,60}?"
_WORD = r"[\w./+-]{1,60}"
# {name: what it can be}, if that is not a number without a sign.
_VALUES = {"layers": r"-?\d{1,9}"}
_BETWEEN = r"\W{1,9}?"
_TP = re.compile(
    r"tensor[_-]parallel[_-]size\W{1,5}(\d{1,4})|(?<!\w)-{0,2}tp(?:[_-]size)?[ =](\d{1,4})"
)
_RAM = re.compile(r"(?i)\b(\d{1,4}) ?GB(?: of)?(?: unified)? (?:memory|RAM)\b")
# Tokens of a context that is longer than the usual defaults, 4,096 and 8,192.
_USUAL_CONTEXT = 16_384
# Characters at the end of a log in which a message is searched.
_FURTHEST = 200_000


class _Change(NamedTuple):
    option: str
    words: str
    is_sure: bool  # whether the message itself shows that it is enough


class _Kind(NamedTuple):
    """Messages of a program with the same cause."""

    program: str
    title: str
    context_option: str
    signs: str
    cause: str
    messages: list[str]
    reasons: list[str]
    changes: list[_Change]


class Other(NamedTuple):
    """A program whose logs no engine here reads."""

    title: str
    advice: tuple[Advice, ...]  # if an allocation failed


class Message(NamedTuple):
    """A message in a text, with its cause."""

    # that printed it, or is in the program that did; None if several can, or none is read
    engine: str | None
    refusal: LogRefusal

    @property
    def follows(self) -> bool:
        """Whether it follows from something else, which it does not state."""
        return self.refusal.cause in _FOLLOWS

    @property
    def of_running(self) -> bool:
        """Whether a server that runs prints it."""
        return self.refusal.cause in _OF_RUNNING


def find_message(text: str) -> Message | None:
    """Return the message of a text that states most, and not only follows from another; None if it
    has none.
    """
    text = text[-_FURTHEST:]
    lower = text.lower()
    found = []
    for i, kind in enumerate(kinds()):
        matches = (_search(message, text, lower) for message in kind.messages)
        match = next(filter(None, matches), None)
        if match:
            follows = 0
            if kind.cause in _FOLLOWS:
                follows = 1 + _FOLLOWS.index(kind.cause)
            found.append((follows, -len(match.groups()), match.start(), i, match))
    if not found:
        return None
    *_, i, match = min(found)
    return _read(kinds()[i], match, text)


def other_program(lines: Sequence[str], *, is_of_pytorch: bool = False) -> Other | None:
    """Return the program that wrote a log, if no engine here reads its logs: PyTorch if only that
    wrote a message.
    """
    for program, title, signs in dict.fromkeys(
        (kind.program, kind.title, kind.signs) for kind in kinds()
    ):
        is_signed = signs and any(map(re.compile(signs).search, lines))
        if is_signed or (is_of_pytorch and title == PYTORCH):
            known = (
                one.changes for one in kinds() if (one.program, one.cause) == (program, "memory")
            )
            advice = tuple(Advice(each.words, each.option) for each in next(known, []))
            return Other(title, advice)
    return None


# Words of a message about a limit.
_LIMIT = re.compile(
    r"(?i)exceed|\b(?:larger|greater|longer|more|higher|smaller|less|fewer|lower) than"
    r"|too (?:large|long|small|many|few)|not enough|insufficient|out of"
    r"|\bat (?:most|least)\b|maxim|minim|must be|divisible|limit|required?s?\b"
)
# What programs put before a message of a failure, and people do not write in a sentence.
_LABEL = re.compile(
    r"\b\w{1,80}(?:Error|Exception)\b|\b(?:ERROR|FATAL|CRITICAL)\b|❌|🥲"
    r"|(?i:\b(?:error|exception|fatal|panic|failed) ?[:\]]|^\W{0,9}(?:error|fatal|panic)\b)"
)
_EXCEPTION = re.compile(r"\b\w{1,80}(?:Error|Exception): \S|\b(?:CUDA|HIP) error: \S")
_OPTION = re.compile(r"--[a-z][a-z0-9-]{2,60}|\b(?:max|min|num|block|chunk)\w{0,20}_\w{2,40}")
# Characters of a message that is shown.
LONGEST = 300


def unknown_message(lines: Sequence[str]) -> LogRefusal | None:
    """Return a message that no table has, with the options that it names if it is about a limit;
    None without one.

    Of two options with a number each takes the other's: 'max_num_seqs (256) exceeds max_slots (64)'
    is --max-num-seqs 64, or --max-slots 256.
    """
    limits = filter(_LIMIT.search, filter(_LABEL.search, lines))
    line = next((one for one in limits if re.search(r"\d", one)), None)
    if line is None:
        error = next(filter(_EXCEPTION.search, lines), None)
        reason = f"the message is not known here: {truncate(error, LONGEST)}"
        if error:
            return LogRefusal("stated", error, cause="other_error", reason=reason)
        return None
    values = {
        match[1]: match[2]
        for match in re.finditer(rf"({_OPTION.pattern})`?[ =:(]{{1,3}}(\d[\d,.]*\d|\d)", line)
    }
    options = _OPTION.findall(line)
    names = [*dict.fromkeys(options)]
    others = ["N" for _ in options]
    if len(values) == 2:
        names = [*values]
        others = [*reversed(values.values())]
    pairs = zip(names, others, strict=False)  # a name can be there twice
    advice = [
        Advice("which the message names", f"{long_option(name)} {value}") for name, value in pairs
    ]
    reason = f"the message is not known here, and states a limit: {truncate(line, LONGEST)}"
    return LogRefusal("stated", line, cause="other_error", reason=reason, advice=tuple(advice[:3]))


def by_other(refusal: LogRefusal, other: Other) -> LogRefusal:
    """Return the failure of another program than an engine: its stages are not known."""
    where = refusal.where if refusal.where == "killed" else ""
    return refusal._replace(program=other.title, advice=other.advice, where=where)


def _search(message: str, text: str, lower: str) -> re.Match[str] | None:
    """Return the first match, from as near to its end as it can begin: of the slot whose request
    failed.
    """
    if _longest_word(message) not in lower:
        return None
    pattern = _compiled(message)
    match = pattern.search(text)
    while match:
        later = pattern.search(text, match.start() + 1)
        if later is None or later.end() != match.end():
            break
        match = later
    return match


def _read(kind: _Kind, match: re.Match[str], text: str) -> Message:
    figures = _figures(match, text)
    engine = _ENGINES.get(kind.program)
    if kind.cause == LONG_REQUEST:
        given = _GIVEN_CONTEXT.search(text)
        if given:
            figures.setdefault("limit", int(given[1]))
        refusal = _too_long(kind.context_option, figures)
    else:
        reason = next(filter(None, (_filled(each, figures) for each in kind.reasons)))
        advice = []
        for change in kind.changes:
            option = _filled(change.option, figures, is_typed=True)
            words = _filled(change.words, figures)
            if words and option is not None:
                advice.append(Advice(words, option, change.is_sure))
        refusal = LogRefusal(
            _KINDS.get(kind.cause, "stated"), "", reason=f"{reason}.", advice=tuple(advice)
        )
    program = "" if kind.program == engine else kind.title
    return Message(
        engine, refusal._replace(line=" ".join(match[0].split()), cause=kind.cause, program=program)
    )


# The context of a server whose message does not tell it, by its command or a line of the slot.
_GIVEN_CONTEXT = re.compile(
    r"(?:\bn_ctx_slot "
    r"=|(?<![\w-])(?:--ctx-size|-c|--max-model-len|--context-length|--max-total-tokens))"
    r"[ =]{1,3}(\d{3,8})\b"
)


def _figures(match: re.Match[str], text: str) -> dict[str, Any]:
    """Return the numbers and words of a message, and what follows from them."""
    found: dict[str, Any] = {
        name: _number(value) for name, value in match.groupdict().items() if value is not None
    }
    whole = {name: value if isinstance(value, int) else 0 for name, value in found.items()}
    prompt = whole.get("prompt", 0)
    output = whole.get("output", 0)
    if prompt:
        found.setdefault("asked", prompt + output)
    if prompt and output and prompt < whole.get("limit", 0):
        found["left"] = whole["limit"] - prompt
    if whole.get("heads") and whole.get("gpus"):
        divisors = [n for n in range(1, min(found["heads"], 64) + 1) if found["heads"] % n == 0]
        found["divisors"] = " or ".join(
            filter(None, (", ".join(map(str, divisors[:-1])), str(divisors[-1])))
        )
        # a power of two, which divides most models' KV heads too
        fitting = 1
        while fitting * 2 < found["gpus"] and found["heads"] % (fitting * 2) == 0:
            fitting *= 2
        found["fitting"] = min(fitting, 64)
    if whole.get("block") and whole.get("size"):
        found["factor"] = found["block"] // gcd(found["block"], found["size"])
        found["times"] = found["factor"] * found["size"]
    ram = _RAM.search(text)
    found["wired"] = int(ram[1]) * 1024 * 7 // 8 if ram else "N"
    tp = next(filter(None, (tp for match in _TP.finditer(text) for tp in match.groups())), None)
    if tp and int(tp) % found.get("factor", 2) == 0:
        found["part"] = int(tp) // found.get("factor", 2)
    else:
        found["part"] = "N"
    return found


def _number(text: str) -> Any:
    # vLLM's scaled context: 131072.0
    digits = re.sub(r"\.0+$", "", text.replace(",", "").replace("_", ""))
    if digits.isdecimal():
        return int(digits)
    return text.rstrip(",")


def _too_long(context_option: str, figures: Mapping[str, Any]) -> LogRefusal:
    """Return that a request was longer than the server's context, and what to change: in the
    request if that helps.
    """
    asked = _count_of("asked", figures)
    limit = _count_of("limit", figures)
    prompt = _count_of("prompt", figures)
    output = _count_of("output", figures)
    reason = "a request"
    if asked:
        reason = f"a request of {count(asked)} tokens"
    if asked and prompt and output:
        reason += f" ({count(prompt)} of the prompt, {count(output)} of the output)"
    reason += " was longer than the server's context"
    if limit:
        reason += f" of {count(limit)} tokens"
    if asked > limit > 0:
        reason += f", by {count(asked - limit)}"
    longer = _longer_context(asked, limit)
    words = f"a context of {count(longer)} tokens or more"
    if context_option and asked:
        words = "a context that holds it"
    elif context_option:
        words = "a longer context"
    option = context_option.replace("{}", str(longer))
    advice = [Advice(f"{words}, if the model has it and the memory allows it", option)]
    if "left" in figures:
        change = "in the request: what its prompt leaves of the context"
        advice.insert(0, Advice(change, f"max_tokens={figures['left']}", True))
    if 0 < output < limit:
        advice.append(Advice(f"a shorter prompt, of at most {count(limit - output)} tokens"))
    elif limit:
        advice.append(Advice(f"a shorter prompt, below {count(limit)} tokens"))
    else:
        advice.append(Advice("a shorter prompt"))
    return LogRefusal(
        "stated", "", reason=f"{reason}.", advice=tuple(advice), tokens=asked, context=longer
    )


def _count_of(name: str, figures: Mapping[str, Any]) -> int:
    """Return a count of tokens; 0 if the message does not have it."""
    number = figures.get(name)
    if isinstance(number, int):
        return number
    return 0


def _longer_context(asked: int, limit: int) -> int:
    """Return a context that holds a request of `asked` tokens, with room for an answer: 10,240 of
    9,012. Without its length, twice the limit.
    """
    if not asked:
        return 2 * limit or _USUAL_CONTEXT
    least = max(asked, limit)
    step = 1 << max(0, least.bit_length() - 3)
    return (least // step + 1) * step


# {what is after a name's colon: the number that is shown in its place, or None if there is none}.
_CHANGED: dict[str, Callable[[Any], Any]] = {
    "pow2": lambda number: 1 << max(0, int(number) - 1).bit_length(),
    "down": lambda number: 1 << (int(number).bit_length() - 1) if number >= 1 else None,
    "double": lambda number: 2 * int(number),
    "half": lambda number: int(number) // 2 or None,
    "floor": lambda number: int(number) or None,
    "most": lambda number: int(0.9 * number) or None,
    "context": lambda number: 2 << int(number).bit_length(),
    "quarter": lambda number: int(number) // 4 or None,
    "room": lambda number: int(1.1 * number) // 256 * 256 + 256,
    "tenth": lambda number: f"{number / 10:.1f}",
    "B": lambda number: human(number, BYTES),
    "MiB": lambda number: human(int(number * 2**20), BYTES),
}


def _filled(template: str, figures: Mapping[str, Any], *, is_typed: bool = False) -> str | None:
    """Return the template with the figures; None if the message lacks one.

    Counts have separators in a sentence, and none in an option, as they are typed.
    """

    def value(match: re.Match[str]) -> str:
        number = figures.get(match["name"])
        if match["change"] and number is not None:
            digits = str(number)
            number = _CHANGED[match["change"]](float(digits) if "." in digits else int(digits))
        if number is None:
            return ""
        if is_typed or not isinstance(number, int):
            return str(number)
        return count(number)

    shown = {match[0]: value(match) for match in _FIGURE.finditer(template)}
    if all(shown.values()):
        return _FIGURE.sub(lambda match: shown[match[0]], template)
    return None


# The table


@cache
def kinds() -> list[_Kind]:
    """Return the table of messages.txt."""
    lines = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return list(_parsed(line for line in filter(None, lines) if not line.startswith("#")))


def _parsed(lines: Iterator[str]) -> Iterator[_Kind]:
    header = [""] * 3
    signs = ""
    cause = ""
    kind = None
    for line in lines:
        key, _, text = line.strip().partition(": ")
        is_of_kind = line.startswith("  ")
        if kind and (
            not is_of_kind or (key == "message" and (kind.reasons or cause == LONG_REQUEST))
        ):
            yield kind
            kind = None
        if line.startswith("== "):
            header = [part.strip() for part in f"{line[3:]} ".split(": ", 2)]
            signs = ""
        elif key == "signs":
            signs = text
        elif not is_of_kind:
            cause = key
        else:
            kind = kind or _Kind(header[0], header[1], header[2], signs, cause, [], [], [])
            if key == "message":
                kind.messages.append(text)
            elif key == "says":
                kind.reasons.append(text)
            else:
                option, _, words = text.removeprefix("=").strip().rpartition(" = ")
                kind.changes.append(_Change(option, words, key == "sure"))
    if kind:
        yield kind


@cache
def _longest_word(message: str) -> str:
    """Return a word that every text with the message has, in small letters."""
    return max(
        re.findall(r"\w+", re.sub(r"<\w+>|\[[^]]+\]|\{[^}]+\}\w*", "", message.lower())),
        key=len,
        default="",
    )


@cache
def _compiled(message: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![^\W_]){_pattern(message)}", re.IGNORECASE | re.DOTALL)


def _pattern(template: str) -> str:
    # whether any signs may follow
    found = ""
    is_open = True
    for part in _PARTS.findall(template):
        kind = part.strip()[:1]
        if ".." in part:
            found += ".{0,1500}?" if "..." in part else ".{0,40}?"
            is_open = True
        elif not re.match(r"\w|[<[{].", part.strip()):
            found += "" if is_open else _BETWEEN
            is_open = True
        else:
            is_open = kind == "["
            inner = part[1:-1]
            if kind == "<":
                usual = _WORDS if inner.isupper() else _NUMBER
                found += rf"(?P<{inner.lower()}>{_VALUES.get(inner, usual)})"
            elif kind == "[":
                found += rf"(?:{_pattern(inner)}{_BETWEEN})?"
            elif kind == "{":
                found += rf"(?:{'|'.join(map(_pattern, inner.split('|')))})"
            else:
                found += part
    if found.endswith(f"{_WORDS})"):
        return f"{found.removesuffix(f'{_WORDS})')}{_WORD})"
    return found
