"""The versions of SGLang, and its default share of a GPU's memory (--mem-fraction-static) in each."""

from __future__ import annotations

import re
from fractions import Fraction

from ...errors import AttncalcError
from ...units import truncate
from ..switches import Version, by_version, since

VERSION = "0.5.23"
"""The version whose source the pools are from."""
_OLDEST = (0, 3, 6)
_LARGEST_OLD, _LARGEST_MIDDLE = 80 * 1024, 96 * 1024
"""MiB of a GPU up to which 0.4.5.post3 to 0.4.7 have `share_by_devices`, and up to which 0.4.6.post2 and 0.4.7 have the
share of one device."""


class SGLangVersion(Version):
    """The behaviour of one version."""

    captures_prefill = since((0, 5, 10), "disable_piecewise_cuda_graph in server_args.py")
    """CUDA graphs of prefills are on by default, and reserved for."""
    gib_for_drafter = by_version({(): 2, (0, 5, 10): 4, (0, 5, 14): 0}, "_handle_gpu_memory_settings in server_args.py")
    """GiB that the default share leaves for a drafter, if it is computed from what it leaves."""
    has_attn_dp_size = since((0, 5, 22), "server_args.py")
    """--attn-dp-size replaces --dp-size with --enable-dp-attention, which is deprecated then."""
    reads_modelopt_cache_dtype = since((0, 5, 3), "model_executor/model_runner.py")
    """kv_cache_quant_algo of modelopt's configs is read."""
    reads_fp8_cache_dtype = since((0, 5, 18), "Fp8Config in layers/quantization/fp8.py")
    """kv_cache_quant_algo of fp8's configs is read."""
    reads_compressed_tensors_cache_dtype = since((0, 5, 19), "kv_cache_quant_algo in compressed_tensors.py")
    """kv_cache_scheme is read."""
    share_leaves_gib = since((0, 4, 7, 1), "__post_init__ in server_args.py")
    """The default share leaves a number of GiB."""
    share_leaves_mib = since((0, 5, 3), "_handle_gpu_memory_settings in server_args.py")
    """The default share leaves what is computed from the prefill chunk and graphs."""
    gib_of_large_gpus = by_version({(): 0, (0, 4, 5, 3): 13, (0, 4, 6, 2): 18}, "__post_init__ in server_args.py")
    """GiB that large GPUs leave: 13 those of more than 80 GiB, or 18 those of more than 96."""
    share_by_devices = by_version(
        {(): ((2, 88), (4, 87), (8, 85), (16, 82)), (0, 4): ((2, 88), (4, 87), (8, 85), (16, 81))},
        "__post_init__ in server_args.py",
    )
    """(devices, hundredths): the default share with fewer devices than that."""
    share_for_vision = by_version(
        {(): Fraction(95, 100), (0, 4, 4, 4): Fraction(90, 100)}, "model_executor/model_runner.py"
    )
    """The factor of the default share of a model with a vision tower, up to 0.5.2."""


def sglang_version(text: str | None) -> SGLangVersion:
    """Return that version, by default VERSION. Raises AttncalcError if it is invalid or too old."""
    numbers = r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?(?:\.?(?:post(\d{0,6})|(?:rc|dev)\d{0,6}))?"
    match = re.fullmatch(numbers, text or VERSION)
    if not match:
        raise AttncalcError(f"SGLang has no version '{truncate(text)}'", f"write it as {VERSION}")
    *release, post = (int(part or 0) for part in match.groups())
    if tuple(release) < _OLDEST:
        raise AttncalcError(
            f"SGLang {truncate(text)} is not supported",
            f"{'.'.join(map(str, _OLDEST))} is the oldest supported version, and {VERSION} the default",
        )
    return SGLangVersion((text or VERSION).removeprefix("v"), (*release, post) if post else tuple(release))


def old_share(
    version: SGLangVersion, memory_mib: int, devices: int, *, attn_dp: int = 1, drafts: bool = False
) -> str | None:
    """Return the default share of a version before 0.5.3, as a decimal; None for later ones.

    `devices` is tp * pp. With 0.4.9 and 80 GiB on one device: 9.5 + 1 / 2 = 10 GiB are left, so 0.875. From 0.4.7.post1
    on, DP attention leaves 4 GiB more, and a drafter 2 GiB. What only 0.4.7 has is left out: 0.79 above 180,000 MiB,
    and less for a drafter.

    Source: SGLang's server_args.py (__post_init__) of 0.3.6 to 0.5.2.
    """
    if version.share_leaves_mib:
        return None
    if version.share_leaves_gib:
        for_drafter = 1024 * version.gib_for_drafter * drafts
        return share(memory_mib, _left_mib(memory_mib, devices) + 4096 * (attn_dp > 1) + for_drafter)
    if version.gib_of_large_gpus == 18 and memory_mib > _LARGEST_OLD:
        # 0.88 up to 96 GiB; larger GPUs leave 12 % of what they have beyond 48 GiB, and at least 18 GiB
        beyond = memory_mib - 48 * 1024
        return "0.88" if memory_mib <= _LARGEST_MIDDLE else share(memory_mib, max(18 * 1024, beyond * 12 // 100))
    if version.gib_of_large_gpus and memory_mib > _LARGEST_OLD:
        return share(memory_mib, 1024 * version.gib_of_large_gpus)
    return f"0.{next((hundredths for fewer, hundredths in version.share_by_devices if devices < fewer), 79)}"


def for_vision(version: SGLangVersion, share_of_text: str, vision_params: int) -> str:
    """Return the default share of a model with a vision tower, as a decimal with four places; as it is without one.

    From 0.5.3 it is 0.95 times a factor: 1 for a tower like ViT-L, whose layers times the square of the width are
    24 * 1024^2, and 0.1 less for each further 24 * 1024^2, within 0.8 and 1.05. A layer has about 12 times the square
    of its width as parameters, from which that product is concluded.

    For example Kimi-K2.5's MoonViT with 27 layers of 1,152: 0.95 * (1 - 0.1 * 0.424) = 0.91.

    Source: adjust_mem_fraction_for_vlm (0.5.3 to 0.5.23), server_args.py of 0.4.9 and model_runner.py of 0.4.4.post4
    (0.90), model_runner.py of 0.3.6 (0.95).
    """
    if not vision_params:
        return share_of_text
    factor = version.share_for_vision
    if version.share_leaves_mib:
        dynamic = 1 - (Fraction(vision_params, 12 * 24 * 1024**2) - 1) / 10
        factor = Fraction(95, 100) * min(Fraction(105, 100), max(Fraction(8, 10), dynamic))
    return f"{float(Fraction(share_of_text) * factor):.4f}"


def _left_mib(memory_mib: int, devices: int) -> int:
    """Return the MiB that 0.4.7.post1 to 0.5.2 leave outside the share."""
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
