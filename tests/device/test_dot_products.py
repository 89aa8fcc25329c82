"""Dot products of a warp, or of some that share K, straight from global memory: exact and clean."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

from functools import cache  # noqa: E402

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import reduce  # noqa: E402
from cutepy.device.dot_products import DotProducts  # noqa: E402


class Products:
    """D = A B^T, each part of K apart: a CTA for each tile of rows and columns, with a warp for each part."""

    def __init__(self, rows, columns, unroll, parts):
        self.rows, self.columns, self.unroll, self.parts = rows, columns, unroll, parts

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        grid = [cute.ceil_div(cute.size(d, mode=[mode]), unit) for mode, unit in ((1, self.rows), (2, self.columns))]
        self.kernel(a, b, d).launch(grid=(*grid, 1), block=(32 * self.parts, 1, 1))

    @cute.kernel
    def kernel(self, a: cute.Tensor, b: cute.Tensor, d: cute.Tensor):
        part = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        row, column = cute.arch.block_idx()[0] * self.rows, cute.arch.block_idx()[1] * self.columns
        sums = DotProducts(a, b, self.rows, self.columns, self.unroll, self.parts).multiply(row, column, part)
        for m in cutlass.range_constexpr(self.rows):
            for n in cutlass.range_constexpr(self.columns):
                total = reduce.warp_reduce(sums[m, n], reduce.add)
                if cute.arch.lane_idx() == 0 and row + m < d.shape[1] and column + n < d.shape[2]:
                    d[part, row + m, column + n] = total


@cache
def compiled(dtype, parts, *how):
    """Compile products of any extents, whose K is of whole pieces of 16 bytes."""
    unit = 16 // getattr(torch, dtype).itemsize
    specs = [
        cutepy.TensorSpec(dtype, (x, "k"), strides=(f"{x}_pitch", 1), divisibility={"k": unit, f"{x}_pitch": unit})
        for x in "mn"
    ]
    return cutepy.compile(Products(*how, parts), *specs, cutepy.TensorSpec("float32", (parts, "m", "n")))


def multiply(dtype, extents, rows, columns, unroll, parts):
    m, n, k = extents
    kind = getattr(torch, dtype)
    unit = 16 // kind.itemsize
    # Rows are farther apart than K, by a piece of NaN, which nobody may read.
    a, b = (torch.full((extent, k + unit), torch.nan).to(kind)[:, :k] for extent in (m, n))
    for each in (a, b):
        each.copy_(torch.randint(-3, 4, each.shape))
    d = torch.full((parts, m, n), torch.nan)
    with cutepy.simulate(sanitize=True) as run:
        compiled(dtype, parts, rows, columns, unroll)(a, b, d)
    return a.double(), b.double(), d, run


SHAPES = [(1, 1, 1, 1), (2, 4, 2, 1), (4, 2, 1, 3), (1, 4, 4, 2)]
CASES = [
    *((dtype, k, shape) for dtype, k in (("float8_e4m3fn", 2064), ("float32", 644)) for shape in SHAPES),
    *(("float16", k, shape) for k in (8, 4096) for shape in SHAPES),
    ("bfloat16", 1040, SHAPES[1]),  # as wide as float16
]


@pytest.mark.first(8)
@pytest.mark.parametrize(("dtype", "k", "shape"), CASES)
def test_sums_of_all_parts_are_exact(dtype, k, shape):
    a, b, d, run = multiply(dtype, (5, 7, k), *shape)
    assert torch.equal(d.double().sum(0), a @ b.mT)
    assert not run.hazards, run.report()


def test_each_part_has_every_so_manieth_chunk():
    a, b, d, _ = multiply("float16", (1, 2, 1024), 1, 2, 1, 2)
    chunks = torch.arange(1024) // (32 * 8)  # a piece of 16 bytes for each lane
    for part in range(2):
        own = chunks % 2 == part
        assert torch.equal(d[part].double(), a[:, own] @ b[:, own].mT)
