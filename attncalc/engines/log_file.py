"""A log as a file: its lines, whatever wrote it down, and the engine that printed them.

What a file, a terminal, docker or PowerShell did to the lines is undone: UTF-16 and byte-order marks, colour codes,
docker's and Kubernetes' JSON, lines that a terminal wrapped at its width, quotation marks of word processors, and what
was put before each line.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from ..errors import AttncalcError
from ..units import count, truncate
from . import ENGINES, find_engine
from .engine import Engine
from .startup_log import REFUSED, StartupLog, with_end

LONGEST_LINE = 1 << 16
"""Characters of a line that are read; SGLang's arguments, the longest line of an engine, have some 10,000."""
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"), (b"\xef\xbb\xbf", "utf-8"))
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,30}[A-Za-z]")
_BARE_COLOUR, _BARE_RESET = re.compile(r"\[\d[0-9;]{0,29}m"), "[0m"
"""A colour code in a text that was pasted without its escape characters."""
_TYPOGRAPHIC = {0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'}
_JSON_TEXTS = ("log", "message", "msg", "line", "textPayload", "MESSAGE")
"""The keys under which log drivers keep the text of a line: docker's is `log`, journald's `MESSAGE`."""
_NARROWEST, _WIDEST = 40, 400
"""Columns of a terminal. The longest lines of other logs are longer or differ in length."""
_BEGINNING = re.compile(
    r"\s*(?:\(|\[|INFO|WARNING|ERROR|DEBUG|ValueError|RuntimeError|\d{2,4}[-:.]\d\d[-:. ]"
    r"|(?:llama_\w{1,30}|load_tensors|print_info|ggml_\w{1,30}|sched_reserve): )"
)
"""How a line of a log begins, and the rest of a wrapped one hardly ever."""
_OF_COMPOSE, _OF_PODS = r"[\w.-]{1,80} \| ", r"\[pod/[\w./-]{1,300}\] |[a-z][\w.-]{1,80}-[a-z0-9]{5} [\w.-]{1,80} "
"""The service that docker compose puts before a line, and the pod that kubectl logs --prefix and stern put there."""
_SOURCE = re.compile(f"{_OF_COMPOSE}|{_OF_PODS}")
_PREFIXES = tuple(
    re.compile(pattern)
    for pattern in (
        r"> ?",  # a quotation
        r"[A-Z][a-z]{2} \d{1,2} \d\d:\d\d:\d\d \S{1,80} \S{1,80}\[\d{1,9}\]: ",  # journald
        _OF_COMPOSE,
        _OF_PODS,
        # docker logs -t, Kubernetes, journald and syslog with ISO dates
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,20} (?:std(?:out|err) [FP] |\S{1,80} \S{1,80}\[\d{1,9}\]: )?",
        r"\d{1,6}\.\d\d\.\d{3}\.\d{3} [DEIW] ",  # llama.cpp's --log-timestamps and --log-prefix
    )
)
"""What is put before the lines of a log by whatever collected them, with single blanks."""
_OTHERS = {
    "TensorRT-LLM": re.compile(r"\[TRT-LLM\]|\[TensorRT-LLM\]|tensorrt_llm|trtllm|Executor creation failed due to"),
    "LMDeploy": re.compile(r"lmdeploy|\[TM\]\["),
    "Text Generation Inference": re.compile(r"text[_-]generation[_-](?:launcher|server|router)"),
    "MLX": re.compile(r"\bmlx_(?:lm|vlm|engine)\b|\[metal::malloc\]|\[METAL\] Command buffer|iogpu\.wired_limit"),
    "transformers": re.compile(r"transformers/generation/|\bmodel\.generate\("),
}
"""Engines whose logs are not read, by a sign of each."""
_WITHOUT_FIGURES = (
    (
        r"See root cause above",
        "lacks the cause of a failed start",
        "give the lines above it too: vLLM prints it first",
    ),
    (
        r"exceeds the available context size",
        "is of a llama.cpp server that runs: a request was longer than its context",
        "start it with a larger -c, if the model and the memory allow it, or shorten the prompt",
    ),
    (
        r"runner has unexpectedly stopped",
        "says that Ollama's runner ended, and not why",
        "give the server's log: journalctl -u ollama, or ~/.ollama/logs/server.log. Often memory was too small, and a "
        "smaller num_ctx or a smaller model helps",
    ),
    (
        r"retrying without pipeline parallelism",
        "is of llama.cpp, whose compute buffers did not fit, and which went on with smaller ones",
        "that is no failure; with the lines of n_ctx and of the cache's size, --log compares them",
    ),
    (
        r"of pinned memory",
        "says that host memory could not be pinned",
        "that is no failure: llama.cpp goes on with other memory of the host; give the lines after it",
    ),
    (
        r"reempted",
        "says that requests are preempted, and neither how many run nor the size of the cache",
        "'attncalc explain preemption' has what to do; with the lines of the load, --log says how many fit",
    ),
    (
        r"",
        "has neither the size of a cache nor a message why there is none, as vLLM, SGLang and llama.cpp print them",
        "give a log with a line such as 'GPU KV cache size: 78,384 tokens', 'KV Cache is allocated. #tokens: 107984' "
        "or 'llama_kv_cache: size = 576.00 MiB', or with the message why there is none",
    ),
)
"""What lines without a figure of a cache say: (their sign, that in words, what to do), the first that is found."""
_OF_ANY = "{} tokens of context (--max-model-len, --context-length, -c or OLLAMA_CONTEXT_LENGTH)"
_N = r"\d{1,12}"
_LONG_REQUEST = tuple(
    (option, re.compile(pattern))
    for option, pattern in (
        ("-c {}", rf"n_prompt_tokens\W{{1,5}}(?P<tokens>{_N})\W{{1,5}}n_ctx\W{{1,5}}(?P<context>{_N})"),
        ("-c {}", rf"(?:request \((?P<tokens>{_N}) tokens\) exceeds the )?available context size \((?P<context>{_N})"),
        (
            "-c {}",
            rf"n_ctx_slot = (?P<context>{_N}),(?:(?!n_ctx_slot)[^\0]){{1,99}}?n_(?:prompt_)?tokens = (?P<tokens>{_N})"
            r"(?:(?!n_ctx_slot)[^\0]){1,2000}?exceeds the available context size",
        ),
        ("num_ctx {}", rf"truncating input prompt\" limit=(?P<context>{_N})(?: prompt=(?P<tokens>{_N}))?"),
        (
            "a context length of {}",
            rf"keep the first (?P<tokens>{_N}) tokens.{{1,80}}context length of only (?P<context>{_N})",
        ),
        (
            _OF_ANY,
            rf"(?:input \((?P<tokens>{_N}) tokens\) is longer than the )?model\W{{1,3}}s (?:maximum )?context length "
            rf"(?:is |of |\()(?P<context>{_N})(?: tokens\. (?:However, you requested|However, your request has"
            rf"|You requested a total of) (?P<total>{_N})"
            rf"(?: output tokens and your prompt contains at least (?P<prompt>{_N}))?)?",
        ),
        (_OF_ANY, rf"maximum model length of (?P<context>{_N})"),
        (
            _OF_ANY,
            rf"(?:Input length \((?P<tokens>{_N}) tokens\) exceeds the )?maximum allowed length \((?P<context>{_N})",
        ),
    )
)
"""A request that was longer than the context of a running server: what sets the context, and the message."""
_TRAINING = re.compile(
    r"\btrainer\.train\(|transformers/trainer\.py|loss\.backward\(|optimizer\.step\(|\{'(?:train_)?loss': "
    r"|\b(?:axolotl|llamafactory|torchtune|unsloth|trl)/|deepspeed/runtime/engine\.py"
)
"""Signs of a training run."""
_A_FEW = 12
"""Lines of a pasted message, in which only one may be wrapped."""
_SAMPLE = 10_000
"""Lines at the beginning and at the end by which the engine is recognised: a server's log can have millions."""


