"""Quantized checkpoints that are known by their name: what they store in which scheme, by
checkpoints.txt.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..quantization import LINEAR, PART, Quantization, Role, Scheme, StoredAs
from ..records import NamedTuple
from .presets import of_release, unquantized, unquantized_name

# {a scheme in checkpoints.txt: the quant_method of its checkpoints, and how they store a matrix}.
SCHEMES: dict[str, tuple[str, Scheme]] = {
    # AutoAWQ's and AutoGPTQ's defaults
    "awq": ("awq", Scheme("int4", 4, group=128, zero_bits=4)),
    "gptq": ("gptq", Scheme("int4", 4, group=128, zero_bits=4, row_bits=32)),
    "gptq-g32": ("gptq", Scheme("int4", 4, group=32, zero_bits=4, row_bits=32)),
    "gptq-int8": ("gptq", Scheme("int8", 8, group=128, zero_bits=8, row_bits=32, weight_only=True)),
    "autoround": ("auto-round", Scheme("int4", 4, group=128, zero_bits=4)),
    "w4a16": ("compressed-tensors", Scheme("int4", 4, group=128, fixed=16)),
    "w4a16-g32": ("compressed-tensors", Scheme("int4", 4, group=32, fixed=16)),
    "w8a8": ("compressed-tensors", Scheme("int8", 8)),
    "fp8": ("compressed-tensors", Scheme("fp8", 8)),
    "fp8-block": ("fp8", Scheme("fp8", 8, group=128, block=128, scale_bits=32)),
    "fp8-tensor": ("modelopt", Scheme("fp8", 8, block=0, scale_bits=0, fixed=8)),
    "mxfp8": ("compressed-tensors", Scheme("fp8", 8, group=32, scale_bits=8)),
    "nvfp4": ("modelopt", Scheme("fp4", 4, group=16, scale_bits=8, fixed=8)),
    "mxfp4": ("quark", Scheme("mxfp4", 4, group=32, scale_bits=8)),
}
# {a part in checkpoints.txt: the roles of its matrices}. Any other word is the name of modules:
# 'layers.0', 'layers.2-3', 'kv_b_proj'.
_ROLES: dict[str, tuple[Role, ...]] = {
    "attention": ("attention", "cross"),
    "linear-attention": ("linear",),
    "mlp": ("mlp",),
    "shared-experts": ("shared_experts",),
    "lm_head": ("head",),
    "embedding": ("embedding",),
}
# In checkpoints.txt: nothing but embedding, lm head and routers is in 16 bits; or that is unknown.
_NOTHING = "-"
_UNKNOWN = "?"
# Parts that a sentence names of one scheme.
_MOST_WORDS = 4
# The keys of a preset that a quantized checkpoint of it replaces.
_OF_QUANTIZATION = ("weights_dtype", "experts_dtype", "quantization", "kv_dtype")


class Checkpoint(NamedTuple):
    """A line of checkpoints.txt.

    Attributes:
        name: org/name, or a pattern of such names with '*', which is an organisation's habit.
        scheme: The scheme of most matrices, one of SCHEMES.
        exceptions: {a part or module: its scheme}, None for 16 bits; None if they are unknown.
        kv_dtype: The dtype of the cache that the checkpoint asks for; None for the model's.
        size: The size of its files as published, '20.42GiB'; '-' if it is unknown.
        source: Where this is from, by the list at the head of the file.
    """

    name: str
    scheme: str
    exceptions: Mapping[str, str | None] | None
    kv_dtype: str | None
    size: str
    source: str

    @property
    def dtype(self) -> str:
        """The dtype of most matrices: 'int4'."""
        return SCHEMES[self.scheme][1].dtype

    @property
    def is_habit(self) -> bool:
        """Whether it stands for all names of an organisation that are written so."""
        return "*" in self.name

    @property
    def words(self) -> str:
        """What it does with attention: 'attention in int4', or what stays in 16 bits."""
        if not self.exceptions:
            return f"attention in {self.dtype}"
        in_scheme: dict[str, list[str]] = {}
        for part, scheme in self.exceptions.items():
            name = SCHEMES[scheme][1].dtype if scheme else "16 bits"
            in_scheme.setdefault(name, []).append(part.replace("-", " "))
        found = []
        for name, parts in in_scheme.items():
            shown = parts if len(parts) <= _MOST_WORDS else [*parts[:_MOST_WORDS], "..."]
            found.append(f"{', '.join(shown)} in {name}")
        return "; ".join(found)

    def quantization(self, model_type: str = "") -> Quantization | None:
        """Return how it stores the matrices of a model; None if that is unknown."""
        if self.exceptions is None:
            return None
        method, main = SCHEMES[self.scheme]
        ignored: list[str] = []
        schemes: list[Scheme] = []
        for part, scheme in self.exceptions.items():
            targets = _targets(part)
            if scheme is None:
                ignored += targets
            else:
                schemes.append(SCHEMES[scheme][1]._replace(targets=targets))
        schemes.append(main._replace(targets=(LINEAR,)))
        return Quantization(method, tuple(schemes), tuple(ignored), model_type)


def _targets(part: str) -> tuple[str, ...]:
    """Return the targets of a scheme for a part or modules: 'layers.2' and 'layers.3' of
    'layers.2-3'.
    """
    of_roles = tuple(f"{PART}{role}" for role in _ROLES.get(part, ()))
    layers = re.fullmatch(r"layers\.(\d+)-(\d+)", part)
    if layers:
        return tuple(f"layers.{number}" for number in range(int(layers[1]), int(layers[2]) + 1))
    return of_roles or (part,)


@cache
def checkpoints() -> tuple[Checkpoint, ...]:
    """Return the lines of checkpoints.txt."""
    lines = Path(__file__).with_name("checkpoints.txt").read_text(encoding="utf-8").splitlines()
    return tuple(_line(line) for line in lines if not line.startswith("#"))


def _line(line: str) -> Checkpoint:
    name, scheme, parts, size, source = line.split()
    if parts == _UNKNOWN:
        return Checkpoint(name, scheme, None, None, size, source)
    exceptions: dict[str, str | None] = {}
    kv_dtype = None
    for part in parts.split(",") if parts != _NOTHING else ():
        what, _, of = part.partition("=")
        if what == "cache":
            kv_dtype = of
        else:
            exceptions[what] = of or None
    return Checkpoint(name, scheme, exceptions, kv_dtype, size, source)


@cache
def _by_preset() -> dict[str, dict[str, list[Checkpoint]]]:
    """Return {preset: {dtype: its checkpoints in that dtype, in the order of the file}}."""
    found: dict[str, dict[str, list[Checkpoint]]] = {}
    for one in checkpoints():
        base = None if one.is_habit else unquantized(one.name)
        if base:
            found.setdefault(base[0], {}).setdefault(base[1], []).append(one)
    return found


@cache
def _of_release_first(preset: str, release: str) -> dict[str, list[Checkpoint]]:
    """Return the checkpoints of a preset by dtype, those of a release before others: DeepSeek-R1 is
    of the preset of DeepSeek-V3.
    """
    asked = _letters(release.rpartition("/")[2])

    def is_other(one: Checkpoint) -> bool:
        return _letters(unquantized_name(one.name)[0]) != asked

    return {
        dtype: sorted(known, key=is_other) for dtype, known in _by_preset().get(preset, {}).items()
    }


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


@cache
def of_checkpoint(name: str) -> tuple[str, Checkpoint] | None:
    """Return the preset of a repository in checkpoints.txt, and its line: ('qwen3-32b', ...) of
    'Qwen/Qwen3-32B-AWQ'. None for any other name.
    """
    for one in checkpoints():
        base = unquantized(one.name) if one.name.lower() == name.lower() else None
        if base:
            return base[0], one
    return None


@cache
def by_habit(name: str) -> tuple[str, Checkpoint] | None:
    """Return the preset of a repository, and the line of its organisation's habit; None without one
    or the other.
    """
    base = unquantized(name)
    for one in checkpoints():
        if base and one.is_habit and fnmatch.fnmatchcase(name.lower(), one.name.lower()):
            return base[0], one._replace(name=name)
    return None


class Checkpoints(Mapping[str, str]):
    """{dtype: a checkpoint of a preset in it, of the given release if there is one}: {'fp8':
    'Qwen/Qwen3-32B-FP8'}. checkpoints.txt lists them.

    The list is read when one is asked for, which takes a tenth of the time of `fit` and few
    requests do.
    """

    def __init__(self, preset: str, release: str = "") -> None:
        self._preset = preset
        self._release = release

    def _found(self) -> Mapping[str, list[Checkpoint]]:
        return _of_release_first(self._preset, self._release)

    def __getitem__(self, dtype: str) -> str:
        return self._found()[dtype][0].name

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())


class Layouts(Mapping[str, tuple[StoredAs, ...]]):
    """{dtype: how the known checkpoints of a preset store it, the most usual first}, read as
    `Checkpoints` is. A dtype whose most usual checkpoint is not known exactly is left out.
    """

    def __init__(self, preset: str, model_type: str, release: str = "") -> None:
        self._preset = preset
        self._model_type = model_type
        self._release = release

    @property
    def _found(self) -> Mapping[str, tuple[StoredAs, ...]]:
        return _layouts(self._preset, self._model_type, self._release)

    def __getitem__(self, dtype: str) -> tuple[StoredAs, ...]:
        return self._found[dtype]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@cache
def _layouts(preset: str, model_type: str, release: str) -> Mapping[str, tuple[StoredAs, ...]]:
    layouts = {}
    for dtype, known in _of_release_first(preset, release).items():
        settled = [_or_habit(one)[0] for one in known]
        if settled[0].exceptions is not None:
            differs = any(one.exceptions for one in settled)
            stored = (stored_as(one, model_type, differs=differs) for one in settled)
            layouts[dtype] = tuple(one for one in stored if one)
    return layouts


def _or_habit(one: Checkpoint) -> tuple[Checkpoint, bool]:
    """Return the line of a checkpoint, or its organisation's habit if what it leaves in 16 bits is
    unknown; and whether it is its own line.
    """
    habit = by_habit(one.name) if one.exceptions is None else None
    if habit and habit[1].dtype == one.dtype:
        return habit[1], False
    return one, True


def layout_of(name: str, preset: str, dtype: str, model_type: str) -> StoredAs | None:
    """Return how a repository stores a preset in a dtype; None if that is unknown, or if it is
    another model's.
    """
    found = of_checkpoint(name) or by_habit(name)
    if found is None or found[0] != preset or found[1].dtype != dtype:
        return None
    return stored_as(_or_habit(found[1])[0], model_type, differs=True)


def stored_as(one: Checkpoint, model_type: str, *, differs: bool = False) -> StoredAs | None:
    """Return how a checkpoint stores a model; None if that is unknown."""
    quantization = one.quantization(model_type)
    if quantization is None:
        return None
    return StoredAs(one.name, quantization, one.kv_dtype, one.words, differs)


def as_checkpoint(data: dict[str, Any], one: Checkpoint, *, is_read: bool = True) -> dict[str, Any]:
    """Return a preset's data for a quantized checkpoint of it.

    `is_read` is whether the line is of that checkpoint; otherwise it is its organisation's habit.
    """
    from .huggingface.quantized.released import Released, to_keys

    one, is_own = _or_habit(one)
    one = _of_model(one, data)
    is_read = is_read and is_own

    kept = {key: value for key, value in data.items() if key not in _OF_QUANTIZATION}
    quantization = one.quantization(data.get("model_type", ""))
    if quantization is None:
        note = (
            f"Weights in {one.dtype} by the checkpoint's name; {one.name}:config.json reads how it "
            "stores them."
        )
        found = Released(None, one.dtype)
    else:
        if is_read:
            note = f"Weights as in {one.name}: {one.words}; {one.name}:config.json reads them anew."
        else:
            organisation = one.name.partition("/")[0]
            note = (
                f"warning: {one.name} was not read. {organisation}'s habit is assumed: {one.words}."
            )
        of_attention = (one.exceptions or {}).get("attention", one.scheme)
        if of_attention is None and _has_experts(data):
            found = Released(quantization, None, one.dtype, one.kv_dtype)
        else:
            found = Released(quantization, one.dtype, None, one.kv_dtype)
    quantized = {**kept, **dict(to_keys(found)), "notes": [*data.get("notes", ()), note]}
    return of_release(quantized, unquantized_name(one.name)[0])


def _of_model(one: Checkpoint, data: Mapping[str, Any]) -> Checkpoint:
    """Return a line without linear attention if the model has none: an organisation's habit is that
    of all its models.
    """
    part = "linear-attention"
    if part not in (one.exceptions or {}):
        return one
    from ..attention import KINDS
    from ..attention.recurrent import Recurrent

    kinds = (data, *data.get("layer_kinds", {}).values())
    if any(
        issubclass(KINDS[kind["attention"]], Recurrent) for kind in kinds if "attention" in kind
    ):
        return one
    others = {name: scheme for name, scheme in (one.exceptions or {}).items() if name != part}
    return one._replace(exceptions=others)


def _has_experts(data: Mapping[str, Any]) -> bool:
    """Return whether a preset's data, or one of its kinds of layers, has routed experts."""
    kinds = data.get("layer_kinds", {})
    return "n_experts" in data or any("n_experts" in kind for kind in kinds.values())
