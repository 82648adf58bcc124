"""GPUs as people write them: '2 x 3090s', 'a100,l40s', 'p5.48xlarge', or somewhere in a sentence."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..config.gpus import gpus_of, instances
from ..errors import AttncalcError, tries
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
    text = re.sub(r"\bgpu:([a-z]\w+):(\d{1,2})\b", r" \2x \1 ", text.lower()).replace(
        "nvidia-", "nvidia "
    )  # of Slurm, k8s
    words = [word.strip("`'\".,:;()*?!") for word in text.split()]
    for i, length in ((i, length) for i in range(len(words)) for length in (4, 3, 2, 1)):
        phrase = " ".join(words[i : i + length])
        if re.match(_BEGINNING, phrase) and (found := gpu_in(phrase)):
            number, known = gpus_of(found)
            size = re.search(r"\b(\d{2,3}) ?gb\b", " ".join(words[i : i + length + 1]))
            is_other = size and int(size[1]) not in (known.memory_gb, known.memory_gb * (number or 1))
            return f"{number or 1}x{size[1]}GB" if size and is_other else found  # an RTX 4090 of 48 GB
    return None


def instances_of(args: Sequence[str]) -> list[str]:
    """Return the instances of the cloud that a question names, one of each number of GPUs, the smallest first."""
    cloud = next((CLOUDS[word] for word in re.findall("[a-z0-9]+", " ".join(args).lower()) if word in CLOUDS), None)
    of_cloud = [one for one in instances().values() if cloud and re.search(cloud, one.instance)]
    return [*{(one.name, one.per_node): one.instance for one in reversed(of_cloud)}.values()][::-1]
