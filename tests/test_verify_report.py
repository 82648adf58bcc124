"""The report of `attncalc verify`: the verdict, a row per section, and what disagrees. No layer
runs here.
"""

import json
from typing import Any

import pytest

from attncalc import load
from attncalc.check import Check, Reported, ScalingRow, Timing, VerifyResult, largest_difference
from attncalc.questions.verify.report import VerifiedModel, catalogue_report, verify_report
from attncalc.show import csv, markdown, text
from attncalc.show import json as as_json
from attncalc.show.report import Report
from attncalc.units import BYTES, PARAMS
from attncalc.workload import Workload

H200 = {"type": "cuda", "name": "cuda:0 (NVIDIA H200)", "torch": "2.13.0"}


def peak(phase: str, kernel: str, measured: int, of: str = "decoder") -> Check:
    """Return the check of a peak of 1,000,000 B, with a tolerance of 1 %."""
    return Check(
        "peak memory",
        f"peak_{phase}_{kernel}",
        f"{phase}, {kernel}",
        1_000_000,
        measured,
        10_000,
        BYTES,
        "softmax: q, k, v",
        "a tensor is held that the formula does not count",
        of,
    )


def elements(name: str, measured: int) -> Check:
    return Check(
        "parameters",
        f"params_{name}",
        name,
        768,
        measured,
        unit=PARAMS,
        note="elements",
        failure="wrong",
        of="decoder",
    )


def error(label: str, measured: float, of: str = "decoder") -> Check:
    return Check(
        "kernels vs reference",
        label,
        label,
        0,
        measured,
        1e-3,
        note="relative error",
        failure="bad",
        of=of,
    )


CHECKS = (
    elements("W_q", 768),
    elements("W_k", 768),
    peak("prefill", "math", 1_003_000),
    peak("decode", "math", 1_000_500),
    error("math, fp16", 2e-4),
    error("flash, fp16", 4e-4),
)
TIMES = (Timing("decoder", "prefill", "math", 2.0, 10**9, 10**6, 1.0, 1.9, 2.2),)


def report(*checks: Check, device: Any = H200, full: bool = False, **result: Any) -> Report:
    """Return the report of GPT-2 with these checks."""
    verified = VerifiedModel(
        load("gpt2"),
        Workload.prefill(1, 64, dtype="bf16"),
        ("math",),
        VerifyResult(checks, context=64, **result),
    )
    return verify_report(verified, device, full=full)


def screen(*checks: Check, **options: Any) -> str:
    return text.render(report(*checks, **options))


def rows(shown: str) -> list[str]:
    """Return the lines of a screen with single spaces."""
    return [" ".join(line.split()) for line in shown.splitlines()]


def sentences(shown: str) -> str:
    return " ".join(shown.split())


def test_the_verdict_names_the_device_the_dtype_and_the_largest_difference() -> None:
    """3,000 of 1,000,000 B are 0.30 %. The errors of kernels are no figures."""
    lines = screen(*CHECKS).splitlines()
    assert lines[0].startswith("GPT-2")
    assert sentences("\n".join(lines[3:5])) == (
        "All 6 checks agree on cuda:0 (NVIDIA H200) in bf16. "
        "Largest difference: 0.30 % (decoder, peak memory, prefill, math)."
    )


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (1_000_000, "All bytes and counts are exact."),
        (1_000_002, "Largest difference: less than 0.01 % (decoder, peak memory, prefill, math)."),
        (992_000, "Largest difference: 0.80 % (decoder, peak memory, prefill, math)."),
    ],
)
def test_the_largest_difference_of_one_peak(measured: int, words: str) -> None:
    shown = screen(
        elements("W_q", 768), peak("prefill", "math", measured), error("math, fp16", 4e-4)
    )
    assert words in sentences(shown)


def test_an_exact_figure_that_disagrees_is_the_largest_difference() -> None:
    """One of 768 parameters is 0.13 %, and the peak differs by 0.05 %."""
    largest = largest_difference((peak("decode", "math", 1_000_500), elements("W_q", 769)))
    assert largest is not None
    assert largest.name == "params_W_q"
    assert largest.relative_difference == 1 / 768


