"""`verify --train`: what real layers save for the backward pass, gradients, optimizer states, and
the step's peak.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from asking import Ask
from breaks import Break, replaced, wrapped
from layers import GROUPED, LATENT, MHA, OPTIONS, WINDOW, saved
from tables import each

from attncalc import Workload, load
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402

from attncalc.cost.training import activations, states, step  # noqa: E402
from attncalc.cost.training.optimizers import OPTIMIZERS  # noqa: E402
from attncalc.quantity import quantity  # noqa: E402
from attncalc.verify.programs import training  # noqa: E402
from attncalc.verify.training import checks  # noqa: E402
from attncalc.verify.training import model as trained  # noqa: E402
from attncalc.verify.training.saved import SavedTensors  # noqa: E402

GROUPED, MHA, OPTIONS, WINDOW, LATENT = (
    text.replace("vocab_size: 10\n", "vocab_size: 2000\n")
    for text in (GROUPED, MHA, OPTIONS, WINDOW, LATENT)
)
GATED = OPTIONS.replace("sinks: true\n", "")
FUSED = MHA + "fused: true\n"
POSITIONS = FUSED + "learned_positions: 64\n"
LAYERNORM = MHA.replace("rmsnorm", "layernorm").replace("mlp: gated", "mlp: plain")
EXPERTS = GROUPED + "n_experts: 4\nn_experts_per_token: 2\n"
TIED = GROUPED + "tied_embeddings: true\n"
GEMMA = GROUPED + "model_type: gemma2\nnorms_per_layer: 4\n"
PARALLEL = MHA + "model_type: cohere\nnorms_per_layer: 1\n"
MODELS = {
    "grouped": GROUPED,
    "mha": MHA,
    "gated": GATED,
    "fused": FUSED,
    "positions": POSITIONS,
    "layernorm": LAYERNORM,
    "window": WINDOW,
    "latent": LATENT,
    "experts": EXPERTS,
    "tied": TIED,
    "gelu in single operations": LAYERNORM + "model_type: gpt2\n",
    "relu": LAYERNORM + "model_type: opt\n",
    "gain in fp32": GROUPED + "model_type: olmo2\n",
    "shifted gain, norms after": GEMMA,
    "one centred norm": PARALLEL,
    "partly rotated": GROUPED + "model_type: glm4\n",
    "no gain": GROUPED + "model_type: olmo\nnorms_per_layer: 0\nfinal_norm: false\n",
    "shifted layernorm": LAYERNORM + "model_type: nemotron\n",
    "norms in parallel": LAYERNORM + "model_type: gpt_neox\n",
    "norm of heads without a gain": GROUPED + "qk_norm: l2\n",
    "dense experts": EXPERTS + "n_shared_experts: 1\nmodel_type: llama4\n",
    "scales, norms by a power": GEMMA.replace("gemma2", "gemma4"),
    "scaled queries": MHA + "model_type: ministral3\n",
    "queries scaled in fp32": MHA + "model_type: llama4\n",
    "clamped experts": EXPERTS + "mlp_bias: true\nmodel_type: gpt_oss\n",
    "router of chosen experts": EXPERTS + "model_type: granitemoe\n",
    "router that does not normalize": EXPERTS + "model_type: olmoe\n",
    "router of DeepSeek-V3": EXPERTS + "model_type: dots1\n",
    "router with a sparse mixer": EXPERTS + "model_type: phimoe\n",
}


def train(ask: Ask, text: str, folder: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the checks by name and group."""
    answer = ask(
        "verify",
        saved(text, folder),
        "--train",
        "--device",
        "cpu",
        "-b",
        "2",
        "-c",
        "24",
        "--json",
        *options,
    )
    found = {c["name"] + (f" {c['of']}" if c["of"] else ""): c for c in answer.document["checks"]}
    assert answer.code == (0 if all(c["ok"] for c in found.values()) else 1)
    return found


def failing(ask: Ask, text: str, folder: Path, *options: str) -> dict[str, tuple[int, int]]:
    found = train(ask, text, folder, *options)
    return {name: (c["predicted"], c["measured"]) for name, c in found.items() if not c["ok"]}


