"""Drafters beside a model: their weights, caches and buffers, held to what engines print of
them.
"""

import dataclasses
import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from tables import each
from test_gguf import LLAMA_SHAPES, small_llama

from attncalc import load
from attncalc.checkpoint import CheckpointWeights
from attncalc.config.gpus import gpu
from attncalc.cost.params import params
from attncalc.engines.multi_token import prediction_layers
from attncalc.errors import AttncalcError
from attncalc.serving.fit import FitResult, fit
from attncalc.serving.launch import launch_command
from attncalc.serving.request import FitRequest, resolve
from attncalc.units import GIB
from attncalc.workload import Workload

MODELS = Path(__file__).parent / "data" / "engine-logs" / "models"
QWEN_27B = load(str(MODELS / "qwen3.5-27b.json"))
MIB = 2**20
# P-EAGLE of Qwen3-8B: 4 layers, an embedding of its own, and the model's vocabulary
PEAGLE = json.loads((MODELS / "qwen3-8b-eagle3.json").read_text()) | {
    "architectures": ["PEagleDraftModel"],
    "num_hidden_layers": 4,
    "draft_vocab_size": 151_936,
}
_FIELDS = ("tp", "gpus", "dcp", "weights_dtype", "kv_memory")
PREDICTS: dict[str, Any] = {"speculative_layers": 1, "speculative_tokens": 2}


DFLASH = load(
    json.loads((MODELS / "qwen3.6-35b-a3b-dflash.json").read_text()) | {"num_hidden_layers": 5}
)


def fitted(
    engine: str, model: Any = QWEN_27B, *, draft: Any = None, batch: int = 1, **options: Any
) -> FitResult:
    """Return what fits on a B200 with a drafter: multi-token prediction unless there is a draft
    model.
    """
    fields = {name: options.pop(name) for name in _FIELDS if name in options}
    context = options.pop("context", 8192)
    device = None if "kv_memory" in fields else gpu("b200")
    args = {**({} if draft else PREDICTS), **options}
    workload = Workload.decode(batch, context, kv_dtype=args.pop("kv_dtype", None))
    return fit(
        FitRequest(
            load(model),
            workload,
            engine=engine,
            gpu=device,
            draft=draft,
            engine_args=args,
            **fields,
        )
    )


def held(result: FitResult, *names: str) -> int:
    assert result.budget.weights
    return sum(int(part.size) for part in result.budget.weights.extra if part.name in names)


def figure(result: FitResult, name: str) -> int:
    return int(next(detail.quantity for detail in result.pool.details if detail.name == name))


@each(
    ("weights_dtype", "printed"),
    [
        # sgl-project/sglang#38147 with an NVFP4 checkpoint: 5.53 GB, of which 2 * 248,320 * 5,120 *
        # 2 B are given back
        (None, "5.53"),
        # #35996 with FP8. The layer is in fp8, and its matrix [2 d, d] in bf16
        ("fp8", "5.18"),
    ],
)
def test_sglang_loads_the_layers_for_prediction_with_two_tables(
    weights_dtype: str | None, printed: str
) -> None:
    result = fitted("sglang", weights_dtype=weights_dtype)
    assert f"{held(result, 'weights_draft', 'weights_draft_tables') / GIB:.2f}" == printed


def test_vllm_loads_the_layers_for_prediction_alone_and_only_if_asked() -> None:
    """0.79 GiB: 5,120 * (2 * 6,144 + 2 * 1,024 + 6,144 + 3 * 17,408 + 2 * 5,120) weights, and
    norms.
    """
    matrices = 5120 * (2 * 6144 + 2 * 1024 + 6144 + 3 * 17_408 + 2 * 5120)
    found = held(fitted("vllm"), "weights_draft", "weights_draft_tables")
    assert found == 2 * (matrices + 5 * 5120 + 2 * 256)
    assert held(fitted("vllm", speculative_layers=0), "weights_draft") == 0


