"""Recurrent layers compute what transformers' own modules compute with the same weights."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from attncalc.attention import Attention
from attncalc.attention.linear import GatedDeltaNet, Lightning, ShortConvolution
from attncalc.attention.mamba import Mamba, Mamba2
from attncalc.attention.rglru import RgLru
from attncalc.attention.rwkv import Rwkv
from attncalc.attention.xlstm import MLstm
from attncalc.verify import need_torch

need_torch()
import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from attncalc.verify.layers import build  # noqa: E402
from attncalc.verify.layers.recurrent import State  # noqa: E402

D, TOKENS = 64, 12


@pytest.fixture(autouse=True)
def seeded(transformers: ModuleType) -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def hf_module(path: str, config: Any) -> nn.Module:
    """Return transformers' module ('mamba.MambaMixer') with random weights and the epsilon of
    attncalc's norms.
    """
    from importlib import import_module

    family, name = path.split(".")
    module: nn.Module = getattr(
        import_module(f"transformers.models.{family}.modeling_{family}"), name
    )(*((config,) if family == "xlstm" else (config, 0)))
    for parameter in module.parameters():
        parameter.copy_(0.3 * torch.randn_like(parameter))
    for part in module.modules():
        for epsilon in ("eps", "variance_epsilon"):
            if hasattr(part, epsilon):
                setattr(part, epsilon, 1e-6)
    return module


def relative_error(
    kind: Attention,
    weights: dict[str, Tensor],
    hf_layer: nn.Module,
    *arguments: Any,
    **options: Any,
) -> float:
    """Return the largest relative difference of the outputs, with `weights` in attncalc's layer."""
    layer = build(kind, D, D)
    parameters = dict(layer.named_parameters())
    assert parameters.keys() == weights.keys()
    for name, weight in weights.items():
        parameters[name].copy_(weight.reshape(parameters[name].shape))
    x = torch.randn(2, TOKENS, D)
    output = hf_layer(x, *arguments, **options)
    expected = output[0] if isinstance(output, tuple) else output
    return float((layer(x, State()) - expected).abs().max() / expected.abs().max())


def renamed(hf_layer: nn.Module, **names: str) -> dict[str, Tensor]:
    """Return the weights and biases of transformers' module under attncalc's names."""
    parameters = dict(hf_layer.named_parameters())
    weights: dict[str, Tensor] = {}
    for our_name, their_name in names.items():
        for part in ("weight", "bias"):
            if f"{their_name}.{part}" in parameters:
                weights[f"{our_name}.{part}"] = parameters[f"{their_name}.{part}"]
    return weights


def test_mamba(transformers: Any) -> None:
    config = transformers.MambaConfig(
        hidden_size=D, state_size=8, intermediate_size=96, time_step_rank=3
    )
    hf_layer: Any = hf_module("mamba.MambaMixer", config)
    weights = renamed(
        hf_layer, W_in="in_proj", conv="conv1d", W_x="x_proj", W_dt="dt_proj", W_out="out_proj"
    )
    weights |= {"A_log": hf_layer.A_log, "D": hf_layer.D}
    kind = Mamba(hf_layer.intermediate_size, 8, 4, 3, conv_bias=True)
    assert relative_error(kind, weights, hf_layer) < 1e-5


@pytest.mark.parametrize("groups", [1, 2])
def test_mamba2(transformers: Any, groups: int) -> None:
    config = transformers.Mamba2Config(
        hidden_size=D,
        num_heads=16,
        head_dim=8,
        expand=2,
        state_size=16,
        n_groups=groups,
        chunk_size=4,
    )
    hf_layer: Any = hf_module("mamba2.Mamba2Mixer", config)
    weights = renamed(hf_layer, W_in="in_proj", conv="conv1d", norm="norm", W_out="out_proj")
    weights["dt_A_D"] = torch.stack((hf_layer.dt_bias, hf_layer.A_log, hf_layer.D))
    assert (
        relative_error(
            Mamba2(16, 8, 16, 4, groups, conv_bias=True, inner_norm=True), weights, hf_layer
        )
        < 1e-5
    )


