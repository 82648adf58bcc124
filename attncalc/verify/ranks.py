"""The processes that torchrun started, as its environment describes them. This module does not
import torch.
"""

import os

from ..errors import AttncalcError
from ..records import NamedTuple


class Rank(NamedTuple):
    """One of the processes that share a layer."""

    number: int  # its number; only rank 0 prints
    ranks: int  # the number of processes
    local_number: int  # its number on this machine, which is that of its GPU
    local_ranks: int  # the processes on this machine


def torchrun_rank() -> Rank | None:
    """Return the rank of this process; None if torchrun did not start it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Rank(
        *(
            int(os.environ[name])
            for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        )
    )


def check_torchrun(tp: int) -> None:
    """Raise AttncalcError if torchrun started another number of processes than --tp."""
    rank = torchrun_rank()
    if rank and rank.ranks != tp:
        raise AttncalcError(
            f"torchrun started {rank.ranks} processes, and --tp is {tp}",
            f"give --tp {rank.ranks}"
            if rank.ranks > 1
            else "leave out torchrun, or give --nproc-per-node",
        )
