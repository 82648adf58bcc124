"""Data and expert parallelism: the weights, the cache and the GPUs of one data-parallel rank."""

import dataclasses
from typing import Any

import pytest
from asking import Ask, results
from hypothesis import given
from hypothesis import strategies as st

from attncalc import AttncalcError, Workload, load
from attncalc.checkpoint import CheckpointWeights, StoredDtype
from attncalc.config.gpus import gpu
from attncalc.cost.flops import flops
from attncalc.cost.params import params
from attncalc.engines.expert_parallel import divide_experts, divide_for_attention
from attncalc.mlp import Mlp
from attncalc.model import ModelSpec
from attncalc.serving.fit import fit
from attncalc.serving.launch import launch_command
from attncalc.serving.memory_budget import memory_budget
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import GIB

DEEPSEEK, MIXTRAL, LLAMA = load("deepseek-v3"), load("mixtral-8x7b"), load("llama3-8b")
# Parameters of one expert of DeepSeek-V3: 58 layers have 256 of them, one shared expert and a
# router.
EXPERT = 3 * 7168 * 2048


def on_device(model: ModelSpec, tp: int = 1, dp: int = 1, *, expert_parallel: bool = True) -> int:
    """Return the parameters on one device."""
    return int(
        params(divide_experts(model, tp, dp, expert_parallel=expert_parallel).shard(tp)).total
    )


def request(model: ModelSpec, gpus: int = 8, **options: Any) -> FitRequest:
    """Return a request for H200 GPUs with a context of 4,096."""
    return FitRequest(model, Workload.decode(1, 4096), gpu=gpu("h200"), gpus=gpus, **options)


def with_mlp(model: ModelSpec, **changes: Any) -> ModelSpec:
    """Return the model with fields of its mixtures of experts changed."""
    (stack,) = model.stacks
    layers = tuple(
        dataclasses.replace(run, mlp=dataclasses.replace(run.mlp, **changes)) if run.mlp else run
        for run in stack.layers
    )
    return dataclasses.replace(model, stacks=(dataclasses.replace(stack, layers=layers),))


def test_each_rank_has_attention_and_its_part_of_the_experts() -> None:
    """vLLM's example: DeepSeek-V3 with --data-parallel-size 8 --enable-expert-parallel: 256 / 8 =
    32 experts a rank.
    """
    whole = int(params(DEEPSEEK).total)
    assert on_device(DEEPSEEK, dp=8) == whole - 58 * (256 - 32) * EXPERT


def test_redundant_experts_are_held_as_experts_are() -> None:
    """32 copies on 16 ranks are (256 + 32) / 16 = 18 experts on each, and not 16."""
    divided = divide_experts(DEEPSEEK, 1, 16, expert_parallel=True, redundant=32)
    more = int(params(divided.shard(1)).total) - on_device(DEEPSEEK, dp=16)
    assert more == 58 * 2 * EXPERT
    mlp = divided.main.layers[-1].mlp
    assert mlp is not None
    assert (mlp.n_experts, mlp.n_routed) == (18, 256)  # the router knows no copies


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_copies_of_experts_take_weights_of_each_gpu(ask: Ask, engine: str) -> None:
    split = {"vllm": ("--dp", "8"), "sglang": ("--attn-dp", "8", "--tp", "8")}[engine]
    asked = ("fit", "deepseek-v3", "--gpu", "8xh200", "--engine", engine, *split, "--json")
    asked = (*asked, "--enable-expert-parallel", "-c", "8192", "--enable-eplb")
    without = results(ask(*asked))["weights_model"]
    with_copies = results(ask(*asked, "--num-redundant-experts", "32"))["weights_model"]
    # fp8 has 4 bytes of scale per block of 128 x 128
    assert with_copies - without == pytest.approx(58 * 4 * EXPERT * (1 + 4 / 128**2), rel=0.001)


