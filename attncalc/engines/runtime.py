"""What an engine keeps on a GPU besides weights and cache: its runtime memory, by parts, each with
a range.

Activations of a forward pass, the sampler's logits, CUDA graphs, libraries and communication
buffers are such parts. `Engine.runtime(facts)` returns them. A part states its bytes as a
formula, a range around it, and the source of both. A range is narrow if the formula is derived from
the engine's source and agrees with measurements, and wide if it rests on few of them.
"""

from collections.abc import Sequence
from math import isqrt
from typing import Any, Generic, TypeVar

from ..hardware import Gpu, MeasuredStart
from ..model import ModelSpec
from ..quantity import Quantity, named, symbol, total
from ..records import NamedTuple, dataclass
from ..units import BYTES, GIB, human
from .base import Detail, EngineArgs, Limits

Args = TypeVar("Args", bound="EngineArgs")
# (name, label, figure) of a symbol in a part's formula that has a formula itself; a name with
# 'bytes' is in bytes.
Term = tuple[str, str, Quantity]
# By how much blind predictions were off (docs/accuracy.md): 16 of 17 mixtures on several
# GPUs by at most 3.04 GiB and a seventh of the weights, all 5 starts with a drafter by at most 5.8
# % of the weights, and others that missed their range mostly by less than 0.75. Of dense models in
# 16 bits on one GPU, the kind of most controlled starts, 45 of 49 were in the range.
_MISSED = GIB * 3 // 4
_MISSED_BY_MIXTURES = GIB * 31 // 10
_OF_MIXTURES = 7
_OF_DRAFTED = 16
# By how much a start on a machine may differ from others that were measured there.
#
# Of 68 controlled starts on H100s and an H200, any two of different models predict a third model's
# memory to 0.1 GiB in 99 % of the cases (tests/test_measured_starts.py).
_BETWEEN_STARTS = GIB // 10
ESTIMATE_NOTE = "The runtime memory is an estimate with a range. --reserve replaces it."


