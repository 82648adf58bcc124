"""Logs of hundreds of thousands of lines: patterns see few of them, and a line anywhere in them
counts.
"""

import json
from pathlib import Path

import pytest
from asking import Ask

from attncalc.logs.log_file import WHOLE, lines_of, read_log
from attncalc.logs.startup_log import REPEATED

LOGS = Path(__file__).parent / "data/engine-logs/doctor"
START = (LOGS / "vllm-running.log").read_text(encoding="utf-8").splitlines()
# Lines of a log that are read if only their digits differ: those at its ends, and 200 between them.
MOST = 2 * (WHOLE + REPEATED)
LOAD = "Running: {} reqs, Waiting: 5 reqs, GPU KV cache usage: 51.0%, Prefix cache hit rate: 0.0%"
REQUESTS = [
    f'INFO: 10.0.0.{i % 256}:{i} - "POST /v1/completions HTTP/1.1" 200 OK' for i in range(4 * WHOLE)
]
PROGRESS = [
    f"INFO Loading safetensors checkpoint shards: {i}% Completed | {i}/9000"
    for i in range(4 * WHOLE)
]
FRAMES = [
    part
    for i in range(2 * WHOLE)
    for part in (f'File "/srv/vllm/linear.py", line {i}, in forward', f"return self.inner({i})")
]


def data_of(lines: list[str]) -> bytes:
    return "\n".join(lines).encode()


@pytest.mark.parametrize("repeated", [REQUESTS, PROGRESS, [f"{one}·" for one in PROGRESS]])
def test_lines_that_differ_in_their_digits_are_read_at_their_first_and_last_places(
    repeated: list[str],
) -> None:
    middle = repeated[WHOLE:-WHOLE]
    ends = repeated[:WHOLE], repeated[-WHOLE:]
    assert lines_of(data_of(repeated)) == [
        *ends[0],
        *middle[:REPEATED],
        *middle[-REPEATED:],
        *ends[1],
    ]


@pytest.mark.parametrize("number", [2 * WHOLE, 2 * WHOLE + 2 * REPEATED])
def test_a_log_of_as_many_lines_is_read_whole(number: int) -> None:
    assert lines_of(data_of(PROGRESS[:number])) == PROGRESS[:number]


def test_frames_of_a_long_traceback_are_read_at_its_ends() -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB."
    lines = lines_of(data_of([*START, *FRAMES, error]))
    assert len(lines) <= MOST + 2 * REPEATED  # two shapes: a file's line, and its code
    log = read_log(data_of([*START, *FRAMES, error]), "log")
    assert log.refusal is not None
    assert log.refusal.line == "torch.OutOfMemoryError"


def test_dockers_json_is_read_as_rarely_as_its_texts() -> None:
    lines = lines_of(
        data_of([json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in PROGRESS])
    )
    assert lines == lines_of(data_of(PROGRESS))


def test_a_wrapped_line_in_a_long_log_is_joined() -> None:
    wrapped = [
        part
        for i in range(4 * WHOLE)
        for part in (f"INFO {i:04d} Running: 7 reqs, Waiting: 5 reqs, GPU", "KV")
    ]
    assert len({*map(len, wrapped[::2])}) == 1
    lines = lines_of(data_of(wrapped))
    assert len(lines) == 4 * WHOLE
    assert lines[2 * WHOLE].endswith("GPUKV")


def test_the_busiest_moment_of_a_long_log_counts_wherever_it_is() -> None:
    lines = [LOAD.format(1 + i % 9) for i in range(4 * WHOLE)]
    lines[2 * WHOLE] = LOAD.format(177)
    load = read_log(data_of([*START, *lines]), "log").load
    assert load is not None
    assert load.running == 177


@pytest.mark.parametrize("sign", ["reempted", "reempting"])
def test_all_preemptions_of_a_long_log_count(sign: str) -> None:
    lines = [LOAD.format(9), *[f"Sequence group {i} is p{sign}" for i in range(4 * WHOLE)]]
    load = read_log(data_of(lines), "log").load
    assert load is not None
    assert load.preempted == 4 * WHOLE


def test_the_last_start_counts_although_many_failed_before_it() -> None:
    tokens = "GPU KV cache size: 1,234,567 tokens"
    restarts = [*START * (4 * WHOLE // len(START)), *START, tokens]
    log = read_log(data_of([*restarts, *REQUESTS]), "log")
    alone = read_log(data_of([*START, tokens]), "log")
    assert (log.settings, log.logged) == (alone.settings, alone.logged)


def test_a_line_that_is_there_once_is_read_in_the_middle_of_a_long_log() -> None:
    size = "Available KV cache memory: 12.34 GiB"
    log = read_log(data_of([*REQUESTS, *START[:2], size, *REQUESTS]), "log")
    assert [figure.text for figure in log.available] == ["12.34"]


@pytest.mark.parametrize(
    ("number", "words"), [(100, "has 100 starts"), (101, "has more than 100 starts")]
)
def test_more_than_a_hundred_starts_are_not_counted(
    ask: Ask, tmp_path: Path, number: int, words: str
) -> None:
    path = tmp_path / "start.log"
    lines = [
        "INFO Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-8B', "
        "max_seq_len=40960",
        "INFO Available KV cache memory: 10.00 GiB",
        "INFO GPU KV cache size: 72,816 tokens",
    ]
    path.write_text("\n".join(lines * number), encoding="utf-8")
    answer = ask("fit", "--log", str(path), "--gpu", "h100", "--full")
    assert f"The log {words}: the last is compared." in " ".join(answer.out.split())
