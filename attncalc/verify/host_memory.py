"""The free memory of the host: what the kernel reports, and no more than the limits of the
container leave. It does not import torch.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The root of the file system; tests replace it.
ROOT = Path("/")
# A cgroup v1 without a limit has one of nearly 2^63 bytes.
NO_LIMIT = 2**60


def free_on_host() -> int:
    """Return the available memory in bytes: the least of the host's and of every enclosing
    cgroup's.
    """
    limits = [*_available(), *_cgroup_room()]
    if limits:
        return min(limits)
    return _outside_linux()


def _outside_linux() -> int:
    """Return what Windows reports as available, and half of all memory on macOS, which has no such
    number.
    """
    if sys.platform == "win32":
        import ctypes

        # MEMORYSTATUSEX: its length and the load in 32 bits each, the total, what is available, and
        # five more numbers
        status = (ctypes.c_uint64 * 8)(64)
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status[2])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _available() -> Iterator[int]:
    match = re.search(r"MemAvailable:\s+(\d+) kB", _read(ROOT / "proc/meminfo"))
    if match:
        yield int(match[1]) * 1024


def _cgroup_room() -> Iterator[int]:
    """Yield what each cgroup of this process leaves: its limit less its use, the page cache not
    counted as used.

    /proc/self/cgroup has lines like '0::/user.slice/job' (v2) and '9:memory:/docker/ID' (v1). Every
    parent has a limit of its own, so all of them are read. In a container the path may be the
    host's, and the files are at the top.
    """
    for line in _read(ROOT / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            yield from _rooms(
                ROOT / "sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"
            )
        elif "memory" in controllers.split(","):
            folder = ROOT / "sys/fs/cgroup/memory"
            yield from _rooms(
                folder,
                path,
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )


def _rooms(top: Path, path: str, limit_file: str, used_file: str, cached_key: str) -> Iterator[int]:
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts) + 1):
        folder = top.joinpath(*parts[:depth])
        limit = _read(folder / limit_file).strip()
        used = _read(folder / used_file).strip()
        if limit.isdigit() and used.isdigit() and int(limit) < NO_LIMIT:
            cached = re.search(
                rf"^{cached_key} (\d+)$", _read(folder / "memory.stat"), re.MULTILINE
            )
            yield max(0, int(limit) - int(used) + int(cached[1] if cached else 0))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
