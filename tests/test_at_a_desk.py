"""The first lines for one slot on one GPU with llama.cpp: what it uses of the GPU, and what is
assumed of a desktop.
"""

from asking import REPOSITORY, Ask, results
from tables import each

GIB = 2**30
MODEL = ("fit", "llama3.1-8b:q4_k_m", "-c", "8192")
DESKTOP = "--other-memory 1GiB counts a desktop that uses 1.00 GiB of this GPU."
GPU = ("--gpu", "rtx-3060-12gb")  # 11,898 MiB, 11.62 GiB


@each(
    ("memory", "context", "verdict", "uses"),
    [
        ("8GB", 8192, "FITS", "uses"),
        ("8GB", 21504, "MAY NOT FIT", "uses"),
        ("8GB", 65536, "DOES NOT FIT", "needs"),
    ],
)
def test_the_first_line_says_what_is_used(
    ask: Ask, memory: str, context: int, verdict: str, uses: str
) -> None:
    asked = ("fit", "llama3.1-8b:q4_k_m", "--gpu", memory, "-c", str(context))
    found = results(ask(*asked, "--json"))
    # weights, the cache, and the runtime memory at least and at most: usable - weights - what is
    # left for the cache
    free = [
        found["usable_memory"] - found[f"kv_memory_{end}"] + found["kv_needed"]
        for end in ("high", "low")
    ]
    low, high = (f"{size / GIB:.1f}" for size in free)
    first = ask(*asked).out.splitlines()[0]
    assert (
        first == f"{verdict}: {uses} {low} to {high} of 7.5 GiB with {context:,} tokens of context."
    )


@each(
    ("options", "words"),
    [
        (["--gpu", "8GB", "-np", "2"], " free."),
        (["--gpu", "8GB", "-b", "2"], " free."),
        (["--gpu", "2xrtx-4090"], " on the fullest GPU with "),
    ],
)
def test_several_requests_are_a_servers_and_two_gpus_are_not(
    ask: Ask, options: list[str], words: str
) -> None:
    answer = ask(*MODEL, *options)
    assert words in " ".join(answer.out.split("Llama")[0].split())
    assert DESKTOP not in answer.out


@each(
    ("options", "is_named"),
    [
        (["--gpu", "7GB"], True),
        (["--gpu", "8GB"], False),  # 6.2 GiB at most of 7.5: 1 GiB changes no verdict
        (["--gpu", "7GB", "--other-memory", "0"], False),
        (["--gpu", "7GB", "--reserve", "1GiB"], False),  # it may include a desktop
        (["--gpu", "7GiB"], False),  # what is free, as given
        (["--gpu", "l4"], False),
        (["--gpu", "cpu", "--ram", "16GB"], False),
    ],
)
def test_no_desktop_is_assumed_and_the_screen_says_so(
    ask: Ask, options: list[str], is_named: bool
) -> None:
    assert (DESKTOP in " ".join(ask(*MODEL, *options).out.split())) is is_named


@each(
    ("engine", "options", "less"),
    [
        ("llamacpp", [], 2),
        ("transformers", [], 2),
        ("ideal", [], 2),
        ("sglang", ["--mem-fraction-static", "0.75"], 1.5),  # the share of it
        # its share is of the whole memory, and still free
        ("vllm", ["--engine-version", "0.10.0"], 0),
        ("vllm", ["--engine-version", "0.9.0"], 2),  # counted all memory in use
    ],
)
def test_other_programs_leave_less_for_the_cache(
    ask: Ask, engine: str, options: list[str], less: float
) -> None:
    asked = ("fit", "qwen3-0.6b", *GPU, "-c", "4096", "--engine", engine, *options, "--json")
    asked = (*asked, "--gpu-memory-utilization", "0.75") if engine == "vllm" else asked
    alone, beside = (results(ask(*asked, *others)) for others in ((), ("--other-memory", "2GiB")))
    for end in ("", "_low", "_high"):
        difference = (alone[f"kv_memory{end}"] - beside[f"kv_memory{end}"]) / GIB
        assert abs(difference - less) < 0.01, end


def test_vllm_takes_the_share_that_other_programs_leave_free(ask: Ask) -> None:
    """Of 11.62 GiB, 1 GiB and a CUDA context of 0.5 leave 10.12: 87 %. 0.92 of them, 10.69, are not
    free.
    """
    asked = ("fit", "qwen3-0.6b", *GPU, "-c", "4096", "--other-memory", "1GiB", "--engine", "vllm")
    assert "--gpu-memory-utilization 0.87" in ask(*asked).out
    refused = ask(*asked, "--gpu-memory-utilization", "0.92")
    assert refused.code == 1
    assert refused.out.startswith(
        "DOES NOT START: vLLM wants 10.69 GiB of 11.62 GiB, of which other programs hold"
    )
    assert "with --gpu-memory-utilization 0.87:" in refused.out
    # with a small context, 0.3
    assert ask(*asked, "--gpu-memory-utilization", "0.88").out.startswith("FITS")


