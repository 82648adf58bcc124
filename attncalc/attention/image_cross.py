"""Cross-attention to an image's tokens, which text without an image skips (Llama 3.2 Vision)."""

from ..workload import Mask, Run
from .grouped import Grouped
from .kind import CacheSpec, Matrix, Widths


class ImageCross(Grouped):
    """Grouped attention whose keys and values come from an image.

    Without an image the layer does not run, so for text it has parameters but no FLOPs and no
    cache. Source: transformers' modeling_mllama.py (MllamaTextCrossAttention, and the layers that
    MllamaTextModel skips).
    """

    source = "Llama 3.2 Vision, transformers' modeling_mllama.py"

    @property
    def label(self) -> str:
        return f"image-{super().label}"

    @property
    def tag(self) -> str:
        return self.label

    @property
    def headline(self) -> str:
        return "cross-attention to images"

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        return tuple(
            matrix._replace(applied_to=None) for matrix in super().matrices(d_model, d_source)
        )

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        return 0 * run.new

    def cache(self) -> tuple[CacheSpec, ...]:
        return ()

    def widths(self, run: Run | None = None) -> Widths:
        return Widths(0, 0, 0, 0)

    def notes(self, past: bool) -> tuple[str, ...]:
        return ("Text without an image skips the layers that attend to images: they cost nothing.",)
