"""attncalc beside what llama.cpp itself logs of models of full size: caches and compute buffers.

tests/data/llamacpp-buffers has a table per build, which tools/llamacpp_buffers.py records with
llama.cpp's own library. Here attncalc reads the same GGUF headers, without the library.
"""

import functools
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from asking import REPOSITORY

from attncalc import AttncalcError, ModelSpec, load
from attncalc.config.gguf.architectures import UNSUPPORTED
from attncalc.config.gpus import cpu
from attncalc.serving.fit import fit
from attncalc.serving.request import FitRequest
from attncalc.workload import Workload

sys.path.append(str(REPOSITORY / "tools"))
llamacpp_buffers = import_module("llamacpp_buffers")

TABLES = Path(__file__).parent / "data" / "llamacpp-buffers"
MIB = 2**20
TYPES = {"f16": "fp16", "f32": "fp32"}
# How many of a build's compute buffers are within 1 %, and how far the others are off. What is left:
# llama.cpp's allocator may leave gaps that no formula tells, where the logits are larger than all
# else, for GLM-5 before b11400, for an indexer at 32,768 tokens, for a single rotation beside
# recurrent layers, and in 3 of 80 passes of encoders.
CLOSE = {"b11327": (0.92, 0.12), "b11739": (0.98, 0.07)}
# The same of the rows that are in the range.
IN_RANGE = {"b11327": 0.98, "b11739": 1}


def table(build: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (TABLES / f"{build}.jsonl").read_text().splitlines()]


@functools.cache
def model(name: str) -> ModelSpec:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"{name}.gguf"
        return load(str(llamacpp_buffers.MODELS[name]().write(path)))


def cache_of(lines: Iterable[str]) -> list[list[float]]:
    """Return MiB, cells and layers of each cache."""
    found = re.findall(r"size = +([\d.]+) MiB \( *(\d+) cells, +(\d+) layers", "\n".join(lines))
    return [[float(size), int(cells), int(layers)] for size, cells, layers in found]


class Found(NamedTuple):
    """What attncalc says of a row."""

    cache: list[list[float]]  # MiB, cells and layers
    states: float | None  # MiB
    compute: float  # MiB
    low: float
    high: float


def found(build: str, name: str, options: dict[str, Any]) -> Found:
    given = {"c": 8192, "ub": 512, "np": 1, "ctk": "f16", "ctv": "f16", "fa": "auto", **options}
    slots = given["np"]
    is_shared = bool(given.get("kvu"))
    args = {
        "engine_version": build,
        "sequences": slots,
        "ubatch": given["ub"],
        "flash_attn": given["fa"],
        "swa_full": given.get("swa_full"),
        "kv_unified": given.get("kvu"),
        "n_outputs_max": given.get("outputs"),
    }
    k, v = given["ctk"], given["ctv"]
    if k != v:
        args |= {"kv_dtype_k": TYPES.get(k, k), "kv_dtype_v": TYPES.get(v, v)}
    workload = Workload.decode(
        1 if is_shared else slots,
        given["c"] if is_shared else given["c"] // slots,
        kv_dtype=k if k == v and model(name).main.has_cache else None,
    )
    args = {key: value for key, value in args.items() if value is not None}
    result = fit(
        FitRequest(model(name), workload, engine="llamacpp", gpu=cpu(2**42), engine_args=args)
    )
    lines = "\n".join(result.log_lines)
    states = re.findall(r"memory_recurrent: size = +([\d.]+) MiB", lines)
    assert result.budget.reserve
    part = result.budget.reserve.runtime.parts[0]
    return Found(
        cache_of(result.log_lines),
        float(states[0]) if states else None,
        int(part.expected) / MIB,
        part.low / MIB,
        part.high / MIB,
    )


def comparisons(build: str) -> Iterator[tuple[dict[str, Any], Found]]:
    for row in table(build):
        if "error" not in row:
            yield row, found(build, row["model"], row["options"])


