"""`attncalc plan --measured`: a benchmark of one's own calibrates the estimates."""

import json
from pathlib import Path

import pytest
from asking import REPOSITORY, Ask
from tables import each

from attncalc import plan
from attncalc.questions.plan.measured import read_measured

# 640 requests of 2,048 + 512 tokens, 64 at a time, in 204.8 s: 640 x 512 / 204.8 = 1,600 tokens/s.
# The keys are those that vLLM 0.32 writes (vllm/benchmarks/serve.py).
BENCH = REPOSITORY / "tests" / "data" / "serving" / "vllm-bench-serve.json"
WORDS = ("plan", "qwen3-8b", "--prompt", "2K", "--output-len", "512", "--gpu", "h100")
TEXT = "users=64 prompt=2K output=512 tokens/s=1600"


@each(
    ("text", "split"),
    [
        (TEXT, {}),
        (f"{TEXT} gpu=h100 tp=2", {"tp": 2, "gpu": "h100"}),
        ("users=64, prompt=2048, output=512, tokens/s=1,600", {}),
        (str(BENCH), {}),
        (f"{BENCH} gpu=h100 tp=4 pp=2", {"tp": 4, "pp": 2, "gpu": "h100"}),
    ],
)
def test_a_benchmark_is_read_from_text_and_from_a_file(text: str, split: dict[str, object]) -> None:
    found = read_measured(text, "--measured")
    assert found[:4] == (64, 2048, 512, 1600)
    expected = {"gpu": "", "tp": 0, "pp": 1, "dp": 1, **split}
    assert {name: getattr(found, name) for name in expected} == expected


def test_without_a_concurrency_the_users_are_those_of_littles_law(tmp_path: Path) -> None:
    """3.125 requests/s that each take 0.9165 + 511 x 0.03826 s: 3.125 x 20.467 = 64."""
    document = {**json.loads(BENCH.read_text()), "max_concurrency": None}
    (tmp_path / "bench.json").write_text(json.dumps(document))
    assert read_measured(str(tmp_path / "bench.json"), "--measured").users == 64


def test_fewer_prompts_than_the_concurrency_are_the_users(tmp_path: Path) -> None:
    document = {**json.loads(BENCH.read_text()), "max_concurrency": 1000}
    (tmp_path / "bench.json").write_text(json.dumps(document))
    assert read_measured(str(tmp_path / "bench.json"), "--measured").users == 640


@each("measured", [TEXT, str(BENCH), f"{BENCH} tp=1"])
def test_the_load_that_was_measured_is_planned_with_the_measured_speed(
    ask: Ask, measured: str
) -> None:
    answer = ask(*WORDS, "--tp", "1", "--users", "64", "--measured", measured, "--json").document
    assert answer["values"]["tokens_per_second_estimate"] == pytest.approx(1600, rel=1e-6)
    assert answer["rows"][0]["published_runs"] is None
    assert answer["load"]["measured_gpu"] == "h100-80gb"
    assert answer["notes"][1].startswith(
        "Calibrated on h100-80gb (1 GPU): 1,600 tokens/s with 64 users of 2,048 + 512 tokens were "
        "measured, "
    )


def test_other_loads_and_splits_are_scaled_and_other_gpus_are_not(ask: Ask) -> None:
    words = (*WORDS[:-1], "h100,l40s", "--tp", "2", "--users", "30", "--json")
    before = ask(*words).document
    after = ask(*words, "--measured", f"{TEXT} gpu=h100").document
    scale = after["load"]["measured_scale"]
    assert scale < 1
    for of_before, of_after in zip(before["rows"], after["rows"], strict=True):
        expected = scale if of_before["gpu"] == "h100-80gb" else 1
        ratio = of_after["tokens_per_second_estimate"] / of_before["tokens_per_second_estimate"]
        assert ratio == pytest.approx(expected, rel=1e-5)


def test_a_slower_machine_needs_more_gpus(ask: Ask) -> None:
    words = (*WORDS, "--users", "500", "--tpot", "40ms", "--get", "gpus")
    published = int(ask(*words).out)
    assert int(ask(*words, "--measured", TEXT).out) > published