@each(
    ("options", "share"),
    [
        (["--gpu", "rtx-3060-12gb"], "0.87"),
        (["--gpu", "rtx-4090"], ""),  # 0.92 leave 1.88 GiB
        (["--gpu", "rtx-4090", "--gpu-memory-utilization", "0.95"], "0.93"),
        (["--gpu", "rtx-4090", "--gpu-memory-utilization", "0.95", "--other-memory", "0"], ""),
        (["--gpu", "l4", "--gpu-memory-utilization", "0.95"], ""),
    ],
)
def test_a_share_that_a_desktop_does_not_leave_free_is_warned_of(
    ask: Ask, options: list[str], share: str
) -> None:
    shown = " ".join(
        ask("fit", "qwen3-0.6b", "-c", "4096", "--engine", "vllm", *options).out.split()
    )
    warning = (
        "with a desktop of 1.00 GiB on this GPU, vLLM starts with --gpu-memory-utilization "
        f"{share or '0'}"
    )
    assert (warning in shown) is bool(share)


@each(
    ("options", "error"),
    [
        (["--other-memory", "1GiB"], "--other-memory needs --gpu"),
        (["--kv-memory", "1GiB", "--other-memory", "1GiB"], "--other-memory needs --gpu"),
        (
            [*GPU, "--engine", "sglang", "--kv-memory", "1GiB", "--other-memory", "1GiB"],
            "--other-memory has no effect on SGLang with --kv-memory",
        ),
        (
            [*GPU, "--reserve", "1GiB", "--other-memory", "1GiB"],
            "--other-memory cannot be combined with --reserve",
        ),
        (
            [*GPU, "--other-memory", "12GiB"],
            "--other-memory 12.00 GiB is all of the GPU's 11.62 GiB",
        ),
    ],
)
def test_other_memory_is_of_a_gpu(ask: Ask, options: list[str], error: str) -> None:
    assert error in ask("fit", "qwen3-0.6b", *options).error


def test_vllm_wants_its_share_free_even_with_a_given_cache(ask: Ask) -> None:
    """0.92 x 11.62 = 10.69 GiB, and others leave 7.62: (11.62 - 4 - 0.5) / 11.62 = 0.61. 0.5 x
    11.62 is free.
    """
    asked = ("fit", "qwen3-0.6b", *GPU, "-c", "4096", "--engine", "vllm", "--kv-memory", "2GiB")
    shown = ask(*asked, "--other-memory", "4GiB").out
    assert " ".join(shown.split()).startswith(
        "DOES NOT START: vLLM wants 10.69 GiB of 11.62 GiB, of which other programs hold 4.00 GiB."
    )
    assert "--gpu-memory-utilization 0.61 --kv-cache-memory-bytes 2147483648" in " ".join(
        shown.split()
    )
    assert ask(*asked, "--other-memory", "4GiB", "--gpu-memory-utilization", "0.5").out.startswith(
        "FITS"
    )


@each(
    ("log", "others"),
    [
        # 30.20 of 31.84 GiB were free, and a CUDA context takes 0.5
        ("pasted-vllm-wsl-desktop", "1.1GiB"),
        ("llamacpp-fitting-pass", "2.0GiB"),  # it prints only what was free, of a GPU that it names
        ("llamacpp-qwen3-14b-kv", ""),
    ],
)
def test_a_log_shows_what_other_programs_hold(ask: Ask, log: str, others: str) -> None:
    note = ask("fit", "--log", str(REPOSITORY / f"tests/data/engine-logs/doctor/{log}.log")).err
    assert (f"--other-memory {others or 'none'} counts what others hold" in note) is bool(others)


@each(
    ("context", "options", "is_warned"),
    [
        # its compute buffer has 4,119 MiB, and that of 71,000 tokens 4,061
        ("72000", ["--gpu", "32GB"], True),
        ("71000", ["--gpu", "32GB"], False),
        ("72000", ["--gpu", "rtx-5090"], False),  # CUDA
    ],
)
def test_vulkan_may_not_have_one_buffer_above_4_gib(
    ask: Ask, context: str, options: list[str], is_warned: bool
) -> None:
    """The start failed with 72,000 tokens (ggml-org/llama.cpp#11598), and not with 71,000."""
    asked = (
        "fit",
        "qwen2.5-7b:q8_0",
        "--engine",
        "llamacpp",
        "--engine-version",
        "b4615",
        "-c",
        context,
        *options,
    )
    assert (
        "Vulkan drivers that allow at most 4.00 GiB" in " ".join(ask(*asked).out.split())
    ) is is_warned
    assert "Vulkan" not in ask(*asked, "--engine-version", "b7000").out
