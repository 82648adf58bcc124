"""What llama.cpp keeps beside weights and cache, from its arguments:
attncalc/engines/llamacpp/runtime.py.

The bytes of the compute buffer are in test_compute_buffer.py, posted logs in
test_llamacpp_buffers.py.
"""

import dataclasses
from typing import Any

import pytest
from tables import each
from test_runtime_parts import facts, model, parts

from attncalc import Grouped, Layers, Mlp, Sliding, Stack
from attncalc.engines import find_engine
from attncalc.engines.llamacpp.compute_buffer import Graph
from attncalc.engines.llamacpp.engine import ENGINE
from attncalc.engines.llamacpp.options import LlamacppArgs
from attncalc.engines.llamacpp.runtime import _graph, runtime
from attncalc.engines.runtime import RuntimeFacts, RuntimeMemory
from attncalc.model import ModelSpec, Tower
from attncalc.serving.weights import weights
from attncalc.units import GIB, dtype

OLD, NEW, BETWEEN, NO_FLASH = "b9371", "b9500", "b9372", "b6324"


def llama(whole: ModelSpec | None = None, **changes: Any) -> RuntimeFacts[Any]:
    """Return the facts of a start with an f16 cache and a context of 500 tokens."""
    types: dict[str, Any] = {"kv_dtype": "f16"}
    types |= {
        name: changes.pop(name)
        for name in ("kv_dtype", "kv_dtype_k", "kv_dtype_v")
        if name in changes
    }
    types = {name: dtype(text) for name, text in types.items()}
    asked = facts(
        whole, LlamacppArgs, **{"engine_version": NEW, "attentions": frozenset(), **changes}
    )
    return dataclasses.replace(asked, args=dataclasses.replace(asked.args, **types))


def graph(whole: ModelSpec | None = None, **changes: Any) -> Graph:
    return _graph(llama(whole, **changes))


def memory(whole: ModelSpec | None = None, **changes: Any) -> RuntimeMemory:
    return runtime(llama(whole, **changes))


def windowed(window: int) -> ModelSpec:
    """Return a model with one layer of full attention and one with a window."""
    whole = model()
    layers = tuple(
        Layers(
            name,
            1,
            attention=Grouped(8, 2, 16, span=span) if span else Grouped(8, 2, 16),
            mlp=Mlp(300),
        )
        for name, span in (("full", None), ("window", Sliding(window)))
    )
    return dataclasses.replace(whole, stacks=(Stack("decoder", layers, 100),))


GRAPHS: list[tuple[dict[str, Any], dict[str, int]]] = [
    # 500 tokens are 512 cells; a micro-batch has 500 tokens, and a server samples one per slot
    ({}, {"full_cells": 512, "streams": 1, "ubatch": 500, "rows": 1, "window_cells": 0}),
    ({"context": 513}, {"full_cells": 768, "ubatch": 512}),
    # the micro-batch is cut to the tokens of all slots, before these are padded
    ({"context": 200}, {"full_cells": 256, "ubatch": 200}),
    ({"context": 200, "sequences": 2}, {"full_cells": 256, "streams": 2, "ubatch": 400}),
    ({"ubatch": 100}, {"ubatch": 100}),
    # as many tokens of every slot: 3 * 34
    ({"ubatch": 100, "sequences": 3}, {"ubatch": 102, "streams": 3, "rows": 3}),
    ({"ubatch": 99, "sequences": 3}, {"ubatch": 99}),
    # slots that share their cells have one stream: 1,500 tokens are 1,536 cells
    ({"sequences": 3, "kv_unified": True}, {"full_cells": 1536, "streams": 1}),
    ({"sequences": 3, "engine_version": "ik"}, {"full_cells": 1536, "streams": 1}),
    ({"sequences": 3}, {"full_cells": 512, "streams": 3}),
    # rows of logits: of sampled tokens, of drafted ones too, of every token in old builds, or as
    # given
    ({"sequences": 3, "speculative_tokens": 2}, {"rows": 9}),
    ({"engine_version": OLD}, {"rows": 500}),
    ({"engine_version": OLD, "ubatch": 64}, {"rows": 64}),
    ({"n_outputs_max": 20}, {"rows": 20}),
    ({"n_outputs_max": 20, "ubatch": 10}, {"rows": 10}),
    ({"sequences": 30, "ubatch": 10}, {"rows": 10}),
]


