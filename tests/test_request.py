"""How a request is completed: the GPUs and their division, and each combination that is refused."""

import dataclasses
from typing import Any

import pytest
from tables import each

from attncalc import AttncalcError, Workload, load
from attncalc.config.gpus import gpu, gpu_with
from attncalc.hardware import Gpu
from attncalc.model import Tower
from attncalc.serving.request import FitRequest, ResolvedRequest, resolve

H100 = gpu("h100-80gb")


def request(model: str = "llama3-8b", *, engine: str = "vllm", **fields: Any) -> FitRequest:
    where: dict[str, Any] = {} if {"kv_memory", "gpu"} & set(fields) else {"gpu": H100}
    return FitRequest(load(model), Workload.decode(1, 1024), engine, **where, **fields)


def refusal(asked: FitRequest) -> tuple[str, str]:
    with pytest.raises(AttncalcError) as error:
        resolve(asked)
    return error.value.message, error.value.tip


@each(
    ("fields", "gpus", "tp", "devices", "replicas"),
    [
        ({}, 1, 1, 1, 1),
        ({"gpus": 4}, 4, 4, 4, 1),
        ({"gpus": 8, "pp": 2}, 8, 4, 8, 1),
        ({"pp": 3}, 3, 1, 3, 1),
        ({"dp": 2}, 2, 1, 1, 2),
        ({"pp": 2, "dp": 3}, 6, 1, 2, 3),
        ({"gpus": 12, "pp": 3, "dp": 2}, 12, 2, 6, 2),
        ({"tp": 2}, 2, 2, 2, 1),
        ({"tp": 2, "pp": 2}, 4, 2, 4, 1),
        ({"tp": 2, "dp": 2}, 4, 2, 2, 2),
        ({"tp": 2, "pp": 2, "dp": 2}, 8, 2, 4, 2),
        ({"gpus": 8, "tp": 2}, 8, 2, 2, 4),
        ({"gpus": 8, "tp": 2, "pp": 2}, 8, 2, 4, 2),
        ({"gpus": 8, "tp": 2, "dp": 2}, 8, 2, 2, 4),
        ({"engine": "sglang", "tp": 4, "attn_dp": 2}, 4, 4, 4, 2),
        ({"engine": "sglang", "tp": 4, "attn_dp": 4, "gpus": 8}, 8, 4, 4, 8),
        ({"engine": "llamacpp", "gpus": 3}, 3, 1, 1, 1),
        ({"engine": "llamacpp"}, 1, 1, 1, 1),
        ({"kv_memory": 2**33}, 1, 1, 1, 1),
        ({"kv_memory": 2**33, "tp": 2}, 1, 2, 2, 1),
        ({"kv_memory": 2**33, "dp": 2}, 1, 1, 1, 2),
        ({"kv_memory": 2**33, "gpu": H100, "gpus": 4, "tp": 2}, 4, 2, 2, 2),
    ],
)
def test_gpus_are_divided_by_pipeline_stages_and_ranks(
    fields: dict[str, Any], gpus: int, tp: int, devices: int, replicas: int
) -> None:
    found = resolve(request(**fields))
    assert (found.gpus, found.args.tp, found.devices, found.replicas) == (
        gpus,
        tp,
        devices,
        replicas,
    )


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"gpus": 3, "pp": 2},
        "--gpus 3 is not a multiple of --pp 2",
        "give a multiple of 2: every pipeline stage has as many GPUs",
    ),
    (
        {"gpus": 3, "dp": 2},
        "--gpus 3 is not a multiple of --dp 2",
        "give a multiple of 2: every rank has as many GPUs",
    ),
    (
        {"gpus": 9, "pp": 3, "dp": 2},
        "--gpus 9 is not a multiple of --pp 3 times --dp 2",
        "give a multiple of 6: every rank has as many GPUs",
    ),
    ({"gpus": 1, "tp": 2}, "--tp 2 with --pp 1 needs 2 GPUs, but --gpus is 1", "give --gpus 2"),
    (
        {"gpus": 5, "tp": 2, "pp": 3},
        "--tp 2 with --pp 3 needs 6 GPUs, but --gpus is 5",
        "give --gpus 6",
    ),
    (
        {"gpus": 11, "tp": 2, "pp": 3, "dp": 2},
        "--tp 2 with --pp 3 and --dp 2 needs 12 GPUs, but --gpus is 11",
        "give --gpus 12",
    ),
    (
        {"gpus": 7, "tp": 2, "pp": 3},
        "--gpus 7 is not a multiple of --tp 2 times --pp 3",
        "give a multiple of 6: every replica has as many GPUs",
    ),
    (
        {"gpus": 13, "tp": 2, "pp": 3, "dp": 2},
        "--gpus 13 is not a multiple of --tp 2 times --pp 3 times --dp 2",
        "give a multiple of 12: every replica has as many GPUs",
    ),
    *(
        ({name: 0}, f"--{name} is 0, and must be at least 1", f"give --{name} 1 or more")
        for name in ("gpus", "tp", "pp", "dcp", "dp", "attn_dp")
    ),
    ({"gpus": -1}, "--gpus is -1, and must be at least 1", "give --gpus 1 or more"),
    ({"gpu": None}, "--gpu or --kv-memory is required", "give one of them, as --gpu h100-80gb"),
    *(
        (
            {"kv_memory": 2**30, name: value},
            f"--{name.replace('_', '-')} cannot be combined with --kv-memory",
            "leave it out, or give --gpu instead",
        )
        for name, value in (
            ("gpu_memory_utilization", "0.9"),
            ("reserve", 1),
            ("weights_dtype", "fp8"),
            ("gpus", 2),
        )
    ),
    *(
        (
            {"kv_memory": 2**30, "gpu": H100, name: value},
            f"--{name.replace('_', '-')} cannot be combined with --kv-memory",
            "leave one of them out",
        )
        for name, value in (("gpu_memory_utilization", "0.9"), ("reserve", 0))
    ),
    *(
        (
            {"engine": engine, "dp": 2},
            f"--dp has no effect on engine {engine}",
            "leave it out, or use --engine vllm; --gpus runs replicas",
        )
        for engine in ("llamacpp", "transformers", "ideal")
    ),
    (
        {"engine": "llamacpp", "enable_expert_parallel": True},
        "--enable-expert-parallel has no effect on engine llamacpp",
        "leave it out, or use --engine vllm; --gpus runs replicas",
    ),
    (
        {"engine": "vllm", "attn_dp": 2, "tp": 2},
        "--attn-dp has no effect on engine vllm",
        "with vLLM, --dp N is the number of ranks, and --tp N the GPUs of each",
    ),
    (
        {"engine": "llamacpp", "attn_dp": 2},
        "--attn-dp has no effect on engine llamacpp",
        "leave it out, or use --engine sglang",
    ),
    (
        {"enable_expert_parallel": True},
        "--enable-expert-parallel needs a mixture of experts, which this model is not",
        "leave it out: --dp runs replicas of this model",
    ),
    (
        {"engine": "sglang", "attn_dp": 2, "dp": 2, "tp": 2},
        "--attn-dp cannot be combined with --dp",
        "SGLang has either ranks of attention or replicas",
    ),
    (
        {"engine": "sglang", "attn_dp": 3, "tp": 4},
        "--attn-dp 3 does not divide --tp 4",
        "give --tp 3, for example: SGLang's --tp-size counts the GPUs of all ranks",
    ),
]


