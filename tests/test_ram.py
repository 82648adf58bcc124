"""Host memory as a limit: `--ram` for what llama.cpp does not put on GPUs."""

import dataclasses
from typing import Any

import pytest
from asking import Ask, results
from tables import each

from attncalc import load
from attncalc.config.gpus import gpu
from attncalc.serving.fit import fit
from attncalc.serving.offload import least_offload
from attncalc.serving.request import FitRequest
from attncalc.serving.suggestions import suggestions
from attncalc.workload import Workload

MIB, GIB = 2**20, 2**30
# Mixtral 8x7B in bf16 with all experts on the host, 4,096 tokens:
EMBEDDING = 32000 * 4096 * 2
EXPERTS = 32 * 8 * 3 * 4096 * 14336 * 2
CACHE = 32 * 4096 * 2 * 1024 * 2
# masks of 4,096 cells for 512 tokens in f16, and two copies of the embeddings of 512 tokens in f32
INPUTS = 4096 * 512 * 2 + 2 * 4096 * 512 * 4


def request(model: str, memory: str = "b300", context: int = 4096, **args: Any) -> FitRequest:
    workload = Workload.decode(1, context)
    return FitRequest(load(model), workload, engine="llamacpp", gpu=gpu(memory), engine_args=args)


@each(
    ("args", "needed"),
    [
        ({}, EMBEDDING + INPUTS),
        ({"n_cpu_moe": 32}, EMBEDDING + EXPERTS + INPUTS),
        ({"no_kv_offload": True}, EMBEDDING + CACHE + INPUTS),
    ],
)
def test_what_is_on_the_host_must_fit_there(args: dict[str, Any], needed: int) -> None:
    enough = fit(request("mixtral-8x7b", ram=needed, **args))
    assert (enough.verdict, enough.host_needed) == ("fits", needed)
    assert fit(request("mixtral-8x7b", ram=needed - 1, **args)).verdict == "does_not_fit"


def test_without_ram_the_host_limits_nothing() -> None:
    result = fit(request("mixtral-8x7b", n_cpu_moe=32))
    assert (result.verdict, result.host, result.host_needed) == ("fits", None, None)


@pytest.mark.parametrize("layers", [57, 28, 0])
def test_layers_on_the_host_save_nothing_where_the_gpu_shares_its_memory(layers: int) -> None:
    # Mixtral 8x22B in q8_0 has 140.6e9 parameters x 34/32 B = 139 GiB, and a DGX Spark 121.6 GiB in
    # all
    asked = dataclasses.replace(
        request("mixtral-8x22b", "gb10", n_gpu_layers=layers), weights_dtype="q8_0"
    )
    result = fit(asked)
    assert result.verdict == "does_not_fit"
    assert not any("layers on the host" in change.change for change in suggestions(result))
    # the same memory once more
    assert fit(asked.with_engine_args(ram=128 * 10**9)).verdict == "does_not_fit"
    assert fit(dataclasses.replace(asked, gpu=gpu("h100-80gb"))).verdict == (
        "does_not_fit" if layers > 28 else "fits"
    )


def test_a_file_that_metal_maps_is_in_memory_once(ask: Ask) -> None:
    # 39.0 GiB are mapped for 39 layers of 80, and those of the host, 20 GiB, lie within: 59.6 GiB
    # would not hold both
    assert (
        ask("fit", "llama3.3-70b:q4_k_m", "--gpu", "m4-max-64gb", "-ngl", "40", "-c", "4096").code
        == 0
    )


def test_a_cache_that_is_all_on_the_host_has_no_tokens_on_the_gpu(ask: Ask) -> None:
    asked = ("fit", "llama3.1-8b:q8_0", "--gpu", "rtx-4090", "-ngl", "0", "-b", "100", "-c", "8192")
    figures = results(ask(*asked, "--json"))
    assert not any(figures[name] for name in ("kv_tokens", "kv_tokens_low", "kv_tokens_high"))
    screen = " ".join(ask(*asked).out.split())
    assert "100 requests of 8,192 tokens need no KV cache on the GPU" in screen
    assert "tokens in the cache" not in screen


def test_narrower_weights_and_layers_on_the_host_are_tried_together(ask: Ask) -> None:
    # 70B in q4_k_m are 39.6 GiB; the card and the host have 23.5 and 14.9 GiB
    asked = ("fit", "llama3.1-70b:q4_k_m", "--gpu", "rtx-4090", "--ram", "16GB", "-c", "8192")
    first = ask(*asked, "--json").document["suggestions"][0]["flag"]
    assert first.startswith("--weights-dtype q3_k_m --n-gpu-layers ")
    assert ask("fit", "llama3.1-70b", *first.split(), *asked[2:]).code == 0


