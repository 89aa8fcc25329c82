"""Tiles of groups are counted in 32 bits before a kernel is chosen, those that begin with a group included."""

import pytest

from tests.messages import refuses

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from cutepy.epilogues.functions import identity  # noqa: E402
from cutepy.kernels.gemm.op import MOST_TILES  # noqa: E402
from cutepy.kernels.gemm.operands import Description, Problem, new_result  # noqa: E402
from cutepy.kernels.grouped import op  # noqa: E402


class ChosenError(Exception):
    """A kernel would be compiled now."""


def choose(monkeypatch, along, shapes, count):
    """Find what is launched for groups of such a, b and out; matrices of groups are one in memory."""

    def chosen(config):
        raise ChosenError

    monkeypatch.setattr(op, "compile_grouped", chosen)
    a, b = (torch.empty(shape[-2:], dtype=torch.bfloat16).expand(shape) for shape in shapes[:2])
    out = new_result(shapes[2], torch.bfloat16, "col" if along == "n" else "row", a.device)
    op.find_groups_route(Problem(identity.text, Description.of(a), Description.of(b), (), (out,)), along, count)


# The product of one group has one tile, whatever the tile's extents. Each group has one more, or all of its own.
FORMS = {
    "rows": ("m", lambda count: ((16, 16), (count, 16, 16), (16, 16)), 1),
    "columns": ("n", lambda count: ((count, 16, 16), (16, 16), (16, 16)), 1),
    "k": ("k", lambda count: ((16, 16), (16, 16), (count, 16, 16)), 0),
    "matrices": ("m", lambda count: ((count, 16, 16), (count, 16, 16), (count, 16, 16)), 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_tiles_that_groups_add_count(form, monkeypatch):
    along, shapes, beside = FORMS[form]
    most = MOST_TILES - 1 - beside
    with pytest.raises(ChosenError):
        choose(monkeypatch, along, shapes(most), most)
    with refuses(ValueError):
        choose(monkeypatch, along, shapes(most + 1), most + 1)


def test_tiles_along_the_other_extent_multiply_those_of_groups(monkeypatch):
    """2**26 groups of one row, and at least 2**6 tiles of columns for each."""
    count, columns = 2**26, 2**14
    for along, shapes in (
        ("m", ((128, 16), (count, columns, 16), (128, columns))),
        ("n", ((count, columns, 16), (128, 16), (columns, 128))),
    ):
        with refuses(ValueError):
            choose(monkeypatch, along, shapes, count)
        few = [tuple(2**10 if extent == count else extent for extent in shape) for shape in shapes]
        with pytest.raises(ChosenError):
            choose(monkeypatch, along, few, 2**10)