@each(("fields", "message", "tip"), REFUSED)
def test_a_division_that_is_not_possible_is_refused(
    fields: dict[str, Any], message: str, tip: str
) -> None:
    assert refusal(request(**fields)) == (message, tip)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dp": 3}, "--tp 1 times --dp 3 does not divide the width of an expert, 14336"),
        (
            {"dp": 16, "enable_expert_parallel": True},
            "--enable-expert-parallel: 16 devices are more than the 8 experts",
        ),
        (
            {"engine": "sglang", "tp": 3, "enable_expert_parallel": True},
            "--enable-expert-parallel: --tp 3 does not divide the 8 experts",
        ),
        (
            {"engine": "sglang", "tp": 10, "attn_dp": 5},
            "--tp 10 does not divide the width of an expert, 14336",
        ),
    ],
)
def test_experts_that_cannot_be_divided_are_refused(fields: dict[str, Any], message: str) -> None:
    assert refusal(request("mixtral-8x7b", **fields))[0] == message


def test_a_draft_model_is_a_decoder_and_replaces_layers_that_predict() -> None:
    draft = load("qwen3-0.6b")
    both = request("qwen3-8b", draft=draft, engine_args={"speculative_layers": 1})
    assert refusal(both) == (
        "--speculative-model cannot be combined with --speculative-layers",
        "leave --speculative-layers out: the draft model has its own layers",
    )
    whisper, bert = load("whisper-large-v3"), load("bert-base")
    assert refusal(request("qwen3-8b", draft=whisper)) == (
        f"--speculative-model: {whisper.title} is an encoder-decoder",
        "a draft model is a decoder",
    )
    assert refusal(request("qwen3-8b", draft=bert)) == (
        f"--speculative-model: {bert.title} has no cache",
        "a draft model is a decoder",
    )


