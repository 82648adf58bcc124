"""`attncalc verify` without a model: the cheapest presets first, within the time, and nothing
measured is lost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from layers import GROUPED, saved

from attncalc import load
from attncalc.check import Check, VerifyResult
from attncalc.errors import CannotCheckError
from attncalc.questions.verify import command as verify_command
from attncalc.verify import need_torch

need_torch()
from cuda_stand_in import Box, Gpus  # noqa: E402

from attncalc.verify.devices import find_device  # noqa: E402
from attncalc.verify.errors import DeviceFailedError  # noqa: E402
from attncalc.verify.options import VerifyOptions  # noqa: E402
from attncalc.verify.programs import several  # noqa: E402
from attncalc.verify.progress import Progress  # noqa: E402
from attncalc.verify.request import MIN_CONTEXT, VerifyRequest, resolve  # noqa: E402

Patch = pytest.MonkeyPatch
AGREES = Check("parameters", "params_W_q", "W_q", 10, 10, unit="parameters")
# Seconds that each model is expected to take.
COSTS = {"gpt2": 30.0, "llama2-7b": 10.0, "bert-base": 20.0}


class Clock:
    """A clock that only a model advances."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def run_several(
    monkeypatch: Patch,
    minutes: float,
    slowness: float,
    *errors: BaseException | None,
    estimating: float = 0,
) -> dict[str, Any]:
    """Return the results by model, in the order in which they came, of a machine that is so many
    times as slow.

    A model at its shortest context is expected to take 2 s. The n-th model raises the n-th of
    `errors`. Each of the six estimates takes `estimating` seconds.
    """
    names, clock, device, left = list(COSTS), Clock(), find_device("cpu"), list(errors)
    on_progress = Progress(clock=clock)

    def expected(model: Any, request: VerifyRequest, *_: Any, **__: Any) -> list[float]:
        clock.seconds += estimating
        return [2.0 if request.context == MIN_CONTEXT else COSTS[model.name]]

    def verify(model: Any, request: VerifyRequest, *_: Any) -> VerifyResult:
        seconds = min(COSTS[model.name], request.seconds or 0)
        on_progress.expect([seconds])
        on_progress(model.name)
        on_progress.keep(VerifyResult((AGREES,), context=8))
        clock.seconds += seconds * slowness
        error = left.pop(0) if left else None
        if error:
            raise error
        return VerifyResult((AGREES, AGREES), context=request.context)

    monkeypatch.setattr(several, "verify", verify)
    monkeypatch.setattr(several, "predicted_steps", expected)
    models = [load(name) for name in names]
    options = VerifyOptions(minutes=minutes)
    asked = [(model, resolve(model, options, device)) for model in models]
    results: dict[str, Any] = {}
    try:
        for i, result in several.verify_several(asked, device, on_progress):
            results[names[i]] = result
    except (KeyboardInterrupt, CannotCheckError) as error:
        results["error"] = error
    results["seconds"] = clock.seconds
    return results


def test_the_cheapest_model_runs_first(monkeypatch: Patch) -> None:
    assert list(run_several(monkeypatch, 10, 1)) == ["llama2-7b", "bert-base", "gpt2", "seconds"]


def test_a_busy_machine_checks_what_the_time_allows(monkeypatch: Patch) -> None:
    """Of 30 s the shortest contexts need 3 * 2, and the 24 that are left are 24/54 of what 60 s
    need beyond them.

    So the first gets 2 + 8 * 24/54 = 5.6 s. It takes ten times as long, and nothing else starts.
    """
    results = run_several(monkeypatch, 0.5, 10)
    assert list(results) == ["llama2-7b", "seconds"]
    assert results["seconds"] == pytest.approx(10 * (2 + 8 * 24 / 54))


def test_what_models_took_corrects_the_shares_of_later_ones(monkeypatch: Patch) -> None:
    """Three times as slow: of 120 s the first takes 30, and 90 are left, in which 30 of the
    expected 50 s fit.

    The shortest contexts need 4 of them, and the other 26 are 26/46 of 46. The second gets 2 + 18 *
    26/46, and the third what is left of the 30.
    """
    results = run_several(monkeypatch, 2, 3)
    assert list(results) == ["llama2-7b", "bert-base", "gpt2", "seconds"]
    assert results["seconds"] == pytest.approx(120)


def test_a_time_in_which_no_model_can_be_checked_is_an_error(monkeypatch: Patch) -> None:
    results = run_several(monkeypatch, 0.02, 1)
    assert "no model can be checked in 1 s: the quickest needs about 2 s" in str(results["error"])
    results = run_several(monkeypatch, 0.25, 1, estimating=3)  # 6 * 3 s of the 15
    assert "no model can be checked in 15 s: the quickest needs about 20 s" in str(results["error"])


@pytest.mark.parametrize(
    "names", [("deepseek-v4.1-flash", "bert-base"), ("bert-base", "deepseek-v4.1-flash")]
)
def test_a_model_without_a_torch_layer_does_not_end_the_others(
    ask: Ask, names: tuple[str, str]
) -> None:
    """The time of its layers cannot be estimated either: their matrices multiply no tokens."""
    answer = ask("verify", *names, "-c", "16")
    assert answer.code == 3
    assert "1 model\n  could not be verified" in answer.out
    assert (
        "model: bert-base; attention: MHA; context: 16; dtype: fp32; checks: 28 of 28" in answer.out
    )