def test_each_section_is_one_row_with_the_check_closest_to_its_tolerance() -> None:
    lines = rows(screen(*CHECKS))
    assert "parameters 2 0 0 ok" in lines
    assert "peak memory 2 0.30 % 1 % ok prefill, math" in lines
    assert "kernels vs reference 2 4.00e-04 0.001 ok flash, fp16" in lines
    assert not any(line.startswith("W_q") for line in lines)


def test_the_row_of_a_section_names_the_layer_group_if_there_are_several() -> None:
    lines = rows(
        screen(error("math, fp16", 2e-4, of="local"), error("math, fp16", 3e-4, of="global"))
    )
    assert "kernels vs reference 2 3.00e-04 0.001 ok global, math, fp16" in lines


def test_a_pass_has_its_peak_and_times_wait_for_full() -> None:
    """1,000,000, 1,003,000 and 1,000,500 B are 976.56, 979.49 and 977.05 KiB; the bound of 1 ms is
    half of 2 ms.
    """
    lines = rows(screen(*CHECKS, times=TIMES))
    assert "prefill, math 976.56 979.49 0.30 %" in lines
    assert "decode, math 976.56 977.05 0.05 %" in lines
    assert "--full shows every check and the times (not checked)." in lines
    full = rows(screen(*CHECKS, times=TIMES, full=True))
    # least, median and 90th percentile of 2 ms, and the bound
    assert any(line.startswith("prefill, math 1.900 2.000 2.200") for line in full)


def test_a_decode_step_of_math_has_no_row_beside_one_of_another_kernel() -> None:
    """Nobody runs it: 1,000,000 B are 976.56 KiB. With --full and if it disagrees, it has a row."""
    flash = peak("decode", "flash", 1_000_000)
    assert "decode, math" not in screen(*CHECKS, flash)
    assert "decode, flash 976.56 976.56 0.00 %" in rows(screen(*CHECKS, flash))
    assert "decode, math" in screen(*CHECKS, flash, full=True)
    assert "decode, math" in screen(*CHECKS, flash._replace(of="local"))
    wrong = peak("decode", "math", 1_020_000)
    assert "decode, math 976.56 996.09 2.00 %" in rows(screen(wrong, flash))


def test_full_shows_every_check_and_all_tables() -> None:
    lines = rows(screen(*CHECKS, times=TIMES, full=True))
    for check in CHECKS:
        assert any(line.startswith(f"{check.label} ") and line.endswith(" ok") for line in lines)
    assert "prefill, math 1,000,000 1,003,000 0.30 % 1 % ok" in lines
    assert any(line.startswith("tensors at the peak") for line in lines)
    assert any(line.startswith("time per layer") for line in lines)
    assert not any("--full" in line for line in lines)


def test_full_lists_the_checks_of_each_layer_group_under_its_name() -> None:
    checks = (error("math, fp16", 1e-4, "decoder"), error("flash, fp16", 1e-4, "encoder"))
    shown = screen(*checks, full=True)
    words = ("decoder ", "math, fp16", "encoder ", "flash, fp16")
    assert sorted(words, key=shown.index) == list(words)


def test_a_check_that_disagrees_is_shown_whole() -> None:
    """53,000 of 1,000,000 B are 5.30 %."""
    shown = screen(*CHECKS[:2], peak("prefill", "math", 1_053_000), error("math, fp16", 2e-4))
    lines = rows(shown)
    assert "prefill, math 1,000,000 1,053,000 5.30 % 1 % NO" in lines
    assert "peak memory 0 of 1 5.30 % 1 % NO prefill, math" in lines
    assert not any(line.startswith("W_q") for line in lines)
    words = sentences(shown)
    assert (
        "1 of 4 checks DISAGREES on cuda:0 (NVIDIA H200) in bf16. Largest difference: 5.30 %"
        in words
    )
    assert (
        "warning: peak memory (decoder, prefill, math) disagrees. Meaning: a tensor is held that "
        "the formula does not "
        "count. Predicted peak, during softmax: q, k, v."
    ) in words
    assert "To report it, send the command, this screen and its JSON (--json)." in words


