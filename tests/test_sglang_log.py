"""What is read from the lines of a start-up log of SGLang: attncalc/logs/sglang.py."""

from typing import Any, NamedTuple

import pytest
from tables import each

from attncalc.engines.sglang.options import SglangArgs
from attncalc.engines.sglang.versions import RELEASES, SglangVersion, sglang_version
from attncalc.engines.switches import Switch
from attncalc.logs.sglang import figures_of, log_checks, read_log
from attncalc.logs.startup_log import Printed, StartupLog
from attncalc.units import GIB, dtype

CACHE = (
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1,000, K size: 2.82 GB, V size: 2.83 GB"
)


def log_of(*lines: str) -> StartupLog:
    log = read_log([*lines, CACHE])
    assert log
    return log


def budget(*lines: str) -> dict[str, str]:
    return {name: figure.text for name, figure in log_of(*lines).budget.items()}


def settings(arguments: str, *lines: str) -> dict[str, str]:
    return log_of(f"server_args=ServerArgs({arguments})", *lines).settings


@each(
    ("version", "arguments", "share"),
    [
        ("0.5.9", "attention_backend='aiter', mem_fraction_static=0.7225", "0.85"),  # 0.7225 / 0.85
        ("0.5.9", "attention_backend='aiter', mem_fraction_static=0.7224999999999999", "0.85"),
        ("0.5.9", "attention_backend='triton', mem_fraction_static=0.7225", "0.7225"),
        (
            "0.5.9",
            "attention_backend='aiter', mem_fraction_static=0.7225, context_length=8192",
            "0.7225",
        ),
        # multiplied after it is printed
        ("0.5.4", "attention_backend='aiter', mem_fraction_static=0.85", "0.85"),
    ],
)
def test_a_share_that_was_multiplied_for_aiter_is_read_as_given(
    version: str, arguments: str, share: str
) -> None:
    assert settings(arguments, f"sglang version {version}")["gpu_memory_utilization"] == share


def test_free_memory_is_the_least_of_all_ranks_and_the_rest_the_most() -> None:
    assert budget(
        "[TP0] Load weight begin. avail mem=22.76 GB",
        "[TP1] Load weight begin. avail mem=22.70 GB",
        "[TP0] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.37 GB, "
        "mem usage=14.39 GB.",
        "[TP1] Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.36 GB, "
        "mem usage=14.41 GB.",
        "[TP0] Memory pool end. avail mem=1.68 GB",
        "[TP1] Memory pool end. avail mem=1.70 GB",
        "[TP0] Capture cuda graph end. Time elapsed: 5.0 s. mem usage=0.30 GB. avail mem=1.38 GB.",
        "[TP1] Capture cuda graph end. Time elapsed: 5.0 s. mem usage=0.29 GB. avail mem=1.38 GB.",
    ) == {
        "free_memory": "22.70",
        "weights": "14.41",
        "after_weights": "8.37",
        "after_cache": "1.70",
        "cuda_graphs": "0.30",
    }


@pytest.mark.parametrize(
    ("end", "weights"),
    [
        ("avail mem=8.37 GB", "14.39"),  # before 0.4.4: 22.76 - 8.37
        ("avail mem=8.37 GB, mem usage=0.00 GB", "14.39"),
        ("avail mem=8.37 GB, mem usage=14.00 GB", "14.00"),
        ("avail mem=22.75 GB", "0.01"),
        ("avail mem=22.76 GB", None),
        ("avail mem=23.00 GB", None),
    ],
)
def test_weights_that_are_not_printed_are_what_the_free_memory_lost(
    end: str, weights: str | None
) -> None:
    found = budget("Load weight begin. avail mem=22.76 GB", f"Load weight end. type=Toy, {end}.")
    assert found.get("weights") == weights


def test_weights_need_both_figures_of_free_memory() -> None:
    assert budget("Load weight begin. avail mem=22.76 GB") == {"free_memory": "22.76"}
    assert budget("Load weight end. type=Toy, avail mem=8.37 GB.") == {"after_weights": "8.37"}


