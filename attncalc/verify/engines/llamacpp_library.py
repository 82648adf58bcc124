"""The program that starts llama.cpp as a library, where llama-server is not installed.

python llamacpp_library.py FILE.gguf -c 8192 -np 1: it loads the model without reading its weights
(`no_alloc`), makes a context, and prints the log of libllama, of the package llama-cpp-py-sync.
"""

import argparse
import sys
from typing import Any

# ggml's numbers of the types that a cache may have.
_TYPES = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
# GGML_LOG_LEVEL_DEBUG, whose lines are hundreds per layer.
_DEBUG = 1
_FLASH = {"auto": -1, "off": 0, "on": 1}


def arguments() -> Any:
    """Return the arguments, under llama-server's names."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("file")
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("-b", "--batch-size", type=int, default=2048)
    parser.add_argument("-ub", "--ubatch-size", type=int, default=512)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-ctk", "--cache-type-k", choices=_TYPES, default="f16")
    parser.add_argument("-ctv", "--cache-type-v", choices=_TYPES, default="f16")
    parser.add_argument("-fa", "--flash-attn", choices=_FLASH, default="auto")
    parser.add_argument("-ngl", "--n-gpu-layers", type=int, default=0)
    parser.add_argument("--swa-full", action="store_true")
    parser.add_argument("-kvu", "--kv-unified", action="store_true")
    parser.add_argument("--no-mmap", action="store_true")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    from importlib import import_module
    from importlib.metadata import version

    bindings: Any = import_module("llama_cpp_py_sync._cffi_bindings")
    ffi = bindings.get_ffi()
    lib = bindings.get_lib()

    def write(level: Any, text: Any, _: Any) -> None:
        if level != _DEBUG:
            sys.stdout.write(ffi.string(text).decode("utf-8", "replace"))

    build = version("llama-cpp-py-sync").rpartition(".")[2]
    sys.stdout.write(f"build: {build} (llama-cpp-py-sync) as a library\n")
    callback = ffi.callback("void(enum ggml_log_level, const char*, void*)", write)
    lib.llama_log_set(callback, ffi.NULL)
    lib.llama_backend_init()
    of_model = lib.llama_model_default_params()
    of_model.no_alloc = True
    of_model.n_gpu_layers = 0
    if hasattr(of_model, "load_mode"):
        of_model.load_mode = 0  # neither mapped nor read
    else:
        of_model.use_mmap = False
    model = lib.llama_model_load_from_file(asked.file.encode(), of_model)
    if model == ffi.NULL:
        return 1
    params = lib.llama_context_default_params()
    params.n_ctx = asked.ctx_size
    params.n_ubatch = asked.ubatch_size
    params.n_batch = max(asked.batch_size, asked.ubatch_size)
    params.n_seq_max = asked.parallel
    params.type_k = _TYPES[asked.cache_type_k]
    params.type_v = _TYPES[asked.cache_type_v]
    params.flash_attn_type = _FLASH[asked.flash_attn]
    params.swa_full = asked.swa_full
    params.kv_unified = asked.kv_unified
    if hasattr(params, "n_outputs_max"):
        params.n_outputs_max = asked.parallel  # as llama-server
    context = lib.llama_init_from_model(model, params)
    sys.stdout.flush()
    return int(context == ffi.NULL)


if __name__ == "__main__":
    sys.exit(main())
