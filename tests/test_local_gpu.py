"""`--gpu local`: the GPUs of this machine, as programs on PATH name them."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asking import Ask, results
from tables import each

from attncalc import AttncalcError
from attncalc.config import local
from attncalc.config.gpus import gpu, gpus_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the programs are shell scripts")
GIB = 2**30
RTX_4090 = "NVIDIA GeForce RTX 4090, 24564"
ROCM = {
    "card0": {"Card Series": "Radeon RX 7900 XTX", "VRAM Total Memory (B)": "25753026560"},
    "card1": {"Card Series": "AMD Radeon Graphics", "VRAM Total Memory (B)": "536870912"},
    "system": {"Driver version": "6.8.5"},
}
Machine = Callable[..., None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Return a function that writes programs: machine(nvidia_smi="RTX 3060, 12288"); '!' before a
    text lets it fail.
    """

    def write(**programs: str) -> None:
        local.named_gpus.cache_clear()
        for name, text in programs.items():
            path = tmp_path / name.replace("_", "-")
            failed = text.startswith("!")
            body = (
                text
                if text.startswith("#!")
                else f"#!/bin/sh\ncat <<'END'\n{text.lstrip('!')}\nEND\nexit {failed:d}\n"
            )
            path.write_text(body)
            path.chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    write(nvidia_smi="!", rocm_smi="!", sysctl="!")
    yield write
    local.named_gpus.cache_clear()


def test_only_visible_gpus_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(nvidia_smi=f"{RTX_4090}\n{RTX_4090}\n{RTX_4090}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert gpus_of("local")[0] == 2


@each(
    ("programs", "number", "name", "memory"),
    [
        ({"nvidia_smi": RTX_4090}, 1, "rtx-4090", gpu("rtx-4090").memory),
        ({"nvidia_smi": f"{RTX_4090}\n{RTX_4090}"}, 2, "rtx-4090", gpu("rtx-4090").memory),
        ({"nvidia_smi": "NVIDIA GB10, [N/A]"}, 1, "gb10", gpu("gb10").memory),
        ({"nvidia_smi": "NVIDIA GeForce GTX 9999, 8192"}, 1, "local", 8 * 10**9),
        (
            {"rocm_smi": f"WARNING: one\n{json.dumps(ROCM)}"},
            1,
            "rx-7900-xtx",
            gpu("rx-7900-xtx").memory,
        ),
        ({"sysctl": f"Apple M3 Max\n{64 * GIB}"}, 1, "m3-max-64gb", gpu("m3-max-64gb").memory),
        # Metal's limit is three quarters of the memory
        ({"sysctl": f"Apple M9\n{32 * GIB}"}, 1, "local", 24 * GIB),
    ],
)
def test_programs_name_the_gpus(
    machine: Machine, programs: dict[str, str], number: int, name: str, memory: int
) -> None:
    machine(nvidia_smi="!", rocm_smi="!", sysctl="!")
    machine(**programs)
    found, kind = gpus_of("local")
    assert (found, kind.name, kind.memory, kind.is_local) == (number, name, memory, True)


@each(
    ("programs", "message"),
    [
        ({}, "nvidia-smi, rocm-smi and sysctl name no GPU of this machine"),
        ({"nvidia_smi": "!No devices were found"}, "name no GPU"),
        (
            {
                "nvidia_smi": "\ufffd garbage",
                "rocm_smi": "{not json",
                "sysctl": "Intel(R) Core(TM) i7\n17179869184",
            },
            "name no GPU",
        ),
        (
            {"nvidia_smi": f"{RTX_4090}\nNVIDIA GeForce RTX 3060, 12288"},
            "different GPUs: NVIDIA GeForce RTX 4090, ",
        ),
        ({"nvidia_smi": "NVIDIA Thing, [N/A]"}, "NVIDIA Thing is not known, nor is its memory"),
    ],
)
def test_a_machine_without_one_kind_of_gpu_is_an_error(
    machine: Machine, programs: dict[str, str], message: str
) -> None:
    machine(nvidia_smi="!", rocm_smi="!", sysctl="!")
    machine(**programs)
    with pytest.raises(AttncalcError, match="--gpu local: ") as raised:
        gpus_of("local")
    assert message in raised.value.message
    assert raised.value.tip


def test_a_program_that_hangs_is_given_up(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SECONDS", 0.1)
    machine(nvidia_smi="#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(AttncalcError, match="name no GPU"):
        gpus_of("local")


def test_no_program_at_all_is_an_error(
    ask: Ask, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()
    monkeypatch.setenv("PATH", "")
    answer = ask("fit", "llama3-8b", "--gpu", "local")
    assert (answer.code, answer.out) == (3, "")
    assert "tip: give its name or its memory, as --gpu rtx-4090 or --gpu 12GB" in answer.err


def test_gpus_names_a_machine_without_a_gpu_as_typed(
    ask: Ask, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine()
    monkeypatch.setenv("PATH", "")
    answer = ask("gpus", "local")
    assert answer.code == 3
    assert answer.err.startswith("error: local: nvidia-smi")
    assert answer.err.endswith("  tip: 'attncalc gpus' lists the known GPUs\n")


def test_this_machines_memory_limits_what_is_on_the_host(
    ask: Ask, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "machine_memory", lambda: 8 * GIB)
    machine(nvidia_smi=RTX_4090)
    asked = ("fit", "mixtral-8x7b:q4_k_m", "--gpu", "local", "-c", "8192")
    answer = ask(*asked, "--n-cpu-moe", "32")
    assert (answer.code, " and has 8.00 GiB." in " ".join(answer.out.split())) == (1, True)
    assert "--ram 8.00 GiB, this machine's, is the limit" in " ".join(answer.out.split())
    given = ask(*asked, "--n-cpu-moe", "32", "--ram", "64GiB", "--json")
    assert results(given)["host_memory"] == 64 * GIB
    assert "this machine's" not in given.out


@each(("engine", "limit"), [("llamacpp", 8 * GIB), ("vllm", None)])
def test_only_an_engine_that_uses_the_host_is_limited(
    ask: Ask, machine: Machine, monkeypatch: pytest.MonkeyPatch, engine: str, limit: int | None
) -> None:
    monkeypatch.setattr(local, "machine_memory", lambda: 8 * GIB)
    machine(nvidia_smi=RTX_4090)
    assert (
        results(ask("fit", "llama3-8b", "--gpu", "local", "--engine", engine, "--json"))[
            "host_memory"
        ]
        == limit
    )


def test_fewer_gpus_than_the_machine_has_may_be_used(ask: Ask, machine: Machine) -> None:
    machine(nvidia_smi=f"{RTX_4090}\n{RTX_4090}")
    numbers = [
        ask("fit", "llama3-8b", "--gpu", "local", *gpus, "--json").document["gpus"]
        for gpus in ((), ("--gpus", "1"))
    ]
    assert numbers == [2, 1]
