"""Recurrent layers give what transformers' own modules give with the same weights, where transformers is here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from attncalc.attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from attncalc.attention.mamba import Mamba, Mamba2
from attncalc.attention.recurrent import Recurrent
from attncalc.attention.rglru import RgLru
from attncalc.attention.rwkv import Rwkv
from attncalc.attention.xlstm import MLstm
from attncalc.errors import CannotCheckError
from attncalc.verify import need_torch, need_transformers

need_torch()
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from attncalc.verify.recurrent import build_recurrent  # noqa: E402
from attncalc.verify.states import State  # noqa: E402

D, TOKENS = 64, 12


@pytest.fixture(autouse=True)
def transformers() -> Iterator[Any]:
    try:
        need_transformers()
    except CannotCheckError as error:
        pytest.skip(error.message)
    import transformers

    torch.manual_seed(0)
    with torch.no_grad():
        yield transformers


def module(of: str, config: Any) -> nn.Module:
    """transformers' module, as 'mamba.MambaMixer', with random weights and the epsilon of our norms."""
    from importlib import import_module

    family, name = of.split(".")
    made: nn.Module = getattr(import_module(f"transformers.models.{family}.modeling_{family}"), name)(
        *((config,) if family == "xlstm" else (config, 0))
    )
    for parameter in made.parameters():
        parameter.copy_(0.3 * torch.randn_like(parameter))
    for part in made.modules():
        for epsilon in ("eps", "variance_epsilon"):
            if hasattr(part, epsilon):
                setattr(part, epsilon, 1e-6)
    return made


def differs(kind: Recurrent, parts: dict[str, Tensor], theirs: nn.Module, *given: Any, **more: Any) -> float:
    """The largest difference of the outputs, of the largest, with `parts` for our weights."""
    ours = build_recurrent(kind, D)
    own = dict(ours.named_parameters())
    assert own.keys() == parts.keys()
    for name, part in parts.items():
        own[name].copy_(part.reshape(own[name].shape))
    x = torch.randn(2, TOKENS, D)
    found = theirs(x, *given, **more)
    expected = found[0] if isinstance(found, tuple) else found
    return float((ours(x, State()) - expected).abs().max() / expected.abs().max())


def named(theirs: nn.Module, **names: str) -> dict[str, Tensor]:
    """Our names -> their parameters, with the biases that are there."""
    of = dict(theirs.named_parameters())
    found: dict[str, Tensor] = {}
    for ours, name in names.items():
        for part in ("weight", "bias"):
            if f"{name}.{part}" in of:
                found[f"{ours}.{part}"] = of[f"{name}.{part}"]
    return found


def test_mamba(transformers: Any) -> None:
    config = transformers.MambaConfig(hidden_size=D, state_size=8, intermediate_size=96, time_step_rank=3)
    theirs: Any = module("mamba.MambaMixer", config)
    parts = named(theirs, W_in="in_proj", conv="conv1d", W_x="x_proj", W_dt="dt_proj", W_out="out_proj")
    parts |= {"A_log": theirs.A_log, "D": theirs.D}
    kind = Mamba(theirs.intermediate_size, 8, 4, 3, conv_bias=True)
    assert differs(kind, parts, theirs) < 1e-5


@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2(transformers: Any, groups: int) -> None:
    config = transformers.Mamba2Config(
        hidden_size=D, num_heads=16, head_dim=8, expand=2, state_size=16, n_groups=groups, chunk_size=4
    )
    theirs: Any = module("mamba2.Mamba2Mixer", config)
    parts = named(theirs, W_in="in_proj", conv="conv1d", norm="norm", W_out="out_proj")
    parts["dt_A_D"] = torch.stack((theirs.dt_bias, theirs.A_log, theirs.D))
    assert differs(Mamba2(16, 8, 16, 4, groups, conv_bias=True, inner_norm=True), parts, theirs) < 1e-5


def test_gated_delta_net(transformers: Any) -> None:
    config = transformers.Qwen3NextConfig(
        hidden_size=D,
        num_hidden_layers=4,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=12,
    )
    theirs: Any = module("qwen3_next.Qwen3NextGatedDeltaNet", config)
    parts = named(theirs, conv="conv1d", norm="norm", W_o="out_proj")
    # a head of keys after another, each with its two heads of values
    widths = (8, 8, 2 * 12, 2 * 12)
    of_heads = theirs.in_proj_qkvz.weight.unflatten(0, (2, -1)).split(widths, 1)
    parts |= {f"W_{n}.weight": rows for n, rows in zip(("q", "k", "v", "gate"), of_heads, strict=True)}
    beta, decay = theirs.in_proj_ba.weight.unflatten(0, (2, 2, 2)).unbind(1)
    parts |= {"W_beta.weight": beta, "W_decay.weight": decay, "dt_A": torch.cat((theirs.dt_bias, theirs.A_log))}
    assert differs(GatedDeltaNet(4, 8, 12, 4, n_k_heads=2), parts, theirs) < 1e-5