@dataclass(frozen=True, eq=False, repr=False)
class RuntimeFacts(Generic[Args]):
    """What an engine's runtime memory may depend on. Nothing in it is left to a default."""

    # The layers on this device, of one tensor-parallel device's share; `model.main.n_layers` counts
    # them, and `model.vocab_size` is that of the whole model (None on a device with neither
    # embedding nor head)
    model: ModelSpec
    whole: ModelSpec  # the same with all layers of the model
    # The engine's arguments: version, tp, pp, dtypes, device. `args.max_num_seqs` and others are
    # None if they were not given.
    args: Args
    limits: Limits  # the tokens and sequences of one forward pass, given or by default
    gpu: Gpu
    share: tuple[int, int]  # (numerator, denominator) of the GPU's memory that the engine takes
    batch: int  # concurrent sequences that are requested
    context: int  # tokens of each
    weights: int  # bytes of the weights on this device
    # dtype of the matrices that are multiplied: 'fp8' if activations are quantized too
    weights_dtype: str
    first: bool = True  # whether the device has the model's first layer
    last: bool = True  # whether the device has the model's last layer, and so the logits
    states_read: int = 0  # layers whose hidden states a drafter reads

    @property
    def element_bytes(self) -> Quantity:
        return symbol("bytes", self.args.dtype.bits // 8, "bytes of an activation's element")


class RuntimePart(NamedTuple):
    name: str  # its name in JSON and in formulas: 'cuda_graphs'
    label: str  # its label on screens: 'CUDA graphs'
    low: int  # the fewest bytes to expect
    expected: Quantity  # the bytes with their formula
    high: int  # the most bytes to expect
    source: str  # what the formula and the range rest on


class RuntimeMemory(NamedTuple):
    # The parts inside the engine's share of the GPU's memory: they leave less for the cache
    parts: tuple[RuntimePart, ...] = ()
    notes: tuple[str, ...] = ()  # assumptions: one sentence each
    # symbols of the parts' formulas that have formulas themselves, for --explain
    terms: tuple[Term, ...] = ()
    # Parts outside the share, which leave the cache its memory. A note warns if they have no room.
    outside: tuple[RuntimePart, ...] = ()
    # bytes without which those stop the start; None if the start does not depend on it
    room_outside: int | None = None
    details: tuple[Detail, ...] = ()  # figures that the engine prints itself, for JSON
    log_lines: tuple[str, ...] = ()  # lines of the engine's log about this memory
    # bytes by which blind predictions of such a start were off: the range is not narrower
    missed: int = 0

    @property
    def total(self) -> Quantity:
        """The expected bytes of all parts inside the share."""
        return total(named(part.expected, part.name, f"bytes: {part.label}") for part in self.parts)

    @property
    def low(self) -> int:
        """The fewest bytes of all parts inside the share."""
        expected = self._expected
        low = expected - _added([int(part.expected) - part.low for part in self.parts])
        return min(low, max(0, expected - self.missed))

    @property
    def high(self) -> int:
        """The most bytes of all parts inside the share."""
        return self._expected + max(
            _added([part.high - int(part.expected) for part in self.parts]), self.missed
        )

    @property
    def _expected(self) -> int:
        """`total` without its formula."""
        return sum(int(part.expected) for part in self.parts)

    def on_machine(self, starts: Sequence[MeasuredStart], title: str) -> "RuntimeMemory":
        """Return it with what starts of the engine called `title` took on one machine.

        The formulas know the model, and the starts show what the machine adds. Parts that a start
        had lose their range: the machine's part has the range between the starts instead. Parts
        that no start had keep theirs. For example two starts took 0.25 and 0.29 GiB more than the
        formulas of their models: a third takes 0.15 to 0.39 GiB more than its own.
        """
        if not starts:
            return self
        excesses = [start.excess for start in starts]
        known = {name for start in starts for name in start.parts}
        parts = []
        for part in self.parts:
            if part.name in known:
                parts.append(part._replace(low=int(part.expected), high=int(part.expected)))
            else:
                parts.append(part)
        number = len(starts)
        mean = sum(excesses) // number
        machine = RuntimePart(
            "machine",
            "this machine, measured",
            min(excesses) - _BETWEEN_STARTS,
            symbol("machine", mean, "bytes beyond the formulas, as starts on this machine show"),
            max(excesses) + _BETWEEN_STARTS,
            "attncalc verify --engine --save",
        )
        models = ", ".join(dict.fromkeys(start.model for start in starts))
        version = starts[-1].engine_version
        shown_by = f"{number} starts of {title} {version} show"
        if number == 1:
            shown_by = f"a start of {title} {version} shows"
        by_formula = human(self.total, BYTES)
        if mean < 0:
            note = (
                f"The model's runtime memory is {by_formula} by formula. This machine takes "
                f"{human(Quantity(-mean), BYTES)} less, as {shown_by}: {models}."
            )
        else:
            note = (
                f"Of the runtime memory {by_formula} are the model's, by formula. "
                f"{human(Quantity(mean), BYTES)} are this machine's, as {shown_by}: {models}."
            )
        notes = (note, *(other for other in self.notes if other != ESTIMATE_NOTE))
        return self._replace(parts=(*parts, machine), notes=notes, missed=0)

    @property
    def outside_high(self) -> int:
        """The most bytes of all parts outside the share."""
        return sum(part.high for part in self.outside)

    @property
    def may_run_out(self) -> bool:
        """Whether the parts outside the share may be larger than the memory that is left for
        them.
        """
        return self.room_outside is not None and self.outside_high > self.room_outside


def missed(facts: RuntimeFacts[Any]) -> int:
    """Return the bytes by which blind predictions of starts like this one were off.

    For example 3.1 GiB for a mixture of 60 GiB per GPU on several, and 0.75 for a dense model in
    fp8 on one.
    """
    several = facts.args.tp * facts.args.pp > 1
    quantized = facts.weights_dtype not in ("bf16", "fp16", "fp32")
    mixture = facts.whole.has_experts
    if facts.args.speculative_tokens:
        return max(_MISSED, facts.weights // _OF_DRAFTED)
    if several and mixture:
        return max(_MISSED, min(_MISSED_BY_MIXTURES, facts.weights // _OF_MIXTURES))
    if several or mixture or quantized or facts.whole.towers:
        return _MISSED
    return 0


def _added(deviations: list[int]) -> int:
    """Return by how much the sum of parts may deviate.

    The parts err for different reasons, so that it is unlikely that all are at their ends: the
    deviation is the root of the sum of squares, and a fifth more as they are not quite independent.
    With 0.3, 0.4 and 0.0 GiB it is 0.6, and never more than their sum, 0.7.
    """
    return min(
        sum(deviations), isqrt(sum(deviation * deviation for deviation in deviations)) * 6 // 5
    )


class DeviceMemory(NamedTuple):
    """The expected bytes on a GPU with layers of its own, or on the host; the names are those of
    JSON.
    """

    name: str  # its name in the engine's log: 'CUDA0'; or 'host'
    layers: int  # its layers, without the output layer
    # Bytes of its weights. A GGUF file is mapped: the host's are those from its first to its last
    # tensor.
    model_buffer: int
    kv_buffer: int  # bytes of the cache of the requested sequences
    compute_buffer: int | None  # bytes of its compute buffer; None if the reserve was given
    # bytes outside the buffers; None on the host, and if the reserve was given
    outside_buffers: int | None

    @property
    def total(self) -> int:
        return (
            self.model_buffer
            + self.kv_buffer
            + (self.compute_buffer or 0)
            + (self.outside_buffers or 0)
        )
