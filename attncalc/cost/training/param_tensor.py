"""A parameter tensor: what is trained, sharded, quantized and adapted is decided for each."""

from ...records import NamedTuple


class ParamTensor(NamedTuple):
    """Equal parameter tensors of a stage."""

    name: str  # the matrix's name: 'W_q', 'norm', 'embedding', 'lm_head'
    part: str  # 'attention', 'mlp', 'experts', 'norms', 'embedding', 'head' or 'other'
    rows: int  # its first dimension as torch stores it: the outputs of a matrix
    columns: int  # its other dimensions
    copies: int  # how many of them the stage has
    is_hidden: bool = False  # whether it is a matrix of a layer, which multiplies tokens
    # How many of them are one parameter: transformers stacks a layer's experts, with gate and up in
    # one
    stacked: int = 1
    # whether it is peft's copy of a frozen tensor, which is trained whole beside adapters
    is_saved: bool = False

    @property
    def elements(self) -> int:
        return self.rows * self.columns

    @property
    def has_gradient(self) -> bool:
        """Return whether the loss reaches it: indexers pick keys without a gradient
        (modeling_deepseek_v32.py).
        """
        return not self.name.startswith("index_")

    @property
    def is_layer_matrix(self) -> bool:
        """Return whether it is a matrix of a layer that fp8 and quantization cover: no router."""
        return self.is_hidden and self.name != "router"

    @property
    def total(self) -> int:
        return self.copies * self.rows * self.columns