@each(("changes", "expected"), GRAPHS)
def test_sizes_of_a_pass_follow_from_the_arguments(
    changes: dict[str, Any], expected: dict[str, int]
) -> None:
    found = graph(**changes)._asdict()
    assert {name: found[name] for name in expected} == expected
    assert all(type(found[name]) is int for name in expected)


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        # 300 and a micro-batch of 512 tokens: 812 cells are 1,024
        ({}, 1024),
        ({"ubatch": 100}, 512),
        ({"context": 200}, 256),
        ({"swa_full": True}, 4096),
        ({"sequences": 3}, 1024),
        # three windows in one stream: 900 + 512
        ({"sequences": 3, "kv_unified": True}, 1536),
        ({"engine_version": "ik"}, 0),
    ],
)
def test_cells_of_windows_hold_the_windows_of_a_stream_and_a_pass(
    changes: dict[str, Any], cells: int
) -> None:
    assert graph(windowed(300), **{"context": 4096, **changes}).window_cells == cells


@pytest.mark.parametrize(
    ("types", "copied"),
    [
        ({}, (False, False)),
        ({"kv_dtype": "q8_0"}, (True, True)),
        ({"kv_dtype_k": "q8_0"}, (True, False)),
        ({"kv_dtype_v": "q8_0"}, (False, True)),
        ({"kv_dtype": "q8_0", "kv_dtype_k": "f16"}, (False, True)),
        ({"kv_dtype": "bf16"}, (True, True)),
    ],
)
def test_a_cache_that_is_not_in_f16_is_copied(
    types: dict[str, Any], copied: tuple[bool, bool]
) -> None:
    found = graph(**types)
    assert (found.k_copied, found.v_copied) == copied


@pytest.mark.parametrize(
    ("option", "version", "quantized_v", "flash"),
    [
        (None, NEW, False, True),
        (None, "b6325", False, True),
        (None, NO_FLASH, False, False),
        (None, NO_FLASH, True, True),
        ("auto", NO_FLASH, False, True),
        ("on", NO_FLASH, False, True),
        ("off", NEW, False, False),
        ("off", NO_FLASH, True, False),
    ],
)
def test_flash_attention_is_on_by_default_if_the_build_has_it(
    option: str | None, version: str, quantized_v: bool, flash: bool
) -> None:
    types: dict[str, Any] = {"kv_dtype_v": "q8_0"} if quantized_v else {}
    assert graph(flash_attn=option, engine_version=version, **types).flash is flash


@pytest.mark.parametrize(
    ("changes", "pipelined"),
    [
        ({}, True),
        ({"n_gpu_layers": 7}, True),
        ({"n_gpu_layers": 6}, False),
        ({"n_cpu_moe": 1}, False),
        ({"no_kv_offload": True}, False),
    ],
)
def test_inputs_are_copied_only_if_everything_is_on_gpus(
    changes: dict[str, Any], pipelined: bool
) -> None:
    found = graph(gpus=2, **changes)
    assert found.pipelined is pipelined
    assert found.copies == (4 if pipelined else 1)
    notes = memory(gpus=2, **changes).notes
    assert any("every input has 4 copies" in note for note in notes) is pipelined
    assert not any("every input has 4 copies" in note for note in memory(**changes).notes)


@pytest.mark.parametrize(
    ("changes", "layer", "head"),
    [
        ({}, 0, 0),
        # 7 with the output: a layer on the host has matrices of 100 x 300 and a head of 1,000 x 100
        # in bf16
        ({"n_gpu_layers": 6}, 100 * 300 * 2, 0),
        # a matrix is copied for 32 tokens or more
        ({"n_gpu_layers": 0, "n_outputs_max": 32}, 100 * 300 * 2, 1000 * 100 * 2),
        ({"n_gpu_layers": 0, "n_outputs_max": 31}, 100 * 300 * 2, 0),
        ({"n_gpu_layers": 0, "engine_version": OLD}, 100 * 300 * 2, 1000 * 100 * 2),
        ({"n_gpu_layers": 0, "n_outputs_max": 32, "first": False, "gpus": 2}, 0, 0),
    ],
)
def test_the_first_gpu_copies_matrices_from_the_host(
    changes: dict[str, Any], layer: int, head: int
) -> None:
    found = graph(**changes)
    assert (
        max(found.from_host.get(kind, 0) for kind in ("other", "down")),
        found.from_host.get("head", 0),
    ) == (layer, head)
    notes = memory(**changes).notes
    assert any("copies matrices from the host" in note for note in notes) is bool(layer or head)


# Defaults.


def test_a_pass_has_a_micro_batch_and_the_logits_of_one_slot() -> None:
    assert ENGINE.limits(llama().args) == (512, 1)
    assert ENGINE.limits(llama(ubatch=64).args) == (64, 1)


def test_towers_are_in_a_file_of_their_own() -> None:
    """With --mmproj; other engines load them with the language model."""
    tower = model(towers=(Tower("vision", 10**6, 3 * 10**6),))
    without, with_tower = (
        [int(weights(whole, engine=find_engine(name)).total) for name in ("llamacpp", "sglang")]
        for whole in (model(), tower)
    )
    assert with_tower[0] == without[0]
    assert with_tower[1] > without[1]