def test_the_predicting_layer_of_deepseek_v4_has_experts_in_mxfp4() -> None:
    """vLLM 0.25 on two GPUs loads 75.64 GiB with it, and 73.82 are computed without: 1.8 on
    each.
    """
    found = held(fitted("vllm", "deepseek-v4-flash", tp=2, gpus=2, kv_dtype="fp8"), "weights_draft")
    assert 1.7 < found / GIB < 1.85


@each(
    ("model", "parameters"),
    [
        # "11.5B unique parameters" beside the embedding and head (README_WEIGHTS.md)
        ("deepseek-v3", 11.5e9),
        (str(MODELS / "qwen3.5-27b.json"), 424.7e6),
        (
            "nemotron3-super",
            2_942_325_760,
        ),  # 5,884,651,520 bytes in bf16 (mtp_payload_estimate, find_string id 66876308741)
        ("qwen3.8-flash-next", 2_607_150_848),  # 4.69 GiB of experts and 0.17 others, in bf16
    ],
)
def test_layers_for_prediction_have_the_published_parameters(model: str, parameters: float) -> None:
    layers = prediction_layers(load(model), 1)
    assert layers
    assert int(params(layers).total) == pytest.approx(parameters, rel=0.01)


def test_layers_for_prediction_that_differ_from_the_others_are_not_counted() -> None:
    assert prediction_layers(load("qwen3-8b"), 1) is None
    assert prediction_layers(load("nemotron-h-8b"), 1) is None  # without experts
    assert fitted("vllm", "qwen3-8b").resolved.draft is None


def test_tables_that_sglang_gives_back_late_cost_the_printed_tokens() -> None:
    """sgl-project/sglang#32468: Qwen3.8-27B, --tp 2, fp8, 35 slots: 454,616 tokens, and 600,867
    without the tables.

    2 * 124,160 * 5,120 * 2 B are 146,071 tokens of 17 layers * 2 heads * 2 * 256 B; 146,251 are the
    difference.
    """
    result = fitted("sglang", tp=2, gpus=2, kv_dtype="fp8", engine_version="0.5.19")
    tokens = held(result, "weights_draft_tables") // figure(result, "kv_bytes_per_token")
    assert tokens == 2 * 124_160 * 5120 * 2 // (17 * 2 * 2 * 256)
    assert tokens == pytest.approx(600_867 - 454_616, rel=0.002)


@each(
    ("version", "layers", "loads"),
    [
        ("0.5.13", 16, False),  # the drafter is loaded after the pools
        ("0.5.14", 5 * 16, True),  # 1 + 64 / 16: sgl-project/sglang#29857
        ("0.5.17", 5 * 16, True),
        ("0.5.18", 17, True),
    ],
)
def test_versions_of_sglang_leave_memory_for_as_many_layers(
    version: str, layers: int, loads: bool
) -> None:
    result = fitted("sglang", engine_version=version)
    assert figure(result, "kv_bytes_per_token") == layers * 4096
    assert bool(held(result, "weights_draft")) is loads
    assert (
        any("loads the drafter after its pools" in note for note in result.layout.notes)
        is not loads
    )


@each(
    ("version", "rows"),
    [("0.5.10", 0), ("0.5.11", 5 * 4096), ("0.5.17", 5 * 4096), ("0.5.18", 5 * 2 * 4 * 128 * 2)],
)
def test_sglang_leaves_memory_for_dflash(version: str, rows: int) -> None:
    """Five layers with 4 KV heads of 128, of a model with 36 layers of 8: as large as the model's
    rows until 0.5.17.
    """
    result = fitted(
        "sglang", "qwen3-8b", draft=DFLASH, speculative_tokens=8, engine_version=version
    )
    assert figure(result, "kv_bytes_per_token") == 36 * 4096 + rows
    assert held(result, "weights_draft_tables") == 0


