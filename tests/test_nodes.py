"""Servers on several nodes: a command for each is printed, and each is read as the question."""

import shlex
from typing import Any

import pytest
from asking import Ask, results
from test_runtime import on, parts

from attncalc.serving.launch import launch_command

MIB = 2**20
# vllm-project/recipes, moonshotai/Kimi-K2.md, without its parsers.
KIMI = """vllm serve moonshotai/Kimi-K2-Instruct --port 8000 --served-model-name kimi-k2 \\
    --trust-remote-code --data-parallel-size 16 --data-parallel-size-local 8 \\
    --data-parallel-address $MASTER_IP --data-parallel-rpc-port $PORT --enable-expert-parallel \\
    --max-num-batched-tokens 8192 --max-num-seqs 256 --gpu-memory-utilization 0.85
vllm serve moonshotai/Kimi-K2-Instruct --headless --data-parallel-start-rank 8 --port 8000 \\
    --served-model-name kimi-k2 --trust-remote-code --data-parallel-size 16 \\
    --data-parallel-size-local 8 --data-parallel-address $MASTER_IP \\
    --data-parallel-rpc-port $PORT --enable-expert-parallel --max-num-batched-tokens 8192 \\
    --max-num-seqs 256 --gpu-memory-utilization 0.85
"""
WIDE = ("fit", "deepseek-v3", "--gpu", "16xh200", "--dp", "16", "--enable-expert-parallel")


def commands(model: str, gpu: str = "h200", **options: Any) -> list[str]:
    """Return the commands of the nodes."""
    command = launch_command(on(gpu, model, **options).resolved)
    return (command or "").splitlines()


def kimi(*options: str) -> tuple[str, ...]:
    split = ("--dp", "16", "--enable-expert-parallel", "--all2all-backend")
    limits = ("--max-num-batched-tokens", "8192", "--max-num-seqs", "256")
    asked = ("fit", "kimi-k2", "--gpu", "16xh200", *split, "allgather_reducescatter", *limits)
    return (*asked, "--gpu-memory-utilization", "0.85", *options)


@pytest.mark.parametrize("node", [0, 1])
def test_each_command_of_a_recipe_for_two_nodes_is_the_question(ask: Ask, node: int) -> None:
    first, second = KIMI.replace("\\\n", " ").splitlines()
    words = shlex.split((first, second)[node])
    read = ask("fit", "--gpu", "16xh200", "--json", "--", *words)
    assert results(read) == results(ask(*kimi("--data-parallel-size-local", "8", "--json")))
    assert "data-parallel" not in read.err
    assert "headless" not in read.err


def test_the_commands_of_two_nodes_may_be_pasted_together(ask: Ask) -> None:
    together = ask("fit", "--gpu", "16xh200", "--json", "--", KIMI)
    assert results(together) == results(ask(*kimi("--json")))


@pytest.mark.parametrize(
    ("first", "second"),
    [("-r 0", "-r 1"), ("", "-dpr 8"), ("-dpn 0", "-dpn 1"), ("", "--headless -dpr=8")],
)
def test_short_names_tell_nodes_apart(ask: Ask, first: str, second: str) -> None:
    command = "vllm serve qwen3-8b --max-model-len 8192"
    together = f"{command} {first}\n{command} {second}"
    asked = ("fit", "--gpu", "h100", "--json", "--")
    assert results(ask(*asked, together)) == results(ask(*asked, command))


def test_commands_that_differ_in_more_than_the_node_are_an_error(ask: Ask) -> None:
    other = KIMI.replace("--max-num-seqs 256", "--max-num-seqs 128", 1)
    error = ask("fit", "--gpu", "16xh200", "--", other).error
    assert "the commands of several lines start different servers: '128' and '256'" in error


def test_data_parallel_ranks_on_two_nodes_have_a_command_each() -> None:
    first, second = commands(
        "deepseek-v3", gpus=16, dp=16, enable_expert_parallel=True, version="0.33.0"
    )
    ranks = "--data-parallel-size 16 --data-parallel-size-local 8"
    address = "--data-parallel-address NODE_0 --data-parallel-rpc-port 13345"
    assert f"{ranks} {address} --enable-expert-parallel" in first
    own = "--data-parallel-start-rank 8 --headless"
    assert f"{ranks} {address} {own} --enable-expert-parallel" in second