def test_the_benchmark_calibrates_in_python_too(ask: Ask) -> None:
    found = plan(
        "qwen3-8b", prompt="2K", output=512, gpu="h100", users=64, tp=1, measured=str(BENCH)
    )
    assert found.rows[0]["tokens_per_second_estimate"] == pytest.approx(1600, rel=1e-6)


@each(
    ("measured", "error", "tip"),
    [
        # an H100 reads 16.4 GB of weights 205 times per second: 64 users have 13,000 tokens/s
        (
            TEXT.replace("1600", "40000"),
            "--measured: 40,000 tokens/s exceed the upper bound of h100-80gb with 1 GPU, ",
            "check users, prompt and output, and name the split: tp=8",
        ),
        ("users=64 prompt=2K output=512", "--measured lacks tokens/s", "write 'users=64 "),
        ("users=64 tok=9", "--measured: 'tok=9' is not known", "write 'users=64 "),
        ("users=64 users=9", "--measured: users is given twice", "write 'users=64 "),
        ("users=0 prompt=2K output=512 tokens/s=9", "--measured: '0' is not", ""),
        ("users=1 prompt=2K output=512 tokens/s=0", "--measured: '0' is not", ""),
        ("no.json", "--measured: no.json: no such file", "write 'users=64 "),
        ("README.md", "--measured: README.md: not a JSON of 'vllm bench serve'", "write"),
        ("tests/data/serving/recipes.json", "--measured: tests/data/", "write"),
        (f"{BENCH} users=9", "--measured: the file has users", "write 'bench.json gpu=h100 tp=2'"),
        (f"{TEXT} gpu=l4", "--measured is of l4, which is not among the GPUs", "add it: --gpu l4"),
        (f"{TEXT} gpu=hal9000", "no GPU named 'hal9000'", ""),
        (f"{TEXT} tp=3", "", ""),
        (
            TEXT.replace("2K", "100K"),
            "--measured: context 102,912 is beyond the model's maximum of 40,960",
            "",
        ),
    ],
)
def test_a_benchmark_that_cannot_be_is_an_error(
    ask: Ask, measured: str, error: str, tip: str
) -> None:
    found = ask(*WORDS, "--users", "64", "--measured", measured).error.splitlines()
    assert len(found) == 2
    assert found[0].startswith(f"error: {error}")
    assert found[1].startswith(f"  tip: {tip}")


def test_a_split_that_does_not_fit_was_not_measured(ask: Ask) -> None:
    """141 GB of weights on an L4."""
    measured = "users=1 prompt=2K output=100 tokens/s=1 tp=1"
    words = ("plan", "llama3.1-70b", "--gpu", "l4", "--users", "5", "--measured", measured)
    error, tip = ask(*words).error.splitlines()
    assert error == "error: --measured: Llama 3.1/3.3 70B does not fit on l4 with 1 GPU"
    assert tip == "  tip: name the split that was measured: tp=8"


def test_a_file_that_lacks_a_figure_is_an_error(ask: Ask, tmp_path: Path) -> None:
    document = json.loads(BENCH.read_text())
    del document["output_throughput"]
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(document))
    error = ask(*WORDS, "--users", "64", "--measured", str(path)).error
    assert "'output_throughput' is not a number above 0" in error


def test_of_several_gpus_the_measured_one_is_named(ask: Ask) -> None:
    words = (*WORDS[:-1], "h100,l4", "--users", "64", "--measured")
    error, tip = ask(*words, str(BENCH)).error.splitlines()
    assert error == "error: --measured does not say on which GPU"
    assert tip == "  tip: add it, as gpu=h100-80gb"
    assert ask(*words, f"{BENCH} gpu=h100-80gb").code == 0


def test_a_benchmark_and_an_efficiency_exclude_each_other(ask: Ask) -> None:
    error = ask(*WORDS, "--users", "9", "--measured", TEXT, "--efficiency", "0.5").error
    assert error.startswith("error: --measured cannot be combined with --efficiency")