@each("name", MODELS)
def test_what_real_layers_save_equals_the_formula_to_the_byte(
    ask: Ask, tmp_path: Path, name: str
) -> None:
    assert failing(ask, MODELS[name], tmp_path) == {}


def test_half_precision_saves_fp32_copies_as_the_formula_says(ask: Ask, tmp_path: Path) -> None:
    for name in ("grouped", "latent", "experts"):
        assert failing(ask, MODELS[name], tmp_path, "--dtype", "bf16") == {}, name


def test_recurrent_layers_are_one_error_and_a_tip(ask: Ask) -> None:
    answer = ask("verify", "qwen3-next-80b-a3b", "--train", "--device", "cpu", "-c", "16")
    assert (answer.code, answer.out) == (3, "")
    assert answer.err.startswith("error: verify --train has no GDN layer")


def test_recomputation_keeps_the_input_of_each_layer_only(ask: Ask, tmp_path: Path) -> None:
    found = train(ask, GROUPED, tmp_path)
    assert found["saved_recompute decoder"]["measured"] == 2 * 24 * 32 * 4


def recorded(
    ask: Ask, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Any, Any]]:
    """Return what `saved_checks` received: a run, and what was measured."""
    given: list[tuple[Any, Any]] = []
    true = checks.saved_checks

    def record(run: Any, measured: Any, on_device: Any, **tolerances: int) -> Any:
        given.append((run, measured))
        return true(run, measured, on_device, **tolerances)

    monkeypatch.setattr(training, "saved_checks", record)
    train(ask, text, folder)
    return given


