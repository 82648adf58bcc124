"""`attncalc verify`: real layers agree with the formulas, and notes name what cannot be checked."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from asking import REPOSITORY, Answer, Ask, started
from layers import ENCODER, GROUPED, MHA, WINDOW, ZOO, saved

from attncalc import load
from attncalc.questions.schemas import schema_name
from attncalc.questions.verify.catalogue import CATALOGUE, QUICK
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from attncalc.verify import kernels as verify_kernels  # noqa: E402
from attncalc.verify.devices import find_device  # noqa: E402
from attncalc.verify.devices.cpu import Cpu  # noqa: E402
from attncalc.verify.errors import CannotRunError  # noqa: E402
from attncalc.verify.options import VerifyOptions  # noqa: E402
from attncalc.verify.plan import required_bytes  # noqa: E402
from attncalc.verify.request import resolve  # noqa: E402

GIB = 2**30


def checks(answer: Answer) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = answer.document["checks"]
    return listed


def test_layers_of_a_catalogue_agree_at_their_true_size_on_a_cpu(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 36 tokens: small models at their true size, in fp32. ZOO and test_recurrent.py have each
    kind and option.
    """
    presets = ("bert-base", "deepseek-v2-lite", "gemma-2b", "granite4-h-tiny", "transformer-base")
    monkeypatch.setattr("attncalc.questions.verify.command.CATALOGUE", presets)
    answer = ask("verify", "--device", "cpu", "--context", "36", "--minutes", "600", "--json")
    all_checks = checks(answer)
    assert [c for c in all_checks if not c["ok"]] == []
    assert answer.code == 0
    assert {c["of"].split()[0] for c in all_checks} == set(presets)
    exact = [c for c in all_checks if c["section"] in ("parameters", "cache", "FLOPs", "model")]
    assert all(c["difference"] == 0 and c["tolerance"] == 0 for c in exact)
    peaks = [c for c in all_checks if c["section"] == "peak memory"]
    assert all(abs(c["difference"]) <= 0.01 * c["predicted"] for c in peaks)
    assert {c["name"] for c in peaks} == {
        f"peak_{p}_{k}" for p in ("prefill", "decode") for k in ("math", "flash")
    }


def test_a_toy_of_sizes_and_a_pattern_has_a_layer_of_each_kind(ask: Ask) -> None:
    sizes = (
        "--layers",
        "4",
        "--heads",
        "2",
        "--head-dim",
        "16",
        "--pattern",
        "linear,global,mla:8,mla:24",
    )
    answer = ask("verify", *sizes, "--device", "cpu", "--context", "16", "--json")
    assert answer.code == 0
    assert {"linear", "global", "mla_8", "mla_24"} <= {check["of"] for check in checks(answer)}


@pytest.mark.parametrize(
    ("batch", "context", "dtype"),
    [(1, 4, "fp32"), (2, 40, "fp32"), (3, 33, "fp16"), (2, 37, "bf16")],
)
def test_every_option_of_a_layer_agrees(
    ask: Ask, tmp_path: Path, batch: int, context: int, dtype: str
) -> None:
    """Windows and chunks fill their ring buffers; one of the layers has each option of a kind."""
    path = saved(ZOO, tmp_path)
    answer = ask(
        "verify",
        path,
        "-b",
        str(batch),
        "-c",
        str(context),
        "--dtype",
        dtype,
        "--device",
        "cpu",
        "--json",
    )
    assert [(c["of"], c["name"]) for c in checks(answer) if not c["ok"]] == []
    assert answer.code == 0


def test_encoder_decoder_and_cross_attention_are_verified(ask: Ask) -> None:
    options = ("-b", "2", "-c", "20", "--source-context", "33", "--device", "cpu")
    answer = ask("verify", "transformer-base", *options, "--json")
    assert answer.code == 0
    assert {c["of"] for c in checks(answer)} == {"encoder", "decoder", "decoder_cross", ""}
    by_name = {(c["of"], c["name"]): c["measured"] for c in checks(answer)}
    # K and V of 2 sequences * 33 source tokens * 512 * 4 B; decoding does not change it
    assert (
        by_name["decoder_cross", "cache_decode"]
        == by_name["decoder_cross", "cache_prefill"]
        == 2 * 2 * 33 * 512 * 4
    )


