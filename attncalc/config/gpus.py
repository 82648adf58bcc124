"""GPUs by their names or aliases, or from a YAML file of the user's own."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import AttncalcError, BadValueError, CannotCheckError, Tip, did_you_mean
from ..hardware import PER_NODE, UNIFIED_MEMORY_SHARE, Gpu, MeasuredStart
from ..units import BYTES, GIB, MIB, human, parse_bytes, parse_count, truncate
from .data_files import file_content, file_names, folder_content, presets_folder

if TYPE_CHECKING:
    from .local import NamedGpu

# The start of the note on GPUs of the same name with other memories.
OTHER_MEMORIES = "Sold with other memories too:"
# Bytes that a GPU's file may have; the built-in ones have some twenty lines.
LIMIT = 1 << 16
# The names of the host as a device, and of this machine's GPUs.
CPU = "cpu"
LOCAL = "local"
_TIP = Tip(
    "'attncalc gpus' lists them all; a path to a .yaml works too",
    page="The list of this field has them all",
    python="attncalc.gpu_names() lists them all; a path to a .yaml works too",
)
_BY_MEMORY = Tip(
    f"give its memory, as --gpu 24GB; {_TIP}",
    page="give its memory, as 24GB, or choose one from the list",
    python=f"give its memory, as '24GB'; {_TIP.python}",
)
_NOT_LOCAL = (
    "give its name or its memory, as --gpu rtx-4090 or --gpu 12GB; --gpu cpu computes without a GPU"
)
_EXAMPLE = "'attncalc gpus h100-80gb' prints an example"
_EXAMPLE_OF_MEMORY = "give what programs see, as vLLM prints it: --gpu rtx-4090:23.6GiB"
# '2xh100', '2 x H100'; '7900xtx' has no number.
_SEVERAL = (
    r"(?s)(?:(?P<nodes>\d{1,4}) ?[xX] ?)?(?P<gpus>\d[\d,_]{0,39}) ?[xX](?![tT][xX]?\b) "
    r"?(?P<kind>.*\S)"
)
# 'h100x8'; 'mi300x' has no number at its end.
_SEVERAL_AFTER = r"(?P<kind>.*[A-Za-z0-9]) ?[xX*:] ?(?P<gpus>\d{1,4})"
# What follows the name in a line of nvidia-smi: 'NVIDIA A100-SXM4-80GB, 81920 MiB'.
_FOLLOWING_MEMORY = r", *\d+ ?MiB.*$"
# '24GB', '23.5 GiB', '40Gi'; '5070Ti' is a name.
_MEMORY = r"(?i)\d[\d.,_]* ?(?:[KMGTPE]i?B|[MG]i)"
# More bytes than any GPU has.
_LARGEST = 4 << 40
# '24GB': as a shop names a card with 24 GiB, of which software sees half a GiB less, or a 48th if
# that is more.
#
# torch sees 7.5 to 7.7 of 8 GB, 11.5 to 11.7 of 12, 15.5 to 15.7 of 16, 23.5 of 24 (RTX 3090,
# 4090), 31.3 of 32, 47.5 of 48 (RTX 6000 Ada) and 79.1 of 80 (H100). Cards with ECC in GDDR memory
# show less: 22.0 of 24 (L4, A10), 44.4 of 48.
_CARD = r"(?i)\d+ ?GB"
# 'rtx-5070-ti:15.92GiB', the memory that software sees on this machine.
_WITH_MEMORY = rf"(?i)(?P<gpu>[^:]+):(?P<memory>{_MEMORY[4:]})"
# A slice of a GPU by MIG: 'h100-1g.10gb', and as CUDA names it: 'NVIDIA H200 MIG 1g.18gb'.
_SLICE = r"(?P<gpu>.+?)[- ](?:mig[- ])?(?P<compute>[1-7])g\.(?P<gb>\d{1,3})gb"
_SLICES = 7
_MEMORY_SLICES = 8
# The least part of its share of the memory that software sees in a slice: 16.00 GiB of an H200's
# 139.8 / 8.
_SEEN_OF_SLICE = (9, 10)
_SLICE_SOURCE = (
    "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/supported-mig-profiles.html"
)

_MAC = r"(?i)\b(?:mac(?:[ -]?book)?|imac)(?:[ -](?:air|pro|mini|studio))?(?![a-z])"
# Chips of Macs, of which the first that is sold with a memory stands for it: the chip changes the
# speed only.
_CHIPS = (
    "m4",
    "m4-pro",
    "m4-max",
    "m3-ultra",
    "m3",
    "m3-pro",
    "m3-max",
    "m2-max",
    "m2-ultra",
    "m1-ultra",
)
_HINTS = dict.fromkeys(
    ("mps", "metal"), "a Mac is its chip and memory, as m4-pro-24gb. "
) | dict.fromkeys(
    ("cuda", "gpu", "auto", "this", "nvidia-smi"), f"'{LOCAL}' is this machine's GPU. "
)
_TRADEMARKS = r"\((r|tm)\)"
# Words of a driver's names that names here lack.
_VENDOR_WORDS = frozenset(
    {"nvidia", "amd", "intel", "apple", "tesla", "geforce", "instinct", "radeon", "gpu", "graphics"}
    | {"server", "workstation", "edition", "generation"}
)


def _folder() -> Path:
    return presets_folder() / "gpus"


def gpu_names() -> list[str]:
    """Return the sorted names of all GPUs. A Mac's chip has one; `gpu` knows its other memories
    too.
    """
    return list(file_names(_folder()))


@cache
def _known() -> dict[str, dict[str, Any]]:
    """Return {name: content} of all GPUs, and of each other memory of a chip: 'm3-max-36gb' is in
    m3-max-128gb.yaml.
    """
    files: dict[str, dict[str, Any]] = folder_content(_folder())
    known = dict(files)
    for name, data in files.items():
        known |= _sized(name, data)
    return known


def _sized(name: str, data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return {name: content} of the other memories of a chip: the file's content with what a size
    changes.
    """
    largest = f"{data['memory_gb']}GB"
    sizes = {f"{size['memory_gb']}GB": size for size in data.get("sizes", ())}
    return {
        name.replace(largest.lower(), gb.lower()): data
        | {"title": data["title"].replace(largest, gb), "aliases": (), "sizes": ()}
        | size
        for gb, size in sizes.items()
    }


