"""The states that optimizers keep per trained tensor."""

from collections.abc import Iterable

from ...records import NamedTuple
from .param_tensor import ParamTensor

# Elements of a block of bitsandbytes' 8-bit optimizers, which has one fp32 scale per moment
# (bitsandbytes/optim/optimizer.py).
BLOCK = 256
# Elements below which bitsandbytes keeps moments in fp32 (min_8bit_size).
MIN_8BIT = 4096


class Optimizer(NamedTuple):
    title: str  # its name on screens
    moments: int  # values per trained parameter
    # 'plain' (of --optimizer-dtype), '8bit' (bitsandbytes), 'factored' (Adafactor) or 'muon'
    kind: str
    source: str  # paper or code
    # The library that has it, if it updates weights of 16 bits in place: DeepSpeed alone keeps fp32
    # copies
    in_place: str = ""


OPTIMIZERS: dict[str, Optimizer] = {
    "adamw": Optimizer("AdamW", 2, "plain", "Loshchilov and Hutter 2017, arXiv:1711.05101"),
    "adam8bit": Optimizer(
        "8-bit AdamW", 2, "8bit", "Dettmers et al. 2021, arXiv:2110.02861", "bitsandbytes"
    ),
    "paged_adamw_8bit": Optimizer(
        "paged 8-bit AdamW", 2, "8bit", "QLoRA, arXiv:2305.14314, 3", "bitsandbytes"
    ),
    "paged_adamw_32bit": Optimizer(
        "paged AdamW", 2, "plain", "QLoRA, arXiv:2305.14314, 3", "bitsandbytes"
    ),
    "adafactor": Optimizer(
        "Adafactor",
        0,
        "factored",
        "Shazeer and Stern 2018, arXiv:1804.04235, without momentum",
        "transformers",
    ),
    "sgd": Optimizer("SGD", 0, "plain", "torch.optim.SGD without momentum"),
    "momentum": Optimizer("SGD with momentum", 1, "plain", "torch.optim.SGD"),
    "lion": Optimizer("Lion", 1, "plain", "Chen et al. 2023, arXiv:2302.06675"),
    "muon": Optimizer(
        "Muon",
        1,
        "muon",
        "Jordan 2024, github.com/KellerJordan/Muon: AdamW for all but hidden matrices",
    ),
}
# Names of optimizers in transformers, torchtune, Axolotl and Unsloth.
ALIASES = {
    "adam": "adamw",
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_8bit": "adam8bit",
    "adamw8bit": "adam8bit",
    "adamw_torch_8bit": "adam8bit",
    "adamw_bnb_8bit": "adam8bit",
    "8bit-adam": "adam8bit",
    "sgd_momentum": "momentum",
}


def state_bytes(tensors: Iterable[ParamTensor], optimizer: Optimizer, moment_bytes: int) -> int:
    """Return the bytes of the optimizer's moments of trained tensors."""
    return sum(tensor.copies * _of_tensor(tensor, optimizer, moment_bytes) for tensor in tensors)


def _of_tensor(tensor: ParamTensor, optimizer: Optimizer, moment_bytes: int) -> int:
    elements = tensor.elements
    if optimizer.kind == "8bit":
        if elements < MIN_8BIT:
            return 8 * elements
        return 2 * elements + 2 * 4 * -(-elements // BLOCK)
    # a row and a column of fp32 means per matrix, one value per element of a vector
    if optimizer.kind == "factored":
        is_matrix = tensor.rows > 1 and tensor.columns > 1
        return 4 * (tensor.rows + tensor.columns if is_matrix else elements)
    if optimizer.kind == "muon" and not tensor.is_hidden:
        return 2 * elements * moment_bytes
    return optimizer.moments * elements * moment_bytes
