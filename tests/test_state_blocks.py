"""vLLM's blocks of recurrent states: how many a request takes, and how large attention's blocks
become.
"""

from typing import Any

import pytest
from asking import Ask, refusal, results
from tables import each

from attncalc.attention import CacheSpec
from attncalc.engines.pipeline import LayerCacheSpec
from attncalc.engines.vllm.options import VllmArgs
from attncalc.engines.vllm.state_blocks import StateBlocks, align_blocks, state_blocks
from attncalc.units import dtype

# 512 B per token in 16 bits.
KV = CacheSpec("K and V", 2 * 4, 32, role="kv")
# 8 KiB in 16 bits: 16 tokens of KV.
STATE = CacheSpec("state", 4, 32 * 32, per="sequence", role="state")
ATTENTION = LayerCacheSpec(1, (KV,), "GQA")


def states(*labels: str, width: int = 32 * 32) -> list[LayerCacheSpec]:
    return [LayerCacheSpec(1, (STATE._replace(width=width),), label) for label in labels]


def arguments(version: str, **given: Any) -> VllmArgs:
    return VllmArgs(dtype("bf16"), dtype("bf16"), engine_version=version, **given)


def blocks(
    *labels: str, version: str = "0.33.0", attention: bool = True, **given: Any
) -> StateBlocks | None:
    specs = [*states(*labels), *([ATTENTION] if attention else [])]
    return state_blocks(specs, arguments(version, **given))


@each(
    ("labels", "version", "given", "expected"),
    [
        ((), "0.33.0", {}, None),
        # by default prefixes are cached from 0.28 on: a block for the state, and one to align
        # prefixes
        (("GDN",), "0.27.1", {}, StateBlocks(1, 1, prefix_caching=False)),
        (("GDN",), "0.28.0", {}, StateBlocks(2, 1, prefix_caching=True)),
        (("GDN",), "0.28.0", {"prefix_caching": False}, StateBlocks(1, 1, prefix_caching=False)),
        (("GDN",), "0.25.1", {"prefix_caching": True}, StateBlocks(2, 1, prefix_caching=True)),
        # a checkpoint half-way through a prefill; those of gated delta nets have multiples of 64
        # tokens
        (("GDN",), "0.32.0", {}, StateBlocks(2, 1, prefix_caching=True)),
        (("GDN",), "0.33", {}, StateBlocks(3, 64, prefix_caching=True)),
        (("Mamba-2",), "0.31.0", {}, StateBlocks(2, 1, prefix_caching=True)),
        (("Mamba-2",), "0.32.0", {}, StateBlocks(3, 1, prefix_caching=True)),
        (("Mamba-2", "GDN"), "0.33.0", {}, StateBlocks(3, 64, prefix_caching=True)),
        # only if all states of the model have checkpoints
        (("Mamba-2", "GDN"), "0.32.0", {}, StateBlocks(2, 1, prefix_caching=True)),
        (("GDN", "KDA"), "0.33.0", {}, StateBlocks(2, 1, prefix_caching=True)),
        (("KDA",), "0.33.0", {}, StateBlocks(2, 1, prefix_caching=True)),
        # one block per drafted token, from 0.15 on
        (("GDN",), "0.33.0", {"speculative_tokens": 4}, StateBlocks(7, 64, prefix_caching=True)),
        (
            ("GDN",),
            "0.33.0",
            {"speculative_tokens": 4, "prefix_caching": False},
            StateBlocks(5, 1, False),
        ),
        (("GDN",), "0.15.0", {"speculative_tokens": 4}, StateBlocks(5, 1, prefix_caching=False)),
        (("GDN",), "0.14.1", {"speculative_tokens": 4}, StateBlocks(1, 1, prefix_caching=False)),
        (("GDN",), "0.14.1", {"prefix_caching": True}, StateBlocks(1, 1, prefix_caching=False)),
        (("GDN",), "0.15.0", {"prefix_caching": True}, StateBlocks(2, 1, prefix_caching=True)),
        (
            ("KDA",),
            "0.17.0",
            {"speculative_tokens": 1, "prefix_caching": True},
            StateBlocks(3, 1, True),
        ),
        # 0.20 to 0.27 store no state per chunk if there is a drafter
        (
            ("Mamba-2",),
            "0.20.0",
            {"speculative_tokens": 1, "prefix_caching": True},
            StateBlocks(3, 1, True),
        ),
        (("Mamba",), "0.28.0", {"prefix_caching": True}, StateBlocks(2, 1, prefix_caching=True)),
        (("Mamba",), "0.10.0", {}, StateBlocks(1, 1, prefix_caching=False)),
    ],
)
def test_blocks_of_a_request_by_version_and_options(
    labels: tuple[str, ...], version: str, given: dict[str, Any], expected: StateBlocks | None
) -> None:
    assert blocks(*labels, version=version, **given) == expected


def test_models_without_attention_cache_no_prefixes_unless_asked() -> None:
    assert blocks("GDN", attention=False) == StateBlocks(1, 1, prefix_caching=False)
    assert blocks("GDN", attention=False, prefix_caching=True) == StateBlocks(
        3, 64, prefix_caching=True
    )


