"""A log as a file: its lines, whatever wrote it down, and the engine that printed them.

What a file, a terminal, docker or PowerShell did to the lines is undone: UTF-16 and byte-order
marks, colour codes, docker's and Kubernetes' JSON, lines that a terminal wrapped at its width,
quotation marks of word processors, and what was put before each line.
"""

import contextlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from html import unescape

from ..engines import ENGINES
from ..errors import AttncalcError
from ..units import truncate
from . import READERS, find_reader
from .endings import after_the_cache, with_end
from .messages import UNKNOWN, Other, by_other, find_message, other_program, unknown_message
from .metrics import with_metrics
from .startup_log import REPEATED, InUse, StartupLog, is_about_load, typed_options

# Characters of a line that are read; SGLang's arguments, the longest line of an engine, have some
# 10,000.
LONGEST_LINE = 1 << 16
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,30}[A-Za-z]")
# A colour code in a text that was pasted without its escape characters.
_BARE_COLOUR = re.compile(r"\[\d[0-9;]{0,29}m")
_BARE_RESET = "[0m"
_TYPOGRAPHIC = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}
# A sign, and a line break, as JSON and Python's repr write them; C:\\new is a path.
_ESCAPED = re.compile(r"\\u00([0-7][0-9a-f])|\\n(?![a-z])")
# The keys under which log drivers keep the text of a line: docker's is `log`, journald's `MESSAGE`.
_JSON_TEXTS = ("log", "message", "msg", "line", "textPayload", "MESSAGE")
# Columns of a terminal. The longest lines of other logs are longer or differ in length.
_NARROWEST = 40
_WIDEST = 400
# How a line of a log begins, and the rest of a wrapped one hardly ever.
_BEGINNING = re.compile(
    r"\s*(?:\(|\[|INFO|WARNING|ERROR|DEBUG|ValueError|RuntimeError|\d{2,4}[-:.]\d\d[-:. ]"
    r"|(?:llama_\w{1,30}|load_tensors|print_info|ggml_\w{1,30}|sched_reserve): )"
)
# The service that docker compose puts before a line, and the pod that kubectl logs --prefix and
# stern put there.
_OF_COMPOSE = r"[\w.-]{1,80} \| "
_OF_PODS = r"\[pod/[\w./-]{1,300}\] |[a-z][\w.-]{1,80}-[a-z0-9]{5} [\w.-]{1,80} "
_SOURCE = re.compile(f"{_OF_COMPOSE}|{_OF_PODS}")
# What is put before the lines of a log by whatever collected them, with single blanks.
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"> ?",  # a quotation
        r"[A-Z][a-z]{2} \d{1,2} \d\d:\d\d:\d\d \S{1,80} \S{1,80}\[\d{1,9}\]: ",  # journald
        _OF_COMPOSE,
        _OF_PODS,
        # docker logs -t, Kubernetes, journald and syslog with ISO dates
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,20} (?:std(?:out|err) [FP] |\S{1,80} "
        r"\S{1,80}\[\d{1,9}\]: )?",
        r"\d{1,6}\.\d\d\.\d{3}\.\d{3} [DEIW] ",  # llama.cpp's --log-timestamps and --log-prefix
    )
)
# A line of a traceback in an engine: the first is of the one that called the others, as SGLang
# calls vLLM's code.
_FRAME = re.compile(rf"File ['\"][^'\"]{{0,400}}[/\\\\]({'|'.join(ENGINES)})[/\\\\]")
_NO_MESSAGE = (
    "has neither the size of a cache nor a message why there is none",
    "give lines such as 'GPU KV cache size: 78,384 tokens', or the error's message",
)
# Lines of a paste that is all about one message.
_A_SCREEN = 60
# Lines of a pasted message, in which only one may be wrapped.
_A_FEW = 12
# Lines at the beginning and at the end by which the engine is recognised: a server's log can have
# millions.
_SAMPLE = 10_000
# Lines at the beginning and at the end that are all read: a start-up has some hundreds.
WHOLE = 1000
_DIGITS = b"0123456789"