def test_an_unknown_argument_of_an_engine_lists_the_known_ones() -> None:
    message, tip = refusal(request(engine_args={"blok_size": 16}))
    assert message == "engine_args: there is no argument 'blok_size'"
    assert tip.startswith("did you mean 'block_size'? known: ")
    # `resolve` sets them from other fields
    for filled_in in ("tp", "max_model_len", "vision_params"):
        assert (
            refusal(request(engine_args={filled_in: 1}))[0]
            == f"engine_args: there is no argument '{filled_in}'"
        )


def test_vllm_casts_fp32_to_what_the_gpu_multiplies() -> None:
    model = dataclasses.replace(load("llama3-8b"), dtype="fp32")

    def loaded(device: Gpu) -> str:
        return resolve(
            FitRequest(model, Workload.decode(1, 1024), "vllm", gpu=device)
        ).args.dtype.name

    assert loaded(gpu("t4")) == "fp16"  # Turing has no bf16
    assert loaded(H100) == "bf16"
    assert loaded(gpu_with("24GB")) == "bf16"  # only a memory: taken for a newer GPU


def ranks(found: ResolvedRequest) -> tuple[int, int, bool]:
    return found.ranks, found.expert_devices, found.divides_experts


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        ("llama3-8b", {"tp": 2, "dp": 2}, (1, 2, False)),  # ranks of a dense model are replicas
        ("mixtral-8x7b", {"tp": 2}, (1, 2, False)),
        ("mixtral-8x7b", {"tp": 2, "dp": 2}, (2, 4, True)),
        ("mixtral-8x7b", {"tp": 2, "enable_expert_parallel": True}, (1, 2, True)),
        ("mixtral-8x7b", {"engine": "sglang", "tp": 4, "attn_dp": 2}, (2, 4, True)),
        ("mixtral-8x7b", {"engine": "sglang", "tp": 4, "dp": 2}, (1, 4, False)),
        (
            "mixtral-8x7b",
            {"engine": "sglang", "tp": 4, "enable_expert_parallel": True},
            (1, 4, True),
        ),
    ],
)
def test_ranks_that_divide_experts(
    model: str, fields: dict[str, Any], expected: tuple[int, int, bool]
) -> None:
    assert ranks(resolve(request(model, **fields))) == expected


