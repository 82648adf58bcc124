"""How the ranks of one layer meet, exchange what they measured, and end with one error line if one
of them is lost.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh

from ...errors import AttncalcError, CannotCheckError
from ..devices import Device
from ..ranks import Rank

# Seconds between two signs of life of a rank.
BEAT_SECONDS = 1.0
# Seconds without a sign of life after which a rank is lost.
LOST_SECONDS = 20.0
# Seconds in which all ranks must meet, and in which their first sum must arrive.
MEET_SECONDS = 50.0
# The key of the first error of any rank.
FAILED = "attncalc/failed"
# The sign of a rank that has finished.
LEFT = b"left"
# Clears the line of a terminal and shows its cursor.
_END_OF_BAR = "\r\x1b[K\x1b[?25h"
NO_NETWORK = "the ranks need a network between them; NCCL_DEBUG=INFO shows what NCCL does"


class Ranks:
    """This process among the others, which exchange values through torch's key-value store.

    A thread of each rank counts in the store once a second, and looks at the counts of the others.
    If a count stops (its process is killed or stopped, or its machine is lost), all ranks end,
    although their main threads wait for the lost one in C++ code. Rank 0 prints why, or the first
    rank that is left.
    """

    def __init__(self, rank: Rank, store: Any, *, prints: bool) -> None:
        """Meet the others.

        Args:
            prints: whether errors are printed here; otherwise the process that started the ranks
                reads FAILED.
        """
        self.rank = rank
        self.store = store
        self.prints = prints
        self._beats = _keys("alive", rank.ranks)
        self._deadline = time.monotonic() + MEET_SECONDS
        self._has_left = threading.Event()
        self._signals = _noted_signals() if prints and sys.platform != "win32" else None
        timeout = timedelta(seconds=MEET_SECONDS)
        own = TCPStore(
            store.host, store.port, is_master=False, wait_for_workers=False, timeout=timeout
        )
        store.set(self._beats[rank.number], "0")
        with suppress(RuntimeError):
            store.wait(self._beats, timeout)
        absent = [number for number, beat in enumerate(self._beats) if not store.check([beat])]
        if absent:
            self._end(
                f"no sign of {_named(absent)} within {MEET_SECONDS:.0f} s", NO_NETWORK, absent
            )
        self._watch = threading.Thread(target=self._watch_others, args=(own,), daemon=True)
        self._watch.start()

    @contextmanager
    def group(self, device: Device, seconds: float) -> Iterator[Any]:
        """Yield the device mesh of all ranks, over NCCL on GPUs and gloo on CPUs. An error here
        ends all ranks.

        Args:
            seconds: the time that the ranks may need between two collective operations.
        """
        rank = self.rank
        on_gpu = device.type == "cuda"
        # otherwise a timeout of NCCL aborts the process
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
        if rank.local_ranks == rank.ranks and sys.platform == "linux":
            # otherwise gloo resolves the host name
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        try:
            if on_gpu:
                torch.cuda.set_device(device.torch)
            dist.init_process_group(
                "nccl" if on_gpu else "gloo",
                store=PrefixStore("attncalc/group", self.store),
                rank=rank.number,
                world_size=rank.ranks,
                timeout=timedelta(seconds=MEET_SECONDS + seconds),
            )
            dist.all_reduce(torch.ones(1, device=device.torch))
            device.synchronize()
            self._deadline = float("inf")  # the network between the ranks works
            yield init_device_mesh(device.type, (rank.ranks,))
        except AttncalcError as error:
            self._fail(error.message, error.tip)
        except Exception as error:
            # if it follows from a rank that is lost, that one is named
            time.sleep(LOST_SECONDS + 5 * BEAT_SECONDS)
            self._fail(
                f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            )
        dist.destroy_process_group()

    def exchange(self, name: str, value: object) -> list[Any]:
        """Return the values of all ranks, in order."""
        keys = _keys(name, self.rank.ranks)
        self.store.set(keys[self.rank.number], json.dumps(value))
        # not `get`, which has a timeout: the others may need minutes
        while not self.store.check(keys):
            time.sleep(BEAT_SECONDS / 10)
        return read_all(self.store, name, self.rank.ranks)

    def leave(self) -> None:
        """Stop watching the others. Rank 0 leaves last, as its process may hold the store."""
        while self.rank.number == 0 and any(
            self.store.get(beat) != LEFT for beat in self._beats[1:]
        ):
            time.sleep(BEAT_SECONDS / 10)
        self._has_left.set()
        self._watch.join()
        if self._signals:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.store.set(self._beats[self.rank.number], LEFT)

    def _fail(self, message: str, tip: str = "") -> NoReturn:
        """End all ranks, with the error of this one unless another one was first."""
        with suppress(RuntimeError):
            error = str(AttncalcError(f"rank {self.rank.number}: {message}", tip))
            self.store.compare_set(FAILED, "", error)
        while True:
            time.sleep(BEAT_SECONDS)  # the watching thread ends this process

    def _watch_others(self, store: Any) -> None:
        """Watch, through a connection of its own: a call that waits holds the lock of its
        connection.
        """
        seen = dict.fromkeys(range(self.rank.ranks), (b"", time.monotonic()))
        count = 0
        while not self._has_left.wait(BEAT_SECONDS):
            noted = self._signals() if self._signals else b""
            if signal.SIGTERM in noted:
                self._end(
                    "torchrun ended all ranks, as it does when one of them ends",
                    "its report names the rank",
                )
            if noted:  # Ctrl-C: Python ends this process, unless its main thread waits in C++
                time.sleep(BEAT_SECONDS)
                os._exit(130)
            count += 1
            try:
                store.set(self._beats[self.rank.number], str(count))
                now = time.monotonic()
                beats = store.multi_get(self._beats)
                failed = store.get(FAILED).decode() if store.check([FAILED]) else ""
            except RuntimeError:
                self._end("the process that holds the store of the ranks ended")
            if failed:
                self._end(failed)
            seen = {
                i: seen[i] if seen[i][0] == beat else (beat, now) for i, beat in enumerate(beats)
            }
            lost = [
                i for i, (beat, when) in seen.items() if beat != LEFT and now - when > LOST_SECONDS
            ]
            if lost:
                self._end(
                    f"no sign of {_named(lost)} for {LOST_SECONDS:.0f} s", "was it killed?", lost
                )
            if now > self._deadline:
                self._end(
                    f"the ranks do not reach each other within {MEET_SECONDS:.0f} s", NO_NETWORK
                )

    def _end(self, message: str, tip: str = "", lost: Sequence[int] = ()) -> NoReturn:
        """End this process. The first rank that is left prints the error, the others give it the
        time to do so.
        """
        error = str(AttncalcError(message, tip))
        if not self.prints:
            with suppress(RuntimeError):
                self.store.compare_set(FAILED, "", error)
        elif self.rank.number == min(set(range(self.rank.ranks)) - set(lost)):
            with suppress(OSError):  # the bar of rich is left as it is, with a hidden cursor
                os.write(2, f"{_END_OF_BAR if os.isatty(2) else ''}error: {error}\n".encode())
        else:
            time.sleep(3 * BEAT_SECONDS)
        os._exit(CannotCheckError.code)


def _noted_signals() -> Callable[[], bytes]:
    """Return a function that returns the signals since its last call, and let SIGTERM do nothing
    else.

    Python's own handlers run in the main thread, which may wait in C++ for a rank that is lost.
    """
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(writing)

    def noted() -> bytes:
        try:
            return os.read(reading, 16)
        except BlockingIOError:
            return b""

    return noted


def read_all(store: Any, name: str, ranks: int) -> list[Any]:
    """Return the values that all ranks have exchanged under this name, in order."""
    return [json.loads(value) for value in store.multi_get(_keys(name, ranks))]


def _keys(name: str, ranks: int) -> list[str]:
    return [f"attncalc/{name}/{number}" for number in range(ranks)]


def _named(numbers: Iterable[int]) -> str:
    texts = list(map(str, numbers))
    return f"rank{'s' if len(texts) > 1 else ''} {', '.join(texts)}"