def test_eplb_holds_the_experts_of_one_layer(ask: Ask) -> None:
    """expert_buffer is as large as the experts of the first layer: 32 of 44 MB on 8 ranks.

    Its window has 1,000 steps x 58 layers x 256 experts x 4 bytes. Up to 0.26 vLLM counts neither.
    """

    def more(version: str) -> int:
        asked = (*FIT, *FEW, "--dp", "8", "--enable-expert-parallel", "--engine-version", version)
        found = [ask(*asked, *eplb, "--json").document for eplb in ((), ("--enable-eplb",))]
        sizes = [
            sum(part["expected"] for part in one["runtime"] if part["in_share"]) for one in found
        ]
        return int(sizes[1] - sizes[0])

    assert more("0.33.0") == pytest.approx(32 * EXPERT + 1000 * 58 * 256 * 4, rel=0.001)
    assert more("0.26.0") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--num-redundant-experts", "32"], "needs --enable-expert-parallel"),
        (
            ["--num-redundant-experts", "33", "--enable-expert-parallel", "--enable-eplb"],
            "8 devices do not divide the 289 experts",
        ),
    ],
)
def test_copies_that_cannot_be_divided_are_an_error(
    ask: Ask, words: list[str], message: str
) -> None:
    assert message in ask(*FIT, "--dp", "8", *words).error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["qwen3-30b-a3b", "--engine", "llamacpp"], "has no effect on engine llamacpp"),
        (["qwen3-8b"], "needs a mixture of experts, which this model is not"),
    ],
)
def test_copies_that_are_not_possible_are_not_asked_for_whole_experts(
    ask: Ask, words: list[str], message: str
) -> None:
    error = ask("fit", *words, "--gpu", "h100", "--num-redundant-experts", "8").error
    assert f"--num-redundant-experts {message}" in error


@pytest.mark.parametrize(
    ("words", "reason", "tip"),
    [
        (
            ["--dp", "8", "--enable-expert-parallel", "--num-redundant-experts", "32"],
            "redundant experts need --enable-eplb",
            "Add --enable-eplb.",
        ),
        (
            ["--dp", "8", "--enable-eplb"],
            "--enable-eplb needs --enable-expert-parallel",
            "Add --enable-expert-parallel, or leave --enable-eplb out.",
        ),
    ],
)
def test_vllm_does_not_start_with_copies_that_it_cannot_move(
    ask: Ask, words: list[str], reason: str, tip: str
) -> None:
    """_validate_parallel_config in config/parallel.py."""
    refused = ask(*FIT, *words)
    assert refused.code == 1
    screen = " ".join(refused.out.split())
    assert f"DOES NOT START: {reason}." in screen
    assert f"vLLM does not start. {tip}" in " ".join((refused.out + refused.err).split())


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.10.1", "--num-redundant-experts 32"),
        ("0.33.0", """--eplb-config '{"num_redundant_experts": 32}'"""),
    ],
)
def test_the_command_has_copies_as_the_version_reads_them(version: str, words: str) -> None:
    args = {"num_redundant_experts": 32, "enable_eplb": True, "engine_version": version}
    asked = request(DEEPSEEK, dp=8, enable_expert_parallel=True, engine_args=args)
    command = launch_command(resolve(asked)) or ""
    assert f"--enable-expert-parallel --enable-eplb {words}" in command


def test_sglang_exchanges_tokens_between_whole_experts(ask: Ask) -> None:
    """--moe-a2a-backend sets --ep-size to --tp-size, and each GPU has whole shared experts
    (moe_hook.py, models/deepseek_v2.py).
    """
    asked = ("fit", "deepseek-v3", "--gpu", "8xh200", "--engine", "sglang", "--json", "-c", "8192")
    divided = results(ask(*asked, "--enable-expert-parallel"))["weights_model"]
    exchanged = ask(*asked, "--moe-a2a-backend", "deepep")
    assert exchanged.document["expert_parallel"] is True
    more = results(exchanged)["weights_model"] - divided
    assert more == pytest.approx(58 * EXPERT * (1 + 4 / 128**2) * 7 / 8, rel=0.001)


def test_without_expert_parallelism_ranks_divide_the_width_of_each_expert() -> None:
    whole = int(params(DEEPSEEK).total)
    assert on_device(DEEPSEEK, dp=8, expert_parallel=False) == whole - 58 * 256 * EXPERT * 7 // 8


