"""What vLLM takes where nobody has said (engine/arg_utils.py, config/cache.py)."""

from __future__ import annotations

from ...units import GIB
from ..layouts import Settings
from ..serving import Habits, Limits
from .versions import Behaviour, behaviour


def batched_tokens(settings: Settings, does: Behaviour) -> int:
    """max_num_batched_tokens: as told, or an API server's default on that device."""
    if settings.max_num_batched_tokens:
        return settings.max_num_batched_tokens
    if settings.device_memory is not None and settings.device_memory >= 160 * GIB and does.large_devices:
        return 16384
    return 8192 if _large(settings, does) else 2048


def sequences(settings: Settings, does: Behaviour) -> int:
    """max_num_seqs: as told, or the default on that device: 256 before V1."""
    return settings.max_num_seqs or (1024 if _large(settings, does) and not does.v0 else 256)


def _large(settings: Settings, does: Behaviour) -> bool:
    """An H100 or better; so is a device that nobody has named."""
    memory = 70 * GIB if settings.device_memory is None else settings.device_memory
    slower = ("a100", "gb10") if does.version >= (0, 33) else ("a100",)
    return memory >= 70 * GIB and not any(name in settings.device.lower() for name in slower)


def _limits(settings: Settings) -> Limits:
    does = behaviour(settings.engine_version)
    return Limits(batched_tokens(settings, does), sequences(settings, does))


def _share(settings: Settings, devices: int) -> str:
    return behaviour(settings.engine_version).utilization


HABITS = Habits("vLLM", _limits, _share, must_fit_one=True)
