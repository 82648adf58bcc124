"""The lines of a log: encodings, colours, JSON of log drivers, lines that a terminal wrapped;
figures within them.
"""

import json
import re
from fractions import Fraction

import pytest
from tables import each

from attncalc.errors import AttncalcError
from attncalc.logs.log_file import LONGEST_LINE, lines_of, read_log
from attncalc.logs.pytorch import torch_out_of_memory
from attncalc.logs.startup_log import (
    LogRefusal,
    Printed,
    StartupLog,
    first,
    last_start,
    least,
    printed,
)

GIB, MIB = 2**30, 2**20

# Encodings


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_log_is_read_in_any_encoding_that_powershell_writes(encoding: str) -> None:
    assert lines_of("INFO Größe\nINFO 两".encode(encoding)) == ["INFO Größe", "INFO 两"]
    assert lines_of(b"\xfe\xff" + "INFO".encode("utf-16-be")) == ["INFO"]


def test_bytes_that_are_no_text_are_replaced() -> None:
    assert lines_of(b"a\xffb") == ["a�b"]
    assert lines_of(b"\xff\xfea\x00b\x00c") == ["ab�"]
    assert lines_of(b"\xef\xbb\xbfa\xff") == ["a�"]
    assert lines_of(b"") == []


@pytest.mark.parametrize(
    ("letters", "others", "wide"),
    # a character of ASCII has a null in 16 bits: nearly all must be of ASCII, in more than 8 bytes
    [
        (5, 0, True),
        (4, 0, False),
        (3, 0, False),
        (9, 1, True),
        (17, 4, True),
        (16, 4, False),
        (8, 4, False),
    ],
)
def test_sixteen_bits_without_a_mark_are_recognized_by_their_nulls(
    letters: int, others: int, wide: bool
) -> None:
    text = "a" * letters + "两" * others
    for encoding in ("utf-16-le", "utf-16-be"):
        assert (lines_of(text.encode(encoding)) == [text]) == wide


def test_the_beginning_shows_whether_a_log_has_sixteen_bits() -> None:
    text = "a" * 500 + "两" * 5000
    assert lines_of(text.encode("utf-16-le")) == [text]
    plain = b"INFO a line\n" * 90 + b"\x00" * 5000
    assert lines_of(plain)[0] == "INFO a line"


def test_blanks_and_colours_are_removed() -> None:
    assert lines_of(b"\x1b[32mINFO\x1b[0m \t  a\x1b[1;38;5;208mb\x1b[K c \r\n d") == [
        "INFO ab c",
        "d",
    ]
    # as editors show an escape, and as a web page loses it
    for escape in ("␛[", "^[[", "["):
        assert lines_of(f"{escape}32mINFO{escape}0m a{escape}1;34mb [core.py:69]".encode()) == [
            "INFO ab [core.py:69]"
        ]
    assert lines_of("\u2018INFO\u2019 \u201ca\u201d".encode()) == ["'INFO' \"a\""]
    # no colour: the sequence is too long to be one
    assert lines_of(b"a\x1b[" + b"1" * 30 + b"mb") == ["ab"]
    assert lines_of(b"a\x1b[" + b"1" * 31 + b"mb") != ["ab"]


@each(
    "prefix",
    [
        "> ",
        "Oct  2 10:00:00 host serve[1234]: ",
        "vllm-1  | ",
        "2026-10-02T10:00:00.123456789Z ",
        "2026-10-02T10:00:00.123456789Z stdout F ",
        "vllm-1  | 2026-10-02T10:00:00.123456789Z ",
        "[pod/vllm-5d9c7-abcde/server] ",
        "vllm-5d9c7-abcde server ",
        "2026-10-02T10:00:00.123456+00:00 host serve[1234]: ",
        "0.00.123.456 I ",
    ],
)
def test_what_was_put_before_most_lines_is_removed(prefix: str) -> None:
    assert lines_of(f"{prefix}general.name = Qwen3 8B\nno prefix\n{prefix}INFO | 1".encode()) == [
        "general.name = Qwen3 8B",
        "no prefix",
        "INFO | 1",
    ]
    few = f"{prefix}one\ntwo"
    assert lines_of(few.encode()) == [" ".join(line.split()) for line in few.splitlines()]


def test_lines_are_cut_after_65536_characters() -> None:
    assert LONGEST_LINE == 65_536
    assert lines_of(b"x" * 65_536 + b"\ny") == ["x" * 65_536, "y"]
    assert lines_of(b"x" * 65_537 + b"\ny") == ["x" * 65_536, "y"]


# JSON of log drivers


@pytest.mark.parametrize("key", ["log", "message", "msg", "line"])
def test_the_text_of_a_json_line_is_read(key: str) -> None:
    lines = [json.dumps({"time": "t", key: f"INFO {n}\n", "n": n}) for n in range(3)]
    assert lines_of("\n".join(lines).encode()) == ["INFO 0", "INFO 1", "INFO 2"]


def test_the_first_key_that_is_a_text_counts() -> None:
    line = json.dumps({"line": "c", "message": "b", "log": 7})
    assert lines_of(line.encode()) == ["b"]


