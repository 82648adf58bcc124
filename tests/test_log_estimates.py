"""A log's figures beside the predicted ones, and the diagnosis of a start that failed, from logs as
they were read.

The formulas' own figures are tested elsewhere: here it is which of them is compared with what, and
within which range.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from attncalc import AttncalcError, Workload, load
from attncalc.check import Check
from attncalc.checkpoint import CheckpointWeights
from attncalc.config.gpus import gpu
from attncalc.engines import find_engine
from attncalc.engines.base import Detail, EngineArgs, Pool
from attncalc.logs import comparison, doctor, find_reader
from attncalc.logs.cause import Diagnosis
from attncalc.logs.comparison import Estimate, LogComparison, compare
from attncalc.logs.doctor import diagnose
from attncalc.logs.startup_log import LogMemory, LogRefusal, Printed, StartupLog
from attncalc.quantity import quantity, ratio
from attncalc.serving.fit import fit
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import GIB, dtype

H100 = gpu("h100-80gb")
# Bytes of a block of Qwen3-8B: 16 tokens, 36 layers, 8 heads of 128, 2 bytes.
BLOCK = 16 * 36 * 2 * 8 * 128 * 2
# One request of 4,096 tokens, and a block that stays free.
NEEDED = (4096 // 16 + 1) * BLOCK


def request(
    engine: str = "vllm", *, batch: int = 1, context: int = 4096, **fields: Any
) -> FitRequest:
    version = {"vllm": "0.20.0", "sglang": "0.5.9", "llamacpp": "b9500"}[engine]
    args = {"engine_version": version, **fields.pop("engine_args", {})}
    return FitRequest(
        load("qwen3-8b"), Workload.decode(batch, context), engine, engine_args=args, **fields
    )


def log(
    engine: str = "vllm",
    logged: Mapping[str, Printed] | None = None,
    budget: Mapping[str, Printed] | None = None,
    **fields: Any,
) -> StartupLog:
    return StartupLog(
        engine, None, "Qwen/Qwen3-8B", {}, logged=logged or {}, budget=budget or {}, **fields
    )


def gib(text: str) -> Printed:
    return Printed(text, f"{text} GiB", GIB)


def number(text: str) -> Printed:
    return Printed(text, text)


# Half of the last digit of a size in GiB with two decimals, rounded up.
HALF = GIB // 200 + 1


# The memory for the cache


@pytest.mark.parametrize(
    ("asked", "memory"),
    [
        (log(available=(gib("2.00"), gib("1.00"))), LogMemory(GIB, "1.00 GiB", HALF)),
        (
            log(logged={"kv_blocks": number("100")}),
            LogMemory(100 * BLOCK, "100 blocks, as printed"),
        ),
        (
            log(
                logged={"kv_memory": number("5000"), "kv_blocks": number("100")},
                available=(gib("1.00"),),
            ),
            LogMemory(5000, "5,000 B of the log"),
        ),
        (
            log(logged={"kv_blocks": number("100")}, available=(gib("1.00"),)),
            LogMemory(GIB, "1.00 GiB", HALF),
        ),
        (log(refusal=LogRefusal("out_of_memory", "out of memory")), None),
    ],
)
def test_the_memory_is_the_most_exact_that_a_log_of_vllm_has(
    asked: StartupLog, memory: LogMemory | None
) -> None:
    assert compare(request(), asked).memory == memory


def test_a_log_of_vllm_without_memory_and_blocks_is_an_error() -> None:
    with pytest.raises(
        AttncalcError, match="the log has neither the memory for the cache nor the number of blocks"
    ):
        compare(request(), log())


@pytest.mark.parametrize(
    ("name", "printed", "predicted", "agrees"),
    [
        # 1 GiB holds 455 blocks of 16 tokens; 0.005 GiB are 2 blocks more, or 3 less
        ("kv_blocks", "455", 455, True),
        ("kv_blocks", "457", 455, True),
        ("kv_blocks", "458", 455, False),
        ("kv_blocks", "452", 455, True),
        ("kv_blocks", "451", 455, False),
        ("kv_tokens", str(457 * 16), 455 * 16, True),
        ("kv_tokens", str(458 * 16), 455 * 16, False),
        ("kv_block_size", "16", 16, True),
        ("kv_block_size", "32", 16, False),
    ],
)
def test_a_figure_agrees_within_the_rounding_of_the_memory(
    name: str, printed: str, predicted: int, agrees: bool
) -> None:
    asked = log(logged={name: number(printed)}, available=(gib("1.00"),))
    comparison = compare(request(engine_args={"engine_version": "0.11.0"}), asked)
    (check,) = comparison.checks
    assert (check.predicted, check.measured, check.ok, comparison.agrees) == (
        predicted,
        int(printed),
        agrees,
        agrees,
    )
    assert check.unit == ("" if name == "kv_blocks" else "tokens")
    assert check.note == ("exact" if name == "kv_block_size" else "the log's memory is rounded")


@pytest.mark.parametrize(("printed", "agrees"), [("1.77", False), ("1.78", True), ("1.79", False)])
def test_concurrency_agrees_within_half_of_its_last_digit(printed: str, agrees: bool) -> None:
    """455 of 256 blocks are 1.777; the memory is exact."""
    asked = log(logged={"kv_blocks": number("455"), "concurrency": number(printed)})
    checks = {
        check.name: check
        for check in compare(request(engine_args={"engine_version": "0.11.0"}), asked).checks
    }
    assert checks["concurrency"].predicted == 455 / 256
    assert checks["concurrency"].ok == agrees
    assert checks["concurrency"].note == "exact"


@pytest.mark.parametrize(
    ("printed", "agrees"), [("1.11", False), ("1.12", True), ("1.13", True), ("1.14", False)]
)
def test_a_concurrency_halfway_may_be_rounded_to_either_side(printed: str, agrees: bool) -> None:
    """288 of 256 blocks are 1.125."""
    asked = log(logged={"kv_blocks": number("288"), "concurrency": number(printed)})
    checks = {
        check.name: check
        for check in compare(request(engine_args={"engine_version": "0.11.0"}), asked).checks
    }
    assert (checks["concurrency"].predicted, checks["concurrency"].ok) == (1.125, agrees)


@pytest.mark.parametrize(("printed", "tolerance"), [("454", 3), ("455", 3), ("456", 2)])
def test_the_tolerance_is_that_of_the_side_on_which_the_printed_figure_is(
    printed: str, tolerance: int
) -> None:
    """0.995, 1.00 and 1.005 GiB hold 452, 455 and 457 blocks."""
    asked = log(logged={"kv_blocks": number(printed)}, available=(gib("1.00"),))
    (check,) = compare(request(engine_args={"engine_version": "0.11.0"}), asked).checks
    assert check.tolerance == tolerance


ARGS = EngineArgs(dtype("bf16"), dtype("bf16"))


class Single(NamedTuple):
    """A layout of tokens of one byte, without blocks, in which even a negative memory has a number
    of tokens.
    """

    def pool(self, memory: int, context: int) -> Pool:
        return Pool(None, quantity(memory), ratio(memory, context), (), ())


@pytest.mark.parametrize("name", ["kv_tokens", "kv_blocks"])
def test_a_negative_memory_holds_nothing(name: str) -> None:
    layout: Any = Single()
    asked = log(logged={name: number("0")}, available=(gib("-1.25"),))
    found, (check,) = find_reader("vllm").log_checks(
        asked, layout, resolve(request(kv_memory=0)).args, 4096
    )
    assert found is not None
    assert found.printed == -5 * GIB // 4
    assert (check.predicted, check.ok) == (0, True)


@pytest.mark.parametrize(("size", "kept"), [(-5, 0), (0, 0), (7, 7)])
def test_the_request_has_the_memory_of_the_log_and_no_gpu(size: int, kept: int) -> None:
    asked = comparison.without_gpu(request(gpu=H100, gpus=2, tp=2), size)
    assert (asked.kv_memory, asked.gpu, asked.gpus, asked.tp) == (kept, None, None, 2)


def test_without_a_memory_in_the_log_the_request_has_none() -> None:
    comparison = compare(
        request(gpu=H100), log(refusal=LogRefusal("out_of_memory", "out of memory"))
    )
    assert comparison.request.kv_memory == 0
    assert comparison.agrees
    assert comparison.estimates == ()


def test_the_longest_context_is_left_out_with_pipeline_stages() -> None:
    asked = log(logged={"max_context": number("4096")}, available=(gib("1.00"),))
    assert [check.name for check in compare(request(), asked).checks] == ["max_context"]
    assert compare(request(pp=2), asked).checks == ()


@pytest.mark.parametrize(
    ("blocks", "context", "longest"),
    [(256, 4096, 4096), (255, 4096, 4080), (300, 4096, 4096), (1, 4096, 16), (0, 4096, 0)],
)
def test_the_longest_context_needs_no_free_block(blocks: int, context: int, longest: int) -> None:
    asked = log(
        logged={"kv_memory": number(str(blocks * BLOCK)), "max_context": number(str(longest))}
    )
    (check,) = compare(request(context=context), asked).checks
    assert (check.predicted, check.ok) == (longest, True)


MIB = 2**20


@pytest.mark.parametrize(
    ("printed", "agrees"),
    [("575.98", False), ("575.99", True), ("576.00", True), ("576.01", True), ("576.02", False)],
)
def test_sizes_agree_within_one_unit_of_the_last_digit(printed: str, agrees: bool) -> None:
    """4,096 tokens x 147,456 B = 576 MiB: both sides are rounded, each by half a unit at most."""
    asked = log("llamacpp", {"kv_size": Printed(printed, "", MIB), "n_ctx": number("4096")})
    size, cells = compare(request("llamacpp"), asked).checks
    assert (size.name, size.predicted, size.ok) == ("kv_size", 576 * MIB, agrees)
    assert size.tolerance == pytest.approx(MIB / 100, abs=2)
    assert (size.unit, size.note) == ("B", "both are rounded")
    assert (cells.name, cells.tolerance, cells.unit, cells.note) == ("n_ctx", 0, "tokens", "exact")


def test_tokens_alone_have_the_memory_that_sglang_needs_for_them() -> None:
    """105,607 tokens x 147,456 B; logs that were filtered have 'max_total_num_tokens=' without
    sizes.
    """
    comparison = compare(request("sglang"), log("sglang", {"kv_tokens": number("105607")}))
    assert comparison.memory is not None
    assert comparison.memory.printed == 105_607 * 147_456
    assert comparison.request.kv_memory == 105_607 * 147_456
    assert comparison.checks == ()


# The version


@pytest.mark.parametrize(
    ("outcomes", "chosen"),
    [
        ({"3": "agrees", "2": "agrees"}, "3"),
        ({"3": "differs", "2": "agrees", "1": "agrees"}, "2"),
        ({"3": "differs", "2": "differs"}, "3"),
        ({"3": "error", "2": "agrees"}, "2"),
        ({"3": "error", "2": "differs"}, "2"),
        ({"3": "error", "2": "differs", "1": "differs"}, "2"),
        ({"3": "differs", "2": "error"}, "3"),
        ({"3": "error", "2": "error", "1": "agrees"}, "1"),
        ({"3": "error", "2": "error"}, None),
    ],
)
def test_the_version_is_the_newest_that_agrees_else_the_newest_that_supports_the_model(
    outcomes: dict[str, str], chosen: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compared(asked: FitRequest, printed: StartupLog, *, guessed: bool) -> LogComparison:
        version = asked.engine_args["engine_version"]
        if outcomes[version] == "error":
            raise AttncalcError(f"version {version} does not support it", "")
        measured = int(outcomes[version] != "agrees")
        return LogComparison(asked, None, (Check("log", "x", "x", 0, measured),), (), guessed)

    monkeypatch.setattr(find_engine("vllm"), "releases", tuple(outcomes))
    monkeypatch.setattr(comparison, "_comparison", compared)
    asked = request(engine_args={"engine_version": None})
    if chosen is None:
        with pytest.raises(AttncalcError, match="version 3 does not support it"):
            compare(asked, log())
    else:
        found = compare(asked, log())
        assert (found.request.engine_args["engine_version"], found.guessed) == (chosen, True)


@pytest.mark.parametrize(
    ("engine", "version", "guessed"),
    [
        ("vllm", "0.20.0", False),
        ("vllm", None, True),
        ("sglang", None, False),
        ("sglang", "0.5.9", False),
    ],
)
def test_a_version_is_guessed_if_releases_are_known(
    engine: str, version: str | None, guessed: bool
) -> None:
    name = "kv_blocks" if engine == "vllm" else "kv_tokens"
    found = compare(
        request(engine, engine_args={"engine_version": version}), log(engine, {name: number("100")})
    )
    assert found.guessed == guessed
    if version:
        assert found.request.engine_args["engine_version"] == version


# The rest of the memory


def estimates(asked: FitRequest, printed: StartupLog) -> dict[str, Estimate]:
    return {estimate.name: estimate for estimate in compare(asked, printed).estimates}


@pytest.mark.parametrize(
    ("engine", "below", "above"), [("vllm", 2, 2), ("sglang", 2, 2), ("llamacpp", 12, 2)]
)
def test_weights_have_a_range_of_percents_and_a_twentieth_of_a_gib(
    engine: str, below: int, above: int
) -> None:
    name = "model_buffer" if engine == "llamacpp" else "weights"
    available = (gib("1.00"),) if engine == "vllm" else ()
    for device in (None, H100):
        found = estimates(
            request(engine, gpu=device),
            log(engine, budget={name: gib("15.00")}, available=available),
        )
        weights = found["weights"]
        assert weights.logged == 15 * GIB
        assert weights.low == weights.expected - (weights.expected * below // 100 + GIB // 20)
        assert weights.high == weights.expected + weights.expected * above // 100 + GIB // 20


def test_runtime_parts_are_compared_within_their_ranges_and_the_rounding() -> None:
    asked = request(gpu=H100)
    reserve = memory_budget(resolve(asked)).reserve
    assert reserve is not None
    parts = {part.name: part for part in reserve.runtime.parts}
    printed = {name: gib("0.50") for name in ("activations", "outside_torch", "captured_graphs")}
    found = estimates(asked, log(budget=printed, available=(gib("50.00"),)))
    for name, part in (
        ("activations", "activations"),
        ("outside_torch", "outside_torch"),
        ("captured_graphs", "cuda_graphs"),
    ):
        expected = parts[part]
        figures = max(0, expected.low - HALF), int(expected.expected), expected.high + HALF
        assert (found[name].low, found[name].expected, found[name].high) == figures
        assert found[name].logged == GIB // 2
    budget = memory_budget(resolve(asked))
    memory = found["kv_memory"]
    assert (memory.low, memory.logged, memory.high) == (
        budget.room("low"),
        50 * GIB,
        budget.room("high"),
    )


def test_consumed_memory_has_what_lives_on_and_the_peak_has_the_graphs() -> None:
    """vLLM 0.33 counts the sampler's tables with the weights, and its estimate of graphs with the
    activations.
    """
    asked = request(gpu=H100, engine_args={"engine_version": "0.33.0"})
    budget = memory_budget(resolve(asked))
    assert budget.reserve
    assert budget.weights
    parts = {part.name: int(part.expected) for part in budget.reserve.runtime.parts}
    found = estimates(
        asked,
        log(
            budget={name: gib("0.50") for name in ("activations", "weights_and_outside")},
            available=(gib("50"),),
        ),
    )
    assert found["activations"].expected == parts["activations"] + parts["cuda_graphs"]
    states, weights = parts["sampler_states"], int(budget.weights.total)
    assert states
    assert found["weights_and_outside"].expected == weights + parts["outside_torch"] + states


def test_the_least_of_a_range_is_never_negative() -> None:
    """A figure in TiB is rounded by more than all activations, and a T4 has less memory than the
    weights.
    """
    asked = request(gpu=gpu("t4"))
    found = estimates(
        asked, log(budget={"activations": Printed("0.50", "", 2**40)}, available=(gib("1.00"),))
    )
    assert found["activations"].low == 0
    assert memory_budget(resolve(asked)).room("high") < 0
    assert (found["kv_memory"].low, found["kv_memory"].high) == (0, 0)
    assert comparison._weights_range(resolve(asked), 2**20) == (
        0,
        2**20,
        2**20 + 2**20 // 50 + GIB // 20,
    )


def test_captured_graphs_are_left_out_beside_the_estimate_of_them() -> None:
    both = {"cuda_graphs": gib("0.50"), "captured_graphs": gib("0.60")}
    found = estimates(request(gpu=H100), log(budget=both, available=(gib("50.00"),)))
    assert "cuda_graphs" in found
    assert "captured_graphs" not in found


def test_without_a_gpu_only_the_weights_are_compared() -> None:
    printed = {"weights": gib("15.00"), "activations": gib("0.50")}
    assert set(estimates(request(), log(budget=printed, available=(gib("50.00"),)))) == {"weights"}
    assert estimates(request(), log(available=(gib("50.00"),))) == {}


def test_ggml_aligns_the_sizes_of_llamacpps_buffers() -> None:
    asked = request("llamacpp", gpu=H100)
    reserve = fit(asked).budget.reserve
    assert reserve is not None
    size = {detail.name: int(float(detail.quantity)) for detail in reserve.runtime.details}[
        "host_compute_buffer"
    ]
    printed = {"host_compute_buffer": Printed("20.00", "", 2**20)}
    found = estimates(asked, log("llamacpp", budget=printed))["host_compute_buffer"]
    half = 2**20 // 200 + 1
    assert (found.low, found.expected, found.high) == (
        size * 98 // 100 - half,
        size,
        size * 102 // 100 + half,
    )
    assert "kv_memory" not in estimates(asked, log("llamacpp", budget=printed))


@pytest.mark.parametrize(("logged", "inside"), [(9, False), (10, True), (30, True), (31, False)])
def test_a_size_is_inside_its_range_up_to_the_ends(logged: int, inside: bool) -> None:
    assert Estimate("weights", "weights", logged, 10, 20, 30).inside == inside


# Why an engine did not start


TOO_SMALL = LogRefusal("too_small", "To serve at least one request")


def memory(size: int) -> LogMemory:
    return LogMemory(size, "the log")


def diagnosed(asked: FitRequest, printed: StartupLog, size: int | None = None) -> Diagnosis:
    found = diagnose(asked, printed, None if size is None else memory(size))
    assert found is not None
    assert printed.refusal is not None
    assert found.message == printed.refusal.line
    return found


def flags(found: Diagnosis) -> list[str]:
    return [change.flag for change in found.changes]


def test_an_engine_that_started_needs_no_diagnosis() -> None:
    assert diagnose(request(), log(), memory(0)) is None


@pytest.mark.parametrize(
    ("batch", "size", "missing", "reason"),
    [
        (
            1,
            NEEDED - GIB // 2,
            GIB // 2,
            "one request of 4,096 tokens needs 578.25 MiB, 66.25 MiB are left for the cache: ",
        ),
        (
            2,
            0,
            513 * BLOCK,
            "2 requests of 4,096 tokens need 1.13 GiB, 0 B are left for the cache: 1.13 GiB are "
            "missing.",
        ),
        (
            1,
            NEEDED,
            0,
            "one request of 4,096 tokens needs 578.25 MiB, and 578.25 MiB are left for the cache.",
        ),
        (
            1,
            NEEDED + 1,
            0,
            "one request of 4,096 tokens needs 578.25 MiB, and 578.25 MiB are left for the cache.",
        ),
    ],
)
def test_without_a_gpu_the_missing_memory_is_that_of_the_log(
    batch: int, size: int, missing: int, reason: str
) -> None:
    found = diagnosed(request(batch=batch), log(refusal=TOO_SMALL), size)
    assert found.reason.startswith(reason)
    assert found.missing == missing
    assert len(found.notes) == 1


def test_without_a_gpu_and_a_memory_only_the_message_is_known() -> None:
    found = diagnosed(request(), log(refusal=TOO_SMALL))
    assert (
        found.reason
        == "one request may have the whole context, which is more than the cache holds."
    )
    assert (found.missing, found.changes) == (None, ())


@pytest.mark.parametrize("difference", [GIB, -GIB])
def test_what_the_log_has_beyond_the_estimate_moves_the_room(difference: int) -> None:
    asked = request(gpu=H100, context=40_960, batch=40)
    room = fit(asked).budget.room()
    found = diagnosed(asked, log(refusal=TOO_SMALL), room - difference)
    needed = (40 * 40_960 // 16 + 1) * BLOCK
    assert found.missing == max(0, needed - (room - difference))
    word = "larger" if difference > 0 else "smaller"
    assert found.notes[0].startswith(
        f"The log's weights and runtime memory are 1.00 GiB {word} than the estimate"
    )


@pytest.mark.parametrize(
    ("difference", "word"), [(GIB // 20, "51.20 MiB larger"), (-GIB // 20, "51.20 MiB smaller")]
)
def test_a_difference_that_matters_is_named(difference: int, word: str) -> None:
    """A twentieth of a GiB does, and a byte less does not."""
    asked, refusal = request(gpu=H100), TOO_SMALL._replace(kind="no_memory")
    room = fit(asked).budget.room()
    assert (
        f" are {word} than the estimate"
        in diagnosed(asked, log(refusal=refusal), room - difference).notes[0]
    )
    less = difference - (1 if difference > 0 else -2)
    assert "estimate" not in diagnosed(asked, log(refusal=refusal), room - less).notes[0]


def test_a_request_that_fits_contradicts_a_log_that_says_it_does_not() -> None:
    asked = request(gpu=H100)
    found = diagnosed(asked, log(refusal=TOO_SMALL), fit(asked).budget.room())
    assert (found.cause, found.missing, found.changes) == ("other_model", None, ())
    assert "one batch needs 578.25 MiB with this model, and 54.09 GiB were left" in found.reason


def test_negative_memory_is_more_than_the_engines_share() -> None:
    found = diagnosed(request(gpu=H100), log(refusal=TOO_SMALL), -GIB)
    assert found.reason.endswith(
        "and weights and runtime memory are 1.00 GiB larger than the engine's share."
    )
    assert found.missing == GIB + NEEDED


@pytest.mark.parametrize("devices", [0, 1, 2])
def test_a_model_buffer_of_one_gpu_shows_the_excess(devices: int) -> None:
    asked = request("llamacpp", gpu=gpu("rtx-4090"), weights_dtype="bf16")
    weights = fit(asked).budget.weights
    assert weights is not None
    buffer = Printed(str(int(weights.total) + GIB), "")
    refusal = LogRefusal("out_of_memory", "failed to allocate", where="cache")
    found = diagnosed(
        asked, log("llamacpp", budget={"model_buffer": buffer}, refusal=refusal, devices=devices)
    )
    known = "are 1.00 GiB larger than the estimate" in found.notes[0]
    assert known == (devices <= 1)
    assert known != (found.notes[0].startswith("By the estimate it fits"))


@pytest.mark.parametrize(
    ("tried", "free", "words"),
    [
        (
            "2",
            "1",
            "An allocation of 2.00 GiB failed, 1.00 GiB were free. By the estimate, the weights "
            "need 15.27 GiB",
        ),
        (None, None, "one request of 40,960 tokens"),
        ("2", None, "one request of 40,960 tokens"),
        (None, "1", "one request of 40,960 tokens"),
    ],
)
def test_a_failed_allocation_is_the_reason_if_the_log_has_it(
    tried: str | None, free: str | None, words: str
) -> None:
    refusal = LogRefusal(
        "out_of_memory",
        "CUDA out of memory",
        gib(tried) if tried else None,
        gib(free) if free else None,
        "weights",
    )
    found = diagnosed(request(gpu=gpu("rtx-4080"), context=40_960), log(refusal=refusal))
    assert found.reason.startswith(words)
    assert found.missing
    assert found.notes == (
        "The log does not say how much memory was left: the changes rest on the estimate.",
        "The log has no context: the model's maximum, 40,960 tokens, is assumed; --context sets "
        "another.",
    )
    fits = diagnosed(request(gpu=H100), log(refusal=refusal))
    assert fits.missing == (GIB if tried and free else None)
    assert fits.notes[0].startswith("By the estimate it fits")


def test_weights_larger_than_the_gpu_are_the_reason() -> None:
    refusal = LogRefusal("out_of_memory", "CUDA out of memory", gib("2"), gib("1"), "weights")
    found = diagnosed(request(gpu=gpu("t4")), log(refusal=refusal))
    assert (found.cause, found.available) == ("weights_too_large", gpu("t4").memory)
    assert found.reason == "The weights need 15.27 GiB, and the GPU has 14.56 GiB."


OCCUPIED = LogRefusal("occupied", "Free memory on device")


@pytest.mark.parametrize(
    ("free", "total", "share"),
    [
        ("70.00", "79.19", "0.88"),
        ("79.19", "79.19", None),
        ("80.00", "79.19", None),
        ("78.90", "79.19", "0.99"),
        ("0.50", "79.19", None),
        ("0.80", "79.19", "0.01"),
    ],
)
def test_the_share_that_is_free_is_rounded_down(free: str, total: str, share: str | None) -> None:
    """70.00 of 79.19 GiB are 0.8839."""
    budget = {"free_memory": gib(free), "gpu_memory": gib(total)}
    found = diagnosed(request(gpu=H100), log(budget=budget, refusal=OCCUPIED))
    assert found.reason.startswith("Other processes use ")
    if share == "0.88":
        assert (
            found.reason
            == "Other processes use 9.19 GiB of the GPU's 79.19 GiB: 70.00 GiB are free."
        )
        assert flags(found) == ["--gpu-memory-utilization 0.88", ""]
    if share == "0.01":
        assert found.reason.endswith(": 819.20 MiB are free, and the weights alone need 15.27 GiB.")
    assert any("--gpu-memory-utilization" in note for note in found.notes) is (share is not None)
    assert all(f"--gpu-memory-utilization {share}" in note for note in found.notes if share)


def test_a_share_that_is_too_small_comes_with_other_changes() -> None:
    """15.3 GiB of weights do not fit in 0.15 of 79 GiB, unless they are in fp8."""
    budget = {"free_memory": gib("12.00"), "gpu_memory": gib("79.19")}
    found = diagnosed(request(gpu=H100), log(budget=budget, refusal=OCCUPIED))
    ended, *beside = found.changes
    assert (ended.change, ended.flag) == ("the other processes ended", "")
    assert beside
    assert all(change.flag.startswith("--gpu-memory-utilization 0.15 --") for change in beside)
    assert all(change.flag.count("--gpu-memory-utilization") == 1 for change in beside)
    assert all(change.change.startswith("0.15 of the GPU's memory, ") for change in beside)


@pytest.mark.parametrize(
    ("budget", "device"),
    [
        ({"gpu_memory": gib("79.19")}, H100),
        ({"free_memory": number("70.00")}, H100),
        ({"free_memory": number("70.00"), "gpu_memory": gib("0.00")}, H100),
    ],
)
def test_without_the_free_memory_or_the_gpu_there_is_no_share(
    budget: Mapping[str, Printed], device: Any
) -> None:
    found = diagnosed(request(gpu=device), log(budget=budget, refusal=OCCUPIED))
    (ended,) = found.changes
    assert (found.reason, ended.flag) == ("Other processes use the memory of the GPU.", "")


@pytest.mark.parametrize("where", ["sampler", "graphs"])
def test_after_the_cache_a_smaller_share_leaves_what_is_missing_and_a_margin(where: str) -> None:
    refusal = LogRefusal("out_of_memory", "CUDA out of memory", gib("3.00"), gib("1.00"), where)
    found = diagnosed(request(gpu=H100), log(refusal=refusal))
    assert found.missing == 2 * GIB
    assert found.reason.startswith("The cache left too little for the ")
    assert found.reason.endswith(": 3.00 GiB were wanted, 1.00 GiB were free.")
    left = H100.memory * 92 // 100 - 2 * GIB - GIB // 4
    # a quarter of the 1,024 sequences per step that vLLM has on an H100
    assert flags(found) == [
        f"--gpu-memory-utilization 0.{100 * left // H100.memory}",
        "--max-num-seqs 256",
    ]
    assert [change.change for change in found.changes][1] == "256 sequences per step"


def test_after_the_cache_an_unknown_need_is_the_margin_twice() -> None:
    refusal = LogRefusal("out_of_memory", "CUDA out of memory", where="graphs")
    found = diagnosed(request(gpu=H100), log(refusal=refusal))
    assert found.missing is None
    left = H100.memory * 92 // 100 - GIB // 2
    assert flags(found)[0] == f"--gpu-memory-utilization 0.{100 * left // H100.memory}"
    assert found.reason == "The cache left too little for the CUDA graphs."
    without = diagnosed(request(), log(refusal=refusal))
    assert (without.cause, without.changes) == ("cache_too_large", ())
    assert "With --gpu, changes of" in without.notes[0]


@pytest.mark.parametrize(
    ("tried", "free", "half"),
    [
        (gib("3.00"), None, "3.00 GiB were wanted, the GPU has 79.10 GiB"),
        (None, gib("1.00"), "1.00 GiB were free"),
    ],
)
def test_half_of_a_message_about_an_allocation_is_repeated(
    tried: Printed | None, free: Printed | None, half: str
) -> None:
    refusal = LogRefusal("out_of_memory", "CUDA out of memory", tried, free, "graphs")
    found = diagnosed(request(gpu=H100), log(refusal=refusal))
    assert found.missing is None
    assert found.reason == f"The cache left too little for the CUDA graphs: {half}."


GRAPHS = LogRefusal("out_of_memory", "CUDA out of memory", where="graphs")


def test_a_given_memory_for_the_cache_has_no_share_to_make_smaller() -> None:
    assert flags(diagnosed(request(gpu=H100, kv_memory=GIB), log(refusal=GRAPHS))) == [
        "--max-num-seqs 256"
    ]


@pytest.mark.parametrize(("sequences", "fewer"), [(3, None), (4, 1), (7, 1), (8, 2), (1024, 256)])
def test_a_quarter_of_the_sequences_is_at_least_one(sequences: int, fewer: int | None) -> None:
    asked = request(gpu=H100, kv_memory=GIB, engine_args={"max_num_seqs": sequences})
    assert flags(diagnosed(asked, log(refusal=GRAPHS))) == (
        [] if fewer is None else [f"--max-num-seqs {fewer}"]
    )


def test_only_vllm_warms_up_with_all_its_sequences() -> None:
    asked = request("sglang", gpu=H100)
    assert [flag.split()[0] for flag in flags(diagnosed(asked, log("sglang", refusal=GRAPHS)))] == [
        "--mem-fraction-static"
    ]


@pytest.mark.parametrize(
    ("left", "suggested"), [(0, False), (10**14 - 1, False), (10**14, True), (2 * 10**14 - 1, True)]
)
def test_a_share_of_a_hundredth_is_the_smallest(left: int, suggested: bool) -> None:
    """0.01 of 10,000 TB are enough for any model. A quarter of a GiB stays free beyond the failed
    allocation.
    """
    device = dataclasses.replace(H100, memory=10**16)
    wanted = device.memory * 92 // 100 - left - GIB // 4
    refusal = LogRefusal(
        "out_of_memory", "CUDA out of memory", number(str(wanted)), number("0"), "graphs"
    )
    shares = [
        flag
        for flag in flags(diagnosed(request(gpu=device), log(refusal=refusal)))
        if "utilization" in flag
    ]
    assert shares == (["--gpu-memory-utilization 0.01"] if suggested else [])


def test_more_free_than_wanted_is_nothing_missing() -> None:
    refusal = LogRefusal("out_of_memory", "CUDA out of memory", gib("1.00"), gib("3.00"), "graphs")
    assert diagnosed(request(gpu=H100), log(refusal=refusal)).missing == 0


def test_sglangs_room_is_what_is_free_after_the_weights_less_the_rest_of_its_share() -> None:
    """f A0 - W: 10 GiB after the weights less 0.4 of the 20 before."""
    budget = {"free_memory": gib("20.00"), "after_weights": gib("10.00")}
    asked = request("sglang", gpu=gpu("rtx-4090"), gpu_memory_utilization="0.6", context=40_960)
    printed = log("sglang", budget=budget, refusal=TOO_SMALL)
    found = diagnosed(asked, printed)
    room = 10 * GIB - 20 * GIB * 4 // 10
    needed = int(fit(asked).needed)
    assert found.missing == pytest.approx(needed - room, abs=2)
    assert isinstance(found.missing, int)
    # without the share, the log does not say it
    unknown = diagnosed(request("sglang", gpu=gpu("l4"), context=40_960), printed)
    assert "the changes rest on the estimate" in unknown.notes[0]


@pytest.mark.parametrize(
    ("batch", "start"), [(1, "one request of 4,096 tokens needs "), (2, "2 requests of 4,096")]
)
def test_the_reason_says_what_is_left_and_what_is_missing(batch: int, start: str) -> None:
    result = fit(request(batch=batch, kv_memory=GIB))
    needed = int(result.needed)
    for room, cause, end in (
        (
            -1,
            "nothing_left",
            ", and weights and runtime memory are 1 B larger than the engine's share.",
        ),
        (0, "kv_too_small", ", 0 B are left for the cache: "),
        (needed - 5, "kv_too_small", " are left for the cache: 5 B are missing."),
        (needed, "out_of_memory", " are left for the cache."),
    ):
        found, reason = doctor._reason(result, room)
        assert found == cause
        assert reason.startswith(start)
        assert end in reason


@pytest.mark.parametrize(("more", "missing"), [(-1, 1), (0, None), (1, None)])
def test_nothing_is_missing_if_the_estimate_has_room_to_the_byte(
    more: int, missing: int | None
) -> None:
    """A GPU with as much as weights, reserve and one request take."""
    exactly = request(gpu=H100, reserve=GIB, gpu_memory_utilization="1")
    weights = fit(exactly).budget.weights
    assert weights is not None
    memory = int(weights.total) + GIB + NEEDED + more
    device = dataclasses.replace(H100, memory=memory)
    found = diagnosed(dataclasses.replace(exactly, gpu=device), log(refusal=TOO_SMALL))
    assert found.missing == missing
    assert found.notes[0].startswith(
        "The log does not say" if missing else "By the estimate it fits"
    )


class Slots(NamedTuple):
    """A layout in which a slot of states takes 1,000 bytes at once, and the rest holds tokens of 10
    bytes.
    """

    most: int | None = None  # the most slots, whatever the memory; None without a limit

    def pool(self, memory: int, context: int) -> Pool:
        slots = memory // 1000 if self.most is None else min(self.most, memory // 1000)
        tokens = quantity((memory - 1000 * slots) // 10)
        details = (
            Detail("other", "others", quantity(5), ""),
            Detail("state_slots", "slots", quantity(slots), ""),
        )
        return Pool(None, tokens, ratio(tokens, context), details, ())


@pytest.mark.parametrize(
    ("logged", "most", "size"),
    [
        # of 3 slots and 7 tokens 3,070 bytes are the least; with 70 bytes there are 7 tokens too,
        # but no slot
        ({"state_slots": 3, "kv_tokens": 7}, None, 3070),
        ({"state_slots": 3, "full_kv_tokens": 7}, None, 3070),
        ({"state_slots": 1, "kv_tokens": 99}, None, 1990),
        ({"state_slots": 3, "kv_tokens": 120}, 3, 4200),
        ({"state_slots": 5, "kv_tokens": 120}, 3, 4200),
        ({"kv_tokens": 7}, None, 70),
        ({"kv_tokens": 1}, None, 10),
        ({"state_slots": 3}, None, 3000),
        ({"state_slots": 1}, None, 1000),
    ],
)
def test_the_memory_of_sglang_is_the_least_that_holds_what_is_printed(
    logged: dict[str, int], most: int | None, size: int
) -> None:
    layout: Any = Slots(most)
    figures = {name: number(str(value)) for name, value in logged.items()}
    found, checks = find_reader("sglang").log_checks(log("sglang", figures), layout, ARGS, 4096)
    assert checks == ()
    assert found is not None
    assert (found.printed, found.half) == (size, 0)
    assert found.source.endswith(", as printed")


def test_without_tokens_and_slots_there_is_no_memory_of_sglang() -> None:
    layout: Any = Slots()
    sglang = find_reader("sglang")
    assert sglang.log_checks(log("sglang", {"k_size": gib("1.00")}), layout, ARGS, 4096) == (
        None,
        (),
    )
    # the printed sizes are the memory, if there are some
    found, _ = sglang.log_checks(
        log("sglang", {"kv_tokens": number("7"), "k_size": gib("1.00"), "v_size": gib("2.00")}),
        layout,
        ARGS,
        4096,
    )
    assert found is not None
    assert found.printed == 3 * GIB


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "fp8"),
        ({"weights_dtype": None, "experts_dtype": "mxfp4"}, "mxfp4"),
        ({"weights_dtype": None}, None),
        ({"stored": CheckpointWeights(1, 1, (), 5)}, None),
    ],
)
def test_weights_are_compared_as_released_unless_a_dtype_or_files_are_given(
    fields: dict[str, Any], expected: str | None
) -> None:
    asked = request(kv_memory=GIB)
    model = dataclasses.replace(asked.model, **{"weights_dtype": "fp8", **fields})
    asked = dataclasses.replace(asked, model=model)
    assert comparison._weights_dtype(asked) == expected
    assert comparison._weights_dtype(asked.with_workload(dtype="fp16")) is None
    assert comparison._weights_dtype(dataclasses.replace(asked, weights_dtype="int4")) == "int4"