def test_a_rank_computes_as_many_pairs_of_token_and_expert_as_without_others() -> None:
    # 8 ranks with a token each: 8 x the pairs, of which each computes an eighth
    divided = divide_experts(MIXTRAL, 1, 8, expert_parallel=True)
    alone, ranks = (flops(model, Workload.decode(1, 4096)) for model in (MIXTRAL, divided))
    assert int(ranks.total) == int(alone.total)


def test_experts_that_do_not_divide_are_rounded_up() -> None:
    """determine_expert_map gives the first ranks one expert more: 8 experts on 3 ranks are 3, 3 and
    2.
    """
    expert = 3 * 4096 * 14336
    assert on_device(MIXTRAL, dp=3) == int(params(MIXTRAL).total) - 32 * (8 - 3) * expert


def test_the_router_knows_all_experts() -> None:
    divided = divide_experts(MIXTRAL, 1, 8, expert_parallel=True)
    assert divided.main.layers[0].mlp is not None
    (router,) = divided.main.layers[0].mlp.router(4096)
    assert (router.rows, router.cols) == (4096, 8)


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("model", [DEEPSEEK, MIXTRAL])
def test_whole_experts_take_as_much_as_parts_of_all(model: ModelSpec, tp: int) -> None:
    assert on_device(model, tp) == int(params(model.shard(tp)).total)


def test_tensor_parallel_ranks_replicate_shared_experts_between_data_parallel_ranks() -> None:
    """use_sequence_parallel_moe: with tp 2 and dp 4 the shared expert of 58 layers is whole on each
    device.
    """
    apart = on_device(DEEPSEEK, 2, 4) - on_device(DEEPSEEK, 2, 4, expert_parallel=False)
    assert apart == 58 * EXPERT // 2


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]), st.booleans())
def test_more_ranks_never_hold_more(tp: int, dp: int, expert_parallel: bool) -> None:
    at_dp = on_device(DEEPSEEK, tp, dp, expert_parallel=expert_parallel)
    assert at_dp >= on_device(DEEPSEEK, tp, 2 * dp, expert_parallel=expert_parallel) - (
        58 * EXPERT if dp == 1 else 0
    )
    # all devices together have the model
    assert at_dp * tp * dp >= int(params(DEEPSEEK).total) * 99 // 100


def test_files_are_divided_as_the_parameters_are() -> None:
    count = int(params(MIXTRAL).total)
    stored = dataclasses.replace(
        MIXTRAL, stored=CheckpointWeights(1, 1, (StoredDtype("BF16", count, 2 * count),), 2 * count)
    )
    for dp, tp in ((8, 1), (4, 2), (2, 1)):
        budget = fit(
            request(stored, gpus=dp * tp, tp=tp, dp=dp, enable_expert_parallel=True)
        ).budget
        assert budget.weights is not None
        # rope tables, which files do not have
        extra = sum(int(part.size) for part in budget.weights.extra)
        assert 0 <= int(budget.weights.total) - extra - 2 * on_device(MIXTRAL, tp, dp) <= 2


def test_a_model_without_experts_is_unchanged() -> None:
    assert divide_experts(LLAMA, 2, 4, expert_parallel=False) is LLAMA
    two = fit(request(LLAMA, dp=4, tp=2))
    assert two.resolved.replicas == 4
    assert two.pool.tokens == fit(request(LLAMA, tp=2)).pool.tokens


def test_a_mixture_may_have_its_shared_experts_width() -> None:
    wide = with_mlp(MIXTRAL, d_ff_shared=1024)
    shared = 32 * 3 * 4096 * 1024
    assert on_device(wide, 2, 1) - on_device(MIXTRAL, 2, 1) == shared // 2
    with pytest.raises(AttncalcError, match="width of the shared experts"):
        on_device(with_mlp(MIXTRAL, d_ff_shared=1023), 2, 1)


def test_gpus_are_divided_by_ranks() -> None:
    for options, tp in (({"dp": 8}, 1), ({"dp": 4}, 2), ({"dp": 2, "pp": 2}, 2)):
        assert resolve(request(MIXTRAL, enable_expert_parallel=True, **options)).args.tp == tp
    assert resolve(dataclasses.replace(request(MIXTRAL, tp=2, dp=2), gpus=None)).gpus == 4