def test_checks_that_compare_the_same_share_a_meaning() -> None:
    notes = report(
        elements("W_q", 769), elements("W_k", 769), error("math, fp16", float("nan"))
    ).notes
    warnings = [note for note in notes if note.startswith("warning: ")]
    assert warnings == [
        "warning: parameters (decoder, W_q; decoder, W_k) disagree. Meaning: wrong. Compared: "
        "elements.",
        "warning: kernels vs reference (decoder, math, fp16) disagrees. Meaning: bad. Compared: "
        "relative error.",
    ]
    assert "kernels vs reference 0 of 1 nan 0.001 NO math, fp16" in rows(
        screen(error("math, fp16", float("nan")))
    )


def test_a_reported_figure_is_shown_and_never_counts() -> None:
    """It differs from its prediction by a factor of 2."""
    workspace = Reported(
        "workspaces", "cudnn", "cudnn workspace", 2**25, BYTES, "what cudnn allocates", "", 2**24
    )
    driver = Reported("device", "reserved", "reserved by torch", 2**30, BYTES)
    made = report(*CHECKS, reported=(workspace, driver))
    lines = rows(text.render(made))
    assert made.answer == report(*CHECKS).answer
    assert "workspaces 16 MiB 32 MiB cudnn workspace" in lines
    assert "device - 1.00 GiB reserved by torch" in lines
    assert "workspaces: what cudnn allocates." in lines
    document = json.loads(as_json.render(made))
    assert len(document["checks"]) == document["summary"]["checks"] == 6
    assert [(r["name"], r["predicted"], r["measured"]) for r in document["reported"]] == [
        ("cudnn", 2**24, 2**25),
        ("reserved", None, 2**30),
    ]
    assert document["summary"]["ok"]


def test_a_result_with_reported_figures_alone_does_not_agree() -> None:
    reported = (Reported("device", "reserved", "reserved by torch", 2**30, BYTES),)
    assert not VerifyResult((), reported=reported).ok
    assert report(reported=reported).answer == "Nothing was checked."


def test_a_simulation_says_that_nothing_ran_on_a_gpu() -> None:
    device = {"type": "cuda", "name": "NVIDIA H100 80GB", "torch": "2.13.0"}
    answer = report(*CHECKS[:2], device=device, simulated=True).answer
    assert answer == (
        "All 2 checks agree with a simulation of NVIDIA H100 80GB in bf16 (torch's fake tensors; "
        "--device cuda runs on "
        "a GPU). All bytes and counts are exact."
    )


def test_two_skipped_notes_are_shown_and_three_are_counted() -> None:
    skipped = ("cudnn is missing.", "flash is missing.", "math is left out.")
    limits = ("Context 64 does not fit.",)
    two = sentences(screen(*CHECKS, skipped=skipped[:2], limits=limits))
    assert all(note in two for note in (*limits, *skipped[:2], "--full shows every check."))
    three = sentences(screen(*CHECKS, skipped=skipped, limits=limits))
    assert all(note not in three for note in skipped)
    assert limits[0] in three
    assert "--full shows every check and 3 notes on what was not checked." in three
    assert all(note in sentences(screen(*CHECKS, skipped=skipped, full=True)) for note in skipped)


def test_scaling_shows_its_table_without_the_checks_that_agree() -> None:
    scaling = (ScalingRow("decoder", "math", 32, 1.0, 10, 1_000_000, 1_000_000),)
    agrees = rows(screen(peak("prefill_32", "math", 1_000_000), scaling=scaling))
    assert any(line.startswith("math 32 1.00") for line in agrees)
    assert not any(line.endswith(" ok") for line in agrees)
    differs = rows(screen(peak("prefill_32", "math", 1_100_000), scaling=scaling))
    assert "prefill_32, math 1,000,000 1,100,000 10.00 % 1 % NO" in differs
    full = rows(screen(peak("prefill_32", "math", 1_000_000), scaling=scaling, full=True))
    assert "prefill_32, math 1,000,000 1,000,000 0.00 % 1 % ok" in full


def test_against_lists_every_check_after_the_verdict() -> None:
    name = "transformers 5.23.0, GPT2LMHeadModel"
    shown = screen(*CHECKS[:2], device={"type": "meta", "name": name, "torch": "2.13.0"})
    assert f"All 2 checks agree with {name} in bf16." in sentences(shown)
    assert "W_q 768 768 0 0 ok" in rows(shown)
    assert "--full" not in shown