def is_log(data: bytes) -> bool:
    """Return whether some of the first lines are those of an engine's log, or there is a message
    that is known.
    """
    lines = _written_lines(data)
    if any(pattern.search(line) for pattern in _signs().values() for line in lines):
        return True
    with contextlib.suppress(AttncalcError):
        refusal = read_log(data, "").refusal
        return refusal is None or refusal.program != UNKNOWN
    return False


def read_log(data: bytes, name: str, engine: object = None) -> StartupLog:
    """Return the contents of a log. The error names the file, `name`.

    A log in which no line shows who wrote it is read as that of `engine`, if it can be.

    Raises AttncalcError if no line has the size of an engine's cache, or says why there is none.
    """
    written = _written_lines(data)
    _check_servers(written, name)
    lines = _without_prefix(written)
    logs = [_read_lines(some, engine) for some in _wrapped_once(lines)]
    log = max(logs, key=_figures)
    is_open = log is None or log.is_assumed  # no line shows which engine wrote it
    if log is None or log.is_assumed or log.refusal is None or log.refusal.kind == "unfinished":
        log = _with_message(log, lines, engine)
    if log and log.is_assumed and log.engine == "vllm" and engine is None:
        refusal = log.refusal
    else:
        refusal = None
    # an allocation failed, and only PyTorch says so
    is_of_pytorch = bool(refusal and (refusal.kind, refusal.where) == ("out_of_memory", ""))
    other = None
    if is_open:
        other = other_program(_ends(lines), is_of_pytorch=is_of_pytorch)
    log = _with_program(log, lines, other)
    if log is None:
        message, tip = _NO_MESSAGE
        if other:
            message = f"is a log of {other.title}, without a message that is known here"
        source = _source(name)
        raise AttncalcError(f"{source} {message}", tip)
    return log._replace(typed=typed_options(" ".join(_ends(lines))))


def _source(name: str) -> str:
    """Return how an error names a log: the file, 'standard input', or a message in quotes."""
    if name == "-":
        return "standard input"
    if " " in name:
        return f"'{truncate(name)}'"
    return truncate(name)


def _with_program(
    log: StartupLog | None, lines: list[str], other: Other | None
) -> StartupLog | None:
    """Return a log with the program that wrote it; without a log, a message that no table has, if
    there is one.
    """
    if log is None:
        unknown = unknown_message(_ends(lines))
        if unknown is None:
            return None
        program = other.title if other else UNKNOWN
        return find_reader("vllm").read_log(lines, unknown._replace(program=program))
    if other and log.refusal and not log.refusal.cause:
        return log._replace(refusal=by_other(log.refusal, other))
    return log


def _with_message(log: StartupLog | None, lines: list[str], engine: object) -> StartupLog | None:
    """Return a log with why it ended, if a message states that; of a cache with its size, one in
    the lines after it.
    """
    last = after_the_cache(log, lines) if log and log.logged else _ends(lines)
    message = next(
        filter(None, (find_message(" ".join(some)) for some in _wrapped_once(last))), None
    )
    refusal = log.refusal if log else None
    is_named = refusal and (refusal.kind != "unfinished" or refusal.where == "other")
    if message is None or (log and message.follows and (log.logged or is_named)):
        return log
    if log and log.logged and message.of_running and (log.load or len(lines) > _A_SCREEN):
        return log  # of a server that ran well before and after
    shown = log.engine if log and not log.is_assumed else None
    candidates = (message.engine, shown, engine, "vllm")
    found = next(str(name) for name in candidates if name in READERS)
    is_assumed = found not in (message.engine, shown, engine)
    is_engines = message.engine is None and not is_assumed  # a message that any engine may print
    refusal = message.refusal._replace(program="") if is_engines else message.refusal
    read = find_reader(found).read_log(lines, refusal)
    return read and read._replace(is_assumed=is_assumed)