def test_kimi_delta_attention(transformers: Any) -> None:
    config = transformers.KimiLinearConfig(
        hidden_size=D, num_hidden_layers=5, linear_num_heads=4, linear_head_dim=8, linear_conv_kernel_dim=4
    )
    theirs: Any = module("kimi_linear.KimiLinearDeltaAttention", config)
    parts = named(
        theirs,
        W_q="q_proj",
        W_k="k_proj",
        W_v="v_proj",
        conv="conv1d",
        W_beta="b_proj",
        W_decay_a="forget_gate.f_a_proj",
        W_decay_b="forget_gate.f_b_proj",
        W_gate_a="g_a_proj",
        W_gate_b="g_b_proj",
        norm="o_norm",
        W_o="o_proj",
    )
    parts["dt_A"] = torch.cat((theirs.forget_gate.dt_bias, theirs.forget_gate.A_log.flatten()))
    assert differs(GatedDeltaNet(4, 8, 8, 4, channel_decay=True, gate_rank=8), parts, theirs) < 1e-5


def test_lightning_attention(transformers: Any) -> None:
    config = transformers.MiniMaxConfig(
        hidden_size=D, num_attention_heads=4, head_dim=8, num_hidden_layers=6, block_size=5
    )
    theirs = module("minimax.MiniMaxLightningAttention", config)
    parts = named(theirs, W_qkv="qkv_proj", W_gate="output_gate", norm="norm", W_o="out_proj")
    assert differs(Lightning(4, 8), parts, theirs, None, None) < 1e-4  # its decay depends on the layer's number


def test_short_convolution(transformers: Any) -> None:
    config = transformers.Lfm2Config(
        hidden_size=D, conv_L_cache=3, conv_bias=True, num_hidden_layers=2, layer_types=["conv"] * 2
    )
    theirs = module("lfm2.Lfm2ShortConv", config)
    parts = named(theirs, W_in="in_proj", conv="conv", W_out="out_proj")
    assert differs(ShortConvolution(D, 3, conv_bias=True), parts, theirs) < 1e-5


def test_rg_lru(transformers: Any) -> None:
    config = transformers.RecurrentGemmaConfig(hidden_size=D, lru_width=48, num_attention_heads=4)
    theirs: Any = module("recurrent_gemma.RecurrentGemmaRecurrentBlock", config)
    parts = named(theirs, W_x="linear_x", W_y="linear_y", conv="conv_1d", W_out="linear_out")
    for gate in ("input_gate", "recurrent_gate"):
        for part in ("weight", "bias"):
            parts[f"W_{gate}.{part}"] = getattr(theirs.rg_lru, f"{gate}_{part}")
    parts["decay"] = theirs.rg_lru.recurrent_param
    positions = torch.arange(TOKENS)[None]
    assert differs(RgLru(48, 4, 4), parts, theirs, positions, None, use_cache=False) < 1e-5


def test_rwkv(transformers: Any) -> None:
    theirs: Any = module("rwkv.RwkvSelfAttention", transformers.RwkvConfig(hidden_size=D))
    parts = named(theirs, W_k="key", W_v="value", W_r="receptance", W_o="output")
    parts["time_mix"] = torch.cat((theirs.time_mix_key, theirs.time_mix_value, theirs.time_mix_receptance))
    parts["decay_and_first"] = torch.stack((theirs.time_decay, theirs.time_first))
    assert differs(Rwkv(D), parts, theirs) < 1e-5


def test_mlstm(transformers: Any) -> None:
    config = transformers.xLSTMConfig(hidden_size=D, num_heads=4, qk_dim_factor=1.0, chunk_size=4)
    theirs = module("xlstm.xLSTMLayer", config)
    parts = named(
        theirs,
        W_q="q",
        W_k="k",
        W_v="v",
        W_gate="ogate_preact",
        W_input_gate="igate_preact",
        W_forget_gate="fgate_preact",
        norm="multihead_norm",
        W_o="out_proj",
    )
    assert differs(MLstm(4, 16, 16), parts, theirs) < 1e-4
