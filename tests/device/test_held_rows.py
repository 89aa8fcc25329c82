"""Rows in registers: loaded, reduced and stored by the threads of a warp, a CTA and a cluster."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

import cutlass  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cuda.bindings.driver import CUstream  # noqa: E402

import cutepy  # noqa: E402
from cutepy.device import reduce  # noqa: E402
from cutepy.device.global_copies import make_row_vectors  # noqa: E402
from cutepy.device.held_rows import make_held_rows  # noqa: E402
from cutepy.kernels.rows.tiling import RowTiling  # noqa: E402

pytestmark = pytest.mark.dsl


class Rows:
    """Each row less its largest element, the sum of each row, and the sum of each CTA's rows."""

    def __init__(self, tiling):
        self.tiling = tiling

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, sums: cute.Tensor, columns: cute.Tensor, stream: CUstream):
        tiling = self.tiling
        groups = cute.ceil_div(cute.size(x, mode=[0]), tiling.rows)
        self.kernel(x, y, sums, columns).launch(
            grid=(groups * tiling.ctas, 1, 1),
            block=(tiling.cta, 1, 1),
            cluster=(tiling.ctas, 1, 1) if tiling.ctas > 1 else None,
            stream=stream,
        )

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, sums: cute.Tensor, columns: cute.Tensor):
        tiling = self.tiling
        rows = make_held_rows(tiling, barrier=3)
        group = cute.arch.block_idx()[0] // tiling.ctas
        row = group * tiling.rows + rows.group
        held = rows.load(make_row_vectors(x, tiling.elems), row)
        total = rows.total(held)
        if rows.thread == 0 and rows.rank == 0 and row < cute.size(x, mode=[0]):
            sums[row] = total
        added = rows.empty()
        added.store(held.load())
        if cutlass.const_expr(tiling.rows > 1):
            rows.sum_rows(added)
        if rows.group == 0:
            rows.store(added, make_row_vectors(columns, tiling.elems), group)
        rows.fill_beyond(held, cute.size(x, mode=[1]), -1e30)
        largest = rows.reduce(rows.fold(held, reduce.maximum), reduce.maximum)
        held.store(held.load() - largest)
        rows.store(held, make_row_vectors(y, tiling.elems), row)


