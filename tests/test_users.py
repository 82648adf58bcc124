"""Concurrent users: requests with a prompt, an output and a shared prefix, in the engine's
blocks.
"""

import itertools
import json
from typing import Any

import pytest
from asking import REPOSITORY, Ask, refusal, results
from hypothesis import given
from hypothesis import strategies as st
from tables import each

from attncalc import AttncalcError, Workload, load
from attncalc.config.gpus import gpu
from attncalc.serving.fit import fit
from attncalc.serving.request import FitRequest, resolve
from attncalc.serving.traffic import Traffic
from attncalc.serving.users import Users, users

QWEN = load("qwen3-8b")
GEMMA = load("gemma3-27b")
HYBRID = load(REPOSITORY / "docs/examples/qwen3-next-80b-a3b")
# Bytes of a block of Qwen3 8B: 16 tokens, 36 layers, K and V of 8 heads of 128 in bf16.
BLOCK = 16 * 36 * 2 * 8 * 128 * 2
BLOCKS = 10_000


def users_of(
    traffic: Traffic, model: Any = QWEN, memory: int = BLOCKS * BLOCK, **options: Any
) -> Users:
    """Return the users of a memory for the cache, by default of 10,000 of Qwen3's blocks with a
    context of 32K.
    """
    fields = {name: options.pop(name) for name in ("engine", "tp", "pp", "dcp") if name in options}
    workload = Workload.decode(1, options.pop("context", 32768))
    answer = users(
        resolve(
            FitRequest(
                model, workload, kv_memory=memory, engine_args=options, traffic=traffic, **fields
            )
        )
    )
    assert answer is not None
    return answer


def numbers(answer: Users) -> tuple[int, int]:
    """Return the concurrent users on average and at worst."""
    assert answer.average is not None
    assert answer.worst is not None
    return int(answer.average), int(answer.worst)


# Arithmetic over the numbers


def test_users_of_4k_and_1k_are_counted_in_blocks() -> None:
    # 4,096 + 512 = 4,608 tokens are 288 blocks, 5,120 are 320; of 10,000 blocks one is never used:
    # 9,999 / 288 = 34.7 and 9,999 / 320 = 31.2
    assert numbers(users_of(Traffic(4096, 1024))) == (34, 31)


def test_a_shared_prefix_is_stored_once() -> None:
    # 2,048 tokens are 128 blocks: (9,999 - 128) / (288 - 128) = 61.7 and / (320 - 128) = 51.4
    answer = users_of(Traffic(4096, 1024, 2048))
    assert numbers(answer) == (61, 51)
    assert answer.shares_prefix


def test_only_whole_blocks_of_a_prefix_are_shared() -> None:
    # 15 more
    assert numbers(users_of(Traffic(4096, 1024, 2063))) == numbers(
        users_of(Traffic(4096, 1024, 2048))
    )


def test_the_last_token_of_a_prompt_is_computed_even_if_it_is_shared() -> None:
    # 4,096 shared tokens of a prompt of 4,096: a hit has at most 4,095, so 255 blocks of 256
    # (9,999 - 255) / (288 - 255) = 295.3 on average, but at most 256 sequences run on an unknown
    # device: 1,024
    assert numbers(users_of(Traffic(4096, 1024, 4096))) == (
        (9_999 - 255) // (288 - 255),
        (9_999 - 255) // (320 - 255),
    )


@pytest.mark.parametrize(
    ("prompt", "prefix", "shared"), [(9, 9, 8), (9, 8, 8), (9, 7, 7), (1, 1, 0)]
)
def test_all_but_the_last_token_of_a_prompt_may_be_shared(
    prompt: int, prefix: int, shared: int
) -> None:
    assert Traffic(prompt, 5, prefix).shared_tokens == shared
    assert Traffic(shared_prefix=prefix, lengths=(prompt + 3, prompt)).shared_tokens == shared


def test_half_of_an_odd_output_is_rounded_up() -> None:
    assert int(Traffic(100, 5).average_tokens) == 103