def test_lines_that_are_no_json_stay_as_they_are() -> None:
    text = [
        '{"log": "a\\n"}',
        "plain",
        "{not json",
        '{"other": 1}',
        "[1]",
        '  {"msg": "b\\nc"}',
        "end",
    ]
    assert lines_of("\n".join(text).encode()) == [
        "a",
        "plain",
        "{not json",
        '{"other": 1}',
        "[1]",
        "b",
        "c",
        "end",
    ]
    assert lines_of(("{" * 5000).encode()) == ["{" * 5000]
    # only a log that begins with JSON is JSON
    assert lines_of(b'plain\n{"log": "a"}') == ["plain", '{"log": "a"}']
    assert lines_of(b'\n  {"log": "a"}') == ["", "a"]


def test_docker_splits_long_lines_and_others_do_not() -> None:
    parts = [
        {"log": "one "},
        {"log": "two "},
        {"log": "three\n"},
        {"log": "four\n"},
        {"log": "five"},
    ]
    docker = "\n".join(json.dumps(part) for part in parts)
    assert lines_of(docker.encode()) == ["one two three", "four", "five"]
    other = "\n".join(json.dumps({"msg": text}) for text in ("one", "two"))
    assert lines_of(other.encode()) == ["one", "two"]
    # Kubernetes' and others' have their key later
    later = "\n".join(json.dumps({"stream": "stdout", "log": text}) for text in ("one", "two"))
    assert lines_of(later.encode()) == ["one", "two"]


def test_a_split_line_is_cut_too() -> None:
    parts = [
        json.dumps({"log": "x" * 40_000}),
        json.dumps({"log": "y" * 40_000 + "\n"}),
        json.dumps({"log": "z\n"}),
    ]
    assert lines_of("\n".join(parts).encode()) == ["x" * 40_000 + "y" * 25_536, "z"]


# Lines that a terminal wrapped


def wrapped(width: int, *lines: str) -> list[str]:
    rows = [line[i : i + width] for line in lines for i in range(0, len(line), width)]
    return lines_of("\n".join(rows).encode())


LONG = "INFO " + "a" * 120, "INFO " + "b" * 95, "INFO c"


@pytest.mark.parametrize("width", [40, 41, 60, 62])
def test_wrapped_lines_are_joined(width: int) -> None:
    assert wrapped(width, *LONG) == list(LONG)


@pytest.mark.parametrize(("width", "joined"), [(39, False), (40, True), (400, True), (401, False)])
def test_terminals_have_40_to_400_columns(width: int, joined: bool) -> None:
    line = "INFO " + "a" * 2000
    assert (wrapped(width, line) == [line]) == joined


def test_one_longest_line_is_not_wrapped() -> None:
    rows = ["INFO " + "a" * 100, "b" * 50, "c" * 50]
    assert lines_of("\n".join(rows).encode()) == rows
    # of two rows of the greatest length, each continues unless a new line begins after it
    rows = ["INFO " + "a" * 100, "INFO " + "b" * 100, "c", "d"]
    assert lines_of("\n".join(rows).encode()) == [rows[0], rows[1] + "c", "d"]


@each(
    "beginning",
    [
        "(EngineCore pid=1) ",
        "[2025-01-01] ",
        "INFO 07-09 ",
        "WARNING ",
        "ERROR ",
        "DEBUG ",
        "ValueError: ",
        "RuntimeError: ",
        "2025-01-02 ",
        "12:30:01 ",
        "llama_kv_cache: ",
        "load_tensors: ",
        "print_info: ",
        "ggml_cuda_init: ",
        "sched_reserve: ",
        "  INFO ",
    ],
)
def test_a_line_that_begins_as_a_log_line_continues_no_other(beginning: str) -> None:
    rows = ["INFO " + "a" * 55, "INFO " + "b" * 55, f"{beginning}c"]
    assert lines_of("\n".join(rows).encode()) == [*rows[:2], " ".join(rows[2].split())]


def test_the_rest_of_a_wrapped_line_may_be_empty_of_beginnings() -> None:
    for rest in ("c", "12 GiB", "information", "llama_kv_cache", "7.5 GiB"):
        rows = ["INFO " + "a" * 55, "INFO " + "b" * 55, rest]
        assert lines_of("\n".join(rows).encode()) == [rows[0], rows[1] + rest]


# Figures


