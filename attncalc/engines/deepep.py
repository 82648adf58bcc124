"""The buffers through which DeepEP sends tokens to experts.

Source: csrc/legacy/config.hpp and deep_ep/buffers/legacy.py of DeepEP.
"""

from ..quantity import Quantity, maximum, quantity, symbol

# Values of a token that share a scale in fp32.
_SCALES_PER = 128
# GPUs of a node that NVLink connects (LEGACY_NUM_MAX_NVL_PEERS).
_PEERS = 8
# Pairs of multiprocessors that send: half of the default of 20 (Buffer.num_sms).
_CHANNELS = 10
# (ranks, tokens of a channel's buffer for each GPU of a node): get_dispatch_config.
_TOKENS_OF_RANKS = ((8, 256), (64, 288), (96, 480), (128, 560), (160, 720))
# Tokens of a channel's buffer for each node.
_TOKENS_OF_NODE = 128
# Bytes beside a token: its source, 128 experts with weights, and 128 scales.
_BESIDE = 8 + 128 * 8 + 128 * 4 + 128 * 4


def low_latency_bytes(experts: int, tokens: int, d_model: int) -> Quantity:
    """Return what get_low_latency_rdma_size_hint asks for: two buffers to send and two to receive,
    each with a message in 16 bits for each expert and each of the `tokens` of a rank.
    """
    groups = d_model // _SCALES_PER
    sent = 16 + max(2 * d_model, d_model + 4 * groups)
    returned = 4 * groups + 2 * d_model
    message = symbol("message", max(sent, returned), "bytes of a token between two GPUs")
    places = symbol("experts", experts, "experts of a layer on all devices") * symbol(
        "batch", tokens, "tokens of a device for one expert"
    )
    return quantity(4 * places * message)


def normal_bytes(ranks: int, d_model: int) -> Quantity:
    """Return what get_nvl_buffer_size_hint and get_rdma_buffer_size_hint ask for, of tokens in 16
    bits.
    """
    token = symbol("token_bytes", 2 * d_model + _BESIDE, "bytes of a token, and beside it")
    of_gpu = next((tokens for most, tokens in _TOKENS_OF_RANKS if ranks <= most), 720)
    peers = symbol("peers", min(ranks, _PEERS), "GPUs of a node")
    sent: int = symbol("channels", _CHANNELS, "channels") * peers * of_gpu * token
    if ranks > _PEERS:
        nodes = symbol("nodes", -(-ranks // _PEERS), "nodes")
        sent = sent + 2 * _CHANNELS * nodes * _TOKENS_OF_NODE * (token + 16)
    return quantity(sent)


def dual_mode_bytes(experts: int, tokens: int, ranks: int, d_model: int) -> Quantity:
    """Return the buffers of both kernels: those for RDMA are one."""
    return quantity(
        normal_bytes(min(ranks, _PEERS), d_model)
        + maximum(
            low_latency_bytes(experts, tokens, d_model),
            normal_bytes(ranks, d_model) - normal_bytes(min(ranks, _PEERS), d_model),
        )
    )