def test_a_layer_with_a_state_and_keys_counts_as_both() -> None:
    """Falcon-H1: attention and Mamba-2 side by side in each layer."""
    both = [LayerCacheSpec(1, (KV, STATE), "GDN")]
    for version, expected in (
        ("0.33.0", StateBlocks(3, 64, True)),
        ("0.25.1", StateBlocks(1, 1, False)),
    ):
        assert state_blocks(both, arguments(version)) == expected


ASKED = "leave --prefix-caching out: by default it is off"


@each(
    ("labels", "version", "given", "message", "tip"),
    [
        (
            ("GDN",),
            "0.9.2",
            {},
            "vLLM 0.9.2 has no cache for recurrent layers",
            "use --engine-version 0.10.0 or later",
        ),
        (
            ("KDA",),
            "0.16.0",
            {"speculative_tokens": 1},
            "vLLM 0.16.0 has no speculative decoding for these recurrent layers",
            "use --engine-version 0.17.0 or later, or leave --speculative-tokens out",
        ),
        (
            ("GDN", "KDA"),
            "0.16.0",
            {"speculative_tokens": 1},
            "vLLM 0.16.0 has no speculative decoding for these recurrent layers",
            "use --engine-version 0.17.0 or later, or leave --speculative-tokens out",
        ),
        (
            ("GDN",),
            "0.11.0",
            {"prefix_caching": True},
            "vLLM 0.11.0 has no prefix caching for recurrent layers",
            ASKED,
        ),
        *(
            (
                labels,
                version,
                given,
                f"prefix caching of Mamba layers is not supported for vLLM {version}",
                ASKED,
            )
            for labels, version, given in (
                (("Mamba",), "0.11.1", {"prefix_caching": True}),
                (("Mamba-2",), "0.25.1", {"prefix_caching": True}),
                (("Mamba-2", "GDN"), "0.26.0", {"prefix_caching": True}),
                (("Mamba",), "0.27.1", {"prefix_caching": True}),
                (("Mamba-2",), "0.19.1", {"prefix_caching": True, "speculative_tokens": 1}),
            )
        ),
        (
            ("GDN",),
            "0.16.0",
            {"prefix_caching": True, "speculative_tokens": 1},
            "vLLM 0.16.0 has no prefix caching for recurrent layers with speculative decoding",
            ASKED,
        ),
        (
            ("GDN",),
            "0.15.0",
            {"prefix_caching": True, "speculative_tokens": 1},
            "vLLM 0.15.0 has no prefix caching for recurrent layers with speculative decoding",
            ASKED,
        ),
    ],
)
def test_unsupported_states_are_errors(
    labels: tuple[str, ...], version: str, given: dict[str, Any], message: str, tip: str
) -> None:
    error = refusal(blocks, *labels, version=version, **given)
    assert (error.message, error.tip) == (message, tip)


@pytest.mark.parametrize(
    ("version", "given"),
    [
        # its states have no blocks for drafted tokens
        ("0.14.1", {"prefix_caching": True, "speculative_tokens": 1}),
        ("0.17.0", {"prefix_caching": True, "speculative_tokens": 1}),
        ("0.16.0", {"speculative_tokens": 1}),
        ("0.11.1", {"prefix_caching": True}),
    ],
)
def test_gated_delta_nets_have_drafters_and_prefixes_before_other_states(
    version: str, given: dict[str, Any]
) -> None:
    assert blocks("GDN", version=version, **given)


# How attention's blocks grow

# 1,152 B per token.
LATENT = LayerCacheSpec(1, (CacheSpec("latent", 1, 576, role="latent"),), "MLA")


def aligned(
    specs: list[LayerCacheSpec], version: str = "0.19.1", *, requested: int = 16, alignment: int = 1
) -> int | None:
    with_states = StateBlocks(1, alignment, prefix_caching=False)
    found = align_blocks(specs, arguments(version), with_states, requested)
    if found:
        assert found.requested == requested
    return found and int(found.block_size)


@pytest.mark.parametrize(
    ("kib", "tokens"),
    # a token takes 512 B, and blocks are multiples of 16 tokens, which take 8 KiB
    [(1, 16), (8, 16), (9, 32), (16, 32), (17, 48), (100, 208)],
)
def test_blocks_grow_to_the_next_multiple_of_16_tokens_that_holds_a_state(
    kib: int, tokens: int
) -> None:
    # a state has 4 rows of 2 B
    assert aligned([*states("GDN", width=kib * 128), ATTENTION]) == tokens


@pytest.mark.parametrize(
    ("version", "requested", "tokens"),
    # a state of 17 KiB needs 34 tokens. Up to 0.19 multiples of 16, and at least the requested
    # size; then its multiples
    [
        ("0.19.1", 16, 48),
        ("0.19.1", 32, 48),
        ("0.19.1", 48, 48),
        ("0.19.1", 64, 64),
        ("0.20.0", 16, 48),
        ("0.20.0", 32, 64),
        ("0.20.0", 64, 64),
        ("0.20.0", 128, 128),
        ("0.20.0", 8, 48),
    ],
)
def test_blocks_are_multiples_of_the_kernels_or_the_requested_size(
    version: str, requested: int, tokens: int
) -> None:
    assert (
        aligned([*states("GDN", width=17 * 128), ATTENTION], version, requested=requested) == tokens
    )