def test_sglang_has_no_rows_of_dflash_beside_windows_before_0_5_18() -> None:
    """12 full layers of gpt-oss with 8 KV heads of 64, and five of DFlash with 4 of 128."""
    for version, rows in (("0.5.16", 0), ("0.5.18", 5 * 2048)):
        result = fitted(
            "sglang", "gpt-oss-20b", draft=DFLASH, speculative_tokens=8, engine_version=version
        )
        assert figure(result, "full_bytes_per_token") == 12 * 2048 + rows


@each(
    ("model", "options", "row"),
    [
        # of two GPUs each has two of the 8 heads of 128 in 36 layers, and of DFlash's 4 heads one,
        # of every token
        ("qwen3-8b", {"dcp": 2}, 36 * 2 * 512 + 2 * 5 * 512),
        # 61 latents of 512 + 64 B, on a B200 without scales, with an indexer's 132 B: these are of
        # every token too
        ("deepseek-v3.2", {"kv_dtype": "fp8"}, 61 * (576 + 132) + 5 * 256),
        ("deepseek-v3.2", {"kv_dtype": "fp8", "dcp": 4}, 61 * 576 + 4 * (61 * 132 + 5 * 256)),
    ],
)
def test_each_gpu_stores_all_rows_of_dflash(model: str, options: dict[str, Any], row: int) -> None:
    """_dflash_draft_cell_size in pool_configurator.py, and get_num_kv_heads in
    configs/model_config.py of 0.5.23.
    """
    result = fitted("sglang", model, draft=DFLASH, speculative_tokens=8, tp=8, gpus=8, **options)
    assert int(result.needed) == 8192 // options.get("dcp", 1) * row


def test_dcp_with_dflash_is_an_error_before_its_rows_are_counted() -> None:
    with pytest.raises(AttncalcError, match="--dcp with a draft model of DFlash"):
        fitted(
            "sglang",
            "qwen3-8b",
            draft=DFLASH,
            speculative_tokens=8,
            tp=8,
            gpus=8,
            dcp=2,
            engine_version="0.5.17",
        )


def test_a_drafters_own_embedding_is_a_warning_of_vllm(ask: Ask) -> None:
    """Qwen3-32B's EAGLE-3 drafters have 1.46 GiB without it; one with it left 2.9 GiB less."""
    options = ("--engine", "vllm", "--kv-memory", "9GiB", "--speculative-tokens", "3")
    draft = ("--speculative-model", str(MODELS / "qwen3-8b-eagle3.json"))
    assert "embedding of its own" in " ".join(ask("fit", "qwen3-8b", *options, *draft).out.split())
    peer = ("--speculative-model", "qwen3-0.6b")
    assert "embedding of its own" not in ask("fit", "qwen3-8b", *options, *peer, "--full").out


def test_the_tables_of_a_draft_model_in_sglang() -> None:
    """EAGLE-3 has a head of its own, and EAGLE neither; a smaller model has both."""
    table = 151_936 * 4096 * 2
    eagle3 = json.loads((MODELS / "qwen3-8b-eagle3.json").read_text())
    eagle = {**eagle3, "architectures": ["LlamaForCausalLMEagle"]}
    del eagle["draft_vocab_size"]
    drafts = {
        eagle_name: load(config) for eagle_name, config in (("EAGLE3", eagle3), ("EAGLE", eagle))
    }
    drafts["STANDALONE"] = load("qwen3-0.6b")
    found = {}
    for name, draft in drafts.items():
        result = fitted("sglang", "qwen3-8b", draft=draft, speculative_tokens=4)
        found[name] = held(result, "weights_draft_tables")
        assert f"--speculative-algorithm {name} --speculative-draft-model-path" in str(
            launch_command(result.resolved)
        )
    assert found == {"EAGLE3": table, "EAGLE": 2 * table, "STANDALONE": 0}


