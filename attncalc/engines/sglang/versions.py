"""The versions of SGLang, and its default share of a GPU's memory (--mem-fraction-static) in each."""

from __future__ import annotations

import re
from fractions import Fraction

from ...errors import AttncalcError
from ...units import truncate
from ..switches import Version, by_version, since, until

VERSION = "0.5.23"
"""The version whose source the pools are from."""
_OLDEST = (0, 3, 6)
_LARGEST_OLD = 81_920
"""MiB of a GPU up to which 0.4.6 has the shares of `_BY_DEVICES`; larger ones leave 13 GiB."""


class SGLangVersion(Version):
    """The behaviour of one version."""

    captures_prefill = since((0, 5, 10), "server_args.py")
    """CUDA graphs of prefills are on by default, and reserved for."""
    leaves_room_for_drafter = until((0, 5, 10), "server_args.py of 0.5.9 and 0.5.23")
    """The default share leaves 2 GiB for a drafter."""
    has_attn_dp_size = since((0, 5, 23), "server_args.py")
    """--attn-dp-size replaces --dp-size with --enable-dp-attention, which is deprecated then."""
    reads_modelopt_cache_dtype = since((0, 5, 3), "configure_kv_cache_dtype in model_executor/model_runner.py")
    """kv_cache_quant_algo is read."""
    reads_cache_dtypes = since((0, 5, 20), "configure_kv_cache_dtype in model_executor/model_runner.py")
    """Configs of fp8 and compressed-tensors have it too. 0.5.20 is the first version known; 0.5.16 has not."""
    share_leaves_gib = since((0, 4, 9), "__post_init__ in server_args.py")
    """The default share leaves a number of GiB."""
    share_leaves_mib = since((0, 5, 3), "server_args.py")
    """The default share leaves what is computed from the prefill chunk and graphs."""
    large_gpus_leave_gib = since((0, 4, 6), "__post_init__ in server_args.py")
    """GPUs of more than 80 GiB leave 13 GiB."""
    share_by_devices = by_version(
        {(): ((2, 88), (4, 87), (8, 85), (16, 82)), (0, 4, 3): ((2, 88), (4, 87), (8, 85), (16, 81))},
        "__post_init__ in server_args.py",
    )
    """(devices, hundredths): the default share with fewer devices than that."""
    share_for_vision = by_version(
        {(): Fraction(95, 100), (0, 4, 9): Fraction(90, 100)}, "model_runner.py of 0.4.3, server_args.py of 0.4.9"
    )
    """The factor of the default share of a model with a vision tower, up to 0.5.2."""


def sglang_version(text: str | None) -> SGLangVersion:
    """Return that version, by default VERSION. Raises AttncalcError if it is invalid or too old."""
    match = re.fullmatch(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\.?(?:post|rc|dev)\d{0,6})?", text or VERSION)
    if not match:
        raise AttncalcError(f"SGLang has no version '{truncate(text)}'", f"write it as {VERSION}")
    major, minor, patch = (int(part or 0) for part in match.groups())
    if (major, minor, patch) < _OLDEST:
        raise AttncalcError(
            f"SGLang {truncate(text)} is not supported",
            f"{'.'.join(map(str, _OLDEST))} is the oldest supported version, and {VERSION} the default",
        )
    return SGLangVersion((text or VERSION).removeprefix("v"), (major, minor, patch))


def old_share(
    version: SGLangVersion, memory_mib: int, devices: int, *, attn_dp: int = 1, drafts: bool = False
) -> str | None:
    """Return the default share of a version before 0.5.3, as a decimal; None for later ones.

    `devices` is tp * pp. With 0.4.9 and 80 GiB on one device: 9.5 + 1 / 2 = 10 GiB are left, so 0.875. From 0.4.9 on,
    DP attention leaves 4 GiB more, and a drafter 2 GiB.

    Source: SGLang's server_args.py (__post_init__) of 0.3.6, 0.4.3, 0.4.6 and 0.4.9.
    """
    if version.share_leaves_mib:
        return None
    if version.share_leaves_gib:
        return share(memory_mib, _left_mib(memory_mib, devices) + 4096 * (attn_dp > 1) + 2048 * drafts)
    if version.large_gpus_leave_gib and memory_mib > _LARGEST_OLD:
        return share(memory_mib, 13 * 1024)
    return f"0.{next((hundredths for fewer, hundredths in version.share_by_devices if devices < fewer), 79)}"


def for_vision(version: SGLangVersion, share_of_text: str, vision_params: int) -> str:
    """Return the default share of a model with a vision tower, as a decimal with four places; as it is without one.

    From 0.5.3 it is 0.95 times a factor: 1 for a tower like ViT-L, whose layers times the square of the width are
    24 * 1024^2, and 0.1 less for each further 24 * 1024^2, within 0.8 and 1.05. A layer has about 12 times the square
    of its width as parameters, from which that product is concluded.

    For example Kimi-K2.5's MoonViT with 27 layers of 1,152: 0.95 * (1 - 0.1 * 0.424) = 0.91.

    Source: adjust_mem_fraction_for_vlm (0.5.3 to 0.5.23), server_args.py of 0.4.9 (0.90), model_runner.py of 0.4.3
    (0.95).
    """
    if not vision_params:
        return share_of_text
    factor = version.share_for_vision
    if version.share_leaves_mib:
        dynamic = 1 - (Fraction(vision_params, 12 * 24 * 1024**2) - 1) / 10
        factor = Fraction(95, 100) * min(Fraction(105, 100), max(Fraction(8, 10), dynamic))
    return f"{float(Fraction(share_of_text) * factor):.4f}"


def _left_mib(memory_mib: int, devices: int) -> int:
    """Return the MiB that 0.4.9 to 0.5.2 leave outside the share."""
    if memory_mib < 35 * 1024:
        return 28 * 1024 // 10 + devices * 1024 // 10
    if memory_mib < 90 * 1024:
        return 9 * 1024 + 512 + devices * 512
    if memory_mib < 160 * 1024:
        return 12 * 1024 + devices * 512
    return 32 * 1024


def share(memory_mib: int, left_mib: int) -> str:
    """Return (memory - left) / memory as a decimal, rounded half up to three places, and at least 0.001."""
    thousandths = (2000 * (memory_mib - left_mib) + memory_mib) // (2 * memory_mib) if memory_mib else 0
    return f"0.{max(1, thousandths):03d}"