def test_ranks_have_a_command_for_each_node_from_0_9_on(ask: Ask) -> None:
    """Before, vLLM has neither --data-parallel-size-local nor --headless."""
    for version, number in (("0.8.5", 1), ("0.9.0", 2)):
        asked = (*WIDE, "-c", "8192", "--engine-version", version, "--json")
        command = ask(*asked).document["launch_command"]
        assert len(command.splitlines()) == number
        again = ("fit", "--gpu", "16xh200", "--engine-version", version, "--json", "--", command)
        assert ask(*again).document["launch_command"] == command


def test_a_node_that_only_takes_requests_is_read(ask: Ask) -> None:
    """--data-parallel-size-local 0, in vLLM's guide of data parallelism."""
    asked = ("fit", "--gpu", "16xh200", "--json", "--")
    command = "vllm serve deepseek-ai/DeepSeek-V3 -dp 16"
    for option in ("--data-parallel-size-local 0", "-dpl 0"):
        assert results(ask(*asked, f"{command} {option}")) == results(ask(*asked, command))


def test_tensor_parallel_devices_on_two_nodes_have_a_command_each_from_0_11_1() -> None:
    options: dict[str, Any] = {"gpus": 16, "tp": 16, "gpu": "h100-80gb"}
    first, second = commands("llama3.1-405b", version="0.11.1", **options)
    assert first.endswith("--nnodes 2 --node-rank 0 --master-addr NODE_0")
    assert second.endswith("--nnodes 2 --node-rank 1 --master-addr NODE_0 --headless")
    (alone,) = commands("llama3.1-405b", version="0.11.0", **options)
    assert "--nnodes" not in alone  # Ray starts the workers


@pytest.mark.parametrize("options", [{"tp": 16}, {"tp": 8, "pp": 2}, {"tp": 16, "attn_dp": 16}])
def test_sglang_has_a_command_for_each_node(options: dict[str, Any]) -> None:
    given: dict[str, Any] = {"engine": "sglang", "gpus": 16, "version": "0.5.23", **options}
    first, second = commands("deepseek-v3", **given)
    assert first.endswith("--nnodes 2 --node-rank 0 --dist-init-addr NODE_0:13345")
    assert second == first.replace("--node-rank 0", "--node-rank 1")


