"""llama.cpp's own options, and its arguments: those of its context, and those that divide a model
over devices.
"""

import os
import re
from collections.abc import Sequence
from functools import cache
from operator import truediv
from typing import Annotated

from ...errors import AttncalcError, NotSupportedError, clash
from ...options import (
    BYTES,
    COUNT,
    COUNT_OR_ZERO,
    DTYPE_OR_AUTO,
    GIBIBYTES,
    Count,
    Parser,
    Size,
    With,
    count_or_zero,
)
from ...records import NamedTuple, dataclass
from ...units import DType, dtype, list_tip, parse_decimal, truncate
from ..base import EngineArgs
from ..engine import AUTO
from ..options import SplitCacheOptions
from .versions import LlamaCppVersion, llamacpp_version

# LLAMA_MAX_SEQ (src/llama-cparams.h).
MAX_SEQUENCES = 256
# llama_max_devices (src/llama.cpp) and GGML_CUDA_MAX_DEVICES (ggml/include/ggml-cuda.h).
MAX_GPUS = 16
# The model_types for which llama.cpp turns flash attention off (llama_init_from_model): Grok-1, and
# Grok-2, whose config.json has the model_type of another model.
WITHOUT_FLASH = ("grok-1", "git")
# Defaults of -ub and -b (common/common.h).
DEFAULT_UBATCH = 512
DEFAULT_BATCH = 2048


def _gpu_layers(text: str, name: str) -> int | str | None:
    """Return a number of layers, 'auto', or None for 'all'. Raises AttncalcError for another
    text.
    """
    if text in (AUTO, "all"):
        if text == "all":
            return None
        return AUTO
    try:
        return count_or_zero(text, name)
    except AttncalcError:
        raise AttncalcError(
            f"{name}: '{truncate(text)}' is not a number of layers",
            f"give a number, auto or all{list_tip(text)}",
        ) from None


def _shares(text: str, name: str) -> tuple[float, ...]:
    """Return the share of each GPU, from '3,1'. Raises AttncalcError if one is not a number from 0
    on.
    """
    parts = [part.strip() for part in text.replace("/", ",").split(",")]
    numbers = [
        0.0 if part in ("0", "0.0") else truediv(*parse_decimal(part, name, upper=10**6))
        for part in parts
    ]
    if not any(numbers):
        raise AttncalcError(f"{name}: all shares are 0", "give one share per GPU, as 3,1")
    return tuple(numbers)


def _flash_mode(text: str, name: str) -> str:
    """Return 'on', 'off' or 'auto'; '-', the omitted value of an older llama.cpp's flag, is
    'on'.
    """
    mode = {"-": "on", "1": "on", "true": "on", "0": "off", "false": "off"}.get(
        text.lower(), text.lower()
    )
    if mode not in FLASH.known:
        raise AttncalcError(f"{name} {truncate(text)} is unknown", "give on, off or auto")
    return mode


FLASH = Parser(_flash_mode, "[MODE]", known=("on", "off", "auto"))
# More layers than any model has: the value of n_cpu_moe for --cpu-moe.
ALL_LAYERS = 1_000
_EXPERTS = ("gate", "up", "down")
_OTHERS = (
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "attn_norm",
    "ffn_norm",
    "ssm_in",
    "ssm_out",
    "ffn_gate_inp",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "ffn_gate_shexp",
    "ffn_up_shexp",
    "ffn_down_shexp",
)
# Tables of embeddings, which are on the host in any case.
_TABLE = "per_layer_token_embd.weight"


# The most repetitions, as .*, in a pattern and in all patterns of an option. Each
# more makes a search as many times slower as a tensor's name has characters.
_MOST_REPEATS = 4
_MOST_REPEATS_IN_ALL = 40
# An escaped character, a class of characters, or a sign of a regular expression.
_SIGN = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\{\d*,?\d*\}|[()|*+?]")