@pytest.mark.parametrize("build", CLOSE)
def test_caches_and_compute_buffers_are_those_of_llamacpp(build: str) -> None:
    """All caches are equal. Of the compute buffers 93 % and 98 % are within 1 %."""
    errors = []
    inside = []
    for row, ours in comparisons(build):
        assert (ours.cache, ours.states) == (row["cache"], row.get("states")), row
        errors.append(abs(ours.compute / row["compute"] - 1))
        # a log has two digits after the point
        inside.append(ours.low <= row["compute"] + 0.02 <= ours.high + 0.04)
    least, most = CLOSE[build]
    assert len(errors) > 400
    assert sum(error < 0.01 for error in errors) / len(errors) > least
    assert max(errors) < most
    assert sum(inside) / len(inside) >= IN_RANGE[build]


@pytest.mark.parametrize("build", CLOSE)
def test_what_llamacpp_does_not_start_is_an_error(build: str) -> None:
    """Grok has no flash attention, which a quantized V needs."""
    failed = [row for row in table(build) if "error" in row]
    assert {row["model"] for row in failed} == {"grok-1"}
    for row in failed:
        with pytest.raises(AttncalcError, match="turns it off for Grok"):
            found(build, row["model"], row["options"])


class Case(NamedTuple):
    """A row of a table, what it shows, and how close attncalc is."""

    build: str
    model: str
    options: dict[str, Any]
    compute: float
    tolerance: float = 0.001