@each(
    ("vocabulary", "own_embedding", "loaded", "tokens"),
    [
        (151_936, True, 18.03, 42_160),
        (32_000, True, 18.27, 40_560),
        (151_936, False, 16.87, 49_760),
    ],
)
def test_vllm_shares_peagles_head_and_not_its_embedding(
    vocabulary: int, own_embedding: bool, loaded: float, tokens: int
) -> None:
    """A public report of Qwen3-8B (file 56362854035) has three forms of P-EAGLE on one GPU.

    Their tokens differ by their weights alone, at 40 * 4,096 B per token: 36 layers and 4.
    """
    draft = load({**PEAGLE, "draft_vocab_size": vocabulary})
    if not own_embedding:  # this form has neither in its file
        draft = dataclasses.replace(
            draft, vocab_size=None, extra=tuple(m for m in draft.extra if m.name != "lm_head")
        )
    result = fitted("vllm", "qwen3-8b", draft=draft, speculative_tokens=8, engine_version="0.20.2")
    assert result.budget.weights
    assert int(result.budget.weights.total) / GIB == pytest.approx(loaded, abs=0.05)
    first = fitted(
        "vllm", "qwen3-8b", draft=load(PEAGLE), speculative_tokens=8, engine_version="0.20.2"
    )
    assert first.budget.weights
    more = int(first.budget.weights.total) - int(result.budget.weights.total)
    assert 42_160 + more / (40 * 4096) == pytest.approx(tokens, abs=16)
    assert figure(result, "kv_bytes_per_block") == 16 * 40 * 4096


@each(
    ("model", "context", "options", "cache", "compute"),
    [
        # posted starts of Qwen3.8-27B on an RTX 3090: file 67581739375, and the log of
        # test_llamacpp_log.py
        ("qwen3.5-27b", 2048, {"batch": 4, "kv_unified": True, "ubatch": 2048}, 32.00, 520.06),
        ("qwen3.5-27b", 2048, {"batch": 4, "kv_unified": True}, 32.00, 130.02),
        # of the 2B model: "estimated memory usage of MTP context is 56.02 MiB" (file 61403768062)
        ("qwen3.5-2b", 4096, {}, 8.00, 48.02),
    ],
)
def test_the_context_of_multi_token_prediction_in_llamacpp(
    model: str, context: int, options: dict[str, Any], cache: float, compute: float
) -> None:
    result = fitted(
        "llamacpp", str(MODELS / f"{model}.json"), context=context, weights_dtype="q8_0", **options
    )
    (line,) = [line for line in result.log_lines if "1/1 seqs" in line and " 1 layers" in line]
    assert f"size = {cache:7.2f} MiB" in line
    assert result.budget.reserve
    (part,) = [p for p in result.budget.reserve.runtime.parts if p.name == "draft_compute_buffer"]
    assert part.low <= compute * MIB <= part.high
    assert int(part.expected) == pytest.approx(compute * MIB, rel=0.045)


def test_llamacpp_keeps_the_drafters_cache_in_f16() -> None:
    """Files 57918538511 (1,024.00 MiB of 262,144 cells) and 58523183736 (f16 with a model's cache
    in q8_0).
    """
    options: dict[str, Any] = {"context": 262_144, "weights_dtype": "q8_0", "kv_dtype": "q8_0"}
    lines = "\n".join(fitted("llamacpp", **options).log_lines)
    assert "size = 1024.00 MiB (262144 cells,   1 layers,  1/1 seqs), K (f16):  512.00 MiB" in lines
    given = fitted("llamacpp", **options, kv_dtype_k_draft="q8_0", kv_dtype_v_draft="q8_0")
    # 34 B per 32 elements
    assert "  1 layers,  1/1 seqs), K (q8_0):  272.00 MiB" in "\n".join(given.log_lines)
    assert "-ctkd q8_0 -ctvd q8_0" in str(launch_command(given.resolved))


