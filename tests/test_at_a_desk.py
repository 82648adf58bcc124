"""The first lines for one slot on one GPU with llama.cpp: what it uses of the GPU, and what is assumed of a desktop."""

from __future__ import annotations

from asking import Ask, results
from tables import each

GIB = 2**30
MODEL = ("fit", "llama3.1-8b:q4_k_m", "-c", "8192")
DESKTOP = "counts a desktop that uses 1.00 GiB of this GPU."


@each(
    ("memory", "context", "verdict", "uses"),
    [
        ("8GB", 8192, "FITS", "uses"),
        ("8GB", 21504, "MAY NOT FIT", "uses"),
        ("8GB", 65536, "DOES NOT FIT", "needs"),
    ],
)
def test_the_first_line_says_what_is_used(ask: Ask, memory: str, context: int, verdict: str, uses: str) -> None:
    asked = ("fit", "llama3.1-8b:q4_k_m", "--gpu", memory, "-c", str(context))
    found = results(ask(*asked, "--json"))
    # weights, the cache, and the runtime memory at least and at most: usable - weights - what is left for the cache
    free = [found["usable_memory"] - found[f"kv_memory_{end}"] + found["kv_needed"] for end in ("high", "low")]
    low, high = (f"{size / GIB:.1f}" for size in free)
    first = ask(*asked).out.splitlines()[0]
    assert first == f"{verdict}: {uses} {low} to {high} of 7.5 GiB with {context:,} tokens of context."


@each(
    "options",
    [["--gpu", "8GB", "-np", "2"], ["--gpu", "8GB", "-b", "2"], ["--gpu", "2xrtx-4090"]],
)
def test_several_requests_or_gpus_are_a_servers(ask: Ask, options: list[str]) -> None:
    answer = ask(*MODEL, *options)
    assert " free." in " ".join(answer.out.split("Llama")[0].split())
    assert DESKTOP not in answer.out


@each(
    ("options", "memory"),
    [
        (["--gpu", "8GB"], "6.5GiB"),  # 8 * 10^9 B are 7.45 GiB
        (["--gpu", "rtx-4090"], "22.5GiB"),
        (["--gpu", "8GB", "--reserve", "1GiB"], None),  # it may include a desktop
        (["--gpu", "7GiB"], None),  # what is free, as given
        (["--gpu", "l4"], None),
        (["--gpu", "cpu", "--ram", "16GB"], None),
    ],
)
def test_no_desktop_is_assumed_and_the_screen_says_so(ask: Ask, options: list[str], memory: str | None) -> None:
    shown = " ".join(ask(*MODEL, *options).out.split())
    assert (f"--gpu {memory} {DESKTOP}" if memory else DESKTOP) in shown or memory is None
    assert (DESKTOP in shown) is (memory is not None)
