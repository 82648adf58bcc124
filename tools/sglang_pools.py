"""What SGLang's own configurator says of its pools, on a machine without a GPU.

    v/bin/pip install --no-deps --target sg sglang==0.5.23 orjson IPython traitlets gguf
    PYTHONPATH=sg v/bin/python tools/sglang_pools.py PLACES > tests/data/sglang-pools/0.5.23.jsonl

`v` is the environment of tools/vllm_plan.py, which has the libraries that SGLang needs. PLACES are
presets/more.json, tests/data/huggingface.json, tests/data/real-configs.json and
tests/data/vendor-configs.json.

SGLang's own code reads the config, decides which layers have windows and states, and divides 32 GiB
into pools of tokens, pools of windows and slots of states (KVCacheConfigurator in
mem_cache/kv_cache_configurator.py). No layer is made, and no kernel runs. What is replaced: the
compiled libraries, by mocks, and whether the platform takes snapshots of states. Quantizations are
left out of the config.json files, since they are no matter of the cache.

A row has the model, and `tokens`, `swa_tokens`, `state_slots` and `requests`, or the error.
"""

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import shutil
import signal
import sys
import tempfile
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from vllm_plan import models_of, with_class

# Bytes of the pools, and seconds for one model.
MEMORY = 32 << 30
TIME_LIMIT = 60
# Characters of an error that a row has.
LONGEST_ERROR = 200
# Libraries that a machine without a GPU lacks.
LIBRARIES = frozenset(
    (
        *("sgl_kernel", "flashinfer", "deep_gemm", "tilelang", "flash_attn", "cutlass", "cuda"),
        *("tvm_ffi", "torchvision", "torchaudio", "torchcodec", "kernels", "quack", "decord"),
        *("torch_memory_saver", "soundfile", "sgl_flash_mla", "humming", "timm", "datasets"),
        *("outlines", "modelscope", "blobfile", "av", "deep_ep", "nvshmem", "tml_renderers"),
        *("deepseek_recipe", "smg_grpc_servicer", "openai_harmony", "sgl_deep_gemm", "flash_mla"),
    )
)