def gpu(name: str | os.PathLike[str]) -> Gpu:
    """Return the GPU called `name`.

    Args:
        name: Its own name, an alias ('h100') or its driver's name ('NVIDIA H100 80GB HBM3') in any
            spelling, a slice by MIG ('h100-1g.10gb'), or the path of a GPU file.

    Raises AttncalcError if there is no such GPU, or the file is not valid; the message names the
    line.
    """
    text = os.fspath(name)
    if text in gpu_names():
        return _to_gpu(text, file_content(_folder(), text))
    known = _known()
    words = _words(text)
    chip = _without_memory(words)
    found = _by_words().get(words) or _by_letters().get("".join(words), ())
    if not found and chip != words:  # 'H100-SXM5-80GB': the h100-sxm5 of 80 GB
        named = _by_words().get(chip, ())
        found = tuple(name for name in named if str(known[name]["memory_gb"]) == words[-2])
    if len(found) == 1:
        return _to_gpu(found[0], known[found[0]])
    several = _of_family_with_memory(text)
    if several:  # 'm3-36gb' is an M3 Pro or Max
        slowest = min(
            (_to_gpu(one, known[one]) for one in several),
            key=lambda one: (one.memory, one.bandwidth),
        )
        of_several = f" (the slowest of {', '.join(several)})" if several[1:] else ""
        return dataclasses.replace(slowest, title=slowest.title + of_several)
    sized = re.fullmatch(_WITH_MEMORY, text)
    if sized:
        return _with_memory(gpu(sized["gpu"]), sized["memory"])
    part = re.fullmatch(_SLICE, text.lower().replace("_", "-"))
    if part:
        return _slice(gpu(part["gpu"]), part)
    path = Path(text)
    try:
        is_file = path.is_file()
        if is_file and path.suffix in (".yaml", ".yml"):
            return _from_file(path)
    except (OSError, ValueError):  # a name that is too long, or has a NUL
        is_file = False
    if is_file:
        raise AttncalcError(
            f"{truncate(text)}: a GPU file is YAML",
            f"name it .yaml; {LOCAL} asks nvidia-smi itself",
        )
    hint = _hint(text)
    tip = _TIP.after(hint) if hint else _BY_MEMORY
    raise BadValueError(f"no GPU named '{truncate(text)}', and no such file", tip)