def test_an_encoder_has_no_cache_and_no_decode_step(ask: Ask, tmp_path: Path) -> None:
    answer = ask("verify", saved(ENCODER, tmp_path), "-c", "16", "--device", "cpu", "--json")
    assert answer.code == 0
    assert not [c for c in checks(answer) if "decode" in c["name"] or "cache" in c["name"]]


def test_the_same_seed_gives_the_same_numbers(ask: Ask, tmp_path: Path) -> None:
    path = saved(GROUPED, tmp_path)
    first, second, other_seed = (
        checks(ask("verify", path, "-c", "9", "--device", "cpu", "--seed", seed, "--json"))
        for seed in "112"
    )
    assert first == second != other_seed


def test_every_format_works(ask: Ask, tmp_path: Path) -> None:
    path = saved(GROUPED, tmp_path)
    for form in ("table", "json", "csv", "markdown"):
        for more in (("--full", "--explain"), ("--scaling",)):
            answer = ask("verify", path, "-c", "16", "--device", "cpu", "--format", form, *more)
            assert (answer.code, answer.err) == (0, "")
            assert max(map(len, answer.out.splitlines())) <= 80 or form != "table"


def test_formulas_equal_those_of_other_commands(ask: Ask, tmp_path: Path) -> None:
    path = saved(GROUPED, tmp_path)
    document = ask("verify", path, "-c", "16", "--device", "cpu", "--json").document
    results = {r["name"]: r for r in document["layers"][0]["results"]}
    # W_k of 32 x (2 heads of 8); one layer's cache of 16 tokens, 2 heads of 8, K and V, 4 B
    assert (results["params_W_k"]["formula"], results["params_W_k"]["value"]) == (
        "d_model * n_kv_heads * d_head",
        32 * 16,
    )
    assert results["cache_decode"]["value"] == 16 * 2 * 2 * 8 * 4
    assert document["device"]["type"] == "cpu"
    assert document["schema"] == schema_name("verify")


def test_scaling_has_one_row_per_doubling_and_times_are_positive(ask: Ask, tmp_path: Path) -> None:
    path = saved(MHA, tmp_path)
    document = ask("verify", path, "-c", "64", "--device", "cpu", "--scaling", "--json").document
    assert [row["context"] for row in document["scaling"] if row["kernel"] == "math"] == [
        8,
        16,
        32,
        64,
    ]
    assert all(row["peak"] == row["peak_predicted"] for row in document["scaling"])
    timed = ask("verify", path, "-c", "64", "--device", "cpu", "--json").document["times"]
    assert {(t["phase"], t["kernel"]) for t in timed} == {
        (p, k) for p in ("prefill", "decode") for k in ("math", "flash")
    }
    assert all(t["ms"] > 0 and t["flop_per_s"] > 0 and t["least_ms"] > 0 for t in timed)


