"""GPUs as people write them: '2 x 3090s', 'a100,l40s', 'p5.48xlarge', or somewhere in a sentence."""

import re
import shlex
from collections.abc import Sequence

from ..api.fit_options import DeploymentOptions
from ..config.gpus import gpu_of_device, gpus_of, instances
from ..errors import AttncalcError, is_valid, tries
from ..options import options_of
from ..records import NamedTuple
from ..units import MIB
from ..vocabulary import CLOUDS

_BEGINNING = (
    r"(?:\d{1,2} |\d{1,2} ?x ?)?"
    r"(?:nvidia |geforce |amd |radeon |rtx|gtx|tesla|rx ?\d|mi\d|gb\d|gh\d|[abhltvm]\d|[3-5]0[6-9]0)"
)
"""How people begin the name of a GPU, and not a size or another number."""


def gpu_in(text: str) -> str | None:
    """Return the GPU that a text names, as an option has it: '2xrtx-3090' of '2 x 3090s'."""
    if joint := re.search(r"([,+])\S", text):  # 'a100,l40s'
        several = [gpu_in(one) for one in text.split(joint[1])]
        return joint[1].join(map(str, several)) if all(several) else None
    is_name = re.search(r"^(?!gpu:)[^=]*\d|^(cpu|local)$|^(strix|jetson|dgx) [a-z ]+$", text)
    for name in (text, re.sub("(?<!b)s$", "", text)) if is_name else ():
        try:
            with tries():
                number, gpu = gpus_of(name)
        except AttncalcError:
            continue
        if gpu.instance:
            return f"{number // gpu.per_node}x{gpu.instance}".removeprefix("1x") if number else None
        if "mac" in name:
            return gpu.name if "gb" in name else gpu.name.rpartition("-")[0]  # its chip
        is_size = re.fullmatch(r"[\d.]+ gi?b", name) is not None
        return f"{number}x{gpu.name}" if number and " " in name else name.replace(" ", "" if is_size else "-")
    return None


def first_gpu_in(text: str) -> str | None:
    """Return the first GPU that the words of a person name, with its number: '2xa100-80gb' of 'on 2x A100 80GB,'."""
    text = text.lower().replace("nvidia-", "nvidia ")  # of k8s
    text = re.sub(r"\bgpu:([a-z]\w+):(\d{1,2})\b", r" \2x \1 ", text)  # of Slurm
    words = [word.strip("`'\".,:;()*?!") for word in text.split()]
    for i, length in ((i, length) for i in range(len(words)) for length in (4, 3, 2, 1)):
        phrase = " ".join(words[i : i + length])
        if re.match(_BEGINNING, phrase) and (found := gpu_in(phrase)):
            number, known = gpus_of(found)
            size = re.search(r"\b(\d{2,3}) ?gb\b", " ".join(words[i : i + length + 1]))
            is_other = size and int(size[1]) not in (known.memory_gb, known.memory_gb * (number or 1))
            return f"{number or 1}x{size[1]}GB" if size and is_other else found  # an RTX 4090 of 48 GB
    return None


_ROW = re.compile(r"(?s)\|\s+\d+\s+([A-Z]\S*(?: \S+)*)\s+(?:On|Off|N/A)\s+\|.{1,200}?(\d+)MiB\s*/\s*(\d+)MiB")
"""A GPU in the table of nvidia-smi, with its memory in use and all of it."""
_LISTED = re.compile(r"GPU \d+: ([^(\n]+) \(UUID\b[^\n]*((?:\n[ \t]+MIG .*)*)")
_SLICE = re.compile(r"\bMIG ((?:\dc\.)?\dg\.(\d+)gb)")
_MIG_ROW = re.compile(r"\|\s+(\d+)(?:\s+\d+){3}\s+\|\s+(\d+)MiB\s*/\s*(\d+)MiB")
"""A slice by MIG in that table: the number of its GPU, its memory in use and all of it."""
_NODE = re.compile(r"nvidia\.com/gpu(?:\.(product|count))?[=:]\s*([\w-]+)")
"""A node's GPUs in Kubernetes: 'nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3', 'nvidia.com/gpu: 8'."""
_CELLS = re.compile(r"(?m)^(?:\d+, *)?((?:NVIDIA|Tesla|Quadro|GeForce|[AHL]\d)[^,\n]*), *(\d+) MiB(?:, *(\d+) MiB)?")
_TABLE = re.compile(
    r"(?m)^(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d|[+|]|(?:GPU \d+:|[ \t]+MIG ).*UUID|(?:.*, *)?(?:name|memory\.\w+).*MiB\]"
    r"|.*, *\d+ MiB).*$\n?"
)
"""Lines of nvidia-smi: of its table, of -L, and of --query-gpu=name,memory.total,memory.used."""


class Listing(NamedTuple):
    """What nvidia-smi printed within a text."""

    rest: str  # the text without it
    options: list[str]  # it as options: '--gpu 2xh100-80gb --other-memory 41216MiB'; [] if it names no GPU
    note: str = ""  # which of the GPUs they are, where that matters