def test_a_higher_limit_of_metal_is_named_where_it_is_enough(ask: Ask) -> None:
    # q4_k_m of 39.0 GiB with 1 to 2 GiB beside it: above Metal's 37.4 of 48 GiB, and within seven
    # eighths, 42
    asked = ("fit", "llama3.3-70b:q4_k_m", "-c", "2048", "--gpu")
    assert (
        "--gpu m4-pro-48gb:42GiB fits: 'sudo sysctl iogpu.wired_limit_mb=43008'"
        in ask(*asked, "m4-pro-48gb").out
    )
    assert ask(*asked, "m4-pro-48gb:42GiB").code == 0
    assert "wired_limit" not in ask(*asked, "m4-max-36gb").out  # 31.5 GiB are too few


def test_a_cache_on_the_host_is_as_long_as_its_memory() -> None:
    # each 256 tokens are 32 layers x 256 x 2 x 1024 x 2 B = 32 MiB of cache, and 256 x 512 x 2 B of
    # masks
    ram = EMBEDDING + INPUTS + CACHE + 2 * (32 * MIB + 256 * 512 * 2)
    result = fit(request("mixtral-8x7b", ram=ram, no_kv_offload=True))
    assert result.max_context == 4096 + 512
    assert result.max_context.formula.text.endswith("<= ram")


def test_as_much_as_must_be_on_the_host_must_fit_there() -> None:
    asked = request("mixtral-8x7b", "rtx-4090")
    layers = least_offload(asked, "n_cpu_moe")
    assert layers
    needed = EMBEDDING + EXPERTS * layers // 32 + INPUTS
    assert least_offload(asked.with_engine_args(ram=needed), "n_cpu_moe") == layers
    assert least_offload(asked.with_engine_args(ram=needed - 1), "n_cpu_moe") is None


def test_no_change_needs_more_than_the_host_has(ask: Ask) -> None:
    command = (
        "fit mixtral-8x7b --engine llamacpp --gpu rtx-4090 -c 8192 --weights-dtype bf16 --json"
    )
    without, small = (
        ask(*command.split(), *ram).document["suggestions"] for ram in ((), ("--ram", "8GB"))
    )
    offloads = [any("--n-" in change["flag"] for change in changes) for changes in (without, small)]
    assert offloads == [True, False]


def test_the_screen_says_how_much_the_host_needs_and_has(ask: Ask) -> None:
    asked = (
        "fit",
        "mixtral-8x7b",
        "--engine",
        "llamacpp",
        "--gpu",
        "b300",
        "--cpu-moe",
        "-c",
        "4096",
        "--ram",
    )
    needed = f"{(EMBEDDING + EXPERTS + INPUTS) / GIB:.2f} GiB"
    refused = ask(*asked, "32GiB")
    assert refused.code == 1
    assert " ".join(refused.out.split("\nMixtral")[0].split()) == (
        f"DOES NOT FIT: the host needs {needed} and has 32.00 GiB."
    )
    fitting = ask(*asked, "96GiB", "--full")
    assert (
        f"96.00 GiB of host memory is the limit of what is not on GPUs, {needed} here."
        in " ".join(fitting.out.split())
    )
    figures = results(ask(*asked, "96GiB", "--json"))
    assert (figures["host_memory"], figures["host_needed"]) == (
        96 * GIB,
        EMBEDDING + EXPERTS + INPUTS,
    )


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--gpu", "h100", "--engine", "vllm"], "--ram has no effect on engine vllm"),
        (["--kv-memory", "5GiB", "--engine", "llamacpp"], "--ram needs --gpu"),
        (["--gpu", "h100", "--engine", "llamacpp", "--ram", "much"], "--ram"),
    ],
)
def test_ram_needs_an_engine_that_uses_the_host_beside_a_gpu(
    ask: Ask, options: list[str], error: str
) -> None:
    answer = ask("fit", "llama3-8b", "--ram", "32GB", *options)
    assert (answer.code, error in answer.err) == (2, True)


def test_a_sweep_has_the_hosts_figures(ask: Ask) -> None:
    answer = ask(
        "sweep",
        "mixtral-8x7b",
        "--engine",
        "llamacpp",
        "--gpu",
        "b300",
        "--n-cpu-moe",
        "0,32",
        "-c",
        "4096,8192",
        "--ram",
        "8GiB",
        "--columns",
        "host_needed,verdict",
        "--format",
        "csv",
    )
    more_masks = 4096 * 512 * 2
    sizes = [
        experts + EMBEDDING + INPUTS + masks
        for experts in (0, EXPERTS)
        for masks in (0, more_masks)
    ]
    assert [row.split(",")[-3:-1] for row in answer.out.splitlines()[1:]] == [
        [str(size), "fits" if size <= 8 * GIB else "does_not_fit"] for size in sizes
    ]