def _repeats(pattern: str) -> int | None:
    """Return how many repetitions a regular expression has, ? too; None if it repeats a group that
    itself repeats or chooses, whose search may take forever: '(a|b)*', '(a+)+', '(a?){30}'.
    """
    found = 0
    hazards = [False]  # of each open group: whether it repeats or chooses
    end_of_hazard = -1  # where a group that does ends
    end_of_repeat = -1  # where a ? makes a repetition lazy
    for match in _SIGN.finditer(pattern):
        sign = match[0]
        is_repeat = sign in ("*", "+") or (sign.startswith("{") and sign != "{1}")
        # '(?:' begins a group
        is_optional = sign == "?" and pattern[match.start() - 1 : match.start()] != "("
        if is_optional and match.start() != end_of_repeat:
            is_repeat = True
        if is_repeat and match.start() == end_of_hazard and sign != "?":
            return None
        if is_repeat:
            found += 1
            end_of_repeat = match.end()
            hazards[-1] = True
        elif sign == "|":
            hazards[-1] = True
        elif sign == "(":
            hazards.append(False)
        elif sign == ")" and len(hazards) > 1 and hazards.pop():
            hazards[-1] = True
            end_of_hazard = match.end()
    return found


def _check_time(entries: Sequence[str], name: str) -> None:
    """Raise NotSupportedError if searching for patterns may take long."""
    repeats = [_repeats(entry) for entry in entries]
    counted = [number for number in repeats if number is not None]
    is_long = None in repeats or sum(counted) > _MOST_REPEATS_IN_ALL
    if is_long or max(counted) > _MOST_REPEATS:
        raise NotSupportedError(
            f"{name}: '{truncate(','.join(entries))}' may take too long to search for",
            f"use at most {_MOST_REPEATS} of *, + and ? in a pattern, and none after a group with "
            "| or another of them",
        )


def _overrides(text: str, name: str) -> str:
    """Return the text. Raises AttncalcError unless each pattern moves routed experts to the CPU,
    and nothing else.
    """
    _check_time(text.split(","), name)
    for entry in text.split(","):
        try:
            patterns = patterns_of(entry)
            blocks = [f"blk.{i}." for i in range(ALL_LAYERS)]
        except (re.error, OverflowError, RecursionError):
            raise AttncalcError(
                f"{name}: '{truncate(entry)}' has no pattern", "write it as exps=CPU"
            ) from None
        others = any(
            p.search(f"{block}{other}.weight")
            for p in patterns
            for block in blocks
            for other in _OTHERS
        )
        moved = any(host_experts(block, patterns) for block in blocks) or any(
            p.search(_TABLE) for p in patterns
        )
        if others or not moved or not entry.upper().endswith("=CPU"):
            raise NotSupportedError(
                f"{name} '{truncate(entry)}' is not supported: only routed experts can be moved, "
                "to the CPU",
                "write it as exps=CPU, or use --n-cpu-moe N, -ngl N or -ts",
            )
    return text


def host_experts(block: str, patterns: Sequence[re.Pattern[str]]) -> int:
    """Return how many of a block's three matrices of routed experts these patterns move to the
    host.
    """
    return sum(
        any(p.search(f"{block}ffn_{part}_exps.weight") for p in patterns) for part in _EXPERTS
    )


@cache
def patterns_of(text: str | None) -> Sequence[re.Pattern[str]]:
    """Return the patterns of --override-tensor."""
    return [re.compile(entry.partition("=")[0]) for entry in (text or "").split(",") if entry]


def first_layers(text: str) -> int | None:
    """Return N if --override-tensor does what --n-cpu-moe N does, or None."""
    moved = [host_experts(f"blk.{i}.", patterns_of(text)) for i in range(ALL_LAYERS if text else 0)]
    n = next((i for i, parts in enumerate(moved) if parts != len(_EXPERTS)), len(moved))
    if any(moved[n:]):
        return None
    return n


class Projector(NamedTuple):
    """The projector of a multimodal model, with its vision or audio tower."""

    path: str  # its GGUF file; '' if it is a part of Ollama's or LM Studio's model
    weights: int  # bytes of its tensors