def test_an_expert_mlp_may_have_fewer_experts_than_a_token_uses() -> None:
    """DeepSeek-V3 on 64 ranks: 4 experts on each, and a token uses 8."""
    divided = divide_experts(DEEPSEEK, 1, 64, expert_parallel=True)
    mlp = divided.main.layers[-1].mlp
    assert isinstance(mlp, Mlp)
    assert (mlp.n_experts, mlp.n_experts_per_token) == (4, 8)


# The command line

FIT = ("fit", "deepseek-v3", "--gpu", "8xh200", "-c", "32k")
FEW = ("--max-num-batched-tokens", "2048", "--max-num-seqs", "256")


def test_the_screen_adds_the_ranks_up(ask: Ask) -> None:
    ranks = ask(*FIT, *FEW, "--dp", "8", "--enable-expert-parallel", "--full")
    assert ranks.code == 0
    text = " ".join(ranks.out.split())
    assert "at most 32 of 256 experts" in text
    document = ask(*FIT, *FEW, "--dp", "8", "--enable-expert-parallel", "--json").document
    assert (document["dp"], document["tp"], document["expert_parallel"], document["replicas"]) == (
        8,
        1,
        True,
        8,
    )
    in_all = document["totals"]["max_batch"]  # as the table says, and not 8 x 9.94
    assert in_all == 8 * 9
    assert f"All ranks together hold {in_all} concurrent requests" in text


def test_a_latent_model_says_what_dp_attention_would_give(ask: Ask) -> None:
    text = " ".join(ask(*FIT, *FEW, "--full").out.split())
    ranks = results(ask(*FIT, *FEW, "--dp", "8", "--enable-expert-parallel", "--json"))
    assert "Copies of the latents on the other 7 GPUs" in text
    assert (
        f"would give {8 * ranks['max_batch']} concurrent requests on all GPUs instead of 21."
        in text
    )
    # it is on the default screen, since it may change a decision
    assert "DP attention (--tp 1 --dp 8 --enable-expert-parallel) would give" in " ".join(
        ask(*FIT, *FEW).out.split()
    )
    assert "DP attention (--tp 8 --attn-dp 8) would give" in " ".join(
        ask(*FIT, "--engine", "sglang").out.split()
    )
    assert "would give" not in ask(*FIT, *FEW, "--dp", "8", "--enable-expert-parallel").out


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_latent_model_says_what_dcp_would_give(ask: Ask, engine: str) -> None:
    asked = (*FIT, "--engine", engine)
    divided = results(ask(*asked, "--dcp", "8", "--json"))
    assert f"--dcp 8 would give {divided['max_batch']} concurrent requests." in " ".join(
        ask(*asked).out.split()
    )
    with_dcp = " ".join(ask(*asked, "--dcp", "8", "--full").out.split())
    assert "would give" not in with_dcp
    assert "Copies of the latents" not in with_dcp
    # the tokens without it are those of the request without it
    assert divided["kv_tokens_without_dcp"] == results(ask(*asked, "--json"))["kv_tokens"]
    assert "x by --dcp" in with_dcp


def test_half_of_the_gpus_that_divide_the_tokens_leave_half_as_many_copies(ask: Ask) -> None:
    assert "Copies of the latents on the other 4 GPUs" in " ".join(
        ask(*FIT, "--dcp", "4", "--full").out.split()
    )


# DP attention of SGLang