def read_listing(text: str, wanted: int = 0) -> Listing:
    """Return what nvidia-smi printed within a text, as options for the freest GPUs.

    Those are `wanted` ones, or else all whose memory in use is at most a tenth of the memory above the least. Of slices
    by MIG it is the largest, because a process of CUDA sees a single one. Without a header, the second size of a line
    is in use.
    """
    node = {key: value for key, value in _NODE.findall(text) if key or value.isdecimal()}
    if "product" in node:
        return Listing(_NODE.sub("", text), ["--gpu", f"{node.get('', '1')}x{_name(node['product'], 0)}"])
    rows = [(title, int(total), int(used)) for title, used, total in _ROW.findall(text)]
    cells = [(title, *sorted((int(one), int(other or 0)), reverse=True)) for title, one, other in _CELLS.findall(text)]
    if "memory.free" in text and "memory.used" not in text:
        cells = [(title, total, total - free) for title, total, free in cells]
    listed = [*_LISTED.findall(text)]
    slices = [(int(size), f"{title} MIG {profile}") for title, of in listed for profile, size in _SLICE.findall(of)]
    for number, used, total in _MIG_ROW.findall(text):
        for title, whole, _ in rows[int(number) :][:1]:
            if known := gpu_of_device(title, int(whole) * MIB):
                eighths = max(1, round(8 * int(total) / int(whole)))
                profile = f"{eighths - (eighths > 3)}g.{known.memory_gb * eighths // 8}gb"  # 3g.40gb has 4/8 and 3/7
                slices.append((int(total) - int(used), f"{known.name}-{profile}:{total}MiB"))
    if slices:
        of = f", the {'freest' if rows else 'largest'} of {len(slices)} slices: a process sees one"
        note = of if len(slices) > 1 else ""
        return Listing(_TABLE.sub("", text), ["--gpu", _name(max(slices)[1], 0)], note)
    found = rows or cells or [(title, 0, 0) for title, _ in listed]
    if not found:
        return Listing(text, [])
    freest = sorted(range(len(found)), key=lambda i: found[i][2])
    least = found[freest[0]]
    free = freest[:wanted] if wanted else [i for i in freest if found[i][2] <= least[2] + least[1] // 10]
    used = found[free[-1]][2]
    names = dict.fromkeys(_name(*found[i][:2]) for i in sorted(free))
    kinds = f"{len(free)}x{''.join(names)}".removeprefix("1x") if len(names) == 1 else "+".join(names)
    note = ", of the GPU with the most memory in use" if used and len(free) > 1 else ""
    if len(free) < len(found):
        note += f", the freest of {len(found)}: CUDA_VISIBLE_DEVICES={','.join(map(str, sorted(free)))}"
    return Listing(_TABLE.sub("", text), ["--gpu", kinds, *(["--other-memory", f"{used}MiB"] if used else [])], note)


def _name(title: str, mebibytes: int) -> str:
    """Return the name here of a GPU as its driver names it, or else its memory."""
    known = gpu_of_device(title, mebibytes * MIB)
    return known.name if known else title if is_valid(gpus_of, title) else f"{mebibytes}MiB"


def with_listed_gpus(args: Sequence[str], piped: str) -> tuple[list[str], str]:
    """Return the arguments with what nvidia-smi printed as options, and the note on these.

    It is an argument or its file, or piped in without --gpu.
    """
    split = [options_of(DeploymentOptions)[name] for name in ("gpus", "tp")]
    names = "|".join(name for one in split for name in (*one.names, *one.also))
    number = re.search(rf"(?<!\S)(?:{names})[ =](\d{{1,2}})\b", " ".join(args))
    wanted, note = int(number[1]) if number else 0, ""
    found: list[str] = []
    words: list[str] = []
    for arg in args:
        listing = read_listing(arg, wanted)
        if listing.options and found[-1:] in (["--gpu"], ["-g"]):
            found.pop()
        found += listing.rest.split() if listing.options else [arg]
        words, note = words + listing.options, note or listing.note
    if {"--gpu", "-g", "--log"}.isdisjoint(found) and not words:
        _, words, note = read_listing(piped, wanted)
        found = [arg for arg in found if arg != "-" or not words]
    given = {arg.partition("=")[0] for arg in found}
    pairs = [pair for pair in zip(words[::2], words[1::2], strict=True) if pair[0] not in given]
    options = [word for pair in pairs for word in pair]
    return [*found, *options], f"{shlex.join(options)}{note}"


def instances_of(args: Sequence[str]) -> list[str]:
    """Return the instances of the cloud that a question names, one of each number of GPUs, the smallest first."""
    cloud = next((CLOUDS[word] for word in re.findall("[a-z0-9]+", " ".join(args).lower()) if word in CLOUDS), None)
    of_cloud = [one for one in instances().values() if cloud and re.search(cloud, one.instance)]
    return [*{(one.name, one.per_node): one.instance for one in reversed(of_cloud)}.values()][::-1]
