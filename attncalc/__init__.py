"""What attention costs: KV-cache bytes, FLOPs, parameters and memory, exact and with the formula.

>>> from attncalc import load, Workload, kv_cache
>>> cache = kv_cache(load("llama2-70b"), Workload.decode(batch=8, context=4096))
>>> int(cache.total), cache.total.formula.text
(10737418240, 'L * B * T * 2 * n_kv_heads * d_head * bytes')

Each name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .attention import Chunked, Cross, Full, Grouped, Sliding
    from .attention.latent import Latent
    from .config import load, preset_names
    from .config.gpus import gpu, gpu_names
    from .cost.activations import activations
    from .cost.cache import kv_cache
    from .cost.crossover import crossover, growth
    from .cost.flops import flops
    from .cost.intensity import decode_intensity
    from .cost.params import params
    from .errors import AttncalcError
    from .hardware import Gpu
    from .mlp import Mlp
    from .model import Head, Layers, ModelSpec, Stack
    from .quantity import Quantity, Ratio
    from .serving.fit import fit
    from .serving.request import FitRequest
    from .serving.roofline import roofline
    from .serving.traffic import Traffic
    from .serving.users import users
    from .units import dtype
    from .workload import Mask, Workload

_HOMES = {
    "attention": ("Chunked", "Cross", "Full", "Grouped", "Sliding"),
    "attention.latent": ("Latent",),
    "config": ("load", "preset_names"),
    "config.gpus": ("gpu", "gpu_names"),
    "cost.activations": ("activations",),
    "cost.cache": ("kv_cache",),
    "cost.flops": ("flops",),
    "cost.crossover": ("crossover", "growth"),
    "cost.intensity": ("decode_intensity",),
    "cost.params": ("params",),
    "serving.fit": ("fit",),
    "serving.request": ("FitRequest",),
    "serving.roofline": ("roofline",),
    "serving.traffic": ("Traffic",),
    "serving.users": ("users",),
    "errors": ("AttncalcError",),
    "hardware": ("Gpu",),
    "mlp": ("Mlp",),
    "model": ("Head", "Layers", "ModelSpec", "Stack"),
    "quantity": ("Quantity", "Ratio"),
    "units": ("dtype",),
    "workload": ("Mask", "Workload"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AttncalcError",
    "Chunked",
    "Cross",
    "FitRequest",
    "Full",
    "Gpu",
    "Grouped",
    "Head",
    "Latent",
    "Layers",
    "Mask",
    "Mlp",
    "ModelSpec",
    "Quantity",
    "Ratio",
    "Sliding",
    "Stack",
    "Traffic",
    "Workload",
    "activations",
    "crossover",
    "decode_intensity",
    "dtype",
    "fit",
    "flops",
    "gpu",
    "gpu_names",
    "growth",
    "kv_cache",
    "load",
    "params",
    "preset_names",
    "roofline",
    "users",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'attncalc' has no attribute '{name}'")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