def is_log(data: bytes) -> bool:
    """Return whether some of the first lines are those of an engine's log."""
    lines = _written_lines(data)
    return any(signs.search(line) for signs in (*_readers().values(), REFUSED) for line in lines)


def read_log(data: bytes, name: str, engine: object = None) -> StartupLog:
    """Return the contents of a log. The error names the file, `name`.

    A log in which no line shows who wrote it is read as that of `engine`, if it can be.

    Raises AttncalcError if no line has the size of an engine's cache, or says why there is none.
    """
    written = _written_lines(data)
    _check_servers(written, name)
    lines, shown = _without_prefix(written), "standard input" if name == "-" else truncate(name)
    log = max((_read_lines(some, engine) for some in _wrapped_once(lines)), key=_figures)
    if (log is None or log.is_assumed) and any(map(_TRAINING.search, _ends(lines))):
        how = f"--log {truncate(name)}" if any("Tried to allocate" in line for line in _ends(lines)) else "--gpu GPU"
        raise AttncalcError(
            f"{shown} is a log of training",
            f"'attncalc train MODEL {how}' has what a step needs, and changes with which it fits",
        )
    if (log is None or log.is_assumed) and (
        other := next((title for title, sign in _OTHERS.items() if any(map(sign.search, _ends(lines)))), None)
    ):
        raise AttncalcError(
            f"{shown} is a log of {other}, which is not read: logs of vLLM, SGLang, llama.cpp and Ollama are",
            "without a log, 'attncalc fit MODEL --gpu GPU' computes what fits: --engine vllm, sglang, llamacpp",
        )
    message = log.refusal.line if log and log.refusal and log.refusal.kind == "unfinished" else ""
    too_long = _too_long(message, shown)
    if log and not too_long:
        return log
    text = "\n".join(_ends(lines))
    if too_long := too_long or _too_long(text, shown):
        raise too_long
    raise AttncalcError(
        *next((f"{shown} {message}", tip) for sign, message, tip in _WITHOUT_FIGURES if re.search(sign, text))
    )


