"""What vLLM takes where nobody has said (engine/arg_utils.py, config/cache.py)."""

from __future__ import annotations

from ...units import GIB
from ..base import EngineArgs
from ..defaults import EngineDefaults, Limits
from .versions import VllmVersion, behaviour


def batched_tokens(args: EngineArgs, does: VllmVersion) -> int:
    """max_num_batched_tokens: as told, or an API server's default on that device."""
    if args.max_num_batched_tokens:
        return args.max_num_batched_tokens
    if args.device_memory is not None and args.device_memory >= 160 * GIB and does.large_devices:
        return 16384
    return 8192 if _large(args, does) else 2048


def sequences(args: EngineArgs, does: VllmVersion) -> int:
    """max_num_seqs: as told, or the default on that device: 256 before V1."""
    return args.max_num_seqs or (1024 if _large(args, does) and not does.v0 else 256)


def _large(args: EngineArgs, does: VllmVersion) -> bool:
    """An H100 or better; so is a device that nobody has named."""
    memory = 70 * GIB if args.device_memory is None else args.device_memory
    slower = ("a100", "gb10") if does.version >= (0, 33) else ("a100",)
    return memory >= 70 * GIB and not any(name in args.device.lower() for name in slower)


def _limits(args: EngineArgs) -> Limits:
    does = behaviour(args.engine_version)
    return Limits(batched_tokens(args, does), sequences(args, does))


def _share(args: EngineArgs, devices: int) -> str:
    return behaviour(args.engine_version).utilization


DEFAULTS = EngineDefaults("vLLM", _limits, _share, must_fit_one=True)
