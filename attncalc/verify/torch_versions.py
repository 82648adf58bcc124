"""What differs between versions of torch: one line per switch, with the place in torch's source
that decides it.

Paths are in aten/src/ATen/native/transformers/cuda. What torch can be asked at run time, such as a
signature, is asked and is not listed here.
"""

import re

import torch

from ..records import NamedTuple

# The versions whose kernels the predictions were compared with: on an H100 and an H200, and on a
# CPU.
MEASURED = ((2, 11), (2, 13))


class Since(NamedTuple):
    """A rule of torch that holds from a version on."""

    version: tuple[int, int]  # the first version that has it
    source: str  # where torch's source has it

    def __bool__(self) -> bool:
        return torch_version() >= self.version


CUDNN_256_WIDE_ON_HOPPER = Since(
    (2, 9), "sdp_utils.cpp, check_cudnn_tensor_shapes: cuDNN 9.10 (pytorch#161210)"
)
CUDNN_192_128_ON_BLACKWELL = Since(
    (2, 11), "sdp_utils.cpp, check_cudnn_tensor_shapes: cuDNN 9.11 (pytorch#172621)"
)
CUDNN_256_WIDE_ON_BLACKWELL = Since(
    (2, 14), "sdp_utils.cpp, check_cudnn_tensor_shapes: cuDNN 9.22 (pytorch#185553)"
)
# Before, K and V had to be repeated for the efficient kernel. Not on ROCm.
EFFICIENT_SHARES_KV_HEADS = Since(
    (2, 14), "sdp_utils.cpp, can_use_mem_efficient_attention (pytorch#191085)"
)


def torch_version() -> tuple[int, int]:
    """Return the installed version: (2, 13) for '2.13.0+cu130'."""
    match = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if match:
        return (int(match[1]), int(match[2]))
    return MEASURED[-1]


def version_notes(version: str) -> tuple[str, ...]:
    """Return a note if this version of torch ('2.12.0+cu130') is none of those that were
    measured.
    """
    measured = [".".join(map(str, numbers)) for numbers in MEASURED]
    if ".".join(version.split(".")[:2]) in measured:
        return ()
    return (
        f"The predictions were compared with torch {' and '.join(measured)}; this is {version}, "
        "whose kernels may hold other tensors.",
    )
