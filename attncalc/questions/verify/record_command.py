"""`attncalc verify --record DIR`: measure what the device can do in a given time, and write it as
JSON.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...config import load
from ...config.data_files import file_names, presets_folder
from ...config.gpus import gpu_of_device
from ...errors import CannotCheckError
from ...model import ModelSpec, plural
from ...show.lists import tell
from ...units import duration
from .catalogue import CATALOGUE

if TYPE_CHECKING:
    from ...verify.options import VerifyOptions

# Minutes of a record, unless --minutes names another number.
MINUTES = 10
SHARE = (
    "To share it, attach it to an issue. It names the device, its driver, the processor and "
    "versions,\nand nothing else about this machine.\n"
)
# The folder of small models whose kinds of attention no preset has.
EXAMPLES = "presets/kinds"


def write_record(
    folder: Path, device_name: str, base: VerifyOptions, minutes: float, *, force: bool
) -> int:
    """Measure on a device and write its record into `folder`; return the exit code.

    Raises AttncalcError before anything is measured if an option is unknown, the file exists
    (without force) or cannot be written; CannotCheckError if this machine lacks torch or the
    device.
    """
    from ...verify import need_torch

    need_torch()
    from ...show.progress import progress
    from ...verify.devices import find_device
    from ...verify.record.machine import device_title, file_stem
    from ...verify.record.recorder import plan_record, record
    from .record import agrees, is_empty
    from .record_files import prepare_file, write_record_file

    device = find_device(device_name)
    models = record_models()
    steps = plan_record(models, base, device)
    file = prepare_file(folder, file_stem(device_title(device)), force=force)
    command = _command(folder, device_name, base, minutes)
    written: dict[str, Any] = {}

    def write(document: dict[str, Any]) -> None:
        document["device"] = with_datasheet(document["device"])
        write_record_file(document, file)
        written.update(document)

    try:
        with progress() as on_progress:
            record(
                steps,
                models,
                device,
                int(minutes) if minutes == int(minutes) else minutes,
                command,
                on_progress,
                write,
            )
    except (KeyboardInterrupt, SystemExit) as interrupt:  # Ctrl-C, SIGTERM
        tell(f"interrupted: {_saved(written, file)}")
        if isinstance(interrupt, KeyboardInterrupt):
            return 130
        return int(interrupt.code or 0)
    _tell_result(written, minutes, file)
    if not agrees(written):
        return 1
    if is_empty(written):
        return CannotCheckError.code
    return 0


def _tell_result(written: Mapping[str, Any], minutes: float, file: Path) -> None:
    """Print the verdict of a record, the runs for which the time was too short, and its file."""
    from .record import record_verdict

    sys.stdout.write(f"{record_verdict(written)}\n")
    late = sum(step["seconds"] is not None for step in written["skipped"])
    if late:
        sys.stdout.write(
            f"{late} more runs did not fit in {duration(60 * minutes)}; --minutes gives more "
            "time.\n"
        )
    sys.stdout.write(f"Written: {file}\n")
    sys.stdout.write(SHARE)


def with_datasheet(device: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a device with its datasheet's rates, if it is a GPU: null for one that is
    not known.
    """
    named = re.fullmatch(r"(?:cuda|xpu):\d+ \((.+?)(?:, ROCm .*)?\)", str(device["name"]))
    if named is None:
        return dict(device)
    known = gpu_of_device(named[1], device["memory"])
    if known:
        datasheet = {
            "gpu": known.name,
            "flop_per_s": dict(known.flops),
            "bytes_per_s": known.bandwidth,
        }
    else:
        datasheet = None
    return {**device, "datasheet": datasheet}


def _saved(written: dict[str, Any], file: Path) -> str:
    """Return what an interrupt has left."""
    if not written:
        return "nothing was measured"
    runs = len(written["runs"])
    if runs == 1:
        return f"1 run is in {file}"
    return f"{plural(runs, 'run')} are in {file}"


def record_models() -> dict[str, ModelSpec]:
    """Return the presets of the catalogue, and an example of each other kind, by the name for the
    command line.
    """
    kinds = presets_folder() / "kinds"
    examples = {
        f"{EXAMPLES}/{name}.yaml": load(kinds / f"{name}.yaml") for name in file_names(kinds)
    }
    return {name: load(name) for name in CATALOGUE} | examples


def _command(folder: Path, device: str, base: VerifyOptions, minutes: float) -> str:
    """Return the command that repeats the record, with the last name of the folder: its path is of
    this machine.
    """
    words = ["attncalc", "verify", "--record", folder.name or "measured", "--device", device]
    words += ["--dtype", base.dtype] if base.dtype else []
    words += ["--kernel", base.kernel] if base.kernel != "all" else []
    words += ["--seed", str(base.seed)] if base.seed else []
    return shlex.join([*words, "--minutes", f"{minutes:.12g}"])
