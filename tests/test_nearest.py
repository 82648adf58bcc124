"""What the command line does not have is one error with one tip, and never the answer to another
line.
"""

import pytest
from asking import Ask

from attncalc.questions import QUESTIONS


@pytest.mark.parametrize(
    ("line", "error", "tip"),
    [
        ("llama3-8b", "there is no command 'llama3-8b'", "did you mean 'attncalc kv llama3-8b'?"),
        (
            "Qwen/Qwen3-8B",
            "there is no command 'Qwen/Qwen3-8B'",
            "did you mean 'attncalc kv Qwen/Qwen3-8B'?",
        ),
        ("serve", "there is no command 'serve'", "known: kv, params"),
        ("run", "there is no command 'run'", "known: kv, params"),
        ("no-such-command", "there is no command 'no-such-command'", "known: kv, params"),
        ("mem", "there is no command 'mem'", "did you mean"),
        ("parms gpt2", "there is no command 'parms'", "did you mean 'attncalc params'?"),
        ("KV gpt2", "there is no command 'KV'", "did you mean 'attncalc kv'?"),
        ("version", "there is no command 'version'", "did you mean 'attncalc --version'?"),
        ("kv gpt2 --contxt 4", "no such option: --contxt", "did you mean '--context'?"),
        ("kv gpt2 --seq_lenn 4", "no such option: --seq_lenn", "did you mean '--context'?"),
        ("kv gpt2 --jobs 4", "no such option: --jobs", "'attncalc sweep' has it"),
        (
            "kv gpt2 --gpu-memory-utilization 0.9",
            "no such option: --gpu-memory-utilization",
            "have it",
        ),
        ("params gpt2 --plot x.png", "no such option: --plot", "have it"),
        ("kv gpt2 h100", "unexpected argument: h100", "'attncalc kv --help all' lists all options"),
        ("kv gpt2 --context 0", "--context: '0' is not a whole number", "write digits"),
        ("kv gpt2 -o kv.png", "no output format has the suffix '.png'", ""),
        ("compare --layers 32 --heads 32 --head-dim 128 -c 2048", "a model is required", ""),
        (
            "fit gpt2 --gpu h100 -- no-engine gpt2",
            "'no-engine gpt2' starts no engine",
            "after -- comes",
        ),
        (
            "fit --gpu l4 -- vllm serve Qwen/Qwen3-8B on h100",
            "unexpected word in the command: on",
            "the command is as",
        ),
        ("fit Qwen3-14B-Q6_K.gguf --gpu 16GB", "no preset named", "did you mean 'qwen3-14b:q6_k'?"),
        ("can a 3090 run llama3.1 8b", "there is no command 'can'", "known: kv"),
    ],
)
def test_a_line_that_is_not_understood_is_an_error_with_a_tip(
    ask: Ask, line: str, error: str, tip: str
) -> None:
    first, second = ask(*line.split()).error.splitlines()
    assert first.startswith(f"error: {error}")
    assert tip in second


@pytest.mark.parametrize("command", QUESTIONS)
def test_every_command_refuses_an_unknown_option_and_writes_nothing(ask: Ask, command: str) -> None:
    assert ask(command, "--no-such-option-at-all").error.startswith(
        "error: no such option: --no-such-option-at-all\n"
    )


def test_a_long_word_is_refused(ask: Ask) -> None:
    word = "a" * 1_000_000
    assert ask(word).error
    assert ask("kv", "gpt2", f"--{word}").error
    assert ask("kv", word).error