class Stub(types.ModuleType):
    """A library whose every class does nothing, and whose every function is a mock."""

    __version__ = "99.0"
    __path__: list[str] = []  # noqa: RUF012  # a package has a list

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value: Any
        if name[:1].isupper():
            value = type(name, (), {"__init__": lambda self, *_, **__: None})
        else:
            value = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the libraries that are stubs."""

    def find_spec(
        self, name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] in LIBRARIES:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Stub:
        return Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """A stub has nothing to run."""


def pretend() -> None:
    """Import SGLang as if the machine had an H100."""
    import torch

    # before the stubs: they look for some of the libraries
    from transformers import (  # noqa: F401
        AutoConfig,
        AutoImageProcessor,
        AutoProcessor,
        AutoTokenizer,
        PreTrainedModel,
    )

    sys.meta_path.insert(0, Stubs())
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.current_device = lambda: 0
    import sglang.srt.arg_groups.mamba_hook as states

    # once, and not in each process
    for name in (
        "configs.model_config",
        "mem_cache.kv_cache_configurator",
        "model_executor.model_runner_components.layer_setup",
        "model_executor.model_runner_components.spec_aux_hidden_state",
        "server_args",
        "speculative.spec_info",
    ):
        importlib.import_module(f"sglang.srt.{name}")
    states._platform_supports_mamba_cache_extra_buffer = lambda: True


def pools_of(folder: str) -> dict[str, Any]:
    """Return the pools of the model in a folder."""
    from sglang.srt import runtime_context
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.server_args import ServerArgs

    args = ServerArgs(
        model_path=folder,
        device="cpu",
        skip_tokenizer_init=True,
        load_format="dummy",
        disable_cuda_graph=True,
    )
    ranks = runtime_context.SpawnRanks(
        **dict.fromkeys(runtime_context.SpawnRanks.__struct_fields__, 0)
    )
    runtime_context.publish(args, role="scheduler", ranks=ranks)
    model = ModelConfig.from_server_args(args)
    schedule = runtime_context.get_schedule()
    sizes = configurator(model, args, schedule.page_size)
    memory = MEMORY / 2**30
    found: dict[str, Any] = {}
    if sizes.mambaish_config is not None:
        memory = sizes._handle_max_mamba_cache(memory)
        found["state_slots"] = schedule.max_mamba_cache_size
    pools = sizes.config_from_budget(int(memory * 2**30))
    found["tokens"] = pools.max_total_num_tokens
    if getattr(pools, "swa_max_total_num_tokens", None) is not None:
        found["swa_tokens"] = pools.swa_max_total_num_tokens
    found["requests"] = sizes.resolve_max_num_reqs(pools.max_total_num_tokens)
    return found


def configurator(model: Any, args: Any, page_size: int) -> Any:
    """Return SGLang's own configurator for one GPU."""
    from sglang.srt.configs.model_config import AttentionArch
    from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
    from sglang.srt.model_executor.model_runner_components.layer_setup import ModelLayerInfo
    from sglang.srt.model_executor.model_runner_components.spec_aux_hidden_state import (
        SpecAuxHiddenStateConfig,
    )
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    layers = ModelLayerInfo(
        start_layer=0,
        end_layer=model.num_hidden_layers,
        num_effective_layers=model.num_hidden_layers,
        swa_attention_layer_ids=getattr(model, "swa_attention_layer_ids", None),
        full_attention_layer_ids=getattr(model, "full_attention_layer_ids", None),
    )
    return KVCacheConfigurator(
        device="cpu",
        gpu_id=0,
        attn_dp_size=1,
        pp_size=1,
        pp_group=None,
        model=None,
        model_config=model,
        server_args=args,
        kv_cache_dtype=model.dtype,
        model_dtype=model.dtype,
        page_size=page_size,
        sliding_window_size=getattr(model, "sliding_window_size", None),
        spec_algorithm=SpeculativeAlgorithm.NONE,
        is_draft_worker=False,
        post_capture_kv_active=False,
        spec_aux_config=SpecAuxHiddenStateConfig(),
        is_hybrid_swa=model.is_hybrid_swa,
        is_hybrid_swa_compress=getattr(model, "is_hybrid_swa_compress", False),
        use_mla_backend=model.attention_arch == AttentionArch.MLA,
        layer_info=layers,
        forward_stream=None,
        req_to_token_pool=None,
        token_to_kv_pool_allocator=None,
        memory_pool_config=None,
    )


def row_of(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table, which a process of its own makes: SGLang keeps its arguments in
    globals.
    """
    reading, writing = os.pipe()
    if not os.fork():
        signal.alarm(TIME_LIMIT)
        os.write(writing, json.dumps(answer(config)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.wait()
    found = json.loads(text) if text else {"error": f"no answer within {TIME_LIMIT} s"}
    return {"model": name, **found}


def answer(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pools, or SGLang's error in its own words."""
    folder = tempfile.mkdtemp()
    try:
        kept = {name: value for name, value in with_class(config).items() if name != "quantization"}
        kept.pop("quantization_config", None)
        Path(folder, "config.json").write_text(json.dumps(kept), encoding="utf-8")
        return pools_of(folder)
    except BaseException as error:  # it exits, asserts, and raises what libraries raise
        text = str(error).replace(folder, "DIR")
        return {"error": f"{type(error).__name__}: {text[:LONGEST_ERROR]}"}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(places: Sequence[str]) -> int:
    if not places:
        sys.exit(__doc__)
    rows = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print
    warnings.filterwarnings("ignore")
    pretend()
    known = set()
    for name, config in models_of(places):
        if name in known:
            continue
        known.add(name)
        rows.write(json.dumps(row_of(name, config)) + "\n")
        rows.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