class LlamacppOptions(SplitCacheOptions, total=False):
    """Arguments of llama.cpp alone. The first place layers and caches on GPUs."""

    n_gpu_layers: Annotated[
        Count | None,
        Parser(_gpu_layers, result="int"),
        "Layers on GPUs; the output layer counts as one. auto: the most that fit. Default: all.",
        With(names="--n-gpu-layers --gpu-layers -ngl", metavar="N", common=True, needs_gpu=True),
    ]
    n_cpu_moe: Annotated[
        Count | None,
        COUNT_OR_ZERO,
        "The routed experts of the first N layers on the host.",
        With(names="--n-cpu-moe -ncmoe", needs_gpu=True, field="int = 0"),
    ]
    cpu_moe: Annotated[
        bool,
        "All experts on the host.",
        With(names="--cpu-moe -cmoe", needs_gpu=True, field=None),  # n_cpu_moe of all layers
    ]
    override_tensor: Annotated[
        str | None,
        Parser(_overrides),
        "Routed experts on the host, as '.ffn_.*_exps.=CPU'.",
        With(names="--override-tensor -ot", metavar="PATTERN=CPU,...", axis=False, needs_gpu=True),
    ]
    tensor_split: Annotated[
        str | Sequence[float] | None,
        Parser(_shares),
        "Share of the layers on each GPU, as 3,1.",
        With(
            names="--tensor-split -ts",
            metavar="N,N,...",
            axis=False,
            needs_gpu=True,
            field="tuple[float, ...] = ()",
        ),
    ]
    ram: Annotated[
        Size | None,
        GIBIBYTES._replace(metavar="SIZE"),
        "Host memory for what is not on GPUs, as 32GB. Default: this machine's with --gpu local "
        "or cpu.",
        With(also="--host-memory --system-memory --cpu-memory", common=True, needs_gpu=True),
    ]
    ram_bandwidth: Annotated[
        Size | None,
        BYTES,
        "Bytes/s of host memory, as 60GB, for what decode reads there. Default: 89.6GB.",
        With(also="--memory-bandwidth", needs_gpu=True),
    ]
    no_mmap: Annotated[
        bool, "Host memory has the weights there, and not a mapped file.", With(needs_gpu=True)
    ]
    no_kv_offload: Annotated[
        bool, "The cache in host memory.", With(names="--no-kv-offload -nkvo", needs_gpu=True)
    ]
    mmproj: Annotated[
        str | os.PathLike[str] | None,
        "The projector of a multimodal model, a GGUF file: its weights are on the first GPU.",
        With(
            names="--mmproj -mm",
            metavar="FILE",
            axis=False,
            needs_gpu=True,
            field="Projector | None = None",
        ),
    ]
    kv_dtype_k_draft: Annotated[
        str | None,
        DTYPE_OR_AUTO,
        "Dtype of K of the drafter's cache. Default: fp16.",
        With(names="--kv-dtype-k-draft --cache-type-k-draft -ctkd"),
    ]
    kv_dtype_v_draft: Annotated[
        str | None,
        DTYPE_OR_AUTO,
        "Dtype of V of the drafter's cache. Default: fp16.",
        With(names="--kv-dtype-v-draft --cache-type-v-draft -ctvd"),
    ]
    sequences: Annotated[
        Count | None,
        COUNT,
        "Slots. Default: --batch. Without --batch they share --context, as in llama.cpp.",
        With(names="--sequences --parallel -np"),
    ]
    ubatch: Annotated[
        Count | None,
        COUNT,
        "Tokens per pass. Default: 512; of an encoder, all of its texts.",
        With(names="--ubatch --ubatch-size -ub"),
    ]
    flash_attn: Annotated[
        str | None,
        FLASH,
        "Flash attention: on, off or auto. Without MODE: on.",
        With(names="--flash-attn -fa"),
    ]
    n_outputs_max: Annotated[
        Count | None, COUNT, "Rows of logits per pass. Default: one per slot, as llama-server."
    ]
    kv_unified: Annotated[bool, "All slots share one buffer.", With(names="--kv-unified -kvu")]
    swa_full: Annotated[bool, "Store sliding windows as full attention."]