@each(
    ("arguments", "more", "name", "value"),
    [
        ("tp_size=4", "", "tp", "4"),
        ("max_running_requests=7", "", "max_running_requests", "7"),
        ("max_running_requests=None", "", "max_running_requests", None),
        ("chunked_prefill_size=2048", "", "chunked_prefill_size", "2048"),
        ("max_total_tokens=131072", "", "max_total_tokens", "131072"),
        ("chunked_prefill_size=-1", "", "chunked_prefill_size", None),
        ("max_mamba_cache_size=64", "", "max_mamba_cache_size", "64"),
        ("max_mamba_cache_size=None", "max_mamba_cache_size: 7", "max_mamba_cache_size", None),
        # the number that SGLang concludes is no argument
        (
            "tp_size=4",
            "max_total_num_tokens=1000, max_running_requests=62",
            "max_running_requests",
            None,
        ),
        (
            "max_running_requests=7",
            "max_total_num_tokens=1000, max_running_requests=62",
            "max_running_requests",
            "7",
        ),
        # ranks of attention: the option of 0.5.23, or replicas that share the experts
        ("attn_dp_size=4", "", "attn_dp", "4"),
        ("dcp_size=2", "", "dcp", "2"),
        ("dp_size=8, enable_dp_attention=True", "", "attn_dp", "8"),
        ("dp_size=8, enable_dp_attention=False", "", "attn_dp", None),
        ("attn_dp_size=4, dp_size=8, enable_dp_attention=True", "", "attn_dp", "4"),
        ("ep_size=8", "", "enable_expert_parallel", "True"),
        ("ep_size=2", "", "enable_expert_parallel", "True"),
        ("ep_size=1", "", "enable_expert_parallel", None),
        ("ep_size=0", "", "enable_expert_parallel", None),
        ("tp_size=8", "", "enable_expert_parallel", None),
        ("kv_cache_dtype='fp4_e2m1'", "", "kv_dtype", "fp4"),
        ("kv_cache_dtype='fp8_e4m3'", "", "kv_dtype", "fp8_e4m3"),
        ("kv_cache_dtype='auto'", "Using KV cache dtype: torch.bfloat16", "kv_dtype", "bfloat16"),
        ("quantization='fp8'", "", "weights_dtype", "fp8"),
        ("quantization='w8a8_int8'", "", "weights_dtype", "int8"),
        ("quantization='awq_marlin'", "", "weights_dtype", "int4"),
        ("quantization='gptq'", "", "weights_dtype", "int4"),
        ("quantization='modelopt_fp4'", "", "weights_dtype", None),
        ("quantization=None", "", "weights_dtype", None),
    ],
)
def test_settings_are_the_arguments_of_the_server(
    arguments: str, more: str, name: str, value: str | None
) -> None:
    assert settings(arguments, f"mem {more}").get(name) == value


def test_arguments_are_read_up_to_a_limit_and_only_after_their_name() -> None:
    far = "x" * 29_900
    assert settings(f"a='{far}', max_running_requests=7")["max_running_requests"] == "7"
    assert "max_running_requests" not in settings(f"a='{far}{far}', max_running_requests=7")
    name = ", max_running_requests="
    for length, found in ((30_000 - len(name) - 1, "7"), (30_000 - len(name), None)):
        assert (
            log_of("mem ServerArgs(" + "x" * length + f"{name}7)").settings.get(
                "max_running_requests"
            )
            == found
        )
    # a line of the same name before the arguments ends nothing
    log = read_log(["mem max_total_num_tokens=?", "mem ServerArgs(max_running_requests=7)", CACHE])
    assert log
    assert log.settings["max_running_requests"] == "7"
    log = read_log(["ServerArgs(max_running_requests=7)", CACHE])
    assert log
    assert log.settings["max_running_requests"] == "7"
    log = read_log(["memory max_running_requests=7", CACHE])
    assert log
    assert "max_running_requests" not in log.settings