@cache
def _by_words() -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return {words: the GPUs with a name or an alias of these words}."""
    found: dict[tuple[str, ...], tuple[str, ...]] = {}
    for own_name, data in _known().items():
        for name in (own_name, *data.get("aliases", ())):
            words = _words(name)
            found[words] = tuple(dict.fromkeys((*found.get(words, ()), own_name)))
    return found


@cache
def _by_letters() -> dict[str, tuple[str, ...]]:
    """Return the same for names in one word: 'rtxa6000', '4070tisuper'."""
    found: dict[str, tuple[str, ...]] = {}
    for words, names in _by_words().items():
        joined = "".join(words)
        found[joined] = tuple(dict.fromkeys((*found.get(joined, ()), *names)))
    return found


def check_number(text: str, number: int | None, asked: int | None, per_node: int = 1) -> None:
    """Raise BadValueError if --gpus asks for more GPUs than --gpu has, as 4 of '2xh100'. It may use
    fewer of them.
    """
    if number is not None and asked is not None and asked > number:
        raise BadValueError(
            f"--gpus {asked} is more than the {number} of --gpu {truncate(text)}",
            "give the number once, as --gpu "
            f"{-(-asked // per_node)}x{truncate(re.sub(r'^[0-9]+ *x *', '', text))}",
        )


# How names of GPUs are written: '!' and ',' are no part of one.
_SPELLING = re.compile(r"[A-Za-z0-9][\w ./()+@-]*")


@cache
def _words(name: str) -> tuple[str, ...]:
    """Return the words of a name without its vendor's: ('rtx', '4090') of 'NVIDIA GeForce RTX 4090'
    and 'rtx4090'.
    """
    bare = re.sub(_TRADEMARKS, "", name.lower()).strip()
    if len(bare) > 80 or _SPELLING.fullmatch(bare) is None:
        return ()
    words = re.findall(r"\d+|[a-z]+", bare)
    return tuple(word for word in words if word not in _VENDOR_WORDS)


def _without_memory(words: tuple[str, ...]) -> tuple[str, ...]:
    if words[-1:] == ("gb",):
        return words[:-2]
    return words


def _of_family_with_memory(text: str) -> list[str]:
    """Return the GPUs whose names begin as the text does, and end with its memory."""
    words = _words(text)
    chip = _without_memory(words)
    if chip in (words, ()):
        return []
    found = []
    for name in _known():
        own = _words(name)
        if own[: len(chip)] == chip and own[-2:] == words[-2:]:
            found.append(name)
    return found


def _hint(text: str) -> str:
    """Return the start of a tip about a name that no GPU has: those of another memory, or the most
    similar name.
    """
    if "," in text:
        return "'attncalc sweep MODEL --gpu a100,h100' compares several. "
    if text.lower() in _HINTS:
        return _HINTS[text.lower()]
    if text.isdigit() and len(text) <= 4:
        return f"a GPU with so much memory is {text}GB. "
    return gpu_like(text)


def gpu_like(text: str) -> str:
    """Return the start of a tip with the GPUs that a name may mean; '' for none."""
    known = _known()
    chip = _without_memory(_words(text))
    sizes = []
    for name in known if chip else ():
        words = _words(name)
        if words != chip and _without_memory(words) == chip:
            sizes.append(name)
    if len(sizes) > 1:
        smallest_first = sorted(sizes, key=lambda name: int(known[name]["memory_gb"]))
        return f"known: {', '.join(smallest_first)}. "
    names: list[str] = []
    # a driver's name is spelled right: an RTX 5000 is no RTX 6000
    if not re.match(r"(?i)nvidia|amd|tesla|quadro", text):
        names += known
        for data in known.values():
            names += data.get("aliases", ())
    return did_you_mean("-".join(text.lower().replace("_", " ").split()), names)


def _with_memory(known: Gpu, text: str) -> Gpu:
    """Return a GPU with the memory that software sees on one machine: Windows and WSL show all of
    it, Linux less.

    Drivers of memory that is shared with the host may count a little of it twice: 128.5 GiB of a
    Strix Halo's 128.

    Raises AttncalcError if it is no size, or larger than the GPU.
    """
    size = parse_bytes(text, "--gpu")
    if not 0 < size <= known.memory_gb * GIB + (GIB if known.shares_with_host else 0):
        why = f"--gpu {known.name}: it has {known.memory_gb} GB, not {truncate(text)}"
        raise BadValueError(why, _EXAMPLE_OF_MEMORY)
    return dataclasses.replace(
        known, name=f"{known.name}:{text}", memory=size, measured=True, is_own=True
    )


def _slice(whole: Gpu, part: re.Match[str]) -> Gpu:
    """Return a slice of a GPU by MIG, with its part of memory, bandwidth and FLOP/s.

    Raises AttncalcError if NVIDIA does not divide this GPU so. An A30 has four slices, and is left
    out.
    """
    compute = int(part["compute"])
    gb = int(part["gb"])
    eighths = max(1, round(gb * _MEMORY_SLICES / whole.memory_gb))
    # 18 of 141 is an eighth
    is_part = abs(gb * _MEMORY_SLICES - eighths * whole.memory_gb) <= whole.memory_gb // 16
    can_divide = (
        whole.compute_capability in ((8, 0), (9, 0), (10, 0), (10, 3)) and whole.memory_gb >= 40
    )
    if not (is_part and can_divide and eighths <= _MEMORY_SLICES):
        example = "h100-1g.10gb, a100-80gb-3g.40gb or h200-1g.18gb"
        raise BadValueError(
            f"'{truncate(part[0])}' is not a slice of a known GPU",
            f"slices by MIG are as {example}",
        )
    numerator, denominator = _SEEN_OF_SLICE
    profile = f"{compute}g.{gb}gb"
    return dataclasses.replace(
        whole,
        name=f"{whole.name}-{profile}",
        title=f"{whole.title} MIG {profile}",
        memory_gb=gb,
        memory=whole.memory * eighths * numerator // (_MEMORY_SLICES * denominator),
        bandwidth=whole.bandwidth * eighths // _MEMORY_SLICES,
        flops=tuple((dtype, flops * compute // _SLICES) for dtype, flops in whole.flops),
        measured=False,
        multiprocessors=0,
        nvlink=False,
        watts=0,
        aliases=(),
        notes=(
            "A slice by MIG: software sees 0.91 to 0.99 of its part of the memory, and 0.9 is "
            "assumed.",
        ),
        sources=(_SLICE_SOURCE, *whole.sources),
    )


def gpu_of_device(title: str, memory: int) -> Gpu | None:
    """Return the GPU that a driver calls `title`, 'NVIDIA H100 80GB HBM3', and that has about this
    memory in bytes.

    None if no GPU has that name: 'NVIDIA GeForce RTX 3080' is either the one of 10 or that of 12
    GB, by its memory.
    """
    words = _words(title)
    if not words:
        return None
    known = _known()
    names: list[str] = []
    for other, of_words in _by_words().items():
        if words in (other, _without_memory(other)):
            names += of_words
    found = [_to_gpu(name, known[name]) for name in dict.fromkeys(names)]
    closest = min(found, key=lambda gpu: abs(gpu.memory - memory), default=None)
    if closest and abs(closest.memory - memory) <= memory // 8:
        return closest
    return None


def gpus_of(text: str) -> tuple[int | None, Gpu]:
    """Return the number of GPUs and their kind: (2, ...) for '2xh100', (16, ...) for '2x8xh100', or
    None for 'h100'.

    'p5.48xlarge' are the 8 GPUs of that instance, and '2xp5.48xlarge' those of two.

    The kind is a name or a file as for `gpu`, the memory of a GPU of which nothing else is known:
    '24GB', 'cpu', the host with this machine's memory, or 'local', the GPUs of this machine.

    Raises AttncalcError as `gpu` does, if this machine has no GPU, and if the number or the memory
    is not possible.
    """
    text = re.sub(_FOLLOWING_MEMORY, "", text.strip())
    names = [name.strip() for name in re.split("[,+]", text)]
    # '3090,3090' and '3090+4090' are one machine, '3090,4090' is a list
    if len({*names}) < len(names) or "+" in text:
        return _in_one_machine(text, names)
    if re.search(_MAC, text):
        text = _chip_of_mac(re.sub(_MAC, " ", text).strip(" -,"))
    if text.lower() == CPU:
        return None, cpu()
    if text.lower() == LOCAL:
        return _local_gpus()
    several = re.fullmatch(_SEVERAL, text)
    after = re.fullmatch(_SEVERAL_AFTER, text)
    if after and _words(after["kind"]) in _by_words():  # 'rtx3060' is no number of 'rt'
        several = after
    number = parse_count(several["gpus"], f"--gpu {truncate(text)}") if several else None
    if number and several and several.groupdict().get("nodes"):
        number *= parse_count(several["nodes"], f"--gpu {truncate(text)}")
    kind = several["kind"] if several else text
    of_cloud = instances().get(_words_of_instance(kind))
    if of_cloud:
        if number is None:
            return of_cloud.per_node, of_cloud
        return number * of_cloud.per_node, of_cloud
    return number, gpu_with(kind) if re.fullmatch(_MEMORY, kind) else gpu(kind)


def _in_one_machine(text: str, names: Sequence[str]) -> tuple[int | None, Gpu]:
    """Return the number and the slowest kind of several GPUs, as in '3090,3090'.

    Raises AttncalcError if their memories differ.
    """
    parts: list[tuple[str, str]] = []
    for name in names:
        parts += re.findall(r"^(?:(\d{1,3}) ?[xX] ?)?(.*)$", name)
    kinds = {kind: gpu(kind) for _, kind in parts}
    least = min(kinds, key=lambda kind: (kinds[kind].memory_gb, kinds[kind].bandwidth))
    all_of_least = f"{sum(int(number or 1) for number, _ in parts)}x{least}"
    if len({known.memory_gb for known in kinds.values()}) > 1:
        tip = f"a lower bound of what fits: --gpu {all_of_least}"
        raise AttncalcError(
            f"--gpu {truncate(text)}: one model on several kinds of GPU is not computed", tip
        )
    number, known = gpus_of(all_of_least)
    if len(kinds) > 1:
        known = dataclasses.replace(known, title=f"{known.title} (the slowest of {text})")
    return number, known


@cache
def instances() -> dict[tuple[str, ...], Gpu]:
    """Return {words of a name: the GPU of the instance}, those with the least memory of all their
    GPUs first.

    A family of one size needs no size: 'p4d' is p4d.24xlarge.
    """
    found = []
    file = Path(__file__).with_name("instances.txt")
    for line in file.read_text(encoding="utf-8").splitlines()[1:]:
        of_instance, _, names = line.partition(": ")
        number, _, kind = of_instance.partition("x")
        for name in names.split():
            found.append(dataclasses.replace(gpu(kind), per_node=int(number), instance=name))
    found.sort(key=lambda one: one.per_node * one.memory)
    by_words = {_words_of_instance(one.instance): one for one in found}
    of_family: dict[str, list[Gpu]] = {}
    for one in found:
        of_family.setdefault(one.instance.partition(".")[0], []).append(one)
    only = {
        _words_of_instance(family): sizes[0]
        for family, sizes in of_family.items()
        if len(sizes) == 1
    }
    return only | by_words


def _words_of_instance(name: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\d+|[a-z]+", name.lower().replace("standard_", "")))


def _chip_of_mac(text: str) -> str:
    """Return the chip of a Mac: 'm2 16gb' as it is, and of '16gb' one with that memory.

    Raises AttncalcError if neither is given, or no Mac has that memory.
    """
    if not re.fullmatch(_MEMORY, text) and text:
        return text
    size = "".join(text.lower().split())
    for chip in _CHIPS:
        name = f"{chip}-{size}"
        if name in _known():
            return name
    if text:
        why = f"no Mac with {text} is known"
    else:
        why = "a Mac needs its chip or its memory"
    raise BadValueError(why, "for example --gpu m3-pro-36gb or --gpu 'mac 16GB'")


def with_ram(known: Gpu, memory: int) -> Gpu:
    """Return a Mac's chip with that memory of the machine. Raises AttncalcError if it is not sold
    so.
    """
    chip = re.sub(r"-\d+gb$", "", known.name)
    return gpu(f"{chip}-{round(memory / 10**9 if memory % 10**9 == 0 else memory / GIB)}gb")


def gpu_with(memory: str) -> Gpu:
    """Return a GPU of which only the memory is known: '24GB' is a card as shops name it, '23.5GiB'
    are the bytes.

    Such a GPU has no bandwidth and no FLOP/s, so there is no roofline. Raises AttncalcError if the
    text is no size, or less or more than any GPU has.
    """
    size = parse_bytes(memory, "--gpu")
    if not MIB <= size <= _LARGEST:
        raise BadValueError(
            f"no GPU has {memory}",
            "give its memory, as --gpu 24GB, or its name; -c 64k is a context",
        )
    binary = "i" in memory.lower()
    memory_gb = -(-size // 10**9)
    if re.fullmatch(_CARD, memory):
        size = memory_gb * GIB - max(GIB // 2, memory_gb * GIB // 48)
    return Gpu(
        name="".join(memory.split()),
        title=f"GPU with {memory}",
        vendor="",
        memory_gb=memory_gb,
        memory=size,
        bandwidth=0,
        flops=(),
        measured=binary,
        sources=("as given",),
    )


def cpu(memory: int | None = None) -> Gpu:
    """Return the host as a device without GPUs, with so many bytes of memory; by default this
    machine's.

    Raises AttncalcError if this machine does not say how much it has.
    """
    if memory is None:
        from .local import machine_memory

        memory = machine_memory()
    if memory is None:
        raise AttncalcError(
            "this machine does not say how much memory it has", "give it, as --ram 32GB"
        )
    return Gpu(
        name=CPU,
        title=f"CPU with {human(memory, BYTES)}",
        vendor="",
        memory_gb=-(-memory // 10**9),
        memory=memory,
        bandwidth=0,
        flops=(),
        is_cpu=True,
        sources=("as given or found",),
    )


def _local_gpus() -> tuple[int, Gpu]:
    """Return the number of this machine's GPUs and their kind.

    A GPU that is not known by its name has the memory that the program reports, and no roofline.

    Raises AttncalcError if no program names a GPU, or there are several kinds.
    """
    from .local import named_gpus  # it starts programs, which other names need not load

    found = named_gpus()
    if not found:
        raise CannotCheckError(
            "--gpu local: nvidia-smi, rocm-smi and sysctl name no GPU of this machine", _NOT_LOCAL
        )
    titles = dict.fromkeys(one.title for one in found)
    if len(titles) > 1:
        raise AttncalcError(
            f"--gpu local: this machine has different GPUs: {', '.join(titles)}",
            "give one kind with --gpu, as 2x4090",
        )
    return len(found), dataclasses.replace(
        _by_title(found[0]) or _by_memory(found[0]), is_local=True
    )


def _by_title(found: NamedGpu) -> Gpu | None:
    if (found.vendor == "NVIDIA" and found.memory) or found.vendor == "AMD":
        return gpu_of_device(found.title, found.memory)
    try:
        memory = f" {found.memory >> 30}GB" if found.memory else ""
        return gpu(f"{found.title}{memory}")
    except AttncalcError:
        return None


def _by_memory(found: NamedGpu) -> Gpu:
    """Return a GPU with the memory that the vendor prints on it. Raises AttncalcError if it is not
    known either.
    """
    if not found.memory:
        raise CannotCheckError(
            f"--gpu local: {found.title} is not known, nor is its memory", _NOT_LOCAL
        )
    gb = round(found.memory / 2**30)
    unified = found.vendor == "Apple"
    numerator, denominator = UNIFIED_MEMORY_SHARE
    if unified:
        memory = found.memory * numerator // denominator
    else:
        memory = min(found.memory, gb * 10**9)
    return Gpu(
        name="local",
        title=found.title,
        vendor=found.vendor,
        memory_gb=gb,
        memory=memory,
        bandwidth=0,
        flops=(),
        measured=False,
        unified=unified,
        sources=("as this machine names it",),
    )


def _from_file(path: Path) -> Gpu:
    with path.open("rb") as file:
        content = file.read(LIMIT + 1)
    name = truncate(path, 200)
    if len(content) > LIMIT:
        raise AttncalcError(
            f"{name}: longer than {LIMIT:,} bytes", "a GPU's file has a few dozen lines"
        )
    from .schema import check
    from .yaml import parse_document

    try:
        document = parse_document(content, name)
    except AttncalcError as error:
        raise AttncalcError(error.message, _EXAMPLE) from None
    check(document, schema())
    described = _to_gpu(path.stem, document.data)
    if not described.flops:
        raise document.error(("flops",), "empty", f"give at least bf16 or fp16; {_EXAMPLE}")
    if described.memory > described.memory_gb * 2**30:
        raise document.error(
            ("memory",),
            f"{described.memory:,} is more than memory_gb, {described.memory_gb}",
            "memory is in bytes",
        )
    return dataclasses.replace(described, is_own=described.measured)


def _to_gpu(name: str, data: dict[str, Any]) -> Gpu:
    unified = bool(data.get("unified"))
    memory_gb = int(data["memory_gb"])
    numerator, denominator = UNIFIED_MEMORY_SHARE
    if unified:
        assumed_memory = memory_gb * 10**9 * numerator // denominator
    else:
        assumed_memory = memory_gb * 10**9
    notes = list(data.get("notes", ()))
    major, _, minor = data.get("compute_capability", "").partition(".")
    if "memory" not in data:
        share = ", of which the GPU gets three quarters" if unified else ""
        notes.append(
            f"No log shows how much memory software sees: {memory_gb} x 10^9 bytes are "
            f"assumed{share}."
        )
    others = _sized(name, data)
    if others and name in gpu_names():
        notes.append(f"{OTHER_MEMORIES} {', '.join(others)}.")
    default_per_node = 1 if unified else PER_NODE
    return Gpu(
        name=name,
        title=data["title"],
        vendor=data["vendor"],
        memory_gb=memory_gb,
        memory=int(data.get("memory", assumed_memory)),
        bandwidth=data["bandwidth"],
        flops=tuple(data["flops"].items()),
        measured="memory" in data,
        unified=unified,
        multiprocessors=int(data.get("multiprocessors", 0)),
        compute_capability=(int(major), int(minor)) if minor else None,
        nvlink=data.get("nvlink"),
        link=int(data.get("link", 0)),
        per_node=int(data.get("per_node", default_per_node)),
        watts=int(data.get("watts", 0)),
        aliases=tuple(data.get("aliases", ())),
        starts=tuple(map(_to_start, data.get("starts", ()))),
        notes=tuple(notes),
        sources=tuple(data["sources"]),
    )


def _to_start(data: dict[str, Any]) -> MeasuredStart:
    return MeasuredStart(**{**data, "parts": tuple(data["parts"])})


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a GPU file."""
    content: dict[str, Any] = json.loads(
        (presets_folder() / "gpu.schema.json").read_text(encoding="utf-8")
    )
    return content