def test_a_draft_model_of_llamacpp_has_a_cache_and_weights_without_its_embedding() -> None:
    """28 layers of 8 heads of 128 in f16; the embedding is the head too, which is on the GPU."""
    draft = load("qwen3-0.6b")
    alone = fitted("llamacpp", "qwen3-8b", speculative_layers=0, speculative_tokens=0)
    result = fitted("llamacpp", "qwen3-8b", draft=draft)
    assert int(result.needed) - int(alone.needed) == 8192 * 28 * 2 * 8 * 128 * 2
    assert held(result, "weights_draft") == 2 * 596_049_920
    assert "-md Qwen3-0.6B-BF16.gguf" in str(launch_command(result.resolved))


@each(
    ("options", "message"),
    [
        ({"draft": "qwen3-0.6b", "gpus": 2}, "over several GPUs"),
        ({"draft": str(MODELS / "qwen3.5-2b.json")}, "the states of a draft model"),
        (
            {"model": "deepseek-v4-flash", "draft": "qwen3-0.6b"},
            "a drafter of compressed attention",
        ),
        ({"draft": "deepseek-v4-flash"}, "a drafter of compressed attention"),
    ],
)
def test_a_draft_model_that_llamacpp_stores_in_an_unknown_way_is_an_error(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AttncalcError, match=message):
        fitted("llamacpp", **{"model": "qwen3-8b", **options, "draft": load(options["draft"])})


def test_a_gguf_file_has_the_weights_of_multi_token_prediction(tmp_path: Path) -> None:
    """llama.cpp loads them with --spec-type draft-mtp only, into the model's own buffer."""
    block = {
        name.replace("blk.1.", "blk.2."): shape
        for name, shape in LLAMA_SHAPES.items()
        if "blk.1." in name
    }
    extra = {**block, "blk.2.nextn.eh_proj.weight": (512, 256)}
    predicting = load(
        small_llama(tmp_path / "a.gguf", {"block_count": 3, "nextn_predict_layers": 1}, extra)
    )
    plain = load(small_llama(tmp_path / "b.gguf"))
    assert predicting.stored
    assert plain.stored
    size = 2 * sum(math.prod(shape) for shape in extra.values())  # all in f16
    assert predicting.stored.predicting == predicting.stored.size - plain.stored.size == size
    totals, buffers = [], []
    for layers in (0, 1):
        result = fitted(
            "llamacpp", predicting, context=64, speculative_tokens=0, speculative_layers=layers
        )
        assert result.budget.weights
        totals.append(int(result.budget.weights.total))
        buffers.append(
            next(line for line in result.log_lines if "CUDA0 model buffer size" in line).split()[-2]
        )
    assert totals == [plain.stored.size, predicting.stored.size]
    assert buffers == [f"{total / MIB:.2f}" for total in totals]
    with pytest.raises(AttncalcError, match="has no layers for multi-token prediction"):
        fitted("llamacpp", plain, context=64, speculative_tokens=0)


@each(
    ("kind", "served", "words"),
    [
        ("GGUF", "org/name:Q8_0", "-hfd org/name:Q8_0"),
        ("GGUF", "org/name:a.gguf", None),
        ("GGUF", "/models/a.gguf", "-md /models/a.gguf"),
        (None, "org/name", "-md name-BF16.gguf"),
    ],
)
def test_a_draft_model_of_llamacpp_is_a_gguf_file(
    kind: Any, served: str, words: str | None
) -> None:
    stored = CheckpointWeights(1, 1, (), 10**9, kind=kind) if kind else None
    draft = dataclasses.replace(load("qwen3-0.6b"), stored=stored)
    asked = FitRequest(
        load("qwen3-8b"),
        Workload.decode(1, 4096),
        "llamacpp",
        kv_memory=2**33,
        draft=draft,
        served_draft=served,
    )
    found = launch_command(resolve(asked))
    assert found == (words and f"llama-server -m Qwen3-8B-BF16.gguf -c 4096 -np 1 {words}")


def _write_safetensors(folder: Path, shapes: dict[str, list[int]]) -> None:
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