@pytest.mark.parametrize(
    ("engine", "given", "batch", "slots"),
    [
        ("llamacpp", None, 3, 3),
        ("llamacpp", 5, 3, 5),
        ("llamacpp", None, 1000, 256),
        ("vllm", None, 3, None),
    ],
)
def test_llamacpp_has_a_slot_per_sequence(
    engine: str, given: int | None, batch: int, slots: int | None
) -> None:
    """LLAMA_MAX_SEQ in llama.cpp's llama-cparams.h is 256."""
    args = {"sequences": given} if given else {}
    found = resolve(request(engine=engine, engine_args=args).with_workload(batch=batch))
    assert getattr(found.args, "slots", None) == slots
    assert getattr(found.args_without_slots, "slots", None) == (given or 1 if slots else None)


def test_a_share_is_that_of_all_devices_of_one_copy_and_only_without_a_given_memory() -> None:
    """SGLang 0.4.2: 0.87 on 2 and 3 devices, 0.85 on 4 to 7."""
    for tp, pp, text in ((2, 1, "0.87"), (1, 2, "0.87"), (2, 2, "0.85")):
        found = resolve(
            request(engine="sglang", tp=tp, pp=pp, engine_args={"engine_version": "0.4.2"})
        )
        assert found.share is not None
        assert (found.share.option, found.share.text) == ("--mem-fraction-static", text)
    assert resolve(request(kv_memory=2**30)).share is None
    assert resolve(request(kv_memory=2**30, gpu=H100)).share is None


def test_the_workload_is_a_decode_step_whose_dtype_is_only_the_given_one() -> None:
    asked = dataclasses.replace(request(), workload=Workload.prefill(3, 100))
    found = resolve(asked).workload
    assert (found.phase, found.new, found.batch, found.context, found.dtype) == (
        "decode",
        1,
        3,
        100,
        None,
    )
    assert resolve(request().with_workload(dtype="fp16")).workload.dtype == "fp16"
    assert resolve(request().with_workload(kv_dtype="fp8")).workload.kv_dtype == "fp8"


@each(
    ("fields", "batch", "of_one"),
    [
        ({"gpus": 4, "tp": 1}, 500, 125),
        ({"gpus": 4, "tp": 1}, 501, 126),
        ({"gpus": 4, "tp": 1}, 1, 1),
        ({"gpus": 4}, 500, 500),
        ({"dp": 4}, 10, 3),
        ({"engine": "sglang", "tp": 4, "attn_dp": 4}, 500, 125),
        ({"engine": "llamacpp", "gpus": 4}, 500, 500),  # one server
        ({"kv_memory": 2**33, "dp": 4}, 500, 125),
    ],
)
def test_replicas_and_ranks_divide_the_batch(
    fields: dict[str, Any], batch: int, of_one: int
) -> None:
    found = resolve(request(**fields).with_workload(batch=batch))
    assert (found.workload.batch, found.whole_workload.batch) == (of_one, batch)


def test_a_type_of_a_cache_is_no_type_of_a_model() -> None:
    asked = dataclasses.replace(request(), workload=Workload.decode(1, 4096, dtype="q8_0"))
    message, _ = refusal(asked)
    assert message == "q8_0 can only be the dtype of a cache, since its elements share scales"


def test_the_arguments_describe_the_whole_model() -> None:
    """Llama 3 8B has 8 KV heads, on two devices too; of the towers only those for vision are
    described.
    """
    towers = (Tower("vision", 1000, 0), Tower("audio", 70, 0), Tower("vision", 200, 0))
    model = dataclasses.replace(load("llama3-8b"), towers=towers)
    found = resolve(FitRequest(model, Workload.decode(1, 1024), "vllm", gpu=H100, tp=2))
    assert (found.args.n_kv_heads, found.args.vision_params) == (8, 1200)


def test_the_devices_of_a_rank_of_attention_divide_its_heads() -> None:
    """4 devices of 2 ranks: each rank has 2 devices."""
    found = resolve(request("mixtral-8x7b", engine="sglang", tp=4, attn_dp=2))
    assert found.model.tp == 2
    assert isinstance(found.model.tp, int)