def test_json_and_csv_have_every_check_with_and_without_full() -> None:
    default, full = (
        report(*CHECKS, times=TIMES, skipped=("a.", "b.", "c."), full=full)
        for full in (False, True)
    )
    assert as_json.render(default) == as_json.render(full)
    assert csv.render(default) == csv.render(full)
    document = json.loads(as_json.render(default))
    assert [c["name"] for c in document["checks"]] == [c.name for c in CHECKS]
    assert {"a.", "b.", "c."} <= set(document["notes"])
    assert document["verdict"] == document["notes"][0] == default.answer
    assert document["summary"] == {
        "ok": True,
        "checks": 6,
        "failed": 0,
        "largest_difference": {
            "name": "peak_prefill_math",
            "of": "decoder",
            "section": "peak memory",
            "difference": 3000,
            "relative_difference": 0.003,
        },
    }


def test_json_names_each_check_that_disagrees_with_its_numbers() -> None:
    document = json.loads(as_json.render(report(elements("W_q", 769))))
    assert document["notes"][0].startswith("warning: 1 of 1 check DISAGREES")
    assert document["notes"][1].startswith(
        "warning: decoder, parameters, W_q: predicted 768, measured 769 (elements)"
    )
    assert (document["summary"]["ok"], document["summary"]["failed"]) == (False, 1)


def test_markdown_has_the_verdict_and_the_sections() -> None:
    page = markdown.render(report(*CHECKS))
    assert page.split("\n\n")[2].startswith("**All 6 checks agree on cuda:0 (NVIDIA H200) in bf16.")
    assert "| peak memory | 2 | 0.30 % | 1 % | ok | prefill, math |" in page
    assert "W\\_q" in markdown.render(report(*CHECKS, full=True))


def test_the_catalogue_says_what_could_not_be_verified() -> None:
    """The verdict counts the checks of all models; a model without checks is not one that
    agrees.
    """
    workload = Workload.prefill(1, 64, dtype="bf16")
    results = {
        "gpt2": VerifyResult(CHECKS, skipped=("cudnn is missing.",), context=64),
        "gemma-2b": VerifyResult(CHECKS[:2], context=64),
        "gpt3": VerifyResult((), skipped=("gpt3 does not fit.",), context=64),
    }
    verified = [
        VerifiedModel(load(name), workload, ("math",), result) for name, result in results.items()
    ]
    shown = text.render(catalogue_report(verified, H200))
    words = sentences(shown)
    assert "All 8 checks agree on cuda:0 (NVIDIA H200)." in words
    assert "Largest difference: 0.30 % (gpt2 decoder, peak memory, prefill, math)." in words
    assert "1 model could not be verified." in words
    assert "warning: not verified: gpt3 does not fit." in words
    assert "gpt2: cudnn is missing." in words
    assert "W_q" not in shown
    assert "W_q" in text.render(catalogue_report(verified, H200, full=True))


def test_a_row_tells_the_context_that_was_asked_for() -> None:
    workload = Workload.prefill(1, 64, dtype="bf16")
    result = VerifyResult(CHECKS, context=64)
    asked = [VerifiedModel(load("gpt2"), workload, ("math",), result, of) for of in (64, 1024)]
    rows = [line.split() for line in text.render(catalogue_report(asked, H200)).splitlines()]
    whole, cut = (row for row in rows if row[:1] == ["gpt2"])
    assert whole[2:4] == ["64", "bf16"]
    assert cut[2:4] == ["64/1K", "bf16"]


def test_a_model_with_sinks_names_what_is_checked_without_them() -> None:
    result = VerifyResult(CHECKS, context=64)
    verified = VerifiedModel(
        load("gpt-oss-20b"), Workload.prefill(1, 64, dtype="bf16"), ("math",), result
    )
    note = (
        "Torch's attention has no sinks: numerics are checked with them, FLOPs, peaks and times "
        "without."
    )
    assert note in sentences(text.render(verify_report(verified, H200)))
    assert note in json.loads(as_json.render(verify_report(verified, H200)))["notes"]