@pytest.mark.first(4)
@pytest.mark.parametrize(
    ("tiling", "columns"),
    [
        (RowTiling(8, 4, 3), 96),  # 32 rows of a CTA
        (RowTiling(2, 32, 1), 51),  # a warp, and a part of the last vector
        (RowTiling(4, 64, 2), 512),  # two warps
        (RowTiling(2, 64, 1, 2), 201),  # two CTAs
        (RowTiling(1, 1, 5), 4),
        (RowTiling(8, 128, 1, 4), 4000),
    ],
    ids=lambda each: each.name if isinstance(each, RowTiling) else each,
)
def test_rows_are_reduced_by_all_that_hold_them(tiling, columns):
    torch.manual_seed(0)
    x = -1 - torch.rand(tiling.rows + 3, columns).bfloat16()
    groups = -(-x.shape[0] // tiling.rows)
    y, sums, by_column = torch.empty_like(x), torch.empty(x.shape[0]), torch.empty(groups, columns)
    unit = tiling.elems if columns % tiling.elems == 0 else 1
    specs = [cutepy.TensorSpec(t, (n, "c"), divisibility={"c": unit}) for t, n in (("bfloat16", "r"), ("float32", "g"))]
    function = cutepy.compile(Rows(tiling), specs[0], specs[0], cutepy.TensorSpec("float32", ("r",)), specs[1])
    with cutepy.simulate(sanitize=True) as run:
        function(x, y, sums, by_column)
    assert not run.hazards
    wide = x.float()
    assert torch.equal(y, (wide - wide.amax(1, keepdim=True)).bfloat16())
    torch.testing.assert_close(sums, wide.sum(1))
    parts = torch.stack([part.sum(0) for part in wide.split(tiling.rows)])
    torch.testing.assert_close(by_column, parts)


class Before:
    """The sum of the numbers of a row's threads before each, and the row, which one of them leaves to all."""

    def __init__(self, tiling):
        self.tiling = tiling

    @cute.jit
    def __call__(self, sums: cute.Tensor, stream: CUstream):
        grid = (cute.ceil_div(cute.size(sums, mode=[0]), self.tiling.rows), 1, 1)
        self.kernel(sums).launch(grid=grid, block=(self.tiling.cta, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, sums: cute.Tensor):
        rows = make_held_rows(self.tiling, 3, {"row": (cutlass.Int32, self.tiling.rows)})
        row = cute.arch.block_idx()[0] * self.tiling.rows + rows.group
        kept = rows.slots["row"]
        if rows.thread == 0:
            kept[rows.group] = row
        rows.reduce(cutlass.Float32(0.0), reduce.add)  # whose slots are free afterwards
        before = rows.sum_before(cutlass.Float32(rows.thread + row))
        cute.arch.sync_threads()
        if row < cute.size(sums, mode=[0]):
            sums[row, rows.thread] = before + 1000 * kept[rows.group]


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "tiling", [RowTiling(8, 4, 3), RowTiling(4, 128, 2), RowTiling(2, 32, 1), RowTiling(1, 1, 5)], ids=lambda t: t.name
)
def test_sums_before_a_thread(tiling):
    sums = torch.empty(tiling.rows + 3, tiling.threads)
    function = cutepy.compile(Before(tiling), cutepy.TensorSpec("float32", ("r", "c")))
    with cutepy.simulate(sanitize=True) as run:
        function(sums)
    assert not run.hazards
    rows, threads = torch.arange(tiling.rows + 3.0)[:, None], torch.arange(float(tiling.threads))
    assert torch.equal(sums, (rows + threads).cumsum(1) - (rows + threads) + 1000 * rows)


class Integers:
    """Reduces an integer of each thread, with a sign or without, three times in a row."""

    def __init__(self, tiling):
        self.tiling = tiling

    @cute.jit
    def __call__(self, given: cute.Tensor, found: cute.Tensor, stream: CUstream):
        grid = (cute.ceil_div(cute.size(given, mode=[0]), self.tiling.rows), 1, 1)
        self.kernel(given, found).launch(grid=grid, block=(self.tiling.cta, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, given: cute.Tensor, found: cute.Tensor):
        rows = make_held_rows(self.tiling, 3)
        row, value = cute.arch.block_idx()[0] * self.tiling.rows + rows.group, cutlass.Int32(0)
        if row < cute.size(given, mode=[0]):
            value = given[row, rows.thread]
        total = rows.reduce_integers(value, "add", 0)
        least = rows.reduce_integers(value, "min", 1)
        most = rows.reduce_integers(cutlass.Uint32(value), "umax", 0)
        if row < cute.size(given, mode=[0]) and rows.thread == rows.tiling.threads - 1:
            found[row, 0] = total
            found[row, 1] = least
            found[row, 2] = cutlass.Int32(most)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "tiling",
    [RowTiling(8, 4, 3), RowTiling(4, 128, 2), RowTiling(2, 32, 1), RowTiling(1, 1024, 1)],
    ids=lambda t: t.name,
)
def test_integers_are_reduced(tiling):
    chance = torch.Generator().manual_seed(0)
    given = torch.randint(-1000, 1000, (tiling.rows + 3, tiling.threads), generator=chance, dtype=torch.int32)
    given[0] = given[0].abs()  # the largest without a sign is another
    found = torch.empty(tiling.rows + 3, 3, dtype=torch.int32)
    function = cutepy.compile(
        Integers(tiling), cutepy.TensorSpec("int32", ("r", "c")), cutepy.TensorSpec("int32", ("r", 3))
    )
    with cutepy.simulate(sanitize=True) as run:
        function(given, found)
    assert not run.hazards
    wide = given.long() & 0xFFFFFFFF
    assert torch.equal(found[:, 0], given.sum(1).int())
    assert torch.equal(found[:, 1], given.amin(1))
    assert torch.equal(found[:, 2].long() & 0xFFFFFFFF, wide.amax(1))