def test_figures_of_each_pool_are_those_of_its_first_line() -> None:
    figures = figures_of(
        " ".join(
            [
                "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 5,004, K size: 0.11 "
                "GB, V size: 0.12 GB",
                "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4003, K size: 0.09 "
                "GB, V size: 0.08 GB",
                "Full KV Cache is allocated. dtype: torch.bfloat16, #tokens: 7, K size: 0.01 GB, "
                "V size: 0.01 GB",
                "Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, "
                "ssm_state size: 4.38GB",
                "max_total_num_tokens=5004, ...",
            ]
        )
    )
    assert {name: figure.text for name, figure in figures.items()} == {
        "full_kv_tokens": "5004",
        "full_k_size": "0.11",
        "full_v_size": "0.12",
        "swa_kv_tokens": "4003",
        "swa_k_size": "0.09",
        "swa_v_size": "0.08",
        "state_slots": "186",
        "conv_state_size": "0.10",
        "ssm_state_size": "4.38",
    }


def test_figures_are_printed_with_their_lines() -> None:
    pool = (
        "SWA KV Cache is allocated. dtype: torch.bfloat16, #tokens: 4003, K size: 0.09 GB, V "
        "size: 0.08 GB"
    )
    states = (
        "Mamba Cache is allocated. max_mamba_cache_size: 186, conv_state size: 0.10GB, ssm_state "
        "size: 4.38GB"
    )
    figures = figures_of(f"{pool} {states}")
    assert {name: figure.line for name, figure in figures.items()} == {
        "swa_kv_tokens": pool,
        "swa_k_size": "K size: 0.09 GB",
        "swa_v_size": "V size: 0.08 GB",
        "state_slots": states,
        "conv_state_size": "conv_state size: 0.10GB",
        "ssm_state_size": "ssm_state size: 4.38GB",
    }


def test_the_number_of_tokens_is_that_of_the_pool_if_it_is_printed() -> None:
    def tokens(*lines: str) -> str:
        return figures_of(" ".join(lines))["kv_tokens"].text

    assert (
        tokens("KV Cache is allocated. #tokens: 1000, KV size: 7.51 GB", "max_total_num_tokens=999")
        == "1000"
    )
    # old versions print only the number of all ranks, of which the least applies
    assert (
        tokens(
            "KV Cache is allocated. K size: 7.51 GB",
            "max_total_num_tokens=999",
            "max_total_num_tokens=998",
        )
        == "998"
    )
    assert (
        figures_of("KV Cache is allocated. #tokens: 1000, KV size: 7.51 GB")["kv_size"].text
        == "7.51"
    )
    assert figures_of("weights") == {}


@pytest.mark.parametrize(
    ("lines", "kind", "where"),
    [
        (["Not enough memory. Please try to increase --mem-fraction-static."], "no_memory", ""),
        (["Not enough memory; Please try to increase --mem-fraction-static.", CACHE], None, ""),
        (["CUDA out of memory"], "out_of_memory", ""),
        ([CACHE, "torch.OutOfMemoryError: CUDA out of memory"], "out_of_memory", "graphs"),
        ([CACHE], None, ""),
    ],
)
def test_why_it_did_not_start(lines: list[str], kind: str | None, where: str) -> None:
    log = read_log(lines)
    assert log
    assert (log.refusal.kind if log.refusal else None) == kind
    assert (log.refusal.where if log.refusal else "") == where


def test_releases_are_those_whose_lines_the_log_may_have() -> None:
    """`mem usage` is printed from 0.4.4 on; attn_dp_size is an argument from 0.5.22 on."""
    end = "Load weight end. type=Qwen2ForCausalLM, dtype=torch.bfloat16, avail mem=8.37 GB"
    graphs = "Capture cuda graph end. Time elapsed: 5.0 s. mem usage=0.30 GB. avail mem=1.38 GB."
    assert log_of().releases == RELEASES
    assert log_of(f"{end}, mem usage=14.39 GB.").releases == RELEASES
    assert log_of(f"{end}.", f"[TP0] {graphs}").releases == ("0.4.0", "0.3.6")
    assert log_of("ServerArgs(attn_dp_size=1)").releases == ("0.5.23", "0.5.22")
    assert log_of("sglang version 0.5.9", f"{end}.").releases == ()


