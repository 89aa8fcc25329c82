"""Fakes of memory and numbers in a trace."""

import pytest

pytest.importorskip("torch")
cutlass = pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy.dsl.fakes import dsl_number  # noqa: E402


@pytest.mark.parametrize(
    ("value", "annotation", "kind"),
    [
        (True, None, "Boolean"),
        (3, None, "Int32"),
        (3.0, None, "Float32"),
        (3, int, "Int32"),
        (3, "cutlass.Int64", "Int32"),
    ],
)
def test_a_number_is_of_the_type_by_which_the_dsl_takes_it(value, annotation, kind):
    assert type(dsl_number(value, annotation)).__name__ == kind


def test_a_number_is_of_the_type_that_is_said():
    assert type(dsl_number(3, cutlass.Int64)).__name__ == "Int64"
    assert type(dsl_number(3.0, cutlass.Float16)).__name__ == "Float16"