@each("name", MODELS)
def test_each_tensor_that_a_formula_leaves_out_is_noticed(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Leave out each predicted tensor in turn: a check of its layer, or of the rest, disagrees each
    time.
    """
    true = activations.stage_saved
    left_out = 0
    for run, measured in recorded(ask, MODELS[name], tmp_path, monkeypatch):
        (stage,) = run.stages
        whole = true(run, stage, stage.model.symbolic())
        for place, listed in enumerate((*(layer.kept for layer in whole.layers), whole.outside)):
            for i in range(len(listed)):
                rest = (*listed[:i], *listed[i + 1 :])
                if place < len(whole.layers):
                    layers = [*whole.layers]
                    layers[place] = layers[place]._replace(kept=rest)
                    wrong = whole._replace(layers=tuple(layers))
                else:
                    wrong = whole._replace(outside=rest)
                monkeypatch.setattr(checks, "stage_saved", lambda *_, wrong=wrong: wrong)
                found = list(checks.saved_checks(run, measured, checks.size_on("cpu", run)))
                assert [check.name for check in found if not check.ok], (run.kernel, listed[i].name)
                left_out += 1
    assert left_out > 20


def frozen(true: Any, *given: Any) -> Any:
    model = true(*given)
    model.head.weight.requires_grad_(False)
    return model


def holding_a_copy(true: Any, *given: Any) -> Any:
    copy = torch.ones(200_000)
    result = true(*given)
    del copy
    return result


BREAKS: dict[str, tuple[Break, set[str]]] = {
    "loss": (
        wrapped(checks, "loss_bytes", lambda true, run, saved: quantity(true(run, saved) - 8)),
        {"saved_flash_outside", "saved_math_outside", "saved_recompute_outside"},
    ),
    "moments": (
        lambda patch: patch.setitem(OPTIMIZERS, "adamw", OPTIMIZERS["adamw"]._replace(moments=1)),
        {"train_optimizer_states"},
    ),
    "parameters": (
        wrapped(states, "stage_tensors", lambda true, *given: list(true(*given))[1:]),
        {"train_parameters", "train_gradients", "train_optimizer_states"},
    ),
    "gradients": (
        wrapped(
            checks, "states", lambda true, *given: true(*given)._replace(gradients=quantity(0))
        ),
        {"train_gradients"},
    ),
    "peak of the loss": (
        wrapped(step, "_loss", lambda true, *given: true(*given)[:1]),
        {"peak_train_flash", "peak_train_recompute"},
    ),
    "a layer that saves a copy": (
        wrapped(trained.Norm, "forward", lambda true, self, x: true(self, x) * torch.ones_like(x)),
        {"saved_flash decoder", "saved_math decoder"},
    ),
    "no recomputation": (
        replaced(trained.TrainedModel, "set_recompute", lambda self, recompute: None),
        {"saved_recompute decoder"},
    ),
    "a frozen head": (
        wrapped(training, "_build", frozen),
        {"train_gradients", "train_optimizer_states"},
    ),
    "a held copy": (
        wrapped(training, "_step", holding_a_copy),
        {"peak_train_flash", "peak_train_math"},
    ),
}


@each("name", BREAKS)
def test_a_wrong_formula_or_step_fails_its_checks(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make_wrong, names = BREAKS[name]
    make_wrong(monkeypatch)
    assert failing(ask, GROUPED.replace("2000", "16000"), tmp_path).keys() >= names


@each(
    ("arguments", "words"),
    [
        (("--train",), "--train needs one model"),
        (("gpt2", "--train", "--scaling"), "--train cannot be combined with --scaling"),
        (("gpt2", "--train", "--simulate", "cuda"), "--simulate cannot be combined with --train"),
        (("bert-base", "--train", "--device", "cpu"), "runs decoders with an lm head"),
        (("gpt3", "--train", "--device", "cpu"), "to train"),
        (("gpt2", "--train", "--kernel", "flex", "--device", "cpu"), "--kernel flex needs a GPU"),
    ],
)
def test_what_cannot_be_trained_is_one_error(
    ask: Ask, arguments: tuple[str, ...], words: str
) -> None:
    answer = ask("verify", *arguments)
    assert words in answer.err
    assert answer.code in (2, 3)


def test_each_storage_counts_once_and_parameters_do_not() -> None:
    layer = torch.nn.Linear(4, 4)
    saved_tensors = SavedTensors(layer)
    x = torch.ones(3, 4, requires_grad=True)
    with saved_tensors.recording():
        y = layer(x)
        (y * y.view(4, 3).view(3, 4)).sum()
    assert [(t.path, t.shape, t.bytes) for t in saved_tensors.tensors] == [
        ("", (3, 4), 48),
        ("", (3, 4), 48),
    ]


def test_a_class_of_transformers_saves_what_the_formula_says(ask: Ask, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
    }
    config = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": 500,
        "head_dim": 16,
    }
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({**config, **sizes, "num_key_value_heads": 2, "torch_dtype": "bfloat16"})
    )
    answer = ask("verify", str(path), "--against", "transformers", "--train", "--json", "-c", "64")
    report = answer.document
    found = {check["name"]: check for check in report["checks"]}
    assert answer.code == 0
    assert found["saved_flash"]["measured"] == found["saved_flash"]["predicted"]
    assert found["saved_recompute"]["measured"] == 2 * 64 * 64 * 2
    assert [figure["name"] for figure in report["reported"]] == ["rope_tables"]


SMALL = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2}
HEADS = {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
}
ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
RECURRENT: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 8, "time_step_rank": 4},
    "mamba2": {"num_heads": 8, "head_dim": 16, "state_size": 8, "n_groups": 2},
    "jamba": {
        **HEADS,
        **ROUTED,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
    },
    "qwen3_next": {
        **HEADS,
        **ROUTED,
        **DELTA,
        "layer_types": ["linear_attention", "full_attention"],
    },
}


@each("name", RECURRENT)
def test_a_class_saves_with_stand_ins_of_its_kernels_what_the_formula_says(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("transformers")
    from attncalc.verify.transformers import training as of_classes
    from attncalc.verify.transformers.training_check import compare_training

    config = {"model_type": name, **SMALL, **RECURRENT[name]}
    with monkeypatch.context() as patch:
        if name != "mamba2":  # a peak takes most of the time
            patch.setattr(of_classes, "_peak", lambda *_: 0)
        compared = compare_training(
            load(config), config, Workload.train(2, 32, dtype="bf16"), lambda _: None
        )
    assert [check.name for check in compared.result.checks if not check.ok] == []