@dataclass(frozen=True, eq=False, repr=False)
class LlamacppArgs(EngineArgs):
    """The arguments of llama.cpp: those of its options have their names. Sizes are in bytes.

    `n_gpu_layers` of None are all layers, and a `tensor_split` of () equal shares.
    """

    # Fields of LlamacppOptions, written by tests/test_engine_fields.py.
    kv_dtype_k: DType | None = None
    kv_dtype_v: DType | None = None
    n_gpu_layers: int | None = None
    n_cpu_moe: int = 0
    override_tensor: str | None = None
    tensor_split: tuple[float, ...] = ()
    ram: int | None = None
    ram_bandwidth: int | None = None
    no_mmap: bool = False
    no_kv_offload: bool = False
    mmproj: Projector | None = None
    kv_dtype_k_draft: DType | None = None
    kv_dtype_v_draft: DType | None = None
    sequences: int | None = None
    ubatch: int | None = None
    flash_attn: str | None = None
    n_outputs_max: int | None = None
    kv_unified: bool = False
    swa_full: bool = False

    batch: int | None = None  # sequences for which the server is started

    def __post_init__(self) -> None:
        """Drop what divides a model between GPUs and host if there are no GPUs."""
        if not self.on_cpu:
            return
        if self.n_gpu_layers:
            raise clash(
                f"--n-gpu-layers {self.n_gpu_layers}", "--gpu cpu", "leave it out, or give 0"
            )
        if self.ram_bandwidth:
            raise clash(
                "--ram-bandwidth", "--gpu cpu", "leave it out: no times are computed on a CPU"
            )
        none = {
            "n_gpu_layers": None,
            "n_cpu_moe": 0,
            "tensor_split": (),
            "no_kv_offload": False,
            "no_mmap": False,
        }
        none |= {"override_tensor": None, "ram": None}
        for name, value in none.items():
            object.__setattr__(self, name, value)

    @property
    def release(self) -> LlamaCppVersion:
        """The version, and what depends on it. Raises AttncalcError if it is unknown."""
        return llamacpp_version(self.engine_version)

    @property
    def moves_experts(self) -> bool:
        """Whether an option moves routed experts to the host."""
        return bool(self.n_cpu_moe or self.override_tensor)

    def has_experts_on_host(self, layer: int) -> bool:
        """Return whether a layer's routed experts are on the host. Raises AttncalcError if only a
        part of them is.
        """
        if layer < self.n_cpu_moe:
            return True
        moved = host_experts(f"blk.{layer}.", patterns_of(self.override_tensor))
        if moved not in (0, len(_EXPERTS)):
            why = (
                f"--override-tensor {truncate(self.override_tensor or '')} moves a part of a "
                "layer's experts, which"
            )
            raise NotSupportedError(
                f"{why} is computed for a GGUF file only", "give the file, or use --n-cpu-moe N"
            )
        return bool(moved)

    @property
    def types(self) -> tuple[DType, DType]:
        return self.kv_dtype_k or self.kv_dtype, self.kv_dtype_v or self.kv_dtype

    @property
    def draft_types(self) -> tuple[DType, DType]:
        """The dtypes of K and of V of the drafter's cache: fp16, whatever those of the model
        are.
        """
        return self.kv_dtype_k_draft or dtype("fp16"), self.kv_dtype_v_draft or dtype("fp16")

    @property
    def has_draft_context(self) -> bool:
        return bool(self.speculative_model or self.speculative_layers)

    @property
    def slots(self) -> int:
        """The slots of a start: -np, and at least those that the batch needs, which a search over
        batches tries.
        """
        return max(self.sequences or 1, self.batch or 1)

    @property
    def whole_contexts(self) -> int:
        """Sequences that the cells of a start hold with the whole context: with -np 4 -kvu, the
        slots share one.
        """
        if self.kv_unified:
            return min(self.batch or self.slots, self.slots)
        return self.slots

    @property
    def micro_batch(self) -> int:
        if self.without_cache and self.ubatch is None:
            return self.texts_in_one_pass(self.max_model_len or 0)
        return self.ubatch or DEFAULT_UBATCH

    def texts_in_one_pass(self, context: int) -> int:
        """Return the tokens of a pass over a text of `context` tokens in each slot: without a cache
        a text is computed in one pass, and -b and -ub are at least its tokens.
        """
        return max(DEFAULT_UBATCH, self.slots * context)

    @property
    def is_unified(self) -> bool:
        """Whether all slots share one stream of cells."""
        return self.kv_unified or self.release.fork

    @property
    def state_rows(self) -> int:
        """State rows per sequence: 1, and one per speculative token that can be rolled back."""
        return 1 + self.speculative_tokens

    def streams(self, slots: int) -> int:
        """Return the streams of cells of so many slots."""
        if self.is_unified:
            return 1
        return slots