def test_a_context_that_does_not_fit_is_shortened_with_a_note(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.8 * 350 MiB are enough for flash at 4,096 tokens with batch 2, and not at 32,768."""
    monkeypatch.setattr(Cpu, "free", lambda _: 350 * 2**20)
    answer = ask(
        "verify",
        saved(MHA, tmp_path),
        "-b",
        "2",
        "-c",
        "32768",
        "--kernel",
        "flash",
        "--device",
        "cpu",
    )
    assert answer.code == 0
    assert "Context 32,768 does not fit in 280 MiB" in answer.out
    assert "context 32,768" not in answer.out.partition("\n\n")[0]


def test_a_kernel_that_does_not_fit_is_left_out_with_a_note(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Math at 4,096 tokens: 4 heads * 4,096^2 * 9 B alone are 576 MiB."""
    monkeypatch.setattr(Cpu, "free", lambda _: 500 * 2**20)
    answer = ask("verify", saved(MHA, tmp_path), "-c", "4096", "--device", "cpu", "--json")
    assert answer.code == 0
    assert {c["name"] for c in checks(answer) if c["section"] == "peak memory"} >= {
        "peak_prefill_flash"
    }
    assert "peak_prefill_math" not in {c["name"] for c in checks(answer)}
    assert any(
        "decoder, prefill: math is left out, as it needs" in note
        for note in answer.document["notes"]
    )


def test_a_layer_that_cannot_fit_is_exit_code_3(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cpu, "free", lambda _: GIB)
    answer = ask("verify", "gpt3", "--device", "cpu")
    assert (answer.code, answer.out) == (3, "")
    assert "gpt3, decoder: one layer needs" in answer.err
    assert "has 819.20 MiB for it" in answer.err


def test_the_plan_is_an_upper_bound_of_the_memory_used(tmp_path: Path) -> None:
    """Besides torch itself, a process that verifies never holds more than the plan requires."""
    script = f"""
import re
from pathlib import Path
from attncalc.verify import need_torch
need_torch()
from attncalc import load
from attncalc.questions.verify.catalogue import CATALOGUE, QUICK
from attncalc.verify.devices import find_device
from attncalc.verify.options import VerifyOptions
from attncalc.verify.plan import required_bytes
from attncalc.verify.progress import Progress
from attncalc.verify.programs.layers import verify_layers
from attncalc.verify.request import resolve
model, device = load({saved(MHA, tmp_path)!r}), find_device("cpu")
request = resolve(model, VerifyOptions(batch=4, context=1024, timed=False), device)
required = max(max(by_kernel.values()) for by_kernel in required_bytes(model, request).values())
def resident(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
before = resident("VmRSS")
verify_layers(model, request, device, Progress())
print(required, resident("VmHWM") - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    required, used = map(int, done.stdout.split())
    # math's scores and softmax alone: 4 sequences * 4 heads * 1,024^2 * 8 B = 128 MiB
    assert 128 * 2**20 < used <= required


def test_without_torch_the_tip_is_the_install_command(tmp_path: Path) -> None:
    script = "import sys; sys.modules['torch'] = None; sys.argv = ['attncalc', 'verify', 'gpt2']\n"
    script += "from attncalc.cli import run; sys.exit(run())"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr
        == "error: verify runs real torch layers, and torch is not installed\n  tip: pip "
        "install torch\n"
    )


def test_a_missing_device_is_exit_code_3(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device in ("cuda", "cuda:3", "xpu", "mps"):
        answer = ask("verify", "gpt2", "--device", device)
        assert answer.code == 3
        assert f"--device {device}" in answer.err
    answer = ask("verify", "gpt2", "--kernel", "efficient", "--device", "cpu")
    assert answer.code == 3
    assert "efficient does not support its heads, its mask or its dtype on cpu" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [
        "gpt2 --device tpu",
        "gpt2 --kernel flsh",
        "gpt2 --dtype int4",
        "gpt2 --dtype fp8",
        "gpt2 --dtype fp64",
        "gpt2 --seed 99999999999999999999",
        "gpt2 --seed -1",
        "gpt2 --context 2",
        "gpt2 --train --scaling",
        "--scaling",
        "gpt2 --source-context 8",
        "no-such-model",
    ],
)
def test_invalid_arguments_are_errors_with_a_tip(ask: Ask, arguments: str) -> None:
    assert ask("verify", *arguments.split()).error.startswith("error: ")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_prints_no_traceback() -> None:
    with started("-m", "attncalc", "verify", "gpt3", "--device", "cpu") as running:
        while "torch" not in Path(f"/proc/{running.pid}/maps").read_text():  # it has imported torch
            time.sleep(0.1)
        time.sleep(1)
        while running.poll() is None:  # a callback of torch's import may swallow the first
            os.kill(running.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(10)
        out, err = running.communicate()
    # A shell reports 130 for both: CPython itself dies by the signal if it was in exec() of a
    # string just then.
    assert running.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in out + err


def test_a_window_longer_than_the_context_needs_no_mask(ask: Ask, tmp_path: Path) -> None:
    """The causal flag is enough, so kernels that take no mask can run."""

    def peak(text: str) -> int:
        answer = ask(
            "verify",
            saved(text, tmp_path),
            "-c",
            "20",
            "--kernel",
            "math",
            "--device",
            "cpu",
            "--json",
        )
        return next(int(c["predicted"]) for c in checks(answer) if c["name"] == "peak_prefill_math")

    # the mask of a window of 5 takes one byte per pair, the causal flag none
    assert peak(WINDOW.replace("window: 5", "window: 20")) == peak(GROUPED)
    assert peak(WINDOW) == peak(GROUPED) + 20 * 20


def test_a_kernel_that_fails_at_the_true_size_is_left_out_with_a_note(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel works on the few tokens that the plan tries."""
    original = verify_kernels.sdpa

    def fails_at_30_tokens(kernel: str, q: Tensor, *arguments: Any) -> Tensor:
        if kernel == "flash" and q.shape[2] == 30:
            raise CannotRunError("flash does not run 30 tokens")
        return original(kernel, q, *arguments)

    monkeypatch.setattr("attncalc.verify.real_layer.sdpa", fails_at_30_tokens)
    answer = ask("verify", saved(ENCODER, tmp_path), "-c", "30", "--device", "cpu", "--json")
    assert answer.code == 0
    assert "encoder, prefill: flash does not run 30 tokens." in answer.document["notes"]
    assert "peak_prefill_math" in {c["name"] for c in checks(answer)}
    assert "peak_prefill_flash" not in {c["name"] for c in checks(answer)}


def test_a_failing_flop_counter_is_noted(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch's did for grouped heads in a fused kernel (pytorch#177188)."""
    monkeypatch.setattr(
        "attncalc.verify.checks.counts.kernel_is_counted", lambda layer_pass, layer: None
    )
    answer = ask("verify", saved(GROUPED, tmp_path), "-c", "12", "--device", "cpu", "--json")
    assert answer.code == 0
    assert (
        "decoder: this torch cannot count the FLOPs of flash with grouped heads."
        in answer.document["notes"]
    )


def test_a_cpu_checks_a_few_presets_and_says_how_to_check_all(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attncalc.questions.verify.command.QUICK", ("gpt2", "gemma-2b"))
    answer = ask("verify", "--device", "cpu", "-c", "8")
    assert [line.split()[0] for line in answer.out.splitlines() if line.endswith(" ok")] == [
        "gpt2",
        "gemma-2b",
    ]
    assert answer.err.startswith(
        "note: on a CPU 2 of 28 presets are checked; with --minutes 10 all\n"
    )
    assert {*QUICK} <= {*CATALOGUE}


def test_the_catalogue_names_models_that_cannot_be_verified(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flash on a CPU does not support MLA, whose K and V have two widths; the other models are
    verified.
    """
    monkeypatch.setattr("attncalc.questions.verify.command.CATALOGUE", ("deepseek-v3", "gpt2"))
    answer = ask("verify", "--kernel", "flash", "-c", "8", "--device", "cpu", "--minutes", "600")
    assert answer.code == 3
    lines = {
        line.split()[0]: line
        for line in answer.out.splitlines()
        if line.startswith("  ") and line.split()
    }
    assert lines["deepseek-v3"].endswith("not verified")
    assert lines["gpt2"].endswith("ok")
    assert (
        "warning: not verified: deepseek-v3, dense and moe: flash does not support its heads"
        in " ".join(answer.out.split())
    )


def test_scaling_plans_each_context_by_itself(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.8 * 450 MiB: math fits at 2,048 tokens (4 heads * 2,048^2 * 9 B are 144 MiB), not at 4,096
    (576 MiB).
    """
    monkeypatch.setattr(Cpu, "free", lambda _: 580 * 2**20)
    answer = ask(
        "verify", saved(MHA, tmp_path), "-c", "4096", "--scaling", "--device", "cpu", "--json"
    )
    assert answer.code == 0
    rows = answer.document["scaling"]
    assert [row["context"] for row in rows if row["kernel"] == "math"] == [512, 1024, 2048]
    assert [row["context"] for row in rows if row["kernel"] == "flash"] == [512, 1024, 2048, 4096]


def test_the_plan_includes_decode_steps() -> None:
    """Absorbed MLA: math copies the latent for each of 128 heads: 8,192 * 128 * (576 + 512) * 4 B
    are 4.25 GiB.
    """
    model, device = load("deepseek-v3"), find_device("cpu")
    request = resolve(model, VerifyOptions(context=8192, dtype="fp32"), device)
    assert (
        required_bytes(model, request)["dense and moe", "decode"]["math"]
        > 8192 * 128 * (576 + 512) * 4
    )