def _wrapped_once(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines, and a few lines with the widest and the next joined, as a terminal may have
    wrapped one message.

    A number that continues is surely wrapped: '(4.' and '11 GiB KV cache is needed' are not 11 GiB.
    """
    widest = max(range(len(lines)), key=lambda i: len(lines[i]), default=0)
    first, second = [*lines[widest : widest + 2], "", ""][:2]
    is_number = re.search(r"\d\.?$", first) and re.match(r"\d", second)
    if len(lines) > _A_FEW or not second or (_BEGINNING.match(second) and not is_number):
        yield lines
        return
    joined = [*lines[:widest], first + second, *lines[widest + 2 :]]
    if not is_number:
        yield lines
    yield joined


def _figures(log: StartupLog | None) -> int:
    """Return how many figures a log has; -1 if no message in it is known."""
    if log is None or (not log.logged and log.refusal and log.refusal.kind == "unfinished"):
        return -1
    stated: list[object] = []
    if log.refusal:
        parts = (*log.refusal._replace(use=InUse()), *log.refusal.use)
        stated = [part for part in filter(None, parts) if part != InUse()]
    found = (log.settings, log.available, log.logged, log.budget, stated)
    return sum(map(len, found))


@cache
def _signs() -> dict[str, re.Pattern[str]]:
    """Return the engines whose logs are read, each with a pattern of its lines."""
    return {engine: find_reader(engine).SIGNS for engine in READERS}


def _read_lines(lines: list[str], engine: object = None) -> StartupLog | None:
    ends = _ends(lines)
    frames = filter(None, map(_FRAME.search, ends))
    outermost = next((match[1] for match in frames), None)
    signs = [
        (sum(1 for line in ends if pattern.search(line)), known)
        for known, pattern in _signs().items()
    ]
    assumed = None
    for number, known in sorted(signs, key=lambda sign: (sign[1] != outermost, -sign[0])):
        log = find_reader(known).read_log(lines) if number or assumed is None else None
        # the message alone may be one that is read, as 'unable to allocate CUDA0 buffer'
        if log and not number:
            refusal = log.refusal
            is_message = refusal and refusal.kind != "unfinished"
            log = log._replace(is_assumed=True) if is_message else None
        if log and log.logged and log.refusal is None:
            log = with_end(log, lines)
        if log is not None and not log.is_assumed:
            return log
        assumed = assumed or log
    named = None
    for number, known in signs:
        if named is None and number and assumed and known != assumed.engine:
            named = known
    # CUDA's message has no sign of the engine that the other lines name
    if named and assumed and assumed.refusal:
        return find_reader(named).read_log(lines, assumed.refusal)
    return assumed and (_read_as(engine, lines) or assumed)


def _check_servers(lines: list[str], name: str) -> None:
    """Raise AttncalcError if containers or pods, by what is before their lines, are servers of
    different models.
    """
    by_source = defaultdict(list)
    for line in lines:
        match = _SOURCE.match(line)
        if match:
            by_source[match[0].strip("[ |]")].append(line[match.end() :])
    if len(by_source) < 2 or 2 * sum(map(len, by_source.values())) <= len(lines):
        return
    logs = {source: _read_lines(_without_prefix(some)) for source, some in by_source.items()}
    servers = {}
    for source, log in logs.items():
        if log and log.model:
            servers[source] = (log.engine, log.model)
    if len(set(servers.values())) > 1:
        first, *_ = servers
        names = ", ".join(
            f"{source} of {truncate(model)}" for source, (_, model) in [*servers.items()][:3]
        )
        raise AttncalcError(
            f"{truncate(name)} has the logs of several servers: {names}",
            f"give the lines of one of them, such as those of {first}",
        )


def _read_as(engine: object, lines: list[str]) -> StartupLog | None:
    if engine not in READERS:
        return None
    return find_reader(str(engine)).read_log(lines)


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a log, without colours and what was put before each, and with single
    blanks.
    """
    return _without_prefix(_written_lines(data))


def _written_lines(data: bytes) -> list[str]:
    """Return the lines of a log with what was put before each, without colours, and with single
    blanks.
    """
    text = _decode(data)
    # as terminals and editors show it
    text = text.translate(_TYPOGRAPHIC).replace("␛", "\x1b").replace("^[[", "\x1b[")
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if _BARE_RESET in text:
        text = _BARE_COLOUR.sub("", text)
    written = [line[:LONGEST_LINE] for line in text.splitlines()]
    is_json = text.lstrip()[:1] == "{"
    if is_json or not _width_of_wrapped(written):
        written = _without_repeated(written)
    if is_json:
        written = [*_from_json(written)]
    lines = with_metrics([part for line in written for part in _unescaped(line)])
    return _without_repeated([" ".join(line.split()) for line in _unwrapped(lines)])


def _without_repeated(lines: list[str]) -> list[str]:
    """Return the lines, of a long log without most of those that are repeated and differ in their
    digits only.

    Those are progress, requests, the frames of an endless recursion and starts that fail again and
    again. The first and the last `WHOLE` lines stay, and all lines about the load: the largest of
    them counts.
    """
    middle = lines[WHOLE:-WHOLE]
    if not middle:
        return lines
    shapes = [line.encode("utf-8", "replace").translate(None, _DIGITS) for line in middle]
    before = Counter[bytes]()
    left = Counter(shapes)
    kept = []
    for line, shape in zip(middle, shapes, strict=True):
        before[shape] += 1
        left[shape] -= 1
        if before[shape] <= REPEATED or left[shape] < REPEATED or is_about_load(line):
            kept.append(line)
    return [*lines[:WHOLE], *kept, *lines[-WHOLE:]]


def _unescaped(line: str) -> list[str]:
    """Return the lines of a text in JSON, in HTML or in Python's repr."""
    line = unescape(line) if "&" in line else line
    if "\\" not in line:
        return line.split("\n")
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "\n", line).split(
        "\n"
    )


