"""Grouped attention whose scores have further products with a table of relative positions (DeBERTa,
XLNet).
"""

from collections.abc import Mapping
from typing import Any

from ..quantity import documented, minimum
from ..records import dataclass
from ..workload import Mask, Run
from .grouped import Grouped
from .kind import MULTIPLY_ADD, Matrix, Table, flag
from .span import Span

_PRODUCTS: Mapping[str, Any] = {
    "type": "array",
    "uniqueItems": True,
    "items": {"enum": ["c2p", "p2c"]},
}


@dataclass(frozen=True)
class PositionScores(Grouped):
    """Grouped attention that also scores queries against keys of relative positions, and keys
    against their queries.

    The keys and queries of positions are projections of a table. DeBERTa's table has position_rows
    rows, is projected once for a whole batch, and both products may exist. XLNet's has one row per
    distance, which are 2 S for S tokens, and is projected for each sequence. Without
    position_products it is grouped attention.

    Source: He et al. 2021, arXiv:2006.03654, 3.1 (DeBERTa); Yang et al. 2019, arXiv:1906.08237, and
    Dai et al. 2019, arXiv:1901.02860, 3.3 (XLNet); transformers' modeling_deberta.py,
    modeling_deberta_v2.py and modeling_xlnet.py.
    """

    position_products: tuple[str, ...] = documented(
        "products with positions: c2p = queries with keys of positions, p2c = keys with queries "
        "of positions",
        default=(),
        schema=_PRODUCTS,
    )
    position_rows: int | None = documented(
        "rows of the table of relative positions",
        left_out="one per distance, for each sequence",
        default=None,
    )
    position_rows_grow: bool = flag(
        "a sequence uses only two rows per token, and at most position_rows (DeBERTa v1)"
    )
    position_bias: tuple[str, ...] = documented(
        "products whose projection of the table has a bias", default=(), schema=_PRODUCTS
    )
    shares_position_projections: bool = flag(
        "W_q and W_k project the table too: it has no matrices of its own (DeBERTa v3)"
    )

    @classmethod
    def from_keys(cls, keys: Mapping[str, Any], d_model: int, span: Span) -> Grouped:
        lists = {
            name: tuple(keys[name])
            for name in ("position_products", "position_bias")
            if name in keys
        }
        return super().from_keys({**keys, **lists}, d_model, span)

    source = (
        "DeBERTa, arXiv:2006.03654, 3.1; XLNet, arXiv:1906.08237; their classes in transformers"
    )

    @property
    def headline(self) -> str:
        products = {1: "a product", 2: "two products"}.get(len(self.position_products))
        if products:
            return f"{super().headline}, {products} with relative positions"
        return super().headline

    def matrices(self, d_model: int, d_source: int) -> tuple[Matrix, ...]:
        matrices = super().matrices(d_model, d_source)
        if not self.position_products:
            return matrices
        if self.position_rows:
            table = Table(self.position_rows, self.position_rows_grow)
        else:
            table = None
        if self.shares_position_projections:
            return tuple(
                m._replace(table=table) if m.name in ("W_q", "W_k") else m for m in matrices
            )
        width = self.n_heads * self.d_head
        own = []
        for product, name in (("c2p", "W_position_k"), ("p2c", "W_position_q")):
            if product in self.position_products:
                bias = width if product in self.position_bias else 0
                if table:
                    own.append(Matrix(name, d_model, width, bias, "table", table=table))
                else:  # two distances per token
                    own.append(Matrix(name, d_model, width, bias, "queries", times=2))
        return (*matrices, *own)

    def score_flops(self, run: Run, mask: Mask | None) -> int:
        cost = super().score_flops(run, mask)
        # All rows are scored, and each pair then takes the one of its distance.
        for product in self.position_products:
            tokens = run.new if product == "c2p" else run.context
            cost += MULTIPLY_ADD * self.n_heads * tokens * self._rows(run) * self.d_head
        return cost

    def _rows(self, run: Run) -> int:
        """Return the rows of the table that a sequence is scored against."""
        if self.position_rows is None:
            return run.new + run.context
        if self.position_rows_grow:
            return minimum(2 * run.context, self.position_rows)
        return self.position_rows

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "position_products": list(self.position_products),
            "position_rows": None if self.position_rows is None else int(self.position_rows),
        }