def on_sglang_device(
    model: ModelSpec, tp: int, ranks: int, *, expert_parallel: bool = False
) -> int:
    """Return the parameters on one device."""
    divided = divide_for_attention(model, tp, ranks, expert_parallel=expert_parallel)
    return int(params(divided.shard(tp // ranks)).total)


@pytest.mark.parametrize("expert_parallel", [False, True])
def test_ranks_of_attention_divide_mlps_and_the_head(*, expert_parallel: bool) -> None:
    """With 8 ranks on 8 GPUs each has attention, the embedding, norms and routers; all else is an
    eighth.
    """
    dense, shared_and_routed, head = 3 * 3 * 7168 * 18432, 58 * 257 * EXPERT, 129280 * 7168
    whole = int(params(DEEPSEEK).total)
    here = on_sglang_device(DEEPSEEK, 8, 8, expert_parallel=expert_parallel)
    assert here == whole - (dense + shared_and_routed + head) * 7 // 8


def test_weights_with_dp_attention_are_as_logged() -> None:
    """sgl-project/sglang#6017: 105.59 GB of DeepSeek-V3 on 8 H200 with DeepEP, which replicates
    more.

    DeepEP has the shared expert on each device, its command 32 redundant experts (4 per device),
    --moe-dense-tp-size 1 (the 3 dense layers on each device) and --enable-dp-lm-head, which are not
    computed.
    """
    args = {"moe_a2a_backend": "deepep", "num_redundant_experts": 32}
    asked = request(DEEPSEEK, engine="sglang", attn_dp=8, engine_args=args)
    budget = memory_budget(resolve(asked))
    assert budget.weights
    dense, head = 3 * 3 * 7168 * 18432 * 7 / 8, 129280 * 7168 * 2 * 7 / 8
    deep_ep = int(budget.weights.total) + dense + head
    assert deep_ep / GIB == pytest.approx(105.59, abs=0.25)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]), st.booleans())
def test_more_ranks_of_attention_take_more_on_each_device(
    ranks: int, tp: int, expert_parallel: bool
) -> None:
    if tp % ranks or ranks == tp == 1:
        return
    here = on_sglang_device(DEEPSEEK, tp, ranks, expert_parallel=expert_parallel)
    assert here >= int(params(DEEPSEEK.shard(tp)).total)
    assert (here > int(params(DEEPSEEK.shard(tp)).total)) == (ranks > 1)


def test_each_rank_of_attention_has_a_cache_of_its_own(ask: Ask) -> None:
    command = ("fit", "deepseek-v3", "--gpu", "8xh200", "--engine", "sglang", "--json")
    document = ask(*command, "--attn-dp", "4").document
    assert (document["attn_dp"], document["tp"], document["replicas"]) == (4, 8, 4)
    by_name = {result["name"]: result["value"] for result in document["results"]}
    assert document["totals"]["kv_tokens"] == 4 * by_name["kv_tokens"]
    assert document == ask(*command, "--dp", "4", "--tp", "8", "--enable-dp-attention").document
    # 2 GPUs of a rank store copies of its latent: a token takes as much as without tensor
    # parallelism
    assert by_name["kv_bytes_per_sequence"] == 163840 * 61 * 576 * 2


def test_dp_without_dp_attention_runs_replicas_with_sglang(ask: Ask) -> None:
    """--dp-size: "The number of data-parallel replicas of the model"."""
    document = ask(
        "fit", "mixtral-8x7b", "--gpu", "h200", "--engine", "sglang", "--dp", "2", "--json"
    ).document
    assert (document["replicas"], document["gpus"]) == (2, 2)
    weights = next(
        result["value"] for result in document["results"] if result["name"] == "weights_model"
    )
    assert weights == 2 * int(params(MIXTRAL).total)


def test_replicas_that_do_not_fit_may_fit_as_ranks_of_attention(ask: Ask) -> None:
    """One H200 cannot hold DeepSeek-V3, but 8 can with --dp 8 --tp 8 --enable-dp-attention."""
    command = (
        "fit",
        "deepseek-v3",
        "--gpu",
        "h200",
        "--engine",
        "sglang",
        "--dp",
        "8",
        "-c",
        "64K",
    )
    flags = [change["flag"] for change in ask(*command, "--json").document["suggestions"]]
    assert flags[0] == "--tp 8 --enable-dp-attention"
    assert ask(*command, *flags[0].split()).code == 0