@each(
    ("config", "tensor"),
    [
        ("qwen3.5-2b", "mtp.fc.weight"),
        ("qwen3.5-2b", "model.mtp_layers.0.x.weight"),
        ("glm-4.7", "model.layers.92.x"),
    ],
)
def test_tensors_for_prediction_are_in_the_files_and_not_on_the_gpu(
    tmp_path: Path, config: str, tensor: str
) -> None:
    folder = tmp_path / tensor
    folder.mkdir()
    (folder / "config.json").write_text((MODELS / f"{config}.json").read_text())
    _write_safetensors(folder, {"model.layers.1.x.weight": [1000, 64], tensor: [300, 64]})
    model = load(str(folder))
    assert model.stored
    assert (model.stored.size, model.stored.predicting) == (2 * 64 * 1300, 2 * 64 * 300)
    for engine in ("vllm", "sglang"):
        weights = fitted(engine, model, speculative_layers=0, speculative_tokens=0).budget.weights
        assert weights
        extra = sum(int(part.size) for part in weights.extra)
        assert int(weights.total) - extra == 2 * 64 * 1000


SGLANG_LOG = """\
[2026-09-01 10:00:00] server_args=ServerArgs(model_path='a/target', page_size=1, max_running_requests=4, \
speculative_algorithm='EAGLE3', speculative_draft_model_path='{draft}', speculative_num_draft_tokens=4, tp_size=1)
[2026-09-01 10:00:01] Load weight begin. avail mem=78.00 GB
[2026-09-01 10:00:09] Load weight end. elapsed=8.00 s, type=Qwen3ForCausalLM, avail mem=62.50 GB, mem usage=15.27 GB.
[2026-09-01 10:00:10] Load weight begin. avail mem=62.40 GB
[2026-09-01 10:00:12] Load weight end. type=LlamaForCausalLMEagle3, avail mem=60.40 GB, mem usage=1.90 GB.
[2026-09-01 10:00:13] KV Cache is allocated. #tokens: 100000, K size: 6.87 GB, V size: 6.87 GB
[2026-09-01 10:00:13] Memory pool end. avail mem=46.50 GB
[2026-09-01 10:00:13] KV Cache is allocated. #tokens: 100000, K size: 0.19 GB, V size: 0.19 GB
[2026-09-01 10:00:20] max_total_num_tokens=100000, context_len=40960
"""


def test_a_log_of_sglang_with_a_drafter_is_compared_with_both_models(ask: Ask) -> None:
    """Put together from SGLang's lines. The weights are those of both, with the drafter's embedding
    of 1.16 GiB.
    """
    log = SGLANG_LOG.format(draft=MODELS / "qwen3-8b-eagle3.json")
    asked = ("--engine-version", "0.5.23", "--gpu", "h100", "--json")
    found = ask("fit", "qwen3-8b", "--log", "-", *asked, stdin=log).document
    assert all(check["ok"] for check in found["checks"]), found["checks"]
    weights = next(estimate for estimate in found["estimates"] if estimate["name"] == "weights")
    # 15.27 + 0.74 of the drafter + 1.16 GiB of its embedding, and a rope table
    assert weights["logged"] == pytest.approx(17.17 * GIB, abs=GIB / 100)
    assert weights["expected"] == pytest.approx(17.17 * GIB, abs=GIB / 20)


def test_a_draft_of_eagle_with_the_class_of_a_whole_model_is_an_error(
    ask: Ask, tmp_path: Path
) -> None:
    """yuhuili/EAGLE-LLaMA3-Instruct-8B has LlamaForCausalLM. As a whole model it would have 2.36
    GiB, and not 0.47.
    """
    config = json.loads((MODELS / "qwen3-8b-eagle3.json").read_text()) | {
        "architectures": ["LlamaForCausalLM"]
    }
    draft = tmp_path / "draft.json"
    draft.write_text(json.dumps(config))
    told = (
        "--speculative-model",
        str(draft),
        "--speculative-config",
        '{"method": "eagle"}',
        "--speculative-tokens",
        "5",
    )
    answer = ask("fit", "qwen3-8b", "--gpu", "a100-80gb", *told)
    assert "has the class of a whole model, not of EAGLE" in answer.error