def test_slots_reserve_their_context_unless_they_share_cells() -> None:
    assert ENGINE.reserves_context(llama().args)
    assert not ENGINE.reserves_context(llama(kv_unified=True).args)


GROWING: list[dict[str, Any]] = [{}, {"context": 50_000}, {"sequences": 9, "kv_unified": True}]


def test_the_compute_buffer_grows_with_context_and_slots() -> None:
    one, long, several = (int(memory(**changes).total) for changes in GROWING)
    assert ENGINE.runtime_grows == (one < several < long)


# Ranges and notes.


def test_the_fork_has_from_six_to_sixteen_tenths_of_an_old_build() -> None:
    old, fork = (
        parts(memory(engine_version=version))["compute_buffer"] for version in (NO_FLASH, "ik")
    )
    flash = parts(memory(engine_version=NO_FLASH, flash_attn="on"))["compute_buffer"]
    assert fork == (flash[0] * 6 // 10, flash[1], flash[2] * 16 // 10)
    assert all(type(size) is int for size in fork)
    assert old != flash


def test_a_build_between_two_graphs_may_have_the_smaller_one() -> None:
    """The smaller graph computes the logits of as many tokens as there are slots."""
    for changes in ({}, {"sequences": 3}, {"n_outputs_max": 2, "sequences": 3}):
        asked: dict[str, Any] = {"whole": model(vocab_size=10**7), **changes}
        old, between = (
            parts(memory(engine_version=v, **asked))["compute_buffer"] for v in (OLD, BETWEEN)
        )
        rows = min(3 if "sequences" in changes else 1, changes.get("n_outputs_max", 512))
        new = parts(memory(engine_version=NEW, **{**asked, "n_outputs_max": rows}))[
            "compute_buffer"
        ]
        assert between == (new[0], old[1], old[2])


def test_memory_outside_the_buffers_and_details() -> None:
    found = memory()
    assert parts(found)["outside_buffers"] == tuple(
        GIB * hundredths // 100 for hundredths in (30, 45, 75)
    )
    details = {detail.name: detail.quantity for detail in found.details}
    assert list(details) == ["compute_buffer", "host_compute_buffer", "model_buffer"]
    assert details["compute_buffer"] == found.parts[0].expected
    assert details["model_buffer"] == 10**9


NOTES: list[tuple[str, dict[str, Any], bool]] = [
    ("flash attention on, and of logits of sampled tokens only.", {}, True),
    ("flash attention off, and of logits of sampled tokens only.", {"flash_attn": "off"}, True),
    ("flash attention on, and of logits of every token.", {"engine_version": OLD}, True),
    ("ik_llama.cpp was not read", {"engine_version": "ik"}, True),
    ("ik_llama.cpp was not read", {"engine_version": OLD}, False),
    ("Build b9372 may or may not", {"engine_version": BETWEEN}, True),
    ("may or may not", {"engine_version": NEW}, False),
    ("--fit, on by default", {}, True),
    ("--fit, on by default", {"n_gpu_layers": 7}, False),
    ("--fit, on by default", {"n_cpu_moe": 1}, False),
]


@each(("words", "changes", "present"), NOTES)
def test_notes_appear_only_where_they_apply(
    words: str, changes: dict[str, Any], present: bool
) -> None:
    assert any(words in note for note in memory(**changes).notes) is present


def test_log_lines_are_those_of_this_gpu() -> None:
    """10^9 B of weights without a file are 953.67 MiB; the buffers are 32-bit MiB of the
    figures.
    """
    found = memory()
    expected, host = (int(float(found.details[i].quantity)) / 2**20 for i in (0, 1))
    assert found.log_lines == (
        "load_tensors: offloaded 7/7 layers to GPU",
        "load_tensors:        CUDA0 model buffer size =   953.67 MiB",
        f"sched_reserve:      CUDA0 compute buffer size = {expected:8.2f} MiB",
        f"sched_reserve:  CUDA_Host compute buffer size = {host:8.2f} MiB",
    )
    assert memory(n_gpu_layers=3).log_lines[0] == "load_tensors: offloaded 3/7 layers to GPU"
    assert memory(blocks=8).log_lines[0] == "load_tensors: offloaded 9/9 layers to GPU"


def test_of_several_gpus_the_first_and_the_last_have_lines() -> None:
    def devices(**changes: Any) -> set[str]:
        return {line.split()[1] for line in memory(gpus=3, **changes).log_lines if "CUDA" in line}

    assert devices(last=False) == {"CUDA0", "CUDA_Host"}
    assert devices(first=False) == {"CUDA2", "CUDA_Host"}
    assert devices(first=False, last=False) == set()
    assert devices() == {"CUDA0", "CUDA_Host"}