def test_a_server_of_one_node_has_one_command() -> None:
    for dp in (1, 8):
        (alone,) = commands("deepseek-v3", gpus=8, dp=dp, tp=8 // dp, version="0.33.0")
        assert "NODE_0" not in alone


def test_the_screen_says_which_node_has_which_command(ask: Ask) -> None:
    asked = [word.replace("16", "32") for word in WIDE]
    screen = ask(*asked, "-c", "8192").out
    assert screen.count("# on node 0\n") == screen.count("# on node 1\n") == 1
    for node in (2, 3):
        own = f"--data-parallel-start-rank {8 * node} --headless"
        assert f"# on node {node} as on node 0, with {own}\n" in screen


def test_the_command_of_a_change_is_whole_for_the_first_node(ask: Ask) -> None:
    screen = ask("fit", "qwen3-next-80b-a3b", "--gpu", "rtx-4090", "--engine", "vllm").out
    assert screen.count("vllm serve") == 1
    assert "# on node 1 as on node 0, with --node-rank 1 --headless\n" in screen


def test_what_is_printed_for_two_nodes_is_read_back(ask: Ask) -> None:
    document = ask(*WIDE, "-c", "8192", "--json").document
    text = document["launch_command"]
    for command in (text, *text.splitlines()):
        again = ask("fit", "--gpu", "16xh200", "--json", "--", command).document
        same = ("verdict", "launch_command", "totals", "runtime")
        assert {name: again[name] for name in same} == {name: document[name] for name in same}


def test_nodes_with_fewer_ranks_exchange_tokens_over_rdma() -> None:
    """8 ranks are on one node, and with 4 of them on each of two nodes."""

    def buffers(**options: Any) -> int:
        given: dict[str, Any] = {"gpus": 8, "dp": 8, "enable_expert_parallel": True, **options}
        asked = on("h200", "deepseek-v3", version="0.33.0", **given)
        return int(parts(asked)["exchange"].expected)

    deepep = {"all2all_backend": "deepep_high_throughput"}
    assert buffers(**deepep) == 1024 * MIB
    assert buffers(**deepep, data_parallel_size_local=4) == 2048 * MIB


def test_a_node_has_no_more_ranks_than_there_are(ask: Ask) -> None:
    """vLLM: data_parallel_size_local (16) must be <= data_parallel_size (8)."""
    asked = ("fit", "qwen3-8b", "--gpu", "h200", "--dp", "8", "--data-parallel-size-local")
    assert "--data-parallel-size-local 16 is more than --dp 8" in ask(*asked, "16").error
    # changes with fewer ranks are no error, and `plan` chooses the ranks
    assert results(ask(*asked, "8", "--json"))["min_gpus"] == 1
    planned = ask("plan", "qwen3-8b", "--gpu", "h200", "--users", "5", *asked[-1:], "8")
    assert planned.code == 0


def test_replicas_of_sglang_that_fill_several_nodes_are_a_server_on_each(ask: Ask) -> None:
    """Two replicas of 8 GPUs are two nodes: SGLang starts no replicas of one server on two."""
    asked = ("fit", "deepseek-v3", "--gpu", "h200", "--engine", "sglang", "--tp", "8", "--dp")
    screen = ask(*asked, "2").out
    assert screen.count("python -m sglang.launch_server") == 2
    assert "# on node 1\n" in screen
    assert "--dp-size" not in screen
    screen = ask("fit", "qwen3-8b", "--gpu", "h200", "--engine", "sglang", "--dp", "32").out
    assert screen.count("--dp-size 8") == 2
    assert "# on node 3 as on node 0\n" in screen


def test_vllm_does_not_start_on_a_gpu_before_compute_capability_7(ask: Ask) -> None:
    answer = ask("fit", "gpt2", "--gpu", "gtx-1060-6gb", "--engine", "vllm")
    assert answer.code == 1
    assert answer.out.startswith(
        "DOES NOT START: vLLM needs a GPU of compute capability 7.0 or more: this one is\n  older."
    )
    # 6.1; without --engine it is llama.cpp
    assert "llama.cpp" in ask("fit", "gpt2", "--gpu", "p40").out
    assert ask("fit", "gpt2", "--gpu", "v100", "--engine", "vllm").code == 0  # 7.0


def test_sglang_does_not_start_on_a_gpu_before_compute_capability_7_5(ask: Ask) -> None:
    asked = ("fit", "gpt2", "--engine", "sglang", "--gpu")
    too_old = "DOES NOT START: SGLang needs a GPU of compute capability 7.5 or more"
    for gpu in ("gtx-1060-6gb", "v100"):  # 6.1 and 7.0
        answer = ask(*asked, gpu)
        assert answer.code == 1
        assert answer.out.startswith(too_old)
    assert ask(*asked, "t4").code == 0  # 7.5


def test_mtp_on_a_model_without_such_layers_is_a_warning(ask: Ask) -> None:
    method = ("--speculative-config", '{"method": "mtp"}')
    asked = ("--gpu", "8xh200", "--tp", "8", "--engine", "vllm", *method)
    warning = "warning: no layers for multi-token prediction are known of this model"
    assert warning in ask("fit", "qwen3-8b", *asked).out
    assert warning not in ask("fit", "glm-4.5-air", *asked).out


def test_an_option_of_the_engine_that_is_not_computed_is_said_to_be_so(ask: Ask) -> None:
    asked = ("fit", "gpt2", "--gpu", "h100", "--engine", "vllm")
    error = ask(*asked, "--attention-backend", "FLASHINFER").error
    assert error.startswith("error: --attention-backend of vLLM is not computed")
    # without --engine, that of the engine that has it computed
    chosen = ask(*asked[:-2], "--attention-backend", "triton").out
    assert "--engine sglang is chosen: vLLM's --attention-backend is not computed." in chosen
    other = ask(*asked, "--chunked-prefill-size", "4096").error
    assert other.startswith("error: --chunked-prefill-size has no effect on engine vllm")