@each(
    ("config", "error"),
    [
        # without it vLLM's default of tokens would count
        ('{"num_speculative_token": 3}', "no key num_speculative_token"),
        ('{"methd": "eagle3"}', "no key methd"),
        ('{"method": "eagl3"}', 'no method "eagl3"'),
    ],
)
def test_a_misspelt_speculative_config_is_an_error(ask: Ask, config: str, error: str) -> None:
    refused = ask("fit", "qwen3-8b", "--gpu", "h100", "--speculative-config", config)
    assert f"--speculative-config: vLLM has {error}\n  tip: did you mean" in refused.error


def test_keys_of_a_speculative_config_that_change_no_figure_are_left_to_vllm(ask: Ask) -> None:
    config = {
        "method": "mimo_v2_mtp",  # of 0.24 to 0.32
        "num_speculative_tokens_per_batch_size": {"1": 4},
        "speculative_token_tree": "[(0,)]",
        "draft_tensor_parallel_size": 1,
    }
    asked = ("--speculative-config", json.dumps(config))
    assert ask("fit", "qwen3-8b", "--gpu", "h100", *asked).code == 0


VLLM_LOG = """\
INFO [core.py:112] Initializing a V1 LLM engine (v0.31.0) with config: model='a/target', \
speculative_config=SpeculativeConfig(method='{method}', model='{draft}', num_spec_tokens=3), max_seq_len=16384
INFO [gpu_worker.py:466] Available KV cache memory: 4.34 GiB
INFO [kv_cache_utils.py:2146] GPU KV cache size: {tokens} tokens
"""


@each(
    ("method", "draft", "tokens"),
    [
        ("eagle3", str(MODELS / "qwen3-8b-eagle3.json"), "30,752"),  # 37 layers
        ("eagle3", "/nowhere/draft", "30,752"),  # one layer as the model's last
        ("draft_model", str(MODELS / "qwen3-0.6b.json"), "17,776"),  # 36 + 28 layers
    ],
)
def test_a_log_of_vllm_names_its_drafter(ask: Ask, method: str, draft: str, tokens: str) -> None:
    log = VLLM_LOG.format(method=method, draft=draft, tokens=tokens)
    answer = ask("fit", "qwen3-8b", "--log", "-", "--json", stdin=log)
    (check,) = [check for check in answer.document["checks"] if check["name"] == "kv_tokens"]
    assert check["ok"], check


def test_commands_after_a_log_keep_what_it_was_given_of_its_drafter(
    ask: Ask, tmp_path: Path
) -> None:
    """vLLM needs parallel_drafting for P-EAGLE. Another drafter has keys of its own."""
    given = {
        "method": "eagle3",
        "model": "/nowhere/draft",
        "num_speculative_tokens": 3,
        "parallel_drafting": True,
    }
    log = tmp_path / "server.log"
    start = (
        f"INFO [utils.py:233] non-default args: {{'model': 'a/target', 'speculative_config': "
        f"{given}}}\n"
    )
    log.write_text(
        start + VLLM_LOG.format(method="eagle3", draft="/nowhere/draft", tokens="30,752")
    )
    for options, kept in (
        ((), True),
        (("--speculative-model", str(MODELS / "qwen3-0.6b.json")), False),
    ):
        command = ask("fit", "qwen3-8b", "--log", str(log), "--json", *options).document[
            "launch_command"
        ]
        assert ('"method": "eagle3", "parallel_drafting": true}' in command) == kept, command


def test_a_drafter_on_the_command_line_replaces_that_of_the_log(ask: Ask) -> None:
    log = VLLM_LOG.format(method="eagle3", draft="/nowhere/draft", tokens="17,776")
    draft = str(MODELS / "qwen3-0.6b.json")
    assert ask("fit", "qwen3-8b", "--log", "-", "--speculative-model", draft, stdin=log).code == 0