def test_models_that_cannot_be_checked_are_an_answer_without_checks(ask: Ask) -> None:
    answer = ask("verify", "deepseek-v4.1-flash", "deepseek-v4-flash")
    assert answer.code == 3
    assert "Nothing was checked. 2 models could not be verified." in answer.out


def test_a_model_that_cannot_be_checked_does_not_end_the_others(monkeypatch: Patch) -> None:
    results = run_several(monkeypatch, 10, 1, CannotCheckError("one layer needs 3 GiB"))
    assert results["llama2-7b"].skipped == ("one layer needs 3 GiB.",)
    assert results["gpt2"].ok


@pytest.mark.parametrize("error", [KeyboardInterrupt(), DeviceFailedError("cuda:0 failed")])
def test_an_early_end_keeps_what_was_measured(monkeypatch: Patch, error: BaseException) -> None:
    """The second model ends after its first check."""
    results = run_several(monkeypatch, 10, 1, None, error)
    assert list(results) == ["llama2-7b", "bert-base", "error", "seconds"]
    assert len(results["llama2-7b"].checks) == 2
    assert len(results["bert-base"].checks) == 1
    assert "the rest of this model was not checked" in results["bert-base"].limits[0]


# The command


def ending(
    *results: tuple[int, VerifyResult], error: BaseException | None = None
) -> Callable[..., Any]:
    """Return a stand-in for `verify_several` that yields these and raises the error."""

    def verify_several(*_: Any) -> Any:
        yield from results
        if error:
            raise error

    return verify_several


def test_what_the_time_did_not_reach_is_one_line(ask: Ask, monkeypatch: Patch) -> None:
    monkeypatch.setattr(several, "verify_several", ending((9, VerifyResult((AGREES,), context=8))))
    answer = ask("verify", "--device", "cpu", "--minutes", "600")
    assert answer.code == 3
    assert "The check agrees on cpu" in answer.out
    assert "27 models were not reached." in " ".join(answer.out.split())
    assert answer.out.count("bert-base") == 1
    assert "  gpt2 " in answer.out


def test_several_models_have_a_row_each(ask: Ask) -> None:
    answer = ask("verify", "gpt2", "bert-base", "--device", "cpu", "--context", "8")
    assert answer.code == 0
    rows = [line.split()[0] for line in answer.out.splitlines() if line.endswith(" ok")]
    assert rows == ["gpt2", "bert-base"]


@pytest.mark.parametrize("options", [["--scaling"], ["--against", "transformers"], ["--smoke"]])
def test_what_takes_one_model_refuses_several(ask: Ask, options: list[str]) -> None:
    answer = ask("verify", "gpt2", "bert-base", *options)
    assert (answer.code, answer.out) == (2, "")


def test_an_interrupt_prints_the_table_of_what_was_measured(ask: Ask, monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        several,
        "verify_several",
        ending((9, VerifyResult((AGREES,), context=8)), error=KeyboardInterrupt()),
    )
    answer = ask("verify", "--device", "cpu", "--minutes", "600", "--json")
    assert answer.code == 130
    assert [check["of"] for check in answer.document["checks"]] == ["gpt2"]


def test_an_interrupt_before_any_result_is_one_line(ask: Ask, monkeypatch: Patch) -> None:
    monkeypatch.setattr(several, "verify_several", ending(error=KeyboardInterrupt()))
    answer = ask("verify", "gpt2", "--device", "cpu")
    assert (answer.code, answer.out, answer.err) == (130, "", "interrupted: nothing was measured\n")


def test_a_failure_of_the_gpu_keeps_the_results_so_far(
    ask: Ask, on_box: Callable[[Box], Gpus], tmp_path: Path, monkeypatch: Patch
) -> None:
    """An illegal access in the second of three models: every later operation fails too."""
    names = [
        saved(GROUPED.replace("Small", name), _folder(tmp_path / name))
        for name in ("one", "two", "three")
    ]
    gpus = on_box(Box())
    monkeypatch.setattr(verify_command, "CATALOGUE", names)
    keep, kept = Progress.keep, list[VerifyResult]()

    def keep_and_fail(self: Progress, result: VerifyResult) -> None:
        keep(self, result)
        kept.append(result)
        # the first model has four results: its structure, two passes, its numerics
        if len(kept) == 5:
            error = "CUDA error: an illegal memory access was encountered"
            gpus.box = Box(error=error, error_at=gpus.operations + 5)

    monkeypatch.setattr(Progress, "keep", keep_and_fail)
    answer = ask("verify", "--device", "cuda", "--kernel", "efficient", "--context", "16")
    assert answer.code == 3
    assert answer.err.startswith(
        f"error: cuda:0 ({gpus.box.gpus[0].name}) failed: CUDA error: an illegal memory"
    )
    shown = " ".join(answer.out.split())
    assert "checks agree on cuda:0" in shown
    assert "1 model was not reached." in shown
    assert "the rest of this model was not checked" in shown


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