@pytest.mark.parametrize(
    ("text", "unit", "size", "half"),
    [
        ("4.82", GIB, 482 * GIB // 100, GIB // 200 + 1),
        # "4.8" is 4.80 without its zero, and "5" is 5.00
        ("4.8", GIB, 48 * GIB // 10, GIB // 200 + 1),
        ("5", GIB, 5 * GIB, GIB // 200 + 1),
        ("4.825", MIB, 4825 * MIB // 1000, MIB // 2000 + 1),
        ("-0.5", GIB, -GIB // 2, GIB // 200 + 1),
        ("123", 1, 123, 0),
    ],
)
def test_a_printed_figure_is_rounded_to_its_last_digit(
    text: str, unit: int, size: int, half: int
) -> None:
    figure = Printed(text, "line", unit)
    assert (figure.number, figure.bytes, figure.half) == (Fraction(text), size, half)


def test_figures_are_read_without_separators() -> None:
    found = printed(
        re.compile(r"(\d[\d,_]*) tokens|size (\d+)"), "a 1,234,567 tokens b 8_9 tokens c size 7", 2
    )
    assert found == [
        Printed("1234567", "1,234,567 tokens", 2),
        Printed("89", "8_9 tokens", 2),
        Printed("7", "size 7", 2),
    ]
    assert printed(re.compile(r"(\d+)"), "8")[0].unit == 1
    assert least(found) == found[2]
    assert least([]) is None


def test_the_first_group_that_matched_is_read() -> None:
    pattern = re.compile(r"a=(\d+)|b=(\w+)")
    assert (first(pattern, "x b=y a=1"), first(pattern, "a=1 b=y"), first(pattern, "c")) == (
        "y",
        "1",
        None,
    )


START, OUTCOME = re.compile("start"), re.compile("end")


@pytest.mark.parametrize(
    ("lines", "text", "starts"),
    [
        ([], "", 1),
        (["a", "b"], "a b", 1),
        (["start 1", "a", "end 1", "b"], "start 1 a end 1 b", 1),
        (["x", "start 1", "end 1", "start 2", "a", "end 2", "b"], "start 2 a end 2 b", 2),
        # a start without an outcome does not count, but arguments may be printed last
        (["start 1", "end 1", "start 2", "a"], "start 1 end 1 start 2", 1),
        # several lines of one start
        (
            [
                "start 1",
                "start 1 again",
                "end 1",
                "end 1 again",
                "start 2",
                "start 2 again",
                "end 2",
            ],
            None,
            2,
        ),
        (
            ["start 1", "end 1", "start 2", "end 2", "start 3", "end 3", "start 4"],
            "start 3 end 3 start 4",
            3,
        ),
    ],
)
def test_the_last_start_with_an_outcome_is_read(
    lines: list[str], text: str | None, starts: int
) -> None:
    expected = "start 2 start 2 again end 2" if text is None else text
    assert last_start(lines, START, OUTCOME) == (expected, starts)


def test_of_more_than_a_million_characters_the_beginning_and_the_end_are_searched() -> None:
    half = 1 << 19
    whole = "a" * half + "b" * half
    assert last_start([whole], START, OUTCOME)[0] == whole
    longer = "a" * half + "cut" + "b" * half
    assert last_start([longer], START, OUTCOME)[0] == "a" * half + " " + "b" * half


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        ("a-1  | ", "b-1  | "),
        ("[pod/a/vllm] ", "[pod/b/vllm] "),
        ("vllm-abcde a ", "vllm-fghij a "),
    ],
)
def test_the_servers_of_two_containers_are_not_read_as_one(of_a: str, of_b: str) -> None:
    def started(prefix: str, model: str) -> list[str]:
        engine = (
            f"Initializing a V1 LLM engine (v0.33.0) with config: model='{model}', max_seq_len=8192"
        )
        return [prefix + engine, f"{prefix}GPU KV cache size: 65,536 tokens"]

    def mixed(model: str) -> bytes:
        pairs = zip(started(of_a, "Qwen/Qwen3-8B"), started(of_b, model), strict=True)
        return "\n".join(line for pair in pairs for line in pair).encode()

    with pytest.raises(
        AttncalcError, match=r"several servers: .* of Qwen/Qwen3-8B, .* of Qwen/Qwen3-14B"
    ):
        read_log(mixed("Qwen/Qwen3-14B"), "compose.log")
    # two replicas, or two nodes of one server
    assert read_log(mixed("Qwen/Qwen3-8B"), "compose.log").model == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    "words",
    [
        "CUDA out of memory",
        "HIP out of memory",
        "torch.OutOfMemoryError",
        "Failed to load model - not enough",
    ],
)
def test_pytorch_says_what_it_tried_to_allocate(words: str) -> None:
    text = f"x {words}. Tried to allocate 1.50 GiB. GPU 0 has 23 GiB of which 312.50 MiB is free."
    refusal = torch_out_of_memory(text, "cache")
    assert refusal == LogRefusal(
        "out_of_memory",
        words,
        Printed("1.50", "Tried to allocate 1.50 GiB", GIB),
        Printed("312.50", "of which 312.50 MiB is free", MIB),
        "cache",
    )
    assert torch_out_of_memory(words, "") == LogRefusal("out_of_memory", words)
    assert torch_out_of_memory("1.50 GiB are free", "") is None


def test_a_log_names_what_to_serve_again() -> None:
    log = StartupLog("vllm", "0.11.0", "Qwen/Qwen3-8B", {})
    assert (log.devices, log.starts, log.served) == (0, 1, "Qwen/Qwen3-8B")
    assert log._replace(path="/models/q").served == "/models/q"
    # llama.cpp prints the name inside the file
    assert log._replace(engine="llamacpp").served is None
    assert log._replace(engine="llamacpp", path="q.gguf").served == "q.gguf"
