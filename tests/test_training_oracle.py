"""The tensors that transformers' classes save for the backward pass (tools/training_oracle.py)
equal the formulas.
"""

from tables import each

from attncalc.verify import need_torch

need_torch()

from training_classes import ROWS, cause_of, class_rows  # noqa: E402


@each("name", ROWS)
def test_layers_of_a_class_save_what_the_formulas_say(name: str) -> None:
    if not (cause := cause_of(name)):
        assert [row for row in class_rows(name) if not row.is_exact or row.empty] == []
    elif "not known" not in cause:
        assert not all(row.is_exact for row in class_rows(name)), (
            "it is exact: remove it from OTHERS"
        )