def test_releases_have_every_combination_of_behaviours() -> None:
    """A version between two of them behaves as the older one."""
    switches = [switch for switch in vars(SglangVersion).values() if isinstance(switch, Switch)]
    firsts = {first for switch in switches for first in switch.steps} - {
        (),
        (0, 5, 2),  # of a refusal, which the log of a start does not show
        (0, 5, 21),
        (0, 5, 22),
    }  # for which 0.5.23 stands
    # 0.4.0 stands for 0.4
    assert firsts <= {sglang_version(name).number for name in RELEASES} | {(0, 4)}


def test_a_log_without_a_cache_or_a_message_is_none() -> None:
    assert read_log([]) is None
    assert read_log(["avail mem=22.76 GB"]) is None
    log = log_of(
        "server_args=ServerArgs(model_path='a/b', disable_hybrid_swa_memory=True)",
        "sglang version 0.5.9",
    )
    assert (log.engine, log.model, log.version) == ("sglang", "a/b", "0.5.9")
    assert log.flags == {"disable_hybrid_swa_memory"}
    assert log_of("ServerArgs(disable_hybrid_swa_memory=False)").flags == frozenset()


class Tokens(NamedTuple):
    """A layout of tokens of 1 MB; its pools have `part` percent of the memory that is divided."""

    memory: int = 0
    part: int = 100

    def pool(self, memory: int, context: int) -> "Tokens":
        return self._replace(memory=memory)

    def figure(self, name: str) -> int:
        return self.memory // 10**6

    @property
    def log_lines(self) -> tuple[str, ...]:
        half = self.memory * self.part / 200 / GIB
        return (
            f"KV Cache is allocated. #tokens: {self.figure('')}, K size: {half:.2f} GB, V size: "
            f"{half:.2f} GB",
        )


@each(
    ("tokens", "agrees"),
    [(10_737, True), (10_732, True), (10_742, True), (10_730, False), (10_744, False)],
)
def test_tokens_agree_within_the_rounding_of_the_printed_memory(tokens: int, agrees: bool) -> None:
    """10.00 GB are 2^30 x 9.995 to 10.005 B, which hold 10,732 to 10,742 tokens of 1 MB."""
    lines = f"KV Cache is allocated. #tokens: {tokens}, K size: 5.00 GB, V size: 5.00 GB"
    log = read_log([lines])
    assert log
    log = log._replace(available=(Printed("10.00", "available_bytes=10.00 GB", unit=GIB),))
    layout: Any = Tokens()
    _, checks = log_checks(
        log, layout, SglangArgs(kv_dtype=dtype("bf16"), dtype=dtype("bf16")), 4096
    )
    assert next(check.ok for check in checks if check.name == "kv_tokens") == agrees


@each(("part", "is_printed"), [(98, True), (101, True), (103, False)])
def test_pools_that_are_larger_than_what_was_divided_are_not_the_memory(
    part: int, is_printed: bool
) -> None:
    """10,000 tokens of 1 MB are 9.31 GiB. A log's pools of 9.00 GiB are that memory, unless 2 %
    more are predicted.
    """
    log = read_log(["KV Cache is allocated. #tokens: 10000, K size: 4.50 GB, V size: 4.50 GB"])
    assert log
    layout: Any = Tokens(part=part)
    memory, _ = log_checks(
        log, layout, SglangArgs(kv_dtype=dtype("bf16"), dtype=dtype("bf16")), 4096
    )
    assert memory
    assert memory.printed == (9 * GIB if is_printed else 10**10)
