"""Connectors of vLLM's cache, which may turn its hybrid KV-cache manager off: --kv-transfer-config.

Without the manager, layers with a sliding window store the whole context.
"""

import json
from typing import Any

import pytest
from asking import Ask, results

from attncalc.logs.vllm import read_log
from attncalc.units import GIB

LMCACHE = '{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
NIXL = '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
GPT_OSS = ("fit", "gpt-oss-120b", "--gpu", "mi325x", "--kv-memory", "10.79GiB")


def figures(ask: Ask, *options: str) -> dict[str, Any]:
    return results(ask(*GPT_OSS, *options, "--json"))


def test_lmcache_leaves_gpt_oss_the_tokens_that_were_logged(ask: Ask) -> None:
    """A start with LMCache has 10.79 GiB and logs 157,200 tokens: 36 layers of 2 KiB, windows too.

    10.79 GiB may be 0.005 more: 73 tokens, and a block of 16.
    """
    with_lmcache = figures(ask, "--kv-transfer-config", LMCACHE)
    assert with_lmcache["kv_tokens"] == pytest.approx(157_200, abs=89)
    assert figures(ask)["kv_tokens"] > 250_000


@pytest.mark.parametrize(
    ("version", "connector", "keeps_windows_small"),
    [
        ("0.11.0", NIXL, False),
        ("0.21.0", NIXL, False),  # whatever the connector supports
        ("0.22.0", NIXL, True),
        ("0.33.0", NIXL, True),
        ("0.33.0", LMCACHE, False),
        ("0.33.0", '{"kv_connector": "LMCacheMPConnector"}', True),
        ("0.29.0", '{"kv_connector": "MoRIIOConnector"}', False),
        ("0.30.0", '{"kv_connector": "MoRIIOConnector"}', True),
        ("0.33.0", '{"kv_connector": "OfMyOwn"}', False),
        (
            "0.33.0",
            json.dumps(
                {
                    "kv_connector": "MultiConnector",
                    "kv_connector_extra_config": {"connectors": [json.loads(NIXL)]},
                }
            ),
            True,
        ),
        (
            "0.33.0",
            json.dumps(
                {
                    "kv_connector": "MultiConnector",
                    "kv_connector_extra_config": {
                        "connectors": [json.loads(NIXL), json.loads(LMCACHE)]
                    },
                }
            ),
            False,
        ),
        ("0.33.0", '{"kv_connector": "MultiConnector"}', False),
    ],
)
def test_a_connector_that_supports_no_hybrids_stores_windows_as_full_attention(
    ask: Ask, version: str, connector: str, *, keeps_windows_small: bool
) -> None:
    of_version = ("--engine-version", version)
    found = figures(ask, *of_version, "--kv-transfer-config", connector)["concurrency"]
    without = figures(ask, *of_version)["concurrency"]
    assert (found == without) == keeps_windows_small


@pytest.mark.parametrize("is_inner", [False, True])
def test_a_misspelt_connector_is_not_taken_for_one_of_the_users(
    ask: Ask, *, is_inner: bool
) -> None:
    """vLLM has no connector of that name either: "Unsupported connector type: NixlConector"."""
    config: dict[str, Any] = {"kv_connector": "NixlConector"}
    if is_inner:
        inner = {"connectors": [config]}
        config = {"kv_connector": "MultiConnector", "kv_connector_extra_config": inner}
    refused = ask(*GPT_OSS, "--kv-transfer-config", json.dumps(config))
    assert "no connector NixlConector\n  tip: did you mean 'NixlConnector'?" in refused.error
    # a class of the user's own may have that name
    own = {"kv_connector": "NixlConector", "kv_connector_module_path": "a.b"}
    assert ask(*GPT_OSS, "--kv-transfer-config", json.dumps(own)).code == 0


def test_the_manager_can_be_kept_from_0_13_on(ask: Ask) -> None:
    def gains(version: str) -> bool:
        asked = ("--kv-transfer-config", NIXL, "--engine-version", version)
        kept = figures(ask, *asked, "--no-disable-hybrid-kv-cache-manager")
        return bool(kept["concurrency"] > figures(ask, *asked)["concurrency"])

    assert gains("0.18.0")
    # its default was no, so that no was as if it were not given
    assert not gains("0.12.0")


def test_a_screen_says_that_a_connector_makes_windows_large(ask: Ask) -> None:
    version = ("--engine-version", "0.21.0")
    screen = " ".join(ask(*GPT_OSS, *version, "--kv-transfer-config", NIXL).out.split())
    assert "with NixlConnector vLLM 0.21.0 turns its hybrid KV-cache manager off" in screen
    assert "--no-disable-hybrid-kv-cache-manager keeps it on." in screen


@pytest.mark.parametrize("version", ["0.16.0", "0.20.2"])
def test_offloading_does_not_start_with_the_manager_before_its_connector_supports_it(
    ask: Ask, version: str
) -> None:
    """ovg-project/kvcached#267: "Connector OffloadingConnector does not support HMA but HMA is
    enabled", of 0.16.0 with --kv-offloading-size 4.
    """
    asked = ("fit", "qwen3-8b", "--gpu", "h100", "--kv-offloading-size", "4")
    refused = ask(*asked, "--engine-version", version)
    assert refused.code == 1
    assert "does not support the hybrid KV-cache manager" in " ".join(refused.out.split())
    without = ask(*asked, "--engine-version", version, "--disable-hybrid-kv-cache-manager")
    assert without.code == ask(*asked, "--engine-version", "0.21.0").code == 0