# Figures of llama.cpp.
CASES = {
    "pull request 29622 adds an embedding of the pass: 4,096 * 4 B * 512 = 8 MiB": Case(
        "b11739", "llama3-8b", {}, 132.02
    ),
    "which older builds do not have": Case("b11327", "llama3-8b", {}, 124.01),
    "Grok has no flash attention: 48 heads * 8,192 cells * 4 B * 512 = 768 MiB of scores": Case(
        "b11739", "grok-1", {}, 860.01
    ),
    "keys that an indexer picks stay for all 61 layers": Case(
        "b11739", "deepseek-v3.2", {}, 666.08
    ),
    "builds without a kernel for the indexer have the scores of its 64 heads, twice": Case(
        "b9838", "deepseek-v3.2", {"c": 4096}, 1688.07, 0.003
    ),
    "beside the MLP too, which is larger than attention in GLM-5": Case(
        "b11739", "glm-5", {}, 580.08
    ),
    "a micro-batch is cut to 300 tokens, and not to the 512 cells of the context": Case(
        "b11739", "llama3-8b", {"c": 300}, 72.96
    ),
    "a rotation of V frees the place of Q before b11400": Case(
        "b11327", "llama3-8b", {"ctk": "q8_0", "ctv": "q8_0"}, 116.09
    ),
    "and needs none since": Case("b11739", "llama3-8b", {"ctk": "q8_0", "ctv": "q8_0"}, 132.1),
    "MLA: a head's query once, and twice as wide as the latent": Case(
        "b11739", "deepseek-v3", {}, 414.01
    ),
    "MLA before b11400": Case("b11327", "deepseek-v3", {}, 416.01),
    "LFM2's window has a mask, and no layer reads the whole context": Case(
        "b11739", "lfm2-1.2b-window", {"c": 131_072}, 69.52
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_compute_buffers_follow_from_a_cause(case: str) -> None:
    build, name, options, compute, tolerance = CASES[case]
    assert found(build, name, options).compute == pytest.approx(compute, rel=tolerance)


ENCODERS = {
    "plain MLP: an inner tensor of 3,072, 6 d and the mask, 4 B * 512 * (3,072 + 6 * 768) + 2 B * "
    "512 ** 2 = 15.5 MiB": Case("b11739", "bert-base", {}, 15.51),
    "before b11400 only 3 d: 4 B * 512 * (3,072 + 3 * 768) + 2 B * 512 ** 2 = 11 MiB": Case(
        "b11327", "bert-base", {}, 11.01
    ),
    "the mask is of the pass, not of the context: 2 B * 8,192 ** 2 = 128 of 448 MiB": Case(
        "b11739", "bge-m3", {"ub": 8192}, 448.16
    ),
    "without flash attention there are scores: 16 heads * 4 B * 2,048 ** 2 = 256 of 328 MiB": Case(
        "b11739", "bge-m3", {"fa": "off", "ub": 2048}, 328.04
    ),
    "a gated MLP has three inner tensors": Case("b11739", "nomic-embed", {"ub": 2048}, 110.04),
    "windows have a mask of their own": Case("b11739", "modernbert-base", {"ub": 2048}, 73.04),
}


@pytest.mark.parametrize("case", ENCODERS)
def test_an_encoder_has_a_compute_buffer_and_no_cache(case: str) -> None:
    build, name, options, compute, tolerance = ENCODERS[case]
    ours = found(build, name, options)
    assert (ours.cache, ours.states) == ([], None)
    assert ours.compute == pytest.approx(compute, rel=tolerance)


def test_the_input_of_mixed_batches_is_there_from_b11400_on() -> None:
    """`llama-cpp-py-sync` has b11391, of 120.01 MiB, and b11413, of 128.02 MiB."""
    sizes = [
        found(build, "llama3-8b", {"c": 4096}).compute for build in ("b11391", "b11399", "b11400")
    ]
    assert sizes == [120, 120, 128]


def test_lfm2_stores_a_window_beside_a_cache_without_layers() -> None:
    """1,024 tokens of the window and 512 of a micro-batch: 1,536 cells of 12 KiB."""
    assert found("b11739", "lfm2-1.2b-window", {"c": 32_768}).cache[:2] == [
        [0, 32_768, 0],
        [18, 1536, 6],
    ]
    assert found("b11739", "lfm2-1.2b", {"c": 32_768}).cache[0] == [384, 32_768, 6]


def test_the_tables_have_rows_of_every_model_and_option() -> None:
    for build in CLOSE:
        rows = [(row["model"], row["options"]) for row in table(build)]
        expected = []
        for name, make in llamacpp_buffers.MODELS.items():
            expected += [(name, options) for options in llamacpp_buffers.options_of(name, make())]
        assert rows == expected


# Architectures of llama.cpp's own test whose files attncalc refuses, though it reads such a model:
# the test fills in tensors that no converter writes together.
ODD_FILES = {
    "deepseek4": "attn_output_a.weight of 64 x 32 x 8",  # in three dimensions
    "hy_v3": "ffn_gate.weight",  # a dense MLP beside the experts and a shared one
    "kimi-linear": "attn_q.bias",
    "qwen3next": "attn_qkv.weight",  # the matrices of 2025 and those of 2026
}


def test_architectures_are_read_with_llamacpps_cache_or_refused_by_name(tmp_path: Path) -> None:
    """The 128 files of tests/test-llama-archs.cpp (b11312), as headers: 104 have an equal cache."""
    rows = [json.loads(line) for line in (TABLES / "architectures.jsonl").read_text().splitlines()]
    equal = []
    for row in rows:
        name = row["architecture"]
        path = llamacpp_buffers.file_of(row).write(tmp_path / f"{name}.gguf")
        if name in UNSUPPORTED:
            with pytest.raises(AttncalcError, match="is not supported: "):
                load(str(path))
        elif name in ODD_FILES:
            with pytest.raises(AttncalcError, match=ODD_FILES[name]):
                load(str(path))
        else:
            result = fit(
                FitRequest(
                    load(str(path)),
                    Workload.decode(1, 1024),
                    engine="llamacpp",
                    gpu=cpu(2**42),
                    engine_args={"sequences": 1},
                )
            )
            assert cache_of(result.log_lines) == row["cache"], name
            equal.append(name)
    assert len(equal) == 104
    assert len(rows) == 128
