"""Row stores of accumulators: every element of the rows that exist is in its place, of any width of a store."""

import re

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")
pytestmark = pytest.mark.dsl

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import rules  # noqa: E402
from cutepy.device.fragment import AccumulatorTile  # noqa: E402
from cutepy.device.row_stores import RowStores  # noqa: E402
from cutepy.layouts import sm90  # noqa: E402

ROWS, COLUMNS = 128, 32


class Stores:
    """Copy of a tile by the coordinates of its accumulators to some rows and columns of a matrix."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        tiling = rules.wgmma_tiling("float16", "float16", COLUMNS, ROWS // 64)
        self.coordinates, self.threads = sm90.AccumulatorCoordinates(tiling, (ROWS, COLUMNS)), tiling.thr_size

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor):
        self.kernel(x, y).launch(grid=(1, 1, 1), block=(self.threads, 1, 1))

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor):
        tidx, _, _ = cute.arch.thread_idx()
        tile = AccumulatorTile(self.coordinates, (ROWS, COLUMNS), tidx)
        rC = cute.make_rmem_tensor(len(tile.registers), cutlass.Float32)
        for register in cutlass.range_constexpr(cute.size(rC)):
            row, column = tile.coordinate(0, register)
            rC[register] = x[row, column]
        RowStores(tile, self.lanes).store(rC, y, 3, COLUMNS, cute.size(y, mode=[0]) - 1)


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_stored_up_to_the_end(dtype, lanes):
    x, rows = torch.randn(ROWS, COLUMNS), 77
    y = torch.full((rows, 3 * COLUMNS), 7.0, dtype=dtype)
    want = y.clone()
    want[3 : rows - 1, COLUMNS : 2 * COLUMNS] = x[: rows - 4].to(dtype)
    with cutepy.simulate(sanitize=True) as run:
        Stores(lanes)(x, y)
    assert torch.equal(y, want)
    assert not run.hazards


@pytest.mark.parametrize(("dtype", "lanes"), [(torch.float32, 2), (torch.bfloat16, 4)])
def test_a_store_of_lanes_that_exchange_has_16_bytes(dtype, lanes):
    with cutepy.simulate() as run:
        Stores(lanes)(torch.zeros(ROWS, COLUMNS), torch.zeros(77, 3 * COLUMNS, dtype=dtype))
    (launch,) = run.launches
    stores = re.findall(r"st\.global\S*", launch.ptx)
    assert stores
    assert all(".v4.b32" in store for store in stores), stores