@pytest.mark.parametrize(
    ("config", "size"),
    [
        # of one GPU, in GiB
        ({"kv_connector": "LMCacheConnectorV1", "size": ("lmcache.max_local_cpu_size", 2.5)}, 5),
        # of all GPUs, in bytes
        ({"kv_connector": "OffloadingConnector", "size": ("cpu_bytes_to_use", 4 * GIB)}, 4),
    ],
)
def test_a_connector_may_have_the_size_of_a_cache_in_host_memory(
    ask: Ask, config: dict[str, Any], size: int
) -> None:
    key, value = config.pop("size")
    text = json.dumps({**config, "kv_connector_extra_config": {key: value}})
    asked = ("fit", "qwen3-8b", "--gpu", "2xh100", "--json", "-c", "8192")
    by_connector = results(ask(*asked, "--kv-transfer-config", text))
    backend = "lmcache" if key.startswith("lmcache") else "native"
    by_size = results(
        ask(*asked, "--kv-offloading-size", str(size), "--kv-offloading-backend", backend)
    )
    assert by_connector == by_size
    assert "kv_tokens" in by_size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "'{' is not a JSON object"),
        ("{}", "it names no kv_connector"),
        ('{"kv_connector": 3}', "it names no kv_connector"),
        (
            '{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": '
            '{"cpu_bytes_to_use": "x"}}',
            "of cpu_bytes_to_use is not a size",
        ),
        (
            '{"kv_connector": "OffloadingConnector", "kv_connector_extra_config": '
            '{"cpu_bytes_to_use": 1e30}}',
            "of cpu_bytes_to_use is not a size",
        ),
        (
            '{"kv_connector": "LMCacheConnectorV1", "kv_connector_extra_config": '
            '{"lmcache.max_local_cpu_size": true}}',
            "true of lmcache.max_local_cpu_size is not a size",
        ),
        ('{"kv_connector": "X", "kv_connector_extra_config": 3}', "is not an object"),
        (
            '{"kv_connector": "X", "kv_connector_extra_config": {"connectors": [3]}}',
            "connectors is not a list of objects",
        ),
    ],
)
def test_a_connector_that_is_not_understood_is_an_error(ask: Ask, text: str, message: str) -> None:
    assert message in ask(*GPT_OSS, "--kv-transfer-config", text).error


def test_a_model_with_states_needs_the_manager(ask: Ask) -> None:
    asked = ("fit", "qwen3.6-27b", "--gpu", "h200", "--kv-transfer-config", LMCACHE)
    assert "without its hybrid KV-cache manager" in ask(*asked).error


def test_a_connector_is_read_in_a_log() -> None:
    log = read_log(
        [
            "INFO [api_server.py:1] vLLM API server version 0.21.0",
            "INFO [utils.py:233] non-default args: {'model': 'openai/gpt-oss-120b', "
            "'kv_transfer_config': KVTransferConfig(kv_connector='LMCacheConnectorV1', "
            "engine_id='1', kv_role='kv_both')}",
            "WARNING [vllm.py:932] Turning off hybrid kv cache manager because "
            "`--kv-transfer-config` is set.",
            "INFO [kv_cache_utils.py:1] GPU KV cache size: 157,200 tokens",
        ]
    )
    assert log
    assert log.settings["disable_hybrid_kv_cache_manager"] == "True"
    assert log.settings["kv_transfer_config"] == '{"kv_connector": "LMCacheConnectorV1"}'


@pytest.mark.parametrize(
    ("connector", "version", "keeps"),
    [("LMCacheConnectorV1", "0.33.0", False), ("NixlConnector", "0.21.0", True)],
)
def test_a_tip_keeps_the_manager_only_for_connectors_that_support_it(
    ask: Ask, connector: str, version: str, keeps: bool
) -> None:
    """With the others vLLM does not start then."""
    config = json.dumps({"kv_connector": connector})
    asked = (
        "deepseek-v4-flash",
        "--gpu",
        "8xb200",
        "--kv-dtype",
        "fp8",
        "--engine-version",
        version,
    )
    error = ask("fit", *asked, "--kv-transfer-config", config).error
    assert "compressed attention needs the hybrid KV-cache manager" in error
    assert ("--no-disable-hybrid-kv-cache-manager" in error) == keeps


@pytest.mark.parametrize(
    ("version", "line", "is_off"),
    [
        ("0.32.0", "", False),
        ("0.32.0", "Turning off hybrid kv cache manager because", True),
        ("0.21.0", "", True),
    ],
)
def test_a_log_of_several_connectors_says_whether_they_turn_the_manager_off(
    version: str, line: str, is_off: bool
) -> None:
    """It does not name them, and from 0.22 on they decide."""
    log = read_log(
        [
            f"INFO [core.py:114] Initializing a V1 LLM engine (v{version}) with config: model='a/b'",
            "INFO [utils.py:233] non-default args: {'model': 'a/b', 'kv_transfer_config': "
            "KVTransferConfig(kv_connector='MultiConnector', engine_id='x')}",
            f"WARNING [vllm.py:1] {line}",
            "INFO [kv_cache_utils.py:1] GPU KV cache size: 157,200 tokens",
        ]
    )
    assert log
    # a connector without children supports nothing
    turns_off = {"kv_transfer_config", "disable_hybrid_kv_cache_manager"}
    assert bool(turns_off.intersection(log.settings)) == is_off
