"""What attention costs: KV-cache bytes, FLOPs, parameters and memory, exact and with the formula.

>>> from attncalc import kv_cache
>>> cache = kv_cache("llama2-70b", batch=8, context=4096)
>>> cache
KVCache(llama2-70b, batch 8, context 4,096: 10.00 GiB)
>>> int(cache.total), cache.total.formula.text
(10737418240, 'L * B * T * 2 * n_kv_heads * d_head * bytes')

Each name is imported when it is first used.
"""

__version__ = "0.1.0"

# True for a type checker, as in typing, whose import the command's first line would have to wait
# for.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from .attention import Chunked, Cross, Full, Grouped, Sliding
    from .attention.latent import Latent
    from .config import load, preset_names
    from .config.gpus import gpu, gpu_names
    from .errors import (
        AttncalcError,
        BadValueError,
        NetworkError,
        NoSuchModelError,
        NotSupportedError,
    )
    from .hardware import Gpu
    from .mlp import Mlp
    from .model import Head, Layers, ModelSpec, Stack
    from .quantity import Quantity, Ratio
    from .questions.compare.answer import compare
    from .questions.compare.intensity import decode_intensity
    from .questions.fit.answer import fit, roofline, users
    from .questions.fit.vram import vram
    from .questions.fit.what_fits import what_fits
    from .questions.flops.answer import crossover, flops, growth
    from .questions.kv.answer import kv_cache
    from .questions.memory.answer import activations
    from .questions.params.answer import params
    from .questions.plan.answer import plan
    from .questions.sweep.call import sweep
    from .questions.train.answer import train
    from .serving.request import FitRequest
    from .serving.traffic import Traffic
    from .units import dtype
    from .workload import Mask, Workload

_HOMES = {
    "questions.compare.answer": ("compare",),
    "questions.compare.intensity": ("decode_intensity",),
    "questions.fit.answer": ("fit", "roofline", "users"),
    "questions.fit.vram": ("vram",),
    "questions.fit.what_fits": ("what_fits",),
    "questions.flops.answer": ("crossover", "flops", "growth"),
    "questions.kv.answer": ("kv_cache",),
    "questions.memory.answer": ("activations",),
    "questions.params.answer": ("params",),
    "questions.plan.answer": ("plan",),
    "questions.train.answer": ("train",),
    "attention": ("Chunked", "Cross", "Full", "Grouped", "Sliding"),
    "attention.latent": ("Latent",),
    "config": ("load", "preset_names"),
    "config.gpus": ("gpu", "gpu_names"),
    "serving.request": ("FitRequest",),
    "serving.traffic": ("Traffic",),
    "errors": (
        "AttncalcError",
        "BadValueError",
        "NetworkError",
        "NoSuchModelError",
        "NotSupportedError",
    ),
    "hardware": ("Gpu",),
    "mlp": ("Mlp",),
    "model": ("Head", "Layers", "ModelSpec", "Stack"),
    "quantity": ("Quantity", "Ratio"),
    "questions.sweep.call": ("sweep",),
    "units": ("dtype",),
    "workload": ("Mask", "Workload"),
}
_HOME: dict[str, str] = {}
for _module, _names in _HOMES.items():
    _HOME.update(dict.fromkeys(_names, _module))

__all__ = [
    "AttncalcError",
    "BadValueError",
    "NetworkError",
    "NoSuchModelError",
    "NotSupportedError",
]
__all__ += ["Chunked", "Cross", "Full", "Grouped", "Latent", "Mlp", "Sliding"]
__all__ += ["Head", "Layers", "Mask", "ModelSpec", "Quantity", "Ratio", "Stack", "Workload"]
__all__ += ["FitRequest", "Gpu", "Traffic", "dtype", "gpu", "gpu_names", "load", "preset_names"]
__all__ += [
    "activations",
    "compare",
    "crossover",
    "decode_intensity",
    "fit",
    "flops",
    "growth",
    "kv_cache",
    "params",
]
__all__ += ["plan", "roofline", "sweep", "train", "users", "vram", "what_fits"]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            import sys
            from importlib.util import find_spec

            from .questions.arguments import function_like

            hint = function_like(name, __all__)
            # of 'from attncalc import name' Python shows the message of an ImportError only, but
            # tries a module first
            is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist" and not find_spec(
                f"{__name__}.{name}"
            )
            kind = ImportError if is_import else AttributeError
            raise kind(f"module 'attncalc' has no attribute '{name}'{hint and f'; use {hint}'}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