def test_gated_delta_net(transformers: Any) -> None:
    config = transformers.Qwen3NextConfig(
        hidden_size=D,
        num_hidden_layers=4,
        linear_num_value_heads=4,
        linear_num_key_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=12,
    )
    hf_layer: Any = hf_module("qwen3_next.Qwen3NextGatedDeltaNet", config)
    weights = renamed(hf_layer, conv="conv1d", norm="norm", W_o="out_proj")
    # rows are ordered by key head, each followed by its two value heads
    widths = (8, 8, 2 * 12, 2 * 12)
    of_heads = hf_layer.in_proj_qkvz.weight.unflatten(0, (2, -1)).split(widths, 1)
    weights |= {
        f"W_{n}.weight": rows for n, rows in zip(("q", "k", "v", "gate"), of_heads, strict=True)
    }
    beta, decay = hf_layer.in_proj_ba.weight.unflatten(0, (2, 2, 2)).unbind(1)
    weights |= {
        "W_beta.weight": beta,
        "W_decay.weight": decay,
        "dt_A": torch.cat((hf_layer.dt_bias, hf_layer.A_log)),
    }
    assert relative_error(GatedDeltaNet(4, 8, 12, 4, n_k_heads=2), weights, hf_layer) < 1e-5


def test_kimi_delta_attention(transformers: Any) -> None:
    config = transformers.KimiLinearConfig(
        hidden_size=D,
        num_hidden_layers=5,
        linear_num_heads=4,
        linear_head_dim=8,
        linear_conv_kernel_dim=4,
    )
    hf_layer: Any = hf_module("kimi_linear.KimiLinearDeltaAttention", config)
    weights = renamed(
        hf_layer,
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
    weights["dt_A"] = torch.cat(
        (hf_layer.forget_gate.dt_bias, hf_layer.forget_gate.A_log.flatten())
    )
    assert (
        relative_error(
            GatedDeltaNet(4, 8, 8, 4, channel_decay=True, gate_rank=8), weights, hf_layer
        )
        < 1e-5
    )


def test_lightning_attention(transformers: Any) -> None:
    config = transformers.MiniMaxConfig(
        hidden_size=D, num_attention_heads=4, head_dim=8, num_hidden_layers=6, block_size=5
    )
    hf_layer = hf_module("minimax.MiniMaxLightningAttention", config)
    weights = renamed(hf_layer, W_qkv="qkv_proj", W_gate="output_gate", norm="norm", W_o="out_proj")
    # its decay depends on the layer index
    assert relative_error(Lightning(4, 8), weights, hf_layer, None, None) < 1e-4


def test_short_convolution(transformers: Any) -> None:
    config = transformers.Lfm2Config(
        hidden_size=D, conv_L_cache=3, conv_bias=True, num_hidden_layers=2, layer_types=["conv"] * 2
    )
    hf_layer = hf_module("lfm2.Lfm2ShortConv", config)
    weights = renamed(hf_layer, W_in="in_proj", conv="conv", W_out="out_proj")
    assert relative_error(ShortConvolution(D, 3, conv_bias=True), weights, hf_layer) < 1e-5


def test_rg_lru(transformers: Any) -> None:
    config = transformers.RecurrentGemmaConfig(hidden_size=D, lru_width=48, num_attention_heads=4)
    hf_layer: Any = hf_module("recurrent_gemma.RecurrentGemmaRecurrentBlock", config)
    weights = renamed(hf_layer, W_x="linear_x", W_y="linear_y", conv="conv_1d", W_out="linear_out")
    for gate in ("input_gate", "recurrent_gate"):
        for part in ("weight", "bias"):
            weights[f"W_{gate}.{part}"] = getattr(hf_layer.rg_lru, f"{gate}_{part}")
    weights["decay"] = hf_layer.rg_lru.recurrent_param
    positions = torch.arange(TOKENS)[None]
    assert (
        relative_error(RgLru(48, 4, 4), weights, hf_layer, positions, None, use_cache=False) < 1e-5
    )


def test_rwkv(transformers: Any) -> None:
    hf_layer: Any = hf_module("rwkv.RwkvSelfAttention", transformers.RwkvConfig(hidden_size=D))
    weights = renamed(hf_layer, W_k="key", W_v="value", W_r="receptance", W_o="output")
    weights["time_mix"] = torch.cat(
        (hf_layer.time_mix_key, hf_layer.time_mix_value, hf_layer.time_mix_receptance)
    )
    weights["decay_and_first"] = torch.stack((hf_layer.time_decay, hf_layer.time_first))
    assert relative_error(Rwkv(D), weights, hf_layer) < 1e-5


def test_mlstm(transformers: Any) -> None:
    config = transformers.xLSTMConfig(hidden_size=D, num_heads=4, qk_dim_factor=1.0, chunk_size=4)
    hf_layer = hf_module("xlstm.xLSTMLayer", config)
    weights = renamed(
        hf_layer,
        W_q="q",
        W_k="k",
        W_v="v",
        W_gate="ogate_preact",
        W_input_gate="igate_preact",
        W_forget_gate="fgate_preact",
        norm="multihead_norm",
        W_o="out_proj",
    )
    assert relative_error(MLstm(4, 16, 16), weights, hf_layer) < 1e-4