def _ends(lines: list[str]) -> list[str]:
    return [*lines[:_SAMPLE], *lines[_SAMPLE:][-_SAMPLE:]]


def _without_prefix(lines: list[str]) -> list[str]:
    """Return the lines without each prefix that most of them have."""
    for prefix in _PREFIXES:
        some = [line for line in _ends(lines) if line]
        with_prefix = [line for line in some if prefix.match(line)]
        if 2 * len(with_prefix) > len(some):
            lines = [
                prefix.sub("", line, count=1) if prefix.match(line) else line for line in lines
            ]
    return lines


def _decode(data: bytes) -> str:
    """Return the text; bytes that are none become replacement characters."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    start = data[:1000]
    # ASCII in 16 bits
    for encoding, nulls in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if len(start) > 8 and nulls.count(0) > 0.8 * len(nulls):
            return data.decode(encoding, "replace")
    return data.decode("utf-8", "replace")


def _from_json(lines: Iterable[str]) -> Iterator[str]:
    """Yield the texts of lines of JSON; other lines unchanged.

    docker splits long lines: all parts but the last have no line break.
    """
    part = ""
    for line in lines:
        text = _json_text(line)
        if text is None:
            yield line
            continue
        part = (part + text)[:LONGEST_LINE]
        if text.endswith("\n") or not line.lstrip().startswith('{"log"'):
            yield from part.splitlines()
            part = ""
    yield from part.splitlines()


def _json_text(line: str) -> str | None:
    if not line.lstrip().startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    for key in _JSON_TEXTS:
        text = data.get(key)
        error = data.get("error")
        if isinstance(text, str) and isinstance(error, str):
            return f"{text} {error}"
        if isinstance(text, str):
            return text
    return None


def _width_of_wrapped(lines: list[str]) -> int:
    """Return the width at which a terminal may have wrapped the lines; 0 if none did."""
    widths = Counter(map(len, lines))
    width = max(widths, default=0)
    is_wrapped = widths[width] > 1 and _NARROWEST <= width <= _WIDEST
    if is_wrapped:
        return width
    return 0


def _unwrapped(lines: list[str]) -> Iterator[str]:
    """Yield the lines with those joined that a terminal wrapped.

    In a wrapped log several lines are as long as the longest, and none is longer: they continue in
    the next line, unless that begins as a new one.
    """
    width = _width_of_wrapped(lines)
    if not width:
        yield from lines
        return
    parts: list[str] = []
    for line in lines:
        if parts and (len(parts[-1]) < width or _BEGINNING.match(line)):
            yield "".join(parts)
            parts = []
        parts.append(line)
    yield "".join(parts)