@pytest.mark.parametrize(
    ("version", "requested", "tokens"),
    # a token takes 1,152 B and a state of 100 KiB 88.9 of them: multiples of 64, from 0.27 on of
    # 128
    [
        ("0.11.1", 64, 128),
        ("0.19.1", 64, 128),
        ("0.20.0", 64, 128),
        ("0.20.0", 192, 192),
        ("0.26.0", 64, 128),
        ("0.27.0", 64, 128),
        ("0.27.0", 256, 256),
    ],
)
def test_blocks_of_latents_are_multiples_of_64_or_128(
    version: str, requested: int, tokens: int
) -> None:
    assert (
        aligned([*states("KDA", width=100 * 128), LATENT], version, requested=requested) == tokens
    )
    # a state of 200 KiB has 177.8 tokens
    more = {"0.27.0": 256}.get(version, 192)
    assert aligned([*states("KDA", width=200 * 128), LATENT], version, requested=requested) == max(
        more, requested
    )


def test_blocks_are_multiples_of_what_checkpoints_need_too() -> None:
    """34 tokens, and multiples of 64; with a requested size of 48, of 192."""
    specs = [*states("GDN", width=17 * 128), ATTENTION]
    assert aligned(specs, alignment=64) == 64
    assert aligned(specs, "0.33.0", requested=48, alignment=64) == 192


def test_the_largest_state_and_the_widest_token_decide() -> None:
    """17 KiB and 512 B."""
    narrow = LayerCacheSpec(1, (KV._replace(width=16),), "GQA")
    several = [
        *states("GDN"),
        *states("GDN", width=17 * 128),
        *states("GDN"),
        narrow,
        ATTENTION,
        narrow,
    ]
    assert aligned(several) == 48
    # cross-attention's tokens are another sequence's
    across = LayerCacheSpec(1, (KV, KV._replace(width=320, per="source token")), "GQA")
    assert aligned([*states("GDN", width=17 * 128), across]) == 48


def test_nothing_grows_without_both_states_and_attention() -> None:
    assert aligned([ATTENTION]) is None
    assert aligned(states("GDN")) is None
    version = "0.19.1"
    assert align_blocks([ATTENTION], arguments(version), None, 16) is None


def test_latents_beside_states_need_0_11_1() -> None:
    error = refusal(aligned, [*states("KDA"), LATENT], "0.11.0")
    assert error.message == "vLLM 0.11.0 has no MLA beside recurrent layers"
    assert error.tip == "use --engine-version 0.11.1 or later"


@each(
    ("version", "options", "missing", "verdict"),
    [
        ("0.20.0", [], 0, "FITS"),
        (
            "0.20.0",
            [],
            1,
            "DOES NOT START: a step may have 1,024 sequences, and the cache has at most 1,023 "
            "blocks of states.",
        ),
        ("0.28.0", ["--max-num-seqs", "1023"], 1, "FITS"),
        ("0.28.0", ["--enforce-eager"], 1, "FITS"),  # without CUDA graphs it is not checked
        ("0.19.1", [], 1, "FITS"),
    ],
)
def test_vllm_starts_only_with_a_block_for_each_sequence(
    ask: Ask, version: str, options: list[str], missing: int, verdict: str
) -> None:
    """An H200 has 1,024 sequences by default: num_gpu_blocks is the memory / bytes of a block,
    rounded down.
    """
    asked = (
        "fit",
        "qwen3.6-27b",
        "-c",
        "4096",
        "--gpu",
        "h200",
        "--engine",
        "vllm",
        "--engine-version",
        version,
    )
    block = results(ask(*asked, *options, "--kv-memory", "30GiB", "--json"))["kv_bytes_per_block"]
    shown = " ".join(ask(*asked, *options, "--kv-memory", f"{1024 * block - missing}").out.split())
    assert shown.startswith(verdict)
    assert ("Use --max-num-seqs 1023 or less" in shown) is verdict.startswith("DOES")


def test_too_few_blocks_for_states_at_one_end_of_the_range_may_not_start(ask: Ask) -> None:
    asked = (
        "fit",
        "qwen3.6-27b",
        "-c",
        "4096",
        "--gpu",
        "h100",
        "--engine-version",
        "0.28.0",
        "--max-num-seqs",
    )
    shown = " ".join(ask(*asked, "370").out.split())
    assert shown.startswith(
        "MAY NOT FIT: a step may have 370 sequences, and the cache may have only "
    )
    # expected are 382 blocks: more sequences need another GPU
    assert [
        results(ask(*asked, sequences, "--json"))["min_gpus"] for sequences in ("370", "390")
    ] == [1, 2]