def test_lengths_are_equally_frequent() -> None:
    # mean (1,000 + 2,000 + 6,000) / 3 = 3,000 tokens, 188 blocks: 9,999 / 188 = 53.2; longest 375
    # blocks: 26.7
    answer = users_of(Traffic(lengths=(1000, 2000, 6000)))
    assert (int(answer.average_tokens), int(answer.worst_tokens)) == (3000, 6000)
    assert numbers(answer) == (53, 26)


def test_no_more_users_than_the_engine_runs() -> None:
    assert numbers(users_of(Traffic(4096, 1024), max_num_seqs=7)) == (7, 7)


def test_decode_context_parallel_devices_divide_a_shared_prefix() -> None:
    # dcp 2 with tp 16 (2 devices per KV head): a block has 32 tokens: 144 and 160 blocks, 64 of
    # them shared.
    # One of the 8 heads is on each device, so a block has an eighth of the bytes.
    answer = users_of(Traffic(4096, 1024, 2048), memory=BLOCKS * BLOCK // 8, tp=16, dcp=2)
    assert numbers(answer) == ((9_999 - 64) // (144 - 64), (9_999 - 64) // (160 - 64))


def test_a_window_behind_the_prefix_shares_nothing() -> None:
    """Gemma 3: 5 of 6 groups have windows of 1,024 tokens; at 4,608 tokens these hold no token of
    the first 2,048.
    """
    memory = 40 * 2**30
    alone, shared = (users_of(Traffic(4096, 1024, prefix), GEMMA, memory) for prefix in (0, 2048))
    # blocks of 16 tokens. Windows: ceil(4,608 / 16) + 1 = 289, full: 288; groups: 6 of windows, 1
    # full. Block: 1.25 MiB
    blocks, one = memory // (5 * 2**18) - 1, 6 * 289 + 288
    assert numbers(alone)[0] == blocks // one
    assert numbers(shared)[0] == (blocks - 128) // (one - 128)


def test_sglang_shares_whole_pages() -> None:
    # tokens instead of blocks: 160,000, pages of 1: 160,000 / 4,608 = 34.7; (160,000 - 2,048) /
    # 2,560 = 61.7
    assert numbers(users_of(Traffic(4096, 1024), engine="sglang")) == (34, 31)
    assert numbers(users_of(Traffic(4096, 1024, 2048), engine="sglang")) == (61, 51)
    assert (
        numbers(users_of(Traffic(4096, 1024, 2047), engine="sglang", block_size=64))[0]
        == (160_000 - 1984) // 2624
    )


def test_the_ideal_engine_counts_tokens() -> None:
    assert numbers(users_of(Traffic(4096, 1024), engine="ideal")) == (
        160_000 // 4608,
        160_000 // 5120,
    )


def test_llamacpp_reserves_the_context_of_each_slot() -> None:
    answer = users_of(Traffic(4096, 1024), engine="llamacpp", context=8192)
    assert numbers(answer) == (160_000 // 8192, 160_000 // 8192)
    assert answer.reserves_context
    shared = users_of(Traffic(4096, 1024), engine="llamacpp", context=8192, kv_unified=True)
    assert shared.average is not None
    assert shared.worst is not None
    assert shared.average > shared.worst > 19


# Properties

lengths = st.integers(1, 3000)


@given(
    lengths,
    st.integers(0, 3000),
    st.integers(0, 3000),
    st.sampled_from(["vllm", "sglang", "ideal"]),
)
def test_average_is_at_least_worst(prompt: int, output: int, prefix: int, engine: str) -> None:
    average, worst = numbers(
        users_of(Traffic(prompt, output, min(prefix, prompt)), engine=engine, context=6000)
    )
    assert average >= worst
    if output == 0:
        assert average == worst


@given(
    lengths,
    st.integers(0, 2000),
    lengths,
    st.sampled_from([QWEN, GEMMA, HYBRID]),
    st.sampled_from(["vllm", "sglang"]),
)
def test_a_shared_prefix_never_leaves_room_for_fewer(
    prompt: int, output: int, prefix: int, model: Any, engine: str
) -> None:
    if model is GEMMA and engine == "sglang":
        return
    memory = 20 * 2**30
    without = numbers(users_of(Traffic(prompt, output), model, memory, engine=engine, context=6000))
    shared = numbers(
        users_of(
            Traffic(prompt, output, min(prefix, prompt)), model, memory, engine=engine, context=6000
        )
    )
    assert all(after >= before for after, before in zip(shared, without, strict=True))


@given(lengths, st.integers(0, 3000))
def test_the_worst_case_is_the_largest_batch_of_that_context(prompt: int, output: int) -> None:
    traffic, total = Traffic(prompt, output), prompt + output
    largest = fit(FitRequest(QWEN, Workload.decode(1, total), kv_memory=BLOCKS * BLOCK)).max_batch
    assert users_of(traffic, context=total).worst == largest


@pytest.mark.parametrize(
    "options",
    [{"pp": 3, "tp": 1, "gpus": 3}, {"engine": "llamacpp", "gpus": 2}, {"reserve": 2**30}],
)
def test_users_fit_on_every_gpu(options: dict[str, Any]) -> None:
    """With pipeline stages or whole layers per GPU the fullest device decides, as for the largest
    batch.
    """
    request = FitRequest(
        QWEN, Workload.decode(1, 5120), gpu=gpu("rtx-4090"), traffic=Traffic(4096, 1024), **options
    )
    answer = users(resolve(request), "expected")
    assert answer is not None
    assert answer.worst == fit(request).max_batch != 0


# Prefix caching


def test_a_batch_stores_a_shared_prefix_once(ask: Ask) -> None:
    """8,000 tokens are 500 blocks, of which 250 have the 4,000 shared tokens.

    32.5 GiB are 26,600 blocks of 1.25 MiB on each GPU: (26,599 - 250) / 250 = 105.4 requests.
    """
    words = (
        "fit",
        "llama3.1-70b",
        "--gpu",
        "h100",
        "--tp",
        "4",
        "-c",
        "8000",
        "--shared-prefix",
        "4000",
    )
    document = ask(*words, "--json").document
    values = document["values"]
    assert (values["concurrent_worst"], values["max_batch_low"]) == (105, 105)
    verdicts = [
        ask(*words, "--batch", str(n), "--json").document["verdict"] for n in (64, 105, 106)
    ]
    assert verdicts == ["fits", "fits", "may_not_fit"]
    assert (
        ask(*words, "--batch", "64", "--no-enable-prefix-caching", "--json").document["verdict"]
        == "does_not_fit"
    )


@given(
    lengths, st.integers(0, 2000), lengths, st.sampled_from(["vllm", "sglang", "llamacpp", "ideal"])
)
def test_the_users_at_worst_are_the_largest_batch(
    prompt: int, output: int, prefix: int, engine: str
) -> None:
    traffic = Traffic(prompt, output, min(prefix, prompt))
    request = FitRequest(
        QWEN, Workload.decode(1, prompt + output), engine, kv_memory=BLOCKS * BLOCK, traffic=traffic
    )
    answer = users(resolve(request))
    assert answer is not None
    most = answer.worst
    assert most == fit(request).max_batch
    if most:
        assert [fit(request.with_workload(batch=int(most) + more)).fits for more in (0, 1)] == [
            True,
            False,
        ]


@each(
    ("options", "prompt", "output", "note"),
    [
        (["--shared-prefix", "1K"], 4096, 1024, "--prompt 4K and --output-len 1K are assumed."),
        (["--output-len", "500"], 4096, 500, "--prompt 4K is assumed."),
        (["--prompt", "2K"], 2048, 1024, "--output-len 1K is assumed."),
        (
            ["--shared-prefix", "1K", "-c", "8000"],
            6976,
            1024,
            "--prompt 6976 and --output-len 1K are assumed.",
        ),
        (["--output-len", "500", "-c", "8000"], 7500, 500, "--prompt 7500 is assumed."),
        (["--prompt", "7900", "-c", "8000"], 7900, 100, "--output-len 100 is assumed."),
    ],
)
def test_usual_lengths_are_assumed_and_named(
    ask: Ask, options: list[str], prompt: int, output: int, note: str
) -> None:
    """As in `plan`; in every format."""
    answer = ask(*FIT, *options, "--json").document
    assert (answer["users"]["prompt"], answer["users"]["output"]) == (prompt, output)
    assert note in answer["notes"]
    assert note in " ".join(ask(*FIT, *options).out.split())
    whole = {
        **dict(zip(options[::2], options[1::2], strict=True)),
        "--prompt": str(prompt),
        "--output-len": str(output),
    }
    for form in (["-q"], ["--format", "csv"], ["--get", "concurrent_worst"]):
        assert (
            ask(*FIT, *options, *form).out == ask(*FIT, *itertools.chain(*whole.items()), *form).out
        )


def test_without_prefix_caching_nothing_is_shared() -> None:
    for options in (
        {"prefix_caching": False},
        {"engine": "sglang", "prefix_caching": False},
        {"engine_version": "v0"},
    ):
        traffic = Traffic(4096, 1024, 2048)
        answer = users_of(traffic, **options)
        assert not answer.shares_prefix
        assert numbers(answer) == numbers(users_of(traffic._replace(shared_prefix=0), **options))


def test_each_request_has_states_of_its_own() -> None:
    """Qwen3-Next: a prefix shares the blocks of full attention only."""
    without, shared = (
        users_of(Traffic(4096, 0, prefix), HYBRID, 20 * 2**30) for prefix in (0, 4096)
    )
    assert shared.shares_prefix
    assert without.worst is not None
    assert shared.worst is not None
    assert without.worst < shared.worst < 10 * without.worst


# The command line

FIT = ("fit", "qwen3-8b", "--kv-memory", str(BLOCKS * BLOCK))


def test_the_screen_and_json_show_users(ask: Ask) -> None:
    screen = ask(*FIT, "--prompt", "4K", "--output-len", "1K", "--shared-prefix", "2K", "--full")
    assert screen.code == 0
    assert "users' requests: 4,096 + 1,024 tokens, 2,048 shared" in screen.out
    answer = ask(*FIT, "--prompt", "4K", "--output-len", "1K", "--json")
    assert (results(answer)["concurrent_average"], results(answer)["concurrent_worst"]) == (34, 31)
    facts = answer.document["users"]
    assert (facts["tokens_average"], facts["tokens_worst"], facts["shares_prefix"]) == (
        4608,
        5120,
        False,
    )


def test_users_only_set_the_context_of_other_figures(ask: Ask) -> None:
    """4,096 + 1,024 tokens are a context of 5K."""
    alone, with_users = (
        results(ask(*FIT, "-c", "5K", "--json")),
        results(ask(*FIT, "--prompt", "4K", "--output-len", "1K", "--json")),
    )
    assert alone["concurrent_average"] is None
    assert {
        name: value for name, value in with_users.items() if not name.startswith("concurrent_")
    } == {name: value for name, value in alone.items() if not name.startswith("concurrent_")}


def test_replicas_are_added_up(ask: Ask) -> None:
    answer = ask(
        "fit",
        "qwen3-8b",
        "--gpu",
        "h100",
        "--gpus",
        "4",
        "--tp",
        "1",
        "--prompt",
        "4K",
        "--output-len",
        "1K",
        "--json",
    )
    document = answer.document
    assert (
        document["users"]["concurrent_average_all_replicas"]
        == 4 * results(answer)["concurrent_average"]
    )


@each(("running", "note"), [(8, "--max-num-seqs 8 limits the users, not the memory."), (None, "")])
def test_a_limit_of_running_requests_is_named(ask: Ask, running: int | None, note: str) -> None:
    """An H100 holds some 80 requests of 5,120 tokens of Qwen3 8B at worst."""
    command = ["fit", "qwen3-8b", "--gpu", "h100", "--prompt", "4K", "--output-len", "1K"]
    if running:
        command += ["--max-num-seqs", str(running)]
    out = ask(*command).out
    assert note in out
    assert ("limits the users" in out) == bool(note)


def test_every_engine_has_a_row(ask: Ask) -> None:
    answer = ask(*FIT, "--prompt", "4K", "--output-len", "1K", "--engine", "all")
    assert answer.code == 0
    assert all(
        f"concurrent with {title}" in answer.out
        for title in ("vLLM", "SGLang", "llama.cpp", "ideal")
    )


def test_output_is_a_file(ask: Ask, tmp_path: Any) -> None:
    for name in ("--output", "-o"):
        file = tmp_path / f"{name}.json"
        assert ask(*FIT, "--prompt", "4K", "--output-len", "1K", name, str(file)).code == 0
        assert json.loads(file.read_text())["users"]["output"] == 1024


@each(
    ("options", "message"),
    [
        (["--output", "1K"], "--output 1K: --output is the file of the answer"),
        (["--prompt", "0", "--output-len", "5"], "--prompt: '0' is not a whole number"),
        (
            ["--prompt", "4K", "--output-len", "5", "--output-len", "5"],
            "--output-len is given twice",
        ),
        (
            ["--prompt", "4K", "--output", "5", "--output-len", "5"],
            "--output 5: --output is the file",
        ),
        (
            ["--prompt", "4K", "--output-len", "1K", "--lengths", "3"],
            "--lengths cannot be combined with --prompt",
        ),
        (["--lengths", "3,x"], "--lengths: 'x' is not a whole number"),
        (
            ["--prompt", "40K", "--output-len", "1K"],
            "have 41,984 tokens, more than the context of 40,960",
        ),
        (["--prompt", "4K", "--output-len", "1K", "-c", "5119"], "more than the context of 5,119"),
        (["--lengths", "9,6000", "-c", "5119"], "the longest of --lengths has 6,000 tokens"),
        (
            ["--prompt", "1K", "--output-len", "1", "--shared-prefix", "2K"],
            "is longer than --prompt, 1,024",
        ),
        (["--output", "a.json", "-o", "b.json"], "--output is given twice"),
        (["--prompt", "1" * 40, "--output-len", "1"], "is not a whole number from 1 to 10^30"),
    ],
)
def test_a_wrong_request_of_users_is_an_error(ask: Ask, options: list[str], message: str) -> None:
    error = ask(*FIT, *options, "--json").error  # which assumes nothing
    assert message in error


def test_a_request_is_checked_in_python_too() -> None:
    for traffic in (
        Traffic(),
        Traffic(-1, 5),
        Traffic(5, -1),
        Traffic(5, 5, -1),
        Traffic(5, 5, lengths=(5,)),
        Traffic(5, lengths=(5,)),
    ):
        with pytest.raises(AttncalcError):
            users_of(traffic)
    with pytest.raises(AttncalcError, match="--lengths cannot be combined with --prompt"):
        Traffic(output=5, lengths=(5,)).check(100)


@each(
    ("traffic", "message"),
    [
        (Traffic(1), None),
        (Traffic(10), None),
        (Traffic(4, 6), None),
        (Traffic(4, 6, 1), None),
        (Traffic(4, 6, 4), None),  # the whole prompt is shared
        (Traffic(shared_prefix=7, lengths=(9, 7, 10)), None),
        (Traffic(), "at least one token"),
        (Traffic(0, 5), "at least one token"),
        (Traffic(4, 6, 5), "--shared-prefix 5 is longer than --prompt, 4"),
        (
            Traffic(shared_prefix=8, lengths=(9, 7)),
            "--shared-prefix 8 is longer than the shortest of --lengths, 7",
        ),
        (
            Traffic(11),
            "--prompt and --output-len together have 11 tokens, more than the context of 10",
        ),
        (
            Traffic(4, 7),
            "--prompt and --output-len together have 11 tokens, more than the context of 10",
        ),
        (
            Traffic(lengths=(9, 11, 7)),
            "the longest of --lengths has 11 tokens, more than the context of 10",
        ),
    ],
)
def test_requests_have_up_to_as_many_tokens_as_the_context(
    traffic: Traffic, message: str | None
) -> None:
    if message is None:
        traffic.check(10)
        return
    assert message in refusal(traffic.check, 10).message