def _too_long(text: str, shown: str) -> AttncalcError | None:
    """Return that a request was longer than the server's context, and the next power of two that has room for it."""
    found = ((option, pattern.search(text)) for option, pattern in _LONG_REQUEST)
    option, request = next((each for each in found if each[1]), ("", None))
    if request is None:
        return None
    figures = request.groupdict()
    context = int(figures.pop("context"))
    tokens = sum(map(int, filter(None, figures.values())))
    longer, asked = (1 << tokens.bit_length(), f"a request of {count(tokens)} tokens") if tokens else ("N", "a request")
    return AttncalcError(
        f"{shown} is of a server that runs: {asked} was longer than its {count(context)} tokens of context",
        f"start it with {option.format(longer)}, if the model and the memory allow it, or shorten the prompt",
    )


def _wrapped_once(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines, and a few lines with the widest and the next joined, as a terminal may have wrapped one message.

    A number that continues is surely wrapped: '(4.' and '11 GiB KV cache is needed' are not 11 GiB.
    """
    widest = max(range(len(lines)), key=lambda i: len(lines[i]), default=0)
    first, second, *_ = *lines[widest : widest + 2], "", ""
    is_number = re.search(r"\d\.?$", first) and re.match(r"\d", second)
    if len(lines) > _A_FEW or not second or (_BEGINNING.match(second) and not is_number):
        yield lines
        return
    joined = [*lines[:widest], first + second, *lines[widest + 2 :]]
    yield from [joined] if is_number else [lines, joined]


def _figures(log: StartupLog | None) -> int:
    """Return how many figures a log has; -1 if no message in it is known."""
    if log is None or (not log.logged and log.refusal and log.refusal.kind == "unfinished"):
        return -1
    found = (log.settings, log.available, log.logged, log.budget, [*filter(None, log.refusal or ())])
    return sum(map(len, found))


@cache
def _readers() -> dict[Engine[Any], re.Pattern[str]]:
    """Return the engines whose logs are read, each with a pattern of its lines."""
    known = filter(lambda engine: engine.log_signs, map(find_engine, ENGINES))
    return {engine: re.compile(engine.log_signs) for engine in known}


def _read_lines(lines: list[str], engine: object = None) -> StartupLog | None:
    ends = _ends(lines)
    signs = [(sum(1 for line in ends if pattern.search(line)), known) for known, pattern in _readers().items()]
    assumed = None
    for number, known in sorted(signs, key=lambda sign: -sign[0]):
        log = known.read_log(lines) if number or assumed is None else None
        if log and not number:  # the message alone may be one that is read, as 'unable to allocate CUDA0 buffer'
            refusal = log.refusal
            is_message = refusal and (refusal.kind != "unfinished" or REFUSED.search(refusal.line))
            log = log._replace(is_assumed=True) if is_message else None
        if log and log.logged and log.refusal is None:
            log = with_end(log, lines)
        if log is not None and not log.is_assumed:
            return log
        assumed = assumed or log
    return assumed and (_read_as(engine, lines) or assumed)


def _check_servers(lines: list[str], name: str) -> None:
    """Raise AttncalcError if containers or pods, by what is before their lines, are servers of different models."""
    by_source = defaultdict(list)
    for line in lines:
        if match := _SOURCE.match(line):
            by_source[match[0].strip("[ |]")].append(line[match.end() :])
    if len(by_source) < 2 or 2 * sum(map(len, by_source.values())) <= len(lines):
        return
    logs = {source: _read_lines(_without_prefix(some)) for source, some in by_source.items()}
    servers = {source: (log.engine, log.model) for source, log in logs.items() if log and log.model}
    if len(set(servers.values())) > 1:
        first, *_ = servers
        names = ", ".join(f"{source} of {truncate(model)}" for source, (_, model) in [*servers.items()][:3])
        raise AttncalcError(
            f"{truncate(name)} has the logs of several servers: {names}",
            f"give the lines of one of them, such as those of {first}",
        )


def _read_as(engine: object, lines: list[str]) -> StartupLog | None:
    if engine not in ENGINES or not find_engine(str(engine)).log_signs:
        return None
    return find_engine(str(engine)).read_log(lines)


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a log, without colours and what was put before each, and with single blanks."""
    return _without_prefix(_written_lines(data))


def _written_lines(data: bytes) -> list[str]:
    """Return the lines of a log with what was put before each, without colours, and with single blanks."""
    text = _decode(data)
    text = text.translate(_TYPOGRAPHIC).replace("␛", "\x1b").replace("^[[", "\x1b[")  # as terminals and editors show it
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    if _BARE_RESET in text:
        text = _BARE_COLOUR.sub("", text)
    lines: Iterable[str] = (line[:LONGEST_LINE] for line in text.splitlines())
    if text.lstrip()[:1] == "{":
        lines = _from_json(lines)
    return [" ".join(line.split()) for line in _unwrapped(list(lines))]


def _ends(lines: list[str]) -> list[str]:
    return [*lines[:_SAMPLE], *lines[_SAMPLE:][-_SAMPLE:]]


def _without_prefix(lines: list[str]) -> list[str]:
    """Return the lines without each prefix that most of them have."""
    for prefix in _PREFIXES:
        some = [line for line in _ends(lines) if line]
        if 2 * sum(1 for line in some if prefix.match(line)) > len(some):
            lines = [line[match.end() :] if (match := prefix.match(line)) else line for line in lines]
    return lines


def _decode(data: bytes) -> str:
    """Return the text; bytes that are none become replacement characters."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace")
    start = data[:1000]
    for encoding, nulls in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):  # ASCII in 16 bits
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
    texts = (data.get(key) for key in _JSON_TEXTS) if isinstance(data, dict) else ()
    return next((text for text in texts if isinstance(text, str)), None)


def _unwrapped(lines: list[str]) -> Iterator[str]:
    """Yield the lines with those joined that a terminal wrapped.

    In a wrapped log several lines are as long as the longest, and none is longer: they continue in the next line,
    unless that begins as a new one.
    """
    widths = Counter(map(len, lines))
    width = max(widths, default=0)
    if widths[width] < 2 or not _NARROWEST <= width <= _WIDEST:
        yield from lines
        return
    parts: list[str] = []
    for line in lines:
        if parts and (len(parts[-1]) < width or _BEGINNING.match(line)):
            yield "".join(parts)
            parts = []
        parts.append(line)
    yield "".join(parts)
