"""The KV cache of a model, in one call: `kv_cache("llama2-70b", context=4096)`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...config import ModelLike
from ...cost import cache as of_cache
from ...model import ModelSpec
from ...units import BYTES, GIB, human
from ...workload import Workload
from ..arguments import takes
from ..inputs import read_call
from ..results import TotalResult, model_subject, workload_subject
from .options import KVCacheOptions
from .report import kv_report

if TYPE_CHECKING:
    from typing_extensions import Unpack


class KVCache(TotalResult, of_cache.KVCache):
    """The KV cache, as `attncalc kv` prints it."""

    @property
    def gib(self) -> float:
        """The total in GiB."""
        return int(self) / GIB

    # it has the module of its engine, which cannot be pickled
    def __reduce__(self) -> tuple[Any, ...]:
        return _kv_cache, self._make_report.args

    def _answer(self) -> str:
        return human(self.total, BYTES)


@takes(KVCacheOptions)
def kv_cache(
    model: ModelLike | None = None,
    workload: Workload | None = None,
    **options: Unpack[KVCacheOptions],
) -> KVCache:
    """Return the KV cache of a model, in bytes on one device.

    >>> kv_cache("llama2-70b", context=4096)
    KVCache(llama2-70b, batch 1, context 4,096: 1.25 GiB)

    It takes the options of `attncalc kv`, or a Workload. Raises AttncalcError if one is not valid.
    """
    engine = options.pop("engine", None) or "ideal"
    spec, size = read_call(model, workload, options)
    return _kv_cache(spec, size, engine)


def _kv_cache(model: ModelSpec, workload: Workload, engine: str) -> KVCache:
    cache = KVCache.__new__(KVCache)
    vars(cache).update(vars(of_cache.kv_cache(model, workload, engine_name=engine)))
    stored = f" as {engine} stores it" if engine != "ideal" else ""
    subject = f"{model_subject(model)}, {workload_subject(workload)}{stored}"
    return cache.knowing(subject, partial(kv_report, model, workload, engine))