# Without a GPU


def test_a_cpu_has_weights_cache_and_compute_buffer(ask: Ask) -> None:
    # posted for Meta-Llama-3.1-8B-Instruct-Q4_K_M on a CPU (find_string id 17518874791):
    # CPU_Mapped model buffer size = 4685.30 MiB, CPU KV buffer size = 512.00 MiB with 4,096 cells
    answer = ask(
        "fit", "llama3.1-8b:q4_k_m", "--gpu", "cpu", "--ram", "16GiB", "-c", "4096", "--json"
    )
    document, figures = answer.document, results(answer)
    assert (document["engine"], document["gpu"], figures["gpu_memory"]) == (
        "llamacpp",
        "cpu",
        16 * GIB,
    )
    assert round(figures["weights"] / MIB, 2) == 4685.30
    assert figures["kv_needed"] == 512 * MIB
    parts = [part["name"] for part in document["runtime"]]
    assert parts == ["compute_buffer", "outside_buffers"]
    assert figures["host_compute_buffer"] is None
    assert any("CPU KV buffer size =   512.00 MiB" in line for line in document["log_lines"])
    assert not any("CUDA" in line for line in document["log_lines"])


def test_a_cpus_compute_buffer_is_as_posted(ask: Ask) -> None:
    # the same log, build 5389 without flash attention: CPU compute buffer size = 296.01 MiB
    model = ("llama3.1-8b:q4_k_m", "--gpu", "cpu", "--ram", "16GiB", "-c", "4096")
    answer = ask("fit", *model, "--engine-version", "b5389", "--flash-attn", "off", "--json")
    assert results(answer)["compute_buffer"] / MIB == pytest.approx(296.01, rel=0.02)


def test_the_command_without_a_gpu_leaves_no_layers_to_one(ask: Ask) -> None:
    command = ask(
        "fit", "llama3.1-8b", "--gpu", "cpu", "--ram", "32GB", "-c", "4096", "--json"
    ).document
    assert command["launch_command"].endswith("-c 4096 -np 1 -ngl 0 --load-mode none")
    pasted = ask("fit", "--gpu", "cpu", "--ram", "32GB", "--", *command["launch_command"].split())
    assert pasted.out.startswith("FITS: ")


def test_a_model_that_is_too_large_for_a_cpu_needs_other_weights_or_less_context(ask: Ask) -> None:
    answer = ask(
        "fit",
        "llama3.1-8b",
        "--weights-dtype",
        "bf16",
        "--gpu",
        "cpu",
        "--ram",
        "8GB",
        "-c",
        "8192",
        "--json",
    )
    flags = [change["flag"] for change in answer.document["suggestions"]]
    assert (answer.code, flags) == (1, ["--weights-dtype q4_k_m"])


@each(
    ("machine", "command"),
    [
        (["--gpu", "cpu", "--ram", "16GB"], "attncalc fit --gpu cpu --ram 16GB"),
        # 7 such GPUs would be enough
        (["--gpu", "8GB", "--ram", "16GB"], "attncalc fit --gpu 8GB"),
        (["--gpu", "24GB"], ""),  # so would 2
    ],
)
def test_a_machine_at_a_desk_that_is_much_too_small_gets_smaller_models(
    machine: list[str], command: str, ask: Ask
) -> None:
    answer = ask(
        "fit", "llama3.3-70b", "--weights-dtype", "q4_k_m", "-c", "4096", *machine, "-ngl", "auto"
    )
    assert [line.strip() for line in answer.out.splitlines() if "Models that" in line] == (
        [f"Models that fit: {command}"] if command else []
    )
    assert not command or ask(*command.split()[1:]).code == 0


def test_without_ram_a_cpu_has_this_machines_memory(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 4 * 2**20}.__getitem__, raising=False
    )
    found = ask("fit", "llama3.1-8b:q4_k_m", "--gpu", "cpu", "-c", "4096")
    assert "--ram 16.00 GiB, this machine's," in found.out
    monkeypatch.delattr("os.sysconf")
    refused = ask("fit", "llama3.1-8b:q4_k_m", "--gpu", "cpu", "-c", "4096")
    assert (refused.code, "tip: give it, as --ram 32GB" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--engine", "vllm"], "--gpu cpu has no figures for engine vllm"),
        (["--gpus", "2"], "--gpus 2 cannot be combined with --gpu cpu"),
        (["-ngl", "20"], "-ngl 20 cannot be combined with --gpu cpu"),
    ],
)
def test_a_cpu_cannot_be_several_gpus(ask: Ask, options: list[str], error: str) -> None:
    answer = ask("fit", "llama3.1-8b", "--gpu", "cpu", "--ram", "32GB", *options)
    assert (answer.code, error in answer.err) == (2, True)
