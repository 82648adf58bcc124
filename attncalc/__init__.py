"""What attention costs: KV-cache bytes, FLOPs, parameters and memory, exact and with the formula.

>>> from attncalc import kv_cache
>>> cache = kv_cache("llama2-70b", batch=8, context=4096)
>>> cache
KVCache(llama2-70b, batch 8, context 4,096: 10.00 GiB)
>>> int(cache.total), cache.total.formula.text
(10737418240, 'L * B * T * 2 * n_kv_heads * d_head * bytes')

Each name is imported when it is first used.
"""

from functools import cache as _cache

__version__ = "0.2.0"

# True for a type checker, as in typing, whose import the command's first line would have to wait
# for.
TYPE_CHECKING = False

if TYPE_CHECKING:  # what a type checker and an editor see
    from .attention import Chunked as Chunked
    from .attention import Cross as Cross
    from .attention import Full as Full
    from .attention import Grouped as Grouped
    from .attention import Sliding as Sliding
    from .attention.latent import Latent as Latent
    from .config import load as load
    from .config import preset_names as preset_names
    from .config.gpus import gpu as gpu
    from .config.gpus import gpu_names as gpu_names
    from .errors import AttncalcError as AttncalcError
    from .errors import BadValueError as BadValueError
    from .errors import NetworkError as NetworkError
    from .errors import NoSuchModelError as NoSuchModelError
    from .errors import NotSupportedError as NotSupportedError
    from .hardware import Gpu as Gpu
    from .mlp import Mlp as Mlp
    from .model import Head as Head
    from .model import Layers as Layers
    from .model import ModelSpec as ModelSpec
    from .model import Stack as Stack
    from .quantity import Quantity as Quantity
    from .quantity import Ratio as Ratio
    from .questions.compare.answer import compare as compare
    from .questions.compare.intensity import decode_intensity as decode_intensity
    from .questions.fit.answer import fit as fit
    from .questions.fit.answer import roofline as roofline
    from .questions.fit.answer import users as users
    from .questions.fit.vram import vram as vram
    from .questions.fit.what_fits import what_fits as what_fits
    from .questions.flops.answer import crossover as crossover
    from .questions.flops.answer import flops as flops
    from .questions.flops.answer import growth as growth
    from .questions.kv.answer import kv_cache as kv_cache
    from .questions.memory.answer import activations as activations
    from .questions.params.answer import params as params
    from .questions.plan.answer import plan as plan
    from .questions.sweep.call import sweep as sweep
    from .questions.train.answer import train as train
    from .serving.request import FitRequest as FitRequest
    from .serving.traffic import Traffic as Traffic
    from .units import dtype as dtype
    from .workload import Mask as Mask
    from .workload import Workload as Workload

    __all__: list[str]

# {module: the names that are imported from it}; the functions of questions are in the list of
# questions.
_HOMES = {
    "attention": ("Chunked", "Cross", "Full", "Grouped", "Sliding"),
    "attention.latent": ("Latent",),
    "config": ("load", "preset_names"),
    "config.gpus": ("gpu", "gpu_names"),
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
    "serving.request": ("FitRequest",),
    "serving.traffic": ("Traffic",),
    "units": ("dtype",),
    "workload": ("Mask", "Workload"),
}


@_cache
def _homes() -> dict[str, str]:
    """Return {name: its module}."""
    from .questions import homes  # not before a name is asked for: the command's first line waits

    found = homes()
    for module, names in _HOMES.items():
        found.update(dict.fromkeys(names, module))
    return found


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        homes = _homes()
        if name == "__all__":
            return list(homes)
        if name not in homes:
            import sys
            from importlib.util import find_spec

            from .questions.arguments import function_like

            hint = function_like(name, list(homes))
            # of 'from attncalc import name' Python shows the message of an ImportError only, but
            # tries a module first
            is_import = sys._getframe(1).f_code.co_name == "_handle_fromlist" and not find_spec(
                f"{__name__}.{name}"
            )
            kind = ImportError if is_import else AttributeError
            raise kind(f"module 'attncalc' has no attribute '{name}'{hint and f'; use {hint}'}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{homes[name]}"), name)


def __dir__() -> list[str]:
    return [*_homes(), "__version__"]