@pytest.mark.parametrize(
    ("version", "flags"),
    [
        ("0.5.23", ["--tp-size", "8", "--attn-dp-size", "4", "--ep-size", "8"]),
        ("0.5.9", ["--tp-size", "8", "--dp-size", "4", "--enable-dp-attention", "--ep-size", "8"]),
    ],
)
def test_the_command_has_the_versions_own_options(version: str, flags: list[str]) -> None:
    """server_args.py: --attn-dp-size; before it, --dp-size and --enable-dp-attention, deprecated
    since.
    """
    args = {"engine_version": version}
    asked = request(
        DEEPSEEK, engine="sglang", attn_dp=4, enable_expert_parallel=True, engine_args=args
    )
    command = (launch_command(resolve(asked)) or "").split()
    assert command[-len(flags) :] == flags


@pytest.mark.parametrize(
    ("version", "share"),
    [
        # of 143,769 MiB: 512 + 12,288 + 8 * 128 + 512 * 2 + 512 * 8 * 4.5 are left
        ("0.5.9", 1 - (512 + 12288 + 1024 + 1024 + 18432) / 143769),
        # 12 + 8 / 2 GiB, and 4 GiB for DP attention
        ("0.4.9", 1 - 20 * 1024 / 143769),
        ("0.4.3", 0.81),
    ],
)
def test_dp_attention_leaves_more_outside_the_share(version: str, share: float) -> None:
    # nvidia-smi shows 500 MiB more
    device = dataclasses.replace(gpu("h200"), memory=(143769 - 500) * 2**20)
    asked = dataclasses.replace(request(DEEPSEEK, engine="sglang", attn_dp=8), gpu=device)
    resolved = resolve(asked.with_engine_args(engine_version=version))
    assert resolved.share
    assert float(resolved.share.text) == pytest.approx(share, abs=0.0006)


def test_ranks_of_attention_divide_the_running_requests() -> None:
    asked = request(DEEPSEEK, engine="sglang", attn_dp=4, engine_args={"max_running_requests": 10})
    assert fit(asked).layout.max_num_seqs == 2


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            "llama3-8b",
            ["--enable-expert-parallel"],
            "--enable-expert-parallel needs a mixture of experts",
        ),
        (
            "mixtral-8x7b",
            ["--gpus", "16", "--dp", "16", "--enable-expert-parallel"],
            "16 devices are more than the 8",
        ),
        ("mixtral-8x7b", ["--dp", "3"], "does not divide the width of an expert, 14336"),
        ("mixtral-8x7b", ["--dp", "2", "--gpus", "3"], "--gpus 3 is not a multiple of --dp 2"),
        (
            "mixtral-8x7b",
            ["--dp", "2", "--tp", "2", "--gpus", "2"],
            "--tp 2 with --pp 1 and --dp 2 needs 4 GPUs",
        ),
        (
            "mixtral-8x7b",
            ["--dp", "2", "--engine", "llamacpp"],
            "--dp has no effect on engine llamacpp",
        ),
        (
            "mixtral-8x7b",
            ["--attn-dp", "2", "--engine", "vllm"],
            "--attn-dp has no effect on engine vllm",
        ),
        (
            "mixtral-8x7b",
            ["--enable-dp-attention", "--dp", "2", "--engine", "vllm"],
            "--enable-dp-attention has no effect on engine vllm",
        ),
        (
            "mixtral-8x7b",
            ["--enable-dp-attention", "--engine", "sglang"],
            "--enable-dp-attention needs --dp",
        ),
        (
            "mixtral-8x7b",
            ["--attn-dp", "2", "--engine", "sglang"],
            "--attn-dp 2 does not divide --tp 1",
        ),
        (
            "mixtral-8x7b",
            ["--attn-dp", "2", "--dp", "2", "--engine", "sglang"],
            "--attn-dp cannot be combined with",
        ),
        (
            "mixtral-8x7b",
            ["--tp", "3", "--engine", "sglang", "--enable-expert-parallel"],
            "--tp 3 does not divide the 8 experts",
        ),
        ("mixtral-8x7b", ["--dp", "0"], "--dp: '0' is not a whole number"),
    ],
)
def test_an_impossible_division_is_an_error(
    ask: Ask, model: str, options: list[str], message: str
) -> None:
    assert message in ask("fit", model, "--gpu", "h200", *options).error
